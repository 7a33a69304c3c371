//! DescribeTransactions (65), v0: state, partitions and times of transactional ids (KIP-664). Describe on each id;
//! topics that the client may not describe are left out.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TopicName,
    TransactionalId,
};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, DescribedTransaction, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::{Resource, Rights};

use super::{Cx, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: DescribeTransactionsRequest) -> Pending {
    let ids = request.transactional_ids;
    let rights = cx.rights();
    let may = |id: &TransactionalId| rights.may(Operation::Describe, Resource::TransactionalId(id));
    let forbidden: Vec<bool> = ids.iter().map(|id| !may(id)).collect();
    let asked = ids.iter().zip(&forbidden).filter(|(_, is)| !**is);
    let names: Vec<String> = asked.map(|(id, _)| id.to_string()).collect();
    let count = names.len();
    cx.call(Command::DescribeTransactions(names), move |cx, reply| {
        let described = match reply {
            Some(Reply::DescribeTransactions(described)) => described,
            Some(other) => wrong_reply(other),
            None => vec![Err(ErrorCode::CoordinatorNotAvailable); count],
        };
        let mut described = described.into_iter();
        let rights = cx.rights();
        let states = ids.into_iter().zip(forbidden);
        let states = states.map(|(id, is_forbidden)| {
            let described = match is_forbidden {
                true => Err(ErrorCode::TransactionalIdAuthorizationFailed),
                false => described.next().expect("one result per id"),
            };
            respond(&rights, id, described)
        });
        cx.answer(
            &DescribeTransactionsResponse::default().with_transaction_states(states.collect()),
        )
    })
    .await
}

fn respond(
    rights: &Rights<'_>,
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
    topics.retain(|topic, _| rights.might(Operation::Describe, Resource::Topic(topic)));
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
