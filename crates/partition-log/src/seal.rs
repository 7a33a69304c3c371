//! The indexes that Kafka's tools expect beside a segment. They are derived from `.tickindex` when
//! the segment no longer grows; Tidemark itself never reads them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemark_disk::DiskFile;
use tidemark_record_batch::ControlType;

use crate::names::{FileKind, segment_path};
use crate::segment::{SegmentReader, SegmentState};
use crate::tick_index::TickEntry;
use crate::{LogError, LogStore};

/// Version of a `.txnindex` entry.
const TXN_INDEX_VERSION: i16 = 0;

/// The three indexes of one segment, in Kafka's formats.
#[derive(Default)]
struct Indexes {
    /// 8 bytes an entry: offset relative to the segment's base (int32), position (int32).
    offsets: Vec<u8>,
    /// 12 bytes an entry: timestamp (int64), offset relative to the base (int32).
    times: Vec<u8>,
    /// 34 bytes an entry: version (int16), producer id, first, last and last stable offset.
    txns: Vec<u8>,
}

struct Builder {
    base_offset: i64,
    /// `index.interval.bytes`.
    interval_bytes: u64,
    indexes: Indexes,
    bytes_since_entry: u64,
    /// Largest timestamp so far and the last offset of its batch.
    max: Option<(i64, i64)>,
    last_time: Option<i64>,
}

impl Builder {
    fn new(base_offset: i64, interval_bytes: u64) -> Builder {
        Builder {
            base_offset,
            interval_bytes,
            indexes: Indexes::default(),
            bytes_since_entry: 0,
            max: None,
            last_time: None,
        }
    }

    fn relative(&self, offset: i64) -> [u8; 4] {
        i32::try_from(offset - self.base_offset)
            .expect("a segment is rolled before its offsets pass an int32")
            .to_be_bytes()
    }

    /// In the order in which Kafka's `LogSegment.append` does it: the batch counts towards the
    /// next entry, not towards its own.
    fn push(&mut self, entry: &TickEntry) {
        if !entry.is_empty() && self.max.is_none_or(|(max, _)| entry.max_timestamp > max) {
            self.max = Some((entry.max_timestamp, entry.last_offset));
        }
        if self.bytes_since_entry > self.interval_bytes {
            let relative = self.relative(entry.last_offset);
            self.indexes.offsets.extend_from_slice(&relative);
            self.indexes
                .offsets
                .extend_from_slice(&entry.position.to_be_bytes());
            self.push_time();
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += u64::from(entry.size_bytes);
        if let Some(control) = entry.control
            && control.control_type == ControlType::Abort
            && let Some(first_offset) = control.txn_first_offset
        {
            let txns = &mut self.indexes.txns;
            txns.extend_from_slice(&TXN_INDEX_VERSION.to_be_bytes());
            txns.extend_from_slice(&entry.producer_id.0.to_be_bytes());
            txns.extend_from_slice(&first_offset.to_be_bytes());
            txns.extend_from_slice(&entry.last_offset.to_be_bytes());
            txns.extend_from_slice(&entry.last_stable_offset.to_be_bytes());
        }
    }

    /// Timestamps in the time index rise.
    fn push_time(&mut self) {
        if let Some((timestamp, offset)) = self.max
            && self.last_time.is_none_or(|last| timestamp > last)
        {
            let relative = self.relative(offset);
            self.indexes
                .times
                .extend_from_slice(&timestamp.to_be_bytes());
            self.indexes.times.extend_from_slice(&relative);
            self.last_time = Some(timestamp);
        }
    }

    fn finish(mut self) -> Indexes {
        self.push_time();
        self.indexes
    }
}

/// Files that were written and are not synced yet.
type WrittenFiles = Vec<(PathBuf, Arc<dyn DiskFile>)>;

/// Builds and writes the indexes; returns the files that must be synced. A segment without aborted
/// transactions has no `.txnindex`, as in Kafka.
pub(crate) fn build_indexes(
    store: &LogStore,
    partition_dir: &Path,
    state: &SegmentState,
    interval_bytes: u64,
) -> Result<WrittenFiles, LogError> {
    let mut builder = Builder::new(state.base_offset, interval_bytes);
    SegmentReader::open(&store.files, partition_dir, *state)?.scan(0, |_, entry| {
        builder.push(entry);
        true
    })?;
    let indexes = builder.finish();
    let mut written = Vec::new();
    let dir = state.id().dir(partition_dir);
    for (kind, bytes) in [
        (FileKind::OffsetIndex, &indexes.offsets),
        (FileKind::TimeIndex, &indexes.times),
        (FileKind::TxnIndex, &indexes.txns),
    ] {
        if kind == FileKind::TxnIndex && bytes.is_empty() {
            continue;
        }
        let path = segment_path(&dir, state.base_offset, kind);
        let file = store.files.create(&path)?;
        file.write_at(bytes, 0)
            .map_err(|e| LogError::io(&path, e))?;
        written.push((path, file));
    }
    Ok(written)
}
