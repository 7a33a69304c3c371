//! `offsets.retention.minutes` (KIP-211): which offsets and groups are over.
//!
//! Offsets of a group without members expire together, so long after the group became empty. Those
//! of a simple consumer, which has no group protocol, expire each so long after its commit; so do
//! those of a stable group of consumers in topics that none of them subscribes to any more. A group
//! that has lost its last offset and has no members goes with it. Offsets that wait for a marker hold
//! their partition's committed one, and the group.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::durable::{DurableGroup, OffsetsPartition};
use crate::group::{Group, GroupState};
use crate::groups::Groups;
use crate::record::{GroupRecord, OffsetAndMetadata, OffsetKey};

/// Where the look at all offsets goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetsCursor {
    partition: i32,
    group_id: String,
    /// The offset that was looked at last, by topic and partition; `None`: the group is new.
    after: Option<(String, i32)>,
}

/// What one look has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredOffsets {
    /// Tombstones for one batch of each partition of `__consumer_offsets`.
    pub records: Vec<(i32, Vec<GroupRecord>)>,
    /// Where to look next, once the records are applied; `None`: that was all.
    pub next: Option<OffsetsCursor>,
}

/// From when a group's offsets are counted.
enum Since {
    /// One moment for all of them.
    Empty(i64),
    /// Each from its own commit.
    Commit,
}

impl Since {
    fn is_expired(&self, offset: &OffsetAndMetadata, now_wall_ms: i64, retention_ms: i64) -> bool {
        if offset.expire_timestamp_ms >= 0 {
            return now_wall_ms >= offset.expire_timestamp_ms;
        }
        let since_ms = match self {
            Since::Empty(since_ms) => *since_ms,
            Since::Commit => offset.commit_timestamp_ms,
        };
        now_wall_ms.saturating_sub(since_ms) >= retention_ms
    }
}

/// What is left of one look.
struct Look<'a> {
    now_wall_ms: i64,
    retention_ms: i64,
    looks: usize,
    bytes: usize,
    records: &'a mut Vec<GroupRecord>,
}

impl Look<'_> {
    /// False when there is no room for the record; it is for the next look then.
    fn add(&mut self, record: GroupRecord) -> bool {
        let size_bytes = record.size_bytes();
        let fits = size_bytes <= self.bytes;
        if fits {
            self.bytes -= size_bytes;
            self.records.push(record);
        }
        fits
    }

    fn take(&mut self) -> bool {
        let left = self.looks > 0;
        self.looks = self.looks.saturating_sub(1);
        left
    }
}

impl Groups {
    /// Looks at up to `looks` offsets and groups from `from` on and returns tombstones for those that
    /// have expired, of at most `max_bytes`. A tombstone is below 100 KiB, and `max_bytes` above it.
    pub fn expire_offsets(
        &self,
        from: &OffsetsCursor,
        looks: usize,
        max_bytes: usize,
        now_wall_ms: i64,
        retention_ms: i64,
    ) -> ExpiredOffsets {
        let mut records: BTreeMap<i32, Vec<GroupRecord>> = BTreeMap::new();
        let (mut looks, mut bytes) = (looks, max_bytes);
        let mut next = None;
        'partitions: for (&partition, state) in self.durable.range(from.partition..) {
            let first = match partition == from.partition {
                true => Bound::Included(from.group_id.as_str()),
                false => Bound::Unbounded,
            };
            for (group_id, group) in state.groups.range::<str, _>((first, Bound::Unbounded)) {
                let here = partition == from.partition && *group_id == from.group_id;
                let mut look = Look {
                    now_wall_ms,
                    retention_ms,
                    looks,
                    bytes,
                    records: records.entry(partition).or_default(),
                };
                let after = from.after.as_ref().filter(|_| here);
                let stopped = self.expire_group(state, group_id, group, after, &mut look);
                (looks, bytes) = (look.looks, look.bytes);
                if let Some(after) = stopped {
                    next = Some(OffsetsCursor {
                        partition,
                        group_id: group_id.clone(),
                        after,
                    });
                    break 'partitions;
                }
            }
        }
        records.retain(|_, records| !records.is_empty());
        ExpiredOffsets {
            records: records.into_iter().collect(),
            next,
        }
    }

    /// Returns after which offset the look ended, if it did within the group.
    #[allow(clippy::option_option)]
    fn expire_group(
        &self,
        state: &OffsetsPartition,
        group_id: &str,
        group: &DurableGroup,
        after: Option<&(String, i32)>,
        look: &mut Look<'_>,
    ) -> Option<Option<(String, i32)>> {
        if !look.take() {
            return Some(after.cloned());
        }
        let live = self.live.get(group_id);
        let since = since(live, group)?;
        let mut last = after.cloned();
        let mut kept = after.is_some();
        let first = after.map_or("", |(topic, _)| topic.as_str());
        let first = (Bound::Included(first), Bound::Unbounded);
        for (topic, partitions) in group.offsets.range::<str, _>(first) {
            if live.is_some_and(|live| live.is_subscribed_to(topic)) {
                kept = true;
                if !look.take() {
                    return Some(last);
                }
                last = Some((topic.clone(), i32::MAX));
                continue;
            }
            let first = match after {
                Some((after, partition)) if after == topic => Bound::Excluded(*partition),
                _ => Bound::Unbounded,
            };
            for (&partition, offset) in partitions.range((first, Bound::Unbounded)) {
                if !look.take() {
                    return Some(last);
                }
                let expired = since.is_expired(&offset.value, look.now_wall_ms, look.retention_ms);
                if expired && !state.has_pending(group_id, topic, partition) {
                    let key = OffsetKey {
                        group_id: group_id.to_owned(),
                        topic: topic.clone(),
                        partition,
                    };
                    if !look.add(GroupRecord::Offset { key, value: None }) {
                        return Some(last);
                    }
                } else {
                    kept = true;
                }
                last = Some((topic.clone(), partition));
            }
        }
        // A look that began within the group does not know what it left before: the group goes with
        // a later one, which finds no offset at all.
        let is_over = !kept && group.pending.is_empty() && group.metadata.is_some();
        let is_empty = live.is_none() && self.state_of(group_id) == GroupState::Empty;
        if is_over && is_empty {
            let tombstone = GroupRecord::Group {
                group_id: group_id.to_owned(),
                value: None,
            };
            if !look.add(tombstone) {
                return Some(last);
            }
        }
        None
    }
}

/// From when a group's offsets are counted; `None`: none of them expires now.
fn since(live: Option<&Group>, group: &DurableGroup) -> Option<Since> {
    match live {
        // In the group's metadata as in Kafka: a group of consumers whose subscriptions are known.
        Some(live) if live.state != GroupState::Empty => {
            let knows = live.state == GroupState::Stable && live.knows_its_topics();
            knows.then_some(Since::Commit)
        }
        Some(live) if live.protocol_type.is_some() => {
            Some(Since::of_empty(live.current_state_timestamp_ms))
        }
        Some(_) => Some(Since::Commit),
        None => match group.metadata.as_ref().map(|m| &m.value) {
            Some(stored) if !stored.protocol_type.is_empty() => {
                Some(Since::of_empty(stored.current_state_timestamp_ms))
            }
            _ => Some(Since::Commit),
        },
    }
}

impl Since {
    /// Records of old have no time of the group's last change.
    fn of_empty(since_ms: i64) -> Since {
        match since_ms {
            0.. => Since::Empty(since_ms),
            _ => Since::Commit,
        }
    }
}
