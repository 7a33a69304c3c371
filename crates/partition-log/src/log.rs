//! The log of one partition: its state under one lock, and what the owner does to it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tidemark_abort_index::{AbortIndex, AbortedTxn};
use tidemark_types::{JournalIndex, LeaderEpoch, ProducerId, Tick, TopicPartitionId, mutant};

use crate::manifest::{Compacted, TailNote};
use crate::segment::{SegmentState, Slot};
use crate::versions::Versions;
use crate::{LeaderEpochs, LogStore, ReadResult, SegmentRules, TailBatch, Version, Waiters};

/// A partition's log. The owner appends; any number of readers read at the same time; write-behind
/// moves the oldest batches to segments. The lock is held for moments only, never over I/O.
pub struct PartitionLog {
    pub(crate) store: Arc<LogStore>,
    partition: TopicPartitionId,
    dir: PathBuf,
    inner: Mutex<Inner>,
    /// One write-behind at a time.
    pub(crate) flushing: Mutex<()>,
    /// The log start may have passed what is held.
    pub(crate) passed: AtomicBool,
    waiters: Waiters,
}

pub(crate) struct Inner {
    pub(crate) rules: SegmentRules,
    pub(crate) versions: Versions,
    /// Oldest first; the offsets follow those of the last segment.
    pub(crate) tail: VecDeque<TailBatch>,
    /// Bytes of the batches in the tail.
    pub(crate) tail_bytes: u64,
    pub(crate) aborted: AbortIndex,
    /// How often compaction has taken entries out of `aborted`.
    pub(crate) aborted_removals: u64,
    pub(crate) compacted: Compacted,
    pub(crate) epochs: LeaderEpochs,
    /// By offset; every segment holds at least one batch.
    pub(crate) segments: Vec<Slot>,
    /// Offset of the next batch.
    pub(crate) end_offset: i64,
    pub(crate) log_start_offset: i64,
    /// Log start below which nothing is kept of aborted transactions and epochs.
    trimmed_below: i64,
    pub(crate) closed: bool,
    /// Of batches that replay brings again ([`PartitionLog::restore`]), by base offset.
    notes: BTreeMap<i64, TailNote>,
}

impl Inner {
    /// First offset that no segment holds.
    pub(crate) fn tail_start(&self) -> i64 {
        self.tail
            .front()
            .map_or(self.end_offset, |batch| batch.base_offset)
    }

    /// First offset from which on may be read: between it and the first batch that is held there is
    /// at most what compaction has removed.
    pub(crate) fn first_readable(&self) -> i64 {
        self.first_held().min(self.log_start_offset)
    }

    /// First offset that is held anywhere.
    pub(crate) fn first_held(&self) -> i64 {
        self.segments
            .first()
            .map_or_else(|| self.tail_start(), |slot| slot.written.base_offset)
    }
}

/// What a log is made of that is not new.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) epochs: LeaderEpochs,
    pub(crate) aborted: AbortIndex,
    pub(crate) compacted: Compacted,
    pub(crate) segments: Vec<Slot>,
    pub(crate) end_offset: i64,
    pub(crate) log_start_offset: i64,
}

impl PartitionLog {
    /// The empty log of a new partition.
    pub fn new(
        store: &Arc<LogStore>,
        partition: TopicPartitionId,
        leader_epoch: LeaderEpoch,
    ) -> Arc<PartitionLog> {
        let mut epochs = LeaderEpochs::default();
        epochs.start(leader_epoch, 0);
        PartitionLog::with_parts(
            store,
            partition,
            Parts {
                epochs,
                ..Parts::default()
            },
        )
    }

    pub(crate) fn with_parts(
        store: &Arc<LogStore>,
        partition: TopicPartitionId,
        parts: Parts,
    ) -> Arc<PartitionLog> {
        let Parts {
            epochs,
            aborted,
            compacted,
            segments,
            end_offset,
            log_start_offset,
        } = parts;
        let starts_empty = segments.is_empty();
        let first = Version {
            tick: Tick::ZERO,
            log_end_offset: end_offset,
            // Nobody reads before the owner has said what is stable.
            last_stable_offset: log_start_offset,
            log_start_offset,
            leader_epoch: epochs.current(),
        };
        Arc::new(PartitionLog {
            store: store.clone(),
            partition,
            dir: store.partition_dir(partition),
            inner: Mutex::new(Inner {
                rules: SegmentRules::default(),
                versions: Versions::new(first),
                tail: VecDeque::new(),
                tail_bytes: 0,
                aborted,
                aborted_removals: 0,
                compacted,
                epochs,
                segments,
                end_offset,
                log_start_offset,
                trimmed_below: 0,
                closed: false,
                notes: BTreeMap::new(),
            }),
            flushing: Mutex::new(()),
            passed: AtomicBool::new(!starts_empty),
            waiters: Waiters::default(),
        })
    }

    /// What the checkpoint said of the tail, before replay brings its batches again.
    pub(crate) fn note_tail(&self, notes: Vec<TailNote>) {
        self.lock().notes = notes.into_iter().map(|n| (n.base_offset, n)).collect();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub fn partition(&self) -> TopicPartitionId {
        self.partition
    }

    /// Where the segments are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// When segments are rolled, from the next batch on that is written behind.
    pub fn set_segment_rules(&self, rules: SegmentRules) {
        self.lock().rules = rules;
    }

    pub(crate) fn segment_rules(&self) -> SegmentRules {
        self.lock().rules
    }

    /// The fetches that wait for this partition.
    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    // What the owner does.

    /// Adds the next batch. It is readable once a version that covers it is published.
    /// `aborted` is the transaction that this batch, an abort marker, ends.
    ///
    /// Panics when the batch does not begin at the end of the log.
    pub fn append(&self, batch: TailBatch, aborted: Option<AbortedTxn>) {
        let mut inner = self.lock();
        let leader_epoch = batch.meta.leader_epoch;
        let base_offset = batch.base_offset;
        self.push_tail(&mut inner, batch);
        inner.epochs.start(leader_epoch, base_offset);
        if let Some(aborted) = aborted {
            inner.aborted.push(aborted);
        }
    }

    /// Adds a batch at replay whose effects the manifest this log was recovered from has already:
    /// only its bytes are news, and not even these when a segment holds them. True when the batch
    /// was added.
    ///
    /// Panics when batches are missing between the end of the log and this one.
    pub fn restore(&self, mut batch: TailBatch) -> bool {
        let mut inner = self.lock();
        let note = inner.notes.remove(&batch.base_offset);
        if batch.last_offset < inner.end_offset {
            return false;
        }
        if let Some(note) = note {
            batch.meta.last_stable_offset = note.last_stable_offset;
            if let Some(control) = &mut batch.meta.control {
                control.txn_first_offset = note.txn_first_offset;
            }
        }
        self.push_tail(&mut inner, batch);
        true
    }

    fn push_tail(&self, inner: &mut Inner, batch: TailBatch) {
        // I2
        assert_eq!(
            batch.base_offset, inner.end_offset,
            "{}: a batch must begin where the log ends",
            self.partition
        );
        assert!(batch.last_offset >= batch.base_offset);
        inner.end_offset = batch.last_offset + 1;
        inner.tail_bytes += batch.bytes.len() as u64;
        self.store.add_tail_bytes(batch.charge());
        inner.tail.push_back(batch);
    }

    /// Notes the partition's watermarks as of a record's tick, after all its appends. A second
    /// version of the same tick takes the place of the first.
    pub fn push_version(&self, version: Version) {
        let mut inner = self.lock();
        if version.log_start_offset > inner.log_start_offset {
            inner.log_start_offset = version.log_start_offset;
            self.passed.store(true, Ordering::Release);
        }
        inner.versions.push(version);
    }

    /// The journal has lost every record above `tick`, none of which was published: their batches and
    /// versions go. Write-behind has taken none of them.
    pub fn lose(&self, tick: Tick) {
        let mut inner = self.lock();
        inner.versions.lose(tick);
        let mut charge = 0;
        while inner.tail.back().is_some_and(|batch| batch.tick > tick) {
            let batch = inner.tail.pop_back().expect("it was just looked at");
            inner.end_offset = batch.base_offset;
            inner.tail_bytes -= batch.bytes.len() as u64;
            charge += batch.charge();
        }
        self.store.sub_tail_bytes(charge);
        let newest = inner.versions.newest();
        let end_offset = inner.end_offset;
        inner.log_start_offset = newest.log_start_offset;
        inner.aborted.truncate(end_offset);
        inner.epochs.truncate(newest.leader_epoch, end_offset);
    }

    /// Notes that the leader epoch rose, from the end of the log on.
    pub fn start_leader_epoch(&self, epoch: LeaderEpoch) {
        let mut inner = self.lock();
        let end_offset = inner.end_offset;
        inner.epochs.start(epoch, end_offset);
    }

    /// Drops the versions that no reader at `min_tick` or later can ask for, and what is known of
    /// offsets below the log start of those that stay. Not earlier: a reader of an older version
    /// may still read there and must be told of every aborted transaction.
    pub fn prune_versions(&self, min_tick: Tick) {
        let mut inner = self.lock();
        inner.versions.prune(min_tick);
        let log_start = inner.versions.oldest().log_start_offset;
        if log_start > inner.trimmed_below {
            inner.trimmed_below = log_start;
            inner.aborted.remove_below(log_start);
            inner.epochs.remove_below(log_start);
        }
    }

    /// The partition is deleted: its tail is given up, write-behind leaves it alone from now on and
    /// readers that still hold the log get `Closed`. Returns when no write is under way.
    pub fn close(&self) {
        let writing = self.flushing.lock();
        let tail = {
            let mut inner = self.lock();
            inner.closed = true;
            inner.tail_bytes = 0;
            std::mem::take(&mut inner.tail)
        };
        drop(writing);
        self.store
            .sub_tail_bytes(tail.iter().map(TailBatch::charge).sum());
        self.waiters.wake_all();
    }

    // What anybody may ask.

    /// The newest version at or below `tick`.
    pub fn at(&self, tick: Tick) -> Version {
        self.lock().versions.at(tick)
    }

    /// The newest version, published or not.
    pub fn newest_version(&self) -> Version {
        self.lock().versions.newest()
    }

    /// Versions kept in memory.
    pub fn version_count(&self) -> usize {
        self.lock().versions.len()
    }

    /// Offset of the next batch, published or not.
    pub fn end_offset(&self) -> i64 {
        self.lock().end_offset
    }

    /// First offset that no segment holds.
    pub fn tail_start_offset(&self) -> i64 {
        self.lock().tail_start()
    }

    /// Bytes of the batches in the tail.
    pub fn tail_bytes(&self) -> u64 {
        self.lock().tail_bytes
    }

    /// Bytes of the batches in segments and tail.
    pub fn size_bytes(&self) -> u64 {
        let inner = self.lock();
        let segments: u64 = inner.segments.iter().map(|s| s.written.log_bytes).sum();
        segments + inner.tail_bytes
    }

    /// The first journal record that is still needed for this partition's bytes: replay must begin
    /// at or before it. `None` when every batch is synced in a segment.
    pub fn first_needed_index(&self) -> Option<JournalIndex> {
        let inner = self.lock();
        first_needed(&inner)
    }

    /// The aborted transactions that a read_committed reader of `from..upper` must know, as
    /// (producer id, first offset), by first offset. With `upper` the last stable offset of a
    /// published version or less, the answer is as of that version.
    pub fn aborted(&self, from: i64, upper: i64) -> Vec<(ProducerId, i64)> {
        let found = self.lock().aborted.lookup(from, upper);
        by_first_offset(found)
    }

    /// The same for what `read` has returned. `None` when compaction has meanwhile forgotten aborted
    /// transactions, of which that may hold records still: then it must be read again.
    pub fn aborted_in(
        &self,
        read: &ReadResult,
        from: i64,
        upper: i64,
    ) -> Option<Vec<(ProducerId, i64)>> {
        let inner = self.lock();
        if inner.aborted_removals != read.aborted_removals {
            return None;
        }
        let found = inner.aborted.lookup(from, upper);
        drop(inner);
        let mut found = by_first_offset(found);
        if mutant!("aborted-list-short") {
            found.pop();
        }
        Some(found)
    }

    /// The leader epoch of the record at an offset; `None` when that is not known any more.
    pub fn epoch_at(&self, offset: i64) -> Option<LeaderEpoch> {
        self.lock().epochs.at(offset)
    }

    /// Kafka's OffsetForLeaderEpoch: the largest known epoch at or below `epoch` and where it
    /// ended, with `log_end_offset` as the end of the newest. `None` for an epoch that is not
    /// known yet.
    pub fn end_offset_for_epoch(
        &self,
        epoch: LeaderEpoch,
        log_end_offset: i64,
    ) -> Option<(LeaderEpoch, i64)> {
        self.lock().epochs.end_offset_for(epoch, log_end_offset)
    }

    /// The segments as far as they are written, by offset.
    pub fn segments(&self) -> Vec<SegmentState> {
        self.lock()
            .segments
            .iter()
            .map(|slot| slot.written)
            .collect()
    }
}

fn by_first_offset(found: Vec<AbortedTxn>) -> Vec<(ProducerId, i64)> {
    let mut found: Vec<(ProducerId, i64)> = found
        .into_iter()
        .map(|txn| (txn.producer_id, txn.first_offset))
        .collect();
    found.sort_unstable_by_key(|&(producer_id, first_offset)| (first_offset, producer_id));
    found
}

pub(crate) fn first_needed(inner: &Inner) -> Option<JournalIndex> {
    inner
        .segments
        .iter()
        .find_map(Slot::first_unsynced)
        .or_else(|| inner.tail.front().map(|batch| batch.index))
}

impl Drop for PartitionLog {
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        let held: u64 = inner.tail.iter().map(TailBatch::charge).sum();
        self.store.sub_tail_bytes(held);
    }
}

impl fmt::Debug for PartitionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("PartitionLog")
            .field("partition", &self.partition)
            .field("log_start_offset", &inner.log_start_offset)
            .field("end_offset", &inner.end_offset)
            .field("tail_start", &inner.tail_start())
            .field("segments", &inner.segments.len())
            .finish_non_exhaustive()
    }
}
