//! InitProducerId: the table, and the corner where epochs run out.

mod common;

use common::*;
use tidemark_txn_coordinator::*;
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

#[test]
fn a_new_id_gets_the_fresh_producer_id() {
    // Also when the instance remembers a pair: the id has expired meanwhile.
    for given in [None, Some((3, 9))] {
        let mut s = Shard::new();
        assert_eq!(s.init(given), Ok((7, 0)));
        assert_eq!(s.next_pid, 8);
        assert_eq!(s.state(), TxnState::Empty);
        assert_eq!(s.meta().who, who("c1"));
        assert_eq!(s.meta().txn_number, 0);
    }
}

#[test]
fn a_timeout_outside_the_bounds_leaves_no_state() {
    // A15.
    for timeout_ms in [i32::MIN, -1, 0, MAX_TIMEOUT_MS + 1, i32::MAX] {
        let mut s = Shard::new();
        assert_eq!(
            s.init_with(None, timeout_ms),
            Err(ErrorCode::InvalidTransactionTimeout)
        );
        assert!(s.coordinator.is_empty());
        assert_eq!(s.next_pid, FIRST_PID);
    }
    let mut s = Shard::new();
    assert_eq!(s.init_with(None, MAX_TIMEOUT_MS), Ok((7, 0)));
    assert_eq!(s.meta().timeout_ms, MAX_TIMEOUT_MS);
}

#[test]
fn an_id_that_is_empty_or_fits_no_record_is_refused() {
    for id in [String::new(), "x".repeat(32_768)] {
        let request = InitProducerId {
            transactional_id: id.into(),
            timeout_ms: 1_000,
            given: None,
        };
        let decided =
            decide_init_producer_id(None, &request, 1_000, ProducerId(1), 0, Who::default());
        assert_eq!(decided, Err(ErrorCode::InvalidRequest));
    }
}

#[test]
fn half_a_pair_is_an_invalid_request() {
    let given = |p, e| InitProducerId::given(ProducerId(p), ProducerEpoch(e));
    assert_eq!(given(-1, -1), Ok(None));
    assert_eq!(given(7, 0), Ok(Some(typed((7, 0)))));
    for (producer_id, epoch) in [(7, -1), (-1, 0), (-2, -1), (-1, -2), (-2, 3), (i64::MIN, 0)] {
        assert_eq!(given(producer_id, epoch), Err(ErrorCode::InvalidRequest));
    }
}

/// A state at (7, 5), by name.
fn quiet_states() -> Vec<(&'static str, Shard)> {
    let mut states = vec![("Empty", Shard::at(empty_at(5)))];
    for commit in [true, false] {
        let mut s = Shard::at(empty_at(5));
        s.enrol(Dialect::V1, (7, 5), &[("t", 0)]).unwrap();
        s.end(Dialect::V1, (7, 5), commit).unwrap();
        states.push(("complete, classic", s));
        let mut s = Shard::at(empty_at(4));
        s.enrol(Dialect::V2, (7, 4), &[("t", 0)]).unwrap();
        s.end(Dialect::V2, (7, 4), commit).unwrap();
        states.push(("complete, version 2", s));
    }
    for (_, s) in &mut states {
        assert_eq!(s.pair(), (7, 5));
        s.markers.clear();
    }
    states
}

#[test]
fn without_a_pair_a_quiet_id_gets_the_next_epoch() {
    for (name, mut s) in quiet_states() {
        assert_eq!(s.init(None), Ok((7, 6)), "{name}");
        assert_eq!(s.state(), TxnState::Empty, "{name}");
        assert!(s.markers.is_empty(), "{name}");
        // Nobody holds a pair that would find this answer again.
        assert_eq!(
            s.init(Some((7, 5))),
            Err(ErrorCode::ProducerFenced),
            "{name}"
        );
        assert_eq!(s.init(None), Ok((7, 7)), "{name}");
    }
}

#[test]
fn with_the_current_pair_a_retry_finds_the_same_answer() {
    for (name, mut s) in quiet_states() {
        assert_eq!(s.init(Some((7, 5))), Ok((7, 6)), "{name}");
        s.restart();
        let records = s.records;
        assert_eq!(s.init(Some((7, 5))), Ok((7, 6)), "{name}");
        assert_eq!(s.records, records, "{name}: a retry writes nothing");
        // The instance goes on; its next session follows on the answer.
        assert_eq!(s.init(Some((7, 6))), Ok((7, 7)), "{name}");
        assert_eq!(
            s.init(Some((7, 5))),
            Err(ErrorCode::ProducerFenced),
            "{name}"
        );
    }
}

#[test]
fn with_any_other_pair_it_is_fenced() {
    for (name, mut s) in quiet_states() {
        let before = s.meta().clone();
        for given in [(7, 0), (7, 3), (7, 6), (7, i16::MAX), (8, 5), (0, 0)] {
            assert_eq!(
                s.init(Some(given)),
                Err(ErrorCode::ProducerFenced),
                "{name}"
            );
        }
        assert_eq!(*s.meta(), before, "{name}");
    }
}

#[test]
fn over_an_ongoing_transaction_one_record_aborts_and_opens() {
    for given in [None, Some((7, 5))] {
        for dialect in DIALECTS {
            let mut s = Shard::at(empty_at(5));
            s.enrol(dialect, (7, 5), &[("t", 0), ("u", 3)]).unwrap();
            let records = s.records;
            assert_eq!(s.init(given), Ok((7, 7)));
            assert_eq!(s.records, records + 1);
            assert_eq!(s.last_markers(), (7, 6, false));
            assert_eq!(s.markers[0].partitions, parts(&[("t", 0), ("u", 3)]));
            assert_eq!(s.state(), TxnState::Empty);
            assert_eq!(s.meta().ended_by, EndedBy::NewSession);

            // P7: the earlier instance can do nothing any more.
            let zombie = (7, 5);
            assert_eq!(
                s.produce(zombie, "t", 0),
                Err(ErrorCode::InvalidProducerEpoch)
            );
            for commit in [true, false] {
                assert_eq!(
                    s.end(dialect, zombie, commit),
                    Err(ErrorCode::ProducerFenced)
                );
            }
            let enrolled = s.enrol(dialect, zombie, &[("t", 0)]);
            assert_eq!(
                enrolled,
                Err(match dialect {
                    Dialect::V1 => ErrorCode::ProducerFenced,
                    Dialect::V2 => ErrorCode::InvalidProducerEpoch,
                })
            );

            // P10: the retry of the same instance finds the same answer.
            s.restart();
            let retried = s.init(given);
            match given {
                Some(_) => assert_eq!(retried, Ok((7, 7))),
                None => assert_eq!(retried, Ok((7, 8))),
            }
            assert_eq!(s.markers.len(), 1);
        }
    }
}

#[test]
fn a_stale_pair_does_not_abort_what_is_ongoing() {
    let mut s = Shard::at(empty_at(4));
    let owner = s.init(Some((7, 4))).unwrap();
    s.enrol(Dialect::V1, owner, &[("t", 0)]).unwrap();
    // The last pair is a delayed duplicate now: its owner works under the answer already.
    for given in [(7, 4), (7, 3), (7, 6), (9, 5)] {
        assert_eq!(s.init(Some(given)), Err(ErrorCode::ProducerFenced));
    }
    assert_eq!(s.state(), TxnState::Ongoing);
    assert_eq!(s.commit(Dialect::V1, owner), Ok(owner));
}

#[test]
fn the_epoch_before_the_last_is_still_given_out_and_then_the_producer_id_changes() {
    let mut s = Shard::at(empty_at(32_765));
    assert_eq!(s.init(None), Ok((7, 32_766)));
    assert_eq!(s.init(Some((7, 32_766))), Ok((8, 0)));
    assert_eq!(s.next_pid, 9);
    s.restart();
    // The retry, then a new session, then the old pair again.
    assert_eq!(s.init(Some((7, 32_766))), Ok((8, 0)));
    assert_eq!(s.next_pid, 9);
    assert_eq!(s.init(Some((8, 0))), Ok((8, 1)));
    assert_eq!(s.init(Some((7, 32_766))), Err(ErrorCode::ProducerFenced));
    // (8, 0) is the last pair now, (7, 0) never was.
    assert_eq!(s.init(Some((8, 0))), Ok((8, 1)));
    assert_eq!(s.init(Some((7, 0))), Err(ErrorCode::ProducerFenced));
}

#[test]
fn without_a_pair_an_exhausted_id_gets_the_fresh_producer_id() {
    let mut s = Shard::at(empty_at(32_766));
    assert_eq!(s.init(None), Ok((8, 0)));
    assert_eq!(s.init(Some((7, 32_766))), Err(ErrorCode::ProducerFenced));
    assert_eq!(s.init(None), Ok((8, 1)));
}

#[test]
fn over_an_ongoing_transaction_near_the_end_of_the_epochs() {
    // (epoch, the markers' epoch, the new pair)
    for (epoch, marker_epoch, pair) in [
        (32_763, 32_764, (7, 32_765)),
        (32_764, 32_765, (7, 32_766)),
        (32_765, 32_766, (8, 0)),
        (32_766, 32_767, (8, 0)),
    ] {
        for given in [None, Some((7, epoch))] {
            let mut s = Shard::at(empty_at(epoch));
            s.enrol(Dialect::V1, (7, epoch), &[("t", 0)]).unwrap();
            assert_eq!(s.init(given), Ok(pair), "epoch {epoch}");
            assert_eq!(s.last_markers(), (7, marker_epoch, false), "epoch {epoch}");
            s.restart();
            if given.is_some() {
                assert_eq!(s.init(given), Ok(pair), "retry at epoch {epoch}");
            }
            assert_eq!(s.pair(), pair, "epoch {epoch}");
            // The fenced instance is known as such under its old producer id.
            assert_eq!(
                s.produce((7, epoch), "t", 0),
                Err(ErrorCode::InvalidProducerEpoch)
            );
            assert_eq!(
                s.commit(Dialect::V1, (7, epoch)),
                Err(ErrorCode::ProducerFenced)
            );
            assert_eq!(
                s.enrol(Dialect::V1, (7, epoch), &[("t", 0)]),
                Err(ErrorCode::ProducerFenced)
            );
        }
    }
}
