//! The fixture: made once, read for ever.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidemark_disk::{Disk, OpenMode};
use tidemark_histcheck::{DirFiles, Files, MemoryFiles, batch_bytes, read};
use tidemark_testkit::{Batch, DATA_DIR, StoppedBroker, TestBroker, TxnProducer, raw_bytes};
use tokio::sync::OnceCell;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-1");

type Content = (
    &'static str,
    i32,
    &'static [&'static str],
    &'static [&'static str],
);

/// Topic, partition, what read_committed hands out, and what is there.
pub const CONTENT: [Content; 4] = [
    (
        "orders",
        0,
        &["idempotent 1", "committed", "plain after the checkpoint"],
        &[
            "idempotent 1",
            "committed",
            "aborted",
            "plain after the checkpoint",
        ],
    ),
    (
        "orders",
        1,
        &["committed"],
        &["committed", "aborted", "open"],
    ),
    (
        "stamped",
        0,
        &["by the broker's clock"],
        &["by the broker's clock"],
    ),
    ("empty", 0, &[], &[]),
];

/// Group, topic, partition, committed offset.
pub const OFFSETS: [(&str, &str, i32, i64); 3] = [
    ("plain", "orders", 0, 7),
    ("transactional", "orders", 1, 8),
    ("transactional", "orders", 0, -1),
];

/// Where the repeated batch was appended.
pub const REPEATED_AT: i64 = 1;

/// Makes the fixture anew when TIDEMARK_TEST_WRITE is set.
pub async fn write_if_asked() {
    static WRITTEN: OnceCell<()> = OnceCell::const_new();
    if std::env::var_os("TIDEMARK_TEST_WRITE").is_some() {
        WRITTEN.get_or_init(|| async { write().await }).await;
    }
}

async fn write() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("orders", 2).await;
    client.create_topic("empty", 1).await;
    let stamped = [("message.timestamp.type", "LogAppendTime")];
    client.create_topic_with("stamped", 1, &stamped).await;
    let (id, epoch) = client.init_producer_id(None).await.unwrap();
    for n in 0..2 {
        let batch = Batch::of(&[format!("idempotent {n}")]).producer(id, epoch, n);
        client.produce("orders", 0, batch.build()).await.unwrap();
    }
    let batch = Batch::of(&["by the broker's clock"]).build();
    client.produce("stamped", 0, batch).await.unwrap();
    for (name, commit) in [("committed", true), ("aborted", false)] {
        let mut producer = TxnProducer::init(&mut client, name).await;
        let partitions = [("orders", 0), ("orders", 1)];
        producer.enrol(&mut client, &partitions).await.unwrap();
        for partition in 0..2 {
            producer
                .send(&mut client, "orders", partition, &[name])
                .await
                .unwrap();
        }
        let offsets = [("orders", i32::from(commit), 8)];
        producer
            .send_offsets(&mut client, "transactional", &offsets)
            .await
            .unwrap();
        producer.end(&mut client, commit).await.unwrap();
    }
    client.delete_records("orders", 0, 1).await.unwrap();
    // A checkpoint of all this, and records behind it.
    let broker = broker.restart().await;
    let mut client = broker.client().await;
    client
        .commit_offsets("plain", &[("orders", 0, 7)])
        .await
        .unwrap();
    let mut open = TxnProducer::init(&mut client, "open").await;
    open.enrol(&mut client, &[("orders", 1)]).await.unwrap();
    open.send(&mut client, "orders", 1, &["open"])
        .await
        .unwrap();
    let batch = Batch::of(&["plain after the checkpoint"]).build();
    client.produce("orders", 0, batch).await.unwrap();
    let stopped = broker.crash(1).await;
    let mut files = raw_bytes(stopped.disk());
    files.0.remove("lock");
    let _there_was_none = fs::remove_dir_all(FIXTURE);
    for (name, bytes) in &files.0 {
        let path = Path::new(FIXTURE).join(name);
        let len = match name.ends_with(".slot") {
            true => bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1),
            false => bytes.len(),
        };
        // Slots that were never used say nothing.
        if len > 0 {
            fs::create_dir_all(path.parent().expect("it has one")).unwrap();
            fs::write(path, &bytes[..len]).unwrap();
        }
    }
}

/// The fixture's files, its slots of their full size.
pub fn load() -> MemoryFiles {
    let mut files = MemoryFiles::default();
    let from = DirFiles::new(FIXTURE);
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for entry in from.list(&dir).expect("the fixture is there") {
            let name = match dir.as_str() {
                "" => entry.name,
                dir => format!("{dir}/{}", entry.name),
            };
            if entry.is_dir {
                dirs.push(name);
                continue;
            }
            let mut bytes = from.whole(&name).unwrap().expect("it was listed");
            if name.ends_with(".slot") {
                let size = bytes[48..56].try_into().expect("eight bytes");
                bytes.resize(u64::from_le_bytes(size) as usize, 0);
            }
            files.0.insert(name, bytes);
        }
    }
    assert!(files.0.len() > 10, "the fixture is there: {FIXTURE}");
    files
}

/// A broker that has these files on its disk.
pub fn stopped_with(files: &MemoryFiles) -> StoppedBroker {
    let stopped = TestBroker::builder();
    let disk = stopped.disk();
    for (name, bytes) in &files.0 {
        let path = Path::new(DATA_DIR).join(name);
        let parent = path.parent().expect("it has one");
        disk.create_dir_all(parent).unwrap();
        let file = disk.open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(parent).unwrap();
    }
    stopped
}

/// Writes the files into a directory.
pub fn unpack(files: &MemoryFiles, dir: &Path) {
    for (name, bytes) in &files.0 {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Copies a directory as `cp -r` does.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target: PathBuf = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Producer id and epoch of the transaction that is open.
pub fn open_transaction(files: &MemoryFiles) -> (i64, i16) {
    let data = read(files).expect("a good directory");
    let open = &data.transactional_ids["open"];
    (open.producer_id, open.epoch)
}

/// The second batch of the idempotent producer, as it was sent.
pub fn repeat(files: &MemoryFiles) -> Bytes {
    let data = read(files).expect("a good directory");
    let orders = data.partition("orders", 0).expect("a topic");
    let at = REPEATED_AT;
    let batch = orders.batches.iter().find(|b| b.header.base_offset == at);
    let mut bytes = batch_bytes(files, batch.expect("a batch")).unwrap();
    bytes[..8].fill(0);
    bytes.into()
}
