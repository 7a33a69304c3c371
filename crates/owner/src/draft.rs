//! A record in the making: appends are applied as they are added.

use bytes::BytesMut;
use tidemark_metadata::MetadataRecord;
use tidemark_record_batch::{BatchBuilder, patch_position};
use tidemark_types::{JournalIndex, Tick, TopicPartitionId};

use crate::Owner;
use crate::apply::Observation;
use crate::command::Now;
use crate::record::{Append, Record};

/// The appends of one step. It is begun before the first check and costs nothing if none follows.
pub(crate) struct Draft {
    index: JournalIndex,
    tick: Tick,
    pub(crate) wall_ms: i64,
    /// Payload of the record so far.
    pub(crate) bytes: usize,
    appends: Vec<Append>,
    observations: Vec<Observation>,
}

impl Draft {
    /// Nothing was appended so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.appends.is_empty()
    }
}

impl Owner {
    pub(crate) fn begin(&self, now: &Now<'_>) -> Draft {
        Draft {
            index: self.last_index.next(),
            tick: Tick::after(self.last_tick.max(self.tick_floor), now.tick),
            wall_ms: now.wall_ms,
            bytes: Record::payload_bytes(std::iter::empty()),
            appends: Vec::new(),
            observations: Vec::new(),
        }
    }

    /// Gives `batch` its place at the end of the partition and applies it. Returns the base offset.
    /// The caller has decided: the partition exists and takes it.
    pub(crate) fn append(
        &mut self,
        draft: &mut Draft,
        id: TopicPartitionId,
        mut batch: BytesMut,
    ) -> i64 {
        let partition = self
            .partitions
            .get(&id)
            .unwrap_or_else(|| panic!("append decided for {id}, which does not exist"));
        let base_offset = partition.log_end_offset;
        patch_position(&mut batch, base_offset, partition.leader_epoch());
        let append = Append {
            partition: id,
            batch: batch.freeze(),
        };
        self.apply_append(draft.index, draft.wall_ms, &append, &mut draft.observations)
            .unwrap_or_else(|e| panic!("a decided append must apply: {e}"));
        draft.bytes += append.size_bytes();
        draft.appends.push(append);
        base_offset
    }

    /// Appends one key and value of an internal topic.
    pub(crate) fn append_record(
        &mut self,
        draft: &mut Draft,
        id: TopicPartitionId,
        key: &[u8],
        value: Option<&[u8]>,
    ) {
        let mut batch = BatchBuilder::new(draft.wall_ms);
        batch.push(Some(key), value);
        self.append(draft, id, BytesMut::from(&batch.build()[..]));
    }

    /// Appends records of `__cluster_metadata` as one batch. Returns its base offset.
    pub(crate) fn append_metadata(&mut self, draft: &mut Draft, records: &[MetadataRecord]) -> i64 {
        let mut batch = BatchBuilder::new(draft.wall_ms);
        for record in records {
            batch.push(Some(&record.key()), Some(&record.value()));
        }
        let batch = BytesMut::from(&batch.build()[..]);
        self.append(draft, TopicPartitionId::METADATA, batch)
    }

    /// Ends the step: the record for the journal, if anything was appended.
    pub(crate) fn seal(&mut self, mut draft: Draft) -> (Option<Record>, Vec<Observation>) {
        if draft.appends.is_empty() {
            return (None, Vec::new());
        }
        // Canonical order; stable, so that batches of one partition keep theirs.
        draft.appends.sort_by_key(|a| a.partition);
        self.finish_record(draft.index, draft.tick, &mut draft.observations);
        let record = Record {
            index: draft.index,
            tick: draft.tick,
            wall_ms: draft.wall_ms,
            appends: draft.appends,
        };
        (Some(record), draft.observations)
    }
}
