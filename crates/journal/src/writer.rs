//! How does a group come to be, and where is it written?
//!
//! The thread that has the pen takes all that is queued and writes it with one call, each group after
//! the one before. Then it gives the pen back and syncs what it wrote (`turns`).
//!
//! In the weak modes a group of which nothing must be synced is told of when it is written, and
//! synced later with those that follow it. Until then the next group may begin on its last page:
//! what was confirmed is never written again, what was not may be lost with or without that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tidemark_disk::{DiskFile, OpenMode};
use tidemark_types::{JournalIndex, Tick};

use crate::frame::{
    FLAG_WEAK, FORMAT, FrameHeader, KIND_CLEAN_END, KIND_MARK, KIND_RECORD, PAGE, frame_bytes,
    group_bytes,
};
use crate::group::Group;
use crate::local::{Queued, Shared, State, Stop};
use crate::recover::Resume;
use crate::slot::{SlotFile, SlotHeader, records_end, write_header};
use crate::turns::{Failure, Flight, Landing, failure, hands};
use crate::{JournalEvent, SyncMode};

/// Largest group. More in one sync gains little and keeps the first records waiting.
const GROUP_BYTES_MAX: u64 = 8 << 20;

struct Current {
    slot: Arc<SlotFile>,
    /// The file, opened for each thread: only on a handle of its own does each sync hear of an error of
    /// what it was to write. An error is told once on a handle, perhaps to another's sync that ends
    /// first. (Shorter when a handle could not be had.)
    handles: Vec<Arc<dyn DiskFile>>,
    header: SlotHeader,
    /// Where the next group goes: a page, or the end of a group that is not synced.
    pos: u64,
}

/// The pen: who has it writes.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    current: Option<Current>,
    /// Taken from the queue, not yet written.
    todo: VecDeque<Queued>,
    group: Group,
    epoch: u32,
    /// What an earlier run may have lost is not made good yet, as of the last frame.
    unsettled: bool,
    /// Of the last record written.
    last_index: JournalIndex,
    last_tick: Tick,
    /// CRC of the last frame.
    chain: u32,
    /// LSN of the end of the last frame.
    end: u64,
    /// Everything below this LSN is synced; as of the last look.
    durable: u64,
    prev_use: u64,
    next_use: u64,
    next_lsn: u64,
    /// Since when something is written of which no sync has begun.
    unsynced_since: Option<Instant>,
    /// Nothing was written by this run: the next start would take the end before it for its own.
    first_of_run: bool,
    /// Something in the group that is built must be synced.
    group_must_sync: bool,
    ended_clean: bool,
}

/// What there is to do with the pen.
pub(crate) enum Work {
    Records,
    Sync,
    Mark,
    CleanEnd,
    End,
    Fail(String),
    /// Nothing, for so long unless something comes.
    Wait(Option<Duration>),
}

/// What became of a group.
pub(crate) enum Written {
    /// It is on its way to the disk, and counts when that is done.
    InFlight(Flight),
    /// It counts already, and is synced later.
    Told,
    /// Shut down while waiting for a slot.
    NoSlot,
}

enum Slot {
    Ready,
    /// Shut down while waiting for one.
    None,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        resume: Resume,
        epoch: u32,
        unsettled: bool,
        last_index: JournalIndex,
        last_tick: Tick,
    ) -> Writer {
        let ended_clean = resume.current.is_some();
        let current = resume.current.map(|(slot, header, pos)| Current {
            handles: handles(&shared, &slot),
            slot: Arc::new(slot),
            header,
            pos,
        });
        Writer {
            shared,
            current,
            todo: VecDeque::new(),
            group: Group::default(),
            epoch,
            unsettled,
            last_index,
            last_tick,
            chain: resume.chain,
            end: resume.prev_end,
            durable: resume.prev_end,
            prev_use: resume.prev_use,
            next_use: resume.next_use,
            next_lsn: resume.next_lsn,
            unsynced_since: None,
            first_of_run: true,
            group_must_sync: false,
            ended_clean,
        }
    }

    /// What there is to do.
    pub(crate) fn next_work(&mut self, state: &mut State) -> Work {
        self.durable = state.durable;
        self.todo.extend(state.queue.drain(..));
        if state.stop == Some(Stop::Abandon) {
            return Work::End;
        }
        if let Some(message) = state.failed.take() {
            return Work::Fail(message);
        }
        if state.in_flight.len() >= hands(self.shared.options.sync) {
            // The later one's sync may have ended first. With another behind it more would be
            // confirmed at once than the next frame's mark lets a start expect in doubt. Who lands
            // the earlier one looks again.
            return Work::Wait(None);
        }
        if !self.todo.is_empty() {
            return Work::Records;
        }
        let sync_wanted = state.sync_wanted > state.synced_index || state.stop.is_some();
        let due_in = self.sync_due_in();
        if self.unsynced_since.is_some() && (sync_wanted || due_in == Some(Duration::ZERO)) {
            return Work::Sync;
        }
        if !state.in_flight.is_empty() {
            // Who lands the last one looks again.
            return Work::Wait(None);
        }
        if state.stop == Some(Stop::Drain) {
            return Work::CleanEnd;
        }
        let mark_in = (state.unmarked_since)
            .filter(|_| self.unsynced_since.is_none())
            .map(|since| (self.shared.options.mark_after).saturating_sub(since.elapsed()));
        match due_in.or(mark_in) {
            Some(Duration::ZERO) => Work::Mark,
            wait => Work::Wait(wait),
        }
    }

    /// Records are left that did not fit into the group.
    pub(crate) fn has_more(&self) -> bool {
        !self.todo.is_empty()
    }

    /// How long what is written may still wait for its sync; `None` when nothing waits, or waits for
    /// no time.
    fn sync_due_in(&self) -> Option<Duration> {
        let since = self.unsynced_since?;
        match self.shared.options.sync {
            SyncMode::Interval(interval) => Some(interval.saturating_sub(since.elapsed())),
            SyncMode::Always | SyncMode::Os => None,
        }
    }

    /// Whether the group that is built is synced before anyone hears of it.
    fn syncs_group(&self) -> bool {
        self.shared.options.sync == SyncMode::Always
            || self.group_must_sync
            || self.first_of_run
            || self.sync_due_in() == Some(Duration::ZERO)
            || {
                let state = self.shared.state.lock();
                state.sync_wanted > state.synced_index
            }
    }

    /// Writes as much of `todo` as one group takes. `hand`: which thread will sync it.
    pub(crate) fn write_group(&mut self, hand: usize) -> Result<Written, Failure> {
        if self.build_group() == 0 {
            // What is in a slot is synced before the next one's header says where it ends.
            self.sync_written()?;
            if matches!(self.take_slot()?, Slot::None) {
                return Ok(Written::NoSlot);
            }
            let records = self.build_group();
            assert!(records > 0, "an admitted record fits into a new slot");
        }
        let written = |queued: &Queued| queued.request.index <= self.last_index;
        let records = self.todo.partition_point(written);
        let queued: u64 = self
            .todo
            .drain(..records)
            .map(|queued| group_bytes(queued.request.payload_bytes()))
            .sum();
        let syncs = self.syncs_group();
        let shared = Arc::clone(&self.shared);
        shared.groups.fetch_add(1, Relaxed);
        shared.records.fetch_add(records as u64, Relaxed);
        let bytes = self.write_built()?;
        self.first_of_run = false;
        self.ended_clean = false;
        shared.syncs.fetch_add(u64::from(syncs), Relaxed);
        shared.bytes.fetch_add(bytes, Relaxed);
        if syncs {
            return Ok(Written::InFlight(self.take_off(hand, queued, true)));
        }
        let (index, tick) = (self.last_index, self.last_tick);
        let mut state = shared.state.lock();
        state.space.dequeue(queued);
        (state.notices).push_back(JournalEvent::Written { index, tick });
        state.tell_of_space();
        Ok(Written::Told)
    }

    /// A sync of all that is written begins now: what comes next is on a fresh page, as confirmed bytes
    /// are never written again. `tells`: there are records in it that nobody was told are durable.
    pub(crate) fn take_off(&mut self, hand: usize, queued: u64, tells: bool) -> Flight {
        let current = self.current.as_mut().expect("something was written");
        current.pos = current.pos.next_multiple_of(PAGE);
        self.unsynced_since = None;
        Flight {
            handle: current.handles.get(hand).cloned(),
            slot: Arc::clone(&current.slot),
            pos: current.pos,
            landing: Landing {
                index: self.last_index,
                tick: self.last_tick,
                end: self.end,
                queued,
                tells,
                synced: false,
            },
        }
    }

    /// Makes everything that was written durable, and tells.
    fn sync_written(&mut self) -> Result<(), Failure> {
        let shared = Arc::clone(&self.shared);
        shared.wait_for_landings()?;
        if self.unsynced_since.is_some() {
            shared.syncs.fetch_add(1, Relaxed);
            let flight = self.take_off(0, 0, true);
            shared.fly(flight)?;
        }
        Ok(())
    }

    fn flags(&self) -> u16 {
        match self.shared.options.sync {
            SyncMode::Always if !self.unsettled => 0,
            _ => FLAG_WEAK,
        }
    }

    /// Frames of the first records of `todo` that fit; returns how many.
    fn build_group(&mut self) -> usize {
        self.group_must_sync = false;
        let Some(current) = &self.current else {
            return 0;
        };
        self.group.begin(current.pos);
        let room = records_end(current.slot.bytes).saturating_sub(current.pos);
        let mut records = 0;
        for Queued {
            request,
            payload_crc,
        } in &self.todo
        {
            let payload_len = request.payload_bytes();
            let end = self.group.bytes() + frame_bytes(payload_len);
            if end > room || (records > 0 && end > GROUP_BYTES_MAX) {
                break;
            }
            self.unsettled = request.unsettled;
            let header = FrameHeader {
                format: FORMAT,
                kind: KIND_RECORD,
                flags: self.flags(),
                prev_crc: self.chain,
                journal_id: current.header.journal_id,
                index: request.index,
                use_number: current.header.use_number,
                lsn: current.header.first_lsn + current.pos + self.group.bytes(),
                tick: request.tick,
                wall_ms: request.wall_ms,
                durable_mark: self.durable,
                epoch: current.header.epoch,
                payload_len: payload_len as u32,
            };
            self.chain = self.group.push(&header, &request.pieces, *payload_crc);
            self.last_index = request.index;
            self.last_tick = request.tick;
            self.group_must_sync |= request.must_sync;
            records += 1;
        }
        records
    }

    /// Writes what `group` holds; returns the bytes.
    fn write_built(&mut self) -> Result<u64, Failure> {
        let frames = self.group.bytes();
        self.group.finish();
        let current = self.current.as_mut().expect("a group is built in a slot");
        let (pos, bytes) = (current.pos, self.group.bytes());
        self.end = current.header.first_lsn + pos + self.group.frames_end();
        current.pos += frames;
        let wants_slot = {
            let mut state = self.shared.state.lock();
            (state.space).wrote(self.last_index, current.pos.next_multiple_of(PAGE));
            state.space.wants_slot()
        };
        if wants_slot {
            self.shared.preparer.notify_all();
        }
        let slot = &current.slot;
        let written = slot.file.write_vectored_at(&self.group.slices(), pos);
        written.map_err(|e| failure("write to", slot, pos, &e))?;
        self.unsynced_since.get_or_insert_with(Instant::now);
        Ok(bytes)
    }

    /// A frame without payload, in a group of its own.
    fn write_control(&mut self, kind: u8) -> Result<(), Failure> {
        let flags = self.flags();
        let Some(current) = &self.current else {
            return Ok(());
        };
        self.group.begin(current.pos);
        let header = FrameHeader {
            format: FORMAT,
            kind,
            flags,
            prev_crc: self.chain,
            journal_id: current.header.journal_id,
            index: self.last_index,
            use_number: current.header.use_number,
            lsn: current.header.first_lsn + current.pos,
            tick: self.last_tick,
            wall_ms: 0,
            durable_mark: self.durable,
            epoch: current.header.epoch,
            payload_len: 0,
        };
        self.chain = self.group.push(&header, &[], None);
        self.write_built()?;
        self.first_of_run = false;
        self.shared.other_syncs.fetch_add(1, Relaxed);
        let flight = self.take_off(0, 0, false);
        Arc::clone(&self.shared).fly(flight)
    }

    fn room(&self) -> u64 {
        self.current
            .as_ref()
            .map_or(0, |current| current.slot.bytes - current.pos)
    }

    /// Nothing is in flight.
    pub(crate) fn write_mark(&mut self) -> Result<(), Failure> {
        self.shared.state.lock().unmarked_since = None;
        // The last page is the clean end's.
        if self.room() >= 2 * PAGE {
            self.write_control(KIND_MARK)?;
        }
        Ok(())
    }

    /// Nothing is in flight.
    pub(crate) fn write_clean_end(&mut self) -> Result<(), Failure> {
        if !self.ended_clean && self.room() >= PAGE {
            self.write_control(KIND_CLEAN_END)?;
        }
        Ok(())
    }

    /// Goes on in a fresh slot; waits for one when there is none.
    fn take_slot(&mut self) -> Result<Slot, Failure> {
        let first_index = JournalIndex(self.last_index.0 + 1);
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        let slot = loop {
            shared.tell(&mut state);
            if state.writer_done {
                // The other thread failed meanwhile, and nobody prepares slots any more.
                return Err(Failure::Known);
            }
            if state.stop == Some(Stop::Abandon) {
                return Ok(Slot::None);
            }
            if let Some(message) = state.failed.take() {
                return Err(Failure::Message(message));
            }
            if let Some(slot) = state.space.take_free(first_index) {
                break slot;
            }
            if state.space.may_prepare() {
                shared.preparer.notify_all();
            } else {
                if state.stop == Some(Stop::Drain) {
                    return Ok(Slot::None);
                }
                if !std::mem::replace(&mut state.asked_for_checkpoint, true) {
                    state.notices.push_back(JournalEvent::NeedCheckpoint);
                    continue;
                }
            }
            shared.writer.wait(&mut state);
        };
        let needs_checkpoint = state.space.needs_checkpoint();
        state.asked_for_checkpoint |= needs_checkpoint;
        let released = state.space.released;
        drop(state);
        shared.preparer.notify_all();
        self.begin(slot, first_index, released)?;
        if needs_checkpoint {
            let mut state = shared.state.lock();
            state.notices.push_back(JournalEvent::NeedCheckpoint);
            shared.tell(&mut state);
        }
        Ok(Slot::Ready)
    }

    /// Writes and syncs the header of a new use.
    fn begin(
        &mut self,
        slot: SlotFile,
        first_index: JournalIndex,
        released: JournalIndex,
    ) -> Result<(), Failure> {
        let header = SlotHeader {
            journal_id: self.shared.options.journal_id,
            use_number: self.next_use,
            prev_use: self.prev_use,
            slot_bytes: slot.bytes,
            first_lsn: self.next_lsn,
            first_index,
            prev_end: self.end,
            released,
            highest_tick: self.last_tick,
            prev_crc: self.chain,
            epoch: self.epoch,
            flags: u32::from(self.flags()),
        };
        let crc = write_header(&*slot.file, &header);
        self.chain = crc.map_err(|e| failure("new header of", &slot, 0, &e))?;
        self.shared.other_syncs.fetch_add(1, Relaxed);
        self.prev_use = header.use_number;
        self.next_use += 1;
        self.next_lsn += slot.bytes;
        self.end = header.first_lsn + PAGE;
        self.durable = self.end;
        self.shared.state.lock().durable = self.durable;
        self.ended_clean = false;
        self.current = Some(Current {
            handles: handles(&self.shared, &slot),
            slot: Arc::new(slot),
            header,
            pos: PAGE,
        });
        Ok(())
    }
}

/// A handle for each thread. Where there is none to be had, a thread syncs with the pen in hand.
fn handles(shared: &Shared, slot: &SlotFile) -> Vec<Arc<dyn DiskFile>> {
    let another = |_| shared.disk.open(&slot.path, OpenMode::ReadWrite).ok();
    let more = (1..hands(shared.options.sync)).map_while(another);
    std::iter::once(Arc::clone(&slot.file))
        .chain(more)
        .collect()
}
