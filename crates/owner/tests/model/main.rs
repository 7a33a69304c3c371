//! Every interleaving of two instances of a transactional id, or of one producer with several
//! batches in flight, with delayed and repeated requests, lost answers, a timeout, and power cuts
//! that keep any part of what was not yet synced: over the broker's own `Owner::step`, `replay` and
//! the order in which it syncs and answers.
//!
//! The model adds what the broker has around the owner: a journal of which a prefix is durable, and
//! replies that leave when the record they wait for is. See `broker` for the planted faults.

mod broker;
mod client;
mod facts;
mod pipeline;
mod sessions;
mod setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use broker::Fault;
use client::Request;
use facts::Name;
use setup::Setup;
use stateright::{Checker, HasDiscoveries, Model};
use tidemark_txn_coordinator::Dialect;

/// Where an instance writes: partitions 0 and 1 of the topic, and the group's offsets.
pub const PLACES: usize = 3;
pub const OFFSETS: u8 = 2;
/// Of an instance that has opened no session.
pub const NO_SESSION: u8 = 0;

/// The position that a record of the group's offsets commits.
pub fn offset_of(name: Name) -> i64 {
    i64::from(name.0) * 100 + i64::from(name.1)
}

/// What must happen somewhere for the properties to mean anything. Noted by the steps, apart from
/// the states: they would be more for it, and no different.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Seen {
    RetriedEnd,
    RetriedInit,
    RetriedWrite,
    ZombieRefused,
    CameBackAfterTimeout,
    /// A power cut took a record that was decided.
    RecordLost,
    /// A power cut left a record that was not synced.
    RecordKept,
    /// An answer left only when a later sync had ended.
    AnswerHeldBack,
    /// A connection was given up with requests on it, which came all the same.
    LateRequest,
}

#[derive(Clone, Default)]
pub struct Sights(Arc<AtomicU32>);

impl Sights {
    pub fn note(&self, seen: Seen) {
        self.0.fetch_or(1 << seen as u8, Ordering::Relaxed);
    }

    fn assert(&self, wanted: &[Seen]) {
        let all = self.0.load(Ordering::Relaxed);
        for seen in wanted {
            assert!(all & 1 << *seen as u8 != 0, "{seen:?} never happened");
        }
    }
}

/// Explores all of it. Every property must hold, every "sometimes" must be found.
fn explore<M>(what: &str, model: M)
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + std::hash::Hash + PartialEq + std::fmt::Debug + Send + Sync,
    M::Action: Clone + PartialEq + std::fmt::Debug + Send + Sync,
{
    let start = Instant::now();
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!(
        "{what}: {} states, {} steps, depth {}, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f32()
    );
    checker.assert_properties();
}

/// Explores until a property is found broken; its name.
fn finds<M>(what: &str, model: M, expected: &[&str])
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + std::hash::Hash + PartialEq + std::fmt::Debug + Send + Sync,
    M::Action: Clone + PartialEq + std::fmt::Debug + Send + Sync,
{
    let checker = model
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    println!("{what}: {} states", checker.unique_state_count());
    let failed: Vec<&str> = expected
        .iter()
        .copied()
        .filter(|name| found.contains_key(name))
        .collect();
    assert!(
        !failed.is_empty(),
        "{what} is not found: {:?}",
        found.keys()
    );
    let path = &found[failed[0]];
    println!(
        "{what}: {failed:?} after {} steps",
        path.clone().into_actions().len()
    );
}

const V1: Dialect = Dialect::V1;
const V2: Dialect = Dialect::V2;

/// Two instances, each with a transaction over its places.
fn two_instances(dialects: [Dialect; 2], wanted: &[Seen], setup: impl Fn(&mut Setup)) {
    let mut all = Setup::new(dialects);
    setup(&mut all);
    let what = format!(
        "{dialects:?}, repeats {}, timeouts {}, crashes {}, places {:?}",
        all.repeats, all.timeouts, all.crashes, all.places
    );
    let seen = all.seen.clone();
    explore(&what, all);
    seen.assert(wanted);
}

const REPEATS: [Seen; 3] = [Seen::RetriedEnd, Seen::RetriedWrite, Seen::ZombieRefused];
const CRASHES: [Seen; 4] = [
    Seen::ZombieRefused,
    Seen::RecordLost,
    Seen::RecordKept,
    Seen::AnswerHeldBack,
];

#[test]
fn version_2_with_delays_and_repeats() {
    two_instances([V2, V2], &REPEATS, |setup| setup.crashes = 0);
}

#[test]
fn version_2_with_a_power_cut() {
    two_instances([V2, V2], &CRASHES, |setup| setup.repeats = 0);
}

#[test]
fn classic_with_repeats() {
    two_instances([V1, V1], &REPEATS, |setup| setup.crashes = 0);
}

#[test]
fn classic_with_a_power_cut() {
    two_instances([V1, V1], &CRASHES, |setup| setup.repeats = 0);
}

#[test]
fn one_instance_of_each_dialect() {
    two_instances([V1, V2], &CRASHES, |setup| setup.repeats = 0);
    two_instances([V2, V1], &REPEATS, |setup| setup.crashes = 0);
}

#[test]
fn offsets_are_part_of_the_transaction() {
    two_instances([V1, V1], &REPEATS, |setup| {
        setup.places = [&[0, OFFSETS], &[OFFSETS]];
        setup.timeouts = 0;
    });
    two_instances([V2, V2], &CRASHES, |setup| {
        setup.places = [&[0, OFFSETS], &[OFFSETS]];
        setup.timeouts = 0;
        setup.repeats = 0;
    });
}

#[test]
fn one_instance_and_its_own_past() {
    let wanted = [Seen::RetriedInit, Seen::CameBackAfterTimeout];
    two_instances([V1, V1], &wanted, |setup| {
        setup.txns = [2, 0];
        setup.repeats = 2;
    });
    two_instances([V2, V2], &wanted, |setup| {
        setup.txns = [2, 0];
        setup.places = [&[0], &[0]];
    });
}

/// Everything that the tests above have one by one.
fn everything_at_once(dialects: [Dialect; 2]) {
    two_instances(dialects, &REPEATS, |_| {});
    two_instances(dialects, &CRASHES, |setup| {
        setup.places = [&[0, OFFSETS], &[OFFSETS]];
    });
}

#[test]
#[ignore = "two million steps; the tests above are its parts: scripts/prove models"]
fn everything_at_once_classic() {
    everything_at_once([V1, V1]);
}

#[test]
#[ignore = "four million steps; the tests above are its parts: scripts/prove models"]
fn everything_at_once_one_of_each() {
    everything_at_once([V1, V2]);
}

#[test]
#[ignore = "six million steps, minutes; the tests above are its parts: scripts/prove models"]
fn everything_at_once_version_2() {
    everything_at_once([V2, V2]);
}

#[test]
#[ignore = "more batches and connections than the test below: scripts/prove models"]
fn many_batches_in_flight() {
    explore("many in flight", pipeline::Pipeline::long());
}

#[test]
fn several_batches_in_flight() {
    let pipeline = pipeline::Pipeline::new(Fault::Sound);
    let seen = pipeline.seen.clone();
    explore("several in flight", pipeline);
    seen.assert(&[
        Seen::RetriedWrite,
        Seen::RecordLost,
        Seen::RecordKept,
        Seen::AnswerHeldBack,
        Seen::LateRequest,
    ]);
}

#[test]
fn planted_no_epoch_bump_on_timeout() {
    let setup = Setup {
        fault: Fault::NoEpochBumpOnTimeout,
        txns: [1, 0],
        ..Setup::new([V1, V1])
    };
    finds("no epoch bump on timeout", setup, &["all or nothing"]);
}

#[test]
fn planted_window_of_one() {
    let pipeline = pipeline::Pipeline::new(Fault::WindowOfOne);
    let expected = ["a batch that is in the log is never refused"];
    finds("window of one", pipeline, &expected);
}

#[test]
fn planted_reply_before_sync() {
    let pipeline = pipeline::Pipeline::new(Fault::ReplyBeforeSync);
    let lost = ["an acknowledged record is in the log"];
    finds("reply before sync, in flight", pipeline, &lost);
    for dialect in [V1, V2] {
        let setup = Setup {
            fault: Fault::ReplyBeforeSync,
            txns: [1, 0],
            ..Setup::new([dialect; 2])
        };
        let lost = [
            "an acknowledged record is in the log",
            "a commit that was answered is whole",
        ];
        finds("reply before sync", setup, &lost);
    }
}
