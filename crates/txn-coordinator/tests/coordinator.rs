//! The state over all partitions: look-ups, order, taking back, and what it refuses to apply.

mod common;

use common::*;
use tidemark_txn_coordinator::*;
use tidemark_types::{COORDINATOR_PARTITIONS, ProducerEpoch, ProducerId, coordinator_partition};

fn named(id: &str, producer_id: i64) -> TxnMeta {
    TxnMeta {
        transactional_id: id.into(),
        producer_id: ProducerId(producer_id),
        ..empty_at(0)
    }
}

#[test]
fn ids_are_found_by_name_and_by_present_or_previous_producer_id() {
    let mut c = Coordinator::default();
    for (n, id) in ["b", "a", "tx-9"].into_iter().enumerate() {
        assert_eq!(c.apply(id, Some(named(id, n as i64))), None);
    }
    assert_eq!(c.len(), 3);
    assert_eq!(c.get("a").unwrap().producer_id, ProducerId(1));
    assert_eq!(c.get("zzz"), None);
    let by_id = |c: &Coordinator, pid: i64| {
        c.by_producer_id(ProducerId(pid))
            .map(|m| m.transactional_id.to_string())
    };
    assert_eq!(by_id(&c, 0).as_deref(), Some("b"));
    assert_eq!(by_id(&c, 3), None);
    assert_eq!(by_id(&c, -1), None);

    let mut s = Shard::at(empty_at(32_766));
    s.init(None).unwrap();
    let c = &mut s.coordinator;
    assert_eq!(by_id(c, 7).as_deref(), Some("tx1"));
    assert_eq!(by_id(c, 8).as_deref(), Some("tx1"));
    let zombie = Session::of(c.get("tx1").unwrap(), ProducerId(7), ProducerEpoch(32_766));
    assert_eq!(zombie, Session::Fenced);
    c.apply("tx1", None);
    assert_eq!(by_id(c, 7), None);
    assert_eq!(by_id(c, 8), None);
    assert!(c.is_empty());
}

#[test]
fn iteration_is_by_partition_then_by_name() {
    let mut c = Coordinator::default();
    for n in (0..200).rev() {
        let id = format!("id-{n}");
        c.apply(&id, Some(named(&id, n)));
    }
    let seen: Vec<_> = c
        .iter()
        .map(|m| {
            let id = m.transactional_id.to_string();
            (coordinator_partition(&id, COORDINATOR_PARTITIONS), id)
        })
        .collect();
    let mut sorted = seen.clone();
    sorted.sort();
    assert_eq!(seen, sorted);
    assert_eq!(seen.len(), 200);
    let per_partition: usize = (0..COORDINATOR_PARTITIONS)
        .map(|p| c.iter_partition(p).count())
        .sum();
    assert_eq!(per_partition, 200);
    assert_eq!(
        c.iter_partition(-1).count() + c.iter_partition(50).count(),
        0
    );
}

#[test]
fn a_partition_as_records_rebuilds_the_partition() {
    let mut c = Coordinator::default();
    for n in 0..100 {
        let id = format!("id-{n}");
        c.apply(&id, Some(named(&id, n)));
    }
    let p = c.partition_of("id-5");
    let block: Vec<_> = c.records_of_partition(p).collect();
    let mut emptied = c.clone();
    emptied.clear_partition(p);
    assert_eq!(emptied.iter_partition(p).count(), 0);
    assert_eq!(emptied.by_producer_id(ProducerId(5)), None);
    for (key, value) in &block {
        emptied.apply_record(key, Some(value)).unwrap();
    }
    assert_eq!(emptied, c);
}

#[test]
fn a_change_that_was_lost_is_taken_back() {
    let mut s = Shard::new();
    let pair = s.init(None).unwrap();
    let before = s.coordinator.clone();
    let (producer_id, epoch) = typed(pair);
    let outcome = decide_add_partitions(
        s.coordinator.get("tx1"),
        producer_id,
        epoch,
        &parts(&[("t", 0)]),
        2_000,
    )
    .unwrap();
    let previous = s.coordinator.apply("tx1", outcome.next);
    s.coordinator.restore("tx1", previous).unwrap();
    assert_eq!(s.coordinator, before);

    let previous = s.coordinator.apply("tx1", None);
    s.coordinator.restore("tx1", previous).unwrap();
    assert_eq!(s.coordinator, before);
}

#[test]
fn a_record_that_no_decision_can_have_made_is_refused_at_replay() {
    let mut s = Shard::new();
    let pair = s.init(None).unwrap();
    s.init(None).unwrap();
    s.enrol(Dialect::V1, (7, 1), &[("t", 0)]).unwrap();
    assert_ne!(s.pair(), pair);
    let present = s.meta().clone();
    type Damage = fn(&mut TxnMeta);
    let damages: [(&str, Damage); 12] = [
        ("epoch falls", |m| m.epoch = ProducerEpoch(0)),
        ("epoch 32767", |m| m.epoch = ProducerEpoch::MAX),
        ("negative epoch", |m| m.epoch = ProducerEpoch(-1)),
        ("another producer id", |m| m.producer_id = ProducerId(99)),
        ("loses a partition", |m| m.partitions = parts(&[("u", 0)])),
        ("Ongoing without partitions", |m| m.partitions.clear()),
        ("start moves", |m| m.start_wall_ms -= 1),
        ("last update goes back", |m| m.last_update_wall_ms -= 1),
        ("counts a transaction", |m| m.txn_number += 1),
        ("Dead is recorded", |m| m.state = TxnState::Dead),
        ("completed with partitions", |m| {
            m.state = TxnState::CompleteCommit
        }),
        ("Ongoing with a last epoch", |m| {
            m.last_epoch = ProducerEpoch(0)
        }),
    ];
    for (name, damage) in damages {
        let mut next = present.clone();
        damage(&mut next);
        let mut c = s.coordinator.clone();
        let applied = c.apply_record(&encode_key("tx1"), Some(&encode_value(&next)));
        assert!(matches!(applied, Err(ApplyError::Violation(_))), "{name}");
        assert_eq!(c, s.coordinator, "{name}: nothing changes");
    }
    let tombstone = s.coordinator.apply_record(&encode_key("tx1"), None);
    assert!(tombstone.is_err(), "an ongoing id is not forgotten");
}

#[test]
fn a_producer_id_belongs_to_one_id() {
    let mut c = Coordinator::default();
    c.apply("a", Some(named("a", 1)));
    let value = encode_value(&named("b", 1));
    assert!(c.apply_record(&encode_key("b"), Some(&value)).is_err());
    assert!(c.restore("b", Some(named("b", 1))).is_err());
}

#[test]
#[should_panic(expected = "cannot be applied")]
fn applying_what_cannot_follow_is_a_bug_of_ours() {
    let mut s = Shard::new();
    s.init(None).unwrap();
    let mut next = s.meta().clone();
    next.state = TxnState::CompleteCommit;
    next.start_wall_ms = 0;
    s.coordinator.apply("tx1", Some(next));
}

#[test]
fn which_state_may_follow_which() {
    // On one journal: (from, to) that are legal; everything else is refused.
    use TxnState::{CompleteAbort, CompleteCommit, Empty, Ongoing};
    let legal = [
        (Empty, Empty),
        (Empty, Ongoing),
        (Empty, CompleteAbort),
        (Ongoing, Ongoing),
        (Ongoing, CompleteCommit),
        (Ongoing, CompleteAbort),
        (Ongoing, Empty),
        (CompleteCommit, Ongoing),
        (CompleteCommit, Empty),
        (CompleteCommit, CompleteAbort),
        (CompleteAbort, Ongoing),
        (CompleteAbort, Empty),
        (CompleteAbort, CompleteAbort),
    ];
    let at = |state: TxnState, epoch: i16, txn_number: u64| {
        let mut meta = empty_at(epoch);
        meta.state = state;
        meta.txn_number = txn_number;
        if state != Empty {
            meta.start_wall_ms = 900;
        }
        if state == Ongoing {
            meta.partitions = parts(&[("t", 0)]);
        }
        meta
    };
    for from in [Empty, Ongoing, CompleteCommit, CompleteAbort] {
        for to in [Empty, Ongoing, CompleteCommit, CompleteAbort] {
            let begins = to == Ongoing && from != Ongoing;
            let epoch = if to == Ongoing { 5 } else { 6 };
            let previous = at(from, 5, 1);
            let next = at(to, epoch, 1 + u64::from(begins));
            let allowed = check_transition(Some(&previous), Some(&next)).is_ok();
            assert_eq!(allowed, legal.contains(&(from, to)), "{from} to {to}");
        }
    }
}

#[test]
fn what_a_principal_has_is_counted_from_the_states_whatever_changes_them() {
    let who = |principal: &str| Who {
        principal: principal.into(),
        ..Who::default()
    };
    let mut c = Coordinator::default();
    let mut choice = 1u64;
    let mut below = |n: u64| {
        choice = choice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (choice >> 33) % n
    };
    for _ in 0..5_000 {
        let n = below(20);
        let id = format!("id-{n}");
        let state = match below(4) {
            0 => None,
            1 => Some(TxnMeta {
                state: TxnState::Ongoing,
                partitions: Partitions::from([("t".into(), 0)]),
                start_wall_ms: 1,
                ..named(&id, n as i64)
            }),
            _ => Some(named(&id, n as i64)),
        };
        let state = state.map(|state| TxnMeta {
            who: who(["User:a", "User:b", "User:c"][below(3) as usize]),
            ..state
        });
        // As a checkpoint, or what was lost, sets it: any state may follow any other.
        c.restore(&id, state).unwrap();
        if below(50) == 0 {
            c.clear_partition(below(COORDINATOR_PARTITIONS as u64) as i32);
        }
        for principal in ["User:a", "User:b", "User:c", "User:nobody"] {
            let its = || c.iter().filter(|meta| *meta.who.principal == *principal);
            let counted = Holdings {
                ids: its().count(),
                open: its().filter(|m| m.state == TxnState::Ongoing).count(),
            };
            assert_eq!(c.holdings(principal), counted, "{principal}");
        }
    }
}
