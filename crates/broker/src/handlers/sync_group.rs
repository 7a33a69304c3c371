//! SyncGroup (14), v0-v5: the leader hands out the assignment, every member fetches its own.
//!
//! v1 throttling; v3 static members (KIP-345); v4 flexible; v5 protocol type and name (KIP-559).
//! Read on the group.

use bytes::Bytes;
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use tidemark_authorizer::Operation;
use tidemark_group_coordinator::SyncRequest;
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: SyncGroupRequest) -> Pending {
    if cx.version() >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        let error = ErrorCode::InconsistentGroupProtocol.code();
        return Pending::Ready(cx.answer(&SyncGroupResponse::default().with_error_code(error)));
    }
    if !cx.may(Operation::Read, Resource::Group(&request.group_id)) {
        let error = ErrorCode::GroupAuthorizationFailed.code();
        return Pending::Ready(cx.answer(&SyncGroupResponse::default().with_error_code(error)));
    }
    let command = Command::Sync(SyncRequest {
        group_id: request.group_id.to_string(),
        generation_id: request.generation_id,
        member_id: request.member_id.to_string(),
        group_instance_id: request.group_instance_id.map(|id| id.to_string()),
        protocol_type: request.protocol_type.map(|t| t.to_string()),
        protocol_name: request.protocol_name.map(|n| n.to_string()),
        assignments: request
            .assignments
            .into_iter()
            .map(|a| {
                (
                    a.member_id.to_string(),
                    Bytes::copy_from_slice(&a.assignment),
                )
            })
            .collect(),
    });
    cx.call(command, |cx, reply| {
        let (error, protocol_type, protocol_name, assignment) = match reply {
            Some(Reply::Sync(r)) => (r.error, r.protocol_type, r.protocol_name, r.assignment),
            Some(other) => wrong_reply(other),
            None => (ErrorCode::CoordinatorNotAvailable, None, None, Bytes::new()),
        };
        let response = SyncGroupResponse::default()
            .with_error_code(error.code())
            .with_assignment(assignment);
        cx.answer(&match cx.version() {
            5.. => response
                .with_protocol_type(protocol_type.as_deref().map(text))
                .with_protocol_name(protocol_name.as_deref().map(text)),
            _ => response,
        })
    })
    .await
}
