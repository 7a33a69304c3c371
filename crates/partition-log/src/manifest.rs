//! What a checkpoint keeps of one partition's log: which bytes of its segments may be trusted, and
//! what was known of the log besides its batches.

use tidemark_abort_index::AbortIndex;
use tidemark_types::{JournalIndex, LeaderEpoch, Tick};

use crate::bytes_io::Fields;
use crate::log::first_needed;
use crate::segment::SegmentState;
use crate::{LeaderEpochs, PartitionLog, TailBatch};

/// The part of a log that a checkpoint keeps; its batches are in the segments and the journal.
#[derive(Clone, PartialEq, Debug)]
pub struct SegmentManifest {
    pub log_start_offset: i64,
    /// First offset that is not synced in a segment: from here on the bytes are the journal's.
    pub synced_end_offset: i64,
    /// End of the log when the manifest was taken. What lies between the two is replayed as bytes
    /// only ([`PartitionLog::restore`]).
    pub end_offset: i64,
    /// First journal record that holds bytes of `synced_end_offset..`: replay begins at or before
    /// it. `None` when there are none.
    pub first_needed_index: Option<JournalIndex>,
    /// The synced part of each segment, by offset; none is empty.
    pub segments: Vec<SegmentState>,
    pub epochs: LeaderEpochs,
    pub aborted: AbortIndex,
    pub compacted: Compacted,
    /// What the tick index will say of the batches in the tail and replay cannot tell: their effects
    /// are in the partition's own block, only their bytes come again.
    pub tail: Vec<TailNote>,
}

/// Of one batch in the tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TailNote {
    pub base_offset: i64,
    /// The last stable offset after the batch.
    pub last_stable_offset: i64,
    /// For a marker: the first offset of the transaction it ended here.
    pub txn_first_offset: Option<i64>,
}

/// Encoded size of one segment.
const SEGMENT_BYTES: usize = 6 * 8 + 4 + 4 + 1;

/// How far compaction has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compacted {
    /// Below it no earlier record of a key is left that has a later one below it.
    pub to_offset: i64,
    /// When the first tombstone or marker below it may go that only waits for that, in milliseconds
    /// since 1970.
    pub next_horizon_ms: Option<i64>,
}

impl TailNote {
    fn of(batch: &TailBatch) -> TailNote {
        TailNote {
            base_offset: batch.base_offset,
            last_stable_offset: batch.meta.last_stable_offset,
            txn_first_offset: batch.meta.control.and_then(|c| c.txn_first_offset),
        }
    }
}

impl SegmentManifest {
    /// Version of the encoding, for the checkpoint block that holds it.
    pub const FORMAT_VERSION: u16 = 1;

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.segments.len() * SEGMENT_BYTES);
        out.extend_from_slice(&self.log_start_offset.to_be_bytes());
        out.extend_from_slice(&self.synced_end_offset.to_be_bytes());
        out.extend_from_slice(&self.end_offset.to_be_bytes());
        // Indexes begin at 1: 0 is none.
        let needed = self.first_needed_index.unwrap_or_default();
        out.extend_from_slice(&needed.0.to_be_bytes());
        out.extend_from_slice(&(self.segments.len() as u32).to_be_bytes());
        for segment in &self.segments {
            out.extend_from_slice(&segment.base_offset.to_be_bytes());
            out.extend_from_slice(&segment.generation.to_be_bytes());
            out.extend_from_slice(&segment.next_offset.to_be_bytes());
            out.extend_from_slice(&segment.log_bytes.to_be_bytes());
            out.extend_from_slice(&segment.entries.to_be_bytes());
            out.extend_from_slice(&segment.max_timestamp.to_be_bytes());
            out.extend_from_slice(&segment.last_tick.0.to_be_bytes());
            out.extend_from_slice(&segment.log_crc.to_be_bytes());
            out.push(u8::from(segment.indexed));
        }
        let epochs = self.epochs.entries();
        out.extend_from_slice(&(epochs.len() as u32).to_be_bytes());
        for (epoch, start_offset) in epochs {
            out.extend_from_slice(&epoch.0.to_be_bytes());
            out.extend_from_slice(&start_offset.to_be_bytes());
        }
        out.extend_from_slice(&(self.tail.len() as u32).to_be_bytes());
        for note in &self.tail {
            out.extend_from_slice(&note.base_offset.to_be_bytes());
            out.extend_from_slice(&note.last_stable_offset.to_be_bytes());
            // Offsets begin at 0: -1 is none.
            out.extend_from_slice(&note.txn_first_offset.unwrap_or(-1).to_be_bytes());
        }
        out.extend_from_slice(&self.compacted.to_offset.to_be_bytes());
        // No clock shows the last millisecond there is.
        let horizon = self.compacted.next_horizon_ms.unwrap_or(i64::MAX);
        out.extend_from_slice(&horizon.to_be_bytes());
        out.extend_from_slice(&self.aborted.encode());
        out
    }

    /// `None` when the bytes are not a manifest, or one whose parts contradict each other.
    pub fn decode(bytes: &[u8]) -> Option<SegmentManifest> {
        let mut f = Fields(bytes);
        let log_start_offset = f.i64()?;
        let synced_end_offset = f.i64()?;
        let end_offset = f.i64()?;
        let needed = f.u64()?;
        let count = f.u32()?;
        let mut segments = Vec::new();
        for _ in 0..count {
            segments.push(SegmentState {
                base_offset: f.i64()?,
                generation: f.u32()?,
                next_offset: f.i64()?,
                log_bytes: f.u64()?,
                entries: f.u64()?,
                max_timestamp: f.i64()?,
                last_tick: Tick(f.u64()?),
                log_crc: f.u32()?,
                indexed: f.u8()? != 0,
            });
        }
        let count = f.u32()?;
        let mut epochs = Vec::new();
        for _ in 0..count {
            epochs.push((LeaderEpoch(f.i32()?), f.i64()?));
        }
        let count = f.u32()?;
        let mut tail = Vec::new();
        for _ in 0..count {
            tail.push(TailNote {
                base_offset: f.i64()?,
                last_stable_offset: f.i64()?,
                txn_first_offset: Some(f.i64()?).filter(|offset| *offset >= 0),
            });
        }
        let compacted = Compacted {
            to_offset: f.i64()?,
            next_horizon_ms: Some(f.i64()?).filter(|horizon| *horizon != i64::MAX),
        };
        let manifest = SegmentManifest {
            log_start_offset,
            synced_end_offset,
            end_offset,
            first_needed_index: (needed != 0).then_some(JournalIndex(needed)),
            segments,
            epochs: LeaderEpochs::from_entries(epochs)?,
            aborted: AbortIndex::decode(f.0).ok()?,
            compacted,
            tail,
        };
        manifest.is_coherent().then_some(manifest)
    }

    fn is_coherent(&self) -> bool {
        let filled = self.segments.iter().all(|s| {
            s.entries > 0
                && s.base_offset >= 0
                && s.next_offset > s.base_offset
                && s.log_bytes <= u64::from(u32::MAX) + (i32::MAX as u64)
                // Every batch is at least a header long.
                && s.entries <= s.log_bytes
        });
        let rising = self
            .segments
            .windows(2)
            .all(|pair| pair[0].next_offset <= pair[1].base_offset);
        let ends = self
            .segments
            .last()
            .is_none_or(|s| s.next_offset == self.synced_end_offset);
        filled && rising && ends && self.synced_end_offset <= self.end_offset
    }
}

impl PartitionLog {
    /// What a checkpoint must keep of this log. Taken on the owner's thread, so that it and the
    /// partition's own block are of the same journal position.
    ///
    /// I10: only bytes that a completed [`crate::WriteBehind::sync_dirty`] covers are named.
    pub fn segment_manifest(&self) -> SegmentManifest {
        let inner = self.lock();
        let segments: Vec<SegmentState> = inner
            .segments
            .iter()
            .map(|slot| slot.synced)
            .filter(|state| state.entries > 0)
            .collect();
        // Segments are synced in order, so that the first which is not ends the synced part.
        let synced_end_offset = segments
            .last()
            .map_or_else(|| inner.first_held(), |state| state.next_offset);
        SegmentManifest {
            log_start_offset: inner.log_start_offset,
            synced_end_offset,
            end_offset: inner.end_offset,
            first_needed_index: first_needed(&inner),
            segments,
            epochs: inner.epochs.clone(),
            aborted: inner.aborted.clone(),
            compacted: inner.compacted,
            tail: inner.tail.iter().map(TailNote::of).collect(),
        }
    }
}
