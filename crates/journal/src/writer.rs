//! When is what written, synced and confirmed?
//!
//! One thread takes all that is queued, writes it with one call, syncs once, confirms, and looks
//! again; meanwhile the next group gathers. It waits only when nothing is queued. After a failed
//! write or sync it stops for good: a second sync could succeed without having written anything.
//!
//! In the weak modes a group of which nothing must be synced is told of when it is written, and
//! synced later with those that follow it. Until then the next group may begin on its last page:
//! what was confirmed is never written again, what was not may be lost with or without that.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use tidemark_types::{JournalIndex, Tick};

use crate::frame::{
    FLAG_WEAK, FORMAT, FrameHeader, KIND_CLEAN_END, KIND_MARK, KIND_RECORD, PAGE, frame_bytes,
    group_bytes,
};
use crate::group::Group;
use crate::local::{Queued, Shared, State, Stop};
use crate::recover::Resume;
use crate::slot::{SlotFile, SlotHeader, records_end, write_header};
use crate::{JournalEvent, SyncMode};

/// Largest group. More in one sync gains little and keeps the first records waiting.
const GROUP_BYTES_MAX: u64 = 8 << 20;

struct Current {
    slot: SlotFile,
    header: SlotHeader,
    /// Where the next group goes: a page, or the end of a group that is not synced.
    pos: u64,
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    events: Box<dyn FnMut(JournalEvent) + Send>,
    current: Option<Current>,
    /// Taken from the queue, not yet written.
    todo: VecDeque<Queued>,
    group: Group,
    epoch: u32,
    /// What an earlier run may have lost is not made good yet, as of the last frame.
    unsettled: bool,
    /// The last record that is synced.
    synced_index: JournalIndex,
    /// Of the last record written.
    last_index: JournalIndex,
    last_tick: Tick,
    /// CRC of the last frame.
    chain: u32,
    /// LSN of the end of the last frame.
    end: u64,
    /// Everything below this LSN is synced.
    durable: u64,
    prev_use: u64,
    next_use: u64,
    next_lsn: u64,
    /// A group was synced and no frame says so yet.
    unmarked: bool,
    /// Since when something is written and not synced.
    unsynced_since: Option<Instant>,
    /// Nothing was written by this run: the next start would take the end before it for its own.
    first_of_run: bool,
    /// Something in the group that is built must be synced.
    group_must_sync: bool,
    ended_clean: bool,
}

/// The journal cannot go on: what to tell the owner.
struct Failure(String);

enum Work {
    Records,
    Sync,
    Mark,
    CleanEnd,
    Nothing,
    Fail(String),
}

enum Slot {
    Ready,
    /// Shut down while waiting for one.
    None,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        events: Box<dyn FnMut(JournalEvent) + Send>,
        resume: Resume,
        epoch: u32,
        unsettled: bool,
        last_index: JournalIndex,
        last_tick: Tick,
    ) -> Writer {
        let ended_clean = resume.current.is_some();
        let current = resume
            .current
            .map(|(slot, header, pos)| Current { slot, header, pos });
        Writer {
            shared,
            events,
            current,
            todo: VecDeque::new(),
            group: Group::default(),
            epoch,
            unsettled,
            last_index,
            last_tick,
            synced_index: last_index,
            chain: resume.chain,
            end: resume.prev_end,
            durable: resume.prev_end,
            prev_use: resume.prev_use,
            next_use: resume.next_use,
            next_lsn: resume.next_lsn,
            unmarked: false,
            unsynced_since: None,
            first_of_run: true,
            group_must_sync: false,
            ended_clean,
        }
    }

    /// The writer thread.
    pub(crate) fn run(mut self) {
        // Nobody else can have this disk's journal.
        (self.events)(JournalEvent::Owner {
            epoch: self.epoch,
            floor: self.last_tick,
        });
        (self.events)(JournalEvent::Lease { until: None });
        let ended = self.write_until_stopped();
        let mut state = self.shared.state.lock();
        state.writer_done = true;
        state.drop_queue();
        drop(state);
        self.shared.preparer.notify_all();
        if let Err(Failure(message)) = ended {
            tracing::error!("{message}");
            (self.events)(JournalEvent::Failed { message });
        }
    }

    fn write_until_stopped(&mut self) -> Result<(), Failure> {
        loop {
            match self.next_work() {
                Work::Records => {
                    if matches!(self.write_group()?, Slot::None) {
                        return Ok(());
                    }
                }
                Work::Sync => self.sync_written()?,
                Work::Mark => self.write_mark()?,
                Work::CleanEnd => return self.write_clean_end(),
                Work::Nothing => return Ok(()),
                Work::Fail(message) => return Err(Failure(message)),
            }
        }
    }

    /// Waits for something to do.
    fn next_work(&mut self) -> Work {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        loop {
            self.pass_on_notices(&mut state);
            self.todo.extend(state.queue.drain(..));
            if state.stop == Some(Stop::Abandon) {
                return Work::Nothing;
            }
            if let Some(message) = state.failed.take() {
                return Work::Fail(message);
            }
            if !self.todo.is_empty() {
                return Work::Records;
            }
            let sync_wanted = state.sync_wanted > self.synced_index || state.stop.is_some();
            let due_in = self.sync_due_in();
            if self.unsynced_since.is_some() && (sync_wanted || due_in == Some(Duration::ZERO)) {
                return Work::Sync;
            }
            if state.stop == Some(Stop::Drain) {
                return Work::CleanEnd;
            }
            state.writer_idle = true;
            let mark_in = (self.unmarked && self.unsynced_since.is_none())
                .then_some(shared.options.mark_after);
            match due_in.or(mark_in) {
                None => shared.writer.wait(&mut state),
                Some(timeout) => {
                    let waited = shared.writer.wait_for(&mut state, timeout);
                    let nothing_else = state.queue.is_empty() && state.stop.is_none();
                    if waited.timed_out() && due_in.is_none() && nothing_else {
                        state.writer_idle = false;
                        return Work::Mark;
                    }
                }
            }
            state.writer_idle = false;
        }
    }

    fn pass_on_notices(&mut self, state: &mut MutexGuard<'_, State>) {
        while let Some(event) = state.notices.pop_front() {
            MutexGuard::unlocked(state, || (self.events)(event));
        }
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
            || self.shared.state.lock().sync_wanted > self.synced_index
    }

    /// Writes, syncs and confirms as much of `todo` as one group takes.
    fn write_group(&mut self) -> Result<Slot, Failure> {
        if self.build_group() == 0 {
            // What is in a slot is synced before the next one's header says where it ends.
            self.sync_written()?;
            if matches!(self.take_slot()?, Slot::None) {
                return Ok(Slot::None);
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
        let bytes = self.write_built(syncs)?;
        self.first_of_run = false;
        let shared = &self.shared;
        shared.groups.fetch_add(1, Relaxed);
        shared.syncs.fetch_add(u64::from(syncs), Relaxed);
        shared.bytes.fetch_add(bytes, Relaxed);
        shared.records.fetch_add(records as u64, Relaxed);
        let space_freed = {
            let mut state = shared.state.lock();
            state.space.dequeue(queued);
            state.space.owes_space_freed()
        };
        self.ended_clean = false;
        let (index, tick) = (self.last_index, self.last_tick);
        if syncs {
            self.unmarked = true;
            (self.events)(JournalEvent::Confirmed { index, tick });
        } else {
            (self.events)(JournalEvent::Written { index, tick });
        }
        if space_freed {
            (self.events)(JournalEvent::SpaceFreed);
        }
        Ok(Slot::Ready)
    }

    /// Makes what was written durable, and tells.
    fn sync_written(&mut self) -> Result<(), Failure> {
        if self.unsynced_since.is_none() {
            return Ok(());
        }
        self.sync_current()?;
        self.shared.syncs.fetch_add(1, Relaxed);
        self.unmarked = true;
        (self.events)(JournalEvent::Confirmed {
            index: self.last_index,
            tick: self.last_tick,
        });
        Ok(())
    }

    fn sync_current(&mut self) -> Result<(), Failure> {
        if let Some(current) = &mut self.current {
            let synced = current.slot.file.sync_data();
            synced.map_err(|e| failure("sync of", &current.slot, current.pos, &e))?;
            // Confirmed bytes are never written again.
            current.pos = current.pos.next_multiple_of(PAGE);
        }
        self.durable = self.end;
        self.synced_index = self.last_index;
        self.unsynced_since = None;
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

    /// Puts what `group` holds on the disk; returns the bytes.
    fn write_built(&mut self, sync: bool) -> Result<u64, Failure> {
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
        if sync {
            self.sync_current()?;
        }
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
        self.write_built(true)?;
        self.first_of_run = false;
        self.shared.other_syncs.fetch_add(1, Relaxed);
        Ok(())
    }

    fn room(&self) -> u64 {
        self.current
            .as_ref()
            .map_or(0, |current| current.slot.bytes - current.pos)
    }

    fn write_mark(&mut self) -> Result<(), Failure> {
        self.unmarked = false;
        // The last page is the clean end's.
        if self.room() >= 2 * PAGE {
            self.write_control(KIND_MARK)?;
        }
        Ok(())
    }

    fn write_clean_end(&mut self) -> Result<(), Failure> {
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
            self.pass_on_notices(&mut state);
            if state.stop == Some(Stop::Abandon) {
                return Ok(Slot::None);
            }
            if let Some(message) = state.failed.take() {
                return Err(Failure(message));
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
                    MutexGuard::unlocked(&mut state, || {
                        (self.events)(JournalEvent::NeedCheckpoint);
                    });
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
            (self.events)(JournalEvent::NeedCheckpoint);
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
        self.ended_clean = false;
        self.current = Some(Current {
            slot,
            header,
            pos: PAGE,
        });
        Ok(())
    }
}

fn failure(what: &str, slot: &SlotFile, pos: u64, e: &io::Error) -> Failure {
    Failure(format!(
        "journal: {what} {} at position {pos} failed: {e}. The journal has stopped: what was not \
         acknowledged is not durable, and no more is accepted. Check the disk (the kernel log says \
         more), then start again: every acknowledged record is kept",
        slot.path.display()
    ))
}
