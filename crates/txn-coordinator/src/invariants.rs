//! What is always true of a transactional id, and which state may follow which.

use thiserror::Error;
use tidemark_types::{ProducerEpoch, ProducerId};

use crate::{TxnMeta, TxnState};

/// A state or a transition that no decision can have made.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("transactional id {transactional_id:?}: {what}")]
pub struct Violation {
    pub transactional_id: String,
    pub what: &'static str,
}

/// The states that may come before a state: Kafka's `validPreviousStates`, and what one journal
/// adds because it has no `Prepare*` between: Ongoing is followed by the completed states, and by
/// Empty when a new session aborts it.
fn valid_previous(state: TxnState) -> &'static [TxnState] {
    use TxnState::*;
    match state {
        Empty => &[Empty, CompleteCommit, CompleteAbort, Ongoing],
        Ongoing => &[Ongoing, Empty, CompleteCommit, CompleteAbort],
        PrepareCommit => &[Ongoing],
        PrepareAbort => &[
            Ongoing,
            PrepareEpochFence,
            Empty,
            CompleteCommit,
            CompleteAbort,
        ],
        CompleteCommit => &[PrepareCommit, Ongoing],
        CompleteAbort => &[PrepareAbort, Ongoing, Empty, CompleteCommit, CompleteAbort],
        Dead => &[Empty, CompleteCommit, CompleteAbort],
        PrepareEpochFence => &[Ongoing],
    }
}

/// Checks one state by itself.
pub fn check(meta: &TxnMeta) -> Result<(), Violation> {
    let prepare = meta.state.is_prepare();
    let highest_epoch = if prepare { i16::MAX } else { i16::MAX - 1 };
    let ongoing = meta.state == TxnState::Ongoing;
    let id_fits =
        !meta.transactional_id.is_empty() && i16::try_from(meta.transactional_id.len()).is_ok();
    ensure_all(
        meta,
        &[
            (id_fits, "its name does not fit a record"),
            (meta.state != TxnState::Dead, "Dead is never recorded"),
            (meta.producer_id.is_some(), "it has no producer id"),
            (
                (0..=highest_epoch).contains(&meta.epoch.0),
                "its epoch is out of range",
            ),
            (
                meta.previous_producer_id != meta.producer_id,
                "its previous producer id is the present one",
            ),
            (
                meta.previous_producer_id.0 >= ProducerId::NONE.0,
                "its previous producer id is out of range",
            ),
            (
                prepare || meta.next_producer_id == ProducerId::NONE,
                "a next producer id is reserved outside Prepare",
            ),
            (
                last_epoch_fits(meta),
                "its last epoch does not fit its epoch",
            ),
            (meta.timeout_ms > 0, "its timeout is not positive"),
            (
                prepare || ongoing != meta.partitions.is_empty(),
                "it has partitions without being Ongoing, or none though it is",
            ),
            (
                meta.partitions.iter().all(|(_, p)| *p >= 0),
                "a partition is negative",
            ),
            (
                !ongoing || meta.last_epoch == ProducerEpoch::NONE,
                "it is Ongoing although a last epoch waits for an answer",
            ),
            (
                meta.state != TxnState::Empty || meta.start_wall_ms == TxnMeta::NO_START,
                "it is Empty and has a start",
            ),
            (
                meta.start_wall_ms <= meta.last_update_wall_ms || !ongoing,
                "its transaction starts after its last update",
            ),
        ],
    )
}

fn last_epoch_fits(meta: &TxnMeta) -> bool {
    let (last, epoch) = (meta.last_epoch, meta.epoch);
    if last == ProducerEpoch::NONE {
        true
    } else if epoch == ProducerEpoch(0) {
        // Exchanged for epoch 0 of the next producer id because the epochs ran out.
        meta.previous_producer_id.is_some() && last.0 >= i16::MAX - 2
    } else {
        last.0 >= 0 && last < epoch && epoch.0 - last.0 <= 2
    }
}

/// Checks that `next` may follow `previous`; None is an id that is not there (before its first
/// record, or after its tombstone).
pub fn check_transition(
    previous: Option<&TxnMeta>,
    next: Option<&TxnMeta>,
) -> Result<(), Violation> {
    match (previous, next) {
        (None, None) => Ok(()),
        (None, Some(next)) => check(next),
        (Some(previous), None) => ensure_all(
            previous,
            &[(
                valid_previous(TxnState::Dead).contains(&previous.state),
                "it is forgotten in a state that does not expire",
            )],
        ),
        (Some(previous), Some(next)) => {
            check(next)?;
            check_step(previous, next)
        }
    }
}

fn check_step(previous: &TxnMeta, next: &TxnMeta) -> Result<(), Violation> {
    let same_producer = previous.producer_id == next.producer_id;
    let rotated = next.previous_producer_id == previous.producer_id
        && next.epoch == ProducerEpoch(0)
        && previous.epoch.0 >= i16::MAX - 2;
    let same_epoch = same_producer && previous.epoch == next.epoch;
    let same_session = same_epoch && previous.who == next.who;
    let was_ongoing = previous.state == TxnState::Ongoing;
    let is_ongoing = next.state == TxnState::Ongoing;
    let begins = is_ongoing && !was_ongoing;
    let goes_on = is_ongoing && was_ongoing;
    ensure_all(
        next,
        &[
            (
                previous.transactional_id == next.transactional_id,
                "it follows another id",
            ),
            (
                valid_previous(next.state).contains(&previous.state),
                "its state may not follow the one before",
            ),
            (
                same_producer || rotated,
                "its producer id changes although epochs were left",
            ),
            (
                !same_producer || next.epoch >= previous.epoch,
                "its epoch falls",
            ),
            (
                next.last_update_wall_ms >= previous.last_update_wall_ms,
                "its last update goes back",
            ),
            (
                next.txn_number == previous.txn_number.wrapping_add(u64::from(begins)),
                "its transactions are miscounted",
            ),
            (
                !is_ongoing || same_session,
                "a transaction begins or grows under another session",
            ),
            (
                !goes_on || next.partitions.is_superset(&previous.partitions),
                "its transaction loses a partition",
            ),
            (
                !goes_on || next.start_wall_ms == previous.start_wall_ms,
                "its transaction's start moves",
            ),
            (
                next.state != TxnState::Empty || !same_epoch,
                "a new session keeps the old epoch",
            ),
        ],
    )
}

fn ensure_all(meta: &TxnMeta, rules: &[(bool, &'static str)]) -> Result<(), Violation> {
    match rules.iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, what)) => Err(Violation {
            transactional_id: meta.transactional_id.to_string(),
            what,
        }),
    }
}
