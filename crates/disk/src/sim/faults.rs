//! What a test can do to the simulated disk, and what it can ask.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::MutexGuard;

use super::{SimDisk, State};

/// EIO of Linux.
const EIO: i32 = 5;
/// ENOSPC of Linux.
const ENOSPC: i32 = 28;

pub(super) fn eio() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

pub(super) fn enospc() -> io::Error {
    io::Error::from_raw_os_error(ENOSPC)
}

/// An error to be answered to a coming call of one kind.
#[derive(Default)]
pub(super) struct FailNext {
    /// (calls that still succeed, errno)
    next: Option<(u64, i32)>,
    /// Only calls on paths below it are counted and fail.
    below: PathBuf,
}

impl FailNext {
    /// As [`FailNext::take`], noting the path that the error was answered for.
    pub(super) fn take_on(&mut self, path: &Path, hit: &mut Vec<PathBuf>) -> io::Result<()> {
        if !path.starts_with(&self.below) {
            return Ok(());
        }
        let taken = self.take();
        if taken.is_err() {
            hit.push(path.to_path_buf());
        }
        taken
    }

    pub(super) fn take(&mut self) -> io::Result<()> {
        match self.next {
            Some((0, errno)) => {
                self.next = None;
                Err(io::Error::from_raw_os_error(errno))
            }
            Some((skip, errno)) => {
                self.next = Some((skip - 1, errno));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Calls counted by the path they were made on.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// `sync_data` calls, held and failed ones included.
    pub syncs: u64,
    /// `sync_data` calls that answered success.
    pub synced: u64,
    pub dir_syncs: u64,
    /// `write_at` and `write_vectored_at` calls.
    pub writes: u64,
}

#[derive(Default)]
pub(super) struct Faults {
    pub(super) powered_off: bool,
    /// Changing calls until the power goes.
    steps_left: Option<u64>,
    steps: u64,
    pub(super) never_sync: bool,
    pub(super) capacity: Option<u64>,
    hold_syncs: bool,
    /// Syncs being held, by number, in the order of their coming.
    held: Vec<u64>,
    /// The number of the next one.
    next_held: u64,
    /// Held ones that may go on.
    let_go: BTreeSet<u64>,
    pub(super) syncs: FailNext,
    pub(super) dir_syncs: FailNext,
    pub(super) renames: FailNext,
    pub(super) creates: FailNext,
    /// Paths of the calls that were failed.
    pub(super) hit: Vec<PathBuf>,
    pub(super) writes: FailNext,
    pub(super) reads: FailNext,
    counts: BTreeMap<PathBuf, Counts>,
}

impl Faults {
    pub(super) fn check_power(&self) -> io::Result<()> {
        if self.powered_off { Err(eio()) } else { Ok(()) }
    }

    pub(super) fn step(&mut self) {
        self.steps += 1;
        if let Some(left) = &mut self.steps_left {
            *left = left.saturating_sub(1);
            self.powered_off |= *left == 0;
        }
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    fn sum(&self, prefix: &Path) -> Counts {
        let mut sum = Counts::default();
        for (_, counts) in (self.counts.iter()).filter(|(path, _)| path.starts_with(prefix)) {
            sum.syncs += counts.syncs;
            sum.synced += counts.synced;
            sum.dir_syncs += counts.dir_syncs;
            sum.writes += counts.writes;
        }
        sum
    }

    pub(super) fn count(&mut self, path: &Path) -> &mut Counts {
        self.counts.entry(path.to_path_buf()).or_default()
    }
}

impl SimDisk {
    /// From now on a file sync blocks until [`SimDisk::release_syncs`].
    pub fn hold_syncs(&self) {
        self.inner.state.lock().faults.hold_syncs = true;
    }

    /// Lets held and later syncs go on.
    pub fn release_syncs(&self) {
        self.inner.state.lock().faults.hold_syncs = false;
        self.inner.changed.notify_all();
    }

    /// Lets the one go on that came `nth` (0: first) of those being held.
    pub fn release_sync(&self, nth: usize) {
        let faults = &mut self.inner.state.lock().faults;
        let number = faults.held[nth];
        faults.let_go.insert(number);
        self.inner.changed.notify_all();
    }

    /// Lets a held sync go on; nothing if it has gone on.
    pub fn release_held_sync(&self, number: u64) {
        let faults = &mut self.inner.state.lock().faults;
        if faults.held.contains(&number) {
            faults.let_go.insert(number);
        }
        self.inner.changed.notify_all();
    }

    /// The number of the sync that has been held longest.
    pub fn first_held_sync(&self) -> Option<u64> {
        self.inner.state.lock().faults.held.first().copied()
    }

    /// Blocks until `count` syncs are being held.
    pub fn wait_for_held_syncs(&self, count: usize) {
        let mut state = self.inner.state.lock();
        while state.faults.held.len() < count {
            self.inner.changed.wait(&mut state);
        }
    }

    /// Syncs being held now.
    pub fn held_syncs(&self) -> usize {
        self.inner.state.lock().faults.held.len()
    }

    pub(super) fn wait_while_held(&self, state: &mut MutexGuard<'_, State>) {
        if !state.faults.hold_syncs {
            return;
        }
        let number = state.faults.next_held;
        state.faults.next_held += 1;
        state.faults.held.push(number);
        self.inner.changed.notify_all();
        while state.faults.hold_syncs
            && !state.faults.powered_off
            && !state.faults.let_go.contains(&number)
        {
            self.inner.changed.wait(state);
        }
        state.faults.let_go.remove(&number);
        state.faults.held.retain(|held| *held != number);
        self.inner.changed.notify_all();
    }

    /// The next file sync fails with `errno`; what it should have made durable then reads well
    /// until the next crash, and is gone after it. The next sync on another handle of the file that is
    /// open by then fails with EIO.
    pub fn fail_next_sync(&self, errno: i32) {
        self.fail_sync_after(0, errno);
    }

    /// The file sync after the next `skip` ones fails with `errno`.
    pub fn fail_sync_after(&self, skip: u64, errno: i32) {
        self.inner.state.lock().faults.syncs.next = Some((skip, errno));
    }

    /// The directory sync after the next `skip` ones fails with `errno`; the names stay unsynced.
    pub fn fail_dir_sync_after(&self, skip: u64, errno: i32) {
        self.inner.state.lock().faults.dir_syncs.next = Some((skip, errno));
    }

    /// The rename after the next `skip` ones fails with `errno` and renames nothing.
    pub fn fail_rename_after(&self, skip: u64, errno: i32) {
        self.inner.state.lock().faults.renames.next = Some((skip, errno));
    }

    /// After the next `skip` ones the making of a file or a lock fails once with `errno`.
    pub fn fail_create_after(&self, skip: u64, errno: i32) {
        self.inner.state.lock().faults.creates.next = Some((skip, errno));
    }

    /// The paths of file syncs, directory syncs, renames (the new name) and writes that were failed
    /// so far.
    pub fn failed_paths(&self) -> Vec<PathBuf> {
        self.inner.state.lock().faults.hit.clone()
    }

    /// The write after the next `skip` ones fails with `errno` and writes nothing.
    pub fn fail_write_after(&self, skip: u64, errno: i32) {
        self.inner.state.lock().faults.writes = FailNext {
            next: Some((skip, errno)),
            below: PathBuf::new(),
        };
    }

    /// The next write to a file below `dir` fails with `errno` and writes nothing.
    pub fn fail_write_below(&self, dir: &Path, errno: i32) {
        self.inner.state.lock().faults.writes = FailNext {
            next: Some((0, errno)),
            below: dir.to_path_buf(),
        };
    }

    /// The read after the next `skip` ones fails with `errno`.
    pub fn fail_read_after(&self, skip: u64, errno: i32) {
        self.inner.state.lock().faults.reads.next = Some((skip, errno));
    }

    /// Limits the space of all files together; `None` is no limit. Beyond it: ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.inner.state.lock().faults.capacity = bytes;
    }

    /// Makes every sync a lie: it answers success and does nothing. For tests of tests.
    pub fn never_sync(&self, lie: bool) {
        self.inner.state.lock().faults.never_sync = lie;
    }

    /// Cuts the power within the `steps`-th changing call from now (1 = the next): a write is then
    /// in flight, anything else has not happened. What the next start finds is [`SimDisk::crash`].
    pub fn cut_power_after(&self, steps: u64) {
        self.inner.state.lock().faults.steps_left = Some(steps);
    }

    /// True once the power was cut.
    pub fn is_powered_off(&self) -> bool {
        self.inner.state.lock().faults.powered_off
    }

    /// Changing calls so far, the range for [`SimDisk::cut_power_after`].
    pub fn steps(&self) -> u64 {
        self.inner.state.lock().faults.steps
    }

    /// Calls on paths at or below `prefix`.
    pub fn counts(&self, prefix: &Path) -> Counts {
        self.inner.state.lock().faults.sum(prefix)
    }

    /// Blocks until `count` file syncs at or below `prefix` have succeeded since the disk was made.
    pub fn wait_for_syncs(&self, prefix: &Path, count: u64) {
        let mut state = self.inner.state.lock();
        while state.faults.sum(prefix).synced < count {
            self.inner.changed.wait(&mut state);
        }
    }
}
