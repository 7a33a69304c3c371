//! Whole calls: request, answer, the one thing in it that a test wants.

use bytes::Bytes;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{
    AddPartitionsToTxnResponse, ListOffsetsResponse, OffsetCommitResponse, ProduceResponse,
    TxnOffsetCommitResponse,
};
use tidemark_types::ErrorCode;

use crate::client::RawClient;
use crate::fetched::{Fetched, FetchedRecord, fetched};
use crate::requests::{self, error_code};

/// Whose records a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadUncommitted = 0,
    ReadCommitted = 1,
}

/// Versions that librdkafka 2.x uses.
pub mod version {
    pub const PRODUCE: i16 = 10;
    pub const FETCH: i16 = 12;
    pub const LIST_OFFSETS: i16 = 7;
    pub const METADATA: i16 = 12;
    pub const OFFSET_COMMIT: i16 = 9;
    pub const OFFSET_FETCH: i16 = 9;
    pub const CREATE_TOPICS: i16 = 4;
    pub const DELETE_RECORDS: i16 = 1;
    pub const DELETE_TOPICS: i16 = 4;
    pub const INIT_PRODUCER_ID: i16 = 4;
    pub const ADD_PARTITIONS_TO_TXN: i16 = 0;
    pub const ADD_OFFSETS_TO_TXN: i16 = 0;
    pub const END_TXN: i16 = 1;
    pub const TXN_OFFSET_COMMIT: i16 = 3;
}

fn checked<T>(code: i16, value: T) -> Result<T, ErrorCode> {
    match error_code(code) {
        ErrorCode::None => Ok(value),
        error => Err(error),
    }
}

/// Each partition's base offset or error, in the response's order.
pub fn produced(response: &ProduceResponse) -> Vec<Result<i64, ErrorCode>> {
    response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .map(|p| checked(p.error_code, p.base_offset))
        .collect()
}

/// Each partition's (partition, offset or error), in the response's order.
pub fn listed(response: &ListOffsetsResponse) -> Vec<(i32, Result<i64, ErrorCode>)> {
    response
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|p| (p.partition_index, checked(p.error_code, p.offset)))
        .collect()
}

/// The first error of any partition.
pub fn enrolled(response: &AddPartitionsToTxnResponse) -> Result<(), ErrorCode> {
    response
        .results_by_topic_v3_and_below
        .iter()
        .flat_map(|topic| &topic.results_by_partition)
        .try_for_each(|p| checked(p.partition_error_code, ()))
}

/// The first error of any partition.
pub fn txn_offsets_committed(response: &TxnOffsetCommitResponse) -> Result<(), ErrorCode> {
    response
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .try_for_each(|p| checked(p.error_code, ()))
}

/// The first error of any partition.
pub fn offsets_committed(response: &OffsetCommitResponse) -> Result<(), ErrorCode> {
    response
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .try_for_each(|p| checked(p.error_code, ()))
}

impl RawClient {
    /// Makes a topic.
    pub async fn create_topic(&mut self, topic: &str, partitions: i32) {
        self.create_topic_with(topic, partitions, &[]).await;
    }

    pub async fn create_topic_with(
        &mut self,
        topic: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) {
        let request = requests::create_topic(topic, partitions, configs);
        let response = self.send(version::CREATE_TOPICS, &request).await;
        for topic in &response.topics {
            let error = error_code(topic.error_code);
            assert_eq!(error, ErrorCode::None, "create {:?}", topic.name);
        }
    }

    pub async fn delete_topic(&mut self, topic: &str) {
        let request = requests::delete_topic(topic);
        let response = self.send(version::DELETE_TOPICS, &request).await;
        let error = error_code(response.responses[0].error_code);
        assert_eq!(error, ErrorCode::None, "delete {topic}");
    }

    /// What Metadata tells of a topic.
    pub async fn describe_topic(&mut self, topic: &str) -> MetadataResponseTopic {
        let request = requests::metadata(&[topic]);
        let mut response = self.send(version::METADATA, &request).await;
        response.topics.remove(0)
    }

    pub async fn cluster_id(&mut self) -> String {
        let response = self.send(version::METADATA, &requests::metadata(&[])).await;
        response
            .cluster_id
            .expect("a cluster has an id")
            .to_string()
    }

    /// Produces one batch, acks=all; its base offset.
    pub async fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: Bytes,
    ) -> Result<i64, ErrorCode> {
        let request = requests::produce(None, [(topic, partition, batch)]);
        produced(&self.send(version::PRODUCE, &request).await)[0]
    }

    /// Produces one batch in a request of a transactional id.
    pub async fn produce_in(
        &mut self,
        transactional: &str,
        topic: &str,
        partition: i32,
        batch: Bytes,
    ) -> Result<i64, ErrorCode> {
        let request = requests::produce(Some(transactional), [(topic, partition, batch)]);
        produced(&self.send(version::PRODUCE, &request).await)[0]
    }

    /// One partition, from an offset, as much as one answer holds.
    pub async fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        isolation: Isolation,
    ) -> Fetched {
        let request = requests::fetch(topic, &[(partition, offset)], isolation);
        let response = self.send(version::FETCH, &request).await;
        fetched(&response).remove(0)
    }

    /// Every record of a partition that a reader of this isolation level hands out, read from its
    /// log start in as many fetches as it takes.
    pub async fn read_all(
        &mut self,
        topic: &str,
        partition: i32,
        isolation: Isolation,
    ) -> Vec<FetchedRecord> {
        let mut at = self
            .list_offset(topic, partition, requests::EARLIEST, isolation)
            .await
            .expect("the partition exists");
        let mut all: Vec<FetchedRecord> = Vec::new();
        loop {
            let fetched = self.fetch(topic, partition, at, isolation).await;
            assert_eq!(
                fetched.error,
                ErrorCode::None,
                "{topic}-{partition} at {at}"
            );
            let Some(next) = fetched.next_offset() else {
                return all;
            };
            assert!(
                next > at,
                "{topic}-{partition}: a fetch at {at} ends at {next}"
            );
            let records = match isolation {
                Isolation::ReadCommitted => fetched.committed(),
                Isolation::ReadUncommitted => fetched.records(),
            };
            // A batch is sent whole, also from its middle.
            all.extend(records.into_iter().filter(|record| record.offset >= at));
            at = next;
        }
    }

    /// The values of [`RawClient::read_all`], as text.
    pub async fn read_values(
        &mut self,
        topic: &str,
        partition: i32,
        isolation: Isolation,
    ) -> Vec<String> {
        let records = self.read_all(topic, partition, isolation).await;
        records.iter().map(FetchedRecord::text).collect()
    }

    pub async fn list_offset(
        &mut self,
        topic: &str,
        partition: i32,
        timestamp: i64,
        isolation: Isolation,
    ) -> Result<i64, ErrorCode> {
        let request = requests::list_offsets(topic, [partition], timestamp, isolation);
        let response = self.send(version::LIST_OFFSETS, &request).await;
        listed(&response)[0].1
    }

    /// Deletes the records of a partition below an offset; its low watermark.
    pub async fn delete_records(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<i64, ErrorCode> {
        let request = requests::delete_records(topic, partition, offset);
        let response = self.send(version::DELETE_RECORDS, &request).await;
        let answer = &response.topics[0].partitions[0];
        checked(answer.error_code, answer.low_watermark)
    }

    /// The ends of partitions `0..partitions`: high watermarks or last stable offsets.
    pub async fn ends(&mut self, topic: &str, partitions: i32, isolation: Isolation) -> Vec<i64> {
        let request = requests::list_offsets(topic, 0..partitions, requests::LATEST, isolation);
        let response = self.send(version::LIST_OFFSETS, &request).await;
        listed(&response)
            .into_iter()
            .map(|(partition, end)| match end {
                Ok(end) => end,
                Err(e) => panic!("{topic}-{partition}: {e:?}"),
            })
            .collect()
    }

    /// (producer id, epoch).
    pub async fn init_producer_id(
        &mut self,
        transactional: Option<&str>,
    ) -> Result<(i64, i16), ErrorCode> {
        let request = requests::init_producer_id(transactional, 60_000);
        let response = self.send(version::INIT_PRODUCER_ID, &request).await;
        checked(
            response.error_code,
            (response.producer_id.0, response.producer_epoch),
        )
    }

    pub async fn add_partitions(
        &mut self,
        id: &str,
        producer: (i64, i16),
        partitions: &[(&str, i32)],
    ) -> Result<(), ErrorCode> {
        let request = requests::add_partitions(id, producer, partitions);
        enrolled(&self.send(version::ADD_PARTITIONS_TO_TXN, &request).await)
    }

    pub async fn add_offsets(
        &mut self,
        id: &str,
        producer: (i64, i16),
        group: &str,
    ) -> Result<(), ErrorCode> {
        let request = requests::add_offsets(id, producer, group);
        let response = self.send(version::ADD_OFFSETS_TO_TXN, &request).await;
        checked(response.error_code, ())
    }

    pub async fn txn_offset_commit(
        &mut self,
        id: &str,
        producer: (i64, i16),
        group: &str,
        offsets: &[(&str, i32, i64)],
    ) -> Result<(), ErrorCode> {
        let request = requests::txn_offset_commit(id, producer, group, offsets);
        txn_offsets_committed(&self.send(version::TXN_OFFSET_COMMIT, &request).await)
    }

    pub async fn end_txn(
        &mut self,
        id: &str,
        producer: (i64, i16),
        commit: bool,
    ) -> Result<(), ErrorCode> {
        let request = requests::end_txn(id, producer, commit);
        let response = self.send(version::END_TXN, &request).await;
        checked(response.error_code, ())
    }

    /// Commits offsets of a group without members.
    pub async fn commit_offsets(
        &mut self,
        group: &str,
        offsets: &[(&str, i32, i64)],
    ) -> Result<(), ErrorCode> {
        let request = requests::offset_commit(group, offsets);
        offsets_committed(&self.send(version::OFFSET_COMMIT, &request).await)
    }

    /// The committed offset of one partition; -1 if there is none.
    pub async fn committed_offset(
        &mut self,
        group: &str,
        topic: &str,
        partition: i32,
        require_stable: bool,
    ) -> Result<i64, ErrorCode> {
        let request = requests::offset_fetch(group, topic, &[partition], require_stable);
        let response = self.send(version::OFFSET_FETCH, &request).await;
        let group = &response.groups[0];
        checked(group.error_code, ())?;
        let partition = &group.topics[0].partitions[0];
        checked(partition.error_code, partition.committed_offset)
    }
}
