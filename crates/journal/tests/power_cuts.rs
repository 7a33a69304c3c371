//! Power cuts at random moments: what was confirmed is there afterwards, and what is there is what
//! was appended, in order, without a gap.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_disk::SimDisk;
use tidemark_journal::{Journal, JournalEvent, JournalOptions, SyncMode, recover};
use tidemark_types::JournalIndex;

/// What the owner knows: every record appended in this history, and how far they are confirmed.
struct Model {
    /// Payload of record i + 1.
    records: Vec<Bytes>,
    /// Those that must be synced before anyone hears of them.
    must_sync: BTreeSet<u64>,
    mode: SyncMode,
    confirmed: u64,
    /// Written, perhaps not synced.
    told: u64,
    /// The process was killed and the power stayed: the next start finds everything up to here.
    kept: u64,
    /// The next start follows a loss of power, or the end of the process, in a weak mode.
    expect_loss: bool,
    /// Records below are in a checkpoint.
    checkpoint: u64,
    epoch: u32,
}

/// One life of a process: starts on `disk`, works, and ends in a power cut. What the next one finds
/// is returned; `Err` tells what the journal lost or made up.
fn life(model: &mut Model, disk: &SimDisk, rng: &mut StdRng) -> Result<SimDisk, String> {
    if rng.random_bool(0.9) {
        disk.cut_power_after(rng.random_range(1..120));
    }
    let options = JournalOptions {
        budget_bytes: 6 * SLOT,
        sync: model.mode,
        ..options()
    };
    let started = start_from(Arc::new(disk.clone()), options, model.checkpoint);
    match started {
        Ok(mut running) => {
            check(model, &running)?;
            model.epoch = running.epoch;
            let told_before = model.told;
            work(model, &mut running, rng)?;
            // Told of anything, this run is found out to have ended in disorder.
            model.expect_loss = model.mode != SyncMode::Always && model.told > told_before;
            if rng.random_bool(0.2) {
                running.journal.shutdown();
                // If the power went meanwhile, the clean end may be there or not.
                model.expect_loss = false;
            } else if rng.random_bool(0.3) && !disk.is_powered_off() {
                // The process ends, the machine does not: what was told of is there.
                let after = disk.kill();
                drop(running.journal);
                while let Ok(event) = running.events.try_recv() {
                    note(model, &event)?;
                }
                model.kept = model.told;
                return Ok(after);
            } else {
                // Whatever is in flight when the power goes.
                let burst = rng.random_range(0..5);
                (0..burst).for_each(|_| append(model, &mut running, rng));
                let after = disk.crash(rng.random());
                take_confirmed(model, &running)?;
                return Ok(after);
            }
            take_confirmed(model, &running)?;
        }
        Err(_) if disk.is_powered_off() => model.kept = 0,
        Err(e) => return Err(e.to_string()),
    }
    Ok(disk.crash(rng.random()))
}

fn check(model: &mut Model, running: &Running) -> Result<(), String> {
    let next = running.next_index;
    if next <= model.confirmed.max(model.kept) {
        return Err(format!(
            "record {} was confirmed, {} told of and kept; the journal ends before {next}",
            model.confirmed, model.kept
        ));
    }
    if model.expect_loss && !running.may_have_lost {
        return Err("the start does not know that records may be lost".to_string());
    }
    if model.mode == SyncMode::Always && running.may_have_lost {
        return Err("nothing can be lost in this mode".to_string());
    }
    if next > model.records.len() as u64 + 1 {
        return Err(format!("record {} was never appended", next - 1));
    }
    let mut expected = model.checkpoint;
    for record in &running.recovered {
        let known = &model.records[record.index.0 as usize - 1];
        if record.index.0 != expected || record.payload != known {
            return Err(format!("record {expected} is not what was appended"));
        }
        expected += 1;
    }
    if expected != next {
        return Err(format!("{expected} is missing"));
    }
    if running.epoch < model.epoch {
        return Err("the epoch fell".to_string());
    }
    model.records.truncate(next as usize - 1);
    model.kept = 0;
    model.must_sync.retain(|index| *index < next);
    model.confirmed = next - 1;
    model.told = next - 1;
    Ok(())
}

fn append(model: &mut Model, running: &mut Running, rng: &mut StdRng) {
    let len = match rng.random_range(0..10) {
        0 => rng.random_range(0..50_000),
        1..4 => rng.random_range(0..6_000),
        _ => rng.random_range(0..300),
    };
    let bytes = payload(rng.random_range(0..1000), len);
    model.records.push(bytes.clone());
    let must_sync = rng.random_bool(0.1);
    if must_sync {
        model.must_sync.insert(running.next_index);
    }
    running.append_as(&bytes, must_sync, false);
}

/// Believes an event; the error is a record that was told of too early.
fn note(model: &mut Model, event: &JournalEvent) -> Result<(), String> {
    match event {
        JournalEvent::Confirmed { index, .. } => {
            model.confirmed = model.confirmed.max(index.0);
            model.told = model.told.max(index.0);
        }
        JournalEvent::Written { index, .. } => {
            let early = model.must_sync.range(model.confirmed + 1..=index.0).next();
            if let Some(early) = early {
                return Err(format!("record {early} was told of before it was synced"));
            }
            model.told = model.told.max(index.0);
        }
        _ => {}
    }
    Ok(())
}

fn work(model: &mut Model, running: &mut Running, rng: &mut StdRng) -> Result<(), String> {
    for _ in 0..rng.random_range(0..40) {
        let burst = rng.random_range(1..8);
        (0..burst).for_each(|_| append(model, running, rng));
        let last = model.records.len() as u64;
        let sync = rng.random_bool(0.3);
        if sync {
            // As before a checkpoint.
            running.journal.request_sync(JournalIndex(last));
        }
        if !wait(model, running, last, sync)? {
            return Ok(());
        }
        if rng.random_bool(0.5) {
            // The journal is needed from the older of two checkpoints on.
            running
                .journal
                .release_below(JournalIndex(model.checkpoint));
            model.checkpoint = (model.confirmed)
                .saturating_sub(rng.random_range(0..4))
                .max(model.checkpoint);
        }
    }
    Ok(())
}

/// Waits until record `last` is told of, or with `sync` confirmed; false when the journal stops first.
fn wait(model: &mut Model, running: &Running, last: u64, sync: bool) -> Result<bool, String> {
    while (if sync { model.confirmed } else { model.told }) < last {
        let event = running.events.recv();
        if let Ok(event) = &event {
            note(model, event)?;
        }
        match event {
            Ok(JournalEvent::NeedCheckpoint) => {
                model.checkpoint = model.checkpoint.max(model.confirmed);
                let needed = JournalIndex(model.checkpoint);
                running.journal.release_below(needed);
            }
            Ok(JournalEvent::Failed { .. } | JournalEvent::NoSpace { .. }) | Err(_) => {
                return Ok(false);
            }
            Ok(_) => {}
        }
    }
    Ok(true)
}

fn take_confirmed(model: &mut Model, running: &Running) -> Result<(), String> {
    while let Ok(event) = running.events.try_recv() {
        note(model, &event)?;
    }
    Ok(())
}

fn history(seed: u64, lie: bool, mode: SyncMode) -> Result<u64, String> {
    let mut lost = 0;
    let mut rng = StdRng::seed_from_u64(seed);
    let mut disk = SimDisk::new(seed);
    let mut model = Model {
        records: Vec::new(),
        must_sync: BTreeSet::new(),
        mode,
        confirmed: 0,
        told: 0,
        kept: 0,
        expect_loss: false,
        checkpoint: 1,
        epoch: 0,
    };
    for _ in 0..6 {
        disk.never_sync(lie);
        disk = life(&mut model, &disk, &mut rng)?;
        lost += model.told - model.confirmed;
    }
    let last = start_from(Arc::new(disk), options(), model.checkpoint);
    check(&mut model, &last.map_err(|e| e.to_string())?)?;
    Ok(lost)
}

#[test]
fn power_cuts_lose_nothing_that_was_confirmed() {
    for seed in 0..400 {
        if let Err(e) = history(seed, false, SyncMode::Always) {
            panic!("seed {seed}: {e}");
        }
    }
}

#[test]
fn in_the_weak_modes_what_must_be_synced_and_what_a_kill_leaves_is_there() {
    let mut at_risk = 0;
    for seed in 0..300 {
        let mode = match seed % 3 {
            0 => SyncMode::Interval(Duration::from_millis(1)),
            _ => SyncMode::Os,
        };
        match history(seed, false, mode) {
            Ok(told_and_not_synced) => at_risk += told_and_not_synced,
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
    assert!(at_risk > 100, "only {at_risk} records were at risk");
}

#[test]
fn the_check_notices_when_syncs_do_nothing() {
    let caught = (0..100)
        .filter(|seed| history(*seed, true, SyncMode::Always).is_err())
        .count();
    // How much is confirmed before a cut is a matter of threads' turns.
    assert!(caught >= 80, "{caught} of 100");
}

#[test]
fn cuts_at_every_step_of_a_start_and_again_at_the_next() {
    // A journal whose last group is torn.
    let torn = |seed| {
        let disk = SimDisk::new(seed);
        let mut running = start(&disk);
        running.append_and_wait(&payload(1, 5_000));
        running.append_and_wait(&payload(2, 40_000));
        disk.hold_syncs();
        running.append(&payload(3, 9_000));
        disk.wait_for_held_syncs(1);
        disk.crash(seed)
    };
    for seed in 0..6 {
        for first in 1..14 {
            for second in 1..8 {
                let disk = torn(seed);
                let (disk, three) = cut_start(&disk, first, seed, &[2, 3]);
                let (disk, three) = cut_start(&disk, second, seed + 50, three.as_slice());
                let running = start(&disk);
                let found = running.recovered.len();
                assert!(three.contains(&found), "{found} of {three:?}");
                assert_eq!(
                    running.payloads()[..2],
                    [payload(1, 5_000), payload(2, 40_000)]
                );
            }
        }
    }
}

/// A start during which the power goes, and the numbers of records that may be there afterwards.
fn cut_start(disk: &SimDisk, step: u64, seed: u64, allowed: &[usize]) -> (SimDisk, Vec<usize>) {
    disk.cut_power_after(step);
    let mut allowed = allowed.to_vec();
    if let Ok(mut running) = start_from(Arc::new(disk.clone()), options(), 1) {
        let found = running.recovered.len();
        assert!(allowed.contains(&found), "{found} of {allowed:?}");
        // It was served, so it has to stay; the next one may or may not.
        running.append(&payload(found as u64 + 1, 6_000));
        let confirmed = running.confirmed(found as u64 + 1).is_ok();
        allowed = vec![found + 1];
        if !confirmed {
            allowed.push(found);
        }
    }
    (disk.crash(seed), allowed)
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_cleanly() {
    let disk = SimDisk::new(1);
    let mut running = start(&disk);
    running.append_and_wait(&payload(1, 100));
    disk.hold_syncs();
    running.append(&payload(2, 50));
    disk.wait_for_held_syncs(1);
    running.append(&payload(3, 50));
    disk.wait_for_held_syncs(2);
    for index in 4..=6 {
        assert_eq!(index, running.next_index);
        running.append(&Bytes::from(vec![index as u8; 152]));
    }
    disk.release_syncs();
    running.confirmed(6).unwrap();
    drop(running);
    // Page 0 is the header, 1 to 3 records 1 to 3, 4 the last group of 3 records.
    let path = slot_path(0);
    let whole = tidemark_disk::read_all(&disk, &path).unwrap();
    let group = 4 * 4096;
    let frame = 88 + 152;
    for torn in 0..=3 * frame {
        let disk = SimDisk::new(torn as u64);
        let mut bytes = whole.clone();
        bytes[group + torn..].fill(0);
        plant(&disk, &path, &bytes);
        let running = start(&disk);
        let intact = torn / frame;
        assert_eq!(running.recovered.len(), 3 + intact, "torn at {torn}");
        assert_eq!((running.epoch, running.clean), (1, false));
        // Before its header is whole, a frame may or may not be told from what was there before.
        if torn % frame >= 88 {
            let cut = running.cut.clone().expect("a torn frame is reported");
            let end = group + (intact + 1) * frame;
            assert_eq!(cut.file, path);
            assert_eq!(cut.position + cut.bytes, end as u64);
        }
    }
}

fn plant(disk: &SimDisk, path: &std::path::Path, bytes: &[u8]) {
    use tidemark_disk::{Disk, OpenMode};
    disk.create_dir_all(path.parent().unwrap()).unwrap();
    let file = disk.open(path, OpenMode::OpenOrCreate).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
}

#[test]
fn what_a_failed_sync_left_in_the_page_cache_is_written_again_before_it_is_served() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let mut running = start(&disk);
        running.append_and_wait(&payload(1, 100));
        // The pages count as written from now on, and are not.
        disk.fail_next_sync(EIO);
        running.append(&payload(2, 9_000));
        running.confirmed(2).unwrap_err();
        let disk = disk.kill();
        drop(running);
        let next = start(&disk);
        assert_eq!(next.recovered.len(), 2, "the page cache still has it");
        assert_eq!(start(&disk.crash(seed)).recovered.len(), 2);
    }
}

#[test]
fn what_a_killed_process_left_in_the_page_cache_is_synced_before_it_is_served() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let mut running = start(&disk);
        running.append_and_wait(&payload(1, 100));
        disk.never_sync(true);
        running.append_and_wait(&payload(2, 100));
        drop(running);
        disk.never_sync(false);
        let found = recover(
            Arc::new(disk.clone()),
            options(),
            JournalIndex(1),
            &mut |_| Ok(()),
        );
        assert_eq!(found.unwrap().next_index, JournalIndex(3));
        assert_eq!(start(&disk.crash(seed)).recovered.len(), 2);
    }
}
