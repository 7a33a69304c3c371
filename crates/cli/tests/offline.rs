//! `tidemark check`, `check --rebuild` and `dump` as a shell sees them, on directories that real
//! brokers have left.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Started, run};
use tidemark_testkit::{Batch, Isolation, RawClient, TxnProducer};

const RECORDS: usize = 40;

/// What a reader of the topic is handed.
#[derive(Debug, PartialEq, Eq)]
struct Served {
    committed: Vec<Vec<String>>,
    ends: Vec<i64>,
    offset: i64,
}

async fn client(broker: &Started) -> RawClient {
    RawClient::connect(broker.address().parse().unwrap()).await
}

/// Plain records, a committed transaction with an offset, and an aborted one.
async fn fill(broker: &Started) -> Served {
    let mut client = client(broker).await;
    client.create_topic("t", 2).await;
    for n in 0..RECORDS {
        let batch = Batch::of(&[format!("plain {n}")]).build();
        client.produce("t", 0, batch).await.unwrap();
    }
    for (id, commit) in [("commits", true), ("aborts", false)] {
        let mut producer = TxnProducer::init(&mut client, id).await;
        producer
            .enrol(&mut client, &[("t", 0), ("t", 1)])
            .await
            .unwrap();
        for partition in 0..2 {
            producer
                .send(&mut client, "t", partition, &[id])
                .await
                .unwrap();
        }
        producer
            .send_offsets(&mut client, "g", &[("t", 0, 7)])
            .await
            .unwrap();
        producer.end(&mut client, commit).await.unwrap();
    }
    served(broker).await
}

async fn served(broker: &Started) -> Served {
    let mut client = client(broker).await;
    let mut committed = Vec::new();
    for partition in 0..2 {
        let values = client.read_values("t", partition, Isolation::ReadCommitted);
        committed.push(values.await);
    }
    Served {
        committed,
        ends: client.ends("t", 2, Isolation::ReadUncommitted).await,
        offset: client.committed_offset("g", "t", 0, true).await.unwrap(),
    }
}

/// A directory that a broker left, ended by this signal, and what it served.
async fn left_by(signal: &str, flags: &[&str]) -> (tempfile::TempDir, PathBuf, Served) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("data");
    let broker = Started::with(&dir, flags);
    let served = fill(&broker).await;
    assert_eq!(served.committed[0].len(), RECORDS + 1);
    assert_eq!(served.committed[1], ["commits"]);
    let code = broker.end(signal);
    assert_eq!(code, (signal == "-TERM").then_some(0));
    (temp, dir, served)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Every file below a directory, by its path within.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => {
                    let name = path.strip_prefix(dir).unwrap().to_path_buf();
                    found.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

fn flip(path: &Path, position: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(position).unwrap()] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// Exit code, and the line of JSON.
fn check_json(dir: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let (output, out, err) = run(&[&["check", text(dir), "--json"], more].concat());
    assert_eq!(out.lines().count(), 1, "{out}{err}");
    (output.status.code(), serde_json::from_str(&out).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_in_order_is_checked_and_left_as_it_is() {
    for signal in ["-TERM", "-KILL"] {
        let (_temp, dir, _) = left_by(signal, &[]).await;
        let before = files(&dir);
        let (output, out, err) = run(&["check", text(&dir)]);
        assert_eq!(output.status.code(), Some(0), "{signal}: {out}{err}");
        let last = out.lines().last().unwrap();
        assert!(last.starts_with("check: segments="), "{out}");
        assert!(last.ends_with(" faults=0"), "{out}");
        let (code, told) = check_json(&dir, &[]);
        assert_eq!(code, Some(0));
        assert_eq!(told["ok"], true, "{told}");
        assert_eq!(told["faults"], 0, "{told}");
        assert!(told["journal_records"].as_u64().unwrap() > 0 || signal == "-TERM");
        assert!(told["batches"].as_u64().unwrap() > RECORDS as u64 || signal == "-KILL");
        assert!(files(&dir) == before, "{signal}: the check changed a file");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_below_the_durable_mark_is_named_with_file_and_position() {
    let (_temp, dir, _) = left_by("-KILL", &[]).await;
    let (output, out, _) = run(&["dump", "journal", text(&dir), "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let frames: Vec<Value> = (out.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut records = frames.iter().filter(|frame| frame["kind"] == "record");
    let (before, record) = (records.nth(2).unwrap(), records.next().unwrap());
    let file = record["file"].as_str().unwrap();
    let at = |frame: &Value| frame["position"].as_u64().unwrap();
    flip(&dir.join(file), at(record) + 80);

    let (code, told) = check_json(&dir, &[]);
    assert_eq!(code, Some(1));
    assert_eq!(told["ok"], false);
    // From the end of the frame before it on nothing can be told.
    let named = told["findings"].as_array().unwrap().iter().find(|finding| {
        finding["severity"] == "damage"
            && finding["file"] == file
            && (at(before) + 1..=at(record)).contains(&at(finding))
    });
    let position = at(named.unwrap_or_else(|| panic!("{file} is not named: {told:#}")));
    let (output, out, _) = run(&["check", text(&dir)]);
    assert_eq!(output.status.code(), Some(1));
    let line = out.lines().find(|line| line.contains(file)).unwrap();
    assert!(line.contains(&position.to_string()), "{out}");

    // A start refuses it as well, in the same words of place.
    let (output, out, err) = run(&["--listen", "127.0.0.1:0", "--data-dir", text(&dir)]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out, "");
    assert!(
        err.contains(file) && err.contains(&position.to_string()),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_in_a_segment_is_named_with_file_and_position() {
    let (_temp, dir, _) = left_by("-TERM", &[]).await;
    let largest = files(&dir)
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|e| e == "log"))
        .max_by_key(|(_, bytes)| bytes.len())
        .expect("a segment");
    flip(&dir.join(&largest.0), 70);
    let (code, told) = check_json(&dir, &[]);
    assert_eq!(code, Some(1));
    let findings = told["findings"].as_array().unwrap();
    // The checksum of the first batch, at byte 17 of it, is not that of its bytes.
    let named = (findings.iter())
        .any(|finding| finding["file"] == text(&largest.0) && finding["position"] == 17);
    assert!(named, "{told:#}");
    // The rest is printed all the same, and the exit code of a dump says nothing of what it shows.
    let (output, out, _) = run(&["dump", "segment", text(&dir.join(&largest.0))]);
    assert_eq!(output.status.code(), Some(0));
    assert!(out.contains("damage"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_directory_of_a_running_broker_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("data");
    let broker = Started::new(&dir);
    let before = fill(&broker).await;
    for more in [vec![], vec!["--rebuild"], vec!["--rebuild", "--yes"]] {
        let (output, out, err) = run(&[vec!["check", text(&dir)], more].concat());
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(out, "");
        assert!(err.contains("a broker runs on it"), "{err}");
        assert!(err.contains("stop it first"), "{err}");
    }
    assert_eq!(served(&broker).await, before);
    assert_eq!(broker.end("-TERM"), Some(0));
    assert_eq!(check_json(&dir, &[]).0, Some(0));
}

#[test]
fn what_is_no_data_directory_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let missing = temp.path().join("nowhere");
    let file = temp.path().join("file");
    fs::write(&file, "no directory").unwrap();
    for (path, said) in [
        (temp.path(), "it holds no data of a broker"),
        (&missing, "--data-dir"),
        (&file, "it is no directory"),
    ] {
        for more in [vec![], vec!["--rebuild", "--yes"]] {
            let (output, out, err) = run(&[vec!["check", text(path)], more].concat());
            assert_eq!(output.status.code(), Some(1), "{err}");
            assert_eq!(out, "");
            assert!(err.contains(said) && err.contains(text(path)), "{err}");
        }
    }
    let (output, _, err) = run(&["dump", "journal", text(&missing)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains(text(&missing)), "{err}");
    // What the command line does not know is its own exit code.
    for wrong in [
        vec!["check"],
        vec!["check", "x", "--yes"],
        vec!["dump"],
        vec!["dump", "everything", "x"],
    ] {
        let (output, _, _) = run(&wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_dump_is_text_for_people_and_json_for_programs() {
    let (_temp, dir, _) = left_by("-TERM", &[]).await;
    let tick_index = (files(&dir).into_keys())
        .find(|path| path.extension().is_some_and(|e| e == "tickindex"))
        .unwrap();
    let tick_index = dir.join(tick_index);
    for (what, path, field) in [
        ("state", &dir, "log_end_offset"),
        ("journal", &dir, "tick"),
        ("checkpoint", &dir, "generation"),
        ("segment", &dir, "tick"),
        ("tickindex", &tick_index, "tick"),
    ] {
        let (output, out, err) = run(&["dump", what, text(path)]);
        assert_eq!(output.status.code(), Some(0), "{what}: {err}");
        assert_eq!(err, "", "{what}");
        assert!(!out.trim().is_empty(), "{what}");
        let (output, out, err) = run(&["dump", what, text(path), "--json"]);
        assert_eq!(output.status.code(), Some(0), "{what}: {err}");
        let lines: Vec<Value> = (out.lines())
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{what}: {e}: {line}"))
            })
            .collect();
        assert!(
            lines.iter().any(|line| !line[field].is_null()),
            "{what} has no {field}: {out}"
        );
    }
    let (_, out, _) = run(&["dump", "segment", text(&dir), "--records"]);
    for value in ["plain 0", "commits", "aborts", "abort marker"] {
        assert!(out.contains(value), "{value:?} is not in {out}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_names_what_is_lost_and_the_directory_starts() {
    let (_temp, dir, before) = left_by("-TERM", &[]).await;
    for (path, _) in files(&dir) {
        if path.starts_with("checkpoints") {
            flip(&dir.join(path), 99);
        }
    }
    let (code, told) = check_json(&dir, &[]);
    assert_eq!(code, Some(1), "{told}");
    let (output, _, err) = run(&["--listen", "127.0.0.1:0", "--data-dir", text(&dir)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains("tidemark check DIR --rebuild"), "{err}");

    // Without --yes it only says what it would do.
    let untouched = files(&dir);
    let (output, out, _) = run(&["check", text(&dir), "--rebuild"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(out.contains("\nnothing was changed; with --yes: "), "{out}");
    assert!(
        out.lines()
            .any(|line| line.starts_with("lost: ") && line.contains("windows")),
        "{out}"
    );
    let (code, plan) = check_json(&dir, &["--rebuild"]);
    assert_eq!((code, &plan["rebuilt"]), (Some(0), &Value::Bool(false)));
    assert!(files(&dir) == untouched);

    let (code, done) = check_json(&dir, &["--rebuild", "--yes"]);
    assert_eq!((code, &done["rebuilt"]), (Some(0), &Value::Bool(true)));
    assert_eq!(done["lost"], plan["lost"]);
    let aside = dir.join(done["aside_dir"].as_str().unwrap());
    assert!(aside.join("checkpoints").is_dir(), "{done}");
    let (code, told) = check_json(&dir, &[]);
    assert_eq!(code, Some(0), "{told:#}");

    let broker = Started::new(&dir);
    assert_eq!(served(&broker).await, before);
    let mut client = client(&broker).await;
    let end = before.ends[0];
    let batch = Batch::of(&["it goes on"]).build();
    assert_eq!(client.produce("t", 0, batch).await, Ok(end));
    assert_eq!(broker.end("-TERM"), Some(0));
    assert_eq!(check_json(&dir, &[]).0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuilt_journal_has_the_slot_size_of_the_one_that_was_lost() {
    const MIB: u64 = 1 << 20;
    for (slot, budget) in [(2 * MIB, 16 * MIB), (32 * MIB, 256 * MIB)] {
        let (slot_flag, budget_flag) = (slot.to_string(), budget.to_string());
        let flags = [
            "--journal-slot-bytes",
            &slot_flag,
            "--journal-budget-bytes",
            &budget_flag,
        ];
        let (_temp, dir, before) = left_by("-TERM", &flags).await;
        for (path, _) in files(&dir) {
            if path.starts_with("checkpoints") {
                fs::remove_file(dir.join(path)).unwrap();
            }
        }
        let (code, done) = check_json(&dir, &["--rebuild", "--yes"]);
        assert_eq!(code, Some(0), "{done}");
        let sizes: Vec<u64> = files(&dir)
            .into_iter()
            .filter(|(path, _)| path.starts_with("journal"))
            .map(|(_, bytes)| bytes.len() as u64)
            .collect();
        assert!(sizes.iter().all(|size| *size == slot), "{sizes:?}");
        assert_eq!(check_json(&dir, &[]).0, Some(0));
        let broker = Started::with(&dir, &flags);
        assert_eq!(served(&broker).await, before, "slots of {slot} bytes");
        assert_eq!(broker.end("-TERM"), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_directory_is_copied_and_started_elsewhere() {
    for signal in ["-TERM", "-KILL"] {
        let (temp, dir, before) = left_by(signal, &[]).await;
        let copy = temp.path().join("elsewhere/copy");
        for (path, bytes) in files(&dir) {
            let to = copy.join(path);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, bytes).unwrap();
        }
        assert_eq!(check_json(&copy, &[]).0, Some(0));
        let (here, there) = (Started::new(&dir), Started::new(&copy));
        assert_eq!(here.banner["cluster_id"], there.banner["cluster_id"]);
        let mut client = client(&there).await;
        let batch = Batch::of(&["only there"]).build();
        assert_eq!(client.produce("t", 0, batch).await, Ok(before.ends[0]));
        assert_eq!(served(&here).await, before, "{signal}");
        let after = served(&there).await;
        assert_eq!(after.committed[0].len(), before.committed[0].len() + 1);
        assert_eq!(after.offset, before.offset);
        assert_eq!(there.end("-TERM"), Some(0));
        assert_eq!(here.end("-TERM"), Some(0));
        assert_eq!(check_json(&copy, &[]).0, Some(0));
    }
}
