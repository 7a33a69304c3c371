//! Slots are prepared, recycled, reserved; a full disk heals.

mod common;

use std::sync::Arc;

use common::*;
use tidemark_disk::SimDisk;
use tidemark_journal::{Admission, Journal, JournalEvent, JournalOptions};
use tidemark_types::JournalIndex;

fn small() -> JournalOptions {
    JournalOptions {
        budget_bytes: 4 * SLOT,
        ..options()
    }
}

#[test]
fn slots_are_recycled_and_the_disk_stays_within_the_budget() {
    let disk = SimDisk::new(1);
    let mut running = start_from(Arc::new(disk.clone()), small(), 1).unwrap();
    for index in 1..=300 {
        running.append_and_wait(&payload(index, 9_000));
        running
            .journal
            .release_below(JournalIndex(index.saturating_sub(4)));
        assert!(disk.used_bytes() <= 4 * SLOT);
        assert!(running.journal.usage().slots_in_use <= 3);
    }
    running.journal.shutdown();
    let again = start_from(Arc::new(disk.clone()), small(), 296).unwrap();
    assert!(again.clean);
    assert_eq!(again.recovered.len(), 5);
    // Slots that were released before the stop are not in use again.
    assert!(again.journal.usage().slots_in_use <= 3);
}

#[test]
fn a_new_journal_prepares_one_slot_and_more_when_half_of_it_is_used() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 10));
    let usage = running.journal.usage();
    assert_eq!((usage.slots_in_use, usage.free_slots), (1, 0));
    assert_eq!(disk.used_bytes(), SLOT);
    running.append_and_wait(&payload(2, 40_000));
    // Each is synced twice: filled, and named ready.
    disk.wait_for_syncs(&slot_path(1), 2);
    disk.wait_for_syncs(&slot_path(2), 2);
    assert_eq!(disk.used_bytes(), 3 * SLOT);
}

#[test]
fn without_a_checkpoint_ordinary_records_are_refused_before_reserved_ones() {
    let disk = SimDisk::new(1);
    let mut running = start_from(Arc::new(disk.clone()), small(), 1).unwrap();
    running.append_and_wait(&payload(1, 10));
    let mut index = 1;
    while running.journal.has_space(20_000, Admission::Ordinary) {
        index += 1;
        running.append_and_wait(&payload(index, 20_000));
    }
    let ordinary = index;
    assert!(ordinary > 3);
    running.event(|e| *e == JournalEvent::NeedCheckpoint);
    while running.journal.has_space(20_000, Admission::Reserved) {
        index += 1;
        running.append_and_wait(&payload(index, 20_000));
    }
    assert!(index >= ordinary + 4, "two slots were kept");
    assert_eq!(running.journal.usage().slots_in_use, 4);

    running.journal.release_below(JournalIndex(index));
    running.event(|e| *e == JournalEvent::SpaceFreed);
    assert!(running.journal.has_space(20_000, Admission::Ordinary));
    running.append_and_wait(&payload(index + 1, 20_000));
}

#[test]
fn a_writer_without_a_slot_asks_for_a_checkpoint_and_waits_for_it() {
    let disk = SimDisk::new(1);
    let mut running = start_from(Arc::new(disk.clone()), small(), 1).unwrap();
    // More than all slots take, without asking.
    for index in 1..=10 {
        running.append(&payload(index, 40_000));
    }
    running.confirmed(4).unwrap();
    // One beyond the budget, for what was queued without asking.
    assert!(running.journal.usage().slots_in_use <= 5);
    for index in 5..=10 {
        running.journal.release_below(JournalIndex(index));
        running.confirmed(index).unwrap();
    }
    running.journal.shutdown();
    let again = start_from(Arc::new(disk.clone()), small(), 10).unwrap();
    assert_eq!(again.payloads(), [payload(10, 40_000)]);
}

#[test]
fn what_is_queued_counts_before_it_is_written() {
    let disk = SimDisk::new(1);
    let mut running = start_from(Arc::new(disk.clone()), small(), 1).unwrap();
    running.append_and_wait(&payload(1, 10));
    disk.hold_syncs();
    running.append(&payload(2, 10));
    disk.wait_for_held_syncs(1);
    let mut index = 2;
    while running.journal.has_space(5_000, Admission::Ordinary) {
        index += 1;
        running.append(&payload(index, 5_000));
        assert!(index < 100);
    }
    assert!(running.journal.usage().queued_bytes >= 8192);
    disk.release_syncs();
    // All that was admitted has a place without any release.
    running.confirmed(index).unwrap();
}

#[test]
fn a_shutdown_without_a_slot_drops_what_was_never_confirmed() {
    let disk = SimDisk::new(1);
    let mut running = start_from(Arc::new(disk.clone()), small(), 1).unwrap();
    for index in 1..=6 {
        running.append(&payload(index, 40_000));
    }
    running.confirmed(5).unwrap();
    running.journal.shutdown();
    let again = start_from(Arc::new(disk.clone()), small(), 1).unwrap();
    assert_eq!(again.recovered.len(), 5);
}

#[test]
fn a_full_disk_is_told_and_heals_without_a_restart() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 10));
    // Room for one of the two slots that will be wanted.
    disk.set_capacity(Some(2 * SLOT + SLOT / 2));
    running.append(&payload(2, 40_000));
    // In either order: the next slot is wanted as soon as this one is half full.
    let (mut confirmed, mut no_space) = (false, None);
    while !confirmed || no_space.is_none() {
        match running.event(|_| true) {
            JournalEvent::Confirmed { index, .. } => confirmed |= index.0 == 2,
            JournalEvent::NoSpace { message } => no_space = Some(message),
            _ => {}
        }
    }
    let message = no_space.expect("told above");
    assert!(message.contains("os error 28"), "{message}");
    assert!(message.contains(".slot"), "{message}");
    assert!(disk.used_bytes() <= 2 * SLOT, "half a slot is given back");
    assert!(running.journal.usage().no_space);
    assert!(!running.journal.has_space(40_000, Admission::Ordinary));
    assert!(running.journal.has_space(40_000, Admission::Reserved));

    disk.set_capacity(None);
    // Asks for another attempt at once.
    running.journal.release_below(JournalIndex(1));
    running.event(|e| *e == JournalEvent::SpaceFreed);
    assert!(running.journal.has_space(40_000, Admission::Ordinary));
    running.append_and_wait(&payload(3, 40_000));
    running.append_and_wait(&payload(4, 40_000));
}

#[test]
fn a_new_directory_on_a_full_disk_waits_for_space() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(SLOT / 2));
    let mut running = start(&disk);
    running.append(&payload(1, 10));
    running.event(|e| matches!(e, JournalEvent::NoSpace { .. }));
    disk.set_capacity(None);
    running.journal.release_below(JournalIndex(1));
    running.confirmed(1).unwrap();
}

#[test]
fn a_half_prepared_slot_is_prepared_again() {
    for step in 1..8 {
        for seed in 0..20 {
            let disk = SimDisk::new(seed);
            disk.cut_power_after(step);
            if let Ok(mut running) = start_from(Arc::new(disk.clone()), small(), 1) {
                running.append(&payload(1, 10));
                let _ = running.confirmed(1);
            }
            let disk = disk.crash(seed);
            let mut running = start_from(Arc::new(disk.clone()), small(), 1).unwrap();
            assert!(running.next_index <= 2);
            let index = running.next_index;
            running.append_and_wait(&payload(index, 10));
            assert!(disk.used_bytes() <= 2 * SLOT);
        }
    }
}
