//! A frame of the journal: a header of 88 bytes, little-endian, and a payload.

use crate::bytes::{le_u32, le_u64};

pub(crate) const HEADER_BYTES: u64 = 88;
pub(crate) const MAGIC: &[u8] = b"TMJF";
pub(crate) const FORMAT: u8 = 1;

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    Record,
    /// Says up to where everything was synced.
    Mark,
    /// The journal was shut down in order.
    CleanEnd,
    Unknown(u8),
}

impl FrameKind {
    pub fn word(self) -> &'static str {
        match self {
            FrameKind::Record => "record",
            FrameKind::Mark => "mark",
            FrameKind::CleanEnd => "clean end",
            FrameKind::Unknown(_) => "unknown",
        }
    }
}

/// The fields of a frame's header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub crc: u32,
    pub format: u8,
    pub kind: FrameKind,
    /// CRC of the frame before, of the slot's header for the first.
    pub prev_crc: u32,
    pub journal_id: [u8; 16],
    pub index: u64,
    pub use_number: u64,
    pub lsn: u64,
    pub tick: u64,
    pub wall_ms: i64,
    /// Everything below this LSN was synced when the frame was written.
    pub durable_mark: u64,
    pub epoch: u32,
    pub payload_bytes: u32,
}

impl Frame {
    /// The fields, when the magic is there; whether they are true is the CRC's to say.
    pub fn parse(bytes: &[u8]) -> Option<Frame> {
        if bytes.len() < HEADER_BYTES as usize || &bytes[4..8] != MAGIC {
            return None;
        }
        Some(Frame {
            crc: le_u32(bytes, 0)?,
            format: bytes[8],
            kind: match bytes[9] {
                1 => FrameKind::Record,
                2 => FrameKind::Mark,
                3 => FrameKind::CleanEnd,
                other => FrameKind::Unknown(other),
            },
            prev_crc: le_u32(bytes, 12)?,
            journal_id: bytes[16..32].try_into().ok()?,
            index: le_u64(bytes, 32)?,
            use_number: le_u64(bytes, 40)?,
            lsn: le_u64(bytes, 48)?,
            tick: le_u64(bytes, 56)?,
            wall_ms: le_u64(bytes, 64)? as i64,
            durable_mark: le_u64(bytes, 72)?,
            epoch: le_u32(bytes, 80)?,
            payload_bytes: le_u32(bytes, 84)?,
        })
    }

    /// Header and payload, without padding.
    pub(crate) fn size_bytes(&self) -> u64 {
        HEADER_BYTES + u64::from(self.payload_bytes)
    }

    /// Whether `bytes`, header and payload, carry their CRC.
    pub(crate) fn is_intact(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.size_bytes() && crc32c::crc32c(&bytes[4..]) == self.crc
    }
}
