//! What is forgotten stays forgotten, and what is not is kept, over kills and starts.

use tidemark_testkit::{Batch, TestBroker, TxnProducer};
use tidemark_types::ErrorCode;

/// Everything for two seconds (offsets for a minute, the least there is), looked at every second.
fn short_lived() -> tidemark_testkit::StoppedBroker {
    TestBroker::builder()
        .set("producer.id.expiration.ms", 2_000)
        .set("producer.id.expiration.check.interval.ms", 1_000)
        .set("transactional.id.expiration.ms", 2_000)
        .set(
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            1_000,
        )
        .set("offsets.retention.minutes", 1)
        .set("offsets.retention.check.interval.ms", 1_000)
}

/// The owner looks at what it may forget between requests: asking is what lets time pass.
async fn asked_again(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..10_000 {
        if is_so().await {
            return;
        }
    }
    panic!("asked ten thousand times: not true that {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m19_a3_an_idle_producer_is_forgotten_over_a_kill_and_may_go_on() {
    let broker = short_lived().start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let (idle, epoch) = client.init_producer_id(None).await.unwrap();
    let idle_batch = |sequence| Batch::of(&["idle"]).producer(idle, epoch, sequence).build();
    for sequence in 0..2 {
        client.produce("t", 0, idle_batch(sequence)).await.unwrap();
    }
    let mut open = TxnProducer::init(&mut client, "tx").await;
    open.enrol(&mut client, &[("t", 0)]).await.unwrap();
    open.send(&mut client, "t", 0, &["open"]).await.unwrap();
    broker.clock().advance_ms(2_500);
    // A gap is refused while it is known, and accepted from then on.
    asked_again("the idle producer is forgotten", async || {
        client.produce("t", 0, idle_batch(7)).await != Err(ErrorCode::OutOfOrderSequenceNumber)
    })
    .await;
    let broker = broker.crash(3).await.start().await;
    let mut client = broker.client().await;
    // What was written since is in its window, the open transaction is whole.
    let again = client.produce("t", 0, idle_batch(7)).await;
    assert_eq!(again, Ok(3));
    let next = client.produce("t", 0, idle_batch(8)).await;
    assert_eq!(next, Ok(4));
    open.send(&mut client, "t", 0, &["open"]).await.unwrap();
    open.end(&mut client, true).await.unwrap();
    let (fresh, _) = client.init_producer_id(None).await.unwrap();
    assert!(fresh > open.producer_id && fresh > idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_transactional_id_and_its_groups_offsets_are_forgotten_over_a_kill() {
    let broker = short_lived().start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let first = TxnProducer::init(&mut client, "tx").await;
    client.commit_offsets("g", &[("t", 0, 5)]).await.unwrap();
    broker.clock().advance_ms(2_500);
    // Asked by what changes nothing while it is known: there is no transaction to end.
    asked_again("the id is forgotten", async || {
        first.end(&mut client, true).await == Err(ErrorCode::InvalidProducerIdMapping)
    })
    .await;
    assert_eq!(client.committed_offset("g", "t", 0, false).await, Ok(5));
    let broker = broker.crash(5).await.start().await;
    let mut client = broker.client().await;
    let second = TxnProducer::init(&mut client, "tx").await;
    assert!(second.producer_id > first.producer_id);
    assert_eq!(second.epoch, 0);
    broker.clock().advance_ms(60_000);
    asked_again("the offset is dropped", async || {
        client.committed_offset("g", "t", 0, false).await == Ok(-1)
    })
    .await;
}
