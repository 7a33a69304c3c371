//! The steps of a rebalance, shared by requests and timers.

use std::time::Duration;

use bytes::Bytes;
use tidemark_types::{ErrorCode, MonoTime};

use crate::config::GroupConfig;
use crate::effect::{Effect, GroupReply, GroupReplyToken, JoinReply, SyncReply};
use crate::group::{Group, GroupState, JoinPhase};
use crate::groups::Groups;
use crate::record::GroupRecord;
use crate::timers::{TimerKey, TimerKind, Timers};

/// One request or timer at work on one group.
pub(crate) struct Step<'a> {
    pub group_id: &'a str,
    pub group: &'a mut Group,
    pub timers: &'a mut Timers,
    pub config: &'a GroupConfig,
    pub now: MonoTime,
    pub wall_ms: i64,
    pub effects: Vec<Effect>,
}

impl Step<'_> {
    pub fn reply_join(&mut self, token: GroupReplyToken, reply: JoinReply) {
        self.effects
            .push(Effect::Reply(token, GroupReply::Join(reply)));
    }

    pub fn reply_sync(&mut self, token: GroupReplyToken, reply: SyncReply) {
        self.effects
            .push(Effect::Reply(token, GroupReply::Sync(reply)));
    }

    /// Stores the group as it is now.
    pub fn append_metadata(&mut self) {
        let record = self.metadata_record();
        self.effects.push(Effect::Append {
            partition: Groups::partition_of(self.group_id),
            group_id: self.group_id.to_owned(),
            records: vec![record],
        });
    }

    /// Stores the generation that JoinGroup is about to answer, while its assignment is not there
    /// yet. After a restart its members are members, new ones too, and are told to join again;
    /// otherwise their SyncGroup would meet a generation or a member id that is not known, which is
    /// an error to their application.
    fn append_unassigned(&mut self) {
        let mut stored = self.group.to_stored();
        stored.leader = None;
        for member in &mut stored.members {
            member.assignment = Bytes::new();
        }
        let record = GroupRecord::Group {
            group_id: self.group_id.to_owned(),
            value: Some(stored),
        };
        // One that is too large is refused with its assignment, in `sync`.
        if record.size_bytes() <= self.config.max_batch_bytes {
            self.effects.push(Effect::Append {
                partition: Groups::partition_of(self.group_id),
                group_id: self.group_id.to_owned(),
                records: vec![record],
            });
        }
    }

    /// Whether the group as it is now fits in a batch of `__consumer_offsets`.
    pub fn metadata_fits(&self) -> bool {
        self.metadata_record().size_bytes() <= self.config.max_batch_bytes
    }

    fn metadata_record(&self) -> GroupRecord {
        GroupRecord::Group {
            group_id: self.group_id.to_owned(),
            value: Some(self.group.to_stored()),
        }
    }

    pub fn set_timer(&mut self, kind: TimerKind, delay_ms: i64) {
        // At least a millisecond, so that a timer set by a timer is never due at once.
        let delay = Duration::from_millis(u64::try_from(delay_ms).unwrap_or(0).max(1));
        let key = self.timer_key(kind);
        self.timers.set(key, self.now + delay);
    }

    pub fn cancel_timer(&mut self, kind: TimerKind) {
        let key = self.timer_key(kind);
        self.timers.cancel(&key);
    }

    fn timer_key(&self, kind: TimerKind) -> TimerKey {
        TimerKey {
            group_id: self.group_id.to_owned(),
            kind,
        }
    }

    /// The member has shown that it lives.
    pub fn restart_session(&mut self, member_id: &str) {
        if let Some(member) = self.group.members.get(member_id) {
            let timeout_ms = i64::from(member.session_timeout_ms);
            self.set_timer(TimerKind::Session(member_id.to_owned()), timeout_ms);
        }
    }

    /// Every member of a group that was just loaded gets a whole session.
    pub fn restore_sessions(&mut self) {
        for member_id in self.member_ids() {
            self.restart_session(&member_id);
        }
    }

    /// Removes a member or a pending one. What it has parked is answered with UNKNOWN_MEMBER_ID,
    /// so that a client that is still there joins anew.
    pub fn remove_member(&mut self, member_id: &str) {
        self.cancel_timer(TimerKind::Session(member_id.to_owned()));
        let Some(member) = self.group.remove_member(member_id) else {
            return;
        };
        if let Some(token) = member.awaiting_join {
            self.reply_join(token, JoinReply::error("", ErrorCode::UnknownMemberId));
        }
        if let Some(token) = member.awaiting_sync {
            self.reply_sync(token, SyncReply::error(ErrorCode::UnknownMemberId));
        }
        self.cancel_sync_timer_if_all_synced();
    }

    pub fn cancel_sync_timer_if_all_synced(&mut self) {
        if self.group.pending_sync.is_empty() {
            self.cancel_timer(TimerKind::Sync);
        }
    }

    /// Starts a rebalance, or ends the join phase of the one under way if all are there.
    pub fn rebalance_or_complete_join(&mut self) {
        if self.group.can_rebalance() {
            self.prepare_rebalance();
        } else {
            self.maybe_complete_join();
        }
    }

    /// Starts the join phase: members learn of it from their heartbeats and join again.
    pub fn prepare_rebalance(&mut self) {
        assert!(
            self.group.can_rebalance(),
            "group {} is already rebalancing",
            self.group_id
        );
        if self.group.state == GroupState::CompletingRebalance {
            self.drop_assignment(ErrorCode::RebalanceInProgress);
        }
        self.group.pending_sync.clear();
        self.cancel_timer(TimerKind::Sync);
        let was_empty = self.group.state == GroupState::Empty;
        self.transition_to(GroupState::PreparingRebalance);
        if was_empty {
            self.start_initial_wait();
        } else {
            self.group.join_phase = Some(JoinPhase::Rejoin);
            // Without members there is no rebalance timeout to wait for, only ids that were given out
            // and may never come back.
            if self.group.all_joined() || self.group.members.is_empty() {
                self.complete_join();
            } else {
                self.set_timer(TimerKind::Join, self.group.rebalance_timeout_ms());
            }
        }
    }

    /// A new group waits for members that start at the same time, so that they do not each cause a
    /// rebalance (KIP-134).
    fn start_initial_wait(&mut self) {
        let delay_ms = i64::from(self.config.initial_rebalance_delay_ms.max(0));
        let remaining_ms = (self.group.rebalance_timeout_ms() - delay_ms).max(0);
        self.group.new_member_added = false;
        self.group.join_phase = Some(JoinPhase::Initial {
            delay_ms,
            remaining_ms,
        });
        if delay_ms == 0 {
            self.complete_join();
        } else {
            self.set_timer(TimerKind::Join, delay_ms);
        }
    }

    /// The time of the join phase is up.
    pub fn join_timer_expired(&mut self) {
        match self.group.join_phase {
            None => {}
            Some(JoinPhase::Initial {
                delay_ms,
                remaining_ms,
            }) if self.group.new_member_added && remaining_ms != 0 => {
                self.group.new_member_added = false;
                let next_ms = i64::from(self.config.initial_rebalance_delay_ms.max(0));
                let next_ms = next_ms.min(remaining_ms);
                self.group.join_phase = Some(JoinPhase::Initial {
                    delay_ms: next_ms,
                    remaining_ms: (remaining_ms - delay_ms).max(0),
                });
                self.set_timer(TimerKind::Join, next_ms);
            }
            Some(_) => self.complete_join(),
        }
    }

    /// Ends the join phase early when everyone is there. The initial wait is not cut short.
    pub fn maybe_complete_join(&mut self) {
        if self.group.join_phase == Some(JoinPhase::Rejoin) && self.group.all_joined() {
            self.complete_join();
        }
    }

    /// Ends the join phase: members that have not come back are out, the others get the next
    /// generation. Static members stay until their session ends (KIP-345).
    pub fn complete_join(&mut self) {
        self.cancel_timer(TimerKind::Join);
        let gone: Vec<String> = (self.group.members.iter())
            .filter(|(_, m)| m.awaiting_join.is_none() && m.group_instance_id.is_none())
            .map(|(member_id, _)| member_id.clone())
            .collect();
        for member_id in gone {
            self.remove_member(&member_id);
        }
        if !self.group.elect_joined_leader() && !self.group.members.is_empty() {
            // Only static members are left and none has joined: wait for them or for their sessions.
            self.group.join_phase = Some(JoinPhase::Rejoin);
            self.set_timer(TimerKind::Join, self.group.rebalance_timeout_ms());
            return;
        }
        self.group.join_phase = None;
        self.group.generation_id = match self.group.generation_id {
            i32::MAX => 1,
            generation => generation + 1,
        };
        self.group.protocol_name = self.group.select_protocol();
        if self.group.members.is_empty() {
            self.transition_to(GroupState::Empty);
            self.append_metadata();
        } else {
            self.transition_to(GroupState::CompletingRebalance);
            self.append_unassigned();
            self.answer_joins();
            self.set_timer(TimerKind::Sync, self.group.rebalance_timeout_ms());
        }
    }

    fn answer_joins(&mut self) {
        for member_id in self.member_ids() {
            let mut reply = self.group.join_reply(&member_id);
            if self.group.is_leader(&member_id) {
                reply.members = self.group.join_reply_members();
            }
            if let Some(member) = self.group.members.get_mut(&member_id) {
                member.is_new = false;
                if let Some(token) = member.awaiting_join.take() {
                    self.reply_join(token, reply);
                }
            }
            self.restart_session(&member_id);
            self.group.pending_sync.insert(member_id);
        }
    }

    /// Forgets the assignment that was to come; members that wait for it get `error`.
    pub fn drop_assignment(&mut self, error: ErrorCode) {
        for member_id in self.member_ids() {
            if let Some(member) = self.group.members.get_mut(&member_id) {
                member.assignment = Bytes::new();
            }
            self.answer_sync(&member_id, SyncReply::error(error));
        }
    }

    /// Answers the SyncGroup of every member that waits with its assignment.
    pub fn propagate_assignment(&mut self) {
        for member_id in self.member_ids() {
            let reply = self.sync_reply(&member_id);
            self.answer_sync(&member_id, reply);
        }
    }

    /// Its session starts again: it may have run out unnoticed while the member waited.
    fn answer_sync(&mut self, member_id: &str, reply: SyncReply) {
        let member = self.group.members.get_mut(member_id);
        if let Some(token) = member.and_then(|m| m.awaiting_sync.take()) {
            self.reply_sync(token, reply);
            self.restart_session(member_id);
        }
    }

    /// A member's assignment as it is.
    pub fn sync_reply(&self, member_id: &str) -> SyncReply {
        let member = self.group.members.get(member_id);
        SyncReply {
            error: ErrorCode::None,
            protocol_type: self.group.protocol_type.clone(),
            protocol_name: self.group.protocol_name.clone(),
            assignment: member.map_or_else(Bytes::new, |m| m.assignment.clone()),
        }
    }

    pub fn transition_to(&mut self, state: GroupState) {
        self.group.state = state;
        self.group.current_state_timestamp_ms = self.wall_ms;
    }

    fn member_ids(&self) -> Vec<String> {
        self.group.members.keys().cloned().collect()
    }
}
