//! A run of moves, with everything that must hold of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidemark_owner::Owner;
use tidemark_types::{JournalIndex, TopicPartitionId};

use crate::common::{World, through_bytes};
use crate::moves::Move;
use crate::player::Player;

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
pub struct Setting {
    pub small_slots: bool,
    pub may_lose: bool,
    /// Operations cut through transactions.
    pub exclusive: bool,
    pub renew_leases: bool,
}

pub fn play(moves: &[Move], setting: Setting) -> Player {
    let Setting {
        small_slots,
        may_lose,
        exclusive,
        renew_leases,
    } = setting;
    let mut player = Player::new(small_slots, may_lose, exclusive, renew_leases);
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
        player.check_ledger();
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
