use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tidemark_authorizer::Acls;
use tidemark_types::{
    CONSUMER_OFFSETS, COORDINATOR_PARTITIONS, LeaderEpoch, NodeId, TRANSACTION_STATE, TopicId,
    TopicPartitionId,
};

use crate::producer_ids::ProducerIdRange;
use crate::record::{FEATURE_LEVEL, MetadataRecord};
use crate::scram::Users;
use crate::topic_config::{TopicConfig, TopicOverrides};
use crate::topic_defaults::TopicDefaults;
use crate::topic_name::is_internal_topic;

/// One creation of a topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicImage {
    pub name: Arc<str>,
    pub id: TopicId,
    /// How many partitions: `0 .. partitions`.
    pub partitions: i32,
    /// What every partition's leader epoch adds to the journal's epoch.
    ///
    /// Zero for every topic of one journal: so a topic that was deleted and made again never shows
    /// a lower epoch than before, which clients that remember epochs by name would ignore.
    pub leader_epoch_base: LeaderEpoch,
    /// The overrides, as they were set: names and values in Kafka's words.
    pub config: BTreeMap<String, String>,
    /// Created and written by the broker's own coordinators only.
    pub internal: bool,
    /// `config`, parsed once.
    overrides: TopicOverrides,
}

impl TopicImage {
    fn new(name: &str, id: TopicId, partitions: i32, config: BTreeMap<String, String>) -> Self {
        TopicImage {
            name: Arc::from(name),
            id,
            partitions,
            leader_epoch_base: LeaderEpoch(0),
            overrides: TopicOverrides::parse(&config),
            config,
            internal: is_internal_topic(name),
        }
    }

    /// The leader epoch of each of this topic's partitions while the journal is at `journal_epoch`.
    pub fn leader_epoch(&self, journal_epoch: i32) -> LeaderEpoch {
        LeaderEpoch(self.leader_epoch_base.0.saturating_add(journal_epoch))
    }

    /// The topic's configuration: its overrides over the broker's defaults. Cheap (a copy of
    /// numbers), nothing is parsed.
    pub fn resolve(&self, defaults: &TopicDefaults) -> TopicConfig {
        self.overrides.over(defaults.config())
    }

    pub fn has_partition(&self, partition: i32) -> bool {
        (0..self.partitions).contains(&partition)
    }

    /// The ids of its partitions, in order.
    pub fn partition_ids(&self) -> impl Iterator<Item = TopicPartitionId> + use<> {
        let id = self.id;
        (0..self.partitions).map(move |partition| TopicPartitionId::new(id, partition))
    }
}

/// One rise of the journal's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEpochEntry {
    pub epoch: i32,
    /// When the record was written, by the wall clock.
    pub wall_ms: i64,
    pub cut_bytes: u64,
}

/// The cluster's metadata as of one record. A clone shares the topics, so readers keep an image
/// while the owner makes the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataImage {
    cluster_id: Option<Arc<str>>,
    node_id: NodeId,
    incarnation: u64,
    feature_level: u16,
    topics: Arc<BTreeMap<Arc<str>, Arc<TopicImage>>>,
    topics_by_id: Arc<BTreeMap<TopicId, Arc<TopicImage>>>,
    partition_count: i64,
    journal_epochs: Vec<JournalEpochEntry>,
    next_producer_id: i64,
    producer_id_blocks: BTreeMap<i32, ProducerIdRange>,
    /// Dynamic settings of each broker, and under `None` of every broker. None of the sets is empty.
    broker_configs: Arc<BTreeMap<Option<NodeId>, BTreeMap<String, String>>>,
    pub(crate) users: Arc<Users>,
    acls: Arc<Acls>,
}

impl MetadataImage {
    /// The image before the first record.
    pub fn empty() -> MetadataImage {
        MetadataImage::default()
    }

    /// The records that a new data directory starts with: identity, feature level and the
    /// coordinators' topics, whose partition count never changes because ids are hashed over it.
    pub fn bootstrap_records(
        cluster_id: &str,
        node_id: NodeId,
        incarnation: u64,
    ) -> Vec<MetadataRecord> {
        let config = |policy: &str| {
            BTreeMap::from([
                ("cleanup.policy".to_owned(), policy.to_owned()),
                ("compression.type".to_owned(), "producer".to_owned()),
                ("segment.bytes".to_owned(), "104857600".to_owned()),
            ])
        };
        let internal = |name: &str, id| MetadataRecord::TopicCreated {
            name: name.to_owned(),
            id,
            partitions: COORDINATOR_PARTITIONS,
            config: config("compact"),
        };
        vec![
            MetadataRecord::ClusterCreated {
                cluster_id: cluster_id.to_owned(),
                node_id,
                incarnation,
            },
            MetadataRecord::FeatureLevel {
                level: FEATURE_LEVEL,
            },
            internal(CONSUMER_OFFSETS, TopicId::CONSUMER_OFFSETS),
            internal(TRANSACTION_STATE, TopicId::TRANSACTION_STATE),
        ]
    }

    /// None before the first record of a new data directory.
    pub fn cluster_id(&self) -> Option<&Arc<str>> {
        self.cluster_id.as_ref()
    }

    pub fn node_id(&self) -> NodeId {
        self.node_id
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub fn feature_level(&self) -> u16 {
        self.feature_level
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(name)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics_by_id.get(&id)
    }

    /// Every topic, internal ones too, by name.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<TopicImage>> {
        self.topics.values()
    }

    /// How many ids lead to a topic: as many as there are topics.
    pub(crate) fn topic_ids(&self) -> usize {
        self.topics_by_id.len()
    }

    /// Partitions of all topics together.
    pub fn partition_count(&self) -> i64 {
        self.partition_count
    }

    /// The topic and index of an existing partition.
    pub fn partition(&self, name: &str, partition: i32) -> Option<TopicPartitionId> {
        let topic = self.topic(name)?;
        topic
            .has_partition(partition)
            .then(|| TopicPartitionId::new(topic.id, partition))
    }

    pub fn contains(&self, partition: TopicPartitionId) -> bool {
        self.topic_by_id(partition.topic)
            .is_some_and(|topic| topic.has_partition(partition.partition))
    }

    /// The first partition at or after `from`, in the order of topic ids; with a cursor that is moved
    /// on after each, every partition comes by. (`__cluster_metadata` is not among them.)
    pub fn partition_at_or_after(&self, from: TopicPartitionId) -> Option<TopicPartitionId> {
        if self.contains(from) {
            return Some(from);
        }
        let after = (Bound::Excluded(from.topic), Bound::Unbounded);
        let (id, _) = self.topics_by_id.range(after).next()?;
        Some(TopicPartitionId::new(*id, 0))
    }

    /// The journal's epoch, 0 before its first `JournalEpoch` record.
    pub fn journal_epoch(&self) -> i32 {
        self.journal_epochs.last().map_or(0, |entry| entry.epoch)
    }

    /// Every rise of the journal's epoch, oldest first.
    pub fn journal_epochs(&self) -> &[JournalEpochEntry] {
        &self.journal_epochs
    }

    /// A broker's dynamic settings, or with `None` those that hold for every broker, by Kafka's names.
    pub fn broker_config(&self, node: Option<NodeId>) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.broker_configs.get(&node).unwrap_or(&NONE)
    }

    /// What topics get here that set nothing themselves: this broker's dynamic settings over those
    /// that it was started with.
    pub fn topic_defaults(&self, at_start: &TopicDefaults) -> TopicDefaults {
        at_start.with_dynamic(
            self.broker_config(Some(self.node_id)),
            self.broker_config(None),
        )
    }

    /// True if both have the same dynamic settings.
    pub fn has_broker_configs_of(&self, other: &MetadataImage) -> bool {
        self.broker_configs == other.broker_configs
    }

    /// Who may do what, where an authorizer asks.
    pub fn acls(&self) -> &Arc<Acls> {
        &self.acls
    }

    /// The lowest producer id that belongs to no block yet.
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// The newest block of each coordinator partition.
    pub fn producer_id_blocks(&self) -> &BTreeMap<i32, ProducerIdRange> {
        &self.producer_id_blocks
    }

    /// Applies one record, in the journal's order. The same function runs after decide and in
    /// replay; it cannot refuse: what a record says was decided.
    pub fn apply(&mut self, record: &MetadataRecord) {
        match record {
            MetadataRecord::ClusterCreated {
                cluster_id,
                node_id,
                incarnation,
            } => {
                self.cluster_id = Some(Arc::from(cluster_id.as_str()));
                self.node_id = *node_id;
                self.incarnation = *incarnation;
            }
            MetadataRecord::FeatureLevel { level } => {
                self.feature_level = self.feature_level.max(*level);
            }
            MetadataRecord::TopicCreated {
                name,
                id,
                partitions,
                config,
            } => self.put(TopicImage::new(name, *id, *partitions, config.clone())),
            MetadataRecord::TopicDeleted { id } => self.remove(*id),
            MetadataRecord::PartitionsAdded { id, partitions } => {
                self.change(*id, |topic| {
                    topic.partitions = topic.partitions.max(*partitions);
                });
            }
            MetadataRecord::TopicConfigSet { id, config } => {
                self.change(*id, |topic| {
                    topic.overrides = TopicOverrides::parse(config);
                    topic.config.clone_from(config);
                });
            }
            MetadataRecord::BrokerConfigSet { node, config } => {
                let configs = Arc::make_mut(&mut self.broker_configs);
                match config.is_empty() {
                    true => configs.remove(node),
                    false => configs.insert(*node, config.clone()),
                };
            }
            MetadataRecord::ProducerIdBlock {
                coordinator_partition,
                first,
                count,
            } => {
                let range = ProducerIdRange {
                    first: *first,
                    count: *count,
                };
                self.next_producer_id = self.next_producer_id.max(range.end());
                self.producer_id_blocks
                    .insert(*coordinator_partition, range);
            }
            MetadataRecord::JournalEpoch {
                epoch,
                wall_ms,
                cut_bytes,
            } => self.journal_epochs.push(JournalEpochEntry {
                epoch: *epoch,
                wall_ms: *wall_ms,
                cut_bytes: *cut_bytes,
            }),
            MetadataRecord::ScramCredentialSet {
                user,
                mechanism,
                credential,
            } => Arc::make_mut(&mut self.users).set(user, *mechanism, credential),
            MetadataRecord::ScramCredentialRemoved { user, mechanism } => {
                Arc::make_mut(&mut self.users).remove(user, *mechanism);
            }
            MetadataRecord::AclAdded(acl) => {
                Arc::make_mut(&mut self.acls).insert(acl);
            }
            MetadataRecord::AclRemoved(acl) => {
                Arc::make_mut(&mut self.acls).remove(acl);
            }
            // The partition's own state has it.
            MetadataRecord::LogStartMoved { .. } | MetadataRecord::ProducersExpired { .. } => {}
            MetadataRecord::Snapshot => *self = MetadataImage::empty(),
        }
    }

    fn put(&mut self, topic: TopicImage) {
        let topic = Arc::new(topic);
        let topics = Arc::make_mut(&mut self.topics);
        let by_id = Arc::make_mut(&mut self.topics_by_id);
        self.partition_count += i64::from(topic.partitions);
        // decide refuses a name that exists; should a record replace one all the same, no trace of
        // the old topic may stay behind.
        if let Some(old) = topics.insert(topic.name.clone(), topic.clone()) {
            self.partition_count -= i64::from(old.partitions);
            by_id.remove(&old.id);
        }
        by_id.insert(topic.id, topic);
    }

    fn remove(&mut self, id: TopicId) {
        if let Some(old) = Arc::make_mut(&mut self.topics_by_id).remove(&id) {
            self.partition_count -= i64::from(old.partitions);
            Arc::make_mut(&mut self.topics).remove(&old.name);
        }
    }

    fn change(&mut self, id: TopicId, change: impl FnOnce(&mut TopicImage)) {
        if let Some(old) = self.topics_by_id.get(&id) {
            let mut topic = TopicImage::clone(old);
            change(&mut topic);
            self.put(topic);
        }
    }

    /// Records that rebuild exactly this image from the empty one, for a checkpoint's block and for
    /// [`MetadataRecord::Snapshot`].
    pub fn snapshot_records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        if let Some(cluster_id) = &self.cluster_id {
            records.push(MetadataRecord::ClusterCreated {
                cluster_id: cluster_id.to_string(),
                node_id: self.node_id,
                incarnation: self.incarnation,
            });
        }
        records.push(MetadataRecord::FeatureLevel {
            level: self.feature_level,
        });
        for entry in &self.journal_epochs {
            records.push(MetadataRecord::JournalEpoch {
                epoch: entry.epoch,
                wall_ms: entry.wall_ms,
                cut_bytes: entry.cut_bytes,
            });
        }
        for topic in self.topics() {
            records.push(MetadataRecord::TopicCreated {
                name: topic.name.to_string(),
                id: topic.id,
                partitions: topic.partitions,
                config: topic.config.clone(),
            });
        }
        for (node, config) in self.broker_configs.iter() {
            records.push(MetadataRecord::BrokerConfigSet {
                node: *node,
                config: config.clone(),
            });
        }
        for (user, mechanism, credential) in self.users.all() {
            records.push(MetadataRecord::ScramCredentialSet {
                user: user.to_owned(),
                mechanism,
                credential: credential.clone(),
            });
        }
        records.extend(self.acls.iter().map(MetadataRecord::AclAdded));
        for (coordinator_partition, range) in &self.producer_id_blocks {
            records.push(MetadataRecord::ProducerIdBlock {
                coordinator_partition: *coordinator_partition,
                first: range.first,
                count: range.count,
            });
        }
        records
    }
}
