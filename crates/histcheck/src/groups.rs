//! The records of `__consumer_offsets`: committed offsets and groups, in Kafka's formats.

use std::collections::BTreeMap;

use crate::bytes::Fields;

/// What an offset is committed for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OffsetKey {
    pub group: String,
    pub topic: String,
    pub partition: i32,
}

/// A committed offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommittedOffset {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
    pub commit_timestamp_ms: i64,
    /// Offset of its record in `__consumer_offsets`.
    pub at: i64,
}

/// A group's last stored generation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    pub protocol_type: String,
    pub generation: i32,
    pub protocol: Option<String>,
    pub leader: Option<String>,
}

/// A record: its key, and its value unless it is a tombstone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupRecord {
    Offset(OffsetKey, Option<CommittedOffset>),
    Group(String, Option<Group>),
}

impl GroupRecord {
    /// Errors say in a few words what is wrong.
    pub fn parse(key: &[u8], value: Option<&[u8]>, at: i64) -> Result<GroupRecord, String> {
        let mut k = Fields::new(key);
        let version = k.i16().ok_or("a key without a version")?;
        let bad = || format!("a record of key version {version} is not well formed");
        match version {
            0 | 1 => {
                let key = (|| {
                    Some(OffsetKey {
                        group: k.string()?,
                        topic: k.string()?,
                        partition: k.i32()?,
                    })
                })();
                let value = match value {
                    None => None,
                    Some(value) => Some(offset(value, at).ok_or_else(bad)?),
                };
                Ok(GroupRecord::Offset(key.ok_or_else(bad)?, value))
            }
            2 => {
                let group = k.string().ok_or_else(bad)?;
                let value = match value {
                    None => None,
                    Some(value) => Some(self::group(value).ok_or_else(bad)?),
                };
                Ok(GroupRecord::Group(group, value))
            }
            _ => Err(format!("a key of version {version}")),
        }
    }
}

fn offset(value: &[u8], at: i64) -> Option<CommittedOffset> {
    let mut f = Fields::new(value);
    let version = f.i16()?;
    Some(CommittedOffset {
        offset: f.i64()?,
        leader_epoch: if version >= 3 { f.i32()? } else { -1 },
        metadata: match version {
            0..=3 => f.string()?,
            4 => f.compact_string()??,
            _ => return None,
        },
        commit_timestamp_ms: f.i64()?,
        at,
    })
}

fn group(value: &[u8]) -> Option<Group> {
    let mut f = Fields::new(value);
    let flexible = match f.i16()? {
        0..=3 => false,
        4 => true,
        _ => return None,
    };
    let text = |f: &mut Fields<'_>| match flexible {
        true => f.compact_string(),
        false => f.nullable_string(),
    };
    Some(Group {
        protocol_type: text(&mut f)??,
        generation: f.i32()?,
        protocol: text(&mut f)?,
        leader: text(&mut f)?,
    })
}

/// A commit, or without a value the removal of one.
pub type Committed = (OffsetKey, Option<CommittedOffset>);

/// What all records of all partitions together say.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Groups {
    pub offsets: BTreeMap<OffsetKey, CommittedOffset>,
    pub groups: BTreeMap<String, Group>,
    /// Offsets of transactions that are still open: (partition, producer id).
    pub pending: BTreeMap<(i32, i64), Vec<Committed>>,
}

impl Groups {
    /// Applies a record of `partition`; `producer` is the transaction that it is part of.
    pub(crate) fn apply(&mut self, partition: i32, record: GroupRecord, producer: Option<i64>) {
        match (record, producer) {
            (GroupRecord::Offset(key, value), Some(producer)) => {
                let pending = self.pending.entry((partition, producer)).or_default();
                pending.push((key, value));
            }
            (GroupRecord::Offset(key, value), None) => self.commit(key, value),
            (GroupRecord::Group(id, Some(group)), _) => drop(self.groups.insert(id, group)),
            (GroupRecord::Group(id, None), _) => drop(self.groups.remove(&id)),
        }
    }

    fn commit(&mut self, key: OffsetKey, value: Option<CommittedOffset>) {
        match value {
            // A later plain commit stays when an earlier transactional one is committed after it.
            Some(value)
                if self
                    .offsets
                    .get(&key)
                    .is_none_or(|held| held.at <= value.at) =>
            {
                self.offsets.insert(key, value);
            }
            Some(_) => {}
            None => drop(self.offsets.remove(&key)),
        }
    }

    /// A marker ended a transaction in `partition`.
    pub(crate) fn end(&mut self, partition: i32, producer: i64, commit: bool) {
        let pending = self.pending.remove(&(partition, producer));
        if commit {
            for (key, value) in pending.unwrap_or_default() {
                self.commit(key, value);
            }
        }
    }
}
