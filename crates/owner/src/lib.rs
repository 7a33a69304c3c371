//! All state of the partitions on one journal: decide and apply.
//!
//! [`Owner::step`] takes a command and the time, *decides* (state + command + now → appends + reply,
//! or a Kafka error code), *applies* at once and returns the record for the journal. Check and write
//! are one step: nothing happens between them. At start [`Owner::replay`] applies the same records
//! with the same functions.
//!
//! Pure: no clock, file, socket or randomness; time and fresh ids are arguments.

mod apply;
mod block;
mod command;
mod commands;
mod draft;
mod invariants;
mod lost_reply;
mod partition;
mod rebuild;
mod record;
mod replay;
mod room;
mod undo;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tidemark_group_coordinator::Groups;
use tidemark_metadata::{MetadataImage, TopicDefaults, TopicLimits};
use tidemark_txn_coordinator::Coordinator;
use tidemark_txn_coordinator::guard::ConnectionGuard;
use tidemark_types::{
    COORDINATOR_PARTITIONS, JournalIndex, LeaderEpoch, MonoTime, ProducerId, Tick, TopicPartitionId,
};

pub use apply::{Appended, ApplyError, ControlInfo, Observation, Watermarks};
pub use block::BlockError;
pub use command::{AbortedBy, Command, Event, Now, Reply, RequestContext, Step, Token};
pub use commands::*;
use commands::{Deadline, Deletion, Sweeps};
pub use partition::Partition;
pub use rebuild::{Rebuild, Settlement};
pub use record::{Append, Record, RecordError};

/// Limits that decide uses; from the configuration, the same for the life of the process.
#[derive(Clone, Debug)]
pub struct OwnerOptions {
    pub topics: TopicLimits,
    /// What topics get where they set nothing, as the broker was started; dynamic settings go over it.
    pub topic_defaults: TopicDefaults,
    pub limits: TxnLimits,
    pub transaction_max_timeout_ms: i32,
    /// `transaction.lease.mode=renew`: a transaction's timeout counts from what was last written or
    /// enrolled in it, up to `transaction_max_timeout_ms` from its start.
    pub renew_leases: bool,
    pub exclusive: ExclusiveOptions,
    /// `max.acls`.
    pub max_acls: usize,
    /// `transaction.connection.guard`.
    pub guard_connections: bool,
    /// `transactional.id.owner=first`: a transactional id is its first principal's, until it is
    /// forgotten.
    pub own_transactional_ids: bool,
    /// Producer ids are recorded in blocks of this many.
    pub producer_id_block: i64,
    pub groups: tidemark_group_coordinator::GroupConfig,
    pub expiry: ExpiryOptions,
}

/// The state of one journal.
pub struct Owner {
    options: OwnerOptions,
    metadata: MetadataImage,
    partitions: HashMap<TopicPartitionId, Partition>,
    coordinator: Coordinator,
    groups: Groups,
    last_index: JournalIndex,
    last_tick: Tick,
    /// During a start from a checkpoint: the stamp of each restored block.
    restored: BTreeMap<TopicPartitionId, JournalIndex>,
    /// The start is over: deadlines run.
    armed: bool,
    /// The rest of the producer-id block in use. Lost at a restart: those ids are never given out.
    producer_ids: std::ops::Range<i64>,
    /// The largest payload of a record.
    max_record_bytes: usize,
    /// Deletions that took more than one record and go on with the next step.
    deletions: VecDeque<Deletion>,
    /// When each ongoing transaction times out, by the monotonic clock of this run.
    deadlines: BTreeSet<(MonoTime, Arc<str>)>,
    deadline_of: HashMap<Arc<str>, Deadline>,
    /// Of this run only, and no part of the state.
    guard: ConnectionGuard,
    /// From the end of the start on.
    sweeps: Option<Sweeps>,
    /// `None`: the journal loses nothing.
    undo: Option<undo::Undo>,
    /// The next tick is above it, whatever the last record's is.
    tick_floor: Tick,
}

impl Owner {
    /// An owner with nothing but `__cluster_metadata`.
    pub fn new(options: OwnerOptions) -> Owner {
        let metadata_partition = TopicPartitionId::METADATA;
        let groups = Groups::new(options.groups.clone());
        Owner {
            options,
            metadata: MetadataImage::empty(),
            partitions: HashMap::from([(
                metadata_partition,
                Partition::new(metadata_partition, LeaderEpoch(0)),
            )]),
            coordinator: Coordinator::new(COORDINATOR_PARTITIONS),
            groups,
            last_index: JournalIndex(0),
            last_tick: Tick::ZERO,
            restored: BTreeMap::new(),
            armed: false,
            producer_ids: 0..0,
            max_record_bytes: room::MAX_RECORD_BYTES_DEFAULT,
            deletions: VecDeque::new(),
            deadlines: BTreeSet::new(),
            deadline_of: HashMap::new(),
            guard: ConnectionGuard::default(),
            sweeps: None,
            undo: None,
            tick_floor: Tick::ZERO,
        }
    }

    pub fn last_index(&self) -> JournalIndex {
        self.last_index
    }

    pub fn last_tick(&self) -> Tick {
        self.last_tick
    }

    pub fn metadata(&self) -> &MetadataImage {
        &self.metadata
    }

    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    pub fn partition(&self, id: TopicPartitionId) -> Option<&Partition> {
        self.partitions.get(&id)
    }

    /// Every partition's id, in order: one checkpoint block each.
    pub fn partition_ids(&self) -> Vec<TopicPartitionId> {
        let mut ids: Vec<_> = self.partitions.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The floor for this run's ticks and indexes: what the journal has seen, also of records that
    /// carried nothing for us.
    pub fn raise_floor(&mut self, index: JournalIndex, tick: Tick) {
        self.last_index = self.last_index.max(index);
        self.last_tick = self.last_tick.max(tick);
    }

    /// When [`Command::Expire`] is next due.
    pub fn next_deadline(&self) -> Option<MonoTime> {
        if !self.deletions.is_empty() {
            // Due at once, before any other command.
            return Some(MonoTime::ZERO);
        }
        let transaction = self.deadlines.first().map(|(at, _)| *at);
        match (transaction, self.groups.next_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The next never-used producer id, with the record of a new block when the last one is spent.
    fn peek_producer_id(&self) -> (ProducerId, Option<std::ops::Range<i64>>) {
        if self.producer_ids.is_empty() {
            let first = self.metadata.next_producer_id();
            (
                ProducerId(first),
                Some(first..first + self.options.producer_id_block),
            )
        } else {
            (ProducerId(self.producer_ids.start), None)
        }
    }
}
