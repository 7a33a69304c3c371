//! The log of the metadata is cut: everything it says is written once more, and the log starts there.
//!
//! Nobody reads that log but a rebuild from segments alone; a start has the state from its checkpoint.
//! Without the cut it would grow for ever, mostly by log starts that moved.

use tidemark_metadata::{MetadataRecord, SNAPSHOT_LEVEL};
use tidemark_types::TopicPartitionId;

use crate::Owner;
use crate::command::{Now, Step};

/// What a record takes in its batch beside key and value, and a batch beside its records, at most.
const RECORD_BYTES: usize = 32;
const BATCHES_BYTES: usize = 512;

/// The log of `__cluster_metadata` is to be cut, if that is worth it.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotMetadata {
    /// What the log takes now.
    pub log_bytes: u64,
}

/// The room that the command may need in a journal.
pub fn snapshot_room_bytes(log_bytes: u64) -> u64 {
    log_bytes / 2
}

impl Owner {
    /// Writes the image and every log start as one batch, and in the same record that the log begins
    /// with it. Does nothing where that saves less than half of the log, or fits no record.
    ///
    /// Producers that were forgotten are not named again: a rebuild that begins here knows them for
    /// as long as their batches are there.
    pub(crate) fn snapshot_metadata(
        &mut self,
        request: &SnapshotMetadata,
        now: &Now<'_>,
        step: &mut Step,
    ) {
        let mut draft = self.begin(now);
        let level = MetadataRecord::FeatureLevel {
            level: SNAPSHOT_LEVEL,
        };
        // A data directory from before this kind of record: it is raised with the first one.
        let raise = self.metadata.feature_level() < SNAPSHOT_LEVEL;
        let mut records = vec![MetadataRecord::Snapshot];
        records.extend(self.metadata.snapshot_records());
        records.extend(raise.then(|| level.clone()));
        records.extend(self.log_starts());
        let bytes: usize = (records.iter())
            .map(|record| record.key().len() + record.value().len() + RECORD_BYTES)
            .sum();
        let bytes = bytes + BATCHES_BYTES;
        let is_worth_it = bytes as u64 <= snapshot_room_bytes(request.log_bytes);
        if !is_worth_it || draft.bytes + bytes > self.max_record_bytes {
            return;
        }
        if raise {
            self.append_metadata(&mut draft, &[level]);
        }
        let log_start_offset = self.append_metadata(&mut draft, &records);
        let moved = MetadataRecord::LogStartMoved {
            id: TopicPartitionId::METADATA.topic,
            partition: TopicPartitionId::METADATA.partition,
            log_start_offset,
        };
        self.append_metadata(&mut draft, &[moved]);
        self.finish(draft, step);
    }

    fn log_starts(&self) -> Vec<MetadataRecord> {
        let mut moved: Vec<_> = (self.partitions.values())
            .filter(|it| it.id != TopicPartitionId::METADATA && it.log_start_offset > 0)
            .map(|it| (it.id, it.log_start_offset))
            .collect();
        moved.sort_unstable();
        (moved.into_iter())
            .map(|(id, log_start_offset)| MetadataRecord::LogStartMoved {
                id: id.topic,
                partition: id.partition,
                log_start_offset,
            })
            .collect()
    }
}
