//! AddPartitionsToTxn (24), v0-v3: a transaction names partitions it will write.
//!
//! Answered when the enrolment is durable: a lost one would be fatal for the client later. v2
//! PRODUCER_FENCED (KIP-588); v3 flexible. v4 and later are for brokers only: Kafka asks for
//! CLUSTER_ACTION there, and clients stay below.
//!
//! Write on the transactional id and on each topic. With one that is forbidden none is enrolled.

use std::sync::Arc;

use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};
use tidemark_authorizer::Operation;
use tidemark_owner::{AddPartitions, Command, Reply};
use tidemark_txn_coordinator::{TxnApi, map_for_version};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::authorize::Resource;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: AddPartitionsToTxnRequest) -> Pending {
    let rights = cx.rights();
    let id = &request.v3_and_below_transactional_id;
    if !rights.may(Operation::Write, Resource::TransactionalId(id)) {
        let code = ErrorCode::TransactionalIdAuthorizationFailed;
        return Pending::Ready(cx.answer(&respond(request, |_, _, _| code)));
    }
    let names = request.v3_and_below_topics.iter();
    let forbidden = rights.forbidden(Operation::Write, names.map(|topic| &*topic.name));
    if forbidden.any() {
        let image = cx.shared.read().image;
        let code = |nth, topic: &str, partition| match image.partition(topic, partition) {
            _ if forbidden.has(nth) => ErrorCode::TopicAuthorizationFailed,
            None => ErrorCode::UnknownTopicOrPartition,
            Some(_) => ErrorCode::OperationNotAttempted,
        };
        return Pending::Ready(cx.answer(&respond(request, code)));
    }
    let partitions = request
        .v3_and_below_topics
        .iter()
        .flat_map(|topic| {
            let name: Arc<str> = Arc::from(&**topic.name);
            topic.partitions.iter().map(move |p| (name.clone(), *p))
        })
        .collect();
    let command = Command::AddPartitions(AddPartitions {
        transactional_id: Arc::from(&**request.v3_and_below_transactional_id),
        producer_id: ProducerId(request.v3_and_below_producer_id.0),
        producer_epoch: ProducerEpoch(request.v3_and_below_producer_epoch),
        partitions,
    });
    let command = cx.on_its_connection(command);
    cx.call(command, move |cx, reply| {
        let mut codes = match reply {
            Some(Reply::AddPartitions(codes)) => codes,
            Some(other) => wrong_reply(other),
            None => Vec::new(),
        }
        .into_iter();
        cx.answer(&respond(request, |_, _, _| {
            let error = codes.next().unwrap_or(ErrorCode::CoordinatorNotAvailable);
            map_for_version(TxnApi::AddPartitionsToTxn, cx.version(), error)
        }))
    })
    .await
}

/// A code for each partition, by its topic's place in the request.
fn respond(
    request: AddPartitionsToTxnRequest,
    mut code: impl FnMut(usize, &str, i32) -> ErrorCode,
) -> AddPartitionsToTxnResponse {
    let topics = request.v3_and_below_topics.into_iter().enumerate();
    let results = topics.map(|(nth, topic)| {
        let partitions = topic.partitions.iter().map(|partition| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*partition)
                .with_partition_error_code(code(nth, &topic.name, *partition).code())
        });
        AddPartitionsToTxnTopicResult::default()
            .with_results_by_partition(partitions.collect())
            .with_name(topic.name)
    });
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results.collect())
}
