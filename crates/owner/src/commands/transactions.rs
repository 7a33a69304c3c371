//! What the transactional commands share: storing a state and writing markers.

use std::sync::Arc;

use bytes::BytesMut;
use tidemark_record_batch::{ControlType, control_batch};
use tidemark_txn_coordinator::{self as txn, AbortReason, MarkerSet, Outcome, TxnMeta, TxnState};
use tidemark_types::{
    COORDINATOR_PARTITIONS, CoordinatorEpoch, ProducerId, TopicPartitionId, coordinator_partition,
    mutant,
};

use super::Sweeps;
use crate::Owner;
use crate::command::Now;
use crate::draft::Draft;

impl Owner {
    /// Writes what a decision about a transactional id came to: the producer id it took, its
    /// markers and its new state.
    pub(crate) fn write_outcome(
        &mut self,
        draft: &mut Draft,
        id: &Arc<str>,
        outcome: &Outcome,
        fresh: ProducerId,
        now: &Now<'_>,
    ) {
        if outcome.used_fresh_producer_id {
            let partition = coordinator_partition(id, COORDINATOR_PARTITIONS);
            let taken = self.take_producer_id(draft, partition);
            assert_eq!(taken, fresh, "the id decided on is the one recorded");
        }
        if let Some(markers) = &outcome.markers {
            self.append_markers(draft, id, markers);
        }
        if let Some(next) = &outcome.next {
            self.store_transaction(draft, next);
            self.rearm(id, now);
        }
    }

    /// Aborts an ongoing transaction that its client has not ended, and fences the client. Returns
    /// the state before.
    pub(crate) fn abort_by_broker(
        &mut self,
        draft: &mut Draft,
        id: &Arc<str>,
        reason: AbortReason,
        now: &Now<'_>,
    ) -> TxnMeta {
        let meta = self.coordinator.get(id).cloned();
        let meta = meta.expect("only an ongoing transaction is aborted");
        let (fresh, _) = self.peek_producer_id();
        let outcome = txn::decide_abort_by_broker(&meta, reason, fresh, draft.wall_ms)
            .expect("only an ongoing transaction is aborted");
        self.write_outcome(draft, id, &outcome, fresh, now);
        meta
    }

    /// Appends a transactional id's new state to its partition of `__transaction_state`.
    fn store_transaction(&mut self, draft: &mut Draft, next: &TxnMeta) {
        let (key, value) = (
            txn::encode_key(&next.transactional_id),
            txn::encode_value(next),
        );
        let partition = coordinator_partition(&next.transactional_id, COORDINATOR_PARTITIONS);
        self.append_record(
            draft,
            TopicPartitionId::transaction_state(partition),
            &key,
            Some(&value),
        );
    }

    /// Appends the end of a transaction to every partition it enrolled. A partition that is gone
    /// counts as resolved.
    fn append_markers(&mut self, draft: &mut Draft, transactional_id: &str, markers: &MarkerSet) {
        let kind = if markers.commit {
            ControlType::Commit
        } else {
            ControlType::Abort
        };
        let home = TopicPartitionId::transaction_state(coordinator_partition(
            transactional_id,
            COORDINATOR_PARTITIONS,
        ));
        let coordinator_epoch = CoordinatorEpoch(
            self.partitions
                .get(&home)
                .expect("__transaction_state exists from the first start")
                .leader_epoch()
                .0,
        );
        for (at, (topic, partition)) in markers.partitions.iter().enumerate() {
            if at == 1 && mutant!("marker-dropped") {
                continue;
            }
            let kind = match at == 1 && mutant!("marker-flipped") {
                true => ControlType::Abort,
                false => kind,
            };
            let Some(id) = self.metadata.partition(topic, *partition) else {
                continue;
            };
            let epoch = self.partitions[&id].leader_epoch();
            let batch = control_batch(
                0,
                epoch,
                markers.producer_id,
                markers.epoch,
                kind,
                coordinator_epoch,
                draft.wall_ms,
            );
            self.append(draft, id, BytesMut::from(batch));
        }
    }

    /// After replay: every ongoing transaction gets the time it had left by the wall clock, never
    /// more than its whole timeout, and groups get fresh sessions.
    ///
    /// Panics when [`Owner::check_replayed`] finds something wrong: going on would serve what is
    /// not there.
    pub fn arm_after_replay(&mut self, now: &Now<'_>) {
        if let Err(e) = self.check_replayed() {
            panic!("after replay: {e}");
        }
        self.restored.clear();
        self.armed = true;
        if mutant!("ongoing-forgotten") {
            let metas: Vec<TxnMeta> = self.coordinator.iter().cloned().collect();
            for mut meta in metas.into_iter().filter(|m| m.state == TxnState::Ongoing) {
                meta.state = TxnState::Empty;
                meta.partitions.clear();
                meta.start_wall_ms = TxnMeta::NO_START;
                let id = meta.transactional_id.clone();
                self.coordinator.apply(&id, Some(meta));
            }
        }
        if mutant!("windows-forgotten") {
            for partition in self.partitions.values_mut() {
                let closed = partition.producers.producers();
                let closed = closed.filter(|(_, e)| e.current_txn_first_offset().is_none());
                for id in closed.map(|(id, _)| id).collect::<Vec<_>>() {
                    partition.producers.remove(id);
                }
            }
        }
        self.sweeps = Some(Sweeps::new(&self.options.expiry, now.mono));
        let ongoing: Vec<Arc<str>> = self
            .coordinator
            .iter()
            .filter(|meta| meta.state == TxnState::Ongoing)
            .map(|meta| meta.transactional_id.clone())
            .collect();
        for id in ongoing {
            self.rearm(&id, now);
        }
        self.groups.restore_after_replay(now.mono, now.wall_ms);
    }
}
