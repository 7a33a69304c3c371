//! What nobody has used for long is forgotten, with a record, a few at a time.

use tidemark_group_coordinator::OffsetCommitRequest;
use tidemark_owner::{Command, ExpiryOptions, OwnerOptions, Reply};
use tidemark_txn_coordinator::TxnState;
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::common::{Producer, World, offset, options};

const NEVER_MS: i64 = i32::MAX as i64;

fn world(expiry: ExpiryOptions) -> World {
    let mut w = World::with(OwnerOptions {
        expiry,
        ..options()
    });
    w.create_topic("t", 2);
    w
}

/// Producers for two seconds, looked at every second.
fn producers_for_2_s() -> ExpiryOptions {
    ExpiryOptions {
        producer_id_ms: 2_000,
        producer_id_interval_ms: 1_000,
        ..ExpiryOptions::default()
    }
}

fn knows(w: &World, partition: i32, p: &Producer) -> bool {
    let producers = &w.partition("t", partition).producers;
    producers.get(p.producer_id).is_some()
}

#[test]
fn m19_only_the_idle_producer_is_forgotten_and_its_id_never_returns() {
    let mut w = world(producers_for_2_s());
    let idle = Producer::idempotent(&mut w);
    let mut open = Producer::classic(&mut w, "tx1");
    let active = Producer::idempotent(&mut w);
    idle.send(&mut w, "t", 0, 0, &["i"]).unwrap();
    open.add(&mut w, &[("t", 0)]);
    open.send(&mut w, "t", 0, 0, &["o"]).unwrap();
    for sequence in 0..5 {
        active.send(&mut w, "t", 0, sequence, &["a"]).unwrap();
        w.pass_ms(1_000);
    }
    assert!(!knows(&w, 0, &idle));
    assert!(knows(&w, 0, &open) && knows(&w, 0, &active));
    w.restart();
    assert!(!knows(&w, 0, &idle));
    // What the others know is untouched.
    active.send(&mut w, "t", 0, 5, &["a"]).unwrap();
    open.end(&mut w, true).unwrap();
    let all = [idle.producer_id, open.producer_id, active.producer_id];
    for _ in 0..2_000 {
        let (fresh, _) = w.init(None, None).unwrap();
        assert!(!all.contains(&fresh), "{fresh} was given before");
    }
    // Its transaction is over: two seconds later it goes like any other.
    w.pass_ms(3_000);
    assert_eq!(w.partition("t", 0).producers.len(), 0);
}

#[test]
fn a3_a_producer_that_was_forgotten_goes_on_where_it_was() {
    let mut w = world(producers_for_2_s());
    let p = Producer::idempotent(&mut w);
    assert_eq!(p.send(&mut w, "t", 0, 0, &["r0"]), Ok(0));
    assert_eq!(p.send(&mut w, "t", 0, 1, &["r1"]), Ok(1));
    w.pass_ms(5_000);
    assert!(!knows(&w, 0, &p));
    assert_eq!(p.send(&mut w, "t", 0, 2, &["r2"]), Ok(2));
    // From here on it is known again.
    assert_eq!(p.send(&mut w, "t", 0, 2, &["r2"]), Ok(2));
    let skipped = p.send(&mut w, "t", 0, 9, &["r9"]);
    assert_eq!(skipped, Err(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(w.uncommitted("t", 0), ["r0", "r1", "r2"]);
}

#[test]
fn many_producers_are_forgotten_a_few_at_a_time() {
    let mut w = world(producers_for_2_s());
    for _ in 0..2_500 {
        let p = Producer::idempotent(&mut w);
        p.send(&mut w, "t", 1, 0, &["v"]).unwrap();
    }
    w.mono_ms += 3_000;
    w.wall_ms += 3_000;
    let before = w.records.len();
    let mut left = vec![w.partition("t", 1).producers.len()];
    while w
        .owner
        .next_sweep()
        .is_some_and(|at| at.as_ms() <= w.mono_ms)
    {
        w.give(Command::Sweep);
        left.push(w.partition("t", 1).producers.len());
        // In the middle of it, too, the journal says the same.
        w.replayed(w.records.len());
    }
    let most = left.windows(2).map(|pair| pair[0] - pair[1]).max();
    assert!(most.is_some_and(|most| most <= 1_000), "{left:?}");
    assert_eq!(left.last(), Some(&0));
    assert!((3..=4).contains(&(w.records.len() - before)), "{left:?}");
}

#[test]
fn a_dynamic_expiration_is_in_force_with_the_next_look() {
    use tidemark_metadata::ConfigChange;
    use tidemark_owner::{AlterConfigs, AlterResource, Alteration, ConfigResource};

    let mut w = world(ExpiryOptions {
        producer_id_ms: NEVER_MS,
        ..producers_for_2_s()
    });
    let p = Producer::idempotent(&mut w);
    p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
    w.pass_ms(60_000);
    assert!(knows(&w, 0, &p));
    let value = ConfigChange::Set("30000".to_owned());
    let changed = w.ask(Command::AlterConfigs(AlterConfigs {
        resources: vec![AlterResource {
            resource: ConfigResource::Broker(None),
            alteration: Alteration::Changes(vec![("producer.id.expiration.ms".to_owned(), value)]),
        }],
        validate_only: false,
    }));
    assert_eq!(changed, Reply::AlterConfigs(vec![Ok(())]));
    w.pass_ms(1_000);
    assert!(!knows(&w, 0, &p));
}

#[test]
fn a_transactional_id_that_is_idle_for_long_comes_back_as_a_new_one() {
    let mut w = world(ExpiryOptions {
        transactional_id_ms: 10_000,
        transactional_id_interval_ms: 1_000,
        ..ExpiryOptions::default()
    });
    let state = |w: &World, id: &str| w.owner.coordinator().get(id).map(|meta| meta.state);
    // One in each state.
    let empty = Producer::classic(&mut w, "empty");
    let mut ended = Vec::new();
    for (id, commit) in [("committed", true), ("aborted", false)] {
        let mut p = Producer::v2(&mut w, id);
        p.send(&mut w, "t", 0, 0, &[id]).unwrap();
        p.end(&mut w, commit).unwrap();
        ended.push(p);
    }
    w.pass_ms(5_000);
    let (open_id, open_epoch) = w.init_with_timeout(Some("open"), None, 900_000).unwrap();
    let mut open = Producer {
        transactional_id: Some("open".to_owned()),
        producer_id: open_id,
        epoch: open_epoch,
        ..empty.clone()
    };
    open.add(&mut w, &[("t", 1)]);
    open.send(&mut w, "t", 1, 0, &["o"]).unwrap();
    // What one of them does counts from then on.
    ended[0].send(&mut w, "t", 0, 0, &["again"]).unwrap();
    ended[0].end(&mut w, true).unwrap();
    w.pass_ms(5_000);
    assert_eq!(state(&w, "empty"), None);
    assert_eq!(state(&w, "aborted"), None);
    assert_eq!(state(&w, "committed"), Some(TxnState::CompleteCommit));
    w.pass_ms(60_000);
    assert_eq!(state(&w, "committed"), None);
    assert_eq!(state(&w, "open"), Some(TxnState::Ongoing), "in use");
    w.restart();
    assert_eq!(w.owner.coordinator().len(), 1);

    // Requests under what was are refused; a new session is a new producer, whether it remembers.
    let late = ended[1].end(&mut w, true);
    assert_eq!(late, Err(ErrorCode::InvalidProducerIdMapping));
    let late = ended[1].send(&mut w, "t", 0, 0, &["late"]);
    assert_eq!(late, Err(ErrorCode::InvalidProducerIdMapping));
    let given = Some((empty.producer_id, empty.epoch));
    let ids: Vec<ProducerId> = [("empty", given), ("aborted", None)]
        .map(|(id, given)| {
            let (producer_id, epoch) = w.init(Some(id), given).unwrap();
            assert_eq!(epoch, ProducerEpoch(0));
            producer_id
        })
        .into();
    for known in ended.iter().chain([&empty, &open]) {
        assert!(!ids.contains(&known.producer_id), "an id was given again");
    }
    // The open one ends, and is forgotten so long after that.
    open.end(&mut w, true).unwrap();
    w.pass_ms(9_999);
    assert!(state(&w, "open").is_some());
    w.pass_ms(1_001);
    assert_eq!(state(&w, "open"), None);
    assert_eq!(w.committed("t", 1), ["o"]);
}

#[test]
fn offsets_that_nobody_needs_expire_with_tombstones() {
    let mut w = world(ExpiryOptions {
        offsets_ms: 60_000,
        offsets_interval_ms: 1_000,
        ..ExpiryOptions::default()
    });
    w.commit_offset("simple", "t", 0, 5);
    // In a transaction that is still open: it holds what was committed before, and the group.
    w.commit_offset("moved", "t", 0, 1);
    let mut p = Producer::classic(&mut w, "tx1");
    (p.producer_id, p.epoch) = w.init_with_timeout(Some("tx1"), None, 900_000).unwrap();
    p.add_offsets(&mut w, "moved");
    p.commit_offsets(&mut w, "moved", &[("t", 0, 2)]);
    // With a retention of its own, as OffsetCommit v2 to v4 could ask for.
    w.ask(Command::OffsetCommit(OffsetCommitRequest {
        group_id: "brief".to_owned(),
        generation_id: -1,
        member_id: String::new(),
        group_instance_id: None,
        offsets: vec![offset("t", 0, 7)],
        retention_time_ms: 10_000,
        reports_missing_group: false,
    }));
    w.restart();
    let committed = |w: &mut World, group| w.fetch_offsets(group, &[("t", 0)], false)[0].0;
    w.pass_ms(9_999);
    assert_eq!(committed(&mut w, "brief"), 7);
    w.pass_ms(1_001);
    assert_eq!(committed(&mut w, "brief"), -1);
    w.pass_ms(30_000);
    w.commit_offset("simple", "t", 1, 6);
    w.pass_ms(20_000);
    // Each by its own commit.
    let fetched = w.fetch_offsets("simple", &[("t", 0), ("t", 1)], false);
    assert_eq!(fetched[0].0, -1);
    assert_eq!(fetched[1].0, 6);
    assert_eq!(committed(&mut w, "moved"), 1);
    p.end(&mut w, true).unwrap();
    assert_eq!(committed(&mut w, "moved"), 2);
    // Counted from the commit, which is long ago, not from the transaction's end: as in Kafka.
    w.pass_ms(1_000);
    assert_eq!(committed(&mut w, "moved"), -1);
    w.pass_ms(60_000);
    w.restart();
    assert!(w.owner.groups().list().is_empty());
}

#[test]
fn a_large_group_loses_its_offsets_a_few_at_a_time() {
    let mut w = world(ExpiryOptions {
        offsets_ms: 60_000,
        offsets_interval_ms: 1_000,
        ..ExpiryOptions::default()
    });
    w.create_topic("wide", 5_000);
    let all = (0..5_000).map(|p| offset("wide", p, 1)).collect();
    w.commit_offsets("g", all);
    w.set_max_record_bytes(70_000);
    w.mono_ms += 61_000;
    w.wall_ms += 61_000;
    let mut largest = 0;
    while w
        .owner
        .next_sweep()
        .is_some_and(|at| at.as_ms() <= w.mono_ms)
    {
        let before = w.records.len();
        w.give(Command::Sweep);
        for record in &w.records[before..] {
            let bytes: usize = record.appends.iter().map(|a| a.batch.len()).sum();
            largest = largest.max(bytes);
        }
    }
    assert!(largest > 0 && largest < 40_000, "{largest}");
    assert!(w.owner.groups().list().is_empty());
    w.restart();
}

#[test]
fn nothing_is_forgotten_before_its_time_whatever_the_wall_clock_does() {
    let mut w = world(producers_for_2_s());
    let p = Producer::idempotent(&mut w);
    p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
    // Set back by a year: it looks young, for as long.
    w.wall_ms -= 31_536_000_000;
    w.pass_ms(5_000);
    assert!(knows(&w, 0, &p));
    w.wall_ms += 31_536_000_000;
    w.pass_ms(1_000);
    assert!(!knows(&w, 0, &p));
}
