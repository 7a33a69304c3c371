//! What all partition logs of one data directory share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemark_disk::{Disk, OpenMode, create_dir_all_durable, read_all, write_atomic};
use tidemark_types::TopicPartitionId;

use crate::LogError;
use crate::files::FileCache;
use crate::names::{MARK, PARTITIONS, parse_generation_dir, partition_dir_name};

#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Segment files kept open for readers and for the next write.
    pub open_files: usize,
}

impl Default for StoreSettings {
    fn default() -> StoreSettings {
        StoreSettings { open_files: 512 }
    }
}

/// The directory of partitions, its open files and the tail's byte count.
pub struct LogStore {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) files: FileCache,
    root: PathBuf,
    cluster_id: [u8; 16],
    tail_bytes: Arc<AtomicU64>,
}

impl LogStore {
    /// Opens `<data_dir>/partitions`, and marks it with the cluster id when it is new.
    ///
    /// Errors: `Foreign` when it carries another cluster's mark, or holds something without one;
    /// I/O errors.
    pub fn open(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        cluster_id: [u8; 16],
        settings: &StoreSettings,
    ) -> Result<Arc<LogStore>, LogError> {
        let root = data_dir.join(PARTITIONS);
        create_dir_all_durable(&*disk, &root).map_err(|e| LogError::io(&root, e))?;
        check_mark(&*disk, &root, cluster_id)?;
        Ok(Arc::new(LogStore {
            files: FileCache::new(disk.clone(), settings.open_files),
            disk,
            root,
            cluster_id,
            tail_bytes: Arc::default(),
        }))
    }

    /// Memory that the tails of all partitions hold, in bytes.
    pub fn tail_bytes(&self) -> u64 {
        self.tail_bytes.load(Ordering::Relaxed)
    }

    /// The counter behind [`LogStore::tail_bytes`], for admission.
    pub fn tail_bytes_counter(&self) -> Arc<AtomicU64> {
        self.tail_bytes.clone()
    }

    pub fn cluster_id(&self) -> [u8; 16] {
        self.cluster_id
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// `<data_dir>/partitions`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the segments of a partition are. The directory appears with the first of them.
    pub fn partition_dir(&self, partition: TopicPartitionId) -> PathBuf {
        self.root.join(partition_dir_name(partition))
    }

    /// Removes the directory of a deleted partition, at once. Only when neither checkpoint names
    /// it any more: see [`crate::Retired`].
    pub fn remove_partition_dir(&self, partition: TopicPartitionId) -> Result<(), LogError> {
        let dir = self.partition_dir(partition);
        self.files.forget_dir(&dir);
        let on_dir = |e| LogError::io(&dir, e);
        if self.disk.exists(&dir).map_err(on_dir)? {
            self.disk.remove_dir_all(&dir).map_err(on_dir)?;
        }
        Ok(())
    }

    /// Removes one file, and the directory of a run of compaction with its last one. Only when neither
    /// checkpoint names it: see [`crate::Retired`].
    pub(crate) fn remove_file(&self, path: &Path) -> Result<(), LogError> {
        let removed = self.disk.remove_file(path);
        // After it: a reader that came late does not hold the disk's space for long.
        self.files.forget(path);
        if let Some(dir) = path.parent()
            && let Some(name) = dir.file_name()
            && parse_generation_dir(&name.to_string_lossy()).is_some()
        {
            // Fails for as long as there is another file in it.
            let _there_is_another = self.disk.remove_dir(dir);
        }
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(LogError::io(path, e)),
            _ => Ok(()),
        }
    }

    pub(crate) fn add_tail_bytes(&self, bytes: u64) {
        self.tail_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub_tail_bytes(&self, bytes: u64) {
        self.tail_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn hex(id: [u8; 16]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

fn check_mark(disk: &dyn Disk, root: &Path, cluster_id: [u8; 16]) -> Result<(), LogError> {
    let path = root.join(MARK);
    let on_mark = |e| LogError::io(&path, e);
    let wanted = format!("{}\n", hex(cluster_id));
    if disk.exists(&path).map_err(on_mark)? {
        let file = disk.open(&path, OpenMode::Read).map_err(on_mark)?;
        let len = file.len().map_err(on_mark)?;
        if len == wanted.len() as u64
            && read_all(disk, &path).map_err(on_mark)? == wanted.as_bytes()
        {
            return Ok(());
        }
        return Err(LogError::Foreign {
            path,
            what: format!(
                "this directory belongs to another cluster than {}; give this broker a data \
                 directory of its own, or the one it had",
                hex(cluster_id)
            ),
        });
    }
    let entries = disk.list(root).map_err(|e| LogError::io(root, e))?;
    // A mark that was being written when the power went is no mark, and not foreign either.
    if let Some(entry) = entries.iter().find(|e| e.name != format!("{MARK}.tmp")) {
        return Err(LogError::Foreign {
            path: root.to_owned(),
            what: format!(
                "it holds {:?} but no file {MARK:?}, so it is not known to be ours; move it away",
                entry.name
            ),
        });
    }
    write_atomic(disk, root, MARK, wanted.as_bytes()).map_err(on_mark)
}
