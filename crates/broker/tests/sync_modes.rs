//! `journal.sync` other than `always`, on the wire: when is what answered, and what does a start after
//! a kill or a loss of power do.

use tidemark_testkit::{Batch, Isolation, StoppedBroker, TestBroker, TxnProducer};
use tidemark_types::ErrorCode;

fn os_mode() -> StoppedBroker {
    TestBroker::builder().set("journal.sync", "os")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_is_answered_and_read_before_a_sync_and_everything_else_after_one() {
    let broker = os_mode().start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 2).await;
    let plain = c.init_producer_id(None).await.unwrap();
    let mut producer = TxnProducer::init(&mut c, "x").await;
    producer.enrol(&mut c, &[("t", 1)]).await.unwrap();

    let syncs = || broker.journal_stats().syncs;
    let before = syncs();
    for n in 0..20 {
        let batch = Batch::of(&[format!("v{n}")]).producer(plain.0, plain.1, n);
        let offset = c.produce("t", 0, batch.build()).await;
        assert_eq!(offset, Ok(i64::from(n)));
        producer
            .send(&mut c, "t", 1, &[format!("t{n}")])
            .await
            .unwrap();
    }
    assert_eq!(
        c.read_values("t", 0, Isolation::ReadUncommitted)
            .await
            .len(),
        20
    );
    assert_eq!(syncs(), before, "forty records, none synced");

    // Each of these is synced before it is answered.
    let mut before = syncs();
    let mut one_more = |what: &str| {
        assert_eq!(syncs(), before + 1, "{what}");
        before += 1;
    };
    TxnProducer::init(&mut c, "another").await;
    one_more("InitProducerId");
    producer.enrol(&mut c, &[("t", 0)]).await.unwrap();
    one_more("AddPartitionsToTxn");
    c.add_offsets("x", producer.producer(), "g").await.unwrap();
    one_more("AddOffsetsToTxn");
    c.txn_offset_commit("x", producer.producer(), "g", &[("t", 0, 3)])
        .await
        .unwrap();
    one_more("TxnOffsetCommit");
    producer.end(&mut c, true).await.unwrap();
    one_more("EndTxn");
    c.commit_offsets("h", &[("t", 0, 5)]).await.unwrap();
    one_more("OffsetCommit");
    c.create_topic("u", 1).await;
    one_more("CreateTopics");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_everything_is_there_and_open_transactions_are_aborted_with_their_epoch() {
    for mode in ["os", "interval:3600"] {
        let broker = TestBroker::builder()
            .set("journal.sync", mode)
            .start()
            .await;
        let mut c = broker.client().await;
        c.create_topic("t", 2).await;
        c.produce("t", 0, Batch::of(&["plain"]).build())
            .await
            .unwrap();
        let mut done = TxnProducer::init(&mut c, "done").await;
        done.enrol(&mut c, &[("t", 1)]).await.unwrap();
        done.send(&mut c, "t", 1, &["committed"]).await.unwrap();
        done.end(&mut c, true).await.unwrap();
        let mut open = TxnProducer::init(&mut c, "open").await;
        open.enrol(&mut c, &[("t", 1)]).await.unwrap();
        open.send(&mut c, "t", 1, &["open"]).await.unwrap();
        c.produce("t", 0, Batch::of(&["behind"]).build())
            .await
            .unwrap();
        let epoch = c.describe_topic("t").await.partitions[0].leader_epoch;

        let broker = broker.kill().await.start().await;
        let mut c = broker.client().await;
        let values = c.read_values("t", 0, Isolation::ReadUncommitted).await;
        assert_eq!(values, ["plain", "behind"], "{mode}: a kill loses nothing");
        assert_eq!(
            c.read_values("t", 1, Isolation::ReadCommitted).await,
            ["committed"]
        );
        // Nothing holds readers up, and the old instance can neither write nor commit.
        let ends = c.ends("t", 2, Isolation::ReadCommitted).await;
        assert_eq!(ends, c.ends("t", 2, Isolation::ReadUncommitted).await);
        let fenced = open.end(&mut c, true).await;
        assert_eq!(fenced, Err(ErrorCode::InvalidProducerEpoch));
        let after = c.describe_topic("t").await.partitions[0].leader_epoch;
        assert!(after > epoch, "{mode}: leader epoch {after} after {epoch}");
        let again = TxnProducer::init(&mut c, "open").await;
        again.enrol(&mut c, &[("t", 1)]).await.unwrap();
        again.end(&mut c, true).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_aborts_nothing_and_neither_does_a_kill_when_everything_is_synced() {
    for (mode, kill) in [("os", false), ("always", true)] {
        let broker = TestBroker::builder()
            .set("journal.sync", mode)
            .start()
            .await;
        let mut c = broker.client().await;
        c.create_topic("t", 1).await;
        let mut open = TxnProducer::init(&mut c, "open").await;
        open.enrol(&mut c, &[("t", 0)]).await.unwrap();
        open.send(&mut c, "t", 0, &["mine"]).await.unwrap();
        let stopped = match kill {
            true => broker.kill().await,
            false => broker.stop().await,
        };
        let broker = stopped.start().await;
        let mut c = broker.client().await;
        open.end(&mut c, true).await.unwrap();
        assert_eq!(
            c.read_values("t", 0, Isolation::ReadCommitted).await,
            ["mine"]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_of_power_takes_the_newest_records_and_leaves_what_a_commit_stands_on() {
    let mut lost = 0;
    for seed in 0..12 {
        let broker = os_mode().seed(seed).start().await;
        let mut c = broker.client().await;
        c.create_topic("t", 1).await;
        c.produce("t", 0, Batch::of(&["before"]).build())
            .await
            .unwrap();
        let mut txn = TxnProducer::init(&mut c, "x").await;
        txn.enrol(&mut c, &[("t", 0)]).await.unwrap();
        txn.send(&mut c, "t", 0, &["committed"]).await.unwrap();
        txn.end(&mut c, true).await.unwrap();
        for n in 0..30 {
            let value = format!("{n}: {}", "x".repeat(3000));
            c.produce("t", 0, Batch::of(&[value]).build())
                .await
                .unwrap();
        }
        let broker = broker.crash(seed).await.start().await;
        let mut c = broker.client().await;
        let values = c.read_values("t", 0, Isolation::ReadCommitted).await;
        assert_eq!(values[..2], ["before", "committed"]);
        for (n, value) in values[2..].iter().enumerate() {
            assert!(value.starts_with(&format!("{n}: ")), "a gap: {value}");
        }
        lost += 32 - values.len();
        // The partition goes on from there.
        let next = c
            .produce("t", 0, Batch::of(&["after"]).build())
            .await
            .unwrap();
        assert_eq!(
            next,
            c.ends("t", 1, Isolation::ReadUncommitted).await[0] - 1
        );
    }
    assert!(
        lost > 0,
        "no record was ever lost: the mode does not do what it says"
    );
}
