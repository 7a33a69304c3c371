//! DescribeProducers (61), v0: who has written to a partition, and since where a transaction is
//! open (KIP-664). `kafka-transactions find-hanging` looks here. Read on each topic.

use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId};
use tidemark_authorizer::Operation;
use tidemark_metadata::validate_topic_name;
use tidemark_owner::{Command, DescribedProducer, Reply};
use tidemark_types::ErrorCode;

use super::{Cx, Pending, wrong_reply};

/// Kafka's "no transaction is open".
const NO_TRANSACTION: i64 = -1;

pub(crate) async fn handle(cx: Cx, request: DescribeProducersRequest) -> Pending {
    let topics = request.topics;
    let forbidden = (cx.rights()).forbidden(Operation::Read, topics.iter().map(|t| &*t.name));
    let partitions = forbidden
        .others(&topics)
        .flat_map(|topic| {
            let partitions = topic.partition_indexes.iter();
            partitions.map(|partition| (topic.name.to_string(), *partition))
        })
        .collect::<Vec<_>>();
    let count = partitions.len();
    cx.call(Command::DescribeProducers(partitions), move |cx, reply| {
        let described = match reply {
            Some(Reply::DescribeProducers(described)) => described,
            Some(other) => wrong_reply(other),
            None => vec![Err(ErrorCode::NotLeaderOrFollower); count],
        };
        let mut described = described.into_iter();
        let topics = topics.into_iter().enumerate().map(|(nth, topic)| {
            let invalid = validate_topic_name(&topic.name).is_err();
            let partitions = topic.partition_indexes.into_iter().map(|index| {
                let described = match forbidden.has(nth) {
                    true => Err(ErrorCode::TopicAuthorizationFailed),
                    false => described.next().expect("one result per partition"),
                };
                let described = match invalid {
                    true => Err(ErrorCode::InvalidTopicException),
                    false => described,
                };
                respond(index, described)
            });
            TopicResponse::default()
                .with_partitions(partitions.collect())
                .with_name(topic.name)
        });
        cx.answer(&DescribeProducersResponse::default().with_topics(topics.collect()))
    })
    .await
}

fn respond(index: i32, described: Result<Vec<DescribedProducer>, ErrorCode>) -> PartitionResponse {
    let answer = PartitionResponse::default().with_partition_index(index);
    match described {
        Err(code) => answer.with_error_code(code.code()),
        Ok(producers) => answer.with_active_producers(producers.iter().map(active).collect()),
    }
}

fn active(producer: &DescribedProducer) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(producer.producer_id.0))
        .with_producer_epoch(i32::from(producer.epoch.0))
        .with_last_sequence(producer.last_sequence)
        .with_last_timestamp(producer.last_wall_ms)
        .with_coordinator_epoch(producer.coordinator_epoch.0)
        .with_current_txn_start_offset(producer.current_txn_first_offset.unwrap_or(NO_TRANSACTION))
}
