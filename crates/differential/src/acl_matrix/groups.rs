//! Consumer groups and their offsets.

use anyhow::Result;
use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest,
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, OffsetDeleteRequest,
    OffsetFetchRequest, SyncGroupRequest, TopicName,
};

use super::Asked;
use super::world::{World, numbers, text};

const BOTH: &[&str] = &[
    "Read group",
    "Read topic",
    "Read group, Describe topic",
    "Read group, Read topic-",
];
const SEEN: &[&str] = &[
    "Describe group",
    "Read group",
    "Describe topic",
    "Describe group, Describe topic",
    "Read group, Read topic",
];

pub(super) const ASKED: &[Asked] = &[
    Asked {
        key: 8,
        name: "OffsetCommit v8",
        rights: BOTH,
        ask: offset_commit,
    },
    Asked {
        key: 9,
        name: "OffsetFetch v8",
        rights: SEEN,
        ask: |w| offset_fetch(w, 8, false),
    },
    Asked {
        key: 9,
        name: "OffsetFetch v8 of all topics",
        rights: SEEN,
        ask: |w| offset_fetch(w, 8, true),
    },
    Asked {
        key: 9,
        name: "OffsetFetch v5",
        rights: SEEN,
        ask: |w| offset_fetch(w, 5, false),
    },
    Asked {
        key: 9,
        name: "OffsetFetch v1",
        rights: SEEN,
        ask: |w| offset_fetch(w, 1, false),
    },
    Asked {
        key: 10,
        name: "FindCoordinator v3 of a group",
        rights: &["Describe group", "Read group", "Describe id"],
        ask: |w| find_coordinator(w, 3, 0),
    },
    Asked {
        key: 10,
        name: "FindCoordinator v4 of a group",
        rights: &["Describe group", "Delete group"],
        ask: |w| find_coordinator(w, 4, 0),
    },
    Asked {
        key: 10,
        name: "FindCoordinator v4 of a transactional id",
        rights: &["Describe id", "Write id-", "Describe group"],
        ask: |w| find_coordinator(w, 4, 1),
    },
    Asked {
        key: 11,
        name: "JoinGroup v5",
        rights: &["Read group", "Describe group"],
        ask: join_group,
    },
    Asked {
        key: 14,
        name: "SyncGroup v5",
        rights: &["Read group", "Describe group"],
        ask: |w| sync_group(w, Some("consumer")),
    },
    Asked {
        key: 14,
        name: "SyncGroup v5 without a protocol",
        rights: &["Read group"],
        ask: |w| sync_group(w, None),
    },
    Asked {
        key: 12,
        name: "Heartbeat v3",
        rights: &["Read group", "Describe group"],
        ask: heartbeat,
    },
    Asked {
        key: 13,
        name: "LeaveGroup v3",
        rights: &["Read group", "Describe group"],
        ask: leave_group,
    },
    Asked {
        key: 15,
        name: "DescribeGroups v5, with operations",
        rights: &["Describe group", "Read group, Delete group", "All group"],
        ask: |w| describe_groups(w, 5),
    },
    Asked {
        key: 15,
        name: "DescribeGroups v6, with operations",
        rights: &["Describe group"],
        ask: |w| describe_groups(w, 6),
    },
    Asked {
        key: 16,
        name: "ListGroups v4",
        rights: &[
            "Describe group",
            "Read group",
            "Describe cluster",
            "Describe topic",
        ],
        ask: list_groups,
    },
    Asked {
        key: 42,
        name: "DeleteGroups v2",
        rights: &["Delete group", "Read group"],
        ask: delete_groups,
    },
    Asked {
        key: 47,
        name: "OffsetDelete v0",
        rights: &["Delete group", "Read topic", "Delete group, Read topic"],
        ask: |w| offset_delete(w, vec![w.topic.clone()], w.group.clone()),
    },
    Asked {
        key: 47,
        name: "OffsetDelete v0 of a group that is not there",
        rights: &["Delete group-", "Delete group-, Read topic"],
        ask: |w| offset_delete(w, vec![w.topic.clone()], format!("{}-none", w.group)),
    },
    Asked {
        key: 47,
        name: "OffsetDelete v0 with a topic that nobody has",
        rights: &[
            "Delete group",
            "Delete group, Read topic",
            "Delete group, Read topic-",
        ],
        ask: |w| {
            let nobodys = format!("{}-none", w.topic);
            offset_delete(w, vec![w.topic.clone(), nobodys], w.group.clone())
        },
    },
    Asked {
        key: 47,
        name: "OffsetDelete v0 of no topics",
        rights: &["Delete group"],
        ask: |w| offset_delete(w, vec![], w.group.clone()),
    },
];

fn offset_commit(w: &mut World) -> Result<Vec<i64>> {
    let request = w.offset_commit();
    let answer = w.ask(8, &request)?;
    numbers(answer, |a| {
        let partitions = a.topics.iter().flat_map(|t| &t.partitions);
        partitions.map(|p| p.error_code.into()).collect()
    })
}

/// The group's code, then each partition's with its offset.
fn offset_fetch(w: &mut World, version: i16, all: bool) -> Result<Vec<i64>> {
    let mut request = OffsetFetchRequest::default();
    if version >= 8 {
        let topic = OffsetFetchRequestTopics::default()
            .with_name(w.topic_name())
            .with_partition_indexes(vec![0]);
        let group = OffsetFetchRequestGroup::default()
            .with_group_id(w.group_id())
            .with_topics((!all).then(|| vec![topic]));
        request = request.with_groups(vec![group]);
    } else {
        let topic = OffsetFetchRequestTopic::default()
            .with_name(w.topic_name())
            .with_partition_indexes(vec![0]);
        request = request
            .with_group_id(w.group_id())
            .with_topics(Some(vec![topic]));
    }
    let answer = w.ask(version, &request)?;
    numbers(answer, |a| {
        let mut told: Vec<i64> = Vec::new();
        if version < 8 {
            told.push(a.error_code.into());
            let partitions = a.topics.iter().flat_map(|t| &t.partitions);
            told.extend(partitions.flat_map(|p| [p.error_code.into(), p.committed_offset]));
        }
        for group in &a.groups {
            told.push(group.error_code.into());
            let partitions = group.topics.iter().flat_map(|t| &t.partitions);
            told.extend(partitions.flat_map(|p| [p.error_code.into(), p.committed_offset]));
        }
        told
    })
}

fn find_coordinator(w: &mut World, version: i16, kind: i8) -> Result<Vec<i64>> {
    let key = match kind {
        0 => text(&w.group),
        _ => text(&w.id),
    };
    let request = FindCoordinatorRequest::default().with_key_type(kind);
    let request = match version {
        4.. => request.with_coordinator_keys(vec![key]),
        _ => request.with_key(key),
    };
    let answer = w.ask(version, &request)?;
    numbers(answer, |a| match version {
        4.. => {
            let found = a.coordinators.iter();
            found
                .flat_map(|c| [c.error_code.into(), c.node_id.0.into()])
                .collect()
        }
        _ => vec![a.error_code.into(), a.node_id.0.into()],
    })
}

fn join_group(w: &mut World) -> Result<Vec<i64>> {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(b"x"));
    let request = JoinGroupRequest::default()
        .with_group_id(w.group_id())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    let answer = w.ask(5, &request)?;
    numbers(answer, |a| vec![a.error_code.into()])
}

fn sync_group(w: &mut World, protocol: Option<&str>) -> Result<Vec<i64>> {
    let request = SyncGroupRequest::default()
        .with_group_id(w.group_id())
        .with_generation_id(1)
        .with_member_id(text("nobody"))
        .with_protocol_type(protocol.map(text))
        .with_protocol_name(protocol.map(text));
    let answer = w.ask(5, &request)?;
    numbers(answer, |a| vec![a.error_code.into()])
}

fn heartbeat(w: &mut World) -> Result<Vec<i64>> {
    let request = HeartbeatRequest::default()
        .with_group_id(w.group_id())
        .with_generation_id(1)
        .with_member_id(text("nobody"));
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| vec![a.error_code.into()])
}

fn leave_group(w: &mut World) -> Result<Vec<i64>> {
    let member = MemberIdentity::default().with_member_id(text("nobody"));
    let request = LeaveGroupRequest::default()
        .with_group_id(w.group_id())
        .with_members(vec![member]);
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| {
        let members = a.members.iter().map(|m| m.error_code.into());
        std::iter::once(a.error_code.into())
            .chain(members)
            .collect()
    })
}

fn describe_groups(w: &mut World, version: i16) -> Result<Vec<i64>> {
    let request = DescribeGroupsRequest::default()
        .with_groups(vec![w.group_id()])
        .with_include_authorized_operations(true);
    let answer = w.ask(version, &request)?;
    numbers(answer, |a| {
        let groups = a.groups.iter();
        groups
            .flat_map(|g| [g.error_code.into(), g.authorized_operations.into()])
            .collect()
    })
}

/// The code, and how often the group is told.
fn list_groups(w: &mut World) -> Result<Vec<i64>> {
    let id = w.group_id();
    let answer = w.ask(4, &ListGroupsRequest::default())?;
    numbers(answer, |a| {
        let told = a.groups.iter().filter(|g| g.group_id == id);
        vec![a.error_code.into(), told.count() as i64]
    })
}

fn delete_groups(w: &mut World) -> Result<Vec<i64>> {
    let request = DeleteGroupsRequest::default().with_groups_names(vec![w.group_id()]);
    let answer = w.ask(2, &request)?;
    numbers(answer, |a| {
        a.results.iter().map(|r| r.error_code.into()).collect()
    })
}

/// The code of the whole, then each partition's, by the topics' names.
fn offset_delete(w: &mut World, topics: Vec<String>, group: String) -> Result<Vec<i64>> {
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let topics = topics.iter().map(|name| {
        OffsetDeleteRequestTopic::default()
            .with_name(TopicName(text(name)))
            .with_partitions(vec![partition.clone()])
    });
    let request = OffsetDeleteRequest::default()
        .with_group_id(GroupId(text(&group)))
        .with_topics(topics.collect());
    let answer = w.ask(0, &request)?;
    numbers(answer, |a| {
        let mut topics: Vec<_> = a.topics.iter().collect();
        topics.sort_by_key(|topic| &*topic.name);
        let partitions = topics.into_iter().flat_map(|t| &t.partitions);
        std::iter::once(a.error_code.into())
            .chain(partitions.map(|p| p.error_code.into()))
            .collect()
    })
}
