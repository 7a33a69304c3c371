//! What happened, as a journal holds it: kept for every prefix, so that a crash takes it back.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_owner::{Observation, Owner};
use tidemark_record_batch::ControlType;
use tidemark_txn_coordinator::{EndedBy, TxnState};

use super::broker::{GROUP, ID, TOPIC, partition};
use super::{OFFSETS, PLACES, Request};

/// A record by its writer: (instance, the instance's own count of transactions, place). A place is
/// a partition of the topic, or the group's offsets.
pub type Name = (u8, u8, u8);

/// What a property says must not happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wrong {
    /// A session that another has followed enrolled, wrote or ended something.
    ZombieActed,
    /// One EndTxn, or one InitProducerId with a pair, took effect twice.
    EffectTwice,
    /// A record is in a transaction with one of another transaction of an instance.
    Mixed,
    /// A record is in the log twice.
    Doubled,
    /// A read_committed consumer sees something else than the markers say.
    ReadersDiffer,
    /// The last stable offset, or the log's end, went back between two durable states.
    WentBack,
    /// The owner's own invariants; see `Facts::broken_rule`.
    Invariant,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum InLog {
    Data {
        name: Name,
        producer_id: i64,
        transactional: bool,
    },
    Marker {
        commit: bool,
        producer_id: i64,
    },
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Facts {
    /// By place; the offset is the index.
    pub logs: [Vec<InLog>; PLACES],
    /// Aborted transactions as the broker lists them: producer id and first offset.
    aborted: [Vec<(i64, i64)>; PLACES],
    pub last_stable: [i64; PLACES],
    /// Number of the coordinator's transaction each record was written in.
    written: BTreeMap<Name, u64>,
    /// Sessions opened so far, and the instance that opened the last.
    pub sessions: u8,
    pub opened_by: u8,
    /// Requests that must take effect once, and did.
    effective: BTreeSet<Request>,
    /// The coordinator's state: a transaction is ongoing, the last one was ended by its timeout.
    pub ongoing: bool,
    pub timed_out: bool,
    pub wrong: BTreeSet<Wrong>,
    pub broken_rule: Option<String>,
}

impl Facts {
    /// Notes what apply reported; `name` is of the one data batch there can be.
    pub fn observe(&mut self, owner: &Owner, observations: &[Observation], name: Option<Name>) {
        for observation in observations {
            let Observation::Appended(appended) = observation else {
                continue;
            };
            let Some(place) = (0..PLACES as u8).find(|p| partition(*p) == appended.partition)
            else {
                continue;
            };
            let producer_id = appended.header.producer_id.0;
            let at = usize::from(place);
            self.logs[at].push(match appended.control {
                Some(control) => InLog::Marker {
                    commit: control.kind == ControlType::Commit,
                    producer_id,
                },
                None => InLog::Data {
                    name: name.expect("only a write appends data"),
                    producer_id,
                    transactional: appended.header.attributes.is_transactional(),
                },
            });
            if let Some(aborted) = appended.aborted {
                self.aborted[at].push((aborted.producer_id.0, aborted.first_offset));
            }
            if appended.control.is_none() {
                self.note_written(owner, name.expect("only a write appends data"));
            }
        }
        for place in 0..PLACES {
            let state = owner
                .partition(partition(place as u8))
                .expect("it is there");
            if state.last_stable_offset() < self.last_stable[place] {
                self.wrong.insert(Wrong::WentBack);
            }
            self.last_stable[place] = state.last_stable_offset();
            if self.committed(place) != self.settled(place) {
                self.wrong.insert(Wrong::ReadersDiffer);
            }
        }
        let meta = owner.coordinator().get(ID);
        self.ongoing = meta.is_some_and(|meta| meta.state == TxnState::Ongoing);
        self.timed_out = meta.is_some_and(|meta| meta.ended_by == EndedBy::Timeout);
        if self.group_offset(owner) != self.expected_group_offset() {
            self.wrong.insert(Wrong::ReadersDiffer);
        }
    }

    fn note_written(&mut self, owner: &Owner, name: Name) {
        let number = owner
            .coordinator()
            .get(ID)
            .map_or(0, |meta| meta.txn_number);
        let mixed = self
            .written
            .iter()
            .any(|(other, n)| number > 0 && *n == number && (other.0, other.1) != (name.0, name.1));
        if mixed {
            self.wrong.insert(Wrong::Mixed);
        }
        // Offsets may be committed again in their transaction: the last ones count.
        if self.written.insert(name, number).is_some() && name.2 != OFFSETS {
            self.wrong.insert(Wrong::Doubled);
        }
    }

    /// A request wrote something.
    pub fn caused_by(&mut self, request: Request) {
        if request.opens_session() {
            self.sessions += 1;
            self.opened_by = request.from;
        } else if request.session != self.sessions && request.session != super::NO_SESSION {
            self.wrong.insert(Wrong::ZombieActed);
        }
        if request.takes_effect_once() && !self.effective.insert(request) {
            self.wrong.insert(Wrong::EffectTwice);
        }
    }

    pub fn broken(&mut self, rule: String) {
        self.wrong.insert(Wrong::Invariant);
        self.broken_rule = Some(rule);
    }

    pub fn is_written(&self, name: Name) -> bool {
        self.written.contains_key(&name)
    }

    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.written.keys().copied()
    }

    /// Commit or abort of a record, `None` while it is open: its producer's next marker says it.
    pub fn fate(&self, name: Name) -> Option<bool> {
        let log = &self.logs[usize::from(name.2)];
        let at = log
            .iter()
            .rposition(|e| matches!(e, InLog::Data { name: n, .. } if *n == name))?;
        self.fate_at(usize::from(name.2), at)
    }

    fn fate_at(&self, place: usize, at: usize) -> Option<bool> {
        let producer_id = match self.logs[place][at] {
            InLog::Marker { .. } => return None,
            InLog::Data {
                transactional: false,
                ..
            } => return Some(true),
            InLog::Data { producer_id, .. } => producer_id,
        };
        self.logs[place][at..].iter().find_map(|e| match e {
            InLog::Marker {
                commit,
                producer_id: p,
            } if *p == producer_id => Some(*commit),
            _ => None,
        })
    }

    /// What became of the records of one transaction of an instance.
    pub fn fates(&self, from: u8, txn: u8) -> BTreeSet<Option<bool>> {
        let of = self.names().filter(|name| (name.0, name.1) == (from, txn));
        of.map(|name| self.fate(name)).collect()
    }

    fn settled(&self, place: usize) -> Vec<Name> {
        let below = 0..self.last_stable[place] as usize;
        let committed = below.filter(|at| self.fate_at(place, *at) == Some(true));
        committed.filter_map(|at| self.name_at(place, at)).collect()
    }

    /// As a consumer does it, with the list of aborted transactions.
    fn committed(&self, place: usize) -> Vec<Name> {
        let mut dropping = BTreeSet::new();
        let mut seen = Vec::new();
        for at in 0..self.last_stable[place] as usize {
            for (producer_id, first_offset) in &self.aborted[place] {
                if *first_offset == at as i64 {
                    dropping.insert(*producer_id);
                }
            }
            match &self.logs[place][at] {
                InLog::Data {
                    name, producer_id, ..
                } if !dropping.contains(producer_id) => {
                    seen.push(*name);
                }
                InLog::Marker {
                    commit: false,
                    producer_id,
                } => {
                    dropping.remove(producer_id);
                }
                _ => {}
            }
        }
        seen
    }

    fn name_at(&self, place: usize, at: usize) -> Option<Name> {
        match self.logs[place].get(at)? {
            InLog::Data { name, .. } => Some(*name),
            InLog::Marker { .. } => None,
        }
    }

    /// The later record wins, whenever its marker comes.
    fn expected_group_offset(&self) -> Option<i64> {
        let place = usize::from(OFFSETS);
        let committed = (0..self.logs[place].len()).rev();
        let mut committed = committed.filter(|at| self.fate_at(place, *at) == Some(true));
        let name = committed.next().and_then(|at| self.name_at(place, at));
        name.map(super::offset_of)
    }

    fn group_offset(&self, owner: &Owner) -> Option<i64> {
        let committed = owner.groups().committed_offset(GROUP, TOPIC, 0);
        committed.map(|committed| committed.value.offset)
    }
}
