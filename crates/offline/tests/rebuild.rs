//! R2: segments alone give a directory that a broker starts on, with everything they hold.

use std::fs;
use std::path::{Path, PathBuf};

use tidemark_histcheck::{DataDir, DirFiles, read};
use tidemark_offline::{Rebuilt, check, rebuild};
use tidemark_testkit::{Batch, Isolation, RawClient, StoppedBroker, TestBroker, TxnProducer};

async fn write(client: &mut RawClient, round: i64) {
    if round == 0 {
        let small = [("segment.bytes", "1048576")];
        client.create_topic_with("t", 3, &small).await;
        client.create_topic("idle", 2).await;
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
        producer.enrol(client, &[("t", 1), ("t", 2)]).await.unwrap();
        for partition in 1..3 {
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
    if round == 2 {
        assert_eq!(client.delete_records("t", 0, 9).await, Ok(9));
    }
}

/// A directory that was stopped: the segments hold everything.
async fn directory() -> (tempfile::TempDir, PathBuf, StoppedBroker) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("data");
    let mut stopped = TestBroker::builder().on_os_disk(&dir);
    for round in 0..3 {
        let broker = stopped.start().await;
        let mut client = broker.client().await;
        write(&mut client, round).await;
        stopped = broker.stop().await;
    }
    (temp, dir, stopped)
}

/// What must be the same afterwards.
fn kept(dir: &Path) -> DataDir {
    let mut data = read(&DirFiles::new(dir)).unwrap_or_else(|faults| panic!("{faults:#?}"));
    data.generation = None;
    data.journal = Default::default();
    data
}

fn assert_same(before: &DataDir, after: &DataDir) {
    assert_eq!(before.metadata.topics, after.metadata.topics);
    assert_eq!(before.groups, after.groups);
    assert_eq!(before.transactional_ids, after.transactional_ids);
    let metadata = tidemark_histcheck::PartitionId::METADATA;
    for (id, partition) in before.partitions.iter().filter(|(id, _)| **id != metadata) {
        let now = &after.partitions[id];
        assert_eq!(partition.log_start_offset, now.log_start_offset, "{id}");
        assert_eq!(partition.log_end_offset, now.log_end_offset, "{id}");
        assert_eq!(partition.last_stable_offset, now.last_stable_offset, "{id}");
        assert_eq!(partition.aborted, now.aborted, "{id}");
        assert_eq!(partition.producers, now.producers, "{id}");
        assert!(partition.batches == now.batches, "{id}: other batches");
    }
}

fn rebuilt(dir: &Path, write: bool) -> Rebuilt {
    rebuild(dir, write).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn assert_in_order(dir: &Path) {
    let checked = check(dir, false).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(checked.faults(), 0, "{}", checked.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_checkpoints_and_journal_everything_in_the_segments_is_kept() {
    let (_temp, dir, stopped) = directory().await;
    let before = kept(&dir);
    let partitions_before = before.partitions.len();
    fs::remove_dir_all(dir.join("journal")).unwrap();
    for entry in fs::read_dir(dir.join("checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes[99] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let refused = stopped
        .clone()
        .try_start()
        .await
        .err()
        .expect("no checkpoint");
    assert!(
        refused.to_string().contains("no checkpoint can be read"),
        "{refused}"
    );

    let plan = rebuilt(&dir, false);
    assert!(
        plan.text().contains("nothing was changed"),
        "{}",
        plan.text()
    );
    assert!(!dir.join("journal").exists());
    let done = rebuilt(&dir, true);
    assert_eq!(done.lost, plan.lost);
    assert_eq!(done.partitions, partitions_before);
    assert!(
        done.lost.iter().any(|line| line.contains("windows")),
        "{}",
        done.text()
    );
    assert!(dir.join("before-rebuild-1/checkpoints").is_dir());
    assert_in_order(&dir);
    assert_same(&before, &kept(&dir));

    // The broker goes on: old data, the open transaction, new writes, another restart.
    let broker = stopped.start().await;
    let mut client = broker.client().await;
    let values = client.read_values("t", 1, Isolation::ReadCommitted).await;
    assert_eq!(values, ["commits 0", "commits 1", "commits 2"]);
    let [all, stable] = [Isolation::ReadUncommitted, Isolation::ReadCommitted];
    let open = (
        client.ends("t", 3, stable).await,
        client.ends("t", 3, all).await,
    );
    assert!(
        open.0[1] < open.1[1],
        "the last transaction is still open: {open:?}"
    );
    assert_eq!(client.committed_offset("g", "t", 1, false).await, Ok(2));
    let end = client.produce("t", 0, Batch::of(&["after"]).build()).await;
    assert_eq!(end, Ok(21));
    write(&mut client, 3).await;
    let broker = broker.restart().await;
    let mut client = broker.client().await;
    let records = client.read_all("t", 0, Isolation::ReadUncommitted).await;
    assert_eq!(records.first().map(|r| r.offset), Some(9));
    assert_eq!(
        records.iter().find(|r| r.offset == 21).unwrap().text(),
        "after"
    );
    // Ids are not given out again.
    let fresh = client.init_producer_id(None).await.unwrap().0;
    let used = before.partitions.values().flat_map(|p| p.producers.keys());
    assert!(used.max().is_none_or(|used| fresh > *used));
    broker.stop().await;
    assert_in_order(&dir);
}

/// Years of log starts that move must not be years of metadata.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_the_metadata_is_cut_and_segments_alone_still_tell_everything() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("data");
    let broker = TestBroker::builder()
        .on_os_disk(&dir)
        .set("metadata.log.max.record.bytes.between.snapshots", 32_768)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("gone", 1).await;
    write(&mut client, 0).await;
    let values: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    client
        .produce("idle", 1, Batch::of(&values).build())
        .await
        .unwrap();
    let metadata = tidemark_histcheck::PartitionId::METADATA;
    let log_bytes = |dir: &Path| -> u64 {
        fs::read_dir(dir.join(format!("partitions/{metadata}")))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    };
    let mut most = 0;
    for n in 1..=1_000 {
        assert_eq!(client.delete_records("idle", 1, n).await, Ok(n));
        if n == 300 {
            client.delete_topic("gone").await;
        }
        if n % 100 == 0 {
            broker.broker().checkpoint().await;
            broker.broker().retain().await;
            most = most.max(log_bytes(&dir));
        }
    }
    assert!(most > 32_768, "it was long enough to be cut: {most}");
    // Its files go with the checkpoints that name them.
    for _ in 0..2 {
        broker.broker().checkpoint().await;
    }
    let left = log_bytes(&dir);
    assert!(left < 100_000, "{left} bytes of what were at least 130,000");

    let stopped = broker.stop().await;
    assert_in_order(&dir);
    let before = kept(&dir);
    assert!(before.metadata.log_starts[&metadata] > 0);
    let broker = stopped.start().await;
    let stopped = broker.stop().await;
    assert_in_order(&dir);
    fs::remove_dir_all(dir.join("journal")).unwrap();
    fs::remove_dir_all(dir.join("checkpoints")).unwrap();
    rebuilt(&dir, true);
    assert_in_order(&dir);
    assert_same(&before, &kept(&dir));
    let broker = stopped.start().await;
    let mut client = broker.client().await;
    let values = client.read_values("t", 1, Isolation::ReadCommitted).await;
    assert_eq!(values, ["commits 0"]);
    drop(broker.stop().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_segment_is_kept_up_to_the_damage_and_lost_ticks_are_named() {
    let (_temp, dir, stopped) = directory().await;
    let before = kept(&dir);
    let topic = before.metadata.topics["t"].id;
    let partition = |n: i32| dir.join(format!("partitions/{topic}-{n}"));
    // The last segment of t-0 loses its end, t-1 loses its tick index.
    let mut logs: Vec<PathBuf> = fs::read_dir(partition(0))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    let last = logs.pop().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    let whole = bytes.len();
    bytes[whole - 10] ^= 1;
    fs::write(&last, &bytes).unwrap();
    fs::remove_file(partition(1).join("00000000000000000000.tickindex")).unwrap();
    fs::remove_dir_all(dir.join("checkpoints")).unwrap();

    let done = rebuilt(&dir, true);
    let text = done.text();
    assert!(text.contains("carries the CRC"), "{text}");
    assert!(text.contains("the ticks of "), "{text}");
    let name = last.strip_prefix(&dir).unwrap();
    let copy = fs::read(dir.join("before-rebuild-1").join(name)).unwrap();
    assert_eq!(copy.len(), whole, "the damaged bytes are kept");
    let broker = stopped.start().await;
    let mut client = broker.client().await;
    let ends = client.ends("t", 3, Isolation::ReadUncommitted).await;
    let id = |n| tidemark_histcheck::PartitionId {
        topic,
        partition: n,
    };
    let end = |n| before.partitions[&id(n)].log_end_offset;
    assert_eq!(ends, [end(0) - 1, end(1), end(2)]);
    write(&mut client, 3).await;
    broker.stop().await;
    assert_in_order(&dir);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_markers_are_lost_in_part_ends_as_its_others_did() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("data");
    let mut stopped = TestBroker::builder().on_os_disk(&dir);
    let broker = stopped.start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 4).await;
    let mut ids = Vec::new();
    for (id, commit, partitions) in [("c", true, [0, 1]), ("a", false, [2, 3])] {
        let mut producer = TxnProducer::init(&mut client, id).await;
        let enrolled = partitions.map(|p| ("t", p));
        producer.enrol(&mut client, &enrolled).await.unwrap();
        for p in partitions {
            producer.send(&mut client, "t", p, &[id]).await.unwrap();
        }
        producer.end(&mut client, commit).await.unwrap();
        ids.push(producer.producer_id);
    }
    stopped = broker.stop().await;
    let before = kept(&dir);
    let topic = before.metadata.topics["t"].id;
    // Markers are 78 bytes: of each transaction one is lost, as with the journal's tail.
    for partition in [1, 3] {
        let log = dir.join(format!("partitions/{topic}-{partition}/{:020}.log", 0));
        let bytes = fs::read(&log).unwrap();
        fs::write(&log, &bytes[..bytes.len() - 78]).unwrap();
    }
    fs::remove_dir_all(dir.join("checkpoints")).unwrap();
    fs::remove_dir_all(dir.join("journal")).unwrap();
    let done = rebuilt(&dir, true);
    let text = done.text();
    assert!(
        text.contains("it is committed, as another of its partitions has it"),
        "{text}"
    );
    assert!(
        text.contains("it is aborted, as another of its partitions has it"),
        "{text}"
    );
    assert_in_order(&dir);
    let broker = stopped.start().await;
    let mut client = broker.client().await;
    let committed = Isolation::ReadCommitted;
    for (partition, values) in [(0, vec!["c"]), (1, vec!["c"]), (2, vec![]), (3, vec![])] {
        assert_eq!(client.read_values("t", partition, committed).await, values);
        let ends = client.ends("t", 4, committed).await;
        assert_eq!(ends, client.ends("t", 4, Isolation::ReadUncommitted).await);
    }
    broker.stop().await;
    assert_in_order(&dir);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_was_cut_short_is_refused_by_a_start_and_ended_by_another() {
    let (_temp, dir, stopped) = directory().await;
    let before = kept(&dir);
    rebuilt(&dir, true);
    // As if it had ended between the two last renames, the one way and the other.
    let aside = dir.join("before-rebuild-1");
    for (put_away, put_back) in [("journal", true), ("checkpoints", false)] {
        fs::rename(dir.join(put_away), dir.join(format!("{put_away}.rebuilt"))).unwrap();
        if put_back {
            fs::rename(aside.join("checkpoints"), dir.join("checkpoints.old")).unwrap();
        }
        let refused = stopped.clone().try_start().await;
        assert!(refused.is_err(), "without its {put_away}");
        rebuilt(&dir, true);
        assert_in_order(&dir);
        assert_same(&before, &kept(&dir));
    }
    let broker = stopped.start().await;
    broker.stop().await;
    assert_in_order(&dir);
}

/// A `.log` that ends between two batches is whole as far as it goes: that it was longer its tick index
/// tells, and so does the rebuild.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_that_ends_between_two_batches_is_named_as_shortened() {
    let (_temp, dir, _stopped) = directory().await;
    let mut logs = Vec::new();
    for partition in fs::read_dir(dir.join("partitions")).unwrap() {
        let partition = partition.unwrap().path();
        for file in fs::read_dir(&partition).into_iter().flatten() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|e| e == "log") {
                logs.push(path);
            }
        }
    }
    let largest = logs
        .iter()
        .max_by_key(|path| fs::metadata(path).unwrap().len());
    let largest = largest.expect("segments");
    let bytes = fs::read(largest).unwrap();
    // Offset, length, and what the length counts.
    let first = 12 + u64::from(u32::from_be_bytes(bytes[8..12].try_into().unwrap()));
    assert!(first < bytes.len() as u64, "more than one batch");
    let file = fs::OpenOptions::new().write(true).open(largest).unwrap();
    file.set_len(first).unwrap();
    drop(file);
    let plan = rebuilt(&dir, false);
    let name = largest.file_name().unwrap().to_str().unwrap();
    let named = plan.lost.iter().any(|line| {
        line.contains(name)
            && line.contains(&format!("ends at position {first} after 1 batches"))
            && line.contains("tickindex names")
    });
    assert!(named, "{:#?}", plan.lost);
}
