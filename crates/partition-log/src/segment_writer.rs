//! Writing a compacted segment beside those whose place it takes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tidemark_disk::DiskFile;
use tidemark_record_batch::BatchHeader;
use tidemark_types::TopicPartitionId;

use crate::bytes_io::{crc32c, crc32c_combine};
use crate::names::{FileKind, segment_path};
use crate::segment::{SegmentId, SegmentState};
use crate::tick_index::{TickEntry, entry_position};
use crate::{LogError, LogStore, TickIndexHeader, seal};

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// A segment that is being written. Nothing refers to its files before [`SegmentWriter::finish`].
pub(crate) struct SegmentWriter<'a> {
    store: &'a LogStore,
    partition_dir: &'a Path,
    index_interval_bytes: u64,
    state: SegmentState,
    log: Output,
    ticks: Output,
}

struct Output {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// Where the buffer belongs.
    position: u64,
}

impl Output {
    fn create(store: &LogStore, path: PathBuf, position: u64) -> Result<Output, LogError> {
        Ok(Output {
            file: store.files.create(&path)?,
            path,
            buffer: Vec::new(),
            position,
        })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out()?;
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<(), LogError> {
        self.file
            .write_at(&self.buffer, self.position)
            .map_err(|e| LogError::io(&self.path, e))?;
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LogError> {
        self.write_out()?;
        sync(&self.path, &*self.file)
    }
}

fn sync(path: &Path, file: &dyn DiskFile) -> Result<(), LogError> {
    file.sync_data().map_err(|e| LogError::io(path, e))
}

impl<'a> SegmentWriter<'a> {
    /// Makes the files of an empty segment, and their directory.
    pub(crate) fn create(
        store: &'a LogStore,
        partition: TopicPartitionId,
        partition_dir: &'a Path,
        index_interval_bytes: u64,
        id: SegmentId,
    ) -> Result<SegmentWriter<'a>, LogError> {
        let dir = id.dir(partition_dir);
        store
            .disk
            .create_dir_all(&dir)
            .map_err(|e| LogError::io(&dir, e))?;
        let path = |kind| segment_path(&dir, id.base_offset, kind);
        let mut writer = SegmentWriter {
            store,
            partition_dir,
            index_interval_bytes,
            state: SegmentState {
                generation: id.generation,
                ..SegmentState::empty(id.base_offset)
            },
            log: Output::create(store, path(FileKind::Log), 0)?,
            ticks: Output::create(store, path(FileKind::TickIndex), 0)?,
        };
        let header = TickIndexHeader {
            cluster_id: store.cluster_id(),
            partition,
            base_offset: id.base_offset,
        };
        writer.ticks.push(&header.encode())?;
        Ok(writer)
    }

    /// Adds the batch of `entry`, as it was or with what is left of it.
    pub(crate) fn push(&mut self, entry: &TickEntry, batch: &Bytes) -> Result<(), LogError> {
        let state = &mut self.state;
        let header = BatchHeader::parse(batch).expect("it was read or written as a batch");
        let size = batch.len() as u64;
        // A batch that was compressed anew may have grown.
        if state.log_bytes + size > i32::MAX as u64 {
            let what = io::Error::other("the compacted segment would be longer than 2 GiB");
            return Err(LogError::io(&self.log.path, what));
        }
        let position = u32::try_from(state.log_bytes).expect("less than 2 GiB");
        let entry = entry.moved(&header, position, state.max_timestamp);
        self.log.push(batch)?;
        self.ticks.push(&entry.encode())?;
        state.log_crc = crc32c_combine(state.log_crc, crc32c(batch), size);
        state.log_bytes += size;
        state.entries += 1;
        state.next_offset = entry.last_offset + 1;
        state.max_timestamp = entry.running_max_timestamp;
        state.last_tick = entry.tick;
        Ok(())
    }

    /// Bytes so far.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.state.log_bytes
    }

    /// Writes the rest and the indexes and makes all of it durable: data first, then the names.
    pub(crate) fn finish(&mut self) -> Result<SegmentState, LogError> {
        self.log.finish()?;
        self.ticks.finish()?;
        debug_assert_eq!(self.ticks.position, entry_position(self.state.entries));
        let (dir, interval) = (self.partition_dir, self.index_interval_bytes);
        for (path, file) in seal::build_indexes(self.store, dir, &self.state, interval)? {
            sync(&path, &*file)?;
        }
        self.state.indexed = true;
        let dir = self.state.id().dir(self.partition_dir);
        for dir in [&dir, self.partition_dir] {
            self.store
                .disk
                .sync_dir(dir)
                .map_err(|e| LogError::io(dir, e))?;
        }
        Ok(self.state)
    }

    pub(crate) fn id(&self) -> SegmentId {
        self.state.id()
    }
}
