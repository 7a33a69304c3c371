//! How does a slot file come to be?
//!
//! Filled with zeroes once, so that a sync of it later has no allocation to record; its name synced
//! before its header says that it may be used. A thread of its own does this, and removes files
//! that are no longer wanted. A full disk is waited out; any other error stops the journal: what a
//! disk did not write now it may not have written before either.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use tidemark_disk::{Disk, OpenMode, is_shortage};

use crate::JournalEvent;
use crate::local::{Shared, State};
use crate::slot::{SlotFile, SlotHeader, SlotId, write_header};

/// Zeroes written at a time. The system keeps them in memory in pieces of this size, and with each
/// group that is written later it goes through all pages of the piece.
const PIECE: u64 = 64 << 10;
/// Zeroes that go to the disk at a time: so long may a sync of the journal have to wait behind them.
const CHUNK: u64 = 256 << 10;
/// Zeroes written between two syncs. Each costs a commit of the file system's own journal, for
/// which the journal's writes may have to wait.
const SYNCED_AT_ONCE: u64 = 16 << 20;
/// The disk is left alone so many times as long as a chunk took, and at least as long as that, where
/// there is time until the slot is needed.
const REST_TIMES: u32 = 8;
const REST_MIN: Duration = Duration::from_millis(4);
/// How long after a failure another attempt is made without being asked.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The preparer thread: until the writer is done.
pub(crate) fn run(shared: &Shared) {
    let mut state = shared.state.lock();
    while !state.writer_done {
        if let Some(slot) = state.space.next_doomed() {
            let removed = MutexGuard::unlocked(&mut state, || remove(shared, &slot));
            if let Err(message) = removed {
                fail(shared, &mut state, message);
            }
        } else if let Some(id) = state.space.next_to_prepare() {
            let outcome = MutexGuard::unlocked(&mut state, || prepare(shared, id));
            settle(shared, &mut state, id, outcome);
        } else if std::mem::take(&mut state.space.no_space) {
            // All slots that there may be are there.
            state.notices.push_back(JournalEvent::SpaceFreed);
            shared.writer.notify_all();
        } else {
            shared.preparer.wait(&mut state);
        }
    }
}

fn settle(
    shared: &Shared,
    state: &mut MutexGuard<'_, State>,
    id: SlotId,
    outcome: io::Result<Option<SlotFile>>,
) {
    match outcome {
        Ok(None) => state.space.not_prepared(id),
        Ok(Some(slot)) => {
            state.space.prepared(slot);
            let healed = std::mem::take(&mut state.space.no_space);
            if state.space.owes_space_freed() || healed {
                state.notices.push_back(JournalEvent::SpaceFreed);
            }
            shared.writer.notify_all();
        }
        Err(e) if !is_shortage(&e) => {
            state.space.not_prepared(id);
            let path = SlotFile::path_of(&shared.options.dir, id);
            fail(shared, state, stopped("cannot prepare", &path, &e));
        }
        Err(e) => {
            state.space.not_prepared(id);
            if !std::mem::replace(&mut state.space.no_space, true) {
                let path = SlotFile::path_of(&shared.options.dir, id);
                let message = format!(
                    "journal: cannot prepare {} ({} bytes): {e}. Records are refused once the \
                     prepared slots are full; free some space, it is tried again every second",
                    path.display(),
                    shared.options.slot_bytes
                );
                state.notices.push_back(JournalEvent::NoSpace { message });
            }
            shared.writer.notify_all();
            if !state.writer_done && !state.space.try_again {
                shared.preparer.wait_for(state, RETRY_AFTER);
            }
        }
    }
}

/// `None` when the journal was shut down meanwhile.
fn prepare(shared: &Shared, id: SlotId) -> io::Result<Option<SlotFile>> {
    let (disk, dir) = (&*shared.disk, &*shared.options.dir);
    let done = fill(shared, id);
    if done.is_err() {
        // Half a slot is of no use, and the space is.
        let _ = disk.remove_file(&SlotFile::path_of(dir, id));
    }
    done
}

fn fill(shared: &Shared, id: SlotId) -> io::Result<Option<SlotFile>> {
    let (disk, options) = (&*shared.disk, &shared.options);
    let path = SlotFile::path_of(&options.dir, id);
    let file = disk.open(&path, OpenMode::OpenOrCreate)?;
    if file.len()? > options.slot_bytes {
        file.set_len(options.slot_bytes)?;
    }
    file.allocate(0, options.slot_bytes)?;
    let zeroes = vec![0; PIECE.min(options.slot_bytes) as usize];
    let mut pace = Pace::new(shared);
    let (mut pos, mut synced) = (0, 0);
    while pos < options.slot_bytes {
        let began = Instant::now();
        let (start, end) = (pos, (pos + CHUNK).min(options.slot_bytes));
        while pos < end {
            let len = PIECE.min(end - pos);
            file.write_at(&zeroes[..len as usize], pos)?;
            pos += len;
        }
        file.begin_write_back(start, end - start);
        if pos - synced >= SYNCED_AT_ONCE || pos == options.slot_bytes {
            file.sync_data()?;
            synced = pos;
        }
        let chunks_left = (options.slot_bytes - pos).div_ceil(CHUNK);
        if chunks_left > 0 && !pace.rest(shared, began.elapsed(), chunks_left as u32) {
            return Ok(None);
        }
    }
    disk.sync_dir(&options.dir)?;
    let header = SlotHeader::prepared(options.journal_id, options.slot_bytes);
    write_header(&*file, &header)?;
    Ok(Some(SlotFile {
        id,
        path,
        bytes: options.slot_bytes,
        file,
    }))
}

/// How much time there is, by what the journal writes meanwhile.
struct Pace {
    /// When the preparation began, and the bytes that were written until then.
    began: (Instant, u64),
    /// The same of the last look.
    last: (Instant, u64),
}

impl Pace {
    fn new(shared: &Shared) -> Pace {
        let now = (Instant::now(), shared.bytes.load(Relaxed));
        Pace {
            began: now,
            last: now,
        }
    }

    /// Leaves the disk to others for a while, as long as the slot can still be ready before it is
    /// needed. False when the journal was shut down.
    fn rest(&mut self, shared: &Shared, took: Duration, chunks_left: u32) -> bool {
        let now = (Instant::now(), shared.bytes.load(Relaxed));
        let per_s = |since: (Instant, u64)| {
            (now.1 - since.1) as f64 / (now.0 - since.0).as_secs_f64().max(1e-6)
        };
        let per_s = per_s(self.began).max(per_s(self.last)).max(1.0);
        self.last = now;
        let mut state = shared.state.lock();
        // Half of the time, as the journal may get faster.
        let time_s = (state.space.room() as f64 / per_s / 2.0).min(1e6);
        let per_chunk = Duration::from_secs_f64(time_s) / chunks_left;
        let rest = (took * REST_TIMES).max(REST_MIN);
        let until = now.0 + rest.min(per_chunk.saturating_sub(took));
        while !state.writer_done && !state.space.is_starving() {
            if (shared.preparer.wait_until(&mut state, until)).timed_out() {
                break;
            }
        }
        !state.writer_done
    }
}

/// Stops the journal: the writer tells, and nothing is prepared any more.
fn fail(shared: &Shared, state: &mut MutexGuard<'_, State>, message: String) {
    state.failed = Some(message);
    shared.writer.notify_all();
    while !state.writer_done {
        shared.preparer.wait(state);
    }
}

fn stopped(what: &str, path: &Path, e: &io::Error) -> String {
    format!(
        "journal: {what} {}: {e}. The journal has stopped: what was not acknowledged is not \
         durable, and no more is accepted. Check the disk (the kernel log says more), then start \
         again: every acknowledged record is kept",
        path.display()
    )
}

/// The error is why the journal cannot go on.
fn remove(shared: &Shared, slot: &SlotFile) -> Result<(), String> {
    match remove_file(&*shared.disk, &shared.options.dir, &slot.path) {
        Ok(()) => Ok(()),
        Err(e) if is_shortage(&e) || e.kind() == io::ErrorKind::NotFound => {
            // It holds nothing that is needed; the next start finds it and tries again.
            tracing::warn!("journal: cannot remove {}: {e}", slot.path.display());
            Ok(())
        }
        Err(e) => Err(stopped("cannot remove", &slot.path, &e)),
    }
}

fn remove_file(disk: &dyn Disk, dir: &Path, path: &Path) -> io::Result<()> {
    disk.remove_file(path)?;
    disk.sync_dir(dir)
}
