//! Random sequences of commands, time, starts and checkpoints. After every step everything that must
//! hold is checked (`World::carry_out`); here the moves are made, with names that mostly exist, and
//! at the end the state is rebuilt in every way there is.

#[path = "../common/mod.rs"]
mod common;

mod moves;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::{World, through_bytes};
use moves::{Move, Player, a_move};
use proptest::prelude::*;
use tidemark_owner::Owner;
use tidemark_types::{JournalIndex, TopicPartitionId};

/// The blocks of a checkpoint that takes its time: each partition's is of another moment.
#[derive(Default)]
struct Checkpoint {
    blocks: BTreeMap<TopicPartitionId, (JournalIndex, Bytes)>,
}

impl Checkpoint {
    /// Takes the blocks of some partitions, anew if they were taken before.
    fn take(&mut self, world: &World, wanted: impl Fn(TopicPartitionId) -> bool) {
        for id in world.owner.partition_ids() {
            if wanted(id) {
                let block = world.owner.encode_block(id).expect("it is there");
                self.blocks.insert(id, block);
            }
        }
    }

    /// A start from these blocks and the journal from `earlier` records before the one that the
    /// lowest stamp asks for.
    fn start(&self, world: &World, earlier: u64) -> Owner {
        let mut owner = Owner::new(world.options.clone());
        for (id, (stamp, block)) in self.blocks.iter().rev() {
            owner
                .restore_block(*id, *stamp, block)
                .expect("our own block");
        }
        let stamps = self.blocks.values().map(|(stamp, _)| stamp.0);
        let lowest = stamps.min().expect("there are blocks");
        let from = lowest.saturating_sub(earlier);
        for record in &world.records[usize::try_from(from).unwrap()..] {
            let observations = owner.replay(&through_bytes(record));
            observations.expect("our own record");
        }
        if let Some(last) = world.records.last() {
            owner.raise_floor(last.index, last.tick);
        }
        owner
    }
}

/// What the world is like.
#[derive(Clone, Copy, Debug)]
struct Setting {
    small_slots: bool,
    may_lose: bool,
    /// Operations cut through transactions.
    exclusive: bool,
    renew_leases: bool,
}

fn play(moves: &[Move], setting: Setting) -> Player {
    let Setting {
        small_slots,
        may_lose,
        exclusive,
        renew_leases,
    } = setting;
    let mut player = Player::new(may_lose, exclusive, renew_leases);
    if small_slots {
        // A transaction to a record.
        player.world.set_max_record_bytes(60_000);
    }
    let mut checkpoint = Checkpoint::default();
    for (n, a_move) in moves.iter().enumerate() {
        match a_move {
            // A checkpoint holds what is confirmed.
            Move::Capture { .. } if may_lose => {}
            Move::Capture { salt, metadata } => {
                checkpoint.take(&player.world, |id| match id {
                    TopicPartitionId::METADATA => *metadata,
                    // Every third, and which third changes.
                    _ => (id.topic.0[15] as usize + id.partition as usize + salt).is_multiple_of(3),
                });
            }
            Move::Restart => {
                player.world.restart();
                player.confirmed = player.world.records.len();
                player.forget_members();
            }
            other => player.make(other, n),
        }
        player.world.check_readers();
    }
    let world = &player.world;
    // (b) The journal alone.
    let replayed = world.replayed(world.records.len());
    replayed.check().expect("what must hold after replay");
    // (c) A checkpoint and the journal, with blocks of the end for those that have none yet.
    let taken: Vec<_> = checkpoint.blocks.keys().copied().collect();
    checkpoint.take(world, |id| !taken.contains(&id));
    for earlier in [0, 1, 7] {
        let started = checkpoint.start(world, earlier);
        started.check().expect("what must hold after a start");
        assert_eq!(
            started.difference(&world.owner),
            None,
            "P12, {earlier} earlier"
        );
    }
    player
}

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
