use tidemark_group_coordinator::{
    GroupState, HeartbeatRequest, JoinRequest, LeaveMember, OffsetCommitRequest,
};
use tidemark_types::ErrorCode;

use crate::coordinator::{
    Coordinator, GROUP, REBALANCE_MS, SESSION_MS, join_of, offset, static_join_of,
};

/// A stable group of the static members "one", which leads, and "two", at generation 1.
fn stable_static_group(t: &mut Coordinator) -> (String, String) {
    let join_1 = t.join(static_join_of("one", ""));
    let join_2 = t.join(static_join_of("two", ""));
    t.advance(6_000);
    let (one, two) = (t.joined(join_1).member_id, t.joined(join_2).member_id);
    assert_eq!(t.joined(join_1).leader, one);
    t.sync(&two, 1, &[]);
    t.sync(&one, 1, &[(&one, "p1"), (&two, "p2")]);
    assert_eq!(t.state(), GroupState::Stable);
    (one, two)
}

fn heartbeat_of(instance_id: &str, member_id: &str) -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: GROUP.to_owned(),
        generation_id: 1,
        member_id: member_id.to_owned(),
        group_instance_id: Some(instance_id.to_owned()),
    }
}

#[test]
fn a_static_member_that_starts_again_keeps_its_assignment_without_a_rebalance() {
    let mut t = Coordinator::new();
    let (one, two) = stable_static_group(&mut t);
    let again = t.join(static_join_of("two", ""));
    let reply = t.joined(again);
    assert_eq!((reply.error, reply.generation_id), (ErrorCode::None, 1));
    assert_ne!(reply.member_id, two);
    assert_eq!(t.state(), GroupState::Stable);
    let sync = t.sync(&reply.member_id, 1, &[]);
    assert_eq!(t.synced(sync).assignment, "p2");
    // Its former self is fenced, everywhere.
    assert_eq!(
        t.heartbeat_request(heartbeat_of("two", &two)),
        ErrorCode::FencedInstanceId
    );
    let current = heartbeat_of("two", &reply.member_id);
    assert_eq!(t.heartbeat_request(current.clone()), ErrorCode::None);
    let join = t.join(static_join_of("two", &two));
    assert_eq!(t.joined(join).error, ErrorCode::FencedInstanceId);
    let results = t.commit_request(OffsetCommitRequest {
        group_id: GROUP.to_owned(),
        generation_id: 1,
        member_id: two.clone(),
        group_instance_id: Some("two".to_owned()),
        offsets: vec![offset("t", 0, 1)],
        retention_time_ms: -1,
        reports_missing_group: true,
    });
    assert_eq!(results[0].error, ErrorCode::FencedInstanceId);
    assert_eq!(t.fetch("t", 0, false).0, -1);
    // The new id was stored.
    t.restart();
    assert_eq!(t.heartbeat_request(current), ErrorCode::None);
    assert_eq!(t.heartbeat(&one, 1), ErrorCode::None);
}

#[test]
fn a_static_leader_that_starts_again_does_not_assign() {
    let mut t = Coordinator::new();
    let (one, _) = stable_static_group(&mut t);
    // Before v9 it is told of its former self as the leader.
    let again = t.join(static_join_of("one", ""));
    let reply = t.joined(again);
    assert_eq!(
        (reply.leader.as_str(), reply.members.len()),
        (one.as_str(), 0)
    );
    // From v9 on it may watch the topics, but is told to skip the assignment (KIP-814).
    let again = t.join(JoinRequest {
        supports_skip_assignment: true,
        ..static_join_of("one", "")
    });
    let reply = t.joined(again);
    assert_eq!(reply.leader, reply.member_id);
    assert!(reply.skip_assignment);
    assert_eq!(reply.members.len(), 2);
}

#[test]
fn what_the_former_self_has_parked_is_fenced() {
    let mut t = Coordinator::new();
    let first = t.join(static_join_of("one", ""));
    let second = t.join(static_join_of("one", ""));
    assert_eq!(t.joined(first).error, ErrorCode::FencedInstanceId);
    t.advance(6_000);
    assert_eq!(t.joined(second).members.len(), 1);

    let mut t = Coordinator::new();
    let join_1 = t.join(static_join_of("one", ""));
    let join_2 = t.join(static_join_of("two", ""));
    t.advance(6_000);
    let two = t.joined(join_2).member_id;
    let sync_2 = t.sync(&two, 1, &[]);
    let join_2 = t.join(static_join_of("two", ""));
    assert_eq!(t.synced(sync_2).error, ErrorCode::FencedInstanceId);
    // The leader has the former id in its hands: a rebalance.
    assert_eq!(t.state(), GroupState::PreparingRebalance);
    t.join(static_join_of("one", &t.joined(join_1).member_id));
    assert_eq!(t.joined(join_2).generation_id, 2);
}

#[test]
fn another_choice_of_protocol_makes_a_static_restart_a_rebalance() {
    let mut t = Coordinator::new();
    let both = |names: [&str; 2], instance: &str| JoinRequest {
        protocols: names.map(|n| (n.to_owned(), "m".into())).to_vec(),
        ..static_join_of(instance, "")
    };
    let join_1 = t.join(both(["range", "sticky"], "one"));
    t.advance(3_000);
    let one = t.joined(join_1).member_id;
    t.sync(&one, 1, &[(&one, "p")]);
    assert_eq!(t.state(), GroupState::Stable);
    let again = t.join(both(["sticky", "range"], "one"));
    let reply = t.joined(again);
    assert_eq!(
        (reply.generation_id, reply.protocol_name.as_deref()),
        (2, Some("sticky"))
    );
}

#[test]
fn a_static_member_stays_through_a_rebalance_it_misses() {
    let mut t = Coordinator::new();
    let (one, two) = stable_static_group(&mut t);
    let (_, join_c) = t.start_joining("c");
    t.join(static_join_of("one", &one));
    // "two" is restarting; its session is longer than the rebalance here.
    for _ in 0..REBALANCE_MS / 5_000 {
        t.heartbeat_request(heartbeat_of("two", &two));
        t.advance(5_000);
    }
    let members = t.joined(join_c);
    assert_eq!(members.generation_id, 2);
    assert_eq!(t.groups.describe(GROUP).members.len(), 3);
    // But a missing session ends it.
    t.advance(SESSION_MS as u64);
    assert!(t.groups.describe(GROUP).members.len() < 3);
}

#[test]
fn static_members_alone_keep_the_join_phase_open_until_their_sessions_end() {
    let mut t = Coordinator::new();
    let join_1 = t.join(JoinRequest {
        rebalance_timeout_ms: 1_000,
        ..static_join_of("one", "")
    });
    let (c, _) = t.start_joining("c");
    t.advance(6_000);
    let one = t.joined(join_1).member_id;
    t.sync(&c, 1, &[]);
    t.sync(&one, 1, &[(&one, "p")]);
    assert_eq!(t.leave(&c), ErrorCode::None);
    t.advance(SESSION_MS as u64 - 1);
    assert_eq!(t.state(), GroupState::PreparingRebalance);
    t.advance(1);
    assert_eq!(t.state(), GroupState::Empty);
}

#[test]
fn leaving_by_member_id_or_by_instance_id() {
    let mut t = Coordinator::new();
    let (one, two) = stable_static_group(&mut t);
    let leaving = |member_id: &str, instance_id: Option<&str>| LeaveMember {
        member_id: member_id.to_owned(),
        group_instance_id: instance_id.map(str::to_owned),
        reason: None,
    };
    let reply = t.leave_members(vec![
        leaving("stranger", None),
        leaving("", Some("nobody")),
        leaving("", None),
        leaving(&one, Some("two")),
        leaving("", Some("two")),
        leaving(&one, Some("one")),
        leaving(&two, None),
    ]);
    let errors: Vec<ErrorCode> = reply.members.iter().map(|m| m.error).collect();
    assert_eq!(
        errors,
        [
            ErrorCode::UnknownMemberId,
            ErrorCode::UnknownMemberId,
            ErrorCode::UnknownMemberId,
            ErrorCode::FencedInstanceId,
            ErrorCode::None,
            ErrorCode::None,
            ErrorCode::UnknownMemberId,
        ]
    );
    assert_eq!(reply.error, ErrorCode::None);
    assert_eq!(t.state(), GroupState::Empty);
    let reply = t.leave_members(vec![leaving("", Some("one"))]);
    assert_eq!(reply.single_error(), ErrorCode::UnknownMemberId);
}

#[test]
fn a_pending_dynamic_id_is_not_a_static_members() {
    let mut t = Coordinator::new();
    let a = t.new_member_id("a");
    let join = t.join(static_join_of("one", &a));
    assert_eq!(t.joined(join).error, ErrorCode::UnknownMemberId);
    let join = t.join(join_of("a", &a));
    assert!(t.is_parked(join));
}

#[test]
fn a_static_member_that_starts_again_before_it_synced_still_has_to() {
    for syncs in [true, false] {
        let mut t = Coordinator::new();
        let join_1 = t.join(static_join_of("one", ""));
        let join_2 = t.join(static_join_of("two", ""));
        t.advance(6_000);
        let (one, two) = (t.joined(join_1).member_id, t.joined(join_2).member_id);
        t.sync(&one, 1, &[(&one, "p1"), (&two, "p2")]);
        assert_eq!(t.state(), GroupState::Stable);
        let again = t.join(static_join_of("two", ""));
        let new_two = t.joined(again).member_id;
        if syncs {
            let sync = t.sync(&new_two, 1, &[]);
            assert_eq!(t.synced(sync).assignment, "p2");
        }
        for _ in 0..REBALANCE_MS / 5_000 {
            t.heartbeat(&one, 1);
            t.heartbeat(&new_two, 1);
            t.advance(5_000);
        }
        let expected = if syncs {
            GroupState::Stable
        } else {
            GroupState::PreparingRebalance
        };
        assert_eq!(t.state(), expected);
    }
}
