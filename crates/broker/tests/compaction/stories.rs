use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{GroupId, OffsetCommitRequest};
use tidemark_testkit::requests::{text, topic_name};
use tidemark_testkit::{
    Dialect, Isolation, RawClient, TestBroker, TxnProducer, eventually, produced, requests,
};
use tidemark_types::ErrorCode;

use crate::reader::{EAGER, batch, inspected, last_values, read, requests_time, roll};

const BACKOFF_MS: u64 = 15_000;

fn text_of(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Moves the clock to the next look of the compaction thread, and waits until so many runs are done.
async fn at_the_next_look(broker: &TestBroker, runs: u64) {
    broker.clock().advance_ms(BACKOFF_MS);
    eventually("compaction has run", || {
        broker.broker().compaction().runs >= runs
    })
    .await;
}

async fn send_in(
    client: &mut RawClient,
    producer: &mut TxnProducer,
    topic: &str,
    timestamp: i64,
    of: &[(&[u8], Option<&[u8]>)],
) -> i64 {
    let sequence = producer.sequences.entry((topic.to_owned(), 0)).or_insert(0);
    let (id, epoch) = (producer.producer_id, producer.epoch);
    let bytes = batch(timestamp, Some((id, epoch, *sequence, true)), of);
    *sequence += of.len() as i32;
    let id = producer.id.clone();
    let request = requests::produce(Some(&id), [(topic, 0, bytes)]);
    let version = producer.dialect.produce_version();
    let sent = produced(&client.send(version, &request).await)[0];
    sent.expect("it is in its transaction")
}

/// Markers have keys too, of four bytes: none of a user's (KAFKA-14055).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a21_markers_are_no_records_of_their_keys() {
    for dialect in Dialect::BOTH {
        a21_story(dialect).await;
    }
}

async fn a21_story(dialect: Dialect) {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut configs = EAGER.to_vec();
    configs.push(("delete.retention.ms", "1000"));
    client.create_topic_with("t", 1, &configs).await;
    let now = requests_time(&broker);
    let mut producer = TxnProducer::init_in(&mut client, "tx", dialect).await;
    for (key, commit) in [(&b"k1"[..], false), (b"k2", true)] {
        producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
        send_in(
            &mut client,
            &mut producer,
            "t",
            now,
            &[(key, Some(b"in a transaction"))],
        )
        .await;
        producer.end_and_go_on(&mut client, commit).await.unwrap();
    }
    let keys: [&[u8]; 2] = [&[0, 0, 0, 0], &[0, 0, 0, 1]];
    for n in 0..1_000 {
        let value = format!("{n}");
        let plain = batch(now, None, &[(keys[n % 2], Some(value.as_bytes()))]);
        client.produce("t", 0, plain).await.unwrap();
    }
    roll(&broker, &mut client, "t").await;
    let ends = client.ends("t", 1, Isolation::ReadUncommitted).await;
    for runs in 1..=2 {
        at_the_next_look(&broker, runs).await;
        let (seen, headers) = read(&mut client, "t", Isolation::ReadCommitted).await;
        let found: Vec<(Vec<u8>, String)> = (seen.iter())
            .map(|s| (s.key.to_vec(), text_of(s.value.as_ref().unwrap())))
            .collect();
        let expected = [
            (b"k2".to_vec(), "in a transaction".to_owned()),
            (keys[0].to_vec(), "998".to_owned()),
            (keys[1].to_vec(), "999".to_owned()),
        ];
        assert_eq!(found, expected, "after run {runs}");
        let (uncommitted, _) = read(&mut client, "t", Isolation::ReadUncommitted).await;
        assert_eq!(
            uncommitted, seen,
            "the aborted record is gone for everybody"
        );
        let stable = client.ends("t", 1, Isolation::ReadCommitted).await;
        assert_eq!((&stable, &ends), (&ends, &ends));
        // The aborted transaction's marker goes with the second run, after delete.retention.ms; that
        // of k2 stays with it.
        let markers = headers.iter().filter(|h| h.attributes.is_control()).count();
        assert_eq!(markers, 3 - runs as usize);
        roll(&broker, &mut client, "t").await;
        broker.clock().advance_ms(1_000);
        let ends_now = client.ends("t", 1, Isolation::ReadUncommitted).await;
        if runs == 1 {
            assert!(ends_now > ends);
        }
        // Only the rolled fillers are new.
        let broker_ends = client.ends("t", 1, Isolation::ReadCommitted).await;
        assert_eq!(broker_ends, ends_now);
        if runs == 1 {
            at_the_next_look(&broker, 2).await;
            let (again, _) = read(&mut client, "t", Isolation::ReadCommitted).await;
            assert_eq!(again, seen);
            break;
        }
    }
    let (_, headers) = read(&mut client, "t", Isolation::ReadCommitted).await;
    let markers = headers.iter().filter(|h| h.attributes.is_control()).count();
    assert_eq!(markers, 1, "k2's marker stays with it, that of k1 is gone");
    inspected(&broker.stop().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m14_an_aborted_value_supersedes_nothing_and_an_open_one_is_not_touched() {
    for dialect in Dialect::BOTH {
        m14_story(dialect).await;
    }
}

async fn m14_story(dialect: Dialect) {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic_with("t", 1, &EAGER).await;
    let now = requests_time(&broker);
    let mut producer = TxnProducer::init_in(&mut client, "tx", dialect).await;
    let mut offsets = Vec::new();
    for (value, commit) in [(&b"v1"[..], true), (b"v2", false)] {
        producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
        offsets.push(
            send_in(
                &mut client,
                &mut producer,
                "t",
                now,
                &[(b"k1", Some(value))],
            )
            .await,
        );
        producer.end_and_go_on(&mut client, commit).await.unwrap();
    }
    // Committed, then superseded by what stays open.
    client
        .produce("t", 0, batch(now, None, &[(b"k2", Some(b"old"))]))
        .await
        .unwrap();
    roll(&broker, &mut client, "t").await;
    let mut open = TxnProducer::init_in(&mut client, "open", dialect).await;
    open.enrol(&mut client, &[("t", 0)]).await.unwrap();
    let first = send_in(&mut client, &mut open, "t", now, &[(b"k2", Some(b"new"))]).await;
    for value in [&b"a"[..], b"b"] {
        client
            .produce("t", 0, batch(now, None, &[(b"k3", Some(value))]))
            .await
            .unwrap();
    }
    roll(&broker, &mut client, "t").await;
    broker.broker().compact().await;
    broker.broker().compact().await;
    assert!(
        broker.broker().compaction().aborted_removed == 1,
        "{:?}",
        broker.broker().compaction()
    );

    let stable = client.ends("t", 1, Isolation::ReadCommitted).await;
    assert_eq!(stable, [first]);
    let (seen, _) = read(&mut client, "t", Isolation::ReadCommitted).await;
    let found: Vec<(i64, String)> = seen
        .iter()
        .map(|s| (s.offset, text_of(s.value.as_ref().unwrap())))
        .collect();
    assert_eq!(
        found,
        [(offsets[0], "v1".to_owned()), (4, "old".to_owned())]
    );
    let (all, _) = read(&mut client, "t", Isolation::ReadUncommitted).await;
    let found: Vec<String> = all
        .iter()
        .map(|s| text_of(s.value.as_ref().unwrap()))
        .collect();
    assert_eq!(
        found,
        ["v1", "old", "new", "a", "b"],
        "nothing at or after the stable offset goes"
    );

    // Restarted and ended, the open one takes the place of the old one.
    let broker = broker.restart().await;
    let mut client = broker.client().await;
    let (again, _) = read(&mut client, "t", Isolation::ReadUncommitted).await;
    assert_eq!(again, all);
    open.end(&mut client, true).await.unwrap();
    roll(&broker, &mut client, "t").await;
    broker.broker().compact().await;
    let (seen, _) = read(&mut client, "t", Isolation::ReadCommitted).await;
    let found: Vec<String> = seen
        .iter()
        .map(|s| text_of(s.value.as_ref().unwrap()))
        .collect();
    assert_eq!(found, ["v1", "new", "b"]);
    inspected(&broker.stop().await);
}

/// A producer whose records were all superseded and removed goes on where it was, and its last batch is
/// known as a duplicate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a3_a_producer_outlives_the_compaction_of_its_records() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic_with("t", 1, &EAGER).await;
    let now = requests_time(&broker);
    let (id, epoch) = client.init_producer_id(None).await.unwrap();
    let of = |sequence| {
        batch(
            now,
            Some((id, epoch, sequence, false)),
            &[(b"k", Some(b"mine"))],
        )
    };
    for sequence in 0..3 {
        assert_eq!(
            client.produce("t", 0, of(sequence)).await,
            Ok(i64::from(sequence))
        );
    }
    client
        .produce("t", 0, batch(now, None, &[(b"k", Some(b"another's"))]))
        .await
        .unwrap();
    roll(&broker, &mut client, "t").await;
    broker.broker().compact().await;
    let (seen, headers) = read(&mut client, "t", Isolation::ReadUncommitted).await;
    assert_eq!(seen.iter().map(|s| s.offset).collect::<Vec<_>>(), [3]);
    let last: Vec<_> = headers.iter().filter(|h| h.producer_id.0 == id).collect();
    assert_eq!(last.len(), 1, "its last batch stays, empty");
    assert_eq!(
        (
            last[0].base_offset,
            last[0].base_sequence,
            last[0].record_count
        ),
        (2, 2, 0)
    );

    let broker = broker.crash(3).await.start().await;
    let mut client = broker.client().await;
    assert_eq!(
        client.produce("t", 0, of(2)).await,
        Ok(2),
        "a duplicate, as before"
    );
    assert_eq!(
        client.produce("t", 0, of(5)).await,
        Err(ErrorCode::OutOfOrderSequenceNumber)
    );
    assert!(client.produce("t", 0, of(3)).await.is_ok());
    // What is not its last batch any more may go.
    roll(&broker, &mut client, "t").await;
    broker.broker().compact().await;
    let (_, headers) = read(&mut client, "t", Isolation::ReadUncommitted).await;
    let left = headers.iter().filter(|h| h.producer_id.0 == id);
    assert_eq!(left.map(|h| h.base_sequence).collect::<Vec<_>>(), [3]);
    inspected(&broker.stop().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tombstones_go_after_their_time_and_times_are_found_around_the_gaps() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut configs = EAGER.to_vec();
    configs.push(("delete.retention.ms", "60000"));
    client.create_topic_with("t", 1, &configs).await;
    let now = requests_time(&broker);
    let at = |n: i64| now - 100_000 + n * 1_000;
    for (n, key, value) in [
        (0, &b"a"[..], Some(&b"0"[..])),
        (1, b"b", Some(b"1")),
        (2, b"a", None),
        // The highest time of all is superseded.
        (90, b"c", Some(b"90")),
        (4, b"c", Some(b"4")),
        (5, b"d", Some(b"5")),
    ] {
        client
            .produce("t", 0, batch(at(n), None, &[(key, value)]))
            .await
            .unwrap();
    }
    roll(&broker, &mut client, "t").await;
    broker.broker().compact().await;
    let (seen, headers) = read(&mut client, "t", Isolation::ReadCommitted).await;
    let found = |seen: &[crate::reader::Seen]| -> Vec<(i64, bool)> {
        seen.iter().map(|s| (s.offset, s.value.is_some())).collect()
    };
    assert_eq!(found(&seen), [(1, true), (2, false), (4, true), (5, true)]);
    assert_eq!(
        seen[1].timestamp,
        at(2),
        "the horizon is not the record's time"
    );
    let horizon = headers.iter().find(|h| h.base_offset == 2).unwrap();
    assert_eq!(horizon.delete_horizon_ms(), Some(now + 60_000));
    // By time: what is gone is passed over.
    for (n, offset) in [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 5)] {
        let listed = client
            .list_offset("t", 0, at(n), Isolation::ReadCommitted)
            .await;
        assert_eq!(listed, Ok(offset), "time {n}");
    }
    let earliest = client
        .list_offset("t", 0, requests::EARLIEST, Isolation::ReadCommitted)
        .await;
    assert_eq!(earliest, Ok(0), "the log start stays");

    // The clock alone is reason enough to look at tombstones again.
    let runs = broker.broker().compaction().runs;
    broker.clock().advance_ms(60_000);
    eventually("the tombstone's time has come", || {
        broker.broker().compaction().runs > runs
    })
    .await;
    let (seen, _) = read(&mut client, "t", Isolation::ReadCommitted).await;
    assert_eq!(found(&seen), [(1, true), (4, true), (5, true)]);
    inspected(&broker.stop().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_waits_for_the_lag_and_the_share_that_the_topic_asks_for() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let now = requests_time(&broker);
    for (topic, more) in [
        ("lag", &[("min.compaction.lag.ms", "100000")][..]),
        ("share", &[("min.cleanable.dirty.ratio", "1")]),
        (
            "overdue",
            &[
                ("min.cleanable.dirty.ratio", "1"),
                ("max.compaction.lag.ms", "100000"),
            ],
        ),
    ] {
        let mut configs = EAGER.to_vec();
        configs.retain(|(name, _)| !more.iter().any(|(n, _)| n == name));
        configs.extend_from_slice(more);
        client.create_topic_with(topic, 1, &configs).await;
        for _ in 0..2 {
            client
                .produce(topic, 0, batch(now, None, &[(b"k", Some(b"v"))]))
                .await
                .unwrap();
        }
        roll(&broker, &mut client, topic).await;
    }
    let mut left = Vec::new();
    for _ in 0..2 {
        broker.clock().advance_ms(60_000);
        let last = broker.broker().compaction();
        // A look has been made once the thread has seen the new time and found what is due.
        eventually("the thread has looked", || {
            let now = broker.broker().compaction();
            now.partitions_due == 0 && now.max_dirty_ratio > 0.0 && now.runs >= last.runs
        })
        .await;
        left.clear();
        if last.runs > 0 || broker.broker().compaction().runs > 0 {
            break;
        }
    }
    eventually("both that are due had their run", || {
        broker.broker().compaction().runs >= 2
    })
    .await;
    for topic in ["lag", "share", "overdue"] {
        let (seen, _) = read(&mut client, topic, Isolation::ReadCommitted).await;
        left.push((topic, seen.len()));
    }
    assert_eq!(left, [("lag", 1), ("share", 2), ("overdue", 1)]);
}

/// What a group has committed is there after compaction, also for a reader of the segments alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compacted_offsets_and_transactional_ids_say_what_they_said() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 20).await;
    for internal in ["__consumer_offsets", "__transaction_state"] {
        set_config(&mut client, internal, "segment.bytes", "1048576").await;
        set_config(&mut client, internal, "min.cleanable.dirty.ratio", "0").await;
    }
    let producer = TxnProducer::init(&mut client, "tx").await;
    for round in 0..24i64 {
        commit_large(&mut client, "g", round).await;
        producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
        producer
            .send_offsets(&mut client, "g", &[("t", 19, 1_000 + round)])
            .await
            .unwrap();
        producer.end(&mut client, round % 2 == 0).await.unwrap();
    }
    broker.broker().checkpoint().await;
    broker.broker().compact().await;
    let stats = broker.broker().compaction();
    assert!(stats.runs > 0 && stats.records_removed > 100, "{stats:?}");
    let stopped = broker.stop().await;
    // The reader compares the offsets that the checkpoint keeps with those of the compacted log.
    inspected(&stopped);
    let broker = stopped.start().await;
    let mut client = broker.client().await;
    for partition in 0..19 {
        let offset = client.committed_offset("g", "t", partition, false).await;
        assert_eq!(offset, Ok(23));
    }
    assert_eq!(
        client.committed_offset("g", "t", 19, false).await,
        Ok(1_022)
    );
}

/// Offsets of 19 partitions, with as much metadata as they may have.
async fn commit_large(client: &mut RawClient, group: &str, offset: i64) {
    let metadata = "m".repeat(4_000);
    let partitions = (0..19).map(|partition| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text(&metadata)))
    });
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![
            OffsetCommitRequestTopic::default()
                .with_name(topic_name("t"))
                .with_partitions(partitions.collect()),
        ]);
    let response = client.send(8, &request).await;
    let codes: BTreeSet<i16> = (response.topics[0].partitions.iter())
        .map(|p| p.error_code)
        .collect();
    assert_eq!(codes, BTreeSet::from([0]));
}

async fn set_config(client: &mut RawClient, topic: &str, name: &str, value: &str) {
    use kafka_protocol::messages::IncrementalAlterConfigsRequest;
    use kafka_protocol::messages::incremental_alter_configs_request::{
        AlterConfigsResource, AlterableConfig,
    };
    let config = AlterableConfig::default()
        .with_name(text(name))
        .with_value(Some(text(value)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(topic))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let response = client.send(1, &request).await;
    assert_eq!(
        response.responses[0].error_code, 0,
        "{:?}",
        response.responses[0]
    );
}

/// The reader of the old files and a run of compaction do not disturb each other, whatever the moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_the_same_while_segments_are_replaced() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut configs = EAGER.to_vec();
    configs.push(("delete.retention.ms", "0"));
    client.create_topic_with("t", 1, &configs).await;
    let now = requests_time(&broker);
    let mut producer = TxnProducer::init(&mut client, "tx").await;
    for round in 0..6 {
        for n in 0..20 {
            producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
            let value = format!("{round}.{n}");
            let key = [b'a' + n % 4];
            send_in(
                &mut client,
                &mut producer,
                "t",
                now,
                &[(&key, Some(value.as_bytes()))],
            )
            .await;
            // The last round of every key is committed.
            producer
                .end(&mut client, n % 3 != 1 || n >= 16)
                .await
                .unwrap();
        }
        roll(&broker, &mut client, "t").await;
    }
    let (seen, _) = read(&mut client, "t", Isolation::ReadCommitted).await;
    let expected = last_values(&seen);
    assert_eq!(expected.len(), 4);
    let offered: BTreeSet<i64> = seen.iter().map(|s| s.offset).collect();
    let mut reader = broker.client().await;
    let reading = async {
        for _ in 0..40 {
            let (seen, _) = read(&mut reader, "t", Isolation::ReadCommitted).await;
            assert_eq!(last_values(&seen), expected);
            assert!(
                seen.iter().all(|s| offered.contains(&s.offset)),
                "nothing aborted is seen"
            );
        }
    };
    let compacting = async {
        for _ in 0..10 {
            broker.broker().compact().await;
            broker.broker().checkpoint().await;
            broker.clock().advance_ms(1);
        }
    };
    tokio::join!(reading, compacting);
    let stats = broker.broker().compaction();
    assert!(
        stats.aborted_removed > 0 && stats.markers_removed > 0,
        "{stats:?}"
    );
    let (seen, headers) = read(&mut client, "t", Isolation::ReadCommitted).await;
    assert_eq!((seen.len(), last_values(&seen)), (4, expected));
    // Of the other transactions only what a run's last batch needs is left.
    let aborts = headers.iter().filter(|h| h.attributes.is_control()).count();
    assert!(aborts < 12, "{aborts} markers are left");
    inspected(&broker.stop().await);
}
