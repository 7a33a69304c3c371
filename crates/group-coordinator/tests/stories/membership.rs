use bytes::Bytes;
use tidemark_group_coordinator::{
    GroupConfig, GroupRecord, GroupState, Groups, JoinRequest, SyncRequest,
};
use tidemark_types::ErrorCode;

use crate::coordinator::{Coordinator, GROUP, join_of};

#[test]
fn two_members_join_and_the_leaders_sync_tells_both_their_assignments() {
    let mut t = Coordinator::new();
    let (a, join_a) = t.start_joining("a");
    let (b, join_b) = t.start_joining("b");
    assert!(t.is_parked(join_a) && t.is_parked(join_b));
    assert_eq!(t.state(), GroupState::PreparingRebalance);
    // The first wait is over; it is extended once, because b came meanwhile.
    t.advance(3_000);
    assert!(t.is_parked(join_a));
    t.advance(3_000);

    let leader = t.joined(join_a);
    assert_eq!(leader.error, ErrorCode::None);
    assert_eq!(
        (leader.generation_id, leader.leader.as_str()),
        (1, a.as_str())
    );
    assert_eq!(leader.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(leader.protocol_name.as_deref(), Some("range"));
    let seen: Vec<_> = leader
        .members
        .iter()
        .map(|m| (m.member_id.as_str(), m.metadata.as_ref()))
        .collect();
    assert_eq!(
        seen,
        [(a.as_str(), b"topics of a".as_ref()), (&b, b"topics of b")]
    );
    let follower = t.joined(join_b);
    assert_eq!((follower.generation_id, follower.leader), (1, a.clone()));
    assert_eq!(follower.members, []);
    assert_eq!(t.state(), GroupState::CompletingRebalance);

    let sync_b = t.sync(&b, 1, &[]);
    assert!(t.is_parked(sync_b));
    let stored = (t.groups).records_of_partition(Groups::partition_of(GROUP));
    let [(GroupRecord::Group { value, .. }, _, _)] = stored.as_slice() else {
        panic!("the generation that JoinGroup told of is stored: {stored:?}");
    };
    let stored = value.as_ref().expect("it has members");
    assert_eq!((stored.generation, &stored.leader), (1, &None));
    assert!(stored.members.iter().all(|m| m.assignment.is_empty()));
    let sync_a = t.sync(&a, 1, &[(&a, "p0"), (&b, "p1"), ("stranger", "p2")]);
    assert_eq!(t.synced(sync_a).assignment, "p0");
    assert_eq!(t.synced(sync_b).assignment, "p1");
    assert_eq!(t.state(), GroupState::Stable);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::None);
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::None);

    // Asking again is harmless.
    let again = t.sync(&b, 1, &[]);
    assert_eq!(t.synced(again).assignment, "p1");
}

#[test]
fn a_third_member_makes_the_others_join_again() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    let (c, join_c) = t.start_joining("c");
    assert_eq!(t.state(), GroupState::PreparingRebalance);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::RebalanceInProgress);
    let too_late = t.sync(&a, 1, &[]);
    assert_eq!(t.synced(too_late).error, ErrorCode::RebalanceInProgress);

    let join_a = t.join(join_of("a", &a));
    assert!(t.is_parked(join_c) && t.is_parked(join_a));
    let join_b = t.join(join_of("b", &b));
    for join in [join_a, join_b, join_c] {
        assert_eq!(t.joined(join).generation_id, 2);
        assert_eq!(t.joined(join).leader, a);
    }
    assert_eq!(t.joined(join_a).members.len(), 3);
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::IllegalGeneration);
    let stale = t.sync(&b, 1, &[]);
    assert_eq!(t.synced(stale).error, ErrorCode::IllegalGeneration);
    let sync_c = t.sync(&c, 2, &[]);
    // The leader leaves b out: b gets nothing, and no error.
    t.sync(&a, 2, &[(&a, "p0"), (&c, "p1")]);
    assert_eq!(t.synced(sync_c).assignment, "p1");
    let sync_b = t.sync(&b, 2, &[]);
    assert_eq!(t.synced(sync_b).error, ErrorCode::None);
    assert_eq!(t.synced(sync_b).assignment, Bytes::new());
}

#[test]
fn a_rebalance_answers_the_syncs_that_wait() {
    let mut t = Coordinator::new();
    let (a, join_a) = t.start_joining("a");
    let (b, _) = t.start_joining("b");
    t.advance(6_000);
    assert_eq!(t.joined(join_a).generation_id, 1);
    let sync_b = t.sync(&b, 1, &[]);
    let (_, join_c) = t.start_joining("c");
    assert_eq!(t.synced(sync_b).error, ErrorCode::RebalanceInProgress);
    t.join(join_of("a", &a));
    t.join(join_of("b", &b));
    assert_eq!(t.joined(join_c).generation_id, 2);
}

#[test]
fn the_leader_leaves_and_another_leads_the_next_generation() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    assert_eq!(t.leave(&a), ErrorCode::None);
    assert_eq!(t.leave(&a), ErrorCode::UnknownMemberId);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::UnknownMemberId);
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::RebalanceInProgress);
    let join_b = t.join(join_of("b", &b));
    let reply = t.joined(join_b);
    assert_eq!((reply.generation_id, reply.leader), (2, b.clone()));
    assert_eq!(reply.members.len(), 1);

    // The last one goes: the group is empty at a generation of its own, and known as such.
    assert_eq!(t.leave(&b), ErrorCode::None);
    assert_eq!(t.state(), GroupState::Empty);
    let listed = t.groups.list();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].protocol_type, "consumer");
    t.restart();
    assert_eq!(t.state(), GroupState::Empty);
    let (_, join) = t.start_joining("c");
    t.advance(3_000);
    assert_eq!(t.joined(join).generation_id, 4);
}

#[test]
fn joining_again_without_a_change() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    // A follower that lost its answer gets the generation there is.
    let again = t.join(join_of("b", &b));
    let reply = t.joined(again);
    assert_eq!(
        (reply.generation_id, reply.leader, reply.members.len()),
        (1, a.clone(), 0)
    );
    assert_eq!(t.state(), GroupState::Stable);
    // The leader asks for a rebalance by joining.
    let join_a = t.join(join_of("a", &a));
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::RebalanceInProgress);
    let join_b = t.join(join_of("b", &b));
    assert_eq!(t.joined(join_a).generation_id, 2);
    assert_eq!(t.joined(join_b).generation_id, 2);
    // Before the assignment both get the generation again, the leader with the members.
    let again = t.join(join_of("a", &a));
    assert_eq!(t.joined(again).members.len(), 2);
    assert_eq!(t.joined(again).generation_id, 2);
    // A follower with other metadata causes a rebalance, in either state.
    let mut changed = join_of("b", &b);
    changed.protocols[0].1 = Bytes::from_static(b"more topics");
    let join_b = t.join(changed);
    assert!(t.is_parked(join_b));
    assert_eq!(t.state(), GroupState::PreparingRebalance);
}

#[test]
fn a_second_join_of_the_same_member_answers_the_first() {
    let mut t = Coordinator::new();
    let (a, first) = t.start_joining("a");
    let second = t.join(join_of("a", &a));
    assert_eq!(t.joined(first).error, ErrorCode::RebalanceInProgress);
    t.advance(3_000);
    assert_eq!(t.joined(second).generation_id, 1);
    // So does a second sync.
    let (b, _) = t.start_joining("b");
    t.join(join_of("a", &a));
    let first = t.sync(&b, 2, &[]);
    let second = t.sync(&b, 2, &[]);
    assert_eq!(t.synced(first).error, ErrorCode::RebalanceInProgress);
    t.sync(&a, 2, &[(&b, "all")]);
    assert_eq!(t.synced(second).assignment, "all");
}

#[test]
fn an_old_client_joins_without_a_known_id() {
    let mut t = Coordinator::new();
    let join = t.join(JoinRequest {
        require_known_member_id: false,
        rebalance_timeout_ms: -1,
        ..join_of("old", "")
    });
    assert!(t.is_parked(join));
    t.advance(3_000);
    let reply = t.joined(join);
    assert_eq!(reply.error, ErrorCode::None);
    assert_eq!(reply.leader, reply.member_id);
    assert!(reply.member_id.starts_with("old-"));
}

#[test]
fn no_initial_wait_when_it_is_switched_off() {
    let mut t = Coordinator::with(GroupConfig {
        initial_rebalance_delay_ms: 0,
        ..GroupConfig::default()
    });
    let (_, join) = t.start_joining("a");
    assert_eq!(t.joined(join).generation_id, 1);
}

#[test]
fn the_protocol_with_the_most_votes_among_the_common_ones_is_chosen() {
    let named = |names: &[&str]| -> Vec<(String, Bytes)> {
        let protocol = |name: &&str| ((*name).to_owned(), Bytes::from(format!("{name} data")));
        names.iter().map(protocol).collect()
    };
    let cases: &[(&[&[&str]], &str)] = &[
        (&[&["range"]], "range"),
        (
            &[
                &["range", "sticky"],
                &["sticky", "range"],
                &["sticky", "range"],
            ],
            "sticky",
        ),
        // "own" has votes but is not common.
        (&[&["own", "range"], &["own", "range"], &["range"]], "range"),
        // A tie: the first by name.
        (&[&["b", "a"], &["a", "b"]], "a"),
        // A name given twice counts once.
        (&[&["a", "a", "b"], &["b"]], "b"),
    ];
    for (members, expected) in cases {
        let mut t = Coordinator::new();
        let mut joins = Vec::new();
        for (i, protocols) in members.iter().enumerate() {
            joins.push(t.join(JoinRequest {
                require_known_member_id: false,
                protocols: named(protocols),
                ..join_of(&format!("c{i}"), "")
            }));
        }
        t.advance(60_000);
        let reply = t.joined(joins[0]);
        assert_eq!(
            reply.protocol_name.as_deref(),
            Some(*expected),
            "{members:?}"
        );
        let metadata = format!("{expected} data");
        assert!(reply.members.iter().all(|m| m.metadata == metadata));
    }
}

#[test]
fn what_does_not_fit_the_group_is_refused() {
    let mut t = Coordinator::new();
    t.stable_group_of_two();
    let good = join_of("c", "");
    let other_name = vec![("sticky".to_owned(), Bytes::new())];
    let cases = [
        (
            JoinRequest {
                protocol_type: "connect".to_owned(),
                ..good.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinRequest {
                protocols: other_name,
                ..good.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinRequest {
                protocols: Vec::new(),
                ..good.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinRequest {
                group_id: "new".to_owned(),
                protocol_type: String::new(),
                ..good.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinRequest {
                group_id: "new".to_owned(),
                protocols: Vec::new(),
                ..good.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinRequest {
                group_id: String::new(),
                ..good.clone()
            },
            ErrorCode::InvalidGroupId,
        ),
        (
            JoinRequest {
                group_id: "g".repeat(40_000),
                ..good.clone()
            },
            ErrorCode::InvalidGroupId,
        ),
        (
            JoinRequest {
                session_timeout_ms: 5_999,
                ..good.clone()
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            JoinRequest {
                session_timeout_ms: 1_800_001,
                ..good.clone()
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            JoinRequest {
                member_id: "stranger".to_owned(),
                ..good.clone()
            },
            ErrorCode::UnknownMemberId,
        ),
        (
            JoinRequest {
                group_id: "new".to_owned(),
                member_id: "stranger".to_owned(),
                ..good.clone()
            },
            ErrorCode::UnknownMemberId,
        ),
        (
            JoinRequest {
                group_instance_id: Some("i".repeat(40_000)),
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            JoinRequest {
                protocol_type: "t".repeat(40_000),
                ..good.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
    ];
    for (request, expected) in cases {
        let token = t.join(request);
        assert_eq!(t.joined(token).error, expected);
        assert_eq!(t.joined(token).generation_id, -1);
    }
    assert_eq!(t.state(), GroupState::Stable);
    assert_eq!(
        t.groups.list().len(),
        1,
        "a refused join leaves no group behind"
    );
}

#[test]
fn sync_must_name_the_protocol_of_the_group() {
    let mut t = Coordinator::new();
    let a = t.stable_group_of_one();
    let good = SyncRequest {
        group_id: GROUP.to_owned(),
        generation_id: 1,
        member_id: a.clone(),
        group_instance_id: None,
        protocol_type: None,
        protocol_name: None,
        assignments: Vec::new(),
    };
    let cases = [
        (good.clone(), ErrorCode::None),
        (
            SyncRequest {
                protocol_type: Some("connect".to_owned()),
                ..good.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            SyncRequest {
                protocol_name: Some("sticky".to_owned()),
                ..good.clone()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            SyncRequest {
                group_id: String::new(),
                ..good.clone()
            },
            ErrorCode::InvalidGroupId,
        ),
        (
            SyncRequest {
                group_id: "other".to_owned(),
                ..good.clone()
            },
            ErrorCode::UnknownMemberId,
        ),
        (
            SyncRequest {
                member_id: "other".to_owned(),
                ..good.clone()
            },
            ErrorCode::UnknownMemberId,
        ),
        (
            SyncRequest {
                generation_id: 2,
                ..good.clone()
            },
            ErrorCode::IllegalGeneration,
        ),
        (
            SyncRequest {
                group_instance_id: Some("i".to_owned()),
                ..good.clone()
            },
            ErrorCode::UnknownMemberId,
        ),
    ];
    for (request, expected) in cases {
        let token = t.sync_request(request);
        assert_eq!(t.synced(token).error, expected);
    }
}

#[test]
fn a_full_group_takes_nobody_else() {
    let mut t = Coordinator::with(GroupConfig {
        max_size: 2,
        ..GroupConfig::default()
    });
    let (a, _) = t.stable_group_of_two();
    let token = t.join(join_of("c", ""));
    assert_eq!(t.joined(token).error, ErrorCode::GroupMaxSizeReached);
    // A member of it can still join, and when one has left there is room.
    let join_a = t.join(join_of("a", &a));
    assert!(t.is_parked(join_a));
    t.advance(60_000);
    assert_eq!(t.joined(join_a).generation_id, 2);
    let token = t.join(join_of("c", ""));
    assert_eq!(t.joined(token).error, ErrorCode::MemberIdRequired);
}

#[test]
fn an_assignment_that_cannot_be_stored_is_refused() {
    let mut t = Coordinator::with(GroupConfig {
        max_batch_bytes: 1_000,
        ..GroupConfig::default()
    });
    let (a, join_a) = t.start_joining("a");
    let (b, _) = t.start_joining("b");
    t.advance(6_000);
    assert_eq!(t.joined(join_a).generation_id, 1);
    let sync_b = t.sync(&b, 1, &[]);
    let sync_a = t.sync_request(SyncRequest {
        group_id: GROUP.to_owned(),
        generation_id: 1,
        member_id: a.clone(),
        group_instance_id: None,
        protocol_type: None,
        protocol_name: None,
        assignments: vec![(a, Bytes::from(vec![7; 1_000]))],
    });
    assert_eq!(t.synced(sync_a).error, ErrorCode::MessageTooLarge);
    assert_eq!(t.synced(sync_b).error, ErrorCode::MessageTooLarge);
    assert_eq!(t.state(), GroupState::PreparingRebalance);
}

#[test]
fn groups_are_listed_described_and_deleted() {
    let mut t = Coordinator::new();
    assert_eq!(t.state(), GroupState::Dead);
    assert_eq!(t.delete_group(GROUP), ErrorCode::GroupIdNotFound);
    let (a, b) = t.stable_group_of_two();
    let described = t.groups.describe(GROUP);
    assert_eq!(described.protocol_data, "range");
    let members: Vec<_> = described
        .members
        .iter()
        .map(|m| m.member_id.as_str())
        .collect();
    assert_eq!(members, [a.as_str(), b.as_str()]);
    assert_eq!(described.members[0].client_host, "/127.0.0.1");
    assert_eq!(described.members[0].metadata, "topics of a");
    assert_eq!(described.members[1].assignment, "rest");
    assert_eq!(t.delete_group(GROUP), ErrorCode::NonEmptyGroup);
    t.leave(&a);
    let described = t.groups.describe(GROUP);
    assert_eq!(described.state, GroupState::PreparingRebalance);
    assert_eq!(
        (
            described.protocol_data.as_str(),
            described.members[0].metadata.len()
        ),
        ("", 0)
    );
    t.leave(&b);
    assert_eq!(t.delete_group(GROUP), ErrorCode::None);
    assert_eq!(t.state(), GroupState::Dead);
    assert_eq!(t.groups.list(), []);
    t.restart();
    assert_eq!(t.groups.list(), []);
}

#[test]
fn a_member_to_be_of_a_deleted_group_starts_anew() {
    let mut t = Coordinator::new();
    let a = t.stable_group_of_one();
    t.leave(&a);
    let b = t.new_member_id("b");
    assert_eq!(t.delete_group(GROUP), ErrorCode::None);
    let join = t.join(join_of("b", &b));
    assert_eq!(t.joined(join).error, ErrorCode::UnknownMemberId);
}

#[test]
fn stopping_answers_everything_that_waits() {
    let mut t = Coordinator::new();
    let (_, join_a) = t.start_joining("a");
    let effects = t.groups.unload(ErrorCode::NotCoordinator);
    t.run(effects);
    assert_eq!(t.joined(join_a).error, ErrorCode::NotCoordinator);
    assert_eq!(t.groups.next_deadline(), None);
}
