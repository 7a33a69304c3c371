//! A broker under question: who makes things, who asks, and what the row is about.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest, FindCoordinatorRequest, GroupId,
    InitProducerIdRequest, MetadataRequest, OffsetCommitRequest, ProducerId, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::{Request, StrBytes};
use uuid::Uuid;

use super::{ADMIN, CLIENT};
use crate::raw::Raw;
use crate::requests::encode;

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// Of coordinators that load, and of transactions that end.
const TRANSIENT: [i16; 4] = [14, 15, 16, 51];

pub(crate) fn text(s: &str) -> StrBytes {
    StrBytes::from_string(s.to_owned())
}

pub(crate) struct World {
    address: SocketAddr,
    pub admin: Raw,
    pub client: Raw,
    rows: usize,
    pub exists: bool,
    /// Of the row, as are the next three.
    pub topic: String,
    pub topic_id: Uuid,
    pub group: String,
    pub id: String,
    /// The session of the transactional id, where it exists; numbers that nobody has, where not.
    pub session: (i64, i16),
}

impl World {
    pub(crate) fn begin(address: SocketAddr) -> Result<World> {
        let mut world = World {
            address,
            admin: Raw::open_from(ADMIN, address)?,
            client: Raw::open_from(CLIENT, address)?,
            rows: 0,
            exists: false,
            topic: String::new(),
            topic_id: Uuid::nil(),
            group: String::new(),
            id: String::new(),
            session: (0, 0),
        };
        let everything = [(2, "*"), (3, "*"), (4, "kafka-cluster"), (5, "*"), (7, "*")];
        let all = everything.map(|(kind, name)| acl(kind, name, 3, 2, &ADMIN.to_string()));
        world.allow(all.to_vec())?;
        for kind in [0, 1] {
            world.until_settled(|w| w.coordinator(kind))?;
        }
        Ok(world)
    }

    /// Makes what the row is about, allows what it allows, asks, and takes the rights back.
    pub(crate) fn row(
        &mut self,
        exists: bool,
        rights: &str,
        ask: fn(&mut World) -> Result<Vec<i64>>,
    ) -> Result<Vec<i64>> {
        self.rows += 1;
        self.exists = exists;
        self.topic = format!("topic-{}", self.rows);
        self.group = format!("group-{}", self.rows);
        self.id = format!("id-{}", self.rows);
        self.topic_id = Uuid::from_u128(self.rows as u128 + (1 << 64));
        self.session = (900_000, 0);
        if exists {
            self.admin.create_topic(&self.topic.clone(), 1)?;
            self.topic_id = self.find_topic_id()?;
            self.until_settled(|w| w.commit_as_admin())?;
            self.until_settled(|w| {
                let (code, session) = w.open_session()?;
                w.session = session;
                Ok(code)
            })?;
        }
        let acls: Vec<AclCreation> = rights
            .split(", ")
            .filter(|right| !right.is_empty())
            .map(|right| self.right(right))
            .collect::<Result<_>>()?;
        let granted = !acls.is_empty();
        if granted {
            self.allow(acls)?;
        }
        self.client = Raw::open_from(CLIENT, self.address)?;
        let answer = ask(self);
        if granted {
            self.forbid()?;
        }
        answer
    }

    /// Asks as the client; `None` where the connection is closed.
    pub(crate) fn ask<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<Option<R::Response>> {
        let body = encode(version, request)?;
        match self.client.exchange_or_closed(&body)? {
            None => Ok(None),
            Some(mut frame) => {
                use kafka_protocol::protocol::Decodable;
                Ok(Some(R::Response::decode(&mut frame, version)?))
            }
        }
    }

    fn right(&self, right: &str) -> Result<AclCreation> {
        let (operation, resource) = right.split_once(' ').context("OPERATION RESOURCE")?;
        let operation = match operation {
            "All" => 2,
            "Read" => 3,
            "Write" => 4,
            "Create" => 5,
            "Delete" => 6,
            "Alter" => 7,
            "Describe" => 8,
            "ClusterAction" => 9,
            "DescribeConfigs" => 10,
            "AlterConfigs" => 11,
            "IdempotentWrite" => 12,
            other => bail!("no operation {other}"),
        };
        let (kind, name, pattern) = match resource {
            "topic" => (2, self.topic.clone(), 3),
            // What the name begins with, which others may begin with too.
            "topic-" => (2, self.topic[..self.topic.len() - 1].to_owned(), 4),
            "group" => (3, self.group.clone(), 3),
            "group-" => (3, self.group[..self.group.len() - 1].to_owned(), 4),
            "cluster" => (4, "kafka-cluster".to_owned(), 3),
            "id" => (5, self.id.clone(), 3),
            "id-" => (5, self.id[..self.id.len() - 1].to_owned(), 4),
            other => bail!("no resource {other}"),
        };
        Ok(acl(kind, &name, pattern, operation, &CLIENT.to_string()))
    }

    /// Makes ACLs and waits until the broker has heard of them.
    fn allow(&mut self, acls: Vec<AclCreation>) -> Result<()> {
        let host = acls[0].host.to_string();
        let wanted = acls.len();
        let answer = (self.admin).ask(3, &CreateAclsRequest::default().with_creations(acls))?;
        let codes: Vec<i16> = answer.results.iter().map(|r| r.error_code).collect();
        ensure!(codes.iter().all(|code| *code == 0), "CreateAcls: {codes:?}");
        self.until_acls(&host, wanted)
    }

    /// Takes every right of the client back.
    fn forbid(&mut self) -> Result<()> {
        let filter = DeleteAclsFilter::default()
            .with_resource_type_filter(1)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(1)
            .with_principal_filter(None)
            .with_host_filter(Some(text(&CLIENT.to_string())))
            .with_operation(1)
            .with_permission_type(1);
        let request = DeleteAclsRequest::default().with_filters(vec![filter]);
        let answer = self.admin.ask(3, &request)?;
        ensure!(
            answer.filter_results[0].error_code == 0,
            "DeleteAcls: {answer:?}"
        );
        self.until_acls(&CLIENT.to_string(), 0)
    }

    fn until_acls(&mut self, host: &str, wanted: usize) -> Result<()> {
        let request = DescribeAclsRequest::default()
            .with_resource_type_filter(1)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(1)
            .with_principal_filter(None)
            .with_host_filter(Some(text(host)))
            .with_operation(1)
            .with_permission_type(1);
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.admin.ask(3, &request)?;
            ensure!(
                answer.error_code == 0,
                "DescribeAcls: {}",
                answer.error_code
            );
            let found: usize = answer.resources.iter().map(|r| r.acls.len()).sum();
            if found == wanted {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "{found} ACLs for {host}, not {wanted}"
            );
            sleep(PAUSE);
        }
    }

    fn until_settled(&mut self, mut ask: impl FnMut(&mut World) -> Result<i16>) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let code = ask(self)?;
            if code == 0 {
                return Ok(());
            }
            let is_transient = TRANSIENT.contains(&code) && Instant::now() < until;
            ensure!(is_transient, "error {code}");
            sleep(PAUSE);
        }
    }

    fn coordinator(&mut self, kind: i8) -> Result<i16> {
        let request = FindCoordinatorRequest::default()
            .with_key(text("warm"))
            .with_key_type(kind);
        Ok(self.admin.ask(3, &request)?.error_code)
    }

    fn find_topic_id(&mut self) -> Result<Uuid> {
        let topic = MetadataRequestTopic::default().with_name(Some(self.topic_name()));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(false);
        let answer = self.admin.ask(12, &request)?;
        let topic = answer.topics.first().context("no topic")?;
        ensure!(topic.error_code == 0, "Metadata: {}", topic.error_code);
        Ok(topic.topic_id)
    }

    fn commit_as_admin(&mut self) -> Result<i16> {
        let request = self.offset_commit();
        let answer = self.admin.ask(8, &request)?;
        Ok(answer.topics[0].partitions[0].error_code)
    }

    pub(crate) fn offset_commit(&self) -> OffsetCommitRequest {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(0)
            .with_committed_offset(0)
            .with_committed_metadata(Some(text("")));
        let topic = OffsetCommitRequestTopic::default()
            .with_name(self.topic_name())
            .with_partitions(vec![partition]);
        OffsetCommitRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic])
    }

    fn open_session(&mut self) -> Result<(i16, (i64, i16))> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(self.transactional_id()))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let answer = self.admin.ask(4, &request)?;
        Ok((
            answer.error_code,
            (answer.producer_id.0, answer.producer_epoch),
        ))
    }

    pub(crate) fn topic_name(&self) -> TopicName {
        TopicName(text(&self.topic))
    }

    pub(crate) fn group_id(&self) -> GroupId {
        GroupId(text(&self.group))
    }

    pub(crate) fn transactional_id(&self) -> TransactionalId {
        TransactionalId(text(&self.id))
    }
}

fn acl(kind: i8, name: &str, pattern: i8, operation: i8, host: &str) -> AclCreation {
    AclCreation::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_resource_pattern_type(pattern)
        .with_principal(text("User:ANONYMOUS"))
        .with_host(text(host))
        .with_operation(operation)
        .with_permission_type(3)
}

/// The numbers of an answer, or none where there was no answer.
pub(crate) fn numbers<T>(
    answer: Option<T>,
    numbers: impl FnOnce(T) -> Vec<i64>,
) -> Result<Vec<i64>> {
    Ok(answer.map(numbers).unwrap_or_default())
}
