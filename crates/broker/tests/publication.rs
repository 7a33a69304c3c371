//! Publication is one store of one number: everything that a record did is visible at the same
//! instant, and whoever waits for it is woken by it, not by time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidemark_testkit::requests;
use tidemark_testkit::{
    Batch, Dialect, Isolation, RawClient, TestBroker, TxnProducer, fetched, produced, version,
};

const PARTITIONS: i32 = 8;

/// One record into each partition, and the commit.
async fn commit_everywhere(client: &mut RawClient, producer: &mut TxnProducer) {
    let partitions: Vec<(&str, i32)> = (0..PARTITIONS).map(|p| ("t", p)).collect();
    producer.enrol(client, &partitions).await.unwrap();
    let batches: Vec<_> = (0..PARTITIONS)
        .map(|p| ("t", p, producer.batch("t", p, &["x"]).build()))
        .collect();
    let request = requests::produce(Some(&producer.id), batches);
    let version = producer.dialect.produce_version();
    let answer = client.send(version, &request).await;
    assert!(produced(&answer).iter().all(Result::is_ok));
    producer.end_and_go_on(client, true).await.unwrap();
}

/// Commits in the background until told to stop, and counts.
struct Committer {
    stop: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Committer {
    async fn start(broker: &TestBroker, dialect: Dialect) -> Committer {
        let (stop, commits) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut client = broker.client().await;
        let mut producer = TxnProducer::init_in(&mut client, "commits", dialect).await;
        let task = tokio::spawn({
            let (stop, commits) = (stop.clone(), commits.clone());
            async move {
                while !stop.load(Ordering::Relaxed) {
                    commit_everywhere(&mut client, &mut producer).await;
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Committer {
            stop,
            commits,
            task,
        }
    }

    fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the committer had no trouble");
        self.commits.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t4_a_commit_moves_the_lso_of_all_its_partitions_at_the_same_instant() {
    for dialect in Dialect::BOTH {
        lsos_move_together(dialect).await;
    }
}

async fn lsos_move_together(dialect: Dialect) {
    let broker = TestBroker::start().await;
    let mut reader = broker.client().await;
    reader.create_topic("t", PARTITIONS).await;
    let committer = Committer::start(&broker, dialect).await;
    let mut seen = BTreeSet::new();
    let mut last = 0;
    let mut reads = 0;
    while reads < 1000 || committer.commits() < 100 {
        let stable = reader.ends("t", PARTITIONS, Isolation::ReadCommitted).await;
        assert_eq!(
            stable, [stable[0]; 8],
            "read {reads}: the partitions moved apart"
        );
        assert!(stable[0] >= last, "read {reads}: the LSO went back");
        assert_eq!(
            stable[0] % 2,
            0,
            "read {reads}: a record and its marker, or neither"
        );
        last = stable[0];
        seen.insert(last);
        reads += 1;
    }
    let commits = committer.stop().await;
    let stable = reader.ends("t", PARTITIONS, Isolation::ReadCommitted).await;
    assert_eq!(stable, [2 * commits as i64; 8]);
    assert!(
        seen.len() > 20,
        "the reads were not during the commits: {}",
        seen.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t4_a_fetch_over_all_partitions_sees_a_transaction_whole_or_not_at_all() {
    for dialect in Dialect::BOTH {
        fetches_are_whole(dialect).await;
    }
}

async fn fetches_are_whole(dialect: Dialect) {
    let broker = TestBroker::start().await;
    let mut reader = broker.client().await;
    reader.create_topic("t", PARTITIONS).await;
    let committer = Committer::start(&broker, dialect).await;
    let mut at = 0;
    let mut grown = 0;
    while grown < 50 || committer.commits() < 100 {
        let from: Vec<(i32, i64)> = (0..PARTITIONS).map(|p| (p, at)).collect();
        let request = requests::fetch("t", &from, Isolation::ReadCommitted);
        let answer = reader.send(version::FETCH, &request).await;
        let partitions = fetched(&answer);
        let records = partitions[0].records().len();
        for partition in &partitions {
            assert_eq!(partition.records().len(), records, "a transaction was torn");
            assert_eq!(
                partition.last_stable_offset,
                partitions[0].last_stable_offset
            );
            assert_eq!(partition.aborted, Some(Vec::new()));
        }
        if let Some(next) = partitions[0].next_offset() {
            at = next;
            grown += 1;
        }
    }
    committer.stop().await;
}

/// Read your commit: the fetch that follows the answer, on another connection, brings the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t14_a_commit_is_read_as_soon_as_it_is_answered() {
    for dialect in Dialect::BOTH {
        let broker = TestBroker::start().await;
        let (mut writer, mut reader) = (broker.client().await, broker.client().await);
        writer.create_topic("t", 1).await;
        let mut producer = TxnProducer::init_in(&mut writer, "tx", dialect).await;
        for round in 0..500 {
            producer.enrol(&mut writer, &[("t", 0)]).await.unwrap();
            let value = format!("{round}");
            let sent = producer.send(&mut writer, "t", 0, &[&value]).await;
            assert_eq!(sent, Ok(2 * round));
            producer.end_and_go_on(&mut writer, true).await.unwrap();
            let seen = (reader
                .fetch("t", 0, 2 * round, Isolation::ReadCommitted)
                .await)
                .committed();
            let seen: Vec<String> = seen.iter().map(|record| record.text()).collect();
            assert_eq!(seen, [value], "{dialect:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_holds_its_own_partition_only() {
    const HELD: usize = 3;
    let broker = TestBroker::start().await;
    let mut reader = broker.client().await;
    reader.create_topic("t", PARTITIONS).await;
    let mut client = broker.client().await;
    let mut open = TxnProducer::init(&mut client, "open").await;
    open.enrol(&mut client, &[("t", HELD as i32)])
        .await
        .unwrap();
    let held_at = open
        .send(&mut client, "t", HELD as i32, &["open"])
        .await
        .unwrap();

    let committer = Committer::start(&broker, Dialect::Classic).await;
    let mut reads = 0;
    while reads < 1000 || committer.commits() < 100 {
        let stable = reader.ends("t", PARTITIONS, Isolation::ReadCommitted).await;
        let mut expected = [stable[0]; 8];
        expected[HELD] = held_at;
        assert_eq!(stable, expected, "read {reads}");
        reads += 1;
    }
    let commits = committer.stop().await as i64;
    let values = reader
        .read_values("t", HELD as i32, Isolation::ReadCommitted)
        .await;
    assert!(
        values.is_empty(),
        "held back by the open transaction: {values:?}"
    );

    // Its end lets all of them go at once.
    open.end(&mut client, true).await.unwrap();
    let mut expected = [2 * commits; 8];
    expected[HELD] += 2;
    assert_eq!(
        reader.ends("t", PARTITIONS, Isolation::ReadCommitted).await,
        expected
    );
    let values = reader
        .read_values("t", HELD as i32, Isolation::ReadCommitted)
        .await;
    assert_eq!(values.len(), 1 + commits as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_transactions_let_the_lso_go_to_the_next_open_one() {
    let broker = TestBroker::start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 1).await;
    let mut first = TxnProducer::init(&mut c, "first").await;
    let mut second = TxnProducer::init(&mut c, "second").await;
    first.enrol(&mut c, &[("t", 0)]).await.unwrap();
    second.enrol(&mut c, &[("t", 0)]).await.unwrap();
    assert_eq!(first.send(&mut c, "t", 0, &["1a"]).await, Ok(0));
    assert_eq!(second.send(&mut c, "t", 0, &["2a"]).await, Ok(1));
    assert_eq!(first.send(&mut c, "t", 0, &["1b"]).await, Ok(2));
    assert_eq!(c.ends("t", 1, Isolation::ReadCommitted).await, [0]);
    first.end(&mut c, true).await.unwrap();
    assert_eq!(c.ends("t", 1, Isolation::ReadCommitted).await, [1]);
    assert_eq!(
        c.read_values("t", 0, Isolation::ReadCommitted).await,
        ["1a"]
    );
    second.end(&mut c, false).await.unwrap();
    assert_eq!(c.ends("t", 1, Isolation::ReadCommitted).await, [5]);
    assert_eq!(
        c.read_values("t", 0, Isolation::ReadCommitted).await,
        ["1a", "1b"]
    );
    let fetched = c.fetch("t", 0, 0, Isolation::ReadCommitted).await;
    assert_eq!(fetched.aborted, Some(vec![(second.producer_id, 1)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_fetch_is_woken_by_the_publication_that_satisfies_it() {
    let broker = TestBroker::start().await;
    let mut writer = broker.client().await;
    writer.create_topic("t", 2).await;
    let mut fetcher = broker.client().await;
    let mut other = broker.client().await;
    // The clock stands still: nothing but a publication can end a wait.
    for round in 0..50 {
        let request = requests::fetch("t", &[(0, round), (1, 0)], Isolation::ReadUncommitted)
            .with_max_wait_ms(60_000);
        let mut parked = fetcher.start_request(version::FETCH, &request).await;
        for _ in 0..5 {
            other.ends("t", 2, Isolation::ReadUncommitted).await;
        }
        assert!(!parked.is_answered(), "there is nothing to fetch");
        let value = format!("{round}");
        let batch = Batch::of(&[&value]).build();
        assert_eq!(writer.produce("t", 0, batch).await, Ok(round));
        let partitions = fetched(&parked.answer().await);
        assert_eq!(partitions[0].values(), [value]);
        assert!(partitions[1].batches.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_fetch_wakes_for_what_its_reader_may_see_and_not_before_it_is_durable() {
    let broker = TestBroker::start().await;
    let mut writer = broker.client().await;
    writer.create_topic("t", 2).await;
    let mut producer = TxnProducer::init(&mut writer, "tx").await;
    let mut fetcher = broker.client().await;
    let mut other = broker.client().await;
    let request =
        requests::fetch("t", &[(0, 0)], Isolation::ReadCommitted).with_max_wait_ms(60_000);
    let mut parked = fetcher.start_request(version::FETCH, &request).await;

    producer.enrol(&mut writer, &[("t", 0)]).await.unwrap();
    producer.send(&mut writer, "t", 0, &["x"]).await.unwrap();
    for _ in 0..20 {
        other.ends("t", 2, Isolation::ReadUncommitted).await;
        assert!(!parked.is_answered(), "the transaction is open");
    }

    let held = broker.hold_syncs_behind_a_record(&mut other, "t", 1).await;
    let request = requests::end_txn("tx", producer.producer(), true);
    let end = writer.start_request(version::END_TXN, &request).await;
    let mut third = broker.client().await;
    for _ in 0..20 {
        third.ends("t", 2, Isolation::ReadUncommitted).await;
        assert!(!parked.is_answered(), "the commit is not durable");
    }
    broker.disk().release_syncs();
    held.answer().await;
    assert_eq!(end.answer().await.error_code, 0);
    let partitions = fetched(&parked.answer().await);
    assert_eq!(partitions[0].committed().len(), 1);
    assert_eq!(partitions[0].last_stable_offset, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_fetch_ends_at_its_deadline_with_empty_records() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let mut other = broker.client().await;
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let request = requests::fetch("t", &[(0, 0)], isolation).with_max_wait_ms(500);
        let mut parked = client.start_request(version::FETCH, &request).await;
        // The deadline is counted from when the fetch is looked at, so time moves in steps.
        let mut steps = 0;
        while !parked.is_answered() {
            other.ends("t", 1, isolation).await;
            broker.clock().advance_ms(100);
            steps += 1;
            assert!(steps < 10_000, "the deadline never came");
        }
        assert!(steps >= 5, "answered after {steps} steps of 100 ms");
        let answer = parked.answer().await;
        assert_eq!(
            answer.responses[0].partitions[0].records,
            Some(bytes::Bytes::new()),
            "empty, not null: librdkafka's -e needs it"
        );
    }
}
