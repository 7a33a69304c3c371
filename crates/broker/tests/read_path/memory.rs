//! Budgets of memory, counted in bytes: requests from their first byte, answers to those who do not
//! read them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidemark_broker::ConnectionInfo;
use tidemark_testkit::{Batch, Isolation, RawClient, TestBroker, eventually, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// What a client and the broker's side of its connection may hold between them without anybody
/// having read it.
const PIPE_BYTES: usize = 16 << 10;

/// A connection whose both sides the test holds in its hands.
fn pipe(broker: &TestBroker) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    broker.broker().serve(theirs, info(broker));
    ours
}

fn info(broker: &TestBroker) -> ConnectionInfo {
    ConnectionInfo {
        sasl: None,
        principal: Arc::from("User:ANONYMOUS"),
        peer: SocketAddr::from(([127, 0, 0, 1], 1)),
        local: broker.address(),
        listener: Arc::from("PLAINTEXT"),
        advertised: None,
        id: Default::default(),
    }
}

/// TLS keeps what the socket does not take at once until it is flushed, as this buffer keeps all.
#[tokio::test]
async fn an_answer_does_not_stay_in_a_buffer_below() {
    let broker = TestBroker::start().await;
    let (mut ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let buffered = tokio::io::BufStream::new(theirs);
    broker.broker().serve(buffered, info(&broker));
    ours.write_all(&frame(18, 0, &[])).await.unwrap();
    let answer = within("an answer", answer(&mut ours)).await;
    assert_eq!(answer[..4], 7i32.to_be_bytes());
}

/// A frame without a client id.
fn frame(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = (10 + body.len() as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(&api_key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&7i32.to_be_bytes());
    frame.extend_from_slice(&(-1i16).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// Fetch v4 of partition 0 of `t` from its start.
fn fetch(max_bytes: i32) -> Vec<u8> {
    let mut body = Vec::new();
    for field in [-1, 0, 1, max_bytes] {
        body.extend_from_slice(&i32::to_be_bytes(field));
    }
    body.push(0);
    body.extend_from_slice(&1i32.to_be_bytes());
    body.extend_from_slice(&[0, 1, b't']);
    for field in [1, 0] {
        body.extend_from_slice(&i32::to_be_bytes(field));
    }
    body.extend_from_slice(&0i64.to_be_bytes());
    body.extend_from_slice(&max_bytes.to_be_bytes());
    frame(1, 4, &body)
}

async fn answer(pipe: &mut DuplexStream) -> Vec<u8> {
    let len = pipe.read_i32().await.unwrap();
    let mut answer = vec![0; len as usize];
    pipe.read_exact(&mut answer).await.unwrap();
    answer
}

/// A request of so many bytes that asks for little: Produce v3 to a topic that does not exist.
fn padded(bytes: usize) -> Vec<u8> {
    let mut body = (-1i16).to_be_bytes().to_vec();
    body.extend_from_slice(&1i16.to_be_bytes());
    for field in [1000, 1] {
        body.extend_from_slice(&i32::to_be_bytes(field));
    }
    body.extend_from_slice(&[0, 2, b'n', b'o']);
    let records = bytes - 14 - body.len() - 12;
    for field in [1, 0, records as i32] {
        body.extend_from_slice(&i32::to_be_bytes(field));
    }
    body.resize(body.len() + records, 0);
    let padded = frame(0, 3, &body);
    assert_eq!(padded.len(), bytes);
    padded
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_frames_count_from_their_first_bytes_and_never_lock_each_other_out() {
    const BUDGET: u64 = 1 << 20;
    const FRAME: usize = 400 << 10;
    let broker = TestBroker::builder()
        .set("request.memory.bytes", BUDGET)
        .start()
        .await;
    // Ten requests of 400 KiB, of each nearly all but never the end: four times the budget.
    let sent = padded(FRAME);
    let mut pipes: Vec<DuplexStream> = (0..10).map(|_| pipe(&broker)).collect();
    let mut writing = Vec::new();
    for mut pipe in pipes.drain(..) {
        let (sent, (to, gate)) = (sent.clone(), tokio::sync::oneshot::channel::<()>());
        let task = tokio::spawn(async move {
            pipe.write_all(&sent[..FRAME - 1000]).await.unwrap();
            gate.await.unwrap();
            pipe.write_all(&sent[FRAME - 1000..]).await.unwrap();
            answer(&mut pipe).await.len()
        });
        writing.push((to, task));
    }
    let bound = BUDGET + FRAME as u64;
    eventually("the budget is used up", || {
        broker.broker().memory_in_use().request_bytes > BUDGET / 2
    })
    .await;
    assert!(broker.broker().memory_in_use().request_bytes <= bound);
    let mut tasks = Vec::new();
    // From the last to the first: whichever goes on, all of them end.
    for (gate, task) in writing.into_iter().rev() {
        gate.send(()).unwrap();
        tasks.push(task);
    }
    for task in tasks {
        let answered = within("every request is answered", task).await.unwrap();
        assert!(answered > 10);
        assert!(broker.broker().memory_in_use().request_bytes <= bound);
    }
    eventually("all of it is given back", || {
        broker.broker().memory_in_use().request_bytes == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_in_the_middle_makes_room_for_who_waits() {
    const FRAME: usize = 700 << 10;
    let broker = TestBroker::builder()
        .set("request.memory.bytes", 1 << 20)
        .start()
        .await;
    let sent = padded(FRAME);
    // The first holds most of the budget, the second is the one that may go on beyond it.
    let mut stopped = Vec::new();
    for _ in 0..2 {
        let mut pipe = pipe(&broker);
        within("its bytes are taken", pipe.write_all(&sent[..FRAME - 1000]))
            .await
            .unwrap();
        stopped.push(pipe);
    }
    let mut waiting = pipe(&broker);
    let writes = async {
        waiting.write_all(&sent).await.unwrap();
        answer(&mut waiting).await.len()
    };
    tokio::pin!(writes);
    let clock = broker.clock().clone();
    let turned = async {
        loop {
            // The clock moves until the stopped ones are given up; nothing else needs it to.
            clock.advance(Duration::from_secs(11));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let answered = tokio::select! {
        answered = within("the waiting request is answered", &mut writes) => answered,
        () = turned => unreachable!(),
    };
    assert!(answered > 10);
}

async fn filled(broker: &TestBroker, batches: usize, value_bytes: usize) -> RawClient {
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    for n in 0..batches {
        let batch = Batch::of(&[vec![n as u8; value_bytes]]).build();
        client.produce("t", 0, batch).await.unwrap();
    }
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_one_answer() {
    const BATCH: usize = 100_000;
    let broker = TestBroker::start().await;
    let mut client = filled(&broker, 60, BATCH).await;
    let mut silent = pipe(&broker);
    // Fifty answers of 2 MB each are asked for, none is read.
    for _ in 0..50 {
        silent.write_all(&fetch(2_000_000)).await.unwrap();
    }
    let in_use = || broker.broker().memory_in_use().fetch_bytes;
    eventually("the first answer is being written", || in_use() > 0).await;
    for _ in 0..20 {
        // Others are served meanwhile.
        client.ends("t", 1, Isolation::ReadUncommitted).await;
        assert!(in_use() <= 2_000_000 + (1 << 20), "{}", in_use());
    }
    drop(silent);
    eventually("it is given back", || in_use() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_do_not_read_get_smaller_answers_and_who_reads_gets_everything() {
    const BATCH: usize = 50_000;
    const BUDGET: u64 = 1 << 20;
    let broker = TestBroker::builder()
        .set("fetch.memory.bytes", BUDGET)
        .start()
        .await;
    let mut client = filled(&broker, 40, BATCH).await;
    let mut silent: Vec<DuplexStream> = Vec::new();
    for _ in 0..30 {
        let mut pipe = pipe(&broker);
        for _ in 0..3 {
            pipe.write_all(&fetch(10_000_000)).await.unwrap();
        }
        silent.push(pipe);
    }
    let in_use = || broker.broker().memory_in_use().fetch_bytes;
    eventually("their answers are being written", || in_use() > BUDGET).await;
    // A budget, and one batch for each who came when it was used up.
    let bound = BUDGET + 31 * (BATCH as u64 + 200);
    let records = client.read_all("t", 0, Isolation::ReadUncommitted).await;
    assert_eq!(records.len(), 40);
    assert!(in_use() <= bound, "{} of {bound}", in_use());
    // Those who read in the end get whole batches, too.
    for pipe in &mut silent {
        for _ in 0..3 {
            assert!(answer(pipe).await.len() > BATCH);
        }
    }
    eventually("it is given back", || in_use() == 0).await;
}
