//! A disk that is looked at and not changed.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use crate::{DirEntry, Disk, DiskFile, OpenMode};

/// Shows another disk. What only tidies up (syncs, cutting a file to its synced length, removing what
/// nothing names, writing once more what is there) is accepted and not done; what would change
/// anything else is refused.
///
/// So the code of a start can be run to its end on a directory that must stay as it is.
pub struct ReadOnlyDisk(pub Arc<dyn Disk>);

fn refused(path: &Path) -> io::Error {
    let text = format!(
        "{} would be written, which is not wanted now",
        path.display()
    );
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text)
}

impl Disk for ReadOnlyDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        match self.0.exists(dir)? {
            true => Ok(()),
            false => Err(refused(dir)),
        }
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        match mode {
            OpenMode::Read | OpenMode::ReadWrite => {
                let file = self.0.open(path, OpenMode::Read)?;
                Ok(Arc::new(ReadOnlyFile(file)))
            }
            OpenMode::CreateNew | OpenMode::OpenOrCreate => Err(refused(path)),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.0.file_len(path)
    }

    fn calls_at_once(&self) -> usize {
        self.0.calls_at_once()
    }

    fn rename(&self, from: &Path, _to: &Path) -> io::Result<()> {
        Err(refused(from))
    }

    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_dir_all(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.0.lock(path)
    }
}

struct ReadOnlyFile(Arc<dyn DiskFile>);

impl ReadOnlyFile {
    fn refused<T>() -> io::Result<T> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

impl DiskFile for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut there = vec![0; buf.len()];
        match self.0.read_at(&mut there, offset)? == buf.len() && there == buf {
            true => Ok(()),
            false => Self::refused(),
        }
    }

    fn write_vectored_at(&self, _bufs: &[IoSlice<'_>], _offset: u64) -> io::Result<()> {
        Self::refused()
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Self::refused()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimDisk, read_all, write_atomic};

    #[test]
    fn nothing_changes_and_what_would_write_is_refused() {
        let below = Arc::new(SimDisk::new(1));
        below.create_dir_all(Path::new("/d")).unwrap();
        write_atomic(&*below, Path::new("/d"), "f", b"bytes").unwrap();
        let disk = ReadOnlyDisk(below.clone());
        let path = Path::new("/d/f");
        let file = disk.open(path, OpenMode::ReadWrite).unwrap();
        file.set_len(1).unwrap();
        file.sync_data().unwrap();
        disk.remove_file(path).unwrap();
        assert_eq!(read_all(&disk, path).unwrap(), b"bytes");
        file.write_at(b"yte", 1).unwrap();
        assert!(file.write_at(b"x", 0).is_err());
        assert!(file.write_at(b"s and more", 4).is_err());
        assert!(
            disk.open(Path::new("/d/g"), OpenMode::OpenOrCreate)
                .is_err()
        );
        assert!(disk.create_dir_all(Path::new("/e")).is_err());
        assert!(disk.rename(path, Path::new("/d/g")).is_err());
        assert_eq!(below.list(Path::new("/d")).unwrap().len(), 1);
    }
}
