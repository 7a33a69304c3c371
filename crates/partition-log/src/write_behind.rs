//! Moving confirmed batches from the tails to the segments, and making segments durable before a
//! checkpoint names them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidemark_disk::{DiskFile, FileSystem};
use tidemark_types::{Tick, TopicPartitionId};

use crate::bytes_io::{crc32c_combine, crc32c_of};
use crate::names::{FileKind, segment_path};
use crate::roll::Began;
use crate::segment::{SegmentReader, SegmentState, Slot};
use crate::tick_index::{TICK_ENTRY_BYTES, TickEntry, entry_position};
use crate::{LogError, LogStore, PartitionLog, TailBatch, TickIndexHeader, recover, seal};

/// Up to so many files and directories are synced one by one. For more of them one sync of the whole
/// file system costs less, although it writes out what else is dirty there.
const SYNC_EACH_UP_TO: usize = 48;

/// So much is written and sent to the disk at a time: a sync of the journal may have to wait behind
/// one piece, and for the core on which the system takes it over, which for several megabytes in one
/// call can be 10 ms.
const PIECE_BYTES: u64 = 256 << 10;
/// What is less than this is written at once and waits for the next sync.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// What write-behind does beside others, who must not wait for it.
pub trait Beside: Send + Sync {
    /// Asked before each piece of so many bytes that is written and sent to the disk: waits for its
    /// turn. False when there is no time for that; the rest is then written without waiting, and sent
    /// to the disk by the next sync.
    fn wait_for_turn(&self, bytes: u64) -> bool;
    /// The tail has become shorter, perhaps in the middle of a flush.
    fn room_made(&self);
}

/// Batches of one write at most: so many are moved under a log's lock, for which the owner waits.
const ROUND_BATCHES: usize = 2048;

#[derive(Clone, Debug)]
pub struct WriteBehindSettings {
    /// Bytes of one write.
    pub write_bytes: usize,
    /// Files written and not yet synced; at this number a flush syncs them itself. They are held
    /// open, so that a failed write-out of the system is reported to their sync.
    pub dirty_files: usize,
}

impl Default for WriteBehindSettings {
    fn default() -> WriteBehindSettings {
        WriteBehindSettings {
            write_bytes: 4 << 20,
            dirty_files: 256,
        }
    }
}

/// When a partition's tail is worth a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushPolicy {
    /// Confirmed bytes from which on they are written.
    pub min_bytes: u64,
    /// Written whatever their number when the oldest is at or below this tick.
    pub older_than: Option<Tick>,
    /// Written whatever their number and age.
    pub force: bool,
}

impl Default for FlushPolicy {
    fn default() -> FlushPolicy {
        FlushPolicy {
            min_bytes: 256 << 10,
            older_than: None,
            force: false,
        }
    }
}

impl FlushPolicy {
    /// Everything that is confirmed.
    pub const FORCE: FlushPolicy = FlushPolicy {
        min_bytes: 0,
        older_than: None,
        force: true,
    };
}

/// What one flush did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushReport {
    pub batches: u64,
    pub bytes: u64,
    pub segments_created: u64,
    pub segments_sealed: u64,
}

/// What one sync did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyncReport {
    pub files: u64,
    pub directories: u64,
    pub partitions: u64,
}

/// The write-behind of one data directory. Flushes of different partitions may run at the same
/// time; of one partition they take turns.
pub struct WriteBehind {
    store: Arc<LogStore>,
    settings: WriteBehindSettings,
    dirty: Mutex<Dirty>,
    file_system: Option<Box<dyn FileSystem>>,
    /// One sync at a time.
    syncing: Mutex<()>,
    beside: Option<Box<dyn Beside>>,
}

/// Written and not yet synced.
#[derive(Default)]
struct Dirty {
    files: HashMap<PathBuf, Arc<dyn DiskFile>>,
    dirs: BTreeSet<PathBuf>,
    /// There were more, for which the whole file system will be synced.
    whole: bool,
    logs: BTreeMap<TopicPartitionId, Arc<PartitionLog>>,
    failed: Option<String>,
}

impl WriteBehind {
    pub fn new(store: &Arc<LogStore>, settings: WriteBehindSettings) -> WriteBehind {
        WriteBehind {
            // Where it cannot be had, files are synced one by one.
            file_system: store.disk.file_system(store.root()).ok().flatten(),
            store: store.clone(),
            settings,
            dirty: Mutex::default(),
            syncing: Mutex::default(),
            beside: None,
        }
    }

    /// From now on what is flushed goes to the disk with regard to others, and not all at once with
    /// the next sync, behind which others would have to wait.
    pub fn set_beside(&mut self, beside: Box<dyn Beside>) {
        self.beside = Some(beside);
    }

    /// Writes the batches of `log` whose tick is at or below `confirmed` to its segments and drops
    /// them from the tail, if `policy` finds them worth it. They are not durable there yet: the
    /// journal must keep them until [`WriteBehind::sync_dirty`] and a checkpoint.
    ///
    /// After an error nothing is lost: what was not written stays in the tail, and the next flush
    /// writes over what was half written.
    ///
    /// Errors: I/O errors (a full disk among them); `SyncFailed` for ever after a failed sync.
    pub fn flush(
        &self,
        log: &Arc<PartitionLog>,
        confirmed: Tick,
        policy: &FlushPolicy,
    ) -> Result<FlushReport, LogError> {
        self.check_failed()?;
        let mut report = FlushReport::default();
        {
            let _turn = log.flushing.lock();
            let is_worth = log.is_worth_a_flush(confirmed, policy);
            if is_worth || policy.force {
                self.cut_longer(log)?;
            }
            if is_worth {
                while let Some(round) = log.next_round(confirmed, self.settings.write_bytes) {
                    self.write_round(log, round, &mut report)?;
                }
            }
            for state in log.unindexed() {
                self.seal(log, &state)?;
                report.segments_sealed += 1;
            }
        }
        let many = {
            let mut dirty = self.dirty.lock();
            let many = dirty.files.len() >= self.settings.dirty_files;
            if many && self.file_system.is_some() {
                // It reports what became of them, so that they need not be held open for that.
                dirty.whole = true;
                dirty.files.clear();
                dirty.dirs.clear();
            }
            many && !dirty.whole
        };
        if many {
            self.sync_dirty()?;
        }
        Ok(report)
    }

    /// What a crash has left behind the end of the last segment goes.
    fn cut_longer(&self, log: &PartitionLog) -> Result<(), LogError> {
        if let Some(state) = log.longer_segment() {
            recover::cut(&self.store, &state.id().dir(log.dir()), &state)?;
            log.mark_cut();
        }
        Ok(())
    }

    /// Makes everything durable that was flushed before the call: data first, then the directory
    /// entries. Only then may a checkpoint name it, which [`PartitionLog::segment_manifest`] looks
    /// after.
    ///
    /// Errors: `SyncFailed`, now and for ever after: what a failed sync left on the disk is not
    /// known, and asking again would not tell.
    pub fn sync_dirty(&self) -> Result<SyncReport, LogError> {
        let _turn = self.syncing.lock();
        self.check_failed()?;
        let taken = {
            let mut dirty = self.dirty.lock();
            let taken = std::mem::take(&mut *dirty);
            // Under the same lock under which files become dirty and their batches readable: what
            // is noted here is covered by the files taken.
            for log in taken.logs.values() {
                log.begin_sync();
            }
            taken
        };
        self.sync_taken(&taken).map_err(|error| {
            let message = error.to_string();
            self.dirty.lock().failed = Some(message.clone());
            LogError::SyncFailed(message)
        })?;
        for log in taken.logs.values() {
            log.end_sync();
        }
        Ok(SyncReport {
            files: taken.files.len() as u64,
            directories: taken.dirs.len() as u64,
            partitions: taken.logs.len() as u64,
        })
    }

    fn sync_taken(&self, taken: &Dirty) -> Result<(), LogError> {
        let many = taken.files.len() + taken.dirs.len() > SYNC_EACH_UP_TO;
        if (taken.whole || many)
            && let Some(file_system) = &self.file_system
        {
            let root = self.store.root();
            return file_system.sync().map_err(|e| LogError::io(root, e));
        }
        // In a fixed order, so that a simulated run is the same every time.
        let files: BTreeMap<&PathBuf, &Arc<dyn DiskFile>> = taken.files.iter().collect();
        for (path, file) in files {
            file.sync_data().map_err(|e| LogError::io(path, e))?;
        }
        for dir in &taken.dirs {
            match self.store.disk.sync_dir(dir) {
                // A partition that was deleted meanwhile.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                done => done.map_err(|e| LogError::io(dir, e))?,
            }
        }
        Ok(())
    }

    /// Files written and not yet synced.
    pub fn dirty_files(&self) -> usize {
        self.dirty.lock().files.len()
    }

    /// Forgets a closed log ([`PartitionLog::close`]): its files need no sync any more.
    pub fn forget(&self, log: &PartitionLog) {
        let mut dirty = self.dirty.lock();
        dirty.logs.remove(&log.partition());
        dirty.files.retain(|path, _| !path.starts_with(log.dir()));
        dirty.dirs.remove(log.dir());
    }

    fn check_failed(&self) -> Result<(), LogError> {
        match &self.dirty.lock().failed {
            Some(message) => Err(LogError::SyncFailed(message.clone())),
            None => Ok(()),
        }
    }

    /// Writes `round`, segment by segment.
    fn write_round(
        &self,
        log: &Arc<PartitionLog>,
        round: Vec<TailBatch>,
        report: &mut FlushReport,
    ) -> Result<(), LogError> {
        let rules = log.segment_rules();
        let partition = log.partition();
        let mut batches = &round[..];
        while let Some(first) = batches.first() {
            let active = match log.active_segment() {
                Some(active) => Some((active, self.began(log, &active)?)),
                None => None,
            };
            let has_room = |state: &SegmentState, began, batch: &TailBatch| {
                rules.have_room(partition, state, began, batch)
            };
            let active = active.filter(|(state, began)| has_room(state, *began, first));
            let (start, began) = active.unwrap_or_else(|| {
                let fresh = SegmentState::empty(first.base_offset);
                (fresh, Began::with(first))
            });
            let mut fitting = 0;
            let mut next = start;
            for batch in batches {
                // An empty segment takes any batch.
                if next.entries > 0 && !has_room(&next, began, batch) {
                    break;
                }
                next.log_bytes += batch.bytes.len() as u64;
                next.entries += 1;
                fitting += 1;
            }
            let (group, rest) = batches.split_at(fitting);
            self.write_group(log, start, group)?;
            report.batches += group.len() as u64;
            report.bytes += next.log_bytes - start.log_bytes;
            report.segments_created += u64::from(start.entries == 0);
            batches = rest;
        }
        Ok(())
    }

    /// When the active segment began: read once, after a start.
    fn began(&self, log: &PartitionLog, active: &SegmentState) -> Result<Began, LogError> {
        if let Some(known) = log.began(active.base_offset) {
            return Ok(known);
        }
        let first = SegmentReader::open(&self.store.files, log.dir(), *active)?.entry(0)?;
        let began = Began {
            timestamp: first.max_timestamp,
            tick: first.tick,
        };
        log.note_began(active.base_offset, began);
        Ok(began)
    }

    /// Appends `group` to the segment of `start`, which is made when it has no entries yet.
    fn write_group(
        &self,
        log: &Arc<PartitionLog>,
        start: SegmentState,
        group: &[TailBatch],
    ) -> Result<(), LogError> {
        let dir = log.dir();
        let log_path = segment_path(dir, start.base_offset, FileKind::Log);
        let tick_path = segment_path(dir, start.base_offset, FileKind::TickIndex);
        let mut new_dirs = Vec::new();
        let (log_file, tick_file) = if start.entries == 0 {
            self.make_dir(dir, &mut new_dirs)?;
            let log_file = self.store.files.create(&log_path)?;
            let tick_file = self.store.files.create(&tick_path)?;
            let header = TickIndexHeader {
                cluster_id: self.store.cluster_id(),
                partition: log.partition(),
                base_offset: start.base_offset,
            };
            tick_file
                .write_at(&header.encode(), 0)
                .map_err(|e| LogError::io(&tick_path, e))?;
            (log_file, tick_file)
        } else {
            (
                self.store.files.get(&log_path)?,
                self.store.files.get(&tick_path)?,
            )
        };

        let mut end = start;
        let mut slices = Vec::with_capacity(group.len());
        let mut entries = Vec::with_capacity(group.len() * TICK_ENTRY_BYTES);
        for batch in group {
            let position = u32::try_from(end.log_bytes).expect("segments are shorter than 2 GiB");
            let entry = TickEntry::of(batch, position, end.max_timestamp);
            entries.extend_from_slice(&entry.encode());
            slices.push(IoSlice::new(&batch.bytes));
            let size = batch.bytes.len() as u64;
            end.log_bytes += size;
            end.entries += 1;
            end.next_offset = batch.last_offset + 1;
            end.max_timestamp = entry.running_max_timestamp;
            end.last_tick = batch.tick;
        }
        let crc = crc32c_of(group.iter().map(|batch| &batch.bytes[..]));
        end.log_crc = crc32c_combine(start.log_crc, crc, end.log_bytes - start.log_bytes);
        // Space first: a full disk is met here, where nothing is half done, and not at the sync.
        let tick_position = entry_position(start.entries);
        log_file
            .allocate(start.log_bytes, end.log_bytes - start.log_bytes)
            .and_then(|()| self.write_beside(&*log_file, &slices, start.log_bytes))
            .map_err(|e| LogError::io(&log_path, e))?;
        tick_file
            .allocate(tick_position, entries.len() as u64)
            .and_then(|()| tick_file.write_at(&entries, tick_position))
            .map_err(|e| LogError::io(&tick_path, e))?;

        let mut dirty = self.dirty.lock();
        dirty.files.insert(log_path, log_file.clone());
        dirty.files.insert(tick_path, tick_file);
        dirty.dirs.extend(new_dirs);
        dirty.logs.insert(log.partition(), log.clone());
        log.switch_to_segment(end, group);
        drop(dirty);
        if let Some(beside) = &self.beside {
            beside.room_made();
        }
        Ok(())
    }

    /// Writes `slices` from position `at` with regard to others.
    fn write_beside(
        &self,
        file: &dyn DiskFile,
        slices: &[IoSlice<'_>],
        mut at: u64,
    ) -> io::Result<()> {
        let bytes: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        let beside = self.beside.as_ref().filter(|_| bytes >= PIECE_BYTES_MIN);
        let Some(beside) = beside else {
            return file.write_vectored_at(slices, at);
        };
        let mut has_time = true;
        for piece in pieces(slices, PIECE_BYTES as usize) {
            let bytes = piece.iter().map(|slice| slice.len() as u64).sum();
            has_time = has_time && beside.wait_for_turn(bytes);
            file.write_vectored_at(&piece, at)?;
            if has_time {
                file.begin_write_back(at, bytes);
            }
            at += bytes;
        }
        Ok(())
    }

    /// Makes a partition's directory; `new_dirs` gets what must be synced for the new files' names
    /// to last.
    fn make_dir(&self, dir: &Path, new_dirs: &mut Vec<PathBuf>) -> Result<(), LogError> {
        let disk = &self.store.disk;
        let on_dir = |e| LogError::io(dir, e);
        if !disk.exists(dir).map_err(on_dir)? {
            disk.create_dir_all(dir).map_err(on_dir)?;
        }
        // Also when it was there: an earlier flush may have made it and failed then.
        new_dirs.push(self.store.root().to_owned());
        new_dirs.push(dir.to_owned());
        Ok(())
    }

    /// Builds the derived indexes of a segment that no longer grows.
    fn seal(&self, log: &Arc<PartitionLog>, state: &SegmentState) -> Result<(), LogError> {
        let interval_bytes = log.segment_rules().index_interval_bytes;
        let files = seal::build_indexes(&self.store, log.dir(), state, interval_bytes)?;
        let mut dirty = self.dirty.lock();
        dirty.files.extend(files);
        dirty.dirs.insert(log.dir().to_owned());
        dirty.logs.insert(log.partition(), log.clone());
        log.mark_indexed(state.base_offset);
        Ok(())
    }
}

/// The bytes of `slices` in pieces of `piece_bytes`; the last one may be shorter.
fn pieces<'a>(slices: &'a [IoSlice<'a>], piece_bytes: usize) -> Vec<Vec<IoSlice<'a>>> {
    let mut pieces: Vec<Vec<IoSlice<'a>>> = Vec::new();
    let mut room = 0;
    for slice in slices {
        let mut rest = &slice[..];
        while !rest.is_empty() {
            if room == 0 {
                pieces.push(Vec::new());
                room = piece_bytes;
            }
            let (head, tail) = rest.split_at(room.min(rest.len()));
            if let Some(piece) = pieces.last_mut() {
                piece.push(IoSlice::new(head));
            }
            room -= head.len();
            rest = tail;
        }
    }
    pieces
}

impl PartitionLog {
    fn is_worth_a_flush(&self, confirmed: Tick, policy: &FlushPolicy) -> bool {
        let inner = self.lock();
        let Some(oldest) = inner.tail.front().filter(|b| b.tick <= confirmed) else {
            return false;
        };
        if inner.closed {
            return false;
        }
        if policy.force || policy.older_than.is_some_and(|tick| oldest.tick <= tick) {
            return true;
        }
        if inner.tail_bytes < policy.min_bytes {
            return false;
        }
        let mut bytes = 0;
        inner
            .tail
            .iter()
            .take_while(|batch| batch.tick <= confirmed)
            .any(|batch| {
                bytes += batch.bytes.len() as u64;
                bytes >= policy.min_bytes
            })
    }

    /// The oldest confirmed batches, up to `max_bytes` but at least one; `None` when there are
    /// none. They stay in the tail.
    fn next_round(&self, confirmed: Tick, max_bytes: usize) -> Option<Vec<TailBatch>> {
        let inner = self.lock();
        if inner.closed {
            return None;
        }
        let mut bytes = 0;
        let round: Vec<TailBatch> = inner
            .tail
            .iter()
            .take(ROUND_BATCHES)
            .take_while(|batch| {
                // I10: only what is confirmed.
                let first = bytes == 0;
                bytes += batch.bytes.len();
                batch.tick <= confirmed && (first || bytes <= max_bytes)
            })
            .cloned()
            .collect();
        (!round.is_empty()).then_some(round)
    }

    fn active_segment(&self) -> Option<SegmentState> {
        self.lock().segments.last().map(|slot| slot.written)
    }

    /// The files of its last segment may be longer than it is: see [`PartitionLog::recover`].
    pub fn has_longer_segment(&self) -> bool {
        self.longer_segment().is_some()
    }

    fn longer_segment(&self) -> Option<SegmentState> {
        let inner = self.lock();
        let last = inner.segments.last().filter(|slot| slot.is_longer)?;
        (!inner.closed).then_some(last.written)
    }

    /// Only a flush adds to the last segment or makes another, so it is the one that was cut.
    fn mark_cut(&self) {
        if let Some(last) = self.lock().segments.last_mut() {
            last.is_longer = false;
        }
    }

    fn began(&self, base_offset: i64) -> Option<Began> {
        let inner = self.lock();
        let active = inner.segments.last()?;
        active
            .began
            .filter(|_| active.written.base_offset == base_offset)
    }

    fn note_began(&self, base_offset: i64, began: Began) {
        let mut inner = self.lock();
        let active = inner.segments.last_mut();
        if let Some(active) = active.filter(|slot| slot.written.base_offset == base_offset) {
            active.began = Some(began);
        }
    }

    /// Segments that no longer grow and have no indexes yet.
    fn unindexed(&self) -> Vec<SegmentState> {
        let inner = self.lock();
        if inner.closed {
            return Vec::new();
        }
        let sealed = inner.segments.len().saturating_sub(1);
        inner.segments[..sealed]
            .iter()
            .map(|slot| slot.written)
            .filter(|state| !state.indexed)
            .collect()
    }

    fn mark_indexed(&self, base_offset: i64) {
        let mut inner = self.lock();
        if let Some(slot) = inner
            .segments
            .iter_mut()
            .find(|slot| slot.written.base_offset == base_offset)
        {
            slot.written.indexed = true;
        }
    }

    /// The batches of `group` are now read from the segment, which ends at `end`, and no longer
    /// from the tail.
    fn switch_to_segment(&self, end: SegmentState, group: &[TailBatch]) {
        let mut inner = self.lock();
        let grows = inner
            .segments
            .last()
            .is_some_and(|slot| slot.written.base_offset == end.base_offset);
        if !grows {
            let mut slot = Slot::new(end.base_offset);
            slot.began = Some(Began::with(&group[0]));
            inner.segments.push(slot);
        }
        let slot = inner.segments.last_mut().expect("one was pushed");
        slot.written = end;
        slot.unsynced_from.get_or_insert(group[0].index);
        let moved: Vec<TailBatch> = inner.tail.drain(..group.len()).collect();
        assert!(
            moved
                .iter()
                .zip(group)
                .all(|(a, b)| a.base_offset == b.base_offset),
            "only a flush shortens the tail"
        );
        let bytes: u64 = moved.iter().map(|batch| batch.bytes.len() as u64).sum();
        inner.tail_bytes -= bytes;
        if inner.tail.capacity() > 64 && inner.tail.len() * 4 < inner.tail.capacity() {
            let keep = inner.tail.len() * 2;
            inner.tail.shrink_to(keep);
        }
        // The memory is given back outside the lock.
        drop(inner);
        self.store
            .sub_tail_bytes(moved.iter().map(TailBatch::charge).sum());
    }

    /// Notes what the sync that begins now will cover.
    fn begin_sync(&self) {
        for slot in &mut self.lock().segments {
            if slot.written != slot.synced {
                slot.syncing = Some(slot.written);
                slot.syncing_from = slot.unsynced_from.take();
            }
        }
    }

    fn end_sync(&self) {
        for slot in &mut self.lock().segments {
            if let Some(covered) = slot.syncing.take() {
                slot.synced = covered;
                slot.syncing_from = None;
            }
        }
    }
}
