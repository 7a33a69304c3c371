//! What must be one record has to fit one. Every record of the stories is held against the limit
//! (`World::carry_out`).

use std::sync::Arc;

use tidemark_owner::{Command, CreateTopic, CreateTopics, InitProducerId, Reply};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::common::{Producer, World, context, offset};

const OK: ErrorCode = ErrorCode::None;
const LIMIT: usize = 100_000;

fn world() -> World {
    let mut w = World::new();
    w.create_topic("wide", 2_000);
    w.create_topic("t", 1);
    w.set_max_record_bytes(LIMIT);
    w
}

fn wide(range: std::ops::Range<i32>) -> Vec<(&'static str, i32)> {
    range.map(|p| ("wide", p)).collect()
}

#[test]
fn a_transaction_that_could_not_end_does_not_begin() {
    let mut w = world();
    let mut p = Producer::classic(&mut w, "tx1");
    let codes = p.add(&mut w, &wide(0..2_000));
    assert!(codes.iter().all(|c| *c == ErrorCode::MessageTooLarge));
    assert_eq!(p.end(&mut w, true), Err(ErrorCode::InvalidTxnState));

    // As many as there is room for, one batch of them after the other.
    let mut enrolled = 0;
    while p.add(&mut w, &wide(enrolled..enrolled + 50))[0] == OK {
        enrolled += 50;
    }
    assert!((300..2_000).contains(&enrolled), "{enrolled}");
    p.send(&mut w, "wide", 0, 0, &["v"]).unwrap();
    p.end(&mut w, true).unwrap();
    assert_eq!(w.committed("wide", 0), ["v"]);
    assert_eq!(w.markers("wide", enrolled - 1), [('C', p.epoch.0)]);
    assert_eq!(w.ends("wide", enrolled), (0, 0));
}

#[test]
fn whoever_ends_it_finds_room() {
    let mut w = world();
    let fill = |w: &mut World, p: &Producer| {
        let mut enrolled = 0;
        while p.add(w, &wide(enrolled..enrolled + 1))[0] == OK {
            enrolled += 1;
        }
        assert!(enrolled > 200);
    };
    let p = Producer::classic(&mut w, "tx1");
    fill(&mut w, &p);
    // A new session whose client has the longest name there can be.
    let mut named = context(&"n".repeat(32_767));
    named.principal = Arc::from("User:ANONYMOUS");
    let reply = w.ask(Command::InitProducerId(InitProducerId {
        context: named,
        transactional_id: Some(Arc::from("tx1")),
        transaction_timeout_ms: 60_000,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
    }));
    let Reply::InitProducerId(Ok((producer_id, epoch))) = reply else {
        panic!("{reply:?}");
    };
    let p = Producer {
        producer_id,
        epoch,
        ..p
    };
    fill(&mut w, &p);
    w.pass_ms(60_000);
    assert_eq!(w.owner.next_deadline(), None);
    w.restart();
}

#[test]
fn one_request_enrols_what_fits_the_rest_is_refused() {
    let mut w = world();
    let mut p = Producer::v2(&mut w, "tx1");
    let batches = (0..1_000)
        .map(|n| p.batch(&w, "wide", n, 0, &["v"]))
        .collect();
    let produced = w.produce(12, batches);
    let accepted = produced.iter().filter(|r| r.is_ok()).count();
    assert!((100..1_000).contains(&accepted), "{accepted}");
    let refused = Err(ErrorCode::MessageTooLarge);
    assert!(produced[accepted..].iter().all(|r| *r == refused));
    p.end(&mut w, true).unwrap();
    assert_eq!(w.ends("wide", accepted as i32), (0, 0));
    // Without a transaction the same limit.
    let plain = Producer::plain();
    let large = "x".repeat(40_000);
    let batches = (0..3)
        .map(|n| plain.batch(&w, "wide", n, -1, &[&large]))
        .collect();
    let produced = w.produce(9, batches);
    assert_eq!(produced[2], refused);
    assert!(produced[0].is_ok() && produced[1].is_ok());
}

#[test]
fn offsets_that_do_not_fit_are_refused() {
    let mut w = World::new();
    w.create_topic("wide", 2_000);
    let p = Producer::classic(&mut w, "tx1");
    p.add_offsets(&mut w, "g");
    w.set_max_record_bytes(50_000);
    let offsets: Vec<_> = (0..2_000).map(|n| ("wide", n, 1)).collect();
    let codes = p.commit_offsets(&mut w, "g", &offsets);
    let refused = ErrorCode::InvalidCommitOffsetSize;
    assert!(codes.len() == 2_000 && codes.iter().all(|c| *c == refused));
    let codes = p.commit_offsets(&mut w, "g", &offsets[..100]);
    assert!(codes.iter().all(|c| *c == OK));
}

#[test]
fn topics_that_do_not_fit_are_refused() {
    let mut w = world();
    let topics = (0..2_000).map(|n| CreateTopic {
        name: format!("t{n}{}", "x".repeat(200)),
        partitions: 1,
        replication_factor: 1,
        ..CreateTopic::default()
    });
    let reply = w.ask(Command::CreateTopics(CreateTopics {
        topics: topics.collect(),
        validate_only: false,
        auto: false,
    }));
    let Reply::CreateTopics(created) = reply else {
        panic!("{reply:?}");
    };
    let fit = created.iter().filter(|t| t.error == OK).count();
    assert!((100..1_000).contains(&fit), "{fit}");
    let late = &created[fit];
    assert_eq!(late.error, ErrorCode::InvalidRequest);
    assert!(w.owner.metadata().topic(&late.name).is_none());
}

#[test]
fn a_large_deletion_takes_several_records_and_one_answer() {
    let mut w = world();
    w.set_max_record_bytes(1 << 20);
    // Four transactions of which a record holds one, and offsets of many groups.
    let mut producers: Vec<Producer> = (0..4)
        .map(|n| {
            let p = Producer::classic(&mut w, &format!("tx{n}"));
            let first = n * 400;
            let mut partitions = wide(first..first + 400);
            partitions.push(("t", 0));
            assert_eq!(p.add(&mut w, &partitions)[0], OK);
            p.send(&mut w, "wide", first, 0, &["v"]).unwrap();
            p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
            p
        })
        .collect();
    for group in ["g0", "g1", "g2", "g3", "g4", "g5"] {
        let everywhere = (0..2_000).map(|p| offset("wide", p, 1));
        w.commit_offsets(group, everywhere.collect());
    }
    w.commit_offset("g0", "t", 0, 7);
    w.set_max_record_bytes(LIMIT);
    let records = w.records.len();
    assert_eq!(w.delete_topics(&["wide"]), [OK]);
    let took = w.records.len() - records;
    assert!((6..20).contains(&took), "{took} records");
    assert!(w.owner.metadata().topic("wide").is_none());
    let ends: Vec<_> = producers.iter_mut().map(|p| p.end(&mut w, true)).collect();
    assert!(ends.iter().all(|e| *e == Err(ErrorCode::ProducerFenced)));
    assert_eq!(w.committed("t", 0), Vec::<String>::new());
    assert_eq!(w.markers("t", 0).len(), 4);
    w.restart();
    w.create_topic("wide", 100);
    let both = [("wide", 5), ("t", 0)];
    assert_eq!(w.fetch_offsets("g0", &both, true), [(-1, OK), (7, OK)]);
}

#[test]
fn a_kill_during_a_large_deletion_leaves_the_topic() {
    let mut w = world();
    w.set_max_record_bytes(1 << 20);
    for group in ["g0", "g1", "g2", "g3", "g4", "g5"] {
        let everywhere = (0..2_000).map(|p| offset("wide", p, 1));
        w.commit_offsets(group, everywhere.collect());
    }
    w.set_max_record_bytes(LIMIT);
    let token = w.give(Command::DeleteTopics(tidemark_owner::DeleteTopics {
        topics: vec![tidemark_owner::DeleteTopic::Name("wide".to_owned())],
    }));
    assert!(w.parked.contains(&token), "it is not done yet");
    assert!(w.owner.metadata().topic("wide").is_some());
    w.restart();
    // Asked again, it goes on where it was.
    assert_eq!(w.delete_topics(&["wide"]), [OK]);
    assert!(w.owner.metadata().topic("wide").is_none());
}
