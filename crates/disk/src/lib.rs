//! The disk seam: a trait over files and directories, the operating system's disk behind it
//! ([`OsDisk`]), and a simulated one that can lose power ([`sim::SimDisk`]).
//!
//! Everything durable goes through [`Disk`], so that one test can cut the power at any moment and
//! see what a restart finds. The trait promises as little as a real disk does: bytes are durable
//! after [`DiskFile::sync_data`], a name after [`Disk::sync_dir`] of its directory, and nothing
//! earlier.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

mod os;
mod read_only;
pub mod sim;

pub use os::OsDisk;
pub use read_only::ReadOnlyDisk;
pub use sim::SimDisk;

/// How a file is opened. Every mode but `Read` may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Reads only; `NotFound` when it does not exist.
    Read,
    /// Reads and writes; `NotFound` when it does not exist.
    ReadWrite,
    /// Creates the file; `AlreadyExists` when it exists.
    CreateNew,
    /// Opens the file as it is, or creates it empty.
    OpenOrCreate,
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
}

/// A file system's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpace {
    pub total_bytes: u64,
    /// What a process without privileges may still write.
    pub usable_bytes: u64,
}

/// A file system, as far as Tidemark uses one.
pub trait Disk: Send + Sync + 'static {
    /// Creates `dir` and its missing ancestors. Their names are durable only after each parent was
    /// synced: [`create_dir_all_durable`] does both.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// The entries of a directory, sorted by name. A name that is not UTF-8 is an error
    /// (`InvalidData`): no file of ours has one.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Bytes of a file; `NotFound` when it does not exist.
    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.open(path, OpenMode::Read)?.len()
    }
    /// So many calls are worth making at the same time; 1 where their order must always be the same.
    fn calls_at_once(&self) -> usize {
        1
    }
    /// Atomic within a file system; replaces an existing file.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in `dir` durable (not the bytes of the files, not those of directories
    /// below).
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Lets nobody but this process's user read a file, or look into a directory. Nothing where there
    /// are no users.
    fn make_private(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Ok(())
    }
    /// A handle on the file system that holds `dir`, through which everything in it can be synced at
    /// once; `None` where that is not to be had. Keep it open from before the writes whose sync it is
    /// for: it reports the failures since then.
    fn file_system(&self, dir: &Path) -> io::Result<Option<Box<dyn FileSystem>>> {
        let _ = dir;
        Ok(None)
    }
    /// The size of the file system that `dir` is on, and what of it may still be used; `None` where
    /// that is not known.
    fn space(&self, _dir: &Path) -> io::Result<Option<DiskSpace>> {
        Ok(None)
    }
    /// Takes an exclusive advisory lock on `path` (created when missing), held until the value is
    /// dropped. `WouldBlock` when another process, or another holder in this one, has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

/// A whole file system.
pub trait FileSystem: Send + Sync {
    /// Makes everything durable that was written in it before the call, bytes and names. Costs as much
    /// as all that is dirty, also of others; for many files far less than a sync of each. After an
    /// error the same holds as for [`DiskFile::sync_data`].
    fn sync(&self) -> io::Result<()>;
}

/// An open file. All calls name their position; a file has no cursor.
pub trait DiskFile: Send + Sync {
    /// Bytes read, fewer than asked only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf`, or fails after having written some of it.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bufs` one after the other from `offset`, or fails after some of it. Any
    /// number of slices.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Reserves space so that later writes within the range cannot meet ENOSPC. The length of the
    /// file does not change.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Asks the system to begin writing these bytes to the disk, so that the sync that follows later
    /// finds little left to do. A hint: nothing is durable for it, nothing fails of it, and where
    /// the system knows no such thing it does nothing.
    fn begin_write_back(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// Makes the bytes and the length durable. After an error nothing may be assumed of any write
    /// since the last success, and a second call may succeed without having written them: never
    /// retry.
    fn sync_data(&self) -> io::Result<()>;
}

impl fmt::Debug for dyn DiskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskFile")
    }
}

/// Whether an error tells of something that runs out and comes back (space, a quota, handles,
/// memory), so that nothing but the call itself has failed and it may be made again later. Anything
/// else (EIO, a file system that turned read-only) leaves unknown what is on the disk.
pub fn is_shortage(error: &io::Error) -> bool {
    const EINTR: i32 = 4;
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    matches!(
        error.raw_os_error(),
        Some(EINTR | ENOMEM | ENFILE | EMFILE | ENOSPC | EDQUOT)
    )
}

/// Fills `buf` from `offset`; `UnexpectedEof` when the file is shorter.
pub fn read_exact_at(file: &dyn DiskFile, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let got = file.read_at(buf, offset)?;
    if got == buf.len() {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("{got} of {} bytes at position {offset}", buf.len()),
        ))
    }
}

/// The whole of a file that is known to be small.
pub fn read_all(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    read_exact_at(&*file, &mut bytes, 0)?;
    Ok(bytes)
}

/// Puts `bytes` into `dir/name` so that a power cut leaves the old file or the new one, whole:
/// written under `name.tmp`, synced, renamed, directory synced.
pub fn write_atomic(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let tmp = dir.join(format!("{name}.tmp"));
    let file = disk.open(&tmp, OpenMode::OpenOrCreate)?;
    file.set_len(0)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    disk.rename(&tmp, &dir.join(name))?;
    disk.sync_dir(dir)
}

/// Creates `dir` and its missing ancestors and syncs the parent of each that was created, so that
/// the path survives a power cut.
pub fn create_dir_all_durable(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = Some(dir);
    while let Some(path) = at {
        if path.as_os_str().is_empty() || disk.exists(path)? {
            break;
        }
        missing.push(path);
        at = path.parent();
    }
    disk.create_dir_all(dir)?;
    for path in missing.into_iter().rev() {
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => disk.sync_dir(parent)?,
            _ => disk.sync_dir(Path::new("."))?,
        }
    }
    Ok(())
}
