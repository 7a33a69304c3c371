//! The soft state of one group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;

use tidemark_types::ErrorCode;

use crate::effect::{GroupReplyToken, JoinReply, JoinReplyMember};
use crate::record::{GroupMetadata, StoredMember};
use crate::timers::{TimerKey, TimerKind, Timers};

/// States of a classic group.
///
/// ```text
///            first member joins             all joined, or time is up
///   Empty ──────────────────► PreparingRebalance ──────────► CompletingRebalance
///     ▲                        ▲        │   ▲ ▲                  │        │
///     │                        │        │   │ └──── a change ────┘        │ leader's SyncGroup
///     │                        │        │   └──────── a change ──── Stable ◄┘
///     └────── nobody is left ──┴────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum GroupState {
    /// No members; perhaps offsets.
    #[default]
    Empty,
    /// Members are joining; those that have joined wait.
    PreparingRebalance,
    /// Members have the new generation and wait for the leader's assignment.
    CompletingRebalance,
    /// Members have their assignments.
    Stable,
    /// There is no such group.
    Dead,
}

impl GroupState {
    /// Kafka's name, as in ListGroups and DescribeGroups.
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
            GroupState::Dead => "Dead",
        }
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why the join phase of a group that is preparing a rebalance ends by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinPhase {
    /// The group was empty: it waits a fixed time, extended while new members come.
    Initial { delay_ms: i64, remaining_ms: i64 },
    /// It ends when all members are back, or after the longest rebalance timeout.
    Rejoin,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub state: GroupState,
    pub generation_id: i32,
    pub protocol_type: Option<String>,
    pub protocol_name: Option<String>,
    /// Member id of the leader; there is one whenever there are members.
    pub leader: Option<String>,
    pub current_state_timestamp_ms: i64,
    pub members: BTreeMap<String, Member>,
    /// Instance id to member id.
    pub static_members: BTreeMap<String, String>,
    /// Ids that were given out and not yet used to join (KIP-394).
    pub pending_join: BTreeSet<String>,
    /// Members that have joined this generation and not yet sent SyncGroup.
    pub pending_sync: BTreeSet<String>,
    /// Set while the state is PreparingRebalance.
    pub join_phase: Option<JoinPhase>,
    /// A member came since the initial wait was last extended.
    pub new_member_added: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// Name and metadata, the preferred one first; names are unique.
    pub protocols: Vec<(String, Bytes)>,
    pub assignment: Bytes,
    pub awaiting_join: Option<GroupReplyToken>,
    pub awaiting_sync: Option<GroupReplyToken>,
    /// It has not completed a join so far, so it does not know its id.
    pub is_new: bool,
}

impl Member {
    pub fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    /// The end of its session means nothing while it waits for us. A new member may be gone for
    /// good all the same: its client came back as another one.
    pub fn has_satisfied_heartbeat(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }

    /// Metadata for a protocol; empty if the member does not support it.
    pub fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map_or_else(Bytes::new, |(_, metadata)| metadata.clone())
    }
}

impl Group {
    pub fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    /// A rebalance can start now; there is none under way.
    pub fn can_rebalance(&self) -> bool {
        matches!(
            self.state,
            GroupState::Empty | GroupState::CompletingRebalance | GroupState::Stable
        )
    }

    pub fn awaiting_join_count(&self) -> usize {
        self.members
            .values()
            .filter(|m| m.awaiting_join.is_some())
            .count()
    }

    /// Every member waits in JoinGroup, and nobody has an id that was not used yet.
    pub fn all_joined(&self) -> bool {
        self.pending_join.is_empty() && self.members.values().all(|m| m.awaiting_join.is_some())
    }

    /// The longest of the members' rebalance timeouts.
    pub fn rebalance_timeout_ms(&self) -> i64 {
        let timeouts = self.members.values().map(|m| m.rebalance_timeout_ms);
        i64::from(timeouts.max().unwrap_or(0).max(0))
    }

    /// Whether a member with these protocols fits in: some protocol must be common to all.
    pub fn supports(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.state == GroupState::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|(name, _)| self.all_support(name))
    }

    fn all_support(&self, protocol: &str) -> bool {
        self.members.values().all(|m| m.supports(protocol))
    }

    /// The protocol with the most votes among those that all members support: each member votes
    /// for the one it prefers. The first by name if there are several. `None` without members.
    pub fn select_protocol(&self) -> Option<String> {
        let first = self.members.values().next()?;
        let candidates: BTreeSet<&str> = (first.protocols.iter())
            .map(|(name, _)| name.as_str())
            .filter(|name| self.all_support(name))
            .collect();
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let names = member.protocols.iter().map(|(name, _)| name.as_str());
            if let Some(vote) = names.into_iter().find(|name| candidates.contains(name)) {
                *votes.entry(vote).or_default() += 1;
            }
        }
        // `max_by_key` takes the last of equals.
        let (winner, _) = votes.iter().rev().max_by_key(|(_, count)| **count)?;
        Some((*winner).to_owned())
    }

    pub fn add_member(&mut self, member_id: &str, protocol_type: &str, member: Member) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.to_owned());
        }
        if let Some(instance_id) = &member.group_instance_id {
            self.static_members
                .insert(instance_id.clone(), member_id.to_owned());
        }
        if self.leader.is_none() {
            self.leader = Some(member_id.to_owned());
        }
        self.pending_join.remove(member_id);
        self.members.insert(member_id.to_owned(), member);
    }

    /// Removes a member or a pending one; the next member by id leads when it was the leader.
    pub fn remove_member(&mut self, member_id: &str) -> Option<Member> {
        let removed = self.members.remove(member_id);
        if let Some(instance_id) = removed.as_ref().and_then(|m| m.group_instance_id.as_ref()) {
            self.static_members.remove(instance_id);
        }
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending_join.remove(member_id);
        self.pending_sync.remove(member_id);
        removed
    }

    /// Gives a static member a new member id. Its assignment stays, its parked requests do not.
    pub fn rename_static_member(&mut self, instance_id: &str, old_id: &str, new_id: &str) {
        let Some(mut member) = self.members.remove(old_id) else {
            return;
        };
        member.awaiting_join = None;
        member.awaiting_sync = None;
        member.is_new = false;
        self.members.insert(new_id.to_owned(), member);
        self.static_members
            .insert(instance_id.to_owned(), new_id.to_owned());
        if self.is_leader(old_id) {
            self.leader = Some(new_id.to_owned());
        }
        if self.pending_sync.remove(old_id) {
            self.pending_sync.insert(new_id.to_owned());
        }
    }

    /// Keeps the leader if it has joined, else takes the first member that has. False when nobody
    /// has joined.
    pub fn elect_joined_leader(&mut self) -> bool {
        let has_joined = |m: &Member| m.awaiting_join.is_some();
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id));
        if leader.is_some_and(has_joined) {
            return true;
        }
        match self.members.iter().find(|(_, m)| has_joined(m)) {
            Some((member_id, _)) => {
                self.leader = Some(member_id.clone());
                true
            }
            None => false,
        }
    }

    /// The members as the leader needs them for an assignment.
    pub fn join_reply_members(&self) -> Vec<JoinReplyMember> {
        let protocol = self.protocol_name.as_deref().unwrap_or_default();
        self.members
            .iter()
            .map(|(member_id, member)| JoinReplyMember {
                member_id: member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                metadata: member.metadata(protocol),
            })
            .collect()
    }

    /// The answer to a JoinGroup for the generation there is.
    pub fn join_reply(&self, member_id: &str) -> JoinReply {
        JoinReply {
            error: ErrorCode::None,
            generation_id: self.generation_id,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }

    /// UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or none.
    pub fn validate_member(&self, member_id: &str, group_instance_id: Option<&str>) -> ErrorCode {
        if let Some(instance_id) = group_instance_id {
            match self.static_members.get(instance_id) {
                None => return ErrorCode::UnknownMemberId,
                Some(current) if current != member_id => return ErrorCode::FencedInstanceId,
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) {
            ErrorCode::None
        } else {
            ErrorCode::UnknownMemberId
        }
    }

    /// The group as its last stored generation left it.
    pub fn from_stored(stored: &GroupMetadata) -> Group {
        let protocol = stored.protocol.clone().unwrap_or_default();
        let mut group = Group {
            state: if stored.members.is_empty() {
                GroupState::Empty
            } else {
                GroupState::Stable
            },
            generation_id: stored.generation,
            protocol_type: Some(stored.protocol_type.clone()).filter(|t| !t.is_empty()),
            protocol_name: stored.protocol.clone(),
            leader: stored.leader.clone(),
            current_state_timestamp_ms: stored.current_state_timestamp_ms,
            ..Group::default()
        };
        for stored in &stored.members {
            let member = Member {
                group_instance_id: stored.group_instance_id.clone(),
                client_id: stored.client_id.clone(),
                client_host: stored.client_host.clone(),
                rebalance_timeout_ms: stored.rebalance_timeout_ms,
                session_timeout_ms: stored.session_timeout_ms,
                protocols: vec![(protocol.clone(), stored.subscription.clone())],
                assignment: stored.assignment.clone(),
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
            };
            if let Some(instance_id) = &member.group_instance_id {
                let taken = group
                    .static_members
                    .insert(instance_id.clone(), stored.member_id.clone());
                // We never store an instance id twice; a record from elsewhere might.
                if let Some(former) = taken {
                    group.members.remove(&former);
                }
            }
            group.members.insert(stored.member_id.clone(), member);
        }
        let leader = group.leader.as_ref();
        if !leader.is_some_and(|id| group.members.contains_key(id)) {
            group.leader = group.members.keys().next().cloned();
        }
        group
    }

    /// The record of the group as it is, members with their assignments.
    pub fn to_stored(&self) -> GroupMetadata {
        let protocol = self.protocol_name.clone();
        let members = self.members.iter().map(|(member_id, member)| StoredMember {
            member_id: member_id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            subscription: member.metadata(protocol.as_deref().unwrap_or_default()),
            assignment: member.assignment.clone(),
        });
        GroupMetadata {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation_id,
            protocol: protocol.clone(),
            leader: self.leader.clone(),
            current_state_timestamp_ms: self.current_state_timestamp_ms,
            members: members.collect(),
        }
    }

    pub fn cancel_timers(&self, group_id: &str, timers: &mut Timers) {
        let sessions = self.members.keys().chain(&self.pending_join);
        let kinds = sessions
            .map(|member_id| TimerKind::Session(member_id.clone()))
            .chain([TimerKind::Join, TimerKind::Sync]);
        for kind in kinds {
            timers.cancel(&TimerKey {
                group_id: group_id.to_owned(),
                kind,
            });
        }
    }
}
