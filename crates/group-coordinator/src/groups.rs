use std::collections::BTreeMap;

use tidemark_types::{
    COORDINATOR_PARTITIONS, ErrorCode, MonoTime, ProducerId, coordinator_partition,
};

use crate::config::GroupConfig;
use crate::durable::{DurableGroup, OffsetsPartition};
use crate::effect::{Effect, GroupReply, JoinReply, SyncReply};
use crate::group::{Group, GroupState};
use crate::rebalance::Step;
use crate::record::GroupRecord;
use crate::timers::Timers;

/// Longest string that Kafka's coordinator records have room for.
pub(crate) const MAX_STRING_BYTES: usize = i16::MAX as usize;

/// Time and randomness for a request that may need both.
pub struct Ctx<'a> {
    pub now: MonoTime,
    /// Wall clock, for what is stored or shown.
    pub wall_ms: i64,
    /// The random end of a new member id, a UUID in Kafka.
    pub member_id_suffix: &'a mut dyn FnMut() -> String,
}

/// All groups of this broker and their offsets.
pub struct Groups {
    pub(crate) config: GroupConfig,
    /// By partition of `__consumer_offsets`; none of them is empty.
    pub(crate) durable: BTreeMap<i32, OffsetsPartition>,
    /// Groups that have members, or members to be. A group that is only durable is empty.
    pub(crate) live: BTreeMap<String, Group>,
    pub(crate) timers: Timers,
}

impl Groups {
    pub fn new(config: GroupConfig) -> Groups {
        Groups {
            config,
            durable: BTreeMap::new(),
            live: BTreeMap::new(),
            timers: Timers::default(),
        }
    }

    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// In place of what the configuration says.
    pub fn set_max_batch_bytes(&mut self, max_batch_bytes: usize) {
        self.config.max_batch_bytes = max_batch_bytes;
    }

    /// The partition of `__consumer_offsets` that a group belongs to.
    pub fn partition_of(group_id: &str) -> i32 {
        coordinator_partition(group_id, COORDINATOR_PARTITIONS)
    }

    /// The next moment at which [`Groups::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<MonoTime> {
        self.timers.next_deadline()
    }

    /// Applies one record of a partition of `__consumer_offsets`, live or in replay. `log_offset`
    /// is the record's own offset; `producer` is given when its batch is transactional.
    pub fn apply(
        &mut self,
        partition: i32,
        record: &GroupRecord,
        log_offset: i64,
        producer: Option<ProducerId>,
    ) {
        let state = self.durable.entry(partition).or_default();
        state.apply(record, log_offset, producer);
        if state.is_empty() {
            self.durable.remove(&partition);
        }
        if let GroupRecord::Group { group_id, value } = record {
            if value.is_none()
                && (self.live.get(group_id)).is_some_and(|g| g.state == GroupState::Empty)
            {
                self.drop_live(group_id);
            }
            self.drop_live_if_unneeded(group_id);
        }
    }

    /// Applies a transaction marker of a partition of `__consumer_offsets`.
    pub fn apply_marker(&mut self, partition: i32, producer_id: ProducerId, commit: bool) {
        if let Some(state) = self.durable.get_mut(&partition) {
            state.apply_marker(producer_id, commit);
            if state.is_empty() {
                self.durable.remove(&partition);
            }
        }
    }

    /// True while the producer has offsets in this partition that wait for a marker.
    pub fn has_pending_offsets(&self, partition: i32, producer_id: ProducerId) -> bool {
        self.durable
            .get(&partition)
            .is_some_and(|state| state.pending.contains_key(&producer_id))
    }

    /// After the last record of a replay: members of stored generations are members again, with a
    /// whole session to show themselves. A rebalance that was under way goes on.
    pub fn restore_after_replay(&mut self, now: MonoTime, wall_ms: i64) {
        assert!(
            self.live.is_empty(),
            "groups are restored once, before any request"
        );
        let groups = self.durable.values().flat_map(|state| state.groups.keys());
        for group_id in groups.cloned().collect::<Vec<_>>() {
            self.restore_members(&group_id, now, wall_ms);
        }
    }

    /// Members of the stored generation of a group that is not live are members again.
    pub(crate) fn restore_members(&mut self, group_id: &str, now: MonoTime, wall_ms: i64) {
        let stored = self.durable_group(group_id);
        let stored = stored.and_then(|group| group.metadata.as_ref());
        let Some(stored) = stored.filter(|stored| !stored.value.members.is_empty()) else {
            return;
        };
        let is_to_rejoin = stored.value.is_to_rejoin();
        let max_size = self.config.max_size;
        let mut step = self.step(group_id, now, wall_ms);
        step.restore_sessions();
        if step.group.members.len() > max_size || is_to_rejoin {
            step.prepare_rebalance();
        }
        let effects = step.effects;
        assert!(effects.is_empty(), "nobody waits for an answer yet");
    }

    /// Ends all soft state, as when the groups move elsewhere or the broker stops: everything that
    /// is parked is answered with `error`.
    pub fn unload(&mut self, error: ErrorCode) -> Vec<Effect> {
        self.timers = Timers::default();
        let mut effects = Vec::new();
        for (member_id, member) in (std::mem::take(&mut self.live).into_values())
            .flat_map(|group| group.members.into_iter())
        {
            if let Some(token) = member.awaiting_join {
                let reply = JoinReply::error(&member_id, error);
                effects.push(Effect::Reply(token, GroupReply::Join(reply)));
            }
            if let Some(token) = member.awaiting_sync {
                let reply = SyncReply::error(error);
                effects.push(Effect::Reply(token, GroupReply::Sync(reply)));
            }
        }
        effects
    }

    /// Records that rebuild the durable state of one partition through [`Groups::apply`], each with
    /// its offset and, if it is pending, its producer.
    pub fn records_of_partition(
        &self,
        partition: i32,
    ) -> Vec<(GroupRecord, i64, Option<ProducerId>)> {
        (self.durable.get(&partition)).map_or_else(Vec::new, OffsetsPartition::records)
    }

    /// Forgets the durable state of one partition, before it is rebuilt from other records.
    pub fn clear_partition(&mut self, partition: i32) {
        self.durable.remove(&partition);
    }

    /// The partitions of `__consumer_offsets` that hold anything, in order.
    pub fn partitions(&self) -> impl Iterator<Item = i32> + '_ {
        self.durable.keys().copied()
    }

    /// True if the durable state, offsets of records included, is the same.
    pub fn durable_eq(&self, other: &Groups) -> bool {
        self.durable == other.durable
    }

    pub(crate) fn durable_group(&self, group_id: &str) -> Option<&DurableGroup> {
        self.durable_partition(group_id)?.groups.get(group_id)
    }

    pub(crate) fn durable_partition(&self, group_id: &str) -> Option<&OffsetsPartition> {
        self.durable.get(&Groups::partition_of(group_id))
    }

    pub(crate) fn exists(&self, group_id: &str) -> bool {
        self.live.contains_key(group_id) || self.durable_group(group_id).is_some()
    }

    pub(crate) fn state_of(&self, group_id: &str) -> GroupState {
        match self.live.get(group_id) {
            Some(group) => group.state,
            None if self.exists(group_id) => GroupState::Empty,
            None => GroupState::Dead,
        }
    }

    /// Stores that members of the stored generation are gone, while the next one is not there yet:
    /// after a restart the group goes on with those that are left, and with its rebalance, instead
    /// of waiting for sessions of members that will not come. Nothing is added to effects that store
    /// the group: what is stored now is older than those.
    pub(crate) fn store_departures(&self, group_id: &str, wall_ms: i64, effects: &mut Vec<Effect>) {
        let is_stored = effects.iter().any(|e| matches!(e, Effect::Append { .. }));
        if !is_stored && let Some(departures) = self.departures(group_id, wall_ms) {
            effects.push(departures);
        }
    }

    fn departures(&self, group_id: &str, wall_ms: i64) -> Option<Effect> {
        let group = self.live.get(group_id)?;
        if !matches!(
            group.state,
            GroupState::PreparingRebalance | GroupState::CompletingRebalance
        ) {
            return None; // stored as it is, by the step that made it so
        }
        let mut stored = self.durable_group(group_id)?.metadata.clone()?.value;
        let before = stored.members.len();
        (stored.members).retain(|member| group.members.contains_key(&member.member_id));
        if stored.members.len() == before {
            return None;
        }
        stored.leader = None;
        stored.current_state_timestamp_ms = wall_ms;
        Some(Effect::Append {
            partition: Groups::partition_of(group_id),
            group_id: group_id.to_owned(),
            records: vec![GroupRecord::Group {
                group_id: group_id.to_owned(),
                value: Some(stored),
            }],
        })
    }

    /// Starts a step of a group, which is made live from what is stored, or new, if it is not.
    pub(crate) fn step<'a>(
        &'a mut self,
        group_id: &'a str,
        now: MonoTime,
        wall_ms: i64,
    ) -> Step<'a> {
        if !self.live.contains_key(group_id) {
            let stored = self
                .durable_group(group_id)
                .and_then(|g| g.metadata.as_ref());
            let group = stored.map_or_else(Group::default, |m| Group::from_stored(&m.value));
            self.live.insert(group_id.to_owned(), group);
        }
        Step {
            group_id,
            group: (self.live.get_mut(group_id)).expect("inserted above if it was missing"),
            timers: &mut self.timers,
            config: &self.config,
            now,
            wall_ms,
            effects: Vec::new(),
        }
    }

    /// Ends a step: an empty group that nobody is about to join needs no soft state.
    pub(crate) fn finish(&mut self, group_id: &str, effects: Vec<Effect>) -> Vec<Effect> {
        self.drop_live_if_unneeded(group_id);
        effects
    }

    fn drop_live_if_unneeded(&mut self, group_id: &str) {
        let Some(group) = self.live.get(group_id) else {
            return;
        };
        // The record of the empty generation may still be on its way to `apply`.
        let stored_generation = (self.durable_group(group_id))
            .and_then(|g| g.metadata.as_ref())
            .map_or(0, |m| m.value.generation);
        if group.state == GroupState::Empty
            && group.pending_join.is_empty()
            && group.generation_id == stored_generation
        {
            self.drop_live(group_id);
        }
    }

    pub(crate) fn drop_live(&mut self, group_id: &str) {
        if let Some(group) = self.live.remove(group_id) {
            group.cancel_timers(group_id, &mut self.timers);
        }
    }
}
