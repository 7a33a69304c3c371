//! The broker in the model: its journal as a list of records of which a prefix is durable, and the
//! owner that the records make. The decisions are `Owner::step`, the start is `Owner::replay`.
//!
//! **Planted faults** are made here, in the wrapper around the owner, by changing what it decided
//! before anybody sees it. They are a test's own: the product has no switch for them.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tidemark_group_coordinator::GroupConfig;
use tidemark_metadata::{TopicDefaults, TopicLimits};
use tidemark_owner::*;
use tidemark_record_batch::{
    BatchBuilder, BatchHeader, control_batch, parse_control, patch_position, records,
};
use tidemark_txn_coordinator as txn;
use tidemark_types::{
    COORDINATOR_PARTITIONS, CoordinatorEpoch, ErrorCode, MonoTime, NodeId, ProducerEpoch, Tick,
    TopicId, TopicPartitionId, coordinator_partition,
};

use super::facts::Facts;

pub const ID: &str = "tx1";
pub const TOPIC: &str = "t";
pub const GROUP: &str = "g";
const TIMEOUT_MS: i32 = 1_000;

/// What is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    Sound,
    /// A transaction that times out is aborted at its own epoch, and its client keeps it.
    NoEpochBumpOnTimeout,
    /// Of a producer only the last batch is known again.
    WindowOfOne,
    /// Replies leave when they are decided.
    ReplyBeforeSync,
}

/// A record of the journal and what is true after it.
pub struct Entry {
    record: Record,
    /// Of the owner's state that survives a start.
    digest: u64,
    pub facts: Facts,
}

/// The journal. Everything that a start finds is a function of its entries.
#[derive(Clone)]
pub struct Broker {
    entries: Vec<Arc<Entry>>,
    /// So many of them are durable.
    durable: usize,
}

/// Two journals are the same when whatever may survive of them is: the state after the last durable
/// record, and after each of those that a crash may keep or lose.
impl Hash for Broker {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let may_survive = &self.entries[self.durable - 1..];
        may_survive.len().hash(hasher);
        for entry in may_survive {
            entry.digest.hash(hasher);
            entry.facts.hash(hasher);
        }
    }
}

impl PartialEq for Broker {
    fn eq(&self, other: &Broker) -> bool {
        let of = |b: &Broker| {
            let entries = b.entries[b.durable - 1..].iter();
            entries
                .map(|e| (e.digest, e.facts.clone()))
                .collect::<Vec<_>>()
        };
        of(self) == of(other)
    }
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} durable, {:?}",
            self.durable,
            self.entries.len(),
            self.facts()
        )
    }
}

pub fn topic_id() -> TopicId {
    TopicId([7; 16])
}

/// The partitions that matter: two of the topic, the group's, and the coordinator's.
pub fn partition(index: u8) -> TopicPartitionId {
    match index {
        super::OFFSETS => {
            TopicPartitionId::consumer_offsets(coordinator_partition(GROUP, COORDINATOR_PARTITIONS))
        }
        index => TopicPartitionId::new(topic_id(), i32::from(index)),
    }
}

fn home() -> TopicPartitionId {
    TopicPartitionId::transaction_state(coordinator_partition(ID, COORDINATOR_PARTITIONS))
}

fn options() -> OwnerOptions {
    OwnerOptions {
        topics: TopicLimits::default(),
        topic_defaults: TopicDefaults::default(),
        limits: TxnLimits::default(),
        transaction_max_timeout_ms: TIMEOUT_MS,
        renew_leases: false,
        exclusive: ExclusiveOptions::default(),
        guard_connections: true,
        own_transactional_ids: false,
        max_acls: 100,
        // A block for each: what a start gives up makes no difference then.
        producer_id_block: 1,
        expiry: ExpiryOptions::default(),
        groups: GroupConfig::default(),
    }
}

/// All records are of one moment, so that states that differ in nothing else are equal.
fn now<'a>(mono_ms: u64, uuid: &'a mut dyn FnMut() -> [u8; 16]) -> Now<'a> {
    Now {
        mono: MonoTime::from_ms(mono_ms),
        wall_ms: 1_000_000,
        tick: Tick::ZERO,
        uuid,
    }
}

impl Broker {
    /// A new directory with the topic, all of it durable.
    pub fn new() -> Broker {
        let mut broker = Broker {
            entries: Vec::new(),
            durable: 0,
        };
        let mut owner = Owner::new(options());
        let mut uuid = || topic_id().0;
        owner.arm_after_replay(&now(0, &mut uuid));
        let bootstrap = owner.bootstrap("c", NodeId(0), 1, &now(0, &mut uuid));
        let create = Command::CreateTopics(CreateTopics {
            topics: vec![CreateTopic {
                name: TOPIC.to_owned(),
                partitions: 2,
                replication_factor: 1,
                ..CreateTopic::default()
            }],
            validate_only: false,
            auto: false,
        });
        let create = owner.step(Token(0), create, &mut now(0, &mut uuid));
        for step in [bootstrap, create] {
            broker.entries.push(Arc::new(Entry {
                digest: digest(&owner),
                record: step.record.expect("it writes something"),
                facts: Facts::default(),
            }));
        }
        broker.sync();
        broker
    }

    pub fn facts(&self) -> &Facts {
        &self.entries.last().expect("never empty").facts
    }

    /// What is true of the durable records alone.
    pub fn durable_facts(&self) -> &Facts {
        &self.entries[self.durable - 1].facts
    }

    /// Index of the last record, which replies wait for.
    pub fn head(&self) -> usize {
        self.entries.len()
    }

    pub fn durable(&self) -> usize {
        self.durable
    }

    /// The writer's sync ended: everything that was handed to it is durable.
    pub fn sync(&mut self) {
        self.durable = self.entries.len();
    }

    /// The owner as a start would make it. The process runs on with the same state, but for what
    /// the model keeps out: parts of a producer-id block, members of groups.
    pub fn owner(&self) -> Owner {
        let mut owner = Owner::new(options());
        for entry in &self.entries {
            owner.replay(&entry.record).expect("our own record");
        }
        owner.arm_after_replay(&now(0, &mut || unreachable!("no random numbers")));
        owner
    }

    fn owner_after(&self, record: &Record) -> Owner {
        let mut owner = Owner::new(options());
        for entry in &self.entries {
            owner.replay(&entry.record).expect("our own record");
        }
        owner.replay(record).expect("a record all the same");
        owner.arm_after_replay(&now(0, &mut || unreachable!("no random numbers")));
        owner
    }

    /// One step: what the owner decided, and its reply if it has one. `note` is told what was
    /// written, and changes what is known.
    pub fn step(
        &mut self,
        command: Command,
        fault: Fault,
        note: impl FnOnce(&mut Facts, &Owner, &[Observation]),
    ) -> Option<Reply> {
        let mut owner = self.owner();
        // Whatever is armed is due when deadlines are looked at, and at no other time.
        let mono_ms = match command {
            Command::Expire => 10 * TIMEOUT_MS as u64,
            _ => 0,
        };
        let timeout = matches!(command, Command::Expire);
        let mut uuid = || unreachable!("no random numbers");
        let mut step = owner.step(Token(1), command, &mut now(mono_ms, &mut uuid));
        if let Some(record) = step.record.take() {
            self.push(owner, record, fault, timeout, &step.observations, note);
        }
        step.replies.pop().map(|(_, reply)| reply)
    }

    fn push(
        &mut self,
        mut owner: Owner,
        mut record: Record,
        fault: Fault,
        timeout: bool,
        observations: &[Observation],
        note: impl FnOnce(&mut Facts, &Owner, &[Observation]),
    ) {
        if fault == Fault::NoEpochBumpOnTimeout && timeout {
            record = without_epoch_bump(&self.owner(), record);
            owner = self.owner_after(&record);
        }
        let mut facts = self.facts().clone();
        note(&mut facts, &owner, observations);
        if let Err(what) = owner.check() {
            facts.broken(what);
        }
        self.entries.push(Arc::new(Entry {
            digest: digest(&owner),
            record,
            facts,
        }));
    }

    /// Power is cut: the first `kept` records are found by the next start, at least the durable
    /// ones. It replays them, finds the state that was, and raises the journal's epoch before it
    /// serves anybody.
    pub fn crash(&mut self, kept: usize) {
        assert!((self.durable..=self.entries.len()).contains(&kept));
        self.entries.truncate(kept);
        let mut owner = self.owner();
        let last = self.entries.last().expect("never empty");
        assert_eq!(
            digest(&owner),
            last.digest,
            "P12: replay makes the same state"
        );
        let epoch = owner.metadata().journal_epoch() + 1;
        let mut uuid = || unreachable!("no random numbers");
        let step = owner.begin_journal_epoch(epoch, 0, &now(0, &mut uuid));
        let facts = last.facts.clone();
        self.entries.push(Arc::new(Entry {
            digest: digest(&owner),
            record: step.record.expect("it is written"),
            facts,
        }));
        self.sync();
    }
}

/// All that a decision looks at, as a checkpoint would keep it.
fn digest(owner: &Owner) -> u64 {
    let mut hasher = DefaultHasher::new();
    let ids = [
        partition(0),
        partition(1),
        partition(super::OFFSETS),
        home(),
    ];
    for id in ids.into_iter().chain([TopicPartitionId::METADATA]) {
        let block = owner.encode_block(id);
        block.map(|(_, bytes)| bytes).hash(&mut hasher);
    }
    hasher.finish()
}

/// The record of a timeout as a broker would write it that leaves the epoch alone.
fn without_epoch_bump(before: &Owner, record: Record) -> Record {
    let epoch = before.coordinator().get(ID).expect("it timed out").epoch;
    let appends = record.appends.into_iter().map(|append| {
        let header = BatchHeader::parse(&append.batch).expect("our own batch");
        let marker = parse_control(&append.batch).expect("our own batch");
        let mut batch = if let Some((kind, _)) = marker {
            let (pid, coordinator) = (header.producer_id, CoordinatorEpoch(0));
            control_batch(
                0,
                header.leader_epoch,
                pid,
                epoch,
                kind,
                coordinator,
                1_000_000,
            )
            .to_vec()
        } else {
            let own = records(&append.batch, &Default::default()).expect("our own batch");
            let mut builder = BatchBuilder::new(1_000_000);
            for one in own {
                let one = one.expect("our own record");
                let (key, value) = (one.key.expect("a key"), one.value.expect("a value"));
                let mut meta = txn::decode_value(ID, &value).expect("our own value");
                (meta.epoch, meta.last_epoch) = (epoch, ProducerEpoch::NONE);
                builder.push(Some(&key), Some(&txn::encode_value(&meta)));
            }
            builder.build()
        };
        patch_position(&mut batch, header.base_offset, header.leader_epoch);
        Append {
            partition: append.partition,
            batch: batch.into(),
        }
    });
    Record {
        appends: appends.collect(),
        ..record
    }
}

/// A duplicate of a batch that is not the producer's last one, as a broker answers it that
/// remembers only that.
pub fn with_window_of_one(produced: &Produced, newest_offset: i64, wrote: bool) -> Produced {
    match produced.error {
        ErrorCode::None if !wrote && produced.base_offset < newest_offset => {
            Produced::refused(ErrorCode::OutOfOrderSequenceNumber)
        }
        _ => *produced,
    }
}
