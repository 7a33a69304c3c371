use tidemark_group_coordinator::{GroupConfig, GroupState};
use tidemark_types::ErrorCode;

use crate::coordinator::{Coordinator, SESSION_MS, join_of, offset};

#[test]
fn members_survive_a_restart_and_go_on_in_their_generation() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    t.commit(&a, 1, offset("t", 0, 10));
    t.restart();
    assert_eq!(t.state(), GroupState::Stable);
    // Sessions start anew: both have their whole timeout to show themselves.
    t.advance(SESSION_MS as u64 - 1);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::None);
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::None);
    assert_eq!(t.commit(&a, 1, offset("t", 0, 11)), ErrorCode::None);
    let sync = t.sync(&b, 1, &[]);
    assert_eq!(t.synced(sync).assignment, "rest");
    // The leader is still the leader.
    let join = t.join(join_of("a", &a));
    assert!(t.is_parked(join));
    t.join(join_of("b", &b));
    assert_eq!(t.joined(join).generation_id, 2);
}

#[test]
fn a_member_that_went_with_the_broker_is_out_after_its_session() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    t.restart();
    t.advance(5_000);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::None);
    t.advance(5_000);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::RebalanceInProgress);
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::UnknownMemberId);
}

#[test]
fn a_generation_without_its_assignment_is_joined_again_by_all_of_it() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    let (c, _) = t.start_joining("c");
    t.join(join_of("a", &a));
    t.join(join_of("b", &b));
    assert_eq!(t.heartbeat(&a, 2), ErrorCode::None);
    t.restart();
    // All were told of the generation, the new member too: none of them is unknown now.
    assert_eq!(t.state(), GroupState::PreparingRebalance);
    for member in [&a, &b, &c] {
        assert_eq!(t.heartbeat(member, 2), ErrorCode::RebalanceInProgress);
        let sync = t.sync(member, 2, &[]);
        assert_eq!(t.synced(sync).error, ErrorCode::RebalanceInProgress);
    }
    let joins = [("a", &a), ("b", &b), ("c", &c)].map(|(name, id)| t.join(join_of(name, id)));
    assert_eq!(t.joined(joins[0]).members.len(), 3);
    assert_eq!(t.joined(joins[2]).generation_id, 3);
}

#[test]
fn a_member_that_has_left_does_not_come_back_and_the_rebalance_goes_on() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    assert_eq!(t.leave(&b), ErrorCode::None);
    t.restart();
    assert_eq!(t.state(), GroupState::PreparingRebalance);
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::UnknownMemberId);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::RebalanceInProgress);
    // Nobody waits for the one that is gone.
    let join = t.join(join_of("a", &a));
    let reply = t.joined(join);
    assert_eq!((reply.generation_id, reply.leader), (2, a.clone()));
    assert_eq!(reply.members.len(), 1);
    // Also not when the rebalance was cut off by restarts more than once.
    t.restart();
    t.restart();
    assert_eq!(t.heartbeat(&a, 2), ErrorCode::RebalanceInProgress);
    let join = t.join(join_of("a", &a));
    assert_eq!(t.joined(join).generation_id, 3);
    let sync = t.sync(&a, 3, &[(&a, "all")]);
    assert_eq!(t.synced(sync).assignment, "all");
    t.restart();
    assert_eq!(t.state(), GroupState::Stable);
}

#[test]
fn a_member_whose_session_ended_does_not_come_back() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    t.advance(5_000);
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::None);
    t.advance(5_000);
    assert_eq!(t.state(), GroupState::PreparingRebalance);
    t.restart();
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::UnknownMemberId);
    let join = t.join(join_of("a", &a));
    assert_eq!(t.joined(join).members.len(), 1);
}

#[test]
fn a_leave_that_ends_the_join_phase_does_not_take_the_new_generation_back() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    let (c, join_c) = t.start_joining("c");
    t.join(join_of("a", &a));
    assert_eq!(t.leave(&b), ErrorCode::None);
    assert_eq!(t.joined(join_c).generation_id, 2);
    t.restart();
    // Both were told of generation 2, and the new member's id is known.
    for member in [&a, &c] {
        assert_eq!(t.heartbeat(member, 2), ErrorCode::RebalanceInProgress);
    }
    assert_eq!(t.heartbeat(&b, 1), ErrorCode::UnknownMemberId);
}

#[test]
fn everyone_of_a_generation_left_while_a_new_member_joins() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    let (c, join_c) = t.start_joining("c");
    assert!(t.is_parked(join_c));
    t.leave(&a);
    t.restart();
    // The new member was told of no generation: it joins anew.
    let join = t.join(join_of("c", &c));
    assert_eq!(t.joined(join).error, ErrorCode::UnknownMemberId);
    assert_eq!(t.leave(&b), ErrorCode::None);
    assert_eq!(t.state(), GroupState::Empty);
}

#[test]
fn twice_in_a_row() {
    let mut t = Coordinator::new();
    let (a, _) = t.stable_group_of_two();
    t.txn_commit(1, &a, 1, offset("t", 0, 5));
    t.restart();
    t.restart();
    assert_eq!(t.heartbeat(&a, 1), ErrorCode::None);
    t.end_transaction(1, true);
    t.restart();
    assert_eq!(t.fetch("t", 0, true), (5, ErrorCode::None));
}

#[test]
fn a_group_that_is_too_large_after_a_restart_shrinks() {
    let mut t = Coordinator::new();
    let (a, b) = t.stable_group_of_two();
    let mut small = Coordinator::with(GroupConfig {
        max_size: 1,
        ..GroupConfig::default()
    });
    for partition in t.groups.partitions() {
        for (record, _, producer) in t.groups.records_of_partition(partition) {
            small.append(record, producer);
        }
    }
    small.restart();
    assert_eq!(small.heartbeat(&a, 1), ErrorCode::RebalanceInProgress);
    let join_a = small.join(join_of("a", &a));
    let join_b = small.join(join_of("b", &b));
    assert_eq!(small.joined(join_b).error, ErrorCode::GroupMaxSizeReached);
    assert_eq!(small.joined(join_a).members.len(), 1);
}
