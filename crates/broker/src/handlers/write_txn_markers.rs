//! WriteTxnMarkers (27), v1: an operator aborts what is open in a partition (KIP-664).
//!
//! Between Kafka's brokers it ends transactions; here `kafka-transactions abort` is its only user.
//! Alter or ClusterAction on the cluster.

use kafka_protocol::messages::write_txn_markers_request::WritableTxnMarker;
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, Reply, WriteTxnMarkers};
use tidemark_types::{CoordinatorEpoch, ErrorCode, ProducerEpoch, ProducerId};

use super::{Cx, Pending, wrong_reply};
use crate::admission::Wants;
use crate::audit::tell_change;
use crate::authorize::Resource;
use crate::shared::ADMISSION_PATIENCE;

/// One command per marker: each is a record of its own.
pub(crate) async fn handle(cx: Cx, request: WriteTxnMarkersRequest) -> Pending {
    let rights = cx.rights();
    if !rights.might(Operation::Alter, Resource::Cluster)
        && !rights.may(Operation::ClusterAction, Resource::Cluster)
    {
        let code = ErrorCode::ClusterAuthorizationFailed;
        let markers = request.markers.into_iter();
        let refused = markers.map(|marker| respond(marker, None, code)).collect();
        let response = WriteTxnMarkersResponse::default().with_markers(refused);
        return Pending::Ready(cx.answer(&response));
    }
    let mut replies = Vec::new();
    for marker in &request.markers {
        let command = Command::WriteTxnMarkers(WriteTxnMarkers {
            context: cx.context(),
            producer_id: ProducerId(marker.producer_id.0),
            producer_epoch: ProducerEpoch(marker.producer_epoch),
            commit: marker.transaction_result,
            coordinator_epoch: CoordinatorEpoch(marker.coordinator_epoch),
            partitions: (marker.topics.iter())
                .flat_map(|topic| {
                    let partitions = topic.partition_indexes.iter();
                    partitions.map(|partition| (topic.name.to_string(), *partition))
                })
                .collect(),
        });
        let wants = Wants::Control;
        replies.push(cx.shared.submit(command, wants, ADMISSION_PATIENCE).await);
    }
    Pending::later(async move {
        let mut markers = Vec::with_capacity(request.markers.len());
        for (marker, reply) in request.markers.into_iter().zip(replies) {
            let codes = match reply {
                Err(_) => None,
                Ok(reply) => reply.await.ok(),
            };
            let codes = codes.map(|reply| match reply {
                Reply::WriteTxnMarkers(codes) => codes,
                other => wrong_reply(other),
            });
            let what = format!(
                "marker of producer {} epoch {}: {}",
                marker.producer_id.0,
                marker.producer_epoch,
                if marker.transaction_result {
                    "commit"
                } else {
                    "abort"
                }
            );
            let first = codes.iter().flatten().find(|code| code.is_err());
            let failed = match &codes {
                None => Some((ErrorCode::NotLeaderOrFollower, None)),
                Some(_) => first.map(|code| (*code, None)),
            };
            tell_change(&cx, "Cluster", "kafka-cluster", &what, failed);
            // Nothing was decided, or nobody knows whether it lasts: Kafka's tools ask again.
            markers.push(respond(marker, codes, ErrorCode::NotLeaderOrFollower));
        }
        cx.answer(&WriteTxnMarkersResponse::default().with_markers(markers))
    })
}

fn respond(
    marker: WritableTxnMarker,
    codes: Option<Vec<ErrorCode>>,
    unanswered: ErrorCode,
) -> WritableTxnMarkerResult {
    let mut codes = codes.into_iter().flatten();
    let topics = marker.topics.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.into_iter().map(|index| {
            let code = codes.next().unwrap_or(unanswered);
            WritableTxnMarkerPartitionResult::default()
                .with_partition_index(index)
                .with_error_code(code.code())
        });
        WritableTxnMarkerTopicResult::default()
            .with_partitions(partitions.collect())
            .with_name(topic.name)
    });
    WritableTxnMarkerResult::default()
        .with_producer_id(marker.producer_id)
        .with_topics(topics.collect())
}
