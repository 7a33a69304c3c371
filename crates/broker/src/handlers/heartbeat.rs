//! Heartbeat (12), v0-v4: a member is alive.
//!
//! v1 throttling; v3 static members (KIP-345); v4 flexible. Read on the group.

use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};
use tidemark_authorizer::Operation;
use tidemark_group_coordinator as group;
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: HeartbeatRequest) -> Pending {
    if !cx.may(Operation::Read, Resource::Group(&request.group_id)) {
        let code = ErrorCode::GroupAuthorizationFailed.code();
        return Pending::Ready(cx.answer(&HeartbeatResponse::default().with_error_code(code)));
    }
    let command = Command::Heartbeat(group::HeartbeatRequest {
        group_id: request.group_id.to_string(),
        generation_id: request.generation_id,
        member_id: request.member_id.to_string(),
        group_instance_id: request.group_instance_id.map(|id| id.to_string()),
    });
    cx.call(command, |cx, reply| {
        let error = match reply {
            Some(Reply::Heartbeat(error)) => error,
            Some(other) => wrong_reply(other),
            None => ErrorCode::CoordinatorNotAvailable,
        };
        cx.answer(&HeartbeatResponse::default().with_error_code(error.code()))
    })
    .await
}
