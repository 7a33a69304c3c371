//! Segments of one batch each: what is read over their borders, and what is expired.

use std::path::{Path, PathBuf};

use kafka_protocol::messages::IncrementalAlterConfigsRequest;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use tidemark_broker::Clock;
use tidemark_disk::{Disk, SimDisk};
use tidemark_testkit::requests::{self, error_code, text};
use tidemark_testkit::{
    Batch, DATA_DIR, Isolation, RawClient, StoppedBroker, TestBroker, TxnProducer, WALL_START_MS,
};
use tidemark_types::ErrorCode;

/// As in Kafka an index without a place for an entry is full at once: each batch is a segment.
const ONE_BATCH_EACH: (&str, &str) = ("segment.index.bytes", "4");

/// Base offsets of the segments that have a file.
fn segment_files(disk: &SimDisk, topic_id: uuid::Uuid) -> Vec<i64> {
    let dir = PathBuf::from(DATA_DIR)
        .join("partitions")
        .join(format!("{topic_id}-0"));
    let files = disk.list(Path::new(&dir)).unwrap_or_default();
    let logs = files
        .iter()
        .filter_map(|file| file.name.strip_suffix(".log"));
    logs.map(|base| base.parse().expect("a segment's name"))
        .collect()
}

async fn alter(client: &mut RawClient, resource: (i8, &str), name: &str, value: &str) {
    let config = AlterableConfig::default()
        .with_name(text(name))
        .with_config_operation(0)
        .with_value(Some(text(value)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(resource.0)
        .with_resource_name(text(resource.1))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let response = client.send(1, &request).await;
    let error = error_code(response.responses[0].error_code);
    assert_eq!(error, ErrorCode::None, "{name}={value}");
}

/// Plain batches of one record, at these times after the start of the clock.
async fn produce_at(client: &mut RawClient, times_ms: &[i64]) {
    for time_ms in times_ms {
        let value = time_ms.to_string();
        let batch = Batch::of(&[value]).at(WALL_START_MS + time_ms).build();
        client.produce("t", 0, batch).await.expect("it is taken");
    }
}

async fn earliest(client: &mut RawClient) -> i64 {
    let isolation = Isolation::ReadCommitted;
    let earliest = client
        .list_offset("t", 0, requests::EARLIEST, isolation)
        .await;
    earliest.expect("the partition is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_the_aborted_list_is_complete_over_segments() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic_with("t", 1, &[ONE_BATCH_EACH]).await;
    let topic_id = client.describe_topic("t").await.topic_id;
    let mut first = TxnProducer::init(&mut client, "tx1").await;
    let mut second = TxnProducer::init(&mut client, "tx2").await;
    for offset in 0..2 {
        let plain = Batch::of(&["plain"]).build();
        assert_eq!(client.produce("t", 0, plain).await, Ok(offset));
    }
    first.enrol(&mut client, &[("t", 0)]).await.unwrap();
    second.enrol(&mut client, &[("t", 0)]).await.unwrap();
    assert_eq!(first.send(&mut client, "t", 0, &["of 1"]).await, Ok(2));
    let plain = Batch::of(&["between"]).build();
    assert_eq!(client.produce("t", 0, plain).await, Ok(3));
    assert_eq!(second.send(&mut client, "t", 0, &["of 2"]).await, Ok(4));
    assert_eq!(first.end(&mut client, false).await, Ok(()));
    assert_eq!(second.end(&mut client, false).await, Ok(()));
    let both = [(first.producer_id, 2), (second.producer_id, 4)];

    let mut broker = broker;
    for restarted in [false, true] {
        broker.broker().checkpoint().await;
        assert_eq!(
            segment_files(broker.disk(), topic_id),
            [0, 1, 2, 3, 4, 5, 6]
        );
        for from in 2..7 {
            let fetched = client.fetch("t", 0, from, Isolation::ReadCommitted).await;
            let mut aborted = fetched.aborted.clone().unwrap();
            aborted.sort_by_key(|(_, first)| *first);
            let ends_here = |(id, _): &(i64, i64)| from < 6 || *id == second.producer_id;
            let want: Vec<_> = both.into_iter().filter(ends_here).collect();
            assert_eq!(aborted, want, "from {from}");
            let delivered: Vec<i64> = fetched.committed().iter().map(|r| r.offset).collect();
            let plain: Vec<i64> = (from..=3).filter(|offset| *offset == 3).collect();
            assert_eq!(delivered, plain, "from {from}");
            assert_eq!(fetched.next_offset(), Some(7));
        }
        if !restarted {
            drop(client);
            broker = broker.crash(3).await.start().await;
            client = broker.client().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a24_offsets_by_timestamp_after_a_roll_between_each_record() {
    let mut broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic_with("t", 2, &[ONE_BATCH_EACH]).await;
    let at = |ms: i64| WALL_START_MS + ms;
    for (partition, times) in [(0, vec![2, 4, 6, 8]), (1, vec![10, 5, 20])] {
        for time in times {
            let batch = Batch::of(&["v"]).at(at(time)).build();
            client
                .produce("t", partition, batch)
                .await
                .expect("it is taken");
        }
    }
    for round in ["in the tail", "in segments", "after a restart"] {
        let asks = [
            (0, 1, (2, 0)),
            (0, 2, (2, 0)),
            (0, 3, (4, 1)),
            (0, 8, (8, 3)),
            (1, 6, (10, 0)),
            (1, 11, (20, 2)),
        ];
        for (partition, ask, (time, offset)) in asks {
            let found = find(&mut client, partition, at(ask)).await;
            assert_eq!(found, (at(time), offset), "{round}: {partition} at {ask}");
        }
        assert_eq!(find(&mut client, 0, at(9)).await, (-1, -1), "{round}");
        // The highest timestamp (KIP-734).
        assert_eq!(find(&mut client, 0, -3).await, (at(8), 3), "{round}");
        assert_eq!(find(&mut client, 1, -3).await, (at(20), 2), "{round}");
        match round {
            "in the tail" => broker.broker().checkpoint().await,
            _ => {
                drop(client);
                broker = broker.restart().await;
                client = broker.client().await;
            }
        }
    }
    // What is gone is not found by its time either.
    assert_eq!(client.delete_records("t", 1, 1).await, Ok(1));
    assert_eq!(find(&mut client, 1, at(6)).await, (at(20), 2));
    assert_eq!(find(&mut client, 1, at(5)).await, (at(5), 1));
    assert_eq!(client.delete_records("t", 1, 3).await, Ok(3));
    assert_eq!(find(&mut client, 1, at(5)).await, (-1, -1));
    assert_eq!(find(&mut client, 1, -3).await, (-1, -1));
}

/// (timestamp, offset).
async fn find(client: &mut RawClient, partition: i32, timestamp: i64) -> (i64, i64) {
    let isolation = Isolation::ReadCommitted;
    let request = requests::list_offsets("t", [partition], timestamp, isolation);
    let response = client.send(8, &request).await;
    let answer = &response.topics[0].partitions[0];
    assert_eq!(error_code(answer.error_code), ErrorCode::None);
    (answer.timestamp, answer.offset)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_segments_go_and_their_files_with_the_checkpoints() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let configs = [ONE_BATCH_EACH, ("retention.ms", "1000")];
    client.create_topic_with("t", 1, &configs).await;
    let topic_id = client.describe_topic("t").await.topic_id;
    produce_at(&mut client, &[0, 100, 2_000]).await;
    broker.broker().checkpoint().await;
    assert_eq!(segment_files(broker.disk(), topic_id), [0, 1, 2]);

    broker.clock().advance_ms(1_100);
    broker.broker().retain().await;
    assert_eq!(
        earliest(&mut client).await,
        1,
        "as old as 1000 ms is not older"
    );
    let below = client.fetch("t", 0, 0, Isolation::ReadCommitted).await;
    assert_eq!(below.error, ErrorCode::OffsetOutOfRange);
    let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["100", "2000"]);
    broker.broker().checkpoint().await;
    assert_eq!(
        segment_files(broker.disk(), topic_id),
        [0, 1, 2],
        "the older one names it"
    );
    broker.broker().checkpoint().await;
    assert_eq!(segment_files(broker.disk(), topic_id), [1, 2]);

    // All of it, the segment that was written to included; the log goes on where it ended.
    broker.clock().advance_ms(2_000);
    broker.broker().retain().await;
    assert_eq!(earliest(&mut client).await, 3);
    produce_at(&mut client, &[5_000]).await;
    drop(client);
    let broker = broker.restart().await;
    let mut client = broker.client().await;
    assert_eq!(earliest(&mut client).await, 3);
    let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["5000"]);
    broker.broker().checkpoint().await;
    assert_eq!(segment_files(broker.disk(), topic_id), [3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_open_transaction_wrote_does_not_expire() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let configs = [ONE_BATCH_EACH, ("retention.ms", "0")];
    client.create_topic_with("t", 1, &configs).await;
    produce_at(&mut client, &[0]).await;
    let mut producer = TxnProducer::init(&mut client, "tx").await;
    producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
    let batch = producer.batch("t", 0, &["open"]).at(WALL_START_MS).build();
    assert_eq!(client.produce_in("tx", "t", 0, batch).await, Ok(1));
    broker.clock().advance_ms(10_000);
    // As long as both are in memory they would go together.
    broker.broker().retain().await;
    assert_eq!(earliest(&mut client).await, 0);
    broker.broker().checkpoint().await;
    broker.broker().retain().await;
    assert_eq!(earliest(&mut client).await, 1);
    assert_eq!(producer.end(&mut client, true).await, Ok(()));
    broker.clock().advance_ms(10_000);
    broker.broker().retain().await;
    assert_eq!(earliest(&mut client).await, 3, "with its marker");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configurations_of_retention_take_effect_without_a_restart() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic_with("t", 1, &[ONE_BATCH_EACH]).await;
    let topic_id = client.describe_topic("t").await.topic_id;
    produce_at(&mut client, &[0, 1, 2, 3]).await;
    broker.broker().checkpoint().await;
    broker.clock().advance_ms(60_000);
    broker.broker().retain().await;
    assert_eq!(earliest(&mut client).await, 0, "seven days is the default");

    // A segment's size is known from its file.
    let log = PathBuf::from(DATA_DIR)
        .join("partitions")
        .join(format!("{topic_id}-0"))
        .join(format!("{:020}.log", 0));
    let file = broker
        .disk()
        .open(&log, tidemark_disk::OpenMode::Read)
        .unwrap();
    let keep = (2 * file.len().unwrap()).to_string();
    alter(&mut client, (2, "t"), "retention.bytes", &keep).await;
    broker.broker().retain().await;
    assert_eq!(earliest(&mut client).await, 2);
    alter(&mut client, (2, "t"), "retention.bytes", "-1").await;
    // A default of the broker, for topics that set nothing themselves.
    alter(&mut client, (4, ""), "log.retention.ms", "60000").await;
    broker.broker().retain().await;
    assert_eq!(earliest(&mut client).await, 2);
    alter(&mut client, (4, ""), "log.retention.ms", "59997").await;
    broker.broker().retain().await;
    assert_eq!(earliest(&mut client).await, 3);
    // Not of a topic that is only compacted.
    alter(&mut client, (2, "t"), "cleanup.policy", "compact").await;
    alter(&mut client, (2, "t"), "retention.ms", "0").await;
    broker.broker().retain().await;
    assert_eq!(earliest(&mut client).await, 3);
    // The size of segments from the next batch on.
    alter(&mut client, (2, "t"), "cleanup.policy", "delete").await;
    alter(&mut client, (2, "t"), "retention.ms", "-1").await;
    alter(&mut client, (2, "t"), "segment.index.bytes", "10485760").await;
    produce_at(&mut client, &[4, 5, 6]).await;
    broker.broker().checkpoint().await;
    broker.broker().checkpoint().await;
    assert_eq!(segment_files(broker.disk(), topic_id), [3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_records_are_looked_for_every_check_interval() {
    let broker = TestBroker::builder()
        .set("log.retention.check.interval.ms", 10_000)
        .start()
        .await;
    let mut client = broker.client().await;
    client
        .create_topic_with("t", 1, &[("retention.ms", "0")])
        .await;
    for round in 1..=2 {
        produce_at(&mut client, &[0]).await;
        broker.clock().advance_ms(30_000);
        for _ in 0..3_000 {
            if earliest(&mut client).await == round {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(earliest(&mut client).await, round);
    }
}

/// P9: whatever power cut comes, a log start that was told does not go back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_a_log_start_that_was_told_survives_power_cuts() {
    let mut stopped: StoppedBroker = TestBroker::builder().seed(11);
    let mut told = 0;
    for round in 0..8_u64 {
        let broker = stopped.start().await;
        let mut client = broker.client().await;
        if round == 0 {
            let configs = [ONE_BATCH_EACH, ("retention.ms", "1000")];
            client.create_topic_with("t", 1, &configs).await;
        }
        assert_eq!(earliest(&mut client).await, told, "round {round}");
        broker.clock().advance_ms(5);
        let now_ms = broker.clock().wall_ms() - WALL_START_MS;
        produce_at(&mut client, &[now_ms, now_ms + 1, now_ms + 2]).await;
        if round % 3 != 0 || round % 2 == 1 {
            broker.broker().checkpoint().await;
        }
        match round % 2 {
            0 => {
                let end = client.ends("t", 1, Isolation::ReadCommitted).await[0];
                told = client.delete_records("t", 0, end - 1).await.unwrap();
            }
            _ => {
                broker.clock().advance_ms(1_002);
                broker.broker().retain().await;
                told = earliest(&mut client).await;
            }
        }
        if round % 4 == 3 {
            broker.broker().checkpoint().await;
        }
        let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
        assert_eq!(values.len(), 1, "round {round}");
        drop(client);
        stopped = broker.crash(round).await;
    }
}

/// `compression.type` of a topic: batches are stored in its codec, and everything else about them
/// stays, so that a repeat is a repeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_stored_in_the_codec_that_their_topic_asks_for() {
    use tidemark_record_batch::Codec;

    let mut broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let types = [
        ("uncompressed", Codec::None),
        ("gzip", Codec::Gzip),
        ("snappy", Codec::Snappy),
        ("lz4", Codec::Lz4),
        ("zstd", Codec::Zstd),
        ("producer", Codec::None),
    ];
    let (producer_id, epoch) = client.init_producer_id(None).await.unwrap();
    let values = ["aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"];
    for (name, _) in types {
        let configs = [("compression.type", name), ("compression.gzip.level", "9")];
        client.create_topic_with(name, 1, &configs).await;
        let batch = || Batch::of(&values).producer(producer_id, epoch, 0).build();
        assert_eq!(client.produce(name, 0, batch()).await, Ok(0), "{name}");
        assert_eq!(
            client.produce(name, 0, batch()).await,
            Ok(0),
            "{name}, a repeat"
        );
    }
    // From now on, without a restart.
    alter(&mut client, (2, "producer"), "compression.type", "zstd").await;
    alter(
        &mut client,
        (2, "producer"),
        "message.timestamp.type",
        "LogAppendTime",
    )
    .await;
    let next = Batch::of(&["later"])
        .producer(producer_id, epoch, 2)
        .build();
    assert_eq!(client.produce("producer", 0, next).await, Ok(2));
    for restarted in [false, true] {
        for (name, codec) in types {
            let fetched = client.fetch(name, 0, 0, Isolation::ReadCommitted).await;
            let header = &fetched.batches[0].header;
            assert_eq!(header.attributes.codec(), Some(codec), "{name} {restarted}");
            assert_eq!(
                (header.producer_id.0, header.base_sequence),
                (producer_id, 0)
            );
            assert_eq!(fetched.values()[..2], values, "{name} {restarted}");
        }
        let fetched = client
            .fetch("producer", 0, 2, Isolation::ReadCommitted)
            .await;
        let header = &fetched.batches[0].header;
        assert_eq!(header.attributes.codec(), Some(Codec::Zstd));
        assert_eq!(header.max_timestamp, WALL_START_MS);
        assert_eq!(fetched.values(), ["later"]);
        if !restarted {
            drop(client);
            broker = broker.restart().await;
            client = broker.client().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_larger_than_a_segment_is_refused() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let configs = [
        ("max.message.bytes", "2000000"),
        ("segment.bytes", "1048576"),
    ];
    client.create_topic_with("t", 1, &configs).await;
    let large = Batch::of(&[vec![b'v'; 1_048_576]]).build();
    let refused = client.produce("t", 0, large).await;
    assert_eq!(refused, Err(ErrorCode::RecordListTooLarge));
    let fits = Batch::of(&[vec![b'v'; 1_048_000]]).build();
    assert_eq!(client.produce("t", 0, fits).await, Ok(0));
}
