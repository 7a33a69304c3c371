//! Produce, Fetch, ListOffsets, OffsetForLeaderEpoch.

use anyhow::Result;
use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest, ProduceRequest,
};

use super::{Body, encode, places, text, topic_name, transactional_id};
use crate::batches::{SCRIPT_TIME_MS, of_line};
use crate::env::Env;
use crate::script::Line;

/// `produce t/0 ... [txn=] [by=] [seq=] [acks=] [timeout=]` and what [`of_line`] takes: the same
/// batch to every partition.
pub fn produce(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let producer = env.producer(line.get("by").unwrap_or("none"))?;
    let records = of_line(line, producer)?.map(Bytes::from);
    let topics = places(line)?
        .into_iter()
        .map(|(topic, places)| {
            let data = TopicProduceData::default().with_partition_data(
                places
                    .iter()
                    .map(|place| {
                        PartitionProduceData::default()
                            .with_index(place.partition)
                            .with_records(records.clone())
                    })
                    .collect(),
            );
            if version >= 13 {
                data.with_topic_id(env.topic_id(topic))
            } else {
                data.with_name(topic_name(topic))
            }
        })
        .collect();
    let acks = line.number("acks", -1)?;
    // The id of the request, where it is not that of the batch.
    let transactional = line.get("reqtxn").or(line.get("txn"));
    let request = ProduceRequest::default()
        .with_transactional_id(
            transactional
                .filter(|id| *id != "null")
                .map(transactional_id),
        )
        .with_acks(acks)
        .with_timeout_ms(line.number("timeout", 10_000)?)
        .with_topic_data(topics);
    let mut body = encode(version, &request)?;
    body.is_answered = acks != 0;
    Ok(body)
}

/// `fetch t/0@5 ... [iso=rc] [max=] [pmax=] [min=] [wait=] [epoch=] [last=] [session=] [round=]`
pub fn fetch(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let mut topics = Vec::new();
    for (topic, places) in places(line)? {
        let mut partitions = Vec::new();
        for place in places {
            let mut partition = FetchPartition::default()
                .with_partition(place.partition)
                .with_fetch_offset(place.offset.unwrap_or(0))
                .with_partition_max_bytes(line.number("pmax", 1 << 20)?);
            if version >= 9 {
                partition = partition.with_current_leader_epoch(line.number("epoch", -1)?);
            }
            if version >= 12 {
                partition = partition.with_last_fetched_epoch(line.number("last", -1)?);
            }
            partitions.push(partition);
        }
        let fetch = FetchTopic::default().with_partitions(partitions);
        topics.push(if version >= 13 {
            fetch.with_topic_id(env.topic_id(topic))
        } else {
            fetch.with_topic(topic_name(topic))
        });
    }
    let mut request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(line.number("wait", 0)?)
        .with_min_bytes(line.number("min", 1)?)
        .with_max_bytes(line.number("max", 50 << 20)?)
        .with_isolation_level(isolation(line)?)
        .with_topics(topics);
    if version >= 7 {
        request = request
            .with_session_id(env.session(line.get("session").unwrap_or("0"))?)
            .with_session_epoch(line.number("round", -1)?);
        if let Some(forgotten) = line.get("forget") {
            let (topic, partition) = forgotten.rsplit_once('/').unwrap_or((forgotten, "0"));
            let gone = ForgottenTopic::default().with_partitions(vec![partition.parse()?]);
            request = request.with_forgotten_topics_data(vec![if version >= 13 {
                gone.with_topic_id(env.topic_id(topic))
            } else {
                gone.with_topic(topic_name(topic))
            }]);
        }
    }
    if version >= 11 {
        request = request.with_rack_id(text(line.get("rack").unwrap_or("")));
    }
    encode(version, &request)
}

fn isolation(line: &Line) -> Result<i8> {
    match line.get("iso") {
        Some("rc") => Ok(1),
        Some("ru") | None => Ok(0),
        Some(other) => Ok(other.parse()?),
    }
}

/// `offsets t/0 ... [ts=latest|earliest|max|N] [iso=rc] [epoch=]`; a number is milliseconds after
/// the scripts' time, `raw=` one as it is.
pub fn list_offsets(line: &Line, version: i16) -> Result<Body> {
    let timestamp = match (line.get("ts"), line.get("raw")) {
        (None | Some("latest"), None) => -1,
        (Some("earliest"), _) => -2,
        (Some("max"), _) => -3,
        (_, Some(raw)) => raw.parse()?,
        (Some(after), _) => SCRIPT_TIME_MS + after.parse::<i64>()?,
    };
    let mut topics = Vec::new();
    for (topic, places) in places(line)? {
        let mut partitions = Vec::new();
        for place in places {
            let mut partition = ListOffsetsPartition::default()
                .with_partition_index(place.partition)
                .with_timestamp(timestamp);
            if version >= 4 {
                partition = partition.with_current_leader_epoch(line.number("epoch", -1)?);
            }
            partitions.push(partition);
        }
        topics.push(
            ListOffsetsTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(partitions),
        );
    }
    let mut request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(topics);
    if version >= 2 {
        request = request.with_isolation_level(isolation(line)?);
    }
    encode(version, &request)
}

/// `epoch-end t/0 ... [epoch=current] [of=leader epoch]`
pub fn offset_for_leader_epoch(line: &Line, version: i16) -> Result<Body> {
    let mut topics = Vec::new();
    for (topic, places) in places(line)? {
        let mut partitions = Vec::new();
        for place in places {
            partitions.push(
                OffsetForLeaderPartition::default()
                    .with_partition(place.partition)
                    .with_current_leader_epoch(line.number("epoch", -1)?)
                    .with_leader_epoch(line.number("of", 0)?),
            );
        }
        topics.push(
            OffsetForLeaderTopic::default()
                .with_topic(topic_name(topic))
                .with_partitions(partitions),
        );
    }
    let mut request = OffsetForLeaderEpochRequest::default().with_topics(topics);
    if version >= 3 {
        request = request.with_replica_id(BrokerId(-1));
    }
    encode(version, &request)
}
