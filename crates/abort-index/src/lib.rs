//! The aborted transactions of a partition, found by offset range.
//!
//! A read_committed Fetch answers with every aborted transaction that has a record in the bytes it
//! returns. Entries come in the order of their markers, but their first offsets are in no order: a
//! transaction that was open for a long time ends after many short ones that began later. So the
//! range of markers is found by binary search, and of the entries whose marker lies beyond the
//! returned bytes only those are looked at whose block contains a first offset before their end.

mod codec;
mod invariants;

pub use codec::{DecodeError, TXN_INDEX_ENTRY_BYTES};

use tidemark_types::ProducerId;

/// One aborted transaction in one partition: an entry of Kafka's `.txnindex`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AbortedTxn {
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its ABORT marker.
    pub last_offset: i64,
    /// The last stable offset once the marker was written.
    pub last_stable_offset: i64,
}

/// Entries, or blocks of the level below, per block.
const FANOUT: usize = 32;

/// Aborted transactions ordered by `last_offset`.
#[derive(Clone, Debug, Default)]
pub struct AbortIndex {
    /// Ascending `last_offset`; the first `removed` are below the log start and not seen any more.
    entries: Vec<AbortedTxn>,
    removed: usize,
    /// `lowest[0][i]` is the lowest first offset of the i-th block of entries, `lowest[n][i]` of
    /// the i-th block of `lowest[n - 1]`; the last level has at most one block. Removed entries
    /// still count: that only costs a look.
    lowest: Vec<Vec<i64>>,
}

impl AbortIndex {
    pub fn new() -> AbortIndex {
        AbortIndex::default()
    }

    /// Adds the transaction that its marker has just aborted.
    ///
    /// Panics when its marker does not follow the last one's: markers come in offset order.
    pub fn push(&mut self, txn: AbortedTxn) {
        assert!(
            txn.first_offset <= txn.last_offset,
            "{txn:?} ends before it begins"
        );
        if let Some(last) = self.entries.last() {
            assert!(
                last.last_offset < txn.last_offset,
                "{txn:?} does not follow {last:?}"
            );
        }
        let mut index = self.entries.len();
        self.entries.push(txn);
        let mut level = 0;
        loop {
            index /= FANOUT;
            if level == self.lowest.len() {
                // The level below has outgrown one block.
                let below = match level.checked_sub(1) {
                    None => vec![txn.first_offset],
                    Some(below) => self.lowest[below]
                        .chunks(FANOUT)
                        .map(|block| block.iter().copied().min().expect("chunks are not empty"))
                        .collect(),
                };
                self.lowest.push(below);
            } else {
                let blocks = &mut self.lowest[level];
                match blocks.get_mut(index) {
                    Some(lowest) => *lowest = txn.first_offset.min(*lowest),
                    None => blocks.push(txn.first_offset),
                }
            }
            if self.lowest[level].len() <= FANOUT {
                return;
            }
            level += 1;
        }
    }

    /// The transactions with a record or their marker at or after `fetch_offset` and their first
    /// record before `upper_bound`, the end of the returned bytes; in marker order.
    ///
    /// `upper_bound` is at most the last stable offset the reader sees: then entries of later
    /// markers, which a reader of an earlier version must not see, are never among them, as their
    /// transactions were still open there.
    pub fn lookup(&self, fetch_offset: i64, upper_bound: i64) -> Vec<AbortedTxn> {
        let live = self.entries();
        let from = live.partition_point(|txn| txn.last_offset < fetch_offset);
        if fetch_offset >= upper_bound {
            // Nothing is returned, so nothing can be aborted in it.
            return Vec::new();
        }
        // A marker before the end of the bytes: its transaction began before it.
        let ended = live.partition_point(|txn| txn.last_offset < upper_bound);
        let mut found = live[from..ended].to_vec();
        if let Some(top) = self.lowest.len().checked_sub(1) {
            for block in 0..self.lowest[top].len() {
                self.collect(top, block, self.removed + ended, upper_bound, &mut found);
            }
        }
        found
    }

    /// Adds the entries of a block, from index `from` on, that begin before `upper_bound`.
    fn collect(
        &self,
        level: usize,
        block: usize,
        from: usize,
        upper_bound: i64,
        found: &mut Vec<AbortedTxn>,
    ) {
        #[cfg(test)]
        tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
        if self.lowest[level][block] >= upper_bound {
            return;
        }
        let below = match level.checked_sub(1) {
            None => self.entries.len(),
            Some(below) => self.lowest[below].len(),
        };
        let children = block * FANOUT..((block + 1) * FANOUT).min(below);
        match level.checked_sub(1) {
            None => {
                let start = children.start.max(from).min(children.end);
                found.extend(
                    self.entries[start..children.end]
                        .iter()
                        .filter(|txn| txn.first_offset < upper_bound),
                );
            }
            Some(below) => {
                let entries_per_child = FANOUT.pow(level as u32);
                let first = children.start.max(from / entries_per_child);
                for child in first..children.end {
                    self.collect(below, child, from, upper_bound, found);
                }
            }
        }
    }

    /// Forgets the transactions whose marker is at or after `end_offset`: it was taken back.
    pub fn truncate(&mut self, end_offset: i64) {
        let keep = self
            .entries
            .partition_point(|txn| txn.last_offset < end_offset);
        self.entries.truncate(keep);
        self.removed = self.removed.min(keep);
        let mut below = keep;
        let mut level = 0;
        while level < self.lowest.len() {
            let blocks = below.div_ceil(FANOUT);
            self.lowest[level].truncate(blocks);
            if let Some(last) = blocks.checked_sub(1) {
                let from = last * FANOUT;
                let lowest = match level.checked_sub(1) {
                    None => self.entries[from..]
                        .iter()
                        .map(|txn| txn.first_offset)
                        .min(),
                    Some(below) => self.lowest[below][from..].iter().copied().min(),
                };
                self.lowest[level][last] = lowest.expect("blocks are not empty");
            }
            below = blocks;
            level += 1;
            if below <= FANOUT {
                // As many levels as it takes, and none for nothing.
                self.lowest.truncate(level - usize::from(keep == 0));
                break;
            }
        }
    }

    /// Forgets the transactions whose marker lies below the log start.
    pub fn remove_below(&mut self, log_start_offset: i64) {
        self.removed += self
            .entries()
            .partition_point(|txn| txn.last_offset < log_start_offset);
        // Half is given back at a time, so that each entry is moved once on average.
        if self.removed * 2 > self.entries.len() {
            let live = self.entries.split_off(self.removed);
            *self = AbortIndex::new();
            for txn in live {
                self.push(txn);
            }
        }
    }

    /// Forgets the transactions whose markers lie at these offsets, which rise: compaction has removed
    /// the markers after all else of them. Later transactions of their producers would else be taken
    /// for aborted.
    pub fn remove_markers(&mut self, marker_offsets: &[i64]) {
        let live = self.entries.split_off(self.removed);
        *self = AbortIndex::new();
        let mut gone = marker_offsets.iter().copied().peekable();
        for txn in live {
            while gone.next_if(|marker| *marker < txn.last_offset).is_some() {}
            if gone.next_if_eq(&txn.last_offset).is_none() {
                self.push(txn);
            }
        }
    }

    /// All entries, in marker order.
    pub fn entries(&self) -> &[AbortedTxn] {
        &self.entries[self.removed..]
    }

    /// The entries whose marker lies in `from_offset..to_offset`: what a segment of these offsets
    /// keeps in its `.txnindex`.
    pub fn ending_in(&self, from_offset: i64, to_offset: i64) -> &[AbortedTxn] {
        let live = self.entries();
        let from = live.partition_point(|txn| txn.last_offset < from_offset);
        let to = live.partition_point(|txn| txn.last_offset < to_offset);
        &live[from..to.max(from)]
    }

    pub fn len(&self) -> usize {
        self.entries().len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }
}

/// Two indexes are equal when they answer alike; what was removed does not count.
impl PartialEq for AbortIndex {
    fn eq(&self, other: &AbortIndex) -> bool {
        self.entries() == other.entries()
    }
}

impl Eq for AbortIndex {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Blocks that were looked at.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn m12_a_lookup_costs_the_same_among_a_hundred_and_a_hundred_thousand() {
        const ABORTED: i64 = 100_000;
        // One record and its marker each, and one that stays open from the start to the end.
        let mut index = AbortIndex::new();
        let mut looks = Vec::new();
        for n in 0..ABORTED {
            let first_offset = 1 + 2 * n;
            index.push(AbortedTxn {
                producer_id: ProducerId(n),
                first_offset,
                last_offset: first_offset + 1,
                last_stable_offset: 0,
            });
            if n + 1 == 100 || n + 1 == ABORTED {
                let end = first_offset + 2;
                LOOKS.set(0);
                assert_eq!(index.lookup(end - 200, end).len(), 100.min(n as usize + 1));
                looks.push(LOOKS.get());
            }
        }
        // Far behind the end, where all later ones began later.
        LOOKS.set(0);
        assert_eq!(index.lookup(1, 201).len(), 100);
        looks.push(LOOKS.get());
        assert!(looks.iter().all(|looks| *looks <= 4 * FANOUT), "{looks:?}");
        index.push(AbortedTxn {
            producer_id: ProducerId(ABORTED),
            first_offset: 0,
            last_offset: 2 * ABORTED + 1,
            last_stable_offset: 0,
        });
        LOOKS.set(0);
        assert_eq!(index.lookup(1001, 1003).len(), 2, "the long one as well");
        assert!(LOOKS.get() <= 8 * FANOUT, "{}", LOOKS.get());
    }
}
