//! What the coordinator has to say about a batch before the partition looks at its sequence.
//! It is part of the same decision as the append: KIP-890's verification without a round trip.

use tidemark_types::{CONSUMER_OFFSETS, ErrorCode, ProducerEpoch, ProducerId};

use crate::{Dialect, Session, TxnMeta, TxnState};

/// From this Produce version on a client knows TRANSACTION_ABORTABLE (KIP-890).
const PRODUCE_WITH_TRANSACTION_ABORTABLE: i16 = 11;

/// A transactional batch of the classic dialect (Produce up to v11): it must be of the current
/// epoch, and its partition must be in the ongoing transaction. `meta` is what
/// [`crate::Coordinator::by_producer_id`] finds.
///
/// Errors: 49 if the producer id is of no transactional id (it may have expired), 47 for any other
/// epoch than the current, 48 if the partition is not in an ongoing transaction (a delayed batch, a
/// lost enrolment), which from v11 on is 120.
pub fn check_transactional_produce(
    meta: Option<&TxnMeta>,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    topic: &str,
    partition: i32,
    produce_version: i16,
) -> Result<(), ErrorCode> {
    let meta = meta.ok_or(ErrorCode::InvalidProducerIdMapping)?;
    check_epoch(meta, producer_id, epoch)?;
    if meta.state == TxnState::Ongoing && meta.has_partition(topic, partition) {
        Ok(())
    } else if produce_version >= PRODUCE_WITH_TRANSACTION_ABORTABLE {
        Err(ErrorCode::TransactionAbortable)
    } else {
        Err(ErrorCode::InvalidTxnState)
    }
}

/// Any batch with a producer id, transactional or not, also on a partition that has never seen the
/// id: if the id belongs to a transactional id, only the current epoch may write (47). `meta` is
/// what [`crate::Coordinator::by_producer_id`] finds; None: an idempotent producer's own id.
pub fn check_any_produce(
    meta: Option<&TxnMeta>,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
) -> Result<(), ErrorCode> {
    meta.map_or(Ok(()), |meta| check_epoch(meta, producer_id, epoch))
}

/// TxnOffsetCommit into a partition of `__consumer_offsets`. `meta` is the state of the request's
/// transactional id. Version 2 (TxnOffsetCommit v5) enrols by itself
/// ([`crate::decide_implicit_enrolment`]), so here only its epoch matters.
///
/// Errors: 49 (no such id, or another's producer id); 47 for any other epoch than the current, but
/// 120 for version 2 whose transaction the broker has aborted, because its clients take 47 as fatal
/// here and need only abort; 120 for the classic dialect if the group was not added, which
/// [`crate::map_for_version`] turns into 48 below TxnOffsetCommit v4.
pub fn check_txn_offset_commit(
    meta: Option<&TxnMeta>,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    offsets_partition: i32,
    dialect: Dialect,
) -> Result<(), ErrorCode> {
    let meta = meta.ok_or(ErrorCode::InvalidProducerIdMapping)?;
    match Session::of(meta, producer_id, epoch) {
        Session::Current => {}
        Session::Unknown => return Err(ErrorCode::InvalidProducerIdMapping),
        Session::Last
            if dialect == Dialect::V2
                && meta.state == TxnState::CompleteAbort
                && meta.ended_by.is_broker() =>
        {
            return Err(ErrorCode::TransactionAbortable);
        }
        Session::Last | Session::Fenced => return Err(ErrorCode::InvalidProducerEpoch),
    }
    let enrolled =
        meta.state == TxnState::Ongoing && meta.has_partition(CONSUMER_OFFSETS, offsets_partition);
    if dialect == Dialect::V2 || enrolled {
        Ok(())
    } else {
        Err(ErrorCode::TransactionAbortable)
    }
}

fn check_epoch(
    meta: &TxnMeta,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
) -> Result<(), ErrorCode> {
    match Session::of(meta, producer_id, epoch) {
        Session::Current => Ok(()),
        Session::Last | Session::Fenced => Err(ErrorCode::InvalidProducerEpoch),
        Session::Unknown => Err(ErrorCode::InvalidProducerIdMapping),
    }
}
