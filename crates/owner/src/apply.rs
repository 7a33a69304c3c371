//! Apply: the only way state changes, live and at replay.
//!
//! A record's batches are applied one by one. Everything that a batch means is read from its bytes,
//! so that a replayed record does exactly what it did when it was decided. Apply reads no clock, no
//! configuration and no file.

use bytes::Bytes;
use std::sync::Arc;
use tidemark_abort_index::AbortedTxn;
use tidemark_group_coordinator::GroupRecord;
use tidemark_metadata::{MetadataRecord, TopicImage};
use tidemark_record_batch::{BatchHeader, ControlType, DecompressLimits, Record as BatchRecord};
use tidemark_txn_coordinator::decode_key;
use tidemark_types::{JournalIndex, LeaderEpoch, ProducerId, TopicId, TopicPartitionId, mutant};

use crate::Owner;
use crate::partition::Partition;
use crate::record::Append;
use crate::undo::Before;

/// What an appended control batch did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlInfo {
    pub kind: ControlType,
    /// First offset of its transaction in this partition; `None` if it wrote nothing here.
    pub first_offset: Option<i64>,
}

/// A batch as it was applied, with what an index needs to know of it.
#[derive(Clone, Debug)]
pub struct Appended {
    pub partition: TopicPartitionId,
    pub batch: Bytes,
    pub header: BatchHeader,
    /// The LSO after this batch.
    pub last_stable_offset: i64,
    pub control: Option<ControlInfo>,
    pub aborted: Option<AbortedTxn>,
    /// At replay: the partition's checkpoint block holds this batch's effects already, only its
    /// bytes are news.
    pub already_applied: bool,
}

/// A partition's offsets after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    pub partition: TopicPartitionId,
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    pub last_stable_offset: i64,
    pub leader_epoch: LeaderEpoch,
}

/// What apply tells those who derive something from it: logs, caches, views.
#[derive(Clone, Debug)]
pub enum Observation {
    Appended(Appended),
    /// The log start of a partition moved; its [`Watermarks`] follow.
    LogStartMoved(TopicPartitionId),
    /// The offsets of a touched partition once the whole record is applied.
    Watermarks(Watermarks),
    TopicCreated(Arc<TopicImage>),
    /// The topic's configuration changed.
    TopicConfigured(Arc<TopicImage>),
    TopicDeleted(Arc<TopicImage>),
    /// The metadata image changed in any way.
    MetadataChanged,
    /// Records of this partition were lost: what is above the last record is not so.
    TakenBack(TopicPartitionId),
    /// The record that made this partition was lost.
    NeverCreated(TopicPartitionId),
}

/// A record that does not fit the state it is applied to: a damaged journal, never a client's doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyError(pub String);

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ApplyError {}

/// Limits for reading batches that the owner wrote itself: uncompressed, at most a slot long.
const OWN_BATCHES: DecompressLimits = DecompressLimits {
    ratio: 1,
    floor_bytes: 0,
    max_bytes: 256 << 20,
};

impl Owner {
    /// Notes that a record is applied whole and reports each touched partition's offsets once.
    pub(crate) fn finish_record(
        &mut self,
        index: JournalIndex,
        tick: tidemark_types::Tick,
        observations: &mut Vec<Observation>,
    ) {
        assert!(
            tick > self.last_tick,
            "tick {tick:?} of record {index} does not rise (I1)"
        );
        if let Some(undo) = &mut self.undo {
            undo.close(index, (self.last_index, self.last_tick));
        }
        self.last_index = index;
        self.last_tick = tick;
        let mut touched: Vec<TopicPartitionId> = observations
            .iter()
            .filter_map(|o| match o {
                Observation::Appended(a) => Some(a.partition),
                Observation::LogStartMoved(id) => Some(*id),
                _ => None,
            })
            .collect();
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            if let Some(partition) = self.partitions.get(&id) {
                observations.push(Observation::Watermarks(partition.watermarks()));
            }
        }
    }

    pub(crate) fn apply_append(
        &mut self,
        index: JournalIndex,
        wall_ms: i64,
        append: &Append,
        observations: &mut Vec<Observation>,
    ) -> Result<(), ApplyError> {
        let id = append.partition;
        let header = BatchHeader::parse(&append.batch)
            .map_err(|e| ApplyError(format!("record {index}: batch for {id}: {e}")))?;
        if self.is_in_block(id, index) {
            return self.pass_over(index, &header, append, observations);
        }
        let Some(partition) = self.partitions.get_mut(&id) else {
            if self.may_be_deleted_later() {
                return Ok(());
            }
            return Err(ApplyError(format!(
                "record {index}: batch for {id}, which does not exist"
            )));
        };
        if let Some(undo) = &mut self.undo {
            let producer_id = header.producer_id;
            undo.note(Before::Batch {
                id,
                log_end_offset: partition.log_end_offset,
                producer: (producer_id.is_some())
                    .then(|| (producer_id, partition.producers.get(producer_id).cloned())),
            });
        }
        let appended = partition.apply(index, wall_ms, &header, &append.batch)?;
        let control = appended.control;
        observations.push(Observation::Appended(appended));
        match id.topic {
            TopicId::CLUSTER_METADATA => {
                self.apply_metadata(index, &header, &append.batch, observations)
            }
            // A marker has nothing to say to a coordinator's own log.
            TopicId::TRANSACTION_STATE if header.attributes.is_control() => Ok(()),
            TopicId::TRANSACTION_STATE => self.apply_transactions(index, &append.batch),
            TopicId::CONSUMER_OFFSETS if header.attributes.is_control() => {
                if let Some(control) = control {
                    let commit = control.kind == ControlType::Commit && !mutant!("offsets-dropped");
                    if let Some(undo) = &mut self.undo {
                        let before = self.groups.before_marker(id.partition, header.producer_id);
                        undo.note(Before::Groups(id.partition, before));
                    }
                    self.groups
                        .apply_marker(id.partition, header.producer_id, commit);
                }
                Ok(())
            }
            TopicId::CONSUMER_OFFSETS => {
                let transactional = header.attributes.is_transactional();
                let waits = transactional && !mutant!("offsets-before-commit");
                let producer = waits.then_some(header.producer_id);
                self.apply_groups(index, id.partition, &header, &append.batch, producer)
            }
            _ => Ok(()),
        }
    }

    fn apply_metadata(
        &mut self,
        index: JournalIndex,
        header: &BatchHeader,
        batch: &Bytes,
        observations: &mut Vec<Observation>,
    ) -> Result<(), ApplyError> {
        let records = metadata_records(index, batch)?;
        if is_snapshot(&records) {
            return Ok(());
        }
        if let Some(undo) = &mut self.undo {
            undo.note(Before::Metadata(Box::new(self.metadata.clone())));
        }
        let mut is_told = false;
        for record in records {
            if let MetadataRecord::TopicDeleted { id } = &record
                && let Some(topic) = self.metadata.topic_by_id(*id)
            {
                observations.push(Observation::TopicDeleted(topic.clone()));
            }
            let had_partitions = match &record {
                MetadataRecord::PartitionsAdded { id, .. } => {
                    let topic = self.metadata.topic_by_id(*id);
                    topic.map_or(0, |topic| topic.partition_ids().count())
                }
                _ => 0,
            };
            self.metadata.apply(&record);
            self.apply_to_partitions(index, header, &record, had_partitions, observations)?;
            // Once for all records of a batch.
            if !matches!(record, MetadataRecord::ProducersExpired { .. }) && !is_told {
                is_told = true;
                observations.push(Observation::MetadataChanged);
            }
        }
        Ok(())
    }

    /// What a metadata record does to the partitions: they come and go with their topic, and their
    /// leader epochs follow the journal's. A record that makes partitions makes none of the first
    /// `had_partitions`, also where a start does not find them: then they are deleted further on, and
    /// begun anew in the middle of their life they could not take their next batch.
    pub(crate) fn apply_to_partitions(
        &mut self,
        index: JournalIndex,
        header: &BatchHeader,
        record: &MetadataRecord,
        had_partitions: usize,
        observations: &mut Vec<Observation>,
    ) -> Result<(), ApplyError> {
        match record {
            MetadataRecord::TopicCreated { id, .. }
            | MetadataRecord::PartitionsAdded { id, .. } => {
                // None: replay passes over a topic that the metadata's block no longer knows.
                let Some(topic) = self.metadata.topic_by_id(*id).cloned() else {
                    return Ok(());
                };
                // The batch bears the metadata partition's leader epoch, which is the journal's:
                // at replay the image may be that of a later one.
                let epoch = topic.leader_epoch(header.leader_epoch.0);
                for id in topic.partition_ids().skip(had_partitions) {
                    self.partitions.entry(id).or_insert_with(|| {
                        if let Some(undo) = &mut self.undo {
                            undo.note(Before::Created(id));
                        }
                        Partition::new(id, epoch)
                    });
                }
                observations.push(Observation::TopicCreated(topic));
            }
            MetadataRecord::TopicConfigSet { id, .. } => {
                if let Some(topic) = self.metadata.topic_by_id(*id) {
                    observations.push(Observation::TopicConfigured(topic.clone()));
                }
            }
            MetadataRecord::TopicDeleted { id } => self.remove_partitions(*id),
            MetadataRecord::LogStartMoved {
                id,
                partition,
                log_start_offset,
            } => {
                let id = TopicPartitionId::new(*id, *partition);
                // Also with the metadata's block newer than the partition's, and the other way
                // round. A partition that is not there was deleted later.
                if !self.is_in_block(id, index)
                    && let Some(partition) = self.partitions.get_mut(&id)
                {
                    if let Some(undo) = &mut self.undo {
                        undo.note(partition.before_start());
                    }
                    partition.apply_log_start(index, *log_start_offset)?;
                    observations.push(Observation::LogStartMoved(id));
                }
            }
            MetadataRecord::JournalEpoch { epoch, .. } => {
                let restored = &self.restored;
                for (id, partition) in &mut self.partitions {
                    if restored.get(id).is_some_and(|stamp| index <= *stamp) {
                        continue;
                    }
                    let base = self
                        .metadata
                        .topic_by_id(id.topic)
                        .map_or(LeaderEpoch(0), |topic| topic.leader_epoch_base);
                    if let Some(undo) = &mut self.undo {
                        undo.note(partition.before_start());
                    }
                    partition.apply_leader_epoch(LeaderEpoch(base.0.saturating_add(*epoch)))?;
                }
            }
            MetadataRecord::ProducersExpired {
                partition: id,
                producer_ids,
            } => {
                if self.is_in_block(*id, index) {
                    return Ok(());
                }
                let Some(partition) = self.partitions.get_mut(id) else {
                    // As with a batch, replay may know of its deletion already.
                    return match self.may_be_deleted_later() {
                        true => Ok(()),
                        false => Err(ApplyError(format!(
                            "record {index}: producers of {id}, which does not exist"
                        ))),
                    };
                };
                if let Some(undo) = &mut self.undo {
                    for &producer_id in producer_ids {
                        undo.note(Before::Producer {
                            id: *id,
                            producer_id,
                            entry: partition.producers.get(producer_id).cloned(),
                        });
                    }
                }
                partition.forget_producers(index, producer_ids)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn remove_partitions(&mut self, topic: TopicId) {
        if self.restored.is_empty() {
            let ids = (0..).map(|partition| TopicPartitionId::new(topic, partition));
            for id in ids {
                let Some(removed) = self.partitions.remove(&id) else {
                    return;
                };
                if let Some(undo) = &mut self.undo {
                    undo.note(Before::Removed(Box::new(removed)));
                }
            }
        }
        // A checkpoint may hold some of them only.
        self.partitions.retain(|id, _| id.topic != topic);
    }

    pub(crate) fn apply_transactions(
        &mut self,
        index: JournalIndex,
        batch: &Bytes,
    ) -> Result<(), ApplyError> {
        for record in own_records(index, batch)? {
            let key = record.key.as_deref().unwrap_or_default();
            let before = self
                .coordinator
                .apply_record(key, record.value.as_deref())
                .map_err(|e| ApplyError(format!("record {index}: transaction state: {e}")))?;
            if let Some(undo) = &mut self.undo {
                let id = decode_key(key).expect("it was just applied");
                undo.note(Before::Transaction(id, before.map(Box::new)));
            }
        }
        Ok(())
    }

    pub(crate) fn apply_groups(
        &mut self,
        index: JournalIndex,
        partition: i32,
        header: &BatchHeader,
        batch: &Bytes,
        producer: Option<ProducerId>,
    ) -> Result<(), ApplyError> {
        for record in own_records(index, batch)? {
            let offset = header.base_offset + i64::from(record.offset_delta);
            let record = GroupRecord::decode(
                record.key.as_deref().unwrap_or_default(),
                record.value.as_deref(),
            )
            .map_err(|e| ApplyError(format!("record {index}: consumer offsets: {e}")))?;
            if let Some(undo) = &mut self.undo {
                let before = self.groups.before(partition, &record, producer);
                undo.note(Before::Groups(partition, before));
            }
            self.groups.apply(partition, &record, offset, producer);
        }
        Ok(())
    }
}

pub(crate) fn metadata_records(
    index: JournalIndex,
    batch: &Bytes,
) -> Result<Vec<MetadataRecord>, ApplyError> {
    let decode = |record: BatchRecord| {
        let key = record.key.as_deref().unwrap_or_default();
        MetadataRecord::decode(key, record.value.as_deref().unwrap_or_default())
            .map_err(|e| ApplyError(format!("record {index}: cluster metadata: {e}")))
    };
    own_records(index, batch)?.into_iter().map(decode).collect()
}

/// It says nothing that the state does not have.
pub(crate) fn is_snapshot(records: &[MetadataRecord]) -> bool {
    records.first() == Some(&MetadataRecord::Snapshot)
}

fn own_records(index: JournalIndex, batch: &Bytes) -> Result<Vec<BatchRecord>, ApplyError> {
    tidemark_record_batch::records(batch, &OWN_BATCHES)
        .and_then(|records| records.collect::<Result<Vec<_>, _>>())
        .map_err(|e| ApplyError(format!("record {index}: {e}")))
}
