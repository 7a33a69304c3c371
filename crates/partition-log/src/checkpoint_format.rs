//! The bytes of a checkpoint file.
//!
//! ```text
//! header                          block                            end marker
//!  0 magic "TIDECKPT"              0 "B"                            0 "E"
//!  8 format version     u16        1 kind              u16          1 blocks           u64
//! 10 reserved (0)       u16        3 format version    u16          9 CRC-32C of all   u32
//! 12 generation         u64        5 topic id         [16]            bytes before this field
//! 20 replay from        u64       21 partition         i32
//! 28 highest tick       u64       25 stamp             u64
//! 36 cluster id        [16]       33 payload length    u32
//! 52 CRC-32C of 0..52   u32       37 payload
//!                                    CRC-32C of all of the block before this field
//! ```

use bytes::Bytes;
use tidemark_types::{JournalIndex, Tick, TopicId, TopicPartitionId};

use crate::bytes_io::{Fields, crc32c, crc32c_of};

const MAGIC: &[u8; 8] = b"TIDECKPT";
const FORMAT_VERSION: u16 = 1;
const HEADER_BYTES: usize = 56;
const BLOCK_MARK: u8 = b'B';
const BLOCK_HEADER_BYTES: usize = 37;
const END_MARK: u8 = b'E';
/// Bytes of the end marker before its CRC.
const END_BYTES: usize = 9;

/// What the blocks of a checkpoint have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointHeader {
    /// Rises by one with each checkpoint of a data directory.
    pub generation: u64,
    /// First journal record that a start must read: the lowest of what the blocks' stamps and the
    /// partitions' first needed indexes ask for.
    pub replay_from: JournalIndex,
    /// No tick at or below this one is ever given again.
    pub highest_tick: Tick,
    pub cluster_id: [u8; 16],
}

/// What a block holds. A number that was once given is never given again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockKind(pub u16);

impl BlockKind {
    /// A [`crate::SegmentManifest`].
    pub const SEGMENTS: BlockKind = BlockKind(1);
}

/// One partition's state, or one part of it, as of one journal position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    pub kind: BlockKind,
    /// Version of the payload's own format.
    pub format_version: u16,
    pub partition: TopicPartitionId,
    /// The last journal record whose effects the payload has: replay skips this partition's part
    /// of records at or below it.
    pub stamp: JournalIndex,
    pub payload: Bytes,
}

pub(crate) fn encode_header(header: &CheckpointHeader) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&header.generation.to_be_bytes());
    out.extend_from_slice(&header.replay_from.0.to_be_bytes());
    out.extend_from_slice(&header.highest_tick.0.to_be_bytes());
    out.extend_from_slice(&header.cluster_id);
    out.extend_from_slice(&crc32c(&out).to_be_bytes());
    out
}

/// The bytes around a block's payload: what goes before it, and its CRC.
pub(crate) fn encode_block(block: &Block) -> ([u8; BLOCK_HEADER_BYTES], [u8; 4]) {
    let mut out = Vec::with_capacity(BLOCK_HEADER_BYTES);
    out.push(BLOCK_MARK);
    out.extend_from_slice(&block.kind.0.to_be_bytes());
    out.extend_from_slice(&block.format_version.to_be_bytes());
    out.extend_from_slice(&block.partition.topic.0);
    out.extend_from_slice(&block.partition.partition.to_be_bytes());
    out.extend_from_slice(&block.stamp.0.to_be_bytes());
    let len = u32::try_from(block.payload.len()).expect("a block is shorter than 4 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    let crc = crc32c_of([&out[..], &block.payload[..]].into_iter());
    (
        out.try_into().expect("37 bytes were written"),
        crc.to_be_bytes(),
    )
}

/// The end marker without its CRC, which is over everything before it and these bytes.
pub(crate) fn encode_end(blocks: u64) -> [u8; END_BYTES] {
    let mut out = [END_MARK; END_BYTES];
    out[1..].copy_from_slice(&blocks.to_be_bytes());
    out
}

/// Why bytes are not a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Not what was written; the position where that shows.
    Damaged(usize, &'static str),
    /// Whole, and of a version that this one cannot read.
    Newer(u16),
}

/// Reads a whole file. The payloads are slices of `bytes`.
pub(crate) fn decode(bytes: &Bytes) -> Result<(CheckpointHeader, Vec<Block>), Fault> {
    let header = decode_header(bytes)?;
    let mut at = HEADER_BYTES;
    let mut blocks = Vec::new();
    loop {
        match bytes.get(at) {
            Some(&BLOCK_MARK) => {
                let (block, end) = decode_block(bytes, at)?;
                blocks.push(block);
                at = end;
            }
            Some(&END_MARK) => break,
            Some(_) => return Err(Fault::Damaged(at, "neither a block nor the end")),
            None => return Err(Fault::Damaged(at, "the end marker is missing")),
        }
    }
    let mut end = Fields(&bytes[at + 1..]);
    let (count, crc) = match (end.u64(), end.u32()) {
        (Some(count), Some(crc)) => (count, crc),
        _ => return Err(Fault::Damaged(at, "the end marker is cut short")),
    };
    if !end.0.is_empty() {
        return Err(Fault::Damaged(at, "something follows the end marker"));
    }
    if count != blocks.len() as u64 || crc != crc32c(&bytes[..at + END_BYTES]) {
        return Err(Fault::Damaged(
            at,
            "the end marker does not match the blocks",
        ));
    }
    Ok((header, blocks))
}

/// Reads the header alone.
pub(crate) fn decode_header(bytes: &[u8]) -> Result<CheckpointHeader, Fault> {
    let damaged = |what| Fault::Damaged(0, what);
    let header = bytes
        .get(..HEADER_BYTES)
        .ok_or(damaged("the file is shorter than a header"))?;
    let (body, crc) = header.split_at(HEADER_BYTES - 4);
    if &body[..8] != MAGIC {
        return Err(damaged("no checkpoint header"));
    }
    if crc32c(body).to_be_bytes() != crc {
        return Err(damaged("the header's checksum does not match"));
    }
    let mut f = Fields(&body[8..]);
    let parsed = (|| {
        let version = f.u16()?;
        f.u16()?;
        Some((
            version,
            CheckpointHeader {
                generation: f.u64()?,
                replay_from: JournalIndex(f.u64()?),
                highest_tick: Tick(f.u64()?),
                cluster_id: f.array()?,
            },
        ))
    })();
    match parsed {
        Some((FORMAT_VERSION, header)) => Ok(header),
        Some((version, _)) => Err(Fault::Newer(version)),
        None => Err(damaged("the file is shorter than a header")),
    }
}

/// The block at `at`, and the position after it.
fn decode_block(bytes: &Bytes, at: usize) -> Result<(Block, usize), Fault> {
    let cut_short = Fault::Damaged(at, "the block is cut short");
    let mut f = Fields(&bytes[at + 1..]);
    let parsed = (|| {
        Some((
            BlockKind(f.u16()?),
            f.u16()?,
            TopicPartitionId::new(TopicId(f.array()?), f.i32()?),
            JournalIndex(f.u64()?),
            f.u32()? as usize,
        ))
    })();
    let Some((kind, format_version, partition, stamp, len)) = parsed else {
        return Err(cut_short);
    };
    let start = at + BLOCK_HEADER_BYTES;
    let (Some(_), Some(crc)) = (f.bytes(len), f.u32()) else {
        return Err(cut_short);
    };
    let end = start + len;
    if crc != crc32c(&bytes[at..end]) {
        return Err(Fault::Damaged(at, "the block's checksum does not match"));
    }
    let block = Block {
        kind,
        format_version,
        partition,
        stamp,
        payload: bytes.slice(start..end),
    };
    Ok((block, end + 4))
}
