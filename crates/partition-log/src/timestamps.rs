//! ListOffsets by timestamp.

use bytes::Bytes;
use tidemark_record_batch::{
    BatchHeader, DecompressLimits, max_timestamp_offset, offset_for_timestamp,
};
use tidemark_types::LeaderEpoch;

use crate::segment::{SegmentReader, SegmentState};
use crate::{LogError, PartitionLog};

/// A record found by its timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampOffset {
    pub timestamp: i64,
    pub offset: i64,
    pub leader_epoch: LeaderEpoch,
}

/// Where the records at a timestamp can be.
enum Place {
    Segment(SegmentState),
    Batch(Bytes),
}

impl PartitionLog {
    /// The first record whose timestamp is at or after `target_ms`, in offset order, as in Kafka;
    /// `None` when there is none or it lies at or above `upper`. Timestamps need not rise.
    ///
    /// Errors: `Damaged`, I/O errors, `Closed`.
    pub fn offset_for_timestamp(
        &self,
        target_ms: i64,
        upper: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        // A batch's header may promise a timestamp that none of its records has, or the record
        // may lie below the log start: then the search goes on behind that batch.
        let mut from = self.lock().log_start_offset;
        loop {
            let Some((place, log_start)) = self.first_place(target_ms, from, upper)? else {
                return Ok(None);
            };
            let batch = match place {
                Place::Batch(batch) => batch,
                Place::Segment(state) => {
                    let dir = self.dir();
                    let reader = SegmentReader::open(&self.store.files, dir, state)?;
                    match reader.first_at(target_ms, from)? {
                        Some(batch) => batch,
                        None => {
                            from = state.next_offset;
                            continue;
                        }
                    }
                }
            };
            let header = self.header(&batch)?;
            match self.record_at(&batch, target_ms, log_start)? {
                Some((timestamp, offset)) => {
                    return Ok((offset < upper).then_some(TimestampOffset {
                        timestamp,
                        offset,
                        leader_epoch: header.leader_epoch,
                    }));
                }
                None => from = header.last_offset() + 1,
            }
        }
    }

    /// The segment or tail batch at or after `from` that is the first to have a timestamp at or
    /// after `target_ms`.
    fn first_place(
        &self,
        target_ms: i64,
        from: i64,
        upper: i64,
    ) -> Result<Option<(Place, i64)>, LogError> {
        let inner = self.lock();
        if inner.closed {
            return Err(LogError::Closed);
        }
        let log_start = inner.log_start_offset;
        let first = inner
            .segments
            .partition_point(|slot| slot.written.next_offset <= from);
        let segment = inner.segments[first..]
            .iter()
            .map(|slot| slot.written)
            .find(|state| state.max_timestamp >= target_ms);
        if let Some(state) = segment {
            let found = (state.base_offset < upper).then_some((Place::Segment(state), log_start));
            return Ok(found);
        }
        let first = inner.tail.partition_point(|batch| batch.last_offset < from);
        let batch = inner
            .tail
            .range(first..)
            .find(|batch| batch.meta.max_timestamp >= target_ms)
            .filter(|batch| batch.base_offset < upper)
            .map(|batch| (Place::Batch(batch.bytes.clone()), log_start));
        Ok(batch)
    }

    /// The record with the highest timestamp of those below `upper`, the first of them if there
    /// are several (KIP-734); `None` when there is no record.
    ///
    /// Errors: `Damaged`, I/O errors, `Closed`.
    pub fn max_timestamp(&self, upper: i64) -> Result<Option<TimestampOffset>, LogError> {
        let (segments, tail, log_start) = {
            let inner = self.lock();
            if inner.closed {
                return Err(LogError::Closed);
            }
            let log_start = inner.log_start_offset;
            let segments: Vec<SegmentState> = inner
                .segments
                .iter()
                .map(|slot| slot.written)
                .filter(|s| s.next_offset > log_start && s.base_offset < upper)
                .collect();
            // The first of the highest.
            let tail = inner
                .tail
                .iter()
                .filter(|b| b.last_offset >= log_start && b.base_offset < upper)
                .reduce(|best, b| {
                    if b.meta.max_timestamp > best.meta.max_timestamp {
                        b
                    } else {
                        best
                    }
                })
                .map(|b| (b.meta.max_timestamp, b.bytes.clone()));
            (segments, tail, log_start)
        };
        let mut best: Option<(i64, Place)> = None;
        for state in segments {
            let whole = state.base_offset >= log_start && state.next_offset <= upper;
            let highest = if whole {
                Some(state.max_timestamp)
            } else {
                let reader = SegmentReader::open(&self.store.files, self.dir(), state)?;
                reader.highest_between(log_start, upper)?
            };
            if let Some(highest) = highest
                && best.as_ref().is_none_or(|(known, _)| highest > *known)
            {
                best = Some((highest, Place::Segment(state)));
            }
        }
        if let Some((highest, batch)) = tail
            && best.as_ref().is_none_or(|(known, _)| highest > *known)
        {
            best = Some((highest, Place::Batch(batch)));
        }
        let batch = match best {
            None => return Ok(None),
            Some((_, Place::Batch(batch))) => batch,
            Some((highest, Place::Segment(state))) => {
                let reader = SegmentReader::open(&self.store.files, self.dir(), state)?;
                match reader.first_at(highest, log_start)? {
                    Some(batch) => batch,
                    None => return Ok(None),
                }
            }
        };
        let header = self.header(&batch)?;
        let found = max_timestamp_offset(&batch, &DecompressLimits::default())
            .map_err(|_| self.bad_batch())?;
        Ok(found
            .filter(|&(_, offset)| offset < upper)
            .map(|(timestamp, offset)| TimestampOffset {
                timestamp,
                offset,
                leader_epoch: header.leader_epoch,
            }))
    }

    fn record_at(
        &self,
        batch: &Bytes,
        target_ms: i64,
        log_start: i64,
    ) -> Result<Option<(i64, i64)>, LogError> {
        let found = offset_for_timestamp(batch, target_ms, &DecompressLimits::default())
            .map_err(|_| self.bad_batch())?;
        // A log start within a batch: the answer is at or above it.
        Ok(found.filter(|&(_, offset)| offset >= log_start))
    }

    fn header(&self, batch: &Bytes) -> Result<BatchHeader, LogError> {
        BatchHeader::parse(batch).map_err(|_| self.bad_batch())
    }

    fn bad_batch(&self) -> LogError {
        LogError::Damaged {
            path: self.dir().to_owned(),
            position: 0,
            what: "the records of a batch cannot be read",
        }
    }
}

impl SegmentReader<'_> {
    /// The first batch that ends at or after `from` and has a timestamp at or after `target_ms`.
    fn first_at(&self, target_ms: i64, from: i64) -> Result<Option<Bytes>, LogError> {
        let Some((index, entry)) = self.search(|e| e.running_max_timestamp < target_ms)? else {
            return Ok(None);
        };
        if entry.last_offset >= from {
            return self.batch(&entry).map(Some);
        }
        // The running maximum was reached before `from`: it says nothing about what follows.
        let mut found = None;
        self.scan(index, |_, entry| {
            if entry.last_offset >= from && entry.max_timestamp >= target_ms {
                found = Some(*entry);
            }
            found.is_none()
        })?;
        found.map(|entry| self.batch(&entry)).transpose()
    }

    /// The highest timestamp of the batches that end at or after `from` and begin below `upper`.
    fn highest_between(&self, from: i64, upper: i64) -> Result<Option<i64>, LogError> {
        let mut highest = None;
        let first = self.search(|entry| entry.last_offset < from)?;
        let Some((first, _)) = first else {
            return Ok(None);
        };
        self.scan(first, |_, entry| {
            let below = entry.base_offset < upper;
            if below {
                highest = highest.max(Some(entry.max_timestamp));
            }
            below
        })?;
        Ok(highest)
    }
}
