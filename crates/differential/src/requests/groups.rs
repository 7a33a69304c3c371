//! The group APIs.

use anyhow::{Context, Result};
use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest,
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::{Body, encode, group_id, places, text, topic_name};
use crate::env::Env;
use crate::script::Line;

/// Who speaks: `as=NAME` for a member that joined, or `member=` and `gen=` literally, and
/// `instance=`.
pub struct Membership {
    pub id: StrBytes,
    pub generation: i32,
    pub instance: Option<StrBytes>,
}

pub fn membership(line: &Line, env: &Env, generation: i32) -> Result<Membership> {
    let (id, generation) = match line.get("as") {
        Some(name) => env.member(name)?,
        None => (String::new(), generation),
    };
    let id = line.get("member").map_or(id, str::to_owned);
    Ok(Membership {
        id: text(&id),
        generation: line.number("gen", generation)?,
        instance: line.get("instance").map(text),
    })
}

/// `join group= [as=|member=] [proto=range:meta,rr:meta] [type=] [session=] [rebalance=] -> m`
pub fn join(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let member = membership(line, env, -1)?;
    let mut protocols = Vec::new();
    for protocol in line.get("proto").unwrap_or("range:m").split(',') {
        if protocol.is_empty() {
            continue;
        }
        let (name, metadata) = protocol.split_once(':').unwrap_or((protocol, ""));
        protocols.push(
            JoinGroupRequestProtocol::default()
                .with_name(text(name))
                .with_metadata(Bytes::copy_from_slice(metadata.as_bytes())),
        );
    }
    let mut request = JoinGroupRequest::default()
        .with_group_id(group_id(line.need("group")?))
        .with_session_timeout_ms(line.number("session", 30_000)?)
        .with_member_id(member.id)
        .with_protocol_type(text(line.get("type").unwrap_or("consumer")))
        .with_protocols(protocols);
    if version >= 1 {
        request = request.with_rebalance_timeout_ms(line.number("rebalance", 20_000)?);
    }
    if version >= 5 {
        request = request.with_group_instance_id(member.instance);
    }
    encode(version, &request)
}

/// `sync group= as= [assign=m1:bytes,m2:bytes] [ptype=] [pname=]`
pub fn sync(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let member = membership(line, env, 0)?;
    let mut assignments = Vec::new();
    for assignment in line.get("assign").unwrap_or("").split(',') {
        if let Some((name, bytes)) = assignment.split_once(':') {
            let id = env.member(name).map_or(name.to_owned(), |(id, _)| id);
            assignments.push(
                SyncGroupRequestAssignment::default()
                    .with_member_id(text(&id))
                    .with_assignment(Bytes::copy_from_slice(bytes.as_bytes())),
            );
        }
    }
    let mut request = SyncGroupRequest::default()
        .with_group_id(group_id(line.need("group")?))
        .with_generation_id(member.generation)
        .with_member_id(member.id)
        .with_assignments(assignments);
    if version >= 3 {
        request = request.with_group_instance_id(member.instance);
    }
    if version >= 5 {
        request = request
            .with_protocol_type(Some(text(line.get("ptype").unwrap_or("consumer"))))
            .with_protocol_name(Some(text(line.get("pname").unwrap_or("range"))));
    }
    encode(version, &request)
}

/// `heartbeat group= as=`
pub fn heartbeat(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let member = membership(line, env, 0)?;
    let mut request = HeartbeatRequest::default()
        .with_group_id(group_id(line.need("group")?))
        .with_generation_id(member.generation)
        .with_member_id(member.id);
    if version >= 3 {
        request = request.with_group_instance_id(member.instance);
    }
    encode(version, &request)
}

/// `leave group= as=`
pub fn leave(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let member = membership(line, env, 0)?;
    let mut request = LeaveGroupRequest::default().with_group_id(group_id(line.need("group")?));
    if version >= 3 {
        request = request.with_members(vec![
            MemberIdentity::default()
                .with_member_id(member.id)
                .with_group_instance_id(member.instance),
        ]);
    } else {
        request = request.with_member_id(member.id);
    }
    encode(version, &request)
}

/// `commit group= t/0@5 ... [as=|member=|gen=|instance=] [meta=] [epoch=]`
pub fn offset_commit(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let member = membership(line, env, -1)?;
    let mut topics = Vec::new();
    for (topic, places) in places(line)? {
        let mut partitions = Vec::new();
        for place in places {
            let metadata = line.get("meta").unwrap_or("");
            let long = metadata.strip_prefix("x*").map(str::parse::<usize>);
            let metadata = match long {
                Some(length) => Some(text(&"x".repeat(length?))),
                None => (metadata != "null").then(|| text(metadata)),
            };
            let mut partition = OffsetCommitRequestPartition::default()
                .with_partition_index(place.partition)
                .with_committed_offset(place.offset.unwrap_or(0))
                .with_committed_metadata(metadata);
            if version >= 6 {
                partition = partition.with_committed_leader_epoch(line.number("epoch", -1)?);
            }
            partitions.push(partition);
        }
        topics.push(
            OffsetCommitRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(partitions),
        );
    }
    let mut request = OffsetCommitRequest::default()
        .with_group_id(group_id(line.need("group")?))
        .with_generation_id_or_member_epoch(member.generation)
        .with_member_id(member.id)
        .with_topics(topics);
    if version >= 7 {
        request = request.with_group_instance_id(member.instance);
    }
    encode(version, &request)
}

/// `committed group= [t/0 ...] [stable=1]`: without partitions all of the group.
pub fn offset_fetch(line: &Line, version: i16) -> Result<Body> {
    let topics = places(line)?;
    let partitions =
        |places: &[super::Place<'_>]| places.iter().map(|p| p.partition).collect::<Vec<_>>();
    let all = topics.is_empty() && !line.flag("none", false)?;
    let mut request = OffsetFetchRequest::default();
    if version >= 7 {
        request = request.with_require_stable(line.flag("stable", false)?);
    }
    let group = group_id(line.need("group")?);
    if version >= 8 {
        let topics = topics
            .iter()
            .map(|(topic, places)| {
                OffsetFetchRequestTopics::default()
                    .with_name(topic_name(topic))
                    .with_partition_indexes(partitions(places))
            })
            .collect();
        let groups = [Some(group), line.get("group2").map(group_id)];
        let entry = OffsetFetchRequestGroup::default().with_topics((!all).then_some(topics));
        let entry = match version {
            9.. => entry
                .with_member_id(line.get("member").map(text))
                .with_member_epoch(line.number("gen", -1)?),
            _ => entry,
        };
        request = request.with_groups(
            groups
                .into_iter()
                .flatten()
                .map(|id| entry.clone().with_group_id(id))
                .collect(),
        );
    } else {
        let topics = topics
            .iter()
            .map(|(topic, places)| {
                OffsetFetchRequestTopic::default()
                    .with_name(topic_name(topic))
                    .with_partition_indexes(partitions(places))
            })
            .collect();
        request = request
            .with_group_id(group)
            .with_topics((!all).then_some(topics));
    }
    encode(version, &request)
}

/// `describe-groups G ... [ops=1]`
pub fn describe(line: &Line, version: i16) -> Result<Body> {
    let mut request = DescribeGroupsRequest::default()
        .with_groups(line.words.iter().map(|g| group_id(g)).collect());
    if version >= 3 {
        request = request.with_include_authorized_operations(line.flag("ops", false)?);
    }
    encode(version, &request)
}

/// `list-groups [states=A,B] [types=A]`
pub fn list(line: &Line, version: i16) -> Result<Body> {
    let filter = |name: &str| -> Vec<StrBytes> {
        line.get(name)
            .map(|list| list.split(',').map(text).collect())
            .unwrap_or_default()
    };
    let mut request = ListGroupsRequest::default();
    if version >= 4 {
        request = request.with_states_filter(filter("states"));
    }
    if version >= 5 {
        request = request.with_types_filter(filter("types"));
    }
    encode(version, &request)
}

/// `delete-groups G ...`
pub fn delete(line: &Line, version: i16) -> Result<Body> {
    let groups = line.words.iter().map(|g| group_id(g)).collect();
    encode(
        version,
        &DeleteGroupsRequest::default().with_groups_names(groups),
    )
}

/// `delete-offsets group= t/0 ...`
pub fn delete_offsets(line: &Line, version: i16) -> Result<Body> {
    let topics = places(line)?
        .into_iter()
        .map(|(topic, places)| {
            OffsetDeleteRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(
                    places
                        .iter()
                        .map(|p| {
                            OffsetDeleteRequestPartition::default()
                                .with_partition_index(p.partition)
                        })
                        .collect(),
                )
        })
        .collect();
    let request = OffsetDeleteRequest::default()
        .with_group_id(group_id(line.need("group")?))
        .with_topics(topics);
    encode(version, &request)
}

/// `find KEY ... [type=0|1|2]`
pub fn find_coordinator(line: &Line, version: i16) -> Result<Body> {
    let mut request = FindCoordinatorRequest::default();
    if version >= 1 {
        request = request.with_key_type(line.number("type", 0)?);
    }
    if version >= 4 {
        request = request.with_coordinator_keys(line.words.iter().map(|k| text(k)).collect());
    } else {
        request = request.with_key(text(line.words.first().context("find needs a key")?));
    }
    encode(version, &request)
}
