//! Power cuts at any step of write-behind, sync and checkpoint.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use support::*;
use tidemark_disk::{Disk, SimDisk};
use tidemark_partition_log::*;
use tidemark_types::*;

const KNOWN: [(BlockKind, u16); 1] = [(BlockKind::SEGMENTS, SegmentManifest::FORMAT_VERSION)];
const PARTITIONS: usize = 2;

/// A broker's storage, with plain lists in the place of its journal.
struct Node {
    disk: SimDisk,
    store: Arc<LogStore>,
    writer: WriteBehind,
    logs: Vec<Arc<PartitionLog>>,
    next_generation: u64,
    last_good: Option<u64>,
}

impl Node {
    /// Starts on `disk`: checkpoint, recovery, and replay of what `journal` holds.
    fn start(disk: SimDisk, journal: &[Model]) -> Result<Node, Box<dyn std::error::Error>> {
        let settings = StoreSettings { open_files: 2 };
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let store = LogStore::open(shared, data_dir(), CLUSTER, &settings)?;
        let checkpoint = read_latest(&disk, data_dir(), CLUSTER, &KNOWN)?;
        let mut manifests: BTreeMap<TopicPartitionId, SegmentManifest> = BTreeMap::new();
        let mut named: BTreeMap<TopicPartitionId, Named> = BTreeMap::new();
        if let Some(checkpoint) = &checkpoint {
            assert_eq!(
                checkpoint.fell_back, None,
                "a power cut damages no checkpoint"
            );
            for block in &checkpoint.blocks {
                let manifest = SegmentManifest::decode(&block.payload).expect("a good manifest");
                named.entry(block.partition).or_default().add(&manifest);
                assert!(manifest.shortened(&store, block.partition)?.is_none());
                manifests.insert(block.partition, manifest);
            }
        }
        remove_unreferenced(&store, &named)?;
        let mut logs = Vec::new();
        for (n, model) in journal.iter().enumerate() {
            let id = partition(n as i32);
            let manifest = manifests.remove(&id);
            // Each list is a journal of its own here, so each has its own place to begin.
            let (log, end_offset, replay_from) = match manifest {
                Some(manifest) => {
                    let end_offset = manifest.end_offset;
                    let replay_from = manifest.first_needed_index.unwrap_or_default();
                    let log = PartitionLog::recover(&store, id, manifest)?;
                    (log, end_offset, replay_from)
                }
                None => (PartitionLog::new(&store, id, EPOCH), 0, JournalIndex(0)),
            };
            roll_at(&log, 700);
            for batch in model.batches.iter().filter(|b| b.index >= replay_from) {
                if batch.base_offset < end_offset {
                    log.restore(batch.clone());
                } else {
                    append(&log, batch.clone(), None);
                }
            }
            assert_eq!(
                log.end_offset(),
                model.end(),
                "nothing acknowledged is missing"
            );
            logs.push(log);
        }
        Ok(Node {
            writer: write_behind(&store),
            disk,
            store,
            logs,
            next_generation: checkpoint.as_ref().map_or(1, |c| c.next_generation),
            last_good: checkpoint.map(|c| c.header.generation),
        })
    }

    /// `confirmed` is flushed between the sync and the taking of the blocks, as by a write-behind
    /// that goes on meanwhile: the checkpoint must not name it.
    fn checkpoint(&mut self, confirmed: Tick) -> Result<(), Box<dyn std::error::Error>> {
        self.writer.sync_dirty()?;
        for log in &self.logs {
            self.writer.flush(log, confirmed, &FlushPolicy::FORCE)?;
        }
        let manifests: Vec<SegmentManifest> =
            self.logs.iter().map(|log| log.segment_manifest()).collect();
        let header = CheckpointHeader {
            generation: self.next_generation,
            replay_from: JournalIndex(0),
            highest_tick: Tick(1),
            cluster_id: CLUSTER,
        };
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let mut writer = CheckpointWriter::begin(disk, data_dir(), header, self.last_good)?;
        for (log, manifest) in self.logs.iter().zip(&manifests) {
            writer.block(&Block {
                kind: BlockKind::SEGMENTS,
                format_version: SegmentManifest::FORMAT_VERSION,
                partition: log.partition(),
                stamp: JournalIndex(0),
                payload: manifest.encode().into(),
            })?;
        }
        writer.finish()?;
        self.last_good = Some(header.generation);
        self.next_generation += 1;
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize, usize, usize),
    Flush(usize, usize),
    Sync,
    Checkpoint(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..PARTITIONS, 1usize..4, 0usize..300).prop_map(|(p, n, v)| Step::Append(p, n, v)),
        3 => (0..PARTITIONS, 0usize..3).prop_map(|(p, back)| Step::Flush(p, back)),
        1 => Just(Step::Sync),
        2 => (0usize..20).prop_map(Step::Checkpoint),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_start_after_any_power_cut_finds_everything(
        seed in any::<u64>(),
        lives in prop::collection::vec((prop::collection::vec(step(), 1..40), 0u64..250), 1..5),
    ) {
        let mut journal = vec![Model::default(); PARTITIONS];
        let mut disk = SimDisk::new(seed);
        for (life, (steps, power)) in lives.into_iter().enumerate() {
            prop_assert!(!disk.is_powered_off());
            disk.cut_power_after(power);
            // A power cut during recovery is one like any other.
            let node = Node::start(disk.clone(), &journal);
            prop_assert!(node.is_ok() || disk.is_powered_off());
            if let Ok(mut node) = node {
                for step in steps {
                    let done: Result<(), Box<dyn std::error::Error>> = match step {
                        Step::Append(p, records, value_bytes) => {
                            append(&node.logs[p], journal[p].next(records, value_bytes), None);
                            Ok(())
                        }
                        Step::Flush(p, back) => {
                            let batches = journal[p].batches.len().saturating_sub(back);
                            let confirmed = Tick(batches as u64 * 10);
                            node.writer
                                .flush(&node.logs[p], confirmed, &FlushPolicy::FORCE)
                                .map(|_| ())
                                .map_err(Into::into)
                        }
                        Step::Sync => node.writer.sync_dirty().map(|_| ()).map_err(Into::into),
                        Step::Checkpoint(batches) => node.checkpoint(Tick(batches as u64 * 10)),
                    };
                    if done.is_err() {
                        prop_assert!(disk.is_powered_off(), "{:?}", done);
                        break;
                    }
                }
            }
            disk = disk.crash(seed.wrapping_add(life as u64));
            let node = Node::start(disk.clone(), &journal).unwrap();
            for (log, model) in node.logs.iter().zip(&journal) {
                prop_assert_eq!(read_all(log), model.read(0, i64::MAX, usize::MAX, true));
                let lens = lengths(&disk, log);
                let (last, others) = lens.split_last().unwrap_or((&(0, 0), &[]));
                prop_assert!(others.iter().all(|(len, end)| len == end), "{:?}", lens);
                prop_assert!(last.0 >= last.1, "{:?}", lens);
            }
            // What lies behind the end goes with a flush. The next life begins without this one.
            let other = disk.fork();
            let node = Node::start(other.clone(), &journal).unwrap();
            for (log, model) in node.logs.iter().zip(&journal) {
                node.writer.flush(log, Tick(u64::MAX), &FlushPolicy::FORCE).unwrap();
                prop_assert_eq!(read_all(log), model.read(0, i64::MAX, usize::MAX, true));
                let lens = lengths(&other, log);
                prop_assert!(lens.iter().all(|(len, end)| len == end), "{:?}", lens);
                prop_assert!(!log.has_longer_segment());
            }
        }
    }
}

/// Of each segment's two files together: their length, and where the segment ends.
fn lengths(disk: &SimDisk, log: &PartitionLog) -> Vec<(u64, u64)> {
    let segments = log.segments().into_iter();
    segments
        .map(|state| {
            let len = |kind: &str| {
                let name = format!("{:020}.{kind}", state.base_offset);
                disk.file_len(&log.dir().join(name)).unwrap()
            };
            let ticks = TICK_HEADER_BYTES as u64 + state.entries * TICK_ENTRY_BYTES as u64;
            (len("log") + len("tickindex"), state.log_bytes + ticks)
        })
        .collect()
}

#[test]
fn a_shorter_file_is_refused_with_file_and_position_or_rebuilt() {
    let disk = SimDisk::new(3);
    let mut journal = vec![Model::default(); PARTITIONS];
    let mut node = Node::start(disk.clone(), &journal).unwrap();
    for n in 0..30 {
        append(&node.logs[0], journal[0].next(1, 20 + n), None);
    }
    node.writer
        .flush(&node.logs[0], Tick(250), &FlushPolicy::FORCE)
        .unwrap();
    node.checkpoint(Tick::ZERO).unwrap();
    let manifest = node.logs[0].segment_manifest();
    let segments = manifest.segments.clone();
    assert!(segments.len() >= 4);

    let log = journal[0].read(0, i64::MAX, usize::MAX, true);
    for (segment, extension, cut_to) in [
        (0, "log", 0),
        (0, "tickindex", 40),
        (1, "log", segments[1].log_bytes - 1),
        (2, "tickindex", TICK_HEADER_BYTES as u64 + 96 + 95),
        (segments.len() - 1, "log", 300),
    ] {
        // Each time from the same state.
        let disk = disk.crash(1);
        let store = open_store(&disk);
        let base = segments[segment].base_offset;
        let path = node.logs[0].dir().join(format!("{base:020}.{extension}"));
        let file = disk
            .open(&path, tidemark_disk::OpenMode::ReadWrite)
            .unwrap();
        file.set_len(cut_to).unwrap();
        let error = PartitionLog::recover(&store, partition(0), manifest.clone()).unwrap_err();
        assert!(
            matches!(&error, LogError::Short { path: at, len, .. } if *at == path && *len == cut_to),
            "{error}"
        );

        let store = open_store(&disk);
        let mut shortened = manifest.shortened(&store, partition(0)).unwrap().unwrap();
        assert!(matches!(shortened.found(), LogError::Short { path: at, .. } if *at == path));
        let first_needed = shortened.first_needed_index().unwrap_or(JournalIndex(0));
        for batch in journal[0]
            .batches
            .iter()
            .filter(|b| b.index >= first_needed)
        {
            shortened
                .offer(&batch.bytes, batch.tick, batch.index)
                .unwrap();
        }
        assert!(shortened.finish().unwrap() > 0 || extension == "tickindex");
        assert!(manifest.shortened(&store, partition(0)).unwrap().is_none());
        let rebuilt = PartitionLog::recover(&store, partition(0), manifest.clone()).unwrap();
        for batch in &journal[0].batches {
            rebuilt.restore(batch.clone());
        }
        assert!(read_all(&rebuilt) == log);
        for state in rebuilt.segments() {
            let path = rebuilt.dir().join(format!("{:020}.log", state.base_offset));
            let bytes = tidemark_disk::read_all(&disk, &path).unwrap();
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
            assert_eq!(crc as u32, state.log_crc);
        }
    }
}

#[test]
fn a_full_disk_is_met_before_anything_is_half_done() {
    let disk = SimDisk::new(4);
    let journal = vec![Model::default(); PARTITIONS];
    let node = Node::start(disk.clone(), &journal).unwrap();
    let mut model = Model::default();
    for _ in 0..40 {
        append(&node.logs[0], model.next(1, 1_000), None);
    }
    disk.set_capacity(Some(disk.used_bytes() + 8_192));
    let flush = || {
        node.writer
            .flush(&node.logs[0], Tick(u64::MAX), &FlushPolicy::FORCE)
    };
    let mut met = 0;
    while flush().is_err() {
        met += 1;
        let expected = model.read(0, i64::MAX, usize::MAX, true);
        assert_eq!(read_all(&node.logs[0]), expected, "readable all the time");
        // Space appears bit by bit; the flush goes on where it stood.
        disk.set_capacity(Some(disk.used_bytes() + 16_384));
        assert!(met < 100);
    }
    assert!(met > 0);
    node.writer.sync_dirty().unwrap();
    assert_eq!(node.logs[0].segment_manifest().first_needed_index, None);
    assert_eq!(
        read_all(&node.logs[0]),
        model.read(0, i64::MAX, usize::MAX, true)
    );
}

#[test]
fn a_failed_sync_is_final() {
    let disk = SimDisk::new(5);
    let journal = vec![Model::default(); PARTITIONS];
    let node = Node::start(disk.clone(), &journal).unwrap();
    let mut model = Model::default();
    append(&node.logs[0], model.next(1, 100), None);
    let flush = || {
        node.writer
            .flush(&node.logs[0], Tick(u64::MAX), &FlushPolicy::FORCE)
    };
    flush().unwrap();
    disk.fail_next_sync(5);
    assert!(matches!(
        node.writer.sync_dirty(),
        Err(LogError::SyncFailed(_))
    ));
    // A second sync would succeed and prove nothing.
    assert!(matches!(
        node.writer.sync_dirty(),
        Err(LogError::SyncFailed(_))
    ));
    assert!(matches!(flush(), Err(LogError::SyncFailed(_))));
    let manifest = node.logs[0].segment_manifest();
    assert!(manifest.segments.is_empty());
    assert_eq!(manifest.first_needed_index, Some(JournalIndex(1)));
}

#[test]
fn only_our_own_unreferenced_files_are_removed() {
    let disk = SimDisk::new(6);
    let journal = vec![Model::default(); PARTITIONS];
    let node = Node::start(disk.clone(), &journal).unwrap();
    let mut model = Model::default();
    for _ in 0..20 {
        let batch = model.next(1, 100);
        append(&node.logs[0], batch.clone(), None);
        append(&node.logs[1], batch, None);
    }
    for log in &node.logs {
        node.writer
            .flush(log, Tick(u64::MAX), &FlushPolicy::FORCE)
            .unwrap();
    }
    let foreign = node.logs[1].dir().join("notes.txt");
    disk.open(&foreign, tidemark_disk::OpenMode::CreateNew)
        .unwrap();
    disk.create_dir_all(&node.store.root().join("lost+found"))
        .unwrap();
    let kept: BTreeSet<SegmentId> = node.logs[1].segments()[..2]
        .iter()
        .map(SegmentState::id)
        .collect();
    let growing = *kept.last().unwrap();
    let index = |id: &SegmentId| {
        let name = format!("{:020}.index", id.base_offset);
        node.logs[1].dir().join(name)
    };
    // Both are there: the second segment was closed since the checkpoint.
    assert!(kept.iter().all(|id| disk.exists(&index(id)).unwrap()));
    let two = Named {
        segments: kept.clone(),
        growing: Some(growing),
    };
    let named = BTreeMap::from([(partition(1), two)]);
    let removed = remove_unreferenced(&node.store, &named).unwrap();
    assert!(removed.contains(&partition(0).to_string()));
    assert!(!disk.exists(node.logs[0].dir()).unwrap());
    assert!(disk.exists(&foreign).unwrap());
    assert!(disk.exists(&node.store.root().join("lost+found")).unwrap());
    let left: BTreeSet<String> = disk
        .list(node.logs[1].dir())
        .unwrap()
        .into_iter()
        .filter_map(|e| e.name.split_once(".log").map(|(base, _)| base.to_owned()))
        .collect();
    let bases: BTreeSet<String> = kept
        .iter()
        .map(|id| format!("{:020}", id.base_offset))
        .collect();
    assert_eq!(left, bases);
    let of_indexes = kept.iter().map(|id| disk.exists(&index(id)).unwrap());
    assert_eq!(of_indexes.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn another_clusters_directory_is_refused() {
    let disk = SimDisk::new(7);
    drop(open_store(&disk));
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let settings = StoreSettings::default();
    let error = LogStore::open(shared.clone(), data_dir(), [8; 16], &settings)
        .err()
        .unwrap();
    assert!(matches!(&error, LogError::Foreign { .. }), "{error}");
    // Nor is one that holds something and no mark.
    let dir = std::path::Path::new("/elsewhere");
    disk.create_dir_all(&dir.join("partitions/x")).unwrap();
    let error = LogStore::open(shared, dir, CLUSTER, &settings)
        .err()
        .unwrap();
    assert!(matches!(&error, LogError::Foreign { .. }), "{error}");
}
