//! One partition's state: a value that changes only by apply.

use bytes::Bytes;
use tidemark_producer_state::PartitionProducers;
use tidemark_record_batch::{BatchHeader, parse_control};
use tidemark_types::{JournalIndex, LeaderEpoch, ProducerId, TopicPartitionId, mutant};

use crate::apply::{Appended, ApplyError, ControlInfo, Watermarks};
use crate::undo::Before;

/// Log ends, producers and epochs of a partition. Its bytes are elsewhere: in the journal, the tail
/// and the segments.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    pub id: TopicPartitionId,
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    /// (leader epoch, first offset it may write), rising in both.
    pub epochs: Vec<(LeaderEpoch, i64)>,
    pub producers: PartitionProducers,
}

impl Partition {
    pub fn new(id: TopicPartitionId, epoch: LeaderEpoch) -> Partition {
        Partition {
            id,
            log_start_offset: 0,
            log_end_offset: 0,
            epochs: vec![(epoch, 0)],
            producers: PartitionProducers::new(),
        }
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.epochs
            .last()
            .expect("a partition has an epoch from its first day")
            .0
    }

    /// LSO once everything applied is durable (the high watermark is the log end then).
    pub fn last_stable_offset(&self) -> i64 {
        self.producers
            .lso(self.log_end_offset, self.log_start_offset)
    }

    pub fn watermarks(&self) -> Watermarks {
        Watermarks {
            partition: self.id,
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end_offset,
            last_stable_offset: match mutant!("lso-plus-one") {
                true => (self.last_stable_offset() + 1).min(self.log_end_offset),
                false => self.last_stable_offset(),
            },
            leader_epoch: self.leader_epoch(),
        }
    }

    /// What [`Partition::apply_log_start`] and [`Partition::apply_leader_epoch`] change.
    pub(crate) fn before_start(&self) -> Before {
        Before::Start {
            id: self.id,
            log_start_offset: self.log_start_offset,
            epochs: self.epochs.clone(),
        }
    }

    /// The journal's epoch rose, and with it the leader epoch, from the current end on.
    pub fn apply_leader_epoch(&mut self, epoch: LeaderEpoch) -> Result<(), ApplyError> {
        if epoch <= self.leader_epoch() {
            return Err(ApplyError(format!(
                "leader epoch of {} would go from {} to {epoch} (I5)",
                self.id,
                self.leader_epoch()
            )));
        }
        // An epoch that wrote nothing gives its place to the next.
        self.epochs
            .retain(|&(_, start_offset)| start_offset < self.log_end_offset);
        self.epochs.push((epoch, self.log_end_offset));
        Ok(())
    }

    /// The records below `offset` are gone. Producers keep their windows and open transactions:
    /// both outlive their records.
    pub fn apply_log_start(&mut self, index: JournalIndex, offset: i64) -> Result<(), ApplyError> {
        if offset < self.log_start_offset || offset > self.log_end_offset {
            return Err(ApplyError(format!(
                "record {index}: the log start of {} would go from {} to {offset}, its log ends at {}",
                self.id, self.log_start_offset, self.log_end_offset
            )));
        }
        self.log_start_offset = offset;
        // The epoch in force at the log start begins there now; those before it are forgotten.
        let in_force = self.epochs.partition_point(|(_, start)| *start <= offset);
        if let Some(earlier) = in_force.checked_sub(1) {
            self.epochs.drain(..earlier);
            self.epochs[0].1 = offset;
        }
        Ok(())
    }

    /// Producers that have been idle for long are forgotten. None of them has an open transaction: its
    /// marker could not release the LSO any more.
    pub fn forget_producers(
        &mut self,
        index: JournalIndex,
        producer_ids: &[ProducerId],
    ) -> Result<(), ApplyError> {
        for &producer_id in producer_ids {
            let entry = self.producers.get(producer_id);
            if entry.is_some_and(|entry| entry.current_txn_first_offset().is_some()) {
                return Err(ApplyError(format!(
                    "record {index}: {} would forget producer {producer_id}, whose transaction is \
                     open",
                    self.id
                )));
            }
            self.producers.remove(producer_id);
        }
        Ok(())
    }

    /// Applies one batch whose base offset is final. `index` is the record that holds it.
    pub fn apply(
        &mut self,
        index: JournalIndex,
        wall_ms: i64,
        header: &BatchHeader,
        batch: &Bytes,
    ) -> Result<Appended, ApplyError> {
        // I2: append and producer state are one step, and offsets only grow.
        if header.base_offset != self.log_end_offset {
            return Err(ApplyError(format!(
                "record {index}: batch for {} begins at offset {}, its log ends at {}",
                self.id, header.base_offset, self.log_end_offset
            )));
        }
        if header.last_offset_delta < 0 {
            return Err(ApplyError(format!(
                "record {index}: batch for {} ends {} before it begins",
                self.id, header.last_offset_delta
            )));
        }
        let lso_before = self.last_stable_offset();
        self.log_end_offset = header.last_offset() + 1;
        let mut aborted = None;
        let mut control = None;
        if header.attributes.is_control() {
            let marker = parse_control(batch)
                .map_err(|e| ApplyError(format!("record {index}: marker for {}: {e}", self.id)))?;
            if let Some((kind, coordinator_epoch)) = marker {
                let completed = self.producers.apply_marker(
                    header,
                    kind,
                    coordinator_epoch,
                    header.base_offset,
                    wall_ms,
                );
                control = Some(ControlInfo {
                    kind,
                    first_offset: completed.map(|txn| txn.first_offset),
                });
                aborted = completed.and_then(|txn| txn.aborted_txn());
            }
        } else {
            self.producers.apply_append(header, wall_ms);
        }
        let last_stable_offset = self.last_stable_offset();
        assert!(
            last_stable_offset >= lso_before,
            "LSO of {} went back from {lso_before} to {last_stable_offset} (I6)",
            self.id
        );
        Ok(Appended {
            partition: self.id,
            batch: batch.clone(),
            header: *header,
            last_stable_offset,
            control,
            aborted,
            already_applied: false,
        })
    }
}
