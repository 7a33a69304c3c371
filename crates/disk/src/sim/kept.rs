//! Keeping a simulated disk: the calls it was asked for, in order, what a cut left of them, and its
//! files as files of the operating system, from which the same disk is made again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::SimDisk;
use super::inode::Inode;
use super::names::{Entry, Ino, Names, ROOT};

/// What was asked of a disk, a line each, while it is recorded.
#[derive(Default)]
pub(super) struct Notes(Option<Vec<String>>);

impl Notes {
    pub(super) fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    pub(super) fn are_taken(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(line());
        }
    }
}

impl SimDisk {
    /// From now on every call that changes something is noted, with the thread that made it, and at a
    /// cut which of what was not synced is left. The disks after a cut or a kill note theirs too.
    pub fn record_calls(&self) {
        self.inner.state.lock().notes.begin();
    }

    /// What was noted so far.
    pub fn recorded_calls(&self) -> Vec<String> {
        let state = self.inner.state.lock();
        state.notes.0.clone().unwrap_or_default()
    }

    /// Writes every file, with its holes, into a directory of the operating system. What is not synced
    /// is written too: on a disk that a cut has left there is no such thing.
    pub fn export(&self, to: &Path) -> io::Result<()> {
        let state = self.inner.state.lock();
        fs::create_dir_all(to)?;
        let mut dirs = vec![(ROOT, to.to_path_buf())];
        while let Some((dir, at)) = dirs.pop() {
            for (name, entry) in state.names.entries(dir) {
                let path = at.join(name);
                match entry {
                    Entry::Dir(below) => {
                        fs::create_dir(&path)?;
                        dirs.push((*below, path));
                    }
                    Entry::File(ino) => {
                        let (inode, file) = (&state.inodes[ino], File::create(&path)?);
                        file.set_len(inode.len())?;
                        for (position, bytes) in inode.pieces() {
                            file.write_all_at(bytes, position)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The disk with the files of a directory, all synced. `seed` is that of [`SimDisk::new`]; with
    /// what was given to [`SimDisk::crash`] it is the disk that came out of it.
    pub fn import(from: &Path, seed: u64) -> io::Result<SimDisk> {
        let disk = SimDisk::new(seed);
        let mut state = disk.inner.state.lock();
        let mut names = Names::default();
        let mut dirs = vec![(ROOT, from.to_path_buf())];
        while let Some((dir, at)) = dirs.pop() {
            let mut entries = fs::read_dir(&at)?.collect::<io::Result<Vec<_>>>()?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let name = entry.file_name().into_string();
                let name =
                    name.map_err(|name| io::Error::other(format!("{name:?} is not UTF-8")))?;
                let ino: Ino = state.next_ino;
                state.next_ino += 1;
                if entry.file_type()?.is_dir() {
                    names.link(dir, &name, Entry::Dir(ino));
                    dirs.push((ino, entry.path()));
                } else {
                    names.link(dir, &name, Entry::File(ino));
                    let mut inode = Inode::holding(&fs::read(entry.path())?);
                    inode.links = 1;
                    state.inodes.insert(ino, inode);
                }
            }
        }
        names.sync_all();
        state.names = names;
        drop(state);
        Ok(disk)
    }
}

/// The name of the thread that calls.
pub(super) fn caller() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a thread").to_owned()
}
