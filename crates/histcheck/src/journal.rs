//! The journal: its slots in order, and the frames that follow each other in them.
//!
//! The use with the highest number is the last; each header names the use before it and where that
//! one ends. Frames are chained by their CRCs. The last use may end in the broken bytes of a write
//! that no sync completed; that is damage if an intact frame says that they had been synced.

use std::collections::BTreeMap;
use std::io;

use crate::files::{Files, Window};
use crate::finding::{Bad, Findings, mend};
use crate::frame::{FORMAT, Frame, FrameKind, HEADER_BYTES, MAGIC};
use crate::slot::{PAGE, SlotHeader};

const DIR: &str = "journal";
const ALIGN: u64 = 8;

/// A slot file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Relative to the data directory.
    pub file: String,
    pub bytes: u64,
    /// `None`: half prepared, or its header is damaged.
    pub header: Option<SlotHeader>,
}

/// One frame and where it lies.
pub struct FrameAt<'a> {
    pub file: &'a str,
    pub position: u64,
    pub frame: &'a Frame,
    pub payload: &'a [u8],
}

/// What the journal holds.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Journal {
    pub slots: Vec<Slot>,
    /// Files of the slots that were read, oldest first.
    pub in_use: Vec<String>,
    /// Index of the first record that was read, and of the next to come.
    pub first_index: u64,
    pub next_index: u64,
    pub highest_tick: u64,
    pub highest_epoch: u32,
    pub frames: u64,
    pub records: u64,
    /// The last frame says that the journal was shut down in order.
    pub clean_end: bool,
    /// File and position of the end.
    pub end: Option<(String, u64)>,
    /// Bytes of an interrupted write behind the end, which a start leaves out.
    pub cut_bytes: u64,
}

/// Reads the slots and shows every frame of the uses that hold record `from` and later ones to
/// `visit`. `journal_id` is what the identity says, `None` takes that of the newest slot.
pub(crate) fn read(
    files: &dyn Files,
    journal_id: Option<[u8; 16]>,
    from: u64,
    visit: &mut dyn FnMut(&FrameAt<'_>, &mut Findings),
    findings: &mut Findings,
) -> Journal {
    let mut journal = Journal {
        slots: look(files, findings),
        next_index: 1,
        ..Journal::default()
    };
    let used: BTreeMap<u64, (String, SlotHeader)> = journal
        .slots
        .iter()
        .filter_map(|slot| Some((slot.file.clone(), slot.header.clone()?)))
        .filter(|(file, header)| is_ours(file, header, journal_id, findings))
        .filter(|(_, header)| header.use_number > 0)
        .map(|(file, header)| (header.use_number, (file, header)))
        .collect();
    let headers = || used.values().map(|(_, header)| header);
    journal.highest_epoch = headers().map(|h| h.epoch).max().unwrap_or(0);
    let chain = chain(&used, from);
    let Some((last_file, last)) = chain.last().map(|(file, header)| (*file, *header)) else {
        if from > 1 {
            let what = format!("it holds no records, and record {from} is needed");
            findings.damage(DIR, what, mend::JOURNAL);
        }
        inspect_blank(files, &journal, journal_id, 0, findings);
        return journal;
    };
    let first = chain[0].1;
    if first.first_index > from {
        let what = format!(
            "it begins at record {}, and record {from} is needed",
            first.first_index
        );
        findings.damage(DIR, what, mend::JOURNAL);
    }
    journal.first_index = first.first_index;
    journal.next_index = first.first_index;
    journal.highest_tick = first.highest_tick;
    for (at, (file, header)) in chain.iter().enumerate() {
        journal.in_use.push((*file).to_owned());
        let next = chain.get(at + 1).map(|(_, next)| *next);
        let mut walk = Walk::new(files, file, header);
        let whole = walk.run(next, &mut journal, visit, findings);
        if !whole {
            // What follows would be read out of order.
            return journal;
        }
        if next.is_none() {
            let position = walk.position;
            journal.end = Some(((*file).to_owned(), position));
            let limit = header.first_lsn + position;
            let id = Some(header.journal_id);
            match beyond(
                files,
                file,
                header.slot_bytes,
                id,
                Some(header),
                position,
                limit,
            ) {
                Err(e) => findings.io(file, &e),
                Ok((_, Some(proof))) => findings.bad(
                    Bad::new(
                        position,
                        format!(
                            "the frame of record {} is broken, but an intact frame at position \
                             {proof} says that it had been synced",
                            journal.next_index
                        ),
                    ),
                    file,
                    mend::JOURNAL,
                ),
                Ok((traces, None)) if traces > position => {
                    journal.cut_bytes = traces - position;
                    journal.clean_end = false;
                    let what = format!(
                        "{} bytes of an interrupted write, which a start leaves out; nothing in \
                         them had been acknowledged",
                        traces - position
                    );
                    findings.note(file, Some(position), what);
                }
                Ok(_) => {}
            }
        }
    }
    let limit = last.first_lsn + journal.end.as_ref().map_or(0, |(_, position)| *position);
    inspect_blank(files, &journal, journal_id, limit, findings);
    if from > journal.next_index {
        let what = format!(
            "it ends before record {}, and record {from} is needed",
            journal.next_index
        );
        findings.damage(last_file, what, mend::JOURNAL);
    }
    journal
}

fn is_ours(
    file: &str,
    header: &SlotHeader,
    journal_id: Option<[u8; 16]>,
    findings: &mut Findings,
) -> bool {
    let ours = journal_id.is_none_or(|id| id == header.journal_id);
    if !ours {
        let what = format!(
            "the slot belongs to directory.id {}, which is not this directory's",
            header.journal_id_text()
        );
        findings.bad(Bad::new(16, what), file, mend::COPY);
    }
    ours
}

/// Every slot file and its header.
fn look(files: &dyn Files, findings: &mut Findings) -> Vec<Slot> {
    let entries = match files.list(DIR) {
        Ok(entries) => entries,
        Err(e) => {
            findings.io(DIR, &e);
            return Vec::new();
        }
    };
    let mut slots = Vec::new();
    for entry in entries {
        let digits = entry.name.strip_suffix(".slot").unwrap_or("");
        let is_slot = digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
        if entry.is_dir || !is_slot {
            continue;
        }
        let file = format!("{DIR}/{}", entry.name);
        let header = match files.bytes(&file, 0, PAGE as usize) {
            Ok(page) => SlotHeader::parse(&page).unwrap_or_else(|bad| {
                findings.bad(bad, &file, mend::COPY);
                None
            }),
            Err(e) => {
                findings.io(&file, &e);
                None
            }
        };
        slots.push(Slot {
            file,
            bytes: entry.len,
            header,
        });
    }
    slots
}

/// The uses that hold `from` and later records, oldest first.
fn chain(used: &BTreeMap<u64, (String, SlotHeader)>, from: u64) -> Vec<(&str, &SlotHeader)> {
    let mut chain: Vec<(&str, &SlotHeader)> = Vec::new();
    let mut at = used.keys().next_back().copied();
    while let Some((file, header)) = at.and_then(|number| used.get(&number)) {
        chain.push((file, header));
        if header.first_index <= from {
            break;
        }
        at = Some(header.prev_use).filter(|prev| *prev < header.use_number);
    }
    chain.reverse();
    chain
}

/// Shows the frames of one slot file to `visit`, as far as they follow each other.
pub(crate) fn read_slot(
    files: &dyn Files,
    file: &str,
    visit: &mut dyn FnMut(&FrameAt<'_>, &mut Findings),
    findings: &mut Findings,
) -> Option<SlotHeader> {
    let page = match files.bytes(file, 0, PAGE as usize) {
        Ok(page) => page,
        Err(e) => {
            findings.io(file, &e);
            return None;
        }
    };
    let header = match SlotHeader::parse(&page) {
        Ok(Some(header)) => header,
        Ok(None) => {
            findings.bad(
                Bad::new(0, "it has no intact slot header"),
                file,
                mend::COPY,
            );
            return None;
        }
        Err(bad) => {
            findings.bad(bad, file, mend::COPY);
            return None;
        }
    };
    let mut journal = Journal {
        next_index: header.first_index,
        highest_tick: header.highest_tick,
        ..Journal::default()
    };
    if header.use_number > 0 {
        Walk::new(files, file, &header).run(None, &mut journal, visit, findings);
    }
    Some(header)
}

struct Walk<'a> {
    window: Window<'a>,
    file: &'a str,
    header: &'a SlotHeader,
    /// End of the last frame.
    position: u64,
    chain: u32,
    last_kind: Option<FrameKind>,
}

impl<'a> Walk<'a> {
    fn new(files: &'a dyn Files, file: &'a str, header: &'a SlotHeader) -> Walk<'a> {
        Walk {
            window: Window::new(files, file, header.slot_bytes),
            file,
            header,
            position: PAGE,
            chain: header.crc,
            last_kind: None,
        }
    }

    /// Follows the frames up to where the next use says that this one ends; false when it does not
    /// get there.
    fn run(
        &mut self,
        next: Option<&SlotHeader>,
        journal: &mut Journal,
        visit: &mut dyn FnMut(&FrameAt<'_>, &mut Findings),
        findings: &mut Findings,
    ) -> bool {
        let first_lsn = self.header.first_lsn;
        while next.is_none_or(|next| first_lsn + self.position < next.prev_end) {
            let (frame, position, bytes) = match self.next_frame() {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(e) => {
                    findings.io(self.file, &e);
                    return false;
                }
            };
            if let Err(bad) = check_order(&frame, position, journal) {
                findings.bad(bad, self.file, mend::JOURNAL);
                return false;
            }
            self.chain = frame.crc;
            self.position = position + frame.size_bytes();
            self.last_kind = Some(frame.kind);
            journal.frames += 1;
            journal.clean_end = frame.kind == FrameKind::CleanEnd;
            if frame.kind == FrameKind::Record {
                journal.records += 1;
                journal.next_index = frame.index + 1;
                journal.highest_tick = frame.tick;
            }
            let at = FrameAt {
                file: self.file,
                position,
                frame: &frame,
                payload: &bytes[HEADER_BYTES as usize..],
            };
            visit(&at, findings);
        }
        let whole = next.is_none_or(|next| {
            first_lsn + self.position == next.prev_end
                && self.chain == next.prev_crc
                && journal.next_index == next.first_index
        });
        if !whole {
            let what = format!(
                "the frame of record {} is missing or broken, but a later slot follows it",
                journal.next_index
            );
            let bad = Bad::new(self.position, what);
            findings.bad(bad, self.file, mend::JOURNAL);
        }
        if next.is_none() && self.last_kind.is_none() {
            journal.clean_end = false;
        }
        whole
    }

    /// The frame that continues the chain: right behind the last one, or on the next page, where a
    /// group begins.
    fn next_frame(&mut self) -> io::Result<Option<(Frame, u64, Vec<u8>)>> {
        for position in [
            self.position.next_multiple_of(ALIGN),
            self.position.next_multiple_of(PAGE),
        ] {
            let Some(frame) = Frame::parse(self.window.bytes(position, HEADER_BYTES)?) else {
                continue;
            };
            let continues = frame.journal_id == self.header.journal_id
                && frame.use_number == self.header.use_number
                && frame.epoch == self.header.epoch
                && frame.lsn == self.header.first_lsn + position
                && frame.prev_crc == self.chain
                && position + frame.size_bytes() <= self.header.slot_bytes;
            if !continues {
                continue;
            }
            let bytes = self.window.bytes(position, frame.size_bytes())?;
            if frame.is_intact(bytes) {
                let bytes = bytes.to_vec();
                return Ok(Some((frame, position, bytes)));
            }
        }
        Ok(None)
    }
}

fn check_order(frame: &Frame, position: u64, journal: &Journal) -> Result<(), Bad> {
    if frame.format != FORMAT {
        let what = format!("a frame of format {}", frame.format);
        return Err(Bad::newer(position + 8, what));
    }
    if let FrameKind::Unknown(kind) = frame.kind {
        return Err(Bad::newer(position + 9, format!("a frame of kind {kind}")));
    }
    let next = journal.next_index;
    let in_order = match frame.kind {
        FrameKind::Record => frame.index == next && frame.tick > journal.highest_tick,
        _ => frame.index + 1 == next && frame.payload_bytes == 0,
    };
    match in_order {
        true => Ok(()),
        false => Err(Bad::new(
            position,
            format!(
                "{} {} at tick {} stands where record {next} after tick {} belongs",
                frame.kind.word(),
                frame.index,
                frame.tick,
                journal.highest_tick
            ),
        )),
    }
}

/// What lies behind the end of the frames: the end of the last thing that looks like a frame of
/// this use, and the position of an intact one that says that bytes beyond `limit` were synced.
fn beyond(
    files: &dyn Files,
    file: &str,
    slot_bytes: u64,
    journal_id: Option<[u8; 16]>,
    header: Option<&SlotHeader>,
    from: u64,
    limit: u64,
) -> io::Result<(u64, Option<u64>)> {
    let mut window = Window::new(files, file, slot_bytes);
    let (mut traces, mut proof) = (0, None);
    let mut position = from.next_multiple_of(ALIGN);
    while position + HEADER_BYTES <= slot_bytes {
        let bytes = window.bytes(position, HEADER_BYTES)?;
        if bytes.get(4..8) == Some(MAGIC)
            && let Some(frame) = Frame::parse(bytes)
            && journal_id.is_none_or(|id| id == frame.journal_id)
            && header.is_none_or(|header| {
                frame.use_number == header.use_number && frame.lsn == header.first_lsn + position
            })
        {
            let end = (position + frame.size_bytes()).next_multiple_of(ALIGN);
            traces = traces.max(end.min(slot_bytes));
            if proof.is_none()
                && frame.durable_mark > limit
                && frame.is_intact(window.bytes(position, frame.size_bytes())?)
            {
                proof = Some(position);
            }
        } else if bytes.len() < HEADER_BYTES as usize {
            break;
        }
        position += ALIGN;
    }
    Ok((traces, proof))
}

/// Slots without a header that hold frames which were synced behind the end of the others.
fn inspect_blank(
    files: &dyn Files,
    journal: &Journal,
    journal_id: Option<[u8; 16]>,
    limit: u64,
    findings: &mut Findings,
) {
    for slot in journal.slots.iter().filter(|slot| slot.header.is_none()) {
        match beyond(files, &slot.file, slot.bytes, journal_id, None, 0, limit) {
            Err(e) => findings.io(&slot.file, &e),
            Ok((_, Some(proof))) => findings.bad(
                Bad::new(
                    0,
                    format!(
                        "the slot header is broken, but an intact frame at position {proof} was \
                         written after the end of the other slots"
                    ),
                ),
                &slot.file,
                mend::JOURNAL,
            ),
            Ok(_) => {}
        }
    }
}
