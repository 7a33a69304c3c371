//! What do the segments give, and what is missing?

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidemark_abort_index::AbortIndex;
use tidemark_broker::owner_options;
use tidemark_config::Settings;
use tidemark_histcheck::{
    BatchHeader, DirFiles, Files, FrameAt, FrameKind, Identity, PartitionId, Segment, SegmentBatch,
    SegmentFiles, TopicId as RawTopicId, appends, checkpoints, journal_frames,
    parse_transactional_id_key, partitions_on_disk, records, segment_batches, tick_ms,
};
use tidemark_owner::{Appended, Owner, Rebuild};
use tidemark_partition_log::{
    ControlMeta, TICK_ENTRY_BYTES, TICK_HEADER_BYTES, TickEntry, TickIndexHeader,
};
use tidemark_types::{JournalIndex, ProducerEpoch, ProducerId, Tick, TopicId, TopicPartitionId};

use super::Rebuilt;

/// A segment that is kept.
pub(super) struct KeptSegment {
    pub(super) names: SegmentFiles,
    pub(super) generation: u32,
    pub(super) whole: Segment,
    /// Bytes lie behind what is whole: a start cuts them off.
    pub(super) is_cut: bool,
    /// Its tick index does not have all of its batches: this takes its place.
    pub(super) new_ticks: Option<Vec<u8>>,
}

/// A partition that is kept.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) segments: Vec<KeptSegment>,
    pub(super) aborted: AbortIndex,
}

/// A marker that was seen.
#[derive(Clone, Copy)]
pub(super) struct Ended {
    pub(super) tick: u64,
    pub(super) epoch: i16,
    pub(super) commit: bool,
}

/// Everything that the segments gave.
pub(super) struct Found {
    pub(super) owner: Owner,
    pub(super) kept: BTreeMap<TopicPartitionId, Kept>,
    pub(super) highest_tick: u64,
    pub(super) highest_index: u64,
    pub(super) highest_epoch: u32,
    pub(super) next_generation: u64,
    pub(super) lost: Vec<String>,
    /// To be moved, relative to the data directory.
    pub(super) aside: Vec<String>,
    /// By producer id.
    pub(super) ended: BTreeMap<i64, Vec<Ended>>,
    /// Tick of the first batch of each open transaction.
    pub(super) opened: BTreeMap<(TopicPartitionId, i64), u64>,
    /// Tick of the last record of each transactional id.
    pub(super) stated: BTreeMap<String, u64>,
    batches: u64,
}

fn owner_id(id: PartitionId) -> TopicPartitionId {
    TopicPartitionId::new(TopicId(id.topic.0), id.partition)
}

impl Found {
    pub(super) fn summary(&self) -> Rebuilt {
        let groups = self.owner.groups();
        let offsets = groups
            .partitions()
            .map(|p| groups.records_of_partition(p).len());
        Rebuilt {
            topics: self.owner.metadata().topics().len(),
            partitions: self.owner.partition_ids().len(),
            segments: self.kept.values().map(|kept| kept.segments.len()).sum(),
            batches: self.batches,
            offsets: offsets.sum(),
            transactional_ids: self.owner.coordinator().len(),
            lost: self.lost.clone(),
            aside: self.aside.clone(),
            aside_dir: None,
        }
    }

    pub(super) fn name(&self, id: TopicPartitionId) -> String {
        match self.owner.metadata().topic_by_id(id.topic) {
            Some(topic) => format!("{}-{}", topic.name, id.partition),
            None => id.to_string(),
        }
    }
}

/// The scan while it goes on.
struct Scan<'a> {
    files: &'a DirFiles,
    directory_id: [u8; 16],
    rebuild: Rebuild,
    kept: BTreeMap<TopicPartitionId, Kept>,
    ended: BTreeMap<i64, Vec<Ended>>,
    opened: BTreeMap<(TopicPartitionId, i64), u64>,
    stated: BTreeMap<String, u64>,
    lost: Vec<String>,
    aside: Vec<String>,
    highest_tick: u64,
    highest_index: u64,
    highest_producer_id: i64,
    batches: u64,
}

/// Reads every segment. Errors: why nothing can be rebuilt.
pub(super) fn scan(
    files: &DirFiles,
    identity: &Identity,
    settings: &Settings,
) -> Result<Found, String> {
    let mut scan = Scan {
        files,
        directory_id: identity.directory_id,
        rebuild: Rebuild::new(owner_options(settings)),
        kept: BTreeMap::new(),
        ended: BTreeMap::new(),
        opened: BTreeMap::new(),
        stated: BTreeMap::new(),
        lost: Vec::new(),
        aside: Vec::new(),
        highest_tick: 0,
        highest_index: 0,
        highest_producer_id: -1,
        batches: 0,
    };
    let on_disk = partitions_on_disk(files).map_err(|e| format!("partitions: {e}"))?;
    // `__cluster_metadata` first: it says what the others are.
    for metadata in [true, false] {
        for (id, segments) in &on_disk {
            if (*id == PartitionId::METADATA) == metadata {
                scan.partition(*id, segments)?;
            }
        }
        if metadata && scan.rebuild.owner().metadata().cluster_id().is_none() {
            return Err(
                "the segments hold no __cluster_metadata, so it is not known which topics there \
                 are: nothing was written behind the journal yet, or its files are lost; restore \
                 the data directory from a copy"
                    .to_owned(),
            );
        }
    }
    scan.finish()
}

impl Scan<'_> {
    fn partition(&mut self, id: PartitionId, segments: &[(i64, u32)]) -> Result<(), String> {
        let owned = owner_id(id);
        let dir = format!("partitions/{id}");
        if self.rebuild.owner().partition(owned).is_none() {
            if !segments.is_empty() {
                self.lost.push(format!(
                    "{dir}: no topic has this partition: it was deleted, or the record of its \
                     creation is lost"
                ));
            }
            self.aside.push(dir);
            return Ok(());
        }
        self.kept.insert(owned, Kept::default());
        let mut end = i64::MIN;
        let mut kept = BTreeSet::new();
        for (base_offset, generation) in segments {
            // What another segment holds already: of an earlier, or an unfinished, compaction.
            if *base_offset < end {
                continue;
            }
            let names = SegmentFiles::new(id, *base_offset, *generation);
            if let Some(next) = self.segment(id, &names, *generation, end)? {
                end = next;
                // Below the log start it tells of producers only.
                match next > self.rebuild.log_start(owned) {
                    true => drop(kept.insert((*base_offset, *generation))),
                    false => self.kept.entry(owned).or_default().segments.clear(),
                }
            }
        }
        for segment in segments.iter().filter(|segment| !kept.contains(segment)) {
            let names = SegmentFiles::new(id, segment.0, segment.1);
            for extension in ["log", "tickindex", "index", "timeindex", "txnindex"] {
                let file = names.file(extension);
                if self.files.len(&file).is_ok_and(|len| len.is_some()) {
                    self.aside.push(file);
                }
            }
        }
        Ok(())
    }

    /// Takes a segment as far as it is whole; the offset after it, `None` when nothing of it is.
    fn segment(
        &mut self,
        id: PartitionId,
        names: &SegmentFiles,
        generation: u32,
        end: i64,
    ) -> Result<Option<i64>, String> {
        let owned = owner_id(id);
        let files = self.files;
        let directory_id = Some(self.directory_id);
        let mut entries: Vec<TickEntry> = Vec::new();
        let mut missing = 0_u64;
        let mut failed = None;
        let mut each = |batch: SegmentBatch<'_>| {
            if failed.is_none() {
                missing += u64::from(batch.entry.is_none());
                let last = entries.last().copied();
                match self.batch(owned, &batch, last) {
                    Ok(entry) => entries.push(entry),
                    Err(what) => failed = Some(what),
                }
            }
        };
        let (whole, findings) =
            segment_batches(files, names, Some(id), directory_id, None, &mut each);
        let log = names.log();
        if let Some(what) = failed {
            return Err(format!("{log}: {what}"));
        }
        let len = files.len(&log).map_err(|e| e.to_string())?.unwrap_or(0);
        let is_cut = len > whole.log_bytes;
        if is_cut {
            let why = findings.iter().find(|f| f.file == log);
            self.lost.push(format!(
                "{log}: {} bytes from position {} on, which is offset {}{}",
                len - whole.log_bytes,
                whole.log_bytes,
                whole.next_offset,
                why.map_or(String::new(), |why| format!(": {}", why.what))
            ));
        }
        let tick_index = names.tick_index();
        let ticks = files.len(&tick_index).map_err(|e| e.to_string())?;
        let named = ticks.map_or(0, |len| {
            len.saturating_sub(TICK_HEADER_BYTES as u64) / TICK_ENTRY_BYTES as u64
        });
        if named > whole.entries && !is_cut {
            self.lost.push(format!(
                "{log}: it ends at position {len} after {} batches, and {tick_index} names {named}: \
                 those from offset {} on",
                whole.entries, whole.next_offset
            ));
        }
        if whole.entries == 0 {
            return Ok(None);
        }
        if end != i64::MIN && whole.base_offset > end && generation == 0 {
            let log_start = self.rebuild.log_start(owned);
            if whole.base_offset > log_start {
                self.lost.push(format!(
                    "partitions/{id}: offsets {end}..{} are in no segment",
                    whole.base_offset
                ));
            }
        }
        let new_ticks = (missing > 0).then(|| {
            self.lost.push(format!(
                "{}: the ticks of {missing} batches, which get that of the batch before them",
                names.tick_index()
            ));
            self.tick_index(owned, whole.base_offset, &entries)
        });
        let kept = self.kept.entry(owned).or_default();
        let next = whole.next_offset;
        kept.segments.push(KeptSegment {
            names: names.clone(),
            generation,
            whole: Segment {
                last_tick: entries.last().map_or(0, |entry| entry.tick.0),
                ..whole
            },
            is_cut,
            new_ticks,
        });
        Ok(Some(next))
    }

    fn batch(
        &mut self,
        id: TopicPartitionId,
        batch: &SegmentBatch<'_>,
        last: Option<TickEntry>,
    ) -> Result<TickEntry, String> {
        let header = &batch.parsed.header;
        let (tick, index) = match (&batch.entry, last) {
            (Some(entry), _) => (entry.tick, entry.journal_index),
            (None, Some(last)) => (last.tick.0, last.index.0),
            (None, None) => (0, 0),
        };
        let wall_ms = match tick {
            0 => header.max_timestamp,
            tick => tick_ms(tick),
        };
        let bytes = Bytes::copy_from_slice(batch.bytes);
        let index = JournalIndex(index);
        let appended = (self.rebuild)
            .batch(id, index, wall_ms, &bytes)
            .map_err(|e| e.to_string())?
            .ok_or("its topic went away within it")?;
        self.batches += 1;
        self.highest_tick = self.highest_tick.max(tick);
        self.highest_index = self.highest_index.max(index.0);
        self.highest_producer_id = self.highest_producer_id.max(header.producer_id);
        self.note(id, tick, header, batch, &appended);
        let position = u32::try_from(batch.position).map_err(|e| e.to_string())?;
        let running = last.map_or(i64::MIN, |last| last.running_max_timestamp);
        Ok(TickEntry {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            tick: Tick(tick),
            position,
            size_bytes: header.size_bytes,
            base_timestamp: header.base_timestamp,
            max_timestamp: header.max_timestamp,
            running_max_timestamp: match header.record_count {
                0 => running,
                _ => running.max(header.max_timestamp),
            },
            producer_id: ProducerId(header.producer_id),
            producer_epoch: ProducerEpoch(header.producer_epoch),
            attributes: header.attributes,
            last_stable_offset: appended.last_stable_offset,
            index,
            control: appended.control.map(|control| ControlMeta {
                control_type: control.kind,
                txn_first_offset: control.first_offset,
            }),
        })
    }

    /// What tells later how a transaction ended, and what was aborted.
    fn note(
        &mut self,
        id: TopicPartitionId,
        tick: u64,
        header: &BatchHeader,
        batch: &SegmentBatch<'_>,
        appended: &Appended,
    ) {
        if let Some(aborted) = appended.aborted {
            self.kept.entry(id).or_default().aborted.push(aborted);
        }
        let open = (id, header.producer_id);
        if let Some(marker) = batch.parsed.marker {
            self.opened.remove(&open);
            let ended = self.ended.entry(header.producer_id).or_default();
            ended.push(Ended {
                tick,
                epoch: header.producer_epoch,
                commit: marker.commit,
            });
        } else if header.is_transactional() {
            self.opened.entry(open).or_insert(tick);
        }
        if id.topic.0 == RawTopicId::TRANSACTION_STATE.0 && !header.is_control() {
            for record in records(batch.bytes).unwrap_or_default() {
                let key = record.key.unwrap_or_default();
                if let Ok(transactional_id) = parse_transactional_id_key(&key) {
                    self.stated.insert(transactional_id, tick);
                }
            }
        }
    }

    fn tick_index(&self, id: TopicPartitionId, base_offset: i64, entries: &[TickEntry]) -> Vec<u8> {
        let header = TickIndexHeader {
            cluster_id: self.directory_id,
            partition: id,
            base_offset,
        };
        let mut out = header.encode().to_vec();
        for entry in entries {
            out.extend_from_slice(&entry.encode());
        }
        out
    }

    fn finish(mut self) -> Result<Found, String> {
        let (mut next_generation, mut journal_epoch) = (1, 0);
        // What is left of checkpoints and journal bounds what may be given out again.
        let (readable, _) = checkpoints(self.files);
        for checkpoint in &readable {
            self.highest_tick = self.highest_tick.max(checkpoint.highest_tick);
            self.highest_index = self.highest_index.max(checkpoint.replay_from);
        }
        for entry in self.files.list("checkpoints").unwrap_or_default() {
            let generation = entry.name.rsplit('-').next().and_then(|n| n.parse().ok());
            next_generation = next_generation.max(generation.unwrap_or(0) + 1);
        }
        self.lost_in_journal(&mut journal_epoch);
        for part in ["checkpoints", "journal"] {
            if !self.files.list(part).unwrap_or_default().is_empty() {
                self.aside.push(part.to_owned());
            }
        }
        self.lost.push(
            "of producers whose last batches are in no segment, the windows by which a repeat is \
             known: a repeat of what they sent would be appended again"
                .to_owned(),
        );
        let owner = self
            .rebuild
            .finish(
                JournalIndex(self.highest_index),
                Tick(self.highest_tick),
                self.highest_producer_id + 1,
            )
            .map_err(|e| e.to_string())?;
        let highest_epoch = journal_epoch.max(owner.metadata().journal_epoch() as u32);
        Ok(Found {
            owner,
            kept: self.kept,
            highest_tick: self.highest_tick,
            highest_index: self.highest_index,
            highest_epoch,
            next_generation,
            lost: self.lost,
            aside: self.aside,
            ended: self.ended,
            opened: self.opened,
            stated: self.stated,
            batches: self.batches,
        })
    }

    /// Names the batches that are in the journal, as far as it can be read, and in no segment.
    fn lost_in_journal(&mut self, journal_epoch: &mut u32) {
        let mut lost: BTreeMap<PartitionId, (i64, i64)> = BTreeMap::new();
        let (mut tick, mut index, mut producer) = (0, 0, -1);
        let owner = self.rebuild.owner();
        let mut each = |at: &FrameAt<'_>| {
            tick = tick.max(at.frame.tick);
            index = index.max(at.frame.index);
            if at.frame.kind != FrameKind::Record {
                return;
            }
            for append in appends(at.payload).unwrap_or_default() {
                let Ok(header) = BatchHeader::parse(append.batch) else {
                    continue;
                };
                producer = producer.max(header.producer_id);
                let partition = owner.partition(owner_id(append.partition));
                let end = partition.map_or(0, |partition| partition.log_end_offset);
                if header.base_offset >= end {
                    let range = lost.entry(append.partition);
                    let range = range.or_insert((header.base_offset, header.base_offset));
                    range.1 = range.1.max(header.last_offset());
                }
            }
        };
        let (journal, findings) = journal_frames(self.files, 0, &mut each);
        *journal_epoch = journal.highest_epoch;
        let headers = journal.slots.iter().filter_map(|slot| slot.header.as_ref());
        for header in headers {
            tick = tick.max(header.highest_tick);
            index = index.max(header.first_index.saturating_sub(1));
        }
        self.highest_tick = self.highest_tick.max(tick);
        self.highest_index = self.highest_index.max(index);
        self.highest_producer_id = self.highest_producer_id.max(producer);
        for (id, (first, last)) in lost {
            let name = match owner.metadata().topic_by_id(TopicId(id.topic.0)) {
                Some(topic) => format!("{}-{}", topic.name, id.partition),
                None => id.to_string(),
            };
            self.lost.push(format!(
                "{name}: offsets {first}..={last} are in the journal only"
            ));
        }
        if journal.records == 0 || !findings.is_empty() {
            self.lost.push(
                "whatever was acknowledged last and was in the unreadable part of the journal only"
                    .to_owned(),
            );
        }
    }
}
