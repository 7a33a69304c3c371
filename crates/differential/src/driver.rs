//! What a client library does beside its user's calls: learns versions, waits until a new topic
//! can be used, until a deleted one is gone, until a transaction has ended everywhere.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, DescribeTransactionsRequest, FindCoordinatorRequest,
    InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, ProducerId, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::{Request, StrBytes};
use uuid::Uuid;

use crate::answers::decode;
use crate::compare::Names;
use crate::connection::{Connection, Received};
use crate::env::Env;
use crate::requests::Body;
use crate::script::Line;
use crate::tree::Tree;

const PATIENCE: Duration = Duration::from_secs(30);
const DESCRIBE_TRANSACTIONS: i16 = 65;

pub struct Driver {
    address: SocketAddr,
    connection: Connection,
    /// The advertised versions by API key.
    pub versions: BTreeMap<i16, (i16, i16)>,
}

impl Driver {
    pub fn connect(address: SocketAddr) -> Result<Driver> {
        let mut driver = Driver {
            address,
            connection: Connection::open(address)?,
            versions: BTreeMap::new(),
        };
        let tree = driver.ask(0, &ApiVersionsRequest::default())?;
        for api in tree.list("api_keys") {
            let number = |name| api.number(name).and_then(|n| i16::try_from(n).ok());
            if let (Some(key), Some(min), Some(max)) = (
                number("api_key"),
                number("min_version"),
                number("max_version"),
            ) {
                // Produce is told from 0 and served from 3 (KAFKA-18659).
                let min = if key == 0 { 3 } else { min };
                driver.versions.insert(key, (min, max));
            }
        }
        Ok(driver)
    }

    fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<Tree> {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes, version)?;
        let body = Body {
            key: R::KEY,
            version,
            bytes: bytes.to_vec(),
            is_answered: true,
        };
        if self.connection.is_closed() {
            self.connection = Connection::open(self.address)?;
        }
        let id = self.connection.send(&body, Some("driver"), 0, 0);
        match self.connection.receive(Some(id), PATIENCE) {
            Received::Frame(frame) => decode(R::KEY, version, frame),
            other => bail!("API {} v{version} from {}: {other:?}", R::KEY, self.address),
        }
    }

    /// Repeats `attempt` until it gives something.
    fn until<T>(
        &mut self,
        what: &str,
        mut attempt: impl FnMut(&mut Driver) -> Result<Option<T>>,
    ) -> Result<T> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = attempt(self)? {
                return Ok(done);
            }
            if Instant::now() > until {
                bail!("{}: {what}: not within {PATIENCE:?}", self.address);
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Until both kinds of coordinators work, which in Kafka makes the internal topics.
    pub fn warm_up(&mut self) -> Result<()> {
        for kind in [0, 1] {
            self.until("coordinators", |driver| {
                let request = FindCoordinatorRequest::default()
                    .with_key(text("warm-up"))
                    .with_key_type(kind);
                let tree = driver.ask(1, &request)?;
                Ok((tree.number("error_code") == Some(0)).then_some(()))
            })?;
        }
        self.until("the transaction coordinator", |driver| {
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(TransactionalId(text("warm-up"))))
                .with_transaction_timeout_ms(60_000)
                .with_producer_id(ProducerId(-1))
                .with_producer_epoch(-1);
            let tree = driver.ask(4, &request)?;
            Ok((tree.number("error_code") == Some(0)).then_some(()))
        })
    }

    fn topic(&mut self, name: &str) -> Result<Tree> {
        let request = MetadataRequest::default()
            .with_topics(Some(vec![
                MetadataRequestTopic::default().with_name(Some(TopicName(text(name)))),
            ]))
            .with_allow_auto_topic_creation(false);
        let tree = self.ask(10, &request)?;
        let topic = tree.list("topics").first().cloned();
        topic.context("Metadata answers about the topic")
    }

    /// Until every partition of the topic has a leader that answers; its id is learnt.
    pub fn wait_for_topic(&mut self, name: &str, env: &mut Env, names: &mut Names) -> Result<()> {
        let id = self.until(&format!("topic {name}"), |driver| {
            let topic = driver.topic(name)?;
            if topic.number("error_code") != Some(0) {
                return Ok(None);
            }
            let partitions: Vec<i32> = topic
                .list("partitions")
                .iter()
                .filter_map(|p| p.number("partition_index"))
                .filter_map(|p| i32::try_from(p).ok())
                .collect();
            let offsets = driver.offsets(name, &partitions, -2, 0)?;
            let usable = !partitions.is_empty() && offsets.len() == partitions.len();
            let id = topic.field("topic_id").and_then(Tree::text);
            Ok(id.filter(|_| usable).and_then(|id| id.parse::<Uuid>().ok()))
        })?;
        env.topic_ids.insert(name.to_owned(), id);
        names.topics.insert(id, name.to_owned());
        Ok(())
    }

    fn wait_until_gone(&mut self, name: &str) -> Result<()> {
        self.until(&format!("the end of topic {name}"), |driver| {
            let topic = driver.topic(name)?;
            Ok((topic.number("error_code") != Some(0)).then_some(()))
        })
    }

    /// The offsets of those partitions that answer without an error.
    fn offsets(
        &mut self,
        topic: &str,
        partitions: &[i32],
        timestamp: i64,
        isolation: i8,
    ) -> Result<Vec<i64>> {
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_isolation_level(isolation)
            .with_topics(vec![
                ListOffsetsTopic::default()
                    .with_name(TopicName(text(topic)))
                    .with_partitions(
                        partitions
                            .iter()
                            .map(|p| {
                                ListOffsetsPartition::default()
                                    .with_partition_index(*p)
                                    .with_timestamp(timestamp)
                            })
                            .collect(),
                    ),
            ]);
        let tree = self.ask(2, &request)?;
        let partitions = tree.list("topics").first().map(|t| t.list("partitions"));
        Ok(partitions
            .unwrap_or_default()
            .iter()
            .filter(|p| p.number("error_code") == Some(0))
            .filter_map(|p| p.number("offset"))
            .collect())
    }

    /// Until no open transaction holds the partition back.
    pub fn wait_for_lso(&mut self, topic: &str, partition: i32) -> Result<()> {
        self.until(&format!("the LSO of {topic}/{partition}"), |driver| {
            let stable = driver.offsets(topic, &[partition], -1, 1)?;
            let high = driver.offsets(topic, &[partition], -1, 0)?;
            Ok((stable == high && !high.is_empty()).then_some(()))
        })
    }

    /// Waits for what a client would not notice: that the answered change has reached the broker's
    /// every part. Nothing of it is compared.
    pub fn settle_after(
        &mut self,
        line: &Line,
        answer: &Tree,
        env: &mut Env,
        names: &mut Names,
    ) -> Result<()> {
        let succeeded: Vec<String> = match line.verb.as_str() {
            "create" | "create-partitions" | "delete" => ["topics", "results", "responses"]
                .iter()
                .flat_map(|list| answer.list(list))
                .filter(|topic| topic.number("error_code") == Some(0))
                .filter_map(|topic| topic.field("name")?.text().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        };
        match line.verb.as_str() {
            "create" | "create-partitions" if line.get("validate") != Some("1") => {
                for name in succeeded {
                    self.wait_for_topic(&name, env, names)?;
                }
            }
            "delete" => {
                for name in succeeded {
                    self.wait_until_gone(&name)?;
                }
            }
            "end" if answer.number("error_code") == Some(0) => {
                self.wait_for_end(line.need("txn")?)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Until the markers are written. Kafka answers EndTxn before; a broker that does not serve
    /// DescribeTransactions is taken at its word.
    fn wait_for_end(&mut self, transactional_id: &str) -> Result<()> {
        if !self.versions.contains_key(&DESCRIBE_TRANSACTIONS) {
            return Ok(());
        }
        self.wait_until_not(transactional_id, &["Prepare"])
    }

    /// Until the state of the id begins with none of these words.
    pub fn wait_until_not(&mut self, transactional_id: &str, states: &[&str]) -> Result<()> {
        self.until("the end of the transaction", |driver| {
            let request = DescribeTransactionsRequest::default()
                .with_transactional_ids(vec![TransactionalId(text(transactional_id))]);
            let tree = driver.ask(0, &request)?;
            let described = tree.list("transaction_states").first();
            let state = described.and_then(|s| s.field("transaction_state"));
            let state = state.and_then(Tree::text).unwrap_or_default();
            let waits = states.iter().any(|prefix| state.starts_with(prefix));
            Ok((!waits).then_some(()))
        })
    }
}

fn text(s: &str) -> StrBytes {
    StrBytes::from_string(s.to_owned())
}
