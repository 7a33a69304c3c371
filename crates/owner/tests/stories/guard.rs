//! The guard of the classic dialect: what comes on a connection that its client has given up.

use std::sync::Arc;

use tidemark_group_coordinator::TxnOffsetCommitRequest;
use tidemark_owner::*;
use tidemark_txn_coordinator::Dialect;
use tidemark_txn_coordinator::guard::ConnectionId;
use tidemark_types::ErrorCode;

use crate::common::{Producer, World, offset, options};

const OK: ErrorCode = ErrorCode::None;
const AGAIN: ErrorCode = ErrorCode::CoordinatorLoadInProgress;

fn add(w: &mut World, p: &Producer, connection: u64, partition: i32) -> ErrorCode {
    let command = Command::AddPartitions(AddPartitions {
        transactional_id: Arc::from("tx1"),
        producer_id: p.producer_id,
        producer_epoch: p.epoch,
        partitions: vec![(Arc::from("t"), partition)],
    });
    match on(w, connection, command) {
        Reply::AddPartitions(codes) => codes[0],
        other => panic!("{other:?}"),
    }
}

fn end(w: &mut World, p: &Producer, connection: u64, dialect: Dialect) -> ErrorCode {
    let command = Command::EndTxn(EndTxn {
        transactional_id: Arc::from("tx1"),
        producer_id: p.producer_id,
        producer_epoch: p.epoch,
        committed: true,
        dialect,
    });
    match on(w, connection, command) {
        Reply::EndTxn(ended) => ended.err().unwrap_or(OK),
        other => panic!("{other:?}"),
    }
}

fn add_offsets(w: &mut World, p: &Producer, connection: u64) -> ErrorCode {
    let command = Command::AddOffsets(AddOffsets {
        transactional_id: Arc::from("tx1"),
        producer_id: p.producer_id,
        producer_epoch: p.epoch,
        group_id: "g".to_owned(),
    });
    match on(w, connection, command) {
        Reply::AddOffsets(code) => code,
        other => panic!("{other:?}"),
    }
}

fn commit_offset(w: &mut World, p: &Producer, connection: u64, at: i64) -> ErrorCode {
    let command = Command::TxnOffsetCommit(TxnOffsetCommit {
        transactional_id: Arc::from("tx1"),
        producer_id: p.producer_id,
        producer_epoch: p.epoch,
        dialect: Dialect::V1,
        commit: TxnOffsetCommitRequest {
            group_id: "g".to_owned(),
            generation_id: -1,
            member_id: String::new(),
            group_instance_id: None,
            offsets: vec![offset("t", 0, at)],
        },
    });
    match on(w, connection, command) {
        Reply::TxnOffsetCommit(codes) => codes[0],
        other => panic!("{other:?}"),
    }
}

fn on(w: &mut World, connection: u64, command: Command) -> Reply {
    w.ask(Command::On {
        connection: ConnectionId(connection),
        principal: Arc::from("User:ANONYMOUS"),
        command: Box::new(command),
    })
}

fn world() -> (World, Producer) {
    let mut w = World::new();
    w.create_topic("t", 2);
    let p = Producer::classic(&mut w, "tx1");
    (w, p)
}

#[test]
fn a11_a_classic_end_that_was_delayed_does_not_end_the_next_transaction() {
    let (mut w, p) = world();
    assert_eq!(add(&mut w, &p, 1, 0), OK);
    p.send(&mut w, "t", 0, 0, &["first"]).unwrap();
    // Its EndTxn is held up on connection 1. The client gives that up and asks again on another.
    assert_eq!(end(&mut w, &p, 2, Dialect::V1), OK);
    assert_eq!(add(&mut w, &p, 2, 0), OK);
    p.send(&mut w, "t", 0, 1, &["second"]).unwrap();
    let records = w.records.len();
    assert_eq!(end(&mut w, &p, 1, Dialect::V1), AGAIN, "nobody hears it");
    assert_eq!(add(&mut w, &p, 1, 1), AGAIN);
    assert_eq!(w.records.len(), records);
    assert_eq!(w.committed("t", 0), ["first"]);
    assert_eq!(end(&mut w, &p, 2, Dialect::V1), OK);
    assert_eq!(w.committed("t", 0), ["first", "second"]);
}

#[test]
fn whoever_asks_again_is_there_and_is_left_alone() {
    let (mut w, p) = world();
    for n in 0..4 {
        // Two connections of one client, in turns.
        let first = add(&mut w, &p, 2, 0);
        assert_eq!(first, OK);
        p.send(&mut w, "t", 0, n, &["v"]).unwrap();
        if n == 0 {
            assert_eq!(end(&mut w, &p, 1, Dialect::V1), AGAIN);
        }
        assert_eq!(end(&mut w, &p, 1, Dialect::V1), OK);
    }
    assert_eq!(w.committed("t", 0).len(), 4);
}

#[test]
fn a_new_session_and_a_start_begin_anew_and_fencing_comes_first() {
    let (mut w, old) = world();
    assert_eq!(add(&mut w, &old, 9, 0), OK);
    let p = Producer::classic(&mut w, "tx1");
    assert_eq!(end(&mut w, &old, 3, Dialect::V1), ErrorCode::ProducerFenced);
    assert_eq!(add(&mut w, &p, 3, 0), OK, "older, and another session");
    assert_eq!(add(&mut w, &p, 4, 0), OK);
    w.restart();
    assert_eq!(add(&mut w, &p, 1, 1), OK);
    // Version 2 needs none of it: its epochs name transactions.
    assert_eq!(add(&mut w, &p, 5, 1), OK);
    assert_eq!(end(&mut w, &p, 2, Dialect::V2), OK);
}

#[test]
fn without_the_guard_connections_do_not_matter() {
    let mut w = World::with(OwnerOptions {
        guard_connections: false,
        ..options()
    });
    w.create_topic("t", 1);
    let p = Producer::classic(&mut w, "tx1");
    assert_eq!(add(&mut w, &p, 2, 0), OK);
    assert_eq!(end(&mut w, &p, 1, Dialect::V1), OK);
}

#[test]
fn a11_offsets_of_an_aborted_transaction_that_were_delayed_do_not_join_the_next_one() {
    let (mut w, p) = world();
    assert_eq!(add(&mut w, &p, 1, 0), OK);
    assert_eq!(add_offsets(&mut w, &p, 1), OK);
    // Its TxnOffsetCommit is held up on connection 1. The client gives that up and aborts.
    let abort = Command::EndTxn(EndTxn {
        transactional_id: Arc::from("tx1"),
        producer_id: p.producer_id,
        producer_epoch: p.epoch,
        committed: false,
        dialect: Dialect::V1,
    });
    on(&mut w, 2, abort);
    assert_eq!(add(&mut w, &p, 2, 0), OK);
    assert_eq!(add_offsets(&mut w, &p, 2), OK);
    let records = w.records.len();
    assert_eq!(commit_offset(&mut w, &p, 1, 10), AGAIN, "nobody hears it");
    assert_eq!(w.records.len(), records);
    assert_eq!(end(&mut w, &p, 2, Dialect::V1), OK);
    assert_eq!(w.fetch_offsets("g", &[("t", 0)], true), [(-1, OK)]);
}

#[test]
fn offsets_that_go_over_an_older_connection_are_asked_again_once_and_guard_the_rest_no_less() {
    let (mut w, p) = world();
    for (n, connection) in [2, 2, 3, 3].into_iter().enumerate() {
        assert_eq!(add(&mut w, &p, connection, 0), OK);
        assert_eq!(add_offsets(&mut w, &p, connection), OK);
        if n % 2 == 0 {
            assert_eq!(commit_offset(&mut w, &p, 1, n as i64), AGAIN);
        }
        assert_eq!(commit_offset(&mut w, &p, 1, n as i64), OK);
        assert_eq!(end(&mut w, &p, connection, Dialect::V1), OK);
    }
    assert_eq!(w.fetch_offsets("g", &[("t", 0)], true), [(3, OK)]);
    assert_eq!(add(&mut w, &p, 3, 0), OK);
    assert_eq!(end(&mut w, &p, 2, Dialect::V1), AGAIN, "still told");
}

#[test]
fn a_session_that_the_journal_lost_has_spoken_on_no_connection() {
    let (mut w, _) = world();
    w.may_lose = true;
    w.owner.keep_undo();
    let before = w.records.len();
    let lost = Producer::classic(&mut w, "tx1");
    assert_eq!(add(&mut w, &lost, 9, 0), OK);
    w.lose(before);
    let again = Producer::classic(&mut w, "tx1");
    assert_eq!(
        (again.producer_id, again.epoch),
        (lost.producer_id, lost.epoch)
    );
    assert_eq!(add(&mut w, &again, 3, 0), OK, "its first");
}
