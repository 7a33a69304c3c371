//! The second pass: a verdict for each batch.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use tidemark_record_batch::{
    BatchError, BatchHeader, DecompressLimits, Record, empty_batch, parse_control, records,
    rewrite_batch,
};
use tidemark_types::{ProducerEpoch, ProducerId};

use crate::{Fates, OffsetMap};

/// What an active producer wrote last to the partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastAppend {
    /// Last offset of its last data batch: it carries the sequence that comes before the next.
    Data { last_offset: i64 },
    /// No data since the marker of this epoch: it fences what is older.
    Marker { producer_epoch: ProducerEpoch },
}

/// What one run knows.
#[derive(Clone, Copy)]
pub struct Round<'a> {
    pub map: &'a OffsetMap,
    pub fates: &'a Fates,
    pub producers: &'a BTreeMap<ProducerId, LastAppend>,
    /// Offset after the last batch of the run; every transaction with a record below it has ended.
    pub end_offset: i64,
    /// The wall clock, milliseconds since 1970.
    pub now_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
    pub limits: DecompressLimits,
}

/// What becomes of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Keep,
    /// These bytes take its place.
    Rewrite(Bytes),
    Drop,
}

/// What a run did, in batches and records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub batches: u64,
    /// Batches that lost records but stay.
    pub batches_rewritten: u64,
    pub batches_dropped: u64,
    /// Records of any kind that went; those of markers not counted.
    pub records_removed: u64,
    /// Of these, records of aborted transactions.
    pub aborted_removed: u64,
    /// Of these, tombstones past their horizon.
    pub tombstones_removed: u64,
    /// Of these, records without a key.
    pub keyless_removed: u64,
    pub markers_removed: u64,
}

/// Judges the batches of a log, one after the other from its start on.
pub struct Cleaner<'a> {
    round: Round<'a>,
    /// Producers of whose present transaction a batch stays.
    with_data: HashSet<ProducerId>,
    next_horizon_ms: Option<i64>,
    tally: Tally,
}

/// A record and why it goes, if it does.
enum Fate {
    Stays,
    Superseded,
    Keyless,
    Deleted,
}

impl<'a> Cleaner<'a> {
    pub fn new(round: Round<'a>) -> Cleaner<'a> {
        Cleaner {
            round,
            with_data: HashSet::new(),
            next_horizon_ms: None,
            tally: Tally::default(),
        }
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// When the first of the tombstones and markers that only wait for their horizon may go: a run
    /// then is worth it although nothing new was written.
    pub fn next_horizon_ms(&self) -> Option<i64> {
        self.next_horizon_ms
    }

    /// The verdict on the next batch, exactly one whole batch whose CRC was checked.
    ///
    /// Errors: what reading its records gives. The run cannot go on then.
    pub fn judge(&mut self, batch: &Bytes) -> Result<Verdict, BatchError> {
        let header = BatchHeader::parse(batch)?;
        self.tally.batches += 1;
        let verdict = if header.attributes.is_control() {
            self.judge_control(&header, batch)?
        } else {
            self.judge_data(&header, batch)?
        };
        match &verdict {
            Verdict::Keep => {}
            Verdict::Rewrite(_) => self.tally.batches_rewritten += 1,
            Verdict::Drop => self.tally.batches_dropped += 1,
        }
        if header.attributes.is_transactional()
            && !header.attributes.is_control()
            && verdict != Verdict::Drop
        {
            self.with_data.insert(header.producer_id);
        }
        Ok(verdict)
    }

    fn judge_control(
        &mut self,
        header: &BatchHeader,
        batch: &Bytes,
    ) -> Result<Verdict, BatchError> {
        // Of a type that is no transaction's: not ours to judge.
        if parse_control(batch)?.is_none() {
            return Ok(Verdict::Keep);
        }
        let has_data = self.with_data.remove(&header.producer_id);
        if has_data || self.must_stay(header) {
            return Ok(Verdict::Keep);
        }
        match header.delete_horizon_ms() {
            Some(horizon) if horizon <= self.round.now_ms => {
                self.tally.markers_removed += 1;
                Ok(Verdict::Drop)
            }
            Some(horizon) => {
                self.wait_for(horizon);
                Ok(Verdict::Keep)
            }
            None => {
                let records: Vec<Record> =
                    records(batch, &self.round.limits)?.collect::<Result<_, _>>()?;
                self.stamp(header, &records)
                    .map(|stamped| stamped.map_or(Verdict::Keep, Verdict::Rewrite))
            }
        }
    }

    fn judge_data(&mut self, header: &BatchHeader, batch: &Bytes) -> Result<Verdict, BatchError> {
        let empty = if self.must_stay(header) {
            Verdict::Rewrite(empty_batch(header))
        } else {
            Verdict::Drop
        };
        if header.record_count <= 0 {
            return Ok(match empty {
                Verdict::Drop => Verdict::Drop,
                _ => Verdict::Keep,
            });
        }
        if header.attributes.is_transactional()
            && self
                .round
                .fates
                .is_aborted(header.producer_id, header.base_offset)
        {
            let count = u64::from(header.record_count.unsigned_abs());
            self.tally.records_removed += count;
            self.tally.aborted_removed += count;
            return Ok(empty);
        }
        if header.base_offset >= self.round.map.end_offset() {
            // Nothing is known of what follows: the next run begins here.
            return Ok(Verdict::Keep);
        }
        let mut kept = Vec::new();
        let mut has_tombstones = false;
        let mut removed = 0;
        for record in records(batch, &self.round.limits)? {
            let record = record?;
            match self.fate(header, &record) {
                Fate::Stays => {
                    has_tombstones |= record.value.is_none();
                    kept.push(record);
                    continue;
                }
                Fate::Superseded => {}
                Fate::Keyless => self.tally.keyless_removed += 1,
                Fate::Deleted => self.tally.tombstones_removed += 1,
            }
            removed += 1;
        }
        self.tally.records_removed += removed;
        if kept.is_empty() {
            return Ok(empty);
        }
        if has_tombstones {
            match header.delete_horizon_ms() {
                // Passed horizons leave no tombstone.
                Some(horizon) => self.wait_for(horizon),
                None => {
                    if let Some(stamped) = self.stamp(header, &kept)? {
                        return Ok(Verdict::Rewrite(stamped));
                    }
                }
            }
        }
        if removed == 0 {
            return Ok(Verdict::Keep);
        }
        let rewritten = rewrite_batch(header, &kept, None)?;
        Ok(rewritten.map_or(Verdict::Keep, Verdict::Rewrite))
    }

    fn fate(&self, header: &BatchHeader, record: &Record) -> Fate {
        let Some(key) = &record.key else {
            return Fate::Keyless;
        };
        let offset = header.base_offset + i64::from(record.offset_delta);
        if (self.round.map.newest(key)).is_some_and(|newest| newest > offset) {
            return Fate::Superseded;
        }
        let passed = (header.delete_horizon_ms()).is_some_and(|h| h <= self.round.now_ms);
        if record.value.is_none() && passed {
            return Fate::Deleted;
        }
        Fate::Stays
    }

    /// The batch with these of its records and a delete horizon from now on.
    fn stamp(
        &mut self,
        header: &BatchHeader,
        records: &[Record],
    ) -> Result<Option<Bytes>, BatchError> {
        let retention = self.round.delete_retention_ms.max(0);
        let horizon = self.round.now_ms.saturating_add(retention);
        let stamped = rewrite_batch(header, records, Some(horizon))?;
        if stamped.is_some() {
            self.wait_for(horizon);
        }
        Ok(stamped)
    }

    fn wait_for(&mut self, horizon_ms: i64) {
        let earliest = self.next_horizon_ms.get_or_insert(horizon_ms);
        *earliest = horizon_ms.min(*earliest);
    }

    fn must_stay(&self, header: &BatchHeader) -> bool {
        if header.next_offset() == self.round.end_offset {
            return true;
        }
        match self.round.producers.get(&header.producer_id) {
            Some(LastAppend::Data { last_offset }) => header.last_offset() == *last_offset,
            Some(LastAppend::Marker { producer_epoch }) => {
                header.attributes.is_control() && header.producer_epoch == *producer_epoch
            }
            None => false,
        }
    }
}
