//! ListOffsets by timestamp.

use bytes::Bytes;
use tidemark_record_batch::{
    BatchHeader, DecompressLimits, max_timestamp_offset, offset_for_timestamp, records,
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

/// For batches that passed validation when they were produced, under limits that are no wider.
const LIMITS: DecompressLimits = DecompressLimits {
    ratio: usize::MAX,
    floor_bytes: 0,
    max_bytes: 128 << 20,
};

/// Where the records at a timestamp can be.
enum Place {
    Segment(SegmentState),
    Batch(Bytes),
}

impl PartitionLog {
    /// The first record whose timestamp is at or after `target_ms`, in offset order, as in Kafka;
    /// `None` when there is none at or above `log_start` or it lies at or above `upper`. Timestamps
    /// need not rise.
    ///
    /// Errors: `Damaged`, I/O errors, `Closed`.
    pub fn offset_for_timestamp(
        &self,
        target_ms: i64,
        log_start: i64,
        upper: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        match self.find_timestamp(target_ms, log_start, upper) {
            // A segment was replaced between the look and the read.
            Err(error) if error.is_not_found() => self.find_timestamp(target_ms, log_start, upper),
            done => done,
        }
    }

    fn find_timestamp(
        &self,
        target_ms: i64,
        log_start: i64,
        upper: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        // A batch's header may promise a timestamp that none of its records has, or the record
        // may lie below the log start: then the search goes on behind that batch.
        let mut from = log_start;
        loop {
            let Some(place) = self.first_place(target_ms, from, upper)? else {
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
            match self.record_at(&batch, &header, target_ms, log_start)? {
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
    ) -> Result<Option<Place>, LogError> {
        let inner = self.lock();
        if inner.closed {
            return Err(LogError::Closed);
        }
        let first = inner
            .segments
            .partition_point(|slot| slot.written.next_offset <= from);
        let segment = inner.segments[first..]
            .iter()
            .map(|slot| slot.written)
            .find(|state| state.max_timestamp >= target_ms);
        if let Some(state) = segment {
            let found = (state.base_offset < upper).then_some(Place::Segment(state));
            return Ok(found);
        }
        let first = inner.tail.partition_point(|batch| batch.last_offset < from);
        let batch = inner
            .tail
            .range(first..)
            .find(|batch| batch.meta.max_timestamp >= target_ms)
            .filter(|batch| batch.base_offset < upper)
            .map(|batch| Place::Batch(batch.bytes.clone()));
        Ok(batch)
    }

    /// The record with the highest timestamp of those below `upper`, the first of them if there
    /// are several (KIP-734); `None` when there is no record.
    ///
    /// Errors: `Damaged`, I/O errors, `Closed`.
    pub fn max_timestamp(
        &self,
        log_start: i64,
        upper: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        match self.find_max_timestamp(log_start, upper) {
            // A segment was replaced between the look and the read.
            Err(error) if error.is_not_found() => self.find_max_timestamp(log_start, upper),
            done => done,
        }
    }

    fn find_max_timestamp(
        &self,
        log_start: i64,
        upper: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        let Some(batch) = self.highest_batch(log_start, upper)? else {
            return Ok(None);
        };
        let header = self.header(&batch)?;
        let highest = self.highest_record(&batch, &header, log_start)?;
        // The log start lies within the batch, and the record that made it the highest may lie
        // below: what follows counts as well.
        let following = if header.base_offset < log_start {
            match self.highest_batch(header.next_offset(), upper)? {
                Some(batch) => self.highest_record(&batch, &self.header(&batch)?, log_start)?,
                None => None,
            }
        } else {
            None
        };
        let best = match (highest, following) {
            (Some(first), Some(second)) if second.timestamp > first.timestamp => Some(second),
            (first, second) => first.or(second),
        };
        Ok(best.filter(|found| found.offset < upper))
    }

    /// Of the batches that end at or after `from` and begin below `upper`, the first with the
    /// highest timestamp.
    fn highest_batch(&self, from: i64, upper: i64) -> Result<Option<Bytes>, LogError> {
        let (segments, tail) = {
            let inner = self.lock();
            if inner.closed {
                return Err(LogError::Closed);
            }
            let segments: Vec<SegmentState> = inner
                .segments
                .iter()
                .map(|slot| slot.written)
                .filter(|s| s.next_offset > from && s.base_offset < upper)
                .collect();
            let tail = inner
                .tail
                .iter()
                .filter(|b| b.last_offset >= from && b.base_offset < upper)
                .reduce(|best, b| {
                    if b.meta.max_timestamp > best.meta.max_timestamp {
                        b
                    } else {
                        best
                    }
                })
                .map(|b| (b.meta.max_timestamp, b.bytes.clone()));
            (segments, tail)
        };
        let mut best: Option<(i64, Place)> = None;
        for state in segments {
            let whole = state.base_offset >= from && state.next_offset <= upper;
            let highest = if whole {
                Some(state.max_timestamp)
            } else {
                let reader = SegmentReader::open(&self.store.files, self.dir(), state)?;
                reader.highest_between(from, upper)?
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
        match best {
            None => Ok(None),
            Some((_, Place::Batch(batch))) => Ok(Some(batch)),
            Some((highest, Place::Segment(state))) => {
                SegmentReader::open(&self.store.files, self.dir(), state)?.first_at(highest, from)
            }
        }
    }

    fn highest_record(
        &self,
        batch: &Bytes,
        header: &BatchHeader,
        log_start: i64,
    ) -> Result<Option<TimestampOffset>, LogError> {
        let found = if header.base_offset >= log_start {
            max_timestamp_offset(batch, &LIMITS).map_err(|_| self.bad_batch())?
        } else {
            let mut highest: Option<(i64, i64)> = None;
            self.each_record_from(batch, header, log_start, |timestamp, offset| {
                if highest.is_none_or(|(known, _)| timestamp > known) {
                    highest = Some((timestamp, offset));
                }
                true
            })?;
            highest
        };
        Ok(found.map(|(timestamp, offset)| TimestampOffset {
            timestamp,
            offset,
            leader_epoch: header.leader_epoch,
        }))
    }

    /// The first record of a batch at or after `target_ms` and at or above the log start.
    fn record_at(
        &self,
        batch: &Bytes,
        header: &BatchHeader,
        target_ms: i64,
        log_start: i64,
    ) -> Result<Option<(i64, i64)>, LogError> {
        if header.base_offset >= log_start {
            return offset_for_timestamp(batch, target_ms, &LIMITS).map_err(|_| self.bad_batch());
        }
        let mut found = None;
        self.each_record_from(batch, header, log_start, |timestamp, offset| {
            if timestamp >= target_ms {
                found = Some((timestamp, offset));
            }
            found.is_none()
        })?;
        Ok(found)
    }

    /// Calls `each` with timestamp and offset of the records from offset `from` on, until it says
    /// stop (false).
    fn each_record_from(
        &self,
        batch: &Bytes,
        header: &BatchHeader,
        from: i64,
        mut each: impl FnMut(i64, i64) -> bool,
    ) -> Result<(), LogError> {
        for record in records(batch, &LIMITS).map_err(|_| self.bad_batch())? {
            let record = record.map_err(|_| self.bad_batch())?;
            let offset = header.base_offset + i64::from(record.offset_delta);
            if offset >= from && !each(record.timestamp, offset) {
                break;
            }
        }
        Ok(())
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

impl SegmentReader {
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
            let has_it = entry.max_timestamp >= target_ms && !entry.is_empty();
            if entry.last_offset >= from && has_it {
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
            if below && !entry.is_empty() {
                highest = highest.max(Some(entry.max_timestamp));
            }
            below
        })?;
        Ok(highest)
    }
}
