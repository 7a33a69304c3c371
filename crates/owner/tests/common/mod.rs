//! A broker's heart without its body: the owner, the records it wrote, a clock turned by hand, and
//! readers that see what a consumer would. After every step everything that must hold is checked.

// Each test binary uses its own part of this.
#![allow(dead_code, unused_imports)]

mod client;
mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidemark_group_coordinator::GroupConfig;
use tidemark_metadata::{TopicDefaults, TopicLimits};
use tidemark_owner::*;
use tidemark_types::{ErrorCode, JournalIndex, MonoTime, NodeId, Tick, TopicPartitionId};

pub use client::{Producer, context, join, offset};

pub const WALL_START_MS: i64 = 1_700_000_000_000;

pub fn options() -> OwnerOptions {
    OwnerOptions {
        topics: TopicLimits::default(),
        topic_defaults: TopicDefaults::default(),
        limits: TxnLimits::default(),
        transaction_max_timeout_ms: 900_000,
        renew_leases: false,
        exclusive: ExclusiveOptions::default(),
        guard_connections: true,
        own_transactional_ids: false,
        max_acls: 100,
        producer_id_block: 1_000,
        expiry: ExpiryOptions::default(),
        groups: GroupConfig {
            initial_rebalance_delay_ms: 0,
            ..GroupConfig::default()
        },
    }
}

/// The owner and everything around it that a test looks at.
pub struct World {
    pub owner: Owner,
    pub options: OwnerOptions,
    /// The journal.
    pub records: Vec<Record>,
    pub events: Vec<Event>,
    /// Replies that came, by token.
    pub replies: BTreeMap<Token, Reply>,
    /// Commands that were given and not answered yet.
    pub parked: BTreeSet<Token>,
    /// Milliseconds of the monotonic clock.
    pub mono_ms: u64,
    pub wall_ms: i64,
    pub max_record_bytes: usize,
    /// The journal may lose records that are not confirmed.
    pub may_lose: bool,
    next_token: u64,
    next_uuid: u128,
    logs: reader::Logs,
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl World {
    /// A new data directory.
    pub fn new() -> World {
        World::with(options())
    }

    pub fn with(options: OwnerOptions) -> World {
        let mut world = World {
            owner: Owner::new(options.clone()),
            options,
            records: Vec::new(),
            events: Vec::new(),
            replies: BTreeMap::new(),
            parked: BTreeSet::new(),
            mono_ms: 1_000,
            wall_ms: WALL_START_MS,
            max_record_bytes: 32 << 20,
            may_lose: false,
            next_token: 0,
            next_uuid: 1 << 120,
            logs: reader::Logs::default(),
        };
        let step = world.at_now(|owner, now| {
            owner.arm_after_replay(now);
            owner.bootstrap("a-cluster", NodeId(0), 1, now)
        });
        world.carry_out(step);
        world
    }

    /// As with a journal of small slots.
    pub fn set_max_record_bytes(&mut self, max_record_bytes: usize) {
        self.max_record_bytes = max_record_bytes;
        self.owner.set_max_record_bytes(max_record_bytes);
    }

    fn at_now<T>(&mut self, call: impl FnOnce(&mut Owner, &mut Now<'_>) -> T) -> T {
        let next_uuid = &mut self.next_uuid;
        let mut uuid = || {
            *next_uuid += 1;
            next_uuid.to_be_bytes()
        };
        let mut now = Now {
            mono: MonoTime::from_ms(self.mono_ms),
            wall_ms: self.wall_ms,
            tick: Tick::from_wall_ms(self.wall_ms),
            uuid: &mut uuid,
        };
        call(&mut self.owner, &mut now)
    }

    /// Gives a command to the owner. Whatever it answers is in `replies`.
    pub fn give(&mut self, command: Command) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        self.parked.insert(token);
        let step = self.at_now(|owner, now| owner.step(token, command, now));
        self.carry_out(step);
        token
    }

    /// Gives a command that has no reply.
    pub fn give_without_reply(&mut self, command: Command) {
        let step = self.at_now(|owner, now| owner.step(Token(0), command, now));
        assert!(step.replies.is_empty());
        self.carry_out(step);
    }

    /// Gives a command that is answered at once.
    pub fn ask(&mut self, command: Command) -> Reply {
        let what = format!("{command:?}");
        let token = self.give(command);
        self.replies
            .get(&token)
            .unwrap_or_else(|| panic!("not answered at once: {what}"))
            .clone()
    }

    fn carry_out(&mut self, step: Step) {
        if let Some(record) = &step.record {
            let last = self.records.last().map(|r| (r.index, r.tick));
            assert!(
                last.is_none_or(|(index, tick)| record.index == index.next() && record.tick > tick)
            );
            assert!(!record.appends.is_empty());
            assert!(
                record
                    .appends
                    .is_sorted_by(|a, b| a.partition <= b.partition)
            );
            let bytes = Record::payload_bytes(record.appends.iter().map(|a| a.batch.len()));
            assert!(
                bytes <= self.max_record_bytes,
                "{bytes} bytes of {record:?}"
            );
            self.records.push(record.clone());
        }
        for (token, reply) in step.replies {
            assert!(
                self.parked.remove(&token),
                "{token:?} answered twice, or never asked: {reply:?}"
            );
            self.replies.insert(token, reply);
        }
        self.events.extend(step.events);
        self.logs.observe(step.observations);
        self.owner.check().expect("what must hold");
    }

    /// The journal confirms everything up to the record at this place.
    pub fn confirm(&mut self, count: usize) {
        let index = self.records[count - 1].index;
        self.owner.confirmed(index);
    }

    /// The journal loses all but the first `count` records.
    pub fn lose(&mut self, count: usize) {
        self.records.truncate(count);
        let index = self.records.last().map_or(JournalIndex(0), |r| r.index);
        let step = self.at_now(|owner, now| owner.lost(index, now));
        assert!(step.record.is_none());
        self.carry_out(step);
        // (a) What is left is what a start makes of what is confirmed.
        let mut logs = reader::Logs::default();
        let mut owner = Owner::new(self.options.clone());
        for record in &self.records {
            logs.observe(owner.replay(record).expect("our own record"));
        }
        self.logs = logs;
        assert_eq!(owner.difference(&self.owner), None, "after a loss");
    }

    /// Turns both clocks, and lets everything that is due happen.
    pub fn pass_ms(&mut self, ms: u64) {
        self.mono_ms += ms;
        self.wall_ms += i64::try_from(ms).unwrap();
        self.expire();
    }

    /// What the owner's thread does when deadlines have come.
    pub fn expire(&mut self) {
        let mut steps = 0;
        while let Some(at) = self.owner.next_deadline()
            && at <= MonoTime::from_ms(self.mono_ms)
        {
            let step = self.at_now(|owner, now| owner.step(Token(0), Command::Expire, now));
            self.carry_out(step);
            steps += 1;
            assert!(steps < 10_000, "a deadline that is due does nothing");
        }
        while let Some(at) = self.owner.next_sweep()
            && at <= MonoTime::from_ms(self.mono_ms)
        {
            let step = self.at_now(|owner, now| owner.step(Token(0), Command::Sweep, now));
            self.carry_out(step);
            steps += 1;
            assert!(steps < 10_000, "what can expire is looked at without end");
        }
    }

    /// Kill and start: the state is rebuilt from the journal and must be what it was.
    pub fn restart(&mut self) {
        self.owner = self.replayed(self.records.len());
        self.owner.set_max_record_bytes(self.max_record_bytes);
        self.parked.clear();
        self.at_now(|owner, now| owner.arm_after_replay(now));
        if self.may_lose {
            self.owner.keep_undo();
        }
        self.owner.check().expect("what must hold after a start");
    }

    /// An owner that replayed the first `count` records, read back from their bytes.
    pub fn replayed(&self, count: usize) -> Owner {
        let mut owner = Owner::new(self.options.clone());
        for record in &self.records[..count] {
            owner
                .replay(&through_bytes(record))
                .expect("our own record");
        }
        if count == self.records.len() {
            assert_eq!(owner.difference(&self.owner), None, "P12");
        }
        owner
    }

    pub fn id(&self, topic: &str, partition: i32) -> TopicPartitionId {
        self.owner
            .metadata()
            .partition(topic, partition)
            .unwrap_or_else(|| panic!("{topic}-{partition} does not exist"))
    }

    pub fn partition(&self, topic: &str, partition: i32) -> &Partition {
        self.owner.partition(self.id(topic, partition)).unwrap()
    }

    /// (last stable offset, log end offset).
    pub fn ends(&self, topic: &str, partition: i32) -> (i64, i64) {
        let w = self.partition(topic, partition).watermarks();
        (w.last_stable_offset, w.log_end_offset)
    }

    /// Values that a read_committed consumer is given.
    pub fn committed(&self, topic: &str, partition: i32) -> Vec<String> {
        let id = self.id(topic, partition);
        self.logs.read_committed(id, self.ends(topic, partition).0)
    }

    /// A read_committed consumer, with what it is told of aborted transactions, comes to what the
    /// markers say, in every partition.
    pub fn check_readers(&self) {
        for topic in self.owner.metadata().topics().filter(|t| !t.internal) {
            for partition in 0..topic.partitions {
                let id = self.id(&topic.name, partition);
                let lso = self.ends(&topic.name, partition).0;
                let read = self.logs.read_committed(id, lso);
                assert_eq!(
                    read,
                    self.logs.settled(id, lso),
                    "{}-{partition}",
                    topic.name
                );
            }
        }
    }

    /// The journal's epoch rises, as at a start that cut its end.
    pub fn raise_journal_epoch(&mut self) {
        let epoch = self.owner.metadata().journal_epoch() + 1;
        let step = self.at_now(|owner, now| owner.begin_journal_epoch(epoch, 0, now));
        self.carry_out(step);
    }

    /// Values that a read_uncommitted consumer is given.
    pub fn uncommitted(&self, topic: &str, partition: i32) -> Vec<String> {
        self.logs.read_uncommitted(self.id(topic, partition))
    }

    /// (producer id, first offset, marker's offset) of each aborted transaction.
    pub fn aborted(&self, topic: &str, partition: i32) -> Vec<(i64, i64, i64)> {
        self.logs.aborted(self.id(topic, partition))
    }

    /// The kinds of markers in the log: `C` and `A`, with their epochs.
    pub fn markers(&self, topic: &str, partition: i32) -> Vec<(char, i16)> {
        self.logs.markers(self.id(topic, partition))
    }

    pub fn create_topic(&mut self, name: &str, partitions: i32) {
        let created = self.ask(Command::CreateTopics(CreateTopics {
            topics: vec![CreateTopic {
                name: name.to_owned(),
                partitions,
                replication_factor: 1,
                ..CreateTopic::default()
            }],
            validate_only: false,
            auto: false,
        }));
        let Reply::CreateTopics(created) = created else {
            panic!("{created:?}");
        };
        assert_eq!(created[0].error, ErrorCode::None, "{created:?}");
    }

    pub fn delete_topics(&mut self, names: &[&str]) -> Vec<ErrorCode> {
        let topics = names.iter().map(|n| DeleteTopic::Name((*n).to_owned()));
        let token = self.give(Command::DeleteTopics(DeleteTopics {
            topics: topics.collect(),
        }));
        // A large deletion takes several records.
        self.expire();
        match self.replies.get(&token) {
            Some(Reply::DeleteTopics(deleted)) => deleted.iter().map(|d| d.error).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Offset and error of each partition asked for.
    pub fn fetch_offsets(
        &mut self,
        group: &str,
        partitions: &[(&str, i32)],
        require_stable: bool,
    ) -> Vec<(i64, ErrorCode)> {
        let fetched = self.ask(Command::OffsetFetch(OffsetFetch {
            groups: vec![OffsetFetchGroup {
                group_id: group.to_owned(),
                partitions: Some(
                    partitions
                        .iter()
                        .map(|(t, p)| ((*t).to_owned(), vec![*p]))
                        .collect(),
                ),
            }],
            require_stable,
        }));
        match fetched {
            Reply::OffsetFetch(groups) => groups[0].iter().map(|o| (o.offset, o.error)).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub fn arc(text: &str) -> Arc<str> {
        Arc::from(text)
    }
}

/// A record as a start reads it.
pub fn through_bytes(record: &Record) -> Record {
    let payload: Vec<u8> = record.encode().concat();
    let read = Record::decode(record.index, record.tick, record.wall_ms, &payload.into())
        .expect("our own bytes");
    assert_eq!(&read, record);
    read
}
