//! Transactions over several journals: every interleaving of a client's requests with messages between
//! the owners that are lost, late, out of order and repeated, with owners that change, timeouts and
//! new sessions, over the functions of `several`.
//!
//! The network is the set of all messages that were ever sent, each of which may arrive at any time
//! and again: so nothing else stands for a loss, a delay or a repeat. A message is sent with the
//! record that it tells of; whatever else its sender knew is gone when its journal gets another
//! owner. What must hold is asked in every state, and also what a broker without further faults makes
//! of that state: whatever was decided is ended everywhere, and nothing stays open.
//!
//! The planted faults show that the model would notice.

#[path = "../common/mod.rs"]
mod common;
mod model;
mod steps;
mod world;

use tidemark_txn_coordinator::*;
use world::*;

const V1: Dialect = Dialect::V1;
const V2: Dialect = Dialect::V2;

#[test]
fn two_journals_two_transactions_and_a_new_owner_of_the_home() {
    for dialect in [V1, V2] {
        Setup {
            timeouts: 2,
            home_moves: 2,
            ..Setup::new(dialect)
        }
        .explore(&format!("{dialect:?}, the home moves"));
    }
}

#[test]
fn two_journals_and_a_new_owner_of_the_participant() {
    for dialect in [V1, V2] {
        Setup {
            txns: 3,
            participant_moves: 1,
            ..Setup::new(dialect)
        }
        .explore(&format!("{dialect:?}, the participant moves"));
    }
}

#[test]
fn batches_that_are_given_up_join_nothing() {
    Setup {
        gives_up: true,
        home_moves: 0,
        ..Setup::new(V2)
    }
    .explore("given up");
}

#[test]
fn a_new_session_waits_until_the_old_ones_transaction_has_ended_everywhere() {
    for dialect in [V1, V2] {
        Setup {
            sessions: 1,
            txns: 1,
            ..Setup::new(dialect)
        }
        .explore(&format!("{dialect:?}, a new session"));
    }
}

#[test]
fn the_last_epochs_over_two_journals() {
    for first_epoch in [32_764, 32_765, 32_766] {
        Setup {
            first_epoch,
            sessions: 1,
            home_moves: 0,
            ..Setup::new(V2)
        }
        .explore(&format!("from epoch {first_epoch}"));
    }
}

#[test]
fn ticks_tell_before_and_after_whatever_the_clocks_say() {
    Setup {
        ticks: true,
        home_moves: 0,
        txns: 1,
        ..Setup::new(V2)
    }
    .explore("ticks");
}

#[test]
fn three_journals() {
    Setup {
        journals: 3,
        txns: 1,
        ..Setup::new(V2)
    }
    .explore("three journals");
}

#[test]
#[ignore = "minutes; the tests above are its parts: scripts/prove models"]
fn three_journals_everything_at_once() {
    for dialect in [V1, V2] {
        Setup {
            journals: 3,
            participant_moves: 1,
            sessions: 1,
            ticks: true,
            ..Setup::new(dialect)
        }
        .explore(&format!("{dialect:?}, everything"));
    }
}

#[test]
fn planted_faults_are_found() {
    let torn = "no journal commits what another aborts";
    let open = "everything ends";
    let answered = "what was answered is so everywhere";
    let early = "transactions of an id follow each other";
    let marked = "every record's transaction is ended by a marker";
    let joins = "a record joins its own transaction only";
    let twice = "a message has its effect once";
    let ticks = "ticks tell before and after";
    for (fault, expected) in [
        (Fault::ForgetsAnEndItHasNotBegun, vec![open]),
        (Fault::OnlyTheEnrolled, vec![open, answered]),
        (Fault::DecidesTwice, vec![torn]),
        (Fault::TellsBeforeItIsDurable, vec![torn, twice]),
        (Fault::IgnoresTheNumber, vec![torn, joins, twice, answered]),
        (Fault::AnswersWhenDecided, vec![answered, early]),
        (Fault::ForgetsEnrolments, vec![marked]),
        (Fault::ClocksOnly, vec![ticks]),
    ] {
        Setup {
            fault,
            home_moves: 0,
            participant_moves: u8::from(fault == Fault::ForgetsEnrolments),
            ticks: fault == Fault::ClocksOnly,
            ..Setup::new(V1)
        }
        .finds(&expected);
    }
}
