//! OffsetFetch (9), v1-v9: a group's committed positions.
//!
//! v2 all partitions and a group error; v5 leader epochs; v6 flexible; v7 requireStable (KIP-447);
//! v8 several groups; v9 member epochs (KIP-848). Read through the owner, behind its barrier: an
//! offset that was answered survives, and a commit that was answered is seen.

use std::collections::BTreeMap;

use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, TopicName};
use tidemark_group_coordinator::FetchedOffset;
use tidemark_owner::{Command, OffsetFetch, OffsetFetchGroup, Reply};
use tidemark_types::ErrorCode;

use super::{Cx, Outcome, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: OffsetFetchRequest) -> Pending {
    let version = cx.version();
    let groups = if version >= 8 {
        request
            .groups
            .iter()
            .map(|group| OffsetFetchGroup {
                group_id: group.group_id.to_string(),
                partitions: group.topics.as_ref().map(|topics| {
                    let topics = topics.iter();
                    topics
                        .map(|t| (t.name.to_string(), t.partition_indexes.clone()))
                        .collect()
                }),
            })
            .collect()
    } else {
        vec![OffsetFetchGroup {
            group_id: request.group_id.to_string(),
            partitions: request.topics.as_ref().map(|topics| {
                let topics = topics.iter();
                topics
                    .map(|t| (t.name.to_string(), t.partition_indexes.clone()))
                    .collect()
            }),
        }]
    };
    let command = Command::OffsetFetch(OffsetFetch {
        groups,
        require_stable: version >= 7 && request.require_stable,
    });
    cx.call(command, move |cx, reply| {
        let fetched = match reply {
            Some(Reply::OffsetFetch(fetched)) => Some(fetched),
            Some(other) => wrong_reply(other),
            None => None,
        };
        match cx.version() {
            8.. => respond_groups(cx, &request, fetched),
            _ => respond_group(cx, fetched),
        }
    })
    .await
}

fn respond_group(cx: &Cx, fetched: Option<Vec<Vec<FetchedOffset>>>) -> Outcome {
    let version = cx.version();
    let Some(offsets) = fetched.map(|groups| groups.into_iter().flatten()) else {
        // v1 has no place for an error of the group: no partitions, the client asks again.
        let response = OffsetFetchResponse::default();
        return cx.answer(&match version {
            2.. => response.with_error_code(ErrorCode::CoordinatorNotAvailable.code()),
            _ => response,
        });
    };
    let topics = by_topic(offsets)
        .into_iter()
        .map(|(topic, offsets)| {
            let partitions = offsets
                .into_iter()
                .map(|o| {
                    let answer = OffsetFetchResponsePartition::default()
                        .with_partition_index(o.partition)
                        .with_committed_offset(o.offset)
                        .with_metadata(Some(text(&o.metadata)))
                        .with_error_code(o.error.code());
                    match version {
                        5.. => answer.with_committed_leader_epoch(o.leader_epoch),
                        _ => answer,
                    }
                })
                .collect();
            OffsetFetchResponseTopic::default()
                .with_name(topic)
                .with_partitions(partitions)
        })
        .collect();
    cx.answer(&OffsetFetchResponse::default().with_topics(topics))
}

fn respond_groups(
    cx: &Cx,
    request: &OffsetFetchRequest,
    fetched: Option<Vec<Vec<FetchedOffset>>>,
) -> Outcome {
    let error = match fetched {
        Some(_) => ErrorCode::None,
        None => ErrorCode::CoordinatorNotAvailable,
    };
    let mut fetched = fetched.unwrap_or_default().into_iter();
    let groups = request
        .groups
        .iter()
        .map(|group| {
            let topics = by_topic(fetched.next().into_iter().flatten())
                .into_iter()
                .map(|(topic, offsets)| {
                    let partitions = offsets
                        .into_iter()
                        .map(|o| {
                            OffsetFetchResponsePartitions::default()
                                .with_partition_index(o.partition)
                                .with_committed_offset(o.offset)
                                .with_committed_leader_epoch(o.leader_epoch)
                                .with_metadata(Some(text(&o.metadata)))
                                .with_error_code(o.error.code())
                        })
                        .collect();
                    OffsetFetchResponseTopics::default()
                        .with_name(topic)
                        .with_partitions(partitions)
                })
                .collect();
            OffsetFetchResponseGroup::default()
                .with_group_id(group.group_id.clone())
                .with_error_code(error.code())
                .with_topics(topics)
        })
        .collect();
    cx.answer(&OffsetFetchResponse::default().with_groups(groups))
}

fn by_topic(
    offsets: impl Iterator<Item = FetchedOffset>,
) -> BTreeMap<TopicName, Vec<FetchedOffset>> {
    let mut topics: BTreeMap<TopicName, Vec<FetchedOffset>> = BTreeMap::new();
    for offset in offsets {
        let topic = TopicName(text(&offset.topic));
        topics.entry(topic).or_default().push(offset);
    }
    topics
}
