//! What a partition knows of its producers: the last five batches of each, the open transactions,
//! and with them the last stable offset.
//!
//! Deciding and applying are apart. [`PartitionProducers::decide_append`] and
//! [`PartitionProducers::decide_marker`] read the state and answer with a verdict or one of Kafka's
//! codes; `apply_append` and `apply_marker` have no opinion: what stands in the log happened. Replay
//! applies the same batches and comes to the same state.

mod append;
mod codec;
mod entry;
mod invariants;
mod marker;
mod refused;

use std::collections::BTreeMap;
use std::ops::Bound;

use tidemark_types::ProducerId;

pub use append::{AppendVerdict, Origin};
pub use codec::DecodeError;
pub use entry::{BatchMeta, ProducerEntry, WINDOW_BATCHES};
pub use marker::CompletedTxn;

use refused::RefusedSequences;

/// The producers of one partition.
///
/// Ordered maps, so that two replicas and two runs iterate alike, and because clients choose the
/// producer ids they send: a hash without randomness could be made to collide.
#[derive(Clone, Debug, Default)]
pub struct PartitionProducers {
    /// Boxed: a map's spare places then cost a pointer each, not an entry.
    entries: BTreeMap<ProducerId, Box<ProducerEntry>>,
    /// First offset of each open transaction.
    open: BTreeMap<i64, ProducerId>,
    /// In memory only: neither logged nor checkpointed, and no part of equality.
    refused: RefusedSequences,
}

/// A transaction that is open in this partition: it holds the last stable offset at or below its
/// first offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenTxn {
    pub producer_id: ProducerId,
    pub first_offset: i64,
}

impl PartitionProducers {
    pub fn new() -> PartitionProducers {
        PartitionProducers::default()
    }

    /// What is known of a producer, `None` if nothing.
    pub fn get(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.entries.get(&producer_id).map(Box::as_ref)
    }

    /// All producers, by id (DescribeProducers).
    pub fn producers(&self) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry.as_ref()))
    }

    /// The producers after an id, by id: what is asked for in pieces goes on there.
    pub fn producers_after(
        &self,
        after: Option<ProducerId>,
    ) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries
            .range((from, Bound::Unbounded))
            .map(|(id, entry)| (*id, entry.as_ref()))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The open transactions, the oldest first: the first one holds the last stable offset.
    pub fn open_transactions(&self) -> impl Iterator<Item = OpenTxn> {
        self.open
            .iter()
            .map(|(&first_offset, &producer_id)| OpenTxn {
                producer_id,
                first_offset,
            })
    }

    /// First offset of the oldest open transaction.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        self.open.first_key_value().map(|(&offset, _)| offset)
    }

    /// The last stable offset: below it every transaction has ended. Exclusive, as the others are.
    /// Never below the log start, though DeleteRecords may have cut into an open transaction.
    pub fn lso(&self, high_watermark: i64, log_start_offset: i64) -> i64 {
        self.first_unstable_offset()
            .map_or(high_watermark, |offset| offset.min(high_watermark))
            .max(log_start_offset)
    }

    /// Looks at up to `looks` producers from `from` on, by id. Returns those that have written
    /// nothing since `idle_since_ms` (wall clock) and have no open transaction, and where to look
    /// next; `None` when there are no more. Their removal is a record of the log.
    pub fn expirable(
        &self,
        from: ProducerId,
        looks: usize,
        idle_since_ms: i64,
    ) -> (Vec<ProducerId>, Option<ProducerId>) {
        let mut rest = self.entries.range(from..);
        let expired = rest
            .by_ref()
            .take(looks)
            .filter(|(_, entry)| entry.current_txn_first_offset().is_none())
            .filter(|(_, entry)| entry.last_wall_ms() <= idle_since_ms)
            .map(|(producer_id, _)| *producer_id)
            .collect();
        (expired, rest.next().map(|(producer_id, _)| *producer_id))
    }

    /// Puts back what was known of a producer, `None` for nothing, when a record about it is taken
    /// back. The later ones were taken back before.
    pub fn restore(&mut self, producer_id: ProducerId, entry: Option<ProducerEntry>) {
        let open = |entry: &ProducerEntry| entry.current_txn_first_offset();
        let before = entry.as_ref().and_then(open);
        let present = match entry {
            Some(entry) => self.entries.insert(producer_id, Box::new(entry)),
            None => self.entries.remove(&producer_id),
        };
        if let Some(first_offset) = present.as_deref().and_then(open) {
            self.open.remove(&first_offset);
        }
        if let Some(first_offset) = before {
            self.open.insert(first_offset, producer_id);
        }
    }

    /// Forgets a producer. Its next batch may begin at any sequence.
    ///
    /// Panics when it has an open transaction: without its first offset the marker could not
    /// release the last stable offset.
    pub fn remove(&mut self, producer_id: ProducerId) {
        if let Some(entry) = self.entries.remove(&producer_id) {
            assert!(
                entry.current_txn_first_offset().is_none(),
                "producer {producer_id} has an open transaction"
            );
        }
    }
}

/// Two states are equal when they decide alike after a restart.
impl PartialEq for PartitionProducers {
    fn eq(&self, other: &PartitionProducers) -> bool {
        self.entries == other.entries && self.open == other.open
    }
}

impl Eq for PartitionProducers {}
