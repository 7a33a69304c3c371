//! One transaction, and the power at each of its steps; and its record, when the disk rots.

use std::path::{Path, PathBuf};

use tidemark_disk::{Disk, SimDisk, read_all};
use tidemark_testkit::{
    Batch, DATA_DIR, Dialect, Isolation, StoppedBroker, TestBroker, TxnProducer, enrolled,
    produced, requests, txn_offsets_committed, version,
};

const PARTITIONS: i32 = 4;

/// A transaction over four partitions and a group's offset. `None`: the power went first; else
/// whether the answer to its end came.
async fn transaction(broker: &TestBroker, session: &mut TxnProducer) -> bool {
    let mut c = broker.client().await;
    let (id, producer) = (session.id.clone(), session.producer());
    let partitions: Vec<(&str, i32)> = (0..PARTITIONS).map(|p| ("t", p)).collect();
    // In version 2 batches and offsets enrol.
    let enrols = session.dialect == Dialect::Classic;
    if enrols {
        let request = requests::add_partitions(&id, producer, &partitions);
        let answer = c.try_send(version::ADD_PARTITIONS_TO_TXN, &request).await;
        if answer.is_none_or(|answer| enrolled(&answer).is_err()) {
            return false;
        }
    }
    for partition in 0..PARTITIONS {
        let batch = session
            .batch("t", partition, &["in the transaction"])
            .build();
        let request = requests::produce(Some(&id), [("t", partition, batch)]);
        let answer = c
            .try_send(session.dialect.produce_version(), &request)
            .await;
        if answer.is_none_or(|answer| produced(&answer)[0].is_err()) {
            return false;
        }
    }
    if enrols {
        let request = requests::add_offsets(&id, producer, "g");
        let answer = c.try_send(version::ADD_OFFSETS_TO_TXN, &request).await;
        if answer.is_none_or(|answer| answer.error_code != 0) {
            return false;
        }
    }
    let request = requests::txn_offset_commit(&id, producer, "g", &[("t", 0, 2)]);
    let version = session.dialect.txn_offset_commit_version();
    let answer = c.try_send(version, &request).await;
    if answer.is_none_or(|answer| txn_offsets_committed(&answer).is_err()) {
        return false;
    }
    let request = requests::end_txn(&id, producer, true);
    let version = session.dialect.end_txn_version();
    let answer = c.try_send(version, &request).await;
    answer.is_some_and(|answer| answer.error_code == 0)
}

/// In how many partitions it is visible, and the group's offset; nothing is open.
async fn outcome(broker: &TestBroker) -> (usize, i64) {
    let mut c = broker.client().await;
    let mut visible = 0;
    for partition in 0..PARTITIONS {
        let values = c
            .read_values("t", partition, Isolation::ReadCommitted)
            .await;
        visible += values
            .iter()
            .filter(|value| *value == "in the transaction")
            .count();
    }
    let offset = c.committed_offset("g", "t", 0, true).await;
    (visible, offset.expect("nothing is pending"))
}

async fn ends(broker: &TestBroker) -> Vec<i64> {
    let mut c = broker.client().await;
    c.ends("t", PARTITIONS, Isolation::ReadUncommitted).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m8_a_cut_at_any_step_of_a_transaction_leaves_all_of_it_or_none() {
    for dialect in Dialect::BOTH {
        m8_story(dialect).await;
    }
}

async fn m8_story(dialect: Dialect) {
    // A group at offset 1, a session of the transactional id.
    let broker = TestBroker::start().await;
    let mut c = broker.client().await;
    c.create_topic("t", PARTITIONS).await;
    c.commit_offsets("g", &[("t", 0, 1)]).await.unwrap();
    let session = TxnProducer::init_in(&mut c, "x", dialect).await;
    let base = broker.kill().await.disk().clone();

    let (mut none, mut all, mut step) = (0, 0, 0);
    loop {
        step += 1;
        let mut came_to_the_end = false;
        // The step in flight is torn in another way each time.
        for seed in 0..4 {
            let disk = base.fork();
            let broker = TestBroker::builder().on_disk(disk.clone()).start().await;
            disk.cut_power_after(step);
            let answered = transaction(&broker, &mut session.clone()).await;
            came_to_the_end |= answered && !disk.is_powered_off();
            let broker = broker.crash(seed).await.start().await;
            // What was not ended is ended by a new session.
            TxnProducer::init(&mut broker.client().await, "x").await;
            let found = outcome(&broker).await;
            match found {
                (0, 1) if !answered => none += 1,
                (4, 2) => all += 1,
                other => panic!("step {step}, seed {seed}, answered {answered}: {other:?}"),
            }
            // Another restart finds the same, and writes no marker again.
            let before = ends(&broker).await;
            let broker = broker.crash(seed + 1).await.start().await;
            assert_eq!(outcome(&broker).await, found);
            assert_eq!(ends(&broker).await, before);
        }
        if came_to_the_end {
            break;
        }
        assert!(step < 500);
    }
    assert!(
        none > 4 && all > 0,
        "{none} none, {all} all of {step} steps"
    );
}

/// Files of the data directory below `dir` that hold `bytes`, and where first.
fn holding(disk: &SimDisk, dir: &str, bytes: &[u8]) -> Vec<(PathBuf, u64)> {
    let dir = Path::new(DATA_DIR).join(dir);
    let files = disk.list(&dir).expect("a directory of a broker");
    files
        .into_iter()
        .filter_map(|file| {
            let path = dir.join(file.name);
            let content = read_all(disk, &path).expect("a file");
            let at = content
                .windows(bytes.len())
                .rposition(|window| window == bytes)?;
            Some((path, at as u64))
        })
        .collect()
}

async fn refusal(disk: SimDisk) -> String {
    match TestBroker::builder().on_disk(disk).try_start().await {
        Ok(_) => panic!("a broker starts over a coordinator's record that has rotted"),
        Err(e) => e.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m20_a_coordinators_record_that_has_rotted_is_refused_and_never_forgotten() {
    let stopped: StoppedBroker = TestBroker::builder();
    let broker = stopped.start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 1).await;
    let mut txn = TxnProducer::init(&mut c, "m20-transactional-id").await;
    txn.enrol(&mut c, &[("t", 0)]).await.unwrap();
    txn.send(&mut c, "t", 0, &["committed"]).await.unwrap();
    txn.end(&mut c, true).await.unwrap();
    // Behind it something more: what follows says that the commit had been synced.
    for n in 0..3 {
        c.produce("t", 0, Batch::of(&[format!("{n}")]).build())
            .await
            .unwrap();
    }
    let disk = broker.kill().await.disk().clone();

    let found = holding(&disk, "journal", b"m20-transactional-id");
    let (slot, at) = found.first().expect("the state is in the journal");
    let rotten = disk.fork();
    rotten.corrupt(slot, at + 3, 0x10).unwrap();
    let why = refusal(rotten).await;
    for part in ["000000.slot", "is damaged at position", "from a copy"] {
        assert!(why.contains(part), "{why}");
    }

    // In checkpoints: the older one is used when the newest has rotted, and the journal after it; when
    // both have, that is said.
    let mut broker = TestBroker::builder().on_disk(disk).start().await;
    for _ in 0..2 {
        let mut c = broker.client().await;
        c.produce("t", 0, Batch::of(&["more"]).build())
            .await
            .unwrap();
        broker = broker.restart().await;
    }
    let disk = broker.stop().await.disk().clone();
    let mut found = holding(&disk, "checkpoints", b"m20-transactional-id");
    found.sort();
    assert_eq!(found.len(), 2, "two generations: {found:?}");
    let rotten = disk.fork();
    rotten.corrupt(&found[1].0, found[1].1 + 3, 0x10).unwrap();
    let broker = TestBroker::builder().on_disk(rotten.fork()).start().await;
    let mut c = broker.client().await;
    let values = c.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values[0], "committed");
    let again = TxnProducer::init(&mut c, "m20-transactional-id").await;
    assert_eq!(again.producer_id, txn.producer_id, "it is remembered");
    assert!(again.epoch > txn.epoch);
    drop(broker);
    rotten.corrupt(&found[0].0, found[0].1 + 3, 0x10).unwrap();
    let why = refusal(rotten).await;
    assert!(
        why.contains("checkpoint") && why.contains("position"),
        "{why}"
    );
}
