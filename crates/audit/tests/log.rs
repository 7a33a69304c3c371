//! The log as its reader finds it: what was recorded is there, what was done to the files is seen.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidemark_audit::{
    Anchor, Audit, Event, Kind, Options, Origin, Outcome, Verified, Which, verify,
};
use tidemark_disk::{Disk, OsDisk, SimDisk};
use tidemark_types::MonoTime;

const INTERVAL: Duration = Duration::from_secs(60);

struct World {
    dir: TempDir,
    /// Seconds that have passed.
    clock: Arc<AtomicU64>,
}

impl World {
    fn new() -> World {
        World {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::default(),
        }
    }

    fn dir(&self) -> PathBuf {
        self.dir.path().join("audit")
    }

    fn options(&self, disk: Arc<dyn Disk>, max_bytes: u64, files: usize) -> Options {
        let clock = self.clock.clone();
        Options {
            disk,
            dir: self.dir(),
            max_bytes,
            files,
            interval: INTERVAL,
            which: Which::default(),
            times: Arc::new(move || {
                let s = clock.load(Ordering::Relaxed);
                (
                    1_700_000_000_000 + s as i64 * 1_000,
                    MonoTime::from_ms(s * 1_000),
                )
            }),
        }
    }

    fn start(&self) -> Audit {
        Audit::start(self.options(Arc::new(OsDisk), 1 << 20, 10)).unwrap()
    }

    /// A start, some changes, a stop in order.
    fn run(&self, max_bytes: u64, files: usize, changes: usize) {
        let audit = Audit::start(self.options(Arc::new(OsDisk), max_bytes, files)).unwrap();
        audit.record(|| Event::new(Kind::Start));
        for n in 0..changes {
            audit.record(|| change(n));
            audit.sync();
        }
        audit.record(|| Event::new(Kind::Stop));
        audit.stop();
    }

    fn file(&self, number: u64) -> PathBuf {
        self.dir().join(format!("audit-{number:08}.jsonl"))
    }

    fn lines(&self) -> Vec<Value> {
        let mut files: Vec<_> = fs::read_dir(self.dir())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"))
            .collect();
        files.sort();
        let text: String = files
            .iter()
            .map(|file| fs::read_to_string(file).unwrap())
            .collect();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn verified(&self) -> Verified {
        verify(&[self.dir()], &[]).unwrap()
    }

    /// Changes a file's lines.
    fn edit(&self, number: u64, edit: impl FnOnce(&mut Vec<String>)) {
        let path = self.file(number);
        let text = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        edit(&mut lines);
        fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
}

fn change(n: usize) -> Event {
    Event::new(Kind::Change)
        .outcome(Outcome::Succeeded)
        .of(&origin())
        .api("CreateTopics")
        .resource("Topic", &format!("topic-{n}"))
}

fn origin() -> Origin {
    Origin {
        principal: Some(Arc::from("User:alice")),
        address: Some("192.0.2.7".parse().unwrap()),
        client_id: Some(Arc::from("shop \"1\"\n")),
        listener: Some(Arc::from("SASL_SSL")),
    }
}

fn denied(topic: &str) -> Event {
    Event::new(Kind::Access)
        .outcome(Outcome::Denied)
        .of(&origin())
        .operation("Write")
        .resource("Topic", topic)
}

fn broken(verified: &Verified) -> Vec<(u64, String)> {
    assert_eq!(verified.whole, !verified.findings.iter().any(|f| f.broken));
    (verified.findings.iter().filter(|f| f.broken))
        .map(|f| (f.line, f.what.clone()))
        .collect()
}

#[test]
fn what_was_recorded_is_there_and_the_chain_is_whole_over_files_and_restarts() {
    let world = World::new();
    world.run(2_000, 100, 20);
    world.run(2_000, 100, 20);
    let verified = world.verified();
    assert!(verified.whole && verified.files > 5, "{verified:#?}");
    assert_eq!(verified.findings, []);
    let lines = world.lines();
    assert_eq!(verified.lines, lines.len() as u64);
    assert_eq!((verified.first_seq, verified.last_seq), (1, verified.lines));
    let changes = lines.iter().filter(|line| line["event"] == "change");
    assert_eq!(changes.count(), 40);
    let change = lines.iter().find(|line| line["event"] == "change").unwrap();
    for (field, value) in [
        ("outcome", "succeeded"),
        ("principal", "User:alice"),
        ("address", "192.0.2.7"),
        ("client_id", "shop \"1\"\n"),
        ("listener", "SASL_SSL"),
        ("api", "CreateTopics"),
        ("resource_type", "Topic"),
        ("resource", "topic-0"),
        ("time", "2023-11-14T22:13:20.000Z"),
    ] {
        assert_eq!(change[field], value, "{field}");
    }
    assert_eq!(lines.last().unwrap()["hash"], verified.last_hash.as_str());
}

#[test]
fn the_documented_rule_is_enough_to_check_a_line() {
    let world = World::new();
    world.run(1 << 20, 10, 1);
    let text = fs::read_to_string(world.file(1)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let [before, line] = [lines[0], lines[1]];
    let hash_of = |line: &str| line[line.len() - 66..line.len() - 2].to_owned();
    let body = format!("{}}}", &line[..line.len() - 75]);
    let script = format!("printf '%s%s' '{}' '{body}' | sha256sum", hash_of(before));
    let out = std::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .unwrap();
    let printed = String::from_utf8(out.stdout).unwrap();
    assert_eq!(printed.split(' ').next(), Some(&*hash_of(line)), "{script}");
}

#[test]
fn files_and_directory_are_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    world.run(1 << 20, 10, 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&world.dir()), mode(&world.file(1))), (0o700, 0o600));
}

#[test]
fn the_oldest_files_go_and_the_log_says_so() {
    let world = World::new();
    world.run(2_000, 3, 40);
    let verified = world.verified();
    assert!(verified.whole, "{verified:#?}");
    assert_eq!(verified.files, 3);
    assert!(verified.first_seq > 1);
    assert!(
        verified.findings[0].what.contains("are not here"),
        "{verified:#?}"
    );
    assert!(world.lines().iter().any(|line| line["event"] == "removed"));
}

#[test]
fn every_way_to_change_a_file_is_seen_at_its_place() {
    type Edit = fn(&mut Vec<String>);
    let edits: [(&str, Edit, u64, &str); 6] = [
        (
            "a word of a line",
            |lines| lines[3] = lines[3].replace("alice", "carol"),
            4,
            "was changed",
        ),
        (
            "a hash",
            |lines| lines[3] = lines[3].replace("\"hash\":\"", "\"hash\":\"0"),
            4,
            "no line",
        ),
        (
            "a line taken out",
            |lines| drop(lines.remove(3)),
            4,
            "lines 4 to 4 are missing",
        ),
        (
            "a line twice",
            |lines| lines.insert(4, lines[3].clone()),
            5,
            "second time",
        ),
        (
            "two lines swapped",
            |lines| lines.swap(3, 4),
            4,
            "lines 4 to 4 are missing",
        ),
        (
            "a line put in",
            |lines| lines.insert(3, "{\"seq\":4}".to_owned()),
            4,
            "no line",
        ),
    ];
    for (what, edit, line, told) in edits {
        let world = World::new();
        world.run(1 << 20, 10, 8);
        world.edit(1, edit);
        let broken = broken(&world.verified());
        assert_eq!(broken[0].0, line, "{what}: {broken:?}");
        assert!(broken[0].1.contains(told), "{what}: {broken:?}");
        // A start goes on behind it, and the break does not heal.
        world.run(1 << 20, 10, 1);
        assert!(!self::broken(&world.verified()).is_empty(), "{what}");
    }
}

#[test]
fn a_whole_line_forged_with_its_hash_does_not_follow() {
    let world = World::new();
    world.run(1 << 20, 10, 4);
    let elsewhere = World::new();
    elsewhere.run(1 << 20, 10, 2);
    // A line of another log has a hash that is right there, and not here.
    let other = fs::read_to_string(elsewhere.file(1)).unwrap();
    let forged = other.lines().nth(3).unwrap().replace("topic-1", "topic-9");
    world.edit(1, |lines| lines[3] = forged);
    let broken = broken(&world.verified());
    assert_eq!((broken.len(), broken[0].0), (1, 4), "{broken:?}");
}

#[test]
fn missing_files_and_missing_ends_of_files_are_named() {
    let world = World::new();
    world.run(2_000, 100, 30);
    fs::rename(world.file(3), world.dir().join("kept")).unwrap();
    let missing = broken(&world.verified());
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(
        missing[0]
            .1
            .contains("audit-00000003.jsonl to audit-00000003.jsonl are missing"),
        "{missing:?}"
    );
    fs::rename(world.dir().join("kept"), world.file(3)).unwrap();
    assert!(world.verified().whole);

    world.edit(3, |lines| drop(lines.pop()));
    let missing = broken(&world.verified());
    assert!(
        missing[0]
            .1
            .contains("the end of the file before audit-00000004.jsonl is missing"),
        "{missing:?}"
    );
}

#[test]
fn a_cut_end_is_seen_by_whoever_noted_a_hash() {
    let world = World::new();
    world.run(1 << 20, 10, 8);
    let noted = world.verified();
    let anchor = format!("{}:{}", noted.last_seq, &noted.last_hash[..12]);
    let anchor = Anchor::parse(&anchor).unwrap();
    let check = || verify(&[world.dir()], std::slice::from_ref(&anchor)).unwrap();
    assert!(check().whole);
    world.edit(1, |lines| lines.truncate(5));
    // The chain alone cannot tell it from a broker that was killed.
    let cut = world.verified();
    assert!(
        cut.whole && cut.findings[0].what.contains("no stop"),
        "{cut:#?}"
    );
    assert!(broken(&check())[0].1.contains("its end is missing"));
    // And going on does not cover it up.
    world.run(1 << 20, 10, 8);
    assert!(broken(&check())[0].1.contains("was noted"));
    assert!(Anchor::parse("7").is_err() && Anchor::parse("7:abc").is_err());
}

#[test]
fn a_line_that_a_crash_cut_short_stays_and_is_told() {
    let world = World::new();
    world.run(1 << 20, 10, 3);
    let whole = fs::read(world.file(1)).unwrap();
    let torn = &whole[..whole.len() - 20];
    fs::write(world.file(1), torn).unwrap();
    let before = world.verified();
    assert!(
        before.whole && before.findings[0].what.contains("not whole"),
        "{before:#?}"
    );

    world.run(1 << 20, 10, 1);
    let after = world.verified();
    assert!(after.whole, "{after:#?}");
    assert!(
        after.findings[0]
            .what
            .contains("a write was cut short here"),
        "{after:#?}"
    );
    let text = fs::read(world.file(1)).unwrap();
    assert!(text.starts_with(torn), "nothing was taken away");

    // What the line tells of must be what is there.
    let mut other = text.clone();
    other[torn.len() - 3] ^= 1;
    fs::write(world.file(1), other).unwrap();
    assert!(!world.verified().whole);
}

/// Also exactly before a newline: then the line is whole, and the next one must follow it.
#[test]
fn a_cut_at_any_byte_of_the_end_leaves_a_log_that_goes_on_whole() {
    let world = World::new();
    world.run(1 << 20, 10, 3);
    let whole = fs::read(world.file(1)).unwrap();
    let is_end = |at: &usize| whole[*at] == b'\n';
    let from = (0..whole.len()).filter(is_end).rev().nth(2).unwrap();
    for cut in from..whole.len() {
        fs::write(world.file(1), &whole[..cut]).unwrap();
        for _ in 0..2 {
            world.run(1 << 20, 10, 1);
            let verified = world.verified();
            assert!(verified.whole, "cut at {cut}: {verified:#?}");
        }
    }
}

#[test]
fn a_file_that_was_only_just_made_goes_on_with_the_chain() {
    let world = World::new();
    world.run(1 << 20, 10, 3);
    fs::write(world.file(2), "{\"se").unwrap();
    world.run(1 << 20, 10, 3);
    let verified = world.verified();
    assert!(verified.whole, "{verified:#?}");
    assert_eq!(verified.files, 2);
}

#[test]
fn repeats_of_a_refusal_are_counted_and_none_is_lost() {
    let world = World::new();
    let audit = world.start();
    for _ in 0..1_000 {
        audit.record(|| denied("payments"));
        audit.record(|| denied("orders"));
    }
    for _ in 0..10 {
        audit.record_once("alice reads payments", || change(0));
    }
    world.clock.store(61, Ordering::Relaxed);
    audit.record_once("alice reads payments", || change(0));
    audit.sync();
    audit.stop();
    let lines = world.lines();
    let of = |topic: &str| -> Vec<u64> {
        let lines = lines.iter().filter(|line| line["resource"] == topic);
        lines
            .map(|line| line["count"].as_u64().unwrap_or(1))
            .collect()
    };
    assert_eq!(of("payments"), [1, 999]);
    assert_eq!(of("orders"), [1, 999]);
    assert_eq!(of("topic-0"), [1, 1]);
    assert!(world.verified().whole);
}

/// Names can be made up: what is allowed leaves room for the rest, and is counted when it is lost.
#[test]
fn an_allowed_access_that_does_not_fit_is_counted_and_ends_nothing() {
    let world = World::new();
    let disk = SimDisk::new(1);
    let options = world.options(Arc::new(disk.clone()), 16 << 20, 10);
    let audit = Audit::start(options).unwrap();
    let ends = Arc::new(AtomicU64::new(0));
    audit.on_failure({
        let ends = ends.clone();
        move |_| {
            ends.fetch_add(1, Ordering::Relaxed);
        }
    });
    disk.hold_syncs();
    audit.record(|| Event::new(Kind::Start));
    std::thread::scope(|scope| {
        scope.spawn(|| audit.sync());
        disk.wait_for_held_syncs(1);
        // The log's thread waits for its disk: these stay where they are.
        for n in 0..10_000 {
            audit.record_once(n, || change(n));
        }
        audit.record(|| change(10_001));
        disk.release_syncs();
    });
    audit.sync();
    audit.stop();
    assert_eq!(audit.stats().unwrap().lost, 10_000 - 8_192);
    assert_eq!(ends.load(Ordering::Relaxed), 0);
    // The start, what fits, the change.
    assert_eq!(audit.stats().unwrap().lines, 8_192 + 2);
}

/// What a client asks for is its own choice: with made-up names it must not push out what others did, nor
/// end a broker that stops when its log cannot keep up.
#[test]
fn made_up_names_are_counted_beyond_some_hundreds() {
    let world = World::new();
    let audit = world.start();
    for n in 0..50_000 {
        audit.record(|| denied(&format!("made-up-{n}")));
    }
    audit.sync();
    let stats = audit.stats().unwrap();
    audit.stop();
    assert_eq!(stats.lost, 0);
    let lines = world.lines();
    let denials: Vec<u64> = lines
        .iter()
        .filter(|line| line["outcome"] == "denied")
        .map(|line| line["count"].as_u64().unwrap_or(1))
        .collect();
    assert!(denials.len() < 300, "{}", denials.len());
    assert_eq!(denials.iter().sum::<u64>(), 50_000, "and none is lost");
    let last = lines.iter().rfind(|line| line["outcome"] == "denied");
    assert_eq!(last.unwrap()["principal"], "User:alice");
}

#[test]
fn a_disk_that_fails_loses_events_and_the_log_says_how_many() {
    let world = World::new();
    let disk = SimDisk::new(1);
    let audit = Audit::start(world.options(Arc::new(disk.clone()), 1 << 20, 10)).unwrap();
    let told = Arc::new(AtomicU64::new(0));
    audit.on_failure({
        let told = told.clone();
        move |why| {
            assert!(why.contains("cannot be written"), "{why}");
            told.fetch_add(1, Ordering::Relaxed);
        }
    });
    audit.record(|| change(0));
    audit.sync();
    disk.fail_write_after(0, 28);
    for n in 1..4 {
        audit.record(|| change(n));
    }
    audit.sync();
    assert!(told.load(Ordering::Relaxed) >= 1);
    audit.record(|| change(4));
    audit.sync();
    let stats = audit.stats().unwrap();
    assert!(
        !stats.is_failing && (1..=3).contains(&stats.lost),
        "{stats:?}"
    );
    audit.stop();
    disk.export(world.dir.path()).unwrap();
    let dir = find(world.dir.path()).expect("the log was exported");
    let verified = verify(&[dir], &[]).unwrap();
    assert!(verified.whole, "{verified:#?}");
    assert_eq!(verified.lost, stats.lost);
}

#[test]
fn a_power_cut_leaves_a_log_that_goes_on_and_hides_nothing() {
    for seed in 0..200 {
        let world = World::new();
        let disk = SimDisk::new(seed);
        let open = |disk: &SimDisk| {
            Audit::start(world.options(Arc::new(disk.clone()), 3_000, 100)).unwrap()
        };
        let audit = open(&disk);
        for n in 0..20 {
            audit.record(|| change(n));
            if n % 7 == 0 {
                audit.sync();
            }
        }
        audit.record(|| change(20));
        audit.sync();
        let synced = audit.stats().unwrap();
        for n in 21..30 {
            audit.record(|| change(n));
        }
        let disk = disk.crash(seed);
        let audit = open(&disk);
        audit.record(|| change(31));
        audit.stop();
        disk.export(world.dir.path()).unwrap();
        let dir = find(world.dir.path()).expect("the log was exported");
        let anchor = Anchor {
            seq: synced.seq,
            hash: synced.last.to_string(),
        };
        let verified = verify(&[dir], &[anchor]).unwrap();
        assert!(verified.whole, "seed {seed}: {verified:#?}");
    }
}

/// The directory below `root` that holds the log.
fn find(root: &Path) -> Option<PathBuf> {
    if root.join("audit-00000001.jsonl").exists() {
        return Some(root.to_owned());
    }
    let mut entries = fs::read_dir(root).ok()?.flatten();
    entries.find_map(|entry| find(&entry.path()))
}
