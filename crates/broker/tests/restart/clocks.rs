//! The wall clock may say anything: offsets, ticks and timeouts go on.

use tidemark_broker::Clock;
use tidemark_testkit::{
    Batch, Isolation, RawClient, TestBroker, TxnProducer, WALL_START_MS, eventually,
};
use tidemark_types::ErrorCode;

const TEN_MINUTES_MS: i64 = 600_000;

/// A transaction over both partitions, and a plain record; their offsets so far.
async fn write(client: &mut RawClient, producer: &mut TxnProducer) -> Vec<i64> {
    client
        .produce("t", 0, Batch::of(&["plain"]).build())
        .await
        .unwrap();
    producer.enrol(client, &[("t", 0), ("t", 1)]).await.unwrap();
    for partition in 0..2 {
        producer.send(client, "t", partition, &["x"]).await.unwrap();
    }
    producer.end(client, true).await.unwrap();
    client.ends("t", 2, Isolation::ReadCommitted).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_set_back_ten_minutes_stops_nothing() {
    // The journal refuses a tick that does not rise, so that this goes on at all is the proof.
    let mut broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 2).await;
    let mut producer = TxnProducer::init(&mut client, "tx").await;
    let mut expected = vec![0, 0];
    let mut round = 0;
    for crash in [true, false, true, false] {
        for wall_ms in [
            WALL_START_MS,
            WALL_START_MS - TEN_MINUTES_MS,
            WALL_START_MS + TEN_MINUTES_MS,
            WALL_START_MS - 2 * TEN_MINUTES_MS,
        ] {
            broker.clock().set_wall_ms(wall_ms);
            let ends = write(&mut client, &mut producer).await;
            expected = vec![expected[0] + 3, expected[1] + 2];
            assert_eq!(ends, expected);
            broker.clock().advance_ms(1);
            round += 1;
        }
        let stopped = match crash {
            true => broker.crash(round).await,
            false => broker.stop().await,
        };
        broker = stopped
            .wall_ms(WALL_START_MS - TEN_MINUTES_MS)
            .start()
            .await;
        client = broker.client().await;
        assert_eq!(
            client.ends("t", 2, Isolation::ReadCommitted).await,
            expected
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_times_out_after_its_timeout_whatever_the_wall_clock_did() {
    // What the wall clock says at the restart, and how much of the 60 s is then left.
    let cases = [
        (WALL_START_MS - TEN_MINUTES_MS, 60_000),
        (WALL_START_MS + 20_000, 40_000),
        (WALL_START_MS + TEN_MINUTES_MS, 0),
    ];
    for (wall_ms, left_ms) in cases {
        let broker = TestBroker::start().await;
        let mut client = broker.client().await;
        client.create_topic("t", 1).await;
        let mut producer = TxnProducer::init(&mut client, "tx").await;
        producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
        producer.send(&mut client, "t", 0, &["x"]).await.unwrap();

        let broker = broker.crash(4).await.wall_ms(wall_ms).start().await;
        let mut client = broker.client().await;
        if left_ms > 0 {
            broker.clock().advance_ms(left_ms - 1);
            for _ in 0..20 {
                let stable = client.ends("t", 1, Isolation::ReadCommitted).await;
                assert_eq!(stable, [0], "{left_ms} ms are left at the restart");
            }
            assert_eq!(producer.send(&mut client, "t", 0, &["y"]).await, Ok(1));
            broker.clock().advance_ms(1);
        }
        let mut reader = broker.client().await;
        let end = if left_ms > 0 { 3 } else { 2 };
        let mut stable = 0;
        for _ in 0..10_000 {
            stable = reader.ends("t", 1, Isolation::ReadCommitted).await[0];
            if stable == end {
                break;
            }
        }
        assert_eq!(
            stable, end,
            "aborted after its timeout, wall clock {wall_ms}"
        );
        assert!(
            reader
                .read_values("t", 0, Isolation::ReadCommitted)
                .await
                .is_empty()
        );
        let refused = producer.end(&mut client, true).await;
        assert_eq!(refused, Err(ErrorCode::InvalidProducerEpoch));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_append_time_is_the_wall_clocks_and_stays_what_it_was() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let stamped = [("message.timestamp.type", "LogAppendTime")];
    client.create_topic_with("t", 1, &stamped).await;
    let times = [
        WALL_START_MS,
        WALL_START_MS - TEN_MINUTES_MS,
        WALL_START_MS + 1,
    ];
    for wall_ms in times {
        broker.clock().set_wall_ms(wall_ms);
        client
            .produce("t", 0, Batch::of(&["x"]).at(0).build())
            .await
            .unwrap();
    }
    let broker = broker.crash(1).await.start().await;
    assert_eq!(broker.clock().wall_ms(), WALL_START_MS + 1);
    let mut client = broker.client().await;
    let records = client.read_all("t", 0, Isolation::ReadCommitted).await;
    let found: Vec<i64> = records.iter().map(|record| record.timestamp).collect();
    assert_eq!(found, times);
    let disk = broker.disk().clone();
    eventually("nothing is held", || disk.held_syncs() == 0).await;
}
