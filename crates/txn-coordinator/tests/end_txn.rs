//! EndTxn: every cell of the table of KIP-98 and KIP-890, and the corner where epochs run out.

mod common;

use common::*;
use tidemark_txn_coordinator::{AbortReason, Dialect, EndedBy, TxnState};
use tidemark_types::ErrorCode;

/// What a cell of the table does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    /// Error 0 with markers at `marker_epoch - epoch of the state`, then the epoch rises by `bump`.
    Ends {
        marker_at: i16,
        bump: i16,
    },
    /// Error 0, no markers, and a new epoch: nothing to abort.
    EmptyAbort,
    /// Error 0 and nothing is written: the answer of the first time.
    Again,
    Refused(ErrorCode),
}
use Cell::{Again, EmptyAbort, Ends, Refused};

const ITS: Cell = Refused(ErrorCode::InvalidTxnState);
const FENCED: Cell = Refused(ErrorCode::ProducerFenced);
const ABORTABLE: Cell = Refused(ErrorCode::TransactionAbortable);
const UNKNOWN: Cell = Refused(ErrorCode::InvalidProducerIdMapping);
const V1_END: Cell = Ends {
    marker_at: 0,
    bump: 0,
};
const V2_END: Cell = Ends {
    marker_at: 1,
    bump: 1,
};

/// How the state came about; each is at epoch 5, so `last` is epoch 4.
#[derive(Clone, Copy, Debug)]
enum Given {
    /// A session was opened without a pair.
    Empty,
    /// A session was opened with the pair of epoch 4.
    EmptyAfterPair,
    Ongoing,
    /// A transaction of epoch 5 ended in the classic dialect: the epoch stayed.
    V1(bool),
    /// A transaction of epoch 4 ended in version 2: the epoch rose to 5.
    V2(bool),
    /// The broker aborted a transaction of epoch 4.
    ByBroker(AbortReason),
}

fn shard(given: Given) -> Shard {
    let mut s = Shard::at(empty_at(4));
    let opened = |s: &mut Shard| s.init(None).unwrap();
    match given {
        Given::Empty => {
            opened(&mut s);
        }
        Given::EmptyAfterPair => {
            s.init(Some((7, 4))).unwrap();
        }
        Given::Ongoing => {
            let pair = opened(&mut s);
            s.enrol(Dialect::V1, pair, &[("t", 0), ("u", 1)]).unwrap();
        }
        Given::V1(commit) => {
            let pair = opened(&mut s);
            s.enrol(Dialect::V1, pair, &[("t", 0)]).unwrap();
            s.end(Dialect::V1, pair, commit).unwrap();
        }
        Given::V2(commit) => {
            s.enrol(Dialect::V2, (7, 4), &[("t", 0)]).unwrap();
            s.end(Dialect::V2, (7, 4), commit).unwrap();
        }
        Given::ByBroker(reason) => {
            s.enrol(Dialect::V1, (7, 4), &[("t", 0)]).unwrap();
            s.broker_abort(reason).unwrap();
        }
    }
    assert_eq!(s.pair(), (7, 5), "{given:?}");
    s.markers.clear();
    s.records = 0;
    s
}

fn assert_cell(given: Given, dialect: Dialect, epoch: i16, commit: bool, expected: Cell) {
    let mut s = shard(given);
    let before = s.meta().clone();
    let at = format!("{given:?} {dialect:?} epoch {epoch} commit {commit}");
    let answer = s.end(dialect, (7, epoch), commit);
    let completed = if commit {
        TxnState::CompleteCommit
    } else {
        TxnState::CompleteAbort
    };
    match expected {
        Ends { marker_at, bump } => {
            assert_eq!(answer, Ok((7, 5 + bump)), "{at}");
            assert_eq!(s.state(), completed, "{at}");
            assert_eq!(s.last_markers(), (7, 5 + marker_at, commit), "{at}");
            assert_eq!(s.markers.len(), 1, "{at}: one set of markers");
            assert_eq!(s.records, 1, "{at}: one record");
            assert_eq!(s.markers[0].partitions, before.partitions, "{at}");
            assert_eq!(s.meta().ended_by, EndedBy::Client, "{at}");
        }
        EmptyAbort => {
            assert_eq!(answer, Ok((7, 6)), "{at}");
            assert_eq!(s.state(), TxnState::CompleteAbort, "{at}");
            assert!(s.markers.is_empty(), "{at}: no partition, no marker");
            assert_eq!(s.records, 1, "{at}");
        }
        Again => {
            assert_eq!(answer, Ok((7, 5)), "{at}");
            assert_eq!(*s.meta(), before, "{at}");
            assert_eq!(s.records, 0, "{at}");
        }
        Refused(code) => {
            assert_eq!(answer, Err(code), "{at}");
            assert_eq!(*s.meta(), before, "{at}");
            assert_eq!(s.records, 0, "{at}");
        }
    }
    s.restart();
}

#[test]
fn every_cell_of_the_classic_dialect() {
    let by_timeout = Given::ByBroker(AbortReason::Timeout);
    // (state, [commit, abort] under the current epoch)
    let rows = [
        (Given::Empty, [ITS, ITS]),
        (Given::EmptyAfterPair, [ITS, ITS]),
        (Given::Ongoing, [V1_END, V1_END]),
        (Given::V1(true), [Again, ITS]),
        (Given::V1(false), [ITS, Again]),
        (Given::V2(true), [Again, ITS]),
        (Given::V2(false), [ITS, Again]),
        (by_timeout, [ITS, Again]),
    ];
    for (given, [commit, abort]) in rows {
        assert_cell(given, Dialect::V1, 5, true, commit);
        assert_cell(given, Dialect::V1, 5, false, abort);
        // The epoch must be the current one, whatever the last one is.
        for epoch in [-1, 0, 3, 4, 6, i16::MAX] {
            assert_cell(given, Dialect::V1, epoch, true, FENCED);
            assert_cell(given, Dialect::V1, epoch, false, FENCED);
        }
    }
}

#[test]
fn every_cell_of_version_2() {
    // (state, commit: [current, last], abort: [current, last])
    let rows = [
        (Given::Empty, [ITS, FENCED], [EmptyAbort, FENCED]),
        (Given::EmptyAfterPair, [ITS, FENCED], [EmptyAbort, FENCED]),
        (Given::Ongoing, [V2_END, FENCED], [V2_END, FENCED]),
        (Given::V2(true), [ITS, Again], [EmptyAbort, ITS]),
        (Given::V2(false), [ITS, ITS], [EmptyAbort, Again]),
        // Epoch 4 was not exchanged for 5 by an end, so it is nobody's retry.
        (Given::V1(true), [ITS, FENCED], [EmptyAbort, FENCED]),
        (Given::V1(false), [ITS, FENCED], [EmptyAbort, FENCED]),
    ];
    for (given, commit, abort) in rows {
        for (epoch, cell) in [(5, commit[0]), (4, commit[1])] {
            assert_cell(given, Dialect::V2, epoch, true, cell);
        }
        for (epoch, cell) in [(5, abort[0]), (4, abort[1])] {
            assert_cell(given, Dialect::V2, epoch, false, cell);
        }
        for epoch in [-1, 0, 3, 6, i16::MAX] {
            assert_cell(given, Dialect::V2, epoch, true, FENCED);
            assert_cell(given, Dialect::V2, epoch, false, FENCED);
        }
    }
}

#[test]
fn after_an_abort_by_the_broker_version_2_may_abort_and_go_on() {
    for reason in [
        AbortReason::Timeout,
        AbortReason::Operator,
        AbortReason::Exclusive,
    ] {
        let given = Given::ByBroker(reason);
        assert_cell(given, Dialect::V2, 4, true, ABORTABLE);
        assert_cell(given, Dialect::V2, 4, false, Again);
        assert_cell(given, Dialect::V2, 5, true, ITS);
        assert_cell(given, Dialect::V2, 5, false, EmptyAbort);
        assert_cell(given, Dialect::V2, 3, true, FENCED);
    }
}

#[test]
fn another_producer_id_is_not_mapped() {
    for dialect in DIALECTS {
        for commit in [true, false] {
            let mut s = shard(Given::Ongoing);
            let answer = s.end(dialect, (8, 5), commit);
            assert_eq!(Refused(answer.unwrap_err()), UNKNOWN);
            let mut nobody = Shard::new();
            assert_eq!(
                Refused(nobody.end(dialect, (7, 5), commit).unwrap_err()),
                UNKNOWN
            );
        }
    }
}

#[test]
fn a_retry_of_end_txn_finds_the_answer_of_the_first_time_also_after_a_restart() {
    // A12.
    let mut s = Shard::new();
    let first = s.init(None).unwrap();
    s.enrol(Dialect::V1, first, &[("t", 0)]).unwrap();
    assert_eq!(s.commit(Dialect::V1, first), Ok(first));
    s.restart();
    assert_eq!(s.commit(Dialect::V1, first), Ok(first));
    assert_eq!(s.abort(Dialect::V1, first), Err(ErrorCode::InvalidTxnState));
    assert_eq!(s.markers.len(), 1, "no second marker");

    s.enrol(Dialect::V2, first, &[("t", 0)]).unwrap();
    let second = s.commit(Dialect::V2, first).unwrap();
    assert_eq!(second, (7, 1));
    s.restart();
    assert_eq!(s.commit(Dialect::V2, first), Ok(second));
    assert_eq!(s.markers.len(), 2, "no third marker");
}

#[test]
fn a_delayed_end_of_version_2_does_not_end_the_next_transaction() {
    // A11: the copy that was held back arrives when the next transaction is under way.
    let mut s = Shard::new();
    let first = s.init(None).unwrap();
    s.enrol(Dialect::V2, first, &[("t", 0)]).unwrap();
    let second = s.commit(Dialect::V2, first).unwrap();
    s.enrol(Dialect::V2, second, &[("t", 0)]).unwrap();
    assert_eq!(s.commit(Dialect::V2, first), Err(ErrorCode::ProducerFenced));
    let third = s.abort(Dialect::V2, second).unwrap();
    assert_eq!(s.commit(Dialect::V2, first), Err(ErrorCode::ProducerFenced));
    assert_eq!(third, (7, 2));
    let ends: Vec<_> = s.markers.iter().map(|m| (m.epoch.0, m.commit)).collect();
    assert_eq!(ends, [(1, true), (2, false)]);
}

#[test]
fn a_fenced_instance_is_not_handed_the_epoch_of_its_successor() {
    // By epoch alone (one below the stored one, CompleteCommit) this would look like a retry.
    let mut s = Shard::new();
    let zombie = s.init(None).unwrap();
    let owner = s.init(None).unwrap();
    s.enrol(Dialect::V1, owner, &[("t", 0)]).unwrap();
    s.commit(Dialect::V1, owner).unwrap();
    assert_eq!(
        s.commit(Dialect::V2, zombie),
        Err(ErrorCode::ProducerFenced)
    );
    assert_eq!(s.abort(Dialect::V2, zombie), Err(ErrorCode::ProducerFenced));
}

#[test]
fn version_2_at_the_last_epoch_goes_on_under_the_next_producer_id() {
    for commit in [true, false] {
        let mut s = Shard::at(empty_at(32_766));
        let old = s.pair();
        s.enrol(Dialect::V2, old, &[("t", 0)]).unwrap();
        assert_eq!(s.end(Dialect::V2, old, commit), Ok((8, 0)));
        assert_eq!(s.last_markers(), (7, 32_767, commit));
        // The retry is told the same; the contrary is refused; both also after a restart.
        s.restart();
        assert_eq!(s.end(Dialect::V2, old, commit), Ok((8, 0)));
        assert_eq!(
            s.end(Dialect::V2, old, !commit),
            Err(ErrorCode::InvalidTxnState)
        );
        assert_eq!(s.markers.len(), 1);
        // Once the next transaction has begun, the old pair is a zombie, not an unknown.
        s.enrol(Dialect::V2, (8, 0), &[("t", 0)]).unwrap();
        assert_eq!(
            s.end(Dialect::V2, old, commit),
            Err(ErrorCode::ProducerFenced)
        );
        assert_eq!(s.produce(old, "t", 0), Err(ErrorCode::InvalidProducerEpoch));
        assert_eq!(s.end(Dialect::V2, (8, 0), commit), Ok((8, 1)));
    }
}

#[test]
fn an_empty_abort_at_the_last_epoch_goes_on_under_the_next_producer_id() {
    let mut s = Shard::at(empty_at(32_766));
    assert_eq!(s.abort(Dialect::V2, (7, 32_766)), Ok((8, 0)));
    assert_eq!(s.abort(Dialect::V2, (7, 32_766)), Ok((8, 0)));
    assert!(s.markers.is_empty());
    assert_eq!(s.next_pid, 9, "one fresh producer id was taken");
}

#[test]
fn the_classic_dialect_ends_at_the_last_epoch_without_needing_another() {
    let mut s = Shard::at(empty_at(32_766));
    let pair = s.pair();
    s.enrol(Dialect::V1, pair, &[("t", 0)]).unwrap();
    assert_eq!(s.commit(Dialect::V1, pair), Ok(pair));
    assert_eq!(s.last_markers(), (7, 32_766, true));
}
