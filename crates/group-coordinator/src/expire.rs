//! What happens when a deadline comes.

use tidemark_types::MonoTime;

use crate::effect::Effect;
use crate::group::GroupState;
use crate::groups::Groups;
use crate::rebalance::Step;
use crate::timers::TimerKind;

/// Deadlines that one call acts on, so that a thousand members that are gone at once hold up nobody.
const TIMERS_PER_STEP: usize = 32;

impl Groups {
    /// Acts on deadlines that have come: sessions, join phases, missing SyncGroups. As many as a step
    /// may take, and none after one that appends: a record of several groups might not fit. What is
    /// left keeps [`Groups::next_deadline`] in the past.
    pub fn expire(&mut self, now: MonoTime, wall_ms: i64) -> Vec<Effect> {
        let mut effects = Vec::new();
        for _ in 0..TIMERS_PER_STEP {
            let Some(key) = self.timers.pop_due(now) else {
                break;
            };
            if !self.live.contains_key(&key.group_id) {
                continue;
            }
            let mut step = self.step(&key.group_id, now, wall_ms);
            match key.kind {
                TimerKind::Join => step.join_timer_expired(),
                TimerKind::Sync => step.sync_timer_expired(),
                TimerKind::Session(member_id) => step.session_expired(&member_id),
            }
            let mut of_step = step.effects;
            self.store_departures(&key.group_id, wall_ms, &mut of_step);
            effects.extend(self.finish(&key.group_id, of_step));
            if effects.iter().any(|e| matches!(e, Effect::Append { .. })) {
                break;
            }
        }
        effects
    }
}

impl Step<'_> {
    fn session_expired(&mut self, member_id: &str) {
        let member = self.group.members.get(member_id);
        if member.is_some_and(|m| m.has_satisfied_heartbeat()) {
            // It waits for us; its session starts again with the answer.
            return;
        }
        let was_member = member.is_some();
        self.remove_member(member_id);
        match self.group.state {
            GroupState::Stable | GroupState::CompletingRebalance if was_member => {
                self.prepare_rebalance();
            }
            // Also an initial wait ends when the member it could have waited for is gone.
            GroupState::PreparingRebalance if self.group.all_joined() => self.complete_join(),
            _ => {}
        }
    }

    /// Members that got the generation and never asked for their assignment are out.
    fn sync_timer_expired(&mut self) {
        let missing = std::mem::take(&mut self.group.pending_sync);
        if missing.is_empty() || !self.group.can_rebalance() {
            return;
        }
        for member_id in missing {
            self.remove_member(&member_id);
        }
        self.prepare_rebalance();
    }
}
