//! InitProducerId: a new session of a transactional id. Everything an earlier instance has open is
//! aborted in the same record, and from its tick on that instance can neither write nor commit.
//!
//! | state | given | write | answer |
//! |-|-|-|-|
//! | none | any | Empty (fresh, 0) | the same |
//! | Empty, Complete* | none | Empty (id, e+1), last -1 | the same |
//! | Empty, Complete* | current | Empty (id, e+1), last e | the same |
//! | Empty, Complete* | last | nothing: it is a retry | (id, e) |
//! | Ongoing | none or current | abort markers (id, e+1) and Empty (id, e+2) | (id, e+2) |
//! | Ongoing | last | nothing: the owner already works under (id, e) | 90 |
//! | Prepare* (several journals) | none, current or last | nothing | 51 |
//! | any | anything else | nothing, and nothing is aborted | 90 |
//!
//! When the epochs run out (e+1, over Ongoing e+2, beyond 32766), Empty is (fresh id, 0) instead.
//!
//! Two differences from Kafka. It needs two requests over Ongoing (the first is answered
//! CONCURRENT_TRANSACTIONS), and it forgets the given epoch there, so that a retry after a lost
//! answer is fenced; here the retry finds the same answer. And after an abort by the broker `last`
//! is the epoch of the aborted transaction, so the instance that was overtaken by its own timeout
//! gets back in (what KIP-588 set out to do), as long as no other session has come.

use std::sync::Arc;

use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId, mutant};

use crate::session::{Bump, advance};
use crate::{Dialect, EndedBy, MarkerSet, Outcome, Partitions, Session, TxnMeta, TxnState, Who};

/// An InitProducerId with a transactional id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InitProducerId {
    pub transactional_id: Arc<str>,
    pub timeout_ms: i32,
    /// The producer id and epoch the instance holds (v3+, KIP-360); see [`InitProducerId::given`].
    pub given: Option<(ProducerId, ProducerEpoch)>,
}

impl InitProducerId {
    /// The `given` pair of two wire fields: both -1 is none; anything else negative, or only one of
    /// them, is INVALID_REQUEST (42).
    pub fn given(
        producer_id: ProducerId,
        epoch: ProducerEpoch,
    ) -> Result<Option<(ProducerId, ProducerEpoch)>, ErrorCode> {
        if producer_id == ProducerId::NONE && epoch == ProducerEpoch::NONE {
            Ok(None)
        } else if producer_id.0 < 0 || epoch.0 < 0 {
            Err(ErrorCode::InvalidRequest)
        } else {
            Ok(Some((producer_id, epoch)))
        }
    }
}

/// Decides an InitProducerId. `existing` is the state of that transactional id;
/// `fresh_producer_id` is one that nobody has, taken or not as the outcome says.
///
/// Errors: 42 for an id that is empty or too long for a record, 50 for a timeout that is not in
/// 1..=max, 90 for a given pair that is not the current one, 51 in `Prepare*` (several journals).
pub fn decide_init_producer_id(
    existing: Option<&TxnMeta>,
    request: &InitProducerId,
    max_timeout_ms: i32,
    fresh_producer_id: ProducerId,
    now_wall_ms: i64,
    who: Who,
) -> Result<Outcome, ErrorCode> {
    let id = &request.transactional_id;
    if id.is_empty() || i16::try_from(id.len()).is_err() {
        return Err(ErrorCode::InvalidRequest);
    }
    if request.timeout_ms <= 0 || request.timeout_ms > max_timeout_ms {
        return Err(ErrorCode::InvalidTransactionTimeout);
    }
    // An id that has expired comes back as a new one, also for an instance that remembers its pair.
    let Some(existing) = existing.filter(|m| m.state != TxnState::Dead) else {
        return Ok(first_session(request, fresh_producer_id, now_wall_ms, who));
    };
    let ongoing = existing.state == TxnState::Ongoing;
    let prepare = existing.state.is_prepare();
    let last_epoch = match request.given {
        None if prepare => return Err(ErrorCode::ConcurrentTransactions),
        None => ProducerEpoch::NONE,
        Some((producer_id, epoch)) => match Session::of(existing, producer_id, epoch) {
            Session::Current | Session::Last if prepare => {
                return Err(ErrorCode::ConcurrentTransactions);
            }
            Session::Current => epoch,
            Session::Last if !ongoing => return Ok(Outcome::unchanged(existing)),
            Session::Last | Session::Fenced | Session::Unknown => {
                return Err(ErrorCode::ProducerFenced);
            }
        },
    };

    let mut next = existing.touched(now_wall_ms);
    next.state = TxnState::Empty;
    next.partitions.clear();
    next.start_wall_ms = TxnMeta::NO_START;
    next.timeout_ms = request.timeout_ms;
    next.last_epoch = last_epoch;
    next.who = who;
    let bump = if ongoing { Bump::Two } else { Bump::One };
    let used_fresh_producer_id = advance(existing, &mut next, bump, fresh_producer_id);
    if mutant!("epoch-not-bumped") && !ongoing {
        (next.epoch, next.last_epoch) = (existing.epoch, ProducerEpoch::NONE);
    }
    let markers = ongoing.then(|| {
        next.ended_by = EndedBy::NewSession;
        MarkerSet {
            producer_id: existing.producer_id,
            epoch: existing.epoch.next(),
            commit: false,
            partitions: existing.partitions.clone(),
        }
    });
    Ok(Outcome {
        markers,
        used_fresh_producer_id,
        ..Outcome::changed(next)
    })
}

fn first_session(
    request: &InitProducerId,
    fresh_producer_id: ProducerId,
    now_wall_ms: i64,
    who: Who,
) -> Outcome {
    assert!(fresh_producer_id.is_some(), "a fresh producer id is needed");
    Outcome {
        used_fresh_producer_id: true,
        ..Outcome::changed(TxnMeta {
            transactional_id: request.transactional_id.clone(),
            producer_id: fresh_producer_id,
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            epoch: ProducerEpoch(0),
            last_epoch: ProducerEpoch::NONE,
            timeout_ms: request.timeout_ms,
            state: TxnState::Empty,
            partitions: Partitions::new(),
            start_wall_ms: TxnMeta::NO_START,
            last_update_wall_ms: now_wall_ms,
            txn_number: 0,
            dialect: Dialect::V1,
            ended_by: EndedBy::Unknown,
            who,
        })
    }
}
