//! Two groups in flight: one of them lands first, or fails, and the power goes.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use common::*;
use tidemark_disk::{Disk, OpenMode, SimDisk};
use tidemark_journal::{
    After, AppendRequest, Journal, JournalEvent, JournalOptions, RESERVED_SLOTS, recover,
};
use tidemark_types::{JournalIndex, Tick};

const PAGE: u64 = 4096;

/// Record 1 is confirmed; 2 and 3 are written, each in a group of its own, and their syncs are held.
fn two_in_flight(disk: &SimDisk, len: usize) -> Running {
    let mut running = start(disk);
    running.append_and_wait(&payload(1, 10));
    disk.hold_syncs();
    running.append(&payload(2, len));
    disk.wait_for_held_syncs(1);
    running.append(&payload(3, len));
    disk.wait_for_held_syncs(2);
    running
}

/// What was told until the journal's threads ended.
fn told_to_the_end(running: &Running) -> Vec<JournalEvent> {
    running.journal.shutdown();
    running.events.iter().collect()
}

fn confirmed(events: &[JournalEvent]) -> Vec<u64> {
    let index = |event: &JournalEvent| match event {
        JournalEvent::Confirmed { index, .. } => Some(index.0),
        _ => None,
    };
    events.iter().filter_map(index).collect()
}

/// Lets the sync of record 3 succeed while that of record 2 is held.
fn land_the_later(disk: &SimDisk) {
    let dir = Path::new("/data/journal");
    let synced = disk.counts(dir).synced;
    disk.release_sync(1);
    disk.wait_for_syncs(dir, synced + 1);
}

#[test]
fn a_group_that_lands_first_is_confirmed_with_the_one_before_it() {
    let disk = SimDisk::new(1);
    let running = two_in_flight(&disk, 10);
    land_the_later(&disk);
    disk.release_syncs();
    let events = told_to_the_end(&running);
    // Both at once, or one after the other when the earlier one's thread was quicker to say so.
    assert!(matches!(confirmed(&events)[..], [3] | [2, 3]), "{events:?}");
}

#[test]
fn a_group_that_landed_is_not_confirmed_when_the_one_before_it_fails() {
    let disk = SimDisk::new(1);
    let running = two_in_flight(&disk, 10);
    land_the_later(&disk);
    disk.fail_next_sync(EIO);
    disk.release_syncs();
    let events = told_to_the_end(&running);
    assert!(
        matches!(events[..], [JournalEvent::Failed { .. }]),
        "{events:?}"
    );
    // Of the two the disk keeps the later one only.
    let disk = disk.crash(1);
    let file = disk.open(&slot_path(0), OpenMode::ReadWrite).unwrap();
    file.write_at(&[0; PAGE as usize], 2 * PAGE).unwrap();
    let again = start(&disk);
    assert_eq!(again.payloads(), [payload(1, 10)]);
    assert!(again.cut.is_some(), "record 3 is there and is cut");
}

#[test]
fn nothing_is_told_after_a_failure() {
    let disk = SimDisk::new(1);
    let running = two_in_flight(&disk, 10);
    disk.fail_next_sync(EIO);
    // The other one's fails then too: the file is the same.
    disk.release_sync(0);
    running.event(|event| matches!(event, JournalEvent::Failed { .. }));
    disk.release_syncs();
    let events = told_to_the_end(&running);
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn the_next_slot_is_not_begun_while_a_group_of_the_last_one_is_in_flight() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 10));
    // Over half of the slot: the next ones are prepared.
    running.append_and_wait(&payload(2, 34_000));
    while running.journal.usage().free_slots < RESERVED_SLOTS {
        std::thread::yield_now();
    }
    let writes = || disk.counts(&slot_path(1)).writes;
    let before = writes();
    disk.hold_syncs();
    running.append(&payload(3, 10));
    disk.wait_for_held_syncs(1);
    running.append(&payload(4, 40_000));
    disk.fail_next_sync(EIO);
    disk.release_syncs();
    let events = told_to_the_end(&running);
    assert_eq!(confirmed(&events), [] as [u64; 0], "{events:?}");
    assert_eq!(
        writes(),
        before,
        "its header would say that all before it is there"
    );
    let again = start(&disk.crash(1));
    assert_eq!(again.recovered.len(), 2);
}

#[test]
fn a_panic_of_who_listens_ends_a_thread_that_waits_for_a_slot() {
    for _ in 0..20 {
        let disk = SimDisk::new(1);
        let few = JournalOptions {
            budget_bytes: 4 * SLOT,
            ..options()
        };
        let nothing = &mut |_| Ok(());
        let recovery = recover(Arc::new(disk.clone()), few, JournalIndex(1), nothing).unwrap();
        let (sender, events) = channel();
        let journal = recovery.start(Box::new(move |event| {
            let JournalEvent::Confirmed { index, .. } = event else {
                return;
            };
            assert!(index.0 < 5, "the owner is broken, as this test wants it");
            sender.send(index.0).unwrap();
        }));
        let append = |index: u64, len: usize| {
            let after = After {
                epoch: 0,
                tick: Tick(index - 1),
            };
            let request = AppendRequest {
                index: JournalIndex(index),
                tick: Tick(index),
                wall_ms: 0,
                pieces: vec![payload(index, len)],
                must_sync: false,
                unsettled: false,
            };
            journal.append(after, request);
        };
        // One in each of the slots that there may be, and all are prepared.
        for index in 1..=4 {
            append(index, 40_000);
            assert_eq!(events.recv(), Ok(index));
        }
        disk.hold_syncs();
        append(5, 10);
        disk.wait_for_held_syncs(1);
        // It waits for the one before it, and then for a slot.
        append(6, 40_000);
        disk.release_syncs();
        let (ended, end) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                journal.shutdown();
                ended.send(()).unwrap();
            });
            end.recv_timeout(Duration::from_secs(60))
                .expect("the threads end");
        });
    }
}

#[test]
fn what_queues_during_two_syncs_is_made_durable_by_the_next_one() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 10));
    let before = running.journal.stats();
    disk.hold_syncs();
    running.append(&payload(2, 10));
    disk.wait_for_held_syncs(1);
    running.append(&payload(3, 10));
    disk.wait_for_held_syncs(2);
    for index in 4..=100 {
        running.append(&payload(index, 100));
    }
    disk.release_syncs();
    running.confirmed(100).unwrap();
    let after = running.journal.stats();
    assert_eq!(after.groups - before.groups, 3);
    assert_eq!(after.syncs - before.syncs, 3);
    assert_eq!(after.records - before.records, 99);
}

#[test]
fn of_two_groups_in_flight_none_is_confirmed_by_the_others_sync_when_one_fails() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let running = two_in_flight(&disk, 10);
        // Of the two the one that comes first: what both wrote is gone then.
        disk.fail_next_sync(EIO);
        disk.release_syncs();
        let told =
            running.event(|e| !matches!(e, JournalEvent::Confirmed { index, .. } if index.0 == 1));
        let JournalEvent::Failed { message } = told else {
            panic!("seed {seed}: {told:?}");
        };
        assert!(message.contains("sync of"), "seed {seed}: {message}");
        running.journal.shutdown();
        assert!(running.events.recv().is_err(), "no event after Failed");
    }
}

#[test]
fn two_groups_in_flight_are_confirmed_in_order_and_a_power_cut_leaves_a_beginning_of_them() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let running = two_in_flight(&disk, 5_000);
        let all = [payload(1, 10), payload(2, 5_000), payload(3, 5_000)];
        let mut after = disk.fork().crash(seed);
        let mut least = 1;
        let mut confirmed = 1;
        if seed % 2 == 0 {
            // Whichever sync ends first.
            disk.release_syncs();
            while confirmed < 3 {
                let event = running.event(|e| matches!(e, JournalEvent::Confirmed { .. }));
                let JournalEvent::Confirmed { index, .. } = event else {
                    unreachable!("only that passes");
                };
                assert!(
                    index.0 > confirmed,
                    "seed {seed}: {index} after {confirmed}"
                );
                confirmed = index.0;
            }
            after = disk.crash(seed);
            least = 3;
        }
        let again = start(&after);
        assert!((least..=3).contains(&again.recovered.len()), "seed {seed}");
        assert_eq!(
            again.payloads(),
            all[..again.recovered.len()],
            "seed {seed}"
        );
        disk.release_syncs();
    }
}
