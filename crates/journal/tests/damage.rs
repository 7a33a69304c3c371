//! Bytes that change where they lie, and files that are not what they should be.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_disk::{Disk, OpenMode, SimDisk, read_all};
use tidemark_journal::{Journal, JournalError, JournalOptions};
use tidemark_types::JournalIndex;

const PAGE: u64 = 4096;
const FRAME_HEADER: u64 = 88;

/// Three records, each in a group (and on a page) of its own, then a clean end.
fn three_records() -> SimDisk {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    for index in 1..=3 {
        running.append_and_wait(&payload(index, 40));
    }
    running.journal.shutdown();
    disk
}

/// Makes a changed frame intact.
fn put_crc(frame: &mut [u8]) {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &frame[4..]) as u32;
    frame[..4].copy_from_slice(&crc.to_le_bytes());
}

/// A disk with the same files, whose slots can be changed alone.
fn copy(disk: &SimDisk) -> SimDisk {
    let copy = SimDisk::new(2);
    let dir = options().dir;
    copy.create_dir_all(&dir).unwrap();
    for entry in disk.list(&dir).unwrap() {
        let path = dir.join(entry.name);
        let file = copy.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(&read_all(disk, &path).unwrap(), 0).unwrap();
    }
    copy
}

#[test]
fn a_flipped_bit_below_the_durable_mark_is_refused_with_file_and_position() {
    let whole = three_records();
    // Record 3 is covered by the clean end's mark; the clean end itself by nothing.
    for record in 1..=3u64 {
        for byte in 0..FRAME_HEADER + 40 {
            let disk = copy(&whole);
            let position = record * PAGE + byte;
            disk.corrupt(&slot_path(0), position, 1 << (byte % 8))
                .unwrap();
            let refused = refusal(&disk);
            let JournalError::Damaged { file, position, .. } = &refused else {
                panic!("record {record}, byte {byte}: {refused}");
            };
            assert_eq!(*file, slot_path(0));
            // Where the intact frames end: just behind the record before.
            let end = match record {
                1 => PAGE,
                _ => (record - 1) * PAGE + FRAME_HEADER + 40,
            };
            assert_eq!(*position, end);
            let message = refused.to_string();
            for part in ["000000.slot", &end.to_string(), "from a copy"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_what_nothing_covers_is_a_torn_tail() {
    let whole = three_records();
    for byte in 0..FRAME_HEADER {
        let disk = copy(&whole);
        disk.corrupt(&slot_path(0), 4 * PAGE + byte, 1 << (byte % 8))
            .unwrap();
        let running = start(&disk);
        assert_eq!(running.recovered.len(), 3);
        assert_eq!((running.clean, running.epoch), (false, 1));
    }
}

#[test]
fn a_mark_protects_the_last_group_of_an_idle_journal() {
    let disk = SimDisk::new(1);
    let options = JournalOptions {
        mark_after: Duration::from_millis(1),
        ..options()
    };
    let mut running = start_from(Arc::new(disk.clone()), options, 1).unwrap();
    running.append(&payload(1, 40));
    // Two syncs prepare the slot; header, group and mark follow.
    disk.wait_for_syncs(&slot_path(0), 5);
    drop(running);
    assert_eq!(start(&copy(&disk)).recovered.len(), 1);
    disk.corrupt(&slot_path(0), PAGE + 90, 1).unwrap();
    assert!(matches!(
        refusal(&disk),
        JournalError::Damaged { position: PAGE, .. }
    ));
}

#[test]
fn a_broken_frame_within_a_synced_group_is_damage_even_on_its_last_page() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 40));
    disk.hold_syncs();
    running.append(&payload(2, 40));
    disk.wait_for_held_syncs(1);
    running.append(&payload(3, 40));
    running.append(&payload(4, 40));
    disk.release_syncs();
    running.append_and_wait(&payload(5, 40));
    drop(running);
    // Page 3 holds records 3 and 4 in one group (5 came with them or after).
    let second = 3 * PAGE + FRAME_HEADER + 40;
    disk.corrupt(&slot_path(0), second + 100, 4).unwrap();
    let mut running = match start_from(Arc::new(disk.clone()), options(), 1) {
        // Record 5 was in the same group: nothing says that the group was synced.
        Ok(running) => running,
        Err(e) => {
            assert!(matches!(e, JournalError::Damaged { position, .. } if position == second));
            return;
        }
    };
    assert_eq!(running.recovered.len(), 3);
    running.append_and_wait(&payload(4, 1));
}

/// Slots 0, 1 and 2 in use, in this order.
fn three_slots() -> SimDisk {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    for index in 1..=5 {
        running.append_and_wait(&payload(index, 20_000));
    }
    assert_eq!(running.journal.usage().slots_in_use, 3);
    drop(running);
    assert_eq!(start(&copy(&disk)).recovered.len(), 5);
    disk
}

#[test]
fn a_broken_frame_before_a_later_slot_is_refused() {
    let disk = three_slots();
    disk.corrupt(&slot_path(1), PAGE + 10_000, 1).unwrap();
    let refused = refusal(&disk);
    assert!(
        matches!(&refused, JournalError::Damaged { file, position: PAGE, .. } if *file == slot_path(1)),
        "{refused}"
    );
}

#[test]
fn a_broken_header_or_a_missing_slot_is_refused() {
    for id in 0..3 {
        for how in ["broken", "zeroed", "missing"] {
            let disk = three_slots();
            let path = slot_path(id);
            match how {
                "broken" => disk.corrupt(&path, 20, 1).unwrap(),
                "zeroed" => {
                    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
                    file.write_at(&[0; 4096], 0).unwrap();
                }
                // What the last slot held cannot be known once it is gone.
                _ if id == 2 => continue,
                _ => disk.remove_file(&path).unwrap(),
            }
            let refused = refusal(&disk);
            match refused {
                JournalError::Gap { from: 1, .. } if id < 2 => {}
                JournalError::Damaged { ref file, .. } if id == 2 && *file == path => {}
                other => panic!("slot {id} {how}: {other}"),
            }
            if id == 0 && how != "missing" {
                // A checkpoint that needs nothing of that slot makes it bearable.
                let later = start_from(Arc::new(disk.clone()), options(), 3);
                assert_eq!(later.unwrap().recovered.len(), 3);
            }
        }
    }
}

#[test]
fn a_truncated_slot_is_refused() {
    let disk = three_slots();
    let file = disk.open(&slot_path(1), OpenMode::ReadWrite).unwrap();
    file.set_len(20_000).unwrap();
    assert!(matches!(refusal(&disk), JournalError::Damaged { .. }));
}

#[test]
fn an_empty_directory_does_not_continue_a_checkpoint() {
    let refused = start_from(Arc::new(SimDisk::new(1)), options(), 100).err();
    let message = refused.expect("nothing to continue").to_string();
    assert!(message.contains("records 100 and later"), "{message}");
}

#[test]
fn slots_of_another_journal_and_of_a_later_version_are_refused() {
    let other = JournalOptions {
        journal_id: *b"another-journal.",
        ..options()
    };
    let disk = three_records();
    let refused = start_from(Arc::new(disk), other, 1).err().unwrap();
    assert!(
        matches!(refused, JournalError::OtherJournal { .. }),
        "{refused}"
    );

    // A frame of an unknown kind: the clean end becomes kind 9, with a CRC that is right.
    let disk = three_records();
    let at = 4 * PAGE;
    let file = disk.open(&slot_path(0), OpenMode::ReadWrite).unwrap();
    let mut frame = vec![0; FRAME_HEADER as usize];
    file.read_at(&mut frame, at).unwrap();
    frame[9] = 9;
    put_crc(&mut frame);
    file.write_at(&frame, at).unwrap();
    let refused = refusal(&disk);
    let message = refused.to_string();
    assert!(matches!(refused, JournalError::Unknown { position, .. } if position == at));
    assert!(
        message.contains("kind 9") && message.contains("later version"),
        "{message}"
    );
}

#[test]
fn frames_of_an_earlier_use_do_not_count() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    // Enough for every slot to be used more than once, with frames all over.
    for index in 1..=200 {
        running.append_and_wait(&payload(index, 3_000));
        running.journal.release_below(JournalIndex(index));
    }
    // The last use of this slot covers a part of it; behind lies the use before.
    drop(running);
    let found = start_from(Arc::new(disk.clone()), options(), 200).unwrap();
    assert_eq!(found.payloads(), [payload(200, 3_000)]);
    assert_eq!((found.next_index, found.cut), (201, None));
    drop(found.journal);

    // A stale frame copied to where the next one belongs does not continue the chain.
    let disk = SimDisk::new(3);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 40));
    running.append_and_wait(&payload(2, 40));
    drop(running);
    let bytes = read_all(&disk, &slot_path(0)).unwrap();
    let file = disk.open(&slot_path(0), OpenMode::ReadWrite).unwrap();
    file.write_at(&bytes[PAGE as usize..2 * PAGE as usize], 3 * PAGE)
        .unwrap();
    let found = start(&disk);
    assert_eq!(found.payloads(), [payload(1, 40), payload(2, 40)]);
}

#[test]
fn what_a_cut_left_behind_never_comes_back() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let mut running = start(&disk);
        running.append_and_wait(&payload(1, 40));
        disk.hold_syncs();
        running.append(&payload(2, 40));
        disk.wait_for_held_syncs(1);
        let disk = disk.crash(seed);
        drop(running);
        // The first page of the group is gone; the rest of it may still be there.
        let file = disk.open(&slot_path(0), OpenMode::ReadWrite).unwrap();
        file.write_at(&[0; 4096], 2 * PAGE).unwrap();
        let mut running = start(&disk);
        assert_eq!(running.next_index, 2);
        running.append_and_wait(&Bytes::from_static(b"another record 2"));
        drop(running);
        let found = start(&disk.crash(seed));
        assert_eq!(found.payloads()[1], "another record 2");
        assert_eq!(found.recovered[1].epoch, 1);
    }
}

#[test]
fn a_cut_stays_even_when_what_was_cut_can_be_read_again() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 40));
    running.append_and_wait(&payload(2, 40));
    drop(running);
    let file = disk.open(&slot_path(0), OpenMode::ReadWrite).unwrap();
    let mut page = vec![0; PAGE as usize];
    file.read_at(&mut page, 2 * PAGE).unwrap();
    file.write_at(&[0; 4096], 2 * PAGE).unwrap();
    let mut running = start(&disk);
    assert_eq!(running.next_index, 2);
    running.append_and_wait(&Bytes::from_static(b"another record 2"));
    drop(running);
    file.write_at(&page, 2 * PAGE).unwrap();
    let found = start(&disk);
    assert_eq!(found.payloads()[1], "another record 2");
    assert_eq!(found.next_index, 3);
}

#[test]
fn a_frame_that_was_replaced_breaks_the_chain() {
    let disk = three_records();
    let file = disk.open(&slot_path(0), OpenMode::ReadWrite).unwrap();
    let mut frame = vec![0; FRAME_HEADER as usize + 40];
    file.read_at(&mut frame, 2 * PAGE).unwrap();
    frame[FRAME_HEADER as usize] ^= 1;
    put_crc(&mut frame);
    file.write_at(&frame, 2 * PAGE).unwrap();
    let refused = refusal(&disk);
    let end = 2 * PAGE + FRAME_HEADER + 40;
    assert!(
        matches!(refused, JournalError::Damaged { position, .. } if position == end),
        "{refused}"
    );
}

#[test]
fn a_flipped_bit_anywhere_is_refused_or_changes_nothing() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    let mut rng = StdRng::seed_from_u64(1);
    let payloads: Vec<Bytes> = (1..=60)
        .map(|index| payload(index, rng.random_range(0..4_000)))
        .collect();
    for burst in payloads.chunks(7) {
        burst.iter().for_each(|payload| running.append(payload));
        running.confirmed(running.next_index - 1).unwrap();
    }
    running.journal.shutdown();
    let files = disk.list(&options().dir).unwrap();
    let (mut refused, mut same) = (0, 0);
    for _ in 0..1000 {
        let damaged = copy(&disk);
        let file = &files[rng.random_range(0..files.len())];
        // Half of them in the first pages, where a slot is described.
        let end = [file.len, 2 * PAGE][rng.random_range(0..2)];
        let position = rng.random_range(0..end);
        let path = options().dir.join(&file.name);
        damaged
            .corrupt(&path, position, 1 << rng.random_range(0..8))
            .unwrap();
        match start_from(Arc::new(damaged), options(), 1) {
            Ok(running) => {
                assert!(running.payloads() == payloads, "{path:?} {position}");
                same += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && same > 100, "{refused} {same}");
}

#[test]
fn a_read_error_is_told_and_nothing_is_cut() {
    let disk = three_records();
    disk.fail_read_after(1, EIO);
    let refused = refusal(&disk);
    assert!(matches!(refused, JournalError::Io { .. }), "{refused}");
    assert_eq!(start(&disk).recovered.len(), 3);
}
