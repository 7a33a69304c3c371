//! The life of a transaction in the classic dialect.

use tidemark_owner::Record;
use tidemark_types::{COORDINATOR_PARTITIONS, ErrorCode, TopicPartitionId, coordinator_partition};

use crate::common::{Producer, World};

const OK: ErrorCode = ErrorCode::None;

fn touched(record: &Record) -> Vec<TopicPartitionId> {
    record.appends.iter().map(|a| a.partition).collect()
}

#[test]
fn m7_a_commit_is_one_record_with_every_part() {
    for commit in [true, false] {
        let mut w = World::new();
        w.create_topic("in", 1);
        w.create_topic("out", 2);
        let mut p = Producer::classic(&mut w, "tx1");
        assert_eq!(p.add(&mut w, &[("out", 0), ("out", 1)]), [OK, OK]);
        assert_eq!(p.add_offsets(&mut w, "g"), OK);
        p.send(&mut w, "out", 0, 0, &["a"]).unwrap();
        p.send(&mut w, "out", 1, 0, &["b"]).unwrap();
        assert_eq!(p.commit_offsets(&mut w, "g", &[("in", 0, 99)]), [OK]);

        let before = w.records.len();
        p.end(&mut w, commit).unwrap();
        assert_eq!(w.records.len(), before + 1, "one record");
        let partition = |key| coordinator_partition(key, COORDINATOR_PARTITIONS);
        let mut parts = vec![
            TopicPartitionId::consumer_offsets(partition("g")),
            TopicPartitionId::transaction_state(partition("tx1")),
            w.id("out", 0),
            w.id("out", 1),
        ];
        parts.sort();
        assert_eq!(touched(w.records.last().unwrap()), parts);

        let kind = if commit { 'C' } else { 'A' };
        for restarted in [false, true] {
            if restarted {
                w.restart();
            }
            for (index, value) in [(0, "a"), (1, "b")] {
                let seen = w.committed("out", index);
                assert_eq!(seen, if commit { vec![value] } else { vec![] });
                assert_eq!(w.uncommitted("out", index), [value], "A5");
                assert_eq!(w.markers("out", index), [(kind, p.epoch.0)]);
                assert_eq!(w.ends("out", index), (2, 2));
            }
            let offset = if commit { 99 } else { -1 };
            assert_eq!(w.fetch_offsets("g", &[("in", 0)], true), [(offset, OK)]);
        }
    }
}

#[test]
fn a4_the_last_stable_offset_is_exclusive() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["a", "b"]).unwrap();
    p.end(&mut w, true).unwrap();
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 2, &["c"]).unwrap();

    assert_eq!(w.ends("t", 0), (3, 4));
    assert_eq!(w.committed("t", 0), ["a", "b"]);
    p.end(&mut w, false).unwrap();
    assert_eq!(w.ends("t", 0), (5, 5));
    assert_eq!(w.aborted("t", 0), [(p.producer_id.0, 3, 4)]);
    assert_eq!(w.committed("t", 0), ["a", "b"]);
    assert_eq!(w.uncommitted("t", 0), ["a", "b", "c"]);
}

#[test]
fn a9_a_start_in_the_middle_does_not_halve_a_transaction() {
    // The start comes at every place of the story.
    for at in 0..6 {
        let mut w = World::new();
        w.create_topic("in", 1);
        w.create_topic("t", 1);
        let mut p = Producer::classic(&mut w, "tx1");
        let restart = |w: &mut World, n| {
            if n == at {
                w.restart();
            }
        };
        p.add(&mut w, &[("t", 0)]);
        restart(&mut w, 0);
        p.send(&mut w, "t", 0, 0, &["m1"]).unwrap();
        restart(&mut w, 1);
        assert_eq!(p.add_offsets(&mut w, "g"), OK);
        restart(&mut w, 2);
        assert_eq!(p.commit_offsets(&mut w, "g", &[("in", 0, 43)]), [OK]);
        restart(&mut w, 3);
        assert_eq!(w.committed("t", 0), Vec::<String>::new());
        p.end(&mut w, true).unwrap();
        restart(&mut w, 4);
        assert_eq!(w.committed("t", 0), ["m1"]);
        assert_eq!(w.fetch_offsets("g", &[("in", 0)], true), [(43, OK)]);
        // The next transaction of the same session.
        p.add(&mut w, &[("t", 0)]);
        restart(&mut w, 5);
        p.send(&mut w, "t", 0, 1, &["m2"]).unwrap();
        p.end(&mut w, true).unwrap();
        assert_eq!(w.committed("t", 0), ["m1", "m2"]);
    }
}

#[test]
fn two_transactions_back_to_back_on_one_id_meet_nothing() {
    let mut w = World::new();
    w.create_topic("t", 2);
    let mut p = Producer::classic(&mut w, "tx1");
    for n in 0..20 {
        assert_eq!(p.add(&mut w, &[("t", 0), ("t", 1)]), [OK, OK]);
        for partition in 0..2 {
            p.send(&mut w, "t", partition, n, &["v"]).unwrap();
        }
        p.end(&mut w, n % 3 != 0).unwrap();
    }
    assert_eq!(w.committed("t", 0).len(), 13);
    assert_eq!(w.committed("t", 1).len(), 13);
    w.restart();
}

#[test]
fn a12_ending_again_is_harmless() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["a"]).unwrap();
    p.end(&mut w, true).unwrap();
    let records = w.records.len();
    for restarted in [false, true] {
        if restarted {
            w.restart();
        }
        assert_eq!(p.end(&mut w, true), Ok(()));
        assert_eq!(p.end(&mut w, false), Err(ErrorCode::InvalidTxnState));
    }
    assert_eq!(w.records.len(), records);
    assert_eq!(w.ends("t", 0), (2, 2));
}

#[test]
fn a13_an_empty_transaction_commits() {
    let mut w = World::new();
    w.create_topic("t", 2);
    let mut p = Producer::classic(&mut w, "tx1");
    assert_eq!(p.end(&mut w, true), Err(ErrorCode::InvalidTxnState));
    assert_eq!(p.end(&mut w, false), Err(ErrorCode::InvalidTxnState));
    p.add(&mut w, &[("t", 0)]);
    p.end(&mut w, true).unwrap();
    assert_eq!(w.ends("t", 0), (1, 1));
    assert_eq!(w.committed("t", 0), Vec::<String>::new());

    p.add(&mut w, &[("t", 0), ("t", 1)]);
    p.send(&mut w, "t", 1, 0, &["b"]).unwrap();
    p.end(&mut w, false).unwrap();
    assert_eq!(w.aborted("t", 0), [], "nothing was written here");
    assert_eq!(w.aborted("t", 1), [(p.producer_id.0, 0, 1)]);
}

#[test]
fn m10_an_enrolled_partition_without_data_pins_nothing() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &[("t", 0)]);
    Producer::plain()
        .send(&mut w, "t", 0, -1, &["v"; 10])
        .unwrap();
    assert_eq!(w.ends("t", 0), (10, 10));
}

#[test]
fn a17_a_late_batch_does_not_open_a_finished_transaction_again() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["a"]).unwrap();
    p.end(&mut w, false).unwrap();
    let late = p.send(&mut w, "t", 0, 1, &["b"]);
    assert_eq!(late, Err(ErrorCode::InvalidTxnState));
    let v11 = Producer {
        version: 11,
        ..p.clone()
    };
    let late = v11.send(&mut w, "t", 0, 1, &["b"]);
    assert_eq!(late, Err(ErrorCode::TransactionAbortable));
    assert_eq!(w.ends("t", 0), (2, 2));
    // A repeat of what was acknowledged is still answered as it was.
    assert_eq!(p.send(&mut w, "t", 0, 0, &["a"]), Ok(0));
    // A partition that was never enrolled.
    p.add(&mut w, &[("t", 0)]);
    w.create_topic("u", 1);
    let elsewhere = p.send(&mut w, "u", 0, 0, &["c"]);
    assert_eq!(elsewhere, Err(ErrorCode::InvalidTxnState));
}

#[test]
fn a18_a_plain_batch_inside_an_open_transaction() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["a"]).unwrap();
    let plain = p.outside_transactions();
    let sent = plain.send(&mut w, "t", 0, 1, &["b"]);
    assert_eq!(sent, Err(ErrorCode::InvalidTxnState));
    assert_eq!(w.ends("t", 0), (0, 1));
    p.end(&mut w, true).unwrap();
    assert_eq!(plain.send(&mut w, "t", 0, 1, &["b"]), Ok(2));
}

#[test]
fn one_bad_partition_fails_the_whole_enrolment() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::classic(&mut w, "tx1");
    let codes = p.add(&mut w, &[("t", 0), ("t", 1), ("nowhere", 0)]);
    assert_eq!(
        codes,
        [
            ErrorCode::OperationNotAttempted,
            ErrorCode::UnknownTopicOrPartition,
            ErrorCode::UnknownTopicOrPartition
        ]
    );
    assert_eq!(p.end(&mut w, true), Err(ErrorCode::InvalidTxnState));
    // A marker in a coordinator's own log would be no record of it.
    for topic in ["__transaction_state", "__consumer_offsets"] {
        let codes = p.add(&mut w, &[("t", 0), (topic, 7)]);
        let refused = ErrorCode::TopicAuthorizationFailed;
        assert_eq!(codes, [ErrorCode::OperationNotAttempted, refused]);
    }
}

#[test]
fn enrolling_again_writes_nothing() {
    let mut w = World::new();
    w.create_topic("t", 2);
    let p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &[("t", 0)]);
    let records = w.records.len();
    assert_eq!(p.add(&mut w, &[("t", 0), ("t", 0)]), [OK, OK]);
    assert_eq!(w.records.len(), records);
    assert_eq!(p.add(&mut w, &[("t", 1), ("t", 0)]), [OK, OK]);
    assert_eq!(w.records.len(), records + 1);
}

#[test]
fn an_unknown_id_and_somebody_elses_producer_id() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let p = Producer::classic(&mut w, "tx1");
    let q = Producer::classic(&mut w, "tx2");
    let mixed = Producer {
        producer_id: q.producer_id,
        ..p.clone()
    };
    let stranger = Producer {
        transactional_id: Some("never".to_owned()),
        ..p.clone()
    };
    for wrong in [mixed, stranger] {
        let code = ErrorCode::InvalidProducerIdMapping;
        assert_eq!(wrong.add(&mut w, &[("t", 0)]), [code]);
        assert_eq!(wrong.add_offsets(&mut w, "g"), code);
        assert_eq!(wrong.commit_offsets(&mut w, "g", &[("t", 0, 1)]), [code]);
        assert_eq!(wrong.clone().end(&mut w, true), Err(code));
    }
    let idempotent = Producer::idempotent(&mut w);
    let pretends = Producer {
        transactional: true,
        ..idempotent
    };
    let sent = pretends.send(&mut w, "t", 0, 0, &["x"]);
    assert_eq!(sent, Err(ErrorCode::InvalidProducerIdMapping));
}
