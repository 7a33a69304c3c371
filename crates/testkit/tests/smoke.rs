//! The testkit itself: a broker starts, is written to and read, loses its power, starts again.

use tidemark_testkit::{Batch, Isolation, TestBroker, TxnProducer, requests};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_serves_loses_its_power_and_serves_again() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 2).await;
    assert_eq!(
        client.produce("t", 0, Batch::of(&["a", "b"]).build()).await,
        Ok(0)
    );
    let mut producer = TxnProducer::init(&mut client, "tx").await;
    producer.enrol(&mut client, &[("t", 1)]).await.unwrap();
    assert_eq!(producer.send(&mut client, "t", 1, &["c"]).await, Ok(0));
    assert!(
        client
            .read_values("t", 1, Isolation::ReadCommitted)
            .await
            .is_empty()
    );
    producer.end(&mut client, true).await.unwrap();
    let cluster_id = client.cluster_id().await;

    let broker = broker.crash(3).await.start().await;
    let mut client = broker.client().await;
    assert_eq!(client.cluster_id().await, cluster_id);
    assert_eq!(
        client.read_values("t", 0, Isolation::ReadUncommitted).await,
        ["a", "b"]
    );
    assert_eq!(
        client.read_values("t", 1, Isolation::ReadCommitted).await,
        ["c"]
    );
    assert_eq!(client.ends("t", 2, Isolation::ReadCommitted).await, [2, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_syncs_hold_answers_and_a_duplex_serves_like_tcp() {
    let broker = TestBroker::start().await;
    let mut client = broker.client_from("10.1.2.3:4567".parse().unwrap());
    client.create_topic("t", 1).await;
    broker.disk().hold_syncs();
    let request = requests::produce(None, [("t", 0, Batch::of(&["x"]).build())]);
    let mut produce = client.start_request(9, &request).await;
    let mut other = broker.client().await;
    for _ in 0..20 {
        assert_eq!(other.ends("t", 1, Isolation::ReadUncommitted).await, [0]);
    }
    assert!(!produce.is_answered());
    broker.disk().release_syncs();
    produce.answer().await;
    assert_eq!(other.ends("t", 1, Isolation::ReadUncommitted).await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_of_nonsense_closes_its_connection() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.send_frame(&[0x7f, 0xff, 0, 0, 0, 0, 0, 1]).await;
    client.closed().await;
    assert!(client.next_frame().await.is_none());
    broker.client().await.create_topic("t", 1).await;
    let broker = broker.restart().await;
    assert_eq!(
        broker
            .client()
            .await
            .ends("t", 1, Isolation::ReadCommitted)
            .await,
        [0]
    );
}
