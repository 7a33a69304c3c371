//! Compaction of a log on a disk that loses power: what is read stays what a map of keys says, files
//! are replaced whole or not at all, and what a checkpoint names is there.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use support::*;
use tidemark_abort_index::AbortedTxn;
use tidemark_disk::{Disk, SimDisk};
use tidemark_partition_log::*;
use tidemark_record_batch::*;
use tidemark_types::*;

const KNOWN: [(BlockKind, u16); 1] = [(BlockKind::SEGMENTS, 1)];
const RETENTION_MS: i64 = 1_000;

/// What was written, as the journal has it.
#[derive(Default)]
struct Written {
    batches: Vec<(TailBatch, Option<AbortedTxn>)>,
    open: BTreeMap<i64, i64>,
    aborted: Vec<(i64, i64, i64)>,
}

impl Written {
    fn end(&self) -> i64 {
        self.batches.last().map_or(0, |(b, _)| b.last_offset + 1)
    }

    fn stable(&self) -> i64 {
        self.open.values().copied().min().unwrap_or(self.end())
    }

    fn push(
        &mut self,
        bytes: Vec<u8>,
        control: Option<ControlMeta>,
        aborted: Option<AbortedTxn>,
    ) -> (TailBatch, Option<AbortedTxn>) {
        let index = self.batches.len() as u64 + 1;
        let mut batch = tail(Bytes::from(bytes), index, control);
        self.batches.push((batch.clone(), None));
        batch.meta.last_stable_offset = self.stable();
        let last = self.batches.last_mut().expect("it was pushed");
        *last = (batch, aborted);
        last.clone()
    }

    /// A batch of a producer (0: none, others in their transaction), a record per key; the value is
    /// the offset.
    fn data(&mut self, producer: i64, keys: &[u8], size: usize) -> (TailBatch, Option<AbortedTxn>) {
        let base = self.end();
        let mut builder = BatchBuilder::new(base);
        if producer > 0 {
            builder.producer(ProducerId(producer), ProducerEpoch(0), base as i32);
            builder.transactional();
            self.open.entry(producer).or_insert(base);
        }
        for (n, key) in keys.iter().enumerate() {
            let mut value = format!("{} ", base + n as i64).into_bytes();
            value.resize(value.len() + size, b'.');
            let value = (*key != b'-').then_some(value);
            let key = [if *key == b'-' { keys[0] } else { *key }];
            builder.push_at(base + n as i64, Some(&key), value.as_deref(), &[]);
        }
        let mut bytes = builder.build();
        patch_position(&mut bytes, base, EPOCH);
        self.push(bytes, None, None)
    }

    fn end_txn(
        &mut self,
        producer: i64,
        control_type: ControlType,
    ) -> (TailBatch, Option<AbortedTxn>) {
        let offset = self.end();
        let bytes = control_batch(
            offset,
            EPOCH,
            ProducerId(producer),
            ProducerEpoch(0),
            control_type,
            CoordinatorEpoch(0),
            offset,
        );
        let bytes = bytes.to_vec();
        let txn_first_offset = self.open.remove(&producer);
        let stable = self.open.values().copied().min().unwrap_or(offset + 1);
        let aborted = txn_first_offset
            .filter(|_| control_type == ControlType::Abort)
            .map(|first_offset| AbortedTxn {
                producer_id: ProducerId(producer),
                first_offset,
                last_offset: offset,
                last_stable_offset: stable,
            });
        if let Some(txn) = aborted {
            self.aborted.push((producer, txn.first_offset, offset));
        }
        let control = ControlMeta {
            control_type,
            txn_first_offset,
        };
        self.push(bytes, Some(control), aborted)
    }

    /// (offset, key, value) of the committed records below the last stable offset.
    fn committed(&self) -> Vec<(i64, Bytes, Option<Bytes>)> {
        let mut seen = Vec::new();
        for (batch, _) in &self.batches {
            let producer = batch.meta.producer_id.0;
            let aborted = self.aborted.iter().any(|(id, first, last)| {
                *id == producer && (*first..=*last).contains(&batch.base_offset)
            });
            if batch.base_offset < self.stable() && batch.meta.control.is_none() && !aborted {
                seen.extend(records_of(&batch.bytes));
            }
        }
        seen
    }
}

fn records_of(batch: &Bytes) -> Vec<(i64, Bytes, Option<Bytes>)> {
    let base = BatchHeader::parse(batch).unwrap().base_offset;
    records(batch, &DecompressLimits::default())
        .unwrap()
        .map(|record| {
            let record = record.unwrap();
            let offset = base + i64::from(record.offset_delta);
            (offset, record.key.unwrap(), record.value)
        })
        .collect()
}

type Values = BTreeMap<Bytes, Bytes>;

fn last_values(seen: &[(i64, Bytes, Option<Bytes>)]) -> Values {
    let mut values = Values::new();
    for (_, key, value) in seen {
        match value {
            None => drop(values.remove(key)),
            Some(value) => drop(values.insert(key.clone(), value.clone())),
        }
    }
    values
}

/// What a read_committed client makes of the log, reading in pieces.
fn read_committed(log: &PartitionLog, upper: i64) -> Vec<(i64, Bytes, Option<Bytes>)> {
    let mut seen = Vec::new();
    let mut from = log.newest_version().log_start_offset;
    while from < upper {
        let read = log.read(from, upper, 600, true).unwrap();
        let next = read
            .next_offset()
            .expect("there is always a batch to go on from");
        assert!(next > from);
        let told = log
            .aborted_in(&read, from, next.min(upper))
            .expect("nothing runs");
        let mut told = told.into_iter().peekable();
        let mut dropping = BTreeSet::new();
        for chunk in &read.chunks {
            for found in batches(chunk) {
                let (header, range) = found.unwrap();
                let batch = chunk.slice(range);
                while let Some((id, _)) = told.next_if(|(_, first)| *first <= header.last_offset())
                {
                    dropping.insert(id);
                }
                if let Some((kind, _)) = parse_control(&batch).unwrap() {
                    if kind == ControlType::Abort {
                        dropping.remove(&header.producer_id);
                    }
                } else if !header.attributes.is_transactional()
                    || !dropping.contains(&header.producer_id)
                {
                    seen.extend(records_of(&batch).into_iter().filter(|r| r.0 >= from));
                }
            }
        }
        from = next;
    }
    seen
}

struct Node {
    disk: SimDisk,
    store: Arc<LogStore>,
    writer: WriteBehind,
    log: Arc<PartitionLog>,
    retired: Retired,
    next_generation: u64,
    last_good: Option<u64>,
}

type AnyError = Box<dyn std::error::Error>;

impl Node {
    fn start(disk: SimDisk, written: &Written) -> Result<Node, AnyError> {
        let settings = StoreSettings { open_files: 4 };
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let store = LogStore::open(shared, data_dir(), CLUSTER, &settings)?;
        let retired = Retired::default();
        let checkpoint = read_latest(&disk, data_dir(), CLUSTER, &KNOWN)?;
        let id = partition(0);
        let mut named = BTreeMap::new();
        let mut current = None;
        if let Some(checkpoint) = &checkpoint {
            let generation = checkpoint.header.generation;
            let older = read_previous(&disk, data_dir(), CLUSTER, &KNOWN, generation)?;
            retired.checkpoint_begun(generation);
            let manifest = SegmentManifest::decode(&checkpoint.blocks[0].payload).unwrap();
            let ids = |m: &SegmentManifest| -> BTreeSet<SegmentId> {
                m.segments.iter().map(SegmentState::id).collect()
            };
            let mut all = Named::default();
            if let Some(older) = older {
                let older = SegmentManifest::decode(&older.blocks[0].payload).unwrap();
                for segment in ids(&older).difference(&ids(&manifest)) {
                    retired.retire_segment(&store, id, *segment);
                }
                all.add(&older);
            }
            all.add(&manifest);
            named.insert(id, all);
            current = Some(manifest);
        }
        remove_unreferenced(&store, &named)?;
        let (log, end_offset, replay_from) = match current {
            Some(manifest) => {
                let end_offset = manifest.end_offset;
                let from = manifest
                    .first_needed_index
                    .unwrap_or(JournalIndex(u64::MAX));
                (
                    PartitionLog::recover(&store, id, manifest)?,
                    end_offset,
                    from,
                )
            }
            None => (PartitionLog::new(&store, id, EPOCH), 0, JournalIndex(0)),
        };
        roll_at(&log, 700);
        for (batch, aborted) in &written.batches {
            if batch.base_offset >= end_offset {
                append(&log, batch.clone(), *aborted);
            } else if batch.index >= replay_from {
                log.restore(batch.clone());
            }
        }
        Ok(Node {
            writer: write_behind(&store),
            disk,
            store,
            log,
            retired,
            next_generation: checkpoint.as_ref().map_or(1, |c| c.next_generation),
            last_good: checkpoint.map(|c| c.header.generation),
        })
    }

    fn flush(&self) -> Result<(), AnyError> {
        let newest = self.log.newest_version().tick;
        self.writer.flush(&self.log, newest, &FlushPolicy::FORCE)?;
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), AnyError> {
        self.flush()?;
        self.writer.sync_dirty()?;
        let generation = self.next_generation;
        self.retired.checkpoint_begun(generation);
        let manifest = self.log.segment_manifest();
        assert_eq!(
            SegmentManifest::decode(&manifest.encode()),
            Some(manifest.clone())
        );
        let header = CheckpointHeader {
            generation,
            replay_from: JournalIndex(0),
            highest_tick: Tick(1),
            cluster_id: CLUSTER,
        };
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let mut writer = CheckpointWriter::begin(disk, data_dir(), header, self.last_good)?;
        writer.block(&Block {
            kind: BlockKind::SEGMENTS,
            format_version: SegmentManifest::FORMAT_VERSION,
            partition: self.log.partition(),
            stamp: JournalIndex(0),
            payload: manifest.encode().into(),
        })?;
        writer.finish()?;
        let previous = self.last_good.replace(generation);
        self.next_generation += 1;
        if let Some(previous) = previous {
            self.retired
                .checkpoint_completed(&self.store, generation, previous)?;
        }
        Ok(())
    }

    /// One run; `steps` of pace are allowed.
    fn compact(
        &self,
        stable: i64,
        now_ms: i64,
        max_keys: usize,
        mut steps: u64,
    ) -> Result<CompactionReport, AnyError> {
        let found = self.log.compactable(stable, i64::MAX);
        let order = CompactionOrder {
            end_offset: found.end_offset,
            now_ms,
            delete_retention_ms: RETENTION_MS,
            producers: BTreeMap::new(),
            max_keys,
            seed: 5,
        };
        let mut pace = |_| {
            steps = steps.saturating_sub(1);
            steps > 0
        };
        let report = self.log.compact(&order, &self.retired, &mut pace)?;
        if report.finished {
            assert!(report.bytes_after <= report.bytes_before + 200 * report.tally.batches);
        }
        Ok(report)
    }

    fn check(&self, written: &Written) {
        let seen = read_committed(&self.log, written.stable());
        let original = written.committed();
        let known: BTreeSet<_> = original.iter().collect();
        assert!(
            seen.iter().all(|record| known.contains(record)),
            "nothing is made up"
        );
        assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(last_values(&seen), last_values(&original));
        // Every batch is found by time and by tick as far as it is there.
        let newest = self.log.max_timestamp(0, i64::MAX).unwrap();
        assert!(newest.is_some() || seen.is_empty());
        for (offset, ..) in &seen {
            let found = self.log.offset_for_timestamp(*offset, 0, i64::MAX).unwrap();
            assert_eq!(
                found.map(|f| f.offset),
                Some(*offset),
                "its timestamp is its offset"
            );
        }
        for state in self.log.segments() {
            assert!(state.entries > 0);
        }
    }
}

/// Every file below the partition's directory, with its length.
fn files(disk: &SimDisk, dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in disk.list(dir).unwrap_or_default() {
        if entry.is_dir {
            let below = files(disk, &dir.join(&entry.name));
            found.extend(
                below
                    .into_iter()
                    .map(|name| format!("{}/{name}", entry.name)),
            );
        } else {
            found.push(entry.name);
        }
    }
    found
}

fn filled(node: &Node, written: &mut Written) {
    for round in 0u8..16 {
        for (batch, aborted) in [
            written.data(0, b"abc", 20),
            written.data(1, b"ade", 20),
            written.data(2, b"xy-", 20),
            written.end_txn(1, ControlType::Abort),
            written.data(0, &[b'p' + round % 3], 20),
            written.end_txn(2, ControlType::Commit),
        ] {
            append(&node.log, batch, aborted);
        }
    }
}

#[test]
fn many_segments_become_few_and_say_the_same() {
    let disk = SimDisk::new(1);
    let mut written = Written::default();
    let mut node = Node::start(disk.clone(), &written).unwrap();
    filled(&node, &mut written);
    node.checkpoint().unwrap();
    let before = node.log.segments();
    assert!(before.len() > 8, "{}", before.len());
    let found = node.log.compactable(written.stable(), i64::MAX);
    assert_eq!(found.clean_bytes, 0);
    assert_eq!(found.end_offset, before[before.len() - 1].base_offset);
    let all: u64 = before[..before.len() - 1].iter().map(|s| s.log_bytes).sum();
    assert_eq!(found.dirty_bytes, all);

    let report = node.compact(written.stable(), 0, 1_000, u64::MAX).unwrap();
    assert!(report.finished);
    assert_eq!(report.bytes_before, all);
    assert!(report.bytes_after < all / 2, "{report:?}");
    assert!(report.tally.aborted_removed > 0 && report.tally.records_removed > 40);
    let after = node.log.segments();
    assert_eq!(
        after.last(),
        before.last(),
        "the segment that grows is not touched"
    );
    node.check(&written);
    let found = node.log.compactable(written.stable(), i64::MAX);
    assert_eq!(
        (found.dirty_bytes, found.next_horizon_ms),
        (0, Some(RETENTION_MS))
    );

    // Both generations are there until neither checkpoint names the old one.
    let dir = node.log.dir().to_owned();
    let old = |names: &[String]| names.iter().filter(|n| !n.contains('/')).count();
    let files_before = old(&files(&disk, &dir));
    node.checkpoint().unwrap();
    assert_eq!(old(&files(&disk, &dir)), files_before);
    node.checkpoint().unwrap();
    let left = files(&disk, &dir);
    let active = format!("{:020}.", before.last().unwrap().base_offset);
    assert!(
        left.iter()
            .all(|n| n.contains('/') || n.starts_with(&active)),
        "{left:?}"
    );
    node.check(&written);

    // Markers and tombstones go once their horizon has passed; then nothing is left to do.
    let report = node
        .compact(written.stable(), RETENTION_MS, 1_000, u64::MAX)
        .unwrap();
    assert!(
        report.tally.markers_removed > 0 && report.tally.tombstones_removed > 0,
        "{report:?}"
    );
    // What has become small is put together.
    assert!(node.log.segments().len() * 2 < before.len());
    node.check(&written);
    let report = node
        .compact(written.stable(), 3 * RETENTION_MS, 1_000, u64::MAX)
        .unwrap();
    assert_eq!(report.bytes_before, report.bytes_after, "{report:?}");
    let report = node
        .compact(written.stable(), 3 * RETENTION_MS, 1_000, u64::MAX)
        .unwrap();
    assert_eq!(report.bytes_written, 0, "{report:?}");
    assert_eq!(report.compacted.next_horizon_ms, None);

    // And the same after a restart.
    node.checkpoint().unwrap();
    drop(node);
    let node = Node::start(disk, &written).unwrap();
    node.check(&written);
    assert_eq!(
        node.log.compactable(written.stable(), i64::MAX).dirty_bytes,
        0
    );
}

/// As a log that was rebuilt from its segments may end: the one that grew was not there.
#[test]
fn a_compacted_segment_that_is_the_last_one_does_not_grow() {
    let mut written = Written::default();
    let mut node = Node::start(SimDisk::new(1), &written).unwrap();
    filled(&node, &mut written);
    node.checkpoint().unwrap();
    node.compact(written.stable(), 0, 1_000, u64::MAX).unwrap();
    let mut manifest = node.log.segment_manifest();
    manifest.segments.retain(|state| state.generation > 0);
    let last = manifest.segments.last_mut().unwrap();
    last.indexed = false;
    let (next_offset, compacted) = (last.next_offset, last.id());
    manifest.end_offset = next_offset;
    manifest.synced_end_offset = next_offset;

    let log = PartitionLog::recover(&node.store, partition(0), manifest).unwrap();
    roll_at(&log, 1 << 20);
    let mut batches = written.batches.iter();
    let next = batches.find(|(batch, _)| batch.base_offset == next_offset);
    let (batch, aborted) = next.expect("the segment that grew began with it");
    append(&log, batch.clone(), *aborted);
    let newest = log.newest_version().tick;
    (node.writer)
        .flush(&log, newest, &FlushPolicy::FORCE)
        .unwrap();
    let segments = log.segments();
    let ids: Vec<_> = segments.iter().rev().take(2).map(|s| s.id()).collect();
    let fresh = SegmentId {
        base_offset: next_offset,
        generation: 0,
    };
    assert_eq!(ids, [fresh, compacted]);
}

/// The list of aborted transactions that a reader is told belongs to what it has read.
#[test]
fn a_reader_of_the_old_files_reads_again_when_aborted_transactions_are_forgotten() {
    let disk = SimDisk::new(1);
    let mut written = Written::default();
    let mut node = Node::start(disk, &written).unwrap();
    filled(&node, &mut written);
    node.checkpoint().unwrap();
    let slow = node.log.read(0, written.stable(), 500, true).unwrap();
    let told = node.log.aborted_in(&slow, 0, 20);
    assert!(told.as_ref().is_some_and(|told| !told.is_empty()));
    node.compact(written.stable(), 0, 1_000, u64::MAX).unwrap();
    // The markers are there still.
    assert_eq!(node.log.aborted_in(&slow, 0, 20), told);
    node.compact(written.stable(), RETENTION_MS, 1_000, u64::MAX)
        .unwrap();
    assert_eq!(node.log.aborted_in(&slow, 0, 20), None);
    let again = node.log.read(0, written.stable(), 500, true).unwrap();
    assert!(node.log.aborted_in(&again, 0, 20).is_some());
}

#[test]
fn damage_ends_a_run_and_is_named() {
    let disk = SimDisk::new(1);
    let mut written = Written::default();
    let mut node = Node::start(disk.clone(), &written).unwrap();
    filled(&node, &mut written);
    node.checkpoint().unwrap();
    let path = node.log.dir().join(format!("{:020}.log", 0));
    let file = disk
        .open(&path, tidemark_disk::OpenMode::ReadWrite)
        .unwrap();
    file.write_at(b"x", 200).unwrap();
    let before = (node.log.segments(), files(&disk, node.log.dir()));
    let error = node
        .compact(written.stable(), 0, 1_000, u64::MAX)
        .unwrap_err();
    assert!(
        error.to_string().contains("00000000000000000000.log"),
        "{error}"
    );
    assert_eq!((node.log.segments(), files(&disk, node.log.dir())), before);
}

/// The log start moves over a segment while it is compacted, or the topic is deleted.
#[test]
fn a_run_ends_when_the_log_is_closed_under_it() {
    let disk = SimDisk::new(1);
    let mut written = Written::default();
    let mut node = Node::start(disk, &written).unwrap();
    filled(&node, &mut written);
    node.checkpoint().unwrap();
    let end_offset = node.log.compactable(written.stable(), i64::MAX).end_offset;
    let order = CompactionOrder {
        end_offset,
        now_ms: 0,
        delete_retention_ms: 0,
        producers: BTreeMap::new(),
        max_keys: 100,
        seed: 0,
    };
    let mut steps = 0;
    let log = node.log.clone();
    let report = node
        .log
        .compact(&order, &node.retired, &mut |_| {
            steps += 1;
            if steps == 60 {
                log.close();
            }
            true
        })
        .unwrap();
    assert!(!report.finished);
}

#[derive(Clone, Debug)]
enum Step {
    Data(i64, Vec<u8>, usize),
    End(i64, ControlType),
    Flush,
    Checkpoint,
    Compact {
        after_ms: i64,
        max_keys: usize,
        steps: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let keys = prop::collection::vec(prop::sample::select(b"abcde-".to_vec()), 1..4);
    let keys = keys.prop_map(|mut keys| {
        if keys[0] == b'-' {
            keys[0] = b'a';
        }
        keys
    });
    let kind = prop_oneof![Just(ControlType::Commit), Just(ControlType::Abort)];
    prop_oneof![
        8 => (0i64..4, keys, 0usize..150).prop_map(|(p, keys, size)| Step::Data(p, keys, size)),
        4 => (1i64..4, kind).prop_map(|(p, kind)| Step::End(p, kind)),
        1 => Just(Step::Flush),
        2 => Just(Step::Checkpoint),
        3 => (0i64..600, 1usize..30, prop_oneof![3 => Just(u64::MAX), 1 => 1u64..60])
            .prop_map(|(after_ms, max_keys, steps)| Step::Compact { after_ms, max_keys, steps }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_power_cut_at_any_step_leaves_the_old_segments_or_the_new(
        seed in any::<u64>(),
        lives in prop::collection::vec((prop::collection::vec(step(), 1..60), 0u64..600), 1..5),
    ) {
        let mut written = Written::default();
        let mut disk = SimDisk::new(seed);
        let mut now_ms = 0;
        for (life, (steps, power)) in lives.into_iter().enumerate() {
            disk.cut_power_after(power);
            if let Ok(mut node) = Node::start(disk.clone(), &written) {
                for step in steps {
                    let done: Result<(), AnyError> = match step {
                        Step::Data(producer, keys, size) => {
                            let (batch, aborted) = written.data(producer, &keys, size);
                            append(&node.log, batch, aborted);
                            Ok(())
                        }
                        Step::End(producer, kind) => {
                            let (batch, aborted) = written.end_txn(producer, kind);
                            append(&node.log, batch, aborted);
                            Ok(())
                        }
                        Step::Flush => node.flush(),
                        Step::Checkpoint => node.checkpoint(),
                        Step::Compact { after_ms, max_keys, steps } => {
                            now_ms += after_ms;
                            let stable = written.stable();
                            node.compact(stable, now_ms, max_keys, steps).map(|_| ())
                        }
                    };
                    if let Err(error) = done {
                        prop_assert!(disk.is_powered_off(), "{error}");
                        break;
                    }
                }
                if !disk.is_powered_off() {
                    node.check(&written);
                }
            }
            disk = disk.crash(seed.wrapping_add(life as u64));
            let node = Node::start(disk.clone(), &written).unwrap();
            node.check(&written);
        }
    }
}
