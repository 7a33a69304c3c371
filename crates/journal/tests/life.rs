//! A journal that is started, written, stopped and started again.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use tidemark_disk::{OsDisk, SimDisk};
use tidemark_journal::{Journal, JournalEvent, JournalOptions};
use tidemark_types::JournalIndex;

#[test]
fn records_read_back_after_a_clean_stop_in_the_same_slot_and_epoch() {
    let disk = SimDisk::new(1);
    let mut first = start(&disk);
    assert!(first.clean && first.recovered.is_empty());
    assert_eq!((first.next_index, first.epoch), (1, 0));
    // Small enough for one slot, however the records fall into groups and marks come between.
    let payloads: Vec<Bytes> = [0, 1, 7, 8, 100, 4096]
        .iter()
        .enumerate()
        .map(|(i, len)| payload(i as u64 + 1, *len))
        .collect();
    payloads.iter().for_each(|p| first.append(p));
    first.journal.shutdown();

    let mut second = start(&disk);
    assert!(second.clean && second.cut.is_none());
    assert_eq!((second.next_index, second.epoch), (7, 0));
    assert_eq!(second.payloads(), payloads);
    for (i, record) in second.recovered.iter().enumerate() {
        let index = i as u64 + 1;
        assert_eq!(record.index.0, index);
        assert_eq!(record.tick.0, index * 3);
        assert_eq!(record.wall_ms, 1_000 + index as i64);
        assert_eq!(record.epoch, 0);
    }
    assert_eq!(second.highest_tick.0, 18);
    second.append_and_wait(&payload(7, 50));
    second.journal.shutdown();

    let third = start(&disk);
    assert!(third.clean);
    assert_eq!(third.epoch, 0);
    assert_eq!(third.payloads()[6], payload(7, 50));
    assert_eq!(third.journal.usage().slots_in_use, 1);
}

#[test]
fn a_stop_without_a_clean_end_raises_the_epoch_and_goes_on_in_a_fresh_slot() {
    let disk = SimDisk::new(1);
    let mut first = start(&disk);
    first.append_and_wait(&payload(1, 10));
    drop(first);
    for _ in 0..20 {
        // Starts that write nothing cost no slot.
        let idle = start(&disk);
        assert!(!idle.clean);
        assert_eq!(idle.epoch, 1);
    }
    let mut second = start(&disk);
    second.append_and_wait(&payload(2, 10));
    assert_eq!(second.journal.usage().slots_in_use, 2);
    drop(second);
    let third = start(&disk);
    assert_eq!(third.epoch, 2);
    assert_eq!(third.payloads(), [payload(1, 10), payload(2, 10)]);
    assert_eq!(third.recovered[0].epoch, 0);
    assert_eq!(third.recovered[1].epoch, 1);
}

#[test]
fn a_commit_alone_costs_one_write_and_one_sync() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 10));
    let before = disk.counts(Path::new("/data/journal"));
    // Not as many as fill half of the slot: then the next ones would be prepared meanwhile.
    for index in 2..=5 {
        running.append_and_wait(&payload(index, 10));
    }
    let after = disk.counts(Path::new("/data/journal"));
    assert_eq!(after.syncs - before.syncs, 4);
    assert_eq!(after.writes - before.writes, 4);
    assert_eq!(after.dir_syncs, before.dir_syncs);
}

#[test]
fn an_idle_journal_writes_one_mark_and_then_nothing() {
    let disk = SimDisk::new(1);
    let options = JournalOptions {
        mark_after: Duration::ZERO,
        ..options()
    };
    let mut running = start_from(Arc::new(disk.clone()), options, 1).unwrap();
    running.append(&payload(1, 10));
    // Its header, its group and the mark: the third sync of the slot in use after its preparation.
    let prepared = 2;
    disk.wait_for_syncs(Path::new("/data/journal"), prepared + 3);
    for _ in 0..100 {
        // Wakes the writer each time.
        running.journal.release_below(JournalIndex(1));
    }
    running.journal.shutdown();
    let end = disk.counts(Path::new("/data/journal"));
    assert_eq!(end.syncs, prepared + 3 + 1, "only the clean end came after");
}

#[test]
fn a_start_answers_before_the_first_slot_is_prepared() {
    let disk = SimDisk::new(1);
    disk.hold_syncs();
    let mut running = start(&disk);
    running.append(&payload(1, 10));
    disk.wait_for_held_syncs(1);
    assert_eq!(running.journal.usage().free_slots, 0);
    disk.release_syncs();
    running.confirmed(1).unwrap();
}

#[test]
fn dropping_a_journal_before_it_wrote_anything_leaves_a_new_one() {
    let disk = SimDisk::new(1);
    drop(start(&disk));
    let again = start(&disk);
    assert!(again.clean);
    assert_eq!((again.next_index, again.epoch), (1, 0));
    again.journal.shutdown();
    again.journal.shutdown();
    let third = start(&disk);
    assert_eq!((third.next_index, third.epoch), (1, 0));
}

#[test]
fn replay_starts_at_the_record_that_is_asked_for() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    for index in 1..=30 {
        running.append_and_wait(&payload(index, 10_000));
    }
    running.journal.shutdown();
    for from in [1, 2, 5, 6, 29, 30, 31] {
        let again = start_from(Arc::new(disk.clone()), options(), from).unwrap();
        let indexes: Vec<u64> = again.recovered.iter().map(|r| r.index.0).collect();
        assert_eq!(indexes, (from..=30).collect::<Vec<_>>());
        again.journal.shutdown();
    }
    let beyond = start_from(Arc::new(disk.clone()), options(), 32).err();
    let message = beyond.expect("the journal ends before 32").to_string();
    assert!(message.contains("ends before record 31"), "{message}");
}

#[test]
fn a_record_that_cannot_be_applied_stops_the_start() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 10));
    running.journal.shutdown();
    let refused = tidemark_journal::recover(
        Arc::new(disk.clone()),
        options(),
        JournalIndex(1),
        &mut |_| Err("no such topic".to_string()),
    );
    let message = refused.err().expect("the visitor said no").to_string();
    assert_eq!(
        message,
        "journal: record 1 cannot be applied: no such topic"
    );
}

#[test]
fn the_largest_record_fits_and_reads_back() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    let largest = running.journal.max_record_bytes() as usize;
    running.append_and_wait(&payload(1, 10));
    running.append_and_wait(&payload(2, largest));
    running.append_and_wait(&payload(3, 10));
    running.journal.shutdown();
    let again = start(&disk);
    assert!(again.clean);
    assert_eq!(again.payloads()[1], payload(2, largest));
}

#[test]
fn records_read_back_whoever_computed_their_crc() {
    // From 512 KiB on it is the appender.
    let disk = Arc::new(SimDisk::new(1));
    let options = || JournalOptions {
        slot_bytes: 1 << 20,
        budget_bytes: 8 << 20,
        ..options()
    };
    let mut running = start_from(disk.clone(), options(), 1).unwrap();
    let payloads: Vec<Bytes> = (1..)
        .zip([(512 << 10) - 1, 512 << 10, 10, 700_000])
        .map(|(index, len)| payload(index, len))
        .collect();
    payloads.iter().for_each(|p| running.append_and_wait(p));
    running.journal.shutdown();
    let again = start_from(disk, options(), 1).unwrap();
    assert!(again.clean && again.cut.is_none());
    assert_eq!(again.payloads(), payloads);
}

#[test]
#[should_panic(expected = "does not follow")]
fn an_index_out_of_order_is_a_bug_of_the_caller() {
    let mut running = start(&SimDisk::new(1));
    running.next_index = 5;
    running.append(&payload(5, 1));
}

#[test]
fn a_changed_slot_size_applies_as_slots_are_recycled() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    for index in 1..=20 {
        running.append_and_wait(&payload(index, 10_000));
    }
    running.journal.shutdown();
    drop(running);
    let larger = || JournalOptions {
        slot_bytes: 2 * SLOT,
        ..options()
    };
    let mut running = start_from(Arc::new(disk.clone()), larger(), 1).unwrap();
    // Half as many slots fit into the budget, and all are in use.
    running.append(&payload(21, 10_000));
    running.event(|e| *e == JournalEvent::NeedCheckpoint);
    running.journal.release_below(JournalIndex(15));
    running.confirmed(21).unwrap();
    for index in 22..=60 {
        running.append_and_wait(&payload(index, 10_000));
        running.journal.release_below(JournalIndex(index - 5));
    }
    running.journal.shutdown();
    drop(running);
    let again = start_from(Arc::new(disk.clone()), larger(), 55).unwrap();
    assert_eq!(again.recovered.len(), 6);
    assert_eq!(again.payloads()[5], payload(60, 10_000));
    again.journal.shutdown();
    assert!(disk.used_bytes() <= 8 * SLOT);
}

#[test]
fn the_operating_systems_disk_keeps_a_journal_too() {
    let dir = tempfile::tempdir().unwrap();
    let options = || JournalOptions {
        slot_bytes: 1 << 20,
        budget_bytes: 4 << 20,
        ..JournalOptions::new(dir.path().join("a/journal"), ID)
    };
    let mut running = start_from(Arc::new(OsDisk), options(), 1).unwrap();
    for index in 1..=300 {
        running.append(&payload(index, 3_000 + index as usize));
    }
    running.confirmed(300).unwrap();
    running.journal.release_below(JournalIndex(100));
    for index in 301..=500 {
        running.append(&payload(index, 5_000));
    }
    running.confirmed(500).unwrap();
    running.journal.shutdown();
    let mut again = start_from(Arc::new(OsDisk), options(), 100).unwrap();
    assert!(again.clean);
    assert_eq!(again.recovered.len(), 401);
    assert!((again.recovered.iter()).all(|r| {
        let len = if r.index.0 <= 300 {
            3_000 + r.index.0
        } else {
            5_000
        };
        r.payload == payload(r.index.0, len as usize)
    }));
    again.append_and_wait(&payload(501, 10));
    drop(again);
    let third = start_from(Arc::new(OsDisk), options(), 500).unwrap();
    assert_eq!(third.epoch, 1);
    assert_eq!(third.recovered.len(), 2);
}

#[test]
fn after_a_failed_sync_nothing_more_is_accepted() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 10));
    disk.fail_next_sync(EIO);
    running.append(&payload(2, 10));
    let failed = running.event(|e| !matches!(e, JournalEvent::Confirmed { .. }));
    let JournalEvent::Failed { message } = failed else {
        panic!("{failed:?}");
    };
    for part in ["sync of", "000000.slot", "os error 5", "start again"] {
        assert!(message.contains(part), "{message}");
    }
    running.append(&payload(3, 10));
    running.journal.shutdown();
    assert!(running.events.recv().is_err(), "no event after Failed");
    let again = start(&disk.crash(1));
    assert_eq!(again.payloads(), [payload(1, 10)]);
}

#[test]
fn a_failed_write_stops_the_journal_as_well() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 10));
    disk.fail_write_after(0, EIO);
    running.append(&payload(2, 10));
    let message = running.confirmed(2).unwrap_err();
    assert!(message.contains("write to"), "{message}");
}
