//! Idempotent produce: the window of five, gaps, epochs, restarts.

use tidemark_owner::{Command, NoteRefused, RefusedBatch, Reply};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::common::{Producer, World};

#[test]
fn a1_a_repeat_within_five_batches_is_answered_as_the_original() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let p = Producer::idempotent(&mut w);
    for sequence in 0..6 {
        let value = format!("v{sequence}");
        let sent = p.send(&mut w, "t", 0, sequence, &[&value]);
        assert_eq!(sent, Ok(i64::from(sequence)));
    }
    let records = w.records.len();
    for restarted in [false, true] {
        if restarted {
            w.restart();
        }
        assert_eq!(p.send(&mut w, "t", 0, 1, &["v1"]), Ok(1));
        assert_eq!(p.send(&mut w, "t", 0, 5, &["v5"]), Ok(5));
        let refused = Err(ErrorCode::OutOfOrderSequenceNumber);
        assert_eq!(p.send(&mut w, "t", 0, 0, &["v0"]), refused, "sixth back");
        assert_eq!(p.send(&mut w, "t", 0, 7, &["v7"]), refused, "a gap");
        assert_eq!(p.send(&mut w, "t", 0, 1, &["v1", "v2"]), refused, "another");
        assert_eq!(w.ends("t", 0), (6, 6));
    }
    assert_eq!(w.records.len(), records, "a duplicate writes nothing");
    assert_eq!(p.send(&mut w, "t", 0, 6, &["v6"]), Ok(6));
}

#[test]
fn m1_five_batches_of_ten_may_all_be_sent_again() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let p = Producer::idempotent(&mut w);
    let ten = ["v"; 10];
    let sequences = [0, 10, 20, 30, 40];
    for _ in 0..2 {
        for sequence in sequences {
            let sent = p.send(&mut w, "t", 0, sequence, &ten);
            assert_eq!(sent, Ok(i64::from(sequence)));
        }
        assert_eq!(w.ends("t", 0).1, 50);
        w.restart();
    }
    assert_eq!(p.send(&mut w, "t", 0, 50, &ten), Ok(50));
    let again = p.send(&mut w, "t", 0, 0, &ten);
    assert_eq!(again, Err(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(w.ends("t", 0).1, 60);
}

#[test]
fn m3_a_gap_is_refused() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let p = Producer::idempotent(&mut w);
    assert_eq!(p.send(&mut w, "t", 0, 0, &["a"]), Ok(0));
    let sent = p.send(&mut w, "t", 0, 2, &["c"]);
    assert_eq!(sent, Err(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(w.ends("t", 0).1, 1);
}

#[test]
fn partitions_count_sequences_apart() {
    let mut w = World::new();
    w.create_topic("t", 2);
    let p = Producer::idempotent(&mut w);
    assert_eq!(p.send(&mut w, "t", 0, 0, &["a"]), Ok(0));
    assert_eq!(p.send(&mut w, "t", 1, 0, &["b"]), Ok(0));
    assert_eq!(p.send(&mut w, "t", 0, 1, &["c"]), Ok(1));
}

#[test]
fn one_request_is_one_record_and_each_batch_stands_for_itself() {
    let mut w = World::new();
    w.create_topic("t", 3);
    let p = Producer::idempotent(&mut w);
    assert_eq!(p.send(&mut w, "t", 2, 0, &["z"]), Ok(0));
    let records = w.records.len();
    // Request order is not the record's: partitions 2, 0, 1, and 0 once more.
    let batches = vec![
        p.batch(&w, "t", 2, 5, &["gap"]),
        p.batch(&w, "t", 0, 0, &["a"]),
        p.batch(&w, "t", 1, 0, &["b"]),
        p.batch(&w, "t", 0, 1, &["c"]),
        p.batch(&w, "t", 0, 1, &["c"]),
    ];
    let produced = w.produce(9, batches);
    let gap = Err(ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(produced, [gap, Ok(0), Ok(0), Ok(1), Ok(1)]);
    assert_eq!(w.records.len(), records + 1);
    assert_eq!(w.uncommitted("t", 0), ["a", "c"]);
    assert_eq!(w.uncommitted("t", 1), ["b"]);
    w.restart();
}

#[test]
fn a_newer_epoch_begins_at_zero_and_ends_the_older_one() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let p = Producer::idempotent(&mut w);
    p.send(&mut w, "t", 0, 0, &["a"]).unwrap();
    let newer = Producer {
        epoch: p.epoch.next(),
        ..p.clone()
    };
    let gap = newer.send(&mut w, "t", 0, 1, &["b"]);
    assert_eq!(gap, Err(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(newer.send(&mut w, "t", 0, 0, &["b"]), Ok(1));
    let older = p.send(&mut w, "t", 0, 1, &["c"]);
    assert_eq!(older, Err(ErrorCode::InvalidProducerEpoch));
}

#[test]
fn a_producer_nothing_is_known_of_may_begin_anywhere() {
    // Its records, and with them its state, may be gone (A3).
    let mut w = World::new();
    w.create_topic("t", 1);
    let p = Producer::idempotent(&mut w);
    assert_eq!(p.send(&mut w, "t", 0, 17, &["a"]), Ok(0));
    assert_eq!(p.send(&mut w, "t", 0, 18, &["b"]), Ok(1));
}

#[test]
fn the_batch_behind_a_refused_one_waits_for_it() {
    // Two batches in flight; the first is damaged on its way and refused with CORRUPT_MESSAGE, on
    // which the client sends it again. The second must not become the first of its producer.
    let mut w = World::new();
    w.create_topic("t", 2);
    let p = Producer::idempotent(&mut w);
    let noted = w.ask(Command::NoteRefused(NoteRefused {
        batches: vec![RefusedBatch {
            partition: w.id("t", 0),
            producer_id: p.producer_id,
            producer_epoch: p.epoch,
            base_sequence: 0,
        }],
    }));
    assert_eq!(noted, Reply::NoteRefused);
    let second = p.send(&mut w, "t", 0, 10, &["b"]);
    assert_eq!(second, Err(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(
        p.send(&mut w, "t", 1, 10, &["x"]),
        Ok(0),
        "another partition"
    );
    assert_eq!(p.send(&mut w, "t", 0, 0, &["a"; 10]), Ok(0));
    assert_eq!(p.send(&mut w, "t", 0, 10, &["b"]), Ok(10));
    // For a partition that is not there nothing is noted.
    let gone = w.id("t", 0);
    w.delete_topics(&["t"]);
    w.ask(Command::NoteRefused(NoteRefused {
        batches: vec![RefusedBatch {
            partition: gone,
            producer_id: ProducerId(5),
            producer_epoch: ProducerEpoch(0),
            base_sequence: 0,
        }],
    }));
}

#[test]
fn producer_ids_are_never_given_twice() {
    // M4, smaller: each start gives up the rest of its block.
    let mut w = World::new();
    let mut given = std::collections::BTreeSet::new();
    for _ in 0..20 {
        for _ in 0..10 {
            let (producer_id, epoch) = w.init(None, None).unwrap();
            assert_eq!(epoch, ProducerEpoch(0));
            assert!(given.insert(producer_id));
        }
        w.restart();
    }
    assert_eq!(given.len(), 200);
    // One of the two numbers alone means nothing, also without a transactional id.
    let half = w.init(None, Some((ProducerId(3), ProducerEpoch::NONE)));
    assert_eq!(half, Err(ErrorCode::InvalidRequest));
}

#[test]
fn nobody_writes_to_the_coordinators_topics() {
    let mut w = World::new();
    let p = Producer::plain();
    for topic in ["__consumer_offsets", "__transaction_state"] {
        let sent = p.send(&mut w, topic, 3, -1, &["not a record of ours"]);
        assert_eq!(sent, Err(ErrorCode::InvalidTopicException));
    }
}
