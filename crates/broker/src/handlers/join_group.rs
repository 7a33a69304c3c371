//! JoinGroup (11), v0-v9: becomes a member and waits for the others.
//!
//! v1 rebalance timeout; v2 throttling; v4 the member id comes first (KIP-394); v5 static members
//! (KIP-345); v6 flexible; v7 the protocol type (KIP-559); v8 a reason (KIP-800); v9 a leader that came
//! back keeps the assignment (KIP-814). The answer comes when the rebalance completes. Read on the group.

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;
use tidemark_authorizer::Operation;
use tidemark_group_coordinator::{JoinReply, JoinRequest};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;
use crate::limits::Limit;

use super::{Cx, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: JoinGroupRequest) -> Pending {
    let version = cx.version();
    if !cx.may(Operation::Read, Resource::Group(&request.group_id)) {
        let code = ErrorCode::GroupAuthorizationFailed;
        return Pending::Ready(cx.answer(&refuse(version, code, text(""))));
    }
    let member_id = request.member_id.clone();
    let group_id = request.group_id.clone();
    let command = Command::Join(JoinRequest {
        group_id: request.group_id.to_string(),
        member_id: request.member_id.to_string(),
        group_instance_id: request.group_instance_id.map(|id| id.to_string()),
        client_id: cx.client_id().to_owned(),
        client_host: cx.client_host(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: match version {
            0 => -1,
            _ => request.rebalance_timeout_ms,
        },
        protocol_type: request.protocol_type.to_string(),
        protocols: request
            .protocols
            .into_iter()
            // Copied: a slice would keep the whole frame alive as long as the member.
            .map(|p| (p.name.to_string(), Bytes::copy_from_slice(&p.metadata)))
            .collect(),
        require_known_member_id: version >= 4,
        supports_skip_assignment: version >= 9,
        reason: request.reason.map(|reason| reason.to_string()),
    });
    cx.call(command, move |cx, reply| {
        let response = match reply {
            Some(Reply::Join(reply)) => {
                if reply.error == ErrorCode::GroupMaxSizeReached {
                    let most = cx.shared.settings.group_max_size;
                    cx.reached(Limit::GroupSize, || {
                        format!(
                            "group {:?} has group.max.size ({most}) members",
                            group_id.as_str()
                        )
                    });
                }
                respond(cx.version(), reply)
            }
            Some(other) => wrong_reply(other),
            None => refuse(cx.version(), ErrorCode::CoordinatorNotAvailable, member_id),
        };
        cx.answer(&response)
    })
    .await
}

fn refuse(version: i16, code: ErrorCode, member_id: StrBytes) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(code.code())
        .with_generation_id(-1)
        .with_protocol_name(match version {
            7.. => None,
            _ => Some(text("")),
        })
        .with_member_id(member_id)
}

fn respond(version: i16, reply: JoinReply) -> JoinGroupResponse {
    let members = reply
        .members
        .into_iter()
        .map(|member| {
            let answer = JoinGroupResponseMember::default()
                .with_member_id(text(&member.member_id))
                .with_metadata(member.metadata);
            match version {
                5.. => answer.with_group_instance_id(member.group_instance_id.as_deref().map(text)),
                _ => answer,
            }
        })
        .collect();
    let response = JoinGroupResponse::default()
        .with_error_code(reply.error.code())
        .with_generation_id(reply.generation_id)
        .with_leader(text(&reply.leader))
        .with_member_id(text(&reply.member_id))
        .with_members(members);
    let response = match version {
        9.. => response.with_skip_assignment(reply.skip_assignment),
        _ => response,
    };
    if version >= 7 {
        response
            .with_protocol_type(reply.protocol_type.as_deref().map(text))
            .with_protocol_name(reply.protocol_name.as_deref().map(text))
    } else {
        response.with_protocol_name(Some(text(
            reply.protocol_name.as_deref().unwrap_or_default(),
        )))
    }
}
