//! The soft state of one group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;

use crate::effect::GroupReplyToken;
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
    /// Metadata for a protocol; empty if the member does not support it.
    pub fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map_or_else(Bytes::new, |(_, metadata)| metadata.clone())
    }
}

impl Group {
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
                group
                    .static_members
                    .insert(instance_id.clone(), stored.member_id.clone());
            }
            group.members.insert(stored.member_id.clone(), member);
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
