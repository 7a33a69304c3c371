//! What survives a restart: changed by records and markers only, the same way live and in replay.

use std::collections::BTreeMap;

use tidemark_types::ProducerId;

use crate::record::{GroupMetadata, GroupRecord, OffsetAndMetadata, OffsetKey};

/// A committed or pending offset and where its record stands in `__consumer_offsets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    pub value: OffsetAndMetadata,
    /// Offset of the record; of two commits the later record wins, whenever its marker comes.
    pub log_offset: i64,
}

/// Stored metadata of a group and where its record stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredMetadata {
    pub value: GroupMetadata,
    pub log_offset: i64,
}

/// Everything durable about one group but its pending offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DurableGroup {
    pub metadata: Option<StoredMetadata>,
    /// By topic, then partition. No topic is without partitions.
    pub offsets: BTreeMap<String, BTreeMap<i32, CommittedOffset>>,
    /// Open transactions with pending offsets of this group, by producer, and how many.
    pub pending: BTreeMap<ProducerId, usize>,
}

impl DurableGroup {
    fn is_empty(&self) -> bool {
        self.metadata.is_none() && self.offsets.is_empty() && self.pending.is_empty()
    }

    pub fn offset(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.offsets.get(topic)?.get(&partition)
    }

    fn put_offset(&mut self, topic: &str, partition: i32, offset: CommittedOffset) {
        match self.offsets.get_mut(topic) {
            Some(partitions) => {
                partitions.insert(partition, offset);
            }
            None => {
                let partitions = BTreeMap::from([(partition, offset)]);
                self.offsets.insert(topic.to_owned(), partitions);
            }
        }
    }

    fn remove_offset(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.offsets.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.offsets.remove(topic);
            }
        }
    }
}

/// One partition of `__consumer_offsets`: its groups and the offsets that wait for a marker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OffsetsPartition {
    /// A group is here as long as something durable of it is.
    pub groups: BTreeMap<String, DurableGroup>,
    /// Pending transactional offsets. No producer is without offsets.
    pub pending: BTreeMap<ProducerId, BTreeMap<OffsetKey, CommittedOffset>>,
}

impl OffsetsPartition {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.pending.is_empty()
    }

    pub fn apply(&mut self, record: &GroupRecord, log_offset: i64, producer: Option<ProducerId>) {
        match record {
            GroupRecord::Offset {
                key,
                value: Some(value),
            } => {
                let offset = CommittedOffset {
                    value: value.clone(),
                    log_offset,
                };
                match producer {
                    None => {
                        self.group_mut(&key.group_id)
                            .put_offset(&key.topic, key.partition, offset)
                    }
                    Some(producer) => self.put_pending(producer, key, offset),
                }
            }
            GroupRecord::Offset { key, value: None } => self.remove_offset(key),
            GroupRecord::Group {
                group_id,
                value: Some(value),
            } => {
                self.group_mut(group_id).metadata = Some(StoredMetadata {
                    value: value.clone(),
                    log_offset,
                });
            }
            GroupRecord::Group {
                group_id,
                value: None,
            } => {
                if let Some(group) = self.groups.get_mut(group_id) {
                    group.metadata = None;
                    self.drop_if_empty(group_id);
                }
            }
        }
    }

    /// The end of a transaction: its pending offsets become committed ones, unless a later record
    /// has committed the same partition meanwhile, or are dropped.
    pub fn apply_marker(&mut self, producer: ProducerId, commit: bool) {
        let Some(pending) = self.pending.remove(&producer) else {
            return;
        };
        for (key, offset) in pending {
            let group = self.group_mut(&key.group_id);
            group.pending.remove(&producer);
            let is_newer = group
                .offset(&key.topic, key.partition)
                .is_none_or(|committed| committed.log_offset < offset.log_offset);
            if commit && is_newer {
                group.put_offset(&key.topic, key.partition, offset);
            }
            self.drop_if_empty(&key.group_id);
        }
    }

    pub fn has_pending(&self, group_id: &str, topic: &str, partition: i32) -> bool {
        let Some(group) = self.groups.get(group_id).filter(|g| !g.pending.is_empty()) else {
            return false;
        };
        let key = OffsetKey {
            group_id: group_id.to_owned(),
            topic: topic.to_owned(),
            partition,
        };
        group
            .pending
            .keys()
            .any(|producer| self.pending[producer].contains_key(&key))
    }

    /// The keys of every pending offset of a group, ordered, without duplicates.
    pub fn pending_keys<'a>(&'a self, group_id: &'a str) -> impl Iterator<Item = &'a OffsetKey> {
        let producers = self
            .groups
            .get(group_id)
            .into_iter()
            .flat_map(|g| g.pending.keys());
        let mut keys: Vec<&OffsetKey> = producers
            .flat_map(|producer| self.pending[producer].keys())
            .filter(|key| key.group_id == group_id)
            .collect();
        keys.sort();
        keys.dedup();
        keys.into_iter()
    }

    /// Records that rebuild this partition through `apply`.
    pub fn records(&self) -> Vec<(GroupRecord, i64, Option<ProducerId>)> {
        let mut records = Vec::new();
        for (group_id, group) in &self.groups {
            if let Some(metadata) = &group.metadata {
                let record = GroupRecord::Group {
                    group_id: group_id.clone(),
                    value: Some(metadata.value.clone()),
                };
                records.push((record, metadata.log_offset, None));
            }
            for (topic, partitions) in &group.offsets {
                for (&partition, offset) in partitions {
                    let key = OffsetKey {
                        group_id: group_id.clone(),
                        topic: topic.clone(),
                        partition,
                    };
                    records.push(offset_record(key, offset, None));
                }
            }
        }
        for (&producer, offsets) in &self.pending {
            for (key, offset) in offsets {
                records.push(offset_record(key.clone(), offset, Some(producer)));
            }
        }
        records
    }

    /// Sets a committed offset, `None` for none, whatever it is now.
    pub fn set_committed(&mut self, key: &OffsetKey, offset: Option<CommittedOffset>) {
        let group = self.group_mut(&key.group_id);
        match offset {
            Some(offset) => group.put_offset(&key.topic, key.partition, offset),
            None => group.remove_offset(&key.topic, key.partition),
        }
        self.drop_if_empty(&key.group_id);
    }

    /// Sets a producer's pending offset, `None` for none, whatever it is now.
    pub fn set_pending(
        &mut self,
        producer: ProducerId,
        key: &OffsetKey,
        offset: Option<CommittedOffset>,
    ) {
        match offset {
            Some(offset) => self.put_pending(producer, key, offset),
            None => {
                if let Some(offsets) = self.pending.get_mut(&producer)
                    && offsets.remove(key).is_some()
                {
                    if offsets.is_empty() {
                        self.pending.remove(&producer);
                    }
                    let counts = &mut self.group_mut(&key.group_id).pending;
                    if let Some(count) = counts.get_mut(&producer) {
                        *count -= 1;
                    }
                    counts.retain(|_, count| *count > 0);
                }
                self.drop_if_empty(&key.group_id);
            }
        }
    }

    /// Sets a group's stored metadata, `None` for none, whatever it is now.
    pub fn set_metadata(&mut self, group_id: &str, stored: Option<StoredMetadata>) {
        self.group_mut(group_id).metadata = stored;
        self.drop_if_empty(group_id);
    }

    fn group_mut(&mut self, group_id: &str) -> &mut DurableGroup {
        if !self.groups.contains_key(group_id) {
            self.groups
                .insert(group_id.to_owned(), DurableGroup::default());
        }
        self.groups
            .get_mut(group_id)
            .expect("inserted above if it was missing")
    }

    fn drop_if_empty(&mut self, group_id: &str) {
        if self.groups.get(group_id).is_some_and(|g| g.is_empty()) {
            self.groups.remove(group_id);
        }
    }

    fn put_pending(&mut self, producer: ProducerId, key: &OffsetKey, offset: CommittedOffset) {
        let offsets = self.pending.entry(producer).or_default();
        if offsets.insert(key.clone(), offset).is_none() {
            *self
                .group_mut(&key.group_id)
                .pending
                .entry(producer)
                .or_default() += 1;
        }
    }

    /// A tombstone also takes what is pending, as in Kafka: the group or the topic is gone.
    fn remove_offset(&mut self, key: &OffsetKey) {
        let Some(group) = self.groups.get_mut(&key.group_id) else {
            return;
        };
        group.remove_offset(&key.topic, key.partition);
        let pending = &mut self.pending;
        group.pending.retain(|producer, count| {
            let Some(offsets) = pending.get_mut(producer) else {
                return false;
            };
            if offsets.remove(key).is_some() {
                *count -= 1;
            }
            if offsets.is_empty() {
                pending.remove(producer);
            }
            *count > 0
        });
        self.drop_if_empty(&key.group_id);
    }
}

fn offset_record(
    key: OffsetKey,
    offset: &CommittedOffset,
    producer: Option<ProducerId>,
) -> (GroupRecord, i64, Option<ProducerId>) {
    let record = GroupRecord::Offset {
        key,
        value: Some(offset.value.clone()),
    };
    (record, offset.log_offset, producer)
}
