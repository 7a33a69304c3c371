//! A checkpoint file: header, blocks, end marker.

use std::sync::Arc;

use crate::bytes::Fields;
use crate::files::Files;
use crate::finding::{Bad, Findings, mend};
use crate::ids::{PartitionId, TopicId};

pub(crate) const DIR: &str = "checkpoints";
const PREFIX: &str = "checkpoint-";
const MAGIC: &[u8] = b"TIDECKPT";
const FORMAT: u16 = 1;
const HEADER_BYTES: usize = 56;

/// Kinds of blocks.
pub const SEGMENTS_BLOCK: u16 = 1;
pub const STATE_BLOCK: u16 = 2;

/// One block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// In the file.
    pub position: u64,
    pub kind: u16,
    pub format_version: u16,
    pub partition: PartitionId,
    /// The last journal record whose effects it has.
    pub stamp: u64,
    pub payload: Arc<[u8]>,
}

impl Block {
    /// Position of the payload in the file.
    pub fn payload_position(&self) -> u64 {
        self.position + 37
    }
}

/// A whole checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// Relative to the data directory.
    pub file: String,
    pub generation: u64,
    /// First journal record that a start must read.
    pub replay_from: u64,
    pub highest_tick: u64,
    pub directory_id: [u8; 16],
    pub blocks: Vec<Block>,
}

impl Checkpoint {
    /// Reads a file.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Checkpoint, Bad> {
        let head = bytes.get(..HEADER_BYTES);
        let head = head.ok_or_else(|| Bad::new(0, "it is shorter than a checkpoint's header"))?;
        if &head[..8] != MAGIC {
            return Err(Bad::new(0, "it has no checkpoint header"));
        }
        let mut f = Fields::new(&head[8..]);
        let cut = || Bad::new(0, "it is shorter than a checkpoint's header");
        let (format, _) = (f.u16().ok_or_else(cut)?, f.u16());
        let parsed = (|| Some((f.u64()?, f.u64()?, f.u64()?, f.array()?, f.u32()?)))();
        let (generation, replay_from, highest_tick, directory_id, crc) = parsed.ok_or_else(cut)?;
        let found = crc32c::crc32c(&head[..HEADER_BYTES - 4]);
        if found != crc {
            let what = format!("the header carries the CRC {crc:08x}, its bytes have {found:08x}");
            return Err(Bad::new(0, what));
        }
        if format != FORMAT {
            return Err(Bad::newer(8, format!("a checkpoint of format {format}")));
        }
        let mut checkpoint = Checkpoint {
            file: file.to_owned(),
            generation,
            replay_from,
            highest_tick,
            directory_id,
            blocks: Vec::new(),
        };
        let mut at = HEADER_BYTES;
        while bytes.get(at) == Some(&b'B') {
            let (block, end) = parse_block(bytes, at)?;
            checkpoint.blocks.push(block);
            at = end;
        }
        check_end(bytes, at, checkpoint.blocks.len() as u64)?;
        Ok(checkpoint)
    }

    /// The block of a kind, for a partition.
    pub fn block(&self, kind: u16, partition: PartitionId) -> Option<&Block> {
        self.blocks
            .iter()
            .find(|block| block.kind == kind && block.partition == partition)
    }
}

fn parse_block(bytes: &[u8], at: usize) -> Result<(Block, usize), Bad> {
    let cut = || Bad::new(at as u64, "the block is cut short");
    let mut f = Fields::new(&bytes[at..]);
    f.u8();
    let head = (|| Some((f.u16()?, f.u16()?, f.array()?, f.i32()?, f.u64()?)))();
    let (kind, format_version, topic, partition, stamp) = head.ok_or_else(cut)?;
    let payload = f.long_bytes().ok_or_else(cut)?;
    let covered = &bytes[at..at + f.position()];
    let crc = f.u32().ok_or_else(cut)?;
    let found = crc32c::crc32c(covered);
    if crc != found {
        let what = format!("the block carries the CRC {crc:08x}, its bytes have {found:08x}");
        return Err(Bad::new(at as u64, what));
    }
    let partition = PartitionId {
        topic: TopicId(topic),
        partition,
    };
    if ![SEGMENTS_BLOCK, STATE_BLOCK].contains(&kind) {
        return Err(Bad::newer(at as u64 + 1, format!("a block of kind {kind}")));
    }
    let block = Block {
        position: at as u64,
        kind,
        format_version,
        partition,
        stamp,
        payload: payload.into(),
    };
    Ok((block, at + f.position()))
}

fn check_end(bytes: &[u8], at: usize, blocks: u64) -> Result<(), Bad> {
    let bad = |what: &str| Bad::new(at as u64, what);
    let mut f = Fields::new(bytes.get(at..).unwrap_or_default());
    match f.u8() {
        None => return Err(bad("the end marker is missing")),
        Some(b'E') => {}
        Some(other) => {
            return Err(bad(&format!(
                "byte {other:#04x} is neither a block nor the end"
            )));
        }
    }
    let (Some(count), Some(crc)) = (f.u64(), f.u32()) else {
        return Err(bad("the end marker is cut short"));
    };
    if f.left() > 0 {
        return Err(bad("something follows the end marker"));
    }
    let found = crc32c::crc32c(&bytes[..at + 9]);
    if count != blocks || crc != found {
        return Err(bad(&format!(
            "the end marker says {count} blocks and CRC {crc:08x}, there are {blocks} and \
             {found:08x}"
        )));
    }
    Ok(())
}

/// The generations of a directory, newest first.
pub(crate) fn generations(files: &dyn Files, findings: &mut Findings) -> Vec<(u64, String)> {
    let entries = files.list(DIR).unwrap_or_else(|e| {
        findings.io(DIR, &e);
        Vec::new()
    });
    let mut found: Vec<(u64, String)> = entries
        .iter()
        .filter_map(|entry| {
            let generation: u64 = entry.name.strip_prefix(PREFIX)?.parse().ok()?;
            let canonical = format!("{PREFIX}{generation:020}") == entry.name;
            canonical.then(|| (generation, format!("{DIR}/{}", entry.name)))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found
}

/// Every checkpoint that can be read, newest first.
pub(crate) fn read_all(
    files: &dyn Files,
    directory_id: Option<[u8; 16]>,
    findings: &mut Findings,
) -> Vec<Checkpoint> {
    let mut found = Vec::new();
    for (generation, file) in generations(files, findings) {
        let bytes = match files.whole(&file) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(e) => {
                findings.io(&file, &e);
                continue;
            }
        };
        let checkpoint = Checkpoint::parse(&file, &bytes).and_then(|checkpoint| {
            if directory_id.is_some_and(|id| id != checkpoint.directory_id) {
                return Err(Bad::new(36, "it belongs to another data directory"));
            }
            if checkpoint.generation != generation {
                let what = format!("it says that it is generation {}", checkpoint.generation);
                return Err(Bad::new(12, what));
            }
            Ok(checkpoint)
        });
        match checkpoint {
            Ok(checkpoint) => found.push(checkpoint),
            Err(bad) => findings.bad(bad, &file, mend::CHECKPOINT),
        }
    }
    found
}
