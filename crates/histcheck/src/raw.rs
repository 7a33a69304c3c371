//! Piece by piece, for those who print what is there: frames, batches, checkpoints, each as far as it
//! can be read, with what was found wrong.

use crate::checkpoint::{self, Checkpoint, STATE_BLOCK};
use crate::files::Files;
use crate::finding::{Finding, Findings};
use crate::frame::FrameKind;
use crate::ids::PartitionId;
use crate::internal;
use crate::journal::{self, FrameAt, Journal};
use crate::metadata::{Metadata, MetadataRecord};
use crate::record;
use crate::records;
use crate::segment::{self, SegmentBatch, SegmentFiles};
use crate::segments_block::Segment;
use crate::slot::SlotHeader;
use crate::state_block::StateBlock;

/// The frames of the journal from record `from` on, or from the first that is still there.
pub fn journal_frames(
    files: &dyn Files,
    from: u64,
    visit: &mut dyn FnMut(&FrameAt<'_>),
) -> (Journal, Vec<Finding>) {
    let mut findings = Findings::default();
    let mut each = |at: &FrameAt<'_>, _: &mut Findings| visit(at);
    let journal = journal::read(files, None, from, &mut each, &mut findings);
    // That the journal no longer begins at record 1 is as it should be.
    findings.all.retain(|finding| finding.position.is_some());
    (journal, findings.all)
}

/// The frames of one slot file.
pub fn slot_frames(
    files: &dyn Files,
    file: &str,
    visit: &mut dyn FnMut(&FrameAt<'_>),
) -> (Option<SlotHeader>, Vec<Finding>) {
    let mut findings = Findings::default();
    let mut each = |at: &FrameAt<'_>, _: &mut Findings| visit(at);
    let header = journal::read_slot(files, file, &mut each, &mut findings);
    (header, findings.all)
}

/// The batches of a segment: up to what `listed` says is synced, or without it as far as it is whole.
/// Returns how far that is. `partition` and `directory_id` are compared with the tick index's header.
pub fn segment_batches(
    files: &dyn Files,
    names: &SegmentFiles,
    partition: Option<PartitionId>,
    directory_id: Option<[u8; 16]>,
    listed: Option<&Segment>,
    each: &mut dyn FnMut(SegmentBatch<'_>),
) -> (Segment, Vec<Finding>) {
    let mut findings = Findings::default();
    let mut each = |batch: SegmentBatch<'_>, _: &mut Findings| each(batch);
    let whole = segment::read(
        files,
        names,
        partition,
        directory_id,
        listed,
        &mut each,
        &mut findings,
    );
    (whole, findings.all)
}

/// The checkpoints that can be read, newest first.
pub fn checkpoints(files: &dyn Files) -> (Vec<Checkpoint>, Vec<Finding>) {
    let mut findings = Findings::default();
    let found = checkpoint::read_all(files, None, &mut findings);
    (found, findings.all)
}

/// The topics, from the newest checkpoint and the journal: their names, without reading any segment.
/// What cannot be read is left out.
pub fn topics(files: &dyn Files) -> Metadata {
    let mut metadata = Metadata::default();
    let mut ignored = Findings::default();
    let newest = checkpoint::read_all(files, None, &mut ignored)
        .into_iter()
        .next();
    let block = newest
        .as_ref()
        .and_then(|c| c.block(STATE_BLOCK, PartitionId::METADATA));
    let state = block.and_then(|block| StateBlock::parse(block).ok());
    let mut from_offset = 0;
    if let Some(state) = state {
        from_offset = state.log_end_offset;
        for record in state.records {
            if let Ok(record) = MetadataRecord::parse(&record.key, &record.value) {
                metadata.apply(0, record);
            }
        }
    }
    let from = newest.map_or(1, |c| c.replay_from);
    let mut each = |at: &FrameAt<'_>, _: &mut Findings| {
        if at.frame.kind != FrameKind::Record {
            return;
        }
        let appends = record::appends(at.payload).unwrap_or_default();
        for append in appends
            .iter()
            .filter(|a| a.partition == PartitionId::METADATA)
        {
            for record in records::records(append.batch).unwrap_or_default() {
                if record.offset >= from_offset
                    && let Ok(record) = internal::metadata_record(&record)
                {
                    metadata.apply(at.frame.index, record);
                }
            }
        }
    };
    journal::read(files, None, from, &mut each, &mut ignored);
    metadata
}
