//! The records of `__cluster_metadata`: topics, settings, blocks of producer ids, journal epochs.

use std::collections::{BTreeMap, BTreeSet};

use crate::bytes::Fields;
use crate::ids::{PartitionId, TopicId};

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MetadataRecord {
    ClusterCreated {
        cluster_id: String,
        node_id: i32,
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
        /// The new count.
        partitions: i32,
    },
    TopicConfigSet {
        id: TopicId,
        config: BTreeMap<String, String>,
    },
    ProducerIdBlock {
        coordinator_partition: i32,
        first: i64,
        count: i64,
    },
    JournalEpoch {
        epoch: i32,
        wall_ms: i64,
        cut_bytes: u64,
    },
    /// Records below this offset are gone.
    LogStartMoved {
        id: PartitionId,
        log_start_offset: i64,
    },
    /// The partition forgets these producers.
    ProducersExpired {
        id: PartitionId,
        producer_ids: Vec<i64>,
    },
    BrokerConfigSet {
        /// -1: every broker.
        node_id: i32,
        config: BTreeMap<String, String>,
    },
    /// What a user authenticates with; the secret parts are read and not kept.
    ScramCredentialSet {
        user: String,
        /// 1: SHA-256, 2: SHA-512.
        mechanism: u8,
        iterations: i32,
    },
    ScramCredentialRemoved {
        user: String,
        mechanism: u8,
    },
    /// All that there is follows in the same batch.
    Snapshot,
    AclAdded(Acl),
    AclRemoved(Acl),
}

/// An access control list entry. Numbers are those of Kafka's protocol.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Acl {
    pub resource_type: u8,
    pub pattern_type: u8,
    pub name: String,
    pub principal: String,
    pub host: String,
    pub operation: u8,
    pub permission: u8,
}

impl MetadataRecord {
    /// Reads a record. Errors say in a few words what is wrong, and whether a newer version wrote it.
    pub fn parse(key: &[u8], value: &[u8]) -> Result<MetadataRecord, (String, bool)> {
        let mut k = Fields::new(key);
        let (Some(kind), Some(version), 0) = (k.u16(), k.u16(), k.left()) else {
            return Err(("a metadata record's key is not 4 bytes".to_owned(), false));
        };
        if version != 0 || !(1..=16).contains(&kind) {
            return Err((
                format!("a metadata record of kind {kind}, version {version}"),
                true,
            ));
        }
        let mut v = Fields::new(value);
        let whole = v.long_bytes().filter(|_| v.left() == 0);
        let bad = || {
            (
                format!("a metadata record of kind {kind} is cut short"),
                false,
            )
        };
        let mut f = Fields::new(whole.ok_or_else(bad)?);
        let record = parse(kind, &mut f).filter(|_| f.left() == 0);
        record.ok_or_else(bad)
    }
}

fn map(f: &mut Fields<'_>) -> Option<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for _ in 0..f.u32()? {
        found.insert(f.long_string()?, f.long_string()?);
    }
    Some(found)
}

fn parse(kind: u16, f: &mut Fields<'_>) -> Option<MetadataRecord> {
    Some(match kind {
        1 => MetadataRecord::ClusterCreated {
            cluster_id: f.long_string()?,
            node_id: f.i32()?,
            incarnation: f.u64()?,
        },
        2 => MetadataRecord::FeatureLevel { level: f.u16()? },
        3 => MetadataRecord::TopicCreated {
            name: f.long_string()?,
            id: TopicId(f.array()?),
            partitions: f.i32()?,
            config: map(f)?,
        },
        4 => MetadataRecord::TopicDeleted {
            id: TopicId(f.array()?),
        },
        5 => MetadataRecord::PartitionsAdded {
            id: TopicId(f.array()?),
            partitions: f.i32()?,
        },
        6 => MetadataRecord::TopicConfigSet {
            id: TopicId(f.array()?),
            config: map(f)?,
        },
        7 => MetadataRecord::ProducerIdBlock {
            coordinator_partition: f.i32()?,
            first: f.i64()?,
            count: f.i64()?,
        },
        8 => MetadataRecord::JournalEpoch {
            epoch: f.i32()?,
            wall_ms: f.i64()?,
            cut_bytes: f.u64()?,
        },
        9 => MetadataRecord::BrokerConfigSet {
            node_id: f.i32()?,
            config: map(f)?,
        },
        10 => MetadataRecord::LogStartMoved {
            id: partition_id(f)?,
            log_start_offset: f.i64()?,
        },
        11 => {
            let id = partition_id(f)?;
            let mut producer_ids = Vec::new();
            while f.left() > 0 {
                producer_ids.push(f.i64()?);
            }
            MetadataRecord::ProducersExpired { id, producer_ids }
        }
        12 => {
            let (user, mechanism, iterations) = (f.long_string()?, f.u8()?, f.i32()?);
            for _salt_and_keys in 0..3 {
                f.long_bytes()?;
            }
            MetadataRecord::ScramCredentialSet {
                user,
                mechanism,
                iterations,
            }
        }
        13 => MetadataRecord::ScramCredentialRemoved {
            user: f.long_string()?,
            mechanism: f.u8()?,
        },
        16 => MetadataRecord::Snapshot,
        14 => MetadataRecord::AclAdded(acl(f)?),
        15 => MetadataRecord::AclRemoved(acl(f)?),
        _ => return None,
    })
}

fn acl(f: &mut Fields<'_>) -> Option<Acl> {
    let acl = Acl {
        resource_type: f.u8()?,
        pattern_type: f.u8()?,
        name: f.long_string()?,
        principal: f.long_string()?,
        host: f.long_string()?,
        operation: f.u8()?,
        permission: f.u8()?,
    };
    let is_known = matches!(acl.resource_type, 2..=7)
        && matches!(acl.pattern_type, 3 | 4)
        && matches!(acl.operation, 2..=15)
        && matches!(acl.permission, 2 | 3);
    is_known.then_some(acl)
}

fn partition_id(f: &mut Fields<'_>) -> Option<PartitionId> {
    Some(PartitionId {
        topic: TopicId(f.array()?),
        partition: f.i32()?,
    })
}

/// A topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    pub id: TopicId,
    pub name: String,
    pub partitions: i32,
    pub config: BTreeMap<String, String>,
}

/// What all records together say.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Metadata {
    pub cluster_id: Option<String>,
    pub feature_level: u16,
    /// By name.
    pub topics: BTreeMap<String, Topic>,
    /// Producer ids below were given to some coordinator partition.
    pub next_producer_id: i64,
    pub journal_epoch: i32,
    /// Log starts that moved.
    pub log_starts: BTreeMap<PartitionId, i64>,
    /// Producers that partitions forgot: at which journal record, and which.
    pub expired: BTreeMap<PartitionId, Vec<(u64, Vec<i64>)>>,
    /// Dynamic settings by node, -1 for every broker.
    pub broker_configs: BTreeMap<i32, BTreeMap<String, String>>,
    /// Iterations of users' credentials, by user and mechanism.
    pub scram_credentials: BTreeMap<(String, u8), i32>,
    /// The records begin, or once began anew, with a copy of what those before had said.
    pub was_cut: bool,
    pub acls: BTreeSet<Acl>,
}

impl Metadata {
    /// Applies a record of the journal record `index`.
    pub(crate) fn apply(&mut self, index: u64, record: MetadataRecord) {
        match record {
            MetadataRecord::ClusterCreated { cluster_id, .. } => self.cluster_id = Some(cluster_id),
            MetadataRecord::FeatureLevel { level } => self.feature_level = level,
            MetadataRecord::TopicCreated {
                name,
                id,
                partitions,
                config,
            } => {
                let topic = Topic {
                    id,
                    name: name.clone(),
                    partitions,
                    config,
                };
                self.topics.insert(name, topic);
            }
            MetadataRecord::TopicDeleted { id } => {
                self.topics.retain(|_, topic| topic.id != id);
                self.log_starts.retain(|partition, _| partition.topic != id);
                self.expired.retain(|partition, _| partition.topic != id);
            }
            MetadataRecord::PartitionsAdded { id, partitions } => {
                if let Some(topic) = self.topic_mut(id) {
                    topic.partitions = partitions;
                }
            }
            MetadataRecord::TopicConfigSet { id, config } => {
                if let Some(topic) = self.topic_mut(id) {
                    topic.config = config;
                }
            }
            MetadataRecord::ProducerIdBlock { first, count, .. } => {
                self.next_producer_id = self.next_producer_id.max(first.saturating_add(count));
            }
            MetadataRecord::JournalEpoch { epoch, .. } => self.journal_epoch = epoch,
            MetadataRecord::LogStartMoved {
                id,
                log_start_offset,
            } => drop(self.log_starts.insert(id, log_start_offset)),
            MetadataRecord::ProducersExpired { id, producer_ids } => {
                self.expired
                    .entry(id)
                    .or_default()
                    .push((index, producer_ids));
            }
            MetadataRecord::BrokerConfigSet { node_id, config } => {
                match config.is_empty() {
                    true => self.broker_configs.remove(&node_id),
                    false => self.broker_configs.insert(node_id, config),
                };
            }
            MetadataRecord::ScramCredentialSet {
                user,
                mechanism,
                iterations,
            } => drop(self.scram_credentials.insert((user, mechanism), iterations)),
            MetadataRecord::ScramCredentialRemoved { user, mechanism } => {
                self.scram_credentials.remove(&(user, mechanism));
            }
            // What was forgotten of producers is not said again.
            MetadataRecord::Snapshot => {
                *self = Metadata {
                    expired: std::mem::take(&mut self.expired),
                    was_cut: true,
                    ..Metadata::default()
                };
            }
            MetadataRecord::AclAdded(acl) => drop(self.acls.replace(acl)),
            MetadataRecord::AclRemoved(acl) => drop(self.acls.take(&acl)),
        }
    }

    fn topic_mut(&mut self, id: TopicId) -> Option<&mut Topic> {
        self.topics.values_mut().find(|topic| topic.id == id)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Topic> {
        self.topics.values().find(|topic| topic.id == id)
    }
}
