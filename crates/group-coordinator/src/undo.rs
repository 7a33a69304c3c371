//! What is needed to take back records of `__consumer_offsets` that the journal has lost.

use tidemark_types::{ErrorCode, MonoTime, ProducerId};

use crate::durable::{CommittedOffset, OffsetsPartition, StoredMetadata};
use crate::effect::{Effect, GroupReply, JoinReply, SyncReply};
use crate::groups::Groups;
use crate::record::{GroupRecord, OffsetKey};

/// One value as it was.
#[derive(Clone, Debug)]
enum Before {
    Committed(OffsetKey, Option<CommittedOffset>),
    Pending(ProducerId, OffsetKey, Option<CommittedOffset>),
    Metadata(String, Option<StoredMetadata>),
}

/// What one record, or one marker, of a partition touches, as it is before.
#[derive(Clone, Debug, Default)]
pub struct GroupUndo(Vec<Before>);

impl GroupUndo {
    /// The groups that it is about.
    pub fn group_ids(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|before| match before {
            Before::Committed(key, _) | Before::Pending(_, key, _) => key.group_id.clone(),
            Before::Metadata(group_id, _) => group_id.clone(),
        })
    }
}

impl Groups {
    /// What [`Groups::apply`] of this record will change.
    pub fn before(
        &self,
        partition: i32,
        record: &GroupRecord,
        producer: Option<ProducerId>,
    ) -> GroupUndo {
        let none = OffsetsPartition::default();
        let state = self.durable.get(&partition).unwrap_or(&none);
        let mut touched = Vec::new();
        match record {
            GroupRecord::Offset {
                key,
                value: Some(_),
            } => touched.push(match producer {
                None => state.committed(key),
                Some(producer) => state.pending_of(producer, key),
            }),
            GroupRecord::Offset { key, value: None } => {
                touched.push(state.committed(key));
                let group = state.groups.get(&key.group_id).into_iter();
                let producers = group.flat_map(|group| group.pending.keys());
                touched.extend(producers.map(|producer| state.pending_of(*producer, key)));
            }
            GroupRecord::Group { group_id, .. } => {
                let group = state.groups.get(group_id);
                let stored = group.and_then(|group| group.metadata.clone());
                touched.push(Before::Metadata(group_id.clone(), stored));
            }
        }
        GroupUndo(touched)
    }

    /// What [`Groups::apply_marker`] will change.
    pub fn before_marker(&self, partition: i32, producer: ProducerId) -> GroupUndo {
        let state = self.durable.get(&partition);
        let pending = state.and_then(|state| Some((state, state.pending.get(&producer)?)));
        let touched = pending.into_iter().flat_map(|(state, offsets)| {
            offsets.iter().flat_map(move |(key, offset)| {
                let pending = Before::Pending(producer, key.clone(), Some(offset.clone()));
                [state.committed(key), pending]
            })
        });
        GroupUndo(touched.collect())
    }

    /// Puts back what was, the latest first.
    pub fn take_back(&mut self, partition: i32, undo: GroupUndo) {
        let state = self.durable.entry(partition).or_default();
        for before in undo.0.into_iter().rev() {
            match before {
                Before::Committed(key, offset) => state.set_committed(&key, offset),
                Before::Pending(producer, key, offset) => state.set_pending(producer, &key, offset),
                Before::Metadata(group_id, stored) => state.set_metadata(&group_id, stored),
            }
        }
        if state.is_empty() {
            self.durable.remove(&partition);
        }
    }

    /// A group's records were taken back: its soft state is about what is not so. Whoever waits is
    /// answered with `error`, members of the stored generation get a fresh session, others join
    /// anew.
    pub fn reload(
        &mut self,
        group_id: &str,
        error: ErrorCode,
        now: MonoTime,
        wall_ms: i64,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(group) = self.live.get(group_id) {
            for (member_id, member) in &group.members {
                if let Some(token) = member.awaiting_join {
                    let reply = JoinReply::error(member_id, error);
                    effects.push(Effect::Reply(token, GroupReply::Join(reply)));
                }
                if let Some(token) = member.awaiting_sync {
                    let reply = SyncReply::error(error);
                    effects.push(Effect::Reply(token, GroupReply::Sync(reply)));
                }
            }
        }
        self.drop_live(group_id);
        self.restore_members(group_id, now, wall_ms);
        effects
    }
}

impl OffsetsPartition {
    fn committed(&self, key: &OffsetKey) -> Before {
        let group = self.groups.get(&key.group_id);
        let offset = group.and_then(|group| group.offset(&key.topic, key.partition));
        Before::Committed(key.clone(), offset.cloned())
    }

    fn pending_of(&self, producer: ProducerId, key: &OffsetKey) -> Before {
        let offset = self.pending.get(&producer).and_then(|all| all.get(key));
        Before::Pending(producer, key.clone(), offset.cloned())
    }
}
