use std::io::ErrorKind;
use std::path::Path;
use std::thread;

use super::*;
use crate::{create_dir_all_durable, read_all, write_atomic};

const EIO: i32 = 5;
const SEEDS: std::ops::Range<u64> = 0..200;

fn file_with(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(Path::new(path), OpenMode::CreateNew).unwrap();
    file.write_at(bytes, 0).unwrap();
    file
}

/// A disk on which `/f` holds `bytes` durably.
fn durable(seed: u64, bytes: &[u8]) -> (SimDisk, Arc<dyn DiskFile>) {
    let disk = SimDisk::new(seed);
    let file = file_with(&disk, "/f", bytes);
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    (disk, file)
}

fn f(disk: &SimDisk) -> Vec<u8> {
    read_all(disk, Path::new("/f")).unwrap()
}

#[test]
fn a_kill_keeps_what_was_written_and_syncs_nothing() {
    let disk = SimDisk::new(7);
    let file = disk.open(Path::new("/f"), OpenMode::CreateNew).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file.write_at(b"synced", 0).unwrap();
    file.sync_data().unwrap();
    file.write_at(b"only written", 0).unwrap();
    let next = disk.kill();
    assert!(file.write_at(b"x", 0).is_err());
    assert_eq!(read_all(&next, Path::new("/f")).unwrap(), b"only written");
    let lost = (0..50).any(|seed| {
        let after = next.crash(seed);
        read_all(&after, Path::new("/f")).unwrap() != b"only written"
    });
    assert!(lost, "a loss of power may still take it");
}

#[test]
fn files_and_directories_behave_like_the_real_ones() {
    let disk = SimDisk::new(1);
    create_dir_all_durable(&disk, Path::new("/a/b")).unwrap();
    write_atomic(&disk, Path::new("/a/b"), "z", b"1").unwrap();
    write_atomic(&disk, Path::new("/a/b"), "z", b"22").unwrap();
    file_with(&disk, "/a/b/c", b"333");
    let entry = |name: &str, is_dir| DirEntry {
        name: name.to_string(),
        is_dir,
    };
    let list = disk.list(Path::new("/a/b")).unwrap();
    assert_eq!(list, [entry("c", false), entry("z", false)]);
    assert_eq!(disk.list(Path::new("/a")).unwrap(), [entry("b", true)]);
    assert_eq!(disk.file_len(Path::new("/a/b/c")).unwrap(), 3);
    let kind = |r: io::Result<()>| r.unwrap_err().kind();
    assert_eq!(
        kind(disk.remove_dir(Path::new("/a/b"))),
        ErrorKind::DirectoryNotEmpty
    );
    assert_eq!(
        kind(
            disk.open(Path::new("/a/b/c"), OpenMode::CreateNew)
                .map(|_| ())
        ),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        kind(
            disk.open(Path::new("/a/x"), OpenMode::ReadWrite)
                .map(|_| ())
        ),
        ErrorKind::NotFound
    );
    let open = disk.open(Path::new("/a/b/c"), OpenMode::Read).unwrap();
    assert_eq!(kind(open.write_at(b"x", 0)), ErrorKind::PermissionDenied);
    disk.remove_dir_all(Path::new("/a")).unwrap();
    assert!(!disk.exists(Path::new("/a")).unwrap());
    let mut buf = [0; 8];
    assert_eq!(open.read_at(&mut buf, 1).unwrap(), 2, "open files stay");
}

#[test]
fn reads_and_writes_cross_pages_and_holes_are_zero() {
    let disk = SimDisk::new(1);
    let file = file_with(&disk, "/f", b"");
    let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    file.write_vectored_at(
        &[IoSlice::new(&bytes[..5000]), IoSlice::new(&bytes[5000..])],
        10_000,
    )
    .unwrap();
    let all = f(&disk);
    assert_eq!(all.len(), 20_000);
    assert!(all[..10_000].iter().all(|b| *b == 0));
    assert_eq!(all[10_000..], bytes);
    file.set_len(12_000).unwrap();
    file.set_len(20_000).unwrap();
    let all = f(&disk);
    assert_eq!(all[10_000..12_000], bytes[..2000]);
    assert!(all[12_000..].iter().all(|b| *b == 0));
}

#[test]
fn synced_bytes_survive_every_crash() {
    for seed in SEEDS {
        let (disk, file) = durable(seed, &[7; 9000]);
        file.write_at(&[8; 4096], 4096).unwrap();
        file.sync_data().unwrap();
        let after = f(&disk.crash(seed));
        assert_eq!(after, [vec![7; 4096], vec![8; 4096], vec![7; 808]].concat());
    }
}

#[test]
fn a_lost_overwrite_shows_the_old_bytes_and_pages_tear_at_sectors() {
    let (mut old, mut new, mut mixed, mut torn) = (0, 0, 0, 0);
    for seed in SEEDS {
        let (disk, file) = durable(seed, &[7; 8192]);
        file.write_at(&[8; 8192], 0).unwrap();
        let after = f(&disk.crash(seed));
        assert_eq!(after.len(), 8192);
        for sector in after.chunks(512) {
            let first = sector[0];
            assert!(first == 7 || first == 8);
            assert!(sector.iter().all(|b| *b == first), "a sector is whole");
        }
        let whole = |page: &[u8]| page.iter().all(|b| *b == page[0]);
        match (after[0], after[4096]) {
            _ if !whole(&after[..4096]) || !whole(&after[4096..]) => torn += 1,
            (7, 7) => old += 1,
            (8, 8) => new += 1,
            _ => mixed += 1,
        }
    }
    assert!(old > 0 && new > 0 && mixed > 0 && torn > 0);
}

#[test]
fn a_page_written_twice_can_show_its_middle_version() {
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        let (disk, file) = durable(seed, &[1; 512]);
        file.write_at(&[2; 512], 0).unwrap();
        file.write_at(&[3; 512], 0).unwrap();
        seen.insert(f(&disk.crash(seed))[0]);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn order_does_not_hold_across_files() {
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        let disk = SimDisk::new(seed);
        let (a, b) = (file_with(&disk, "/a", &[0]), file_with(&disk, "/b", &[0]));
        a.sync_data().unwrap();
        b.sync_data().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        a.write_at(&[1], 0).unwrap();
        b.write_at(&[1], 0).unwrap();
        let after = disk.crash(seed);
        let read = |p: &str| read_all(&after, Path::new(p)).unwrap()[0];
        seen.insert((read("/a"), read("/b")));
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn a_length_may_survive_without_its_data() {
    let (mut hollow, mut short) = (0, 0);
    for seed in SEEDS {
        let (disk, file) = durable(seed, &[7; 4096]);
        file.write_at(&[8; 4096], 4096).unwrap();
        let after = f(&disk.crash(seed));
        assert_eq!(after[..4096], [7; 4096]);
        hollow += u32::from(after.len() == 8192 && after[4096..].iter().all(|b| *b == 0));
        short += u32::from(after.len() < 8192);
    }
    assert!(hollow > 0 && short > 0);
}

#[test]
fn a_name_is_durable_after_its_directory_was_synced() {
    let mut vanished = 0;
    for seed in SEEDS {
        let disk = SimDisk::new(seed);
        file_with(&disk, "/f", b"x").sync_data().unwrap();
        vanished += u32::from(!disk.crash(seed).exists(Path::new("/f")).unwrap());
        let (disk, _) = durable(seed, b"x");
        assert_eq!(f(&disk.crash(seed)), b"x");
    }
    assert!(vanished > 0);
}

#[test]
fn a_rename_is_atomic_and_a_removed_file_can_come_back() {
    let (mut kept, mut renamed, mut back) = (0, 0, 0);
    for seed in SEEDS {
        let (disk, _) = durable(seed, b"old");
        let tmp = file_with(&disk, "/tmp", b"new");
        tmp.sync_data().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.rename(Path::new("/tmp"), Path::new("/f")).unwrap();
        let after = disk.crash(seed);
        let tmp_left = after.exists(Path::new("/tmp")).unwrap();
        match f(&after).as_slice() {
            b"old" => kept += u32::from(tmp_left),
            b"new" => renamed += u32::from(!tmp_left),
            other => panic!("{other:?}"),
        }
        let (disk, _) = durable(seed, b"x");
        disk.remove_file(Path::new("/f")).unwrap();
        back += u32::from(disk.crash(seed).exists(Path::new("/f")).unwrap());
    }
    assert_eq!(kept + renamed, SEEDS.end as u32);
    assert!(kept > 0 && renamed > 0 && back > 0 && back < SEEDS.end as u32);
}

#[test]
fn atomic_files_are_old_or_new_whenever_the_power_goes() {
    for step in 1..=6 {
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            write_atomic(&disk, Path::new("/"), "f", &[1; 5000]).unwrap();
            disk.cut_power_after(step);
            let written = write_atomic(&disk, Path::new("/"), "f", &[2; 6000]);
            let after = f(&disk.crash(seed));
            let new = after == [2; 6000];
            assert!(new || after == [1; 5000]);
            assert!(new || written.is_err());
        }
    }
}

#[test]
fn a_cut_stops_everything_and_the_same_seed_finds_the_same_disk() {
    let (disk, file) = durable(3, &[7; 8192]);
    file.write_at(&[8; 8192], 0).unwrap();
    let first = f(&disk.crash(9));
    assert_eq!(first, f(&disk.crash(9)));
    assert!(disk.is_powered_off());
    assert!(file.sync_data().is_err());
    assert!(disk.list(Path::new("/")).is_err());
}

#[test]
fn after_a_failed_sync_pages_read_clean_and_then_vanish() {
    for seed in SEEDS {
        let (disk, file) = durable(seed, &[7; 4096]);
        file.write_at(&[8; 4096], 0).unwrap();
        disk.fail_next_sync(EIO);
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
        assert_eq!(f(&disk), [8; 4096], "the page cache still has it");
        file.sync_data()
            .expect("the second sync lies, as Linux's does");
        assert_eq!(f(&disk.crash(seed)), [7; 4096]);
    }
}

#[test]
fn a_sync_that_lies_loses() {
    let lost = SEEDS.filter(|seed| {
        let (disk, file) = durable(*seed, &[7; 512]);
        disk.never_sync(true);
        file.write_at(&[8; 512], 0).unwrap();
        file.sync_data().unwrap();
        f(&disk.crash(*seed)) == [7; 512]
    });
    assert!(lost.count() > 0);
}

#[test]
fn a_held_sync_waits_until_it_is_released_or_the_power_goes() {
    let (disk, file) = durable(1, &[7; 512]);
    file.write_at(&[8; 512], 0).unwrap();
    disk.hold_syncs();
    let syncing = thread::spawn({
        let file = Arc::clone(&file);
        move || file.sync_data()
    });
    disk.wait_for_held_syncs(1);
    assert_eq!(disk.held_syncs(), 1);
    disk.release_syncs();
    syncing.join().unwrap().unwrap();
    assert_eq!(disk.held_syncs(), 0);

    file.write_at(&[9; 512], 0).unwrap();
    disk.hold_syncs();
    let syncing = thread::spawn(move || file.sync_data());
    disk.wait_for_held_syncs(1);
    let after = f(&disk.crash(1));
    assert!(after == [8; 512] || after == [9; 512]);
    syncing.join().unwrap().unwrap_err();
}

#[test]
fn a_full_disk_refuses_growth_and_heals() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(8192));
    let file = file_with(&disk, "/f", &[1; 4096]);
    file.allocate(4096, 4096).unwrap();
    let other = disk.open(Path::new("/g"), OpenMode::CreateNew).unwrap();
    let full = other.write_at(&[1], 0).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    file.write_at(&[1; 4096], 4096).expect("it was allocated");
    assert_eq!(disk.used_bytes(), 8192);
    file.set_len(10).unwrap();
    other.write_at(&[1], 0).unwrap();
    drop(file);
    disk.remove_file(Path::new("/f")).unwrap();
    assert_eq!(disk.used_bytes(), 4096);
}

#[test]
fn reads_and_writes_fail_on_demand_and_rot_lies_below_the_caches() {
    let (disk, file) = durable(1, &[7; 512]);
    disk.fail_write_after(1, EIO);
    file.write_at(&[1], 0).unwrap();
    file.write_at(&[2], 0).unwrap_err();
    disk.fail_read_after(0, EIO);
    file.read_at(&mut [0], 0).unwrap_err();
    file.sync_data().unwrap();
    disk.corrupt(Path::new("/f"), 10, 0x80).unwrap();
    assert_eq!(f(&disk)[..2], [1, 7]);
    assert_eq!(f(&disk.crash(1))[10], 0x87);
}

#[test]
fn calls_are_counted_by_path() {
    let disk = SimDisk::new(1);
    create_dir_all_durable(&disk, Path::new("/a/b")).unwrap();
    file_with(&disk, "/a/b/f", b"x").sync_data().unwrap();
    file_with(&disk, "/a/g", b"x").sync_data().unwrap();
    let counts = disk.counts(Path::new("/a/b"));
    assert_eq!((counts.syncs, counts.writes), (1, 1));
    assert_eq!(disk.counts(Path::new("/a")).syncs, 2);
    assert_eq!(disk.counts(Path::new("/")).dir_syncs, 2);
}

#[test]
fn a_lock_has_one_holder_and_dies_with_the_process() {
    let disk = SimDisk::new(1);
    let held = disk.lock(Path::new("/lock")).unwrap();
    let second = disk.lock(Path::new("/lock")).err().expect("it is held");
    assert_eq!(second.kind(), ErrorKind::WouldBlock);
    drop(held);
    let _held = disk.lock(Path::new("/lock")).unwrap();
    disk.crash(1).lock(Path::new("/lock")).unwrap();
}

#[test]
fn a_kept_disk_is_the_same_disk_again() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        disk.record_calls();
        disk.create_dir_all(Path::new("/a/b")).unwrap();
        for (n, path) in ["/f", "/a/g", "/a/b/h"].into_iter().enumerate() {
            let file = file_with(&disk, path, &[n as u8 + 1; 5000]);
            file.set_len(40_000 + n as u64).unwrap();
            if n < 2 {
                file.sync_data().unwrap();
            }
            file.write_at(b"later", 20_000).unwrap();
        }
        disk.sync_dir(Path::new("/")).unwrap();
        let after = disk.crash(seed);
        let to = dir.path().join(seed.to_string());
        after.export(&to).unwrap();
        let again = SimDisk::import(&to, SimDisk::seed_after(seed)).unwrap();
        same(&after, &again, Path::new("/"));
        // The cut is told with everything it decided.
        let calls = disk.recorded_calls();
        assert!(
            calls
                .iter()
                .any(|line| line.contains("write file 3 /f at 20000, 5 bytes")),
            "{calls:#?}"
        );
        assert!(
            calls
                .iter()
                .any(|line| line.starts_with("power cut after call "))
        );
        assert!(
            calls.last().unwrap().starts_with("of file ") || seed > 0,
            "{calls:#?}"
        );
        // What both do from here on is the same too.
        for disk in [&after, &again] {
            file_with(disk, "/new", &[7; 9000])
                .write_at(b"over", 4090)
                .unwrap();
        }
        same(&after.crash(1), &again.crash(1), Path::new("/"));
    }
}

fn same(one: &SimDisk, other: &SimDisk, dir: &Path) {
    let entries = one.list(dir).unwrap();
    assert_eq!(entries, other.list(dir).unwrap());
    for entry in entries {
        let path = dir.join(entry.name);
        if entry.is_dir {
            same(one, other, &path);
        } else {
            assert!(read_all(one, &path).unwrap() == read_all(other, &path).unwrap());
        }
    }
}
