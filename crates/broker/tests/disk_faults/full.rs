//! A full disk: data is refused at once and retriably, everything else goes on, and it heals without a
//! restart.

use kafka_protocol::messages::{GroupId, HeartbeatRequest};
use tidemark_disk::SimDisk;
use tidemark_testkit::requests::text;
use tidemark_testkit::{Isolation, PATIENCE, RawClient, TestBroker, TxnProducer, within};
use tidemark_types::ErrorCode;

use super::{number, produce, small};

/// Fills the disk: nothing more can be had. What was acknowledged until data was refused.
async fn fill(client: &mut RawClient, disk: &SimDisk, next: &mut usize) -> Vec<usize> {
    disk.set_capacity(Some(disk.used_bytes()));
    let mut acked = Vec::new();
    // Far more than journal and tail take.
    for _ in 0..1_000 {
        *next += 1;
        let answer = within("a full disk refuses at once", produce(client, "t", *next)).await;
        match answer {
            Ok(_) => acked.push(*next),
            Err(error) => {
                // Kafka's code for a disk that cannot be written; clients try again.
                assert_eq!(error, ErrorCode::KafkaStorageError);
                return acked;
            }
        }
    }
    panic!("fifty MB were taken on a full disk");
}

/// Asks until data is taken again.
async fn until_taken(client: &mut RawClient, next: &mut usize) -> usize {
    let until = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < until {
        *next += 1;
        match produce(client, "t", *next).await {
            Ok(_) => return *next,
            Err(error) => assert_eq!(error, ErrorCode::KafkaStorageError),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("data is still refused");
}

async fn numbers(client: &mut RawClient) -> Vec<usize> {
    let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
    values.iter().map(|value| number(value)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_transactions_end_offsets_commit_and_reads_do_not_wait() {
    let broker = small().start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 1).await;
    c.create_topic("u", 1).await;
    let mut txn = TxnProducer::init(&mut c, "x").await;
    txn.enrol(&mut c, &[("u", 0)]).await.unwrap();
    txn.send(&mut c, "u", 0, &["in the transaction"])
        .await
        .unwrap();
    let mut next = 0;
    let mut acked = Vec::new();
    for _ in 0..30 {
        next += 1;
        produce(&mut c, "t", next).await.unwrap();
        acked.push(next);
    }
    acked.extend(fill(&mut c, broker.disk(), &mut next).await);

    // Ends of transactions, offsets: many times.
    txn.end(&mut c, true).await.unwrap();
    assert_eq!(
        c.read_values("u", 0, Isolation::ReadCommitted).await,
        ["in the transaction"]
    );
    for n in 0..50 {
        c.commit_offsets("g", &[("t", 0, n)]).await.unwrap();
        let again = TxnProducer::init(&mut c, "x").await;
        again.enrol(&mut c, &[("u", 0)]).await.unwrap();
        again.end(&mut c, false).await.unwrap();
    }
    assert_eq!(c.committed_offset("g", "t", 0, true).await, Ok(49));
    assert_eq!(numbers(&mut c).await, acked);
    let refused = produce(&mut c, "t", 0).await;
    assert_eq!(refused, Err(ErrorCode::KafkaStorageError));

    // Space comes back from outside.
    broker.disk().set_capacity(None);
    acked.push(until_taken(&mut c, &mut next).await);
    for _ in 0..100 {
        next += 1;
        produce(&mut c, "t", next).await.unwrap();
        acked.push(next);
    }
    assert_eq!(numbers(&mut c).await, acked);
    let broker = broker.crash(5).await.start().await;
    let mut c = broker.client().await;
    assert_eq!(numbers(&mut c).await, acked);
    assert_eq!(c.committed_offset("g", "t", 0, true).await, Ok(49));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_relieved_by_deleting_a_topic() {
    let broker = small().start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 1).await;
    c.create_topic("doomed", 1).await;
    for n in 0..120 {
        produce(&mut c, "doomed", n).await.unwrap();
    }
    let mut next = 0;
    let mut acked = fill(&mut c, broker.disk(), &mut next).await;
    within("DeleteTopics on a full disk", c.delete_topic("doomed")).await;
    // Six megabytes come free, without a restart and without any more space.
    acked.push(until_taken(&mut c, &mut next).await);
    for _ in 0..40 {
        next += 1;
        produce(&mut c, "t", next).await.unwrap();
        acked.push(next);
    }
    assert_eq!(numbers(&mut c).await, acked);
    let broker = broker.crash(6).await.start().await;
    assert_eq!(numbers(&mut broker.client().await).await, acked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_even_the_reserve_is_used_up_what_writes_nothing_is_answered_at_once() {
    let broker = small().start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 1).await;
    c.commit_offsets("g", &[("t", 0, 7)]).await.unwrap();
    let mut next = 0;
    let acked = fill(&mut c, broker.disk(), &mut next).await;
    // Requests that write take the reserve until there is none left; then they wait.
    let mut writer = broker.client().await;
    let mut stuck = None;
    for n in 0..20_000 {
        let offsets: Vec<_> = (0..200).map(|_| ("t", 0, n)).collect();
        let request = tidemark_testkit::requests::offset_commit("big", &offsets);
        let mut waiting = writer
            .start_request(tidemark_testkit::version::OFFSET_COMMIT, &request)
            .await;
        for _ in 0..200 {
            if waiting.is_answered() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        if !waiting.is_answered() {
            stuck = Some(waiting);
            break;
        }
        waiting.answer().await;
    }
    if stuck.is_none() {
        // Checkpoints relieved the journal each time: there is nothing to wait for.
        return;
    }
    // The clock stands still: whatever waits for room waits for ever.
    let offset = within("OffsetFetch", c.committed_offset("g", "t", 0, true)).await;
    assert_eq!(offset, Ok(7));
    let heartbeat = HeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_generation_id(1)
        .with_member_id(text("nobody"));
    let beat = within("Heartbeat", c.send(4, &heartbeat)).await;
    assert_eq!(beat.error_code, ErrorCode::UnknownMemberId.code());
    assert_eq!(within("Fetch", numbers(&mut c)).await, acked);
    broker.disk().set_capacity(None);
    within(
        "the one that waited",
        stuck.expect("looked at above").answer(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_starts_stops_and_starts_again_on_a_full_disk() {
    let broker = small().start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 1).await;
    let mut next = 0;
    for _ in 0..30 {
        next += 1;
        produce(&mut c, "t", next).await.unwrap();
    }
    let acked: Vec<usize> = (1..=next)
        .chain(fill(&mut c, broker.disk(), &mut next).await)
        .collect();
    let capacity = broker.disk().used_bytes();
    let mut broker = broker;
    for kill in [false, true, false] {
        let stopped = match kill {
            true => broker.kill().await,
            false => broker.stop().await,
        };
        stopped.disk().set_capacity(Some(capacity));
        broker = stopped.start().await;
        let mut c = broker.client().await;
        assert_eq!(numbers(&mut c).await, acked, "killed: {kill}");
        c.commit_offsets("g", &[("t", 0, 1)]).await.unwrap();
    }
    broker.disk().set_capacity(None);
    let mut c = broker.client().await;
    until_taken(&mut c, &mut next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_directory_without_space_for_a_slot_starts_once_there_is_some() {
    let stopped = TestBroker::builder();
    let disk = stopped.disk().clone();
    disk.set_capacity(Some(1 << 20));
    let starting = tokio::spawn(stopped.start());
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    disk.set_capacity(None);
    let broker = within("the start", starting).await.expect("it starts");
    broker.client().await.create_topic("t", 1).await;
}
