//! The records of `__cluster_metadata`: a versioned format of Tidemark's own.
//!
//! A record's key is its kind and the version of its payload, two bytes each; its value is the
//! payload's length in four bytes and the payload. A number once given to a kind is never used for
//! another, also when the kind is retired.

use std::collections::BTreeMap;
use std::fmt;

use tidemark_authorizer::{Acl, Operation, PatternType, Permission, ResourceType};
use tidemark_types::{NodeId, ProducerId, TopicId, TopicPartitionId};

use crate::codec::{Reader, Writer};
use crate::create_topic::MAX_PARTITIONS_PER_TOPIC;
use crate::scram::{ScramCredential, ScramMechanism};

/// The feature level this version writes and the highest it reads. A new kind or version of a
/// record comes with a higher level, and is written only once the level has been raised.
pub const FEATURE_LEVEL: u16 = 4;

/// From this level on there are dynamic broker settings.
pub(crate) const BROKER_CONFIG_LEVEL: u16 = 2;

/// From this level on producers are forgotten when they have been idle for long.
pub(crate) const PRODUCERS_EXPIRED_LEVEL: u16 = 3;

/// From this level on the log of the metadata is cut behind a copy of all that it says.
pub const SNAPSHOT_LEVEL: u16 = 4;
/// From this level on there are users, their credentials, and ACLs.
pub(crate) const SECURITY_LEVEL: u16 = 4;

/// One change of the cluster's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataRecord {
    /// The first record of a data directory.
    ClusterCreated {
        cluster_id: String,
        node_id: NodeId,
        /// Which life of this node's data directory: drawn at random when it was created.
        incarnation: u64,
    },
    FeatureLevel {
        level: u16,
    },
    TopicCreated {
        name: String,
        id: TopicId,
        partitions: i32,
        config: BTreeMap<String, String>,
    },
    TopicDeleted {
        id: TopicId,
    },
    PartitionsAdded {
        id: TopicId,
        /// The new count, not the number added.
        partitions: i32,
    },
    /// The topic's whole set of overrides from now on.
    TopicConfigSet {
        id: TopicId,
        config: BTreeMap<String, String>,
    },
    /// The whole set of a broker's dynamic settings from now on; `None`: of those that hold for every
    /// broker. Since feature level 2.
    BrokerConfigSet {
        node: Option<NodeId>,
        config: BTreeMap<String, String>,
    },
    /// Producer ids `first .. first + count` belong to a coordinator partition and are never
    /// handed out by another.
    ProducerIdBlock {
        coordinator_partition: i32,
        first: i64,
        count: i64,
    },
    /// The journal's epoch rose: at its first start, and at every start that cut or may have lost
    /// records.
    JournalEpoch {
        epoch: i32,
        wall_ms: i64,
        /// Bytes cut from the journal's end at that start.
        cut_bytes: u64,
    },
    /// A partition's records below this offset are gone: by retention or DeleteRecords. Never
    /// lower than before, never beyond the end of the log.
    LogStartMoved {
        id: TopicId,
        partition: i32,
        log_start_offset: i64,
    },
    /// A partition forgets these producers: `producer.id.expiration.ms` passed without a batch of
    /// theirs. The ids are named, so that replay follows no rule of its own. Since feature level 3.
    ProducersExpired {
        partition: TopicPartitionId,
        producer_ids: Vec<ProducerId>,
    },
    /// What a user authenticates with by one mechanism, from now on. Since feature level 4.
    ScramCredentialSet {
        user: String,
        mechanism: ScramMechanism,
        credential: ScramCredential,
    },
    /// A user has no credential of this mechanism any more. Since feature level 4.
    ScramCredentialRemoved {
        user: String,
        mechanism: ScramMechanism,
    },
    /// The first record of a batch that says everything once more: the image, and where each
    /// partition's log starts. Who reads the log from there on needs nothing before it; who has the
    /// state passes the batch over. Since feature level 4.
    Snapshot,
    /// This ACL is in force. Since feature level 4.
    AclAdded(Acl),
    /// This ACL is in force no more, and no other is touched. Since feature level 4.
    AclRemoved(Acl),
}

mod kind {
    pub(super) const CLUSTER_CREATED: u16 = 1;
    pub(super) const FEATURE_LEVEL: u16 = 2;
    pub(super) const TOPIC_CREATED: u16 = 3;
    pub(super) const TOPIC_DELETED: u16 = 4;
    pub(super) const PARTITIONS_ADDED: u16 = 5;
    pub(super) const TOPIC_CONFIG_SET: u16 = 6;
    pub(super) const PRODUCER_ID_BLOCK: u16 = 7;
    pub(super) const JOURNAL_EPOCH: u16 = 8;
    pub(super) const BROKER_CONFIG_SET: u16 = 9;
    pub(super) const LOG_START_MOVED: u16 = 10;
    pub(super) const PRODUCERS_EXPIRED: u16 = 11;
    pub(super) const SCRAM_CREDENTIAL_SET: u16 = 12;
    pub(super) const SCRAM_CREDENTIAL_REMOVED: u16 = 13;
    pub(super) const ACL_ADDED: u16 = 14;
    pub(super) const ACL_REMOVED: u16 = 15;
    pub(super) const SNAPSHOT: u16 = 16;
}

/// All kinds are at version 0.
const VERSION: u16 = 0;

/// In place of a node's id.
const EVERY_BROKER: i32 = -1;

/// Why a record of `__cluster_metadata` could not be read. Its text says how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    UnknownKind { kind: u16 },
    UnknownVersion { kind: u16, version: u16 },
    Truncated,
    Invalid(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NEWER: &str = "the data was written by a newer Tidemark: start that version, or one \
                             newer, on this data directory";
        const DAMAGED: &str = "the data is damaged: restore the data directory from a copy";
        match self {
            DecodeError::UnknownKind { kind } => {
                write!(f, "metadata record of unknown kind {kind}; {NEWER}")
            }
            DecodeError::UnknownVersion { kind, version } => write!(
                f,
                "metadata record of kind {kind} has unknown version {version}; {NEWER}"
            ),
            DecodeError::Truncated => write!(f, "metadata record ends too early; {DAMAGED}"),
            DecodeError::Invalid(what) => write!(f, "metadata record: {what}; {DAMAGED}"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl MetadataRecord {
    fn kind(&self) -> u16 {
        match self {
            MetadataRecord::ClusterCreated { .. } => kind::CLUSTER_CREATED,
            MetadataRecord::FeatureLevel { .. } => kind::FEATURE_LEVEL,
            MetadataRecord::TopicCreated { .. } => kind::TOPIC_CREATED,
            MetadataRecord::TopicDeleted { .. } => kind::TOPIC_DELETED,
            MetadataRecord::PartitionsAdded { .. } => kind::PARTITIONS_ADDED,
            MetadataRecord::TopicConfigSet { .. } => kind::TOPIC_CONFIG_SET,
            MetadataRecord::ProducerIdBlock { .. } => kind::PRODUCER_ID_BLOCK,
            MetadataRecord::JournalEpoch { .. } => kind::JOURNAL_EPOCH,
            MetadataRecord::LogStartMoved { .. } => kind::LOG_START_MOVED,
            MetadataRecord::BrokerConfigSet { .. } => kind::BROKER_CONFIG_SET,
            MetadataRecord::ProducersExpired { .. } => kind::PRODUCERS_EXPIRED,
            MetadataRecord::ScramCredentialSet { .. } => kind::SCRAM_CREDENTIAL_SET,
            MetadataRecord::ScramCredentialRemoved { .. } => kind::SCRAM_CREDENTIAL_REMOVED,
            MetadataRecord::Snapshot => kind::SNAPSHOT,
            MetadataRecord::AclAdded(_) => kind::ACL_ADDED,
            MetadataRecord::AclRemoved(_) => kind::ACL_REMOVED,
        }
    }

    /// The key of this record in a batch of `__cluster_metadata`.
    pub fn key(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u16(self.kind());
        out.u16(VERSION);
        out.0
    }

    /// The value of this record in a batch of `__cluster_metadata`.
    pub fn value(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.i32(0);
        match self {
            MetadataRecord::ClusterCreated {
                cluster_id,
                node_id,
                incarnation,
            } => {
                out.str(cluster_id);
                out.i32(node_id.0);
                out.u64(*incarnation);
            }
            MetadataRecord::FeatureLevel { level } => out.u16(*level),
            MetadataRecord::TopicCreated {
                name,
                id,
                partitions,
                config,
            } => {
                out.str(name);
                out.id(*id);
                out.i32(*partitions);
                out.map(config);
            }
            MetadataRecord::TopicDeleted { id } => out.id(*id),
            MetadataRecord::PartitionsAdded { id, partitions } => {
                out.id(*id);
                out.i32(*partitions);
            }
            MetadataRecord::TopicConfigSet { id, config } => {
                out.id(*id);
                out.map(config);
            }
            MetadataRecord::BrokerConfigSet { node, config } => {
                out.i32(node.map_or(EVERY_BROKER, |node| node.0));
                out.map(config);
            }
            MetadataRecord::ProducerIdBlock {
                coordinator_partition,
                first,
                count,
            } => {
                out.i32(*coordinator_partition);
                out.i64(*first);
                out.i64(*count);
            }
            MetadataRecord::JournalEpoch {
                epoch,
                wall_ms,
                cut_bytes,
            } => {
                out.i32(*epoch);
                out.i64(*wall_ms);
                out.u64(*cut_bytes);
            }
            MetadataRecord::LogStartMoved {
                id,
                partition,
                log_start_offset,
            } => {
                out.id(*id);
                out.i32(*partition);
                out.i64(*log_start_offset);
            }
            MetadataRecord::ProducersExpired {
                partition,
                producer_ids,
            } => {
                out.id(partition.topic);
                out.i32(partition.partition);
                // As many as there are bytes for.
                producer_ids.iter().for_each(|id| out.i64(id.0));
            }
            MetadataRecord::ScramCredentialSet {
                user,
                mechanism,
                credential,
            } => {
                out.str(user);
                out.u8(mechanism.code());
                out.i32(credential.iterations);
                out.bytes(&credential.salt);
                out.bytes(&credential.stored_key);
                out.bytes(&credential.server_key);
            }
            MetadataRecord::ScramCredentialRemoved { user, mechanism } => {
                out.str(user);
                out.u8(mechanism.code());
            }
            MetadataRecord::Snapshot => {}
            MetadataRecord::AclAdded(acl) | MetadataRecord::AclRemoved(acl) => {
                put_acl(&mut out, acl)
            }
        }
        let payload_bytes = u32::try_from(out.0.len() - 4).expect("a record is far below 4 GiB");
        out.0[..4].copy_from_slice(&payload_bytes.to_be_bytes());
        out.0
    }

    /// Reads a record back from a batch. Never panics and reserves nothing by a claimed length.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<MetadataRecord, DecodeError> {
        let mut key = Reader(key);
        let (kind, version) = (key.u16()?, key.u16()?);
        key.end()?;
        let mut value = Reader(value);
        let payload_bytes = value.u32()? as usize;
        let payload = value.take(payload_bytes)?;
        value.end()?;

        if !(kind::CLUSTER_CREATED..=kind::SNAPSHOT).contains(&kind) {
            return Err(DecodeError::UnknownKind { kind });
        }
        if version != VERSION {
            return Err(DecodeError::UnknownVersion { kind, version });
        }
        let mut p = Reader(payload);
        let record = match kind {
            kind::CLUSTER_CREATED => MetadataRecord::ClusterCreated {
                cluster_id: p.str()?,
                node_id: NodeId(p.i32()?),
                incarnation: p.u64()?,
            },
            kind::FEATURE_LEVEL => MetadataRecord::FeatureLevel { level: p.u16()? },
            kind::TOPIC_CREATED => MetadataRecord::TopicCreated {
                name: p.str()?,
                id: p.id()?,
                partitions: partition_count(p.i32()?)?,
                config: p.map()?,
            },
            kind::TOPIC_DELETED => MetadataRecord::TopicDeleted { id: p.id()? },
            kind::PARTITIONS_ADDED => MetadataRecord::PartitionsAdded {
                id: p.id()?,
                partitions: partition_count(p.i32()?)?,
            },
            kind::TOPIC_CONFIG_SET => MetadataRecord::TopicConfigSet {
                id: p.id()?,
                config: p.map()?,
            },
            kind::BROKER_CONFIG_SET => MetadataRecord::BrokerConfigSet {
                node: Some(p.i32()?)
                    .filter(|node| *node != EVERY_BROKER)
                    .map(NodeId),
                config: p.map()?,
            },
            kind::PRODUCER_ID_BLOCK => {
                let (coordinator_partition, first, count) = (p.i32()?, p.i64()?, p.i64()?);
                if first < 0 || count < 1 || first.checked_add(count).is_none() {
                    return Err(DecodeError::Invalid("a producer-id block out of range"));
                }
                MetadataRecord::ProducerIdBlock {
                    coordinator_partition,
                    first,
                    count,
                }
            }
            kind::PRODUCERS_EXPIRED => {
                let partition = TopicPartitionId::new(p.id()?, p.i32()?);
                let mut producer_ids = Vec::new();
                while !p.is_empty() {
                    producer_ids.push(ProducerId(p.i64()?));
                }
                MetadataRecord::ProducersExpired {
                    partition,
                    producer_ids,
                }
            }
            kind::SCRAM_CREDENTIAL_SET => MetadataRecord::ScramCredentialSet {
                user: p.str()?,
                mechanism: scram_mechanism(p.u8()?)?,
                credential: ScramCredential {
                    iterations: p.i32()?,
                    salt: p.bytes()?,
                    stored_key: p.bytes()?,
                    server_key: p.bytes()?,
                },
            },
            kind::SCRAM_CREDENTIAL_REMOVED => MetadataRecord::ScramCredentialRemoved {
                user: p.str()?,
                mechanism: scram_mechanism(p.u8()?)?,
            },
            kind::SNAPSHOT => MetadataRecord::Snapshot,
            kind::ACL_ADDED => MetadataRecord::AclAdded(acl(&mut p)?),
            kind::ACL_REMOVED => MetadataRecord::AclRemoved(acl(&mut p)?),
            kind::JOURNAL_EPOCH => MetadataRecord::JournalEpoch {
                epoch: p.i32()?,
                wall_ms: p.i64()?,
                cut_bytes: p.u64()?,
            },
            _ => {
                let (id, partition, log_start_offset) = (p.id()?, p.i32()?, p.i64()?);
                if partition < 0 || log_start_offset < 0 {
                    return Err(DecodeError::Invalid("a log start below zero"));
                }
                MetadataRecord::LogStartMoved {
                    id,
                    partition,
                    log_start_offset,
                }
            }
        };
        p.end()?;
        Ok(record)
    }
}

fn scram_mechanism(code: u8) -> Result<ScramMechanism, DecodeError> {
    ScramMechanism::from_code(code).ok_or(DecodeError::Invalid("an unknown SCRAM mechanism"))
}

fn put_acl(out: &mut Writer, acl: &Acl) {
    out.u8(acl.resource_type.code());
    out.u8(acl.pattern_type.code());
    out.str(&acl.name);
    out.str(&acl.principal);
    out.str(&acl.host);
    out.u8(acl.operation.code());
    out.u8(acl.permission.code());
}

fn acl(p: &mut Reader<'_>) -> Result<Acl, DecodeError> {
    let unknown = |what| move || DecodeError::Invalid(what);
    let resource_type = ResourceType::from_code(p.u8()?);
    let pattern_type = PatternType::from_code(p.u8()?);
    let (name, principal, host) = (p.str()?, p.str()?, p.str()?);
    let operation = Operation::from_code(p.u8()?);
    let permission = Permission::from_code(p.u8()?);
    Ok(Acl {
        resource_type: resource_type.ok_or_else(unknown("an ACL of no known resource type"))?,
        name: name.into(),
        pattern_type: pattern_type.ok_or_else(unknown("an ACL of no known pattern type"))?,
        principal: principal.into(),
        host: host.into(),
        operation: operation.ok_or_else(unknown("an ACL of no known operation"))?,
        permission: permission.ok_or_else(unknown("an ACL of no known permission"))?,
    })
}

fn partition_count(count: i32) -> Result<i32, DecodeError> {
    match count {
        ..1 => Err(DecodeError::Invalid("a topic without partitions")),
        1..=MAX_PARTITIONS_PER_TOPIC => Ok(count),
        _ => Err(DecodeError::Invalid(
            "a topic of more partitions than one can have",
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    fn any_config() -> impl Strategy<Value = BTreeMap<String, String>> {
        btree_map("[a-z.]{1,12}", ".{0,12}", 0..4)
    }

    fn any_mechanism() -> impl Strategy<Value = ScramMechanism> {
        prop_oneof![Just(ScramMechanism::Sha256), Just(ScramMechanism::Sha512)]
    }

    fn any_acl() -> impl Strategy<Value = Acl> {
        use proptest::sample::select;
        (
            select(ResourceType::ALL),
            select(PatternType::ALL),
            (".{0,9}", ".{0,9}", ".{0,9}"),
            select(Operation::ALL),
            select(Permission::ALL),
        )
            .prop_map(
                |(resource_type, pattern_type, texts, operation, permission)| Acl {
                    resource_type,
                    name: texts.0.into(),
                    pattern_type,
                    principal: texts.1.into(),
                    host: texts.2.into(),
                    operation,
                    permission,
                },
            )
    }

    fn any_record() -> impl Strategy<Value = MetadataRecord> {
        let id = any::<[u8; 16]>().prop_map(TopicId);
        prop_oneof![
            (".{0,30}", any::<i32>(), any::<u64>()).prop_map(|(cluster_id, node, incarnation)| {
                MetadataRecord::ClusterCreated {
                    cluster_id,
                    node_id: NodeId(node),
                    incarnation,
                }
            }),
            Just(MetadataRecord::Snapshot),
            any::<u16>().prop_map(|level| MetadataRecord::FeatureLevel { level }),
            (
                ".{0,30}",
                id.clone(),
                1..=MAX_PARTITIONS_PER_TOPIC,
                any_config()
            )
                .prop_map(|(name, id, partitions, config)| {
                    MetadataRecord::TopicCreated {
                        name,
                        id,
                        partitions,
                        config,
                    }
                }),
            id.clone()
                .prop_map(|id| MetadataRecord::TopicDeleted { id }),
            (id.clone(), 1..=MAX_PARTITIONS_PER_TOPIC)
                .prop_map(|(id, partitions)| MetadataRecord::PartitionsAdded { id, partitions }),
            (id.clone(), any_config())
                .prop_map(|(id, config)| MetadataRecord::TopicConfigSet { id, config }),
            (id, 0..i32::MAX, 0..i64::MAX).prop_map(|(id, partition, log_start_offset)| {
                MetadataRecord::LogStartMoved {
                    id,
                    partition,
                    log_start_offset,
                }
            }),
            (proptest::option::of(0..i32::MAX), any_config()).prop_map(|(node, config)| {
                MetadataRecord::BrokerConfigSet {
                    node: node.map(NodeId),
                    config,
                }
            }),
            (any::<i32>(), 0..i64::MAX / 2, 1..i64::MAX / 2).prop_map(
                |(coordinator_partition, first, count)| MetadataRecord::ProducerIdBlock {
                    coordinator_partition,
                    first,
                    count,
                }
            ),
            (any::<[u8; 16]>(), any::<i32>(), vec(any::<i64>(), 0..4)).prop_map(
                |(topic, partition, ids)| MetadataRecord::ProducersExpired {
                    partition: TopicPartitionId::new(TopicId(topic), partition),
                    producer_ids: ids.into_iter().map(ProducerId).collect(),
                }
            ),
            (
                ".{1,12}",
                any_mechanism(),
                any::<i32>(),
                vec(vec(any::<u8>(), 0..70), 3)
            )
                .prop_map(|(user, mechanism, iterations, bytes)| {
                    MetadataRecord::ScramCredentialSet {
                        user,
                        mechanism,
                        credential: ScramCredential {
                            iterations,
                            salt: bytes[0].clone(),
                            stored_key: bytes[1].clone(),
                            server_key: bytes[2].clone(),
                        },
                    }
                }),
            (".{1,12}", any_mechanism()).prop_map(|(user, mechanism)| {
                MetadataRecord::ScramCredentialRemoved { user, mechanism }
            }),
            any_acl().prop_map(MetadataRecord::AclAdded),
            any_acl().prop_map(MetadataRecord::AclRemoved),
            (any::<i32>(), any::<i64>(), any::<u64>()).prop_map(|(epoch, wall_ms, cut_bytes)| {
                MetadataRecord::JournalEpoch {
                    epoch,
                    wall_ms,
                    cut_bytes,
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(record in any_record()) {
            let read = MetadataRecord::decode(&record.key(), &record.value());
            prop_assert_eq!(read, Ok(record));
        }

        #[test]
        fn damage_is_an_error_and_never_a_panic(
            record in any_record(),
            cut in any::<prop::sample::Index>(),
            extra in vec(any::<u8>(), 1..8),
        ) {
            let value = record.value();
            let cut = cut.index(value.len());
            prop_assert!(MetadataRecord::decode(&record.key(), &value[..cut]).is_err());
            let longer = [value, extra].concat();
            prop_assert!(MetadataRecord::decode(&record.key(), &longer).is_err());
        }

        #[test]
        fn any_bytes_decode_or_fail(kind in 0u16..20, payload in vec(any::<u8>(), 0..200)) {
            let mut key = kind.to_be_bytes().to_vec();
            key.extend([0, 0]);
            let mut value = (payload.len() as u32).to_be_bytes().to_vec();
            value.extend(payload);
            let _ = MetadataRecord::decode(&key, &value);
        }
    }

    #[test]
    fn an_unknown_kind_stops_and_says_how_to_mend_it() {
        let known = MetadataRecord::TopicDeleted { id: TopicId::ZERO };
        let error = MetadataRecord::decode(&[0, 99, 0, 0], &known.value()).unwrap_err();
        assert_eq!(error, DecodeError::UnknownKind { kind: 99 });
        assert!(error.to_string().contains("newer Tidemark"), "{error}");
        let error = MetadataRecord::decode(&[0, 4, 0, 7], &known.value()).unwrap_err();
        assert_eq!(
            error,
            DecodeError::UnknownVersion {
                kind: 4,
                version: 7
            }
        );
    }

    #[test]
    fn a_huge_claimed_count_reserves_nothing() {
        let mut payload = vec![7u8; 16];
        payload.extend(u32::MAX.to_be_bytes());
        let mut value = (payload.len() as u32).to_be_bytes().to_vec();
        value.extend(payload);
        let error = MetadataRecord::decode(&[0, 6, 0, 0], &value).unwrap_err();
        assert_eq!(error, DecodeError::Truncated);
    }

    #[test]
    fn a_topic_of_more_partitions_than_one_can_have_is_refused() {
        let of = |partitions| {
            let record = MetadataRecord::PartitionsAdded {
                id: TopicId([9; 16]),
                partitions,
            };
            MetadataRecord::decode(&record.key(), &record.value()).is_ok()
        };
        assert!(of(1) && of(MAX_PARTITIONS_PER_TOPIC));
        assert!(!of(0) && !of(MAX_PARTITIONS_PER_TOPIC + 1) && !of(i32::MAX));
    }

    /// The format as it is on disk: a change of this test is a change of the format.
    #[test]
    fn version_0_on_disk() {
        let record = MetadataRecord::TopicCreated {
            name: "orders".to_owned(),
            id: TopicId([9; 16]),
            partitions: 3,
            config: BTreeMap::from([("retention.ms".to_owned(), "1000".to_owned())]),
        };
        assert_eq!(record.key(), [0, 3, 0, 0]);
        let mut expected = vec![0, 0, 0, 58];
        expected.extend([0, 0, 0, 6]);
        expected.extend(b"orders");
        expected.extend([9; 16]);
        expected.extend([0, 0, 0, 3]);
        expected.extend([0, 0, 0, 1]);
        expected.extend([0, 0, 0, 12]);
        expected.extend(b"retention.ms");
        expected.extend([0, 0, 0, 4]);
        expected.extend(b"1000");
        assert_eq!(record.value(), expected);

        let record = MetadataRecord::ScramCredentialSet {
            user: "alice".to_owned(),
            mechanism: ScramMechanism::Sha512,
            credential: ScramCredential {
                iterations: 4096,
                salt: vec![1, 2],
                stored_key: vec![3],
                server_key: vec![4],
            },
        };
        assert_eq!(record.key(), [0, 12, 0, 0]);
        let mut expected = vec![0, 0, 0, 30, 0, 0, 0, 5];
        expected.extend(b"alice");
        expected.extend([2, 0, 0, 16, 0]);
        expected.extend([0, 0, 0, 2, 1, 2, 0, 0, 0, 1, 3, 0, 0, 0, 1, 4]);
        assert_eq!(record.value(), expected);

        let record = MetadataRecord::LogStartMoved {
            id: TopicId([9; 16]),
            partition: 2,
            log_start_offset: 258,
        };
        assert_eq!(record.key(), [0, 10, 0, 0]);
        let mut expected = vec![0, 0, 0, 28];
        expected.extend([9; 16]);
        expected.extend([0, 0, 0, 2]);
        expected.extend([0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(record.value(), expected);

        let record = MetadataRecord::AclAdded(Acl {
            resource_type: ResourceType::TransactionalId,
            name: "billing".into(),
            pattern_type: PatternType::Prefixed,
            principal: "User:al".into(),
            host: "*".into(),
            operation: Operation::Write,
            permission: Permission::Allow,
        });
        assert_eq!(record.key(), [0, 14, 0, 0]);
        let mut expected = vec![0, 0, 0, 31, 5, 4];
        expected.extend(b"\0\0\0\x07billing\0\0\0\x07User:al\0\0\0\x01*");
        expected.extend([4, 3]);
        assert_eq!(record.value(), expected);
    }
}
