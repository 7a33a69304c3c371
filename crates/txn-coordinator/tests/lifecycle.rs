//! Enrolment, aborts by the broker, what Produce and TxnOffsetCommit are told, and time.

mod common;

use common::*;
use tidemark_txn_coordinator::*;
use tidemark_types::{CONSUMER_OFFSETS, ErrorCode, ProducerEpoch, ProducerId};

#[test]
fn the_first_partition_begins_a_transaction_and_known_ones_write_nothing() {
    for dialect in DIALECTS {
        let mut s = Shard::new();
        let pair = s.init(None).unwrap();
        s.now_wall_ms = 5_000;
        s.enrol(dialect, pair, &[("t", 0)]).unwrap();
        assert_eq!(s.state(), TxnState::Ongoing);
        assert_eq!((s.meta().start_wall_ms, s.meta().txn_number), (5_000, 1));
        assert_eq!(s.meta().dialect, dialect);
        let records = s.records;
        s.enrol(dialect, pair, &[("t", 0)]).unwrap();
        assert_eq!(s.records, records);
        s.now_wall_ms = 6_000;
        s.enrol(dialect, pair, &[("t", 0), ("t", 1), (CONSUMER_OFFSETS, 9)])
            .unwrap();
        assert_eq!(s.records, records + 1);
        assert_eq!(s.meta().start_wall_ms, 5_000, "the start stays");
        assert_eq!(s.meta().last_update_wall_ms, 6_000);

        let pair = s.commit(dialect, pair).unwrap();
        assert_eq!(
            s.markers[0].partitions,
            parts(&[(CONSUMER_OFFSETS, 9), ("t", 0), ("t", 1)])
        );
        s.enrol(dialect, pair, &[("t", 0)]).unwrap();
        assert_eq!(s.meta().txn_number, 2);
        assert_eq!(s.meta().partitions, parts(&[("t", 0)]));
    }
}

#[test]
fn an_empty_list_of_partitions_begins_nothing() {
    let mut s = Shard::new();
    let pair = s.init(None).unwrap();
    assert_eq!(s.enrol(Dialect::V1, pair, &[]), Ok(pair));
    assert_eq!(s.state(), TxnState::Empty);
}

#[test]
fn enrolment_asks_for_the_current_pair() {
    let mut s = Shard::at(empty_at(5));
    for epoch in [-1, 4, 6] {
        assert_eq!(
            s.enrol(Dialect::V1, (7, epoch), &[("t", 0)]),
            Err(ErrorCode::ProducerFenced)
        );
        assert_eq!(
            s.enrol(Dialect::V2, (7, epoch), &[("t", 0)]),
            Err(ErrorCode::InvalidProducerEpoch)
        );
    }
    for dialect in DIALECTS {
        let not_mapped = Err(ErrorCode::InvalidProducerIdMapping);
        assert_eq!(s.enrol(dialect, (8, 5), &[("t", 0)]), not_mapped);
        assert_eq!(s.enrol(dialect, (-1, -1), &[("t", 0)]), not_mapped);
        assert_eq!(Shard::new().enrol(dialect, (7, 5), &[("t", 0)]), not_mapped);
    }
}

#[test]
fn a_transactional_batch_needs_its_partition_in_the_ongoing_transaction() {
    // A17: a delayed batch must not open what no coordinator knows.
    let mut s = Shard::new();
    let pair = s.init(None).unwrap();
    let not_in_txn = Err(ErrorCode::InvalidTxnState);
    assert_eq!(s.produce(pair, "t", 0), not_in_txn);
    s.enrol(Dialect::V1, pair, &[("t", 0)]).unwrap();
    assert_eq!(s.produce(pair, "t", 0), Ok(()));
    assert_eq!(s.produce(pair, "t", 1), not_in_txn);
    assert_eq!(s.produce(pair, "u", 0), not_in_txn);
    s.abort(Dialect::V1, pair).unwrap();
    assert_eq!(s.produce(pair, "t", 0), not_in_txn);

    let (producer_id, epoch) = typed(pair);
    let meta = s.coordinator.by_producer_id(producer_id);
    let v11 = check_transactional_produce(meta, producer_id, epoch, "t", 0, 11);
    assert_eq!(v11, Err(ErrorCode::TransactionAbortable));

    // Version 2: the epoch of the ended transaction is gone.
    s.enrol(Dialect::V2, pair, &[("t", 0)]).unwrap();
    s.abort(Dialect::V2, pair).unwrap();
    assert_eq!(
        s.enrol(Dialect::V2, pair, &[("t", 0)]),
        Err(ErrorCode::InvalidProducerEpoch)
    );
}

#[test]
fn any_batch_of_a_transactional_ids_producer_needs_the_current_epoch() {
    let mut s = Shard::new();
    let zombie = s.init(None).unwrap();
    let owner = s.init(None).unwrap();
    let check = |s: &Shard, pair: Pair| {
        let (producer_id, epoch) = typed(pair);
        check_any_produce(
            s.coordinator.by_producer_id(producer_id),
            producer_id,
            epoch,
        )
    };
    assert_eq!(check(&s, owner), Ok(()));
    assert_eq!(check(&s, zombie), Err(ErrorCode::InvalidProducerEpoch));
    assert_eq!(check(&s, (7, 2)), Err(ErrorCode::InvalidProducerEpoch));
    // An idempotent producer's id is not the coordinator's business.
    assert_eq!(check(&s, (99, 0)), Ok(()));
    // An id that no transactional id has cannot be in a transaction.
    assert_eq!(
        s.produce((99, 0), "t", 0),
        Err(ErrorCode::InvalidProducerIdMapping)
    );
}

#[test]
fn transactional_offsets_need_the_group_in_the_transaction() {
    let mut s = Shard::new();
    let pair = s.init(None).unwrap();
    let check = |s: &Shard, pair: Pair, dialect| {
        let (producer_id, epoch) = typed(pair);
        check_txn_offset_commit(s.coordinator.get("tx1"), producer_id, epoch, 9, dialect)
    };
    assert_eq!(
        check(&s, pair, Dialect::V1),
        Err(ErrorCode::TransactionAbortable)
    );
    assert_eq!(check(&s, pair, Dialect::V2), Ok(()), "it enrols by itself");
    s.enrol(Dialect::V1, pair, &[(CONSUMER_OFFSETS, 9)])
        .unwrap();
    assert_eq!(check(&s, pair, Dialect::V1), Ok(()));
    for dialect in DIALECTS {
        assert_eq!(
            check(&s, (7, 1), dialect),
            Err(ErrorCode::InvalidProducerEpoch)
        );
        assert_eq!(
            check(&s, (8, 0), dialect),
            Err(ErrorCode::InvalidProducerIdMapping)
        );
        assert_eq!(
            check(&Shard::new(), pair, dialect),
            Err(ErrorCode::InvalidProducerIdMapping)
        );
    }
    s.broker_abort(AbortReason::Timeout).unwrap();
    assert_eq!(
        check(&s, pair, Dialect::V1),
        Err(ErrorCode::InvalidProducerEpoch)
    );
    assert_eq!(
        check(&s, pair, Dialect::V2),
        Err(ErrorCode::TransactionAbortable)
    );
}

#[test]
fn a_timed_out_transaction_is_over_for_its_client() {
    // A16.
    let mut s = Shard::new();
    let pair = s.init(None).unwrap();
    s.now_wall_ms = 10_000;
    s.enrol(Dialect::V1, pair, &[("t", 0)]).unwrap();
    let deadline = deadline_wall_ms(s.meta());
    assert_eq!(deadline, Some(10_000 + i64::from(TIMEOUT_MS)));
    s.now_wall_ms = deadline.unwrap();
    assert_eq!(s.broker_abort(AbortReason::Timeout), Ok((7, 1)));
    assert_eq!(s.last_markers(), (7, 1, false));
    assert_eq!(s.meta().ended_by, EndedBy::Timeout);
    assert_eq!(deadline_wall_ms(s.meta()), None);

    // Nothing of the same epoch can start a second half.
    assert_eq!(
        s.enrol(Dialect::V1, pair, &[("t", 1)]),
        Err(ErrorCode::ProducerFenced)
    );
    assert_eq!(
        s.produce(pair, "t", 0),
        Err(ErrorCode::InvalidProducerEpoch)
    );
    for commit in [true, false] {
        assert_eq!(
            s.end(Dialect::V1, pair, commit),
            Err(ErrorCode::ProducerFenced)
        );
    }
    // A new session works at once.
    let next = s.init(None).unwrap();
    assert_eq!(next, (7, 2));
    s.enrol(Dialect::V1, next, &[("t", 0)]).unwrap();
    assert_eq!(s.commit(Dialect::V1, next), Ok(next));
}

#[test]
fn the_instance_overtaken_by_its_timeout_gets_back_in_unless_another_has_come() {
    let timed_out = || {
        let mut s = Shard::new();
        let pair = s.init(None).unwrap();
        s.enrol(Dialect::V1, pair, &[("t", 0)]).unwrap();
        s.broker_abort(AbortReason::Timeout).unwrap();
        (s, pair)
    };
    let (mut s, pair) = timed_out();
    assert_eq!(s.init(Some(pair)), Ok((7, 1)), "with its pair");
    assert_eq!(s.init(Some(pair)), Ok((7, 1)), "and by a retry");

    let (mut s, pair) = timed_out();
    assert_eq!(
        s.abort(Dialect::V2, pair),
        Ok((7, 1)),
        "version 2 by aborting"
    );

    let (mut s, pair) = timed_out();
    let other = s.init(None).unwrap();
    assert_eq!(s.init(Some(pair)), Err(ErrorCode::ProducerFenced));
    assert_eq!(s.abort(Dialect::V2, pair), Err(ErrorCode::ProducerFenced));
    s.enrol(Dialect::V1, other, &[("t", 0)]).unwrap();
    assert_eq!(s.init(Some(pair)), Err(ErrorCode::ProducerFenced));
    assert_eq!(s.commit(Dialect::V1, other), Ok(other));
}

#[test]
fn an_abort_by_the_broker_at_the_last_epoch_leaves_nobody_stuck() {
    for reason in [
        AbortReason::Timeout,
        AbortReason::Operator,
        AbortReason::Exclusive,
    ] {
        let aborted = || {
            let mut s = Shard::at(empty_at(32_766));
            let old = s.pair();
            s.enrol(Dialect::V2, old, &[("t", 0)]).unwrap();
            assert_eq!(s.broker_abort(reason), Ok((8, 0)));
            assert_eq!(s.last_markers(), (7, 32_767, false));
            s.restart();
            (s, old)
        };
        let (mut s, old) = aborted();
        assert_eq!(
            s.commit(Dialect::V2, old),
            Err(ErrorCode::TransactionAbortable)
        );
        assert_eq!(s.abort(Dialect::V2, old), Ok((8, 0)));
        s.enrol(Dialect::V2, (8, 0), &[("t", 0)]).unwrap();
        assert_eq!(s.commit(Dialect::V2, (8, 0)), Ok((8, 1)));

        let (mut s, old) = aborted();
        assert_eq!(s.commit(Dialect::V1, old), Err(ErrorCode::ProducerFenced));
        assert_eq!(s.init(Some(old)), Ok((8, 0)));
        s.enrol(Dialect::V1, (8, 0), &[("t", 0)]).unwrap();
        assert_eq!(s.commit(Dialect::V1, (8, 0)), Ok((8, 0)));

        let (mut s, _) = aborted();
        assert_eq!(s.init(None), Ok((8, 1)));
    }
}

#[test]
fn the_broker_aborts_only_what_is_ongoing() {
    let mut s = Shard::new();
    let pair = s.init(None).unwrap();
    let nothing = Err(ErrorCode::InvalidTxnState);
    assert_eq!(s.broker_abort(AbortReason::Timeout), nothing);
    s.enrol(Dialect::V1, pair, &[("t", 0)]).unwrap();
    s.commit(Dialect::V1, pair).unwrap();
    assert_eq!(s.broker_abort(AbortReason::Operator), nothing);
}

#[test]
fn an_idle_id_expires_and_an_ongoing_one_does_not() {
    let mut s = Shard::new();
    let pair = s.init(None).unwrap();
    let at = s.now_wall_ms;
    assert!(!is_expired(s.meta(), at + 999, 1_000));
    assert!(is_expired(s.meta(), at + 1_000, 1_000));
    assert!(
        !is_expired(s.meta(), at - 1_000_000, 1_000),
        "clock went back"
    );
    s.enrol(Dialect::V1, pair, &[("t", 0)]).unwrap();
    assert!(!is_expired(s.meta(), i64::MAX, 1_000));
    s.commit(Dialect::V1, pair).unwrap();
    assert!(is_expired(s.meta(), i64::MAX, 1_000));
}

#[test]
fn the_clock_going_back_does_not_take_the_last_update_with_it() {
    let mut s = Shard::new();
    s.now_wall_ms = 9_000;
    let pair = s.init(None).unwrap();
    s.now_wall_ms = 1_000;
    s.enrol(Dialect::V1, pair, &[("t", 0)]).unwrap();
    assert_eq!(s.meta().last_update_wall_ms, 9_000);
    assert_eq!(s.meta().start_wall_ms, 1_000);
    s.commit(Dialect::V1, pair).unwrap();
    assert_eq!(s.meta().last_update_wall_ms, 9_000);
}

#[test]
fn states_between_deciding_and_writing_markers_belong_to_several_journals() {
    // Not entered on one journal; should such a state be met, the client comes back later and
    // nothing is decided over its head.
    for state in [TxnState::PrepareCommit, TxnState::PrepareAbort] {
        let mut meta = empty_at(5);
        meta.state = state;
        meta.partitions = parts(&[("t", 0)]);
        meta.start_wall_ms = 1_000;
        let mut s = Shard::at(meta);
        let later = Err(ErrorCode::ConcurrentTransactions);
        assert_eq!(s.init(None), later);
        for dialect in DIALECTS {
            assert_eq!(s.enrol(dialect, (7, 5), &[("t", 0)]), later);
        }
        let commit = state == TxnState::PrepareCommit;
        assert_eq!(s.end(Dialect::V1, (7, 5), commit), later);
        assert_eq!(
            s.end(Dialect::V1, (7, 5), !commit),
            Err(ErrorCode::InvalidTxnState)
        );
        assert_eq!(
            s.end(Dialect::V2, (7, 5), commit),
            Err(ErrorCode::ProducerFenced)
        );
        assert_eq!(
            s.broker_abort(AbortReason::Timeout),
            Err(ErrorCode::InvalidTxnState)
        );
    }
}

#[test]
fn numbers_from_the_wire_are_only_compared() {
    let mut s = Shard::at(empty_at(5));
    for producer_id in [i64::MIN, -1, 0, i64::MAX] {
        for epoch in [i16::MIN, -1, 5, i16::MAX] {
            let pair = (producer_id, epoch);
            for dialect in DIALECTS {
                assert!(s.end(dialect, pair, true).is_err());
                assert!(s.enrol(dialect, pair, &[("t", -1)]).is_err());
            }
            assert!(s.init(Some(pair)).is_err());
            let meta = s.coordinator.get("tx1");
            let (producer_id, epoch) = (ProducerId(producer_id), ProducerEpoch(epoch));
            assert!(check_any_produce(meta, producer_id, epoch).is_err());
        }
    }
}
