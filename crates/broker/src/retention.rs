//! Retention: what is expired is found by maintenance, the log starts are moved by the owner, as a
//! record, and the files go when no checkpoint names them any more ([`Retired`]).
//!
//! It looks every `log.retention.check.interval.ms` at the published state, with the configuration
//! of that moment. *Crash: what was found is found again.*
//!
//! [`Retired`]: tidemark_partition_log::Retired

use tidemark_journal::Journal;
use tidemark_owner::{
    Command, MAX_LOG_START_MOVES, MoveLogStarts, SnapshotMetadata, snapshot_room_bytes,
};
use tidemark_partition_log::RetentionRules;
use tidemark_types::{JournalIndex, TopicPartitionId};
use tracing::{debug, info};

use crate::admission::{Reservation, Wants};
use crate::maintenance::Maintenance;
use crate::owner_thread::Message;

impl Maintenance {
    /// Has the log starts moved past what is expired. Returns the records to wait for, if somebody
    /// wants to wait; none where nothing is expired.
    pub(crate) fn retain(&self) -> Vec<crossbeam_channel::Receiver<JournalIndex>> {
        let mut moved = Vec::new();
        for partitions in self.expired().chunks(MAX_LOG_START_MOVES) {
            // It frees space, so it may take the journal's reserve; without any room left it waits
            // for the next look.
            let Some(reservation) = self.admission.admit_now(Wants::Control) else {
                debug!("retention waits: the journal has no room");
                break;
            };
            let command = Command::MoveLogStarts(MoveLogStarts {
                partitions: partitions.to_vec(),
            });
            match self.upkeep(command, reservation) {
                Some(record) => moved.push(record),
                None => break,
            }
        }
        moved.extend(self.cut_metadata());
        moved
    }

    fn upkeep(
        &self,
        command: Command,
        reservation: Reservation,
    ) -> Option<crossbeam_channel::Receiver<JournalIndex>> {
        let (to, record) = crossbeam_channel::bounded(1);
        let message = Message::Upkeep {
            command,
            reservation,
            to,
        };
        self.owner.send(message).ok().map(|()| record)
    }

    /// The log of the metadata is read by nobody but a rebuild, and grows with every move of a log
    /// start: it is begun anew once it has grown by `metadata.log.max.record.bytes.between.snapshots`.
    fn cut_metadata(&self) -> Option<crossbeam_channel::Receiver<JournalIndex>> {
        let read = self.published.read();
        let log = self.catalogue.log(TopicPartitionId::METADATA)?;
        let log_start_offset = log.at(read.tick()).log_start_offset;
        let log_bytes = log.bytes_from(log_start_offset);
        if log_bytes < self.metadata_snapshot_bytes {
            return None;
        }
        // Not more than a record can have: what is larger the owner does not write.
        let most = self.journal.max_record_bytes();
        let room = Wants::Data(snapshot_room_bytes(log_bytes).min(most));
        let Some(reservation) = self.admission.admit_now(room) else {
            debug!("the log of the metadata is not cut: the journal has no room");
            return None;
        };
        self.upkeep(
            Command::SnapshotMetadata(SnapshotMetadata { log_bytes }),
            reservation,
        )
    }

    /// (partition, first offset that stays).
    fn expired(&self) -> Vec<(TopicPartitionId, i64)> {
        let read = self.published.read();
        let now_ms = self.clock.wall_ms();
        let metadata = self.catalogue.at(read.tick());
        let mut expired = Vec::new();
        for topic in metadata.image.topics() {
            let config = topic.resolve(&metadata.defaults);
            if !config.cleanup_policy.delete {
                continue;
            }
            let rules = RetentionRules {
                retention_ms: Some(config.retention_ms).filter(|ms| *ms >= 0),
                retention_bytes: u64::try_from(config.retention_bytes).ok(),
            };
            for id in topic.partition_ids() {
                let Some(log) = self.catalogue.log(id) else {
                    continue;
                };
                let version = log.at(read.tick());
                if let Some(offset) = log.retention_point(&version, now_ms, &rules) {
                    info!(
                        "retention: {}-{} begins at offset {offset} now, {} records older than that go",
                        topic.name,
                        id.partition,
                        offset - version.log_start_offset
                    );
                    expired.push((id, offset));
                }
            }
        }
        expired
    }
}
