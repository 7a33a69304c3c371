//! How one record is laid out, and when one is intact.
//!
//! ```text
//!  0 u32 CRC-32C of the bytes 4.. of this header and of the payload
//!  4 u32 magic
//!  8 u8  format version   9 u8 kind   10 u16 flags
//! 12 u32 CRC of the frame before it (of the slot header, for the first of a slot)
//! 16 16 bytes journal id
//! 32 u64 logical index (of the last record, in a frame that is none)
//! 40 u64 use number of the slot
//! 48 u64 LSN of this frame
//! 56 u64 tick   64 i64 wall clock in ms
//! 72 u64 durable mark: everything below this LSN was synced when the frame was written
//! 80 u32 epoch  84 u32 payload length
//! 88 payload, then zeroes up to a multiple of 8
//! ```
//! Little-endian. A frame carries the CRC of its predecessor inside its own: one that is left of an
//! earlier use of the slot, or of this use after a cut, does not continue the chain. It can still be
//! told to be intact on its own, which is how damage is told from a torn tail.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest, checksum_combine};
use tidemark_types::{JournalIndex, Tick};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const HEADER_BYTES: usize = 88;
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"TMJF");
pub(crate) const FORMAT: u8 = 1;

/// A set of batch appends.
pub(crate) const KIND_RECORD: u8 = 1;
/// Written once after the last group when nothing follows: carries its durable mark.
pub(crate) const KIND_MARK: u8 = 2;
/// The journal was shut down in order; nothing was in flight.
pub(crate) const KIND_CLEAN_END: u8 = 3;

/// Records may be told of before they are synced, or those of an earlier run were and what depends
/// on them is not settled yet: see [`crate::Recovery::may_have_lost`].
pub(crate) const FLAG_WEAK: u16 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    pub format: u8,
    pub kind: u8,
    /// [`FLAG_WEAK`].
    pub flags: u16,
    pub prev_crc: u32,
    pub journal_id: [u8; 16],
    pub index: JournalIndex,
    pub use_number: u64,
    pub lsn: u64,
    pub tick: Tick,
    pub wall_ms: i64,
    pub durable_mark: u64,
    pub epoch: u32,
    pub payload_len: u32,
}

/// Bytes of a frame with its padding.
pub(crate) fn frame_bytes(payload_len: u64) -> u64 {
    (HEADER_BYTES as u64 + payload_len).next_multiple_of(8)
}

/// Bytes of a frame alone in a group: whole pages.
pub(crate) fn group_bytes(payload_len: u64) -> u64 {
    frame_bytes(payload_len).next_multiple_of(PAGE)
}

fn digest() -> Digest {
    Digest::new(CrcAlgorithm::Crc32Iscsi)
}

/// CRC-32C of some bytes.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut digest = digest();
    digest.update(bytes);
    digest.finalize() as u32
}

/// CRC-32C of some bytes that lie in pieces.
pub(crate) fn crc_of_pieces(pieces: &[Bytes]) -> u32 {
    let mut digest = digest();
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}

impl FrameHeader {
    /// The header's bytes and the CRC in them, which the next frame continues. `payload_crc`: what
    /// [`crc_of_pieces`] has found already, if it was asked.
    pub(crate) fn encode(
        &self,
        payload: &[Bytes],
        payload_crc: Option<u32>,
    ) -> ([u8; HEADER_BYTES], u32) {
        let mut out = [0; HEADER_BYTES];
        out[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        out[8] = self.format;
        out[9] = self.kind;
        out[10..12].copy_from_slice(&self.flags.to_le_bytes());
        out[12..16].copy_from_slice(&self.prev_crc.to_le_bytes());
        out[16..32].copy_from_slice(&self.journal_id);
        out[32..40].copy_from_slice(&self.index.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.use_number.to_le_bytes());
        out[48..56].copy_from_slice(&self.lsn.to_le_bytes());
        out[56..64].copy_from_slice(&self.tick.0.to_le_bytes());
        out[64..72].copy_from_slice(&self.wall_ms.to_le_bytes());
        out[72..80].copy_from_slice(&self.durable_mark.to_le_bytes());
        out[80..84].copy_from_slice(&self.epoch.to_le_bytes());
        out[84..88].copy_from_slice(&self.payload_len.to_le_bytes());
        let crc = match payload_crc {
            Some(payload_crc) => checksum_combine(
                CrcAlgorithm::Crc32Iscsi,
                u64::from(crc(&out[4..])),
                u64::from(payload_crc),
                u64::from(self.payload_len),
            ) as u32,
            None => {
                let mut digest = digest();
                digest.update(&out[4..]);
                payload.iter().for_each(|piece| digest.update(piece));
                digest.finalize() as u32
            }
        };
        out[..4].copy_from_slice(&crc.to_le_bytes());
        (out, crc)
    }

    /// The fields, if the magic is there; whether they are true is [`is_intact`]'s to say.
    pub(crate) fn parse(bytes: &[u8]) -> Option<FrameHeader> {
        let bytes: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        if u32_at(bytes, 4) != MAGIC {
            return None;
        }
        Some(FrameHeader {
            format: bytes[8],
            kind: bytes[9],
            flags: u16::from_le_bytes(array_at(bytes, 10)),
            prev_crc: u32_at(bytes, 12),
            journal_id: array_at(bytes, 16),
            index: JournalIndex(u64_at(bytes, 32)),
            use_number: u64_at(bytes, 40),
            lsn: u64_at(bytes, 48),
            tick: Tick(u64_at(bytes, 56)),
            wall_ms: i64::from_le_bytes(array_at(bytes, 64)),
            durable_mark: u64_at(bytes, 72),
            epoch: u32_at(bytes, 80),
            payload_len: u32_at(bytes, 84),
        })
    }
}

/// Whether `bytes`, a header and its payload, are as they were written.
pub(crate) fn is_intact(bytes: &[u8]) -> bool {
    stored_crc(bytes) == crc(&bytes[4..])
}

/// The CRC that a frame carries.
pub(crate) fn stored_crc(bytes: &[u8]) -> u32 {
    u32_at(bytes, 0)
}

pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("a slice of N bytes is an array of N bytes")
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            format: FORMAT,
            kind: KIND_RECORD,
            flags: FLAG_WEAK,
            prev_crc: 0x0102_0304,
            journal_id: [9; 16],
            index: JournalIndex(5),
            use_number: 6,
            lsn: 7 << 12,
            tick: Tick(8),
            wall_ms: -9,
            durable_mark: 10,
            epoch: 11,
            payload_len: 5,
        }
    }

    #[test]
    fn a_frame_reads_back_and_every_flipped_bit_shows() {
        let header = header();
        let pieces = [Bytes::from_static(b"he"), Bytes::from_static(b"llo")];
        let (bytes, crc) = header.encode(&pieces, None);
        let combined = header.encode(&pieces, Some(crc_of_pieces(&pieces)));
        assert_eq!(combined, (bytes, crc), "however the CRC was come by");
        let mut frame = bytes.to_vec();
        frame.extend_from_slice(b"hello");
        assert_eq!(FrameHeader::parse(&frame), Some(header));
        assert_eq!(stored_crc(&frame), crc);
        assert!(is_intact(&frame));
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_intact(&frame), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn the_layout_does_not_move() {
        let (bytes, _) = header().encode(&[Bytes::from_static(b"hello")], None);
        let mut want = b"TMJF\x01\x01\x01\0\x04\x03\x02\x01".to_vec();
        want.extend_from_slice(&[9; 16]);
        for field in [5, 6, 7 << 12, 8, -9i64, 10] {
            want.extend_from_slice(&field.to_le_bytes());
        }
        want.extend_from_slice(&[11, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(bytes[4..], want);
        assert_eq!(crc(b"123456789"), 0xe306_9283, "CRC-32C's check value");
        assert_eq!(frame_bytes(5), 96);
        assert_eq!(group_bytes(5), 4096);
        assert_eq!(group_bytes(4096 - 88), 4096);
        assert_eq!(group_bytes(4096 - 87), 8192);
    }

    #[test]
    fn short_or_foreign_bytes_are_no_frame() {
        assert_eq!(FrameHeader::parse(&[0; 87]), None);
        assert_eq!(FrameHeader::parse(&[0; 200]), None);
    }
}
