//! CreateTopics and auto-creation, and what a new data directory begins with.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_metadata::{CreateTopicRequest, MetadataImage, MetadataRecord, Refusal};
use tidemark_types::{ErrorCode, NodeId, TopicId};

use crate::Owner;
use crate::command::{Now, Step};
use crate::draft::Draft;

/// Heads and lengths around one record in a batch of its own.
const METADATA_BATCH_BYTES: usize = 128;

/// One topic to create.
#[derive(Clone, Debug, Default)]
pub struct CreateTopic {
    pub name: String,
    /// -1: `num.partitions`.
    pub partitions: i32,
    /// -1: `default.replication.factor`.
    pub replication_factor: i16,
    pub assignments: Vec<(i32, Vec<i32>)>,
    pub configs: Vec<(String, Option<String>)>,
}

#[derive(Clone, Debug)]
pub struct CreateTopics {
    pub topics: Vec<CreateTopic>,
    pub validate_only: bool,
    /// Asked for by Metadata, not by CreateTopics: with the broker's defaults, never internal ones.
    pub auto: bool,
}

/// What became of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    pub name: String,
    pub error: ErrorCode,
    pub message: Option<String>,
    /// Zero if it was refused; the id of no topic if it was only validated.
    pub id: TopicId,
    pub partitions: i32,
    /// The topic's own configs, as they are stored.
    pub config: BTreeMap<String, String>,
}

/// What a record takes in a batch of its own.
pub(crate) fn metadata_bytes(record: &MetadataRecord) -> usize {
    record.key().len() + record.value().len() + METADATA_BATCH_BYTES
}

impl Owner {
    /// The first record of a new data directory: who it is, and the coordinators' topics.
    pub fn bootstrap(
        &mut self,
        cluster_id: &str,
        node_id: NodeId,
        incarnation: u64,
        now: &Now<'_>,
    ) -> Step {
        assert!(
            self.metadata.cluster_id().is_none(),
            "only an empty directory is bootstrapped"
        );
        let records = MetadataImage::bootstrap_records(cluster_id, node_id, incarnation);
        let mut step = Step::default();
        let mut draft = self.begin(now);
        self.append_metadata(&mut draft, &records);
        self.finish(draft, &mut step);
        step
    }

    /// The journal's epoch rose at this start: every leader epoch follows it.
    pub fn begin_journal_epoch(&mut self, epoch: i32, cut_bytes: u64, now: &Now<'_>) -> Step {
        let mut step = Step::default();
        let mut draft = self.begin(now);
        let record = MetadataRecord::JournalEpoch {
            epoch,
            wall_ms: now.wall_ms,
            cut_bytes,
        };
        self.append_metadata(&mut draft, &[record]);
        self.finish(draft, &mut step);
        step
    }

    pub(crate) fn create_topics(
        &mut self,
        request: CreateTopics,
        now: &mut Now<'_>,
        step: &mut Step,
    ) -> Vec<CreatedTopic> {
        let mut times_named: BTreeMap<String, usize> = BTreeMap::new();
        for topic in &request.topics {
            *times_named.entry(topic.name.clone()).or_default() += 1;
        }
        let mut draft = self.begin(now);
        let mut named = BTreeSet::new();
        let created = request
            .topics
            .iter()
            // A name that comes twice is refused once.
            .filter(|topic| named.insert(&topic.name))
            .map(|topic| {
                let decided = if times_named[&topic.name] > 1 {
                    Err((
                        ErrorCode::InvalidRequest,
                        "Duplicate topic name.".to_owned(),
                    ))
                } else {
                    self.decide_create(topic, request.auto, TopicId((now.uuid)()))
                };
                match decided {
                    Err((error, message)) => CreatedTopic {
                        name: topic.name.clone(),
                        error,
                        message: Some(message),
                        id: TopicId::ZERO,
                        partitions: -1,
                        config: BTreeMap::new(),
                    },
                    Ok((.., record)) if !self.has_room_for(&draft, 0, [&record]) => CreatedTopic {
                        name: topic.name.clone(),
                        error: ErrorCode::InvalidRequest,
                        message: Some(
                            "with what stands before it in the request the topic does not fit one \
                             journal record; create fewer at a time"
                                .to_owned(),
                        ),
                        id: TopicId::ZERO,
                        partitions: -1,
                        config: BTreeMap::new(),
                    },
                    Ok((id, partitions, config, record)) => {
                        if !request.validate_only {
                            self.append_metadata(&mut draft, &[record]);
                        }
                        CreatedTopic {
                            name: topic.name.clone(),
                            error: ErrorCode::None,
                            message: None,
                            // Also where it is only validated, as in Kafka.
                            id,
                            partitions,
                            config,
                        }
                    }
                }
            })
            .collect();
        self.finish(draft, step);
        created
    }

    /// True if the records fit beside the draft and `more` bytes that are still to come.
    pub(crate) fn has_room_for<'a>(
        &self,
        draft: &Draft,
        more: usize,
        records: impl IntoIterator<Item = &'a MetadataRecord>,
    ) -> bool {
        let bytes: usize = records.into_iter().map(metadata_bytes).sum();
        draft.bytes + more + bytes <= self.max_record_bytes
    }

    fn decide_create(
        &self,
        topic: &CreateTopic,
        auto: bool,
        fresh: TopicId,
    ) -> Result<(TopicId, i32, BTreeMap<String, String>, MetadataRecord), Refusal> {
        let limits = &self.options.topics;
        let record = if auto {
            self.metadata
                .decide_auto_create_topic(&topic.name, limits, fresh)?
        } else {
            let request = CreateTopicRequest {
                name: &topic.name,
                partitions: topic.partitions,
                replication_factor: topic.replication_factor,
                assignments: &topic.assignments,
                configs: &topic.configs,
            };
            self.metadata.decide_create_topic(&request, limits, fresh)?
        };
        match &record {
            MetadataRecord::TopicCreated {
                id,
                partitions,
                config,
                ..
            } => Ok((*id, *partitions, config.clone(), record)),
            other => panic!("creating a topic decided on {other:?}"),
        }
    }
}
