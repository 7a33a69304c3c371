//! Every state of a transactional id × every request × whose it is × the same request again: what is
//! answered, what is written, and why. The tables are the rules; the test holds the decisions to them,
//! and every table to naming every state and to having a reason for every cell.
//!
//! A cell is what the request leads to and, behind `>`, what the same request is answered when the
//! first answer was lost and it comes again. Without `>` nothing was written, so that a repeat is
//! answered the same, which the test asks too. A delayed request is the cell of the state it arrives
//! in: in version 2 under `last` or `stale`, in the classic dialect, whose epoch names a session and no
//! transaction, under `current`.
//!
//! Whose it is: `current` the pair that the state stands at; `last` the pair that was exchanged for it
//! and whose owner may not know; `stale` an earlier pair of this id; `newer` an epoch nobody was given;
//! `other` a producer id that was never this id's. `-`: the state has no such pair.

mod cells;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod init;
mod within;

use std::collections::BTreeSet;

use cells::*;
use common::empty_at;
use tidemark_txn_coordinator::*;

/// Dead is not among the states: it is a tombstone, and never recorded.
#[test]
fn no_state_is_left_out() {
    let reached: BTreeSet<TxnState> = cases()
        .iter()
        .filter_map(|case| meta(&case.shard).map(|meta| meta.state))
        .collect();
    let all: BTreeSet<TxnState> = TxnState::ALL.into_iter().collect();
    let missing: Vec<_> = all.difference(&reached).collect();
    assert_eq!(missing, [&TxnState::Dead]);
    let mut dead = empty_at(5);
    dead.state = TxnState::Dead;
    assert!(check(&dead).is_err());
}
