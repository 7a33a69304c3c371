use tidemark_group_coordinator::{GroupState, JoinRequest};
use tidemark_types::{ErrorCode, MonoTime};

use crate::coordinator::{Coordinator, GROUP, REBALANCE_MS, SESSION_MS, join_of, offset};

#[test]
fn a_member_that_crashes_is_out_after_its_session() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    t.advance(SESSION_MS as u64 - 1);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::None);
    t.advance(1);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::RebalanceInProgress);
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::UnknownMemberId);
    let join_a = t.join(join_of("a", &a));
    assert_eq!(t.joined(join_a).generation_id, 2);
    assert_eq!(t.joined(join_a).members.len(), 1);
}

#[test]
fn the_next_deadline_is_exact() {
    let mut t = Coordinator::new();
    assert_eq!(t.groups.next_deadline(), None);
    let a = t.stable_group_of_one();
    t.advance(1_000);
    t.heartbeat(&a, 1);
    let session_end = MonoTime::from_ms(t.now_ms + SESSION_MS as u64);
    assert_eq!(t.groups.next_deadline(), Some(session_end));
    t.leave(&a);
    assert_eq!(t.groups.next_deadline(), None);
}

#[test]
fn committing_offsets_keeps_the_session() {
    let mut t = Coordinator::new();
    let a = t.stable_group_of_one();
    for at in 0..10 {
        t.advance(SESSION_MS as u64 - 1);
        assert_eq!(t.commit(&a, 1, offset("t", 0, at)), ErrorCode::None);
    }
    t.advance(SESSION_MS as u64);
    assert_eq!(t.state(), GroupState::Empty);
}

#[test]
fn a_member_that_does_not_come_back_is_out_after_the_rebalance_timeout() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    let (_, join_c) = t.start_joining("c");
    let join_a = t.join(join_of("a", &a));
    // b is alive but busy.
    for _ in 0..REBALANCE_MS / 5_000 - 1 {
        t.advance(5_000);
        assert_eq!(t.heartbeat(&b, 1), ErrorCode::RebalanceInProgress);
    }
    assert!(t.is_parked(join_a));
    t.advance(5_000);
    assert_eq!(t.joined(join_a).members.len(), 2);
    assert_eq!(t.joined(join_c).generation_id, 2);
    assert_eq!(t.heartbeat(&b, 2), ErrorCode::UnknownMemberId);
}

#[test]
fn members_that_wait_do_not_lose_their_session() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    t.start_joining("c");
    let join_a = t.join(join_of("a", &a));
    t.advance(5 * SESSION_MS as u64);
    assert_eq!(
        t.heartbeat(&b, 1),
        ErrorCode::UnknownMemberId,
        "b did lose it"
    );
    assert_eq!(t.joined(join_a).members.len(), 2);
}

#[test]
fn the_initial_wait_is_extended_up_to_the_rebalance_timeout() {
    let mut t = Coordinator::new();
    let request = |client: &str| JoinRequest {
        rebalance_timeout_ms: 10_000,
        require_known_member_id: false,
        ..join_of(client, "")
    };
    let first = t.join(request("first"));
    for i in 0..4 {
        t.advance(2_000);
        t.join(request(&i.to_string()));
    }
    t.advance(1_999);
    assert!(t.is_parked(first));
    t.advance(1);
    assert_eq!(t.joined(first).members.len(), 5);
}

#[test]
fn an_id_that_is_never_used_is_forgotten() {
    let mut t = Coordinator::new();
    let a = t.new_member_id("a");
    assert_eq!(t.state(), GroupState::Empty);
    assert_eq!(t.heartbeat(&a, 0), ErrorCode::UnknownMemberId);
    t.advance(SESSION_MS as u64);
    assert_eq!(t.state(), GroupState::Dead);
    let join = t.join(join_of("a", &a));
    assert_eq!(t.joined(join).error, ErrorCode::UnknownMemberId);
}

#[test]
fn a_rebalance_waits_for_ids_that_were_given_out_but_not_for_ever() {
    let mut t = Coordinator::new();
    let a = t.stable_group_of_one();
    let (_, join_b) = t.start_joining("b");
    t.new_member_id("c");
    let join_a = t.join(join_of("a", &a));
    assert!(t.is_parked(join_a), "c may come any moment");
    t.advance(SESSION_MS as u64);
    assert_eq!(t.joined(join_a).members.len(), 2);
    assert_eq!(t.joined(join_b).generation_id, 2);
}

#[test]
fn an_id_can_leave_before_it_joins() {
    let mut t = Coordinator::new();
    let a = t.new_member_id("a");
    assert_eq!(t.leave(&a), ErrorCode::None);
    assert_eq!(t.state(), GroupState::Dead);
    assert_eq!(t.leave(&a), ErrorCode::UnknownMemberId);
}

#[test]
fn members_that_never_sync_are_out() {
    let mut t = Coordinator::new();
    let (a, _) = t.start_joining("a");
    let (b, _) = t.start_joining("b");
    t.advance(6_000);
    // The leader heartbeats but never assigns; b waits.
    let sync_b = t.sync(&b, 1, &[]);
    for _ in 0..REBALANCE_MS / 5_000 {
        assert_eq!(t.heartbeat(&a, 1), ErrorCode::None);
        t.advance(5_000);
    }
    assert_eq!(t.synced(sync_b).error, ErrorCode::RebalanceInProgress);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::UnknownMemberId);
    let join_b = t.join(join_of("b", &b));
    assert_eq!(t.joined(join_b).leader, b);
}

#[test]
fn a_join_of_an_old_client_is_not_parked_for_ever() {
    let mut t = Coordinator::new();
    let a = t.stable_group_of_one();
    // Its client may be gone: it has no id to heartbeat with.
    let join_b = t.join(JoinRequest {
        require_known_member_id: false,
        rebalance_timeout_ms: 600_000,
        ..join_of("b", "")
    });
    while t.is_parked(join_b) {
        assert_eq!(t.heartbeat(&a, 1), ErrorCode::RebalanceInProgress);
        t.advance(5_000);
        assert!(t.now_ms < 400_000);
    }
    assert_eq!(t.joined(join_b).error, ErrorCode::UnknownMemberId);
    assert!(t.now_ms >= 300_000);
    let join_a = t.join(join_of("a", &a));
    assert_eq!(t.joined(join_a).members.len(), 1);
}

#[test]
fn a_group_that_all_members_left_while_it_waited_becomes_empty() {
    let mut t = Coordinator::new();
    let (a, join_a) = t.start_joining("a");
    assert_eq!(t.leave(&a), ErrorCode::None);
    assert_eq!(t.joined(join_a).error, ErrorCode::UnknownMemberId);
    t.advance(3_000);
    assert_eq!(t.state(), GroupState::Empty);
    assert_eq!(t.groups.describe(GROUP).members, []);
    assert_eq!(t.groups.next_deadline(), None);
}
