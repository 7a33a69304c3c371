//! State from segments alone, when neither checkpoint nor journal can be read.
//!
//! All state is in batches, and all of it is keyed by partition but for `__cluster_metadata`, which
//! says which partitions there are. So its batches come first, then those of each other partition
//! in the order of their offsets. What metadata records say of other partitions at a position of
//! the journal (log starts, forgotten producers, leader epochs) is kept until those come.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use tidemark_metadata::MetadataRecord;
use tidemark_record_batch::{BatchHeader, ControlType, control_batch};
use tidemark_types::{
    CoordinatorEpoch, JournalIndex, LeaderEpoch, ProducerEpoch, ProducerId, Tick, TopicId,
    TopicPartitionId,
};

use crate::apply::{Appended, ApplyError, metadata_records};
use crate::command::{Now, Step};
use crate::partition::Partition;
use crate::{Owner, OwnerOptions};

/// An owner whose state is being put together from batches.
pub struct Rebuild {
    owner: Owner,
    log_starts: BTreeMap<TopicPartitionId, i64>,
    /// At which record of the journal, and which producers.
    forgotten: BTreeMap<TopicPartitionId, Vec<(JournalIndex, Vec<ProducerId>)>>,
    /// The epochs that a partition's batches bear, with their first offsets.
    epochs: BTreeMap<TopicPartitionId, Vec<(LeaderEpoch, i64)>>,
}

/// A marker to be written after a rebuild.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settlement {
    pub partition: TopicPartitionId,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub commit: bool,
}

impl Rebuild {
    pub fn new(options: OwnerOptions) -> Rebuild {
        Rebuild {
            owner: Owner::new(options),
            log_starts: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            epochs: BTreeMap::new(),
        }
    }

    /// The state so far.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Where the log of a partition starts, as far as a record says so.
    pub fn log_start(&self, id: TopicPartitionId) -> i64 {
        self.log_starts.get(&id).copied().unwrap_or(0)
    }

    /// Applies the next batch of a partition, of journal record `index`. Offsets may be missing
    /// before it: retention, compaction or damage took them. `None` when no topic has the partition.
    pub fn batch(
        &mut self,
        id: TopicPartitionId,
        index: JournalIndex,
        wall_ms: i64,
        batch: &Bytes,
    ) -> Result<Option<Appended>, ApplyError> {
        let header =
            BatchHeader::parse(batch).map_err(|e| ApplyError(format!("batch for {id}: {e}")))?;
        self.forget(id, index)?;
        let Some(partition) = self.owner.partitions.get_mut(&id) else {
            return Ok(None);
        };
        if partition.log_end_offset == 0 {
            partition.log_start_offset = header.base_offset;
        }
        partition.log_end_offset = partition.log_end_offset.max(header.base_offset);
        let appended = partition.apply(index, wall_ms, &header, batch)?;
        let epochs = self.epochs.entry(id).or_default();
        if epochs
            .last()
            .is_none_or(|last| header.leader_epoch > last.0)
        {
            epochs.push((header.leader_epoch, header.base_offset));
        }
        self.keyed(id, index, &header, &appended)?;
        Ok(Some(appended))
    }

    /// What a batch of an internal topic says.
    fn keyed(
        &mut self,
        id: TopicPartitionId,
        index: JournalIndex,
        header: &BatchHeader,
        appended: &Appended,
    ) -> Result<(), ApplyError> {
        let batch = &appended.batch;
        match id.topic {
            TopicId::CLUSTER_METADATA => {
                for record in metadata_records(index, batch)? {
                    self.metadata(index, record);
                }
                Ok(())
            }
            TopicId::TRANSACTION_STATE if header.attributes.is_control() => Ok(()),
            TopicId::TRANSACTION_STATE => self.owner.apply_transactions(index, batch),
            TopicId::CONSUMER_OFFSETS if header.attributes.is_control() => {
                if let Some(control) = appended.control {
                    let commit = control.kind == ControlType::Commit;
                    let groups = &mut self.owner.groups;
                    groups.apply_marker(id.partition, header.producer_id, commit);
                }
                Ok(())
            }
            TopicId::CONSUMER_OFFSETS => {
                let transactional = header.attributes.is_transactional();
                let producer = transactional.then_some(header.producer_id);
                self.owner
                    .apply_groups(index, id.partition, header, batch, producer)
            }
            _ => Ok(()),
        }
    }

    fn metadata(&mut self, index: JournalIndex, record: MetadataRecord) {
        let owner = &mut self.owner;
        owner.metadata.apply(&record);
        match record {
            MetadataRecord::TopicCreated { id, .. }
            | MetadataRecord::PartitionsAdded { id, .. } => {
                let topic = owner.metadata.topic_by_id(id);
                for id in topic.iter().flat_map(|topic| topic.partition_ids()) {
                    (owner.partitions.entry(id))
                        .or_insert_with(|| Partition::new(id, LeaderEpoch(0)));
                }
            }
            MetadataRecord::TopicDeleted { id } => {
                owner
                    .partitions
                    .retain(|partition, _| partition.topic != id);
            }
            // Said once more in the records that follow.
            MetadataRecord::Snapshot => {
                let metadata = TopicPartitionId::METADATA;
                owner.partitions.retain(|id, _| *id == metadata);
                self.log_starts.clear();
            }
            MetadataRecord::LogStartMoved {
                id,
                partition,
                log_start_offset,
            } => {
                let id = TopicPartitionId::new(id, partition);
                self.log_starts.insert(id, log_start_offset);
            }
            MetadataRecord::ProducersExpired {
                partition,
                producer_ids,
            } => {
                let forgotten = self.forgotten.entry(partition).or_default();
                forgotten.push((index, producer_ids));
            }
            _ => {}
        }
    }

    /// Forgets the producers of a partition that were forgotten before record `index`.
    fn forget(&mut self, id: TopicPartitionId, index: JournalIndex) -> Result<(), ApplyError> {
        let Some(forgotten) = self.forgotten.get_mut(&id) else {
            return Ok(());
        };
        let due = forgotten.partition_point(|(at, _)| *at < index);
        for (at, ids) in forgotten.drain(..due) {
            if let Some(partition) = self.owner.partitions.get_mut(&id) {
                partition.forget_producers(at, &ids)?;
            }
        }
        Ok(())
    }

    /// The state, once every batch was given: `last_index` and `highest_tick` are the highest that
    /// are known of, `next_producer_id` a bound below which no producer id may be given out.
    pub fn finish(
        mut self,
        last_index: JournalIndex,
        highest_tick: Tick,
        next_producer_id: i64,
    ) -> Result<Owner, ApplyError> {
        let ids: Vec<_> = self.owner.partition_ids();
        let newest = self.epochs.values().filter_map(|epochs| epochs.last());
        let highest = newest.map(|(epoch, _)| epoch.0).max().unwrap_or(0);
        if highest > self.owner.metadata.journal_epoch() {
            // The record of that epoch is lost; leader epochs never fall.
            self.owner.metadata.apply(&MetadataRecord::JournalEpoch {
                epoch: highest,
                wall_ms: 0,
                cut_bytes: 0,
            });
        }
        let next = self.owner.metadata.next_producer_id();
        if next_producer_id > next {
            self.owner.metadata.apply(&MetadataRecord::ProducerIdBlock {
                coordinator_partition: 0,
                first: next,
                count: next_producer_id - next,
            });
        }
        for id in ids {
            self.forget(id, JournalIndex(u64::MAX))?;
            let log_start = self.log_start(id);
            let current = LeaderEpoch(self.owner.metadata.journal_epoch());
            let epochs = self.epochs.remove(&id).unwrap_or_default();
            let Some(partition) = self.owner.partitions.get_mut(&id) else {
                continue;
            };
            partition.log_start_offset = partition.log_start_offset.max(log_start);
            // What lay between is lost, and its offsets are not given out again.
            partition.log_end_offset = partition.log_end_offset.max(log_start);
            settle_epochs(partition, epochs, current);
            partition
                .check()
                .map_err(|e| ApplyError(format!("rebuilt: {e}")))?;
        }
        self.owner.raise_floor(last_index, highest_tick);
        Ok(self.owner)
    }
}

/// The epochs of a partition's batches, from its log start on, and the current one.
fn settle_epochs(
    partition: &mut Partition,
    mut epochs: Vec<(LeaderEpoch, i64)>,
    current: LeaderEpoch,
) {
    let (start, end) = (partition.log_start_offset, partition.log_end_offset);
    let in_force = epochs.partition_point(|(_, offset)| *offset <= start);
    if let Some(earlier) = in_force.checked_sub(1) {
        epochs.drain(..earlier);
    }
    if let Some(first) = epochs.first_mut() {
        first.1 = start;
    }
    if epochs.last().is_none_or(|last| last.0 < current) {
        epochs.retain(|(_, offset)| *offset < end);
        let begins = if epochs.is_empty() { start } else { end };
        epochs.push((current, begins));
    }
    partition.epochs = epochs;
}

impl Owner {
    /// Ends transactions whose marker is lost, as one record.
    pub fn settle(&mut self, markers: &[Settlement], now: &Now<'_>) -> Step {
        let mut step = Step::default();
        let mut draft = self.begin(now);
        for marker in markers {
            let Some(partition) = self.partitions.get(&marker.partition) else {
                continue;
            };
            let control_type = match marker.commit {
                true => ControlType::Commit,
                false => ControlType::Abort,
            };
            let known = partition.producers.get(marker.producer_id);
            let coordinator = known.map_or(0, |entry| entry.coordinator_epoch().0.max(0));
            let batch = control_batch(
                0,
                partition.leader_epoch(),
                marker.producer_id,
                marker.producer_epoch,
                control_type,
                CoordinatorEpoch(coordinator),
                draft.wall_ms,
            );
            self.append(&mut draft, marker.partition, BytesMut::from(batch));
        }
        self.finish(draft, &mut step);
        step
    }
}
