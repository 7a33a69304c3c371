//! How a slot file is laid out.
//!
//! ```text
//! page 0   slot header, within one 512-byte sector: it is written whole or not at all
//! page 1.. groups of frames, each group from a fresh page; the last two pages are kept for a mark
//!          and a clean end
//! ```
//! The header is synced before the first frame of a use is written, so a frame without its header
//! is damage. Use number 0 says that the slot is full of zeroes, synced, named, and was never used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemark_disk::DiskFile;
use tidemark_types::{JournalIndex, Tick};

use crate::frame::{HEADER_BYTES, PAGE, array_at, crc, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"TIDESLOT";
const FORMAT: u32 = 1;
/// Bytes of the header with its CRC.
const BYTES: usize = 116;
/// Pages at the end that records leave free.
const TAIL_PAGES: u64 = 2;

/// Number of a slot within its directory; it is the file's name and says nothing of order.
pub(crate) type SlotId = u32;

pub(crate) fn file_name(id: SlotId) -> String {
    format!("{id:06}.slot")
}

pub(crate) fn parse_name(name: &str) -> Option<SlotId> {
    let id: SlotId = name.strip_suffix(".slot")?.parse().ok()?;
    (file_name(id) == name).then_some(id)
}

/// A slot file, open.
#[derive(Clone)]
pub(crate) struct SlotFile {
    pub id: SlotId,
    pub path: PathBuf,
    pub bytes: u64,
    pub file: Arc<dyn DiskFile>,
}

impl SlotFile {
    pub(crate) fn path_of(dir: &Path, id: SlotId) -> PathBuf {
        dir.join(file_name(id))
    }
}

/// End of the space for records in a slot of this size.
pub(crate) fn records_end(slot_bytes: u64) -> u64 {
    slot_bytes - TAIL_PAGES * PAGE
}

/// The largest payload that a slot of this size takes.
pub(crate) fn max_payload(slot_bytes: u64) -> u64 {
    records_end(slot_bytes) - PAGE - HEADER_BYTES as u64
}

/// One use of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotHeader {
    pub journal_id: [u8; 16],
    /// Rises with every use of any slot of the journal, for ever; 0 = prepared, never used.
    pub use_number: u64,
    /// The use before this one; 0 = none.
    pub prev_use: u64,
    pub slot_bytes: u64,
    /// LSN of position 0.
    pub first_lsn: u64,
    /// Index of the first record of this use.
    pub first_index: JournalIndex,
    /// Where the frames of the use before end. All of them were synced before this was written.
    pub prev_end: u64,
    /// Records below were released when this use began.
    pub released: JournalIndex,
    /// The highest tick before this use.
    pub highest_tick: Tick,
    /// CRC of the last frame of the use before.
    pub prev_crc: u32,
    /// The journal's epoch during this use.
    pub epoch: u32,
    /// [`crate::frame::FLAG_WEAK`], of the run that began this use.
    pub flags: u32,
}

/// What page 0 holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderPage {
    Header {
        header: SlotHeader,
        crc: u32,
    },
    /// An intact header in a later format.
    Unknown {
        format: u32,
    },
    /// Zeroes, half a preparation, or damage.
    Invalid,
}

impl SlotHeader {
    /// Page 0 and the CRC that the first frame continues.
    pub(crate) fn encode(&self) -> (Vec<u8>, u32) {
        let mut out = Vec::with_capacity(PAGE as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&(BYTES as u32).to_le_bytes());
        out.extend_from_slice(&self.journal_id);
        for field in [
            self.use_number,
            self.prev_use,
            self.slot_bytes,
            self.first_lsn,
            self.first_index.0,
            self.prev_end,
            self.released.0,
            self.highest_tick.0,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.prev_crc.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let crc = crc(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        debug_assert_eq!(out.len(), BYTES);
        out.resize(PAGE as usize, 0);
        (out, crc)
    }

    pub(crate) fn parse(page: &[u8]) -> HeaderPage {
        if page.len() < BYTES || &page[..8] != MAGIC {
            return HeaderPage::Invalid;
        }
        // The length is part of the format so that a later one can be told from damage.
        let len = u32_at(page, 12) as usize;
        if !(BYTES..=512).contains(&len) || page.len() < len {
            return HeaderPage::Invalid;
        }
        let stored = u32_at(page, len - 4);
        if stored != crc(&page[..len - 4]) {
            return HeaderPage::Invalid;
        }
        let format = u32_at(page, 8);
        if format != FORMAT || len != BYTES {
            return HeaderPage::Unknown { format };
        }
        let header = SlotHeader {
            journal_id: array_at(page, 16),
            use_number: u64_at(page, 32),
            prev_use: u64_at(page, 40),
            slot_bytes: u64_at(page, 48),
            first_lsn: u64_at(page, 56),
            first_index: JournalIndex(u64_at(page, 64)),
            prev_end: u64_at(page, 72),
            released: JournalIndex(u64_at(page, 80)),
            highest_tick: Tick(u64_at(page, 88)),
            prev_crc: u32_at(page, 96),
            epoch: u32_at(page, 100),
            flags: u32_at(page, 104),
        };
        HeaderPage::Header {
            header,
            crc: stored,
        }
    }

    /// The header of a slot that is ready to be used.
    pub(crate) fn prepared(journal_id: [u8; 16], slot_bytes: u64) -> SlotHeader {
        SlotHeader {
            journal_id,
            use_number: 0,
            prev_use: 0,
            slot_bytes,
            first_lsn: 0,
            first_index: JournalIndex(0),
            prev_end: 0,
            released: JournalIndex(0),
            highest_tick: Tick::ZERO,
            prev_crc: 0,
            epoch: 0,
            flags: 0,
        }
    }
}

/// Writes page 0 and makes it durable.
pub(crate) fn write_header(file: &dyn DiskFile, header: &SlotHeader) -> io::Result<u32> {
    let (page, crc) = header.encode();
    file.write_at(&page, 0)?;
    file.sync_data()?;
    Ok(crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SlotHeader {
        SlotHeader {
            journal_id: [3; 16],
            use_number: 4,
            prev_use: 5,
            slot_bytes: 6,
            first_lsn: 7,
            first_index: JournalIndex(8),
            prev_end: 9,
            released: JournalIndex(10),
            highest_tick: Tick(11),
            prev_crc: 12,
            epoch: 13,
            flags: 1,
        }
    }

    #[test]
    fn a_header_reads_back_and_every_flipped_bit_shows() {
        let (mut page, crc) = header().encode();
        assert_eq!(page.len() as u64, PAGE);
        let read = SlotHeader::parse(&page);
        let header = header();
        assert_eq!(read, HeaderPage::Header { header, crc });
        for bit in 0..BYTES * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SlotHeader::parse(&page), HeaderPage::Invalid, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(SlotHeader::parse(&[0; 4096]), HeaderPage::Invalid);
        assert_eq!(SlotHeader::parse(&page[..50]), HeaderPage::Invalid);
    }

    #[test]
    fn a_later_format_is_told_from_damage() {
        let (mut page, _) = header().encode();
        page[8] = 2;
        page[12..16].copy_from_slice(&200u32.to_le_bytes());
        let later = crc(&page[..196]);
        page[196..200].copy_from_slice(&later.to_le_bytes());
        let unknown = HeaderPage::Unknown { format: 2 };
        assert_eq!(SlotHeader::parse(&page), unknown);
    }

    #[test]
    fn names_are_exact() {
        assert_eq!(file_name(7), "000007.slot");
        assert_eq!(parse_name("000007.slot"), Some(7));
        for other in ["7.slot", "000007.slot.tmp", "x.slot", "+00007.slot", "lock"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
        assert_eq!(parse_name(&file_name(1_234_567)), Some(1_234_567));
    }
}
