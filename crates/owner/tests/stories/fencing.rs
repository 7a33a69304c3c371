//! InitProducerId: new sessions, zombies, retries, the end of the epochs.

use tidemark_owner::Event;
use tidemark_types::{ErrorCode, ProducerEpoch};

use crate::common::{Producer, World};

#[test]
fn m5_a14_a_new_session_aborts_and_fences_in_one_record() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut x = Producer::classic(&mut w, "tx1");
    x.add(&mut w, &[("t", 0)]);
    x.send(&mut w, "t", 0, 0, &["r1", "r2", "r3"]).unwrap();

    let before = w.records.len();
    let mut y = Producer::classic(&mut w, "tx1");
    assert_eq!(w.records.len(), before + 1, "one record");
    assert_eq!(y.producer_id, x.producer_id);
    assert_eq!(y.epoch, ProducerEpoch(2), "markers at 1, session at 2");
    assert_eq!(w.markers("t", 0), [('A', 1)]);
    assert_eq!(w.ends("t", 0), (4, 4));
    assert!(matches!(
        w.events.last(),
        Some(Event::ProducerFenced { .. })
    ));

    for restarted in [false, true] {
        if restarted {
            w.restart();
        }
        let zombie = x.send(&mut w, "t", 0, 3, &["late"]);
        assert_eq!(zombie, Err(ErrorCode::InvalidProducerEpoch));
        assert_eq!(x.end(&mut w, true), Err(ErrorCode::ProducerFenced));
        let code = ErrorCode::ProducerFenced;
        assert_eq!(x.add(&mut w, &[("t", 0)]), [code]);
        assert_eq!(x.add_offsets(&mut w, "g"), code);
        let offsets = x.commit_offsets(&mut w, "g", &[("t", 0, 1)]);
        assert_eq!(offsets, [ErrorCode::InvalidProducerEpoch]);
    }
    y.add(&mut w, &[("t", 0)]);
    y.send(&mut w, "t", 0, 0, &["mine"]).unwrap();
    y.end(&mut w, true).unwrap();
    assert_eq!(w.committed("t", 0), ["mine"]);
}

#[test]
fn p7_a_zombie_is_fenced_where_it_never_was_and_outside_transactions() {
    let mut w = World::new();
    w.create_topic("t", 2);
    let x = Producer::classic(&mut w, "tx1");
    Producer::classic(&mut w, "tx1");
    for zombie in [x.clone(), x.outside_transactions()] {
        for partition in 0..2 {
            let sent = zombie.send(&mut w, "t", partition, 0, &["z"]);
            assert_eq!(sent, Err(ErrorCode::InvalidProducerEpoch));
        }
    }
}

#[test]
fn m6_records_of_the_old_epoch_stay_aborted() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let old = Producer::classic(&mut w, "tx1");
    old.add(&mut w, &[("t", 0)]);
    old.send(&mut w, "t", 0, 0, &["a", "b"]).unwrap();
    let mut new = Producer::classic(&mut w, "tx1");
    let between = Producer {
        epoch: ProducerEpoch(1),
        ..new.clone()
    };
    let sent = between.send(&mut w, "t", 0, 0, &["c"]);
    assert_eq!(sent, Err(ErrorCode::InvalidProducerEpoch));
    new.add(&mut w, &[("t", 0)]);
    new.send(&mut w, "t", 0, 0, &["c"]).unwrap();
    new.end(&mut w, false).unwrap();
    assert_eq!(w.committed("t", 0), Vec::<String>::new());
    assert_eq!(w.aborted("t", 0).len(), 2);
}

#[test]
fn p10_asking_again_with_the_pair_finds_the_same_answer() {
    let mut w = World::new();
    w.create_topic("t", 1);
    for ongoing in [false, true] {
        let id = if ongoing { "b" } else { "a" };
        let p = Producer::classic(&mut w, id);
        if ongoing {
            p.add(&mut w, &[("t", 0)]);
            p.send(&mut w, "t", 0, 0, &["x"]).unwrap();
        }
        let pair = (p.producer_id, p.epoch);
        let first = w.init(Some(id), Some(pair)).unwrap();
        assert!(first.1 > p.epoch);
        let records = w.records.len();
        assert_eq!(w.init(Some(id), Some(pair)), Ok(first));
        w.restart();
        assert_eq!(w.init(Some(id), Some(pair)), Ok(first));
        assert_eq!(w.records.len(), records);
        // Another session: then it is too late.
        w.init(Some(id), None).unwrap();
        let late = w.init(Some(id), Some(pair));
        assert_eq!(late, Err(ErrorCode::ProducerFenced));
    }
}

#[test]
fn a_wrong_pair_aborts_nothing() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let mut p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["x"]).unwrap();
    let pair = (p.producer_id, ProducerEpoch(7));
    let wrong = w.init(Some("tx1"), Some(pair));
    assert_eq!(wrong, Err(ErrorCode::ProducerFenced));
    p.end(&mut w, true).unwrap();
    assert_eq!(w.committed("t", 0), ["x"]);
}

#[test]
fn a15_timeouts_out_of_range() {
    let mut w = World::new();
    let refused = Err(ErrorCode::InvalidTransactionTimeout);
    let records = w.records.len();
    for timeout_ms in [900_001, 0, -1] {
        assert_eq!(w.init_with_timeout(Some("tx1"), None, timeout_ms), refused);
    }
    assert_eq!(w.init(Some(""), None), Err(ErrorCode::InvalidRequest));
    let long = "x".repeat(40_000);
    assert_eq!(w.init(Some(&long), None), Err(ErrorCode::InvalidRequest));
    assert_eq!(w.records.len(), records);
    assert!(w.init_with_timeout(Some("tx1"), None, 900_000).is_ok());
}

#[test]
fn the_epochs_of_a_producer_id_run_out_and_the_next_id_goes_on() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let first = Producer::classic(&mut w, "tx1");
    let mut p = first.clone();
    while p.epoch.0 < i16::MAX - 2 {
        p = Producer::classic(&mut w, "tx1");
        assert_eq!(p.producer_id, first.producer_id);
    }
    p.add(&mut w, &[("t", 0)]);
    p.send(&mut w, "t", 0, 0, &["open"]).unwrap();
    let mut next = Producer::classic(&mut w, "tx1");
    assert_ne!(next.producer_id, first.producer_id);
    assert_eq!(next.epoch, ProducerEpoch(0));
    assert_eq!(w.markers("t", 0), [('A', i16::MAX - 1)]);
    let zombie = p.send(&mut w, "t", 0, 1, &["late"]);
    assert_eq!(zombie, Err(ErrorCode::InvalidProducerEpoch));
    next.add(&mut w, &[("t", 0)]);
    next.send(&mut w, "t", 0, 0, &["mine"]).unwrap();
    next.end(&mut w, true).unwrap();
    assert_eq!(w.committed("t", 0), ["mine"]);
    w.restart();
}
