//! Logs and batches for tests.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tidemark_abort_index::AbortedTxn;
use tidemark_disk::{Disk, SimDisk};
use tidemark_partition_log::*;
use tidemark_record_batch::{
    BatchBuilder, BatchHeader, ControlType, control_batch, patch_position,
};
use tidemark_types::*;

pub const CLUSTER: [u8; 16] = [7; 16];
pub const EPOCH: LeaderEpoch = LeaderEpoch(3);

pub fn partition(n: i32) -> TopicPartitionId {
    TopicPartitionId::new(TopicId([0x5a; 16]), n)
}

pub fn data_dir() -> &'static Path {
    Path::new("/data")
}

pub fn open_store(disk: &SimDisk) -> Arc<LogStore> {
    let settings = StoreSettings { open_files: 3 };
    LogStore::open(
        Arc::new(disk.clone()) as Arc<dyn Disk>,
        data_dir(),
        CLUSTER,
        &settings,
    )
    .unwrap()
}

pub fn write_behind(store: &Arc<LogStore>) -> WriteBehind {
    let settings = WriteBehindSettings {
        write_bytes: 2_000,
        dirty_files: 1_000,
    };
    WriteBehind::new(store, settings)
}

/// A batch with a record per timestamp.
pub fn data(base_offset: i64, timestamps: &[i64], value: &[u8]) -> Bytes {
    let mut builder = BatchBuilder::new(timestamps[0]);
    builder.producer(ProducerId(9), ProducerEpoch(0), 0);
    for timestamp in timestamps {
        builder.push_at(*timestamp, None, Some(value), &[]);
    }
    let mut bytes = builder.build();
    patch_position(&mut bytes, base_offset, EPOCH);
    bytes.into()
}

pub fn marker(base_offset: i64, producer: i64, control_type: ControlType) -> Bytes {
    control_batch(
        base_offset,
        EPOCH,
        ProducerId(producer),
        ProducerEpoch(0),
        control_type,
        CoordinatorEpoch(0),
        1_000,
    )
}

/// A tail batch of record `index`, whose tick is 10 times that.
pub fn tail(bytes: Bytes, index: u64, control: Option<ControlMeta>) -> TailBatch {
    let header = BatchHeader::parse(&bytes).unwrap();
    let stable = header.last_offset() + 1;
    let tick = Tick(index * 10);
    TailBatch::new(&header, bytes, tick, JournalIndex(index), stable, control)
}

/// Appends one record with one batch and publishes its version.
pub fn append(log: &PartitionLog, batch: TailBatch, aborted: Option<AbortedTxn>) {
    let tick = batch.tick;
    let log_end_offset = batch.last_offset + 1;
    log.append(batch, aborted);
    log.push_version(Version {
        tick,
        log_end_offset,
        last_stable_offset: log_end_offset,
        log_start_offset: log.newest_version().log_start_offset,
        leader_epoch: EPOCH,
    });
}

/// What a log must answer, kept as a plain list.
#[derive(Clone, Default, Debug)]
pub struct Model {
    pub batches: Vec<TailBatch>,
}

impl Model {
    pub fn end(&self) -> i64 {
        self.batches.last().map_or(0, |b| b.last_offset + 1)
    }

    /// The next batch, not yet in the log.
    pub fn next(&mut self, records: usize, value_bytes: usize) -> TailBatch {
        let index = self.batches.len() as u64 + 1;
        let timestamps = vec![index as i64; records];
        let batch = tail(
            data(self.end(), &timestamps, &vec![b'v'; value_bytes]),
            index,
            None,
        );
        self.batches.push(batch.clone());
        batch
    }

    pub fn read(&self, from: i64, upper: i64, max_bytes: usize, min_one: bool) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        if from >= upper {
            return out;
        }
        for batch in self.batches.iter().filter(|b| b.last_offset >= from) {
            let forced = min_one && out.is_empty();
            let fits = out.len() + batch.bytes.len() <= max_bytes;
            if batch.base_offset >= upper || !(fits || forced) {
                break;
            }
            out.extend_from_slice(&batch.bytes);
        }
        out
    }
}

pub fn joined(read: &ReadResult) -> Vec<u8> {
    let bytes = read.chunks.concat();
    assert_eq!(bytes.len(), read.bytes);
    bytes
}

/// Every byte of the log from its start to its end, read with a generous limit.
pub fn read_all(log: &PartitionLog) -> Vec<u8> {
    let mut from = log
        .segments()
        .first()
        .map_or(log.tail_start_offset(), |s| s.base_offset);
    let mut out = Vec::new();
    while from < log.end_offset() {
        let read = log.read(from, i64::MAX, 10_000, true).unwrap();
        out.extend_from_slice(&joined(&read));
        from = read.next_offset().expect("something was below the end");
    }
    out
}

/// A version that says that the log begins at `offset`, as of the newest one's tick.
pub fn move_log_start(log: &PartitionLog, offset: i64) {
    log.push_version(Version {
        log_start_offset: offset,
        ..log.newest_version()
    });
}

/// Segments of this size.
pub fn roll_at(log: &PartitionLog, segment_bytes: u64) {
    log.set_segment_rules(SegmentRules {
        segment_bytes,
        ..SegmentRules::default()
    });
}
