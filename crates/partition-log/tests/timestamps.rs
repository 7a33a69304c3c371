//! ListOffsets by timestamp, over rolls, and the log start.

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use support::*;
use tidemark_disk::SimDisk;
use tidemark_partition_log::*;
use tidemark_types::*;

/// One batch per list of timestamps; the first `flushed` batches in segments of `segment_bytes`.
fn built(batches: &[Vec<i64>], segment_bytes: u64, flushed: usize) -> Arc<PartitionLog> {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    roll_at(&log, segment_bytes);
    let mut offset = 0;
    for (at, timestamps) in batches.iter().enumerate() {
        let bytes = data(offset, timestamps, b"v");
        append(&log, tail(bytes, at as u64 + 1, None), None);
        offset += timestamps.len() as i64;
    }
    let confirmed = Tick(flushed as u64 * 10);
    write_behind(&store)
        .flush(&log, confirmed, &FlushPolicy::FORCE)
        .unwrap();
    log
}

fn ask(log: &PartitionLog, target_ms: i64) -> Option<(i64, i64)> {
    log.offset_for_timestamp(target_ms, log.newest_version().log_start_offset, i64::MAX)
        .unwrap()
        .map(|found| {
            assert_eq!(found.leader_epoch, EPOCH);
            (found.offset, found.timestamp)
        })
}

#[test]
fn the_first_record_at_or_after_the_timestamp() {
    let rising = [
        (1, Some((0, 2))),
        (2, Some((0, 2))),
        (3, Some((1, 4))),
        (8, Some((3, 8))),
        (9, None),
    ];
    // Timestamps that step back.
    let uneven = [(6, Some((0, 10))), (11, Some((2, 20))), (21, None)];
    for segment_bytes in [1, 10_000] {
        for flushed in 0..=4 {
            let log = built(
                &[vec![2], vec![4], vec![6], vec![8]],
                segment_bytes,
                flushed,
            );
            for (target, answer) in rising {
                assert_eq!(ask(&log, target), answer, "{target}, flushed {flushed}");
            }
            let log = built(
                &[vec![10], vec![5], vec![20]],
                segment_bytes,
                flushed.min(3),
            );
            for (target, answer) in uneven {
                assert_eq!(ask(&log, target), answer, "{target}, flushed {flushed}");
            }
            // The same records in one batch.
            let log = built(&[vec![10, 5, 20]], segment_bytes, flushed.min(1));
            for (target, answer) in uneven {
                assert_eq!(ask(&log, target), answer, "{target}, one batch");
            }
        }
    }
}

#[test]
fn what_lies_at_or_above_the_bound_is_not_found() {
    for flushed in [0, 4] {
        let log = built(&[vec![2], vec![4, 6], vec![8]], 1, flushed);
        let found = log
            .offset_for_timestamp(5, log.newest_version().log_start_offset, 3)
            .unwrap()
            .unwrap();
        assert_eq!(found.offset, 2);
        for (target, upper) in [(5, 2), (8, 3), (2, 0)] {
            assert_eq!(
                log.offset_for_timestamp(target, log.newest_version().log_start_offset, upper)
                    .unwrap(),
                None
            );
        }
        let highest = |upper| {
            log.max_timestamp(log.newest_version().log_start_offset, upper)
                .unwrap()
                .map(|t| (t.offset, t.timestamp))
        };
        assert_eq!(highest(i64::MAX), Some((3, 8)));
        assert_eq!(highest(3), Some((2, 6)));
        assert_eq!(highest(1), Some((0, 2)));
        assert_eq!(highest(0), None);
    }
}

#[test]
fn records_below_the_log_start_are_not_found() {
    for (segment_bytes, flushed) in [(1, 0), (1, 5), (10_000, 5), (10_000, 2)] {
        let batches = [vec![50], vec![10, 40], vec![20], vec![30], vec![5]];
        let log = built(&batches, segment_bytes, flushed);
        assert_eq!(ask(&log, 35), Some((0, 50)));
        move_log_start(&log, 2);
        // Offset 2 is the second record of its batch.
        assert_eq!(ask(&log, 5), Some((2, 40)));
        move_log_start(&log, 3);
        for (target, answer) in [(15, Some((3, 20))), (25, Some((4, 30))), (31, None)] {
            assert_eq!(
                ask(&log, target),
                answer,
                "segments of {segment_bytes}, {flushed}"
            );
        }
        let highest = log
            .max_timestamp(log.newest_version().log_start_offset, i64::MAX)
            .unwrap()
            .unwrap();
        assert_eq!((highest.offset, highest.timestamp), (4, 30));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn answers_are_those_of_a_plain_scan(
        batches in prop::collection::vec(prop::collection::vec(0i64..50, 1..4), 1..120),
        segment_bytes in 1u64..8_000,
        flushed_share in 0usize..=100,
        upper in 0i64..300,
        log_start in 0i64..60,
    ) {
        let flushed = batches.len() * flushed_share / 100;
        let log = built(&batches, segment_bytes, flushed);
        let records: Vec<(i64, i64)> = (0i64..).zip(batches.iter().flatten().copied()).collect();
        let log_start = log_start.min(records.len() as i64);
        move_log_start(&log, log_start);
        let kept = &records[log_start as usize..];
        for target in 0..52 {
            let plain = kept
                .iter()
                .find(|(_, timestamp)| *timestamp >= target)
                .filter(|(offset, _)| *offset < upper);
            let found = log.offset_for_timestamp(target, log.newest_version().log_start_offset, upper).unwrap();
            prop_assert_eq!(found.map(|f| (f.offset, f.timestamp)), plain.copied());
        }
        // A reader's bound is the end of a batch.
        let mut end = 0;
        let bounds: Vec<i64> = batches
            .iter()
            .map(|batch| {
                end += batch.len() as i64;
                end
            })
            .collect();
        let upper = bounds[upper as usize % bounds.len()];
        let plain = records[..upper as usize]
            .iter()
            .copied()
            .filter(|record| record.0 >= log_start)
            .reduce(|best, record| if record.1 > best.1 { record } else { best });
        let found = log.max_timestamp(log.newest_version().log_start_offset, upper).unwrap();
        prop_assert_eq!(found.map(|f| (f.offset, f.timestamp)), plain);
    }
}
