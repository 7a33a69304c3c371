//! Random sequences of commands, time, starts and checkpoints. After every step everything that must
//! hold is checked (`World::carry_out`); here the moves are made, with names that mostly exist, and
//! at the end the state is rebuilt in every way there is.

#[path = "../common/mod.rs"]
mod common;

mod ledger;
mod moves;
mod play;
mod player;
mod player_topics;
mod player_transactions;

use std::collections::BTreeMap;

use moves::a_move;
use play::{Setting, play};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_the_state_can_be_rebuilt(
        moves in prop::collection::vec(a_move(), 1..120),
        small_slots in any::<bool>(),
        may_lose in any::<bool>(),
        exclusive in any::<bool>(),
        renew_leases in any::<bool>(),
    ) {
        play(&moves, Setting { small_slots, may_lose, exclusive, renew_leases });
    }
}

/// The moves reach what they are about: otherwise the test above proves little.
#[test]
fn the_moves_reach_what_they_are_about() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = prop::collection::vec(a_move(), 100..120);
    let mut reached = BTreeMap::new();
    for n in 0..600 {
        let moves = strategy.new_tree(&mut runner).unwrap().current();
        let setting = Setting {
            small_slots: n % 2 == 0,
            may_lose: n % 3 == 0,
            exclusive: n % 4 < 2,
            renew_leases: n % 5 < 3,
        };
        for (what, times) in play(&moves, setting).reached {
            *reached.entry(what).or_insert(0) += times;
        }
    }
    println!("{reached:?}");
    for what in moves::WORTH_REACHING {
        let times = reached.get(what).copied().unwrap_or(0);
        assert!(times >= 3, "{what}: {times} times; {reached:?}");
    }
}
