//! Deadlines: from the start of a transaction, by the monotonic clock, over restarts.

use tidemark_owner::Event;
use tidemark_types::{ErrorCode, MonoTime, ProducerEpoch};

use crate::common::{Producer, World};

fn with_timeout(w: &mut World, timeout_ms: i32) -> Producer {
    let p = Producer::classic(w, "tx1");
    let (producer_id, epoch) = w.init_with_timeout(Some("tx1"), None, timeout_ms).unwrap();
    Producer {
        producer_id,
        epoch,
        ..p
    }
}

#[test]
fn a16_a_silent_client_is_aborted_and_fenced_at_its_deadline() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = with_timeout(&mut w, 2_000);
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["r1"]).unwrap();
    w.pass_ms(1_999);
    assert_eq!(w.ends("t", 0), (0, 1));
    let records = w.records.len();
    w.pass_ms(1);
    assert_eq!(w.records.len(), records + 1);
    assert_eq!(w.ends("t", 0), (2, 2), "without any client");
    assert_eq!(w.markers("t", 0), [('A', p.epoch.0 + 1)]);
    assert!(matches!(
        w.events.last(),
        Some(Event::TransactionTimedOut {
            timeout_ms: 2_000,
            ..
        })
    ));
    assert_eq!(w.owner.next_deadline(), None);

    // The client cannot go on as if nothing had happened: not with a batch, not with a partition
    // (its commit would keep half), not with the commit.
    let late = p.send(&mut w, "t", 0, 1, &["r2"]);
    assert_eq!(late, Err(ErrorCode::InvalidProducerEpoch));
    assert_eq!(p.add(&mut w, &[("t", 0)]), [ErrorCode::ProducerFenced]);
    assert_eq!(p.end(&mut w, true), Err(ErrorCode::ProducerFenced));
    // It gets back in with what it knows.
    let pair = (p.producer_id, p.epoch);
    (p.producer_id, p.epoch) = w.init(Some("tx1"), Some(pair)).unwrap();
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["kept"]).unwrap();
    p.end(&mut w, true).unwrap();
    assert_eq!(w.committed("t", 0), ["kept"]);
}

#[test]
fn what_a_transaction_does_later_leaves_its_deadline() {
    let mut w = World::new();
    w.create_topic("t", 3);
    let p = with_timeout(&mut w, 2_000);
    p.add(&mut w, &[("t", 0)]);
    let armed = w.owner.next_deadline();
    assert_eq!(armed, Some(MonoTime::from_ms(w.mono_ms + 2_000)));
    w.pass_ms(500);
    p.add(&mut w, &[("t", 1)]);
    assert_eq!(w.owner.next_deadline(), armed);
    // Nor does the wall clock, in either direction.
    for (partition, wall_step_ms) in [(2, -3_600_000), (0, 7_200_000)] {
        w.wall_ms += wall_step_ms;
        p.add(&mut w, &[("t", partition)]);
        p.send(&mut w, "t", partition, 0, &["v"]).unwrap();
        assert_eq!(w.owner.next_deadline(), armed);
    }
    w.pass_ms(1_500);
    assert_eq!(w.markers("t", 0), [('A', p.epoch.0 + 1)]);
}

#[test]
fn the_next_transaction_has_a_deadline_of_its_own() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = with_timeout(&mut w, 2_000);
    for sequence in 0..3 {
        p.add(&mut w, &[("t", 0)]);
        p.send(&mut w, "t", 0, sequence, &["v"]).unwrap();
        w.pass_ms(1_500);
        p.end(&mut w, true).unwrap();
        assert_eq!(w.owner.next_deadline(), None);
    }
    assert_eq!(w.committed("t", 0).len(), 3);
}

#[test]
fn a_start_leaves_the_time_that_was_left() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let p = with_timeout(&mut w, 10_000);
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
    w.pass_ms(4_000);
    // Another process, another monotonic clock.
    w.mono_ms = 70_000_000;
    w.restart();
    assert_eq!(w.owner.next_deadline(), Some(MonoTime::from_ms(70_006_000)));
    // A wall clock that was set back gives no more than the whole timeout.
    w.wall_ms -= 3_600_000;
    w.restart();
    assert_eq!(w.owner.next_deadline(), Some(MonoTime::from_ms(70_010_000)));
    // Down past the deadline: it is due at once.
    w.wall_ms += 2 * 3_600_000;
    w.restart();
    w.expire();
    assert_eq!(w.ends("t", 0), (2, 2));
}

#[test]
fn everything_that_is_due_comes_one_record_after_the_other() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let producers: Vec<Producer> = (0..5)
        .map(|n| {
            let p = Producer::classic(&mut w, &format!("tx{n}"));
            p.add(&mut w, &[("t", 0)]);
            p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
            p
        })
        .collect();
    let records = w.records.len();
    w.pass_ms(60_000);
    assert_eq!(w.records.len(), records + 5);
    let fenced: Vec<(char, i16)> = producers.iter().map(|p| ('A', p.epoch.0 + 1)).collect();
    assert_eq!(w.markers("t", 0), fenced);
    assert_eq!(w.ends("t", 0), (10, 10));
    assert_eq!(w.owner.next_deadline(), None);
}

#[test]
fn a_timeout_at_the_last_epoch_of_version_2_raises_it_once() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::v2(&mut w, "tx1");
    while p.epoch.0 < i16::MAX - 1 {
        p = Producer::v2(&mut w, "tx1");
    }
    p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
    w.pass_ms(60_000);
    assert_eq!(w.markers("t", 0), [('A', i16::MAX)]);
    let records = w.records.len();
    // The fence has taken the last epoch: a commit does not take another, and is told to abort.
    let commit = p.end(&mut w, true);
    assert_eq!(commit, Err(ErrorCode::TransactionAbortable));
    let old = p.producer_id;
    p.end(&mut w, false).unwrap();
    assert_eq!(w.records.len(), records, "the broker had aborted it");
    assert_ne!(p.producer_id, old);
    assert_eq!(p.epoch, ProducerEpoch(0));
    // Nobody is stuck: not after a restart either.
    w.restart();
    p.send(&mut w, "t", 0, 0, &["kept"]).unwrap();
    p.end(&mut w, true).unwrap();
    assert_eq!(w.committed("t", 0), ["kept"]);
    assert_eq!(p.epoch, ProducerEpoch(1));
}

#[test]
fn a_timeout_at_the_last_epoch_goes_on_under_the_next_producer_id() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::classic(&mut w, "tx1");
    while p.epoch.0 < i16::MAX - 1 {
        p = Producer::classic(&mut w, "tx1");
    }
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
    w.pass_ms(60_000);
    assert_eq!(w.markers("t", 0), [('A', i16::MAX)]);
    w.restart();
    let pair = (p.producer_id, p.epoch);
    let (producer_id, epoch) = w.init(Some("tx1"), Some(pair)).unwrap();
    assert_ne!(producer_id, p.producer_id);
    assert_eq!(epoch, ProducerEpoch(0));
}
