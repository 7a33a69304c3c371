//! Heartbeat: keeps a member's session and tells it of a rebalance.

use tidemark_types::{ErrorCode, MonoTime};

use crate::effect::{Effect, GroupReply, GroupReplyToken};
use crate::group::GroupState;
use crate::groups::Groups;
use crate::request::HeartbeatRequest;

impl Groups {
    /// Decides a Heartbeat.
    ///
    /// Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION;
    /// REBALANCE_IN_PROGRESS when the member has to join again (its session is kept).
    pub fn heartbeat(
        &mut self,
        token: GroupReplyToken,
        request: HeartbeatRequest,
        now: MonoTime,
        wall_ms: i64,
    ) -> Vec<Effect> {
        let error = self.decide_heartbeat(&request, now, wall_ms);
        vec![Effect::Reply(token, GroupReply::Heartbeat(error))]
    }

    fn decide_heartbeat(
        &mut self,
        request: &HeartbeatRequest,
        now: MonoTime,
        wall_ms: i64,
    ) -> ErrorCode {
        if request.group_id.is_empty() {
            return ErrorCode::InvalidGroupId;
        }
        let Some(group) = self.live.get(&request.group_id) else {
            return ErrorCode::UnknownMemberId;
        };
        let error = group.validate_member(&request.member_id, request.group_instance_id.as_deref());
        if error.is_err() {
            return error;
        }
        if request.generation_id != group.generation_id {
            return ErrorCode::IllegalGeneration;
        }
        let state = group.state;
        (self.step(&request.group_id, now, wall_ms)).restart_session(&request.member_id);
        match state {
            GroupState::PreparingRebalance => ErrorCode::RebalanceInProgress,
            _ => ErrorCode::None,
        }
    }
}
