//! LeaveGroup (13), v0-v5: members leave.
//!
//! v1 throttling. v3 several members, also by their instance ids (KIP-345); v4 flexible; v5 a
//! reason (KIP-800). Read on the group.

use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};
use tidemark_authorizer::Operation;
use tidemark_group_coordinator::{LeaveMember, LeaveRequest};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: LeaveGroupRequest) -> Pending {
    if !cx.may(Operation::Read, Resource::Group(&request.group_id)) {
        let code = ErrorCode::GroupAuthorizationFailed.code();
        return Pending::Ready(cx.answer(&LeaveGroupResponse::default().with_error_code(code)));
    }
    let members = if cx.version() < 3 {
        vec![LeaveMember {
            member_id: request.member_id.to_string(),
            group_instance_id: None,
            reason: None,
        }]
    } else {
        request
            .members
            .into_iter()
            .map(|member| LeaveMember {
                member_id: member.member_id.to_string(),
                group_instance_id: member.group_instance_id.map(|id| id.to_string()),
                reason: member.reason.map(|reason| reason.to_string()),
            })
            .collect()
    };
    let command = Command::Leave(LeaveRequest {
        group_id: request.group_id.to_string(),
        members,
    });
    cx.call(command, |cx, reply| {
        let reply = match reply {
            Some(Reply::Leave(reply)) => reply,
            Some(other) => wrong_reply(other),
            None => {
                let error = ErrorCode::CoordinatorNotAvailable.code();
                return cx.answer(&LeaveGroupResponse::default().with_error_code(error));
            }
        };
        let response = LeaveGroupResponse::default();
        cx.answer(&match cx.version() {
            3.. => response.with_error_code(reply.error.code()).with_members(
                reply
                    .members
                    .iter()
                    .map(|member| {
                        MemberResponse::default()
                            .with_member_id(text(&member.member_id))
                            .with_group_instance_id(member.group_instance_id.as_deref().map(text))
                            .with_error_code(member.error.code())
                    })
                    .collect(),
            ),
            _ => response.with_error_code(reply.single_error().code()),
        })
    })
    .await
}
