//! AddPartitionsToTxn (24), v0-v3: a transaction names partitions it will write.
//!
//! Answered when the enrolment is durable: a lost one would be fatal for the client later. v2
//! PRODUCER_FENCED (KIP-588); v3 flexible. v4 and later are for brokers only: Kafka asks for
//! CLUSTER_ACTION there, and clients stay below.

use std::sync::Arc;

use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};
use tidemark_owner::{AddPartitions, Command, Reply};
use tidemark_txn_coordinator::{TxnApi, map_for_version};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: AddPartitionsToTxnRequest) -> Pending {
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
        let results = request
            .v3_and_below_topics
            .into_iter()
            .map(|topic| {
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|partition| {
                        let error = codes.next().unwrap_or(ErrorCode::CoordinatorNotAvailable);
                        let error =
                            map_for_version(TxnApi::AddPartitionsToTxn, cx.version(), error);
                        AddPartitionsToTxnPartitionResult::default()
                            .with_partition_index(*partition)
                            .with_partition_error_code(error.code())
                    })
                    .collect();
                AddPartitionsToTxnTopicResult::default()
                    .with_name(topic.name)
                    .with_results_by_partition(partitions)
            })
            .collect();
        cx.answer(
            &AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results),
        )
    })
    .await
}
