//! The home's side: one decision in two records, and who has heard of it.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_types::{CoordinatorEpoch, ErrorCode, ProducerEpoch, ProducerId, Tick};

use super::{JournalId, ToHome, ToParticipant, TxnRef};
use crate::{Outcome, Partitions, TxnMeta, TxnState};

/// Splits the end of a transaction that has participants: the record that decides it. `outcome` is
/// what the rules of one journal came to, with markers; the markers of the home's own partitions go
/// into the same record. None if the outcome ends nothing, and so needs no second record.
///
/// The reserved producer id, where the epochs have run out, is used from now on.
pub fn prepare(existing: &TxnMeta, outcome: &Outcome) -> Option<TxnMeta> {
    let (markers, next) = (outcome.markers.as_ref()?, outcome.next.as_ref()?);
    let mut prepared = existing.clone();
    prepared.state = match markers.commit {
        true => TxnState::PrepareCommit,
        false => TxnState::PrepareAbort,
    };
    prepared.epoch = markers.epoch;
    prepared.last_epoch = next.last_epoch;
    prepared.next_producer_id = match outcome.used_fresh_producer_id {
        true => next.producer_id,
        false => ProducerId::NONE,
    };
    prepared.last_update_wall_ms = next.last_update_wall_ms;
    prepared.dialect = next.dialect;
    // A new session ends it; it begins when its InitProducerId is decided again.
    prepared.ended_by = next.ended_by;
    Some(prepared)
}

/// The completed state after [`prepare`], when every participant has resolved. None if nothing is
/// prepared.
pub fn complete(prepared: &TxnMeta, now_wall_ms: i64) -> Option<TxnMeta> {
    let (commit, _) = resolution(prepared)?;
    let mut next = prepared.touched(now_wall_ms);
    next.state = match commit {
        true => TxnState::CompleteCommit,
        false => TxnState::CompleteAbort,
    };
    next.partitions.clear();
    if prepared.next_producer_id.is_some() {
        next.previous_producer_id = prepared.producer_id;
        next.producer_id = prepared.next_producer_id;
        next.next_producer_id = ProducerId::NONE;
        next.epoch = ProducerEpoch(0);
    }
    Some(next)
}

/// What a prepared transaction comes to, and the epoch of its markers.
pub fn resolution(meta: &TxnMeta) -> Option<(bool, ProducerEpoch)> {
    match meta.state {
        TxnState::PrepareCommit => Some((true, meta.epoch)),
        TxnState::PrepareAbort => Some((false, meta.epoch)),
        _ => None,
    }
}

/// True for what has to wait until the transaction before is complete, and is decided anew then.
pub fn is_parked(decided: &Result<Outcome, ErrorCode>) -> bool {
    matches!(decided, Err(ErrorCode::ConcurrentTransactions))
}

/// Which participants of an id's transaction have heard what. In memory only: whoever owns the home
/// next asks all of them again, which changes nothing where it is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Driver {
    txn_number: u64,
    enrolled: BTreeMap<JournalId, Partitions>,
    resolved: BTreeSet<JournalId>,
}

impl Driver {
    /// What is still to be said, and to whom. To be sent when the state is durable, and again until
    /// there is nothing. `tick` is that of the record of the state; `journal_of` says where a
    /// partition is, `None` if it is gone, which counts as resolved, or if it is the home's own.
    pub fn messages(
        &self,
        meta: &TxnMeta,
        coordinator_epoch: CoordinatorEpoch,
        tick: Tick,
        journal_of: impl Fn(&str, i32) -> Option<JournalId>,
    ) -> Vec<(JournalId, ToParticipant)> {
        let txn = TxnRef {
            producer_id: meta.producer_id,
            txn_number: meta.txn_number,
            coordinator_epoch,
        };
        let of = self.of(meta);
        let participants = participants(meta, journal_of).into_iter();
        match resolution(meta) {
            Some((commit, epoch)) => participants
                .filter(|(journal, _)| !of.is_some_and(|of| of.resolved.contains(journal)))
                .map(|(journal, _)| {
                    let resolve = ToParticipant::Resolve {
                        txn,
                        epoch,
                        commit,
                        tick,
                    };
                    (journal, resolve)
                })
                .collect(),
            None if meta.state == TxnState::Ongoing => participants
                .filter(|(journal, partitions)| {
                    !of.and_then(|of| of.enrolled.get(journal))
                        .is_some_and(|enrolled| partitions.is_subset(enrolled))
                })
                .map(|(journal, partitions)| {
                    let enroll = ToParticipant::Enroll {
                        txn,
                        epoch: meta.epoch,
                        partitions,
                        tick,
                    };
                    (journal, enroll)
                })
                .collect(),
            None => Vec::new(),
        }
    }

    /// Takes note of an answer. One of an earlier transaction says nothing.
    pub fn hear(&mut self, meta: &TxnMeta, from: JournalId, answer: &ToHome) {
        if self.txn_number != meta.txn_number {
            *self = Driver {
                txn_number: meta.txn_number,
                ..Driver::default()
            };
        }
        match answer {
            ToHome::Enrolled {
                txn_number,
                partitions,
                ..
            } if *txn_number == meta.txn_number => {
                let enrolled = self.enrolled.entry(from).or_default();
                enrolled.extend(partitions.iter().cloned());
            }
            ToHome::Resolved { txn_number, .. } if *txn_number == meta.txn_number => {
                self.resolved.insert(from);
            }
            ToHome::Enrolled { .. } | ToHome::Resolved { .. } => {}
        }
    }

    /// True when these partitions of the ongoing transaction are enrolled where they are, so that
    /// their enrolment may be answered.
    pub fn is_enrolled(
        &self,
        meta: &TxnMeta,
        partitions: &Partitions,
        journal_of: impl Fn(&str, i32) -> Option<JournalId>,
    ) -> bool {
        partitions.iter().all(|partition| {
            let Some(journal) = journal_of(&partition.0, partition.1) else {
                return true;
            };
            let enrolled = self.of(meta).and_then(|of| of.enrolled.get(&journal));
            enrolled.is_some_and(|enrolled| enrolled.contains(partition))
        })
    }

    /// True when every participant has resolved the prepared transaction, so that [`complete`] may
    /// be recorded.
    pub fn is_resolved(
        &self,
        meta: &TxnMeta,
        journal_of: impl Fn(&str, i32) -> Option<JournalId>,
    ) -> bool {
        let resolved = self.of(meta).map(|of| &of.resolved);
        participants(meta, journal_of)
            .keys()
            .all(|journal| resolved.is_some_and(|resolved| resolved.contains(journal)))
    }

    /// What is known of the transaction that the state is about.
    fn of(&self, meta: &TxnMeta) -> Option<&Driver> {
        (self.txn_number == meta.txn_number).then_some(self)
    }
}

fn participants(
    meta: &TxnMeta,
    journal_of: impl Fn(&str, i32) -> Option<JournalId>,
) -> BTreeMap<JournalId, Partitions> {
    let mut participants: BTreeMap<JournalId, Partitions> = BTreeMap::new();
    for partition in &meta.partitions {
        if let Some(journal) = journal_of(&partition.0, partition.1) {
            let partitions = participants.entry(journal).or_default();
            partitions.insert(partition.clone());
        }
    }
    participants
}
