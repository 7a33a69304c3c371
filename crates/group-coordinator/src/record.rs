//! The records of `__consumer_offsets`, in Kafka's own formats: OffsetCommitKey v1,
//! OffsetCommitValue v3, GroupMetadataKey v2, GroupMetadataValue v3 are written; the older ones
//! and the flexible v4 are read too. A record without a value is a tombstone.

use std::fmt;

use bytes::Bytes;

use crate::codec::{
    Reader, put_bytes, put_i16, put_i32, put_i64, put_len, put_nullable_string, put_string,
};

const OFFSET_COMMIT_KEY_VERSION: i16 = 1;
const OFFSET_COMMIT_VALUE_VERSION: i16 = 3;
/// The only version that has an expiry of its own. It has no leader epoch, as the requests that
/// brought such an expiry had none.
const OFFSET_COMMIT_VALUE_EXPIRING_VERSION: i16 = 1;
const GROUP_METADATA_KEY_VERSION: i16 = 2;
const GROUP_METADATA_VALUE_VERSION: i16 = 3;
/// First version with compact lengths and tagged fields, of both values.
const FLEXIBLE_VALUE_VERSION: i16 = 4;

/// Bytes that a record of a v2 batch adds to its key and value, rounded up: lengths, deltas.
const RECORD_OVERHEAD_BYTES: usize = 24;

/// A record of `__consumer_offsets`. `None` as the value is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    Offset {
        key: OffsetKey,
        value: Option<OffsetAndMetadata>,
    },
    Group {
        group_id: String,
        value: Option<GroupMetadata>,
    },
}

/// Which offset: of a group, in a partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffsetKey {
    pub group_id: String,
    pub topic: String,
    pub partition: i32,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    /// The next offset to read.
    pub offset: i64,
    /// -1: the client gave none.
    pub leader_epoch: i32,
    pub metadata: String,
    /// Wall clock when the commit was decided.
    pub commit_timestamp_ms: i64,
    /// When it expires, wall clock, if the client asked for a time of its own (OffsetCommit v2 to
    /// v4); -1: by `offsets.retention.minutes`.
    pub expire_timestamp_ms: i64,
}

/// A generation of a group: stable, empty, without an assignment yet, or over since a member left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMetadata {
    /// Empty: a group that never had members.
    pub protocol_type: String,
    pub generation: i32,
    pub protocol: Option<String>,
    /// Member id of the leader. None with members: they are to join again.
    pub leader: Option<String>,
    /// Wall clock when the group became stable or empty, -1 if unknown.
    pub current_state_timestamp_ms: i64,
    /// Ordered by member id.
    pub members: Vec<StoredMember>,
}

impl GroupMetadata {
    /// This generation has no assignment yet, or a member of it has left: those that are stored are
    /// to join again. Told by the leader that it has not, so that the format stays Kafka's.
    pub(crate) fn is_to_rejoin(&self) -> bool {
        self.leader.is_none() && !self.members.is_empty()
    }
}

/// A member of a stored generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// The member's metadata for the group's protocol.
    pub subscription: Bytes,
    pub assignment: Bytes,
}

/// Why bytes are not a record of `__consumer_offsets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end too early.
    Short,
    /// A length or count that is negative or larger than what is left.
    Length,
    /// Null where the format has no null.
    Null,
    NotUtf8,
    /// Bytes after the end.
    Trailing(usize),
    /// A key of a version that is not of classic groups; KIP-848 groups begin at 3.
    KeyVersion(i16),
    ValueVersion(i16),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Short => f.write_str("the record ends too early"),
            DecodeError::Length => f.write_str("a length or count is out of range"),
            DecodeError::Null => f.write_str("null where the format has none"),
            DecodeError::NotUtf8 => f.write_str("a string is not UTF-8"),
            DecodeError::Trailing(n) => write!(f, "{n} bytes after the end of the record"),
            DecodeError::KeyVersion(v) => write!(f, "unknown key version {v}"),
            DecodeError::ValueVersion(v) => write!(f, "unknown value version {v}"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl GroupRecord {
    pub fn group_id(&self) -> &str {
        match self {
            GroupRecord::Offset { key, .. } => &key.group_id,
            GroupRecord::Group { group_id, .. } => group_id,
        }
    }

    /// The key's bytes.
    pub fn encode_key(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            GroupRecord::Offset { key, .. } => {
                put_i16(&mut out, OFFSET_COMMIT_KEY_VERSION);
                put_string(&mut out, &key.group_id);
                put_string(&mut out, &key.topic);
                put_i32(&mut out, key.partition);
            }
            GroupRecord::Group { group_id, .. } => {
                put_i16(&mut out, GROUP_METADATA_KEY_VERSION);
                put_string(&mut out, group_id);
            }
        }
        out
    }

    /// The value's bytes, `None` for a tombstone.
    pub fn encode_value(&self) -> Option<Vec<u8>> {
        match self {
            GroupRecord::Offset { value, .. } => value.as_ref().map(encode_offset),
            GroupRecord::Group { value, .. } => value.as_ref().map(encode_group),
        }
    }

    /// Reads a record; never panics, whatever the bytes.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<GroupRecord, DecodeError> {
        let mut reader = Reader::new(key);
        match reader.i16()? {
            0 | OFFSET_COMMIT_KEY_VERSION => {
                let key = OffsetKey {
                    group_id: reader.string()?,
                    topic: reader.string()?,
                    partition: reader.i32()?,
                };
                reader.end()?;
                let value = value.map(decode_offset).transpose()?;
                Ok(GroupRecord::Offset { key, value })
            }
            GROUP_METADATA_KEY_VERSION => {
                let group_id = reader.string()?;
                reader.end()?;
                let value = value.map(decode_group).transpose()?;
                Ok(GroupRecord::Group { group_id, value })
            }
            other => Err(DecodeError::KeyVersion(other)),
        }
    }

    /// About how many bytes the record takes in a batch, never too few.
    pub(crate) fn size_bytes(&self) -> usize {
        RECORD_OVERHEAD_BYTES
            + match self {
                GroupRecord::Offset { key, value } => {
                    10 + key.group_id.len()
                        + key.topic.len()
                        + value.as_ref().map_or(0, |v| 32 + v.metadata.len())
                }
                GroupRecord::Group { group_id, value } => {
                    4 + group_id.len() + value.as_ref().map_or(0, group_size_bytes)
                }
            }
    }
}

fn group_size_bytes(group: &GroupMetadata) -> usize {
    let fixed = 24
        + group.protocol_type.len()
        + group.protocol.as_ref().map_or(0, String::len)
        + group.leader.as_ref().map_or(0, String::len);
    let member = |m: &StoredMember| {
        24 + m.member_id.len()
            + m.group_instance_id.as_ref().map_or(0, String::len)
            + m.client_id.len()
            + m.client_host.len()
            + m.subscription.len()
            + m.assignment.len()
    };
    fixed + group.members.iter().map(member).sum::<usize>()
}

fn encode_offset(value: &OffsetAndMetadata) -> Vec<u8> {
    let mut out = Vec::new();
    let expires = value.expire_timestamp_ms >= 0;
    put_i16(
        &mut out,
        match expires {
            true => OFFSET_COMMIT_VALUE_EXPIRING_VERSION,
            false => OFFSET_COMMIT_VALUE_VERSION,
        },
    );
    put_i64(&mut out, value.offset);
    if !expires {
        put_i32(&mut out, value.leader_epoch);
    }
    put_string(&mut out, &value.metadata);
    put_i64(&mut out, value.commit_timestamp_ms);
    if expires {
        put_i64(&mut out, value.expire_timestamp_ms);
    }
    out
}

fn decode_offset(bytes: &[u8]) -> Result<OffsetAndMetadata, DecodeError> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    if !(0..=FLEXIBLE_VALUE_VERSION).contains(&version) {
        return Err(DecodeError::ValueVersion(version));
    }
    reader.set_flexible(version >= FLEXIBLE_VALUE_VERSION);
    let value = OffsetAndMetadata {
        offset: reader.i64()?,
        leader_epoch: if version >= 3 { reader.i32()? } else { -1 },
        metadata: reader.string()?,
        commit_timestamp_ms: reader.i64()?,
        expire_timestamp_ms: match version {
            OFFSET_COMMIT_VALUE_EXPIRING_VERSION => reader.i64()?,
            _ => -1,
        },
    };
    reader.tagged_fields()?;
    reader.end()?;
    Ok(value)
}

fn encode_group(value: &GroupMetadata) -> Vec<u8> {
    let mut out = Vec::new();
    put_i16(&mut out, GROUP_METADATA_VALUE_VERSION);
    put_string(&mut out, &value.protocol_type);
    put_i32(&mut out, value.generation);
    put_nullable_string(&mut out, value.protocol.as_deref());
    put_nullable_string(&mut out, value.leader.as_deref());
    put_i64(&mut out, value.current_state_timestamp_ms);
    put_len(&mut out, value.members.len());
    for member in &value.members {
        put_string(&mut out, &member.member_id);
        put_nullable_string(&mut out, member.group_instance_id.as_deref());
        put_string(&mut out, &member.client_id);
        put_string(&mut out, &member.client_host);
        put_i32(&mut out, member.rebalance_timeout_ms);
        put_i32(&mut out, member.session_timeout_ms);
        put_bytes(&mut out, &member.subscription);
        put_bytes(&mut out, &member.assignment);
    }
    out
}

fn decode_group(bytes: &[u8]) -> Result<GroupMetadata, DecodeError> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    if !(0..=FLEXIBLE_VALUE_VERSION).contains(&version) {
        return Err(DecodeError::ValueVersion(version));
    }
    reader.set_flexible(version >= FLEXIBLE_VALUE_VERSION);
    let mut value = GroupMetadata {
        protocol_type: reader.string()?,
        generation: reader.i32()?,
        protocol: reader.nullable_string()?,
        leader: reader.nullable_string()?,
        current_state_timestamp_ms: if version >= 2 { reader.i64()? } else { -1 },
        members: Vec::new(),
    };
    for _ in 0..reader.count()? {
        value.members.push(decode_member(&mut reader, version)?);
    }
    reader.tagged_fields()?;
    reader.end()?;
    Ok(value)
}

fn decode_member(reader: &mut Reader<'_>, version: i16) -> Result<StoredMember, DecodeError> {
    let member_id = reader.string()?;
    let group_instance_id = if version >= 3 {
        reader.nullable_string()?
    } else {
        None
    };
    let client_id = reader.string()?;
    let client_host = reader.string()?;
    let rebalance_timeout_ms = if version >= 1 { reader.i32()? } else { -1 };
    let session_timeout_ms = reader.i32()?;
    let member = StoredMember {
        member_id,
        group_instance_id,
        client_id,
        client_host,
        // Version 0 has none, and Kafka takes the session timeout then.
        rebalance_timeout_ms: if rebalance_timeout_ms == -1 {
            session_timeout_ms
        } else {
            rebalance_timeout_ms
        },
        session_timeout_ms,
        subscription: reader.bytes()?,
        assignment: reader.bytes()?,
    };
    reader.tagged_fields()?;
    Ok(member)
}
