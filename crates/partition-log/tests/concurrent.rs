//! Readers beside an owner that appends and a write-behind that moves what it appended.

mod support;

use std::sync::atomic::{AtomicI64, Ordering};

use support::*;
use tidemark_abort_index::AbortedTxn;
use tidemark_disk::SimDisk;
use tidemark_partition_log::*;
use tidemark_record_batch::{ControlType, batches};
use tidemark_types::*;

const BATCHES: usize = 600;

#[test]
fn every_read_is_contiguous_while_batches_move() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    roll_at(&log, 3_000);
    let writer = write_behind(&store);
    let appended = AtomicI64::new(0);
    let mut model = Model::default();
    for n in 0..BATCHES {
        model.next(1 + n % 4, 20 + n % 200);
    }
    let (end, batches_to_append) = (model.end(), model.batches.clone());

    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in batches_to_append {
                let next = batch.last_offset + 1;
                append(&log, batch, None);
                appended.store(next, Ordering::Release);
                if next % 7 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            let mut flushes = 0u64;
            while log.tail_start_offset() < end {
                // One batch behind the owner, so that the tail is seldom empty.
                let newest = log.newest_version().tick.0;
                let confirmed = if newest == BATCHES as u64 * 10 {
                    newest
                } else {
                    newest.saturating_sub(10)
                };
                writer
                    .flush(&log, Tick(confirmed), &FlushPolicy::FORCE)
                    .unwrap();
                flushes += 1;
                if flushes.is_multiple_of(20) {
                    writer.sync_dirty().unwrap();
                }
                std::thread::yield_now();
            }
        });
        for reader in 0..3usize {
            let (log, appended, model) = (&log, &appended, &model);
            scope.spawn(move || {
                let max_bytes = [200, 1_500, 20_000][reader];
                let mut from = 0;
                while from < end {
                    let upper = appended.load(Ordering::Acquire);
                    let read = log.read(from, upper, max_bytes, true).unwrap();
                    if from >= upper {
                        assert!(read.is_empty());
                        std::thread::yield_now();
                        continue;
                    }
                    assert_eq!(joined(&read), model.read(from, upper, max_bytes, true));
                    let mut next = from;
                    for batch in batches(&joined(&read)) {
                        let (header, _) = batch.unwrap();
                        assert_eq!(header.base_offset, next);
                        next = header.next_offset();
                    }
                    assert!(next > from && next <= upper);
                    from = next;
                }
            });
        }
    });
    assert_eq!(log.tail_bytes(), 0);
    assert_eq!(store.tail_bytes(), 0);
    assert_eq!(read_all(&log), model.read(0, i64::MAX, usize::MAX, true));
}

#[test]
fn a_reader_at_an_older_tick_sees_the_older_state() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    let mut model = Model::default();
    for _ in 0..5 {
        append(&log, model.next(2, 10), None);
    }
    for (tick, end) in [(0, 0), (9, 0), (10, 2), (25, 4), (50, 10), (99, 10)] {
        let version = log.at(Tick(tick));
        assert_eq!(version.log_end_offset, end, "tick {tick}");
        let read = log.read(0, version.log_end_offset, 1 << 20, true).unwrap();
        assert_eq!(read.next_offset(), (end > 0).then_some(end));
    }
    log.prune_versions(Tick(30));
    assert_eq!(log.version_count(), 3);
    assert_eq!(log.at(Tick(30)).log_end_offset, 6);
}

#[test]
fn an_older_reader_is_told_of_aborted_transactions_below_a_newer_log_start() {
    let disk = SimDisk::new(1);
    let store = open_store(&disk);
    let log = PartitionLog::new(&store, partition(0), EPOCH);
    append(&log, tail(data(0, &[1], b"v"), 1, None), None);
    let control = ControlMeta {
        control_type: ControlType::Abort,
        txn_first_offset: Some(0),
    };
    let aborted = AbortedTxn {
        producer_id: ProducerId(9),
        first_offset: 0,
        last_offset: 1,
        last_stable_offset: 2,
    };
    let end = tail(marker(1, 9, ControlType::Abort), 2, Some(control));
    append(&log, end, Some(aborted));
    append(&log, tail(data(2, &[1], b"v"), 3, None), None);
    // The records up to 2 are deleted at tick 40.
    let mut version = log.newest_version();
    version.tick = Tick(40);
    version.log_start_offset = 2;
    log.push_version(version);
    log.prune_versions(Tick(30));
    assert_eq!(log.at(Tick(30)).log_start_offset, 0);
    assert_eq!(log.aborted(0, 3), [(ProducerId(9), 0)]);
    log.prune_versions(Tick(40));
    assert_eq!(log.aborted(0, 3), []);
}
