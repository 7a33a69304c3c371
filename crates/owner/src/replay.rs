//! Start: the records of the journal, applied again, over the blocks of a checkpoint or over nothing.
//!
//! The blocks of a checkpoint are taken while the owner runs, each at a stamp of its own. A record
//! whose index is at or below a partition's stamp is in that partition's block, and only there: its
//! other parts may still have to be applied. All state is keyed by partition, so that this can be
//! decided append by append, with one exception: `__cluster_metadata` says which partitions exist
//! and what their leader epochs are. When its block is newer than a partition's, the records between
//! the two are passed over for the image and still applied to the partition.

use tidemark_group_coordinator::Groups;
use tidemark_record_batch::{BatchHeader, parse_control};
use tidemark_types::{JournalIndex, TopicId, TopicPartitionId};

use crate::Owner;
use crate::apply::{Appended, ApplyError, ControlInfo, Observation, is_snapshot, metadata_records};
use crate::record::{Append, Record};

impl Owner {
    /// Applies a record of the journal at start. Records come in order and without a gap: the first
    /// one there is, or with a checkpoint one that every block's stamp reaches up to.
    pub fn replay(&mut self, record: &Record) -> Result<Vec<Observation>, ApplyError> {
        let index = record.index;
        let expected = self.last_index.next();
        let lowest_stamp = self.restored.values().min();
        let follows = match (self.last_index, lowest_stamp) {
            (JournalIndex(0), Some(&stamp)) => index <= stamp.next(),
            _ => index == expected,
        };
        if !follows {
            return Err(ApplyError(format!(
                "record {index} does not follow {}",
                match (self.last_index, lowest_stamp) {
                    (JournalIndex(0), Some(stamp)) => format!("the checkpoint's record {stamp}"),
                    (last, _) => format!("record {last}"),
                }
            )));
        }
        if record.tick <= self.last_tick {
            return Err(ApplyError(format!(
                "tick {:?} of record {index} is not above {:?} (I1)",
                record.tick, self.last_tick
            )));
        }
        let mut observations = Vec::new();
        for append in &record.appends {
            self.apply_append(index, record.wall_ms, append, &mut observations)?;
        }
        self.finish_record(index, record.tick, &mut observations);
        Ok(observations)
    }

    /// True if the checkpoint block that a partition came from holds this record's effects on it.
    pub(crate) fn is_in_block(&self, id: TopicPartitionId, index: JournalIndex) -> bool {
        self.restored.get(&id).is_some_and(|stamp| index <= *stamp)
    }

    /// A checkpoint takes its blocks one after the other: a topic deleted meanwhile may have records
    /// here and no block. Its deletion follows in the journal; if it does not,
    /// [`Owner::check_replayed`] finds the partition missing.
    pub(crate) fn may_be_deleted_later(&self) -> bool {
        !self.restored.is_empty()
    }

    /// A batch whose effects are in its partition's block: its bytes are news, and what it says of
    /// other partitions.
    pub(crate) fn pass_over(
        &mut self,
        index: JournalIndex,
        header: &BatchHeader,
        append: &Append,
        observations: &mut Vec<Observation>,
    ) -> Result<(), ApplyError> {
        let id = append.partition;
        let Some(partition) = self.partitions.get(&id) else {
            // Deleted in between.
            return Ok(());
        };
        let marker = parse_control(&append.batch)
            .map_err(|e| ApplyError(format!("record {index}: marker for {id}: {e}")))?;
        observations.push(Observation::Appended(Appended {
            partition: id,
            batch: append.batch.clone(),
            header: *header,
            last_stable_offset: partition.last_stable_offset(),
            control: marker.map(|(kind, _)| ControlInfo {
                kind,
                first_offset: None,
            }),
            aborted: None,
            already_applied: true,
        }));
        if id.topic == TopicId::CLUSTER_METADATA {
            let records = metadata_records(index, &append.batch)?;
            for record in records.iter().filter(|_| !is_snapshot(&records)) {
                // A checkpoint takes the metadata's block first, then one of each partition in it
                // that is still there: whatever this record made has a block, or is deleted.
                let had_partitions = usize::MAX;
                self.apply_to_partitions(index, header, record, had_partitions, observations)?;
            }
        }
        Ok(())
    }

    /// After the last record: every partition that the metadata names is there, and no other.
    pub fn check_replayed(&self) -> Result<(), ApplyError> {
        let missing = self
            .metadata
            .topics()
            .flat_map(|topic| topic.partition_ids())
            .find(|id| !self.partitions.contains_key(id));
        if let Some(id) = missing {
            return Err(ApplyError(format!(
                "partition {id} exists, and neither the checkpoint nor the journal has its state"
            )));
        }
        let unknown = self
            .partitions
            .keys()
            .find(|id| **id != TopicPartitionId::METADATA && !self.metadata.contains(**id));
        match unknown {
            Some(id) => Err(ApplyError(format!(
                "partition {id} has state, and no topic has it"
            ))),
            None => Ok(()),
        }
    }

    /// What differs between two owners in what must survive a start; `None` if nothing does (P12).
    /// Deadlines, members of groups and the rest of a block of producer ids are of one run only.
    pub fn difference(&self, other: &Owner) -> Option<String> {
        fn unequal<T: PartialEq + std::fmt::Debug>(what: &str, a: &T, b: &T) -> Option<String> {
            (a != b).then(|| format!("{what}: {a:?}, {b:?}"))
        }
        unequal("last index", &self.last_index, &other.last_index)
            .or_else(|| unequal("last tick", &self.last_tick, &other.last_tick))
            .or_else(|| unequal("metadata", &self.metadata, &other.metadata))
            .or_else(|| unequal("partitions", &self.partition_ids(), &other.partition_ids()))
            .or_else(|| {
                let mut ids = self.partition_ids().into_iter();
                ids.find_map(|id| unequal("partition", &self.partition(id), &other.partition(id)))
            })
            .or_else(|| unequal("transactional ids", &self.coordinator, &other.coordinator))
            .or_else(|| {
                let of = |groups: &Groups| -> Vec<_> {
                    let partitions = groups.partitions();
                    partitions
                        .map(|p| (p, groups.records_of_partition(p)))
                        .collect()
                };
                (!self.groups.durable_eq(&other.groups))
                    .then(|| format!("groups: {:?}, {:?}", of(&self.groups), of(&other.groups)))
            })
    }
}
