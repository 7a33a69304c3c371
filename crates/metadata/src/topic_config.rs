//! Every topic config of Kafka 4.x: one row each, from which validation, DescribeConfigs, the
//! broker's own defaults (`log.*`) and the typed [`TopicConfig`] are made.

use std::collections::BTreeMap;

use crate::value::{Check, Kind, list_items};

/// One topic config.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopicConfigKey {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub check: Check,
    /// The broker's settings that give this config its default, the strongest first. The last one
    /// has the default of its own; the others have none.
    pub synonyms: &'static [TopicSynonym],
    pub doc: &'static str,
}

impl TopicConfigKey {
    /// The broker setting that changes this config's default while the broker runs, as in Kafka the
    /// strongest one. It has the config's own unit.
    pub fn dynamic_synonym(&self) -> Option<&'static str> {
        let strongest = self.synonyms.first()?;
        (strongest.unit == SynonymUnit::Same).then_some(strongest.key)
    }
}

/// A setting of brokers that can change while they run and is no topic config's default. It has the
/// shape of one, so that it is checked, stored and described as they are.
pub const PRODUCER_ID_EXPIRATION_MS: &TopicConfigKey = &TopicConfigKey {
    name: "producer.id.expiration.ms",
    kind: Kind::Int,
    default: "86400000",
    check: Check::AtLeast(1),
    synonyms: &[TopicSynonym {
        key: "producer.id.expiration.ms",
        unit: SynonymUnit::Same,
    }],
    doc: "How long a partition remembers a producer that writes nothing, in milliseconds. A producer with an open transaction is never forgotten.",
};

/// The row of a broker setting that can change while the broker runs: mostly the topic config whose
/// default it is.
pub fn dynamic_broker_key(name: &str) -> Option<&'static TopicConfigKey> {
    TOPIC_CONFIGS
        .iter()
        .chain([PRODUCER_ID_EXPIRATION_MS])
        .find(|key| key.dynamic_synonym() == Some(name))
}

/// A broker setting that a topic config takes its default from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopicSynonym {
    pub key: &'static str,
    pub unit: SynonymUnit,
}

/// What a broker setting is counted in, where the topic config counts milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynonymUnit {
    /// The topic config's own unit.
    Same,
    Minutes,
    Hours,
}

impl SynonymUnit {
    /// The broker's value in the topic config's unit. Negative times mean "none" in any unit.
    pub fn to_topic(self, value: &str) -> String {
        let factor_ms = match self {
            SynonymUnit::Same => return value.to_owned(),
            SynonymUnit::Minutes => 60_000,
            SynonymUnit::Hours => 3_600_000,
        };
        match value.trim().parse::<i64>() {
            Ok(n) if n >= 0 => n.saturating_mul(factor_ms).to_string(),
            _ => value.to_owned(),
        }
    }
}

const fn same(key: &'static str) -> TopicSynonym {
    let unit = SynonymUnit::Same;
    TopicSynonym { key, unit }
}

const fn minutes(key: &'static str) -> TopicSynonym {
    let unit = SynonymUnit::Minutes;
    TopicSynonym { key, unit }
}

const fn hours(key: &'static str) -> TopicSynonym {
    let unit = SynonymUnit::Hours;
    TopicSynonym { key, unit }
}

/// A value of a config as the broker uses it.
trait FromConfig: Copy {
    fn from_config(text: &str) -> Option<Self>;
}

macro_rules! from_config_by_parse {
    ($($ty:ty),*) => {
        $(impl FromConfig for $ty {
            fn from_config(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        })*
    };
}

from_config_by_parse!(bool, i32, i64, f64);

/// What becomes of a topic's old data. Both may be set, and neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

impl FromConfig for CleanupPolicy {
    fn from_config(text: &str) -> Option<Self> {
        let items = list_items(text);
        Some(CleanupPolicy {
            delete: items.contains(&"delete"),
            compact: items.contains(&"compact"),
        })
    }
}

/// Whose clock a record's timestamp is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageTimestampType {
    CreateTime,
    LogAppendTime,
}

impl FromConfig for MessageTimestampType {
    fn from_config(text: &str) -> Option<Self> {
        match text {
            "CreateTime" => Some(MessageTimestampType::CreateTime),
            "LogAppendTime" => Some(MessageTimestampType::LogAppendTime),
            _ => None,
        }
    }
}

/// How a topic's batches are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionType {
    /// As the producer sent them.
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl FromConfig for CompressionType {
    fn from_config(text: &str) -> Option<Self> {
        match text {
            "producer" => Some(CompressionType::Producer),
            "uncompressed" => Some(CompressionType::Uncompressed),
            "gzip" => Some(CompressionType::Gzip),
            "snappy" => Some(CompressionType::Snappy),
            "lz4" => Some(CompressionType::Lz4),
            "zstd" => Some(CompressionType::Zstd),
            _ => None,
        }
    }
}

macro_rules! topic_configs {
    (
        typed { $(
            $field:ident: $ty:ty = ($name:literal, $kind:ident, $default:literal, $check:expr, [$($synonym:expr),*], $doc:literal);
        )* }
        untyped { $(
            ($uname:literal, $ukind:ident, $udefault:literal, $ucheck:expr, [$($usynonym:expr),*], $udoc:literal);
        )* }
    ) => {
        /// Every topic config, by name.
        pub const TOPIC_CONFIGS: &[TopicConfigKey] = &[
            $(TopicConfigKey {
                name: $name,
                kind: Kind::$kind,
                default: $default,
                check: $check,
                synonyms: &[$($synonym),*],
                doc: $doc,
            },)*
            $(TopicConfigKey {
                name: $uname,
                kind: Kind::$ukind,
                default: $udefault,
                check: $ucheck,
                synonyms: &[$($usynonym),*],
                doc: $udoc,
            },)*
        ];

        /// A topic's configuration, every value resolved. Sizes are bytes, times milliseconds.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct TopicConfig {
            $(#[doc = $doc] pub $field: $ty,)*
        }

        /// The values a topic sets itself.
        #[derive(Clone, Copy, Debug, PartialEq, Default)]
        pub(crate) struct TopicOverrides {
            $($field: Option<$ty>,)*
        }

        impl TopicOverrides {
            /// Parses what was checked when it was set. A value that cannot be read (written by
            /// another version) counts as not set, and stays visible in DescribeConfigs.
            pub(crate) fn parse(config: &BTreeMap<String, String>) -> TopicOverrides {
                TopicOverrides {
                    $($field: config.get($name).and_then(|text| <$ty>::from_config(text)),)*
                }
            }

            pub(crate) fn over(&self, defaults: &TopicConfig) -> TopicConfig {
                TopicConfig {
                    $($field: self.$field.unwrap_or(defaults.$field),)*
                }
            }
        }

        impl Default for TopicConfig {
            /// Kafka's own defaults.
            fn default() -> TopicConfig {
                TopicConfig {
                    $($field: <$ty>::from_config($default)
                        .expect("every row's default is a value of its type, as a test shows"),)*
                }
            }
        }
    };
}

topic_configs! {
    typed {
        cleanup_policy: CleanupPolicy = ("cleanup.policy", List, "delete", Check::OneOf(&["compact", "delete"]), [same("log.cleanup.policy")],
            "What becomes of old data: \"delete\" drops old segments by retention, \"compact\" keeps the last value of each key; both may be set.");
        compression_gzip_level: i32 = ("compression.gzip.level", Int, "-1", Check::BetweenOr(1, 9, -1), [same("compression.gzip.level")],
            "Level for gzip when compression.type is gzip; -1 is gzip's own default.");
        compression_lz4_level: i32 = ("compression.lz4.level", Int, "9", Check::Between(1, 17), [same("compression.lz4.level")],
            "Level for lz4 when compression.type is lz4.");
        compression_type: CompressionType = ("compression.type", String, "producer", Check::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), [same("compression.type")],
            "How batches are stored; \"producer\" keeps them as they were sent.");
        compression_zstd_level: i32 = ("compression.zstd.level", Int, "3", Check::Between(-131_072, 22), [same("compression.zstd.level")],
            "Level for zstd when compression.type is zstd.");
        errors_deadletterqueue_group_enable: bool = ("errors.deadletterqueue.group.enable", Boolean, "false", Check::Any, [],
            "Whether share groups may write what they could not deliver to this topic. Tidemark has no share groups yet.");
        delete_retention_ms: i64 = ("delete.retention.ms", Long, "86400000", Check::AtLeast(0), [same("log.cleaner.delete.retention.ms")],
            "How long compaction keeps tombstones and transaction markers after it could drop them, in milliseconds.");
        file_delete_delay_ms: i64 = ("file.delete.delay.ms", Long, "60000", Check::AtLeast(0), [same("log.segment.delete.delay.ms")],
            "How long a removed segment's file stays on disk, in milliseconds.");
        flush_messages: i64 = ("flush.messages", Long, "9223372036854775807", Check::AtLeast(1), [same("log.flush.interval.messages")],
            "Kafka's count of records between syncs. Tidemark syncs before it acknowledges and needs no such count.");
        flush_ms: i64 = ("flush.ms", Long, "9223372036854775807", Check::AtLeast(0), [same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")],
            "Kafka's time between syncs. Tidemark syncs before it acknowledges and needs no such time.");
        index_interval_bytes: i32 = ("index.interval.bytes", Int, "4096", Check::AtLeast(0), [same("log.index.interval.bytes")],
            "How many bytes of a segment lie between two entries of its offset index.");
        local_retention_bytes: i64 = ("local.retention.bytes", Long, "-2", Check::AtLeast(-2), [same("log.local.retention.bytes")],
            "Bytes of a tiered partition kept locally; -2 means retention.bytes. Tidemark has no tiered storage.");
        local_retention_ms: i64 = ("local.retention.ms", Long, "-2", Check::AtLeast(-2), [same("log.local.retention.ms")],
            "Time a tiered partition's data is kept locally; -2 means retention.ms. Tidemark has no tiered storage.");
        max_compaction_lag_ms: i64 = ("max.compaction.lag.ms", Long, "9223372036854775807", Check::AtLeast(1), [same("log.cleaner.max.compaction.lag.ms")],
            "The longest a record stays out of compaction's reach, in milliseconds.");
        max_decompressed_message_bytes: i32 = ("max.decompressed.message.bytes", Int, "2147483639", Check::Between(1, 2_147_483_639), [same("max.decompressed.message.bytes")],
            "The largest record a producer may write, in bytes, after decompression.");
        max_message_bytes: i32 = ("max.message.bytes", Int, "1048588", Check::AtLeast(0), [same("message.max.bytes")],
            "The largest batch a producer may write, in bytes, after compression.");
        message_timestamp_after_max_ms: i64 = ("message.timestamp.after.max.ms", Long, "3600000", Check::AtLeast(0), [same("log.message.timestamp.after.max.ms")],
            "How far a record's timestamp may be ahead of the broker's clock, in milliseconds.");
        message_timestamp_before_max_ms: i64 = ("message.timestamp.before.max.ms", Long, "9223372036854775807", Check::AtLeast(0), [same("log.message.timestamp.before.max.ms")],
            "How far a record's timestamp may be behind the broker's clock, in milliseconds.");
        message_timestamp_type: MessageTimestampType = ("message.timestamp.type", String, "CreateTime", Check::OneOf(&["CreateTime", "LogAppendTime"]), [same("log.message.timestamp.type")],
            "Whose clock stamps a record: the producer's (CreateTime) or the broker's (LogAppendTime).");
        min_cleanable_dirty_ratio: f64 = ("min.cleanable.dirty.ratio", Double, "0.5", Check::Fraction(0.0, 1.0), [same("log.cleaner.min.cleanable.ratio")],
            "The share of a compacted log that must be new before it is compacted again.");
        min_compaction_lag_ms: i64 = ("min.compaction.lag.ms", Long, "0", Check::AtLeast(0), [same("log.cleaner.min.compaction.lag.ms")],
            "How long a record stays out of compaction's reach at least, in milliseconds.");
        min_insync_replicas: i32 = ("min.insync.replicas", Int, "1", Check::AtLeast(1), [same("min.insync.replicas")],
            "How many replicas must have a record before it is acknowledged to acks=all.");
        preallocate: bool = ("preallocate", Boolean, "false", Check::Any, [same("log.preallocate")],
            "Whether a new segment's file is given its whole size at once.");
        remote_copy_lag_bytes: i64 = ("remote.copy.lag.bytes", Long, "-1", Check::AtLeast(-1), [same("log.remote.copy.lag.bytes")],
            "Newer bytes a segment waits for before it is tiered. Tidemark has no tiered storage.");
        remote_copy_lag_ms: i64 = ("remote.copy.lag.ms", Long, "0", Check::AtLeast(-1), [same("log.remote.copy.lag.ms")],
            "Time a segment waits before it is tiered. Tidemark has no tiered storage.");
        remote_log_copy_disable: bool = ("remote.log.copy.disable", Boolean, "false", Check::Any, [],
            "Whether tiering of new data stops. Tidemark has no tiered storage.");
        remote_log_delete_on_disable: bool = ("remote.log.delete.on.disable", Boolean, "false", Check::Any, [],
            "Whether tiered data goes when tiering is switched off. Tidemark has no tiered storage.");
        remote_storage_enable: bool = ("remote.storage.enable", Boolean, "false", Check::Any, [],
            "Whether the topic is tiered. Tidemark has no tiered storage and refuses true.");
        retention_bytes: i64 = ("retention.bytes", Long, "-1", Check::Any, [same("log.retention.bytes")],
            "How many bytes of a partition are kept under \"delete\"; -1 is no limit.");
        retention_ms: i64 = ("retention.ms", Long, "604800000", Check::AtLeast(-1), [same("log.retention.ms"), minutes("log.retention.minutes"), hours("log.retention.hours")],
            "How long a partition's data is kept under \"delete\", in milliseconds; -1 is for ever.");
        segment_bytes: i32 = ("segment.bytes", Int, "1073741824", Check::AtLeast(1_048_576), [same("log.segment.bytes")],
            "The size at which a segment is closed and the next begun, in bytes.");
        segment_index_bytes: i32 = ("segment.index.bytes", Int, "10485760", Check::AtLeast(4), [same("log.index.size.max.bytes")],
            "The largest offset index of a segment, in bytes.");
        segment_jitter_ms: i64 = ("segment.jitter.ms", Long, "0", Check::AtLeast(0), [same("log.roll.jitter.ms"), hours("log.roll.jitter.hours")],
            "The largest random time taken off segment.ms, so that segments do not all close at once.");
        segment_ms: i64 = ("segment.ms", Long, "604800000", Check::AtLeast(1), [same("log.roll.ms"), hours("log.roll.hours")],
            "The age at which a segment is closed though it is not full, in milliseconds.");
        unclean_leader_election_enable: bool = ("unclean.leader.election.enable", Boolean, "false", Check::Any, [same("unclean.leader.election.enable")],
            "Whether a replica that is not in sync may lead. Tidemark never loses acknowledged data this way.");
    }
    untyped {
        ("follower.replication.throttled.replicas", List, "", Check::ThrottledReplicas, [],
            "Replicas whose copying is throttled at the follower.");
        ("leader.replication.throttled.replicas", List, "", Check::ThrottledReplicas, [],
            "Replicas whose copying is throttled at the leader.");
    }
}

/// The row of a topic config.
pub fn topic_config_key(name: &str) -> Option<&'static TopicConfigKey> {
    TOPIC_CONFIGS.iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_named_once_documented_and_has_a_valid_default() {
        let mut names: Vec<_> = TOPIC_CONFIGS.iter().map(|key| key.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TOPIC_CONFIGS.len());
        for key in TOPIC_CONFIGS {
            let stored = key.kind.check(key.check, key.default);
            assert_eq!(stored.as_deref(), Ok(key.default), "{}", key.name);
            assert!(key.doc.ends_with('.'), "{}", key.name);
        }
    }

    #[test]
    fn all_of_kafkas_topic_configs_are_here() {
        // Names of Kafka 4.0 to 4.4.
        let kafka = "cleanup.policy compression.gzip.level compression.lz4.level compression.type \
            compression.zstd.level delete.retention.ms \
            errors.deadletterqueue.group.enable file.delete.delay.ms flush.messages flush.ms \
            max.decompressed.message.bytes remote.copy.lag.bytes remote.copy.lag.ms \
            follower.replication.throttled.replicas index.interval.bytes \
            leader.replication.throttled.replicas local.retention.bytes local.retention.ms \
            max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms \
            message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio \
            min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable \
            remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms \
            segment.bytes segment.index.bytes segment.jitter.ms segment.ms \
            unclean.leader.election.enable";
        for name in kafka.split_whitespace() {
            assert!(topic_config_key(name).is_some(), "{name}");
        }
        assert_eq!(kafka.split_whitespace().count(), TOPIC_CONFIGS.len());
    }

    #[test]
    fn a_topics_own_values_win_over_the_defaults() {
        let defaults = TopicConfig {
            max_message_bytes: 10,
            ..TopicConfig::default()
        };
        let own = BTreeMap::from([
            ("cleanup.policy".to_owned(), "compact,delete".to_owned()),
            ("retention.ms".to_owned(), "-1".to_owned()),
        ]);
        let config = TopicOverrides::parse(&own).over(&defaults);
        assert_eq!(config.max_message_bytes, 10);
        assert_eq!(config.retention_ms, -1);
        assert!(config.cleanup_policy.compact && config.cleanup_policy.delete);
        assert_eq!(config.segment_bytes, 1_073_741_824);
    }

    #[test]
    fn broker_times_are_brought_to_milliseconds() {
        assert_eq!(SynonymUnit::Hours.to_topic("168"), "604800000");
        assert_eq!(SynonymUnit::Minutes.to_topic("1"), "60000");
        assert_eq!(SynonymUnit::Hours.to_topic("-1"), "-1");
        assert_eq!(SynonymUnit::Same.to_topic("5"), "5");
    }
}
