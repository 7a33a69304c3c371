//! Which slots belong to the journal, in which order, and is it whole?
//!
//! The use with the highest number is the last one, and every header names the use before it. Where
//! a slot's header says the use before it ends, that use must be intact up to there. Only the last
//! use may end in broken bytes: those of writes that were not confirmed. They are cut; if
//! anything intact says that they had been synced, nothing is cut and the start is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tidemark_disk::{Disk, OpenMode, create_dir_all_durable, read_exact_at};
use tidemark_types::{JournalIndex, Tick};

use crate::error::{JournalError, hex};
use crate::frame::{KIND_CLEAN_END, KIND_RECORD, PAGE};
use crate::scan::{self, Cursor, Window};
use crate::slot::{self, HeaderPage, SlotFile, SlotHeader};
use crate::space::Space;
use crate::{JournalOptions, SLOTS_MIN};

/// A record read back, in the order of its index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredRecord {
    pub index: JournalIndex,
    pub tick: Tick,
    pub wall_ms: i64,
    /// The journal's epoch when it was written.
    pub epoch: u32,
    pub payload: Bytes,
}

/// The end of an interrupted write that was left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutReport {
    pub file: PathBuf,
    /// First byte that was left out.
    pub position: u64,
    /// Bytes from there to the end of what can be told to belong to the interrupted write.
    pub bytes: u64,
}

/// A journal that was read and can be started.
pub struct Recovery {
    /// Index of the next record.
    pub next_index: JournalIndex,
    /// No record may have this tick or a lower one.
    pub highest_tick: Tick,
    /// The journal's epoch from now on: as before after a clean stop, else one more. 0 in a new
    /// directory.
    pub epoch: u32,
    /// Whether the journal was new or had been shut down in order.
    pub clean: bool,
    /// The stop was not in order, and records had been told of before they were synced: some of
    /// those may be missing without a trace, and what depends on all of them cannot go on.
    pub may_have_lost: bool,
    pub cut: Option<CutReport>,
    pub bytes_read: u64,
    /// Records visited.
    pub records: u64,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: JournalOptions,
    pub(crate) space: Space,
    pub(crate) resume: Resume,
}

/// Where the writer goes on.
pub(crate) struct Resume {
    /// After a clean stop: in this slot, at this page.
    pub current: Option<(SlotFile, SlotHeader, u64)>,
    pub prev_use: u64,
    /// LSN of the end of the last frame; everything below is durable.
    pub prev_end: u64,
    pub chain: u32,
    pub next_use: u64,
    pub next_lsn: u64,
}

#[derive(Clone)]
struct Used {
    slot: SlotFile,
    header: SlotHeader,
    crc: u32,
}

/// What the directory holds.
#[derive(Default)]
struct Found {
    used: BTreeMap<u64, Used>,
    prepared: Vec<SlotFile>,
    /// Files without a header: half prepared, or damaged.
    blank: Vec<SlotFile>,
    bytes_read: u64,
}

fn io_error(action: &'static str, file: &Path) -> impl FnOnce(std::io::Error) -> JournalError {
    let file = file.to_path_buf();
    move |source| JournalError::Io {
        action,
        file,
        source,
    }
}

/// Reads the journal in `options.dir` (created when missing) and shows every record from `from` on
/// (1 = all) to `visit`. Nothing is changed; what was accepted is made durable, since a process that
/// was killed may have left it in the page cache only.
///
/// Call [`Recovery::start`] on the result, then [`crate::Journal::release_below`] with the position
/// that the older checkpoint needs.
pub fn recover(
    disk: Arc<dyn Disk>,
    mut options: JournalOptions,
    from: JournalIndex,
    visit: &mut dyn FnMut(RecoveredRecord) -> Result<(), String>,
) -> Result<Recovery, JournalError> {
    options.slot_bytes -= options.slot_bytes % PAGE;
    if !(16 * PAGE..=1 << 31).contains(&options.slot_bytes) {
        return Err(JournalError::Options(format!(
            "a slot of {} bytes; it must have 64 KiB to 2 GiB",
            options.slot_bytes
        )));
    }
    let from = from.max(JournalIndex(1));
    create_dir_all_durable(&*disk, &options.dir)
        .map_err(io_error("cannot create", &options.dir))?;
    let mut found = look(&*disk, &options)?;
    let chain = chain(&mut found, from);
    let Some(last) = chain.last().cloned() else {
        return fresh(disk, options, found, from);
    };
    let start = chain
        .iter()
        .rposition(|used| used.header.first_index <= from)
        .ok_or_else(|| JournalError::Gap {
            dir: options.dir.clone(),
            from: from.0,
            detail: format!("the journal begins at {}", chain[0].header.first_index),
        })?;
    for used in &chain[start..] {
        check_length(used)?;
    }
    let (mut cursor, mut records) = (Cursor::at_slot(&last.header, last.crc), 0);
    for (i, used) in chain.iter().enumerate().skip(start) {
        let next = chain.get(i + 1).map(|next| &next.header);
        cursor = walk(used, next, from, visit, &mut records, &mut found.bytes_read)?;
    }
    let cut = inspect_end(&options, &last, &cursor, &mut found)?;
    if from > cursor.next_index {
        return Err(JournalError::Gap {
            dir: options.dir.clone(),
            from: from.0,
            detail: format!("the journal ends before record {}", cursor.next_index),
        });
    }
    let clean = cut.is_none() && cursor.last_kind == Some(KIND_CLEAN_END);
    make_durable(&last, &cursor)?;
    if let Some(cut) = &cut {
        tracing::warn!(
            file = %cut.file.display(), position = cut.position, bytes = cut.bytes,
            next_index = cursor.next_index.0,
            "the journal ended in an interrupted write, which was cut; nothing in it had been acknowledged"
        );
    }
    let headers = || found.used.values().map(|used| &used.header);
    let epoch = headers().map(|h| h.epoch).max().unwrap_or(0);
    let next_lsn = headers().map(|h| h.first_lsn + h.slot_bytes).max();
    let mut resume = Resume {
        current: None,
        prev_use: last.header.use_number,
        prev_end: cursor.lsn(&last.header),
        chain: cursor.chain,
        next_use: last.header.use_number + 1,
        next_lsn: next_lsn.unwrap_or(0),
    };
    let mut in_use = chain;
    if clean {
        let page = cursor.pos.next_multiple_of(PAGE);
        resume.current = Some((last.slot.clone(), last.header, page));
    } else if cursor.last_kind.is_none() {
        // Nothing but a header: this slot is the next one's place, so that a start that writes
        // nothing costs no slot.
        in_use.pop();
        resume.prev_use = last.header.prev_use;
        resume.prev_end = last.header.prev_end;
        resume.chain = last.header.prev_crc;
    }
    let space = assign(
        &options,
        in_use,
        found,
        clean,
        &cursor,
        resume.current.as_ref(),
    );
    Ok(Recovery {
        next_index: cursor.next_index,
        highest_tick: cursor.highest_tick,
        epoch: if clean { epoch } else { epoch + 1 },
        clean,
        may_have_lost: !clean && cursor.weak,
        cut,
        bytes_read: space.1,
        records,
        disk,
        options,
        space: space.0,
        resume,
    })
}

/// The oldest record that [`recover`] can still show; `None` when no slot was ever used. It may lie
/// below what was released: a slot keeps its records until it is used again.
pub fn oldest_index(
    disk: &dyn Disk,
    options: &JournalOptions,
) -> Result<Option<JournalIndex>, JournalError> {
    let mut found = look(disk, options)?;
    let chain = chain(&mut found, JournalIndex(1));
    Ok(chain.first().map(|used| used.header.first_index))
}

/// What was accepted is synced: a killed process may have left it in the page cache only. What nothing
/// says of that it was synced is written again before: after a sync that failed the page cache takes
/// it for written, and a sync alone would do nothing. That goes for a clean end as well.
fn make_durable(last: &Used, cursor: &Cursor) -> Result<(), JournalError> {
    let slot = &last.slot;
    let mut pos = (cursor.durable - last.header.first_lsn).next_multiple_of(PAGE);
    let end = cursor.pos.next_multiple_of(PAGE);
    let mut bytes = vec![0; scan::CHUNK];
    while pos < end {
        let len = bytes.len().min((end - pos) as usize);
        read_exact_at(&*slot.file, &mut bytes[..len], pos)
            .map_err(io_error("cannot read", &slot.path))?;
        (slot.file.write_at(&bytes[..len], pos)).map_err(io_error("cannot write", &slot.path))?;
        pos += len as u64;
    }
    let sync = slot.file.sync_data();
    sync.map_err(io_error("cannot sync", &slot.path))
}

/// A slot has its whole size before its first use: one that is shorter has lost its end, and what was
/// in there cannot be told.
fn check_length(used: &Used) -> Result<(), JournalError> {
    let len = used.slot.file.len();
    let len = len.map_err(io_error("cannot look at", &used.slot.path))?;
    if len >= used.header.slot_bytes {
        return Ok(());
    }
    Err(JournalError::Damaged {
        file: used.slot.path.clone(),
        position: len,
        detail: format!(
            "the file ends here, and was made with {} bytes",
            used.header.slot_bytes
        ),
    })
}

/// Opens every slot file and reads its header.
fn look(disk: &dyn Disk, options: &JournalOptions) -> Result<Found, JournalError> {
    let mut found = Found::default();
    let entries = disk.list(&options.dir);
    for entry in entries.map_err(io_error("cannot list", &options.dir))? {
        let Some(id) = slot::parse_name(&entry.name).filter(|_| !entry.is_dir) else {
            continue;
        };
        let path = options.dir.join(&entry.name);
        let file = disk.open(&path, OpenMode::ReadWrite);
        let file = file.map_err(io_error("cannot open", &path))?;
        let mut page = vec![0; PAGE as usize];
        let got = file.read_at(&mut page, 0);
        let got = got.map_err(io_error("cannot read", &path))?;
        found.bytes_read += got as u64;
        let bytes = file.len().map_err(io_error("cannot look at", &path))?;
        let mut slot = SlotFile {
            id,
            path,
            bytes,
            file,
        };
        match SlotHeader::parse(&page[..got]) {
            HeaderPage::Unknown { format } => {
                return Err(JournalError::Unknown {
                    file: slot.path,
                    position: 0,
                    what: format!("a slot of format {format}"),
                });
            }
            HeaderPage::Header { header, .. } if header.journal_id != options.journal_id => {
                return Err(JournalError::OtherJournal {
                    file: slot.path,
                    found: hex(&header.journal_id),
                    expected: hex(&options.journal_id),
                });
            }
            HeaderPage::Header { header, crc } if header.use_number > 0 => {
                slot.bytes = header.slot_bytes;
                let used = Used { slot, header, crc };
                found.used.insert(header.use_number, used);
            }
            HeaderPage::Header { header, .. } if header.slot_bytes == bytes => {
                found.prepared.push(slot);
            }
            HeaderPage::Header { .. } | HeaderPage::Invalid => found.blank.push(slot),
        }
    }
    Ok(found)
}

/// The uses that form the end of the journal, oldest first, without those that were released.
/// Uses that are not in it stay in `found.used`, as do copies of those that are.
fn chain(found: &mut Found, from: JournalIndex) -> Vec<Used> {
    let released = found.used.values().map(|used| used.header.released).max();
    let needed = released.unwrap_or_default().min(from);
    let mut chain: Vec<Used> = Vec::new();
    let mut at = found.used.keys().next_back().copied();
    while let Some(used) = at.and_then(|number| found.used.get(&number)) {
        let after = chain.last().map(|next| next.header.first_index);
        if after.is_some_and(|first_index| first_index <= needed) {
            break;
        }
        // Numbers only fall along the chain, so it ends whatever the headers say.
        at = Some(used.header.prev_use).filter(|prev| *prev < used.header.use_number);
        chain.push(used.clone());
    }
    chain.reverse();
    chain
}

/// Follows the frames of one use, up to where the next use says that it ends.
fn walk(
    used: &Used,
    next: Option<&SlotHeader>,
    from: JournalIndex,
    visit: &mut dyn FnMut(RecoveredRecord) -> Result<(), String>,
    records: &mut u64,
    bytes_read: &mut u64,
) -> Result<Cursor, JournalError> {
    let header = &used.header;
    let mut window = Window::new(&used.slot);
    let mut cursor = Cursor::at_slot(header, used.crc);
    while next.is_none_or(|next| cursor.lsn(header) < next.prev_end) {
        let Some((frame, pos)) = scan::next_frame(&mut window, header, &cursor)? else {
            break;
        };
        cursor.chain = scan::crc_at(&mut window, pos)?;
        cursor.pos = pos + crate::frame::HEADER_BYTES as u64 + u64::from(frame.payload_len);
        cursor.last_kind = Some(frame.kind);
        cursor.durable = cursor.durable.max(frame.durable_mark);
        cursor.weak = frame.flags & crate::frame::FLAG_WEAK != 0;
        if frame.kind != KIND_RECORD {
            continue;
        }
        cursor.next_index = JournalIndex(frame.index.0 + 1);
        cursor.highest_tick = frame.tick;
        if frame.index >= from {
            *records += 1;
            let payload = Bytes::copy_from_slice(scan::payload(&mut window, &frame, pos)?);
            visit(RecoveredRecord {
                index: frame.index,
                tick: frame.tick,
                wall_ms: frame.wall_ms,
                epoch: frame.epoch,
                payload,
            })
            .map_err(|message| JournalError::Visit {
                index: frame.index.0,
                message,
            })?;
        }
    }
    *bytes_read += window.bytes_read;
    let whole = next.is_none_or(|next| {
        cursor.lsn(header) == next.prev_end
            && cursor.chain == next.prev_crc
            && cursor.next_index == next.first_index
    });
    if !whole {
        return Err(JournalError::Damaged {
            file: used.slot.path.clone(),
            position: cursor.pos,
            detail: format!(
                "the frame of record {} is missing or broken, but a later slot follows it",
                cursor.next_index
            ),
        });
    }
    Ok(cursor)
}

/// Tells a torn tail (the cut, if there is one) from damage.
fn inspect_end(
    options: &JournalOptions,
    last: &Used,
    cursor: &Cursor,
    found: &mut Found,
) -> Result<Option<CutReport>, JournalError> {
    let limit = cursor.lsn(&last.header);
    let mut window = Window::new(&last.slot);
    let id = &options.journal_id;
    let beyond = scan::beyond(&mut window, id, Some(&last.header), cursor.pos, limit)?;
    found.bytes_read += window.bytes_read;
    if let Some(proof) = beyond.proof_of_damage {
        return Err(JournalError::Damaged {
            file: last.slot.path.clone(),
            position: cursor.pos,
            detail: format!(
                "the frame of record {} is broken, but an intact frame at position {proof} says \
                 that it had been synced",
                cursor.next_index
            ),
        });
    }
    inspect_blank(options, limit, found)?;
    Ok((beyond.traces_end > cursor.pos).then(|| CutReport {
        file: last.slot.path.clone(),
        position: cursor.pos,
        bytes: beyond.traces_end - cursor.pos,
    }))
}

/// A slot whose header is gone but which holds frames that were synced beyond `limit`.
fn inspect_blank(
    options: &JournalOptions,
    limit: u64,
    found: &mut Found,
) -> Result<(), JournalError> {
    for slot in &found.blank {
        let mut window = Window::new(slot);
        let beyond = scan::beyond(&mut window, &options.journal_id, None, 0, limit)?;
        found.bytes_read += window.bytes_read;
        if let Some(proof) = beyond.proof_of_damage {
            return Err(JournalError::Damaged {
                file: slot.path.clone(),
                position: 0,
                detail: format!(
                    "the slot header is broken, but an intact frame at position {proof} was \
                     written after the end of the other slots"
                ),
            });
        }
    }
    Ok(())
}

/// A directory in which no slot was ever used.
fn fresh(
    disk: Arc<dyn Disk>,
    options: JournalOptions,
    mut found: Found,
    from: JournalIndex,
) -> Result<Recovery, JournalError> {
    inspect_blank(&options, 0, &mut found)?;
    if from > JournalIndex(1) {
        return Err(JournalError::Gap {
            dir: options.dir.clone(),
            from: from.0,
            detail: "the directory holds no records".to_string(),
        });
    }
    let cursor = Cursor {
        pos: 0,
        chain: 0,
        next_index: JournalIndex(1),
        highest_tick: Tick::ZERO,
        last_kind: None,
        weak: false,
        durable: 0,
    };
    let (space, bytes_read) = assign(&options, Vec::new(), found, true, &cursor, None);
    Ok(Recovery {
        next_index: cursor.next_index,
        highest_tick: cursor.highest_tick,
        epoch: 0,
        clean: true,
        may_have_lost: false,
        cut: None,
        bytes_read,
        records: 0,
        disk,
        options,
        space,
        resume: Resume {
            current: None,
            prev_use: 0,
            prev_end: 0,
            chain: 0,
            next_use: 1,
            next_lsn: 0,
        },
    })
}

/// Gives every slot file its part: in use, free, to be prepared again, or (wrong size) to go.
fn assign(
    options: &JournalOptions,
    in_use: Vec<Used>,
    found: Found,
    clean: bool,
    cursor: &Cursor,
    current: Option<&(SlotFile, SlotHeader, u64)>,
) -> (Space, u64) {
    debug_assert!(clean || current.is_none());
    let max_slots = (options.budget_bytes / options.slot_bytes).max(SLOTS_MIN);
    let mut space = Space::new(options.slot_bytes, max_slots as usize);
    let released = found.used.values().map(|used| used.header.released).max();
    space.released = released.unwrap_or_default();
    let taken: Vec<u64> = in_use.iter().map(|used| used.header.use_number).collect();
    for (i, used) in in_use.iter().enumerate() {
        let end = in_use
            .get(i + 1)
            .map_or(cursor.next_index, |next| next.header.first_index);
        space.adopt_in_use(used.slot.clone(), JournalIndex(end.0 - 1));
    }
    if let Some((slot, _, pos)) = current {
        space.set_current(slot.bytes, *pos);
    }
    // The newest of the free ones first: after an unclean stop that is the slot with only a header.
    for (number, used) in found.used.into_iter().rev() {
        let is_whole = (used.slot.file.len()).is_ok_and(|len| len >= used.header.slot_bytes);
        match taken.contains(&number) {
            true => {}
            false if is_whole => space.adopt_free(used.slot),
            false => space.adopt_blank(used.slot.id),
        }
    }
    found
        .prepared
        .into_iter()
        .for_each(|slot| space.adopt_free(slot));
    found
        .blank
        .into_iter()
        .for_each(|slot| space.adopt_blank(slot.id));
    (space, found.bytes_read)
}
