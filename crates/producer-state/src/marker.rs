//! The marker that ends a producer's transaction in this partition.

use tidemark_abort_index::AbortedTxn;
use tidemark_record_batch::{BatchHeader, ControlType};
use tidemark_types::{CoordinatorEpoch, ErrorCode, ProducerEpoch, ProducerId};

use crate::PartitionProducers;
use crate::entry::ProducerEntry;

/// A transaction that its marker has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletedTxn {
    pub producer_id: ProducerId,
    pub first_offset: i64,
    /// Offset of the marker.
    pub last_offset: i64,
    pub aborted: bool,
    /// The last stable offset once the marker was written.
    pub last_stable_offset: i64,
}

impl CompletedTxn {
    /// The abort index's entry, `None` for a commit.
    pub fn aborted_txn(&self) -> Option<AbortedTxn> {
        self.aborted.then_some(AbortedTxn {
            producer_id: self.producer_id,
            first_offset: self.first_offset,
            last_offset: self.last_offset,
            last_stable_offset: self.last_stable_offset,
        })
    }
}

impl PartitionProducers {
    /// Decides about a marker. Its epoch may be the transaction's own (version 1) or a later one
    /// (version 2, and every abort by the broker: it fences).
    ///
    /// Errors: INVALID_PRODUCER_EPOCH below the producer's epoch; TRANSACTION_COORDINATOR_FENCED
    /// below the coordinator epoch of an earlier marker.
    pub fn decide_marker(
        &self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: CoordinatorEpoch,
    ) -> Result<(), ErrorCode> {
        let Some(entry) = self.get(producer_id) else {
            return Ok(());
        };
        if producer_epoch < entry.epoch() {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if coordinator_epoch < entry.coordinator_epoch() {
            return Err(ErrorCode::TransactionCoordinatorFenced);
        }
        Ok(())
    }

    /// Applies a marker of the log at `marker_offset`, from a record of `wall_ms`. Returns the
    /// transaction it has ended; `None` where the producer had none open here, which then leaves
    /// only its epochs behind: late batches of an earlier epoch meet them.
    pub fn apply_marker(
        &mut self,
        header: &BatchHeader,
        control_type: ControlType,
        coordinator_epoch: CoordinatorEpoch,
        marker_offset: i64,
        wall_ms: i64,
    ) -> Option<CompletedTxn> {
        let producer_id = header.producer_id;
        self.refused.forget(producer_id);
        let entry = self
            .entries
            .entry(producer_id)
            .or_insert_with(|| Box::new(ProducerEntry::new(header.producer_epoch, wall_ms)));
        entry.set_epoch(header.producer_epoch);
        entry.set_coordinator_epoch(coordinator_epoch);
        entry.touch(wall_ms);
        let first_offset = entry.current_txn_first_offset()?;
        entry.end_txn();
        let removed = self.open.remove(&first_offset);
        assert_eq!(
            removed,
            Some(producer_id),
            "open transaction at {first_offset}"
        );
        Some(CompletedTxn {
            producer_id,
            first_offset,
            last_offset: marker_offset,
            aborted: control_type == ControlType::Abort,
            last_stable_offset: self
                .first_unstable_offset()
                .unwrap_or(marker_offset.saturating_add(1)),
        })
    }
}
