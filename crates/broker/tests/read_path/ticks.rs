//! ListOffsets answers ticks: an exact cut, checked against what another program reads in the journal.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemark_testkit::{
    Batch, Isolation, RawClient, TestBroker, TxnProducer, listed, requests, version,
};
use tidemark_types::{ErrorCode, Tick};

use crate::journal_reader::{Appended, JournalReader};

/// Both ends of the cut at a tick, from the journal's batches of a partition: the first offset at or
/// after it, and the last stable offset just before it.
fn expected(batches: &[Appended], tick: u64) -> (i64, i64) {
    let mut open: BTreeMap<i64, i64> = BTreeMap::new();
    let mut end = 0;
    for batch in batches.iter().take_while(|batch| batch.tick < tick) {
        end = batch.next_offset();
        if batch.is_marker() {
            open.remove(&batch.producer_id());
        } else if batch.is_transactional() {
            open.entry(batch.producer_id())
                .or_insert(batch.base_offset());
        }
    }
    (end, open.values().copied().min().unwrap_or(end))
}

async fn topic_id(client: &mut RawClient, topic: &str) -> [u8; 16] {
    *client.describe_topic(topic).await.topic_id.as_bytes()
}

/// Both ends of the cut as the broker answers them, by partition.
async fn cut(client: &mut RawClient, partitions: i32, tick: u64) -> Vec<(i64, i64)> {
    let mut ends = Vec::new();
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let request = requests::list_offsets("t", 0..partitions, tick as i64, isolation);
        let response = client.send(version::LIST_OFFSETS, &request).await;
        for partition in &response.topics[0].partitions {
            let timestamp = match partition.offset {
                -1 => -1,
                _ => tick as i64,
            };
            assert_eq!(partition.timestamp, timestamp);
        }
        let offsets: Vec<i64> = listed(&response)
            .into_iter()
            .map(|(_, o)| o.unwrap())
            .collect();
        ends.push(offsets);
    }
    let (ends, stable) = (ends.remove(0), ends.remove(0));
    ends.into_iter().zip(stable).collect()
}

/// Compares cuts at every record's tick and around it, and answers how many were compared.
async fn compare(client: &mut RawClient, reader: &JournalReader, id: [u8; 16]) -> usize {
    let batches: Vec<Vec<Appended>> = (0..2).map(|p| reader.batches(id, p)).collect();
    let ticks = reader.ticks();
    let last = *ticks.last().unwrap();
    let asked: Vec<u64> = (ticks.iter())
        .flat_map(|tick| [tick - 1, *tick, tick + 1])
        .chain([1 << 50])
        .collect();
    let mut compared = 0;
    for tick in asked {
        let found = cut(client, 2, tick).await;
        for (partition, found) in found.into_iter().enumerate() {
            let expected = expected(&batches[partition], tick);
            assert_eq!(found, expected, "partition {partition} at tick {tick}");
            compared += 1;
        }
    }
    // Not before time has come there: what is written next may have an earlier tick.
    for tick in [last + 2, last + 1000, i64::MAX as u64] {
        assert_eq!(cut(client, 2, tick).await, [(-1, -1); 2], "tick {tick}");
    }
    compared
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_cuts_both_partitions_exactly_over_tail_segments_and_restarts() {
    let mut broker = TestBroker::builder()
        .set("journal.budget.bytes", 64 << 20)
        .start()
        .await;
    let mut client = broker.client().await;
    // The smallest segments that Kafka allows: two batches fill one.
    let configs = [("segment.bytes", "1048576")];
    client.create_topic_with("t", 2, &configs).await;
    let id = topic_id(&mut client, "t").await;
    let large = vec![b'x'; 500_000];
    let mut reader = JournalReader::default();
    let mut compared = 0;
    for round in 0..4_u64 {
        // Transactions that overlap in one partition, and one that is open over the restart.
        let mut stays = TxnProducer::init(&mut client, &format!("stays-{round}")).await;
        let mut ends = TxnProducer::init(&mut client, "ends").await;
        stays.enrol(&mut client, &[("t", 0)]).await.unwrap();
        ends.enrol(&mut client, &[("t", 0), ("t", 1)])
            .await
            .unwrap();
        for step in 0..3 {
            let plain = Batch::of(&[&large]).build();
            client.produce("t", step % 2, plain).await.unwrap();
            ends.send(&mut client, "t", step % 2, &["a", "b"])
                .await
                .unwrap();
            if step == 1 {
                stays.send(&mut client, "t", 0, &["open"]).await.unwrap();
            }
        }
        ends.end(&mut client, round % 2 == 0).await.unwrap();
        if round % 2 == 0 {
            stays.end(&mut client, round == 0).await.unwrap();
        }
        reader.read(broker.disk());
        compared += compare(&mut client, &reader, id).await;
        broker = match round {
            // Segments and nothing else; then what the journal gives back, of them and of the tail.
            0 | 2 => broker.restart().await,
            _ => broker.crash(round).await.start().await,
        };
        client = broker.client().await;
        reader.read(broker.disk());
        compared += compare(&mut client, &reader, id).await;
    }
    assert!(compared > 1000, "{compared}");
    let partitions = std::path::Path::new(tidemark_testkit::DATA_DIR).join("partitions");
    let dir = tidemark_disk::Disk::list(broker.disk(), &partitions)
        .unwrap()
        .into_iter()
        .filter(|entry| entry.is_dir)
        .map(|entry| partitions.join(entry.name));
    let segments = dir
        .flat_map(|dir| tidemark_disk::Disk::list(broker.disk(), &dir).unwrap())
        .filter(|file| file.name.ends_with(".log"));
    assert!(segments.count() >= 6, "the log rolled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_of_now_waits_for_what_is_not_durable_and_one_of_the_future_cuts_nothing() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut other = broker.client().await;
    client.create_topic("t", 1).await;
    client
        .produce("t", 0, Batch::of(&["first"]).build())
        .await
        .unwrap();
    let held = broker.hold_syncs_behind_a_record(&mut other, "t", 0).await;
    let mut reader = JournalReader::default();
    reader.read(broker.disk());
    let unsynced = *reader.ticks().last().unwrap();

    // The cut before it needs nothing of it. Behind it there is none before it is published.
    assert_eq!(cut(&mut client, 1, unsynced).await, [(1, 1)]);
    assert_eq!(cut(&mut client, 1, unsynced + 1).await, [(-1, -1)]);
    broker.clock().advance(Duration::from_millis(10));
    let now = Tick(unsynced).alignment_ms() + 10;
    let now = Tick::from_wall_ms(now);
    let request = requests::list_offsets("t", [0], now.0 as i64, Isolation::ReadUncommitted);
    let mut asked = client.start_request(version::LIST_OFFSETS, &request).await;
    // Answers of one connection come in order, those of another do not wait.
    let mut third = broker.client().await;
    assert_eq!(cut(&mut third, 1, unsynced).await, [(1, 1)]);
    assert!(!asked.is_answered());
    broker.disk().release_syncs();
    assert_eq!(listed(&asked.answer().await), [(0, Ok(2))]);
    held.answer().await;

    assert_eq!(cut(&mut third, 1, now.0).await, [(2, 2)]);
    assert_eq!(cut(&mut third, 1, now.0 + 1).await, [(-1, -1)]);
    // What is written now lies behind the cut that was answered.
    third
        .produce("t", 0, Batch::of(&["later"]).build())
        .await
        .unwrap();
    assert_eq!(cut(&mut third, 1, now.0).await, [(2, 2)]);
    assert_eq!(cut(&mut third, 1, now.0 + 1).await, [(3, 3)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_record_carries_a_tick_whatever_its_topic_allows() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    for (n, kind) in ["CreateTime", "LogAppendTime"].into_iter().enumerate() {
        for (m, policy) in ["delete", "compact"].into_iter().enumerate() {
            let topic = format!("t-{n}-{m}");
            let configs = [
                ("message.timestamp.type", kind),
                ("message.timestamp.after.max.ms", "9223372036854775807"),
                ("cleanup.policy", policy),
            ];
            client.create_topic_with(&topic, 1, &configs).await;
            for time in [1 << 50, i64::MAX] {
                let batch = Batch::of(&["x"]).at(time).build();
                let refused = client.produce(&topic, 0, batch).await;
                assert_eq!(
                    refused,
                    Err(ErrorCode::InvalidTimestamp),
                    "{topic} at {time}"
                );
            }
            if policy == "delete" {
                let batch = Batch::of(&["x"]).at((1 << 50) - 1).build();
                assert_eq!(client.produce(&topic, 0, batch).await, Ok(0), "{topic}");
            }
        }
    }
}

fn keyed(client_key: &str, value: &[u8]) -> bytes::Bytes {
    let mut batch = tidemark_record_batch::BatchBuilder::new(tidemark_testkit::WALL_START_MS);
    batch.push(Some(client_key.as_bytes()), Some(value));
    batch.build().into()
}

/// Closes the segment that is being written and syncs it.
async fn roll(broker: &TestBroker, client: &mut RawClient) {
    for _ in 0..2 {
        let filler = keyed("filler", &vec![b'.'; 600_000]);
        client.produce("t", 0, filler).await.unwrap();
    }
    broker.broker().checkpoint().await;
}

/// Where compaction has removed a transaction and its marker, nothing tells any more when it ended:
/// for read_committed the cut may then lie earlier than it did, and never later. So nothing that was
/// decided at the tick or after it is missed. The other cut stays where it was, but for offsets at
/// which there is nothing any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_cuts_a_compacted_log_exactly_or_earlier_and_never_later() {
    let broker = TestBroker::builder()
        .set("journal.budget.bytes", 64 << 20)
        .start()
        .await;
    let mut client = broker.client().await;
    let configs = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "1048576"),
        ("min.cleanable.dirty.ratio", "0"),
        ("delete.retention.ms", "1000"),
    ];
    client.create_topic_with("t", 1, &configs).await;
    let id = topic_id(&mut client, "t").await;
    let producer = TxnProducer::init(&mut client, "x").await;
    for round in 0..2 {
        // A transaction, a plain record behind it, its end; and a newer value of its key.
        producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
        let mut batch = tidemark_record_batch::BatchBuilder::new(tidemark_testkit::WALL_START_MS);
        let (producer_id, epoch) = producer.producer();
        batch.producer(
            tidemark_types::ProducerId(producer_id),
            tidemark_types::ProducerEpoch(epoch),
            round,
        );
        batch.transactional();
        batch.push(Some(b"k"), Some(b"in the transaction"));
        let batch = batch.build().into();
        client.produce_in("x", "t", 0, batch).await.unwrap();
        let behind = keyed(&format!("behind {round}"), b"plain");
        client.produce("t", 0, behind).await.unwrap();
        producer.end(&mut client, true).await.unwrap();
        let newer = keyed("k", b"newer");
        client.produce("t", 0, newer).await.unwrap();
    }
    let mut reader = JournalReader::default();
    for _ in 0..3 {
        roll(&broker, &mut client).await;
        broker.broker().compact().await;
        broker.clock().advance(Duration::from_secs(2));
    }
    assert!(broker.broker().compaction().markers_removed > 0);
    reader.read(broker.disk());
    let batches = reader.batches(id, 0);
    let left: Vec<i64> = (client.read_all("t", 0, Isolation::ReadUncommitted).await)
        .iter()
        .map(|record| record.offset)
        .collect();
    let mut earlier = 0;
    for tick in reader.ticks() {
        let (end, stable) = cut(&mut client, 1, tick).await[0];
        let (exact_end, exact_stable) = expected(&batches, tick);
        let between = left.iter().any(|offset| (end..exact_end).contains(offset));
        assert!(
            end <= exact_end && !between,
            "at tick {tick}: {end}, not {exact_end}"
        );
        assert!(
            stable <= exact_stable,
            "at tick {tick}: {stable} is later than {exact_stable}"
        );
        let more = left.iter().filter(|o| (stable..exact_stable).contains(o));
        earlier += more.count();
    }
    assert!(
        earlier > 0,
        "nothing lies earlier: COMPAT.md says too little"
    );
}
