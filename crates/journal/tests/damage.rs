//! Bytes that change where they lie, and files that are not what they should be.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_disk::{Disk, OpenMode, SimDisk, read_all};
use tidemark_journal::{Journal, JournalError, JournalOptions, recover};
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
    disk.fork()
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
    disk.wait_for_held_syncs(2);
    running.append(&payload(4, 40));
    running.append(&payload(5, 40));
    disk.release_syncs();
    running.confirmed(5).unwrap();
    running.append_and_wait(&payload(6, 40));
    drop(running);
    // Page 4 holds records 4 and 5 in one group; record 6, written later, says that it was synced.
    let second = 4 * PAGE + FRAME_HEADER + 40;
    disk.corrupt(&slot_path(0), second + 100, 4).unwrap();
    assert!(matches!(
        refusal(&disk),
        JournalError::Damaged { position, .. } if position == second
    ));
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

/// Every case, as `scripts/prove damage` wants it; without it one in some.
fn every(one_in: usize) -> usize {
    match std::env::var_os("TIDEMARK_TEST_EVERY") {
        Some(_) => 1,
        None => one_in,
    }
}

/// Reads the journal as a start does and does not go on to write it.
fn read(disk: SimDisk, options: JournalOptions) -> Result<(Vec<Bytes>, bool), JournalError> {
    let mut payloads = Vec::new();
    let found = recover(Arc::new(disk), options, JournalIndex(1), &mut |record| {
        payloads.push(record.payload);
        Ok(())
    })?;
    Ok((payloads, found.cut.is_some()))
}

/// A journal of which 64 KiB and more are in its last slot, shut down in order (`clean`) or not;
/// with what is in it. The last three groups were in flight together, and the last of them holds two
/// records: four are in doubt until a mark says more.
fn long_tail(clean: bool) -> (SimDisk, Vec<Bytes>, JournalOptions) {
    let options = JournalOptions {
        slot_bytes: 2 * SLOT,
        budget_bytes: 8 * SLOT,
        ..options()
    };
    let disk = SimDisk::new(1);
    let mut running = start_from(Arc::new(disk.clone()), options.clone(), 1).unwrap();
    let mut rng = StdRng::seed_from_u64(9);
    let mut payloads = Vec::new();
    while running.journal.usage().slots_in_use < 2 || payloads.len() < 90 {
        let payload = payload(payloads.len() as u64 + 1, rng.random_range(0..5_000));
        running.append_and_wait(&payload);
        payloads.push(payload);
    }
    disk.hold_syncs();
    for len in [10, 200, 3_000, 40] {
        let payload = payload(payloads.len() as u64 + 1, len);
        running.append(&payload);
        payloads.push(payload);
        match len {
            10 => disk.wait_for_held_syncs(1),
            200 => disk.wait_for_held_syncs(2),
            _ => {}
        }
    }
    disk.release_syncs();
    running.confirmed(payloads.len() as u64).unwrap();
    if clean {
        running.journal.shutdown();
    }
    (disk, payloads, options)
}

/// The slot that was written last, and the end of what is written in it.
fn last_slot(disk: &SimDisk, options: &JournalOptions) -> (std::path::PathBuf, u64) {
    let newest = |path: &std::path::Path| {
        let bytes = read_all(disk, path).unwrap();
        let use_number = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
        let written = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at as u64 + 1);
        (use_number, written)
    };
    let entries = disk.list(&options.dir).unwrap().into_iter();
    let paths = entries.map(|entry| options.dir.join(entry.name));
    let paths = paths.filter(|path| disk.file_len(path).unwrap() > 0);
    let found = paths.map(|path| (newest(&path), path)).max().unwrap();
    (found.1, found.0.1)
}

#[test]
fn a25_a_slot_truncated_at_any_byte_of_its_last_64_kib_is_refused_with_file_and_position() {
    for clean in [true, false] {
        let (disk, _, options) = long_tail(clean);
        let (path, end) = last_slot(&disk, &options);
        assert!(end > 65_536, "{end}");
        for len in (end - 65_536..=end).step_by(every(257)) {
            let damaged = disk.fork();
            let file = damaged.open(&path, OpenMode::ReadWrite).unwrap();
            file.set_len(len).unwrap();
            let refused =
                read(damaged, options.clone()).expect_err("bytes that were synced are gone");
            let JournalError::Damaged { file, position, .. } = &refused else {
                panic!("truncated at {len}: {refused}");
            };
            assert!(
                *file == path && *position <= len,
                "truncated at {len}: {refused}"
            );
        }
    }
}

#[test]
fn a25_bytes_lost_from_any_byte_of_the_last_64_kib_on_are_cut_in_the_last_groups_and_refused_below()
{
    // What a disk may do to a file of which it keeps the size: the last write is lost from some byte
    // on. Of the groups that were in flight together nothing says that they had been synced.
    let (disk, payloads, options) = long_tail(false);
    let (path, end) = last_slot(&disk, &options);
    let whole = read_all(&disk, &path).unwrap();
    let in_doubt = (end - 1) / PAGE * PAGE - 2 * PAGE;
    let records_in_doubt = 4;
    for from in (end - 65_536..=end)
        .step_by(every(257))
        .chain(in_doubt..=end)
    {
        let damaged = disk.fork();
        let file = damaged.open(&path, OpenMode::ReadWrite).unwrap();
        // Up to what is in doubt: that, synced or not, may be there.
        let to = match from < in_doubt {
            true => in_doubt,
            false => end,
        };
        file.write_at(&vec![0; (to - from) as usize], from).unwrap();
        let changed = whole[from as usize..to as usize]
            .iter()
            .any(|byte| *byte != 0);
        match read(damaged, options.clone()) {
            Ok((found, _)) if from >= in_doubt => {
                assert!(
                    found.len() >= payloads.len() - records_in_doubt,
                    "from {from}"
                );
                assert!(found == payloads[..found.len()], "from {from}");
            }
            Ok((found, cut)) => {
                assert!(!changed, "lost from {from} to {to} and nothing is said");
                assert!(found == payloads && !cut, "from {from}");
            }
            Err(JournalError::Damaged { file, position, .. }) => {
                assert!(from < in_doubt, "from {from}: what is in doubt may be cut");
                assert!(file == path && position <= to, "from {from}: {position}");
            }
            Err(e) => panic!("from {from}: {e}"),
        }
    }
}

#[test]
fn a25_a_thousand_flipped_bits_below_the_last_durable_mark_make_no_silent_difference() {
    // Shut down in order: the clean end says that all before it was synced.
    let (disk, payloads, options) = long_tail(true);
    let mut rng = StdRng::seed_from_u64(25);
    let entries = disk.list(&options.dir).unwrap();
    let used: Vec<_> = (entries.iter())
        .filter_map(|entry| {
            let path = options.dir.join(&entry.name);
            if disk.file_len(&path).unwrap() == 0 {
                return None;
            }
            let bytes = read_all(&disk, &path).unwrap();
            let written = bytes.iter().rposition(|byte| *byte != 0)? as u64 + 1;
            let use_number = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
            (use_number > 0).then_some((path, written))
        })
        .collect();
    let (last, _) = last_slot(&disk, &options);
    let (mut refused, mut same) = (0, 0);
    for n in 0..1_000 {
        let (path, written) = &used[rng.random_range(0..used.len())];
        // The clean end itself is the only frame that nothing covers.
        let end = if *path == last {
            written - PAGE
        } else {
            *written
        };
        let position = rng.random_range(0..end);
        let damaged = disk.fork();
        damaged
            .corrupt(path, position, 1 << rng.random_range(0..8))
            .unwrap();
        match read(damaged, options.clone()) {
            // Between two groups, or in what a header page does not use.
            Ok((found, cut)) => {
                assert!(found == payloads && !cut, "flip {n}: {path:?} {position}");
                same += 1;
            }
            Err(JournalError::Damaged { file, .. }) => {
                assert!(
                    used.iter().any(|(path, _)| *path == file),
                    "flip {n}: {file:?}"
                );
                refused += 1;
            }
            Err(JournalError::Gap { .. } | JournalError::OtherJournal { .. }) => refused += 1,
            Err(JournalError::Unknown { .. }) => refused += 1,
            Err(e) => panic!("flip {n}: {path:?} {position}: {e}"),
        }
    }
    assert!(
        refused > 300 && same > 50,
        "{refused} refused, {same} the same"
    );
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
    // A slot that was being prepared at the stop may still be empty.
    let files = disk.list(&options().dir).unwrap().into_iter();
    let files = files.map(|file| {
        let path = options().dir.join(&file.name);
        let len = disk.file_len(&path).unwrap();
        (path, len)
    });
    let files: Vec<_> = files.filter(|(_, len)| *len > 0).collect();
    let (mut refused, mut same) = (0, 0);
    for _ in 0..1000 {
        let damaged = copy(&disk);
        let (path, len) = &files[rng.random_range(0..files.len())];
        // Half of them in the first pages, where a slot is described.
        let end = [*len, 2 * PAGE][rng.random_range(0..2)];
        let position = rng.random_range(0..end);
        damaged
            .corrupt(path, position, 1 << rng.random_range(0..8))
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
fn a_clean_end_whose_sync_failed_is_written_again_before_anything_follows_it() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 40));
    disk.fail_next_sync(EIO);
    running.journal.shutdown();
    // The process ends and the machine does not: its page cache has what the disk lacks.
    let disk = disk.kill();
    let mut running = start(&disk);
    running.append_and_wait(&payload(2, 40));
    drop(running);
    for seed in 0..20 {
        let found = start(&disk.crash(seed));
        assert_eq!(found.payloads(), [payload(1, 40), payload(2, 40)]);
    }
}

#[test]
fn a_read_error_is_told_and_nothing_is_cut() {
    let disk = three_records();
    disk.fail_read_after(1, EIO);
    let refused = refusal(&disk);
    assert!(matches!(refused, JournalError::Io { .. }), "{refused}");
    assert_eq!(start(&disk).recovered.len(), 3);
}
