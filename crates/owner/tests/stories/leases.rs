//! Leases (`transaction.lease.mode=renew`): the timeout runs from what was last written or enrolled.

use tidemark_owner::{Command, Event, Inspect, OwnerOptions, Reply};
use tidemark_types::{ErrorCode, MonoTime};

use crate::common::{Producer, World, options};

fn world() -> World {
    let mut w = World::with(OwnerOptions {
        renew_leases: true,
        ..options()
    });
    w.create_topic("t", 3);
    w
}

fn producer(w: &mut World, v2: bool, timeout_ms: i32) -> Producer {
    let p = match v2 {
        true => Producer::v2(w, "tx1"),
        false => Producer::classic(w, "tx1"),
    };
    let (producer_id, epoch) = w.init_with_timeout(Some("tx1"), None, timeout_ms).unwrap();
    Producer {
        producer_id,
        epoch,
        ..p
    }
}

fn begin(w: &mut World, p: &Producer) {
    if p.version < 12 {
        p.add(w, &[("t", 0)]);
    }
    p.send(w, "t", 0, 0, &["r0"]).unwrap();
}

fn timed_out(w: &World) -> usize {
    let timeouts = w.events.iter();
    timeouts
        .filter(|e| matches!(e, Event::TransactionTimedOut { .. }))
        .count()
}

#[test]
fn t6_appends_renew_a_lease_to_the_millisecond_and_what_is_expired_stays_so() {
    for v2 in [false, true] {
        for ends_in_time in [true, false] {
            let mut w = world();
            let mut p = producer(&mut w, v2, 10_000);
            begin(&mut w, &p);
            w.pass_ms(8_000);
            p.send(&mut w, "t", 0, 1, &["r1"]).unwrap();
            w.pass_ms(8_000);
            p.send(&mut w, "t", 0, 2, &["r2"]).unwrap();
            w.pass_ms(4_000);
            // Refused, and a repeat: neither is an append.
            let gap = p.send(&mut w, "t", 0, 7, &["r7"]);
            assert_eq!(gap, Err(ErrorCode::OutOfOrderSequenceNumber));
            assert_eq!(p.send(&mut w, "t", 0, 2, &["r2"]), Ok(2));
            w.pass_ms(5_999);
            if ends_in_time {
                p.end(&mut w, true).unwrap();
                assert_eq!(w.committed("t", 0), ["r0", "r1", "r2"]);
                w.pass_ms(60_000);
                assert_eq!(timed_out(&w), 0);
                continue;
            }
            w.pass_ms(1);
            assert_eq!(timed_out(&w), 1);
            assert_eq!(w.markers("t", 0), [('A', p.epoch.0 + 1)]);
            let late = p.end(&mut w, true);
            let expected = match v2 {
                true => ErrorCode::TransactionAbortable,
                false => ErrorCode::ProducerFenced,
            };
            assert_eq!(late, Err(expected), "expired is final");
            w.restart();
            assert_eq!(p.end(&mut w, true), Err(expected));
            let sent = p.send(&mut w, "t", 0, 3, &["r3"]);
            assert_eq!(sent, Err(ErrorCode::InvalidProducerEpoch));
            assert_eq!(w.committed("t", 0), Vec::<String>::new());
        }
    }
}

#[test]
fn enrolments_and_offsets_renew_a_lease_too() {
    let mut w = world();
    let mut p = producer(&mut w, false, 10_000);
    p.add(&mut w, &[("t", 0)]);
    w.pass_ms(9_000);
    p.add(&mut w, &[("t", 1)]);
    w.pass_ms(9_000);
    assert_eq!(p.add_offsets(&mut w, "g"), ErrorCode::None);
    w.pass_ms(9_000);
    let committed = p.commit_offsets(&mut w, "g", &[("t", 0, 7)]);
    assert_eq!(committed, [ErrorCode::None]);
    // What is enrolled already is no record, so that no start could find it again.
    w.pass_ms(9_000);
    let records = w.records.len();
    p.add(&mut w, &[("t", 1)]);
    assert_eq!(w.records.len(), records);
    w.pass_ms(999);
    assert_eq!(timed_out(&w), 0);
    w.pass_ms(1);
    assert_eq!(timed_out(&w), 1);
    assert_eq!(p.end(&mut w, true), Err(ErrorCode::ProducerFenced));
}

#[test]
fn no_lease_outlives_the_longest_timeout_there_is() {
    let mut w = World::with(OwnerOptions {
        renew_leases: true,
        transaction_max_timeout_ms: 62_000,
        ..options()
    });
    w.create_topic("t", 1);
    let p = producer(&mut w, false, 10_000);
    begin(&mut w, &p);
    for sequence in 1..8 {
        w.pass_ms(8_000);
        p.send(&mut w, "t", 0, sequence, &["v"]).unwrap();
    }
    w.restart();
    p.send(&mut w, "t", 0, 8, &["v"]).unwrap();
    w.pass_ms(5_999);
    assert_eq!(timed_out(&w), 0);
    w.pass_ms(1);
    assert_eq!(timed_out(&w), 1, "62 s from its start");
}

#[test]
fn a_start_finds_the_lease_that_the_last_append_gave() {
    let mut w = world();
    let p = producer(&mut w, true, 10_000);
    begin(&mut w, &p);
    w.pass_ms(8_000);
    p.send(&mut w, "t", 0, 1, &["v"]).unwrap();
    w.pass_ms(3_000);
    // Another process, another monotonic clock.
    w.mono_ms = 70_000_000;
    w.restart();
    assert_eq!(w.owner.next_deadline(), Some(MonoTime::from_ms(70_007_000)));
    // A wall clock that was set back gives no more than the whole timeout.
    w.wall_ms -= 3_600_000;
    w.restart();
    assert_eq!(w.owner.next_deadline(), Some(MonoTime::from_ms(70_010_000)));
}

#[test]
fn a_lease_goes_with_the_append_that_gave_it() {
    let mut w = world();
    w.may_lose = true;
    w.owner.keep_undo();
    let p = producer(&mut w, false, 10_000);
    begin(&mut w, &p);
    let armed = w.owner.next_deadline();
    let kept = w.records.len();
    w.confirm(kept);
    w.pass_ms(8_000);
    p.send(&mut w, "t", 0, 1, &["lost"]).unwrap();
    assert!(w.owner.next_deadline() > armed);
    w.lose(kept);
    assert_eq!(w.owner.next_deadline(), armed);
    w.pass_ms(2_000);
    assert_eq!(timed_out(&w), 1);
}

/// What an operator is told of it: by its id, and as the one that holds the partition.
fn told(w: &mut World) -> Option<i64> {
    let mut inspect = |what| match w.ask(Command::Inspect(what)) {
        Reply::Inspect(found) => found,
        other => panic!("{other:?}"),
    };
    let of_id = inspect(Inspect::TransactionalId("tx1".to_owned()));
    let told = of_id.transactions[0].times_out_in_ms;
    let holders = inspect(Inspect::Partitions {
        topic: "t".to_owned(),
        partition: Some(0),
    });
    let holder = holders.partitions[0].open.first();
    assert_eq!(holder.and_then(|open| open.times_out_in_ms), told);
    told
}

#[test]
fn the_time_that_is_left_is_told_as_the_deadline_has_it() {
    for renew_leases in [true, false] {
        let mut w = World::with(OwnerOptions {
            renew_leases,
            ..options()
        });
        w.create_topic("t", 3);
        let mut p = producer(&mut w, false, 10_000);
        assert_eq!(told(&mut w), None);
        begin(&mut w, &p);
        assert_eq!(told(&mut w), Some(10_000));
        w.pass_ms(8_000);
        p.send(&mut w, "t", 0, 1, &["r1"]).unwrap();
        w.pass_ms(1_500);
        let left = if renew_leases { 8_500 } else { 500 };
        assert_eq!(told(&mut w), Some(left));
        // A wall clock that is set moves no deadline.
        w.wall_ms += 3_600_000;
        assert_eq!(told(&mut w), Some(left));
        w.mono_ms += 9_000;
        assert_eq!(told(&mut w), Some(left - 9_000));
        w.expire();
        assert_eq!(timed_out(&w), 1);
        assert_eq!(told(&mut w), None);
        p.end(&mut w, true).unwrap_err();
    }
}
