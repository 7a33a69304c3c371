//! LeaveGroup: one member, or (v3, KIP-345) several, also by their instance ids alone.

use tidemark_types::{ErrorCode, MonoTime};

use crate::effect::{Effect, GroupReply, GroupReplyToken, LeaveReply, LeaveReplyMember};
use crate::group::GroupState;
use crate::groups::Groups;
use crate::rebalance::Step;
use crate::request::{LeaveMember, LeaveRequest};

impl Groups {
    /// Decides a LeaveGroup.
    ///
    /// Errors: INVALID_GROUP_ID as a whole; for a member UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    pub fn leave(
        &mut self,
        token: GroupReplyToken,
        request: LeaveRequest,
        now: MonoTime,
        wall_ms: i64,
    ) -> Vec<Effect> {
        let reply = |error, members| {
            let reply = LeaveReply { error, members };
            Effect::Reply(token, GroupReply::Leave(reply))
        };
        if request.group_id.is_empty() {
            return vec![reply(ErrorCode::InvalidGroupId, Vec::new())];
        }
        if !self.live.contains_key(&request.group_id) {
            let unknown = |member| reply_member(member, ErrorCode::UnknownMemberId);
            let members = request.members.into_iter().map(unknown).collect();
            return vec![reply(ErrorCode::None, members)];
        }
        let mut step = self.step(&request.group_id, now, wall_ms);
        let members: Vec<LeaveReplyMember> = (request.members.into_iter())
            .map(|member| {
                let error = step.remove_leaving(&member);
                reply_member(member, error)
            })
            .collect();
        if members.iter().any(|m| !m.error.is_err()) {
            match step.group.state {
                GroupState::Stable | GroupState::CompletingRebalance => step.prepare_rebalance(),
                GroupState::PreparingRebalance => step.maybe_complete_join(),
                GroupState::Empty | GroupState::Dead => {}
            }
        }
        let mut effects = step.effects;
        // Who was told that it has left does not come back with a restart.
        self.store_departures(&request.group_id, wall_ms, &mut effects);
        effects.push(reply(ErrorCode::None, members));
        self.finish(&request.group_id, effects)
    }
}

impl Step<'_> {
    fn remove_leaving(&mut self, leaving: &LeaveMember) -> ErrorCode {
        let instance_id = leaving.group_instance_id.as_deref();
        let member_id = if leaving.member_id.is_empty() {
            // An administrator removes a static member, whatever its member id is now.
            match instance_id.and_then(|id| self.group.static_members.get(id)) {
                Some(member_id) => member_id.clone(),
                None => return ErrorCode::UnknownMemberId,
            }
        } else if self.group.pending_join.contains(&leaving.member_id) {
            leaving.member_id.clone()
        } else {
            let error = self.group.validate_member(&leaving.member_id, instance_id);
            if error.is_err() {
                return error;
            }
            leaving.member_id.clone()
        };
        self.remove_member(&member_id);
        ErrorCode::None
    }
}

fn reply_member(member: LeaveMember, error: ErrorCode) -> LeaveReplyMember {
    LeaveReplyMember {
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
        error,
    }
}
