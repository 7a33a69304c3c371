//! One partition, from its batches alone: ends, last stable offset, aborted transactions, producers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::batch::{BatchHeader, Marker};
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
    /// In the order of their offsets. The first may begin below the log start.
    pub batches: Vec<Batch>,
    /// In the order of their markers. Of a log that is not complete the first offsets may lie below
    /// what is said here: data of theirs may be gone.
    pub aborted: Vec<Aborted>,
    /// Markers of aborted transactions none of whose data is in the log any more.
    pub aborted_before: Vec<i64>,
    pub producers: BTreeMap<i64, Producer>,
    /// Every offset from 0 on is there: what is computed is all that there is.
    pub complete: bool,
    /// Batches, or records of them, may have been removed between others.
    pub compacted: bool,
    /// That producers were forgotten may not be said any more: the log of the metadata was cut.
    pub forgotten_unsaid: bool,
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

    /// The batches that a read_committed reader hands to its program: data batches below the last
    /// stable offset that are not of an aborted transaction. The first may begin below the log
    /// start: its earlier records are not handed out.
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
        // Of one producer at most one transaction spans an offset: that of the next marker.
        let next = self
            .aborted
            .partition_point(|txn| txn.last_offset < header.base_offset);
        self.aborted[next..].iter().any(|txn| {
            txn.producer_id == header.producer_id && txn.first_offset <= header.base_offset
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

    /// The first offset that is there, whatever the log start.
    pub fn first_held(&self) -> i64 {
        let first = self.batches.first();
        first.map_or(self.log_end_offset, |batch| batch.header.base_offset)
    }

    /// Where the oldest open transaction begins, or the end: the last stable offset as long as the
    /// log start has not passed it.
    pub(crate) fn unbounded_stable_offset(&self) -> i64 {
        self.first_open().unwrap_or(self.log_end_offset)
    }

    /// Adds the next batch. `false`, and nothing is added, when it begins before the end of the log.
    pub(crate) fn push(&mut self, batch: Batch) -> bool {
        if batch.header.base_offset < self.log_end_offset {
            return false;
        }
        self.count(&batch);
        self.batches.push(batch);
        true
    }

    /// What a batch changes, without keeping it.
    fn count(&mut self, batch: &Batch) {
        let header = &batch.header;
        if header.base_offset > self.log_end_offset {
            self.complete = false;
        }
        self.log_end_offset = header.next_offset();
        let mut ended = None;
        if let Some(marker) = batch.marker {
            ended = self.apply_marker(header, marker);
        } else if header.producer_id >= 0 && !header.is_control() {
            self.apply_data(header);
        }
        let stable = self.unbounded_stable_offset();
        self.last_stable_offset = stable.max(self.log_start_offset);
        if let Some(first_offset) = ended {
            self.aborted.push(Aborted {
                producer_id: header.producer_id,
                first_offset,
                last_offset: header.base_offset,
                last_stable_offset: stable,
            });
        }
    }

    /// What the batches below `end` add up to (without the batches), given the producers that were
    /// forgotten up to journal record `stamp`.
    pub(crate) fn as_of(&self, end: i64, stamp: u64, expired: &[(u64, Vec<i64>)]) -> Partition {
        let first = self.first_held().min(end);
        let mut then = Partition {
            complete: first == 0 && !self.compacted,
            compacted: self.compacted,
            forgotten_unsaid: self.forgotten_unsaid,
            log_end_offset: first,
            ..Partition::default()
        };
        let mut expired = expired
            .iter()
            .filter(|(index, _)| *index <= stamp)
            .peekable();
        let mut forget = |then: &mut Partition, before: u64| {
            while let Some((_, ids)) = expired.next_if(|(index, _)| *index < before) {
                ids.iter().for_each(|id| drop(then.producers.remove(id)));
            }
        };
        for batch in &self.batches {
            if batch.header.base_offset >= end {
                break;
            }
            forget(&mut then, batch.journal_index);
            then.count(batch);
        }
        forget(&mut then, u64::MAX);
        then
    }

    /// Takes out the producers that were forgotten, and what lies below the log start.
    pub(crate) fn settle(&mut self, log_start: i64, expired: &[(u64, Vec<i64>)]) {
        if !expired.is_empty() {
            self.producers = self.as_of(i64::MAX, u64::MAX, expired).producers;
        }
        self.log_start_offset = self.log_start_offset.max(log_start);
        self.log_end_offset = self.log_end_offset.max(log_start);
        let stable = self.unbounded_stable_offset();
        self.last_stable_offset = stable.max(self.log_start_offset);
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
