use tidemark_types::{ProducerEpoch, ProducerId};

use crate::{Partitions, TxnMeta};

/// The markers that end a transaction: one control batch in each partition, all in the record that
/// also holds the completed state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MarkerSet {
    pub producer_id: ProducerId,
    /// The epoch the markers carry, and with it the lowest that may write afterwards.
    pub epoch: ProducerEpoch,
    /// True for COMMIT, false for ABORT.
    pub commit: bool,
    pub partitions: Partitions,
}

/// What a decision writes and says. Everything in it goes into one record; the reply leaves when
/// that record is durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// The state to record and apply; None: nothing changes (a retry, or nothing new to enrol).
    pub next: Option<TxnMeta>,
    /// The markers to write with it.
    pub markers: Option<MarkerSet>,
    /// The producer id and epoch the client goes on with (InitProducerId, EndTxn v5).
    pub reply: (ProducerId, ProducerEpoch),
    /// True if the fresh producer id that came with the call is now in use. It must then never be
    /// handed out again.
    pub used_fresh_producer_id: bool,
}

impl Outcome {
    /// Nothing changes; the client learns where it stands.
    pub(crate) fn unchanged(meta: &TxnMeta) -> Outcome {
        Outcome {
            next: None,
            markers: None,
            reply: (meta.producer_id, meta.epoch),
            used_fresh_producer_id: false,
        }
    }

    /// A new state without markers.
    pub(crate) fn changed(next: TxnMeta) -> Outcome {
        Outcome {
            reply: (next.producer_id, next.epoch),
            next: Some(next),
            markers: None,
            used_fresh_producer_id: false,
        }
    }
}
