//! EndTxn. `last` is a retry: the epoch that the end of that very transaction exchanged for the
//! present one ([`Session::Last`]).
//!
//! | state | V1 commit / abort | V2 commit: current / last | V2 abort: current / last |
//! |-|-|-|-|
//! | Empty | 48 / 48 | 48 / 90 | OK, bump (nothing to abort) / 90 |
//! | Ongoing | OK / OK | OK, bump / 90 | OK, bump / 90 |
//! | CompleteCommit | OK / 48 | 48 / OK, no bump | OK, bump / 48 |
//! | CompleteAbort | 48 / OK | 48 / 48, or 120 | OK, bump / OK, no bump |
//!
//! V1: any epoch but the current one is 90. V1's markers are at e and the epoch stays; V2's are at
//! e+1 and so is the new state. At 32766 the markers are at (id, 32767) and the state at
//! (fresh id, 0); a retry under (id, 32766) finds it.
//!
//! **After an abort by the broker** (timeout, operator, exclusive operation) the state is
//! CompleteAbort at e+1 with last = e. V1 is answered 90. V2's commit is answered
//! TRANSACTION_ABORTABLE (120) rather than Kafka's INVALID_TXN_STATE (48): 48 is fatal in the
//! clients, although nothing is wrong with the instance; on 120 it aborts, its EndTxn(abort) is the
//! last column's OK with (id, e+1), and it goes on. After a client's own abort it stays 48, because
//! then the client contradicts itself.
//!
//! A delayed EndTxn under V1 cannot be told from a new one of the same session: an epoch names a
//! session there, not a transaction (KIP-890's motivation). `tests/model.rs` shows it; what can be done
//! about it is [`crate::guard`]'s.

use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId, mutant};

use crate::session::{Bump, advance};
use crate::{Dialect, EndedBy, MarkerSet, Outcome, Session, TxnMeta, TxnState};

/// An EndTxn request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EndTxn {
    pub producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    /// True to commit, false to abort.
    pub commit: bool,
    pub dialect: Dialect,
}

/// Decides an EndTxn. `existing` is the state of the request's transactional id;
/// `fresh_producer_id` is one that nobody has, taken or not as the outcome says.
///
/// Errors: 49 (no such id, or another's producer id), 90, 48 and 120 as in the table above, 51 in
/// `Prepare*` (several journals).
pub fn decide_end_txn(
    existing: Option<&TxnMeta>,
    request: &EndTxn,
    fresh_producer_id: ProducerId,
    now_wall_ms: i64,
) -> Result<Outcome, ErrorCode> {
    let existing = existing.ok_or(ErrorCode::InvalidProducerIdMapping)?;
    match Session::of(existing, request.producer_id, request.epoch) {
        Session::Last if request.dialect == Dialect::V2 => end_again(existing, request.commit),
        session => {
            if !mutant!("end-old-epoch") {
                session.require_current()?;
            }
            match request.dialect {
                Dialect::V1 => end_v1(existing, request.commit, now_wall_ms),
                Dialect::V2 => end_v2(existing, request.commit, fresh_producer_id, now_wall_ms),
            }
        }
    }
}

/// V2 under the epoch that this transaction's end exchanged for the present one.
fn end_again(existing: &TxnMeta, commit: bool) -> Result<Outcome, ErrorCode> {
    match (existing.state, commit) {
        (TxnState::CompleteCommit, true) | (TxnState::CompleteAbort, false) => {
            Ok(Outcome::unchanged(existing))
        }
        (TxnState::CompleteAbort, true) if existing.ended_by.is_broker() => {
            Err(ErrorCode::TransactionAbortable)
        }
        (TxnState::CompleteAbort, true) | (TxnState::CompleteCommit, false) => {
            Err(ErrorCode::InvalidTxnState)
        }
        // The present epoch came from InitProducerId.
        (TxnState::Empty | TxnState::Ongoing, _) => Err(ErrorCode::ProducerFenced),
        (TxnState::PrepareCommit, true) | (TxnState::PrepareAbort, false) => {
            Err(ErrorCode::ConcurrentTransactions)
        }
        (TxnState::PrepareCommit, false) | (TxnState::PrepareAbort, true) => {
            Err(ErrorCode::InvalidTxnState)
        }
        (TxnState::PrepareEpochFence, _) => Err(ErrorCode::ProducerFenced),
        (TxnState::Dead, _) => Err(ErrorCode::InvalidProducerIdMapping),
    }
}

fn end_v1(existing: &TxnMeta, commit: bool, now_wall_ms: i64) -> Result<Outcome, ErrorCode> {
    match (existing.state, commit) {
        (TxnState::Ongoing, _) => {
            let mut next = existing.touched(now_wall_ms);
            complete(&mut next, commit, Dialect::V1);
            Ok(Outcome {
                markers: Some(MarkerSet {
                    producer_id: existing.producer_id,
                    epoch: existing.epoch,
                    commit,
                    partitions: existing.partitions.clone(),
                }),
                ..Outcome::changed(next)
            })
        }
        (TxnState::CompleteCommit, true) | (TxnState::CompleteAbort, false) => {
            Ok(Outcome::unchanged(existing))
        }
        (TxnState::Empty | TxnState::CompleteCommit | TxnState::CompleteAbort, _) => {
            Err(ErrorCode::InvalidTxnState)
        }
        (TxnState::PrepareCommit, true) | (TxnState::PrepareAbort, false) => {
            Err(ErrorCode::ConcurrentTransactions)
        }
        (TxnState::PrepareCommit, false) | (TxnState::PrepareAbort, true) => {
            Err(ErrorCode::InvalidTxnState)
        }
        (TxnState::PrepareEpochFence, _) => Err(ErrorCode::ProducerFenced),
        (TxnState::Dead, _) => Err(ErrorCode::InvalidProducerIdMapping),
    }
}

fn end_v2(
    existing: &TxnMeta,
    commit: bool,
    fresh_producer_id: ProducerId,
    now_wall_ms: i64,
) -> Result<Outcome, ErrorCode> {
    let ongoing = match existing.state {
        TxnState::Ongoing => true,
        // Nothing was written under this epoch, yet the client wants the next one.
        TxnState::Empty | TxnState::CompleteCommit | TxnState::CompleteAbort if !commit => false,
        TxnState::Empty | TxnState::CompleteCommit | TxnState::CompleteAbort => {
            return Err(ErrorCode::InvalidTxnState);
        }
        TxnState::PrepareCommit | TxnState::PrepareAbort | TxnState::PrepareEpochFence => {
            return Err(ErrorCode::ProducerFenced);
        }
        TxnState::Dead => return Err(ErrorCode::InvalidProducerIdMapping),
    };
    let mut next = existing.touched(now_wall_ms);
    complete(&mut next, commit, Dialect::V2);
    next.last_epoch = existing.epoch;
    let used_fresh_producer_id = advance(existing, &mut next, Bump::One, fresh_producer_id);
    Ok(Outcome {
        markers: ongoing.then(|| MarkerSet {
            producer_id: existing.producer_id,
            epoch: existing.epoch.next(),
            commit,
            partitions: existing.partitions.clone(),
        }),
        used_fresh_producer_id,
        ..Outcome::changed(next)
    })
}

fn complete(next: &mut TxnMeta, commit: bool, dialect: Dialect) {
    next.state = if commit {
        TxnState::CompleteCommit
    } else {
        TxnState::CompleteAbort
    };
    next.partitions.clear();
    next.dialect = dialect;
    next.ended_by = EndedBy::Client;
}
