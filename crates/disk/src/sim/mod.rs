//! A disk in memory that can lose power, for tests.
//!
//! It keeps what was synced apart from what was only written: bytes by page, lengths, and names.
//! After [`SimDisk::crash`] unsynced pages may be there or not, in any combination and across
//! files, torn at 512 bytes; an overwrite that was lost shows the old bytes; a length may survive
//! without its data; a name that was not synced may be gone. Everything random comes from seeds.

mod faults;
mod inode;
mod kept;
mod names;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::{DirEntry, Disk, DiskFile, FileSystem, OpenMode};
use faults::Faults;
use inode::Inode;
use kept::Notes;
use names::{Entry, Ino, Names};

/// The simulated disk; clones are handles on the same one.
#[derive(Clone)]
pub struct SimDisk {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Told at every change that a test or a held sync may wait for.
    changed: Condvar,
}

struct State {
    names: Names,
    inodes: BTreeMap<Ino, Inode>,
    next_ino: Ino,
    locked: BTreeSet<PathBuf>,
    rng: StdRng,
    faults: Faults,
    notes: Notes,
}

impl SimDisk {
    /// An empty disk. The seed decides when the kernel writes dirty pages back on its own.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::with(Names::default(), BTreeMap::new(), 1, seed)
    }

    fn with(names: Names, inodes: BTreeMap<Ino, Inode>, next_ino: Ino, seed: u64) -> SimDisk {
        SimDisk {
            inner: Arc::new(Inner {
                state: Mutex::new(State {
                    names,
                    inodes,
                    next_ino,
                    locked: BTreeSet::new(),
                    rng: StdRng::seed_from_u64(seed),
                    faults: Faults::default(),
                    notes: Notes::default(),
                }),
                changed: Condvar::new(),
            }),
        }
    }

    /// Cuts the power and returns the disk that the next start finds. This one answers every later
    /// call with an error; held syncs end with one. May be called again with another seed, for
    /// another outcome of the same cut.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut state = self.inner.state.lock();
        state.faults.powered_off = true;
        self.inner.changed.notify_all();
        let steps = state.faults.steps();
        let mut told = vec![format!("power cut after call {steps}, seed {seed}")];
        let names = state.names.crashed(&mut rng, &mut |line| told.push(line));
        let mut inodes = BTreeMap::new();
        for ino in names.live_files() {
            let after = inodes.entry(ino).or_insert_with(|| {
                let mut tell = |line| told.push(format!("of file {ino} {line}"));
                state.inodes[&ino].crashed(&mut rng, &mut tell)
            });
            after.links += 1;
        }
        let next = SimDisk::with(names, inodes, state.next_ino, SimDisk::seed_after(seed));
        if state.notes.are_taken() {
            told.into_iter().for_each(|line| state.notes.note(|| line));
            next.record_calls();
        }
        next
    }

    /// The seed of the disk that [`SimDisk::crash`] returns.
    pub fn seed_after(crash: u64) -> u64 {
        crash.rotate_left(17) ^ 0x5eed
    }

    /// Ends the process and not the machine: everything that was written is there for the next one,
    /// and what was not synced still is not. This one answers every later call with an error.
    pub fn kill(&self) -> SimDisk {
        self.inner.state.lock().faults.powered_off = true;
        self.inner.changed.notify_all();
        self.fork()
    }

    /// A copy of this disk, with what is synced and what is not; both go on for themselves. Cheap:
    /// pages are shared until one of the two writes.
    pub fn fork(&self) -> SimDisk {
        let mut state = self.inner.state.lock();
        let mut inodes = state.inodes.clone();
        inodes.values_mut().for_each(|inode| inode.handles = 0);
        let next = SimDisk::with(
            state.names.clone(),
            inodes,
            state.next_ino,
            state.rng.random(),
        );
        if state.notes.are_taken() {
            next.record_calls();
        }
        drop(state);
        next.inner.state.lock().collect();
        next
    }

    /// Changes one byte of a file where it lies, past all caches.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) -> io::Result<()> {
        let mut state = self.inner.state.lock();
        let ino = state.file(path)?;
        state.inode(ino).corrupt(offset, xor);
        Ok(())
    }

    /// Space taken by all files, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.inner.state.lock().used()
    }

    /// The state, for an operation that only reads.
    fn reading(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.inner.state.lock();
        state.faults.check_power()?;
        Ok(state)
    }

    /// The state, for an operation that changes something: one step of `cut_power_after`. When the
    /// power goes at this step, nothing of it has happened.
    fn changing(&self, what: impl FnOnce() -> String) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.reading()?;
        state.step(what);
        state.faults.check_power()?;
        Ok(state)
    }
}

impl State {
    /// Counts a call that changes something, and notes it: `what` it is.
    fn step(&mut self, what: impl FnOnce() -> String) {
        self.faults.step();
        let step = self.faults.steps();
        self.notes
            .note(|| format!("{step} {}: {}", kept::caller(), what()));
    }

    fn inode(&mut self, ino: Ino) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("a linked or open inode")
    }

    fn file(&self, path: &Path) -> io::Result<Ino> {
        match self.names.lookup(path)? {
            Some(Entry::File(ino)) => Ok(ino),
            Some(Entry::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{}", path.display()),
            )),
        }
    }

    fn used(&self) -> u64 {
        let held = self.inodes.values().filter(|i| i.links + i.handles > 0);
        held.map(Inode::space).sum()
    }

    /// ENOSPC unless the file may grow to `end`.
    fn check_space(&self, ino: Ino, end: u64) -> io::Result<()> {
        let Some(capacity) = self.faults.capacity else {
            return Ok(());
        };
        let inode = &self.inodes[&ino];
        let more = inode.space_with_end(end) - inode.space();
        if more > 0 && self.used() + more > capacity {
            return Err(faults::enospc());
        }
        Ok(())
    }

    fn create(&mut self, dir: Ino, name: &str) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.inodes.entry(ino).or_default().links = 1;
        self.names.link(dir, name, Entry::File(ino));
        ino
    }

    fn unlink(&mut self, dir: Ino, name: &str, entry: Entry) {
        self.names.unlink(dir, name);
        if let Entry::File(ino) = entry {
            self.inode(ino).links -= 1;
        }
    }

    fn remove_tree(&mut self, dir: Ino) {
        let entries: Vec<(String, Entry)> = self
            .names
            .entries(dir)
            .map(|(name, entry)| (name.clone(), *entry))
            .collect();
        for (name, entry) in entries {
            if let Entry::Dir(below) = entry {
                self.remove_tree(below);
            }
            self.unlink(dir, &name, entry);
        }
    }

    /// Frees the bytes of files that no view, no crash and no handle can reach.
    fn collect(&mut self) {
        let names = &self.names;
        self.inodes
            .retain(|ino, inode| inode.links + inode.handles > 0 || names.reachable(*ino));
    }
}

impl Disk for SimDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.changing(|| format!("make directory {}", dir.display()))?;
        let mut at = names::ROOT;
        for name in names::parts(dir)? {
            at = match state.names.get(at, &name) {
                Some(Entry::Dir(below)) => below,
                Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    let ino = state.next_ino;
                    state.next_ino += 1;
                    state.names.link(at, &name, Entry::Dir(ino));
                    ino
                }
            };
        }
        Ok(())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.reading()?;
        let (dir, name) = state.names.parent(path)?;
        let ino = match (state.names.get(dir, &name), mode) {
            (Some(Entry::Dir(_)), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(Entry::File(_)), OpenMode::CreateNew) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    format!("{}", path.display()),
                ));
            }
            (Some(Entry::File(ino)), _) => ino,
            (None, OpenMode::Read | OpenMode::ReadWrite) => {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    format!("{}", path.display()),
                ));
            }
            (None, OpenMode::CreateNew | OpenMode::OpenOrCreate) => {
                let ino = state.next_ino;
                state.step(|| format!("make file {ino} {}", path.display()));
                state.faults.creates.take()?;
                state.create(dir, &name)
            }
        };
        state.inode(ino).handles += 1;
        let told_failures = AtomicU64::new(state.inode(ino).failures);
        Ok(Arc::new(SimFile {
            told_failures,
            disk: self.clone(),
            path: path.to_path_buf(),
            ino,
            writable: mode != OpenMode::Read,
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.reading()?;
        let dir = state.names.dir(dir)?;
        Ok(state
            .names
            .entries(dir)
            .map(|(name, entry)| DirEntry {
                name: name.clone(),
                is_dir: matches!(entry, Entry::Dir(_)),
            })
            .collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.reading()?.names.lookup(path)?.is_some())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state =
            self.changing(|| format!("rename {} to {}", from.display(), to.display()))?;
        let Faults { renames, hit, .. } = &mut state.faults;
        renames.take_on(to, hit)?;
        let source = state.names.parent(from)?;
        let target = state.names.parent(to)?;
        let Some(entry) = state.names.get(source.0, &source.1) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        match (entry, state.names.get(target.0, &target.1)) {
            (_, None) => {}
            (moved, Some(replaced)) if moved == replaced => return Ok(()),
            (Entry::File(_), Some(Entry::File(old))) => state.inode(old).links -= 1,
            (Entry::Dir(_), Some(Entry::Dir(old))) if state.names.entries(old).next().is_none() => {
            }
            (_, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
        }
        state.names.rename(source, target, entry);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.changing(|| format!("remove {}", path.display()))?;
        let ino = state.file(path)?;
        let (dir, name) = state.names.parent(path)?;
        state.unlink(dir, &name, Entry::File(ino));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.changing(|| format!("remove directory {}", path.display()))?;
        let below = state.names.dir(path)?;
        let (dir, name) = state.names.parent(path)?;
        if state.names.entries(below).next().is_some() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.unlink(dir, &name, Entry::Dir(below));
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state =
            self.changing(|| format!("remove directory {} and below", path.display()))?;
        let below = state.names.dir(path)?;
        let (dir, name) = state.names.parent(path)?;
        state.remove_tree(below);
        state.unlink(dir, &name, Entry::Dir(below));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.changing(|| format!("sync directory {}", dir.display()))?;
        let ino = state.names.dir(dir)?;
        state.faults.count(dir).dir_syncs += 1;
        let Faults { dir_syncs, hit, .. } = &mut state.faults;
        dir_syncs.take_on(dir, hit)?;
        if !state.faults.never_sync {
            state.names.sync(ino);
            state.collect();
        }
        Ok(())
    }

    fn file_system(&self, _dir: &Path) -> io::Result<Option<Box<dyn FileSystem>>> {
        Ok(Some(Box::new(self.clone())))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.changing(|| format!("lock {}", path.display()))?;
        let (dir, name) = state.names.parent(path)?;
        if state.names.get(dir, &name).is_none() {
            state.faults.creates.take()?;
            state.create(dir, &name);
        }
        if !state.locked.insert(path.to_path_buf()) {
            return Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("{} is locked by another process", path.display()),
            ));
        }
        Ok(Box::new(Held {
            disk: self.clone(),
            path: path.to_path_buf(),
        }))
    }
}

impl FileSystem for SimDisk {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.changing(|| "sync everything".to_owned())?;
        let root = PathBuf::from("/");
        state.faults.count(&root).syncs += 1;
        self.wait_while_held(&mut state);
        state.faults.check_power()?;
        if let Err(e) = state.faults.syncs.take() {
            state.inodes.values_mut().for_each(Inode::fail_sync);
            return Err(e);
        }
        if !state.faults.never_sync {
            state.inodes.values_mut().for_each(Inode::sync);
            state.names.sync_all();
            state.collect();
        }
        state.faults.count(&root).synced += 1;
        self.inner.changed.notify_all();
        Ok(())
    }
}

struct Held {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.inner.state.lock().locked.remove(&self.path);
    }
}

struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    ino: Ino,
    writable: bool,
    /// Failures of the file that this handle has told of.
    told_failures: AtomicU64,
}

impl SimFile {
    fn told(&self) -> String {
        format!("file {} {}", self.ino, self.path.display())
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the file was opened for reading",
            ))
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.reading()?;
        state.faults.reads.take()?;
        Ok(state.inode(self.ino).read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_vectored_at(&[IoSlice::new(buf)], offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.disk.reading()?;
        let state = &mut *state;
        state.step(|| {
            let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
            format!("write {} at {offset}, {bytes} bytes", self.told())
        });
        let Faults { writes, hit, .. } = &mut state.faults;
        writes.take_on(&self.path, hit)?;
        state.faults.count(&self.path).writes += 1;
        for buf in bufs.iter().filter(|buf| !buf.is_empty()) {
            state.check_space(self.ino, offset + buf.len() as u64)?;
            let inode = state.inodes.get_mut(&self.ino).expect("an open inode");
            inode.write(buf, offset, &mut state.rng);
            offset += buf.len() as u64;
        }
        // The write that the power cut falls on is in flight: its pages share the fate of the rest.
        state.faults.check_power()
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        let what = || format!("allocate {} to {}", self.told(), offset + len);
        let mut state = self.disk.changing(what)?;
        state.check_space(self.ino, offset + len)?;
        state.inode(self.ino).reserve(offset + len);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        let what = || format!("set the length of {} to {len}", self.told());
        let mut state = self.disk.changing(what)?;
        state.check_space(self.ino, len)?;
        state.inode(self.ino).set_len(len);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.reading()?.inode(self.ino).len())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.changing(|| format!("sync {}", self.told()))?;
        state.faults.count(&self.path).syncs += 1;
        self.disk.wait_while_held(&mut state);
        // A sync that the power cut falls on has done nothing yet.
        state.faults.check_power()?;
        let Faults { syncs, hit, .. } = &mut state.faults;
        if let Err(e) = syncs.take_on(&self.path, hit) {
            let inode = state.inode(self.ino);
            inode.fail_sync();
            self.told_failures.store(inode.failures, Relaxed);
            return Err(e);
        }
        // As Linux does: each handle tells once, and one that has told does not know any more.
        let failures = state.inode(self.ino).failures;
        if self.told_failures.swap(failures, Relaxed) != failures {
            return Err(faults::eio());
        }
        if !state.faults.never_sync {
            state.inode(self.ino).sync();
        }
        state.faults.count(&self.path).synced += 1;
        self.disk.inner.changed.notify_all();
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.inner.state.lock();
        let inode = state.inode(self.ino);
        inode.handles -= 1;
        if inode.handles == 0 && inode.links == 0 {
            state.collect();
        }
    }
}
