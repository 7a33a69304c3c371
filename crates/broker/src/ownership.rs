//! What the journal says of who owns it, and what the owner's thread makes of it.
//!
//! A journal on one disk is owned from the start and never lost. One that several brokers share may
//! lose what it has not confirmed and go to another broker: then this one follows, and applies what
//! that one writes.

use tidemark_journal::{JournalEvent, RecoveredRecord};
use tidemark_owner::{Now, Observation, Owner, Record, Step};
use tidemark_types::{JournalIndex, Tick};

use crate::owner_thread::OwnerThread;

impl OwnerThread {
    pub(crate) fn hear(&mut self, event: JournalEvent) {
        match event {
            JournalEvent::Lost { index, tick } => self.lose(index, tick),
            JournalEvent::Owner { epoch, floor } => self.own(epoch, floor),
            JournalEvent::Follower { .. } => {
                self.epoch = None;
                self.stop_owning();
            }
            JournalEvent::Record { after, record } => self.follow(after, &record),
            other => panic!("{other:?} is not for the owner"),
        }
    }

    fn at_now<T>(&mut self, call: impl FnOnce(&mut Owner, &Now<'_>) -> T) -> T {
        let entropy = self.entropy.clone();
        let mono = self.clock.now();
        let now = Now {
            mono,
            wall_ms: self.clock.wall_ms(),
            tick: self.ticks.tick(mono),
            uuid: &mut || entropy.uuid(),
        };
        call(&mut self.owner, &now)
    }

    fn stop_owning(&mut self) {
        if self.owner.is_owning() {
            let step = self.at_now(|owner, now| owner.stop_owning(now));
            self.carry_out(step);
        }
    }

    /// Records after `index` are lost: the state is taken back, tails and versions above `tick` go,
    /// and nobody who waited hears that anything was done.
    fn lose(&mut self, index: JournalIndex, tick: Tick) {
        // Until the journal says again who owns it, what is appended is dropped.
        self.epoch = None;
        let step = self.at_now(|owner, now| owner.lost(index, now));
        let (observations, replies) = (step.observations, step.replies);
        for observation in observations {
            match observation {
                Observation::TakenBack(id) => {
                    if let Some(log) = self.catalogue.log(id) {
                        log.lose(tick);
                    }
                }
                Observation::NeverCreated(id) => {
                    if let Some(log) = self.catalogue.remove_log(id) {
                        log.close();
                    }
                }
                Observation::MetadataChanged => {
                    self.catalogue.lose(tick);
                    self.catalogue.apply_segment_rules();
                }
                other => panic!("a loss brings nothing new: {other:?}"),
            }
        }
        self.appended = self.owner.last_tick();
        self.barrier.lose(index);
        // Of those that were parked in a group or a deletion.
        self.carry_out(Step {
            replies,
            ..Step::default()
        });
    }

    /// This broker owns the journal, under an epoch of its own: so the leader epochs rise.
    fn own(&mut self, epoch: u32, floor: Tick) {
        if self.epoch == Some(epoch) {
            return;
        }
        self.epoch = Some(epoch);
        self.owner.raise_tick_floor(floor);
        self.appended = self.owner.last_tick();
        if !self.owner.is_owning() {
            self.at_now(|owner, now| owner.arm_after_replay(now));
        }
        if !self.owner.keeps_undo() {
            self.owner.keep_undo();
        }
        if self.owner.metadata().cluster_id().is_some() {
            let epoch = i32::try_from(epoch).unwrap_or(i32::MAX);
            let entropy = self.entropy.clone();
            let mono = self.clock.now();
            let now = Now {
                mono,
                wall_ms: self.clock.wall_ms(),
                tick: self.ticks.tick(mono),
                uuid: &mut || entropy.uuid(),
            };
            self.begin_journal_epoch(epoch, 0, &now);
        }
    }

    /// A durable record of the broker that owns the journal.
    fn follow(&mut self, after: Tick, record: &RecoveredRecord) {
        let RecoveredRecord {
            index,
            tick,
            wall_ms,
            payload,
            ..
        } = record;
        // Somebody else's, or one of its own that was lost and came back: the deadlines are of what
        // was before.
        self.stop_owning();
        let epoch_before = self.owner.metadata().journal_epoch();
        let applied = Record::decode(*index, *tick, *wall_ms, payload)
            .map_err(|e| e.to_string())
            .and_then(|record| {
                let applied = self.owner.follow(after, &record);
                applied.map_err(|e| e.to_string())
            });
        let applied = applied.unwrap_or_else(|e| panic!("what the journal's owner wrote: {e}"));
        // None: it is applied already.
        let Some(observations) = applied else {
            return;
        };
        let touched = self.observe(observations, Some(*tick), *index);
        if self.owner.metadata().journal_epoch() != epoch_before {
            self.push_leader_epochs();
        }
        self.appended = *tick;
        self.barrier.park(*index, touched, Vec::new());
        self.barrier.confirm(*index, *tick);
    }
}
