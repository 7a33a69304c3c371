//! Open files, at most a configured number of them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidemark_disk::{Disk, DiskFile, OpenMode};

use crate::LogError;

/// Keeps the most recently used files open. A file that is in use somewhere stays open there
/// after it has left the cache.
pub(crate) struct FileCache {
    disk: Arc<dyn Disk>,
    limit: usize,
    open: Mutex<Lru>,
}

#[derive(Default)]
struct Lru {
    clock: u64,
    files: HashMap<PathBuf, (Arc<dyn DiskFile>, u64)>,
    by_use: BTreeMap<u64, PathBuf>,
}

impl Lru {
    fn touch(&mut self, path: &Path) -> Option<Arc<dyn DiskFile>> {
        self.clock += 1;
        let now = self.clock;
        let (file, used) = self.files.get_mut(path)?;
        let path = self.by_use.remove(used).expect("both maps hold a file");
        *used = now;
        self.by_use.insert(now, path);
        Some(file.clone())
    }

    fn insert(&mut self, path: PathBuf, file: Arc<dyn DiskFile>, limit: usize) {
        self.remove(&path);
        self.clock += 1;
        self.files.insert(path.clone(), (file, self.clock));
        self.by_use.insert(self.clock, path);
        while self.files.len() > limit {
            let (_, oldest) = self.by_use.pop_first().expect("both maps hold a file");
            self.files.remove(&oldest);
        }
    }

    fn remove(&mut self, path: &Path) {
        if let Some((_, used)) = self.files.remove(path) {
            self.by_use.remove(&used);
        }
    }
}

impl FileCache {
    /// A cache of at most `limit` files, at least one.
    pub(crate) fn new(disk: Arc<dyn Disk>, limit: usize) -> FileCache {
        FileCache {
            disk,
            limit: limit.max(1),
            open: Mutex::default(),
        }
    }

    /// An existing file, for reading and writing.
    pub(crate) fn get(&self, path: &Path) -> Result<Arc<dyn DiskFile>, LogError> {
        if let Some(file) = self.open.lock().touch(path) {
            return Ok(file);
        }
        self.open_as(path, OpenMode::ReadWrite)
    }

    /// A file that is made when it is missing and emptied when it is not.
    pub(crate) fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>, LogError> {
        let file = self.open_as(path, OpenMode::OpenOrCreate)?;
        file.set_len(0).map_err(|e| LogError::io(path, e))?;
        Ok(file)
    }

    fn open_as(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>, LogError> {
        let file = self
            .disk
            .open(path, mode)
            .map_err(|e| LogError::io(path, e))?;
        self.open
            .lock()
            .insert(path.to_owned(), file.clone(), self.limit);
        Ok(file)
    }

    /// Forgets a file that was removed.
    pub(crate) fn forget(&self, path: &Path) {
        self.open.lock().remove(path);
    }

    /// Forgets the files below `dir`, before they are removed.
    pub(crate) fn forget_dir(&self, dir: &Path) {
        let mut open = self.open.lock();
        let below: Vec<PathBuf> = open
            .files
            .keys()
            .filter(|p| p.starts_with(dir))
            .cloned()
            .collect();
        for path in below {
            open.remove(&path);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.open.lock().files.len()
    }
}

#[cfg(test)]
mod tests {
    use tidemark_disk::SimDisk;

    use super::*;

    #[test]
    fn the_least_recently_used_file_is_closed_first() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let dir = Path::new("/data");
        disk.create_dir_all(dir).unwrap();
        let files = FileCache::new(disk, 2);
        let paths: Vec<PathBuf> = ["a", "b", "c"].iter().map(|n| dir.join(n)).collect();
        for path in &paths[..2] {
            files.create(path).unwrap().write_at(b"x", 0).unwrap();
        }
        // `a` is used again, so that `b` makes room for `c`.
        files.get(&paths[0]).unwrap();
        files.create(&paths[2]).unwrap();
        assert_eq!(files.len(), 2);
        assert!(files.open.lock().files.contains_key(&paths[0]));
        // A file that left the cache is simply opened again.
        assert_eq!(files.get(&paths[1]).unwrap().len().unwrap(), 1);
        files.forget_dir(dir);
        assert_eq!(files.len(), 0);
        assert!(files.get(&dir.join("d")).unwrap_err().is_not_found());
    }
}
