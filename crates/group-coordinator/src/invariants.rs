//! What must hold after every step, once its records are applied.
//!
//! - G1 A state has what it needs and nothing else: members, join phase, parked requests.
//! - G2 A group with members has a leader among them and, once joined, a protocol common to all.
//! - G3 Instance ids and static members match one to one; pending ids are not members.
//! - G4 Every wait ends: a deadline stands for each session, join phase and missing SyncGroup, and
//!   none for anything else.
//! - G5 A stable group is stored as it is; a group is live only while it needs to be.
//! - G6 Durable state has no empty leftovers, and pending offsets are counted at their groups.
//! - G7 No request is parked twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::GroupReplyToken;
use crate::group::{Group, GroupState, JoinPhase, Member};
use crate::groups::Groups;
use crate::timers::{TimerKey, TimerKind};

impl Groups {
    /// Checks the invariants; the error names the one that is broken and the group.
    pub fn check(&self) -> Result<(), String> {
        if !self.timers.is_consistent() {
            return Err("G4: the timers' index and order differ".to_owned());
        }
        let mut deadlines = BTreeSet::new();
        for (group_id, group) in &self.live {
            let named = |error: &str| format!("{error} (group {group_id}: {group:?})");
            check_state(group).map_err(named)?;
            check_members(group).map_err(named)?;
            self.check_deadlines(group_id, group, &mut deadlines)
                .map_err(named)?;
            self.check_stored(group_id, group).map_err(named)?;
        }
        if let Some(key) = self.timers.keys().find(|key| !deadlines.contains(*key)) {
            return Err(format!("G4: a deadline for nothing: {key:?}"));
        }
        let mut parked = self.parked();
        parked.sort();
        if parked.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("G7: a request is parked twice".to_owned());
        }
        self.check_durable()
    }

    /// The requests that wait for their answers.
    pub fn parked(&self) -> Vec<GroupReplyToken> {
        let members = self.live.values().flat_map(|group| group.members.values());
        members
            .flat_map(|m| [m.awaiting_join, m.awaiting_sync])
            .flatten()
            .collect()
    }

    fn check_deadlines(
        &self,
        group_id: &str,
        group: &Group,
        deadlines: &mut BTreeSet<TimerKey>,
    ) -> Result<(), &'static str> {
        let mut stands = |kind: TimerKind| {
            let key = TimerKey {
                group_id: group_id.to_owned(),
                kind,
            };
            let stands = self.timers.contains(&key);
            deadlines.insert(key);
            stands
        };
        for (member_id, member) in &group.members {
            if !stands(TimerKind::Session(member_id.clone())) && !member.has_satisfied_heartbeat() {
                return Err("G4: a member without a session");
            }
        }
        for member_id in &group.pending_join {
            if !stands(TimerKind::Session(member_id.clone())) {
                return Err("G4: a pending member without a session");
            }
        }
        if stands(TimerKind::Join) != group.join_phase.is_some() {
            return Err("G4: join phase and its deadline differ");
        }
        if stands(TimerKind::Sync) == group.pending_sync.is_empty() {
            return Err("G4: missing SyncGroups and their deadline differ");
        }
        Ok(())
    }

    fn check_stored(&self, group_id: &str, group: &Group) -> Result<(), &'static str> {
        let stored = self
            .durable_group(group_id)
            .and_then(|g| g.metadata.as_ref());
        match group.state {
            GroupState::Stable if stored.map(|m| &m.value) != Some(&group.to_stored()) => {
                Err("G5: a stable group is not stored as it is")
            }
            GroupState::Empty if group.pending_join.is_empty() => {
                Err("G5: an empty group is live for nobody")
            }
            _ => Ok(()),
        }
    }

    fn check_durable(&self) -> Result<(), String> {
        for (partition, state) in &self.durable {
            let named = |error: &str| format!("{error} (__consumer_offsets-{partition})");
            if state.is_empty() {
                return Err(named("G6: an empty partition"));
            }
            let mut counted: BTreeMap<_, usize> = BTreeMap::new();
            for (&producer, offsets) in &state.pending {
                if offsets.is_empty() {
                    return Err(named("G6: a producer without pending offsets"));
                }
                for key in offsets.keys() {
                    *counted
                        .entry((key.group_id.as_str(), producer))
                        .or_default() += 1;
                }
            }
            let at_groups: BTreeMap<_, usize> = (state.groups.iter())
                .flat_map(|(group_id, group)| {
                    let pending = group.pending.iter();
                    pending.map(move |(&producer, &count)| ((group_id.as_str(), producer), count))
                })
                .collect();
            if counted != at_groups {
                return Err(named("G6: pending offsets are miscounted"));
            }
            for group in state.groups.values() {
                let is_empty = group.metadata.is_none()
                    && group.offsets.is_empty()
                    && group.pending.is_empty();
                if is_empty || group.offsets.values().any(BTreeMap::is_empty) {
                    return Err(named("G6: an empty group or topic"));
                }
            }
        }
        Ok(())
    }
}

fn check_state(group: &Group) -> Result<(), &'static str> {
    let any = |waits: fn(&Member) -> bool| group.members.values().any(waits);
    let awaits_join = any(|m| m.awaiting_join.is_some());
    let awaits_sync = any(|m| m.awaiting_sync.is_some());
    if group.state == GroupState::Dead {
        return Err("G1: a dead group is live");
    }
    if (group.state == GroupState::PreparingRebalance) != group.join_phase.is_some() {
        return Err("G1: a join phase outside of PreparingRebalance, or none in it");
    }
    if awaits_join && group.state != GroupState::PreparingRebalance {
        return Err("G1: a JoinGroup waits outside of PreparingRebalance");
    }
    if awaits_sync && group.state != GroupState::CompletingRebalance {
        return Err("G1: a SyncGroup waits outside of CompletingRebalance");
    }
    match group.state {
        GroupState::Empty if !group.members.is_empty() => Err("G1: an empty group has members"),
        GroupState::CompletingRebalance | GroupState::Stable if group.members.is_empty() => {
            Err("G1: a generation without members")
        }
        GroupState::Empty | GroupState::PreparingRebalance if !group.pending_sync.is_empty() => {
            Err("G1: a SyncGroup is missing although none is due")
        }
        // Otherwise there would be nothing left to wait for. The initial wait has its fixed time.
        GroupState::PreparingRebalance
            if group.join_phase == Some(JoinPhase::Rejoin) && group.all_joined() =>
        {
            Err("G1: everyone has joined, but the join phase goes on")
        }
        _ => Ok(()),
    }
}

fn check_members(group: &Group) -> Result<(), &'static str> {
    let is_member = |id: &String| group.members.contains_key(id);
    if group.leader.is_some() == group.members.is_empty() {
        return Err("G2: a leader without members, or members without a leader");
    }
    if !group.leader.iter().all(is_member) {
        return Err("G2: the leader is not a member");
    }
    if !group.members.is_empty() && group.select_protocol().is_none() {
        return Err("G2: no protocol is common to all members");
    }
    if matches!(
        group.state,
        GroupState::CompletingRebalance | GroupState::Stable
    ) && group.protocol_name.is_none()
    {
        return Err("G2: a generation without a protocol");
    }
    let with_instance_id: BTreeMap<&String, &String> = (group.members.iter())
        .filter_map(|(id, m)| m.group_instance_id.as_ref().map(|instance| (instance, id)))
        .collect();
    let statics = (group.members.values()).filter(|m| m.group_instance_id.is_some());
    if with_instance_id != group.static_members.iter().collect()
        || statics.count() != with_instance_id.len()
    {
        return Err("G3: instance ids and static members differ");
    }
    if group.pending_join.iter().any(is_member) {
        return Err("G3: a pending id is a member's");
    }
    if !group.pending_sync.iter().all(is_member) {
        return Err("G3: a SyncGroup is missing from no member");
    }
    Ok(())
}
