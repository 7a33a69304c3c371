//! CreatePartitions (37), v0-v3: topics get more partitions (KIP-195).
//!
//! v2 flexible; v3 THROTTLING_QUOTA_EXCEEDED (never sent). Alter on each topic.

use std::collections::BTreeMap;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse, TopicName};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, CreatePartitions, GrowTopic, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: CreatePartitionsRequest) -> Pending {
    let mut times_named: BTreeMap<TopicName, usize> = BTreeMap::new();
    for topic in &request.topics {
        *times_named.entry(topic.name.clone()).or_default() += 1;
    }
    let rights = cx.rights();
    let may =
        |topic: &CreatePartitionsTopic| rights.may(Operation::Alter, Resource::Topic(&topic.name));
    let once = request.topics.into_iter();
    let once = once.filter(|topic| times_named[&topic.name] == 1);
    let (permitted, forbidden): (Vec<_>, Vec<_>) = once.partition(may);
    let topics: Vec<GrowTopic> = permitted
        .into_iter()
        .map(|topic| GrowTopic {
            name: topic.name.to_string(),
            count: topic.count,
            assignments: topic.assignments.map(|assignments| {
                let brokers = assignments.into_iter().map(|a| a.broker_ids);
                brokers
                    .map(|ids| ids.into_iter().map(|id| id.0).collect())
                    .collect()
            }),
        })
        .collect();
    let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
    let command = Command::CreatePartitions(CreatePartitions {
        topics,
        validate_only: request.validate_only,
    });
    cx.call(command, move |cx, reply| {
        let mut grown = match reply {
            Some(Reply::CreatePartitions(grown)) => grown,
            Some(other) => wrong_reply(other),
            None => Vec::new(),
        }
        .into_iter();
        let timed_out = || {
            let message = "The journal stopped before the partitions were durable.".to_owned();
            Err((ErrorCode::RequestTimedOut, message))
        };
        // A name that comes twice is refused once.
        let repeated = times_named.into_iter().filter(|(_, times)| *times > 1);
        let repeated = repeated.map(|(name, _)| {
            CreatePartitionsTopicResult::default()
                .with_name(name)
                .with_error_code(ErrorCode::InvalidRequest.code())
                .with_error_message(Some(text("Duplicate topic name.")))
        });
        let forbidden = forbidden.into_iter().map(|topic| {
            CreatePartitionsTopicResult::default()
                .with_name(topic.name)
                .with_error_code(ErrorCode::TopicAuthorizationFailed.code())
                .with_error_message(None)
        });
        let results = repeated
            .chain(forbidden)
            .chain(names.iter().map(|name| {
                let result =
                    CreatePartitionsTopicResult::default().with_name(TopicName(text(name)));
                match grown.next().unwrap_or_else(timed_out) {
                    Ok(()) => result,
                    Err((error, message)) => result
                        .with_error_code(error.code())
                        .with_error_message(Some(text(&message))),
                }
            }))
            .collect();
        cx.answer(&CreatePartitionsResponse::default().with_results(results))
    })
    .await
}
