//! A batch in the tail, and what its `.tickindex` entry will say about it.

use bytes::Bytes;
use tidemark_record_batch::{BatchHeader, ControlType};
use tidemark_types::{JournalIndex, LeaderEpoch, ProducerEpoch, ProducerId, Tick};

/// What is kept of a control batch besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlMeta {
    pub control_type: ControlType,
    /// First offset of the ended transaction in this partition; `None` when it wrote nothing here.
    pub txn_first_offset: Option<i64>,
}

/// The part of a batch that `.tickindex` keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchMeta {
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// The 16 attribute bits of the batch header.
    pub attributes: i16,
    pub leader_epoch: LeaderEpoch,
    /// The last stable offset after this batch was applied.
    pub last_stable_offset: i64,
    pub control: Option<ControlMeta>,
}

/// A batch that the journal holds and no segment does yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TailBatch {
    pub base_offset: i64,
    pub last_offset: i64,
    pub tick: Tick,
    /// The journal record that carries the batch.
    pub index: JournalIndex,
    /// The whole batch, with its final base offset and leader epoch.
    pub bytes: Bytes,
    /// Memory that `bytes` keeps alive: more than its length when it is a slice of a larger frame.
    pub allocated_bytes: usize,
    pub meta: BatchMeta,
}

impl TailBatch {
    /// The batch `bytes`, whose header is `header` with the final offsets.
    pub fn new(
        header: &BatchHeader,
        bytes: Bytes,
        tick: Tick,
        index: JournalIndex,
        last_stable_offset: i64,
        control: Option<ControlMeta>,
    ) -> TailBatch {
        assert_eq!(
            bytes.len(),
            header.size_bytes(),
            "a tail batch is exactly one batch"
        );
        TailBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            tick,
            index,
            allocated_bytes: bytes.len(),
            bytes,
            meta: BatchMeta {
                base_timestamp: header.base_timestamp,
                max_timestamp: header.max_timestamp,
                producer_id: header.producer_id,
                producer_epoch: header.producer_epoch,
                attributes: header.attributes.0,
                leader_epoch: header.leader_epoch,
                last_stable_offset,
                control,
            },
        }
    }

    /// Says that `bytes` keeps `allocated_bytes` of memory alive, for the tail's budget.
    #[must_use]
    pub fn with_allocated_bytes(mut self, allocated_bytes: usize) -> TailBatch {
        self.allocated_bytes = allocated_bytes.max(self.bytes.len());
        self
    }

    /// What the batch counts for in the tail's budget.
    pub(crate) fn charge(&self) -> u64 {
        (self.allocated_bytes + size_of::<TailBatch>()) as u64
    }
}
