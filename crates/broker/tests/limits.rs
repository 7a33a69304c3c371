//! Limits of connections: how many, how long idle, how many requests in flight, and in which order
//! they are answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::{ApiVersionsRequest, FetchRequest, FetchResponse, JoinGroupRequest};
use tidemark_broker::{ConnectionInfo, Limit};
use tidemark_testkit::{
    Batch, InFlight, Isolation, RawClient, TestBroker, eventually, fetched, produced, requests,
    version,
};
use tidemark_types::ErrorCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

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

        let limit = match setting {
            "max.connections" => Limit::Connections,
            _ => Limit::ConnectionsPerIp,
        };
        assert_eq!(broker.broker().reached(limit), 5);

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_that_connects_too_fast_is_closed_until_the_clock_has_moved() {
    let broker = TestBroker::builder()
        .set("max.connection.creation.rate.per.ip", 2)
        .start()
        .await;
    let mut clients = Vec::new();
    // Ten seconds' worth at once.
    for _ in 0..20 {
        clients.push(try_connect(&broker).await.expect("within the burst"));
    }
    for _ in 0..3 {
        assert!(try_connect(&broker).await.is_none());
    }
    assert_eq!(broker.broker().reached(Limit::CreationRatePerIp), 3);
    broker.clock().advance(Duration::from_millis(499));
    assert!(try_connect(&broker).await.is_none());
    broker.clock().advance(Duration::from_millis(1));
    assert!(try_connect(&broker).await.is_some());
    assert!(try_connect(&broker).await.is_none());
    // Those that are there are none of it.
    for client in &mut clients {
        client.send(0, &ApiVersionsRequest::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_rate_wait_for_their_turn() {
    let broker = TestBroker::builder()
        .set("max.connection.creation.rate", 1)
        .start()
        .await;
    let mut early = Vec::new();
    for _ in 0..10 {
        early.push(try_connect(&broker).await.expect("within the burst"));
    }
    // The system takes them, the broker does not look at them yet.
    let request = ApiVersionsRequest::default();
    let (mut first, mut second) = (broker.client().await, broker.client().await);
    let mut first = first.start_request(0, &request).await;
    let mut second = second.start_request(0, &request).await;
    reached(&broker, Limit::CreationRate, 1).await;
    early[0].send(0, &request).await;
    assert!(!first.is_answered() && !second.is_answered());
    broker.clock().advance(Duration::from_secs(1));
    first.answer().await;
    assert!(!second.is_answered());
    reached(&broker, Limit::CreationRate, 2).await;
    broker.clock().advance(Duration::from_secs(1));
    second.answer().await;
}

/// Waits until a limit was reached so often, and not more.
async fn reached(broker: &TestBroker, limit: Limit, times: u64) {
    eventually("the limit is reached", || {
        broker.broker().reached(limit) >= times
    })
    .await;
    assert_eq!(broker.broker().reached(limit), times, "{limit:?}");
}

/// A connection over a stream that holds `room` bytes in each direction, as bytes.
fn narrow(broker: &TestBroker, room: usize) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(room);
    let info = ConnectionInfo {
        peer: SocketAddr::from(([10, 0, 0, 66], 6666)),
        local: broker.address(),
        listener: Arc::from("PLAINTEXT"),
        principal: Arc::from("User:ANONYMOUS"),
        advertised: None,
        sasl: None,
        id: Default::default(),
    };
    broker.broker().serve(theirs, info);
    ours
}

/// A Fetch v4 of one partition from its start, as a frame.
fn fetch_frame(topic: &str) -> Vec<u8> {
    let mut body = vec![0, 1, 0, 4, 0, 0, 0, 7, 0xff, 0xff];
    // Replica, max wait, min bytes, max bytes, isolation.
    for field in [-1i32, 0, 0, i32::MAX] {
        body.extend_from_slice(&field.to_be_bytes());
    }
    body.push(0);
    body.extend_from_slice(&1i32.to_be_bytes());
    body.extend_from_slice(&(topic.len() as i16).to_be_bytes());
    body.extend_from_slice(topic.as_bytes());
    body.extend_from_slice(&1i32.to_be_bytes());
    body.extend_from_slice(&0i32.to_be_bytes());
    body.extend_from_slice(&0i64.to_be_bytes());
    body.extend_from_slice(&i32::MAX.to_be_bytes());
    [&(body.len() as i32).to_be_bytes()[..], &body].concat()
}

/// Lets the broker's tasks run until they wait for a time; then passes it.
async fn pass(broker: &TestBroker, client: &mut RawClient, ms: u64) {
    for _ in 0..50 {
        client.send(0, &ApiVersionsRequest::default()).await;
        tokio::task::yield_now().await;
    }
    broker.clock().advance_ms(ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_take_an_answer_is_closed_and_who_takes_it_slowly_is_not() {
    let broker = TestBroker::builder()
        .set("response.write.timeout.ms", 10_000)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let value = "v".repeat(500_000);
    let batch = Batch::of(&[&value]).build();
    client.produce("t", 0, batch).await.unwrap();

    let mut slow = narrow(&broker, 1024);
    let mut stopped = narrow(&broker, 1024);
    for stream in [&mut slow, &mut stopped] {
        stream.write_all(&fetch_frame("t")).await.unwrap();
    }
    let mut taken = vec![0; 4];
    slow.read_exact(&mut taken).await.unwrap();
    let size = u32::from_be_bytes(taken[..4].try_into().unwrap()) as usize;
    assert!(size > 500_000);
    // 64 KiB and a little within each time is enough.
    let mut left = size;
    while left > 66 << 10 {
        let mut piece = vec![0; 66 << 10];
        slow.read_exact(&mut piece).await.unwrap();
        left -= piece.len();
        pass(&broker, &mut client, 9_000).await;
    }
    let mut rest = vec![0; left];
    slow.read_exact(&mut rest).await.unwrap();
    // The other one was closed long since: what it did not take is lost.
    let mut remains = Vec::new();
    stopped.read_to_end(&mut remains).await.unwrap();
    assert!(remains.len() <= 1024, "{}", remains.len());
    reached(&broker, Limit::ResponseWrite, 1).await;
    while broker.broker().memory_in_use().fetch_bytes != 0 {
        tokio::task::yield_now().await;
    }
    // The slow one goes on.
    slow.write_all(&fetch_frame("t")).await.unwrap();
    slow.read_exact(&mut vec![0; size + 4]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_finish_a_request_is_closed_and_who_sends_it_slowly_is_not() {
    let broker = TestBroker::builder()
        .set("request.read.timeout.ms", 10_000)
        .start()
        .await;
    let mut client = broker.client().await;
    let mut stopped: Vec<DuplexStream> = Vec::new();
    // In the middle of a size, of a small frame, of a large one.
    for begun in [
        &[0][..],
        &[0, 0, 0, 20, 0, 18, 0, 0],
        &[0, 80, 0, 0, 0, 0, 0, 9],
    ] {
        let mut stream = narrow(&broker, 1 << 20);
        stream.write_all(begun).await.unwrap();
        stopped.push(stream);
    }
    // Between two frames nobody is in a hurry.
    let mut idle = narrow(&broker, 1 << 20);
    let mut slow = narrow(&broker, 1 << 20);
    let size = 300 << 10;
    let mut frame = vec![0, 18, 0, 0, 0, 0, 0, 9, 0xff, 0xff];
    frame.resize(size, 0);
    slow.write_all(&(size as i32).to_be_bytes()).await.unwrap();
    for piece in frame.chunks(65 << 10) {
        slow.write_all(piece).await.unwrap();
        pass(&broker, &mut client, 9_000).await;
    }
    let mut answer = [0; 8];
    slow.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[4..], [0, 0, 0, 9]);
    for mut stream in stopped {
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0, "closed");
    }
    reached(&broker, Limit::RequestRead, 3).await;
    while broker.broker().memory_in_use().request_bytes != 0 {
        tokio::task::yield_now().await;
    }
    let request = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 9, 0xff, 0xff];
    idle.write_all(&request).await.unwrap();
    idle.read_exact(&mut answer).await.unwrap();
}

/// A Metadata v1 request that asks for one topic many times over: its bytes are kept until its turn.
fn many_topics(bytes: usize) -> Vec<u8> {
    let count = bytes / 3;
    let mut body = vec![0, 3, 0, 1, 0, 0, 0, 9, 0xff, 0xff];
    body.extend_from_slice(&(count as i32).to_be_bytes());
    for _ in 0..count {
        body.extend_from_slice(&[0, 1, b'x']);
    }
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_for_their_turn_stop_the_reading_of_more() {
    let broker = TestBroker::builder()
        .set("max.inflight.bytes.per.connection", 100_000)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("late", 1).await;
    let mut greedy = broker.client().await;
    let parked = greedy
        .start_request(version::FETCH, &long_poll("late", 60_000))
        .await;
    let request = many_topics(40_000);
    for _ in 0..20 {
        greedy.send_frame(&request).await;
    }
    reached(&broker, Limit::InflightBytes, 1).await;
    let read = |broker: &TestBroker| {
        let served = broker.broker().api_counts();
        let metadata = served.iter().find(|(key, v, _)| (*key, *v) == (3, 1));
        metadata.map_or(0, |(_, _, count)| *count)
    };
    for _ in 0..100 {
        client.send(0, &ApiVersionsRequest::default()).await;
        assert_eq!(read(&broker), 3, "the rest stays in the socket");
    }
    broker.clock().advance(Duration::from_millis(60_000));
    parked.answer().await;
    for _ in 0..20 {
        assert!(greedy.next_frame().await.is_some());
    }
    assert_eq!(read(&broker), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_have_so_much_memory_over_all_connections() {
    let broker = TestBroker::builder()
        .set("parked.request.memory.bytes", 8 << 20)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("late", 1).await;
    // Each parks a request of 100 KB behind a fetch that waits: half of what is left is for each.
    let request = many_topics(100_000);
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let mut other = broker.client().await;
        let parked = other
            .start_request(version::FETCH, &long_poll("late", 60_000))
            .await;
        other.send_frame(&request).await;
        greedy.push((other, parked));
    }
    // 1 MiB less eight of them leaves 248 KB: half of that is enough for a ninth, and no tenth.
    reached(&broker, Limit::ParkedRequests, 11).await;
    // Small requests and data are none of it.
    client.send(0, &ApiVersionsRequest::default()).await;
    assert_eq!(client.ends("late", 1, Isolation::ReadCommitted).await, [0]);
    let large = Batch::of(&["v".repeat(200_000)]).build();
    assert_eq!(client.produce("late", 0, large).await, Ok(0));
    let mut answered = 0;
    for (mut other, parked) in greedy {
        if parked.try_answer().await.is_some() {
            assert!(other.next_frame().await.is_some());
            answered += 1;
        }
    }
    assert_eq!(answered, 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_no_data_has_a_size_of_its_own() {
    let broker = TestBroker::builder()
        .set("control.request.max.bytes", 100_000)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let mut large = broker.client().await;
    large.send_frame(&many_topics(100_001)).await;
    large.closed().await;
    reached(&broker, Limit::ControlRequestSize, 1).await;
    client.send_frame(&many_topics(99_000)).await;
    assert!(client.next_frame().await.is_some());
    let data = Batch::of(&["v".repeat(200_000)]).build();
    assert_eq!(client.produce("t", 0, data).await, Ok(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_too_many_is_told_so_and_counted() {
    let broker = TestBroker::builder().set("group.max.size", 1).start().await;
    let mut client = broker.client().await;
    let join = || {
        let protocol =
            kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol::default()
                .with_name(requests::text("range"));
        JoinGroupRequest::default()
            .with_group_id(requests::text("g").into())
            .with_session_timeout_ms(10_000)
            .with_rebalance_timeout_ms(10_000)
            .with_protocol_type(requests::text("consumer"))
            .with_protocols(vec![protocol])
    };
    let first = client.send(3, &join()).await;
    assert_eq!(first.error_code, 0);
    let mut other = broker.client().await;
    let refused = other.send(3, &join()).await;
    assert_eq!(
        refused.error_code,
        ErrorCode::GroupMaxSizeReached.code(),
        "{refused:?}"
    );
    assert_eq!(broker.broker().reached(Limit::GroupSize), 1);
}
