//! What things cost, counted: syncs, bytes, memory of who says nothing.

use std::path::Path;
use std::sync::Arc;

use tidemark_broker::ConnectionInfo;
use tidemark_disk::Disk;
use tidemark_testkit::{Batch, DATA_DIR, Isolation, RawClient, TestBroker, requests, version};

/// One after the other each send is synced for itself; in one batch they are synced once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m21_single_sends_cost_a_sync_each_and_a_batch_of_as_many_costs_one() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let values: Vec<String> = (0..400).map(|n| n.to_string()).collect();
    let before = broker.journal_stats();
    for value in &values {
        let batch = Batch::of(&[value]).build();
        client.produce("t", 0, batch).await.unwrap();
    }
    let singles = broker.journal_stats();
    assert_eq!(singles.syncs - before.syncs, 400);
    assert_eq!(singles.records - before.records, 400);
    client
        .produce("t", 0, Batch::of(&values).build())
        .await
        .unwrap();
    let batch = broker.journal_stats();
    assert_eq!(batch.syncs - singles.syncs, 1);
    assert_eq!(batch.records - singles.records, 1);
}

/// Who is connected and asks for nothing takes nothing of what others need.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m21_ten_thousand_idle_connections_hold_nothing_and_everybody_else_is_served() {
    const CONNECTIONS: usize = 10_000;
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS {
        // Within the process: what is counted is the broker's, not the system's open files.
        let (ours, theirs) = tokio::io::duplex(4096);
        let info = ConnectionInfo {
            sasl: None,
            principal: Arc::from("User:ANONYMOUS"),
            peer: "127.0.0.1:1".parse().unwrap(),
            local: broker.address(),
            listener: Arc::from("PLAINTEXT"),
            advertised: None,
            id: Default::default(),
        };
        broker.broker().serve(theirs, info);
        let (reader, writer) = tokio::io::split(ours);
        let mut client = RawClient::over(reader, writer);
        let request = requests::list_offsets("t", [0], requests::LATEST, Isolation::ReadCommitted);
        client.send(version::LIST_OFFSETS, &request).await;
        idle.push(client);
    }
    let held = broker.broker().memory_in_use();
    assert_eq!((held.request_bytes, held.fetch_bytes), (0, 0));
    let batch = Batch::of(&["served"]).build();
    assert_eq!(client.produce("t", 0, batch).await, Ok(0));
    // Each of them is served when it asks.
    for client in idle.iter_mut().step_by(997) {
        let batch = Batch::of(&["it was idle"]).build();
        assert!(client.produce("t", 0, batch).await.is_ok());
    }
    assert!(idle.iter().all(|client| !client.is_closed()));
}

/// A tick is 8 bytes of a frame, and an entry of 96 bytes a batch beside its segment; no write and no
/// sync of its own. What of the rate of a bare writer is left with it is `scripts/bench journal`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t16_ticks_cost_no_sync_and_less_than_a_hundredth_of_the_bytes() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let id = client.describe_topic("t").await.topic_id.to_string();
    // 16 records of 1 KiB, as a client sends them that has enough to send.
    let values = vec![vec![b'x'; 1024]; 16];
    let before = broker.journal_stats();
    for _ in 0..100 {
        client
            .produce("t", 0, Batch::of(&values).build())
            .await
            .unwrap();
    }
    let after = broker.journal_stats();
    assert_eq!(after.syncs - before.syncs, 100);
    assert_eq!(after.groups - before.groups, 100);
    broker.broker().checkpoint().await;
    let dir = Path::new(DATA_DIR).join("partitions");
    let (mut log_bytes, mut tick_bytes) = (0, 0);
    for entry in broker.disk().list(&dir).unwrap() {
        if !entry.name.starts_with(&id) {
            continue;
        }
        let dir = dir.join(entry.name);
        for file in broker.disk().list(&dir).unwrap() {
            let len = broker.disk().file_len(&dir.join(&file.name)).unwrap();
            match file.name.rsplit('.').next() {
                Some("log") => log_bytes += len,
                Some("tickindex") => tick_bytes += len,
                _ => {}
            }
        }
    }
    assert!(log_bytes > 100 * 16 * 1024, "{log_bytes}");
    assert_eq!(tick_bytes, 96 + 100 * 96);
    assert!(
        tick_bytes * 100 < log_bytes,
        "{tick_bytes} bytes of ticks to {log_bytes} of batches"
    );
}
