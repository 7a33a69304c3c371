//! OffsetForLeaderEpoch (23), v2-v4: where a leader epoch ended (KIP-320), as of one published tick.
//!
//! A consumer that was on an older epoch asks whether the log still is the one it read. v3 names a
//! replica (passed over); v4 flexible. ClusterAction, or Describe on each topic.

use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use tidemark_authorizer::Operation;
use tidemark_types::{LeaderEpoch, TopicPartitionId};

use crate::authorize::Resource;

use super::fetch::check_leader_epoch;
use super::{Cx, Pending};
use tidemark_types::ErrorCode;

pub(crate) fn handle(cx: Cx, request: OffsetForLeaderEpochRequest) -> Pending {
    Pending::later(async move { cx.answer(&find_all(&cx, &request)) })
}

fn find_all(cx: &Cx, request: &OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
    let view = cx.shared.read();
    let rights = cx.rights();
    let may_all = rights.might(Operation::ClusterAction, Resource::Cluster);
    let topics = request
        .topics
        .iter()
        .map(|topic| {
            let may = may_all || rights.may(Operation::Describe, Resource::Topic(&topic.topic));
            let id = view.image.topic(&topic.topic).map(|t| t.id);
            let partitions = topic
                .partitions
                .iter()
                .map(|wanted| {
                    let log =
                        id.and_then(|id| view.log(TopicPartitionId::new(id, wanted.partition)));
                    let missing = match may {
                        true => ErrorCode::UnknownTopicOrPartition,
                        false => ErrorCode::TopicAuthorizationFailed,
                    };
                    let found = log.filter(|_| may).ok_or(missing).and_then(|log| {
                        let version = log.at(view.tick());
                        check_leader_epoch(wanted.current_leader_epoch, version.leader_epoch)?;
                        let asked = LeaderEpoch(wanted.leader_epoch);
                        Ok(log.end_offset_for_epoch(asked, version.log_end_offset))
                    });
                    let answer = EpochEndOffset::default()
                        .with_partition(wanted.partition)
                        .with_leader_epoch(-1)
                        .with_end_offset(-1);
                    match found {
                        Err(error) => answer.with_error_code(error.code()),
                        // An epoch that this log has not come to.
                        Ok(None) => answer,
                        Ok(Some((epoch, end_offset))) => answer
                            .with_leader_epoch(epoch.0)
                            .with_end_offset(end_offset),
                    }
                })
                .collect();
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic.clone())
                .with_partitions(partitions)
        })
        .collect();
    OffsetForLeaderEpochResponse::default().with_topics(topics)
}
