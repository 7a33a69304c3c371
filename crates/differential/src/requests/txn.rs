//! The transaction APIs.

use anyhow::{Result, ensure};
use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest,
    TxnOffsetCommitRequest,
};

use super::groups::membership;
use super::{Body, by, encode, group_id, places, text, topic_name, transactional_id};
use crate::env::Env;
use crate::script::Line;

/// `init [txn=] [timeout=] [by=] -> p`
pub fn init_producer_id(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let mut request = InitProducerIdRequest::default()
        .with_transactional_id(line.get("txn").map(transactional_id))
        .with_transaction_timeout_ms(line.number("timeout", 60_000)?);
    let (id, epoch) = by(line, env)?;
    if version >= 3 {
        request = request.with_producer_id(id).with_producer_epoch(epoch);
    }
    encode(version, &request)
}

/// `add-partitions txn= by= t/0 ...`
pub fn add_partitions(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let (id, epoch) = by(line, env)?;
    let topics = places(line)?
        .into_iter()
        .map(|(topic, places)| {
            AddPartitionsToTxnTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(places.iter().map(|place| place.partition).collect())
        })
        .collect();
    let txn = transactional_id(line.need("txn")?);
    let request = AddPartitionsToTxnRequest::default();
    let request = if version >= 4 {
        request.with_transactions(vec![
            AddPartitionsToTxnTransaction::default()
                .with_transactional_id(txn)
                .with_producer_id(id)
                .with_producer_epoch(epoch)
                .with_verify_only(line.flag("verify", false)?)
                .with_topics(topics),
        ])
    } else {
        request
            .with_v3_and_below_transactional_id(txn)
            .with_v3_and_below_producer_id(id)
            .with_v3_and_below_producer_epoch(epoch)
            .with_v3_and_below_topics(topics)
    };
    encode(version, &request)
}

/// `add-offsets txn= by= group=`
pub fn add_offsets(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let (id, epoch) = by(line, env)?;
    let request = AddOffsetsToTxnRequest::default()
        .with_transactional_id(transactional_id(line.need("txn")?))
        .with_producer_id(id)
        .with_producer_epoch(epoch)
        .with_group_id(group_id(line.need("group")?));
    encode(version, &request)
}

/// `end txn= by= commit|abort -> p`
pub fn end(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let (id, epoch) = by(line, env)?;
    ensure!(
        line.has("commit") != line.has("abort"),
        "end: commit or abort"
    );
    let request = EndTxnRequest::default()
        .with_transactional_id(transactional_id(line.need("txn")?))
        .with_producer_id(id)
        .with_producer_epoch(epoch)
        .with_committed(line.has("commit"));
    encode(version, &request)
}

/// `txn-commit txn= by= group= t/0@5 ... [as=|member=|gen=|instance=] [meta=]`
pub fn offset_commit(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let (id, epoch) = by(line, env)?;
    let mut topics = Vec::new();
    for (topic, places) in places(line)? {
        let mut partitions = Vec::new();
        for place in places {
            let metadata = line.get("meta").unwrap_or("");
            let mut partition = TxnOffsetCommitRequestPartition::default()
                .with_partition_index(place.partition)
                .with_committed_offset(place.offset.unwrap_or(0))
                .with_committed_metadata((metadata != "null").then(|| text(metadata)));
            if version >= 2 {
                partition = partition.with_committed_leader_epoch(line.number("epoch", -1)?);
            }
            partitions.push(partition);
        }
        topics.push(
            TxnOffsetCommitRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(partitions),
        );
    }
    let mut request = TxnOffsetCommitRequest::default()
        .with_transactional_id(transactional_id(line.need("txn")?))
        .with_group_id(group_id(line.need("group")?))
        .with_producer_id(id)
        .with_producer_epoch(epoch)
        .with_topics(topics);
    if version >= 3 {
        let member = membership(line, env, -1)?;
        request = request
            .with_generation_id(member.generation)
            .with_member_id(member.id)
            .with_group_instance_id(member.instance);
    }
    encode(version, &request)
}
