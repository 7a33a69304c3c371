//! OffsetFetch (9), v1-v9: a group's committed positions.
//!
//! v2 all partitions and a group error; v5 leader epochs; v6 flexible; v7 requireStable (KIP-447);
//! v8 several groups; v9 member epochs (KIP-848). Read through the owner, behind its barrier: an
//! offset that was answered survives, and a commit that was answered is seen. Describe on the group and
//! on each topic.

use std::collections::BTreeMap;

use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, TopicName};
use tidemark_authorizer::Operation;
use tidemark_group_coordinator::FetchedOffset;
use tidemark_owner::{Command, OffsetFetch, OffsetFetchGroup, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Outcome, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: OffsetFetchRequest) -> Pending {
    let version = cx.version();
    let asked: Vec<OffsetFetchGroup> = if version >= 8 {
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
    let (groups, rights) = sort_out(&cx, asked);
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
        let groups = merge(cx, rights, fetched);
        match cx.version() {
            8.. => respond_groups(cx, &request, groups),
            _ => respond_group(cx, groups),
        }
    })
    .await
}

/// What a client may see of a group.
enum Seen {
    /// Nothing. With the partitions that were asked for.
    Nothing(Vec<FetchedOffset>),
    /// What the owner answers, and these partitions, of topics that it may not describe.
    But(Vec<FetchedOffset>),
}

/// What is asked of the owner, and what becomes of each group.
fn sort_out(cx: &Cx, asked: Vec<OffsetFetchGroup>) -> (Vec<OffsetFetchGroup>, Vec<Seen>) {
    let rights = cx.rights();
    let mut groups = Vec::with_capacity(asked.len());
    let mut seen = Vec::with_capacity(asked.len());
    for mut group in asked {
        if !rights.may(Operation::Describe, Resource::Group(&group.group_id)) {
            let all = group.partitions.unwrap_or_default();
            seen.push(Seen::Nothing(refused(
                all,
                ErrorCode::GroupAuthorizationFailed,
            )));
            continue;
        }
        let mut forbidden = Vec::new();
        if let Some(topics) = &mut group.partitions {
            let may = |topic: &str| rights.may(Operation::Describe, Resource::Topic(topic));
            let all = std::mem::take(topics).into_iter();
            (*topics, forbidden) = all.partition(|(topic, _)| may(topic));
        }
        seen.push(Seen::But(refused(
            forbidden,
            ErrorCode::TopicAuthorizationFailed,
        )));
        groups.push(group);
    }
    (groups, seen)
}

fn refused(topics: Vec<(String, Vec<i32>)>, error: ErrorCode) -> Vec<FetchedOffset> {
    let partitions = topics.into_iter().flat_map(|(topic, partitions)| {
        let partitions = partitions.into_iter();
        partitions.map(move |partition| FetchedOffset {
            topic: topic.clone(),
            partition,
            offset: -1,
            leader_epoch: -1,
            metadata: String::new(),
            error,
        })
    });
    partitions.collect()
}

/// Each group's error and offsets, in the order of the request. `None`: the owner did not answer.
fn merge(
    cx: &Cx,
    seen: Vec<Seen>,
    fetched: Option<Vec<Vec<FetchedOffset>>>,
) -> Vec<(ErrorCode, Vec<FetchedOffset>)> {
    let rights = cx.rights();
    let mut fetched = fetched.map(Vec::into_iter);
    let groups = seen.into_iter().map(|seen| match (seen, &mut fetched) {
        (Seen::Nothing(partitions), _) => (ErrorCode::GroupAuthorizationFailed, partitions),
        (Seen::But(_), None) => (ErrorCode::CoordinatorNotAvailable, Vec::new()),
        (Seen::But(forbidden), Some(fetched)) => {
            // Of a whole group those that it may describe are told, without a word of the others.
            let mut offsets = fetched.next().unwrap_or_default();
            offsets.retain(|o| rights.might(Operation::Describe, Resource::Topic(&o.topic)));
            offsets.extend(forbidden);
            (ErrorCode::None, offsets)
        }
    });
    groups.collect()
}

fn respond_group(cx: &Cx, mut groups: Vec<(ErrorCode, Vec<FetchedOffset>)>) -> Outcome {
    let version = cx.version();
    let (error, offsets) = groups.pop().expect("one group was asked for");
    if version >= 2 && error.is_err() {
        return cx.answer(&OffsetFetchResponse::default().with_error_code(error.code()));
    }
    // v1 has no place for an error of the group: it stands with each partition, or, where the owner
    // did not answer, there are none, and the client asks again.
    let offsets = offsets.into_iter();
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
    groups: Vec<(ErrorCode, Vec<FetchedOffset>)>,
) -> Outcome {
    let groups = request
        .groups
        .iter()
        .zip(groups)
        .map(|(group, (error, offsets))| {
            let offsets = match error {
                ErrorCode::None => offsets,
                _ => Vec::new(),
            };
            let topics = by_topic(offsets.into_iter())
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
