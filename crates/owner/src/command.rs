//! Commands, replies and the step between them: plain data.

use std::sync::Arc;

use tidemark_authorizer::{Acl, AclFilter};
use tidemark_group_coordinator::{
    DescribedGroup, FetchedOffset, HeartbeatRequest, JoinReply, JoinRequest, LeaveReply,
    LeaveRequest, ListedGroup, OffsetCommitRequest, SyncReply, SyncRequest,
};
use tidemark_metadata::Refusal;
use tidemark_txn_coordinator::Who;
use tidemark_txn_coordinator::guard::ConnectionId;
use tidemark_types::{ErrorCode, MonoTime, ProducerEpoch, ProducerId, Tick};

use crate::apply::Observation;
use crate::commands::{
    AbortTransaction, AddOffsets, AddPartitions, AlterConfigs, AlterScram, CreatePartitions,
    CreateTopics, CreatedTopic, DeleteRecords, DeleteTopics, DeletedTopic, DescribedProducer,
    DescribedTransaction, EndTxn, ExclusiveOperation, InitProducerId, Inspect, Inspected,
    ListTransactions, ListedTransaction, MoveLogStarts, NoteRefused, OffsetDelete, OffsetFetch,
    Produce, Produced, SnapshotMetadata, TxnLimit, TxnOffsetCommit, WriteTxnMarkers,
};
use crate::record::Record;

/// Names a request that waits for its reply. Unique within a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// The time of a step, and what else it takes from outside.
pub struct Now<'a> {
    /// For deadlines.
    pub mono: MonoTime,
    /// For stamps and for deadlines that outlive a restart.
    pub wall_ms: i64,
    /// The hybrid clock of this run: the floor for the step's tick.
    pub tick: Tick,
    /// Fresh random 16 bytes, for topic and member ids.
    pub uuid: &'a mut dyn FnMut() -> [u8; 16],
}

/// Who asks, from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    pub principal: Arc<str>,
    pub client_id: Arc<str>,
    /// As Kafka shows it: `/127.0.0.1`.
    pub client_host: Arc<str>,
    pub listener: Arc<str>,
}

/// A request that reads or changes the owner's state.
#[derive(Clone, Debug)]
pub enum Command {
    Produce(Produce),
    NoteRefused(NoteRefused),
    InitProducerId(InitProducerId),
    AddPartitions(AddPartitions),
    AddOffsets(AddOffsets),
    TxnOffsetCommit(TxnOffsetCommit),
    EndTxn(EndTxn),
    CreateTopics(CreateTopics),
    CreatePartitions(CreatePartitions),
    AlterConfigs(AlterConfigs),
    AlterScram(AlterScram),
    CreateAcls(Vec<Acl>),
    DeleteAcls(Vec<AclFilter>),
    DeleteTopics(DeleteTopics),
    DeleteRecords(DeleteRecords),
    /// Retention has found records that are expired. Has no reply.
    MoveLogStarts(MoveLogStarts),
    /// The log of the metadata has grown long. Has no reply.
    SnapshotMetadata(SnapshotMetadata),
    Join(JoinRequest),
    Sync(SyncRequest),
    Heartbeat(HeartbeatRequest),
    Leave(LeaveRequest),
    OffsetCommit(OffsetCommitRequest),
    OffsetFetch(OffsetFetch),
    ListGroups,
    DescribeGroups(Vec<String>),
    DeleteGroups(Vec<String>),
    OffsetDelete(OffsetDelete),
    /// Changes nothing: the answer says that everything decided before it is durable and published.
    Settle,
    ListTransactions(ListTransactions),
    /// Of these transactional ids.
    DescribeTransactions(Vec<String>),
    /// Of these partitions.
    DescribeProducers(Vec<(String, i32)>),
    WriteTxnMarkers(WriteTxnMarkers),
    Inspect(Inspect),
    AbortTransaction(AbortTransaction),
    /// A request of a producer, with the connection that it came on and whose that is.
    On {
        connection: ConnectionId,
        principal: Arc<str>,
        command: Box<Command>,
    },
    /// A deadline is due: end what has timed out. Has no reply.
    Expire,
    /// Forget a few of the producers, transactional ids and offsets that nobody has used for long.
    /// Has no reply.
    Sweep,
}

impl Command {
    /// True for what writes nothing whatever comes of it: it needs no room in the journal, and is
    /// answered on a full disk as ever.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            Command::NoteRefused(_)
                | Command::Heartbeat(_)
                | Command::OffsetFetch(_)
                | Command::ListGroups
                | Command::DescribeGroups(_)
                | Command::Settle
                | Command::ListTransactions(_)
                | Command::DescribeTransactions(_)
                | Command::DescribeProducers(_)
                | Command::Inspect(_)
        )
    }
}

/// The answer to a command, of the variant that bears its name.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Produce(Vec<Produced>),
    NoteRefused,
    InitProducerId(Result<(ProducerId, ProducerEpoch), ErrorCode>),
    /// One code per (topic, partition) of the request, in its order.
    AddPartitions(Vec<ErrorCode>),
    AddOffsets(ErrorCode),
    /// One code per offset of the request, in its order.
    TxnOffsetCommit(Vec<ErrorCode>),
    /// The producer id and epoch to go on with (version 5 carries them).
    EndTxn(Result<(ProducerId, ProducerEpoch), ErrorCode>),
    CreateTopics(Vec<CreatedTopic>),
    /// One result per topic of the request, in its order.
    CreatePartitions(Vec<Result<(), Refusal>>),
    /// One result per resource of the request, in its order.
    AlterConfigs(Vec<Result<(), Refusal>>),
    /// One result per user: those that succeeded, then those that were refused.
    AlterScram(Vec<(String, Result<(), Refusal>)>),
    /// One result per ACL of the request, in its order.
    CreateAcls(Vec<Result<(), Refusal>>),
    /// Per filter of the request, in its order: what was removed.
    DeleteAcls(Vec<Result<Vec<Acl>, Refusal>>),
    DeleteTopics(Vec<DeletedTopic>),
    /// Per partition of the request, in its order: its low watermark.
    DeleteRecords(Vec<Result<i64, ErrorCode>>),
    Join(JoinReply),
    Sync(SyncReply),
    Heartbeat(ErrorCode),
    Leave(LeaveReply),
    /// One code per offset of the request, in its order.
    OffsetCommit(Vec<ErrorCode>),
    /// Per group of the request, in its order.
    OffsetFetch(Vec<Vec<FetchedOffset>>),
    ListGroups(Vec<ListedGroup>),
    DescribeGroups(Vec<DescribedGroup>),
    /// One code per group of the request, in its order.
    DeleteGroups(Vec<ErrorCode>),
    /// One code per partition of the request, in its order, or the error of the whole.
    OffsetDelete(Result<Vec<ErrorCode>, ErrorCode>),
    Settle,
    /// By partition of `__transaction_state`, then by name.
    ListTransactions(Vec<ListedTransaction>),
    /// Per id of the request, in its order.
    DescribeTransactions(Vec<Result<DescribedTransaction, ErrorCode>>),
    /// Per partition of the request, in its order.
    DescribeProducers(Vec<Result<Vec<DescribedProducer>, ErrorCode>>),
    /// One code per partition of the request, in its order.
    WriteTxnMarkers(Vec<ErrorCode>),
    Inspect(Inspected),
    AbortTransaction(Result<(), ErrorCode>),
}

/// Something a person may want to read in the log, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new session took over the id and ended what the old one had open.
    ProducerFenced {
        transactional_id: Arc<str>,
        producer_id: ProducerId,
        old_epoch: ProducerEpoch,
        new_epoch: ProducerEpoch,
        /// Whose it was.
        who: Who,
        by_principal: Arc<str>,
        by_client_id: Arc<str>,
        by_host: Arc<str>,
    },
    /// A transaction outlived its timeout and was aborted.
    TransactionTimedOut {
        transactional_id: Arc<str>,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        timeout_ms: i32,
        principal: Arc<str>,
        client_id: Arc<str>,
        host: Arc<str>,
    },
    /// A client ended its transaction.
    TransactionEnded { committed: bool },
    /// A new session of an id that had one, with nothing open: the earlier one is fenced.
    SessionReplaced {
        transactional_id: Arc<str>,
        producer_id: ProducerId,
        old_epoch: ProducerEpoch,
        new_epoch: ProducerEpoch,
        old_principal: Arc<str>,
        old_client_id: Arc<str>,
        old_host: Arc<str>,
        by_principal: Arc<str>,
        by_client_id: Arc<str>,
        by_host: Arc<str>,
    },
    /// A transaction that was open when the broker ended, in a mode in which some of its records may
    /// be lost, was aborted.
    TransactionMayBeIncomplete {
        transactional_id: Arc<str>,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        principal: Arc<str>,
        client_id: Arc<str>,
        host: Arc<str>,
    },
    /// A principal asked for more than it may have, and was refused.
    LimitReached {
        limit: TxnLimit,
        principal: Arc<str>,
        transactional_id: Arc<str>,
    },
    /// An ongoing transaction was aborted because somebody else wanted it so.
    TransactionAborted {
        transactional_id: Arc<str>,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        /// Whose it was.
        who: Who,
        by: AbortedBy,
    },
}

/// Who wanted a transaction aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AbortedBy {
    /// WriteTxnMarkers, as `kafka-transactions abort` sends it.
    Operator {
        principal: Arc<str>,
        client_id: Arc<str>,
        host: Arc<str>,
    },
    /// The deletion of a topic that it had enrolled a partition of.
    TopicDeleted { topic: Arc<str> },
    /// Another operation on a topic that cuts through transactions (`transaction.exclusive.operations`).
    Exclusive {
        operation: ExclusiveOperation,
        topic: Arc<str>,
    },
}

/// What a command led to.
#[derive(Debug, Default)]
pub struct Step {
    /// For the journal; nothing of this step may be seen before it is durable.
    pub record: Option<Record>,
    /// What apply did, for logs and caches.
    pub observations: Vec<Observation>,
    /// Replies to release behind the barrier: this command's own, unless it is parked, and those
    /// of parked ones that it ended.
    pub replies: Vec<(Token, Reply)>,
    pub events: Vec<Event>,
}
