//! Compaction of one log: reads its closed segments, writes what is left of them beside them, and
//! puts that in their place.
//!
//! The log's lock is held for moments only, never over I/O. Readers that are under way go on in the
//! old files, which stay until neither checkpoint names them ([`Retired`]). A crash at any step
//! leaves the old segments or the new ones: the new files are whole and synced before the log's list
//! names them, and what the list names after a crash is what a checkpoint has named. Files of
//! neither are removed at the start.
//!
//! Segments are replaced group by group, from the front, so that a run may end anywhere.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidemark_compaction::{
    AbortedRange, Cleaner, Fates, LastAppend, OffsetMap, Round, Tally, Verdict,
};
use tidemark_record_batch::{BatchError, ControlType, DecompressLimits};
use tidemark_types::ProducerId;

use crate::log::Inner;
use crate::manifest::Compacted;
use crate::names::parse_generation_dir;
use crate::segment::{SegmentId, SegmentReader, SegmentState, Slot};
use crate::segment_writer::SegmentWriter;
use crate::tick_index::TickEntry;
use crate::{LogError, PartitionLog, Retired};

/// For batches that passed validation when they were produced, under limits that are no wider.
const LIMITS: DecompressLimits = DecompressLimits {
    ratio: usize::MAX,
    floor_bytes: 0,
    max_bytes: 128 << 20,
};

/// Aborted transactions that are copied at once, under the log's lock.
const FATES_AT_ONCE: usize = 4096;

/// What there is to compact in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compactable {
    /// Bytes of closed segments that were compacted before.
    pub clean_bytes: u64,
    /// Bytes of closed segments that are new since.
    pub dirty_bytes: u64,
    /// After the last closed segment of which all may be compacted.
    pub end_offset: i64,
    /// When the first tombstone or marker may go that only waits for that, in ms since 1970.
    pub next_horizon_ms: Option<i64>,
}

impl Compactable {
    /// The share of what is new, 0 to 1.
    pub fn dirty_ratio(&self) -> f64 {
        let all = self.clean_bytes + self.dirty_bytes;
        match all {
            0 => 0.0,
            _ => self.dirty_bytes as f64 / all as f64,
        }
    }
}

/// What one run is told.
#[derive(Clone, Debug)]
pub struct CompactionOrder {
    /// Nothing at or after it is touched; [`Compactable::end_offset`].
    pub end_offset: i64,
    /// The wall clock, milliseconds since 1970.
    pub now_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// The active producers of the partition.
    pub producers: BTreeMap<ProducerId, LastAppend>,
    /// Keys to remember at once ([`OffsetMap::keys_in`]).
    pub max_keys: usize,
    /// Secret, and another one for each run.
    pub seed: u128,
}

/// What one run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactionReport {
    /// It came to its end. Otherwise what it did stands, and the next run begins again.
    pub finished: bool,
    /// Bytes of the segments it has gone through, and what is left of them.
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub segments_before: u64,
    pub segments_after: u64,
    /// Bytes written anew: segments in which nothing changed are not.
    pub bytes_written: u64,
    pub tally: Tally,
    /// Keys of the map.
    pub keys: u64,
    pub compacted: Compacted,
}

/// Called with bytes that were read or written; waits as long as they need, and says whether to go on
/// (false: the run ends).
pub type Pace<'a> = dyn FnMut(u64) -> bool + 'a;

impl PartitionLog {
    /// What there is to compact below `last_stable_offset`, which must be a published one: not the
    /// segment that grows, nothing that is not synced, and of what is new only segments before the
    /// first that has a timestamp above `newest_timestamp` (`min.compaction.lag.ms`).
    pub fn compactable(&self, last_stable_offset: i64, newest_timestamp: i64) -> Compactable {
        let inner = self.lock();
        let to_offset = inner.compacted.to_offset;
        let mut found = Compactable {
            clean_bytes: 0,
            dirty_bytes: 0,
            end_offset: 0,
            next_horizon_ms: inner.compacted.next_horizon_ms,
        };
        if inner.closed {
            return found;
        }
        for state in closed(&inner) {
            let clean = state.next_offset <= to_offset;
            if state.next_offset > last_stable_offset
                || (!clean && state.max_timestamp > newest_timestamp)
            {
                break;
            }
            match clean {
                true => found.clean_bytes += state.log_bytes,
                false => found.dirty_bytes += state.log_bytes,
            }
            found.end_offset = state.next_offset;
        }
        found
    }

    /// The lowest timestamp with which one of the segments begins that are new since the last
    /// compaction and lie below `end_offset` (`max.compaction.lag.ms` counts from it).
    ///
    /// Errors: `Damaged`, I/O errors.
    pub fn oldest_dirty_timestamp(&self, end_offset: i64) -> Result<Option<i64>, LogError> {
        let dirty: Vec<SegmentState> = {
            let inner = self.lock();
            let to_offset = inner.compacted.to_offset;
            closed(&inner)
                .filter(|s| s.next_offset > to_offset && s.next_offset <= end_offset)
                .collect()
        };
        let mut oldest: Option<i64> = None;
        for state in dirty {
            let reader = SegmentReader::open(&self.store.files, self.dir(), state)?;
            let timestamp = reader.entry(0)?.max_timestamp;
            oldest = Some(oldest.map_or(timestamp, |known| known.min(timestamp)));
        }
        Ok(oldest)
    }

    /// One run of compaction. Of one log only one may run at a time.
    ///
    /// Errors: `Damaged` when a batch is not what was written, `Closed`, I/O errors (a full disk among
    /// them). What was replaced before stands; the files of the segment that was being written are
    /// removed.
    pub fn compact(
        &self,
        order: &CompactionOrder,
        retired: &Retired,
        pace: &mut Pace<'_>,
    ) -> Result<CompactionReport, LogError> {
        let mut report = CompactionReport::default();
        let (segments, compacted) = {
            let inner = self.lock();
            if inner.closed {
                return Err(LogError::Closed);
            }
            let segments: Vec<SegmentState> = closed(&inner)
                .take_while(|state| state.next_offset <= order.end_offset)
                .collect();
            (segments, inner.compacted)
        };
        report.compacted = compacted;
        let Some(last) = segments.last() else {
            report.finished = true;
            return Ok(report);
        };
        let end_offset = last.next_offset;
        let fates = self.fates(end_offset);
        let Some(map) = self.build_map(order, &segments, compacted, &fates, pace)? else {
            return Ok(report);
        };
        report.keys = map.len() as u64;
        let mut run = Run {
            log: self,
            generation: self.next_generation(&segments)?,
            cleaner: Cleaner::new(Round {
                map: &map,
                fates: &fates,
                producers: &order.producers,
                end_offset,
                now_ms: order.now_ms,
                delete_retention_ms: order.delete_retention_ms,
                limits: LIMITS,
            }),
            retired,
            report: &mut report,
        };
        for group in groups(&segments, self.segment_rules().segment_bytes) {
            let done = run.group(group, pace);
            run.report.tally = run.cleaner.tally();
            if !done? {
                return Ok(report);
            }
        }
        report.compacted = Compacted {
            to_offset: map.end_offset().max(compacted.to_offset),
            next_horizon_ms: run.cleaner.next_horizon_ms(),
        };
        report.finished = true;
        self.lock().compacted = report.compacted;
        Ok(report)
    }

    /// The aborted transactions with a record below `end_offset`. They have ended, so that no others
    /// come.
    fn fates(&self, end_offset: i64) -> Fates {
        let mut ranges = Vec::new();
        let mut after = i64::MIN;
        loop {
            let inner = self.lock();
            let entries = inner.aborted.entries();
            let from = entries.partition_point(|txn| txn.last_offset <= after);
            let some = &entries[from..entries.len().min(from + FATES_AT_ONCE)];
            let Some(last) = some.last() else {
                break;
            };
            after = last.last_offset;
            let below = some.iter().filter(|txn| txn.first_offset < end_offset);
            ranges.extend(below.map(|txn| AbortedRange {
                producer_id: txn.producer_id,
                first_offset: txn.first_offset,
                last_offset: txn.last_offset,
            }));
        }
        Fates::new(ranges)
    }

    /// The newest offset of each key in what is new. `None`: told to stop.
    fn build_map(
        &self,
        order: &CompactionOrder,
        segments: &[SegmentState],
        compacted: Compacted,
        fates: &Fates,
        pace: &mut Pace<'_>,
    ) -> Result<Option<OffsetMap>, LogError> {
        let from = compacted.to_offset;
        let mut map = OffsetMap::new(from, order.max_keys, order.seed);
        let dirty = segments.iter().filter(|state| state.next_offset > from);
        let offsets: i64 = dirty
            .clone()
            .map(|s| s.next_offset - s.base_offset.max(from))
            .sum();
        map.reserve(usize::try_from(offsets).unwrap_or(0));
        for state in dirty {
            let reader = SegmentReader::open(&self.store.files, self.dir(), *state)?;
            let Some((first, _)) = reader.search(|entry| entry.last_offset < from)? else {
                continue;
            };
            let (mut stopped, mut full) = (false, false);
            reader.each_batch(first, |_, entry, batch| {
                stopped = !pace(batch.len() as u64);
                full = !map
                    .add(batch, fates, &LIMITS)
                    .map_err(|e| unreadable(&reader, entry, e))?;
                Ok(!stopped && !full)
            })?;
            if stopped {
                return Ok(None);
            }
            if full {
                break;
            }
        }
        Ok(Some(map))
    }

    /// One that no file has, be it that it is only a checkpoint that still names it.
    fn next_generation(&self, segments: &[SegmentState]) -> Result<u32, LogError> {
        let on_dir = |e| LogError::io(self.dir(), e);
        let there = self.store.disk.list(self.dir()).map_err(on_dir)?;
        let newest = there
            .iter()
            .filter_map(|entry| parse_generation_dir(&entry.name))
            .chain(segments.iter().map(|state| state.generation))
            .max();
        Ok(newest.unwrap_or(0) + 1)
    }

    /// Puts `new`, which is durable, in the place of `old`, neighbours in the list, and forgets the
    /// aborted transactions whose markers are gone: readers see both at the same instant. False when
    /// `old` is no longer in the list as it was; then nothing has changed.
    fn replace_segments(
        &self,
        old: &[SegmentState],
        new: Option<SegmentState>,
        gone_abort_markers: &[i64],
    ) -> bool {
        let mut inner = self.lock();
        let at = inner
            .segments
            .partition_point(|slot| slot.written.base_offset < old[0].base_offset);
        let there = inner.segments[at..].iter().map(|slot| slot.written);
        // The last one grows.
        if inner.closed
            || at + old.len() >= inner.segments.len()
            || !there.take(old.len()).eq(old.iter().copied())
        {
            return false;
        }
        inner
            .segments
            .splice(at..at + old.len(), new.map(Slot::recovered));
        if !gone_abort_markers.is_empty() {
            inner.aborted.remove_markers(gone_abort_markers);
            inner.aborted_removals += 1;
        }
        true
    }
}

/// The segments that do not grow and are synced, as far as there is none before them that is not.
fn closed(inner: &Inner) -> impl Iterator<Item = SegmentState> {
    let sealed = inner.segments.len().saturating_sub(1);
    inner.segments[..sealed]
        .iter()
        .take_while(|slot| slot.written == slot.synced && slot.written.indexed)
        .map(|slot| slot.written)
}

/// Neighbours that fit into one segment together.
fn groups(segments: &[SegmentState], segment_bytes: u64) -> Vec<&[SegmentState]> {
    let mut groups = Vec::new();
    let mut rest = segments;
    while let Some(first) = rest.first() {
        let mut bytes = 0;
        let fitting = rest
            .iter()
            .take_while(|state| {
                bytes += state.log_bytes;
                bytes <= segment_bytes
                    && state.next_offset - first.base_offset <= i64::from(i32::MAX)
            })
            .count();
        let (group, others) = rest.split_at(fitting.max(1));
        groups.push(group);
        rest = others;
    }
    groups
}

fn unreadable(reader: &SegmentReader, entry: &TickEntry, error: BatchError) -> LogError {
    let what = match error {
        BatchError::Decompress | BatchError::DecompressedTooLarge => {
            "the records of a batch cannot be decompressed"
        }
        _ => "the records of a batch cannot be read",
    };
    reader.damaged(u64::from(entry.position), what)
}

struct Run<'a> {
    log: &'a PartitionLog,
    generation: u32,
    cleaner: Cleaner<'a>,
    retired: &'a Retired,
    report: &'a mut CompactionReport,
}

/// A group as it is written.
struct Outcome<'a> {
    /// None as long as nothing has changed in a group of one.
    writer: Option<SegmentWriter<'a>>,
    changed: bool,
    gone_abort_markers: Vec<i64>,
}

impl<'a> Run<'a> {
    /// Compacts neighbouring segments into one. False: the run is to end here.
    fn group(&mut self, group: &[SegmentState], pace: &mut Pace<'_>) -> Result<bool, LogError> {
        let mut outcome = Outcome {
            writer: None,
            // Two into one is a change in any case.
            changed: group.len() > 1,
            gone_abort_markers: Vec::new(),
        };
        let done = self.write_group(group, &mut outcome, pace);
        let finished = match done {
            Ok(true) => self.finish_group(group, &mut outcome),
            other => other,
        };
        if !matches!(finished, Ok(true))
            && let Some(writer) = &outcome.writer
        {
            // Nothing names them. What cannot be removed now is at the next start.
            for path in writer.id().files(self.log.dir()) {
                let _the_start_removes_it = self.log.store.remove_file(&path);
            }
        }
        finished
    }

    fn write_group(
        &mut self,
        group: &[SegmentState],
        outcome: &mut Outcome<'a>,
        pace: &mut Pace<'_>,
    ) -> Result<bool, LogError> {
        let id = SegmentId {
            base_offset: group[0].base_offset,
            generation: self.generation,
        };
        for state in group {
            let log = self.log;
            let reader = SegmentReader::open(&log.store.files, log.dir(), *state)?;
            let mut go_on = true;
            reader.each_batch(0, |index, entry, batch| {
                let verdict = self
                    .cleaner
                    .judge(batch)
                    .map_err(|e| unreadable(&reader, entry, e))?;
                if verdict != Verdict::Keep && !outcome.changed {
                    // The first change: what came before it is as it was.
                    outcome.changed = true;
                    if index > 0 {
                        let writer = writer(log, id, outcome)?;
                        copy_before(&reader, index, writer)?;
                    }
                }
                let kept: Option<&Bytes> = match &verdict {
                    Verdict::Keep => Some(batch),
                    Verdict::Rewrite(bytes) => Some(bytes),
                    Verdict::Drop => None,
                };
                if kept.is_none()
                    && let Some(control) = entry.control
                    && control.control_type == ControlType::Abort
                {
                    outcome.gone_abort_markers.push(entry.last_offset);
                }
                let mut bytes = batch.len() as u64;
                if let Some(kept) = kept.filter(|_| outcome.changed) {
                    bytes += kept.len() as u64;
                    writer(log, id, outcome)?.push(entry, kept)?;
                }
                go_on = pace(bytes);
                Ok(go_on)
            })?;
            if !go_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn finish_group(
        &mut self,
        group: &[SegmentState],
        outcome: &mut Outcome<'a>,
    ) -> Result<bool, LogError> {
        let before: u64 = group.iter().map(|state| state.log_bytes).sum();
        let report = &mut *self.report;
        report.bytes_before += before;
        report.segments_before += group.len() as u64;
        if !outcome.changed {
            report.bytes_after += before;
            report.segments_after += group.len() as u64;
            return Ok(true);
        }
        let new = match &mut outcome.writer {
            Some(writer) => {
                report.bytes_written += writer.log_bytes();
                Some(writer.finish()?)
            }
            None => None,
        };
        let gone = &outcome.gone_abort_markers;
        if !self.log.replace_segments(group, new, gone) {
            return Ok(false);
        }
        report.bytes_after += new.map_or(0, |state| state.log_bytes);
        report.segments_after += u64::from(new.is_some());
        for state in group {
            self.retired
                .retire_segment(&self.log.store, self.log.partition(), state.id());
        }
        Ok(true)
    }
}

/// The group's writer, made when it is first needed.
fn writer<'a, 'b>(
    log: &'a PartitionLog,
    id: SegmentId,
    outcome: &'b mut Outcome<'a>,
) -> Result<&'b mut SegmentWriter<'a>, LogError> {
    if outcome.writer.is_none() {
        let interval = log.segment_rules().index_interval_bytes;
        let made = SegmentWriter::create(&log.store, log.partition(), log.dir(), interval, id)?;
        outcome.writer = Some(made);
    }
    Ok(outcome.writer.as_mut().expect("it was made"))
}

/// Copies the batches before entry `end`.
fn copy_before(
    reader: &SegmentReader,
    end: u64,
    writer: &mut SegmentWriter<'_>,
) -> Result<(), LogError> {
    reader.each_batch(0, |index, entry, batch| {
        if index < end {
            writer.push(entry, batch)?;
        }
        Ok(index + 1 < end)
    })
}
