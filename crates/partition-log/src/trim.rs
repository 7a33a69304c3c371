//! What lies below the log start is given up: segments whole, and of the tail what no segment needs
//! before it any more.

use std::sync::atomic::Ordering;

use tidemark_types::Tick;

use crate::{PartitionLog, Retired, SegmentId, TailBatch};

impl PartitionLog {
    /// True if something may lie below a log start that moved since the last
    /// [`PartitionLog::trim`]. Cheap.
    pub fn may_be_trimmed(&self) -> bool {
        self.passed.load(Ordering::Acquire)
    }

    /// Gives up the segments that lie wholly below the log start of every version that a reader at
    /// `min_tick` or later takes, and batches of the tail that do if no segment is left before
    /// them. The files are left to `retired`. Returns how many segments that were.
    pub fn trim(&self, min_tick: Tick, retired: &Retired) -> usize {
        self.prune_versions(min_tick);
        // Not while one of them is written to.
        let turn = self.flushing.lock();
        let mut inner = self.lock();
        let log_start = inner.versions.oldest().log_start_offset;
        if log_start == inner.log_start_offset {
            self.passed.store(false, Ordering::Release);
        }
        let passed = inner
            .segments
            .partition_point(|slot| slot.written.next_offset <= log_start);
        let given_up: Vec<SegmentId> = (inner.segments.drain(..passed))
            .map(|slot| slot.written.id())
            .collect();
        let mut dropped: Vec<TailBatch> = Vec::new();
        if inner.segments.is_empty() {
            let passed = inner.tail.partition_point(|b| b.last_offset < log_start);
            dropped.extend(inner.tail.drain(..passed));
            inner.tail_bytes -= dropped.iter().map(|b| b.bytes.len() as u64).sum::<u64>();
        }
        drop(inner);
        drop(turn);
        self.store
            .sub_tail_bytes(dropped.iter().map(TailBatch::charge).sum());
        // After the segments left the list: a checkpoint that begins from here on cannot name them.
        let files = given_up.iter().flat_map(|id| id.files(self.dir()));
        retired.retire_files(files);
        given_up.len()
    }
}
