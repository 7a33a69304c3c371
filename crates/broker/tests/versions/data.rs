//! Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

use bytes::Bytes;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    BrokerId, DeleteRecordsRequest, FetchRequest, FetchResponse, ListOffsetsRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, ProduceResponse,
};
use tidemark_testkit::requests::{self, topic_name};
use tidemark_testkit::{Batch, Isolation, WALL_START_MS, fetched};
use tidemark_types::ErrorCode;
use uuid::Uuid;

use crate::World;
use crate::support::code;

const NOBODY: Uuid = Uuid::from_u128(0x1234);

/// Produce of one topic's batches; from v13 on a topic is its id.
fn produce_request(
    version: i16,
    (topic, id): (&str, Uuid),
    batches: Vec<(i32, Bytes)>,
) -> ProduceRequest {
    let data = TopicProduceData::default().with_partition_data(
        batches
            .into_iter()
            .map(|(partition, batch)| {
                PartitionProduceData::default()
                    .with_index(partition)
                    .with_records(Some(batch))
            })
            .collect(),
    );
    let data = match version {
        13.. => data.with_topic_id(id),
        _ => data.with_name(topic_name(topic)),
    };
    ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![data])
}

fn partition(response: &ProduceResponse, index: i32) -> &PartitionProduceResponse {
    let mut partitions = response
        .responses
        .iter()
        .flat_map(|t| &t.partition_responses);
    partitions
        .find(|p| p.index == index)
        .expect("it is answered")
}

pub async fn produce(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    let id = world.describe(&topic).await.topic_id;
    let batch = Batch::of(&["a", "b"]).build();
    let request = produce_request(
        version,
        (&topic, id),
        vec![(0, batch.clone()), (7, batch.clone())],
    );
    for base_offset in [0, 2] {
        let response = world.client.send(version, &request).await;
        match version {
            13.. => assert!(response.responses.iter().all(|t| t.topic_id == id)),
            _ => assert!(response.responses.iter().all(|t| **t.name == *topic)),
        }
        let written = partition(&response, 0);
        assert_eq!(
            (code(written.error_code), written.base_offset),
            (ErrorCode::None, base_offset)
        );
        assert_eq!(written.log_append_time_ms, -1, "the topic keeps CreateTime");
        let log_start_offset = if version >= 5 { 0 } else { -1 };
        assert_eq!(written.log_start_offset, log_start_offset);
        let unknown = partition(&response, 7);
        assert_eq!(code(unknown.error_code), ErrorCode::UnknownTopicOrPartition);
        assert_eq!((unknown.base_offset, unknown.log_start_offset), (-1, -1));
    }

    let request = produce_request(version, ("nobody", NOBODY), vec![(0, batch.clone())]);
    let response = world.client.send(version, &request).await;
    let want = match version {
        13.. => ErrorCode::UnknownTopicId,
        _ => ErrorCode::UnknownTopicOrPartition,
    };
    assert_eq!(code(partition(&response, 0).error_code), want);

    produce_stamped(world, version).await;
    produce_without_a_key(world, version).await;
    produce_in_a_transaction(world, version).await;
}

async fn produce_stamped(world: &mut World, version: i16) {
    let configs = [("message.timestamp.type", "LogAppendTime")];
    let topic = world.topic_with("stamped", 1, &configs).await;
    let id = world.describe(&topic).await.topic_id;
    let batch = Batch::of(&["v"]).at(5).build();
    let request = produce_request(version, (&topic, id), vec![(0, batch)]);
    let response = world.client.send(version, &request).await;
    let written = partition(&response, 0);
    assert_eq!(code(written.error_code), ErrorCode::None);
    match world.target.is_kafka() {
        true => assert!(written.log_append_time_ms > WALL_START_MS),
        false => assert_eq!(written.log_append_time_ms, WALL_START_MS),
    }
}

async fn produce_without_a_key(world: &mut World, version: i16) {
    let topic = world
        .topic_with("keyed", 1, &[("cleanup.policy", "compact")])
        .await;
    let id = world.describe(&topic).await.topic_id;
    let batch = Batch::of(&["v"]).build();
    let request = produce_request(version, (&topic, id), vec![(0, batch)]);
    let response = world.client.send(version, &request).await;
    let refused = partition(&response, 0);
    assert_eq!(code(refused.error_code), ErrorCode::InvalidRecord);
    if version >= 8 {
        assert!(refused.error_message.is_some());
        let records: Vec<i32> = refused
            .record_errors
            .iter()
            .map(|r| r.batch_index)
            .collect();
        assert_eq!(records, [0]);
    }
}

/// Without AddPartitionsToTxn: a lost enrolment for old clients, the begin of a transaction for v12.
async fn produce_in_a_transaction(world: &mut World, version: i16) {
    let topic = world.topic("tx", 1).await;
    let id = world.describe(&topic).await.topic_id;
    let tx = world.name("tx");
    let mut producer = world.session(&tx).await;
    let batch = producer.batch(&topic, 0, &["t"]).build();
    let request = produce_request(version, (&topic, id), vec![(0, batch)])
        .with_transactional_id(Some(requests::transactional_id(&tx)));
    let response = world.client.send(version, &request).await;
    let want = match version {
        12.. => ErrorCode::None,
        11 => ErrorCode::TransactionAbortable,
        _ => ErrorCode::InvalidTxnState,
    };
    assert_eq!(code(partition(&response, 0).error_code), want);
    if version < 12 {
        world.begin(&producer, &[(&topic, 0)]).await;
        let response = world.client.send(version, &request).await;
        assert_eq!(code(partition(&response, 0).error_code), ErrorCode::None);
    }
    let ends = world.client.ends(&topic, 1, Isolation::ReadCommitted).await;
    assert_eq!(ends, [0], "it is open");
}

fn fetch_request(
    version: i16,
    (topic, id): (&str, Uuid),
    offset: i64,
    isolation: Isolation,
) -> FetchRequest {
    let mut request = requests::fetch(topic, &[(0, offset)], isolation);
    if version >= 13 {
        request.topics[0].topic = topic_name("");
        request.topics[0].topic_id = id;
    }
    request
}

pub async fn fetch(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    let id = world.describe(&topic).await.topic_id;
    let produced = world
        .client
        .produce(&topic, 0, Batch::of(&["a", "b"]).build())
        .await;
    assert_eq!(produced, Ok(0));
    let name = world.name("tx");
    let mut producer = world.session(&name).await;
    world.begin(&producer, &[(&topic, 0)]).await;
    assert_eq!(
        producer.send(&mut world.client, &topic, 0, &["gone"]).await,
        Ok(2)
    );
    assert_eq!(producer.end(&mut world.client, false).await, Ok(()));
    world
        .target
        .assert_ends(&mut world.client, &topic, 0, (4, 4))
        .await;

    for (isolation, aborted) in [
        (Isolation::ReadUncommitted, None),
        (
            Isolation::ReadCommitted,
            Some(vec![(producer.producer_id, 2)]),
        ),
    ] {
        let request = fetch_request(version, (&topic, id), 0, isolation);
        let response = world.client.send(version, &request).await;
        assert_eq!(
            (code(response.error_code), response.session_id),
            (ErrorCode::None, 0)
        );
        let answered = &response.responses[0];
        match version {
            13.. => assert_eq!((answered.topic_id, &**answered.topic), (id, "")),
            _ => assert_eq!(**answered.topic, *topic),
        }
        let answer = fetched(&response).remove(0);
        assert_eq!(answer.error, ErrorCode::None);
        assert_eq!((answer.high_watermark, answer.last_stable_offset), (4, 4));
        let log_start_offset = if version >= 5 { 0 } else { -1 };
        assert_eq!(answer.log_start_offset, log_start_offset);
        assert_eq!(answer.values(), ["a", "b", "gone"]);
        assert_eq!(answer.aborted, aborted);
        assert_eq!(answer.next_offset(), Some(4));
    }

    // At the end nothing, and no error; beyond it, and before the start, out of range.
    for (offset, want) in [
        (4, ErrorCode::None),
        (5, ErrorCode::OffsetOutOfRange),
        (-1, ErrorCode::OffsetOutOfRange),
    ] {
        let request = fetch_request(version, (&topic, id), offset, Isolation::ReadCommitted);
        let response = world.client.send(version, &request).await;
        let answer = fetched(&response).remove(0);
        assert_eq!(answer.error, want, "at {offset}");
        assert!(answer.batches.is_empty());
    }

    let request = fetch_request(version, ("nobody", NOBODY), 0, Isolation::ReadCommitted);
    let response: FetchResponse = world.client.send(version, &request).await;
    let want = match version {
        13.. => ErrorCode::UnknownTopicId,
        _ => ErrorCode::UnknownTopicOrPartition,
    };
    let answer = fetched(&response).remove(0);
    assert_eq!((answer.error, answer.high_watermark), (want, -1));

    // Nobody is asked, nothing is answered.
    let request = FetchRequest::default().with_max_wait_ms(0);
    let response = world.client.send(version, &request).await;
    assert_eq!(code(response.error_code), ErrorCode::None);
    assert!(response.responses.is_empty());
}

pub async fn list_offsets(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    let leader_epoch = world.describe(&topic).await.partitions[0].leader_epoch;
    for (offset, timestamp) in [(0, 1000), (1, 3000), (2, 2000)] {
        let batch = Batch::of(&["v"]).at(timestamp).build();
        assert_eq!(world.client.produce(&topic, 0, batch).await, Ok(offset));
    }
    let none = ErrorCode::None;
    let unsupported = ErrorCode::UnsupportedVersion;
    for (timestamp, want) in [
        (-1, (none, -1, 3)),
        (-2, (none, -1, 0)),
        (1000, (none, 1000, 0)),
        (1001, (none, 3000, 1)),
        (3001, (none, -1, -1)),
        (
            -3,
            if version >= 7 {
                (none, 3000, 1)
            } else {
                (unsupported, -1, -1)
            },
        ),
        // Nothing is tiered: the local log begins where the log does.
        (
            -4,
            if version >= 8 {
                (none, -1, 0)
            } else {
                (unsupported, -1, -1)
            },
        ),
        (
            -5,
            if version >= 9 {
                (none, -1, -1)
            } else {
                (unsupported, -1, -1)
            },
        ),
        (-99, (unsupported, -1, -1)),
    ] {
        let isolation = match version {
            1 => Isolation::ReadUncommitted,
            _ => Isolation::ReadCommitted,
        };
        let request = requests::list_offsets(&topic, [0, 7], timestamp, isolation);
        let response = world.client.send(version, &request).await;
        assert_eq!(**response.topics[0].name, *topic);
        let mut partitions = response.topics[0].partitions.iter();
        let found = partitions.clone().find(|p| p.partition_index == 0).unwrap();
        let answer = (code(found.error_code), found.timestamp, found.offset);
        assert_eq!(answer, want, "timestamp {timestamp}");
        let has_epoch = version >= 4 && found.offset >= 0;
        assert_eq!(
            found.leader_epoch,
            if has_epoch { leader_epoch } else { -1 }
        );
        let unknown = partitions.find(|p| p.partition_index == 7).unwrap();
        let code = code(unknown.error_code);
        assert!(
            code == ErrorCode::UnknownTopicOrPartition || code == unsupported,
            "{code:?}"
        );
    }

    let nothing = ListOffsetsRequest::default().with_replica_id(BrokerId(-1));
    let response = world.client.send(version, &nothing).await;
    assert!(response.topics.is_empty());
}

pub async fn offset_for_leader_epoch(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    let leader_epoch = world.describe(&topic).await.partitions[0].leader_epoch;
    let produced = world
        .client
        .produce(&topic, 0, Batch::of(&["a", "b"]).build())
        .await;
    assert_eq!(produced, Ok(0));
    let (unknown, none) = (ErrorCode::UnknownTopicOrPartition, ErrorCode::None);
    let newer = leader_epoch + 1;
    for (partition, current, asked, want) in [
        (0, leader_epoch, leader_epoch, (none, leader_epoch, 2)),
        (0, -1, leader_epoch, (none, leader_epoch, 2)),
        (0, -1, newer, (none, -1, -1)),
        (
            0,
            newer,
            leader_epoch,
            (ErrorCode::UnknownLeaderEpoch, -1, -1),
        ),
        (7, -1, leader_epoch, (unknown, -1, -1)),
    ] {
        let request = OffsetForLeaderEpochRequest::default().with_topics(vec![
            OffsetForLeaderTopic::default()
                .with_topic(topic_name(&topic))
                .with_partitions(vec![
                    OffsetForLeaderPartition::default()
                        .with_partition(partition)
                        .with_current_leader_epoch(current)
                        .with_leader_epoch(asked),
                ]),
        ]);
        let request = match version {
            3.. => request.with_replica_id(BrokerId(-1)),
            _ => request,
        };
        let response = world.client.send(version, &request).await;
        let answer = &response.topics[0].partitions[0];
        let answer = (
            code(answer.error_code),
            answer.leader_epoch,
            answer.end_offset,
        );
        assert_eq!(
            answer, want,
            "partition {partition}, epochs {current} and {asked}"
        );
    }
}

pub async fn delete_records(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    for offset in 0..4 {
        let batch = Batch::of(&["v"]).build();
        assert_eq!(world.client.produce(&topic, 0, batch).await, Ok(offset));
    }
    for (partition, offset, want) in [
        (0, 2, (ErrorCode::None, 2)),
        (0, 1, (ErrorCode::None, 2)),
        (0, 5, (ErrorCode::OffsetOutOfRange, -1)),
        (7, 1, (ErrorCode::UnknownTopicOrPartition, -1)),
        (0, -1, (ErrorCode::None, 4)),
    ] {
        let request = DeleteRecordsRequest::default()
            .with_timeout_ms(30_000)
            .with_topics(vec![
                DeleteRecordsTopic::default()
                    .with_name(topic_name(&topic))
                    .with_partitions(vec![
                        DeleteRecordsPartition::default()
                            .with_partition_index(partition)
                            .with_offset(offset),
                    ]),
            ]);
        let response = world.client.send(version, &request).await;
        let answer = &response.topics[0].partitions[0];
        let answer = (code(answer.error_code), answer.low_watermark);
        assert_eq!(answer, want, "partition {partition} to {offset}");
    }
    let isolation = Isolation::ReadUncommitted;
    let earliest = world
        .client
        .list_offset(&topic, 0, requests::EARLIEST, isolation)
        .await;
    assert_eq!(earliest, Ok(4));
}
