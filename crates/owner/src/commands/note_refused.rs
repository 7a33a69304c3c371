//! Batches that were refused before they came to the owner, with a code on which the client sends
//! them again: damaged on the way, or for a topic that was not visible yet.
//!
//! Of a producer that a partition knows nothing of, any first sequence is accepted. With several
//! batches in flight the one behind the refused one would be it, and the refused one could never be
//! written any more (KIP-890's tentative sequence).

use tidemark_types::{ProducerEpoch, ProducerId, TopicPartitionId};

use crate::Owner;

/// One refused batch. What it says of itself may be damaged too: it only makes others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedBatch {
    pub partition: TopicPartitionId,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
}

/// Given before the Produce command of the same request, on the same connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteRefused {
    pub batches: Vec<RefusedBatch>,
}

impl Owner {
    /// Nothing of it is durable: after a start the connections are new as well.
    pub(crate) fn note_refused(&mut self, request: &NoteRefused) {
        for batch in &request.batches {
            if let Some(partition) = self.partitions.get_mut(&batch.partition) {
                partition.producers.note_refused(
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                );
            }
        }
    }
}
