//! The weak modes: told when written, synced later.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use tidemark_disk::SimDisk;
use tidemark_journal::{Journal, JournalEvent, JournalOptions, SyncMode};
use tidemark_types::JournalIndex;

fn with(sync: SyncMode) -> JournalOptions {
    JournalOptions { sync, ..options() }
}

fn start_in(disk: &SimDisk, sync: SyncMode) -> Running {
    start_from(Arc::new(disk.clone()), with(sync), 1).unwrap()
}

/// A journal whose first group, which is always synced, is written.
fn begun(disk: &SimDisk, sync: SyncMode) -> Running {
    let mut running = start_in(disk, sync);
    running.append_and_wait(&payload(1, 10));
    running
}

#[test]
fn the_first_group_of_a_run_is_synced_so_that_its_end_is_found_out() {
    let disk = SimDisk::new(1);
    let running = begun(&disk, SyncMode::Os);
    running.journal.shutdown();
    // A run whose every later write is lost.
    let mut running = start_in(&disk, SyncMode::Os);
    assert!(running.clean && !running.may_have_lost);
    running.append(&payload(2, 10));
    running.confirmed(2).unwrap();
    running.append(&payload(3, 10));
    running.written(3);
    let found = start_in(&disk.crash(1), SyncMode::Always);
    assert!(!found.clean && found.may_have_lost);
    assert_eq!(found.recovered.len().max(2), found.recovered.len());
}

#[test]
fn without_a_sync_nothing_is_synced_and_what_must_be_synced_takes_all_before_it_along() {
    let disk = SimDisk::new(1);
    let mut running = begun(&disk, SyncMode::Os);
    let before = disk.counts(&slot_path(0)).syncs;
    for index in 2..=20 {
        running.append(&payload(index, 100));
        running.written(index);
    }
    assert_eq!(disk.counts(&slot_path(0)).syncs, before);
    assert_eq!(running.journal.stats().syncs, 1);
    running.append_as(&payload(21, 100), true, false);
    running.confirmed(21).unwrap();
    assert_eq!(disk.counts(&slot_path(0)).syncs, before + 1);
    for seed in 0..20 {
        assert_eq!(start(&disk.crash(seed)).recovered.len(), 21);
    }
}

#[test]
fn small_groups_share_pages_until_they_are_synced_and_never_after() {
    let disk = SimDisk::new(1);
    let mut running = begun(&disk, SyncMode::Os);
    for index in 2..=11 {
        running.append(&payload(index, 100));
        running.written(index);
    }
    let used = running.journal.usage().written_bytes;
    assert!(
        used <= 4 * 4096,
        "{used}: ten groups of 192 bytes take a page"
    );
    running.journal.request_sync(JournalIndex(11));
    running.confirmed(11).unwrap();
    running.append(&payload(12, 100));
    running.written(12);
    assert_eq!(running.journal.usage().written_bytes, used + 4096);
    running.journal.request_sync(JournalIndex(12));
    running.confirmed(12).unwrap();
    drop(running);
    let found = start(&disk.crash(3));
    let expected: Vec<_> = (1..=12)
        .map(|i| payload(i, if i == 1 { 10 } else { 100 }))
        .collect();
    assert_eq!(found.payloads(), expected);
}

#[test]
fn an_interval_syncs_what_is_written_by_itself() {
    let disk = SimDisk::new(1);
    let mut running = begun(&disk, SyncMode::Interval(Duration::from_millis(5)));
    running.append(&payload(2, 100));
    running.written(2);
    // No record follows, nobody asks.
    running.confirmed(2).unwrap();
    assert_eq!(start(&disk.crash(1)).recovered.len(), 2);
}

#[test]
fn a_failed_sync_of_what_was_told_of_stops_the_journal() {
    let disk = SimDisk::new(1);
    let mut running = begun(&disk, SyncMode::Os);
    running.append(&payload(2, 100));
    running.written(2);
    disk.fail_next_sync(EIO);
    running.journal.request_sync(JournalIndex(2));
    let failed = running.event(|e| matches!(e, JournalEvent::Failed { .. }));
    let JournalEvent::Failed { message } = failed else {
        unreachable!("only that passes");
    };
    assert!(
        message.contains("sync of") && message.contains("os error 5"),
        "{message}"
    );
}

#[test]
fn a_full_slot_is_synced_before_the_next_one_begins() {
    let disk = SimDisk::new(1);
    let mut running = begun(&disk, SyncMode::Os);
    for index in 2..=4 {
        running.append(&payload(index, 20_000));
        running.written(index);
    }
    // Record 4 is in the second slot: 1 to 3 are safe whatever the power does.
    for seed in 0..50 {
        let found = start(&disk.crash(seed));
        assert!(found.recovered.len() >= 3, "seed {seed}");
        assert!(found.may_have_lost);
    }
}

#[test]
fn what_an_earlier_run_may_have_lost_is_remembered_until_it_is_settled() {
    let disk = SimDisk::new(1);
    let mut running = begun(&disk, SyncMode::Os);
    running.append(&payload(2, 100));
    running.written(2);
    let disk = disk.kill();
    drop(running);
    // The next start is in another mode, and ends in the middle of what it has to make good.
    let mut running = start_in(&disk, SyncMode::Always);
    assert!(running.may_have_lost);
    running.append_as(&payload(3, 10), true, true);
    running.confirmed(3).unwrap();
    let disk = disk.crash(1);
    drop(running);
    let mut running = start_in(&disk, SyncMode::Always);
    assert!(running.may_have_lost, "the second start has to know it too");
    running.append_as(&payload(4, 10), true, true);
    running.append_as(&payload(5, 10), true, false);
    running.confirmed(5).unwrap();
    let disk = disk.crash(1);
    drop(running);
    assert!(!start_in(&disk, SyncMode::Always).may_have_lost);
}

#[test]
fn a_clean_stop_syncs_everything_in_every_mode() {
    for mode in [SyncMode::Os, SyncMode::Interval(Duration::from_secs(3600))] {
        let disk = SimDisk::new(1);
        let mut running = begun(&disk, mode);
        for index in 2..=9 {
            running.append(&payload(index, 3_000));
        }
        running.journal.shutdown();
        let found = start(&disk.crash(1));
        assert_eq!(found.recovered.len(), 9);
        assert!(found.clean && !found.may_have_lost);
    }
}
