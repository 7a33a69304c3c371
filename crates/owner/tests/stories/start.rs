//! Starts: from the journal, from a checkpoint, from what is damaged.

use bytes::Bytes;
use proptest::prelude::*;
use tidemark_owner::{Append, Command, CreatePartitions, GrowTopic, Owner, Record};
use tidemark_types::{JournalIndex, MonoTime, Tick, TopicPartitionId};

use crate::common::{Producer, World, options, through_bytes};

/// Something of everything: topics come and gone, transactions ended and open, offsets, groups.
fn lived() -> World {
    let mut w = World::new();
    w.create_topic("in", 1);
    w.create_topic("t", 2);
    w.create_topic("gone", 1);
    let mut p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &[("t", 0), ("gone", 0)]);
    p.send(&mut w, "t", 0, 0, &["a"]).unwrap();
    w.delete_topics(&["gone"]);
    let pair = (p.producer_id, p.epoch);
    (p.producer_id, p.epoch) = w.init(Some("tx1"), Some(pair)).unwrap();
    p.add(&mut w, &[("t", 0), ("t", 1)]);
    p.add_offsets(&mut w, "g");
    p.send(&mut w, "t", 1, 0, &["b"]).unwrap();
    p.commit_offsets(&mut w, "g", &[("in", 0, 3)]);
    let mut q = Producer::v2(&mut w, "tx2");
    q.send(&mut w, "t", 0, 0, &["c"]).unwrap();
    q.end(&mut w, true).unwrap();
    q.send(&mut w, "t", 0, 0, &["d"]).unwrap();
    w.commit_offset("h", "in", 0, 1);
    w.raise_journal_epoch();
    w.create_topic("young", 1);
    w
}

fn blocks(w: &World) -> Vec<(TopicPartitionId, JournalIndex, Bytes)> {
    let ids = w.owner.partition_ids().into_iter();
    ids.map(|id| {
        let (stamp, block) = w.owner.encode_block(id).expect("it is there");
        (id, stamp, block)
    })
    .collect()
}

#[test]
fn from_a_checkpoint_alone() {
    let w = lived();
    let mut owner = Owner::new(options());
    for (id, stamp, block) in blocks(&w) {
        owner.restore_block(id, stamp, &block).unwrap();
    }
    owner.raise_floor(w.owner.last_index(), w.owner.last_tick());
    assert_eq!(owner.difference(&w.owner), None);
    owner.check_replayed().unwrap();
}

#[test]
fn a_batch_that_a_block_has_already_is_passed_on_as_bytes() {
    let w = lived();
    let mut owner = Owner::new(options());
    for (id, stamp, block) in blocks(&w) {
        owner.restore_block(id, stamp, &block).unwrap();
    }
    for record in &w.records {
        for observation in owner.replay(record).unwrap() {
            if let tidemark_owner::Observation::Appended(appended) = observation {
                assert!(appended.already_applied);
                let control = appended.header.attributes.is_control();
                assert_eq!(appended.control.is_some(), control);
            }
        }
    }
    assert_eq!(owner.difference(&w.owner), None);
}

#[test]
fn a_partition_whose_state_is_nowhere_is_found() {
    let w = lived();
    let missing = w.id("t", 1);
    let mut owner = Owner::new(options());
    for (id, stamp, block) in blocks(&w).into_iter().filter(|(id, ..)| *id != missing) {
        owner.restore_block(id, stamp, &block).unwrap();
    }
    let error = owner.check_replayed().unwrap_err().to_string();
    assert!(error.contains(&missing.to_string()), "{error}");
}

/// The blocks of a checkpoint are taken one after the other, the metadata's first. A topic that is
/// deleted before it is its turn has none, whatever of its life is in the journal that is read.
#[test]
fn a_topic_that_grows_and_is_deleted_while_a_checkpoint_is_taken() {
    for grows_first in [true, false] {
        let mut w = World::new();
        w.create_topic("t", 1);
        let p = Producer::plain();
        let sent = |w: &mut World| p.send(w, "t", 0, -1, &["v"]).unwrap();
        sent(&mut w);
        let before_all = w.records.len();
        let grow = |w: &mut World| {
            let topic = GrowTopic {
                name: "t".to_owned(),
                count: 2,
                assignments: None,
            };
            w.ask(Command::CreatePartitions(CreatePartitions {
                topics: vec![topic],
                validate_only: false,
            }));
        };
        if grows_first {
            grow(&mut w);
        }
        let id = TopicPartitionId::METADATA;
        let (stamp, metadata) = w.owner.encode_block(id).expect("it is there");
        if !grows_first {
            grow(&mut w);
        }
        sent(&mut w);
        w.delete_topics(&["t"]);

        let mut owner = Owner::new(options());
        owner.restore_block(id, stamp, &metadata).unwrap();
        for (id, stamp, block) in blocks(&w).into_iter().filter(|b| b.0 != id) {
            owner.restore_block(id, stamp, &block).unwrap();
        }
        for record in &w.records[before_all..] {
            owner.replay(&through_bytes(record)).unwrap();
        }
        owner.check_replayed().unwrap();
        assert_eq!(owner.difference(&w.owner), None);
    }
}

#[test]
fn records_that_do_not_follow_each_other_are_refused() {
    let w = lived();
    let mut owner = Owner::new(options());
    let error = owner.replay(&w.records[1]).unwrap_err().to_string();
    assert!(
        error.contains("record 2 does not follow record 0"),
        "{error}"
    );
    owner.replay(&w.records[0]).unwrap();
    owner.replay(&w.records[1]).unwrap();
    assert!(owner.replay(&w.records[3]).is_err(), "one is missing");
    assert!(owner.replay(&w.records[1]).is_err(), "again");
    let early = Record {
        tick: Tick(1),
        ..w.records[2].clone()
    };
    assert!(owner.replay(&early).is_err(), "its tick falls");
    owner.replay(&w.records[2]).unwrap();

    // Over a checkpoint the first record may be an earlier one, not a later one.
    let mut owner = Owner::new(options());
    for (id, _, block) in blocks(&w) {
        owner.restore_block(id, JournalIndex(4), &block).unwrap();
    }
    let error = owner.replay(&w.records[5]).unwrap_err().to_string();
    assert!(error.contains("the checkpoint's record 4"), "{error}");
}

#[test]
fn a_leader_epoch_that_falls_is_refused() {
    let w = lived();
    let rise = w.records.iter().rev().nth(1).expect("the epoch's record");
    let mut owner = w.replayed(w.records.len());
    let end = owner.partition(TopicPartitionId::METADATA).unwrap();
    let mut batch = bytes::BytesMut::from(&rise.appends[0].batch[..]);
    tidemark_record_batch::patch_position(&mut batch, end.log_end_offset, end.leader_epoch());
    let again = Record {
        index: owner.last_index().next(),
        tick: Tick(owner.last_tick().0 + 1),
        wall_ms: 0,
        appends: vec![Append {
            partition: TopicPartitionId::METADATA,
            batch: batch.freeze(),
        }],
    };
    let error = owner.replay(&again).unwrap_err().to_string();
    assert!(error.contains("leader epoch"), "{error}");
}

#[test]
fn every_prefix_of_the_journal_is_a_state() {
    let w = lived();
    for count in 0..=w.records.len() {
        let mut owner = w.replayed(count);
        owner.check().unwrap();
        owner.arm_after_replay(&tidemark_owner::Now {
            mono: MonoTime::ZERO,
            wall_ms: w.wall_ms,
            tick: Tick::ZERO,
            uuid: &mut || [0; 16],
        });
        owner.check().unwrap();
    }
}

thread_local! {
    /// Made once: most of the time of a case would go into it.
    static LIVED: World = lived();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// The checksums of journal and checkpoint keep most of it away; what comes through is an
    /// error or a state, never a panic.
    #[test]
    fn damage_is_an_error_or_a_state(
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        LIVED.with(|w| {
            let blocks = blocks(w);
            // Those that have something in them, more often than their number.
            let larger = blocks.iter().filter(|(_, _, block)| block.len() > 60);
            let larger: Vec<_> = larger.collect();
            damage_a_block(larger[which.index(larger.len())], place, byte, cut);
            // How many partitions a topic has is taken as it is said: damage there only costs
            // memory.
            let not_metadata = |at: &usize| {
                let mut appends = w.records[*at].appends.iter();
                appends.all(|a| a.partition != TopicPartitionId::METADATA)
            };
            let records: Vec<usize> = (0..w.records.len()).filter(not_metadata).collect();
            damage_a_record(w, records[which.index(records.len())], place, byte);
        });
    }
}

fn damage_a_block(
    (id, stamp, block): &(TopicPartitionId, JournalIndex, Bytes),
    place: prop::sample::Index,
    byte: u8,
    cut: bool,
) {
    let mut damaged = block.to_vec();
    let place = place.index(damaged.len());
    if cut {
        damaged.truncate(place);
    } else {
        damaged[place] = byte;
    }
    let restored = Owner::new(options()).restore_block(*id, *stamp, &damaged);
    assert!(restored.is_err() || !cut, "a part is taken for the whole");
}

fn damage_a_record(w: &World, broken: usize, place: prop::sample::Index, byte: u8) {
    let record = &w.records[broken];
    let mut payload: Vec<u8> = record.encode().concat();
    let place = place.index(payload.len());
    payload[place] = byte;
    let read = Record::decode(record.index, record.tick, record.wall_ms, &payload.into());
    let Ok(damaged) = read else {
        return;
    };
    let mut owner = Owner::new(options());
    for record in &w.records[..broken] {
        owner.replay(&through_bytes(record)).unwrap();
    }
    if owner.replay(&damaged).is_ok() {
        // It goes on as if nothing were wrong, or notices later.
        let _ = w.records[broken + 1..]
            .iter()
            .try_for_each(|record| owner.replay(record).map(|_| ()));
    }
}
