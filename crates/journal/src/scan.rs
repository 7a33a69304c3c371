//! Where the intact frames of a slot end, and what lies beyond.

use std::io;

use tidemark_types::{JournalIndex, Tick};

use crate::error::JournalError;
use crate::frame::{self, FrameHeader, HEADER_BYTES, PAGE, frame_bytes};
use crate::slot::{SlotFile, SlotHeader};

/// Bytes read at once.
pub(crate) const CHUNK: usize = 1 << 20;
/// Frames start at multiples of this.
const ALIGN: usize = 8;

/// A slot file being read from front to back.
pub(crate) struct Window<'a> {
    slot: &'a SlotFile,
    buf: Vec<u8>,
    start: u64,
    pub(crate) bytes_read: u64,
}

impl<'a> Window<'a> {
    pub(crate) fn new(slot: &'a SlotFile) -> Window<'a> {
        Window {
            slot,
            buf: Vec::new(),
            start: 0,
            bytes_read: 0,
        }
    }

    /// `len` bytes from `pos`, fewer at the end of the file.
    fn bytes(&mut self, pos: u64, len: usize) -> Result<&[u8], JournalError> {
        let len = len.min(self.slot.bytes.saturating_sub(pos) as usize);
        let held = self.start + self.buf.len() as u64;
        if pos < self.start || pos + len as u64 > held {
            let want = len.max(CHUNK.min(self.slot.bytes.saturating_sub(pos) as usize));
            self.buf.resize(want, 0);
            self.start = pos;
            let got = self
                .slot
                .file
                .read_at(&mut self.buf, pos)
                .map_err(|source| self.error(source))?;
            self.buf.truncate(got);
            self.bytes_read += got as u64;
        }
        let at = (pos - self.start) as usize;
        let end = (at + len).min(self.buf.len());
        Ok(self.buf.get(at..end).unwrap_or_default())
    }

    fn error(&self, source: io::Error) -> JournalError {
        JournalError::Io {
            action: "cannot read",
            file: self.slot.path.clone(),
            source,
        }
    }
}

/// How far the frames of the journal have been followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// End of the last frame in the slot, before padding.
    pub pos: u64,
    /// CRC of the last frame.
    pub chain: u32,
    pub next_index: JournalIndex,
    pub highest_tick: Tick,
    /// Kind of the last frame in this slot.
    pub last_kind: Option<u8>,
    /// Who wrote the last frame, or the header, told of records before they were synced.
    pub weak: bool,
    /// Everything below this LSN is said to be synced, by the header or by a frame.
    pub durable: u64,
}

impl Cursor {
    /// At the first frame of a use.
    pub(crate) fn at_slot(header: &SlotHeader, crc: u32) -> Cursor {
        Cursor {
            pos: PAGE,
            chain: crc,
            next_index: header.first_index,
            highest_tick: header.highest_tick,
            last_kind: None,
            durable: header.first_lsn + PAGE,
            weak: header.flags & u32::from(frame::FLAG_WEAK) != 0,
        }
    }

    pub(crate) fn lsn(&self, header: &SlotHeader) -> u64 {
        header.first_lsn + self.pos
    }
}

/// The next frame of the journal in this slot and where it lies; `None` when what follows does not
/// continue it.
pub(crate) fn next_frame(
    window: &mut Window<'_>,
    header: &SlotHeader,
    cursor: &Cursor,
) -> Result<Option<(FrameHeader, u64)>, JournalError> {
    // Right after the last frame within a group, else at the next page, where a group starts.
    let page = cursor.pos.next_multiple_of(PAGE);
    for pos in [cursor.pos.next_multiple_of(ALIGN as u64), page] {
        if let Some(frame) = frame_at(window, header, pos, Some(cursor.chain))? {
            check_order(window.slot, pos, &frame, cursor)?;
            return Ok(Some((frame, pos)));
        }
    }
    Ok(None)
}

/// The intact frame of this use at `pos`, if there is one; with `chain` only if it continues that.
fn frame_at(
    window: &mut Window<'_>,
    header: &SlotHeader,
    pos: u64,
    chain: Option<u32>,
) -> Result<Option<FrameHeader>, JournalError> {
    let Some(frame) = FrameHeader::parse(window.bytes(pos, HEADER_BYTES)?) else {
        return Ok(None);
    };
    let belongs = frame.journal_id == header.journal_id
        && frame.use_number == header.use_number
        && frame.epoch == header.epoch
        && frame.lsn == header.first_lsn + pos
        && chain.is_none_or(|chain| chain == frame.prev_crc);
    let end = pos + HEADER_BYTES as u64 + u64::from(frame.payload_len);
    let intact = belongs && end <= window.slot.bytes && {
        let len = HEADER_BYTES + frame.payload_len as usize;
        let bytes = window.bytes(pos, len)?;
        bytes.len() == len && frame::is_intact(bytes)
    };
    Ok(intact.then_some(frame))
}

/// An intact frame that continues the chain but not the numbers was never written by a journal that
/// works: following it would change what records mean.
fn check_order(
    slot: &SlotFile,
    pos: u64,
    frame: &FrameHeader,
    cursor: &Cursor,
) -> Result<(), JournalError> {
    let known = matches!(
        frame.kind,
        frame::KIND_RECORD | frame::KIND_MARK | frame::KIND_CLEAN_END
    );
    if frame.format != frame::FORMAT || !known || frame.flags & !frame::FLAG_WEAK != 0 {
        return Err(JournalError::Unknown {
            file: slot.path.clone(),
            position: pos,
            what: format!(
                "a frame of format {}, kind {}, flags {}",
                frame.format, frame.kind, frame.flags
            ),
        });
    }
    let is_record = frame.kind == frame::KIND_RECORD;
    let next = cursor.next_index.0;
    // I1
    let in_order = if is_record {
        frame.index.0 == next && frame.tick > cursor.highest_tick
    } else {
        frame.index.0 + 1 == next && frame.payload_len == 0
    };
    if !in_order {
        return Err(JournalError::Damaged {
            file: slot.path.clone(),
            position: pos,
            detail: format!(
                "record {} at tick {} stands where record {next} after tick {} belongs",
                frame.index, frame.tick.0, cursor.highest_tick.0
            ),
        });
    }
    Ok(())
}

/// The payload of a frame that was found at `pos`.
pub(crate) fn payload<'w>(
    window: &'w mut Window<'_>,
    frame: &FrameHeader,
    pos: u64,
) -> Result<&'w [u8], JournalError> {
    let len = HEADER_BYTES + frame.payload_len as usize;
    Ok(window
        .bytes(pos, len)?
        .get(HEADER_BYTES..)
        .unwrap_or_default())
}

/// The CRC of a frame that was found at `pos`.
pub(crate) fn crc_at(window: &mut Window<'_>, pos: u64) -> Result<u32, JournalError> {
    Ok(frame::stored_crc(window.bytes(pos, HEADER_BYTES)?))
}

/// What lies behind the end of the intact frames.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Beyond {
    /// End of the last thing that looks like a frame of this use; 0 = there is none.
    pub traces_end: u64,
    /// An intact frame that says that bytes beyond `limit` had been synced: its position.
    pub proof_of_damage: Option<u64>,
}

/// Looks through the rest of a slot from `from`. `limit` is the LSN up to which the journal is
/// intact. Without a header (it is damaged) frames of any use count.
pub(crate) fn beyond(
    window: &mut Window<'_>,
    journal_id: &[u8; 16],
    header: Option<&SlotHeader>,
    from: u64,
    limit: u64,
) -> Result<Beyond, JournalError> {
    let mut found = Beyond::default();
    let mut pos = from.next_multiple_of(ALIGN as u64);
    while pos < window.slot.bytes {
        let chunk = window.bytes(pos, CHUNK)?;
        if chunk.is_empty() {
            break;
        }
        let len = chunk.len() as u64;
        let magic = frame::MAGIC.to_le_bytes();
        let candidates: Vec<u64> = (0..chunk.len())
            .step_by(ALIGN)
            .filter(|at| chunk.get(at + 4..at + 8) == Some(&magic))
            .map(|at| pos + at as u64)
            .collect();
        for at in candidates {
            look_at(window, journal_id, header, at, limit, &mut found)?;
        }
        pos += len.next_multiple_of(ALIGN as u64);
    }
    Ok(found)
}

fn look_at(
    window: &mut Window<'_>,
    journal_id: &[u8; 16],
    header: Option<&SlotHeader>,
    pos: u64,
    limit: u64,
    found: &mut Beyond,
) -> Result<(), JournalError> {
    let Some(frame) = FrameHeader::parse(window.bytes(pos, HEADER_BYTES)?) else {
        return Ok(());
    };
    let ours = frame.journal_id == *journal_id
        && header.is_none_or(|header| {
            frame.use_number == header.use_number && frame.lsn == header.first_lsn + pos
        });
    if !ours {
        return Ok(());
    }
    let end = (pos + frame_bytes(u64::from(frame.payload_len))).min(window.slot.bytes);
    found.traces_end = found.traces_end.max(end);
    if frame.durable_mark > limit && found.proof_of_damage.is_none() {
        let len = HEADER_BYTES + frame.payload_len as usize;
        let bytes = window.bytes(pos, len)?;
        if bytes.len() == len && frame::is_intact(bytes) {
            found.proof_of_damage = Some(pos);
        }
    }
    Ok(())
}
