//! What is rolled, what is expired, and what becomes of the files.

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use support::*;
use tidemark_disk::{Disk, SimDisk};
use tidemark_partition_log::*;
use tidemark_types::*;

struct Log {
    disk: SimDisk,
    store: Arc<LogStore>,
    log: Arc<PartitionLog>,
    writer: WriteBehind,
    records: u64,
}

impl Log {
    fn with(rules: SegmentRules) -> Log {
        let disk = SimDisk::new(3);
        let store = open_store(&disk);
        let log = PartitionLog::new(&store, partition(0), EPOCH);
        log.set_segment_rules(rules);
        let writer = write_behind(&store);
        Log {
            disk,
            store,
            log,
            writer,
            records: 0,
        }
    }

    /// One record at each timestamp, a batch each.
    fn append(&mut self, timestamps: &[i64]) {
        for timestamp in timestamps {
            self.records += 1;
            let batch = data(self.log.end_offset(), &[*timestamp], b"value");
            append(&self.log, tail(batch, self.records, None), None);
        }
    }

    fn flush(&self) {
        let everything = Tick(u64::MAX);
        let flushed = self
            .writer
            .flush(&self.log, everything, &FlushPolicy::FORCE);
        flushed.unwrap();
    }

    /// (base offset, offset after the last record) of each segment.
    fn segments(&self) -> Vec<(i64, i64)> {
        let segments = self.log.segments();
        segments
            .iter()
            .map(|s| (s.base_offset, s.next_offset))
            .collect()
    }

    fn files(&self) -> Vec<String> {
        match self.disk.list(self.log.dir()) {
            Ok(entries) => entries.into_iter().map(|e| e.name).collect(),
            Err(_) => Vec::new(),
        }
    }

    fn point(&self, now_ms: i64, rules: RetentionRules) -> Option<i64> {
        let version = self.log.newest_version();
        self.log.retention_point(&version, now_ms, &rules)
    }

    fn move_log_start(&self, offset: i64) {
        let version = self.log.newest_version();
        self.log.push_version(Version {
            tick: Tick(version.tick.0 + 1),
            log_start_offset: offset,
            last_stable_offset: version.last_stable_offset.max(offset),
            ..version
        });
    }
}

const ONE_BATCH_EACH: SegmentRules = SegmentRules {
    segment_bytes: 1,
    segment_ms: i64::MAX,
    segment_jitter_ms: 0,
    segment_index_bytes: 1 << 20,
    index_interval_bytes: 4096,
};

fn for_ms(ms: i64) -> RetentionRules {
    RetentionRules {
        retention_ms: Some(ms),
        retention_bytes: None,
    }
}

fn for_bytes(bytes: u64) -> RetentionRules {
    RetentionRules {
        retention_ms: None,
        retention_bytes: Some(bytes),
    }
}

#[test]
fn segments_are_rolled_by_the_timestamps_of_their_batches() {
    let rules = SegmentRules {
        segment_ms: 100,
        ..SegmentRules::default()
    };
    let mut log = Log::with(rules);
    // 100 after the first is not more than 100; a timestamp that goes back rolls nothing.
    log.append(&[1_000, 1_100, 900, 1_101, 1_150, 1_202]);
    log.flush();
    assert_eq!(log.segments(), [(0, 3), (3, 5), (5, 6)]);
    // In the next write, and after a start, the first batch of the segment still counts.
    log.append(&[1_302]);
    log.flush();
    log.writer.sync_dirty().unwrap();
    let manifest = log.log.segment_manifest();
    log.log = PartitionLog::recover(&log.store, partition(0), manifest).unwrap();
    log.log.set_segment_rules(rules);
    log.append(&[1_300, 1_303]);
    log.flush();
    assert_eq!(log.segments(), [(0, 3), (3, 5), (5, 8), (8, 9)]);
}

#[test]
fn jitter_takes_the_same_off_each_time_and_never_all() {
    let rolled = |partition_number: i32| {
        let rules = SegmentRules {
            segment_ms: 1_000,
            segment_jitter_ms: 1_000,
            ..SegmentRules::default()
        };
        let disk = SimDisk::new(1);
        let store = open_store(&disk);
        let log = PartitionLog::new(&store, partition(partition_number), EPOCH);
        log.set_segment_rules(rules);
        for n in 0..1_002 {
            let batch = data(n, &[n], b"");
            append(&log, tail(batch, n as u64 + 1, None), None);
        }
        write_behind(&store)
            .flush(&log, Tick(u64::MAX), &FlushPolicy::FORCE)
            .unwrap();
        log.segments()[0].next_offset
    };
    let first: Vec<i64> = (0..8).map(rolled).collect();
    assert_eq!(first, (0..8).map(rolled).collect::<Vec<_>>());
    assert!(
        first.iter().all(|offset| (1..=1_001).contains(offset)),
        "{first:?}"
    );
    let different: std::collections::BTreeSet<_> = first.iter().collect();
    assert!(different.len() > 4, "{first:?}");
}

#[test]
fn full_indexes_roll_a_segment() {
    // Kafka's least: an index without a place for one entry.
    let none = SegmentRules {
        segment_index_bytes: 4,
        ..SegmentRules::default()
    };
    let mut log = Log::with(none);
    log.append(&[1, 2, 3]);
    log.flush();
    assert_eq!(log.segments(), [(0, 1), (1, 2), (2, 3)]);
    // A time index of four entries, an entry per batch, and one that the end keeps free.
    let four = SegmentRules {
        segment_index_bytes: 48,
        index_interval_bytes: 0,
        ..SegmentRules::default()
    };
    let mut log = Log::with(four);
    log.append(&[1, 2, 3, 4, 5, 6, 7]);
    log.flush();
    assert_eq!(log.segments(), [(0, 3), (3, 6), (6, 7)]);
    for entry in log.disk.list(log.log.dir()).unwrap() {
        if entry.name.ends_with(".timeindex") || entry.name.ends_with(".index") {
            let len = log.disk.file_len(&log.log.dir().join(&entry.name));
            assert!(len.unwrap() <= 48, "{entry:?}");
        }
    }
}

#[test]
fn expired_is_what_is_older_than_retention_ms_by_whole_segments_from_the_front() {
    let mut log = Log::with(ONE_BATCH_EACH);
    log.append(&[1_000, 3_000, 2_000, 4_000]);
    log.flush();
    assert_eq!(log.point(1_500, for_ms(500)), None, "as old is not older");
    assert_eq!(log.point(1_501, for_ms(500)), Some(1));
    // 2,000 is older too, but lies behind one that stays.
    assert_eq!(log.point(3_400, for_ms(500)), Some(1));
    assert_eq!(log.point(3_501, for_ms(500)), Some(3));
    // The segment that is written to goes as well when all of it is expired, its tail included.
    log.append(&[5_000]);
    assert_eq!(log.point(5_000, for_ms(500)), Some(3));
    assert_eq!(log.point(5_501, for_ms(500)), Some(5));
    assert_eq!(log.point(i64::MAX, RetentionRules::default()), None);
}

#[test]
fn batches_without_a_timestamp_are_as_old_as_their_write() {
    let mut log = Log::with(ONE_BATCH_EACH);
    log.append(&[-1, -1]);
    log.flush();
    let written_ms = Tick(20).alignment_ms();
    assert_eq!(log.point(written_ms, for_ms(0)), None);
    assert_eq!(log.point(written_ms + 1, for_ms(0)), Some(2));
}

#[test]
fn retention_bytes_keeps_at_least_so_much() {
    let mut log = Log::with(ONE_BATCH_EACH);
    log.append(&[1, 2, 3, 4]);
    log.flush();
    let each = log.log.segments()[0].log_bytes;
    assert_eq!(log.point(0, for_bytes(4 * each)), None);
    assert_eq!(
        log.point(0, for_bytes(4 * each - 1)),
        None,
        "a whole one is not too much"
    );
    assert_eq!(log.point(0, for_bytes(3 * each)), Some(1));
    assert_eq!(log.point(0, for_bytes(each)), Some(3));
    assert_eq!(log.point(0, for_bytes(0)), Some(4));
    // What lies below the log start counts for nothing.
    log.move_log_start(2);
    assert_eq!(log.point(0, for_bytes(2 * each)), None);
}

#[test]
fn nothing_at_or_after_the_last_stable_offset_expires() {
    let mut log = Log::with(ONE_BATCH_EACH);
    log.append(&[1, 2, 3, 4]);
    log.flush();
    let version = Version {
        last_stable_offset: 2,
        ..log.log.newest_version()
    };
    let point = log.log.retention_point(&version, i64::MAX, &for_ms(0));
    assert_eq!(point, Some(2));
}

/// A checkpoint's part in the life of retired files: the names that its blocks hold.
fn checkpoint(log: &Log, retired: &Retired, generation: u64) -> Vec<i64> {
    log.writer.sync_dirty().unwrap();
    retired.checkpoint_begun(generation);
    let manifest = log.log.segment_manifest();
    assert_eq!(
        SegmentManifest::decode(&manifest.encode()),
        Some(manifest.clone())
    );
    let named = manifest.segments.iter().map(|s| s.base_offset).collect();
    retired
        .checkpoint_completed(&log.store, generation, generation - 1)
        .unwrap();
    named
}

#[test]
fn files_below_the_log_start_go_when_neither_checkpoint_names_them() {
    let mut log = Log::with(ONE_BATCH_EACH);
    let retired = Retired::default();
    log.append(&[1, 2, 3, 4]);
    log.flush();
    assert_eq!(checkpoint(&log, &retired, 2), [0, 1, 2, 3]);
    let before = log.files();

    log.move_log_start(2);
    assert!(log.log.may_be_trimmed());
    // A reader still reads as of an earlier tick.
    let earlier = Tick(log.log.newest_version().tick.0 - 1);
    assert_eq!(log.log.trim(earlier, &retired), 0);
    assert!(log.log.may_be_trimmed());
    assert_eq!(
        log.log.read(0, 4, 1 << 20, true).unwrap().first_offset,
        Some(0)
    );
    assert_eq!(log.log.trim(Tick(u64::MAX), &retired), 2);
    assert!(!log.log.may_be_trimmed());
    assert!(matches!(
        log.log.read(1, 4, 1 << 20, true),
        Err(LogError::OutOfRange { start: 2, .. })
    ));
    assert_eq!(log.files(), before, "the checkpoint names them");
    assert_eq!(checkpoint(&log, &retired, 3), [2, 3]);
    assert_eq!(log.files(), before, "the checkpoint before it names them");
    assert_eq!(checkpoint(&log, &retired, 4), [2, 3]);
    let gone = |name: &String| {
        name.starts_with(&format!("{:020}", 0)) || name.starts_with(&format!("{:020}", 1))
    };
    let left: Vec<String> = before.into_iter().filter(|name| !gone(name)).collect();
    assert_eq!(log.files(), left);
    assert!(retired.is_empty());

    // The segment that was written to goes too, and the next begins where the log ended.
    log.move_log_start(4);
    assert_eq!(log.log.trim(Tick(u64::MAX), &retired), 2);
    assert_eq!(log.log.segment_manifest().synced_end_offset, 4);
    log.append(&[5]);
    log.flush();
    assert_eq!(log.segments(), [(4, 5)]);
}

#[test]
fn a_tail_below_the_log_start_is_never_written() {
    let mut log = Log::with(SegmentRules::default());
    let retired = Retired::default();
    log.append(&[1, 2, 3]);
    log.move_log_start(2);
    assert_eq!(log.log.trim(Tick(u64::MAX), &retired), 0);
    assert_eq!((log.log.tail_start_offset(), log.log.end_offset()), (2, 3));
    assert_eq!(log.log.first_needed_index(), Some(JournalIndex(3)));
    log.move_log_start(3);
    log.log.trim(Tick(u64::MAX), &retired);
    assert_eq!((log.log.tail_bytes(), log.store.tail_bytes()), (0, 0));
    let manifest = log.log.segment_manifest();
    assert_eq!(
        (manifest.synced_end_offset, manifest.first_needed_index),
        (3, None)
    );
    let again = PartitionLog::recover(&log.store, partition(0), manifest).unwrap();
    assert_eq!(
        (again.end_offset(), again.newest_version().log_start_offset),
        (3, 3)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Power cuts with log starts that move: what a checkpoint names is there, and what is read from
    /// the log start on is what was written.
    #[test]
    fn whatever_is_cut_off_no_checkpoint_names_a_file_that_is_gone(
        steps in prop::collection::vec((0u8..5, 0i64..4), 1..40),
        seed in any::<u64>(),
    ) {
        let mut log = Log::with(ONE_BATCH_EACH);
        let retired = Retired::default();
        let mut generation = 1;
        // The two checkpoints that are kept.
        let mut kept: Vec<SegmentManifest> = Vec::new();
        for (step, n) in steps {
            match step {
                0 | 1 => log.append(&vec![1; n as usize + 1]),
                2 => log.flush(),
                3 => {
                    let version = log.log.newest_version();
                    let offset = (version.log_start_offset + n).min(version.log_end_offset);
                    log.move_log_start(offset);
                    log.log.trim(Tick(u64::MAX), &retired);
                }
                _ => {
                    generation += 1;
                    log.writer.sync_dirty().unwrap();
                    retired.checkpoint_begun(generation);
                    kept.push(log.log.segment_manifest());
                    kept = kept.split_off(kept.len().saturating_sub(2));
                    // The first one has none before it.
                    if kept.len() == 2 {
                        let done = retired.checkpoint_completed(&log.store, generation, generation - 1);
                        done.unwrap();
                    }
                }
            }
        }
        for segment in log.log.segments() {
            let path = log.log.dir().join(format!("{:020}.log", segment.base_offset));
            prop_assert!(log.disk.exists(&path).unwrap(), "{:?}", path);
        }
        let crashed = log.disk.crash(seed);
        // The newest is used, or the one before it.
        let used = kept.len().checked_sub(1 + (seed % 2) as usize);
        if let Some(manifest) = used.map(|used| kept[used].clone()) {
            let store = open_store(&crashed);
            let again = PartitionLog::recover(&store, partition(0), manifest);
            let again = again.expect("its files are there");
            for segment in again.segments() {
                let (from, end) = (segment.base_offset, segment.next_offset);
                let read = again.read(from, end, 1, true).unwrap();
                prop_assert_eq!(read.first_offset, Some(from));
            }
        }
    }
}
