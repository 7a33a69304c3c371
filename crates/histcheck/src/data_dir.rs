//! The whole of a stopped data directory: what a start would make of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::batch::parse_batch;
use crate::checkpoint::{self, Checkpoint, SEGMENTS_BLOCK, STATE_BLOCK};
use crate::compare;
use crate::files::Files;
use crate::finding::{Bad, Finding, Findings, Severity, mend};
use crate::frame::{FrameKind, HEADER_BYTES};
use crate::groups::Groups;
use crate::identity::Identity;
use crate::ids::PartitionId;
use crate::internal;
use crate::journal::{self, FrameAt, Journal};
use crate::kafka_indexes;
use crate::metadata::Metadata;
use crate::partition::{Batch, Partition, Place};
use crate::record;
use crate::records::{self, Record};
use crate::segment::{self, SegmentBatch, SegmentFiles};
use crate::segments_block::SegmentsBlock;
use crate::state_block::StateBlock;
use crate::transactions::TransactionalIds;

/// Progress is told each time so many bytes more were read.
const PROGRESS_BYTES: u64 = 64 << 20;

/// How far a long reading has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub bytes_done: u64,
    pub bytes_total: u64,
}

/// Numbers of what was read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    pub segments: u64,
    pub segment_bytes: u64,
    pub batches: u64,
    pub journal_records: u64,
    pub checkpoints: u64,
    pub blocks: u64,
}

/// What a data directory holds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct DataDir {
    pub identity: Option<Identity>,
    /// The generation that a start reads.
    pub generation: Option<u64>,
    pub journal: Journal,
    pub metadata: Metadata,
    /// Every partition of every topic, and that of `__cluster_metadata`.
    pub partitions: BTreeMap<PartitionId, Partition>,
    pub groups: Groups,
    pub transactional_ids: TransactionalIds,
}

/// What a reading came to.
#[derive(Clone, Default, Debug)]
pub struct Inspection {
    /// As far as it could be read: with damage this is not what a start would make.
    pub data: DataDir,
    pub findings: Vec<Finding>,
    pub totals: Totals,
}

impl Inspection {
    /// Findings that are more than notes.
    pub fn faults(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|f| f.severity != Severity::Note)
    }
}

impl DataDir {
    /// A partition by the name of its topic.
    pub fn partition(&self, topic: &str, partition: i32) -> Option<&Partition> {
        let topic = self.metadata.topics.get(topic)?.id;
        self.partitions.get(&PartitionId { topic, partition })
    }
}

/// The bytes of a batch.
pub fn batch_bytes(files: &dyn Files, batch: &Batch) -> io::Result<Vec<u8>> {
    let Place { file, position } = &batch.place;
    files.bytes(file, *position, batch.header.size_bytes as usize)
}

/// The records of a batch. Under LogAppendTime their timestamp is the batch's.
pub fn batch_records(files: &dyn Files, batch: &Batch) -> Result<Vec<Record>, String> {
    let bytes = batch_bytes(files, batch).map_err(|e| e.to_string())?;
    records::records(&bytes).map_err(|bad| format!("{}: {}", batch.place.file, bad.what))
}

/// Reads a directory that is in order.
///
/// Errors: everything found that is not.
pub fn read(files: &dyn Files) -> Result<DataDir, Vec<Finding>> {
    let inspection = inspect(files, &mut |_| {});
    let faults: Vec<Finding> = inspection.faults().cloned().collect();
    match faults.is_empty() {
        true => Ok(inspection.data),
        false => Err(faults),
    }
}

/// Reads every byte that a start depends on and checks each against the others.
pub fn inspect(files: &dyn Files, progress: &mut dyn FnMut(Progress)) -> Inspection {
    let mut reading = Reading {
        files,
        progress,
        done: Progress {
            bytes_done: 0,
            bytes_total: 0,
        },
        findings: Findings::default(),
        totals: Totals::default(),
        data: DataDir::default(),
        states: BTreeMap::new(),
    };
    reading.run();
    Inspection {
        data: reading.data,
        findings: reading.findings.all,
        totals: reading.totals,
    }
}

struct Reading<'a> {
    files: &'a dyn Files,
    progress: &'a mut dyn FnMut(Progress),
    done: Progress,
    findings: Findings,
    totals: Totals,
    data: DataDir,
    /// What the checkpoint says of each partition, with the file, until the log has come to its end.
    states: BTreeMap<PartitionId, Expected>,
}

/// A partition as the checkpoint has it.
pub(crate) struct Expected {
    pub(crate) file: Arc<str>,
    pub(crate) position: u64,
    pub(crate) stamp: u64,
    pub(crate) segments: SegmentsBlock,
    pub(crate) state: StateBlock,
}

impl Reading<'_> {
    fn run(&mut self) {
        let identity = self.identity();
        let id = identity.as_ref().map(|identity| identity.directory_id);
        self.data.identity = identity;
        let checkpoints = checkpoint::read_all(self.files, id, &mut self.findings);
        self.totals.checkpoints = checkpoints.len() as u64;
        let generations = checkpoint::generations(self.files, &mut Findings::default());
        if checkpoints.is_empty() && !generations.is_empty() {
            let what = "no checkpoint can be read, a start is refused";
            self.findings.damage(
                checkpoint::DIR,
                what,
                "tidemark check --rebuild makes a new one from the segments",
            );
        }
        if let Some(newest) = checkpoints.first() {
            self.data.generation = Some(newest.generation);
            self.checkpoint(newest, id);
        }
        self.journal(&checkpoints, id);
        self.finish();
        if let Some(newest) = checkpoints.first() {
            compare::snapshots(newest, &self.data, &mut self.findings);
        }
    }

    fn identity(&mut self) -> Option<Identity> {
        const FILE: &str = "identity";
        match self.files.whole(FILE) {
            Err(e) => self.findings.io(FILE, &e),
            Ok(None) => self
                .findings
                .damage(FILE, "the file is missing", mend::COPY),
            Ok(Some(bytes)) => match Identity::parse(&bytes) {
                Ok(identity) => return Some(identity),
                Err(bad) => self.findings.bad(bad, FILE, mend::COPY),
            },
        }
        None
    }

    /// Puts the segments that a checkpoint lists in place.
    fn checkpoint(&mut self, newest: &Checkpoint, directory_id: Option<[u8; 16]>) {
        let file: Arc<str> = Arc::from(newest.file.as_str());
        self.totals.blocks = newest.blocks.len() as u64;
        let mut parsed: Vec<(PartitionId, Expected)> = Vec::new();
        for block in newest.blocks.iter().filter(|b| b.kind == SEGMENTS_BLOCK) {
            let Some(state) = newest.block(STATE_BLOCK, block.partition) else {
                let what = format!("{} has a list of segments and no state", block.partition);
                let bad = Bad::new(block.position, what);
                self.findings.bad(bad, &newest.file, mend::CHECKPOINT);
                continue;
            };
            let both = SegmentsBlock::parse(block)
                .and_then(|segments| Ok((segments, StateBlock::parse(state)?)));
            match both {
                Ok((segments, state)) => {
                    let expected = Expected {
                        file: file.clone(),
                        position: block.position,
                        stamp: block.stamp,
                        segments,
                        state,
                    };
                    parsed.push((block.partition, expected));
                }
                Err(bad) => self.findings.bad(bad, &newest.file, mend::CHECKPOINT),
            }
        }
        self.done.bytes_total = parsed
            .iter()
            .flat_map(|(_, expected)| &expected.segments.segments)
            .map(|segment| segment.log_bytes)
            .sum();
        for (id, expected) in parsed {
            self.segments(id, &expected, directory_id);
            let Expected {
                segments, state, ..
            } = &expected;
            if segments.end_offset != state.log_end_offset {
                let what = format!(
                    "{id}: the list of segments ends at {}, the state at {}",
                    segments.end_offset, state.log_end_offset
                );
                let bad = Bad::new(expected.position, what);
                self.findings.bad(bad, &newest.file, mend::REPORT);
            }
            self.states.insert(id, expected);
        }
    }

    fn segments(&mut self, id: PartitionId, expected: &Expected, directory_id: Option<[u8; 16]>) {
        let listed = &expected.segments;
        let begin = match listed.segments.first() {
            Some(first) => first.base_offset,
            None => listed.synced_end_offset,
        };
        let mut partition = Partition::starting_at(begin);
        // What compaction has taken from the front does not move the log start.
        partition.log_start_offset = listed.log_start_offset;
        if listed.segments.iter().any(|s| s.generation > 0) {
            partition.compacted = true;
            partition.complete = false;
        }
        for segment in &listed.segments {
            let names = SegmentFiles::new(id, segment.base_offset, segment.generation);
            let log: Arc<str> = Arc::from(names.log());
            let (from, aborted) = (partition.batches.len(), partition.aborted.len());
            let mut done = self.done;
            let progress = &mut *self.progress;
            let mut each = |batch: SegmentBatch<'_>, findings: &mut Findings| {
                let before = done.bytes_done;
                done.bytes_done += u64::from(batch.parsed.header.size_bytes);
                if done.bytes_done / PROGRESS_BYTES != before / PROGRESS_BYTES {
                    progress(done);
                }
                push_segment_batch(&mut partition, batch, &log, &names, findings);
            };
            segment::read(
                self.files,
                &names,
                Some(id),
                directory_id,
                Some(segment),
                &mut each,
                &mut self.findings,
            );
            self.done = done;
            self.totals.segments += 1;
            self.totals.segment_bytes += segment.log_bytes;
            if segment.indexed {
                let known = partition.complete.then_some(&partition.aborted[aborted..]);
                let batches = &partition.batches[from..];
                let findings = &mut self.findings;
                kafka_indexes::check(self.files, &names, segment, batches, known, findings);
            }
        }
        self.data.partitions.insert(id, partition);
    }

    /// The journal's records, behind what the segments hold.
    fn journal(&mut self, checkpoints: &[Checkpoint], directory_id: Option<[u8; 16]>) {
        // The older checkpoint must be of use too, should the newest turn out damaged.
        let from = (checkpoints.iter().take(2).map(|c| c.replay_from))
            .min()
            .unwrap_or(1);
        let replay_from = checkpoints.first().map_or(1, |c| c.replay_from);
        let files = self.files;
        let mut findings = std::mem::take(&mut self.findings);
        let mut visit = |at: &FrameAt<'_>, findings: &mut Findings| {
            if at.frame.kind == FrameKind::Record {
                self.record(at, replay_from, findings);
            }
        };
        let journal = journal::read(files, directory_id, from, &mut visit, &mut findings);
        self.findings = findings;
        self.totals.journal_records = journal.records;
        let highest = checkpoints.first().map_or(0, |c| c.highest_tick);
        if journal.records > 0 && journal.next_index > replay_from && journal.highest_tick < highest
        {
            let what = format!(
                "the checkpoint has seen tick {highest}, the journal ends at {}",
                journal.highest_tick
            );
            self.findings.damage("journal", what, mend::JOURNAL);
        }
        self.data.journal = journal;
    }

    fn record(&mut self, at: &FrameAt<'_>, replay_from: u64, findings: &mut Findings) {
        let payload_at = at.position + HEADER_BYTES;
        let bad = |bad: Bad, within: usize| Bad {
            position: payload_at + within as u64 + bad.position,
            what: format!("record {}: {}", at.frame.index, bad.what),
            ..bad
        };
        let appends = match record::appends(at.payload) {
            Ok(appends) => appends,
            Err(error) => return findings.bad(bad(error, 0), at.file, mend::JOURNAL),
        };
        let file: Arc<str> = Arc::from(at.file);
        for append in appends {
            let parsed = match parse_batch(append.batch) {
                Ok(parsed) if parsed.header.size_bytes as usize == append.batch.len() => parsed,
                Ok(_) => {
                    let error = Bad::new(8, "bytes follow the batch");
                    findings.bad(bad(error, append.position), at.file, mend::JOURNAL);
                    continue;
                }
                Err(error) => {
                    findings.bad(bad(error, append.position), at.file, mend::JOURNAL);
                    continue;
                }
            };
            if at.frame.index < replay_from {
                continue;
            }
            let partition = (self.data.partitions)
                .entry(append.partition)
                .or_insert_with(|| Partition::starting_at(0));
            let base_offset = parsed.header.base_offset;
            if base_offset < partition.log_end_offset {
                // In a segment already: the same batch, or what compaction has left of it.
                let crc = parsed.header.crc;
                let held = held_at(&partition.batches, base_offset);
                if !partition.compacted && held.is_some_and(|held| held.header.crc != crc) {
                    let error = Bad::new(
                        0,
                        format!(
                            "the batch of {} at offset {base_offset} is another one than in its segment",
                            append.partition
                        ),
                    );
                    findings.bad(bad(error, append.position), at.file, mend::REPORT);
                }
                continue;
            }
            if base_offset > partition.log_end_offset {
                let error = Bad::new(
                    0,
                    format!(
                        "a batch of {} begins at offset {base_offset}, the log before it ends at {}",
                        append.partition, partition.log_end_offset
                    ),
                );
                findings.bad(bad(error, append.position), at.file, mend::REPORT);
            }
            let place = Place {
                file: file.clone(),
                position: payload_at + append.position as u64,
            };
            partition.push(Batch {
                header: parsed.header,
                marker: parsed.marker,
                tick: at.frame.tick,
                journal_index: at.frame.index,
                place,
            });
        }
    }

    /// What the internal topics say, and which partitions there are.
    fn finish(&mut self) {
        internal::fold(self.files, &mut self.data, &mut self.findings);
        let was_cut = self.data.metadata.was_cut;
        for partition in self.data.partitions.values_mut() {
            partition.forgotten_unsaid = was_cut;
        }
        self.compare_with_checkpoint();
        let metadata = &self.data.metadata;
        for (id, partition) in &mut self.data.partitions {
            let log_start = metadata.log_starts.get(id).copied().unwrap_or(0);
            let expired = metadata.expired.get(id).map_or(&[][..], Vec::as_slice);
            partition.settle(log_start, expired);
        }
        self.data.partitions.retain(|id, _| {
            let topic = metadata.topic_by_id(id.topic);
            *id == PartitionId::METADATA || topic.is_some_and(|t| id.partition < t.partitions)
        });
        for topic in metadata.topics.values() {
            for partition in 0..topic.partitions {
                let id = PartitionId {
                    topic: topic.id,
                    partition,
                };
                (self.data.partitions)
                    .entry(id)
                    .or_insert_with(|| Partition::starting_at(0));
            }
        }
        let batches = self
            .data
            .partitions
            .values()
            .map(|p| p.batches.len() as u64);
        self.totals.batches = batches.sum();
    }

    /// Each partition of the checkpoint against its batches up to there.
    fn compare_with_checkpoint(&mut self) {
        for (id, expected) in std::mem::take(&mut self.states) {
            let Some(partition) = self.data.partitions.get(&id) else {
                continue;
            };
            let expired = self.data.metadata.expired.get(&id);
            let expired = expired.map_or(&[][..], Vec::as_slice);
            let end = expected.state.log_end_offset;
            let then = partition.as_of(end, expected.stamp, expired);
            compare::partition(&expected, id, &then, partition, &mut self.findings);
        }
    }
}

fn held_at(batches: &[Batch], base_offset: i64) -> Option<&Batch> {
    let at = batches.binary_search_by_key(&base_offset, |batch| batch.header.base_offset);
    at.ok().map(|at| &batches[at])
}

fn push_segment_batch(
    partition: &mut Partition,
    batch: SegmentBatch<'_>,
    log: &Arc<str>,
    names: &SegmentFiles,
    findings: &mut Findings,
) {
    let SegmentBatch {
        parsed,
        position,
        entry,
        ..
    } = batch;
    let base_offset = parsed.header.base_offset;
    let (tick_before, aborted_before) = (
        partition.batches.last().map_or(0, |b| b.tick),
        partition.aborted.len(),
    );
    let pushed = partition.push(Batch {
        header: parsed.header,
        marker: parsed.marker,
        tick: entry.as_ref().map_or(0, |entry| entry.tick),
        journal_index: entry.as_ref().map_or(0, |entry| entry.journal_index),
        place: Place {
            file: log.clone(),
            position,
        },
    });
    let Some(entry) = entry.filter(|_| pushed) else {
        return;
    };
    let mut bad = |what: String| {
        let at = Bad::new(
            position,
            format!("the entry of offset {base_offset}: {what}"),
        );
        findings.bad(at, &names.tick_index(), mend::SEGMENT);
    };
    if entry.tick < tick_before {
        bad(format!("tick {} follows tick {tick_before}", entry.tick));
    }
    if !partition.complete {
        return;
    }
    let (said, stable) = (
        entry.last_stable_offset,
        partition.unbounded_stable_offset(),
    );
    // The log start may have passed an open transaction.
    if said != stable && !(stable < said && said <= partition.log_start_offset) {
        bad(format!(
            "last stable offset {said}, the batches up to here give {stable}"
        ));
    }
    if let [txn] = &partition.aborted[aborted_before..]
        && entry.txn_first_offset != txn.first_offset
    {
        bad(format!(
            "its transaction began at {}, the batches say {}",
            entry.txn_first_offset, txn.first_offset
        ));
    }
}
