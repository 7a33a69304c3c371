//! A25 (b): a segment that is shorter than was synced is rebuilt from the journal where that still
//! holds the bytes, else refused with file and position; never a lower end in silence. A25 (c): a
//! batch of which a bit has flipped is refused, and it alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tidemark_disk::{Disk, OpenMode, SimDisk, read_all};
use tidemark_testkit::{
    Batch, DATA_DIR, Isolation, RawClient, StoppedBroker, TestBroker, TxnProducer,
};
use tidemark_types::ErrorCode;

const VALUE_BYTES: usize = 300_000;

fn partitions() -> PathBuf {
    Path::new(DATA_DIR).join("partitions")
}

/// The files of all segments of clients' partitions, with their content.
fn segment_files(disk: &SimDisk, topic: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in disk.list(&partitions()).unwrap() {
        if dir.is_dir && dir.name.starts_with(topic) {
            let dir = partitions().join(dir.name);
            for file in disk.list(&dir).unwrap() {
                let path = dir.join(file.name);
                let content = read_all(disk, &path).unwrap();
                files.insert(path, content);
            }
        }
    }
    files
}

/// Segments of plain records, of a transaction that ended and of one that is open, and no journal that
/// was recycled: how the broker stopped, and the topic's id.
async fn filled() -> (StoppedBroker, String) {
    let broker = TestBroker::builder()
        .set("journal.budget.bytes", 64 << 20)
        .start()
        .await;
    let mut client = broker.client().await;
    client
        .create_topic_with("t", 2, &[("segment.bytes", "1048576")])
        .await;
    let id = client.describe_topic("t").await.topic_id.to_string();
    let mut open = TxnProducer::init(&mut client, "open").await;
    let mut ended = TxnProducer::init(&mut client, "ended").await;
    for n in 0..10_u8 {
        let batch = Batch::of(&[vec![n; VALUE_BYTES]]).build();
        client.produce("t", 0, batch).await.unwrap();
        ended.enrol(&mut client, &[("t", 0)]).await.unwrap();
        ended.send(&mut client, "t", 0, &["a", "b"]).await.unwrap();
        if n == 4 {
            open.enrol(&mut client, &[("t", 0), ("t", 1)])
                .await
                .unwrap();
            open.send(&mut client, "t", 1, &["held back"])
                .await
                .unwrap();
            open.send(&mut client, "t", 0, &["held back"])
                .await
                .unwrap();
        }
        ended.end(&mut client, n % 2 == 0).await.unwrap();
    }
    (broker.stop().await, id)
}

/// All that a reader is told of the topic.
async fn contents(client: &mut RawClient) -> Vec<(Vec<i64>, Vec<u8>)> {
    let mut all = Vec::new();
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let ends = client.ends("t", 2, isolation).await;
        for partition in 0..2 {
            let records = client.read_all("t", partition, isolation).await;
            let values = records.iter().flat_map(|r| {
                r.offset
                    .to_be_bytes()
                    .into_iter()
                    .chain(r.value.iter().copied())
            });
            all.push((ends.clone(), values.collect()));
        }
    }
    all
}

fn cut(disk: &SimDisk, path: &Path, len: u64) {
    let file = disk.open(path, OpenMode::ReadWrite).unwrap();
    file.set_len(len).unwrap();
    file.sync_data().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a25_what_a_segment_lost_comes_back_from_the_journal_byte_for_byte() {
    let (stopped, id) = filled().await;
    let whole = segment_files(stopped.disk(), &id);
    let broker = stopped.clone().after_power_cut(1).start().await;
    let before = contents(&mut broker.client().await).await;
    drop(broker);
    let logs: Vec<&PathBuf> = whole
        .keys()
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    assert!(logs.len() >= 4, "{logs:?}");

    let tick = |log: &Path| log.with_extension("tickindex");
    let (first, second, last) = (logs[0], logs[1], logs[logs.len() - 2]);
    // Files and the lengths they are left with; none at all without one.
    let losses: Vec<Vec<(PathBuf, Option<u64>)>> = vec![
        vec![(first.clone(), Some(0))],
        vec![(first.clone(), Some(VALUE_BYTES as u64 + 100))],
        vec![(second.clone(), Some(whole[second].len() as u64 - 1))],
        vec![(second.clone(), None)],
        vec![(tick(second), Some(40))],
        vec![(tick(second), None), (second.clone(), None)],
        vec![(tick(first), None), (first.clone(), None)],
        vec![(tick(last), Some(96 + 96 + 95))],
        // Two segments one after the other, and one of another partition.
        vec![
            (first.clone(), Some(5_000)),
            (tick(second), Some(96)),
            (logs[logs.len() - 1].clone(), None),
        ],
    ];
    for (n, loss) in losses.iter().enumerate() {
        let damaged = stopped.clone().after_power_cut(n as u64 + 2);
        for (path, len) in loss {
            match len {
                Some(len) => cut(damaged.disk(), path, *len),
                None => damaged.disk().remove_file(path).unwrap(),
            }
        }
        for path in loss.iter().map(|(path, _)| path.parent().unwrap()) {
            damaged.disk().sync_dir(path).unwrap();
        }
        let broker = damaged.start().await;
        let mended = segment_files(broker.disk(), &id);
        for (path, content) in &whole {
            assert!(
                mended[path] == *content,
                "loss {n}: {} differs",
                path.display()
            );
        }
        assert_eq!(mended.len(), whole.len(), "loss {n}: nothing is left over");
        assert!(
            contents(&mut broker.client().await).await == before,
            "loss {n}"
        );
        // It lasts.
        let broker = broker.crash(n as u64).await.start().await;
        assert!(
            contents(&mut broker.client().await).await == before,
            "loss {n}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a25_a_power_cut_while_a_segment_is_mended_loses_nothing() {
    let (stopped, id) = filled().await;
    let whole = segment_files(stopped.disk(), &id);
    let log = whole
        .keys()
        .find(|p| p.extension().is_some_and(|e| e == "log"));
    let log = log.unwrap();
    for step in 0.. {
        let damaged = stopped.clone().after_power_cut(step);
        cut(damaged.disk(), log, 10);
        damaged.disk().cut_power_after(step);
        let disk = damaged.disk().clone();
        let clean = match damaged.clone().try_start().await {
            Ok(broker) => {
                drop(broker);
                step > 60
            }
            Err(_) => false,
        };
        let broker = StoppedBroker::after_power_cut(damaged, step + 1000)
            .start()
            .await;
        let mended = segment_files(broker.disk(), &id);
        for (path, content) in &whole {
            assert!(
                mended[path] == *content,
                "step {step}: {} differs",
                path.display()
            );
        }
        drop(broker);
        drop(disk);
        if clean {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a25_what_the_journal_no_longer_holds_is_refused_with_file_and_position() {
    let broker = TestBroker::builder()
        .set("journal.budget.bytes", 8 << 20)
        .set("tail.bytes", 2 << 20)
        .start()
        .await;
    let mut client = broker.client().await;
    client
        .create_topic_with("t", 2, &[("segment.bytes", "1048576")])
        .await;
    let id = client.describe_topic("t").await.topic_id.to_string();
    // Three times the journal: its slots went round.
    for n in 0..80_u8 {
        let batch = Batch::of(&[vec![n; VALUE_BYTES]]).build();
        client.produce("t", 0, batch).await.unwrap();
    }
    let stopped = broker.stop().await;
    let files = segment_files(stopped.disk(), &id);
    let first = files
        .keys()
        .find(|p| p.extension().is_some_and(|e| e == "log"));
    let first = first.unwrap();
    for len in [0, 70, files[first].len() as u64 - 1] {
        let damaged = stopped.clone().after_power_cut(len);
        cut(damaged.disk(), first, len);
        let disk = damaged.disk().clone();
        let Err(refused) = damaged.try_start().await else {
            panic!("a segment of {len} bytes was taken for the whole");
        };
        let refused = refused.to_string();
        for said in [
            first.to_str().unwrap(),
            &format!("ends at position {len}"),
            "the journal does not hold",
            "restore the data directory from a copy",
        ] {
            assert!(refused.contains(said), "{said:?} is not in {refused:?}");
        }
        // Nothing was touched: a copy of the file can be put back.
        let after = segment_files(&disk, &id);
        assert_eq!(after.len(), files.len());
        let same = |(path, content): (&PathBuf, &Vec<u8>)| path == first || after[path] == *content;
        assert!(files.iter().all(same));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a25_a_batch_in_which_a_bit_has_flipped_is_refused_and_those_behind_it_are_not_lost() {
    const BATCHES: i64 = 100;
    const ROTTEN: i64 = 50;
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let id = client.describe_topic("t").await.topic_id.to_string();
    let value = |n: i64| format!("value {n:03}");
    for n in 0..BATCHES {
        let batch = Batch::of(&[value(n)]).build();
        assert_eq!(client.produce("t", 0, batch).await, Ok(n));
    }
    let stopped = broker.stop().await;
    let files = segment_files(stopped.disk(), &id);
    let log = files
        .iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "log"));
    let (path, content) = log.expect("a stop in order leaves everything in segments");
    let rotten = value(ROTTEN);
    let at = content
        .windows(rotten.len())
        .position(|window| window == rotten.as_bytes())
        .expect("the record's value is in the file");
    stopped.disk().corrupt(path, at as u64, 0x04).unwrap();

    let broker = stopped.start().await;
    let mut client = broker.client().await;
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        assert_eq!(client.ends("t", 1, isolation).await, [BATCHES]);
        let (mut seen, mut refused) = (Vec::new(), Vec::new());
        let mut offset = 0;
        while offset < BATCHES {
            let fetched = client.fetch("t", 0, offset, isolation).await;
            match fetched.error {
                ErrorCode::None => {
                    seen.extend(fetched.values());
                    offset = fetched.next_offset().expect("there is more");
                }
                error => {
                    refused.push((offset, error));
                    offset += 1;
                }
            }
        }
        assert_eq!(refused, [(ROTTEN, ErrorCode::CorruptMessage)]);
        let want: Vec<String> = (0..BATCHES).filter(|n| *n != ROTTEN).map(value).collect();
        assert_eq!(seen, want);
    }
    // The partition takes more.
    let next = client.produce("t", 0, Batch::of(&["next"]).build()).await;
    assert_eq!(next, Ok(BATCHES));
}
