//! TxnOffsetCommit (28), v0-v5: a group's positions as part of a transaction.
//!
//! v2 leader epochs; v3 member, generation and instance (KIP-447), flexible; v4
//! TRANSACTION_ABORTABLE; v5 enrols the group by itself (KIP-890, version 2).

use std::sync::Arc;

use kafka_protocol::messages::TxnOffsetCommitRequest;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use tidemark_group_coordinator::{self as group, OffsetToCommit};
use tidemark_owner::{Command, Reply, TxnOffsetCommit};
use tidemark_txn_coordinator::{Dialect, TxnApi, map_for_version};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: TxnOffsetCommitRequest) -> Pending {
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
                    2.. => partition.committed_leader_epoch,
                    _ => -1,
                },
                metadata: partition.committed_metadata.as_ref().map(|m| m.to_string()),
            })
        })
        .collect();
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
        let topics = request
            .topics
            .into_iter()
            .map(|topic| {
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|partition| {
                        let error = codes.next().unwrap_or(ErrorCode::CoordinatorNotAvailable);
                        let error = map_for_version(TxnApi::TxnOffsetCommit, cx.version(), error);
                        TxnOffsetCommitResponsePartition::default()
                            .with_partition_index(partition.partition_index)
                            .with_error_code(error.code())
                    })
                    .collect();
                TxnOffsetCommitResponseTopic::default()
                    .with_name(topic.name)
                    .with_partitions(partitions)
            })
            .collect();
        cx.answer(&TxnOffsetCommitResponse::default().with_topics(topics))
    })
    .await
}
