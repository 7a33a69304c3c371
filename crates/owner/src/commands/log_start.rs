//! Log starts move: DeleteRecords asks for it, and retention.
//!
//! Only the log start moves. A transaction that is cut by it stays open and ends as any other: its
//! last stable offset is the log start meanwhile. (Unless DeleteRecords is an exclusive operation:
//! then it is aborted, as what is left of it is not what its producer wrote.) Producers keep their
//! windows, so that the next sequence follows the last one though its record is gone.

use std::sync::Arc;

use tidemark_metadata::MetadataRecord;
use tidemark_types::{ErrorCode, TopicPartitionId};

use crate::Owner;
use crate::command::{AbortedBy, Now, Step};
use crate::commands::exclusive::{Cuts, ExclusiveOperation};
use crate::draft::Draft;
use crate::partition::Partition;

/// In place of an offset: the high watermark.
const HIGH_WATERMARK: i64 = -1;

/// Partitions of one command at most, so that what it writes fits any record and an owner's step
/// stays short.
pub const MAX_LOG_START_MOVES: usize = 500;

/// What one move takes in a batch of `__cluster_metadata`, the batch's head not counted.
const MOVE_BYTES: usize = 64;
const BATCH_HEAD_BYTES: usize = 128;

/// Records below an offset are to be deleted; at most [`MAX_LOG_START_MOVES`] partitions.
#[derive(Clone, Debug)]
pub struct DeleteRecords {
    /// (partition, first offset that stays; -1: the high watermark).
    pub partitions: Vec<(TopicPartitionId, i64)>,
}

/// What retention has found to be expired; at most [`MAX_LOG_START_MOVES`] partitions.
#[derive(Clone, Debug)]
pub struct MoveLogStarts {
    /// (partition, first offset that stays).
    pub partitions: Vec<(TopicPartitionId, i64)>,
}

impl Owner {
    /// Per partition its low watermark, which is the log start, or UNKNOWN_TOPIC_OR_PARTITION,
    /// OFFSET_OUT_OF_RANGE beyond the high watermark, or REQUEST_TIMED_OUT, on which clients ask
    /// again, for what does not fit the record beside the rest. The high watermark is the end of the log:
    /// the answer waits until all of it is durable.
    pub(crate) fn delete_records(
        &mut self,
        request: &DeleteRecords,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<Result<i64, ErrorCode>> {
        let mut draft = self.begin(now);
        let mut moves = Vec::new();
        let mut cuts = Cuts::default();
        let answers = request.partitions.iter().map(|(id, offset)| {
            let partition = self.partitions.get(id);
            let partition = partition.ok_or(ErrorCode::UnknownTopicOrPartition)?;
            let offset = match *offset {
                HIGH_WATERMARK => partition.log_end_offset,
                offset => offset,
            };
            if !(0..=partition.log_end_offset).contains(&offset) {
                return Err(ErrorCode::OffsetOutOfRange);
            }
            if offset > partition.log_start_offset {
                let count = moves.len() + 1;
                if !self.has_room_for_moves(&draft, cuts.bytes(), count) {
                    return Err(ErrorCode::RequestTimedOut);
                }
                if self.options.exclusive.delete_records {
                    let ids = self.transactions_below(*id, offset);
                    let by = AbortedBy::Exclusive {
                        operation: ExclusiveOperation::DeleteRecords,
                        topic: self.topic_name(*id),
                    };
                    let bytes = BATCH_HEAD_BYTES + count * MOVE_BYTES;
                    if !self.add_cuts(&mut cuts, ids, &by, &draft, bytes) {
                        return Err(ErrorCode::RequestTimedOut);
                    }
                }
                moves.push(log_start_moved(partition, offset));
            }
            Ok(offset.max(partition.log_start_offset))
        });
        let answers = answers.collect();
        self.write_moves(&mut draft, &moves);
        self.cut_through(&mut draft, cuts, now, step);
        self.finish(draft, step);
        answers
    }

    /// Moves log starts as far as the last stable offset allows. Never back.
    pub(crate) fn move_log_starts(
        &mut self,
        request: &MoveLogStarts,
        now: &Now<'_>,
        step: &mut Step,
    ) {
        let mut draft = self.begin(now);
        let mut moves = Vec::new();
        for (id, offset) in &request.partitions {
            let Some(partition) = self.partitions.get(id) else {
                continue;
            };
            let offset = (*offset).min(partition.last_stable_offset());
            if offset > partition.log_start_offset
                && self.has_room_for_moves(&draft, 0, moves.len() + 1)
            {
                moves.push(log_start_moved(partition, offset));
            }
        }
        self.write_moves(&mut draft, &moves);
        self.finish(draft, step);
    }

    fn topic_name(&self, id: TopicPartitionId) -> Arc<str> {
        let topic = self.metadata.topic_by_id(id.topic);
        topic.map_or_else(|| Arc::from(""), |topic| topic.name.clone())
    }

    fn has_room_for_moves(&self, draft: &Draft, more: usize, count: usize) -> bool {
        draft.bytes + more + BATCH_HEAD_BYTES + count * MOVE_BYTES <= self.max_record_bytes
    }

    fn write_moves(&mut self, draft: &mut Draft, moves: &[MetadataRecord]) {
        if !moves.is_empty() {
            self.append_metadata(draft, moves);
        }
    }
}

fn log_start_moved(partition: &Partition, log_start_offset: i64) -> MetadataRecord {
    MetadataRecord::LogStartMoved {
        id: partition.id.topic,
        partition: partition.id.partition,
        log_start_offset,
    }
}
