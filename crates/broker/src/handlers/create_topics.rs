//! CreateTopics (19), v2-v4: creates topics, or only says whether it could.
//!
//! v4 takes -1 for the broker's default partition count and replication factor (KIP-464). v5 and
//! later also answer what was created.

use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse, TopicName};
use tidemark_owner::{Command, CreateTopic, CreateTopics, Reply};
use tidemark_types::ErrorCode;

use super::{Cx, Pending, text, uuid, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: CreateTopicsRequest) -> Pending {
    let command = Command::CreateTopics(CreateTopics {
        topics: request
            .topics
            .iter()
            .map(|topic| CreateTopic {
                name: topic.name.to_string(),
                partitions: topic.num_partitions,
                replication_factor: topic.replication_factor,
                assignments: topic
                    .assignments
                    .iter()
                    .map(|a| {
                        (
                            a.partition_index,
                            a.broker_ids.iter().map(|b| b.0).collect(),
                        )
                    })
                    .collect(),
                configs: topic
                    .configs
                    .iter()
                    .map(|c| (c.name.to_string(), c.value.as_ref().map(|v| v.to_string())))
                    .collect(),
            })
            .collect(),
        validate_only: request.validate_only,
        auto: false,
    });
    cx.call(command, move |cx, reply| {
        let version = cx.version();
        let topics = match reply {
            Some(Reply::CreateTopics(created)) => created
                .into_iter()
                .map(|topic| {
                    let answer = CreatableTopicResult::default()
                        .with_name(TopicName(text(&topic.name)))
                        .with_error_code(topic.error.code())
                        .with_error_message(topic.message.as_deref().map(text));
                    let answer = match version {
                        5.. => answer
                            .with_num_partitions(topic.partitions)
                            .with_replication_factor(match topic.error.is_err() {
                                true => -1,
                                false => 1,
                            })
                            .with_configs(None),
                        _ => answer,
                    };
                    match version {
                        7.. => answer.with_topic_id(uuid(topic.id)),
                        _ => answer,
                    }
                })
                .collect(),
            Some(other) => wrong_reply(other),
            None => request
                .topics
                .into_iter()
                .map(|topic| {
                    CreatableTopicResult::default()
                        .with_name(topic.name)
                        .with_error_code(ErrorCode::RequestTimedOut.code())
                })
                .collect(),
        };
        cx.answer(&CreateTopicsResponse::default().with_topics(topics))
    })
    .await
}
