//! The moves, and who makes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tidemark_group_coordinator::{HeartbeatRequest, LeaveMember, LeaveRequest, SyncRequest};
use tidemark_metadata::{
    ConfigChange, ScramCredential, ScramDeletion, ScramMechanism, ScramUpsertion,
};
use tidemark_owner::*;
use tidemark_txn_coordinator::{Dialect, TxnState};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartitionId};

use crate::common::{Producer, World, join, options};
use crate::ledger::Ledger;

const IDS: [&str; 3] = ["tx-a", "tx-b", "tx-c"];
const TOPICS: [(&str, i32); 3] = [("t", 2), ("u", 1), ("v", 3)];
const GROUPS: [&str; 2] = ["g", "h"];
/// A topic's config and what it is set to; nothing: back to the default.
const CONFIGS: [(&str, &str); 6] = [
    ("cleanup.policy", "delete"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", ""),
    ("cleanup.policy", "burn"),
    ("retention.ms", "3600000"),
];

/// The end of any one transaction fits it.
const SMALL_RECORD_BYTES: usize = 1_700;

/// Short, so that a move or two of the clock are enough.
const EXPIRY: ExpiryOptions = ExpiryOptions {
    producer_id_ms: 4_000,
    producer_id_interval_ms: 500,
    transactional_id_ms: 6_000,
    transactional_id_interval_ms: 700,
    offsets_ms: 5_000,
    offsets_interval_ms: 300,
};

#[derive(Clone, Debug)]
pub enum Move {
    /// A new session of an id, with the pair of the n-th last one or without.
    Init {
        id: usize,
        given: Option<usize>,
        v2: bool,
    },
    Add {
        id: usize,
        who: usize,
        partitions: Vec<usize>,
    },
    AddOffsets {
        id: usize,
        who: usize,
        group: usize,
    },
    TxnOffsets {
        id: usize,
        who: usize,
        group: usize,
        partitions: Vec<usize>,
    },
    End {
        id: usize,
        who: usize,
        commit: bool,
    },
    /// A batch for each partition; `back` of the next sequence (0 is the next, 1 a repeat).
    Produce {
        id: usize,
        who: usize,
        partitions: Vec<usize>,
        back: i32,
        plain: bool,
    },
    /// What a good client does: it enrols partitions, and writes to each.
    Write {
        id: usize,
        partitions: Vec<usize>,
    },
    /// And what it has processed: its group's offsets.
    Process {
        id: usize,
        group: usize,
        partitions: Vec<usize>,
    },
    Idempotent {
        partition: usize,
        back: i32,
    },
    NoProducer {
        partition: usize,
    },
    NoteRefused {
        partition: usize,
        sequence: i32,
    },
    OffsetCommit {
        group: usize,
        partition: usize,
    },
    OffsetFetch {
        group: usize,
    },
    Create(Vec<usize>),
    Delete(Vec<usize>),
    /// CreatePartitions of some topics, each with so many partitions more than it has.
    Grow {
        topics: BTreeSet<usize>,
        more: i32,
    },
    /// AlterConfigs of some topics.
    Alter {
        topics: BTreeSet<usize>,
        config: usize,
    },
    /// AlterUserScramCredentials of one user.
    Scram {
        user: usize,
        mechanism: i8,
        set: bool,
    },
    /// DeleteRecords up to so much of the log, in tenths; above ten beyond its end.
    DeleteRecords {
        partition: usize,
        tenths: i64,
    },
    /// The same as retention asks for it.
    Retain {
        partitions: Vec<usize>,
        tenths: i64,
    },
    /// A new member, or the last one again.
    Join {
        group: usize,
        new: bool,
    },
    Sync {
        group: usize,
    },
    Heartbeat {
        group: usize,
    },
    Leave {
        group: usize,
    },
    Pass(u64),
    WallStep(i64),
    JournalEpoch,
    /// The journal confirms all but the last few records.
    Confirm(usize),
    /// The journal loses up to so many records that are not confirmed.
    Lose(usize),
    /// Made by the caller.
    Restart,
    /// Made by the caller.
    Capture {
        salt: usize,
        metadata: bool,
    },
}

pub fn a_move() -> impl Strategy<Value = Move> {
    let id = || 0..IDS.len();
    let group = || 0..GROUPS.len();
    // The last session mostly, or one before it.
    let who = || prop_oneof![4 => Just(0usize), 1 => 1usize..3];
    let partition = || 0usize..6;
    let partitions = || prop::collection::vec(0usize..6, 1..4);
    let topics = || prop::collection::btree_set(0usize..3, 1..3);
    let back = || prop_oneof![6 => Just(0), 2 => Just(1), 1 => -1i32..7];
    prop_oneof![
        5 => (id(), prop::option::weighted(0.3, 0usize..3), any::<bool>())
            .prop_map(|(id, given, v2)| Move::Init { id, given, v2 }),
        8 => (id(), who(), partitions())
            .prop_map(|(id, who, partitions)| Move::Add { id, who, partitions }),
        3 => (id(), who(), group()).prop_map(|(id, who, group)| Move::AddOffsets { id, who, group }),
        4 => (id(), who(), group(), partitions())
            .prop_map(|(id, who, group, partitions)| Move::TxnOffsets { id, who, group, partitions }),
        7 => (id(), who(), any::<bool>()).prop_map(|(id, who, commit)| Move::End { id, who, commit }),
        16 => (id(), who(), partitions(), back(), prop::bool::weighted(0.1))
            .prop_map(|(id, who, partitions, back, plain)| Move::Produce { id, who, partitions, back, plain }),
        12 => (id(), partitions()).prop_map(|(id, partitions)| Move::Write { id, partitions }),
        4 => (id(), group(), partitions())
            .prop_map(|(id, group, partitions)| Move::Process { id, group, partitions }),
        4 => (partition(), back()).prop_map(|(partition, back)| Move::Idempotent { partition, back }),
        2 => partition().prop_map(|partition| Move::NoProducer { partition }),
        1 => (partition(), 0i32..4)
            .prop_map(|(partition, sequence)| Move::NoteRefused { partition, sequence }),
        3 => (group(), partition()).prop_map(|(group, partition)| Move::OffsetCommit { group, partition }),
        2 => group().prop_map(|group| Move::OffsetFetch { group }),
        4 => prop::collection::vec(0usize..3, 1..3).prop_map(Move::Create),
        1 => prop::collection::vec(0usize..3, 1..3).prop_map(Move::Delete),
        2 => (topics(), 0i32..3).prop_map(|(topics, more)| Move::Grow { topics, more }),
        3 => (topics(), 0..CONFIGS.len()).prop_map(|(topics, config)| Move::Alter { topics, config }),
        2 => (0usize..2, 1i8..3, prop::bool::weighted(0.6))
            .prop_map(|(user, mechanism, set)| Move::Scram { user, mechanism, set }),
        6 => (partition(), -1i64..12)
            .prop_map(|(partition, tenths)| Move::DeleteRecords { partition, tenths }),
        2 => (partitions(), 0i64..12)
            .prop_map(|(partitions, tenths)| Move::Retain { partitions, tenths }),
        3 => (group(), prop::bool::weighted(0.3)).prop_map(|(group, new)| Move::Join { group, new }),
        3 => group().prop_map(|group| Move::Sync { group }),
        1 => group().prop_map(|group| Move::Heartbeat { group }),
        1 => group().prop_map(|group| Move::Leave { group }),
        3 => prop_oneof![4 => 0u64..3_000, 1 => Just(70_000u64)].prop_map(Move::Pass),
        1 => (-100_000i64..100_000).prop_map(Move::WallStep),
        1 => Just(Move::JournalEpoch),
        3 => (0usize..6).prop_map(Move::Confirm),
        2 => (1usize..8).prop_map(Move::Lose),
        1 => Just(Move::Restart),
        4 => (0usize..3, prop::bool::weighted(0.2))
            .prop_map(|(salt, metadata)| Move::Capture { salt, metadata }),
    ]
}

pub const WORTH_REACHING: &[&str] = &[
    "commit",
    "abort",
    "retried end",
    "fenced",
    "fenced with an open transaction",
    "timed out",
    "out of order",
    "duplicate",
    "sent",
    "sent in version 2",
    "not enrolled",
    "offsets in a transaction",
    "unstable offset",
    "offset fetched",
    "topic deleted",
    "records deleted",
    "records deleted under an open transaction",
    "log start out of range",
    "retained",
    "metadata cut",
    "transaction cut by a deletion",
    "transaction cut by DeleteRecords",
    "transaction above the deleted records",
    "partitions created",
    "partitions created under an open transaction",
    "transaction cut by CreatePartitions",
    "config altered",
    "cleanup.policy changed under an open transaction",
    "cleanup.policy written down",
    "transaction cut by cleanup.policy",
    "refused, its cuts fit no record",
    "credential set",
    "credential removed",
    "joined",
    "parked",
    "producers forgotten",
    "transactional id forgotten",
    "offsets expired",
    "records lost",
    "a transaction's end lost",
];

pub struct Player {
    pub world: World,
    /// What cuts through transactions meets records that hold the end of one or two of them.
    small_slots: bool,
    /// The sessions that were opened of each id, the last one last.
    sessions: Vec<Vec<Producer>>,
    idempotent: Producer,
    /// Pairs that a newer session or an abort of the broker's has put an end to.
    fenced: BTreeSet<(ProducerId, ProducerEpoch)>,
    /// Of transactional ids that were forgotten.
    nobodys: BTreeSet<ProducerId>,
    /// The next sequence by producer, epoch and partition, as a good client counts.
    next_sequence: BTreeMap<(ProducerId, ProducerEpoch, usize), i32>,
    /// Member id and generation last heard of.
    members: Vec<(String, i32)>,
    /// Records that are confirmed.
    pub confirmed: usize,
    ledger: Ledger,
    pub reached: BTreeMap<&'static str, usize>,
}

/// A partition by a small number, whether its topic exists or not.
fn nth(partition: usize) -> (&'static str, i32) {
    let all = TOPICS
        .iter()
        .flat_map(|(topic, count)| (0..*count).map(move |p| (*topic, p)));
    all.collect::<Vec<_>>()[partition]
}

impl Player {
    /// `exclusive`: operations cut through transactions.
    pub fn new(small_slots: bool, may_lose: bool, exclusive: bool, renew_leases: bool) -> Player {
        let mut world = World::with(OwnerOptions {
            expiry: EXPIRY,
            renew_leases,
            exclusive: ExclusiveOptions {
                delete_records: exclusive,
                create_partitions: exclusive,
                cleanup_policy: exclusive,
            },
            ..options()
        });
        world.create_topic("t", 2);
        if may_lose {
            world.may_lose = true;
            world.owner.keep_undo();
        }
        let confirmed = world.records.len();
        let idempotent = Producer::idempotent(&mut world);
        Player {
            world,
            small_slots,
            sessions: vec![Vec::new(); IDS.len()],
            idempotent,
            fenced: BTreeSet::new(),
            nobodys: BTreeSet::new(),
            next_sequence: BTreeMap::new(),
            members: vec![(String::new(), -1); GROUPS.len()],
            confirmed,
            ledger: Ledger::default(),
            reached: BTreeMap::new(),
        }
    }

    /// Their connections are gone with the process.
    pub fn forget_members(&mut self) {
        self.members = vec![(String::new(), -1); GROUPS.len()];
    }

    fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    fn reach_code(&mut self, code: ErrorCode) {
        match code {
            ErrorCode::OutOfOrderSequenceNumber => self.reach("out of order"),
            ErrorCode::InvalidTxnState => self.reach("not enrolled"),
            ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced => self.reach("fenced"),
            _ => {}
        }
    }

    fn session(&self, id: usize, who: usize) -> Option<Producer> {
        let sessions = &self.sessions[id];
        let at = sessions.len().checked_sub(1 + who)?;
        Some(sessions[at].clone())
    }

    fn ongoing(&self) -> usize {
        let coordinator = self.world.owner.coordinator();
        coordinator
            .iter()
            .filter(|meta| meta.state == TxnState::Ongoing)
            .count()
    }

    /// How many producers, transactional ids, groups' records there are.
    fn remembered(&self) -> [usize; 3] {
        let owner = &self.world.owner;
        let partitions = owner.partition_ids().into_iter();
        let producers = partitions.map(|id| owner.partition(id).map_or(0, |p| p.producers.len()));
        let groups = owner.groups();
        let offsets = groups
            .partitions()
            .map(|p| groups.records_of_partition(p).len());
        [producers.sum(), owner.coordinator().len(), offsets.sum()]
    }

    fn exists(&self, partition: usize) -> bool {
        let (topic, index) = nth(partition);
        let metadata = self.world.owner.metadata();
        metadata.partition(topic, index).is_some()
    }

    pub fn make(&mut self, a_move: &Move, n: usize) {
        let cuts = matches!(
            a_move,
            Move::Delete(_) | Move::Grow { .. } | Move::Alter { .. } | Move::DeleteRecords { .. }
        );
        let max_record_bytes = self.world.max_record_bytes;
        if self.small_slots && cuts {
            self.world.set_max_record_bytes(SMALL_RECORD_BYTES);
        }
        let before = self.open();
        let last = |sessions: &Vec<Producer>| sessions.last().map(Producer::pair);
        let pairs: Vec<_> = self.sessions.iter().map(last).collect();
        self.carry_out(a_move, n);
        self.world.set_max_record_bytes(max_record_bytes);
        let ongoing = self.open();
        let their_own = matches!(a_move, Move::End { .. });
        for (id, name) in IDS.iter().enumerate() {
            if before.contains_key(*name) && !ongoing.contains_key(*name) && !their_own {
                // By the broker.
                self.fenced.extend(pairs[id]);
            }
        }
        self.ledger
            .only_these_are_open(|id| ongoing.contains_key(id));
        for group in 0..GROUPS.len() {
            self.fetch_offsets(group);
        }
    }

    /// A session of the id that is newer, or none.
    fn begin_session(&mut self, id: usize, session: Producer) {
        let last = self.sessions[id].last().map(Producer::pair);
        let fenced = last.filter(|pair| *pair != session.pair());
        self.fenced.extend(fenced);
        self.sessions[id].push(session);
    }

    /// Nobody knows any more whose the producer ids of a forgotten transactional id were.
    fn note_forgotten(&mut self) {
        for (name, sessions) in IDS.iter().zip(&self.sessions) {
            if self.world.owner.coordinator().get(name).is_none() {
                self.nobodys.extend(sessions.iter().map(|p| p.producer_id));
            }
        }
    }

    /// P7: whoever has been fenced writes nothing, and ends nothing.
    fn check_may_write(&self, p: &Producer) {
        let known = !self.ledger.is_blind() && !self.nobodys.contains(&p.producer_id);
        let fenced = known && self.fenced.contains(&p.pair());
        assert!(!fenced, "P7: {p:?} was fenced");
    }

    /// Whether an open transaction has offsets of the group.
    fn fetch_offsets(&mut self, group: usize) -> bool {
        let all: Vec<_> = (0..6).map(nth).collect();
        let fetched = self.world.fetch_offsets(GROUPS[group], &all, true);
        let mut unstable = false;
        for ((topic, index), (offset, code)) in all.iter().zip(fetched) {
            let told = match code {
                ErrorCode::None => Some(offset),
                ErrorCode::UnstableOffsetCommit => None,
                other => panic!("{other:?}"),
            };
            unstable |= told.is_none();
            self.ledger.fetched((GROUPS[group], *topic, *index), told);
            if told.is_some_and(|offset| offset >= 0) {
                self.reach("offset fetched");
            }
        }
        unstable
    }

    /// What readers see is what writers were told.
    pub fn check_ledger(&self) {
        for topic in self.world.owner.metadata().topics().filter(|t| !t.internal) {
            for partition in 0..topic.partitions {
                let state = self.world.partition(&topic.name, partition);
                let log_start = state.log_start_offset;
                let end = self.world.ends(&topic.name, partition).0;
                let name = format!("{}-{partition}", topic.name);
                if let Some(expected) = self.ledger.committed(state.id, log_start, end) {
                    let seen = self.world.committed(&topic.name, partition);
                    assert_eq!(seen, expected, "{name}, read_committed");
                }
                if let Some(expected) = self.ledger.all(state.id, log_start) {
                    let seen = self.world.uncommitted(&topic.name, partition);
                    assert_eq!(seen, expected, "{name}, read_uncommitted");
                }
            }
        }
    }

    fn carry_out(&mut self, a_move: &Move, n: usize) {
        match a_move {
            Move::Init { id, given, v2 } => self.init(*id, *given, *v2),
            Move::Add {
                id,
                who,
                partitions,
            } => {
                if let Some(p) = self.session(*id, *who) {
                    let named: Vec<_> = partitions.iter().map(|p| nth(*p)).collect();
                    let codes = p.add(&mut self.world, &named);
                    if codes.contains(&ErrorCode::None) {
                        self.check_may_write(&p);
                    }
                    codes.into_iter().for_each(|code| self.reach_code(code));
                }
            }
            Move::AddOffsets { id, who, group } => {
                if let Some(p) = self.session(*id, *who)
                    && p.add_offsets(&mut self.world, GROUPS[*group]) == ErrorCode::None
                {
                    self.check_may_write(&p);
                }
            }
            Move::TxnOffsets {
                id,
                who,
                group,
                partitions,
            } => {
                if let Some(p) = self.session(*id, *who) {
                    self.txn_offsets(&p, *group, partitions, n);
                }
            }
            Move::Process {
                id,
                group,
                partitions,
            } => {
                if let Some(p) = self.session(*id, 0) {
                    if p.dialect() == Dialect::V1 {
                        p.add_offsets(&mut self.world, GROUPS[*group]);
                    }
                    self.txn_offsets(&p, *group, partitions, n);
                }
            }
            Move::End { id, who, commit } => self.end(*id, *who, *commit),
            Move::Produce {
                id,
                who,
                partitions,
                back,
                plain,
            } => {
                if let Some(mut p) = self.session(*id, *who) {
                    p.transactional = !plain;
                    self.produce(&p, partitions, *back, n);
                }
            }
            Move::Write { id, partitions } => {
                if let Some(p) = self.session(*id, 0) {
                    if p.dialect() == Dialect::V1 {
                        let named: Vec<_> = partitions.iter().map(|p| nth(*p)).collect();
                        p.add(&mut self.world, &named);
                    }
                    self.produce(&p, partitions, 0, n);
                }
            }
            Move::Idempotent { partition, back } => {
                let p = self.idempotent.clone();
                self.produce(&p, &[*partition], *back, n);
            }
            Move::NoProducer { partition } => self.produce(&Producer::plain(), &[*partition], 0, n),
            Move::NoteRefused {
                partition,
                sequence,
            } => {
                if self.exists(*partition) {
                    let (topic, index) = nth(*partition);
                    let batch = RefusedBatch {
                        partition: self.world.id(topic, index),
                        producer_id: self.idempotent.producer_id,
                        producer_epoch: self.idempotent.epoch,
                        base_sequence: *sequence,
                    };
                    self.world.ask(Command::NoteRefused(NoteRefused {
                        batches: vec![batch],
                    }));
                }
            }
            Move::OffsetCommit { group, partition } => {
                let (topic, index) = nth(*partition);
                let place = (GROUPS[*group], topic, index);
                let code = self.world.commit_offset(place.0, topic, index, n as i64);
                if code == ErrorCode::None {
                    self.ledger.offset(place, n as i64, None);
                }
            }
            Move::OffsetFetch { group } => {
                if self.fetch_offsets(*group) {
                    self.reach("unstable offset");
                }
            }
            Move::Grow { topics, more } => self.grow(topics, *more),
            Move::Alter { topics, config } => self.alter(topics, CONFIGS[*config]),
            Move::Scram {
                user,
                mechanism,
                set,
            } => self.scram(["alice", "bob"][*user], *mechanism, *set, n),
            Move::DeleteRecords { partition, tenths } => self.delete_records(*partition, *tenths),
            Move::Retain { partitions, tenths } => self.retain(partitions, *tenths),
            Move::Create(topics) => {
                let topics = topics.iter().map(|topic| CreateTopic {
                    name: TOPICS[*topic].0.to_owned(),
                    partitions: TOPICS[*topic].1,
                    replication_factor: 1,
                    ..CreateTopic::default()
                });
                self.world.ask(Command::CreateTopics(CreateTopics {
                    topics: topics.collect(),
                    validate_only: false,
                    auto: false,
                }));
            }
            Move::Delete(topics) => {
                let before = self.ongoing();
                let names: Vec<_> = topics.iter().map(|t| TOPICS[*t].0).collect();
                let codes = self.world.delete_topics(&names);
                for (name, code) in names.iter().zip(&codes) {
                    if *code == ErrorCode::None {
                        self.ledger.topic_deleted(name);
                    }
                }
                if codes.contains(&ErrorCode::None) {
                    self.reach("topic deleted");
                }
                if self.ongoing() < before {
                    self.reach("transaction cut by a deletion");
                }
            }
            Move::Join { .. } | Move::Sync { .. } | Move::Heartbeat { .. } | Move::Leave { .. } => {
                self.group(a_move);
            }
            Move::Pass(ms) => {
                let before = self.world.events.len();
                let remembered = self.remembered();
                self.ledger.time_passed();
                self.world.pass_ms(*ms);
                let forgotten = self.remembered();
                let what = [
                    "producers forgotten",
                    "transactional id forgotten",
                    "offsets expired",
                ];
                for (n, what) in what.into_iter().enumerate() {
                    if forgotten[n] < remembered[n] {
                        self.reach(what);
                    }
                }
                self.note_forgotten();
                let events = self.world.events[before..].iter();
                let timed_out = |e: &&Event| matches!(e, Event::TransactionTimedOut { .. });
                for _ in 0..events.filter(timed_out).count() {
                    self.reach("timed out");
                }
            }
            Move::WallStep(ms) => {
                self.ledger.time_passed();
                self.world.wall_ms += ms;
            }
            Move::JournalEpoch => self.world.raise_journal_epoch(),
            Move::Confirm(behind) => {
                let count = self.world.records.len().saturating_sub(*behind);
                if count > self.confirmed && self.world.may_lose {
                    self.confirmed = count;
                    self.world.confirm(count);
                }
            }
            Move::Lose(most) => {
                let count = self.world.records.len();
                let keep = count.saturating_sub(*most).max(self.confirmed);
                if self.world.may_lose && keep < count {
                    let before = self.ongoing();
                    self.world.lose(keep);
                    self.ledger.lost();
                    self.reach("records lost");
                    if self.ongoing() > before {
                        self.reach("a transaction's end lost");
                    }
                }
            }
            Move::Restart | Move::Capture { .. } => unreachable!("made by the caller"),
        }
    }

    fn txn_offsets(&mut self, p: &Producer, group: usize, partitions: &[usize], n: usize) {
        let offsets: Vec<_> = partitions
            .iter()
            .map(|p| (nth(*p).0, nth(*p).1, n as i64))
            .collect();
        let codes = p.commit_offsets(&mut self.world, GROUPS[group], &offsets);
        let id = p.transactional_id.as_deref();
        for ((topic, index, offset), code) in offsets.iter().zip(&codes) {
            if *code == ErrorCode::None {
                let place = (GROUPS[group], *topic, *index);
                self.ledger.offset(place, *offset, id);
            }
        }
        if codes.contains(&ErrorCode::None) {
            self.check_may_write(p);
            self.reach("offsets in a transaction");
        }
    }

    fn init(&mut self, id: usize, given: Option<usize>, v2: bool) {
        let pair = given
            .and_then(|who| self.session(id, who))
            .map(|p| (p.producer_id, p.epoch));
        let before = self.world.events.len();
        if let Ok((producer_id, epoch)) = self.world.init(Some(IDS[id]), pair) {
            let session = Producer {
                transactional_id: Some(IDS[id].to_owned()),
                producer_id,
                epoch,
                version: if v2 { 12 } else { 9 },
                transactional: true,
            };
            self.begin_session(id, session);
        }
        if self.world.events.len() > before {
            self.reach("fenced with an open transaction");
        }
    }

    fn end(&mut self, id: usize, who: usize, commit: bool) {
        let Some(p) = self.session(id, who) else {
            return;
        };
        let records = self.world.records.len();
        match p.end_as_is(&mut self.world, commit) {
            Ok((producer_id, epoch)) => {
                if self.world.records.len() == records {
                    self.reach("retried end");
                } else {
                    self.check_may_write(&p);
                    self.reach(if commit { "commit" } else { "abort" });
                    self.ledger.ended(IDS[id], commit);
                }
                if p.version >= 12 {
                    let next = Producer {
                        producer_id,
                        epoch,
                        ..p
                    };
                    self.begin_session(id, next);
                }
            }
            Err(code) => self.reach_code(code),
        }
    }

    fn produce(&mut self, p: &Producer, partitions: &[usize], back: i32, n: usize) {
        let mut batches = Vec::new();
        let mut keys = Vec::new();
        for partition in partitions.iter().filter(|p| self.exists(**p)) {
            let (topic, index) = nth(*partition);
            let key = (p.producer_id, p.epoch, *partition);
            let next = self.next_sequence.get(&key).copied().unwrap_or(0);
            let sequence = (next - back).max(0);
            let value = format!("{n}");
            batches.push(p.batch(&self.world, topic, index, sequence, &[&value]));
            keys.push((key, sequence, self.world.id(topic, index), value));
        }
        let count = batches.len();
        let records = self.world.records.len();
        let produced = self.world.produce(p.version, batches);
        assert_eq!(produced.len(), count);
        let wrote = self.world.records.len() > records;
        let transaction = p.transactional_id.as_deref().filter(|_| p.transactional);
        for (result, (key, sequence, id, value)) in produced.into_iter().zip(keys) {
            if let Ok(offset) = result {
                self.ledger.written(id, offset, value, transaction);
                let whose = (id, p.producer_id, p.epoch);
                self.ledger.counted(whose, sequence, offset);
            }
            match result {
                Ok(_) if !wrote => self.reach("duplicate"),
                Ok(_) => {
                    self.check_may_write(p);
                    let next = self.next_sequence.entry(key).or_default();
                    *next = (*next).max(sequence + 1);
                    let v2 = p.version >= 12 && p.transactional;
                    self.reach(if v2 { "sent in version 2" } else { "sent" });
                }
                Err(code) => self.reach_code(code),
            }
        }
    }

    /// A partition and an offset in it, -1 for none.
    fn offset_at(&self, partition: usize, tenths: i64) -> (TopicPartitionId, i64, Partition) {
        let (topic, index) = nth(partition);
        let state = self.world.partition(topic, index).clone();
        let held = state.log_end_offset - state.log_start_offset;
        let offset = match tenths {
            -1 => -1,
            11 => state.log_end_offset + 1,
            tenths => state.log_start_offset + held * tenths / 10,
        };
        (state.id, offset, state)
    }

    fn delete_records(&mut self, partition: usize, tenths: i64) {
        if !self.exists(partition) {
            return;
        }
        let (id, offset, before) = self.offset_at(partition, tenths);
        let partitions = vec![(id, offset)];
        let request = DeleteRecords { partitions };
        let Reply::DeleteRecords(answers) = self.world.ask(Command::DeleteRecords(request)) else {
            panic!("another reply");
        };
        let after = self.world.owner.partition(id).expect("it is there").clone();
        match answers[0] {
            Ok(low_watermark) => {
                assert_eq!(low_watermark, after.log_start_offset);
                let wanted = if offset == -1 {
                    before.log_end_offset
                } else {
                    offset
                };
                assert_eq!(low_watermark, wanted);
                let first_open = before.producers.first_unstable_offset();
                if wanted > before.log_start_offset && first_open.is_some_and(|o| o < wanted) {
                    let exclusive = self.world.options.exclusive.delete_records;
                    self.reach(match exclusive {
                        true => "transaction cut by DeleteRecords",
                        false => "records deleted under an open transaction",
                    });
                    let first_open = after.producers.first_unstable_offset();
                    let below = first_open.is_some_and(|first| first < wanted);
                    assert_eq!(below, !exclusive, "cut through, and open");
                }
                if wanted > before.log_start_offset {
                    self.reach("records deleted");
                }
            }
            Err(code) => {
                assert_eq!(after, before);
                match code {
                    ErrorCode::OffsetOutOfRange => self.reach("log start out of range"),
                    // What it cuts through does not end in one record.
                    ErrorCode::RequestTimedOut => {
                        assert!(self.world.options.exclusive.delete_records);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        // What producers and transactions know outlives the records, unless it was cut through.
        let open_before: Vec<_> = before.producers.open_transactions().collect();
        let open_after: Vec<_> = after.producers.open_transactions().collect();
        let cut = open_before.len() - open_after.len();
        let exclusive = self.world.options.exclusive.delete_records;
        assert!(before.producers == after.producers || (exclusive && cut > 0));
        // Whoever began at or above the offset goes on.
        let above = open_before
            .iter()
            .filter(|open| open.first_offset >= after.log_start_offset);
        for open in above.clone() {
            assert!(open_after.contains(open), "{open:?} was not cut through");
        }
        if cut > 0 && above.count() > 0 {
            self.reach("transaction above the deleted records");
        }
    }

    /// The ids whose transaction is ongoing, with what they have enrolled.
    fn open(&self) -> BTreeMap<Arc<str>, BTreeSet<(Arc<str>, i32)>> {
        let ongoing = self.world.owner.coordinator().iter();
        ongoing
            .filter(|meta| meta.state == TxnState::Ongoing)
            .map(|meta| (meta.transactional_id.clone(), meta.partitions.clone()))
            .collect()
    }

    /// After an operation that has cut through these topics, and no others: what was open in them
    /// is aborted, all else goes on. True if anything was.
    fn were_cut(
        &self,
        topics: &BTreeSet<&str>,
        before: &BTreeMap<Arc<str>, BTreeSet<(Arc<str>, i32)>>,
    ) -> bool {
        let through = |partitions: &BTreeSet<(Arc<str>, i32)>| {
            let mut enrolled = partitions.iter();
            enrolled.any(|(topic, _)| topics.contains(&**topic))
        };
        let mut left = before.clone();
        left.retain(|_, partitions| !through(partitions));
        assert_eq!(self.open(), left, "cut through {topics:?}");
        left.len() < before.len()
    }

    fn any_open_in(&self, topic: &str) -> bool {
        let open = self.open();
        let mut enrolled = open.values().flatten();
        enrolled.any(|(enrolled, _)| **enrolled == *topic)
    }

    fn grow(&mut self, topics: &BTreeSet<usize>, more: i32) {
        let count_of = |player: &Player, topic: usize| {
            let metadata = player.world.owner.metadata();
            metadata.topic(TOPICS[topic].0).map(|t| t.partitions)
        };
        let before = self.open();
        let counts: Vec<_> = topics.iter().map(|t| count_of(self, *t)).collect();
        let wanted = topics.iter().zip(&counts).map(|(topic, count)| GrowTopic {
            name: TOPICS[*topic].0.to_owned(),
            // Not for ever.
            count: (count.unwrap_or(0) + more).min(6),
            assignments: None,
        });
        let request = CreatePartitions {
            topics: wanted.collect(),
            validate_only: false,
        };
        let Reply::CreatePartitions(grown) = self.world.ask(Command::CreatePartitions(request))
        else {
            panic!("another reply");
        };
        let exclusive = self.world.options.exclusive.create_partitions;
        let mut cut = BTreeSet::new();
        for ((topic, grown), count) in topics.iter().zip(grown).zip(counts) {
            let name = TOPICS[*topic].0;
            match grown {
                Ok(()) => {
                    assert!(count_of(self, *topic) > count);
                    self.reach("partitions created");
                    match exclusive {
                        true => drop(cut.insert(name)),
                        false if self.any_open_in(name) => {
                            self.reach("partitions created under an open transaction");
                        }
                        false => {}
                    }
                }
                Err((code, _)) => {
                    assert_eq!(count_of(self, *topic), count);
                    match code {
                        ErrorCode::UnknownTopicOrPartition => assert_eq!(count, None),
                        ErrorCode::InvalidPartitions => {}
                        ErrorCode::InvalidRequest if exclusive && self.any_open_in(name) => {
                            self.reach("refused, its cuts fit no record");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        if self.were_cut(&cut, &before) {
            self.reach("transaction cut by CreatePartitions");
        }
    }

    fn alter(&mut self, topics: &BTreeSet<usize>, (key, value): (&str, &str)) {
        let config_of = |player: &Player, topic: &str| {
            let topic = player.world.owner.metadata().topic(topic)?;
            let policy = topic.resolve(&Default::default()).cleanup_policy;
            Some((topic.config.clone(), policy))
        };
        let change = match value {
            "" => ConfigChange::Delete,
            value => ConfigChange::Set(value.to_owned()),
        };
        let before = self.open();
        let names: Vec<_> = topics.iter().map(|topic| TOPICS[*topic].0).collect();
        let configs: Vec<_> = names.iter().map(|name| config_of(self, name)).collect();
        let resources = names.iter().map(|name| AlterResource {
            resource: ConfigResource::Topic((*name).to_owned()),
            alteration: Alteration::Changes(vec![(key.to_owned(), change.clone())]),
        });
        let request = AlterConfigs {
            resources: resources.collect(),
            validate_only: false,
        };
        let Reply::AlterConfigs(altered) = self.world.ask(Command::AlterConfigs(request)) else {
            panic!("another reply");
        };
        let exclusive = self.world.options.exclusive.cleanup_policy;
        let mut cut = BTreeSet::new();
        for ((name, altered), config) in names.into_iter().zip(altered).zip(configs) {
            let now_is = config_of(self, name);
            match altered {
                Ok(()) => {
                    let (Some((was, policy_was)), Some((is, policy_is))) = (config, now_is) else {
                        panic!("{name} does not exist");
                    };
                    self.reach("config altered");
                    let open = self.any_open_in(name);
                    if policy_was != policy_is && exclusive {
                        cut.insert(name);
                    } else if policy_was != policy_is && open {
                        self.reach("cleanup.policy changed under an open transaction");
                    } else if was.get("cleanup.policy") != is.get("cleanup.policy") && open {
                        self.reach("cleanup.policy written down");
                    }
                }
                Err((code, _)) => {
                    assert_eq!(now_is, config);
                    match code {
                        ErrorCode::UnknownTopicOrPartition => assert_eq!(config, None),
                        ErrorCode::InvalidConfig => assert_eq!(value, "burn"),
                        // Its own cuts, or with those of a topic before it in the request.
                        ErrorCode::InvalidRequest if exclusive && self.small_slots => {
                            self.reach("refused, its cuts fit no record");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        if self.were_cut(&cut, &before) {
            self.reach("transaction cut by cleanup.policy");
        }
    }

    fn scram(&mut self, user: &str, mechanism: i8, set: bool, n: usize) {
        let known = ScramMechanism::from_code(mechanism.unsigned_abs()).expect("1 or 2");
        let there = |player: &Player| {
            let found = player.world.owner.metadata().scram_credential(user, known);
            found.cloned()
        };
        let before = there(self);
        let user = user.to_owned();
        let credential = ScramCredential {
            iterations: 4096,
            salt: n.to_be_bytes().to_vec(),
            stored_key: vec![1; 32],
            server_key: vec![2; 32],
        };
        let mut request = AlterScram::default();
        match set {
            true => request.upsertions.push(ScramUpsertion {
                user: user.clone(),
                mechanism,
                credential: credential.clone(),
            }),
            false => request.deletions.push(ScramDeletion {
                user: user.clone(),
                mechanism,
            }),
        }
        let Reply::AlterScram(mut altered) = self.world.ask(Command::AlterScram(request)) else {
            panic!("another reply");
        };
        let (told, altered) = altered.pop().expect("one user was named");
        assert_eq!(told, user);
        match (set, before) {
            (true, _) => {
                assert_eq!((altered, there(self)), (Ok(()), Some(credential)));
                self.reach("credential set");
            }
            (false, Some(_)) => {
                assert_eq!((altered, there(self)), (Ok(()), None));
                self.reach("credential removed");
            }
            (false, None) => {
                let code = altered.map_err(|(code, _)| code);
                assert_eq!(code, Err(ErrorCode::ResourceNotFound));
            }
        }
    }

    fn retain(&mut self, partitions: &[usize], tenths: i64) {
        let exist = partitions.iter().filter(|p| self.exists(**p));
        let moves: Vec<_> = exist.map(|p| self.offset_at(*p, tenths)).collect();
        let request = MoveLogStarts {
            partitions: moves.iter().map(|(id, offset, _)| (*id, *offset)).collect(),
        };
        self.world
            .give_without_reply(Command::MoveLogStarts(request));
        for (id, offset, before) in moves {
            let after = self.world.owner.partition(id).expect("it is there");
            let stable = before.last_stable_offset();
            assert_eq!(
                after.log_start_offset,
                offset.min(stable).max(before.log_start_offset)
            );
            if after.log_start_offset > before.log_start_offset {
                self.reach("retained");
            }
        }
        self.cut_metadata();
    }

    fn cut_metadata(&mut self) {
        let log_start = |owner: &Owner| {
            let metadata = owner.partition(TopicPartitionId::METADATA);
            metadata.expect("it is always there").log_start_offset
        };
        let before = log_start(&self.world.owner);
        let image = self.world.owner.metadata().clone();
        let log_bytes = u64::MAX;
        self.world
            .give_without_reply(Command::SnapshotMetadata(SnapshotMetadata { log_bytes }));
        assert_eq!(*self.world.owner.metadata(), image, "it says nothing new");
        if log_start(&self.world.owner) > before {
            self.reach("metadata cut");
        }
    }

    fn group(&mut self, a_move: &Move) {
        let (Move::Join { group, .. }
        | Move::Sync { group }
        | Move::Heartbeat { group }
        | Move::Leave { group }) = *a_move
        else {
            return;
        };
        let group_id = GROUPS[group].to_owned();
        let (member_id, generation_id) = self.members[group].clone();
        let command = match a_move {
            Move::Join { new: true, .. } => Command::Join(join(&group_id, "")),
            Move::Join { .. } => Command::Join(join(&group_id, &member_id)),
            Move::Sync { .. } => Command::Sync(SyncRequest {
                group_id,
                generation_id,
                assignments: vec![(member_id.clone(), Bytes::from_static(b"a"))],
                member_id,
                group_instance_id: None,
                protocol_type: None,
                protocol_name: None,
            }),
            Move::Heartbeat { .. } => Command::Heartbeat(HeartbeatRequest {
                group_id,
                generation_id,
                member_id,
                group_instance_id: None,
            }),
            _ => Command::Leave(LeaveRequest {
                group_id,
                members: vec![LeaveMember {
                    member_id,
                    group_instance_id: None,
                    reason: None,
                }],
            }),
        };
        let token = self.world.give(command);
        match self.world.replies.get(&token) {
            Some(Reply::Join(joined)) if joined.error == ErrorCode::None => {
                self.members[group] = (joined.member_id.clone(), joined.generation_id);
                self.reach("joined");
            }
            Some(_) => {}
            None => self.reach("parked"),
        }
    }
}
