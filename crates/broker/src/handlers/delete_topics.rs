//! DeleteTopics (20), v1-v4: deletes topics and the offsets that groups committed for them.
//!
//! v4 flexible; v5 an error message; v6 by topic id.

use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use tidemark_owner::{Command, DeleteTopic, DeleteTopics, Reply};
use tidemark_types::{ErrorCode, TopicId};

use super::{Cx, Outcome, Pending, text, uuid, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: DeleteTopicsRequest) -> Pending {
    if !cx.shared.settings.delete_topic_enable {
        return Pending::Ready(refuse_all(&cx, request));
    }
    let topics: Vec<DeleteTopic> = if cx.version() >= 6 {
        request
            .topics
            .iter()
            .map(|topic| match &topic.name {
                Some(name) => DeleteTopic::Name(name.to_string()),
                None => DeleteTopic::Id(TopicId(*topic.topic_id.as_bytes())),
            })
            .collect()
    } else {
        let names = request.topic_names.iter();
        names
            .map(|name| DeleteTopic::Name(name.to_string()))
            .collect()
    };
    let command = Command::DeleteTopics(DeleteTopics { topics });
    cx.call(command, move |cx, reply| {
        let version = cx.version();
        let responses = match reply {
            Some(Reply::DeleteTopics(deleted)) => deleted
                .into_iter()
                .map(|topic| {
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
                })
                .collect(),
            Some(other) => wrong_reply(other),
            None => request
                .topic_names
                .into_iter()
                .map(|name| {
                    DeletableTopicResult::default()
                        .with_name(Some(name))
                        .with_error_code(ErrorCode::RequestTimedOut.code())
                })
                .collect(),
        };
        cx.answer(&DeleteTopicsResponse::default().with_responses(responses))
    })
    .await
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
