//! Limits of connections: how many, how long idle, how many requests in flight, and in which order
//! they are answered.

use std::time::Duration;

use kafka_protocol::messages::{ApiVersionsRequest, FetchRequest, FetchResponse};
use tidemark_testkit::{
    Batch, InFlight, Isolation, RawClient, TestBroker, fetched, produced, requests, version,
};
use tidemark_types::ErrorCode;

/// A connection that is served, or that was closed at once.
async fn try_connect(broker: &TestBroker) -> Option<RawClient> {
    let mut client = broker.client().await;
    let answer = client.try_send(0, &ApiVersionsRequest::default()).await;
    answer.map(|_| client)
}

/// Connects as soon as there is room: the broker takes a moment to see that somebody left.
async fn connect_when_there_is_room(broker: &TestBroker) -> RawClient {
    for _ in 0..10_000 {
        if let Some(client) = try_connect(broker).await {
            return client;
        }
        tokio::task::yield_now().await;
    }
    panic!("a place was left, and nobody gets it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_too_many_is_closed_and_the_others_stay() {
    for setting in ["max.connections", "max.connections.per.ip"] {
        let broker = TestBroker::builder().set(setting, 3).start().await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(try_connect(&broker).await.expect("there is room"));
        }
        for _ in 0..5 {
            assert!(try_connect(&broker).await.is_none(), "{setting}");
        }
        for client in &mut clients {
            let answer = client.send(0, &ApiVersionsRequest::default()).await;
            assert_eq!(answer.error_code, 0, "{setting}");
        }

        // One leaves, one may come.
        clients.remove(0).hang_up().await;
        let newcomer = connect_when_there_is_room(&broker).await;
        assert!(try_connect(&broker).await.is_none(), "{setting}");
        drop(newcomer);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let broker = TestBroker::builder()
        .set("connections.max.idle.ms", 60_000)
        .start()
        .await;
    let mut idle = broker.client().await;
    let mut busy = broker.client().await;
    let mut waiting = broker.client().await;
    busy.create_topic("t", 1).await;
    idle.ends("t", 1, Isolation::ReadCommitted).await;
    // A request that is not answered yet: its connection is not idle.
    let mut parked = waiting
        .start_request(version::FETCH, &long_poll("t", 200_000))
        .await;

    for _ in 0..3 {
        broker.clock().advance(Duration::from_millis(29_999));
        assert_eq!(busy.ends("t", 1, Isolation::ReadCommitted).await, [0]);
        assert!(!parked.is_answered());
    }
    idle.closed().await;
    assert_eq!(busy.ends("t", 1, Isolation::ReadCommitted).await, [0]);
    assert!(!busy.is_closed() && !waiting.is_closed());

    let produced = busy.produce("t", 0, Batch::of(&["v"]).build()).await;
    assert_eq!(produced, Ok(0));
    assert_eq!(fetched(&parked.answer().await)[0].values(), ["v"]);
    broker.clock().advance(Duration::from_millis(60_000));
    busy.closed().await;
    waiting.closed().await;
}

/// A fetch at the end of a partition, that waits for a record.
fn long_poll(topic: &str, max_wait_ms: i32) -> FetchRequest {
    let request = requests::fetch(topic, &[(0, 0)], Isolation::ReadUncommitted);
    request.with_max_wait_ms(max_wait_ms)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_come_in_the_order_of_the_requests() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut other = broker.client().await;
    client.create_topic("t", 1).await;
    client.create_topic("late", 1).await;

    // A fetch that waits, and behind it what would be answered at once.
    let mut parked = client
        .start_request(version::FETCH, &long_poll("late", 60_000))
        .await;
    let mut behind: Vec<InFlight<_>> = Vec::new();
    for n in 0..20 {
        let batch = Batch::of(&[format!("v{n}")]).build();
        let request = requests::produce(None, [("t", 0, batch)]);
        behind.push(client.start_request(version::PRODUCE, &request).await);
    }
    // They are carried out in the meantime: only their answers wait.
    while other.ends("t", 1, Isolation::ReadUncommitted).await != [20] {
        tokio::task::yield_now().await;
    }
    assert!(!parked.is_answered());
    assert!(behind.iter_mut().all(|produce| !produce.is_answered()));

    broker.clock().advance(Duration::from_millis(60_000));
    let empty: FetchResponse = parked.answer().await;
    assert!(fetched(&empty)[0].batches.is_empty());
    for (offset, produce) in (0..).zip(behind) {
        assert_eq!(produced(&produce.answer().await), [Ok(offset)]);
    }
    let values = other.read_values("t", 0, Isolation::ReadUncommitted).await;
    let want: Vec<String> = (0..20).map(|n| format!("v{n}")).collect();
    assert_eq!(values, want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_written_in_order_whatever_each_takes() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    // Frames by hand, so that their order on the wire is seen: reads, writes, errors, in turn.
    for n in 0..200i32 {
        let correlation_id = 1_000_000 + n;
        let header = |key: i16, version: i16| {
            let mut frame = [key.to_be_bytes(), version.to_be_bytes()].concat();
            frame.extend_from_slice(&correlation_id.to_be_bytes());
            frame.extend_from_slice(&[0xff, 0xff]);
            frame
        };
        let frame = match n % 4 {
            0 => header(18, 0),
            // Metadata v0 of all topics.
            1 => [header(3, 0), vec![0; 4]].concat(),
            // InitProducerId v0 of an idempotent producer: written and synced.
            2 => [header(22, 0), vec![0xff, 0xff, 0, 0, 0x75, 0x30]].concat(),
            // EndTxn v0 of a transactional id that nobody has.
            _ => [header(26, 0), vec![0, 1, b'x'], vec![0; 11]].concat(),
        };
        client.send_frame(&frame).await;
    }
    for n in 0..200i32 {
        let answer = client
            .next_frame()
            .await
            .expect("every request is answered");
        let correlation_id = 1_000_000 + n;
        assert_eq!(answer[..4], correlation_id.to_be_bytes(), "the {n}th");
        if n % 4 == 3 {
            let code = i16::from_be_bytes([answer[8], answer[9]]);
            assert_eq!(code, ErrorCode::InvalidProducerIdMapping.code());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_requests_of_one_connection_are_in_flight() {
    let broker = TestBroker::builder()
        .set("max.inflight.requests.per.connection", 2)
        .start()
        .await;
    let mut client = broker.client().await;
    let mut other = broker.client().await;
    client.create_topic("t", 1).await;
    client.create_topic("late", 1).await;
    let parked = client
        .start_request(version::FETCH, &long_poll("late", 60_000))
        .await;
    let mut behind: Vec<InFlight<_>> = Vec::new();
    for n in 0..20 {
        let batch = Batch::of(&[format!("v{n}")]).build();
        let request = requests::produce(None, [("t", 0, batch)]);
        behind.push(client.start_request(version::PRODUCE, &request).await);
    }
    // One fetch is being answered, two requests wait behind it, one more was read: the rest stays
    // in the socket until there is room.
    while other.ends("t", 1, Isolation::ReadUncommitted).await != [3] {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        assert_eq!(other.ends("t", 1, Isolation::ReadUncommitted).await, [3]);
    }
    broker.clock().advance(Duration::from_millis(60_000));
    parked.answer().await;
    for (offset, produce) in (0..).zip(behind) {
        assert_eq!(produced(&produce.answer().await), [Ok(offset)]);
    }
}
