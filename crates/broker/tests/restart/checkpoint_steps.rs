//! The power goes at every step of checkpoints, of the release of slots and of their recycling, and
//! again during what follows.

use std::collections::BTreeSet;

use tidemark_disk::SimDisk;
use tidemark_testkit::{
    Batch, Dialect, Isolation, StoppedBroker, TestBroker, TxnProducer, enrolled, produced,
    requests, version,
};

fn small() -> StoppedBroker {
    TestBroker::builder()
        .set("journal.slot.bytes", 2 << 20)
        .set("journal.budget.bytes", 8 << 20)
        .set("tail.bytes", 1 << 20)
        .set("log.segment.bytes", 1 << 20)
}

/// Values that were acknowledged, or committed.
type Acked = BTreeSet<String>;

/// Writes until the power goes, or to the end; true when it came to the end.
async fn work(broker: &TestBroker, round: u64, acked: &mut Acked) -> bool {
    let mut c = broker.client().await;
    let request = requests::init_producer_id(Some("x"), 60_000);
    let Some(session) = c.try_send(version::INIT_PRODUCER_ID, &request).await else {
        return false;
    };
    if session.error_code != 0 {
        return false;
    }
    let mut txn = TxnProducer::at(
        "x",
        (session.producer_id.0, session.producer_epoch),
        Dialect::Classic,
    );
    // Each takes a tenth of a slot.
    for n in 0..60 {
        let value = format!("{round}-{n}:{}", "v".repeat(100_000));
        if n % 3 == 0 {
            let enrol = requests::add_partitions("x", txn.producer(), &[("t", 0), ("t", 1)]);
            let answer = c.try_send(version::ADD_PARTITIONS_TO_TXN, &enrol).await;
            if answer.is_none_or(|answer| enrolled(&answer).is_err()) {
                return false;
            }
            let batches: Vec<_> = (0..2)
                .map(|p| ("t", p, txn.batch("t", p, &[&value]).build()))
                .collect();
            let sent = c
                .try_send(version::PRODUCE, &requests::produce(Some("x"), batches))
                .await;
            if sent.is_none_or(|answer| produced(&answer).iter().any(Result::is_err)) {
                return false;
            }
            let end = requests::end_txn("x", txn.producer(), true);
            let ended = c.try_send(version::END_TXN, &end).await;
            if ended.is_none_or(|answer| answer.error_code != 0) {
                return false;
            }
        } else {
            let request = requests::produce(None, [("t", 0, Batch::of(&[&value]).build())]);
            let sent = c.try_send(version::PRODUCE, &request).await;
            if sent.is_none_or(|answer| produced(&answer)[0].is_err()) {
                return false;
            }
        }
        acked.insert(value);
    }
    true
}

async fn check(broker: &TestBroker, acked: &Acked, what: &str) {
    let mut c = broker.client().await;
    let read: Vec<String> = c.read_values("t", 0, Isolation::ReadCommitted).await;
    let there: BTreeSet<&String> = read.iter().collect();
    assert_eq!(there.len(), read.len(), "{what}: something is there twice");
    for value in acked {
        assert!(there.contains(value), "{what}: {} is lost", &value[..12]);
    }
    let other = c.read_values("t", 1, Isolation::ReadCommitted).await;
    assert!(
        other.iter().all(|value| there.contains(value)),
        "{what}: a transaction is torn"
    );
}

/// A broker that has been through checkpoints already, stopped by a kill.
async fn begun() -> (SimDisk, Acked) {
    let broker = small().start().await;
    broker.client().await.create_topic("t", 2).await;
    let mut acked = Acked::new();
    assert!(work(&broker, 0, &mut acked).await);
    let killed = broker.kill().await;
    (killed.disk().clone(), acked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_any_step_of_checkpoints_and_recycling_loses_nothing_also_twice_in_a_row() {
    let (base, acked) = begun().await;
    // How many steps there are, when the power stays.
    let disk = base.fork();
    let broker = small().on_disk(disk.clone()).start().await;
    let journal_bytes = broker.journal_stats().bytes;
    let mut all = acked.clone();
    assert!(work(&broker, 1, &mut all).await);
    let written = broker.journal_stats().bytes - journal_bytes;
    assert!(written > 6 << 20, "{written}: slots are recycled");
    check(&broker, &all, "without a cut").await;
    let steps = disk.steps();
    drop(broker.kill().await);

    let one_in = match std::env::var_os("TIDEMARK_TEST_EVERY") {
        Some(_) => 1,
        None => 23,
    };
    let mut twice = 0;
    for step in (1..=steps).step_by(one_in) {
        let mut acked = acked.clone();
        let disk = base.fork();
        disk.cut_power_after(step);
        if let Ok(broker) = small().on_disk(disk.clone()).try_start().await {
            work(&broker, 1, &mut acked).await;
            drop(broker.crash(step).await);
        }
        // Again, in the start after it or soon after that.
        let again = disk.crash(step);
        again.cut_power_after(1 + step * 7 % 60);
        if let Ok(broker) = small().on_disk(again.clone()).try_start().await {
            work(&broker, 2, &mut acked).await;
            drop(broker.crash(step).await);
        }
        twice += u32::from(again.is_powered_off());
        let last = small().on_disk(again.crash(step + 1)).try_start().await;
        let broker = match last {
            Ok(broker) => broker,
            Err(e) => panic!("cut at step {step} of {steps}: {e}"),
        };
        check(&broker, &acked, &format!("cut at step {step} of {steps}")).await;
    }
    assert!(twice > 0);
    println!("{steps} steps");
}
