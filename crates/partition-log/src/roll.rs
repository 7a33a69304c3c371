//! When a segment is closed and the next begun: by Kafka's rules, for each batch before it is
//! appended.

use tidemark_types::{Tick, TopicPartitionId};

use crate::TailBatch;
use crate::bytes_io::crc32c;
use crate::segment::SegmentState;

/// Bytes of an entry of Kafka's offset index and of its time index.
const OFFSET_ENTRY_BYTES: u64 = 8;
const TIME_ENTRY_BYTES: u64 = 12;

/// What a topic says of its segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentRules {
    /// `segment.bytes`: no batch makes a segment larger, unless it is its first. At most an int32,
    /// as positions in Kafka's indexes are.
    pub segment_bytes: u64,
    /// `segment.ms`: between the timestamps of a segment's first batch and of the next one.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: the most that is taken off `segment.ms`.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`: the most that an index takes.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`: bytes of batches between two entries of an index.
    pub index_interval_bytes: u64,
}

impl Default for SegmentRules {
    /// Kafka's.
    fn default() -> SegmentRules {
        SegmentRules {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
        }
    }
}

/// When a segment began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Began {
    /// The largest timestamp of its first batch.
    pub(crate) timestamp: i64,
    /// The first batch's tick.
    pub(crate) tick: Tick,
}

impl Began {
    pub(crate) fn with(batch: &TailBatch) -> Began {
        Began {
            timestamp: batch.meta.max_timestamp,
            tick: batch.tick,
        }
    }
}

impl SegmentRules {
    /// True when the next batch may be appended to a segment that has batches already.
    pub(crate) fn have_room(
        &self,
        partition: TopicPartitionId,
        segment: &SegmentState,
        began: Began,
        batch: &TailBatch,
    ) -> bool {
        let size = batch.bytes.len() as u64;
        // Kafka's indexes keep offsets as int32 deltas to the base.
        let delta_fits = batch.last_offset - segment.base_offset <= i64::from(i32::MAX);
        let limit = self.segment_bytes.clamp(1, i32::MAX as u64);
        // A segment whose indexes were built (its successor was lost at a start) does not grow again, nor
        // one that compaction wrote.
        !segment.indexed
            && segment.generation == 0
            && delta_fits
            && segment.log_bytes + size <= limit
            && !self.indexes_are_full(segment)
            && !self.is_too_old(partition, segment, began, batch)
    }

    /// By timestamps, where the first batch has one: the clock of who writes decides, so that old
    /// data that is written in one go is cut as it was then. Ticks take the place of Kafka's wall
    /// clock.
    fn is_too_old(
        &self,
        partition: TopicPartitionId,
        segment: &SegmentState,
        began: Began,
        batch: &TailBatch,
    ) -> bool {
        let waited_ms = match began.timestamp {
            0.. => batch.meta.max_timestamp.saturating_sub(began.timestamp),
            _ => batch.tick.alignment_ms() - began.tick.alignment_ms(),
        };
        waited_ms > self.segment_ms - self.jitter_ms(partition, segment.base_offset)
    }

    /// Kafka draws it for each segment. Here it follows from the segment's name: as good for its
    /// purpose, and the same each time.
    fn jitter_ms(&self, partition: TopicPartitionId, base_offset: i64) -> i64 {
        let most = self.segment_jitter_ms.min(self.segment_ms);
        if most <= 0 {
            return 0;
        }
        let mut name = partition.topic.0.to_vec();
        name.extend_from_slice(&partition.partition.to_be_bytes());
        name.extend_from_slice(&base_offset.to_be_bytes());
        i64::from(crc32c(&name)) % most
    }

    /// The indexes are made when the segment is closed. They have at most an entry per batch, and
    /// one per interval; as in Kafka the time index keeps a place for the entry of the end.
    fn indexes_are_full(&self, segment: &SegmentState) -> bool {
        let per_interval = segment.log_bytes / (self.index_interval_bytes + 1);
        let entries = per_interval.min(segment.entries);
        entries >= self.segment_index_bytes / OFFSET_ENTRY_BYTES
            || entries + 1 >= self.segment_index_bytes / TIME_ENTRY_BYTES
    }
}
