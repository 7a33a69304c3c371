//! DeleteTopics (20), v1-v6: deletes topics and the offsets that groups committed for them.
//!
//! v4 flexible; v5 an error message; v6 by topic id.
//!
//! Delete on the cluster, or on each topic. Who may not describe a topic does not hear whether there is
//! one of that name, nor the name of an id.

use std::collections::BTreeMap;

use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, DeleteTopic, DeleteTopics, DeletedTopic, Reply};
use tidemark_types::{ErrorCode, TopicId};

use crate::authorize::Resource;

use super::{Cx, Outcome, Pending, text, uuid, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: DeleteTopicsRequest) -> Pending {
    if !cx.shared.settings.delete_topic_enable {
        return Pending::Ready(refuse_all(&cx, request));
    }
    let Asked {
        topics,
        mut answered,
    } = sort_out(&request);
    let topics = permitted(&cx, topics, &mut answered);
    let by_id: Vec<bool> = topics
        .iter()
        .map(|topic| matches!(topic, DeleteTopic::Id(_)))
        .collect();
    let unanswered: Vec<DeletedTopic> = topics.iter().map(timed_out).collect();
    let command = Command::DeleteTopics(DeleteTopics { topics });
    cx.call(command, move |cx, reply| {
        let deleted = match reply {
            Some(Reply::DeleteTopics(deleted)) => deleted,
            Some(other) => wrong_reply(other),
            None => unanswered,
        };
        // One topic by its name and by its id: the answer for the name stands for both.
        let is_repeat = |(topic, by_id): &(DeletedTopic, bool)| *by_id && topic.error == REPEATED;
        let deleted = deleted.into_iter().zip(by_id).filter(|d| !is_repeat(d));
        answered.extend(deleted.map(|(topic, _)| topic));
        let responses = answered.iter().map(|topic| respond(cx.version(), topic));
        cx.answer(&DeleteTopicsResponse::default().with_responses(responses.collect()))
    })
    .await
}

/// Answers what the client may not delete, and leaves the rest to the owner: nothing is asked of it
/// without the right, also what does not exist yet.
fn permitted(
    cx: &Cx,
    topics: Vec<DeleteTopic>,
    answered: &mut Vec<DeletedTopic>,
) -> Vec<DeleteTopic> {
    let rights = cx.rights();
    if !rights.are_judged() || rights.might(Operation::Delete, Resource::Cluster) {
        return topics;
    }
    let image = cx.shared.read().image;
    let refuse = |topic: &DeleteTopic| {
        let found = match topic {
            DeleteTopic::Name(name) => image.topic(name),
            DeleteTopic::Id(id) => image.topic_by_id(*id),
        };
        let name = match topic {
            DeleteTopic::Name(name) => Some(name.as_str()),
            DeleteTopic::Id(_) => found.map(|topic| &*topic.name),
        };
        let describes =
            name.is_some_and(|name| rights.might(Operation::Describe, Resource::Topic(name)));
        if let Some(name) = name
            && rights.may(Operation::Delete, Resource::Topic(name))
            && (describes || matches!(topic, DeleteTopic::Id(_)))
        {
            return None;
        }
        let error = match topic {
            DeleteTopic::Id(_) if found.is_none() => ErrorCode::UnknownTopicId,
            DeleteTopic::Name(_) if describes && found.is_none() => {
                ErrorCode::UnknownTopicOrPartition
            }
            _ => ErrorCode::TopicAuthorizationFailed,
        };
        let (shown, id) = match topic {
            DeleteTopic::Name(name) => (Some(name.clone()), TopicId::ZERO),
            DeleteTopic::Id(id) => (name.filter(|_| describes).map(str::to_owned), *id),
        };
        Some(DeletedTopic {
            name: shown,
            id,
            error,
            message: None,
        })
    };
    let mut permitted = Vec::with_capacity(topics.len());
    for topic in topics {
        match refuse(&topic) {
            Some(refused) => answered.push(refused),
            None => permitted.push(topic),
        }
    }
    permitted
}

/// What the owner answers for a topic that is named twice.
const REPEATED: ErrorCode = ErrorCode::InvalidRequest;

/// A request's topics, and the answers that need no look at them.
#[derive(Default)]
struct Asked {
    topics: Vec<DeleteTopic>,
    answered: Vec<DeletedTopic>,
}

/// Kafka's checks of the request by itself. What is named twice is refused once.
fn sort_out(request: &DeleteTopicsRequest) -> Asked {
    let mut asked = Asked::default();
    let mut refuse = |name: Option<&TopicName>, id: TopicId, message: &str| {
        asked.answered.push(DeletedTopic {
            name: name.map(|name| name.to_string()),
            id,
            error: ErrorCode::InvalidRequest,
            message: Some(message.to_owned()),
        });
    };
    let mut names: BTreeMap<&TopicName, usize> = BTreeMap::new();
    let mut ids: BTreeMap<TopicId, usize> = BTreeMap::new();
    for name in &request.topic_names {
        *names.entry(name).or_default() += 1;
    }
    for topic in &request.topics {
        let id = TopicId(*topic.topic_id.as_bytes());
        match (&topic.name, id) {
            (None, TopicId::ZERO) => refuse(None, id, "Neither topic name nor id were specified."),
            (None, id) => *ids.entry(id).or_default() += 1,
            (Some(name), TopicId::ZERO) => *names.entry(name).or_default() += 1,
            (name, id) => refuse(
                name.as_ref(),
                id,
                "You may not specify both topic name and topic id.",
            ),
        }
    }
    let mut topics = Vec::new();
    for (name, times) in names {
        match times {
            1 => topics.push(DeleteTopic::Name(name.to_string())),
            _ => refuse(Some(name), TopicId::ZERO, "Duplicate topic name."),
        }
    }
    for (id, times) in ids {
        match times {
            1 => topics.push(DeleteTopic::Id(id)),
            _ => refuse(None, id, "Duplicate topic id."),
        }
    }
    asked.topics = topics;
    asked
}

/// The journal stopped: whether the topic is gone is not known.
fn timed_out(topic: &DeleteTopic) -> DeletedTopic {
    let (name, id) = match topic {
        DeleteTopic::Name(name) => (Some(name.clone()), TopicId::ZERO),
        DeleteTopic::Id(id) => (None, *id),
    };
    DeletedTopic {
        name,
        id,
        error: ErrorCode::RequestTimedOut,
        message: None,
    }
}

fn respond(version: i16, topic: &DeletedTopic) -> DeletableTopicResult {
    let answer = DeletableTopicResult::default()
        .with_name(topic.name.as_deref().map(|name| TopicName(text(name))))
        .with_error_code(topic.error.code());
    let answer = match version {
        5.. => answer.with_error_message(topic.message.as_deref().map(text)),
        _ => answer,
    };
    match version {
        6.. => answer.with_topic_id(uuid(topic.id)),
        _ => answer,
    }
}

/// `delete.topic.enable=false`.
fn refuse_all(cx: &Cx, request: DeleteTopicsRequest) -> Outcome {
    let version = cx.version();
    let error = match version {
        3.. => ErrorCode::TopicDeletionDisabled,
        _ => ErrorCode::InvalidRequest,
    };
    let named = request
        .topic_names
        .into_iter()
        .map(|name| (Some(name), TopicId::ZERO));
    let states = request
        .topics
        .into_iter()
        .map(|topic| (topic.name, TopicId(*topic.topic_id.as_bytes())));
    let responses = named
        .chain(states)
        .map(|(name, id)| {
            let answer = DeletableTopicResult::default()
                .with_name(name)
                .with_error_code(error.code());
            match version {
                6.. => answer.with_topic_id(uuid(id)),
                _ => answer,
            }
        })
        .collect();
    cx.answer(&DeleteTopicsResponse::default().with_responses(responses))
}
