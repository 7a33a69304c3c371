//! OffsetCommit (8), v2-v9: a group's positions, outside transactions.
//!
//! v6 leader epochs; v7 static members; v8 flexible; v9 the new group protocol's errors (KIP-848).

use kafka_protocol::messages::OffsetCommitRequest;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use tidemark_group_coordinator::{self as group, OffsetToCommit};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: OffsetCommitRequest) -> Pending {
    let version = cx.version();
    let offsets = request
        .topics
        .iter()
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
        let topics = request
            .topics
            .into_iter()
            .map(|topic| {
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|partition| {
                        let error = codes.next().unwrap_or(ErrorCode::CoordinatorNotAvailable);
                        OffsetCommitResponsePartition::default()
                            .with_partition_index(partition.partition_index)
                            .with_error_code(error.code())
                    })
                    .collect();
                OffsetCommitResponseTopic::default()
                    .with_name(topic.name)
                    .with_partitions(partitions)
            })
            .collect();
        cx.answer(&OffsetCommitResponse::default().with_topics(topics))
    })
    .await
}
