//! What a reader sees of transactions: last stable offset, aborted transactions, isolation.

use tidemark_record_batch::ControlType;
use tidemark_testkit::{
    Batch, Dialect, Isolation, RawClient, TxnProducer, produced, requests, version,
};
use tidemark_types::ErrorCode;

use crate::support::{Target, in_both_dialects};

/// A committed transaction of two records at 0 and 1, its marker at 2, and an open one with a record
/// at 3. Answers the topic and the open transaction's producer.
async fn committed_and_open(
    target: &Target,
    client: &mut RawClient,
    dialect: Dialect,
) -> (String, TxnProducer) {
    let topic = target.topic(client, "t", 1).await;
    let id = target.name("tx");
    let mut producer = target.session_in(client, &id, dialect).await;
    target.begin(client, &producer, &[(&topic, 0)]).await;
    assert_eq!(producer.send(client, &topic, 0, &["a", "b"]).await, Ok(0));
    assert_eq!(producer.end_and_go_on(client, true).await, Ok(()));
    target.assert_ends(client, &topic, 0, (3, 3)).await;
    target.begin(client, &producer, &[(&topic, 0)]).await;
    assert_eq!(producer.send(client, &topic, 0, &["open"]).await, Ok(3));
    (topic, producer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a4_the_last_stable_offset_is_exclusive() {
    in_both_dialects(a4_story).await;
}

async fn a4_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let (topic, producer) = committed_and_open(&target, &mut client, dialect).await;
    let committed = Isolation::ReadCommitted;

    let fetched = client.fetch(&topic, 0, 0, committed).await;
    assert_eq!((fetched.last_stable_offset, fetched.high_watermark), (3, 4));
    assert_eq!(fetched.values(), ["a", "b"]);
    assert_eq!(fetched.aborted, Some(vec![]));
    assert_eq!(fetched.next_offset(), Some(3));
    let fetched = client.fetch(&topic, 0, 3, committed).await;
    assert_eq!(
        fetched.error,
        ErrorCode::None,
        "there is nothing yet, which is no error"
    );
    assert!(fetched.batches.is_empty());

    assert_eq!(producer.end(&mut client, false).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (5, 5)).await;
    let fetched = client.fetch(&topic, 0, 3, committed).await;
    assert_eq!((fetched.last_stable_offset, fetched.high_watermark), (5, 5));
    assert_eq!(fetched.aborted, Some(vec![(producer.producer_id, 3)]));
    assert!(fetched.committed().is_empty());
    assert_eq!(fetched.next_offset(), Some(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a5_read_uncommitted_is_raw() {
    in_both_dialects(a5_story).await;
}

async fn a5_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let mut producer = target
        .session_in(&mut client, &target.name("tx"), dialect)
        .await;
    target.begin(&mut client, &producer, &[(&topic, 0)]).await;
    assert_eq!(
        producer.send(&mut client, &topic, 0, &["gone"]).await,
        Ok(0)
    );
    assert_eq!(producer.end(&mut client, false).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (2, 2)).await;

    let raw = client.fetch(&topic, 0, 0, Isolation::ReadUncommitted).await;
    assert_eq!(raw.aborted, None);
    assert_eq!(raw.values(), ["gone"]);
    let filtered = client.fetch(&topic, 0, 0, Isolation::ReadCommitted).await;
    assert_eq!(filtered.aborted, Some(vec![(producer.producer_id, 0)]));
    assert!(filtered.committed().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_the_aborted_list_is_complete() {
    in_both_dialects(a6_story).await;
}

async fn a6_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let mut first = target
        .session_in(&mut client, &target.name("tx1"), dialect)
        .await;
    let mut second = target
        .session_in(&mut client, &target.name("tx2"), dialect)
        .await;
    for offset in 0..2 {
        let plain = Batch::of(&["plain"]).build();
        assert_eq!(client.produce(&topic, 0, plain).await, Ok(offset));
    }
    target.begin(&mut client, &first, &[(&topic, 0)]).await;
    target.begin(&mut client, &second, &[(&topic, 0)]).await;
    assert_eq!(first.send(&mut client, &topic, 0, &["of 1"]).await, Ok(2));
    let plain = Batch::of(&["between"]).build();
    assert_eq!(client.produce(&topic, 0, plain).await, Ok(3));
    assert_eq!(second.send(&mut client, &topic, 0, &["of 2"]).await, Ok(4));
    assert_eq!(first.end(&mut client, false).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (4, 6)).await;
    assert_eq!(second.end(&mut client, false).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (7, 7)).await;

    let both = vec![(first.producer_id, 2), (second.producer_id, 4)];
    let fetched = client.fetch(&topic, 0, 2, Isolation::ReadCommitted).await;
    let mut aborted = fetched.aborted.clone().unwrap();
    aborted.sort_by_key(|(_, first)| *first);
    assert_eq!(aborted, both);
    let delivered: Vec<i64> = fetched.committed().iter().map(|r| r.offset).collect();
    assert_eq!(delivered, [3]);
    assert_eq!(fetched.next_offset(), Some(7));

    // From the first marker on: both transactions have a marker there or later.
    let fetched = client.fetch(&topic, 0, 5, Isolation::ReadCommitted).await;
    let aborted = fetched.aborted.clone().unwrap();
    assert!(
        aborted.iter().all(|entry| both.contains(entry)),
        "{aborted:?}"
    );
    assert!(fetched.committed().is_empty());
    assert_eq!(fetched.next_offset(), Some(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a7_the_latest_offset_of_a_committed_reader_is_the_last_stable_one() {
    in_both_dialects(a7_story).await;
}

async fn a7_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let (topic, _producer) = committed_and_open(&target, &mut client, dialect).await;
    target.assert_ends(&mut client, &topic, 0, (3, 4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a7_a_record_of_an_open_transaction_is_not_found_by_its_time() {
    in_both_dialects(a7_story_2).await;
}

async fn a7_story_2(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let time = tidemark_testkit::WALL_START_MS;
    let early = Batch::of(&["early"]).at(time).build();
    assert_eq!(client.produce(&topic, 0, early).await, Ok(0));
    let mut producer = target
        .session_in(&mut client, &target.name("tx"), dialect)
        .await;
    target.begin(&mut client, &producer, &[(&topic, 0)]).await;
    let late = producer.batch(&topic, 0, &["late"]).at(time + 1000).build();
    let request = requests::produce(Some(&producer.id), [(&topic, 0, late)]);
    let answer = client.send(dialect.produce_version(), &request).await;
    assert_eq!(produced(&answer), [Ok(1)]);

    for (timestamp, isolation, want) in [
        (time + 1, Isolation::ReadUncommitted, (0, 1, time + 1000)),
        (time + 1, Isolation::ReadCommitted, (0, -1, -1)),
        (time, Isolation::ReadCommitted, (0, 0, time)),
    ] {
        let request = requests::list_offsets(&topic, [0], timestamp, isolation);
        let response = client.send(version::LIST_OFFSETS, &request).await;
        let found = &response.topics[0].partitions[0];
        let found = (found.error_code, found.offset, found.timestamp);
        assert_eq!(found, want, "{timestamp} {isolation:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m9_plain_records_behind_an_open_transaction_wait_for_it() {
    in_both_dialects(m9_story).await;
}

async fn m9_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let mut producer = target
        .session_in(&mut client, &target.name("tx"), dialect)
        .await;
    target.begin(&mut client, &producer, &[(&topic, 0)]).await;
    let plain = |value: &str| Batch::of(&[value]).build();
    assert_eq!(client.produce(&topic, 0, plain("p0")).await, Ok(0));
    assert_eq!(producer.send(&mut client, &topic, 0, &["x"]).await, Ok(1));
    assert_eq!(client.produce(&topic, 0, plain("p2")).await, Ok(2));

    target.assert_ends(&mut client, &topic, 0, (1, 3)).await;
    let committed = client
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert_eq!(committed, ["p0"]);
    let raw = client
        .read_values(&topic, 0, Isolation::ReadUncommitted)
        .await;
    assert_eq!(raw, ["p0", "x", "p2"]);

    assert_eq!(producer.end(&mut client, true).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (4, 4)).await;
    let fetched = client.fetch(&topic, 0, 1, Isolation::ReadCommitted).await;
    assert_eq!(fetched.values(), ["x", "p2"]);
    let marker = (producer.producer_id, 3, ControlType::Commit);
    assert_eq!(fetched.markers(), [marker]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m11_interleaved_transactions_end_each_for_itself() {
    in_both_dialects(m11_story).await;
}

async fn m11_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let mut a = target
        .session_in(&mut client, &target.name("a"), dialect)
        .await;
    let mut b = target
        .session_in(&mut client, &target.name("b"), dialect)
        .await;
    target.begin(&mut client, &a, &[(&topic, 0)]).await;
    target.begin(&mut client, &b, &[(&topic, 0)]).await;
    assert_eq!(a.send(&mut client, &topic, 0, &["a1"]).await, Ok(0));
    assert_eq!(b.send(&mut client, &topic, 0, &["b1"]).await, Ok(1));
    assert_eq!(a.send(&mut client, &topic, 0, &["a2"]).await, Ok(2));
    assert_eq!(a.end(&mut client, false).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (1, 4)).await;
    assert_eq!(b.end(&mut client, true).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (5, 5)).await;

    let fetched = client.fetch(&topic, 0, 0, Isolation::ReadCommitted).await;
    let delivered: Vec<String> = fetched.committed().iter().map(|r| r.text()).collect();
    assert_eq!(delivered, ["b1"]);
    assert_eq!(fetched.aborted, Some(vec![(a.producer_id, 0)]));
    assert_eq!(
        fetched.markers(),
        [
            (a.producer_id, 3, ControlType::Abort),
            (b.producer_id, 4, ControlType::Commit),
        ]
    );
}
