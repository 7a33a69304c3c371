//! A segment that is shorter than its checkpoint says: what is whole of it, and where the journal
//! must take over.

use std::sync::Arc;

use tidemark_types::{JournalIndex, TopicPartitionId};

use crate::bytes_io::{crc32c, crc32c_combine};
use crate::names::{FileKind, segment_path};
use crate::segment::{SegmentReader, SegmentState};
use crate::tick_index::{TickEntry, entry_position};
use crate::{LogError, LogStore, SegmentManifest, TICK_ENTRY_BYTES};

/// A manifest that claims only what the files hold.
#[derive(Debug)]
pub struct Shortened {
    /// To recover from. Its `first_needed_index` is the first record whose bytes are lost: the
    /// caller makes sure that the journal still begins at or before it, and replays from there.
    pub manifest: SegmentManifest,
    /// What was found, with file and position.
    pub found: LogError,
}

impl SegmentManifest {
    /// Looks for the first segment of which bytes are missing. `None` when every file has its
    /// synced length.
    ///
    /// Only lengths are compared: bytes that are there and wrong are found by their checksums when
    /// they are read.
    ///
    /// Errors: I/O errors; `Damaged` when a `.tickindex` entry below the loss cannot be read.
    pub fn shortened(
        &self,
        store: &Arc<LogStore>,
        partition: TopicPartitionId,
    ) -> Result<Option<Shortened>, LogError> {
        for (at, state) in self.segments.iter().enumerate() {
            if let Some((found, whole)) = whole_entries(store, partition, state)? {
                let manifest = self.cut_at(store, partition, at, whole)?;
                return Ok(Some(Shortened { manifest, found }));
            }
        }
        Ok(None)
    }

    /// This manifest with only `whole` batches of segment `at` and nothing behind them.
    fn cut_at(
        &self,
        store: &Arc<LogStore>,
        partition: TopicPartitionId,
        at: usize,
        whole: u64,
    ) -> Result<SegmentManifest, LogError> {
        let mut manifest = self.clone();
        let state = manifest.segments[at];
        manifest.segments.truncate(at);
        manifest.synced_end_offset = state.base_offset;
        if whole > 0 {
            let cut = cut_state(store, partition, &state, whole)?;
            manifest.synced_end_offset = cut.next_offset;
            manifest.segments.push(cut);
        }
        // The record of the last batch that is left may hold the first that is not.
        manifest.first_needed_index = Some(match manifest.segments.last() {
            Some(last) => last_entry(store, partition, last)?.index,
            None => JournalIndex(1),
        });
        Ok(manifest)
    }
}

/// When files of the segment are shorter than synced: the first of them, and how many batches are
/// whole in both.
fn whole_entries(
    store: &LogStore,
    partition: TopicPartitionId,
    state: &SegmentState,
) -> Result<Option<(LogError, u64)>, LogError> {
    let dir = store.partition_dir(partition);
    let mut found = None;
    let mut lens = [0; 2];
    let files = [
        (FileKind::Log, state.log_bytes),
        (FileKind::TickIndex, entry_position(state.entries)),
    ];
    for (slot, (kind, expected)) in lens.iter_mut().zip(files) {
        let path = segment_path(&dir, state.base_offset, kind);
        let len = match store.files.get(&path) {
            Err(error) if error.is_not_found() => 0,
            opened => opened?.len().map_err(|e| LogError::io(&path, e))?,
        };
        *slot = len;
        if len < expected && found.is_none() {
            found = Some(LogError::Short {
                path,
                len,
                expected,
            });
        }
    }
    let Some(found) = found else {
        return Ok(None);
    };
    let [log_len, tick_len] = lens;
    let held = tick_len.saturating_sub(entry_position(0)) / TICK_ENTRY_BYTES as u64;
    let entries = held.min(state.entries);
    if entries == 0 {
        return Ok(Some((found, 0)));
    }
    let shorter = SegmentState { entries, ..*state };
    let reader = SegmentReader::open(&store.files, &dir, shorter)?;
    let lost = reader.search(|entry| end_of(entry) <= log_len)?;
    let whole = lost.map_or(entries, |(index, _)| index);
    Ok(Some((found, whole)))
}

/// Position after the batch of an entry.
fn end_of(entry: &TickEntry) -> u64 {
    u64::from(entry.position) + u64::from(entry.size_bytes)
}

fn last_entry(
    store: &LogStore,
    partition: TopicPartitionId,
    state: &SegmentState,
) -> Result<TickEntry, LogError> {
    let dir = store.partition_dir(partition);
    SegmentReader::open(&store.files, &dir, *state)?.entry(state.entries - 1)
}

/// The segment with its first `whole` batches only.
fn cut_state(
    store: &LogStore,
    partition: TopicPartitionId,
    state: &SegmentState,
    whole: u64,
) -> Result<SegmentState, LogError> {
    let mut cut = SegmentState {
        entries: whole,
        indexed: false,
        ..*state
    };
    let last = last_entry(store, partition, &cut)?;
    cut.next_offset = last.last_offset + 1;
    cut.log_bytes = end_of(&last);
    cut.max_timestamp = last.running_max_timestamp;
    cut.last_tick = last.tick;
    let dir = store.partition_dir(partition);
    cut.log_crc = SegmentReader::open(&store.files, &dir, cut)?.log_crc()?;
    Ok(cut)
}

impl SegmentReader<'_> {
    /// CRC-32C of the `.log` file, as far as it may be read.
    pub(crate) fn log_crc(&self) -> Result<u32, LogError> {
        let mut crc = crc32c(&[]);
        self.each_piece(|piece| {
            crc = crc32c_combine(crc, crc32c(piece), piece.len() as u64);
        })?;
        Ok(crc)
    }
}
