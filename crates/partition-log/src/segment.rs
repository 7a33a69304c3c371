//! One segment: what is known of it in memory, and reading batches from its files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tidemark_disk::DiskFile;
use tidemark_record_batch::{BatchHeader, HEADER_BYTES, crc_is_valid};
use tidemark_types::{JournalIndex, Tick};

use crate::files::FileCache;
use crate::names::{FileKind, generation_dir, segment_path};
use crate::roll::Began;
use crate::tick_index::{Entries, EntryError, TickEntry};
use crate::{LogError, ReadResult};

/// Most bytes of one `pread`, unless one batch is larger.
const MAX_PIECE_BYTES: u64 = 1 << 20;

/// Which segment of a partition: two of one base offset are of different generations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId {
    pub base_offset: i64,
    /// 0 as write-behind wrote it; the run of compaction that wrote it otherwise.
    pub generation: u32,
}

impl SegmentId {
    /// Every file that it may have.
    pub(crate) fn files(self, partition_dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let dir = self.dir(partition_dir);
        FileKind::ALL
            .into_iter()
            .map(move |kind| segment_path(&dir, self.base_offset, kind))
    }

    /// Where its files are, of a partition whose directory is `partition_dir`.
    pub(crate) fn dir(self, partition_dir: &Path) -> PathBuf {
        generation_dir(partition_dir, self.generation)
    }
}

/// How far a segment's files may be read. A value: what a reader holds never changes under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentState {
    pub base_offset: i64,
    /// See [`SegmentId`].
    pub generation: u32,
    /// Offset after the last record.
    pub next_offset: i64,
    /// Bytes of the `.log` file.
    pub log_bytes: u64,
    /// Entries of the `.tickindex` file: batches.
    pub entries: u64,
    pub max_timestamp: i64,
    /// Tick of the last batch.
    pub last_tick: Tick,
    /// CRC-32C of the `.log` file up to `log_bytes`.
    pub log_crc: u32,
    /// The derived indexes were built; only of a segment that no longer grows.
    pub indexed: bool,
}

impl SegmentState {
    /// The segment whose state this is.
    pub fn id(&self) -> SegmentId {
        SegmentId {
            base_offset: self.base_offset,
            generation: self.generation,
        }
    }

    pub(crate) fn empty(base_offset: i64) -> SegmentState {
        SegmentState {
            base_offset,
            generation: 0,
            next_offset: base_offset,
            log_bytes: 0,
            entries: 0,
            max_timestamp: i64::MIN,
            last_tick: Tick::ZERO,
            log_crc: 0,
            indexed: false,
        }
    }
}

/// A segment in a log's list: how far it may be read, and how much of that is synced.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) written: SegmentState,
    /// As of the last good sync; no entries when it was never synced.
    pub(crate) synced: SegmentState,
    /// What the sync in progress will have made durable.
    pub(crate) syncing: Option<SegmentState>,
    /// First journal index whose batch is written and not yet part of a sync.
    pub(crate) unsynced_from: Option<JournalIndex>,
    /// The same for the sync in progress.
    pub(crate) syncing_from: Option<JournalIndex>,
    /// When it began, once that was needed.
    pub(crate) began: Option<Began>,
    /// Behind the end there may be bytes in its files that do not belong to it: they are cut before
    /// anything is written. Only of the last segment.
    pub(crate) is_longer: bool,
}

impl Slot {
    pub(crate) fn new(base_offset: i64) -> Slot {
        Slot {
            written: SegmentState::empty(base_offset),
            synced: SegmentState::empty(base_offset),
            syncing: None,
            unsynced_from: None,
            syncing_from: None,
            began: None,
            is_longer: false,
        }
    }

    /// A segment whose bytes a checkpoint vouches for.
    pub(crate) fn recovered(state: SegmentState) -> Slot {
        Slot {
            written: state,
            synced: state,
            syncing: None,
            unsynced_from: None,
            syncing_from: None,
            began: None,
            is_longer: false,
        }
    }

    /// First journal index that must be replayed for this segment's sake.
    pub(crate) fn first_unsynced(&self) -> Option<JournalIndex> {
        self.syncing_from.or(self.unsynced_from)
    }
}

/// What became of a read within one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// The segment was read to its end: the next one may follow.
    Continue,
    /// The next batch does not fit, or lies at the bound: nothing may follow.
    Stop,
}

/// Open files of one segment, as far as `state` lets them be read.
pub(crate) struct SegmentReader {
    dir: PathBuf,
    state: SegmentState,
    log: Arc<dyn DiskFile>,
    tick_index: Arc<dyn DiskFile>,
}

impl SegmentReader {
    pub(crate) fn open(
        files: &FileCache,
        partition_dir: &Path,
        state: SegmentState,
    ) -> Result<SegmentReader, LogError> {
        let dir = state.id().dir(partition_dir);
        Ok(SegmentReader {
            log: files.get(&segment_path(&dir, state.base_offset, FileKind::Log))?,
            tick_index: files.get(&segment_path(&dir, state.base_offset, FileKind::TickIndex))?,
            dir,
            state,
        })
    }

    fn entries(&self) -> Entries<'_> {
        Entries {
            file: &*self.tick_index,
            count: self.state.entries,
        }
    }

    fn entry_error(&self, error: EntryError) -> LogError {
        entry_error(&self.dir, self.state.base_offset, error)
    }

    pub(crate) fn damaged(&self, position: u64, what: &'static str) -> LogError {
        LogError::Damaged {
            path: segment_path(&self.dir, self.state.base_offset, FileKind::Log),
            position,
            what,
        }
    }

    fn read_log(&self, position: u64, len: usize) -> Result<Vec<u8>, LogError> {
        // Before memory is taken for it: the length is what an entry of the tick index says.
        if position.saturating_add(len as u64) > self.state.log_bytes {
            return Err(self.damaged(position, "the .tickindex names more than was written"));
        }
        let mut bytes = vec![0; len];
        let got = self.log.read_at(&mut bytes, position).map_err(|e| {
            let path = segment_path(&self.dir, self.state.base_offset, FileKind::Log);
            LogError::io(&path, e)
        })?;
        if got < len {
            return Err(self.damaged(
                position + got as u64,
                "the file is shorter than was written",
            ));
        }
        Ok(bytes)
    }

    /// The first entry for which `before` is false.
    pub(crate) fn search(
        &self,
        before: impl Fn(&TickEntry) -> bool,
    ) -> Result<Option<(u64, TickEntry)>, LogError> {
        self.entries()
            .search(before)
            .map_err(|e| self.entry_error(e))
    }

    pub(crate) fn entry(&self, index: u64) -> Result<TickEntry, LogError> {
        self.entries().get(index).map_err(|e| self.entry_error(e))
    }

    pub(crate) fn scan(
        &self,
        from: u64,
        each: impl FnMut(u64, &TickEntry) -> bool,
    ) -> Result<(), LogError> {
        self.entries()
            .scan(from, each)
            .map_err(|e| self.entry_error(e))
    }

    /// The whole batch of an entry.
    pub(crate) fn batch(&self, entry: &TickEntry) -> Result<Bytes, LogError> {
        let position = u64::from(entry.position);
        let bytes = self.read_log(position, entry.size_bytes as usize)?;
        self.check_batch(entry, &bytes)?;
        Ok(Bytes::from(bytes))
    }

    fn check_batch(&self, entry: &TickEntry, bytes: &[u8]) -> Result<(), LogError> {
        let position = u64::from(entry.position);
        let (header, size) = self.check_header(bytes, position)?;
        if size != bytes.len() || header.base_offset != entry.base_offset {
            return Err(self.damaged(position, "not the batch that the .tickindex names"));
        }
        if !crc_is_valid(bytes) {
            return Err(self.damaged(position, "the batch's checksum does not match"));
        }
        Ok(())
    }

    /// Calls `each` with the index, the entry and the bytes of each batch from entry `from` on, read
    /// in large pieces, until it says stop (false).
    pub(crate) fn each_batch(
        &self,
        from: u64,
        mut each: impl FnMut(u64, &TickEntry, &Bytes) -> Result<bool, LogError>,
    ) -> Result<(), LogError> {
        let mut at = from;
        while at < self.state.entries {
            let mut piece: Vec<TickEntry> = Vec::new();
            let mut len = 0;
            self.scan(at, |_, entry| {
                let size = u64::from(entry.size_bytes);
                let fits = piece.is_empty() || len + size <= MAX_PIECE_BYTES;
                if fits {
                    piece.push(*entry);
                    len += size;
                }
                fits
            })?;
            let Some(first) = piece.first() else {
                return Ok(());
            };
            let start = u64::from(first.position);
            let bytes = Bytes::from(self.read_log(start, len as usize)?);
            let mut taken = 0;
            for entry in &piece {
                let position = start + taken as u64;
                if u64::from(entry.position) != position {
                    return Err(self.damaged(position, "not where the .tickindex says"));
                }
                let end = taken + entry.size_bytes as usize;
                let batch = bytes.slice(taken..end);
                self.check_batch(entry, &batch)?;
                if !each(at, entry, &batch)? {
                    return Ok(());
                }
                taken = end;
                at += 1;
            }
        }
        Ok(())
    }

    /// Calls `each` with all bytes of the `.log` file, piece by piece.
    pub(crate) fn each_piece(&self, mut each: impl FnMut(&[u8])) -> Result<(), LogError> {
        let mut position = 0;
        while position < self.state.log_bytes {
            let len = MAX_PIECE_BYTES.min(self.state.log_bytes - position) as usize;
            each(&self.read_log(position, len)?);
            position += len as u64;
        }
        Ok(())
    }

    fn check_header(&self, bytes: &[u8], position: u64) -> Result<(BatchHeader, usize), LogError> {
        let header =
            BatchHeader::parse(bytes).map_err(|_| self.damaged(position, "not a batch header"))?;
        let size = header.size_bytes();
        if size as u64 > self.state.log_bytes - position {
            return Err(self.damaged(position, "the batch is longer than the file"));
        }
        Ok((header, size))
    }

    /// Adds to `out` the batches from the one that contains `from` on: those that begin below
    /// `upper` and fit into what is left of `max_bytes`, up to the first that does not. When `out`
    /// is empty and `min_one` is set, the first batch is taken whatever its size.
    ///
    /// A damaged batch is an error when it is the first, and an end when others precede it: the
    /// next read will begin with it.
    pub(crate) fn read(
        &self,
        from: i64,
        upper: i64,
        max_bytes: usize,
        min_one: bool,
        out: &mut ReadResult,
    ) -> Result<Flow, LogError> {
        let found = if from <= self.state.base_offset {
            Some((0, self.entry(0)?))
        } else {
            self.search(|entry| entry.last_offset < from)?
        };
        let Some((_, first)) = found else {
            return Ok(Flow::Continue);
        };
        let mut position = u64::from(first.position);
        // What the batch at `position` needs at least; exact once its header was seen.
        let mut needed = first.size_bytes as usize;
        while position < self.state.log_bytes {
            let budget = max_bytes.saturating_sub(out.bytes);
            let forced = min_one && out.chunks.is_empty();
            if needed > budget && !forced {
                return Ok(Flow::Stop);
            }
            let piece = (budget as u64).min(MAX_PIECE_BYTES).max(needed as u64);
            let piece = piece.min(self.state.log_bytes - position) as usize;
            let taken = match self.read_piece(position, piece, upper, max_bytes, forced, out) {
                Ok(taken) => taken,
                Err(LogError::Damaged { .. }) if !out.chunks.is_empty() => return Ok(Flow::Stop),
                Err(error) => return Err(error),
            };
            position += taken.bytes as u64;
            match taken.next {
                Next::Stop => return Ok(Flow::Stop),
                Next::Needs(bytes) => needed = bytes,
            }
        }
        Ok(Flow::Continue)
    }

    /// Reads one piece and adds its whole batches to `out` as one chunk.
    fn read_piece(
        &self,
        position: u64,
        piece: usize,
        upper: i64,
        max_bytes: usize,
        forced: bool,
        out: &mut ReadResult,
    ) -> Result<Taken, LogError> {
        let mut bytes = self.read_log(position, piece)?;
        let mut at = 0;
        let mut last_offset = out.last_offset;
        // How the walk ends when it ends at the end of the piece.
        let mut next = Ok(Next::Needs(HEADER_BYTES));
        while bytes.len() - at >= HEADER_BYTES {
            let here = position + at as u64;
            let (header, size) = match self.check_header(&bytes[at..], here) {
                Ok(checked) => checked,
                Err(error) => {
                    next = Err(error);
                    break;
                }
            };
            if header.base_offset >= upper {
                next = Ok(Next::Stop);
                break;
            }
            let fits = out.bytes + at + size <= max_bytes || (forced && at == 0);
            if !fits {
                next = Ok(Next::Stop);
                break;
            }
            if at + size > bytes.len() {
                next = Ok(Next::Needs(size));
                break;
            }
            if last_offset.is_some_and(|last| header.base_offset <= last) {
                next = Err(self.damaged(here, "the batch's offset does not follow"));
                break;
            }
            if !crc_is_valid(&bytes[at..at + size]) {
                next = Err(self.damaged(here, "the batch's checksum does not match"));
                break;
            }
            last_offset = Some(header.last_offset());
            out.first_offset.get_or_insert(header.base_offset);
            at += size;
        }
        let rest = bytes.len() - at;
        let at_the_end = position + bytes.len() as u64 == self.state.log_bytes;
        if rest > 0 && rest < HEADER_BYTES && at_the_end {
            next = Err(self.damaged(position + at as u64, "less than a batch header is left"));
        }
        if at > 0 {
            bytes.truncate(at);
            if bytes.capacity() > 2 * at {
                bytes.shrink_to_fit();
            }
            out.last_offset = last_offset;
            out.bytes += at;
            out.chunks.push(Bytes::from(bytes));
        }
        next.map(|next| Taken { bytes: at, next })
    }
}

struct Taken {
    bytes: usize,
    next: Next,
}

enum Next {
    Stop,
    /// The next batch needs at least this many bytes.
    Needs(usize),
}

pub(crate) fn entry_error(dir: &Path, base_offset: i64, error: EntryError) -> LogError {
    let path = segment_path(dir, base_offset, FileKind::TickIndex);
    match error {
        EntryError::Io(source) if source.kind() == std::io::ErrorKind::UnexpectedEof => {
            LogError::Damaged {
                path,
                position: 0,
                what: "the file is shorter than was written",
            }
        }
        EntryError::Io(source) => LogError::Io { path, source },
        EntryError::Damaged(position) => LogError::Damaged {
            path,
            position,
            what: "the entry's checksum does not match",
        },
    }
}
