//! TxnOffsetCommit (28), v0-v5: a group's positions as part of a transaction.
//!
//! v2 leader epochs; v3 member, generation and instance (KIP-447), flexible; v4
//! TRANSACTION_ABORTABLE; v5 enrols the group by itself (KIP-890, version 2).
//! Write on the transactional id, Read on the group and on each topic.

use std::sync::Arc;

use kafka_protocol::messages::TxnOffsetCommitRequest;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use tidemark_authorizer::Operation;
use tidemark_group_coordinator::{self as group, OffsetToCommit};
use tidemark_owner::{Command, Reply, TxnOffsetCommit};
use tidemark_txn_coordinator::{Dialect, TxnApi, map_for_version};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::authorize::Resource;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: TxnOffsetCommitRequest) -> Pending {
    let version = cx.version();
    let rights = cx.rights();
    let id = Resource::TransactionalId(&request.transactional_id);
    if !rights.may(Operation::Write, id) {
        let code = ErrorCode::TransactionalIdAuthorizationFailed;
        return Pending::Ready(cx.answer(&respond(request, |_| code)));
    }
    if !rights.may(Operation::Read, Resource::Group(&request.group_id)) {
        let code = ErrorCode::GroupAuthorizationFailed;
        return Pending::Ready(cx.answer(&respond(request, |_| code)));
    }
    let names = request.topics.iter().map(|topic| &*topic.name);
    let forbidden = rights.forbidden(Operation::Read, names);
    let offsets: Vec<_> = forbidden
        .others(&request.topics)
        .flat_map(|topic| {
            topic.partitions.iter().map(|partition| OffsetToCommit {
                topic: topic.name.to_string(),
                partition: partition.partition_index,
                offset: partition.committed_offset,
                leader_epoch: match version {
                    2.. => partition.committed_leader_epoch,
                    _ => -1,
                },
                metadata: partition.committed_metadata.as_ref().map(|m| m.to_string()),
            })
        })
        .collect();
    if offsets.is_empty() && forbidden.any() {
        let code = ErrorCode::TopicAuthorizationFailed;
        return Pending::Ready(cx.answer(&respond(request, |_| code)));
    }
    let knows_member = version >= 3;
    let command = Command::TxnOffsetCommit(TxnOffsetCommit {
        transactional_id: Arc::from(&**request.transactional_id),
        producer_id: ProducerId(request.producer_id.0),
        producer_epoch: ProducerEpoch(request.producer_epoch),
        dialect: match version {
            5.. => Dialect::V2,
            _ => Dialect::V1,
        },
        commit: group::TxnOffsetCommitRequest {
            group_id: request.group_id.to_string(),
            generation_id: match knows_member {
                true => request.generation_id,
                false => -1,
            },
            member_id: match knows_member {
                true => request.member_id.to_string(),
                false => String::new(),
            },
            group_instance_id: request.group_instance_id.as_ref().map(|id| id.to_string()),
            offsets,
        },
    });
    let command = cx.on_its_connection(command);
    cx.call(command, move |cx, reply| {
        let mut codes = match reply {
            Some(Reply::TxnOffsetCommit(codes)) => codes,
            Some(other) => wrong_reply(other),
            None => Vec::new(),
        }
        .into_iter();
        cx.answer(&respond(request, |nth| match forbidden.has(nth) {
            true => ErrorCode::TopicAuthorizationFailed,
            false => {
                let error = codes.next().unwrap_or(ErrorCode::CoordinatorNotAvailable);
                map_for_version(TxnApi::TxnOffsetCommit, cx.version(), error)
            }
        }))
    })
    .await
}

/// A code for each partition, by its topic's place in the request.
fn respond(
    request: TxnOffsetCommitRequest,
    mut code: impl FnMut(usize) -> ErrorCode,
) -> TxnOffsetCommitResponse {
    let topics = request.topics.into_iter().enumerate().map(|(nth, topic)| {
        let partitions = topic.partitions.iter().map(|partition| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code(nth).code())
        });
        TxnOffsetCommitResponseTopic::default()
            .with_partitions(partitions.collect())
            .with_name(topic.name)
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}
