//! What a broker that was restarted still knows, and what its clients see meanwhile.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kafka_protocol::messages::ListOffsetsResponse;
use tidemark_testkit::{
    Batch, Dialect, InFlight, Isolation, RawClient, TestBroker, TxnProducer, eventually, produced,
    requests, version,
};
use tidemark_types::ErrorCode;
use tokio::net::{TcpListener, TcpStream};

use crate::support::in_both_dialects;

/// A port that nobody is given by chance while the broker is down: below the range that the system
/// hands out.
async fn a_port_of_its_own() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 8_000).expect("a remainder");
    for port in first..first + 2_000 {
        if TcpListener::bind(("127.0.0.1", port)).await.is_ok() {
            return port;
        }
    }
    panic!("no free port at {first} and above");
}

/// Asks for the last stable offset again and again, through restarts.
struct Poller {
    answers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<u64>,
}

impl Poller {
    fn start(address: SocketAddr, want: i64) -> Poller {
        let (answers, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let task = tokio::spawn(poll(address, want, answers.clone(), stop.clone()));
        Poller {
            answers,
            stop,
            task,
        }
    }

    /// Waits for one more answer than there were.
    async fn hears_again(&self) {
        let before = self.answers.load(Ordering::Relaxed);
        eventually("the poller hears of the offset", || {
            self.task.is_finished() || self.answers.load(Ordering::Relaxed) > before
        })
        .await;
    }

    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("no answer was wrong")
    }
}

/// Answers how often the broker could not be asked.
async fn poll(
    address: SocketAddr,
    want: i64,
    answers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> u64 {
    let mut client: Option<RawClient> = None;
    let mut not_there = 0;
    while !stop.load(Ordering::Relaxed) {
        let connected = match client.take() {
            Some(client) => Some(client),
            None => TcpStream::connect(address).await.ok().map(|stream| {
                let (reader, writer) = stream.into_split();
                RawClient::over(reader, writer)
            }),
        };
        let request = requests::list_offsets("t", [0], requests::LATEST, Isolation::ReadCommitted);
        let answer: Option<ListOffsetsResponse> = match connected {
            Some(mut connected) => {
                let answer = connected.try_send(version::LIST_OFFSETS, &request).await;
                client = answer.is_some().then_some(connected);
                answer
            }
            None => None,
        };
        let Some(answer) = answer else {
            not_there += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        let partition = &answer.topics[0].partitions[0];
        match requests::error_code(partition.error_code) {
            ErrorCode::None => {
                assert_eq!(partition.offset, want, "the last stable offset moved");
                answers.fetch_add(1, Ordering::Relaxed);
            }
            // What clients retry.
            ErrorCode::OffsetNotAvailable
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::LeaderNotAvailable => not_there += 1,
            other => panic!("ListOffsets answers {other:?}"),
        }
    }
    not_there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a8_the_last_stable_offset_never_moves_back_through_restarts() {
    in_both_dialects(a8_story).await;
}

async fn a8_story(dialect: Dialect) {
    let port = a_port_of_its_own().await;
    let listeners = format!("PLAINTEXT://127.0.0.1:{port}");
    let mut broker = TestBroker::builder()
        .set("listeners", listeners)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let values: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    assert_eq!(
        client.produce("t", 0, Batch::of(&values).build()).await,
        Ok(0)
    );
    let mut producer = TxnProducer::init_in(&mut client, "tx", dialect).await;
    producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
    assert_eq!(producer.send(&mut client, "t", 0, &["open"]).await, Ok(100));

    let poller = Poller::start(broker.address(), 100);
    for round in 0..30 {
        poller.hears_again().await;
        broker = match round % 3 {
            0 => broker.restart().await,
            _ => broker.crash(round).await.start().await,
        };
    }
    poller.hears_again().await;
    let not_there = poller.end().await;
    // A restart may fall between two polls; that none was felt would mean that nothing was tested.
    assert!(not_there > 0, "no restart was felt");

    let mut client = broker.client().await;
    assert_eq!(producer.end(&mut client, true).await, Ok(()));
    assert_eq!(client.ends("t", 1, Isolation::ReadCommitted).await, [102]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m4_no_producer_id_is_given_twice() {
    const RESTARTS: u64 = 100;
    let mut broker = TestBroker::start().await;
    let mut given = BTreeSet::new();
    for round in 0..RESTARTS {
        let mut client = broker.client().await;
        for n in 0..10 {
            // Of every kind: those of transactional ids come from the same source.
            let transactional = (n == 9).then(|| format!("tx-{round}"));
            let granted = client.init_producer_id(transactional.as_deref()).await;
            let (id, epoch) = granted.expect("a producer id is granted");
            assert_eq!(epoch, 0);
            assert!(given.insert(id), "{id} was given before round {round}");
        }
        broker = match round % 2 {
            0 => broker.crash(round).await.start().await,
            _ => broker.restart().await,
        };
    }
    assert_eq!(given.len() as u64, 10 * RESTARTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m18_a_transaction_survives_its_connections() {
    in_both_dialects(m18_story).await;
}

async fn m18_story(dialect: Dialect) {
    for cut_in_flight in [false, true] {
        let broker = TestBroker::start().await;
        let mut setup = broker.client().await;
        setup.create_topic("t", 1).await;
        let mut client = broker.client().await;
        let mut producer = TxnProducer::init_in(&mut client, "tx", dialect).await;
        producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
        for n in 0..5 {
            let sent = producer.send(&mut client, "t", 0, &[n.to_string()]).await;
            assert_eq!(sent, Ok(n));
        }
        let rest: Vec<_> = (5..10)
            .map(|n: i64| producer.batch("t", 0, &[n.to_string()]).build())
            .collect();
        if cut_in_flight {
            // Five requests leave, and no answer is waited for.
            let mut in_flight: Vec<InFlight<_>> = Vec::new();
            for batch in &rest {
                let request = requests::produce(Some("tx"), [("t", 0, batch.clone())]);
                in_flight.push(
                    client
                        .start_request(dialect.produce_version(), &request)
                        .await,
                );
            }
        }
        client.hang_up().await;

        let mut client = broker.client().await;
        for (offset, batch) in (5..).zip(rest) {
            let request = requests::produce(Some("tx"), [("t", 0, batch)]);
            let sent = client.send(dialect.produce_version(), &request).await;
            assert_eq!(produced(&sent), [Ok(offset)], "sent again, written once");
        }
        assert_eq!(client.ends("t", 1, Isolation::ReadCommitted).await, [0]);
        assert_eq!(producer.end(&mut client, true).await, Ok(()));
        let want: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let seen = client.read_values("t", 0, Isolation::ReadCommitted).await;
        assert_eq!(seen, want);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m18_a_batch_that_arrived_by_half_is_not_written() {
    let broker = TestBroker::start().await;
    let mut setup = broker.client().await;
    setup.create_topic("t", 1).await;
    let (id, epoch) = setup.init_producer_id(None).await.unwrap();
    let batch = |sequence: i32| {
        let value = format!("record {sequence}");
        Batch::of(&[value]).producer(id, epoch, sequence).build()
    };
    for sequence in 0..5 {
        let mut client = broker.client().await;
        // A whole request, and half of the next: the connection ends in the middle of it.
        let request = requests::produce(None, [("t", 0, batch(2 * sequence))]);
        let whole = client.start_request(version::PRODUCE, &request).await;
        let answer = whole.answer().await;
        assert_eq!(produced(&answer), [Ok(i64::from(2 * sequence))]);
        let half = batch(2 * sequence + 1);
        client.send_bytes(&1000i32.to_be_bytes()).await;
        client.send_bytes(&half[..half.len() / 2]).await;
        client.hang_up().await;
        let sent = setup.produce("t", 0, batch(2 * sequence + 1)).await;
        assert_eq!(sent, Ok(i64::from(2 * sequence + 1)));
    }
    assert_eq!(setup.ends("t", 1, Isolation::ReadUncommitted).await, [10]);
}
