//! SyncGroup: members wait for the leader's; with it the generation is stored and stable.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidemark_types::{ErrorCode, MonoTime};

use crate::effect::{Effect, GroupReply, GroupReplyToken, SyncReply};
use crate::group::{Group, GroupState};
use crate::groups::Groups;
use crate::rebalance::Step;
use crate::request::SyncRequest;

impl Groups {
    /// Decides a SyncGroup. A follower's answer may come later, from the leader's or a timer.
    ///
    /// Errors: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
    /// INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS; MESSAGE_TOO_LARGE when the leader's
    /// assignment is too large to be stored.
    pub fn sync(
        &mut self,
        token: GroupReplyToken,
        request: SyncRequest,
        now: MonoTime,
        wall_ms: i64,
    ) -> Vec<Effect> {
        let error = match self.live.get(&request.group_id) {
            _ if request.group_id.is_empty() => ErrorCode::InvalidGroupId,
            None => ErrorCode::UnknownMemberId,
            Some(group) => check_sync(group, &request),
        };
        if error.is_err() {
            let reply = SyncReply::error(error);
            return vec![Effect::Reply(token, GroupReply::Sync(reply))];
        }
        let mut step = self.step(&request.group_id, now, wall_ms);
        step.group.pending_sync.remove(&request.member_id);
        step.cancel_sync_timer_if_all_synced();
        if step.group.state == GroupState::Stable {
            let reply = step.sync_reply(&request.member_id);
            step.reply_sync(token, reply);
        } else {
            step.await_sync(token, &request.member_id);
            if step.group.is_leader(&request.member_id) {
                step.assign(request.assignments);
            }
        }
        let effects = step.effects;
        self.finish(&request.group_id, effects)
    }
}

fn check_sync(group: &Group, request: &SyncRequest) -> ErrorCode {
    let differs = |given: &Option<String>, current: &Option<String>| {
        given.is_some() && current.is_some() && given != current
    };
    let error = group.validate_member(&request.member_id, request.group_instance_id.as_deref());
    if error.is_err() {
        error
    } else if request.generation_id != group.generation_id {
        ErrorCode::IllegalGeneration
    } else if differs(&request.protocol_type, &group.protocol_type)
        || differs(&request.protocol_name, &group.protocol_name)
    {
        ErrorCode::InconsistentGroupProtocol
    } else if group.state == GroupState::PreparingRebalance {
        ErrorCode::RebalanceInProgress
    } else {
        ErrorCode::None
    }
}

impl Step<'_> {
    fn await_sync(&mut self, token: GroupReplyToken, member_id: &str) {
        let member = self.group.members.get_mut(member_id);
        // An earlier SyncGroup of the same member: its client has given it up.
        if let Some(earlier) = member.and_then(|m| m.awaiting_sync.replace(token)) {
            self.reply_sync(earlier, SyncReply::error(ErrorCode::RebalanceInProgress));
        }
    }

    /// The leader's assignment: stored, then told to those that wait. A member that the leader left
    /// out gets an empty one.
    fn assign(&mut self, assignments: Vec<(String, Bytes)>) {
        let mut by_member: BTreeMap<String, Bytes> = assignments.into_iter().collect();
        for (member_id, member) in &mut self.group.members {
            member.assignment = by_member.remove(member_id).unwrap_or_default();
        }
        if !self.metadata_fits() {
            self.drop_assignment(ErrorCode::MessageTooLarge);
            self.prepare_rebalance();
            return;
        }
        self.transition_to(GroupState::Stable);
        self.append_metadata();
        self.propagate_assignment();
    }
}
