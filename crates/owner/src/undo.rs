//! What is needed to take back records that the journal has lost.
//!
//! A journal of several copies may lose what it has not confirmed, when another broker goes on in
//! this one's place. As long as a record is not confirmed, the state as it was before is kept of
//! exactly what the record touched, so that taking it back costs as much as was in flight, and not
//! the state. A journal on one disk confirms or fails and loses nothing: then none of this is kept
//! ([`Owner::keep_undo`]).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tidemark_group_coordinator::GroupUndo;
use tidemark_metadata::MetadataImage;
use tidemark_producer_state::ProducerEntry;
use tidemark_txn_coordinator::TxnMeta;
use tidemark_txn_coordinator::guard::ConnectionGuard;
use tidemark_types::{ErrorCode, JournalIndex, LeaderEpoch, ProducerId, Tick, TopicPartitionId};

use crate::Owner;
use crate::apply::{ApplyError, Observation};
use crate::command::{Now, Step};
use crate::partition::Partition;
use crate::record::Record;

/// One thing as it was.
#[derive(Debug)]
pub(crate) enum Before {
    /// Before a batch: the end of the log and the batch's producer, if it has one.
    Batch {
        id: TopicPartitionId,
        log_end_offset: i64,
        producer: Option<(ProducerId, Option<ProducerEntry>)>,
    },
    Producer {
        id: TopicPartitionId,
        producer_id: ProducerId,
        entry: Option<ProducerEntry>,
    },
    /// Before the log start or the leader epoch moved.
    Start {
        id: TopicPartitionId,
        log_start_offset: i64,
        epochs: Vec<(LeaderEpoch, i64)>,
    },
    /// It was not there.
    Created(TopicPartitionId),
    Removed(Box<Partition>),
    Transaction(Arc<str>, Option<Box<TxnMeta>>),
    Groups(i32, GroupUndo),
    Metadata(Box<MetadataImage>),
}

/// One record's touch.
#[derive(Debug)]
struct Touched {
    index: JournalIndex,
    /// Of the record before.
    before: (JournalIndex, Tick),
    what: Vec<Before>,
}

/// What the records that are not confirmed have touched, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    records: VecDeque<Touched>,
    /// Of the record in the making.
    open: Vec<Before>,
}

impl Undo {
    pub(crate) fn note(&mut self, before: Before) {
        self.open.push(before);
    }

    pub(crate) fn close(&mut self, index: JournalIndex, before: (JournalIndex, Tick)) {
        self.records.push_back(Touched {
            index,
            before,
            what: std::mem::take(&mut self.open),
        });
    }
}

impl Owner {
    /// From now on records can be taken back until they are confirmed. For journals that may lose
    /// them; everything applied so far counts as confirmed.
    pub fn keep_undo(&mut self) {
        self.undo = Some(Undo::default());
    }

    /// Records that can be taken back.
    pub fn in_flight(&self) -> usize {
        self.undo.as_ref().map_or(0, |undo| undo.records.len())
    }

    /// Everything up to this record is durable and never taken back.
    pub fn confirmed(&mut self, index: JournalIndex) {
        let Some(undo) = &mut self.undo else {
            return;
        };
        while undo.records.front().is_some_and(|r| r.index <= index) {
            undo.records.pop_front();
        }
    }

    /// True if records can be taken back.
    pub fn keeps_undo(&self) -> bool {
        self.undo.is_some()
    }

    /// The next tick is above this one: of records that others have written, or lost.
    pub fn raise_tick_floor(&mut self, floor: Tick) {
        self.tick_floor = self.tick_floor.max(floor);
    }

    /// Applies a durable record of another owner. `None`: it does not follow the last one, which
    /// means that it was applied before.
    pub fn follow(
        &mut self,
        after: Tick,
        record: &Record,
    ) -> Result<Option<Vec<Observation>>, ApplyError> {
        if after != self.last_tick {
            return Ok(None);
        }
        let observations = self.replay(record)?;
        self.confirmed(record.index);
        Ok(Some(observations))
    }

    /// Another broker owns the journal now: deadlines and groups' members are its business. Whoever
    /// is parked is sent there. [`Owner::arm_after_replay`] takes it up again.
    pub fn stop_owning(&mut self, now: &Now<'_>) -> Step {
        let mut step = Step::default();
        self.armed = false;
        self.sweeps = None;
        self.guard = ConnectionGuard::default();
        self.deadlines.clear();
        self.deadline_of.clear();
        for deletion in std::mem::take(&mut self.deletions) {
            step.replies.push(deletion.given_up());
        }
        let effects = self.groups.unload(ErrorCode::NotCoordinator);
        self.carry_out(effects, now, &mut step);
        step
    }

    /// True from [`Owner::arm_after_replay`] on, until [`Owner::stop_owning`].
    pub fn is_owning(&self) -> bool {
        self.armed
    }

    /// The journal has lost every record after `index`: the state is what it was then. Requests that
    /// are parked in a group whose records were lost are answered NOT_COORDINATOR, a deletion of
    /// topics that goes on over several records NOT_CONTROLLER.
    ///
    /// # Panics
    /// When a record after `index` was confirmed, or undo was not kept.
    pub fn lost(&mut self, index: JournalIndex, now: &Now<'_>) -> Step {
        let mut step = Step::default();
        if index >= self.last_index {
            return step;
        }
        // No tick is ever given twice, also not one that nobody saw.
        self.tick_floor = self.tick_floor.max(self.last_tick);
        let mut undo = self.undo.take().expect("the journal may lose records");
        let mut transactional_ids = BTreeSet::new();
        // Ids whose session was lost.
        let mut sessions = BTreeSet::new();
        let mut groups = BTreeSet::new();
        let mut partitions = BTreeSet::new();
        let mut created = BTreeSet::new();
        let mut metadata_changed = false;
        while undo.records.back().is_some_and(|r| r.index > index) {
            let record = undo.records.pop_back().expect("it was just looked at");
            for before in record.what.into_iter().rev() {
                match &before {
                    Before::Transaction(id, before) => {
                        let session = |meta: &TxnMeta| (meta.producer_id, meta.epoch);
                        let now_is = self.coordinator.get(id).map(session);
                        if now_is != before.as_deref().map(session) {
                            sessions.insert(id.clone());
                        }
                        transactional_ids.insert(id.clone());
                    }
                    Before::Batch {
                        id,
                        producer: Some((producer_id, _)),
                        ..
                    } if self.options.renew_leases => {
                        partitions.insert(*id);
                        let of = self.coordinator.by_producer_id(*producer_id);
                        transactional_ids.extend(of.map(|meta| meta.transactional_id.clone()));
                    }
                    Before::Groups(_, undo) => groups.extend(undo.group_ids()),
                    Before::Batch { id, .. } | Before::Start { id, .. } => {
                        partitions.insert(*id);
                    }
                    Before::Created(id) => drop(created.insert(*id)),
                    Before::Metadata(_) => metadata_changed = true,
                    Before::Producer { .. } | Before::Removed(_) => {}
                }
                self.take_back(before);
            }
            (self.last_index, self.last_tick) = record.before;
        }
        assert_eq!(self.last_index, index, "a confirmed record was lost");
        self.undo = Some(undo);
        if metadata_changed {
            step.observations.push(Observation::MetadataChanged);
        }
        let touched = partitions.difference(&created).copied();
        step.observations
            .extend(touched.map(Observation::TakenBack));
        step.observations
            .extend(created.into_iter().map(Observation::NeverCreated));
        for deletion in std::mem::take(&mut self.deletions) {
            step.replies.push(deletion.given_up());
        }
        for id in &sessions {
            // The next session may get the same producer id and epoch, over whatever connection.
            self.guard.forget(id);
        }
        if self.armed {
            for id in transactional_ids {
                self.rearm_after_loss(&id, now);
            }
        }
        for group_id in groups {
            let code = ErrorCode::NotCoordinator;
            let effects = self.groups.reload(&group_id, code, now.mono, now.wall_ms);
            self.carry_out(effects, now, &mut step);
        }
        step
    }

    fn take_back(&mut self, before: Before) {
        match before {
            Before::Batch {
                id,
                log_end_offset,
                producer,
            } => {
                let partition = self.touched(id);
                partition.log_end_offset = log_end_offset;
                if let Some((producer_id, entry)) = producer {
                    partition.producers.restore(producer_id, entry);
                }
            }
            Before::Producer {
                id,
                producer_id,
                entry,
            } => self.touched(id).producers.restore(producer_id, entry),
            Before::Start {
                id,
                log_start_offset,
                epochs,
            } => {
                let partition = self.touched(id);
                partition.log_start_offset = log_start_offset;
                partition.epochs = epochs;
            }
            Before::Created(id) => drop(self.partitions.remove(&id)),
            Before::Removed(partition) => {
                self.partitions.insert(partition.id, *partition);
            }
            Before::Transaction(id, state) => self
                .coordinator
                .restore(&id, state.map(|state| *state))
                .expect("it was so before"),
            Before::Groups(partition, undo) => self.groups.take_back(partition, undo),
            Before::Metadata(image) => {
                self.metadata = *image;
                // Its block may be gone with the record; what is left of one is not worth a look.
                self.producer_ids = 0..0;
            }
        }
    }

    fn touched(&mut self, id: TopicPartitionId) -> &mut Partition {
        self.partitions
            .get_mut(&id)
            .expect("a partition is there again before what it was is put back")
    }
}
