//! The operating system's disk.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::{DirEntry, Disk, DiskFile, DiskSpace, FileSystem, OpenMode};

/// Linux takes at most this many slices in one pwritev (IOV_MAX).
const SLICES_PER_CALL_MAX: usize = 1024;

/// More than this wait for each other in the file system's own locks.
const CALLS_AT_ONCE_MAX: usize = 4;

/// [`Disk`] over the file system of the operating system.
#[derive(Clone, Copy, Default, Debug)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
            OpenMode::OpenOrCreate => {
                options.write(true).create(true).truncate(false);
            }
        }
        Ok(Arc::new(OsFile {
            file: options.open(path)?,
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{}: the name {name:?} is not UTF-8", dir.display()),
                )
            })?;
            entries.push(DirEntry {
                name,
                is_dir: entry.file_type()?.is_dir(),
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        std::fs::exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        Ok(std::fs::metadata(path)?.len())
    }

    fn calls_at_once(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.min(CALLS_AT_ONCE_MAX)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        let mut permissions = std::fs::metadata(path)?.permissions();
        permissions.set_mode(if std::fs::metadata(path)?.is_dir() {
            0o700
        } else {
            0o600
        });
        std::fs::set_permissions(path, permissions)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn file_system(&self, dir: &Path) -> io::Result<Option<Box<dyn FileSystem>>> {
        #[cfg(target_os = "linux")]
        return Ok(Some(Box::new(OsFileSystem(File::open(dir)?))));
        #[cfg(not(target_os = "linux"))]
        return {
            let _ = dir;
            Ok(None)
        };
    }

    fn space(&self, dir: &Path) -> io::Result<Option<DiskSpace>> {
        let of = rustix::fs::statvfs(dir)?;
        Ok(Some(DiskSpace {
            total_bytes: of.f_blocks.saturating_mul(of.f_frsize),
            usable_bytes: of.f_bavail.saturating_mul(of.f_frsize),
        }))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(OsLock(file))),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("{} is locked by another process", path.display()),
            )),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

/// A lock that is let go when this is dropped, and not only when the last copy of its descriptor is closed:
/// a process that is just being started has copies of all of them until it runs its own program.
struct OsLock(File);

impl Drop for OsLock {
    fn drop(&mut self) {
        let _closing_lets_go_too = self.0.unlock();
    }
}

/// A directory of it, open.
#[cfg(target_os = "linux")]
struct OsFileSystem(File);

#[cfg(target_os = "linux")]
impl FileSystem for OsFileSystem {
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.0)?)
    }
}

struct OsFile {
    file: File,
}

impl DiskFile for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        for mut group in bufs.chunks(SLICES_PER_CALL_MAX) {
            while !group.is_empty() {
                let mut written = match rustix::io::pwritev(&self.file, group, offset) {
                    Ok(0) if group.iter().all(|b| b.is_empty()) => break,
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => n,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(e) => return Err(e.into()),
                };
                offset += written as u64;
                while let Some(first) = group.first().filter(|first| written >= first.len()) {
                    written -= first.len();
                    group = &group[1..];
                }
                if let Some(first) = group.first().filter(|_| written > 0) {
                    // The kernel stopped inside this slice: finish it alone, then go on with whole
                    // ones.
                    self.file.write_all_at(&first[written..], offset)?;
                    offset += (first.len() - written) as u64;
                    group = &group[1..];
                }
            }
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        use rustix::fs::{FallocateFlags, fallocate};
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len) {
            // A file system without it: ENOSPC then shows at the write, which every caller handles.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    #[cfg(target_os = "linux")]
    fn begin_write_back(&self, offset: u64, len: u64) {
        // To the call a length of 0 is all of the file.
        if let Some(len) = std::num::NonZeroU64::new(len) {
            // What is dirty is not dropped for this advice: its write-back begins, and nobody waits.
            let advice = rustix::fs::Advice::DontNeed;
            let _a_hint = rustix::fs::fadvise(&self.file, offset, Some(len), advice);
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{create_dir_all_durable, read_all, read_exact_at, write_atomic};

    #[test]
    fn a_file_keeps_what_was_written_at_each_position() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = OsDisk.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(b"hello", 0).unwrap();
        file.write_vectored_at(
            &[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cd")],
            3,
        )
        .unwrap();
        file.allocate(0, 8192).unwrap();
        file.begin_write_back(2, 3);
        file.begin_write_back(0, 1 << 40);
        file.begin_write_back(0, 0);
        file.sync_data().unwrap();
        assert_eq!(
            file.len().unwrap(),
            7,
            "allocate does not change the length"
        );
        let mut buf = [0; 10];
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 7);
        assert_eq!(&buf[..7], b"helabcd");
        assert_eq!(file.read_at(&mut buf, 100).unwrap(), 0);
        let err = read_exact_at(&*file, &mut buf, 0).unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::UnexpectedEof);
        let again = OsDisk.open(&path, OpenMode::CreateNew).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        file.set_len(2).unwrap();
        assert_eq!(read_all(&OsDisk, &path).unwrap(), b"he");
    }

    #[test]
    fn more_slices_than_one_call_takes_are_all_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = OsDisk
            .open(&dir.path().join("f"), OpenMode::OpenOrCreate)
            .unwrap();
        let bytes: Vec<[u8; 3]> = (0..3000u32).map(|i| [i as u8, (i >> 8) as u8, 7]).collect();
        let slices: Vec<IoSlice<'_>> = bytes.iter().map(|b| IoSlice::new(b)).collect();
        file.write_vectored_at(&slices, 5).unwrap();
        let mut back = vec![0; 9000];
        read_exact_at(&*file, &mut back, 5).unwrap();
        assert_eq!(back, bytes.concat());
    }

    #[test]
    fn directories_list_sorted_and_renames_replace() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        create_dir_all_durable(&OsDisk, &deep).unwrap();
        write_atomic(&OsDisk, &deep, "z", b"1").unwrap();
        write_atomic(&OsDisk, &deep, "z", b"22").unwrap();
        write_atomic(&OsDisk, &deep, "c", b"333").unwrap();
        OsDisk.create_dir_all(&deep.join("m")).unwrap();
        let names: Vec<_> = OsDisk
            .list(&deep)
            .unwrap()
            .into_iter()
            .map(|e| (e.name, e.is_dir))
            .collect();
        let want = [("c", false), ("m", true), ("z", false)];
        assert_eq!(names, want.map(|(n, d)| (n.to_string(), d)));
        assert_eq!(OsDisk.file_len(&deep.join("c")).unwrap(), 3);
        let missing = OsDisk.file_len(&deep.join("x")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        OsDisk.remove_dir(&deep.join("m")).unwrap();
        assert!(OsDisk.remove_dir(&deep).is_err(), "not empty");
        OsDisk.remove_dir_all(&deep).unwrap();
        assert!(!OsDisk.exists(&deep).unwrap());
    }

    #[test]
    fn a_lock_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = OsDisk.lock(&path).unwrap();
        let second = OsDisk.lock(&path).err().expect("the lock is held");
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        OsDisk.lock(&path).unwrap();
    }

    #[test]
    fn a_lock_that_was_let_go_is_free_while_a_starting_process_has_a_copy_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = File::create(&path).unwrap();
        file.try_lock().unwrap();
        let _as_a_fork_would = file.try_clone().unwrap();
        drop(OsLock(file));
        OsDisk.lock(&path).unwrap();
    }
}
