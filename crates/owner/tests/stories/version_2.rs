//! Transaction version 2 (KIP-890): enrolment by the first batch, a new epoch with every end.

use tidemark_types::ErrorCode;

use crate::common::{Producer, World};

const OK: ErrorCode = ErrorCode::None;

#[test]
fn the_first_batch_enrols_in_the_same_record() {
    let mut w = World::new();
    w.create_topic("t", 3);
    let mut p = Producer::v2(&mut w, "tx1");
    let before = w.records.len();
    let batches = (0..3).map(|n| p.batch(&w, "t", n, 0, &["v"])).collect();
    assert_eq!(w.produce(12, batches), [Ok(0), Ok(0), Ok(0)]);
    assert_eq!(w.records.len(), before + 1);
    // Three batches and one record of the coordinator, whatever the number of partitions.
    assert_eq!(w.records.last().unwrap().appends.len(), 4);
    p.send(&mut w, "t", 1, 1, &["w"]).unwrap();
    assert_eq!(
        w.records.last().unwrap().appends.len(),
        1,
        "enrolled already"
    );
    let epoch = p.epoch;
    p.end(&mut w, true).unwrap();
    assert_eq!(p.epoch, epoch.next());
    for partition in 0..3 {
        assert_eq!(w.markers("t", partition), [('C', p.epoch.0)]);
    }
    assert_eq!(w.committed("t", 1), ["v", "w"]);
    w.restart();
}

#[test]
fn a_refused_batch_enrols_nothing() {
    let mut w = World::new();
    w.create_topic("t", 2);
    let mut p = Producer::v2(&mut w, "tx1");
    let gap = Err(ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(p.send(&mut w, "t", 0, 3, &["v"]), gap);
    assert_eq!(p.end(&mut w, true), Err(ErrorCode::InvalidTxnState));
    let batches = vec![
        p.batch(&w, "t", 0, 3, &["gap"]),
        p.batch(&w, "t", 1, 0, &["v"]),
        p.batch(&w, "t", 1, 0, &["v"]),
    ];
    assert_eq!(w.produce(12, batches), [gap, Ok(0), Ok(0)]);
    p.end(&mut w, false).unwrap();
    assert_eq!(
        w.ends("t", 0),
        (0, 0),
        "no marker where nothing was enrolled"
    );
    assert_eq!(w.ends("t", 1), (2, 2));
}

#[test]
fn a12_the_old_epoch_finds_the_same_answer() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let p = Producer::v2(&mut w, "tx1");
    p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
    let first = p.end_as_is(&mut w, true).unwrap();
    let records = w.records.len();
    assert_eq!(p.end_as_is(&mut w, true), Ok(first));
    w.restart();
    assert_eq!(p.end_as_is(&mut w, true), Ok(first));
    let other = p.end_as_is(&mut w, false);
    assert_eq!(other, Err(ErrorCode::InvalidTxnState));
    assert_eq!(w.records.len(), records);
}

#[test]
fn a11_a_delayed_end_does_not_end_the_next_transaction() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::v2(&mut w, "tx1");
    let delayed = p.clone();
    p.send(&mut w, "t", 0, 0, &["r1"]).unwrap();
    p.end(&mut w, true).unwrap();
    p.send(&mut w, "t", 0, 0, &["r2"]).unwrap();
    let late = delayed.end_as_is(&mut w, true);
    assert_eq!(late, Err(ErrorCode::ProducerFenced));
    let late = delayed.send(&mut w, "t", 0, 1, &["r1b"]);
    assert_eq!(late, Err(ErrorCode::InvalidProducerEpoch));
    p.end(&mut w, false).unwrap();
    assert_eq!(w.committed("t", 0), ["r1"]);
}

#[test]
fn a17_a_late_batch_meets_the_next_epoch() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::v2(&mut w, "tx1");
    let old = p.clone();
    p.send(&mut w, "t", 0, 0, &["a"]).unwrap();
    p.end(&mut w, false).unwrap();
    let late = old.send(&mut w, "t", 0, 1, &["b"]);
    assert_eq!(late, Err(ErrorCode::InvalidProducerEpoch));
    assert_eq!(w.ends("t", 0), (2, 2));
}

#[test]
fn a13_nothing_to_abort_is_a_new_epoch() {
    let mut w = World::new();
    let mut p = Producer::v2(&mut w, "tx1");
    let epoch = p.epoch;
    assert_eq!(p.end(&mut w, false), Ok(()));
    assert_eq!(p.epoch, epoch.next());
}

#[test]
fn offsets_enrol_their_group_themselves() {
    let mut w = World::new();
    w.create_topic("in", 1);
    let mut p = Producer::v2(&mut w, "tx1");
    let before = w.records.len();
    assert_eq!(p.commit_offsets(&mut w, "g", &[("in", 0, 5)]), [OK]);
    assert_eq!(w.records.len(), before + 1);
    let unstable = ErrorCode::UnstableOffsetCommit;
    assert_eq!(w.fetch_offsets("g", &[("in", 0)], true), [(-1, unstable)]);
    p.end(&mut w, true).unwrap();
    assert_eq!(w.fetch_offsets("g", &[("in", 0)], true), [(5, OK)]);
    // Of nothing that exists nothing is enrolled.
    let codes = p.commit_offsets(&mut w, "g", &[("nowhere", 0, 5)]);
    assert_eq!(codes, [ErrorCode::UnknownTopicOrPartition]);
    assert_eq!(p.end(&mut w, true), Err(ErrorCode::InvalidTxnState));
}

#[test]
fn an_abort_by_the_broker_is_abortable_and_the_instance_goes_on() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::v2(&mut w, "tx1");
    p.send(&mut w, "t", 0, 0, &["lost"]).unwrap();
    w.pass_ms(60_000);
    assert_eq!(w.ends("t", 0), (2, 2));
    let late = p.send(&mut w, "t", 0, 1, &["x"]);
    assert_eq!(late, Err(ErrorCode::InvalidProducerEpoch));
    let commit = p.end(&mut w, true);
    assert_eq!(commit, Err(ErrorCode::TransactionAbortable));
    p.end(&mut w, false).unwrap();
    p.send(&mut w, "t", 0, 0, &["kept"]).unwrap();
    p.end(&mut w, true).unwrap();
    assert_eq!(w.committed("t", 0), ["kept"]);
}
