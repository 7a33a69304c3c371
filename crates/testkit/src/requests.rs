//! Requests as librdkafka sends them, from few words.

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, BrokerId, CreateTopicsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, EndTxnRequest, FetchRequest, GroupId,
    InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest,
    OffsetFetchRequest, ProduceRequest, ProducerId, TopicName, TransactionalId,
    TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::StrBytes;
use tidemark_types::ErrorCode;

use crate::calls::Isolation;

/// ListOffsets' timestamp for the end of what the reader may see.
pub const LATEST: i64 = -1;
/// ListOffsets' timestamp for the log start.
pub const EARLIEST: i64 = -2;

pub fn text(s: &str) -> StrBytes {
    StrBytes::from_string(s.to_owned())
}

pub fn topic_name(s: &str) -> TopicName {
    TopicName(text(s))
}

pub fn transactional_id(s: &str) -> TransactionalId {
    TransactionalId(text(s))
}

/// # Panics
/// For a code that Kafka does not know.
pub fn error_code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or_else(|| panic!("error code {code} is none of Kafka's"))
}

/// Produce, acks=all: each partition's batch.
pub fn produce(
    transactional: Option<&str>,
    batches: impl IntoIterator<Item = (impl AsRef<str>, i32, Bytes)>,
) -> ProduceRequest {
    let topics = batches
        .into_iter()
        .map(|(topic, partition, batch)| {
            TopicProduceData::default()
                .with_name(topic_name(topic.as_ref()))
                .with_partition_data(vec![
                    PartitionProduceData::default()
                        .with_index(partition)
                        .with_records(Some(batch)),
                ])
        })
        .collect();
    ProduceRequest::default()
        .with_transactional_id(transactional.map(transactional_id))
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(topics)
}

/// Fetch of one topic from (partition, offset) each, answered at once.
pub fn fetch(topic: &str, from: &[(i32, i64)], isolation: Isolation) -> FetchRequest {
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_isolation_level(isolation as i8)
        .with_session_epoch(-1)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(topic_name(topic))
                .with_partitions(
                    from.iter()
                        .map(|(partition, offset)| {
                            FetchPartition::default()
                                .with_partition(*partition)
                                .with_current_leader_epoch(-1)
                                .with_fetch_offset(*offset)
                                .with_partition_max_bytes(10 << 20)
                        })
                        .collect(),
                ),
        ])
}

/// ListOffsets of one topic's partitions.
pub fn list_offsets(
    topic: &str,
    partitions: impl IntoIterator<Item = i32>,
    timestamp: i64,
    isolation: Isolation,
) -> ListOffsetsRequest {
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation as i8)
        .with_topics(vec![
            ListOffsetsTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(
                    partitions
                        .into_iter()
                        .map(|partition| {
                            ListOffsetsPartition::default()
                                .with_partition_index(partition)
                                .with_current_leader_epoch(-1)
                                .with_timestamp(timestamp)
                        })
                        .collect(),
                ),
        ])
}

pub fn delete_topic(topic: &str) -> DeleteTopicsRequest {
    DeleteTopicsRequest::default()
        .with_topic_names(vec![topic_name(topic)])
        .with_timeout_ms(30_000)
}

/// DeleteRecords of one partition; -1 is everything below the high watermark.
pub fn delete_records(topic: &str, partition: i32, offset: i64) -> DeleteRecordsRequest {
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(partition)
        .with_offset(offset);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    DeleteRecordsRequest::default()
        .with_timeout_ms(30_000)
        .with_topics(vec![topic])
}

/// Metadata of the topics; none of them is made.
pub fn metadata(topics: &[&str]) -> MetadataRequest {
    let topics = topics
        .iter()
        .map(|topic| MetadataRequestTopic::default().with_name(Some(topic_name(topic))))
        .collect();
    MetadataRequest::default()
        .with_topics(Some(topics))
        .with_allow_auto_topic_creation(false)
}

pub fn create_topic(topic: &str, partitions: i32, configs: &[(&str, &str)]) -> CreateTopicsRequest {
    let configs = configs
        .iter()
        .map(|(name, value)| {
            CreatableTopicConfig::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
        })
        .collect();
    CreateTopicsRequest::default()
        .with_timeout_ms(30_000)
        .with_topics(vec![
            CreatableTopic::default()
                .with_name(topic_name(topic))
                .with_num_partitions(partitions)
                .with_replication_factor(1)
                .with_configs(configs),
        ])
}

/// InitProducerId of a new session; without a transactional id for an idempotent producer.
pub fn init_producer_id(transactional: Option<&str>, timeout_ms: i32) -> InitProducerIdRequest {
    InitProducerIdRequest::default()
        .with_transactional_id(transactional.map(transactional_id))
        .with_transaction_timeout_ms(timeout_ms)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1)
}

pub fn add_partitions(
    id: &str,
    producer: (i64, i16),
    partitions: &[(&str, i32)],
) -> AddPartitionsToTxnRequest {
    let topics = partitions
        .iter()
        .map(|(topic, partition)| {
            AddPartitionsToTxnTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(vec![*partition])
        })
        .collect();
    AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transactional_id(id))
        .with_v3_and_below_producer_id(ProducerId(producer.0))
        .with_v3_and_below_producer_epoch(producer.1)
        .with_v3_and_below_topics(topics)
}

pub fn add_offsets(id: &str, producer: (i64, i16), group: &str) -> AddOffsetsToTxnRequest {
    AddOffsetsToTxnRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_producer_id(ProducerId(producer.0))
        .with_producer_epoch(producer.1)
        .with_group_id(GroupId(text(group)))
}

pub fn end_txn(id: &str, producer: (i64, i16), commit: bool) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_producer_id(ProducerId(producer.0))
        .with_producer_epoch(producer.1)
        .with_committed(commit)
}

/// TxnOffsetCommit of (topic, partition, offset) each, without a member.
pub fn txn_offset_commit(
    id: &str,
    producer: (i64, i16),
    group: &str,
    offsets: &[(&str, i32, i64)],
) -> TxnOffsetCommitRequest {
    let topics = offsets
        .iter()
        .map(|(topic, partition, offset)| {
            TxnOffsetCommitRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(vec![
                    TxnOffsetCommitRequestPartition::default()
                        .with_partition_index(*partition)
                        .with_committed_offset(*offset)
                        .with_committed_metadata(Some(text(""))),
                ])
        })
        .collect();
    TxnOffsetCommitRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_group_id(GroupId(text(group)))
        .with_producer_id(ProducerId(producer.0))
        .with_producer_epoch(producer.1)
        .with_topics(topics)
}

/// OffsetCommit of (topic, partition, offset) each, without a member.
pub fn offset_commit(group: &str, offsets: &[(&str, i32, i64)]) -> OffsetCommitRequest {
    let topics = offsets
        .iter()
        .map(|(topic, partition, offset)| {
            OffsetCommitRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(vec![
                    OffsetCommitRequestPartition::default()
                        .with_partition_index(*partition)
                        .with_committed_offset(*offset)
                        .with_committed_metadata(Some(text(""))),
                ])
        })
        .collect();
    OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(topics)
}

/// OffsetFetch (v8 and later) of one topic's partitions.
pub fn offset_fetch(
    group: &str,
    topic: &str,
    partitions: &[i32],
    require_stable: bool,
) -> OffsetFetchRequest {
    let topics = OffsetFetchRequestTopics::default()
        .with_name(topic_name(topic))
        .with_partition_indexes(partitions.to_vec());
    OffsetFetchRequest::default()
        .with_require_stable(require_stable)
        .with_groups(vec![
            OffsetFetchRequestGroup::default()
                .with_group_id(GroupId(text(group)))
                .with_topics(Some(vec![topics])),
        ])
}
