//! ListGroups, DescribeGroups, DeleteGroups, and the offsets of a deleted topic.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidemark_types::ErrorCode;

use crate::group::{Group, GroupState};
use crate::groups::Groups;
use crate::record::{GroupRecord, OffsetKey};

/// A line of ListGroups. The group type is `classic`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    pub group_id: String,
    /// Empty: offsets only, no members so far.
    pub protocol_type: String,
    pub state: GroupState,
}

/// DescribeGroups' answer for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGroup {
    pub group_id: String,
    /// Dead: there is no such group (DescribeGroups v6 and later: GROUP_ID_NOT_FOUND).
    pub state: GroupState,
    pub protocol_type: String,
    /// The protocol that was chosen; empty unless the group is stable.
    pub protocol_data: String,
    /// Ordered by member id.
    pub members: Vec<DescribedMember>,
}

/// A member, as DescribeGroups shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    /// Empty unless the group is stable.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

impl Groups {
    /// Every group, also those that only have offsets, ordered by id.
    pub fn list(&self) -> Vec<ListedGroup> {
        let durable = self.durable.values().flat_map(|state| state.groups.keys());
        let ids: BTreeSet<&String> = durable.chain(self.live.keys()).collect();
        ids.into_iter()
            .map(|group_id| ListedGroup {
                group_id: group_id.clone(),
                protocol_type: self.protocol_type_of(group_id),
                state: self.state_of(group_id),
            })
            .collect()
    }

    pub fn describe(&self, group_id: &str) -> DescribedGroup {
        let live = self.live.get(group_id);
        DescribedGroup {
            group_id: group_id.to_owned(),
            state: self.state_of(group_id),
            protocol_type: self.protocol_type_of(group_id),
            protocol_data: live
                .and_then(Group::stable_protocol)
                .unwrap_or_default()
                .to_owned(),
            members: live.map(Group::describe_members).unwrap_or_default(),
        }
    }

    /// The generation of a group, as its members know it; `None` for a group that never had any.
    pub fn generation(&self, group_id: &str) -> Option<i32> {
        match self.live.get(group_id) {
            Some(group) => Some(group.generation_id),
            None => {
                let metadata = self.durable_group(group_id)?.metadata.as_ref()?;
                Some(metadata.value.generation)
            }
        }
    }

    /// Member id of a group's leader.
    pub fn leader(&self, group_id: &str) -> Option<&str> {
        self.live.get(group_id)?.leader.as_deref()
    }

    /// Decides the deletion of a group: tombstones for its offsets, pending ones too, and for
    /// itself. They are one batch of its partition of `__consumer_offsets`.
    ///
    /// Errors: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP while it has members.
    pub fn decide_delete(&self, group_id: &str) -> Result<Vec<GroupRecord>, ErrorCode> {
        match self.state_of(group_id) {
            GroupState::Dead => return Err(ErrorCode::GroupIdNotFound),
            GroupState::Empty => {}
            _ => return Err(ErrorCode::NonEmptyGroup),
        }
        let mut records: Vec<GroupRecord> = self
            .offset_keys(group_id)
            .into_iter()
            .map(|key| GroupRecord::Offset { key, value: None })
            .collect();
        records.push(GroupRecord::Group {
            group_id: group_id.to_owned(),
            value: None,
        });
        Ok(records)
    }

    /// Tombstones for every offset, pending or committed, in a topic that is being deleted, by
    /// partition of `__consumer_offsets`. Otherwise a topic of the same name would inherit them.
    pub fn records_for_deleted_topic(&self, topic: &str) -> BTreeMap<i32, Vec<GroupRecord>> {
        let mut records: BTreeMap<i32, Vec<GroupRecord>> = BTreeMap::new();
        for (&partition, state) in &self.durable {
            let committed = state.groups.iter().flat_map(|(group_id, group)| {
                let partitions = group.offsets.get(topic).into_iter().flat_map(|p| p.keys());
                partitions.map(move |&p| OffsetKey {
                    group_id: group_id.clone(),
                    topic: topic.to_owned(),
                    partition: p,
                })
            });
            let pending = (state.pending.values())
                .flat_map(|offsets| offsets.keys())
                .filter(|key| key.topic == topic)
                .cloned();
            let keys: BTreeSet<OffsetKey> = committed.chain(pending).collect();
            if !keys.is_empty() {
                let tombstone = |key| GroupRecord::Offset { key, value: None };
                records.insert(partition, keys.into_iter().map(tombstone).collect());
            }
        }
        records
    }

    fn protocol_type_of(&self, group_id: &str) -> String {
        if let Some(group) = self.live.get(group_id) {
            return group.protocol_type.clone().unwrap_or_default();
        }
        self.durable_group(group_id)
            .and_then(|group| group.metadata.as_ref())
            .map(|metadata| metadata.value.protocol_type.clone())
            .unwrap_or_default()
    }

    fn offset_keys(&self, group_id: &str) -> BTreeSet<OffsetKey> {
        let Some(state) = self.durable_partition(group_id) else {
            return BTreeSet::new();
        };
        let committed = state.groups.get(group_id).into_iter().flat_map(|group| {
            group.offsets.iter().flat_map(|(topic, partitions)| {
                partitions.keys().map(|&partition| OffsetKey {
                    group_id: group_id.to_owned(),
                    topic: topic.clone(),
                    partition,
                })
            })
        });
        committed
            .chain(state.pending_keys(group_id).cloned())
            .collect()
    }
}

impl Group {
    fn stable_protocol(&self) -> Option<&str> {
        match self.state {
            GroupState::Stable => self.protocol_name.as_deref(),
            _ => None,
        }
    }

    fn describe_members(&self) -> Vec<DescribedMember> {
        let protocol = self.stable_protocol();
        self.members
            .iter()
            .map(|(member_id, member)| DescribedMember {
                member_id: member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                metadata: protocol.map_or_else(Bytes::new, |name| member.metadata(name)),
                assignment: member.assignment.clone(),
            })
            .collect()
    }
}
