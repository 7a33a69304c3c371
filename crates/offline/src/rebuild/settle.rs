//! How does a transaction end whose marker is lost?
//!
//! A transaction's markers are one record of the journal, but segments are written one partition at a
//! time: after the loss of the journal some of them may be missing. Where any is left, or the
//! coordinator's state says how it ended, the others follow it. Where nothing does and no
//! coordinator has the transaction open, it is aborted. One that its coordinator has open goes on.

use tidemark_owner::Settlement;
use tidemark_txn_coordinator::{TxnMeta, TxnState};
use tidemark_types::{ProducerEpoch, ProducerId};

use super::scan::{Ended, Found};

/// How what was left open is to end.
#[derive(Default)]
pub(super) struct Unfinished {
    /// At their coordinator: all of the transaction.
    pub(super) at_coordinator: Vec<(TxnMeta, bool)>,
    /// In one partition.
    pub(super) markers: Vec<Settlement>,
}

impl Found {
    /// The marker that ended the transaction that was open at `tick`.
    fn end_after(&self, producer_id: ProducerId, tick: u64) -> Option<Ended> {
        let ended = self.ended.get(&producer_id.0)?;
        let later = ended.iter().filter(|ended| tick > 0 && ended.tick > tick);
        later.min_by_key(|ended| ended.tick).copied()
    }
}

/// Finds what must be ended, and names it.
pub(super) fn plan(found: &mut Found) -> Unfinished {
    let mut unfinished = Unfinished::default();
    let mut lost = Vec::new();
    let ongoing = |meta: &&TxnMeta| meta.state == TxnState::Ongoing;
    for meta in found.owner.coordinator().iter().filter(ongoing) {
        let stated = found.stated.get(&*meta.transactional_id).copied();
        if let Some(end) = found.end_after(meta.producer_id, stated.unwrap_or(0)) {
            lost.push(format!(
                "the end of the transaction of transactional id {:?}: it is {} everywhere, as one \
                 of its partitions has it",
                meta.transactional_id,
                word(end.commit)
            ));
            unfinished.at_coordinator.push((meta.clone(), end.commit));
        }
    }
    for id in found.owner.partition_ids() {
        let Some(partition) = found.owner.partition(id) else {
            continue;
        };
        let name = found.name(id);
        let topic = found.owner.metadata().topic_by_id(id.topic);
        for open in partition.producers.open_transactions() {
            let coordinator = found.owner.coordinator().by_producer_id(open.producer_id);
            let goes_on = coordinator.is_some_and(|meta| {
                meta.state == TxnState::Ongoing
                    && meta.producer_id == open.producer_id
                    && topic.is_some_and(|topic| meta.has_partition(&topic.name, id.partition))
            });
            if goes_on {
                continue;
            }
            let opened = found.opened.get(&(id, open.producer_id.0)).copied();
            let opened = opened.unwrap_or(0);
            let by_marker = found.end_after(open.producer_id, opened);
            let by_state = coordinator
                .filter(|meta| {
                    let stated = found.stated.get(&*meta.transactional_id).copied();
                    meta.producer_id == open.producer_id && stated.unwrap_or(0) > opened
                })
                .map(|meta| meta.state == TxnState::CompleteCommit);
            let commit = by_marker
                .map(|end| end.commit)
                .or(by_state)
                .unwrap_or(false);
            let epoch = partition.producers.get(open.producer_id);
            let epoch = epoch.map_or(0, |entry| entry.epoch().0);
            let epoch = by_marker.map_or(epoch, |end| end.epoch.max(epoch));
            lost.push(format!(
                "{name}: the marker of producer {}'s transaction that began at offset {}: it is {}{}",
                open.producer_id,
                open.first_offset,
                word(commit),
                match (by_marker, by_state) {
                    (Some(_), _) => ", as another of its partitions has it",
                    (None, Some(_)) => ", as its transactional id's state has it",
                    (None, None) => ": nothing is left that says how it ended",
                }
            ));
            unfinished.markers.push(Settlement {
                partition: id,
                producer_id: open.producer_id,
                producer_epoch: ProducerEpoch(epoch),
                commit,
            });
        }
    }
    found.lost.extend(lost);
    unfinished
}

fn word(commit: bool) -> &'static str {
    if commit { "committed" } else { "aborted" }
}
