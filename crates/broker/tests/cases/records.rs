//! Records that are deleted: DeleteRecords, and what outlives it.

use tidemark_testkit::{Batch, Dialect, Isolation, RawClient, TestBroker, TxnProducer, requests};
use tidemark_types::ErrorCode;

use crate::support::{Target, in_both_dialects};

/// (log start, last stable offset, high watermark).
async fn marks(client: &mut RawClient, topic: &str) -> (i64, i64, i64) {
    let committed = Isolation::ReadCommitted;
    let start = client.list_offset(topic, 0, requests::EARLIEST, committed);
    let start = start.await.expect("the partition is there");
    let fetched = client.fetch(topic, 0, start, committed).await;
    assert_eq!(
        (fetched.error, fetched.log_start_offset),
        (ErrorCode::None, start)
    );
    (start, fetched.last_stable_offset, fetched.high_watermark)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a22_delete_records_cuts_through_an_open_transaction() {
    in_both_dialects(a22_story).await;
}

async fn a22_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let id = target.name("tx");
    let mut producer = target.session_in(&mut client, &id, dialect).await;
    target.begin(&mut client, &producer, &[(&topic, 0)]).await;
    for n in 0..10 {
        let sent = producer
            .send(&mut client, &topic, 0, &[n.to_string()])
            .await;
        assert_eq!(sent, Ok(n));
    }
    assert_eq!(client.delete_records(&topic, 0, 5).await, Ok(5));
    assert_eq!(marks(&mut client, &topic).await, (5, 5, 10));
    let below = client.fetch(&topic, 0, 0, Isolation::ReadCommitted).await;
    assert_eq!(below.error, ErrorCode::OffsetOutOfRange);
    // What is gone is gone: a lower offset is answered with what there is.
    assert_eq!(client.delete_records(&topic, 0, 3).await, Ok(5));

    assert_eq!(producer.end(&mut client, true).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (11, 11)).await;
    let values = client
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert_eq!(values, ["5", "6", "7", "8", "9"]);

    let beyond = client.delete_records(&topic, 0, 12).await;
    assert_eq!(beyond, Err(ErrorCode::OffsetOutOfRange));
    let below_zero = client.delete_records(&topic, 0, -2).await;
    assert_eq!(below_zero, Err(ErrorCode::OffsetOutOfRange));
    // -1 is the high watermark.
    assert_eq!(client.delete_records(&topic, 0, -1).await, Ok(11));
    assert_eq!(marks(&mut client, &topic).await, (11, 11, 11));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a22_a_restart_in_between_changes_nothing() {
    in_both_dialects(a22_story_of_restarts).await;
}

async fn a22_story_of_restarts(dialect: Dialect) {
    for end in ["kill", "power", "stop"] {
        let mut broker = TestBroker::start().await;
        let mut client = broker.client().await;
        client.create_topic("t", 1).await;
        let mut producer = TxnProducer::init_in(&mut client, "tx", dialect).await;
        producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
        for n in 0..10 {
            let sent = producer.send(&mut client, "t", 0, &[n.to_string()]).await;
            assert_eq!(sent, Ok(n));
        }
        if end == "kill" {
            // With a checkpoint from before the move.
            broker.broker().checkpoint().await;
        }
        assert_eq!(client.delete_records("t", 0, 5).await, Ok(5));
        drop(client);
        broker = match end {
            "stop" => broker.restart().await,
            _ => broker.crash(7).await.start().await,
        };
        let mut client = broker.client().await;
        assert_eq!(marks(&mut client, "t").await, (5, 5, 10), "{end}");
        assert_eq!(producer.end(&mut client, true).await, Ok(()));
        let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
        assert_eq!(values, ["5", "6", "7", "8", "9"], "{end}");
        // And once more over a checkpoint that has all of it.
        drop(client);
        let broker = broker.restart().await;
        let mut client = broker.client().await;
        assert_eq!(marks(&mut client, "t").await, (5, 11, 11), "{end}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a3a_a_producers_window_outlives_its_records() {
    let mut broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let (producer_id, epoch) = client.init_producer_id(None).await.unwrap();
    let batch = |sequence: i32| {
        let value = sequence.to_string();
        Batch::of(&[value])
            .producer(producer_id, epoch, sequence)
            .build()
    };
    assert_eq!(client.produce("t", 0, batch(0)).await, Ok(0));
    assert_eq!(client.produce("t", 0, batch(1)).await, Ok(1));
    assert_eq!(client.delete_records("t", 0, -1).await, Ok(2));
    for restarts in 0..2 {
        assert_eq!(client.produce("t", 0, batch(2)).await, Ok(2), "{restarts}");
        assert_eq!(client.produce("t", 0, batch(2)).await, Ok(2), "a repeat");
        let gap = client.produce("t", 0, batch(4)).await;
        assert_eq!(gap, Err(ErrorCode::OutOfOrderSequenceNumber));
        assert_eq!(client.delete_records("t", 0, -1).await, Ok(3));
        drop(client);
        broker = broker.restart().await;
        client = broker.client().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_topics_that_keep_theirs_are_not_deleted() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let policies = [
        ("compact", false),
        ("compact,delete", true),
        ("delete", true),
    ];
    for (n, (policy, may)) in policies.into_iter().enumerate() {
        let topic = format!("t{n}");
        let configs = [("cleanup.policy", policy)];
        client.create_topic_with(&topic, 1, &configs).await;
        let deleted = client.delete_records(&topic, 0, 0).await;
        let want = if may {
            Ok(0)
        } else {
            Err(ErrorCode::PolicyViolation)
        };
        assert_eq!(deleted, want, "{policy}");
    }
    for (topic, code) in [
        ("__consumer_offsets", ErrorCode::InvalidTopicException),
        ("__cluster_metadata", ErrorCode::UnknownTopicOrPartition),
        ("nobody", ErrorCode::UnknownTopicOrPartition),
    ] {
        assert_eq!(
            client.delete_records(topic, 0, 0).await,
            Err(code),
            "{topic}"
        );
    }
    let no_partition = client.delete_records("t2", 1, 0).await;
    assert_eq!(no_partition, Err(ErrorCode::UnknownTopicOrPartition));
}
