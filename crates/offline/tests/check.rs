//! A directory that a broker left is in order; what is damaged in it is named.

use std::fs;
use std::path::{Path, PathBuf};

use tidemark_offline::{Checked, check, dump};
use tidemark_testkit::{Batch, RawClient, TestBroker, TxnProducer};

async fn write(client: &mut RawClient, round: i64) {
    if round == 0 {
        let small = [("segment.bytes", "1048576")];
        client.create_topic_with("t", 2, &small).await;
    }
    let large = vec![b'x'; 200_000];
    for _ in 0..7 {
        client
            .produce("t", 0, Batch::of(&[&large]).build())
            .await
            .unwrap();
    }
    for (id, commit) in [("commits", true), ("aborts", false), ("open", true)] {
        let mut producer = TxnProducer::init(client, id).await;
        producer.enrol(client, &[("t", 0), ("t", 1)]).await.unwrap();
        for partition in 0..2 {
            let values = [format!("{id} {round}")];
            producer
                .send(client, "t", partition, &values)
                .await
                .unwrap();
        }
        producer
            .send_offsets(client, "g", &[("t", 0, round)])
            .await
            .unwrap();
        if id != "open" {
            producer.end(client, commit).await.unwrap();
        }
    }
    client
        .commit_offsets("g", &[("t", 1, round)])
        .await
        .unwrap();
}

/// A directory with two checkpoints, several segments, and records behind them.
async fn directory() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("data");
    let mut stopped = TestBroker::builder().on_os_disk(&dir);
    for round in 0..3 {
        let broker = stopped.start().await;
        let mut client = broker.client().await;
        write(&mut client, round).await;
        stopped = broker.stop().await;
    }
    (temp, dir)
}

fn checked(dir: &Path) -> Checked {
    check(dir, false).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// The files with an extension, the largest first.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().len()));
    found
}

fn flip(path: &Path, position: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[position] ^= 4;
    fs::write(path, bytes).unwrap();
}

fn printed(dump: impl FnOnce(&mut dyn std::io::Write) -> Result<(), dump::DumpError>) -> String {
    let mut out = Vec::new();
    dump(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_directory_is_in_order_and_its_damage_is_named() {
    let (_temp, dir) = directory().await;
    let clean = checked(&dir);
    assert_eq!(clean.faults(), 0, "{}", clean.text());
    assert!(
        clean.totals.segments >= 5 && clean.totals.batches > 60,
        "{}",
        clean.text()
    );
    assert!(clean.json().starts_with('{') && clean.json().contains("\"ok\":true"));

    let largest = |extension| files(&dir, extension).remove(0);
    for (path, position, told) in [
        (largest("log"), 100, "carries the CRC"),
        (largest("tickindex"), 200, "carries the CRC"),
        (largest("index"), 5, "it says that the batch up to"),
        (largest("timeindex"), 3, "it says that"),
        (largest("txnindex"), 12, "the batches say"),
        (dir.join("identity"), 0, "identity"),
    ] {
        let before = fs::read(&path).unwrap();
        if path.ends_with("identity") {
            fs::remove_file(&path).unwrap();
        } else {
            flip(&path, position);
        }
        let found = checked(&dir);
        let file = path.strip_prefix(&dir).unwrap().to_str().unwrap();
        let named = found
            .findings
            .iter()
            .any(|f| f.file == file && f.to_string().contains(told) && !f.mend.is_empty());
        assert!(named, "{file}: {}", found.text());
        fs::write(&path, before).unwrap();
    }
    let checkpoints = fs::read_dir(dir.join("checkpoints")).unwrap();
    for path in checkpoints.map(|entry| entry.unwrap().path()) {
        flip(&path, 100);
    }
    let found = checked(&dir);
    assert!(
        found.text().contains("tidemark check --rebuild"),
        "{}",
        found.text()
    );
    assert!(
        found.text().contains("a start would be refused"),
        "{}",
        found.text()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_broker_is_left_alone_and_other_directories_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("data");
    let broker = TestBroker::builder().on_os_disk(&dir).start().await;
    let refusal = check(&dir, false).err().expect("it runs").to_string();
    assert!(refusal.contains("a broker runs on it"), "{refusal}");
    broker.stop().await;
    assert_eq!(checked(&dir).faults(), 0);
    for other in [temp.path().join("nowhere"), temp.path().to_owned()] {
        let refusal = check(&other, false).err().expect("no data").to_string();
        assert!(refusal.contains("--data-dir"), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_shows_ticks_batches_records_and_state() {
    let (_temp, dir) = directory().await;
    let text = dump::Options::default();
    let json = dump::Options {
        json: true,
        records: true,
        ..text
    };
    let journal = printed(|out| dump::journal(&dir, &text, out));
    assert!(journal.contains(" record 1 tick 20"), "{}", &journal[..400]);
    assert!(
        journal.contains("t-0 offsets 0..=0 1 records"),
        "{}",
        &journal[..4000]
    );
    assert!(journal.contains("abort marker"));
    assert!(journal.contains("clean end"));
    let journal = printed(|out| dump::journal(&dir, &json, out));
    assert!(
        journal
            .lines()
            .all(|line| line.starts_with('{') && line.ends_with('}'))
    );
    assert!(journal.contains("\"says\":\"TopicCreated"));

    let some = dump::Options {
        from: Some(3),
        to: Some(5),
        ..text
    };
    let some = printed(|out| dump::journal(&dir, &some, out));
    assert_eq!(
        some.lines().filter(|l| l.starts_with("journal/")).count(),
        3,
        "{some}"
    );

    let segments = printed(|out| dump::segment(&dir, &text, out));
    assert!(segments.contains("(t-0)"), "{}", &segments[..2000]);
    assert!(!segments.contains("(no tick)"));
    let log = files(&dir, "log").remove(0);
    let one = printed(|out| dump::segment(&log, &json, out));
    assert!(
        one.lines().count() >= 5 && one.contains("\"tick\":"),
        "{}",
        &one[..400]
    );
    let tick = log.with_extension("tickindex");
    let entries = printed(|out| dump::tick_index(&tick, &text, out));
    assert_eq!(entries.lines().count(), one.lines().count() + 1);

    let checkpoint = printed(|out| dump::checkpoint(&dir, &json, out));
    assert!(checkpoint.lines().any(|l| l.contains("\"generation\":3")));
    assert!(
        checkpoint.contains("\"kind\":\"segments\"") && checkpoint.contains("\"kind\":\"state\"")
    );

    let state = printed(|out| dump::state(&dir, &text, out));
    for line in [
        "group \"g\" t-1 offset 2",
        "transactional id \"open\" Ongoing",
        "transactional id \"aborts\" CompleteAbort",
        "topic \"t\" id ",
    ] {
        assert!(state.contains(line), "{line}: {state}");
    }
}
