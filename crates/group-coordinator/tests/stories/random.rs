//! Random sequences of requests, time, transactions, deletions and restarts. The harness checks
//! after every step; here the moves are made, with ids that mostly exist.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use tidemark_group_coordinator::{
    GroupConfig, GroupState, Groups, HeartbeatRequest, JoinRequest, LeaveMember, LeaveRequest,
    OffsetCommitRequest, SyncRequest, TxnOffsetCommitRequest,
};
use tidemark_types::ErrorCode;

use crate::coordinator::{Coordinator, join_of, offset};

const GROUPS: [&str; 2] = ["g", "h"];

/// Which member: one of the group, a pending or former one, or nobody's.
#[derive(Clone, Debug)]
struct Who(usize);

#[derive(Clone, Debug)]
enum Move {
    Join {
        group: usize,
        who: Who,
        is_new: bool,
        instance: Option<u8>,
        old_client: bool,
        skips: bool,
        protocols: u8,
        short: bool,
    },
    Sync {
        group: usize,
        who: Who,
        generation: i32,
        leads: bool,
    },
    Heartbeat {
        group: usize,
        who: Who,
        generation: i32,
    },
    Leave {
        group: usize,
        who: Vec<Who>,
        instance: Option<u8>,
    },
    Commit {
        group: usize,
        who: Who,
        generation: i32,
        simple: bool,
        partition: i32,
    },
    TxnCommit {
        group: usize,
        who: Who,
        generation: i32,
        simple: bool,
        partition: i32,
        producer: i64,
    },
    End {
        producer: i64,
        commit: bool,
    },
    Wait(u64),
    Delete(usize),
    DeleteTopic(u8),
    Restart,
}

fn a_move() -> impl Strategy<Value = Move> {
    let group = 0..GROUPS.len();
    let who = || (0usize..12).prop_map(Who);
    let generation = || prop_oneof![8 => Just(0), 1 => -1i32..=1];
    let instance = || proptest::option::weighted(0.3, 0u8..3);
    prop_oneof![
        8 => (group.clone(), who(), any::<bool>(), instance(), any::<bool>(), any::<bool>(), 0u8..4, any::<bool>())
            .prop_map(|(group, who, is_new, instance, old_client, skips, protocols, short)| Move::Join {
                group, who, is_new, instance, old_client, skips, protocols, short
            }),
        6 => (group.clone(), who(), generation(), any::<bool>())
            .prop_map(|(group, who, generation, leads)| Move::Sync { group, who, generation, leads }),
        3 => (group.clone(), who(), generation())
            .prop_map(|(group, who, generation)| Move::Heartbeat { group, who, generation }),
        2 => (group.clone(), proptest::collection::vec(who(), 1..3), instance())
            .prop_map(|(group, who, instance)| Move::Leave { group, who, instance }),
        2 => (group.clone(), who(), generation(), any::<bool>(), 0i32..3)
            .prop_map(|(group, who, generation, simple, partition)| Move::Commit {
                group, who, generation, simple, partition
            }),
        3 => (group.clone(), who(), generation(), any::<bool>(), 0i32..3, 0i64..3)
            .prop_map(|(group, who, generation, simple, partition, producer)| Move::TxnCommit {
                group, who, generation, simple, partition, producer
            }),
        2 => (0i64..3, any::<bool>()).prop_map(|(producer, commit)| Move::End { producer, commit }),
        6 => prop_oneof![0u64..500, 2_000u64..12_000, 50_000u64..400_000].prop_map(Move::Wait),
        1 => group.prop_map(Move::Delete),
        1 => (0u8..2).prop_map(Move::DeleteTopic),
        1 => Just(Move::Restart),
    ]
}

/// The coordinator and what clients of each group remember.
struct World {
    t: Coordinator,
    ids: [Vec<String>; GROUPS.len()],
    /// States that were seen, so that the test cannot pass without reaching them.
    seen: std::collections::BTreeSet<GroupState>,
}

impl World {
    fn new(config: GroupConfig) -> World {
        World {
            t: Coordinator::with(config),
            ids: Default::default(),
            seen: Default::default(),
        }
    }

    fn member(&self, group: usize, who: &Who) -> String {
        let current = self.t.groups.describe(GROUPS[group]).members;
        if who.0 < 8 && !current.is_empty() {
            return current[who.0 % current.len()].member_id.clone();
        }
        let ids = &self.ids[group];
        match ids.len().checked_sub(1 + who.0 % 4) {
            Some(i) => ids[i].clone(),
            None => "nobody".to_owned(),
        }
    }

    fn instance_of(&self, group: usize, member_id: &str) -> Option<String> {
        let members = self.t.groups.describe(GROUPS[group]).members;
        let member = members.into_iter().find(|m| m.member_id == member_id)?;
        member.group_instance_id
    }

    /// The group's generation, as its newest members know it, `off` by a little.
    fn generation(&self, group: usize, off: i32) -> i32 {
        self.t.groups.generation(GROUPS[group]).unwrap_or(0) + off
    }

    fn make(&mut self, a_move: &Move) {
        match a_move {
            Move::Join {
                group,
                who,
                is_new,
                instance,
                old_client,
                skips,
                protocols,
                short,
            } => {
                let member_id = if *is_new {
                    String::new()
                } else {
                    self.member(*group, who)
                };
                let group_instance_id = match instance {
                    Some(i) => Some(format!("i{i}")),
                    None => self.instance_of(*group, &member_id),
                };
                let names: &[&str] = match protocols {
                    0 => &["range"],
                    1 => &["range", "sticky"],
                    2 => &["sticky", "range", "sticky"],
                    _ => &["sticky"],
                };
                let token = self.t.join(JoinRequest {
                    group_id: GROUPS[*group].to_owned(),
                    group_instance_id,
                    rebalance_timeout_ms: if *short { 0 } else { 20_000 },
                    require_known_member_id: !old_client,
                    supports_skip_assignment: *skips,
                    protocols: names
                        .iter()
                        .map(|n| ((*n).to_owned(), Bytes::from_static(b"m")))
                        .collect(),
                    ..join_of("c", &member_id)
                });
                if !self.t.is_parked(token) {
                    let id = self.t.joined(token).member_id;
                    if !id.is_empty() {
                        self.ids[*group].push(id);
                    }
                }
            }
            Move::Sync {
                group,
                who,
                generation,
                leads,
            } => {
                let members = self.t.groups.describe(GROUPS[*group]).members;
                let leader = self.t.groups.leader(GROUPS[*group]).map(str::to_owned);
                let member_id = match leader {
                    Some(leader) if *leads => leader,
                    _ => self.member(*group, who),
                };
                let request = SyncRequest {
                    group_id: GROUPS[*group].to_owned(),
                    generation_id: self.generation(*group, *generation),
                    group_instance_id: self.instance_of(*group, &member_id),
                    member_id,
                    protocol_type: None,
                    protocol_name: None,
                    assignments: members
                        .into_iter()
                        .map(|m| (m.member_id, Bytes::from_static(b"a")))
                        .collect(),
                };
                self.t.sync_request(request);
            }
            Move::Heartbeat {
                group,
                who,
                generation,
            } => {
                let member_id = self.member(*group, who);
                let request = HeartbeatRequest {
                    group_id: GROUPS[*group].to_owned(),
                    generation_id: self.generation(*group, *generation),
                    group_instance_id: self.instance_of(*group, &member_id),
                    member_id,
                };
                self.t.heartbeat_request(request);
            }
            Move::Leave {
                group,
                who,
                instance,
            } => {
                let mut members: Vec<LeaveMember> = who
                    .iter()
                    .map(|who| LeaveMember {
                        member_id: self.member(*group, who),
                        group_instance_id: None,
                        reason: None,
                    })
                    .collect();
                members.extend(instance.map(|i| LeaveMember {
                    member_id: String::new(),
                    group_instance_id: Some(format!("i{i}")),
                    reason: None,
                }));
                let asked = members.len();
                let reply = self.t.leave_request(LeaveRequest {
                    group_id: GROUPS[*group].to_owned(),
                    members,
                });
                assert_eq!(reply.members.len(), asked);
            }
            Move::Commit {
                group,
                who,
                generation,
                simple,
                partition,
            } => {
                let (member_id, generation_id) = self.committer(*group, who, *generation, *simple);
                let at = self.t.now_ms as i64;
                self.t.commit_request(OffsetCommitRequest {
                    group_id: GROUPS[*group].to_owned(),
                    generation_id,
                    group_instance_id: None,
                    member_id,
                    offsets: vec![offset("t0", *partition, at), offset("t1", 0, at)],
                    retention_time_ms: -1,
                    reports_missing_group: *simple,
                });
            }
            Move::TxnCommit {
                group,
                who,
                generation,
                simple,
                partition,
                producer,
            } => {
                let (member_id, generation_id) = self.committer(*group, who, *generation, *simple);
                let at = self.t.now_ms as i64;
                self.t.txn_commit_request(
                    *producer,
                    TxnOffsetCommitRequest {
                        group_id: GROUPS[*group].to_owned(),
                        generation_id,
                        group_instance_id: None,
                        member_id,
                        offsets: vec![offset("t0", *partition, at), offset("t1", 0, at)],
                    },
                );
            }
            Move::End { producer, commit } => self.t.end_transaction(*producer, *commit),
            Move::Wait(ms) => self.t.advance(*ms),
            Move::Delete(group) => {
                let state = self.t.groups.describe(GROUPS[*group]).state;
                let expected = match state {
                    GroupState::Dead => ErrorCode::GroupIdNotFound,
                    GroupState::Empty => ErrorCode::None,
                    _ => ErrorCode::NonEmptyGroup,
                };
                assert_eq!(self.t.delete_group(GROUPS[*group]), expected);
            }
            Move::DeleteTopic(i) => {
                let topic = format!("t{i}");
                self.t.delete_topic(&topic);
                for group in GROUPS {
                    let left = self.t.groups.offset_fetch(group, None, false);
                    assert!(left.iter().all(|f| f.topic != topic));
                }
            }
            Move::Restart => self.t.restart(),
        }
        for group in GROUPS {
            self.seen.insert(self.t.groups.describe(group).state);
        }
        assert!(self.t.rebuilt_from_checkpoint().durable_eq(&self.t.groups));
    }

    fn committer(&self, group: usize, who: &Who, off: i32, simple: bool) -> (String, i32) {
        if simple {
            (String::new(), -1)
        } else {
            (self.member(group, who), self.generation(group, off))
        }
    }
}

fn config(max_size: usize, initial_rebalance_delay_ms: i32) -> GroupConfig {
    GroupConfig {
        max_size,
        initial_rebalance_delay_ms,
        ..GroupConfig::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_breaks(
        moves in proptest::collection::vec(a_move(), 1..120),
        max_size in prop_oneof![Just(2usize), Just(100)],
        delay_ms in prop_oneof![Just(0i32), Just(3_000)],
    ) {
        let mut world = World::new(config(max_size, delay_ms));
        for a_move in &moves {
            world.make(a_move);
        }
        // In the end everyone is silent: no deadline is left, nobody waits, all groups are empty.
        world.t.advance(10_000_000);
        prop_assert_eq!(world.t.groups.next_deadline(), None);
        prop_assert_eq!(world.t.groups.parked(), []);
        for listed in world.t.groups.list() {
            prop_assert_eq!(listed.state, GroupState::Empty);
        }
        world.t.restart();
    }
}

#[test]
fn random_moves_reach_every_state() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let moves = proptest::collection::vec(a_move(), 120);
        let moves = moves.new_tree(&mut runner).unwrap().current();
        let mut world = World::new(config(100, 3_000));
        moves.iter().for_each(|m| world.make(m));
        seen.extend(world.seen);
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[test]
fn the_same_moves_lead_to_the_same_state() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let moves = proptest::collection::vec(a_move(), 200);
    let moves = moves.new_tree(&mut runner).unwrap().current();
    let run = || -> (Groups, Vec<_>) {
        let mut world = World::new(config(100, 3_000));
        moves.iter().for_each(|m| world.make(m));
        let described = GROUPS.map(|g| world.t.groups.describe(g)).to_vec();
        (world.t.groups, described)
    };
    let ((one, described_one), (two, described_two)) = (run(), run());
    assert!(one.durable_eq(&two));
    assert_eq!(described_one, described_two);
    assert_eq!(one.next_deadline(), two.next_deadline());
}
