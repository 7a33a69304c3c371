//! DescribeLogDirs (35), v1-v4: how much each partition takes, and what the disk has left.
//!
//! v2 flexible; v3 an error of the whole; v4 the size of the file system (KIP-827). There is one
//! directory, and nothing moves between directories: no partition is a future one, none lags.
//! Describe on the cluster.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use tidemark_authorizer::Operation;
use tidemark_metadata::TopicImage;
use tidemark_types::{ErrorCode, TopicPartitionId};
use tracing::warn;

use super::{Cx, Pending, text};
use crate::authorize::Resource;
use crate::shared::View;

/// In place of a size that is not known.
const UNKNOWN_BYTES: i64 = -1;

pub(crate) fn handle(cx: Cx, request: DescribeLogDirsRequest) -> Pending {
    Pending::later(async move {
        if !cx.may(Operation::Describe, Resource::Cluster) {
            // Before v3 there is no place for the error: there are no directories.
            let refused = DescribeLogDirsResponse::default();
            return cx.answer(&match cx.version() {
                3.. => refused.with_error_code(ErrorCode::ClusterAuthorizationFailed.code()),
                _ => refused,
            });
        }
        // It asks the file system.
        let response = tokio::task::block_in_place(|| describe(&cx, &request));
        cx.answer(&response)
    })
}

fn describe(cx: &Cx, request: &DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let view = cx.shared.read();
    let topics = match &request.topics {
        None => (view.image.topics())
            .map(|topic| describe_topic(&view, topic, 0..topic.partitions))
            .collect(),
        Some(asked) => {
            // What does not exist is left out, as in Kafka.
            let mut wanted: BTreeMap<&TopicName, Vec<i32>> = BTreeMap::new();
            for topic in asked {
                let partitions = wanted.entry(&topic.topic).or_default();
                partitions.extend(&topic.partitions);
            }
            let described = wanted.into_iter().filter_map(|(name, mut partitions)| {
                let topic = view.image.topic(name)?;
                partitions.sort_unstable();
                partitions.dedup();
                Some(describe_topic(&view, topic, partitions))
            });
            described
                .filter(|topic| !topic.partitions.is_empty())
                .collect()
        }
    };
    let dir = &cx.shared.settings.data_dir;
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    let mut result = DescribeLogDirsResult::default()
        .with_log_dir(text(&absolute.to_string_lossy()))
        .with_topics(topics);
    if cx.version() >= 4 {
        let space = cx.shared.disk.space(dir).unwrap_or_else(|e| {
            warn!("{}: its file system's size: {e}", dir.display());
            None
        });
        let bytes = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let total = space.map_or(UNKNOWN_BYTES, |space| bytes(space.total_bytes));
        let usable = space.map_or(UNKNOWN_BYTES, |space| bytes(space.usable_bytes));
        result = result.with_total_bytes(total).with_usable_bytes(usable);
    }
    DescribeLogDirsResponse::default().with_results(vec![result])
}

fn describe_topic(
    view: &View<'_>,
    topic: &TopicImage,
    partitions: impl IntoIterator<Item = i32>,
) -> DescribeLogDirsTopic {
    let partitions = partitions.into_iter().filter_map(|index| {
        let log = view.log(TopicPartitionId::new(topic.id, index))?;
        let size = i64::try_from(log.size_bytes()).unwrap_or(i64::MAX);
        let partition = DescribeLogDirsPartition::default()
            .with_partition_index(index)
            .with_partition_size(size)
            .with_offset_lag(0)
            .with_is_future_key(false);
        Some(partition)
    });
    DescribeLogDirsTopic::default()
        .with_name(TopicName(text(&topic.name)))
        .with_partitions(partitions.collect())
}
