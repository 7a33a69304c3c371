//! The rules of an append and of a marker, case by case.

use tidemark_producer_state::{AppendVerdict, CompletedTxn, Origin, PartitionProducers};
use tidemark_record_batch::{
    Attributes, BatchBuilder, BatchHeader, ControlType, TimestampType, patch_log_append_time,
};
use tidemark_types::ErrorCode::{
    InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber, TransactionCoordinatorFenced,
};
use tidemark_types::{CoordinatorEpoch, ErrorCode, LeaderEpoch, ProducerEpoch, ProducerId};

const P: ProducerId = ProducerId(7);
const Q: ProducerId = ProducerId(8);

/// A batch as a test describes it.
#[derive(Clone, Copy)]
struct Batch {
    producer_id: ProducerId,
    epoch: i16,
    base_sequence: i32,
    records: i32,
    transactional: bool,
}

/// A one-record batch of P, epoch 0, not transactional.
fn seq(base_sequence: i32) -> Batch {
    Batch {
        producer_id: P,
        epoch: 0,
        base_sequence,
        records: 1,
        transactional: false,
    }
}

fn txn(base_sequence: i32) -> Batch {
    Batch {
        transactional: true,
        ..seq(base_sequence)
    }
}

impl Batch {
    fn epoch(self, epoch: i16) -> Batch {
        Batch { epoch, ..self }
    }

    fn records(self, records: i32) -> Batch {
        Batch { records, ..self }
    }

    fn of(self, producer_id: ProducerId) -> Batch {
        Batch {
            producer_id,
            ..self
        }
    }

    fn header(self, base_offset: i64) -> BatchHeader {
        let mut attributes = Attributes::default();
        if self.transactional {
            attributes = attributes.with_transactional();
        }
        BatchHeader {
            base_offset,
            batch_length: 49,
            leader_epoch: LeaderEpoch(0),
            magic: 2,
            crc: 0,
            attributes,
            last_offset_delta: self.records - 1,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: self.producer_id,
            producer_epoch: ProducerEpoch(self.epoch),
            base_sequence: self.base_sequence,
            record_count: self.records,
        }
    }
}

/// A partition's log end and its producers.
#[derive(Default)]
struct Partition {
    producers: PartitionProducers,
    leo: i64,
    wall_ms: i64,
}

const V1: Origin = Origin::Client {
    transactional_v2: false,
    enrolment: Ok(()),
};
const V2: Origin = Origin::Client {
    transactional_v2: true,
    enrolment: Ok(()),
};
/// The coordinator knows of no transaction with this partition.
const NOT_ENROLLED: Origin = Origin::Client {
    transactional_v2: false,
    enrolment: Err(InvalidTxnState),
};

impl Partition {
    fn idle_since(&self, wall_ms: i64) -> Vec<ProducerId> {
        let (idle, next) = self.producers.expirable(ProducerId(0), usize::MAX, wall_ms);
        assert_eq!(next, None);
        idle
    }

    /// Appends if it may; the base offset that is answered.
    fn send_as(&mut self, origin: Origin, batch: Batch) -> Result<i64, ErrorCode> {
        let verdict = self.producers.decide_append(&batch.header(-1), origin)?;
        self.producers.check();
        match verdict {
            AppendVerdict::Duplicate { base_offset, .. } => Ok(base_offset),
            AppendVerdict::Append => {
                let base_offset = self.leo;
                self.producers
                    .apply_append(&batch.header(base_offset), self.wall_ms);
                self.producers.check();
                self.leo += i64::from(batch.records);
                Ok(base_offset)
            }
        }
    }

    fn send(&mut self, batch: Batch) -> Result<i64, ErrorCode> {
        self.send_as(V1, batch)
    }

    fn end(
        &mut self,
        producer_id: ProducerId,
        epoch: i16,
        end: ControlType,
    ) -> Option<CompletedTxn> {
        self.producers
            .decide_marker(producer_id, ProducerEpoch(epoch), CoordinatorEpoch(0))
            .expect("the marker is current");
        let header = Batch {
            producer_id,
            ..txn(-1).epoch(epoch)
        }
        .header(self.leo);
        let completed =
            self.producers
                .apply_marker(&header, end, CoordinatorEpoch(0), self.leo, self.wall_ms);
        self.producers.check();
        self.leo += 1;
        completed
    }

    fn lso(&self) -> i64 {
        self.producers.lso(self.leo, 0)
    }

    /// A restart with nothing but the checkpoint.
    fn restart(&mut self) {
        let bytes = self.producers.encode();
        self.producers = PartitionProducers::decode(&bytes).expect("just encoded");
    }
}

#[test]
fn a1_five_batches_are_remembered() {
    let mut t = Partition::default();
    for sequence in 0..6 {
        assert_eq!(t.send(seq(sequence)), Ok(i64::from(sequence)));
    }
    for restarted in [false, true] {
        if restarted {
            t.restart();
        }
        assert_eq!(t.send(seq(1)), Ok(1));
        assert_eq!(t.send(seq(0)), Err(OutOfOrderSequenceNumber));
        assert_eq!(t.send(seq(7)), Err(OutOfOrderSequenceNumber));
        assert_eq!(t.send(seq(1).records(2)), Err(OutOfOrderSequenceNumber));
        assert_eq!(t.leo, 6);
    }
    assert_eq!(t.send(seq(6)), Ok(6));
}

#[test]
fn m1_m3_batches_of_several_records() {
    let mut t = Partition::default();
    for round in [true, false] {
        for base in [0, 10, 20, 30, 40] {
            assert_eq!(
                t.send(seq(base).records(10)),
                Ok(i64::from(base)),
                "{round}"
            );
        }
        assert_eq!(t.leo, 50);
    }
    assert_eq!(t.send(seq(50).records(10)), Ok(50));
    assert_eq!(t.send(seq(0).records(10)), Err(OutOfOrderSequenceNumber));
    assert_eq!(t.leo, 60);

    let mut t = Partition::default();
    assert_eq!(t.send(seq(0)), Ok(0));
    assert_eq!(t.send(seq(2)), Err(OutOfOrderSequenceNumber));
    assert_eq!(t.leo, 1);
}

#[test]
fn t10_the_same_batch_twice_is_one_append() {
    let mut t = Partition::default();
    for sequence in 0..20 {
        let first = t.send(seq(sequence));
        assert_eq!(t.send(seq(sequence)), first);
        assert_eq!(t.leo, i64::from(sequence) + 1);
    }
}

#[test]
fn a3_an_unknown_producer_may_begin_anywhere() {
    let mut t = Partition::default();
    assert_eq!(t.send(seq(0).records(2)), Ok(0));
    t.producers.remove(P);
    assert_eq!(t.send(seq(2)), Ok(2));
    assert_eq!(t.send(seq(2)), Ok(2), "and is known from there");
    assert_eq!(t.send(seq(4)), Err(OutOfOrderSequenceNumber));
    // Version 1's transactions too; version 2's sequences begin at 0 in each epoch.
    assert_eq!(t.send(txn(5).of(Q)), Ok(3));
    let r = ProducerId(9);
    assert_eq!(t.send_as(V2, txn(5).of(r)), Err(OutOfOrderSequenceNumber));
    assert_eq!(t.send_as(V2, txn(0).of(r)), Ok(4));
    // Idempotent without a transaction: any, whatever the version of the request.
    assert_eq!(t.send_as(V2, seq(5).of(ProducerId(10))), Ok(5));
}

#[test]
fn sequences_wrap_after_the_largest() {
    let mut t = Partition::default();
    assert_eq!(t.send(seq(i32::MAX - 1).records(2)), Ok(0));
    assert_eq!(t.send(seq(1)), Err(OutOfOrderSequenceNumber));
    assert_eq!(t.send(seq(0)), Ok(2));
    t.producers.remove(P);
    // Within a batch: MAX, 0, 1.
    assert_eq!(t.send(seq(i32::MAX).records(3)), Ok(3));
    assert_eq!(t.send(seq(i32::MAX).records(3)), Ok(3));
    assert_eq!(t.send(seq(1)), Err(OutOfOrderSequenceNumber));
    assert_eq!(t.send(seq(2)), Ok(6));
}

#[test]
fn a_new_epoch_begins_at_zero_and_ends_the_old() {
    let mut t = Partition::default();
    assert_eq!(t.send(seq(0)), Ok(0));
    assert_eq!(t.send(seq(1).epoch(1)), Err(OutOfOrderSequenceNumber));
    assert_eq!(
        t.send(seq(0).epoch(1)),
        Ok(1),
        "not a duplicate of epoch 0's"
    );
    assert_eq!(t.send(seq(0).epoch(1)), Ok(1));
    assert_eq!(t.send(seq(0)), Err(InvalidProducerEpoch));
    assert_eq!(t.send(seq(1)), Err(InvalidProducerEpoch));
    // A jump over epochs that wrote nothing here.
    assert_eq!(t.send(seq(0).epoch(9)), Ok(2));
    assert_eq!(t.leo, 3);
}

#[test]
fn a17_a_late_batch_does_not_reopen_a_transaction() {
    // Version 1: the marker carries the transaction's own epoch.
    let mut t = Partition::default();
    assert_eq!(t.send(txn(0)), Ok(0));
    t.end(P, 0, ControlType::Abort);
    assert_eq!(t.send_as(NOT_ENROLLED, txn(1)), Err(InvalidTxnState));
    assert_eq!((t.leo, t.lso()), (2, 2));
    assert_eq!(
        t.send_as(NOT_ENROLLED, txn(0)),
        Ok(0),
        "a repeat is a repeat"
    );
    assert_eq!(t.lso(), 2);
    assert_eq!(t.send(txn(1)), Ok(2), "enrolled: the next transaction");
    assert_eq!(t.send_as(NOT_ENROLLED, txn(2)), Ok(3), "within it, known");
    assert_eq!(t.lso(), 2);

    // Version 2: the marker's epoch fences.
    let mut t = Partition::default();
    assert_eq!(t.send_as(V2, txn(0)), Ok(0));
    t.end(P, 1, ControlType::Abort);
    for origin in [V2, NOT_ENROLLED] {
        assert_eq!(t.send_as(origin, txn(1)), Err(InvalidProducerEpoch));
        assert_eq!(t.send_as(origin, txn(0)), Err(InvalidProducerEpoch));
    }
    assert_eq!((t.leo, t.lso()), (2, 2));
    assert_eq!(
        t.send_as(V2, txn(1).epoch(1)),
        Err(OutOfOrderSequenceNumber)
    );
    assert_eq!(t.send_as(V2, txn(0).epoch(1)), Ok(2));
}

#[test]
fn an_open_transaction_vouches_only_for_its_own_epoch() {
    let mut t = Partition::default();
    assert_eq!(t.send(txn(0)), Ok(0));
    assert_eq!(
        t.send_as(NOT_ENROLLED, txn(0).epoch(1)),
        Err(InvalidTxnState)
    );
    assert_eq!(t.send(txn(0).epoch(1)), Ok(1));
    assert_eq!(t.lso(), 0, "it is still the same open transaction here");
}

#[test]
fn a18_a_plain_batch_inside_an_open_transaction() {
    let mut t = Partition::default();
    assert_eq!(t.send(txn(0)), Ok(0));
    assert_eq!(t.send(seq(1)), Err(InvalidTxnState));
    assert_eq!(t.send(seq(5)), Err(OutOfOrderSequenceNumber), "order first");
    assert_eq!(t.send(seq(0).of(Q)), Ok(1), "another producer's is its own");
    assert_eq!(t.leo, 2);
    t.end(P, 0, ControlType::Commit);
    assert_eq!(t.send(seq(1)), Ok(3));
}

#[test]
fn the_window_lives_through_a_marker_of_its_epoch() {
    let mut t = Partition::default();
    for sequence in 0..5 {
        t.send(txn(sequence)).unwrap();
    }
    t.end(P, 0, ControlType::Commit);
    for sequence in 0..5 {
        assert_eq!(t.send(txn(sequence)), Ok(i64::from(sequence)));
    }
    assert_eq!(t.send(txn(5)), Ok(6));
}

#[test]
fn markers_say_what_they_ended() {
    let mut t = Partition::default();
    t.send(txn(0)).unwrap();
    t.send(txn(0).of(Q)).unwrap();
    t.send(txn(1)).unwrap();
    assert_eq!(t.lso(), 0);
    let open: Vec<_> = t
        .producers
        .open_transactions()
        .map(|txn| (txn.producer_id, txn.first_offset))
        .collect();
    assert_eq!(open, [(P, 0), (Q, 1)]);

    let completed = t.end(P, 0, ControlType::Abort).unwrap();
    assert_eq!(
        completed,
        CompletedTxn {
            producer_id: P,
            first_offset: 0,
            last_offset: 3,
            aborted: true,
            last_stable_offset: 1,
        }
    );
    let entry = completed.aborted_txn().unwrap();
    assert_eq!((entry.first_offset, entry.last_offset), (0, 3));
    assert_eq!(t.lso(), 1);

    let completed = t.end(Q, 1, ControlType::Commit).unwrap();
    assert_eq!((completed.last_stable_offset, t.lso()), (5, 5));
    assert_eq!(completed.aborted_txn(), None);

    // Enrolled without data, or a marker written again: epochs only.
    assert_eq!(t.end(Q, 1, ControlType::Abort), None);
    assert_eq!(t.end(ProducerId(9), 4, ControlType::Commit), None);
    assert_eq!(t.lso(), t.leo);
    assert_eq!(
        t.send(seq(0).of(ProducerId(9)).epoch(3)),
        Err(InvalidProducerEpoch)
    );
}

#[test]
fn markers_are_refused_from_the_past() {
    let mut t = Partition::default();
    t.send(txn(0).epoch(3)).unwrap();
    let decide = |t: &Partition, epoch: i16, coordinator_epoch: i32| {
        t.producers
            .decide_marker(P, ProducerEpoch(epoch), CoordinatorEpoch(coordinator_epoch))
    };
    assert_eq!(decide(&t, 2, 5), Err(InvalidProducerEpoch));
    assert_eq!(decide(&t, 3, 5), Ok(()));
    let header = txn(-1).epoch(3).header(t.leo);
    t.producers
        .apply_marker(&header, ControlType::Commit, CoordinatorEpoch(5), t.leo, 0);
    t.restart();
    assert_eq!(decide(&t, 3, 4), Err(TransactionCoordinatorFenced));
    assert_eq!(decide(&t, 4, 4), Err(TransactionCoordinatorFenced));
    assert_eq!(decide(&t, 3, 5), Ok(()));
    assert_eq!(decide(&t, 4, 6), Ok(()));
}

#[test]
fn a_coordinators_batches_have_no_sequence() {
    let mut t = Partition::default();
    let offsets = txn(-1).epoch(2);
    assert_eq!(t.send_as(Origin::Coordinator, offsets), Ok(0));
    assert_eq!(
        t.send_as(Origin::Coordinator, offsets),
        Ok(1),
        "no duplicate"
    );
    assert_eq!(
        t.send_as(Origin::Coordinator, txn(-1).epoch(1)),
        Err(InvalidProducerEpoch)
    );
    assert_eq!(t.lso(), 0);
    t.restart();
    assert_eq!(t.lso(), 0);
    t.end(P, 2, ControlType::Commit);
    assert_eq!(t.send_as(Origin::Coordinator, txn(-1).epoch(3)), Ok(3));
    assert_eq!(t.lso(), 3);
}

#[test]
fn the_lowest_refused_sequence_goes_first() {
    let mut t = Partition::default();
    t.producers.note_refused(P, ProducerEpoch(0), 0);
    t.producers.note_refused(P, ProducerEpoch(0), 10);
    assert_eq!(t.send(seq(10)), Err(OutOfOrderSequenceNumber));
    assert_eq!(t.send(seq(0).records(10)), Ok(0));
    assert_eq!(t.send(seq(10)), Ok(10));
    // A known producer's order follows from its batches.
    t.producers.note_refused(P, ProducerEpoch(0), 5);
    t.producers.remove(P);
    assert_eq!(t.send(seq(11)), Ok(11));
    t.producers
        .note_refused(ProducerId::NONE, ProducerEpoch::NONE, -1);
}

#[test]
fn without_a_producer_id_nothing_is_checked_or_kept() {
    let mut t = Partition::default();
    let plain = Batch {
        producer_id: ProducerId::NONE,
        ..seq(-1).epoch(-1)
    };
    assert_eq!(t.send(plain), Ok(0));
    assert_eq!(t.send(plain), Ok(1));
    assert!(t.producers.is_empty());
}

#[test]
fn the_lso_lies_between_log_start_and_high_watermark() {
    let mut t = Partition {
        leo: 100,
        ..Partition::default()
    };
    assert_eq!(t.producers.lso(100, 0), 100);
    t.send(txn(0)).unwrap();
    t.leo = 200;
    for (high_watermark, log_start, lso) in
        [(200, 0, 100), (50, 0, 50), (200, 150, 150), (200, 100, 100)]
    {
        assert_eq!(t.producers.lso(high_watermark, log_start), lso);
    }
}

#[test]
fn m19_idle_producers_expire_unless_in_a_transaction() {
    let mut t = Partition::default();
    let (idle, open, active) = (ProducerId(1), ProducerId(2), ProducerId(3));
    t.send(seq(0).of(idle)).unwrap();
    t.send(txn(0).of(open)).unwrap();
    t.send(seq(0).of(active)).unwrap();
    t.wall_ms = 1_500;
    t.send(seq(1).of(active)).unwrap();
    assert_eq!(t.idle_since(-1), []);
    assert_eq!(t.idle_since(0), [idle]);
    t.restart();
    assert_eq!(t.idle_since(1500), [idle, active]);
    t.wall_ms = 3_000;
    t.end(open, 0, ControlType::Abort);
    assert_eq!(t.idle_since(3000), [idle, open, active]);
    t.producers.remove(idle);
    t.producers.remove(idle);
    assert_eq!(t.producers.len(), 2);
    // A few at a time come to the same.
    let (some, next) = t.producers.expirable(ProducerId(0), 1, 5_000);
    assert_eq!((some, next), (vec![open], Some(active)));
    let (some, next) = t.producers.expirable(active, 1, 5_000);
    assert_eq!((some, next), (vec![active], None));
    // A wall clock that steps back makes nobody older.
    t.wall_ms = 0;
    t.send(seq(2).of(active)).unwrap();
    assert_eq!(t.idle_since(1499), []);
}

#[test]
fn a_duplicate_answers_the_append_time_of_the_original() {
    let mut producers = PartitionProducers::new();
    let mut stored = BatchBuilder::new(10)
        .producer(P, ProducerEpoch(0), 0)
        .push(None, Some(b"v"))
        .build();
    let sent = BatchHeader::parse(&stored).unwrap();
    patch_log_append_time(&mut stored, 1_234);
    let stored = BatchHeader::parse(&stored).unwrap();
    assert_eq!(
        stored.attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
    producers.apply_append(&stored, 1_234);
    let verdict = producers.decide_append(&sent, V1);
    assert_eq!(
        verdict,
        Ok(AppendVerdict::Duplicate {
            base_offset: 0,
            log_append_time: 1_234
        })
    );
}
