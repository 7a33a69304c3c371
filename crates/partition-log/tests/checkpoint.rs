//! Two generations of checkpoint files, and what a start makes of damaged ones.

mod support;

use std::sync::Arc;

use bytes::Bytes;
use support::*;
use tidemark_abort_index::{AbortIndex, AbortedTxn};
use tidemark_disk::{Disk, OpenMode, OsDisk, SimDisk};
use tidemark_partition_log::*;
use tidemark_types::*;

const STATE: BlockKind = BlockKind(17);
const KNOWN: [(BlockKind, u16); 2] = [(BlockKind::SEGMENTS, 1), (STATE, 2)];

fn header(generation: u64) -> CheckpointHeader {
    CheckpointHeader {
        generation,
        replay_from: JournalIndex(generation * 100),
        highest_tick: Tick(generation * 1_000),
        cluster_id: CLUSTER,
    }
}

fn blocks(generation: u64) -> Vec<Block> {
    (0..3)
        .map(|n| Block {
            kind: if n == 0 { BlockKind::SEGMENTS } else { STATE },
            format_version: 1,
            partition: partition(n),
            stamp: JournalIndex(generation * 100 + n as u64),
            payload: vec![generation as u8; n as usize * 10].into(),
        })
        .collect()
}

fn try_write(
    disk: &SimDisk,
    generation: u64,
    previous: Option<u64>,
    blocks: &[Block],
) -> Result<u64, CheckpointError> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut writer = CheckpointWriter::begin(shared, data_dir(), header(generation), previous)?;
    for block in blocks {
        writer.block(block)?;
    }
    writer.finish()
}

fn write(disk: &SimDisk, generation: u64, previous: Option<u64>) {
    try_write(disk, generation, previous, &blocks(generation)).unwrap();
}

fn latest(disk: &SimDisk) -> Result<Option<Checkpoint>, CheckpointError> {
    read_latest(disk, data_dir(), CLUSTER, &KNOWN)
}

fn path(generation: u64) -> std::path::PathBuf {
    data_dir().join(format!("checkpoint-{generation:020}"))
}

#[test]
fn the_newest_is_read_and_two_are_kept() {
    let disk = SimDisk::new(1);
    assert_eq!(latest(&disk).unwrap(), None);
    write(&disk, 1, None);
    let first = latest(&disk).unwrap().unwrap();
    assert_eq!(
        (first.header, first.previous, first.next_generation),
        (header(1), None, 2)
    );
    assert_eq!(first.blocks, blocks(1));
    write(&disk, 2, Some(1));
    write(&disk, 3, Some(2));
    let third = latest(&disk).unwrap().unwrap();
    assert_eq!(third.header, header(3));
    assert_eq!(third.blocks, blocks(3));
    assert_eq!(third.previous, Some(header(2)));
    assert_eq!(third.fell_back, None);
    assert!(!disk.exists(&path(1)).unwrap());
    let before = read_previous(&disk, data_dir(), CLUSTER, &KNOWN, 3)
        .unwrap()
        .unwrap();
    assert_eq!(before.blocks, blocks(2));
}

/// No generation could follow it.
#[test]
fn a_file_with_the_last_number_there_is_is_no_checkpoint() {
    let disk = SimDisk::new(1);
    write(&disk, 1, None);
    let last = disk.open(&path(u64::MAX), OpenMode::OpenOrCreate).unwrap();
    last.write_at(b"TIDECKPT", 0).unwrap();
    let read = latest(&disk).unwrap().unwrap();
    assert_eq!((read.header, read.next_generation), (header(1), 2));
}

#[test]
fn any_damage_falls_back_to_the_one_before() {
    let disk = SimDisk::new(1);
    write(&disk, 1, None);
    write(&disk, 2, Some(1));
    let len = tidemark_disk::read_all(&disk, &path(2)).unwrap().len() as u64;
    for at in 0..len {
        let disk = disk.crash(at);
        disk.corrupt(&path(2), at, 1 << (at % 8)).unwrap();
        let read = latest(&disk).unwrap().unwrap();
        assert_eq!(read.header, header(1), "byte {at}");
        assert_eq!(read.blocks, blocks(1));
        assert_eq!(read.next_generation, 3);
        assert_eq!(read.previous, None);
        let report = read.fell_back.expect("it is reported");
        assert!(
            report.contains("checkpoint-00000000000000000002: position"),
            "{report}"
        );
    }
    for len in 0..len {
        let disk = disk.crash(len);
        disk.open(&path(2), OpenMode::ReadWrite)
            .unwrap()
            .set_len(len)
            .unwrap();
        assert_eq!(
            latest(&disk).unwrap().unwrap().header,
            header(1),
            "cut to {len}"
        );
    }
    // The next one keeps the good one and removes the damaged.
    let disk = disk.crash(0);
    disk.corrupt(&path(2), 60, 1).unwrap();
    write(&disk, 3, Some(1));
    assert!(disk.exists(&path(1)).unwrap() && !disk.exists(&path(2)).unwrap());
    assert_eq!(latest(&disk).unwrap().unwrap().previous, Some(header(1)));
}

#[test]
fn both_damaged_is_an_error_that_names_the_mend() {
    let disk = SimDisk::new(1);
    write(&disk, 1, None);
    write(&disk, 2, Some(1));
    disk.corrupt(&path(1), 70, 1).unwrap();
    disk.corrupt(&path(2), 80, 1).unwrap();
    let error = latest(&disk).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, CheckpointError::AllDamaged { .. }));
    for part in ["from a copy", "0001: position", "0002: position"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(
        read_previous(&disk, data_dir(), CLUSTER, &KNOWN, 2).unwrap(),
        None
    );
}

#[test]
fn what_a_newer_version_wrote_is_refused_not_skipped() {
    let disk = SimDisk::new(1);
    write(&disk, 1, None);
    for (kind, format_version, payload) in [(BlockKind(99), 1, "x"), (STATE, 3, "y")] {
        let disk = disk.crash(1);
        let block = Block {
            kind,
            format_version,
            partition: partition(0),
            stamp: JournalIndex(1),
            payload: Bytes::from_static(payload.as_bytes()),
        };
        try_write(&disk, 2, Some(1), &[block]).unwrap();
        let error = latest(&disk).unwrap_err();
        assert!(matches!(error, CheckpointError::Newer { .. }), "{error}");
        assert!(
            error.to_string().contains("start that version again"),
            "{error}"
        );
    }
    let error = read_latest(&disk.crash(2), data_dir(), [8; 16], &KNOWN).unwrap_err();
    assert!(matches!(error, CheckpointError::Foreign { .. }), "{error}");
}

#[test]
fn a_power_cut_leaves_the_old_or_the_new_whole() {
    let disk = SimDisk::new(1);
    write(&disk, 1, None);
    write(&disk, 2, Some(1));
    let mut news = 0;
    let mut olds = 0;
    for steps in 0.. {
        let disk = disk.crash(steps);
        disk.cut_power_after(steps);
        let done = try_write(&disk, 3, Some(2), &blocks(3)).is_ok();
        let survived = disk.crash(steps + 1_000);
        let read = latest(&survived).unwrap().unwrap();
        assert_eq!(read.fell_back, None);
        let generation = read.header.generation;
        assert!(generation == 3 || (generation == 2 && !done));
        assert_eq!(read.blocks, blocks(generation));
        if generation == 3 {
            news += 1;
            // What the new one keeps beside it is there.
            assert_eq!(read.previous, Some(header(2)));
        } else {
            olds += 1;
        }
        if done {
            break;
        }
    }
    assert!(news > 1 && olds > 2, "{news} {olds}");
}

#[test]
fn a_manifest_reads_back_and_contradictions_do_not() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    roll_at(&log, 500);
    let mut model = Model::default();
    for _ in 0..20 {
        append(&log, model.next(1, 100), None);
    }
    log.start_leader_epoch(LeaderEpoch(5));
    let writer = write_behind(&store);
    writer.flush(&log, Tick(120), &FlushPolicy::FORCE).unwrap();
    assert!(log.segment_manifest().segments.is_empty());
    writer.sync_dirty().unwrap();
    writer.flush(&log, Tick(170), &FlushPolicy::FORCE).unwrap();

    let mut manifest = log.segment_manifest();
    assert_eq!((manifest.synced_end_offset, manifest.end_offset), (12, 20));
    assert_eq!(manifest.first_needed_index, Some(JournalIndex(13)));
    manifest.aborted.push(AbortedTxn {
        producer_id: ProducerId(4),
        first_offset: 3,
        last_offset: 9,
        last_stable_offset: 10,
    });
    let bytes = manifest.encode();
    assert_eq!(SegmentManifest::decode(&bytes), Some(manifest.clone()));
    for len in 0..bytes.len() {
        assert_eq!(SegmentManifest::decode(&bytes[..len]), None, "cut to {len}");
    }
    let mut claims_more = manifest.clone();
    claims_more.synced_end_offset += 1;
    let mut overlapping = manifest.clone();
    overlapping.segments[1].base_offset -= 1;
    let mut empty = manifest.clone();
    empty.segments[0].entries = 0;
    for wrong in [claims_more, overlapping, empty] {
        assert_eq!(SegmentManifest::decode(&wrong.encode()), None);
    }
    // A count that is not there takes no memory.
    let mut huge = bytes.clone();
    huge[32..36].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(SegmentManifest::decode(&huge), None);

    // Recovered, the log knows what the manifest knew.
    writer.sync_dirty().unwrap();
    let manifest = log.segment_manifest();
    let expected = read_all(&log);
    let store = open_store(&disk.crash(9));
    let recovered = PartitionLog::recover(&store, partition(0), manifest.clone()).unwrap();
    for batch in &model.batches[17..] {
        assert!(recovered.restore(batch.clone()));
    }
    assert!(!recovered.restore(model.batches[16].clone()));
    assert_eq!(read_all(&recovered), expected);
    assert_eq!(recovered.end_offset_for_epoch(EPOCH, 25), Some((EPOCH, 20)));
    assert_eq!(recovered.segment_manifest(), manifest);
    assert_eq!(manifest.aborted, AbortIndex::default());
}

#[test]
fn directories_of_deleted_partitions_outlive_two_checkpoints() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let writer = write_behind(&store);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    append(&log, Model::default().next(1, 10), None);
    writer.flush(&log, Tick(10), &FlushPolicy::FORCE).unwrap();
    let retired = Retired::default();
    retired.checkpoint_begun(4);
    // Checkpoint 4 may have taken its block of the partition already.
    log.close();
    writer.forget(&log);
    retired.retire(partition(0));
    let mut there = Vec::new();
    for generation in 4..=6 {
        retired.checkpoint_begun(generation);
        retired
            .checkpoint_completed(&store, generation, generation - 1)
            .unwrap();
        there.push(disk.exists(log.dir()).unwrap());
    }
    assert_eq!(there, [true, true, false]);
    assert!(retired.is_empty());
}

#[test]
fn the_same_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let open = || LogStore::open(disk.clone(), dir.path(), CLUSTER, &StoreSettings::default());
    let store = open().unwrap();
    let writer = WriteBehind::new(&store, WriteBehindSettings::default());
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    roll_at(&log, 100_000);
    let mut model = Model::default();
    for n in 0..300 {
        append(&log, model.next(1 + n % 5, 1_000), None);
    }
    writer
        .flush(&log, Tick(2_500), &FlushPolicy::FORCE)
        .unwrap();
    writer.sync_dirty().unwrap();
    let manifest = log.segment_manifest();
    writer
        .flush(&log, Tick(2_700), &FlushPolicy::FORCE)
        .unwrap();
    let mut checkpoint =
        CheckpointWriter::begin(disk.clone(), dir.path(), header(1), None).unwrap();
    checkpoint
        .block(&Block {
            kind: BlockKind::SEGMENTS,
            format_version: SegmentManifest::FORMAT_VERSION,
            partition: partition(0),
            stamp: JournalIndex(300),
            payload: manifest.encode().into(),
        })
        .unwrap();
    checkpoint.finish().unwrap();
    let expected = read_all(&log);
    drop((log, writer, store));

    let store = open().unwrap();
    let checkpoint = read_latest(&*disk, dir.path(), CLUSTER, &KNOWN)
        .unwrap()
        .unwrap();
    let manifest = SegmentManifest::decode(&checkpoint.blocks[0].payload).unwrap();
    let needed = manifest.first_needed_index.unwrap();
    assert_eq!(needed, JournalIndex(251));
    let log = PartitionLog::recover(&store, partition(0), manifest).unwrap();
    for batch in model.batches.iter().filter(|b| b.index >= needed) {
        log.restore(batch.clone());
    }
    assert_eq!(read_all(&log), expected);
}
