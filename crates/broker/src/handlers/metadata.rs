//! Metadata (3), v0-v13: brokers, topics, partitions; creates topics that clients ask for.
//!
//! v1 internal topics; v2 cluster id; v4 auto-creation by choice; v7 leader epochs; v8-v10 authorised
//! operations; v9 flexible; v10 topic ids; v12 look-up by id; v13 a top-level error. Names are
//! answered one by one: a bad one does not fail the others.
//!
//! Describe on each topic: without it a name is answered alike whether there is such a topic or not,
//! and a list of all topics leaves it out; ids are no secret. To make what is not there takes Create on
//! the cluster or on the topic.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, TopicName};
use tidemark_authorizer::Operation;
use tidemark_metadata::{TopicImage, validate_topic_name};
use tidemark_owner::{Command, CreateTopic, CreateTopics, Reply};
use tidemark_types::{CLUSTER_METADATA, ErrorCode, TopicId};

use super::authorized_operations::{NOT_ASKED, of_cluster, of_topic};
use super::{Cx, Pending, text, uuid, wrong_reply};
use crate::authorize::Resource;
use crate::shared::View;

pub(crate) async fn handle(cx: Cx, request: MetadataRequest) -> Pending {
    let mut missing = missing_topics(&cx, &request);
    let is_to_create = cx.shared.settings.auto_create_topics_enable
        && (cx.version() < 4 || request.allow_auto_topic_creation);
    if !is_to_create {
        missing.clear();
    }
    let forbidden = forbidden_to_create(&cx, &mut missing);
    if missing.is_empty() {
        // When its turn comes, as in Kafka: topics that the requests before it on the connection
        // created or deleted are told as they are then.
        return Pending::later(async move { cx.answer(&respond(&cx, &request, &forbidden)) });
    }
    let command = Command::CreateTopics(CreateTopics {
        topics: missing
            .iter()
            .map(|name| CreateTopic {
                name: name.clone(),
                partitions: -1,
                replication_factor: -1,
                ..CreateTopic::default()
            })
            .collect(),
        validate_only: false,
        auto: true,
    });
    cx.call(command, move |cx, reply| {
        let mut errors: BTreeMap<String, ErrorCode> = match reply {
            Some(Reply::CreateTopics(created)) => created
                .into_iter()
                // Another request made it first: it is there.
                .filter(|t| t.error.is_err() && t.error != ErrorCode::TopicAlreadyExists)
                .map(|t| (t.name, t.error))
                .collect(),
            Some(other) => wrong_reply(other),
            None => missing
                .into_iter()
                .map(|name| (name, ErrorCode::LeaderNotAvailable))
                .collect(),
        };
        errors.extend(forbidden);
        // The reply came behind the barrier: the new topics are published.
        cx.answer(&respond(cx, &request, &errors))
    })
    .await
}

/// What a request is about.
enum Asked<'a> {
    All,
    /// Each once, in the order of the request.
    Names(Vec<&'a TopicName>),
    /// Each once, in the order of the request. Where one topic is named by its id, topics that are
    /// named by their names are passed over, as in Kafka.
    Ids(Vec<TopicId>),
    /// Before v12 a topic has its name and no id, from then on either.
    Invalid(&'a [MetadataRequestTopic]),
}

impl Asked<'_> {
    fn of(version: i16, request: &MetadataRequest) -> Asked<'_> {
        let Some(topics) = &request.topics else {
            return Asked::All;
        };
        if version == 0 && topics.is_empty() {
            // v0 has no null.
            return Asked::All;
        }
        let id_of = |topic: &MetadataRequestTopic| TopicId(*topic.topic_id.as_bytes());
        let has_id = |topic: &MetadataRequestTopic| id_of(topic) != TopicId::ZERO;
        let is_named = |topic: &MetadataRequestTopic| match version {
            ..12 => topic.name.is_some() && !has_id(topic),
            _ => topic.name.is_some() || has_id(topic),
        };
        if !topics.iter().all(is_named) {
            return Asked::Invalid(topics);
        }
        if topics.iter().any(has_id) {
            let mut seen = BTreeSet::new();
            let ids = topics.iter().filter(|t| has_id(t)).map(id_of);
            return Asked::Ids(ids.filter(|id| seen.insert(*id)).collect());
        }
        let mut seen = BTreeSet::new();
        let names = topics.iter().filter_map(|topic| topic.name.as_ref());
        Asked::Names(names.filter(|name| seen.insert(*name)).collect())
    }
}

/// Leaves out what the client may not create, and gives it back with what it is answered.
fn forbidden_to_create(cx: &Cx, missing: &mut Vec<String>) -> BTreeMap<String, ErrorCode> {
    let rights = cx.rights();
    if missing.is_empty() || rights.might(Operation::Create, Resource::Cluster) {
        return BTreeMap::new();
    }
    let (may, forbidden) = (std::mem::take(missing).into_iter())
        .partition(|name| rights.may(Operation::Create, Resource::Topic(name)));
    *missing = may;
    let forbidden: Vec<String> = forbidden;
    let code = ErrorCode::TopicAuthorizationFailed;
    forbidden.into_iter().map(|name| (name, code)).collect()
}

/// Valid names that no topic has, as far as the client may know.
fn missing_topics(cx: &Cx, request: &MetadataRequest) -> Vec<String> {
    let Asked::Names(names) = Asked::of(cx.version(), request) else {
        return Vec::new();
    };
    let image = cx.shared.read().image;
    let rights = cx.rights();
    names
        .into_iter()
        .filter(|name| image.topic(name).is_none() && validate_topic_name(name).is_ok())
        .filter(|name| rights.might(Operation::Describe, Resource::Topic(name)))
        .map(|name| name.to_string())
        .collect()
}

fn respond(
    cx: &Cx,
    request: &MetadataRequest,
    errors: &BTreeMap<String, ErrorCode>,
) -> MetadataResponse {
    let view = cx.shared.read();
    let version = cx.version();
    let rights = cx.rights();
    let operations = |name: &str| {
        let asked = request.include_topic_authorized_operations;
        of_topic(&rights, name, asked)
    };
    let may = |name: &str| rights.may(Operation::Describe, Resource::Topic(name));
    let forbidden = ErrorCode::TopicAuthorizationFailed;
    let topics = match Asked::of(version, request) {
        Asked::All => view
            .image
            .topics()
            .filter(|topic| &*topic.name != CLUSTER_METADATA)
            .filter(|topic| rights.might(Operation::Describe, Resource::Topic(&topic.name)))
            .map(|topic| describe(cx, &view, topic, operations(&topic.name)))
            .collect(),
        Asked::Names(names) => names
            .into_iter()
            .map(|name| match view.image.topic(name) {
                _ if !may(name) => unknown(version, Some(name.clone()), TopicId::ZERO, forbidden),
                Some(topic) => describe(cx, &view, topic, operations(name)),
                None => {
                    let error = no_such_name(name, errors);
                    let topic = unknown(version, Some(name.clone()), TopicId::ZERO, error);
                    match error {
                        ErrorCode::TopicAuthorizationFailed => topic,
                        // As in Kafka: what could be done if it were there.
                        _ => topic.with_topic_authorized_operations(operations(name)),
                    }
                }
            })
            .collect(),
        Asked::Ids(ids) => ids
            .into_iter()
            .map(|id| match view.image.topic_by_id(id) {
                Some(topic) if !may(&topic.name) => unknown(version, None, id, forbidden),
                Some(topic) => describe(cx, &view, topic, operations(&topic.name)),
                None => unknown(version, None, id, ErrorCode::UnknownTopicId),
            })
            .collect(),
        Asked::Invalid(topics) => topics
            .iter()
            .map(|topic| {
                let id = TopicId(*topic.topic_id.as_bytes());
                unknown(version, topic.name.clone(), id, ErrorCode::InvalidRequest)
            })
            .collect(),
    };
    let (host, port) = cx.advertised();
    let node = BrokerId(cx.shared.node_id().0);
    let response = MetadataResponse::default()
        .with_brokers(vec![
            MetadataResponseBroker::default()
                .with_node_id(node)
                .with_host(text(&host))
                .with_port(port),
        ])
        .with_controller_id(node)
        .with_cluster_authorized_operations(of_cluster(
            &rights,
            request.include_cluster_authorized_operations,
        ))
        .with_topics(topics);
    match (version, view.image.cluster_id()) {
        (2.., Some(id)) => response.with_cluster_id(Some(text(id))),
        _ => response,
    }
}

fn no_such_name(name: &str, errors: &BTreeMap<String, ErrorCode>) -> ErrorCode {
    if validate_topic_name(name).is_err() {
        return ErrorCode::InvalidTopicException;
    }
    errors
        .get(name)
        .copied()
        .unwrap_or(ErrorCode::UnknownTopicOrPartition)
}

fn unknown(
    version: i16,
    name: Option<TopicName>,
    id: TopicId,
    error: ErrorCode,
) -> MetadataResponseTopic {
    // Before v12 the name is not nullable.
    let name = match (version, name) {
        (12.., name) => name,
        (_, name) => Some(name.unwrap_or_default()),
    };
    MetadataResponseTopic::default()
        .with_error_code(error.code())
        .with_name(name)
        .with_topic_id(match version {
            10.. => uuid(id),
            _ => uuid(TopicId::ZERO),
        })
        .with_topic_authorized_operations(NOT_ASKED)
}

fn describe(
    cx: &Cx,
    view: &View<'_>,
    topic: &TopicImage,
    operations: i32,
) -> MetadataResponseTopic {
    let version = cx.version();
    let node = BrokerId(cx.shared.node_id().0);
    let epoch = topic.leader_epoch(view.image.journal_epoch());
    let partitions = (0..topic.partitions)
        .map(|index| {
            let partition = MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(node)
                .with_replica_nodes(vec![node])
                .with_isr_nodes(vec![node]);
            match version {
                7.. => partition.with_leader_epoch(epoch.0),
                _ => partition,
            }
        })
        .collect();
    let described = MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(&topic.name))))
        .with_is_internal(topic.internal && version >= 1)
        .with_topic_authorized_operations(operations)
        .with_partitions(partitions);
    match version {
        10.. => described.with_topic_id(uuid(topic.id)),
        _ => described,
    }
}
