//! JoinGroup.
//!
//! A member without an id gets one; a dynamic member comes back with it (v4, KIP-394). Members that
//! wait are answered together when the join phase ends: the leader with everyone's metadata, the
//! others with the generation alone. A static member (v5, KIP-345) that comes back without an id
//! takes the place of its former self, without a rebalance when the group is stable.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidemark_types::ErrorCode;

use crate::effect::{Effect, GroupReply, GroupReplyToken, JoinReply, SyncReply};
use crate::group::{GroupState, JoinPhase, Member};
use crate::groups::{Ctx, Groups, MAX_STRING_BYTES};
use crate::rebalance::Step;
use crate::request::JoinRequest;
use crate::timers::TimerKind;

/// Room for the separator and the random end of a member id.
const MEMBER_ID_SUFFIX_BYTES: usize = 256;

impl Groups {
    /// Decides a JoinGroup. The answer may come later, from another request or a timer.
    ///
    /// Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INVALID_REQUEST (an instance id that is
    /// too long to be stored), UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED,
    /// INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID, MEMBER_ID_REQUIRED (with the new id);
    /// REBALANCE_IN_PROGRESS when the same member sends another JoinGroup while this one waits.
    pub fn join(
        &mut self,
        token: GroupReplyToken,
        request: JoinRequest,
        ctx: &mut Ctx<'_>,
    ) -> Vec<Effect> {
        let is_unknown_member = request.member_id.is_empty();
        let error = self.check_join(&request);
        if error.is_err() {
            let reply = JoinReply::error(&request.member_id, error);
            return vec![Effect::Reply(token, GroupReply::Join(reply))];
        }
        let request = with_distinct_protocols(request);
        let mut step = self.step(&request.group_id, ctx.now, ctx.wall_ms);
        if !step.accepts(&request.member_id) {
            step.remove_member(&request.member_id);
            step.reply_join(token, JoinReply::error("", ErrorCode::GroupMaxSizeReached));
            step.maybe_complete_join();
        } else if !(step.group).supports(&request.protocol_type, &request.protocols) {
            let error = ErrorCode::InconsistentGroupProtocol;
            step.reply_join(token, JoinReply::error(&request.member_id, error));
        } else if is_unknown_member {
            step.join_new_member(token, &request, ctx.member_id_suffix);
        } else {
            step.join_existing_member(token, &request);
        }
        let effects = step.effects;
        self.finish(&request.group_id, effects)
    }

    fn check_join(&self, request: &JoinRequest) -> ErrorCode {
        let sessions = self.config.min_session_timeout_ms..=self.config.max_session_timeout_ms;
        let protocols = request.protocols.iter().map(|(name, _)| name);
        let instance_id = request.group_instance_id.as_ref();
        if request.group_id.is_empty() || request.group_id.len() > MAX_STRING_BYTES {
            ErrorCode::InvalidGroupId
        } else if !sessions.contains(&request.session_timeout_ms) {
            ErrorCode::InvalidSessionTimeout
        } else if instance_id.is_some_and(|id| id.len() > MAX_STRING_BYTES - MEMBER_ID_SUFFIX_BYTES)
        {
            ErrorCode::InvalidRequest
        } else if protocols
            .chain([&request.protocol_type])
            .any(|name| name.len() > MAX_STRING_BYTES)
        {
            ErrorCode::InconsistentGroupProtocol
        } else if !request.member_id.is_empty() && !self.exists(&request.group_id) {
            // We have not given out this id, or have forgotten it.
            ErrorCode::UnknownMemberId
        } else {
            ErrorCode::None
        }
    }
}

impl Step<'_> {
    /// `group.max.size`. During the join phase those that wait count, so that a group that has
    /// become too large loses the members that come last.
    fn accepts(&self, member_id: &str) -> bool {
        let member = self.group.members.get(member_id);
        match self.group.state {
            GroupState::Empty | GroupState::Dead => true,
            GroupState::PreparingRebalance => {
                member.is_some_and(|m| m.awaiting_join.is_some())
                    || self.group.awaiting_join_count() < self.config.max_size
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                member.is_some() || self.group.members.len() < self.config.max_size
            }
        }
    }

    fn join_new_member(
        &mut self,
        token: GroupReplyToken,
        request: &JoinRequest,
        member_id_suffix: &mut dyn FnMut() -> String,
    ) {
        let prefix = match &request.group_instance_id {
            Some(instance_id) => instance_id,
            None => truncated(
                &request.client_id,
                MAX_STRING_BYTES - MEMBER_ID_SUFFIX_BYTES,
            ),
        };
        let suffix = member_id_suffix();
        let new_id = format!(
            "{prefix}-{}",
            truncated(&suffix, MEMBER_ID_SUFFIX_BYTES - 1)
        );
        let former = (request.group_instance_id.as_ref())
            .and_then(|instance_id| self.group.static_members.get(instance_id))
            .cloned();
        match (&request.group_instance_id, former) {
            (Some(instance_id), Some(former_id)) => {
                self.replace_static_member(token, request, instance_id, &former_id, &new_id);
            }
            (None, _) if request.require_known_member_id => {
                self.group.pending_join.insert(new_id.clone());
                self.set_timer(
                    TimerKind::Session(new_id.clone()),
                    i64::from(request.session_timeout_ms),
                );
                self.reply_join(
                    token,
                    JoinReply::error(&new_id, ErrorCode::MemberIdRequired),
                );
            }
            _ => self.add_member(token, request, &new_id),
        }
    }

    fn join_existing_member(&mut self, token: GroupReplyToken, request: &JoinRequest) {
        let member_id = request.member_id.as_str();
        let instance_id = request.group_instance_id.as_deref();
        if self.group.pending_join.contains(member_id) && instance_id.is_none() {
            self.add_member(token, request, member_id);
            return;
        }
        let error = self.group.validate_member(member_id, instance_id);
        if error.is_err() {
            self.reply_join(token, JoinReply::error(member_id, error));
            return;
        }
        let is_leader = self.group.is_leader(member_id);
        let same_metadata =
            (self.group.members.get(member_id)).is_some_and(|m| m.protocols == request.protocols);
        let has_current_generation = match self.group.state {
            // Perhaps the answer to its last JoinGroup was lost.
            GroupState::CompletingRebalance => same_metadata,
            // The leader joins again when what it has to assign has changed.
            GroupState::Stable => same_metadata && !is_leader,
            _ => false,
        };
        if has_current_generation {
            let mut reply = self.group.join_reply(member_id);
            if is_leader {
                reply.members = self.group.join_reply_members();
            }
            self.reply_join(token, reply);
        } else {
            self.update_member(token, request, member_id);
            self.rebalance_or_complete_join();
        }
    }

    fn add_member(&mut self, token: GroupReplyToken, request: &JoinRequest, member_id: &str) {
        if matches!(self.group.join_phase, Some(JoinPhase::Initial { .. })) {
            self.group.new_member_added = true;
        }
        let member = Member {
            group_instance_id: request.group_instance_id.clone(),
            client_id: truncated(&request.client_id, MAX_STRING_BYTES).to_owned(),
            client_host: truncated(&request.client_host, MAX_STRING_BYTES).to_owned(),
            rebalance_timeout_ms: request.effective_rebalance_timeout_ms(),
            session_timeout_ms: request.session_timeout_ms,
            protocols: request.protocols.clone(),
            assignment: Bytes::new(),
            awaiting_join: Some(token),
            awaiting_sync: None,
            is_new: true,
        };
        self.group
            .add_member(member_id, &request.protocol_type, member);
        self.set_timer(
            TimerKind::Session(member_id.to_owned()),
            i64::from(self.config.new_member_join_timeout_ms),
        );
        self.rebalance_or_complete_join();
    }

    /// The member waits in this JoinGroup from now on. An earlier one of it that still waits is
    /// answered: its client has given it up, but the connection may be alive.
    fn update_member(&mut self, token: GroupReplyToken, request: &JoinRequest, member_id: &str) {
        let Some(member) = self.group.members.get_mut(member_id) else {
            return;
        };
        member.protocols = request.protocols.clone();
        member.rebalance_timeout_ms = request.effective_rebalance_timeout_ms();
        member.session_timeout_ms = request.session_timeout_ms;
        if let Some(earlier) = member.awaiting_join.replace(token) {
            let reply = JoinReply::error(member_id, ErrorCode::RebalanceInProgress);
            self.reply_join(earlier, reply);
        }
    }

    /// A static member has started again: what its former self has parked is fenced.
    fn replace_static_member(
        &mut self,
        token: GroupReplyToken,
        request: &JoinRequest,
        instance_id: &str,
        former_id: &str,
        new_id: &str,
    ) {
        let former_leader = self.group.leader.clone().unwrap_or_default();
        if let Some(former) = self.group.members.get_mut(former_id) {
            let parked = (former.awaiting_join.take(), former.awaiting_sync.take());
            if let Some(parked) = parked.0 {
                let reply = JoinReply::error(former_id, ErrorCode::FencedInstanceId);
                self.reply_join(parked, reply);
            }
            if let Some(parked) = parked.1 {
                self.reply_sync(parked, SyncReply::error(ErrorCode::FencedInstanceId));
            }
        }
        self.cancel_timer(TimerKind::Session(former_id.to_owned()));
        self.group
            .rename_static_member(instance_id, former_id, new_id);
        self.update_member(token, request, new_id);
        self.restart_session(new_id);
        match self.group.state {
            GroupState::Stable => {
                let keeps_protocol = self.group.select_protocol() == self.group.protocol_name;
                if keeps_protocol && self.metadata_fits() {
                    self.answer_static_member(request, new_id, former_leader);
                } else {
                    self.prepare_rebalance();
                }
            }
            // The leader may be assigning to the former id right now.
            GroupState::CompletingRebalance => self.prepare_rebalance(),
            _ => self.maybe_complete_join(),
        }
    }

    /// The group stays stable; the new member id is stored and the assignment stays.
    fn answer_static_member(&mut self, request: &JoinRequest, new_id: &str, former_leader: String) {
        self.append_metadata();
        let mut reply = self.group.join_reply(new_id);
        if !request.supports_skip_assignment {
            // A leader that cannot be told to skip the assignment must not take itself for one: a
            // stable group would not pass its assignment on.
            reply.leader = former_leader;
        } else if self.group.is_leader(new_id) {
            reply.skip_assignment = true;
            reply.members = self.group.join_reply_members();
        }
        let member = self.group.members.get_mut(new_id);
        if let Some(token) = member.and_then(|m| m.awaiting_join.take()) {
            self.reply_join(token, reply);
        }
    }
}

impl JoinRequest {
    fn effective_rebalance_timeout_ms(&self) -> i32 {
        if self.rebalance_timeout_ms < 0 {
            self.session_timeout_ms
        } else {
            self.rebalance_timeout_ms
        }
    }
}

/// A protocol named twice counts once, as first given.
fn with_distinct_protocols(mut request: JoinRequest) -> JoinRequest {
    let mut seen = BTreeSet::new();
    request
        .protocols
        .retain(|(name, _)| seen.insert(name.clone()));
    request
}

/// The longest prefix of whole characters that has at most `max_bytes`.
fn truncated(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let end = (0..=max_bytes).rev().find(|&i| text.is_char_boundary(i));
    &text[..end.unwrap_or(0)]
}
