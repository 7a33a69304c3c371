//! A segment: its `.log` and `.tickindex`, batch by batch, each checked against the other.

use std::io;

use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, ParsedBatch, parse_batch};
use crate::files::{Files, Window};
use crate::finding::{Bad, Findings, mend};
use crate::ids::PartitionId;
use crate::segments_block::Segment;
use crate::tick_index::{ENTRY_BYTES, HEADER_BYTES, TickEntry, TickHeader, TickKind};

pub(crate) const DIR: &str = "partitions";

/// Names of a segment's files, relative to the data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentFiles {
    stem: String,
    base_offset: i64,
    generation: u32,
}

impl SegmentFiles {
    pub fn new(partition: PartitionId, base_offset: i64, generation: u32) -> SegmentFiles {
        let below = match generation {
            0 => String::new(),
            _ => format!("compacted-{generation:010}/"),
        };
        SegmentFiles {
            stem: format!("{DIR}/{partition}/{below}{base_offset:020}"),
            base_offset,
            generation,
        }
    }

    /// Of a `.log` file by its path.
    pub fn of_log(path: &str) -> Option<SegmentFiles> {
        let stem = path.strip_suffix(".log")?.to_owned();
        let dir = path.rsplit('/').nth(1).unwrap_or_default();
        let generation = parse_generation_dir(dir).unwrap_or(0);
        let name = path.rsplit('/').next().unwrap_or_default();
        let (base_offset, _) = parse_segment_file(name)?;
        Some(SegmentFiles {
            stem,
            base_offset,
            generation,
        })
    }

    pub fn file(&self, extension: &str) -> String {
        format!("{}.{extension}", self.stem)
    }

    pub fn log(&self) -> String {
        self.file("log")
    }

    pub fn tick_index(&self) -> String {
        self.file("tickindex")
    }
}

/// The base offset and the extension of a file's name, `None` when it is none of a segment's.
pub fn parse_segment_file(name: &str) -> Option<(i64, &str)> {
    let (digits, extension) = name.split_once('.')?;
    let known = ["log", "tickindex", "index", "timeindex", "txnindex"];
    let canonical = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    if !canonical || !known.contains(&extension) {
        return None;
    }
    Some((digits.parse().ok()?, extension))
}

/// The run of compaction whose files a directory below a partition's holds.
fn parse_generation_dir(name: &str) -> Option<u32> {
    let generation: u32 = name.strip_prefix("compacted-")?.parse().ok()?;
    (generation > 0 && format!("compacted-{generation:010}") == name).then_some(generation)
}

/// A partition that has a directory, and the base offset and generation of each segment in it.
pub type OnDisk = (PartitionId, Vec<(i64, u32)>);

/// The partitions that have a directory, and their segments by base offset.
pub fn partitions_on_disk(files: &dyn Files) -> io::Result<Vec<OnDisk>> {
    let mut found = Vec::new();
    for entry in files.list(DIR)? {
        let Some(partition) = PartitionId::from_dir_name(&entry.name).filter(|_| entry.is_dir)
        else {
            continue;
        };
        let mut segments = Vec::new();
        let dir = format!("{DIR}/{}", entry.name);
        for file in files.list(&dir)? {
            match parse_segment_file(&file.name) {
                Some((base_offset, "log")) => segments.push((base_offset, 0)),
                Some(_) => {}
                None => {
                    let Some(generation) = parse_generation_dir(&file.name) else {
                        continue;
                    };
                    let below = files.list(&format!("{dir}/{}", file.name))?;
                    let logs = below
                        .iter()
                        .filter_map(|file| parse_segment_file(&file.name))
                        .filter(|(_, extension)| *extension == "log");
                    segments.extend(logs.map(|(base_offset, _)| (base_offset, generation)));
                }
            }
        }
        segments.sort_unstable();
        found.push((partition, segments));
    }
    Ok(found)
}

/// A batch of a segment.
pub struct SegmentBatch<'a> {
    pub parsed: ParsedBatch,
    pub bytes: &'a [u8],
    pub position: u64,
    /// `None` when the tick index does not have it.
    pub entry: Option<TickEntry>,
}

/// Reads a segment: up to what `listed` says is synced, or without it as far as it is whole.
/// Returns how far that is.
pub(crate) fn read(
    files: &dyn Files,
    names: &SegmentFiles,
    partition: Option<PartitionId>,
    directory_id: Option<[u8; 16]>,
    listed: Option<&Segment>,
    each: &mut dyn FnMut(SegmentBatch<'_>, &mut Findings),
    findings: &mut Findings,
) -> Segment {
    let (base_offset, generation) = (names.base_offset, names.generation);
    let (log, tick) = (names.log(), names.tick_index());
    let end = length(files, &log, listed.map(|s| s.log_bytes), findings);
    let tick_bytes = listed.map(|s| HEADER_BYTES + s.entries * ENTRY_BYTES);
    let tick_end = length(files, &tick, tick_bytes, findings);
    let mut reader = Reader {
        tick: &tick,
        log_window: Window::new(files, &log, end),
        tick_window: Window::new(files, &tick, tick_end),
        tick_end,
        has_ticks: false,
        whole: Segment {
            base_offset,
            generation,
            next_offset: base_offset,
            log_bytes: 0,
            entries: 0,
            max_timestamp: i64::MIN,
            last_tick: 0,
            log_crc: 0,
            indexed: listed.is_some_and(|s| s.indexed),
        },
    };
    reader.has_ticks = reader.check_header(partition, directory_id, findings);
    if let Err(bad) = reader.batches(end, listed.is_some(), each, findings) {
        findings.bad(bad, &log, mend::SEGMENT);
    }
    let whole = reader.whole;
    if let Some(listed) = listed {
        let listed_crc = Segment {
            indexed: whole.indexed,
            ..listed.clone()
        };
        if whole.log_bytes == listed.log_bytes && whole != listed_crc {
            let what = format!("the checkpoint lists {listed:?}, the file holds {whole:?}");
            findings.damage(&log, what, mend::SEGMENT);
        }
    }
    whole
}

/// How far a file may be read: `listed`, or what there is of it.
fn length(files: &dyn Files, path: &str, listed: Option<u64>, findings: &mut Findings) -> u64 {
    match files.len(path) {
        Err(e) => {
            findings.io(path, &e);
            0
        }
        Ok(None) => {
            let what = match listed {
                Some(listed) => format!("the file is missing, {listed} bytes of it were synced"),
                None => "the file is missing".to_owned(),
            };
            findings.damage(path, what, mend::SEGMENT);
            0
        }
        Ok(Some(len)) => match listed {
            Some(listed) if len < listed => {
                let what = format!("the file has {len} bytes, {listed} were synced");
                findings.bad(Bad::new(len, what), path, mend::SEGMENT);
                len
            }
            Some(listed) => listed,
            None => len,
        },
    }
}

struct Reader<'a> {
    tick: &'a str,
    log_window: Window<'a>,
    tick_window: Window<'a>,
    tick_end: u64,
    has_ticks: bool,
    whole: Segment,
}

fn unreadable(position: u64) -> impl FnOnce(io::Error) -> Bad {
    move |e| Bad::new(position, format!("it cannot be read: {e}"))
}

impl Reader<'_> {
    fn check_header(
        &mut self,
        partition: Option<PartitionId>,
        directory_id: Option<[u8; 16]>,
        findings: &mut Findings,
    ) -> bool {
        if self.tick_end == 0 {
            return false;
        }
        let base_offset = self.whole.base_offset;
        let checked = self
            .tick_window
            .bytes(0, HEADER_BYTES)
            .map_err(unreadable(0))
            .and_then(TickHeader::parse)
            .and_then(|header| {
                let ours = partition.is_none_or(|id| id == header.partition)
                    && header.base_offset == base_offset
                    && directory_id.is_none_or(|id| id == header.directory_id);
                match ours {
                    true => Ok(()),
                    false => Err(Bad::new(
                        16,
                        format!("its header is another file's: {header:?}"),
                    )),
                }
            });
        match checked {
            Ok(()) => true,
            Err(bad) => {
                findings.bad(bad, self.tick, mend::SEGMENT);
                false
            }
        }
    }

    fn batches(
        &mut self,
        end: u64,
        listed: bool,
        each: &mut dyn FnMut(SegmentBatch<'_>, &mut Findings),
        findings: &mut Findings,
    ) -> Result<(), Bad> {
        while self.whole.log_bytes < end {
            let position = self.whole.log_bytes;
            let at = |bad: Bad| Bad {
                position: position + bad.position,
                ..bad
            };
            let head = self.log_window.bytes(position, BATCH_HEADER_BYTES as u64);
            let size = BatchHeader::parse(head.map_err(unreadable(position))?)
                .map_err(at)?
                .size_bytes;
            let left = (end - position).min(u64::from(size));
            let bytes = self.log_window.bytes(position, left);
            let bytes = bytes.map_err(unreadable(position))?.to_vec();
            let parsed = parse_batch(&bytes).map_err(at)?;
            let header = &parsed.header;
            if header.base_offset < self.whole.next_offset {
                let what = format!(
                    "a batch at offset {} follows offset {}",
                    header.base_offset,
                    self.whole.next_offset - 1
                );
                return Err(Bad::new(position, what));
            }
            // A batch that compaction has emptied keeps its maximum and has no record with it.
            let running_max = match header.record_count {
                0 => self.whole.max_timestamp,
                _ => self.whole.max_timestamp.max(header.max_timestamp),
            };
            let entry = self.entry(listed, findings);
            if let Some(entry) = &entry
                && let Err(what) = matches(entry, &parsed, position, running_max)
            {
                let at = HEADER_BYTES + self.whole.entries * ENTRY_BYTES;
                findings.bad(Bad::new(at, what), self.tick, mend::SEGMENT);
            }
            self.whole.log_crc = crc32c::crc32c_append(self.whole.log_crc, &bytes);
            self.whole.log_bytes += u64::from(header.size_bytes);
            self.whole.entries += 1;
            self.whole.next_offset = header.next_offset();
            self.whole.max_timestamp = running_max;
            if let Some(entry) = &entry {
                self.whole.last_tick = entry.tick;
            }
            let batch = SegmentBatch {
                parsed,
                bytes: &bytes,
                position,
                entry,
            };
            each(batch, findings);
        }
        Ok(())
    }

    /// The tick index's entry for the next batch.
    fn entry(&mut self, listed: bool, findings: &mut Findings) -> Option<TickEntry> {
        if !self.has_ticks {
            return None;
        }
        let position = HEADER_BYTES + self.whole.entries * ENTRY_BYTES;
        if position + ENTRY_BYTES > self.tick_end {
            // Without a list this is the end of an interrupted write.
            if listed {
                let what = "it ends, and the .log file has more batches";
                findings.bad(Bad::new(position, what), self.tick, mend::SEGMENT);
            }
            self.has_ticks = false;
            return None;
        }
        let bytes = self.tick_window.bytes(position, ENTRY_BYTES);
        let entry = bytes
            .map_err(unreadable(position))
            .and_then(|bytes| TickEntry::parse(bytes, position));
        match entry {
            Ok(entry) => Some(entry),
            Err(bad) => {
                findings.bad(bad, self.tick, mend::SEGMENT);
                None
            }
        }
    }
}

/// Whether an entry says what its batch says.
fn matches(
    entry: &TickEntry,
    parsed: &ParsedBatch,
    position: u64,
    running_max: i64,
) -> Result<(), String> {
    let header = &parsed.header;
    let kind = match parsed.marker {
        None => TickKind::Data,
        Some(marker) if marker.commit => TickKind::Commit,
        Some(_) => TickKind::Abort,
    };
    let expected = TickEntry {
        base_offset: header.base_offset,
        last_offset_delta: header.last_offset_delta,
        position: position as u32,
        size_bytes: header.size_bytes,
        base_timestamp: header.base_timestamp,
        max_timestamp: header.max_timestamp,
        running_max_timestamp: running_max,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        attributes: header.attributes,
        kind,
        ..entry.clone()
    };
    match *entry == expected {
        true => Ok(()),
        false => Err(format!("it says {entry:?} of a batch that is {expected:?}")),
    }
}
