//! OffsetCommit (8), v2-v9: a group's positions, outside transactions.
//!
//! v6 leader epochs; v7 static members; v8 flexible; v9 the new group protocol's errors (KIP-848).
//! Read on the group and on each topic.

use kafka_protocol::messages::OffsetCommitRequest;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use tidemark_authorizer::Operation;
use tidemark_group_coordinator::{self as group, OffsetToCommit};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: OffsetCommitRequest) -> Pending {
    let version = cx.version();
    let rights = cx.rights();
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
                    6.. => partition.committed_leader_epoch,
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
    let command = Command::OffsetCommit(group::OffsetCommitRequest {
        group_id: request.group_id.to_string(),
        generation_id: request.generation_id_or_member_epoch,
        member_id: request.member_id.to_string(),
        group_instance_id: request.group_instance_id.as_ref().map(|id| id.to_string()),
        offsets,
        // In versions 2 to 4.
        retention_time_ms: request.retention_time_ms,
        reports_missing_group: version >= 9,
    });
    cx.call(command, move |cx, reply| {
        let mut codes = match reply {
            Some(Reply::OffsetCommit(codes)) => codes,
            Some(other) => wrong_reply(other),
            None => Vec::new(),
        }
        .into_iter();
        cx.answer(&respond(request, |nth| match forbidden.has(nth) {
            true => ErrorCode::TopicAuthorizationFailed,
            false => codes.next().unwrap_or(ErrorCode::CoordinatorNotAvailable),
        }))
    })
    .await
}

/// A code for each partition, by its topic's place in the request.
fn respond(
    request: OffsetCommitRequest,
    mut code: impl FnMut(usize) -> ErrorCode,
) -> OffsetCommitResponse {
    let topics = request.topics.into_iter().enumerate().map(|(nth, topic)| {
        let partitions = topic.partitions.iter().map(|partition| {
            OffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code(nth).code())
        });
        OffsetCommitResponseTopic::default()
            .with_partitions(partitions.collect())
            .with_name(topic.name)
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}
