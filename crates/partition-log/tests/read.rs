//! Every offset once, whatever the sizes of segments, batches and reads.

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use support::*;
use tidemark_abort_index::AbortedTxn;
use tidemark_disk::{Disk, OpenMode, SimDisk};
use tidemark_partition_log::*;
use tidemark_record_batch::{ControlType, batches};
use tidemark_types::*;

/// A log whose first `flushed` batches lie in segments.
fn built(
    sizes: &[(usize, usize)],
    segment_bytes: u64,
    flushed: usize,
) -> (Model, Arc<PartitionLog>) {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    roll_at(&log, segment_bytes);
    let mut model = Model::default();
    for (records, value_bytes) in sizes {
        append(&log, model.next(*records, *value_bytes), None);
    }
    let confirmed = Tick(flushed as u64 * 10);
    write_behind(&store)
        .flush(&log, confirmed, &FlushPolicy::FORCE)
        .unwrap();
    let in_tail = model
        .batches
        .get(flushed)
        .map_or(model.end(), |b| b.base_offset);
    assert_eq!(log.tail_start_offset(), in_tail);
    (model, log)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_offset_once(
        sizes in prop::collection::vec((1usize..6, 0usize..400), 1..40),
        segment_bytes in 50u64..4_000,
        max_bytes in 0usize..4_000,
        flushed_share in 0usize..=100,
    ) {
        let flushed = sizes.len() * flushed_share / 100;
        let (model, log) = built(&sizes, segment_bytes, flushed);
        let mut from = 0;
        let mut seen = Vec::new();
        while from < model.end() {
            let read = log.read(from, model.end(), max_bytes, true).unwrap();
            prop_assert_eq!(read.first_offset, Some(from));
            for batch in batches(&joined(&read)) {
                let (header, _) = batch.unwrap();
                seen.extend(header.base_offset..=header.last_offset());
            }
            from = read.next_offset().unwrap();
        }
        prop_assert_eq!(seen, (0..model.end()).collect::<Vec<_>>());
    }

    #[test]
    fn every_read_is_the_plain_lists(
        sizes in prop::collection::vec((1usize..6, 0usize..400), 1..30),
        segment_bytes in 50u64..4_000,
        flushed_share in 0usize..=100,
        reads in prop::collection::vec((0usize..200, 0usize..200, 0usize..6_000, any::<bool>()), 20),
    ) {
        let flushed = sizes.len() * flushed_share / 100;
        let (model, log) = built(&sizes, segment_bytes, flushed);
        for (from, upper, max_bytes, min_one) in reads {
            let from = from as i64 % (model.end() + 1);
            let upper = upper as i64 % (model.end() + 2);
            let read = log.read(from, upper, max_bytes, min_one).unwrap();
            prop_assert_eq!(
                joined(&read),
                model.read(from, upper, max_bytes, min_one),
                "from {} upper {} max {} min_one {}", from, upper, max_bytes, min_one
            );
        }
    }
}

#[test]
fn a_fetch_inside_a_batch_gets_the_whole_batch() {
    // One batch 0..9, one batch 10..11: in the tail, in one segment, in two.
    for (segment_bytes, flushed) in [(10_000, 0), (10_000, 1), (10_000, 2), (1, 2)] {
        let (model, log) = built(&[(10, 5), (2, 5)], segment_bytes, flushed);
        for (from, first, max_bytes) in [(7, 0, 1), (11, 10, 10_000)] {
            let read = log.read(from, 12, max_bytes, true).unwrap();
            assert_eq!(read.first_offset, Some(first), "flushed {flushed}");
            assert_eq!(joined(&read), model.read(from, 12, max_bytes, true));
        }
    }
}

#[test]
fn the_first_batch_is_whole_and_larger_than_a_piece() {
    let sizes = [(1, 10), (1, 3 << 20), (1, 10), (3, 1 << 20), (1, 10)];
    let (model, log) = built(&sizes, 1 << 30, sizes.len());
    for from in 0..model.end() {
        for max_bytes in [0, 1, 100, 1 << 20, 4 << 20, 10 << 20] {
            for min_one in [false, true] {
                let read = log.read(from, i64::MAX, max_bytes, min_one).unwrap();
                assert_eq!(
                    joined(&read),
                    model.read(from, i64::MAX, max_bytes, min_one)
                );
            }
        }
    }
    let nothing = log.read(1, i64::MAX, 1, false).unwrap();
    assert!(nothing.is_empty() && nothing.next_offset().is_none());
}

#[test]
fn a_bound_hides_the_batch_that_begins_at_it() {
    for flushed in [0, 2, 4] {
        let (model, log) = built(&[(2, 5), (1, 5), (1, 5), (3, 5)], 150, flushed);
        // A batch that begins below the bound is whole, the one at the bound is not there.
        assert_eq!(log.read(0, 3, 10_000, true).unwrap().last_offset, Some(2));
        assert_eq!(log.read(0, 5, 10_000, true).unwrap().last_offset, Some(6));
        assert!(log.read(3, 3, 10_000, true).unwrap().is_empty());
        assert!(
            log.read(model.end(), i64::MAX, 10_000, true)
                .unwrap()
                .is_empty()
        );
    }
}

#[test]
fn offsets_outside_the_log_are_refused() {
    let (_, log) = built(&[(2, 5), (1, 5)], 150, 1);
    for offset in [-1, 4] {
        let error = log.read(offset, i64::MAX, 100, true).unwrap_err();
        assert!(
            matches!(
                error,
                LogError::OutOfRange {
                    start: 0,
                    end: 3,
                    ..
                }
            ),
            "{error}"
        );
    }
    log.close();
    assert!(matches!(log.read(0, 3, 100, true), Err(LogError::Closed)));
}

#[test]
fn tail_reads_copy_nothing() {
    let (model, log) = built(&[(1, 50), (1, 50)], 10_000, 0);
    let read = log.read(0, 2, 10_000, true).unwrap();
    for (chunk, batch) in read.chunks.iter().zip(&model.batches) {
        assert_eq!(chunk.as_ptr(), batch.bytes.as_ptr());
    }
}

/// Plain records 0,1; P1 2, plain 3, P2 4, abort P1 (5), abort P2 (6), in tiny segments.
#[test]
fn the_aborted_list_is_complete_across_segments() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    roll_at(&log, 160);
    for offset in 0..5 {
        let batch = tail(data(offset, &[1_000], b"v"), offset as u64 + 1, None);
        append(&log, batch, None);
    }
    for (offset, producer, first_offset) in [(5, 1, 2), (6, 2, 4)] {
        let control = ControlMeta {
            control_type: ControlType::Abort,
            txn_first_offset: Some(first_offset),
        };
        let bytes = marker(offset, producer, ControlType::Abort);
        let aborted = AbortedTxn {
            producer_id: ProducerId(producer),
            first_offset,
            last_offset: offset,
            last_stable_offset: offset + 1,
        };
        append(
            &log,
            tail(bytes, offset as u64 + 1, Some(control)),
            Some(aborted),
        );
    }
    let writer = write_behind(&store);
    writer.flush(&log, Tick(50), &FlushPolicy::FORCE).unwrap();
    let both = vec![(ProducerId(1), 2), (ProducerId(2), 4)];
    for confirmed in [50, 60, 70] {
        writer
            .flush(&log, Tick(confirmed), &FlushPolicy::FORCE)
            .unwrap();
        assert_eq!(log.aborted(2, 7), both);
        assert_eq!(log.aborted(5, 7), both);
        assert_eq!(log.aborted(6, 7), both[1..]);
        // Bounded by what the reader sees: P2 begins at 4.
        assert_eq!(log.aborted(0, 4), both[..1]);
        assert_eq!(log.aborted(0, 2), []);
        assert_eq!(log.read(2, 7, 10_000, true).unwrap().next_offset(), Some(7));
    }
    assert!(log.segments().len() > 3);
}

#[test]
fn a_flipped_bit_in_a_segment_is_refused_where_it_lies() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    let mut model = Model::default();
    for _ in 0..100 {
        append(&log, model.next(1, 50), None);
    }
    let writer = write_behind(&store);
    writer
        .flush(&log, Tick(1_000), &FlushPolicy::FORCE)
        .unwrap();
    let size = model.batches[0].bytes.len() as u64;
    let path = log.dir().join("00000000000000000000.log");
    disk.corrupt(&path, 50 * size + 70, 0x10).unwrap();
    // What precedes the damage is delivered; the batch itself is refused; what follows is there.
    let before = log.read(40, 100, 1 << 20, true).unwrap();
    assert_eq!(before.next_offset(), Some(50));
    let error = log.read(50, 100, 1 << 20, true).unwrap_err();
    assert!(
        matches!(&error, LogError::Damaged { position, .. } if *position == 50 * size),
        "{error}"
    );
    let after = log.read(51, 100, 1 << 20, true).unwrap();
    assert_eq!(after.next_offset(), Some(100));
}

/// Ten batches that are written, and the file that knows their ticks.
fn ten_with_a_tick_index(disk: &SimDisk) -> (Arc<PartitionLog>, PathBuf) {
    let store = open_store(disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    let mut model = Model::default();
    for _ in 0..10 {
        append(&log, model.next(1, 50), None);
    }
    let writer = write_behind(&store);
    writer.flush(&log, Tick(100), &FlushPolicy::FORCE).unwrap();
    let path = log.dir().join("00000000000000000000.tickindex");
    (log, path)
}

#[test]
fn a_flipped_bit_in_a_tick_index_is_an_error() {
    let disk = SimDisk::new(1);
    let (log, path) = ten_with_a_tick_index(&disk);
    let position = TICK_HEADER_BYTES as u64 + 4 * TICK_ENTRY_BYTES as u64;
    disk.corrupt(&path, position + 3, 1).unwrap();
    let error = log.read(5, 10, 1_000, true).unwrap_err();
    assert!(
        matches!(&error, LogError::Damaged { position: at, .. } if *at == position),
        "{error}"
    );
}

/// Its checksum is right. No memory is taken for bytes that are not there.
#[test]
fn a_tick_index_that_names_more_than_was_written_is_refused() {
    let disk = SimDisk::new(1);
    let (log, path) = ten_with_a_tick_index(&disk);
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    let entry_at = (TICK_HEADER_BYTES + 4 * TICK_ENTRY_BYTES) as u64;
    let mut entry = [0; TICK_ENTRY_BYTES];
    file.read_at(&mut entry, entry_at).unwrap();
    let position = u32::from_be_bytes(entry[20..24].try_into().unwrap());
    entry[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
    let crc = crc32c::crc32c(&entry[..92]);
    entry[92..].copy_from_slice(&crc.to_be_bytes());
    file.write_at(&entry, entry_at).unwrap();
    // By timestamp, as a batch is read whole.
    let error = log.offset_for_timestamp(5, 0, 10).unwrap_err();
    assert!(
        matches!(&error, LogError::Damaged { position: at, .. } if *at == u64::from(position)),
        "{error}"
    );
}

#[test]
fn the_tail_is_counted_until_it_is_written() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    let mut model = Model::default();
    for _ in 0..4 {
        append(&log, model.next(1, 50).with_allocated_bytes(10_000), None);
    }
    assert!(store.tail_bytes() >= 40_000);
    let writer = write_behind(&store);
    // Too little to be worth a write, too young; then old enough.
    let mut policy = FlushPolicy::default();
    for older_than in [None, Some(Tick(9))] {
        policy.older_than = older_than;
        assert_eq!(
            writer.flush(&log, Tick(30), &policy).unwrap(),
            FlushReport::default()
        );
    }
    policy.older_than = Some(Tick(10));
    assert_eq!(writer.flush(&log, Tick(30), &policy).unwrap().batches, 3);
    assert!((10_000..20_000).contains(&store.tail_bytes()));
    // A deleted partition gives its memory back at once, whoever still holds the log.
    log.close();
    assert_eq!(store.tail_bytes(), 0);
    assert_eq!(log.first_needed_index(), Some(JournalIndex(1)));
    writer.forget(&log);
    assert_eq!(writer.sync_dirty().unwrap().files, 0);
    drop(log);
    assert_eq!(store.tail_bytes(), 0);
}
