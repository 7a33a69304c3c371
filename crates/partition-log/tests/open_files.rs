//! Files are opened when they are needed and closed when others are: the number that is open at once
//! has a bound, whatever the number of partitions.

mod support;

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::*;
use tidemark_disk::{DirEntry, Disk, DiskFile, OpenMode, SimDisk};
use tidemark_partition_log::*;
use tidemark_types::*;

/// A disk that counts the files that are open, and knows the most there ever were.
#[derive(Clone)]
struct Counting {
    disk: SimDisk,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    most: AtomicUsize,
    opened: AtomicUsize,
}

struct CountedFile {
    file: Arc<dyn DiskFile>,
    counts: Arc<Counts>,
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DiskFile for CountedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.write_vectored_at(bufs, offset)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Disk for Counting {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, mode)?;
        let open = self.counts.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.counts.most.fetch_max(open, Ordering::SeqCst);
        self.counts.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(CountedFile {
            file,
            counts: self.counts.clone(),
        }))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(path)
    }
}

#[test]
fn open_files_have_a_bound_whatever_the_number_of_partitions() {
    const PARTITIONS: i32 = 2_000;
    const CACHED: usize = 50;
    const DIRTY: usize = 20;
    // Cached, waiting for a sync, and those of the segment in hand.
    const BOUND: usize = CACHED + DIRTY + 4;
    let disk = Counting {
        disk: SimDisk::new(1),
        counts: Arc::default(),
    };
    let store = LogStore::open(
        Arc::new(disk.clone()),
        data_dir(),
        CLUSTER,
        &StoreSettings { open_files: CACHED },
    )
    .unwrap();
    let settings = WriteBehindSettings {
        dirty_files: DIRTY,
        ..WriteBehindSettings::default()
    };
    let writer = WriteBehind::new(&store, settings);
    let mut models = vec![Model::default(); PARTITIONS as usize];
    let logs: Vec<Arc<PartitionLog>> = (0..PARTITIONS)
        .map(|n| PartitionLog::new(&store, partition(n), EPOCH))
        .collect();
    for round in 1..=2 {
        for (log, model) in logs.iter().zip(&mut models) {
            append(log, model.next(2, 100), None);
        }
        let confirmed = Tick(round * 10);
        for log in &logs {
            writer.flush(log, confirmed, &FlushPolicy::FORCE).unwrap();
        }
        writer.sync_dirty().unwrap();
        for (log, model) in logs.iter().zip(&models) {
            assert_eq!(read_all(log), model.read(0, i64::MAX, usize::MAX, true));
        }
    }
    let manifests: Vec<SegmentManifest> = logs.iter().map(|log| log.segment_manifest()).collect();
    drop(logs);
    for (n, manifest) in (0..).zip(manifests) {
        let log = PartitionLog::recover(&store, partition(n), manifest).unwrap();
        assert_eq!(log.end_offset(), 4);
    }
    let most = disk.counts.most.load(Ordering::SeqCst);
    assert!(most <= BOUND, "{most} files were open at once");
    // And no file is opened for each read of it, while there is room.
    let opened = disk.counts.opened.load(Ordering::SeqCst);
    let log = PartitionLog::new(&store, partition(PARTITIONS), EPOCH);
    let mut model = Model::default();
    append(&log, model.next(2, 100), None);
    writer.flush(&log, Tick(10), &FlushPolicy::FORCE).unwrap();
    for _ in 0..100 {
        read_all(&log);
    }
    assert_eq!(disk.counts.opened.load(Ordering::SeqCst), opened + 2);
}
