//! Topics, partitions and their configuration: the image readers look at and the records that
//! build it.
//!
//! Pure: no clock, file, socket or randomness. `decide_*` turns a request into a
//! [`MetadataRecord`] or a Kafka error; [`MetadataImage::apply`] is the only thing that changes an
//! image, while the broker runs and when the journal is replayed.

mod acls;
mod alter_broker_config;
mod alter_config;
mod check_config;
mod codec;
mod create_partitions;
mod create_topic;
mod delete_topic;
mod describe;
mod expire_producers;
mod image;
mod invariants;
mod producer_ids;
mod record;
mod scram;
mod topic_config;
mod topic_defaults;
mod topic_name;
mod value;

pub use alter_config::ConfigChange;
pub use create_topic::{
    CreateTopicRequest, DEFAULT_MAX_PARTITIONS_PER_TOPIC, MAX_PARTITIONS_PER_TOPIC, TopicLimits,
};
pub use describe::{
    ConfigEntry, ConfigSource, ConfigSynonym, describe_every_broker, describe_topic_configs,
    overlay_dynamic,
};
pub use image::{JournalEpochEntry, MetadataImage, TopicImage};
pub use producer_ids::ProducerIdRange;
pub use record::{DecodeError, FEATURE_LEVEL, MetadataRecord, SNAPSHOT_LEVEL};
pub use scram::{
    MAX_SALT_BYTES, MAX_USER_BYTES, ScramCredential, ScramDecided, ScramDeletion, ScramMechanism,
    ScramUpsertion,
};
pub use topic_config::{
    CleanupPolicy, CompressionType, MessageTimestampType, PRODUCER_ID_EXPIRATION_MS, SynonymUnit,
    TOPIC_CONFIGS, TopicConfig, TopicConfigKey, TopicSynonym, topic_config_key,
};
pub use topic_defaults::{BrokerValue, TopicDefaults};
pub use topic_name::{MAX_TOPIC_NAME_BYTES, collision_key, is_internal_topic, validate_topic_name};
pub use value::{Check, Kind};

/// A refusal as Kafka answers it: the code and the sentence for `error_message`.
pub type Refusal = (tidemark_types::ErrorCode, String);
