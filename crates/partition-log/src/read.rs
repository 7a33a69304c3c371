//! Reading batches: segments first, then the tail, as one log.

use bytes::Bytes;

use crate::log::Inner;
use crate::segment::{Flow, SegmentReader, SegmentState};
use crate::{LogError, PartitionLog, TailBatch};

/// Whole batches, in order, and without a gap but where compaction has removed some.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadResult {
    /// One or more batches each.
    pub chunks: Vec<Bytes>,
    /// Length of all chunks.
    pub bytes: usize,
    /// Base offset of the first batch; at or below the offset that was asked for.
    pub first_offset: Option<i64>,
    /// Last offset of the last batch. Aborted transactions are to be looked up to the offset after
    /// it ([`ReadResult::next_offset`]), or to the bound of the read if that is lower.
    pub last_offset: Option<i64>,
    /// As of the look at the log; see [`PartitionLog::aborted_in`].
    pub(crate) aborted_removals: u64,
}

impl ReadResult {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Where the next read begins; `None` when nothing was read.
    pub fn next_offset(&self) -> Option<i64> {
        self.last_offset.map(|last| last + 1)
    }

    /// Adds a batch of the tail if it may follow; false when the read ends here.
    fn push_tail(&mut self, batch: &TailBatch, max_bytes: usize, min_one: bool) -> bool {
        let forced = min_one && self.chunks.is_empty();
        if self.bytes + batch.bytes.len() > max_bytes && !forced {
            return false;
        }
        self.first_offset.get_or_insert(batch.base_offset);
        self.last_offset = Some(batch.last_offset);
        self.bytes += batch.bytes.len();
        self.chunks.push(batch.bytes.clone());
        true
    }
}

/// What a read needs of the log, taken under one lock: a batch that moves from the tail to a
/// segment meanwhile is in exactly one of the two.
struct Plan {
    segments: Vec<SegmentState>,
    tail: Vec<TailBatch>,
}

impl PartitionLog {
    /// Whole batches from the one that contains `from` on, all of which begin below `upper`.
    ///
    /// The read ends with the first batch that does not fit into `max_bytes`; it never skips one.
    /// With `min_one` the first batch is returned whole whatever its size (KIP-74). Nothing is
    /// returned when `from` is at or above `upper`.
    ///
    /// Reads of the tail touch no disk and copy no bytes.
    ///
    /// Errors: `OutOfRange` when `from` is below what is held or above the end; `Damaged` when the
    /// first batch is not what was written; I/O errors; `Closed` after the partition's deletion.
    pub fn read(
        &self,
        from: i64,
        upper: i64,
        max_bytes: usize,
        min_one: bool,
    ) -> Result<ReadResult, LogError> {
        match self.read_once(from, upper, max_bytes, min_one) {
            // A segment was retired between the look and the read: the second look does not see it.
            Err(error) if error.is_not_found() => self.read_once(from, upper, max_bytes, min_one),
            done => done,
        }
    }

    fn read_once(
        &self,
        from: i64,
        upper: i64,
        max_bytes: usize,
        min_one: bool,
    ) -> Result<ReadResult, LogError> {
        let mut out = ReadResult::default();
        let plan = {
            let inner = self.lock();
            check_range(&inner, from)?;
            out.aborted_removals = inner.aborted_removals;
            if from >= upper || from >= inner.end_offset {
                return Ok(out);
            }
            if from >= inner.tail_start() {
                let first = inner.tail.partition_point(|batch| batch.last_offset < from);
                for batch in inner.tail.range(first..) {
                    if batch.base_offset >= upper || !out.push_tail(batch, max_bytes, min_one) {
                        break;
                    }
                }
                return Ok(out);
            }
            plan(&inner, from, upper, max_bytes)
        };
        for state in plan.segments {
            let reader = SegmentReader::open(&self.store.files, self.dir(), state);
            let flow = match reader {
                Ok(reader) => reader.read(from, upper, max_bytes, min_one, &mut out),
                Err(error) => Err(error),
            };
            match flow {
                Ok(Flow::Continue) => {}
                Ok(Flow::Stop) => return Ok(out),
                // What was read is good; the next read begins where this one failed.
                Err(_) if !out.is_empty() => return Ok(out),
                Err(error) => return Err(error),
            }
        }
        for batch in &plan.tail {
            if !out.push_tail(batch, max_bytes, min_one) {
                break;
            }
        }
        Ok(out)
    }
}

/// Refuses what cannot be answered; shared by all readers.
fn check_range(inner: &Inner, from: i64) -> Result<(), LogError> {
    if inner.closed {
        return Err(LogError::Closed);
    }
    let (start, end) = (inner.first_readable(), inner.end_offset);
    if from < start || from > end {
        return Err(LogError::OutOfRange {
            offset: from,
            start,
            end,
        });
    }
    Ok(())
}

/// The segments, and the batches of the tail after them, that can hold `max_bytes` from `from` on.
fn plan(inner: &Inner, from: i64, upper: i64, max_bytes: usize) -> Plan {
    let first = inner
        .segments
        .partition_point(|slot| slot.written.next_offset <= from);
    let mut plan = Plan {
        segments: Vec::new(),
        tail: Vec::new(),
    };
    // The first segment may have only its last batch to give, so it counts for nothing.
    let mut covered = 0;
    for slot in &inner.segments[first..] {
        if slot.written.base_offset >= upper || covered > max_bytes as u64 {
            return plan;
        }
        if !plan.segments.is_empty() {
            covered += slot.written.log_bytes;
        }
        plan.segments.push(slot.written);
    }
    for batch in &inner.tail {
        if batch.base_offset >= upper || covered > max_bytes as u64 {
            return plan;
        }
        covered += batch.bytes.len() as u64;
        plan.tail.push(batch.clone());
    }
    plan
}
