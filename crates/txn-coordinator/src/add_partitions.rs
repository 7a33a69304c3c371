//! Enrolment: the partitions a transaction is about to write to. The first one begins it.
//!
//! The classic dialect enrols by AddPartitionsToTxn and AddOffsetsToTxn; KIP-890's by the first
//! transactional batch (Produce v12) or offset commit (TxnOffsetCommit v5), where the new state and
//! the batch are one record.

use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::{Dialect, Outcome, Partitions, Session, TxnMeta, TxnState};

/// Decides AddPartitionsToTxn, and AddOffsetsToTxn with the group's partition of
/// `__consumer_offsets`. `existing` is the state of the request's transactional id.
///
/// Nothing is written if all are enrolled already, or none was named. Errors: 49 (no such id, or
/// another's producer id), 90 (not the current epoch), 51 in `Prepare*` (several journals).
pub fn decide_add_partitions(
    existing: Option<&TxnMeta>,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    partitions: &Partitions,
    now_wall_ms: i64,
) -> Result<Outcome, ErrorCode> {
    let existing = existing.ok_or(ErrorCode::InvalidProducerIdMapping)?;
    Session::of(existing, producer_id, epoch).require_current()?;
    enrol(existing, partitions, Dialect::V1, now_wall_ms)
}

/// Decides the enrolment that a version 2 transactional batch brings with it (Produce v12,
/// TxnOffsetCommit v5): like [`decide_add_partitions`], but an epoch that is not the current one is
/// INVALID_PRODUCER_EPOCH (47), which aborts the transaction in the client and not the client.
pub fn decide_implicit_enrolment(
    existing: Option<&TxnMeta>,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    partitions: &Partitions,
    now_wall_ms: i64,
) -> Result<Outcome, ErrorCode> {
    let existing = existing.ok_or(ErrorCode::InvalidProducerIdMapping)?;
    match Session::of(existing, producer_id, epoch) {
        Session::Current => enrol(existing, partitions, Dialect::V2, now_wall_ms),
        Session::Last | Session::Fenced => Err(ErrorCode::InvalidProducerEpoch),
        Session::Unknown => Err(ErrorCode::InvalidProducerIdMapping),
    }
}

fn enrol(
    existing: &TxnMeta,
    partitions: &Partitions,
    dialect: Dialect,
    now_wall_ms: i64,
) -> Result<Outcome, ErrorCode> {
    let begins = match existing.state {
        TxnState::Ongoing => false,
        TxnState::Empty | TxnState::CompleteCommit | TxnState::CompleteAbort => true,
        TxnState::PrepareCommit | TxnState::PrepareAbort | TxnState::PrepareEpochFence => {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        TxnState::Dead => return Err(ErrorCode::InvalidProducerIdMapping),
    };
    if partitions.is_empty() || (!begins && partitions.is_subset(&existing.partitions)) {
        return Ok(Outcome::unchanged(existing));
    }
    let mut next = existing.touched(now_wall_ms);
    next.partitions.extend(partitions.iter().cloned());
    if begins {
        next.state = TxnState::Ongoing;
        next.start_wall_ms = now_wall_ms;
        next.txn_number = next.txn_number.wrapping_add(1);
        next.dialect = dialect;
        // Whoever enrols has heard of this epoch: what still comes under the one before it is a
        // delayed duplicate, and no longer a retry to be answered.
        next.last_epoch = ProducerEpoch::NONE;
    }
    Ok(Outcome::changed(next))
}
