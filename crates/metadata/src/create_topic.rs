//! CreateTopics and auto-creation: Kafka's checks in Kafka's order, with Kafka's codes.

use std::collections::BTreeSet;

use tidemark_types::{CLUSTER_METADATA, ErrorCode, NodeId, TopicId};

use crate::Refusal;
use crate::check_config::check_new_configs;
use crate::image::MetadataImage;
use crate::record::MetadataRecord;
use crate::topic_name::{collision_key, is_internal_topic, validate_topic_name};

/// One topic of a CreateTopics request, as it was asked for.
#[derive(Clone, Copy, Debug)]
pub struct CreateTopicRequest<'a> {
    pub name: &'a str,
    /// -1: the broker's default.
    pub partitions: i32,
    /// -1: the broker's default.
    pub replication_factor: i16,
    /// Manual assignments: partition and its brokers. Empty for none.
    pub assignments: &'a [(i32, Vec<i32>)],
    /// A null value is refused, as in Kafka.
    pub configs: &'a [(String, Option<String>)],
}

impl<'a> CreateTopicRequest<'a> {
    /// A topic with the broker's defaults in everything.
    pub fn with_defaults(name: &'a str) -> CreateTopicRequest<'a> {
        CreateTopicRequest {
            name,
            partitions: -1,
            replication_factor: -1,
            assignments: &[],
            configs: &[],
        }
    }
}

/// Most partitions of one topic, where nothing else is configured: Kafka's limit for one request.
pub const DEFAULT_MAX_PARTITIONS_PER_TOPIC: i32 = 10_000;

/// What `max.partitions.per.topic` may be at most. Records that say more are refused: each partition takes
/// memory when they are read.
pub const MAX_PARTITIONS_PER_TOPIC: i32 = 1_000_000;

/// The least `segment.bytes`, where nothing else is configured: Kafka's since 4.0 (KIP-1030).
pub const DEFAULT_SEGMENT_BYTES_MIN: i32 = 1_048_576;

/// What the broker's configuration says about new topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicLimits {
    /// `num.partitions`.
    pub default_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// `replication.factor.clamp`: more replicas than there are brokers are not refused but become
    /// as many as there are brokers.
    pub clamp_replication_factor: bool,
    /// `segment.bytes.min`: the least that a topic's `segment.bytes` may be.
    pub segment_bytes_min: i32,
    pub max_partitions_per_topic: i32,
    /// Partitions of all topics together, internal ones included.
    pub max_partitions: i64,
}

impl Default for TopicLimits {
    fn default() -> TopicLimits {
        TopicLimits {
            default_partitions: 1,
            default_replication_factor: 1,
            clamp_replication_factor: false,
            segment_bytes_min: DEFAULT_SEGMENT_BYTES_MIN,
            max_partitions_per_topic: DEFAULT_MAX_PARTITIONS_PER_TOPIC,
            max_partitions: 200_000,
        }
    }
}

impl MetadataImage {
    /// Decides on one topic of a CreateTopics request. `fresh` is a random id never used before.
    ///
    /// Duplicates within a request are the caller's to refuse (INVALID_REQUEST): only it sees the
    /// whole request. With `validate_only` the caller drops the record.
    pub fn decide_create_topic(
        &self,
        request: &CreateTopicRequest<'_>,
        limits: &TopicLimits,
        fresh: TopicId,
    ) -> Result<MetadataRecord, Refusal> {
        assert!(!fresh.is_reserved(), "topic id {fresh} is reserved");
        assert!(
            self.topic_by_id(fresh).is_none(),
            "topic id {fresh} is in use"
        );
        self.check_new_name(request.name)?;
        let config = check_new_configs(request.configs, limits)?;
        let partitions = if request.assignments.is_empty() {
            self.check_counts(request, limits)?
        } else {
            self.check_assignments(request)?
        };
        self.check_limits(partitions, partitions, limits)?;
        Ok(MetadataRecord::TopicCreated {
            name: request.name.to_owned(),
            id: fresh,
            partitions,
            config,
        })
    }

    /// Decides on a topic that Metadata (or FindCoordinator) asked for and that does not exist,
    /// where auto.create.topics.enable is on. Internal topics exist from the first start, so their
    /// names are never created this way.
    pub fn decide_auto_create_topic(
        &self,
        name: &str,
        limits: &TopicLimits,
        fresh: TopicId,
    ) -> Result<MetadataRecord, Refusal> {
        if is_internal_topic(name) {
            let message = format!("Internal topic {name} is made by the broker only.");
            return Err((ErrorCode::UnknownTopicOrPartition, message));
        }
        self.decide_create_topic(&CreateTopicRequest::with_defaults(name), limits, fresh)
    }

    fn check_new_name(&self, name: &str) -> Result<(), Refusal> {
        validate_topic_name(name).map_err(|why| {
            let message = format!("Topic name is invalid: {why}");
            (ErrorCode::InvalidTopicException, message)
        })?;
        if self.topic(name).is_some() {
            let message = format!("Topic '{name}' already exists.");
            return Err((ErrorCode::TopicAlreadyExists, message));
        }
        if name == CLUSTER_METADATA {
            let message = format!("Creation of internal topic {name} is prohibited.");
            return Err((ErrorCode::InvalidRequest, message));
        }
        if name.contains(['.', '_']) {
            let key = collision_key(name);
            let collides = |other: &str| other.len() == key.len() && collision_key(other) == key;
            if let Some(other) = self.topics().find(|topic| collides(&topic.name)) {
                let message = format!(
                    "Topic '{name}' collides with existing topic: {}",
                    other.name
                );
                return Err((ErrorCode::InvalidTopicException, message));
            }
        }
        Ok(())
    }

    fn check_counts(
        &self,
        request: &CreateTopicRequest<'_>,
        limits: &TopicLimits,
    ) -> Result<i32, Refusal> {
        let (factor, from) = match request.replication_factor {
            -1 => (
                limits.default_replication_factor,
                " (default.replication.factor)",
            ),
            given => (given, ""),
        };
        if factor < 1 {
            return Err((
                ErrorCode::InvalidReplicationFactor,
                "Replication factor must be larger than 0, or -1 to use the default value."
                    .to_owned(),
            ));
        }
        let partitions = match request.partitions {
            -1 => limits.default_partitions,
            given => given,
        };
        if partitions < 1 {
            return Err((
                ErrorCode::InvalidPartitions,
                "Number of partitions was set to an invalid non-positive value.".to_owned(),
            ));
        }
        if factor > 1 && !limits.clamp_replication_factor {
            return Err((
                ErrorCode::InvalidReplicationFactor,
                format!(
                    "Unable to replicate the partition {factor} time(s){from}: The target \
                     replication factor of {factor} cannot be reached because only 1 broker(s) are \
                     registered. (replication.factor.clamp=true takes 1 instead.)"
                ),
            ));
        }
        Ok(partitions)
    }

    fn check_assignments(&self, request: &CreateTopicRequest<'_>) -> Result<i32, Refusal> {
        let refuse = |code, message: String| Err((code, message));
        if request.replication_factor != -1 {
            return refuse(
                ErrorCode::InvalidRequest,
                "A manual partition assignment was specified, but replication factor was not set \
                 to -1."
                    .to_owned(),
            );
        }
        if request.partitions != -1 {
            return refuse(
                ErrorCode::InvalidRequest,
                "A manual partition assignment was specified, but numPartitions was not set to -1."
                    .to_owned(),
            );
        }
        let mut seen = BTreeSet::new();
        for (partition, brokers) in request.assignments {
            if !seen.insert(*partition) {
                return refuse(
                    ErrorCode::InvalidReplicaAssignment,
                    format!(
                        "Found multiple manual partition assignments for partition {partition}"
                    ),
                );
            }
            self.check_replicas(brokers)?;
        }
        let count = seen.len();
        let consecutive = seen.iter().copied().eq((0..).take(count));
        match i32::try_from(count) {
            Ok(partitions) if consecutive => Ok(partitions),
            _ => refuse(
                ErrorCode::InvalidReplicaAssignment,
                "partitions should be a consecutive 0-based integer sequence".to_owned(),
            ),
        }
    }

    /// One partition's replicas, chosen by hand: they can only be this broker.
    pub(crate) fn check_replicas(&self, brokers: &[i32]) -> Result<(), Refusal> {
        let NodeId(here) = self.node_id();
        let why = match brokers {
            [only] if *only == here => return Ok(()),
            [] => "includes an empty replica list.".to_owned(),
            many => match many.iter().find(|broker| **broker != here) {
                Some(other) => {
                    format!("includes broker {other}, but no such broker is registered.")
                }
                None => format!("includes the broker {here} more than once."),
            },
        };
        Err((
            ErrorCode::InvalidReplicaAssignment,
            format!("The manual partition assignment {why}"),
        ))
    }

    /// The limits of a topic that comes to have `partitions`, `added` of them new.
    pub(crate) fn check_limits(
        &self,
        partitions: i32,
        added: i32,
        limits: &TopicLimits,
    ) -> Result<(), Refusal> {
        if partitions > limits.max_partitions_per_topic {
            let message = format!(
                "Number of partitions {partitions} is over the broker's limit of {} for one topic.",
                limits.max_partitions_per_topic
            );
            return Err((ErrorCode::InvalidPartitions, message));
        }
        if self.partition_count() + i64::from(added) > limits.max_partitions {
            let message = format!(
                "{added} more partition(s) are over the broker's limit of {} in all; there \
                 are {}.",
                limits.max_partitions,
                self.partition_count()
            );
            return Err((ErrorCode::PolicyViolation, message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const FRESH: TopicId = TopicId([7; 16]);

    fn image() -> MetadataImage {
        let mut image = MetadataImage::empty();
        for record in MetadataImage::bootstrap_records("c", NodeId(0), 1) {
            image.apply(&record);
        }
        image.apply(&MetadataRecord::TopicCreated {
            name: "here.already".to_owned(),
            id: TopicId([1; 16]),
            partitions: 2,
            config: BTreeMap::new(),
        });
        image
    }

    fn configs(pairs: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
        let owned = |(k, v): &(&str, Option<&str>)| (k.to_string(), v.map(str::to_owned));
        pairs.iter().map(owned).collect()
    }

    fn create(request: CreateTopicRequest<'_>) -> Result<MetadataRecord, Refusal> {
        image().decide_create_topic(&request, &TopicLimits::default(), FRESH)
    }

    #[test]
    fn minus_one_means_the_brokers_default() {
        let limits = TopicLimits {
            default_partitions: 4,
            ..TopicLimits::default()
        };
        let record = image()
            .decide_create_topic(&CreateTopicRequest::with_defaults("new"), &limits, FRESH)
            .unwrap();
        let expected = MetadataRecord::TopicCreated {
            name: "new".to_owned(),
            id: FRESH,
            partitions: 4,
            config: BTreeMap::new(),
        };
        assert_eq!(record, expected);
    }

    #[test]
    fn names_are_refused_with_kafkas_codes() {
        let cases = [
            ("", ErrorCode::InvalidTopicException),
            ("..", ErrorCode::InvalidTopicException),
            ("a b", ErrorCode::InvalidTopicException),
            ("here.already", ErrorCode::TopicAlreadyExists),
            ("here_already", ErrorCode::InvalidTopicException),
            ("__consumer_offsets", ErrorCode::TopicAlreadyExists),
            ("__consumer.offsets", ErrorCode::InvalidTopicException),
            ("__cluster_metadata", ErrorCode::InvalidRequest),
        ];
        for (name, code) in cases {
            let refusal = create(CreateTopicRequest::with_defaults(name)).unwrap_err();
            assert_eq!(refusal.0, code, "{name}: {}", refusal.1);
        }
    }

    #[test]
    fn counts_are_refused_with_kafkas_codes() {
        let cases = [
            (0, -1, ErrorCode::InvalidPartitions),
            (-2, 1, ErrorCode::InvalidPartitions),
            (i32::MAX, 1, ErrorCode::InvalidPartitions),
            (1, 0, ErrorCode::InvalidReplicationFactor),
            (1, -2, ErrorCode::InvalidReplicationFactor),
            (1, 2, ErrorCode::InvalidReplicationFactor),
            (0, 0, ErrorCode::InvalidReplicationFactor),
        ];
        for (partitions, replication_factor, code) in cases {
            let request = CreateTopicRequest {
                partitions,
                replication_factor,
                ..CreateTopicRequest::with_defaults("new")
            };
            let refusal = create(request).unwrap_err();
            assert_eq!(refusal.0, code, "{partitions} {replication_factor}");
        }
    }

    #[test]
    fn a_default_that_cannot_be_met_names_its_setting() {
        let limits = TopicLimits {
            default_replication_factor: 3,
            ..TopicLimits::default()
        };
        let request = CreateTopicRequest::with_defaults("new");
        let (code, message) = image()
            .decide_create_topic(&request, &limits, FRESH)
            .unwrap_err();
        assert_eq!(code, ErrorCode::InvalidReplicationFactor);
        assert!(message.contains("default.replication.factor"), "{message}");
    }

    #[test]
    fn a_clamped_factor_is_one_and_everything_else_is_still_refused() {
        let limits = TopicLimits {
            default_replication_factor: 3,
            clamp_replication_factor: true,
            ..TopicLimits::default()
        };
        let decide = |partitions, replication_factor, assignments: &[(i32, Vec<i32>)]| {
            let request = CreateTopicRequest {
                partitions,
                replication_factor,
                assignments,
                ..CreateTopicRequest::with_defaults("new")
            };
            let decided = image().decide_create_topic(&request, &limits, FRESH);
            decided.map_err(|(code, _)| code)
        };
        // Asked for, and by the broker's default.
        for factor in [1, 2, 3, i16::MAX, -1] {
            let decided = decide(2, factor, &[]);
            assert!(
                matches!(
                    decided,
                    Ok(MetadataRecord::TopicCreated { partitions: 2, .. })
                ),
                "{factor}: {decided:?}"
            );
        }
        for (partitions, factor, code) in [
            (1, 0, ErrorCode::InvalidReplicationFactor),
            (1, -2, ErrorCode::InvalidReplicationFactor),
            (0, 3, ErrorCode::InvalidPartitions),
        ] {
            assert_eq!(decide(partitions, factor, &[]), Err(code));
        }
        // Who names brokers means them.
        let by_hand = [(0, vec![0, 1, 2])];
        assert_eq!(
            decide(-1, -1, &by_hand),
            Err(ErrorCode::InvalidReplicaAssignment)
        );
    }

    #[test]
    fn small_segments_are_for_brokers_that_allow_them() {
        let decide = |bytes: &str, segment_bytes_min| {
            let limits = TopicLimits {
                segment_bytes_min,
                ..TopicLimits::default()
            };
            let request = CreateTopicRequest {
                configs: &configs(&[("segment.bytes", Some(bytes))]),
                ..CreateTopicRequest::with_defaults("new")
            };
            image().decide_create_topic(&request, &limits, FRESH)
        };
        let (code, message) = decide("20000", DEFAULT_SEGMENT_BYTES_MIN).unwrap_err();
        assert_eq!(code, ErrorCode::InvalidConfig);
        assert!(message.contains("1048576"), "{message}");
        assert!(decide("20000", 14).is_ok());
        assert!(decide("13", 14).is_err());
    }

    #[test]
    fn all_topics_together_have_a_limit() {
        let limits = TopicLimits {
            max_partitions: 104,
            ..TopicLimits::default()
        };
        let request = |partitions| CreateTopicRequest {
            partitions,
            ..CreateTopicRequest::with_defaults("new")
        };
        let decide = |n| image().decide_create_topic(&request(n), &limits, FRESH);
        assert!(decide(2).is_ok());
        assert_eq!(decide(3).unwrap_err().0, ErrorCode::PolicyViolation);
    }

    #[test]
    fn configs_are_checked_and_stored_in_one_form() {
        let good = configs(&[
            ("cleanup.policy", Some("compact , delete")),
            ("retention.ms", Some(" 1000")),
        ]);
        let request = CreateTopicRequest {
            configs: &good,
            ..CreateTopicRequest::with_defaults("new")
        };
        let Ok(MetadataRecord::TopicCreated { config, .. }) = create(request) else {
            panic!("not created");
        };
        assert_eq!(config["cleanup.policy"], "compact,delete");
        assert_eq!(config["retention.ms"], "1000");

        let wrong = [
            ("no.such.config", Some("1"), "Unknown topic config name"),
            ("retention.ms", None, "Null value"),
            ("retention.ms", Some("soon"), "Not a number of type LONG"),
            ("cleanup.policy", Some("burn"), "burn"),
            ("min.compaction.lag.ms", Some("9223372036854775807"), ""),
            ("remote.storage.enable", Some("true"), "Tiered Storage"),
        ];
        for (name, value, says) in wrong {
            let mut given = configs(&[(name, value)]);
            given.extend(configs(&[("max.compaction.lag.ms", Some("10"))]));
            let request = CreateTopicRequest {
                configs: &given,
                ..CreateTopicRequest::with_defaults("new")
            };
            let (code, message) = create(request).unwrap_err();
            assert_eq!(code, ErrorCode::InvalidConfig, "{name}");
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn manual_assignments_may_only_name_this_broker() {
        let wrong = Some(ErrorCode::InvalidReplicaAssignment);
        let cases = [
            (vec![(1, vec![0]), (0, vec![0])], None),
            (vec![(0, vec![])], wrong),
            (vec![(0, vec![1])], wrong),
            (vec![(0, vec![0, 0])], wrong),
            (vec![(0, vec![0]), (0, vec![0])], wrong),
            (vec![(1, vec![0])], wrong),
            (vec![(-1, vec![0]), (0, vec![0])], wrong),
        ];
        for (assignments, refused) in cases {
            let request = CreateTopicRequest {
                assignments: &assignments,
                ..CreateTopicRequest::with_defaults("new")
            };
            let result = create(request);
            assert_eq!(result.err().map(|r| r.0), refused, "{assignments:?}");
        }
        let both = CreateTopicRequest {
            assignments: &[(0, vec![0])],
            partitions: 1,
            ..CreateTopicRequest::with_defaults("new")
        };
        assert_eq!(create(both).unwrap_err().0, ErrorCode::InvalidRequest);
    }

    #[test]
    fn auto_creation_never_makes_an_internal_topic() {
        let limits = TopicLimits::default();
        let auto = |name| image().decide_auto_create_topic(name, &limits, FRESH);
        assert!(auto("new").is_ok());
        assert_eq!(
            auto("__cluster_metadata").unwrap_err().0,
            ErrorCode::UnknownTopicOrPartition
        );
        assert_eq!(auto("a/b").unwrap_err().0, ErrorCode::InvalidTopicException);
    }
}
