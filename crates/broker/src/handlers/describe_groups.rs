//! DescribeGroups (15), v0-v5: state and members of groups. A group that does not exist is "Dead".
//!
//! v1 throttling; v3 authorised operations; v4 static members; v5 flexible.

use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use super::{Cx, Pending, text, wrong_reply};

/// "Not asked for" of the authorised-operations field.
const NO_OPERATIONS: i32 = i32::MIN;

pub(crate) async fn handle(cx: Cx, request: DescribeGroupsRequest) -> Pending {
    let ids = request.groups.iter().map(|id| id.to_string()).collect();
    cx.call(Command::DescribeGroups(ids), move |cx, reply| {
        let groups = match reply {
            Some(Reply::DescribeGroups(groups)) => groups
                .into_iter()
                .map(|group| respond(cx.version(), group))
                .collect(),
            Some(other) => wrong_reply(other),
            None => request
                .groups
                .iter()
                .map(|id| {
                    DescribedGroup::default()
                        .with_error_code(ErrorCode::CoordinatorNotAvailable.code())
                        .with_group_id(id.clone())
                        .with_authorized_operations(NO_OPERATIONS)
                })
                .collect(),
        };
        cx.answer(&DescribeGroupsResponse::default().with_groups(groups))
    })
    .await
}

fn respond(version: i16, group: tidemark_group_coordinator::DescribedGroup) -> DescribedGroup {
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
    DescribedGroup::default()
        .with_group_id(GroupId(text(&group.group_id)))
        .with_group_state(text(group.state.name()))
        .with_protocol_type(text(&group.protocol_type))
        .with_protocol_data(text(&group.protocol_data))
        .with_members(members)
        .with_authorized_operations(NO_OPERATIONS)
}
