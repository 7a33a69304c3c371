//! A producer's batch: duplicate, in order, or refused (KIP-98, KIP-360, KIP-890).

use tidemark_record_batch::BatchHeader;
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::PartitionProducers;
use crate::entry::{BatchMeta, ProducerEntry};

/// Who wants to append, which says what is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A Produce request.
    Client {
        /// The client speaks transaction version 2 (Produce v12): sequences begin at 0 in every
        /// transaction's epoch.
        transactional_v2: bool,
        /// What the transaction coordinator says to this batch, if it is transactional: the
        /// partition is in the producer's ongoing transaction (or is put there by this batch,
        /// version 2), or the code to refuse with. It matters only where the batch would begin a
        /// transaction in this partition: within one, the coordinator was asked before.
        enrolment: Result<(), ErrorCode>,
    },
    /// A group coordinator's transactional offsets: no sequences; enrolment was checked.
    Coordinator,
}

impl Origin {
    /// A client whose batch is not transactional, or is in its transaction.
    pub fn client(transactional_v2: bool) -> Origin {
        Origin::Client {
            transactional_v2,
            enrolment: Ok(()),
        }
    }
}

/// What becomes of a batch that is not refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendVerdict {
    Append,
    /// It is in the log already: answered like the original, nothing is appended.
    Duplicate {
        base_offset: i64,
        /// The original's highest timestamp, also under CreateTime, as in Kafka.
        log_append_time: i64,
    },
}

impl PartitionProducers {
    /// Decides about a batch that [`tidemark_record_batch::validate_produce`] has passed. Its base
    /// offset does not matter yet. A batch without a producer id is always appended.
    ///
    /// The checks come in Kafka's order, as the first that fails gives the code: an exact repeat of
    /// one of the last five batches is a duplicate, whatever has become of its transaction;
    /// INVALID_PRODUCER_EPOCH for an epoch that is over; the coordinator's answer; then
    /// OUT_OF_ORDER_SEQUENCE_NUMBER; then INVALID_TXN_STATE for a plain batch inside an open
    /// transaction. (Kafka asks the coordinator before it compares epochs, and hears of the stale
    /// epoch from there.)
    pub fn decide_append(
        &self,
        header: &BatchHeader,
        origin: Origin,
    ) -> Result<AppendVerdict, ErrorCode> {
        if !header.producer_id.is_some() {
            return Ok(AppendVerdict::Append);
        }
        let entry = self.get(header.producer_id);
        if matches!(origin, Origin::Client { .. })
            && let Some(original) = entry.and_then(|entry| entry.duplicate_of(header))
        {
            return Ok(AppendVerdict::Duplicate {
                base_offset: original.base_offset,
                log_append_time: original.log_append_time,
            });
        }
        if entry.is_some_and(|entry| header.producer_epoch < entry.epoch()) {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if let Origin::Client {
            transactional_v2,
            enrolment,
        } = origin
        {
            if header.attributes.is_transactional() && !is_in_txn(entry, header.producer_epoch) {
                enrolment?;
            }
            self.check_sequence(entry, header, transactional_v2)?;
        }
        let in_txn = entry.is_some_and(|entry| entry.current_txn_first_offset().is_some());
        if in_txn && !header.attributes.is_transactional() {
            return Err(ErrorCode::InvalidTxnState);
        }
        Ok(AppendVerdict::Append)
    }

    fn check_sequence(
        &self,
        entry: Option<&ProducerEntry>,
        header: &BatchHeader,
        transactional_v2: bool,
    ) -> Result<(), ErrorCode> {
        let in_order = match entry {
            Some(entry) if header.producer_epoch == entry.epoch() => {
                header.base_sequence == entry.next_sequence()
            }
            Some(_) => header.base_sequence == 0,
            // Nothing is known: it may have expired, or been deleted with its records, so any
            // sequence may be the next one. In version 2 an epoch is one transaction long.
            None if transactional_v2 && header.attributes.is_transactional() => {
                header.base_sequence == 0
            }
            None => self.refused.allows(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            ),
        };
        if in_order {
            Ok(())
        } else {
            Err(ErrorCode::OutOfOrderSequenceNumber)
        }
    }

    /// Notes that a batch of an unknown producer was refused with a code on which the client tries
    /// again. Of several batches in flight the later ones must not get in before it, as any first
    /// sequence is accepted (KIP-890's tentative sequence).
    pub fn note_refused(
        &mut self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        base_sequence: i32,
    ) {
        if producer_id.is_some() && !self.entries.contains_key(&producer_id) {
            self.refused
                .note(producer_id, producer_epoch, base_sequence);
        }
    }

    /// Applies a data batch of the log, with its final base offset, from a record of `wall_ms`.
    pub fn apply_append(&mut self, header: &BatchHeader, wall_ms: i64) {
        if !header.producer_id.is_some() {
            return;
        }
        self.refused.forget(header.producer_id);
        let entry = self
            .entries
            .entry(header.producer_id)
            .or_insert_with(|| Box::new(ProducerEntry::new(header.producer_epoch, wall_ms)));
        entry.set_epoch(header.producer_epoch);
        entry.touch(wall_ms);
        // A coordinator's batch has no sequence and is never sent again as it is.
        if header.base_sequence >= 0 {
            entry.push(BatchMeta::of(header));
        }
        if header.attributes.is_transactional() && entry.current_txn_first_offset().is_none() {
            entry.begin_txn(header.base_offset);
            self.open.insert(header.base_offset, header.producer_id);
        }
    }
}

/// True when the producer's transaction of this epoch is open here.
fn is_in_txn(entry: Option<&ProducerEntry>, epoch: ProducerEpoch) -> bool {
    entry.is_some_and(|entry| entry.epoch() == epoch && entry.current_txn_first_offset().is_some())
}
