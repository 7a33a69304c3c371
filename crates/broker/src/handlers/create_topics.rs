//! CreateTopics (19), v2-v7: creates topics, or only says whether it could.
//!
//! v4 takes -1 for the broker's default partition count and replication factor (KIP-464). v5
//! flexible; it also answers what was created (KIP-525); v7 topic ids. Create on the
//! cluster or on each topic; DescribeConfigs to be answered what was created.

use std::collections::BTreeMap;

use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse, TopicName};
use tidemark_authorizer::Operation;
use tidemark_metadata::describe_topic_configs;
use tidemark_owner::{Command, CreateTopic, CreateTopics, Reply};
use tidemark_types::{CLUSTER_METADATA, ErrorCode};

use crate::authorize::Resource;

use super::{Cx, Pending, text, uuid, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: CreateTopicsRequest) -> Pending {
    let forbidden = forbidden(&cx, &request);
    let command = Command::CreateTopics(CreateTopics {
        topics: request
            .topics
            .iter()
            .filter(|topic| !forbidden.contains(&topic.name))
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
        let rights = cx.rights();
        let mut topics: Vec<CreatableTopicResult> = match reply {
            Some(Reply::CreateTopics(created)) => created
                .into_iter()
                .map(|topic| {
                    let answer = CreatableTopicResult::default()
                        .with_name(TopicName(text(&topic.name)))
                        .with_error_code(topic.error.code())
                        .with_error_message(topic.message.as_deref().map(text));
                    let answer = match version {
                        5.. if topic.error.is_err() => answer
                            .with_num_partitions(-1)
                            .with_replication_factor(-1)
                            .with_configs(Some(Vec::new())),
                        5.. if !rights
                            .might(Operation::DescribeConfigs, Resource::Topic(&topic.name)) =>
                        {
                            let code = ErrorCode::TopicAuthorizationFailed.code();
                            answer
                                .with_num_partitions(-1)
                                .with_replication_factor(-1)
                                .with_configs(Some(Vec::new()))
                                .with_topic_config_error_code(code)
                        }
                        5.. => answer
                            .with_num_partitions(topic.partitions)
                            .with_replication_factor(1)
                            .with_configs(Some(configs(cx, &topic.config))),
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
                .filter(|topic| !forbidden.contains(&topic.name))
                .map(|topic| {
                    CreatableTopicResult::default()
                        .with_name(topic.name)
                        .with_error_code(ErrorCode::RequestTimedOut.code())
                })
                .collect(),
        };
        topics.extend(forbidden.into_iter().map(|name| {
            let refused = CreatableTopicResult::default()
                .with_name(name)
                .with_error_code(ErrorCode::TopicAuthorizationFailed.code())
                .with_error_message(Some(text("Authorization failed.")));
            match version {
                5.. => refused
                    .with_num_partitions(-1)
                    .with_replication_factor(-1)
                    .with_configs(Some(Vec::new())),
                _ => refused,
            }
        }));
        cx.answer(&CreateTopicsResponse::default().with_topics(topics))
    })
    .await
}

/// What the client may not create. A name that comes twice is refused for that, and so is the one name
/// that nobody may create.
fn forbidden(cx: &Cx, request: &CreateTopicsRequest) -> Vec<TopicName> {
    let rights = cx.rights();
    if !rights.are_judged() || rights.might(Operation::Create, Resource::Cluster) {
        return Vec::new();
    }
    let mut times_named: BTreeMap<&TopicName, usize> = BTreeMap::new();
    for topic in &request.topics {
        *times_named.entry(&topic.name).or_default() += 1;
    }
    let once = times_named.into_iter().filter(|(_, times)| *times == 1);
    once.map(|(name, _)| name)
        .filter(|name| ***name != *CLUSTER_METADATA)
        .filter(|name| !rights.may(Operation::Create, Resource::Topic(name)))
        .cloned()
        .collect()
}

/// The new topic's whole configuration, its own values and the broker's.
fn configs(cx: &Cx, own: &BTreeMap<String, String>) -> Vec<CreatableTopicConfigs> {
    describe_topic_configs(own, &cx.shared.read().defaults)
        .into_iter()
        .map(|entry| {
            CreatableTopicConfigs::default()
                .with_name(text(entry.name))
                .with_value(entry.value.as_deref().map(text))
                .with_read_only(entry.read_only)
                .with_config_source(entry.source.wire_code())
                .with_is_sensitive(entry.sensitive)
        })
        .collect()
}
