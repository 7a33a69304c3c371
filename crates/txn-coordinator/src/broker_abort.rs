//! The broker ends a transaction that its client has not ended.
//!
//! The epoch rises with the markers. Otherwise a classic client that has not noticed would enrol its
//! next partition into a second transaction of the same epoch, and its commit would keep half of
//! what it wrote. Markers and state are at e+1; the old epoch is remembered as the last one, so the
//! instance can come back in (InitProducerId with its pair; V2 also by EndTxn(abort)) as long as no
//! other has opened a session.
//!
//! At 32766 there is no epoch left to stand at: the markers are at (id, 32767) and the state moves
//! to (fresh id, 0), with the old pair as the last one. Standing at 32767 would leave nobody a way
//! on: V2 could not end there, and no marker could fence it.

use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId, mutant};

use crate::session::{Bump, advance};
use crate::{EndedBy, MarkerSet, Outcome, TxnMeta, TxnState};

/// Why the broker aborts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AbortReason {
    /// `transaction.timeout.ms` passed ([`crate::deadline_wall_ms`]).
    Timeout,
    /// A person or a tool asked for it, also by WriteTxnMarkers.
    Operator,
    /// An exclusive operation (DeleteTopics and the like) cuts through it.
    Exclusive,
    /// The broker was not stopped in order, and had acknowledged records before they were synced:
    /// some of the transaction's may be gone, so that it must not be committed.
    Loss,
}

impl AbortReason {
    fn ended_by(self) -> EndedBy {
        match self {
            AbortReason::Timeout => EndedBy::Timeout,
            AbortReason::Operator => EndedBy::Operator,
            AbortReason::Exclusive => EndedBy::Exclusive,
            AbortReason::Loss => EndedBy::Loss,
        }
    }
}

/// Decides an abort by the broker. 48 if no transaction is ongoing: somebody else has ended it.
pub fn decide_abort_by_broker(
    existing: &TxnMeta,
    reason: AbortReason,
    fresh_producer_id: ProducerId,
    now_wall_ms: i64,
) -> Result<Outcome, ErrorCode> {
    if existing.state != TxnState::Ongoing {
        return Err(ErrorCode::InvalidTxnState);
    }
    let mut next = existing.touched(now_wall_ms);
    next.state = TxnState::CompleteAbort;
    next.partitions.clear();
    next.ended_by = reason.ended_by();
    next.last_epoch = existing.epoch;
    let used_fresh_producer_id = advance(existing, &mut next, Bump::One, fresh_producer_id);
    if mutant!("timeout-keeps-epoch") {
        (next.epoch, next.last_epoch) = (existing.epoch, ProducerEpoch::NONE);
    }
    Ok(Outcome {
        markers: Some(MarkerSet {
            producer_id: existing.producer_id,
            epoch: existing.epoch.next(),
            commit: false,
            partitions: existing.partitions.clone(),
        }),
        used_fresh_producer_id,
        ..Outcome::changed(next)
    })
}
