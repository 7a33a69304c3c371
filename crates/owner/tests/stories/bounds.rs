//! What must be one record has to fit one. Every record of the stories is held against the limit
//! (`World::carry_out`).

use std::sync::Arc;

use tidemark_group_coordinator::{JoinReply, JoinRequest, OffsetToCommit, SyncRequest};
use tidemark_metadata::ConfigChange;
use tidemark_owner::*;
use tidemark_types::{CoordinatorEpoch, ErrorCode, ProducerEpoch, ProducerId};

use crate::common::{Producer, World, context, join, offset};

const OK: ErrorCode = ErrorCode::None;
const LIMIT: usize = 140_000;

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
        assert!(enrolled > 20, "{enrolled}");
    };
    let p = Producer::classic(&mut w, "tx1");
    fill(&mut w, &p);
    // A new session whose principal and client have the longest names there can be; one that is
    // longer is nobody's.
    let mut init = |principal: usize| {
        let mut named = context(&"n".repeat(32_767));
        named.principal = Arc::from("p".repeat(principal));
        w.ask(Command::InitProducerId(InitProducerId {
            context: named,
            transactional_id: Some(Arc::from("tx1")),
            transaction_timeout_ms: 60_000,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
        }))
    };
    let refused = Reply::InitProducerId(Err(ErrorCode::InvalidRequest));
    assert_eq!(init(32_768), refused);
    let reply = init(32_767);
    let Reply::InitProducerId(Ok((producer_id, epoch))) = reply else {
        panic!("{reply:?}");
    };
    let p = Producer {
        producer_id,
        epoch,
        ..p
    };
    fill(&mut w, &p);
    assert_eq!(p.add_offsets(&mut w, "g"), ErrorCode::MessageTooLarge);
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
    let large = "x".repeat(60_000);
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

    // Outside transactions too, and with texts beside them.
    let plain = |count: usize, text: usize| {
        let offsets = (0..count).map(|n| OffsetToCommit {
            metadata: Some("x".repeat(text)),
            ..offset("wide", n as i32, 1)
        });
        offsets.collect::<Vec<_>>()
    };
    let codes = w.commit_offsets("g", plain(2_000, 0));
    assert!(codes.iter().all(|c| *c == refused));
    let codes = w.commit_offsets("g", plain(20, 4_000));
    assert!(codes.iter().all(|c| *c == refused));
    let codes = w.commit_offsets("g", plain(1, 40_000));
    assert_eq!(codes, [ErrorCode::OffsetMetadataTooLarge]);
    assert_eq!(w.commit_offsets("g", plain(3, 4_000)), [OK; 3]);
}

#[test]
fn a_group_that_does_not_fit_is_refused() {
    let mut w = world();
    let join_with = |w: &mut World, metadata: usize| {
        let token = w.give(Command::Join(JoinRequest {
            protocols: vec![("range".to_owned(), vec![b'm'; metadata].into())],
            ..join("g", "")
        }));
        w.expire();
        match w.replies.get(&token) {
            Some(Reply::Join(joined)) => joined.clone(),
            other => panic!("{other:?}"),
        }
    };
    let sync = |w: &mut World, joined: &JoinReply, assignment: usize| {
        let synced = w.ask(Command::Sync(SyncRequest {
            group_id: "g".to_owned(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            group_instance_id: None,
            protocol_type: None,
            protocol_name: None,
            assignments: vec![(joined.member_id.clone(), vec![b'a'; assignment].into())],
        }));
        match synced {
            Reply::Sync(reply) => reply.error,
            other => panic!("{other:?}"),
        }
    };
    // What a member says of itself is stored with the assignment, and refused with it.
    let joined = join_with(&mut w, 2 * LIMIT);
    assert_eq!(joined.error, OK);
    assert_eq!(sync(&mut w, &joined, 1), ErrorCode::MessageTooLarge);
    w.pass_ms(60_000);
    let joined = join_with(&mut w, 10);
    assert_eq!(sync(&mut w, &joined, 2 * LIMIT), ErrorCode::MessageTooLarge);
    w.pass_ms(60_000);
    let joined = join_with(&mut w, 10);
    assert_eq!(sync(&mut w, &joined, LIMIT / 3), OK);
    w.restart();
}

#[test]
fn groups_whose_deletion_does_not_fit_go_one_after_the_other() {
    let mut w = world();
    let names: Vec<String> = (0..3_000).map(|n| format!("group-{n}")).collect();
    for name in &names {
        w.commit_offset(name, "t", 0, 1);
    }
    let mut left = names;
    for asked in 0.. {
        assert!(asked < 20, "{} are left", left.len());
        let Reply::DeleteGroups(codes) = w.ask(Command::DeleteGroups(left.clone())) else {
            panic!("another reply");
        };
        let again = ErrorCode::CoordinatorLoadInProgress;
        assert!(codes.iter().all(|code| [OK, again].contains(code)));
        let mut codes = codes.into_iter();
        left.retain(|_| codes.next() != Some(OK));
        if left.is_empty() {
            assert!(asked > 1, "all at once");
            break;
        }
    }
    assert!(w.owner.groups().list().is_empty());

    // One group of many offsets.
    let everywhere: Vec<_> = (0..2_000).map(|p| offset("wide", p, 1)).collect();
    for some in everywhere.chunks(200) {
        w.commit_offsets("g", some.to_vec());
    }
    let all = (0..2_000).map(|p| ("wide".to_owned(), p)).collect();
    let deleted = w.ask(Command::OffsetDelete(OffsetDelete {
        group_id: "g".to_owned(),
        partitions: all,
    }));
    let again = Err(ErrorCode::CoordinatorLoadInProgress);
    assert!(
        [again, Ok(vec![OK; 2_000])]
            .map(Reply::OffsetDelete)
            .contains(&deleted)
    );
    w.restart();
}

#[test]
fn markers_that_do_not_fit_are_refused() {
    let mut w = world();
    let reply = w.ask(Command::WriteTxnMarkers(WriteTxnMarkers {
        context: context("c"),
        producer_id: ProducerId(77),
        producer_epoch: ProducerEpoch(0),
        commit: false,
        coordinator_epoch: CoordinatorEpoch(0),
        partitions: wide(0..2_000)
            .into_iter()
            .map(|(t, p)| (t.to_owned(), p))
            .collect(),
    }));
    let Reply::WriteTxnMarkers(codes) = reply else {
        panic!("{reply:?}");
    };
    let written = codes.iter().filter(|code| **code == OK).count();
    assert!((1_000..2_000).contains(&written), "{written}");
    // Asked again, as clients do on it.
    assert!(
        codes[written..]
            .iter()
            .all(|c| *c == ErrorCode::RequestTimedOut)
    );
}

#[test]
fn a_configuration_that_does_not_fit_is_refused() {
    let mut w = world();
    let long = "1:0,".repeat(LIMIT / 4);
    let long = long.trim_end_matches(',');
    let name = "leader.replication.throttled.replicas";
    let create = |w: &mut World, value: &str| {
        let reply = w.ask(Command::CreateTopics(CreateTopics {
            topics: vec![CreateTopic {
                name: "c".to_owned(),
                partitions: 1,
                replication_factor: 1,
                configs: vec![(name.to_owned(), Some(value.to_owned()))],
                ..CreateTopic::default()
            }],
            validate_only: false,
            auto: false,
        }));
        match reply {
            Reply::CreateTopics(created) => created[0].error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(create(&mut w, long), ErrorCode::InvalidRequest);
    assert_eq!(create(&mut w, "1:0"), OK);
    for alteration in [
        Alteration::Changes(vec![(name.to_owned(), ConfigChange::Set(long.to_owned()))]),
        Alteration::Replacement(vec![(name.to_owned(), long.to_owned())]),
    ] {
        let reply = w.ask(Command::AlterConfigs(AlterConfigs {
            resources: vec![AlterResource {
                resource: ConfigResource::Topic("c".to_owned()),
                alteration,
            }],
            validate_only: false,
        }));
        let Reply::AlterConfigs(altered) = reply else {
            panic!("{reply:?}");
        };
        let code = altered[0].as_ref().map_err(|(code, _)| *code);
        assert_eq!(code, Err(ErrorCode::InvalidRequest));
    }
    assert_eq!(w.owner.metadata().topic("c").unwrap().config[name], "1:0");
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
    // Four transactions of which a record holds two, and offsets of many groups.
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
    assert!((4..20).contains(&took), "{took} records");
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
