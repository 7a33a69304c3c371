//! The header of a journal slot: page 0.

use crate::bytes::{hex, le_u32, le_u64};
use crate::finding::Bad;

pub(crate) const PAGE: u64 = 4096;
const MAGIC: &[u8] = b"TIDESLOT";
const FORMAT: u32 = 1;
const BYTES: usize = 116;

/// One use of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotHeader {
    pub journal_id: [u8; 16],
    /// 0: prepared, never used.
    pub use_number: u64,
    /// The use before this one, 0 = none.
    pub prev_use: u64,
    pub slot_bytes: u64,
    /// LSN of position 0.
    pub first_lsn: u64,
    pub first_index: u64,
    /// LSN at which the frames of the use before end.
    pub prev_end: u64,
    /// Records below were released when this use began.
    pub released: u64,
    /// The highest tick before this use.
    pub highest_tick: u64,
    /// CRC of the last frame of the use before.
    pub prev_crc: u32,
    pub epoch: u32,
    /// The header's own CRC, which the first frame continues.
    pub crc: u32,
}

impl SlotHeader {
    /// Reads page 0. `None` when it holds no intact header: zeroes, half a preparation, or damage.
    pub fn parse(page: &[u8]) -> Result<Option<SlotHeader>, Bad> {
        let Some(header) = parse(page) else {
            return Ok(None);
        };
        header.map(Some)
    }
}

fn parse(page: &[u8]) -> Option<Result<SlotHeader, Bad>> {
    if page.get(..8)? != MAGIC {
        return None;
    }
    let format = le_u32(page, 8)?;
    // The length stands in the header, so that a later format can be told from damage.
    let len = le_u32(page, 12)? as usize;
    if !(BYTES..=512).contains(&len) {
        return None;
    }
    let crc = le_u32(page, len - 4)?;
    if crc32c::crc32c(page.get(..len - 4)?) != crc {
        return None;
    }
    if format != FORMAT || len != BYTES {
        let what = format!("a slot of format {format}, {len} bytes of header");
        return Some(Err(Bad::newer(8, what)));
    }
    Some(Ok(SlotHeader {
        journal_id: page.get(16..32)?.try_into().ok()?,
        use_number: le_u64(page, 32)?,
        prev_use: le_u64(page, 40)?,
        slot_bytes: le_u64(page, 48)?,
        first_lsn: le_u64(page, 56)?,
        first_index: le_u64(page, 64)?,
        prev_end: le_u64(page, 72)?,
        released: le_u64(page, 80)?,
        highest_tick: le_u64(page, 88)?,
        prev_crc: le_u32(page, 96)?,
        epoch: le_u32(page, 100)?,
        crc,
    }))
}

impl SlotHeader {
    pub fn journal_id_text(&self) -> String {
        hex(&self.journal_id)
    }
}
