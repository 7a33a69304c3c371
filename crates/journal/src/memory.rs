//! A journal in memory that several brokers share, and that does to them whatever such a journal may:
//! it delays, loses what it has not confirmed, and changes its owner. For tests; nothing here is
//! durable.
//!
//! Nothing happens by itself: [`Cluster::advance`] does the next thing that the seed says, and each
//! member takes its events when it likes.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tidemark_types::{JournalIndex, NodeId, Tick};

use crate::{Admission, After, AppendRequest, Journal, JournalEvent, RecoveredRecord};

const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The brokers' common journal.
#[derive(Clone)]
pub struct Cluster(Arc<Mutex<State>>);

/// One broker's handle.
pub struct MemoryJournal {
    cluster: Cluster,
    member: usize,
}

struct Stored {
    after: Tick,
    record: RecoveredRecord,
}

struct State {
    random: u64,
    epoch: u32,
    owner: Option<usize>,
    /// What is durable, for ever.
    log: Vec<Stored>,
    /// What the owner has appended since.
    in_flight: VecDeque<Stored>,
    highest_tick: Tick,
    members: Vec<Member>,
    lost: u64,
    moved: u64,
}

#[derive(Default)]
struct Member {
    events: VecDeque<JournalEvent>,
    /// Records of the log that it was told of.
    told: usize,
}

impl Cluster {
    /// A journal of so many members, none of which owns it.
    pub fn new(members: usize, seed: u64) -> Cluster {
        let follower = || Member {
            events: VecDeque::from([JournalEvent::Follower { leader: None }]),
            told: 0,
        };
        Cluster(Arc::new(Mutex::new(State {
            random: seed,
            epoch: 0,
            owner: None,
            log: Vec::new(),
            in_flight: VecDeque::new(),
            highest_tick: Tick::ZERO,
            members: (0..members).map(|_| follower()).collect(),
            lost: 0,
            moved: 0,
        })))
    }

    /// A member's handle.
    pub fn journal(&self, member: usize) -> MemoryJournal {
        MemoryJournal {
            cluster: self.clone(),
            member,
        }
    }

    /// Who owns the journal. It may not have heard of it yet.
    pub fn owner(&self) -> Option<usize> {
        self.0.lock().owner
    }

    /// Records that are durable.
    pub fn records(&self) -> Vec<RecoveredRecord> {
        let state = self.0.lock();
        state.log.iter().map(|s| s.record.clone()).collect()
    }

    /// How often records were lost, and how often the owner changed.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.0.lock();
        (state.lost, state.moved)
    }

    /// Up to `most` of a member's events, in order.
    pub fn take_events(&self, member: usize, most: usize) -> Vec<JournalEvent> {
        let mut state = self.0.lock();
        let events = &mut state.members[member].events;
        let count = most.min(events.len());
        events.drain(..count).collect()
    }

    /// Makes the oldest `count` of what is in flight durable and tells everyone.
    pub fn confirm(&self, count: usize) {
        self.0.lock().confirm(count, true);
    }

    /// Loses what is in flight; the owner stays, under a new epoch.
    pub fn lose(&self) {
        let mut state = self.0.lock();
        if let Some(owner) = state.owner {
            state.lose(owner);
            state.own(owner);
        }
    }

    /// Gives the journal to another member, or to the same one again. The first `survive` records in
    /// flight are durable all the same, which the owner before hears as a follower only.
    pub fn give_to(&self, member: usize, survive: usize) {
        let mut state = self.0.lock();
        if let Some(before) = state.owner {
            let known = state.members[before].told;
            state.confirm(survive, false);
            state.lose_after(before, known);
        }
        state.own(member);
        let leader = Some(NodeId(member as i32));
        for (n, other) in state.members.iter_mut().enumerate() {
            if n != member {
                other.events.push_back(JournalEvent::Follower { leader });
            }
        }
        state.moved += 1;
    }

    /// Tells every follower of all there is.
    pub fn tell_all(&self) {
        let mut state = self.0.lock();
        for member in 0..state.members.len() {
            if state.owner != Some(member) {
                state.tell(member, usize::MAX, false);
            }
        }
    }

    /// The next thing that the seed says.
    pub fn advance(&self) {
        let mut state = self.0.lock();
        let members = state.members.len() as u64;
        let in_flight = state.in_flight.len() as u64;
        let count = state.random_below(in_flight + 1) as usize;
        match state.random_below(100) {
            _ if state.owner.is_none() => {
                let member = state.random_below(members) as usize;
                drop(state);
                self.give_to(member, 0);
            }
            0..60 => state.confirm(count, true),
            60..80 => {
                let member = state.random_below(members) as usize;
                let again = state.random_below(10) == 0;
                state.tell(member, 3, again);
            }
            80..92 => {}
            92..96 => {
                // A part of it is confirmed first.
                state.confirm(count, true);
                drop(state);
                self.lose();
            }
            _ => {
                let member = state.random_below(members) as usize;
                drop(state);
                self.give_to(member, count);
            }
        }
    }
}

impl State {
    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn random_below(&mut self, bound: u64) -> u64 {
        self.random() % bound
    }

    fn confirm(&mut self, count: usize, tell: bool) {
        let Some(owner) = self.owner else {
            return;
        };
        let count = count.min(self.in_flight.len());
        let confirmed = self.in_flight.drain(..count);
        self.log.extend(confirmed);
        if let Some(last) = self.log.last()
            && count > 0
            && tell
        {
            let (index, tick) = (last.record.index, last.record.tick);
            let owner = &mut self.members[owner];
            owner.told = self.log.len();
            let event = JournalEvent::Confirmed { index, tick };
            owner.events.push_back(event);
        }
    }

    fn lose(&mut self, owner: usize) {
        let known = self.members[owner].told;
        self.lose_after(owner, known);
    }

    /// The owner keeps the first `known` records and nothing else.
    fn lose_after(&mut self, owner: usize, known: usize) {
        self.in_flight.clear();
        let last = known.checked_sub(1).map(|at| &self.log[at].record);
        let (index, tick) = last.map_or((JournalIndex(0), Tick::ZERO), |r| (r.index, r.tick));
        let event = JournalEvent::Lost { index, tick };
        self.members[owner].events.push_back(event);
        self.lost += 1;
    }

    fn own(&mut self, member: usize) {
        self.tell(member, usize::MAX, false);
        self.epoch += 1;
        self.owner = Some(member);
        let (epoch, floor) = (self.epoch, self.highest_tick);
        let events = &mut self.members[member].events;
        events.push_back(JournalEvent::Owner { epoch, floor });
        events.push_back(JournalEvent::Lease { until: None });
    }

    /// Tells a member that is behind of the next records, or of the last one once more.
    fn tell(&mut self, member: usize, most: usize, again: bool) {
        let is_owner = self.owner == Some(member);
        let known = &mut self.members[member];
        if again && !is_owner {
            known.told = known.told.saturating_sub(1);
        }
        let until = self.log.len().min(known.told.saturating_add(most));
        for stored in &self.log[known.told..until] {
            known.events.push_back(JournalEvent::Record {
                after: stored.after,
                record: stored.record.clone(),
            });
        }
        known.told = until;
    }
}

impl Journal for MemoryJournal {
    fn append(&self, after: After, request: AppendRequest) {
        let mut state = self.cluster.0.lock();
        if state.owner != Some(self.member) || after.epoch != state.epoch {
            return;
        }
        let last = state.in_flight.back().or(state.log.last());
        let (index, tick) = last.map_or((JournalIndex(0), Tick::ZERO), |s| {
            (s.record.index, s.record.tick)
        });
        // I1
        assert!(
            request.index == index.next()
                && after.tick >= tick
                && request.tick > after.tick
                && request.tick > state.highest_tick,
            "record {} at tick {:?} after {:?} does not follow record {index} at tick {tick:?}",
            request.index,
            request.tick,
            after.tick
        );
        state.highest_tick = request.tick;
        let epoch = state.epoch;
        state.in_flight.push_back(Stored {
            after: tick,
            record: RecoveredRecord {
                index: request.index,
                tick: request.tick,
                wall_ms: request.wall_ms,
                epoch,
                payload: Bytes::from(request.pieces.concat()),
            },
        });
    }

    fn release_below(&self, _index: JournalIndex) {}

    fn max_record_bytes(&self) -> u64 {
        MAX_RECORD_BYTES
    }

    fn has_space(&self, payload_bytes: u64, _admission: Admission) -> bool {
        payload_bytes <= MAX_RECORD_BYTES
    }
}
