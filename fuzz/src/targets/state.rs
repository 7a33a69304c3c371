//! What the owner of all state reads back, and what it is asked.

use std::sync::LazyLock;

use bytes::Bytes;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidemark_metadata::MetadataRecord;
use tidemark_owner::{Owner, Record};
use tidemark_record_batch::{DecompressLimits, records};
use tidemark_types::{JournalIndex, Tick, TopicId, TopicPartitionId};

use crate::bodies::Choices;
use crate::common::options;
use crate::moves::{Move, a_move};
use crate::play::{Setting, play};
use crate::player::Player;

/// What one move is drawn from: the seed of a generator, as drawing from the bytes themselves would not end
/// once they are used up (a set of two from nothing but zeroes). Bytes that are missing are zero. Few, so that
/// most of what the fuzzer inserts, drops, copies and crosses are whole moves.
const MOVE_BYTES: usize = 4;
const SEED_BYTES: usize = 32;
const MOVES_MAX: usize = 80;

/// The first byte is the setting, and each piece after it one move: what is inserted, dropped or
/// repeated is a move.
pub fn moves(bytes: &[u8]) {
    let Some((&setting, rest)) = bytes.split_first() else {
        return;
    };
    let setting = Setting {
        small_slots: setting & 1 != 0,
        // A model that has lost something knows nothing any more: a quarter is enough.
        may_lose: setting & 0x12 == 0x12,
        exclusive: setting & 4 != 0,
        renew_leases: setting & 8 != 0,
    };
    let moves: Vec<Move> = rest
        .chunks(MOVE_BYTES)
        .take(MOVES_MAX)
        .map(one_move)
        .collect();
    play(&moves, setting);
}

fn one_move(entropy: &[u8]) -> Move {
    let mut seed = [0; SEED_BYTES];
    seed[..entropy.len()].copy_from_slice(entropy);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let tree = a_move().new_tree(&mut runner);
    tree.expect("nothing is filtered").current()
}

fn random_moves(seed: u64) -> Vec<u8> {
    let mut choices = Choices(seed);
    let count = 1 + MOVE_BYTES * 60;
    (0..count).map(|_| choices.next() as u8).collect()
}

pub fn moves_seeds() -> Vec<Vec<u8>> {
    (0..48)
        .map(|seed| {
            let mut bytes = random_moves(seed);
            bytes[0] = seed as u8;
            bytes
        })
        .collect()
}

/// A world in which something of everything has happened.
pub fn played(seed: u64) -> Player {
    let moves: Vec<Move> = random_moves(seed)
        .chunks(MOVE_BYTES)
        .take(MOVES_MAX)
        .map(one_move)
        .collect();
    let setting = Setting {
        small_slots: false,
        may_lose: false,
        exclusive: false,
        renew_leases: false,
    };
    play(&moves, setting)
}

/// The journal of such worlds.
pub fn lived() -> Vec<Record> {
    let all = (20..28).flat_map(|seed| played(seed).world.records);
    all.collect()
}

/// A record's payload, replayed over the first record of a directory.
pub fn record(bytes: &[u8]) {
    static FIRST: LazyLock<Record> = LazyLock::new(|| played(1).world.records[0].clone());
    let payload = Bytes::copy_from_slice(bytes);
    let theirs = tidemark_histcheck::appends(bytes);
    let index = FIRST.index.next();
    let tick = Tick(FIRST.tick.0 + 1);
    let Ok(record) = Record::decode(index, tick, 0, &payload) else {
        return;
    };
    if (record.appends).is_sorted_by(|a, b| a.partition <= b.partition) {
        assert_eq!(record.encode().concat(), bytes, "it is what was written");
    }
    let theirs = theirs.expect("the independent reader takes it too");
    assert_eq!(theirs.len(), record.appends.len());
    if makes_many_partitions(&record) {
        return;
    }
    let mut owner = Owner::new(options());
    owner.replay(&FIRST).expect("our own record");
    let _ = owner.replay(&record);
}

/// A topic may have a million partitions, and a start makes all of them.
fn makes_many_partitions(record: &Record) -> bool {
    let metadata = TopicPartitionId::METADATA;
    let appends = record.appends.iter().filter(|a| a.partition == metadata);
    appends
        .filter_map(|append| records(&append.batch, &DecompressLimits::default()).ok())
        .flat_map(|records| records.flatten().collect::<Vec<_>>())
        .any(|record| {
            let (key, value) = (
                record.key.unwrap_or_default(),
                record.value.unwrap_or_default(),
            );
            match MetadataRecord::decode(&key, &value) {
                Ok(
                    MetadataRecord::TopicCreated { partitions, .. }
                    | MetadataRecord::PartitionsAdded { partitions, .. },
                ) => partitions > 1_000,
                _ => false,
            }
        })
}

pub fn record_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = lived()
        .iter()
        .map(|record| record.encode().concat())
        .collect();
    seeds.sort_by_key(Vec::len);
    seeds.dedup();
    let step = seeds.len().div_ceil(80).max(1);
    seeds
        .into_iter()
        .step_by(step)
        .filter(|seed| seed.len() < 8_000)
        .collect()
}

/// The first byte says of which partition.
pub fn block(bytes: &[u8]) {
    let Some((&which, block)) = bytes.split_first() else {
        return;
    };
    let id = match which % 4 {
        0 => TopicPartitionId::METADATA,
        1 => TopicPartitionId::transaction_state(i32::from(which / 4) % 50),
        2 => TopicPartitionId::consumer_offsets(i32::from(which / 4) % 50),
        _ => TopicPartitionId::new(TopicId([7; 16]), 0),
    };
    let mut owner = Owner::new(options());
    if owner.restore_block(id, JournalIndex(5), block).is_ok() {
        let _ = owner.encode_block(id);
        let _ = owner.check_replayed();
    }
}

pub fn block_seeds() -> Vec<Vec<u8>> {
    let player = played(3);
    let owner = &player.world.owner;
    let mut seeds = Vec::new();
    for id in owner.partition_ids() {
        let partition = u8::try_from(id.partition).unwrap_or(0) % 50;
        let which = match id.topic {
            TopicId::CLUSTER_METADATA => 0,
            TopicId::TRANSACTION_STATE => 1 + 4 * partition,
            TopicId::CONSUMER_OFFSETS => 2 + 4 * partition,
            _ => 3,
        };
        let (_, block) = owner.encode_block(id).expect("it is there");
        let mut seed = vec![which];
        seed.extend_from_slice(&block);
        seeds.push(seed);
    }
    seeds.sort_by_key(|seed| std::cmp::Reverse(seed.len()));
    seeds.truncate(20);
    seeds
}
