//! ListGroups, DescribeGroups, DeleteGroups, OffsetDelete, and the offsets of a deleted topic.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidemark_types::ErrorCode;

use crate::group::{Group, GroupState};
use crate::groups::Groups;
use crate::record::{GroupRecord, OffsetKey};
use crate::subscription;

/// `protocol_type` of consumers.
const CONSUMER: &str = "consumer";

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

    /// Decides the deletion of single offsets: a code for each of `partitions`, and the tombstones of
    /// those that have an offset, committed or pending, as one batch.
    ///
    /// Errors of the request: INVALID_GROUP_ID; GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP while the group
    /// has members that are no consumers (of Kafka Connect, say: what they read is not known). Of a
    /// partition: GROUP_SUBSCRIBED_TO_TOPIC while a member reads its topic.
    pub fn decide_delete_offsets(
        &self,
        group_id: &str,
        partitions: &[(String, i32)],
    ) -> Result<(Vec<ErrorCode>, Vec<GroupRecord>), ErrorCode> {
        if group_id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        let is_empty = match self.state_of(group_id) {
            GroupState::Dead => return Err(ErrorCode::GroupIdNotFound),
            state => state == GroupState::Empty,
        };
        if !is_empty && self.protocol_type_of(group_id) != CONSUMER {
            return Err(ErrorCode::NonEmptyGroup);
        }
        let group = self.live.get(group_id);
        let offsets = self.offset_keys(group_id);
        let mut deleted = BTreeSet::new();
        let codes = partitions
            .iter()
            .map(|(topic, partition)| {
                if group.is_some_and(|group| group.is_subscribed_to(topic)) {
                    return ErrorCode::GroupSubscribedToTopic;
                }
                let key = OffsetKey {
                    group_id: group_id.to_owned(),
                    topic: topic.clone(),
                    partition: *partition,
                };
                if offsets.contains(&key) {
                    deleted.insert(key);
                }
                ErrorCode::None
            })
            .collect();
        let tombstone = |key| GroupRecord::Offset { key, value: None };
        Ok((codes, deleted.into_iter().map(tombstone).collect()))
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
    /// Whether a consumer of this group reads the topic. As long as what they read is not known,
    /// because no protocol was chosen or their metadata cannot be read, it may be any.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        if self.members.is_empty() || self.protocol_type.as_deref() != Some(CONSUMER) {
            return false;
        }
        let Some(protocol) = &self.protocol_name else {
            return true;
        };
        self.members.values().any(|member| {
            let metadata = member.metadata(protocol);
            subscription::topics(&metadata).is_none_or(|topics| topics.contains(&topic))
        })
    }

    /// Whether all of its consumers say what they read.
    pub(crate) fn knows_its_topics(&self) -> bool {
        let Some(protocol) = &self.protocol_name else {
            return false;
        };
        let mut members = self.members.values();
        self.protocol_type.as_deref() == Some(CONSUMER)
            && members.all(|member| subscription::topics(&member.metadata(protocol)).is_some())
    }

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
