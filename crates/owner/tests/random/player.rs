//! Who makes the moves, what each is answered, and what must hold afterwards.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidemark_group_coordinator::{HeartbeatRequest, LeaveMember, LeaveRequest, SyncRequest};
use tidemark_owner::*;
use tidemark_txn_coordinator::{Dialect, TxnState};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::common::{Producer, World, join, options};
use crate::ledger::Ledger;
use crate::moves::{CONFIGS, GROUPS, IDS, Move, TOPICS};

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

pub struct Player {
    pub world: World,
    /// What cuts through transactions meets records that hold the end of one or two of them.
    pub small_slots: bool,
    /// The sessions that were opened of each id, the last one last.
    pub sessions: Vec<Vec<Producer>>,
    pub idempotent: Producer,
    /// Pairs that a newer session or an abort of the broker's has put an end to.
    pub fenced: BTreeSet<(ProducerId, ProducerEpoch)>,
    /// Of transactional ids that were forgotten.
    pub nobodys: BTreeSet<ProducerId>,
    /// The next sequence by producer, epoch and partition, as a good client counts.
    pub next_sequence: BTreeMap<(ProducerId, ProducerEpoch, usize), i32>,
    /// Member id and generation last heard of.
    pub members: Vec<(String, i32)>,
    /// Records that are confirmed.
    pub confirmed: usize,
    pub ledger: Ledger,
    pub reached: BTreeMap<&'static str, usize>,
}

/// A partition by a small number, whether its topic exists or not.
pub fn nth(partition: usize) -> (&'static str, i32) {
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

    pub fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    pub fn reach_code(&mut self, code: ErrorCode) {
        match code {
            ErrorCode::OutOfOrderSequenceNumber => self.reach("out of order"),
            ErrorCode::InvalidTxnState => self.reach("not enrolled"),
            ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced => self.reach("fenced"),
            _ => {}
        }
    }

    pub fn session(&self, id: usize, who: usize) -> Option<Producer> {
        let sessions = &self.sessions[id];
        let at = sessions.len().checked_sub(1 + who)?;
        Some(sessions[at].clone())
    }

    pub fn ongoing(&self) -> usize {
        let coordinator = self.world.owner.coordinator();
        coordinator
            .iter()
            .filter(|meta| meta.state == TxnState::Ongoing)
            .count()
    }

    /// How many producers, transactional ids, groups' records there are.
    pub fn remembered(&self) -> [usize; 3] {
        let owner = &self.world.owner;
        let partitions = owner.partition_ids().into_iter();
        let producers = partitions.map(|id| owner.partition(id).map_or(0, |p| p.producers.len()));
        let groups = owner.groups();
        let offsets = groups
            .partitions()
            .map(|p| groups.records_of_partition(p).len());
        [producers.sum(), owner.coordinator().len(), offsets.sum()]
    }

    pub fn exists(&self, partition: usize) -> bool {
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
    pub fn begin_session(&mut self, id: usize, session: Producer) {
        let last = self.sessions[id].last().map(Producer::pair);
        let fenced = last.filter(|pair| *pair != session.pair());
        self.fenced.extend(fenced);
        self.sessions[id].push(session);
    }

    /// Nobody knows any more whose the producer ids of a forgotten transactional id were.
    pub fn note_forgotten(&mut self) {
        for (name, sessions) in IDS.iter().zip(&self.sessions) {
            if self.world.owner.coordinator().get(name).is_none() {
                self.nobodys.extend(sessions.iter().map(|p| p.producer_id));
            }
        }
    }

    /// P7: whoever has been fenced writes nothing, and ends nothing.
    pub fn check_may_write(&self, p: &Producer) {
        let known = !self.ledger.is_blind() && !self.nobodys.contains(&p.producer_id);
        let fenced = known && self.fenced.contains(&p.pair());
        assert!(!fenced, "P7: {p:?} was fenced");
    }

    /// Whether an open transaction has offsets of the group.
    pub fn fetch_offsets(&mut self, group: usize) -> bool {
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

    pub fn carry_out(&mut self, a_move: &Move, n: usize) {
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

    pub fn group(&mut self, a_move: &Move) {
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
