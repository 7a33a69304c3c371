//! What clients send.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tidemark_group_coordinator::{
    JoinRequest, OffsetCommitRequest, OffsetToCommit, TxnOffsetCommitRequest,
};
use tidemark_owner::*;
use tidemark_record_batch::{BatchBuilder, ProduceRules, TimestampType, validate_produce};
use tidemark_txn_coordinator::Dialect;
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use super::World;

pub fn context(client_id: &str) -> RequestContext {
    RequestContext {
        principal: Arc::from("User:ANONYMOUS"),
        client_id: Arc::from(client_id),
        client_host: Arc::from("/127.0.0.1"),
        listener: Arc::from("PLAINTEXT"),
    }
}

pub fn offset(topic: &str, partition: i32, offset: i64) -> OffsetToCommit {
    OffsetToCommit {
        topic: topic.to_owned(),
        partition,
        offset,
        leader_epoch: -1,
        metadata: None,
    }
}

pub fn join(group: &str, member_id: &str) -> JoinRequest {
    JoinRequest {
        group_id: group.to_owned(),
        member_id: member_id.to_owned(),
        group_instance_id: None,
        client_id: "c".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 20_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"m"))],
        require_known_member_id: false,
        supports_skip_assignment: false,
        reason: None,
    }
}

/// One session of a producer: what it knows of itself. It counts nothing and hides nothing, so that
/// a test can send anything.
#[derive(Clone, Debug)]
pub struct Producer {
    pub transactional_id: Option<String>,
    pub producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    /// Version of Produce it speaks; 12 and later is transaction version 2.
    pub version: i16,
    pub transactional: bool,
}

impl Producer {
    /// A producer without any id.
    pub fn plain() -> Producer {
        Producer {
            transactional_id: None,
            producer_id: ProducerId::NONE,
            epoch: ProducerEpoch::NONE,
            version: 9,
            transactional: false,
        }
    }

    pub fn idempotent(world: &mut World) -> Producer {
        let (producer_id, epoch) = world.init(None, None).unwrap();
        Producer {
            producer_id,
            epoch,
            ..Producer::plain()
        }
    }

    /// A session of the classic dialect.
    pub fn classic(world: &mut World, transactional_id: &str) -> Producer {
        let (producer_id, epoch) = world.init(Some(transactional_id), None).unwrap();
        Producer {
            transactional_id: Some(transactional_id.to_owned()),
            producer_id,
            epoch,
            transactional: true,
            ..Producer::plain()
        }
    }

    /// A session of transaction version 2.
    pub fn v2(world: &mut World, transactional_id: &str) -> Producer {
        Producer {
            version: 12,
            ..Producer::classic(world, transactional_id)
        }
    }

    pub fn dialect(&self) -> Dialect {
        match self.version {
            12.. => Dialect::V2,
            _ => Dialect::V1,
        }
    }

    pub fn pair(&self) -> (ProducerId, ProducerEpoch) {
        (self.producer_id, self.epoch)
    }

    /// The same producer, for batches outside transactions.
    pub fn outside_transactions(&self) -> Producer {
        Producer {
            transactional: false,
            ..self.clone()
        }
    }

    pub fn batch(
        &self,
        world: &World,
        topic: &str,
        partition: i32,
        sequence: i32,
        values: &[&str],
    ) -> ProduceBatch {
        let mut builder = BatchBuilder::new(world.wall_ms);
        if self.producer_id.is_some() {
            builder.producer(self.producer_id, self.epoch, sequence);
        }
        if self.transactional {
            builder.transactional();
        }
        for value in values {
            builder.push(None, Some(value.as_bytes()));
        }
        let bytes = builder.build();
        let rules = ProduceRules {
            max_message_bytes: 1 << 20,
            produce_version: self.version,
            timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: i64::MAX,
            compacted: false,
            check_records: true,
            wall_ms: world.wall_ms,
            limits: Default::default(),
        };
        ProduceBatch {
            partition: world.id(topic, partition),
            topic: Arc::from(topic),
            valid: validate_produce(&bytes, &rules).expect("a good batch"),
            bytes: BytesMut::from(&bytes[..]),
            timestamp_type: TimestampType::CreateTime,
        }
    }

    /// Base offset of one batch.
    pub fn send(
        &self,
        world: &mut World,
        topic: &str,
        partition: i32,
        sequence: i32,
        values: &[&str],
    ) -> Result<i64, ErrorCode> {
        let batch = self.batch(world, topic, partition, sequence, values);
        world.produce(self.version, vec![batch])[0]
    }

    pub fn add(&self, world: &mut World, partitions: &[(&str, i32)]) -> Vec<ErrorCode> {
        let reply = world.ask(Command::AddPartitions(AddPartitions {
            transactional_id: self.id(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            partitions: partitions
                .iter()
                .map(|(t, p)| (Arc::from(*t), *p))
                .collect(),
        }));
        match reply {
            Reply::AddPartitions(codes) => codes,
            other => panic!("{other:?}"),
        }
    }

    pub fn add_offsets(&self, world: &mut World, group: &str) -> ErrorCode {
        let reply = world.ask(Command::AddOffsets(AddOffsets {
            transactional_id: self.id(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            group_id: group.to_owned(),
        }));
        match reply {
            Reply::AddOffsets(code) => code,
            other => panic!("{other:?}"),
        }
    }

    /// Commits offsets in the transaction, without a group member.
    pub fn commit_offsets(
        &self,
        world: &mut World,
        group: &str,
        offsets: &[(&str, i32, i64)],
    ) -> Vec<ErrorCode> {
        self.commit_offsets_as(world, group, "", -1, offsets)
    }

    pub fn commit_offsets_as(
        &self,
        world: &mut World,
        group: &str,
        member_id: &str,
        generation_id: i32,
        offsets: &[(&str, i32, i64)],
    ) -> Vec<ErrorCode> {
        let reply = world.ask(Command::TxnOffsetCommit(TxnOffsetCommit {
            transactional_id: self.id(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            dialect: self.dialect(),
            commit: TxnOffsetCommitRequest {
                group_id: group.to_owned(),
                generation_id,
                member_id: member_id.to_owned(),
                group_instance_id: None,
                offsets: offsets.iter().map(|(t, p, o)| offset(t, *p, *o)).collect(),
            },
        }));
        match reply {
            Reply::TxnOffsetCommit(codes) => codes,
            other => panic!("{other:?}"),
        }
    }

    /// Ends the transaction; version 2 goes on at the epoch of the answer.
    pub fn end(&mut self, world: &mut World, commit: bool) -> Result<(), ErrorCode> {
        let (producer_id, epoch) = self.end_as_is(world, commit)?;
        if self.dialect() == Dialect::V2 {
            (self.producer_id, self.epoch) = (producer_id, epoch);
        }
        Ok(())
    }

    /// Sends EndTxn and stays where it is, as if the answer were lost.
    pub fn end_as_is(
        &self,
        world: &mut World,
        commit: bool,
    ) -> Result<(ProducerId, ProducerEpoch), ErrorCode> {
        let reply = world.ask(Command::EndTxn(EndTxn {
            transactional_id: self.id(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            committed: commit,
            dialect: self.dialect(),
        }));
        match reply {
            Reply::EndTxn(ended) => ended,
            other => panic!("{other:?}"),
        }
    }

    fn id(&self) -> Arc<str> {
        Arc::from(self.transactional_id.as_deref().expect("transactional"))
    }
}

impl World {
    pub fn init(
        &mut self,
        transactional_id: Option<&str>,
        given: Option<(ProducerId, ProducerEpoch)>,
    ) -> Result<(ProducerId, ProducerEpoch), ErrorCode> {
        self.init_with_timeout(transactional_id, given, 60_000)
    }

    pub fn init_with_timeout(
        &mut self,
        transactional_id: Option<&str>,
        given: Option<(ProducerId, ProducerEpoch)>,
        timeout_ms: i32,
    ) -> Result<(ProducerId, ProducerEpoch), ErrorCode> {
        let (producer_id, producer_epoch) =
            given.unwrap_or((ProducerId::NONE, ProducerEpoch::NONE));
        let reply = self.ask(Command::InitProducerId(InitProducerId {
            context: context("c"),
            transactional_id: transactional_id.map(Arc::from),
            transaction_timeout_ms: timeout_ms,
            producer_id,
            producer_epoch,
        }));
        match reply {
            Reply::InitProducerId(decided) => decided,
            other => panic!("{other:?}"),
        }
    }

    /// One Produce request: the base offset of each batch.
    pub fn produce(
        &mut self,
        version: i16,
        batches: Vec<ProduceBatch>,
    ) -> Vec<Result<i64, ErrorCode>> {
        let reply = self.ask(Command::Produce(Produce {
            version,
            transactional_id: None,
            batches,
        }));
        match reply {
            Reply::Produce(produced) => produced
                .into_iter()
                .map(|p| match p.error {
                    ErrorCode::None => Ok(p.base_offset),
                    error => Err(error),
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    /// OffsetCommit without a member.
    pub fn commit_offset(
        &mut self,
        group: &str,
        topic: &str,
        partition: i32,
        at: i64,
    ) -> ErrorCode {
        self.commit_offsets(group, vec![offset(topic, partition, at)])[0]
    }

    pub fn commit_offsets(&mut self, group: &str, offsets: Vec<OffsetToCommit>) -> Vec<ErrorCode> {
        let reply = self.ask(Command::OffsetCommit(OffsetCommitRequest {
            group_id: group.to_owned(),
            generation_id: -1,
            member_id: String::new(),
            group_instance_id: None,
            offsets,
            retention_time_ms: -1,
            reports_missing_group: false,
        }));
        match reply {
            Reply::OffsetCommit(codes) => codes,
            other => panic!("{other:?}"),
        }
    }
}
