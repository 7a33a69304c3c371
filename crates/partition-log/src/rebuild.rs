//! A segment that is shorter than its checkpoint says: what it lacks, and getting it back from the
//! journal.
//!
//! The mended files are written beside the short ones, checked against the checksum that the
//! checkpoint keeps, synced, and renamed over them. A crash on the way leaves the short files, and the
//! next start begins again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tidemark_disk::{DiskFile, OpenMode};
use tidemark_record_batch::{Attributes, BatchHeader, parse_control};
use tidemark_types::{JournalIndex, ProducerId, Tick, TopicPartitionId};

use crate::bytes_io::{crc32c, crc32c_combine};
use crate::names::{FileKind, segment_path};
use crate::segment::{SegmentReader, SegmentState, entry_error};
use crate::tick_index::{Entries, EntryError, TickEntry, entry_position};
use crate::{ControlMeta, LogError, LogStore, SegmentManifest, TICK_ENTRY_BYTES, TailBatch};

/// Bytes collected before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// A segment of which synced bytes are missing, and what is whole of it.
///
/// The caller shows it the journal's batches of its partition, in order
/// ([`Shortened::offer`]), and then calls [`Shortened::finish`].
pub struct Shortened {
    store: Arc<LogStore>,
    partition: TopicPartitionId,
    /// As the checkpoint knows it.
    state: SegmentState,
    found: LogError,
    first_needed: Option<JournalIndex>,
    /// Entries of the `.tickindex` that are there, whole ones.
    held_entries: u64,
    /// Bytes of the batches that are there.
    whole_bytes: u64,
    /// How far it is mended.
    mended: SegmentState,
    /// First offsets of the transactions that are open where it is mended to.
    open: BTreeMap<ProducerId, i64>,
    files: Option<Files>,
}

/// The mended files, not yet in their places.
struct Files {
    log: Growing,
    tick_index: Growing,
}

/// A file that is written from its start to its end.
struct Growing {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    written: u64,
    buffer: Vec<u8>,
}

impl SegmentManifest {
    /// Looks for the first segment of which bytes are missing. `None` when every file has its
    /// synced length. When one is mended another may follow: the caller looks again.
    ///
    /// Only lengths are compared: bytes that are there and wrong are found by their checksums when
    /// they are read.
    ///
    /// Errors: `Unmendable` for a segment that compaction has written; I/O errors; `Damaged` when a
    /// `.tickindex` entry below the loss cannot be read.
    pub fn shortened(
        &self,
        store: &Arc<LogStore>,
        partition: TopicPartitionId,
    ) -> Result<Option<Shortened>, LogError> {
        for (at, state) in self.segments.iter().enumerate() {
            let Some(found) = look(store, partition, state)? else {
                continue;
            };
            if state.generation > 0 {
                // What compaction has written is in no journal, and the segments that it was made from
                // go when neither checkpoint names them. To compact the journal's batches anew would
                // need their horizons and active producers of then, which nothing has kept.
                return Err(LogError::Unmendable {
                    found: found.error.to_string(),
                    why: "it is what compaction has left, which the journal does not hold"
                        .to_owned(),
                });
            }
            let mended = match found.whole_entries {
                0 => SegmentState::empty(state.base_offset),
                whole => first_entries(store, partition, state, whole)?,
            };
            let first_needed = match (found.whole_entries, found.held_entries) {
                (_, 0) => None,
                (whole, held) => {
                    // The record of the last batch that is left may hold the first that is not.
                    let at = whole.saturating_sub(1);
                    let entry =
                        with_entries(store, partition, state, held, |entries| entries.get(at))?;
                    Some(entry.index)
                }
            };
            return Ok(Some(Shortened {
                store: store.clone(),
                partition,
                state: *state,
                found: found.error,
                first_needed,
                held_entries: found.held_entries,
                open: self.open_transactions(store, partition, at, &mended)?,
                whole_bytes: mended.log_bytes,
                mended,
                files: None,
            }));
        }
        Ok(None)
    }

    /// The transactions that are open behind the last entry of `last`, the whole part of segment
    /// `at`: every one of them began at or after the last stable offset that this entry names.
    fn open_transactions(
        &self,
        store: &LogStore,
        partition: TopicPartitionId,
        at: usize,
        last: &SegmentState,
    ) -> Result<BTreeMap<ProducerId, i64>, LogError> {
        let mut segments: Vec<SegmentState> = self.segments[..at].to_vec();
        if last.entries > 0 {
            segments.push(*last);
        }
        let mut open = BTreeMap::new();
        let Some(last) = segments.last() else {
            return Ok(open);
        };
        let dir = store.partition_dir(partition);
        let stable = SegmentReader::open(&store.files, &dir, *last)?
            .entry(last.entries - 1)?
            .last_stable_offset;
        for state in segments.iter().filter(|s| s.next_offset > stable) {
            let reader = SegmentReader::open(&store.files, &dir, *state)?;
            let Some((from, _)) = reader.search(|entry| entry.last_offset < stable)? else {
                continue;
            };
            reader.scan(from, |_, entry| {
                follow(&mut open, entry.producer_id, entry.base_offset, {
                    let attributes = Attributes(entry.attributes);
                    attributes
                        .is_transactional()
                        .then_some(entry.control.is_some())
                });
                true
            })?;
        }
        Ok(open)
    }
}

/// What a batch does to the open transactions: `ends` is `None` for a batch of no transaction. The
/// first offset of the transaction that a marker ends, if it wrote anything here.
fn follow(
    open: &mut BTreeMap<ProducerId, i64>,
    producer_id: ProducerId,
    base_offset: i64,
    ends: Option<bool>,
) -> Option<i64> {
    match ends {
        Some(true) => open.remove(&producer_id),
        Some(false) => {
            open.entry(producer_id).or_insert(base_offset);
            None
        }
        None => None,
    }
}

struct Loss {
    error: LogError,
    /// Batches that are whole in both files.
    whole_entries: u64,
    /// Entries that the `.tickindex` holds, with those of batches that are lost.
    held_entries: u64,
}

/// When files of the segment are shorter than synced: the first of them, and what is whole.
fn look(
    store: &LogStore,
    partition: TopicPartitionId,
    state: &SegmentState,
) -> Result<Option<Loss>, LogError> {
    let dir = state.id().dir(&store.partition_dir(partition));
    let mut error = None;
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
        if len < expected && error.is_none() {
            error = Some(LogError::Short {
                path,
                len,
                expected,
            });
        }
    }
    let Some(error) = error else {
        return Ok(None);
    };
    let [log_len, tick_len] = lens;
    let held = tick_len.saturating_sub(entry_position(0)) / TICK_ENTRY_BYTES as u64;
    let held_entries = held.min(state.entries);
    let whole_entries = if log_len == 0 || held_entries == 0 {
        0
    } else {
        let lost = with_entries(store, partition, state, held_entries, |entries| {
            entries.search(|entry| end_of(entry) <= log_len)
        })?;
        lost.map_or(held_entries, |(index, _)| index)
    };
    Ok(Some(Loss {
        error,
        whole_entries,
        held_entries,
    }))
}

/// The first `count` entries of a segment's `.tickindex`, whose `.log` may be gone.
fn with_entries<T>(
    store: &LogStore,
    partition: TopicPartitionId,
    state: &SegmentState,
    count: u64,
    read: impl FnOnce(&Entries<'_>) -> Result<T, EntryError>,
) -> Result<T, LogError> {
    let dir = state.id().dir(&store.partition_dir(partition));
    let path = segment_path(&dir, state.base_offset, FileKind::TickIndex);
    let file = store.files.get(&path)?;
    let entries = Entries {
        file: &*file,
        count,
    };
    read(&entries).map_err(|e| entry_error(&dir, state.base_offset, e))
}

/// Position after the batch of an entry.
fn end_of(entry: &TickEntry) -> u64 {
    u64::from(entry.position) + u64::from(entry.size_bytes)
}

/// The segment with its first `entries` batches only; its checksum is of these.
fn first_entries(
    store: &LogStore,
    partition: TopicPartitionId,
    state: &SegmentState,
    entries: u64,
) -> Result<SegmentState, LogError> {
    let mut cut = SegmentState {
        entries,
        indexed: false,
        ..*state
    };
    let dir = store.partition_dir(partition);
    let last = SegmentReader::open(&store.files, &dir, cut)?.entry(entries - 1)?;
    cut.next_offset = last.last_offset + 1;
    cut.log_bytes = end_of(&last);
    cut.max_timestamp = last.running_max_timestamp;
    cut.last_tick = last.tick;
    cut.log_crc = 0;
    SegmentReader::open(&store.files, &dir, cut)?.each_piece(|piece| {
        cut.log_crc = crc32c_combine(cut.log_crc, crc32c(piece), piece.len() as u64);
    })?;
    Ok(cut)
}

impl Shortened {
    pub fn partition(&self) -> TopicPartitionId {
        self.partition
    }

    /// What was found: file, length, and the length that was synced.
    pub fn found(&self) -> &LogError {
        &self.found
    }

    /// The first journal record that can hold what is missing; `None` when nothing that is left
    /// says so, and any may.
    pub fn first_needed_index(&self) -> Option<JournalIndex> {
        self.first_needed
    }

    /// Takes a batch of the partition, of the journal's record `index`, if it is the next that is
    /// missing.
    ///
    /// Errors: I/O errors, a full disk among them; `Damaged` when the batch cannot be read.
    pub fn offer(
        &mut self,
        batch: &Bytes,
        tick: Tick,
        index: JournalIndex,
    ) -> Result<(), LogError> {
        let at = self.mended.entries;
        if at == self.state.entries {
            return Ok(());
        }
        let header = BatchHeader::parse(batch).map_err(|_| self.unreadable())?;
        if header.base_offset < self.mended.next_offset {
            return Ok(());
        }
        let known = match at < self.held_entries {
            true => Some(self.held_entry(at)?),
            false => None,
        };
        // A segment that was compacted has gaps; without its entries nobody knows which.
        let next = known.map_or(self.mended.next_offset, |entry| entry.base_offset);
        if header.base_offset != next {
            return Ok(());
        }
        let position = u32::try_from(self.mended.log_bytes).map_err(|_| self.unreadable())?;
        let computed = self.entry(&header, batch, tick, index, position)?;
        let entry = known.unwrap_or(computed);
        if self.files.is_none() {
            self.files = Some(self.begin()?);
        }
        let files = self.files.as_mut().expect("begun above");
        files.log.push(batch)?;
        files.tick_index.push(&entry.encode())?;
        let mended = &mut self.mended;
        mended.log_crc = crc32c_combine(mended.log_crc, crc32c(batch), batch.len() as u64);
        mended.log_bytes += batch.len() as u64;
        mended.entries += 1;
        mended.next_offset = header.last_offset() + 1;
        mended.max_timestamp = entry.running_max_timestamp;
        mended.last_tick = tick;
        Ok(())
    }

    /// The entry that write-behind made of the batch.
    fn entry(
        &mut self,
        header: &BatchHeader,
        batch: &Bytes,
        tick: Tick,
        index: JournalIndex,
        position: u32,
    ) -> Result<TickEntry, LogError> {
        let marker = parse_control(batch).map_err(|_| self.unreadable())?;
        let ends = header
            .attributes
            .is_transactional()
            .then_some(marker.is_some());
        let began = follow(&mut self.open, header.producer_id, header.base_offset, ends);
        let control = marker.map(|(control_type, _)| ControlMeta {
            control_type,
            txn_first_offset: began,
        });
        let end = header.last_offset() + 1;
        let stable = self.open.values().copied().min().unwrap_or(end);
        let batch = TailBatch::new(header, batch.clone(), tick, index, stable, control);
        Ok(TickEntry::of(&batch, position, self.mended.max_timestamp))
    }

    fn unreadable(&self) -> LogError {
        LogError::Unmendable {
            found: self.found.to_string(),
            why: "a batch of the journal cannot be read".to_owned(),
        }
    }

    fn dir(&self) -> PathBuf {
        self.store.partition_dir(self.partition)
    }

    fn held_entry(&self, at: u64) -> Result<TickEntry, LogError> {
        let (store, held) = (&self.store, self.held_entries);
        with_entries(store, self.partition, &self.state, held, |entries| {
            entries.get(at)
        })
    }

    /// New files with what is whole of the old ones.
    fn begin(&self) -> Result<Files, LogError> {
        let dir = self.dir();
        let disk = &self.store.disk;
        disk.create_dir_all(&dir)
            .map_err(|e| LogError::io(&dir, e))?;
        let make = |kind| {
            let mut path = segment_path(&dir, self.state.base_offset, kind).into_os_string();
            path.push(".mend");
            let path = PathBuf::from(path);
            let file = disk
                .open(&path, OpenMode::OpenOrCreate)
                .and_then(|file| file.set_len(0).map(|()| file))
                .map_err(|e| LogError::io(&path, e))?;
            Ok::<Growing, LogError>(Growing {
                path,
                file,
                written: 0,
                buffer: Vec::new(),
            })
        };
        let mut files = Files {
            log: make(FileKind::Log)?,
            tick_index: make(FileKind::TickIndex)?,
        };
        let header = crate::TickIndexHeader {
            cluster_id: self.store.cluster_id(),
            partition: self.partition,
            base_offset: self.state.base_offset,
        };
        files.tick_index.push(&header.encode())?;
        if self.mended.entries > 0 {
            let reader = SegmentReader::open(&self.store.files, &dir, self.mended)?;
            let mut failed = Ok(());
            reader.each_piece(|piece| {
                if failed.is_ok() {
                    failed = files.log.push(piece);
                }
            })?;
            reader.scan(0, |_, entry| {
                if failed.is_ok() {
                    failed = files.tick_index.push(&entry.encode());
                }
                failed.is_ok()
            })?;
            failed?;
        }
        Ok(files)
    }

    /// Puts the mended files in their places. Returns the bytes of batches that the journal gave.
    ///
    /// Errors: `Unmendable` when batches are still missing, or what came together is not what was
    /// synced (a segment that was compacted holds other bytes than the journal); I/O errors. Nothing
    /// was changed then.
    pub fn finish(mut self) -> Result<u64, LogError> {
        let why = if self.mended.entries < self.state.entries {
            Some(format!(
                "the journal does not hold the batch at offset {} any more",
                self.mended.next_offset
            ))
        } else if self.mended.log_crc != self.state.log_crc
            || self.mended.log_bytes != self.state.log_bytes
        {
            Some("what the journal holds is not what was there".to_owned())
        } else {
            None
        };
        let files = match self.files.take() {
            Some(files) if why.is_none() => files,
            _ => {
                self.discard();
                return Err(LogError::Unmendable {
                    found: self.found.to_string(),
                    why: why.unwrap_or_else(|| "the journal holds nothing of it".to_owned()),
                });
            }
        };
        let dir = self.dir();
        let disk = &self.store.disk;
        let bytes = self.state.log_bytes - self.whole_bytes;
        let base = self.state.base_offset;
        for (growing, kind) in [
            (files.log, FileKind::Log),
            (files.tick_index, FileKind::TickIndex),
        ] {
            let path = growing.finish()?;
            let to = segment_path(&dir, base, kind);
            disk.rename(&path, &to).map_err(|e| LogError::io(&to, e))?;
        }
        self.store.files.forget_dir(&dir);
        disk.sync_dir(&dir).map_err(|e| LogError::io(&dir, e))?;
        let root = self.store.root();
        disk.sync_dir(root).map_err(|e| LogError::io(root, e))?;
        Ok(bytes)
    }

    /// Removes files that were begun.
    fn discard(&self) {
        for kind in [FileKind::Log, FileKind::TickIndex] {
            let mut path = segment_path(&self.dir(), self.state.base_offset, kind).into_os_string();
            path.push(".mend");
            // Left behind it is in nobody's way: the next attempt empties it.
            let _ = self.store.disk.remove_file(Path::new(&path));
        }
    }
}

impl Growing {
    fn push(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.buffer.extend_from_slice(bytes);
        match self.buffer.len() < WRITE_BYTES {
            true => Ok(()),
            false => self.write_out(),
        }
    }

    fn write_out(&mut self) -> Result<(), LogError> {
        self.file
            .write_at(&self.buffer, self.written)
            .map_err(|e| LogError::io(&self.path, e))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Durable; its path.
    fn finish(mut self) -> Result<PathBuf, LogError> {
        self.write_out()?;
        self.file
            .sync_data()
            .map_err(|e| LogError::io(&self.path, e))?;
        Ok(self.path)
    }
}
