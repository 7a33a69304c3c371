//! Which instance a (producer id, epoch) speaks for, and what comes after an epoch.

use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::TxnMeta;

/// What a (producer id, epoch) of a request is to a transactional id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Session {
    /// The present owner.
    Current,
    /// The owner of the present epoch that may not know it yet: its request was answered with the
    /// present epoch and the answer may be lost, or the broker ended its transaction.
    Last,
    /// An instance of this id that has been fenced.
    Fenced,
    /// Never of this id.
    Unknown,
}

impl Session {
    /// Compares for equality only: a request may hold any number.
    pub fn of(meta: &TxnMeta, producer_id: ProducerId, epoch: ProducerEpoch) -> Session {
        if (producer_id, epoch) == (meta.producer_id, meta.epoch) {
            return Session::Current;
        }
        // After a change of the producer id the epoch exchanged for 0 is one of the previous id.
        let last_producer_id = if meta.epoch == ProducerEpoch(0) {
            meta.previous_producer_id
        } else {
            meta.producer_id
        };
        if meta.last_epoch != ProducerEpoch::NONE
            && last_producer_id.is_some()
            && (producer_id, epoch) == (last_producer_id, meta.last_epoch)
        {
            return Session::Last;
        }
        let is_ours = producer_id == meta.producer_id
            || (meta.previous_producer_id.is_some() && producer_id == meta.previous_producer_id);
        if is_ours {
            Session::Fenced
        } else {
            Session::Unknown
        }
    }

    /// Only the present owner may go on. 49 for a producer id that is not of this transactional id,
    /// 90 for one that has been overtaken. Kafka answers 49 also under the previous producer id;
    /// that instance has been fenced and is told so.
    pub(crate) fn require_current(self) -> Result<(), ErrorCode> {
        match self {
            Session::Current => Ok(()),
            Session::Last | Session::Fenced => Err(ErrorCode::ProducerFenced),
            Session::Unknown => Err(ErrorCode::InvalidProducerIdMapping),
        }
    }
}

/// How far a decision moves the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bump {
    /// A new session, the end of a V2 transaction, an abort by the broker.
    One,
    /// A new session over an ongoing transaction: the markers take the epoch between.
    Two,
}

/// Moves `next` to the epoch after `existing`'s, or to epoch 0 of the fresh producer id when the
/// epochs of this one would run out: 32767 is left for the last markers, no session runs at it.
/// True if the fresh producer id was taken.
pub(crate) fn advance(
    existing: &TxnMeta,
    next: &mut TxnMeta,
    bump: Bump,
    fresh_producer_id: ProducerId,
) -> bool {
    let step = match bump {
        Bump::One => 1,
        Bump::Two => 2,
    };
    if existing.epoch.0 >= ProducerEpoch::MAX.0 - step {
        assert!(
            fresh_producer_id.is_some() && fresh_producer_id != existing.producer_id,
            "producer id {fresh_producer_id} offered to follow {} of {:?} is not fresh",
            existing.producer_id,
            existing.transactional_id,
        );
        next.previous_producer_id = existing.producer_id;
        next.producer_id = fresh_producer_id;
        next.epoch = ProducerEpoch(0);
        true
    } else {
        next.epoch = ProducerEpoch(existing.epoch.0 + step);
        false
    }
}
