//! DescribeGroups (15), v0-v6: state and members of groups. A group that does not exist is "Dead".
//!
//! v1 throttling; v3 authorised operations; v4 static members; v5 flexible; v6 a
//! group that does not exist is an error (KIP-1043). Describe on each group.

use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};
use tidemark_authorizer::Operation;
use tidemark_group_coordinator::{self as group, GroupState};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, authorized_operations, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: DescribeGroupsRequest) -> Pending {
    let rights = cx.rights();
    let may = |id: &GroupId| rights.may(Operation::Describe, Resource::Group(id));
    let (ids, forbidden): (Vec<_>, Vec<_>) = request.groups.into_iter().partition(may);
    let asked = request.include_authorized_operations;
    let names = ids.iter().map(|id| id.to_string()).collect();
    cx.call(Command::DescribeGroups(names), move |cx, reply| {
        let refuse = |id, code: ErrorCode| {
            DescribedGroup::default()
                .with_error_code(code.code())
                .with_group_id(id)
        };
        let rights = cx.rights();
        let described: Vec<DescribedGroup> = match reply {
            Some(Reply::DescribeGroups(groups)) => groups
                .into_iter()
                .map(|group| {
                    let operations =
                        authorized_operations::of_group(&rights, &group.group_id, asked);
                    respond(cx.version(), operations, group)
                })
                .collect(),
            Some(other) => wrong_reply(other),
            None => (ids.into_iter())
                .map(|id| refuse(id, ErrorCode::CoordinatorNotAvailable))
                .collect(),
        };
        let forbidden = forbidden.into_iter();
        let groups = forbidden
            .map(|id| refuse(id, ErrorCode::GroupAuthorizationFailed))
            .chain(described);
        cx.answer(&DescribeGroupsResponse::default().with_groups(groups.collect()))
    })
    .await
}

fn respond(version: i16, operations: i32, group: group::DescribedGroup) -> DescribedGroup {
    let described = DescribedGroup::default()
        .with_group_id(GroupId(text(&group.group_id)))
        .with_group_state(text(group.state.name()));
    if group.state == GroupState::Dead && version >= 6 {
        return described
            .with_error_code(ErrorCode::GroupIdNotFound.code())
            .with_error_message(Some(text(&format!("Group {} not found.", group.group_id))));
    }
    let members = group
        .members
        .into_iter()
        .map(|member| {
            let answer = DescribedGroupMember::default()
                .with_member_id(text(&member.member_id))
                .with_client_id(text(&member.client_id))
                .with_client_host(text(&member.client_host))
                .with_member_metadata(member.metadata)
                .with_member_assignment(member.assignment);
            match version {
                4.. => answer.with_group_instance_id(member.group_instance_id.as_deref().map(text)),
                _ => answer,
            }
        })
        .collect();
    described
        .with_protocol_type(text(&group.protocol_type))
        .with_protocol_data(text(&group.protocol_data))
        .with_members(members)
        .with_authorized_operations(operations)
}
