//! One partition, from its batches alone: ends, last stable offset, aborted transactions, producers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::batch::{BatchHeader, Marker, ParsedBatch};
use crate::segments_block::Aborted;
use crate::state_block::{Producer, WINDOW_BATCHES, WindowBatch};

/// Where a batch's bytes lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Relative to the data directory.
    pub file: Arc<str>,
    pub position: u64,
}

/// A batch of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    pub header: BatchHeader,
    pub marker: Option<Marker>,
    /// Of the record that appended it; 0 when that is not known (a segment without its tick index).
    pub tick: u64,
    pub journal_index: u64,
    pub place: Place,
}

/// A partition's log, as a start would make it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Partition {
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    pub last_stable_offset: i64,
    /// In the order of their offsets.
    pub batches: Vec<Batch>,
    /// In the order of their markers.
    pub aborted: Vec<Aborted>,
    /// Markers of aborted transactions whose first offset is not in the log any more.
    pub aborted_before: Vec<i64>,
    pub producers: BTreeMap<i64, Producer>,
    /// Every offset from 0 on is there: what is computed is all that there is.
    pub complete: bool,
    /// Batches, or records of them, may have been removed between others.
    pub compacted: bool,
}

impl Partition {
    /// An empty log that begins at `offset`.
    pub(crate) fn starting_at(offset: i64) -> Partition {
        Partition {
            log_start_offset: offset,
            log_end_offset: offset,
            last_stable_offset: offset,
            complete: offset == 0,
            ..Partition::default()
        }
    }

    /// The offsets of batches that a read_committed reader hands to its program: data batches below
    /// the last stable offset that are not of an aborted transaction.
    pub fn committed(&self) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(|batch| {
            let header = &batch.header;
            !header.is_control()
                && header.base_offset < self.last_stable_offset
                && header.last_offset() >= self.log_start_offset
                && !(header.is_transactional() && self.is_aborted(header))
        })
    }

    fn is_aborted(&self, header: &BatchHeader) -> bool {
        self.aborted.iter().any(|txn| {
            txn.producer_id == header.producer_id
                && (txn.first_offset..=txn.last_offset).contains(&header.base_offset)
        })
    }

    /// The aborted transactions that a Fetch of `from..upper` must name, as (producer id, first
    /// offset), by first offset.
    pub fn aborted_in(&self, from: i64, upper: i64) -> Vec<(i64, i64)> {
        let mut found: Vec<(i64, i64)> = (self.aborted.iter())
            .filter(|txn| txn.last_offset >= from && txn.first_offset < upper)
            .map(|txn| (txn.producer_id, txn.first_offset))
            .collect();
        found.sort_by_key(|(producer_id, first)| (*first, *producer_id));
        found
    }

    /// First offset of the oldest open transaction.
    pub fn first_open(&self) -> Option<i64> {
        self.producers.values().filter_map(|p| p.open_from).min()
    }

    /// Records below `offset` are gone, though their batches may still be held.
    pub(crate) fn move_log_start(&mut self, offset: i64) {
        self.log_start_offset = self.log_start_offset.max(offset);
        self.last_stable_offset = self.last_stable_offset.max(offset);
    }

    /// Adds the next batch. `false`, and nothing is added, when it does not begin at or behind the
    /// end of the log.
    pub(crate) fn push(
        &mut self,
        parsed: ParsedBatch,
        tick: u64,
        index: u64,
        place: Place,
    ) -> bool {
        let ParsedBatch { header, marker } = parsed;
        if header.base_offset < self.log_end_offset {
            return false;
        }
        if header.base_offset > self.log_end_offset {
            self.complete = false;
        }
        self.log_end_offset = header.next_offset();
        let mut ended = None;
        if let Some(marker) = marker {
            ended = self.apply_marker(&header, marker);
        } else if header.producer_id >= 0 && !header.is_control() {
            self.apply_data(&header);
        }
        self.last_stable_offset = self
            .first_open()
            .unwrap_or(self.log_end_offset)
            .max(self.log_start_offset);
        if let Some(first_offset) = ended {
            self.aborted.push(Aborted {
                producer_id: header.producer_id,
                first_offset,
                last_offset: header.base_offset,
                last_stable_offset: self.first_open().unwrap_or(self.log_end_offset),
            });
        }
        self.batches.push(Batch {
            header,
            marker,
            tick,
            journal_index: index,
            place,
        });
        true
    }

    fn producer(&mut self, header: &BatchHeader) -> &mut Producer {
        let producer = self
            .producers
            .entry(header.producer_id)
            .or_insert_with(|| Producer {
                epoch: header.producer_epoch,
                coordinator_epoch: -1,
                open_from: None,
                last_wall_ms: 0,
                window: Vec::new(),
            });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.window.clear();
        }
        producer
    }

    fn apply_data(&mut self, header: &BatchHeader) {
        let producer = self.producer(header);
        if header.base_sequence >= 0 {
            if producer.window.len() == WINDOW_BATCHES {
                producer.window.remove(0);
            }
            producer.window.push(WindowBatch {
                base_sequence: header.base_sequence,
                last_offset_delta: header.last_offset_delta,
                base_offset: header.base_offset,
                max_timestamp: header.max_timestamp,
            });
        }
        if header.is_transactional() && producer.open_from.is_none() {
            producer.open_from = Some(header.base_offset);
        }
    }

    /// First offset of the transaction that an abort marker has ended.
    fn apply_marker(&mut self, header: &BatchHeader, marker: Marker) -> Option<i64> {
        let producer = self.producer(header);
        producer.coordinator_epoch = marker.coordinator_epoch;
        let open = producer.open_from.take();
        if marker.commit {
            return None;
        }
        if open.is_none() {
            self.aborted_before.push(header.base_offset);
        }
        open
    }
}
