//! DescribeTransactions (65), v0: state, partitions and times of transactional ids (KIP-664).

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TopicName,
    TransactionalId,
};
use tidemark_owner::{Command, DescribedTransaction, Reply};
use tidemark_types::ErrorCode;

use super::{Cx, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: DescribeTransactionsRequest) -> Pending {
    let ids = request.transactional_ids;
    let names = ids.iter().map(|id| id.to_string()).collect();
    cx.call(Command::DescribeTransactions(names), move |cx, reply| {
        let described = match reply {
            Some(Reply::DescribeTransactions(described)) => described,
            Some(other) => wrong_reply(other),
            None => vec![Err(ErrorCode::CoordinatorNotAvailable); ids.len()],
        };
        let states = ids.into_iter().zip(described);
        let states = states.map(|(id, described)| respond(id, described));
        cx.answer(
            &DescribeTransactionsResponse::default().with_transaction_states(states.collect()),
        )
    })
    .await
}

fn respond(
    id: TransactionalId,
    described: Result<DescribedTransaction, ErrorCode>,
) -> TransactionState {
    let answer = TransactionState::default().with_transactional_id(id);
    let described = match described {
        Ok(described) => described,
        Err(code) => return answer.with_error_code(code.code()),
    };
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in &described.partitions {
        topics.entry(topic).or_default().push(*partition);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        TopicData::default()
            .with_topic(TopicName(text(topic)))
            .with_partitions(partitions)
    });
    answer
        .with_transaction_state(text(described.state.name()))
        .with_transaction_timeout_ms(described.timeout_ms)
        .with_transaction_start_time_ms(described.start_wall_ms)
        .with_producer_id(ProducerId(described.producer_id.0))
        .with_producer_epoch(described.epoch.0)
        .with_topics(topics.collect())
}
