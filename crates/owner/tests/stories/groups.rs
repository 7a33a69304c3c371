//! Groups' offsets, plain and in transactions.

use bytes::Bytes;
use tidemark_group_coordinator::{HeartbeatRequest, SyncRequest};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::common::{Producer, World, join};

const OK: ErrorCode = ErrorCode::None;

/// A group of one member, whose id and generation come back.
fn group_of_one(w: &mut World, group: &str) -> (String, i32) {
    let token = w.give(Command::Join(join(group, "")));
    w.expire();
    let Some(Reply::Join(joined)) = w.replies.get(&token).cloned() else {
        panic!("the first member does not wait");
    };
    let synced = w.ask(Command::Sync(SyncRequest {
        group_id: group.to_owned(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        group_instance_id: None,
        protocol_type: None,
        protocol_name: None,
        assignments: vec![(joined.member_id.clone(), Bytes::from_static(b"all"))],
    }));
    assert!(matches!(synced, Reply::Sync(reply) if reply.error == OK));
    (joined.member_id, joined.generation_id)
}

#[test]
fn a19_offsets_are_pending_until_the_end() {
    for commit in [true, false] {
        let mut w = World::new();
        w.create_topic("in", 2);
        assert_eq!(w.commit_offset("g", "in", 0, 10), OK);
        assert_eq!(w.commit_offset("g", "in", 1, 7), OK);
        let mut p = Producer::classic(&mut w, "tx1");
        p.add_offsets(&mut w, "g");
        assert_eq!(p.commit_offsets(&mut w, "g", &[("in", 0, 43)]), [OK]);
        let both = [("in", 0), ("in", 1)];
        let unstable = (-1, ErrorCode::UnstableOffsetCommit);
        for restarted in [false, true] {
            if restarted {
                w.restart();
            }
            let stable = w.fetch_offsets("g", &both, true);
            assert_eq!(stable, [unstable, (7, OK)]);
            assert_eq!(w.fetch_offsets("g", &both, false), [(10, OK), (7, OK)]);
        }
        p.end(&mut w, commit).unwrap();
        let after = if commit { 43 } else { 10 };
        assert_eq!(w.fetch_offsets("g", &both, true), [(after, OK), (7, OK)]);
        w.restart();
        assert_eq!(w.fetch_offsets("g", &both, true), [(after, OK), (7, OK)]);
    }
}

#[test]
fn a20_a_stale_generation_leaves_nothing_pending() {
    let mut w = World::new();
    w.create_topic("in", 1);
    let (member, generation) = group_of_one(&mut w, "g");
    let mut p = Producer::classic(&mut w, "tx1");
    p.add_offsets(&mut w, "g");
    let send = |w: &mut World, member: &str, generation: i32| {
        p.commit_offsets_as(w, "g", member, generation, &[("in", 0, 5)])[0]
    };
    let records = w.records.len();
    let stale = send(&mut w, &member, generation - 1);
    assert_eq!(stale, ErrorCode::IllegalGeneration);
    let stranger = send(&mut w, "zzz", generation);
    assert_eq!(stranger, ErrorCode::UnknownMemberId);
    assert_eq!(w.records.len(), records);
    assert_eq!(w.fetch_offsets("g", &[("in", 0)], true), [(-1, OK)]);
    assert_eq!(send(&mut w, "", -1), OK);
    assert_eq!(send(&mut w, &member, generation), OK);
    // During a rebalance the current generation is good.
    let second = w.give(Command::Join(join("g", "")));
    assert!(
        !w.replies.contains_key(&second),
        "waits for the first member"
    );
    assert_eq!(send(&mut w, &member, generation), OK);
    p.end(&mut w, true).unwrap();
    assert_eq!(w.fetch_offsets("g", &[("in", 0)], true), [(5, OK)]);
}

#[test]
fn offsets_without_enrolment_are_refused() {
    let mut w = World::new();
    w.create_topic("in", 1);
    let p = Producer::classic(&mut w, "tx1");
    let codes = p.commit_offsets(&mut w, "g", &[("in", 0, 5)]);
    // INVALID_TXN_STATE below TxnOffsetCommit v4.
    assert_eq!(codes, [ErrorCode::TransactionAbortable]);
    p.add_offsets(&mut w, "g");
    let codes = p.commit_offsets(
        &mut w,
        "g",
        &[("nowhere", 0, 5), ("in", 0, 6), ("in", 9, 1)],
    );
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(codes, [unknown, OK, unknown]);
}

#[test]
fn a_member_that_is_silent_leaves_and_parked_requests_are_answered() {
    let mut w = World::new();
    let (first, generation) = group_of_one(&mut w, "g");
    let second = w.give(Command::Join(join("g", "")));
    let told = w.ask(Command::Heartbeat(HeartbeatRequest {
        group_id: "g".to_owned(),
        generation_id: generation,
        member_id: first,
        group_instance_id: None,
    }));
    assert_eq!(told, Reply::Heartbeat(ErrorCode::RebalanceInProgress));
    // The first member never joins again: the rebalance ends without it.
    w.pass_ms(20_000);
    let Some(Reply::Join(joined)) = w.replies.get(&second) else {
        panic!("answered when the join phase ends");
    };
    assert_eq!(joined.generation_id, generation + 1);
    // And the second falls silent too: the group is empty, and stays so over a start.
    w.pass_ms(60_000);
    assert!(w.parked.is_empty());
    w.restart();
    let Reply::DescribeGroups(groups) = w.ask(Command::DescribeGroups(vec!["g".to_owned()])) else {
        panic!();
    };
    assert!(groups[0].members.is_empty());
}
