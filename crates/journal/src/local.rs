//! The journal of one broker on its own disk: the handle that the owner holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use tidemark_disk::Disk;
use tidemark_types::{JournalIndex, Tick};

use crate::frame::{crc_of_pieces, group_bytes};
use crate::slot::max_payload;
use crate::space::Space;
use crate::writer::Writer;
use crate::{
    Admission, After, AppendRequest, Journal, JournalEvent, JournalOptions, JournalStats, Recovery,
    Usage, prepare,
};

/// From this size on a payload's CRC is computed by who appends it, beside the writer's syncs. For
/// less, joining two CRCs (7 µs) costs more than it saves.
const CRC_BY_APPENDER_FROM: u64 = 512 << 10;

/// A record on its way to the writer.
pub(crate) struct Queued {
    pub request: AppendRequest,
    /// Of its payload, if that is large.
    pub payload_crc: Option<u32>,
}

/// How the journal ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Everything queued is made durable, then a clean end is written.
    Drain,
    /// As a kill would: what is queued is dropped.
    Abandon,
}

/// What the owner, the writer thread and the preparer thread share.
pub(crate) struct Shared {
    pub epoch: u32,
    pub options: JournalOptions,
    pub disk: Arc<dyn Disk>,
    pub state: Mutex<State>,
    /// The writer waits here when it has nothing to do or no slot.
    pub writer: Condvar,
    /// The preparer waits here.
    pub preparer: Condvar,
    pub groups: AtomicU64,
    pub syncs: AtomicU64,
    pub other_syncs: AtomicU64,
    pub bytes: AtomicU64,
    pub records: AtomicU64,
}

pub(crate) struct State {
    pub queue: VecDeque<Queued>,
    /// Of the last record appended.
    last_index: JournalIndex,
    last_tick: Tick,
    pub space: Space,
    /// Events of others than the writer, which it passes on.
    pub notices: VecDeque<JournalEvent>,
    pub stop: Option<Stop>,
    /// The writer thread has ended, in whatever way.
    pub writer_done: bool,
    /// The writer waits and must be woken for a record. While it writes it looks by itself.
    pub writer_idle: bool,
    /// Records up to here are to be synced as soon as may be.
    pub sync_wanted: JournalIndex,
    /// The preparer met what cannot be waited out: the journal stops.
    pub failed: Option<String>,
    /// `NeedCheckpoint` was sent since slots were last freed.
    pub asked_for_checkpoint: bool,
}

/// A running journal: a writer thread and a preparer thread. Dropping it without
/// [`LocalJournal::shutdown`] is like a kill: what is not confirmed may be lost.
pub struct LocalJournal {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Recovery {
    /// Starts the journal and returns at once: a new directory's first slot is prepared in the
    /// background while records queue. Events come on the writer's thread, so `events` must be
    /// quick and must not wait for the journal.
    pub fn start(self, events: Box<dyn FnMut(JournalEvent) + Send>) -> LocalJournal {
        let last_index = JournalIndex(self.next_index.0 - 1);
        let shared = Arc::new(Shared {
            epoch: self.epoch,
            options: self.options,
            disk: self.disk,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                last_index,
                last_tick: self.highest_tick,
                space: self.space,
                notices: VecDeque::new(),
                stop: None,
                writer_done: false,
                writer_idle: false,
                sync_wanted: JournalIndex(0),
                failed: None,
                asked_for_checkpoint: false,
            }),
            writer: Condvar::new(),
            preparer: Condvar::new(),
            groups: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            other_syncs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            records: AtomicU64::new(0),
        });
        let writer = Writer::new(
            Arc::clone(&shared),
            events,
            self.resume,
            self.epoch,
            self.may_have_lost,
            last_index,
            self.highest_tick,
        );
        let for_preparer = Arc::clone(&shared);
        let threads = vec![
            spawn("journal-prepare", move || prepare::run(&for_preparer)),
            spawn("journal-write", move || writer.run()),
        ];
        LocalJournal {
            shared,
            threads: Mutex::new(threads),
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new()
        .name(name.to_string())
        .spawn(run)
        .expect("without its threads a journal cannot be, and the process has just started")
}

impl LocalJournal {
    /// Makes everything queued durable, marks the end as clean and ends the threads. When no slot
    /// is left for what is queued, that is dropped (it was never confirmed). Safe to call twice.
    pub fn shutdown(&self) {
        self.stop(Stop::Drain);
    }

    /// How full the journal is.
    pub fn usage(&self) -> Usage {
        self.shared.state.lock().space.usage()
    }

    pub fn stats(&self) -> JournalStats {
        let shared = &self.shared;
        JournalStats {
            groups: shared.groups.load(Relaxed),
            syncs: shared.syncs.load(Relaxed),
            other_syncs: shared.other_syncs.load(Relaxed),
            bytes: shared.bytes.load(Relaxed),
            records: shared.records.load(Relaxed),
        }
    }

    fn stop(&self, how: Stop) {
        self.shared.state.lock().stop.get_or_insert(how);
        self.shared.writer.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The last handle may be dropped by an event, on the writer's own thread.
            if thread.thread().id() != thread::current().id() {
                // A panic in there has been reported by the thread itself.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for LocalJournal {
    fn drop(&mut self) {
        self.stop(Stop::Abandon);
    }
}

impl Journal for LocalJournal {
    fn append(&self, after: After, request: AppendRequest) {
        let payload_bytes = request.payload_bytes();
        assert!(
            payload_bytes <= self.max_record_bytes(),
            "record {} has {payload_bytes} bytes; the caller asks for max_record_bytes first",
            request.index
        );
        assert_eq!(after.epoch, self.shared.epoch, "there is one owner");
        let is_large = payload_bytes >= CRC_BY_APPENDER_FROM;
        let payload_crc = is_large.then(|| crc_of_pieces(&request.pieces));
        let mut state = self.shared.state.lock();
        // I1
        assert!(
            request.index.0 == state.last_index.0 + 1
                && after.tick >= state.last_tick
                && request.tick > after.tick,
            "record {} at tick {} does not follow record {} at tick {}",
            request.index,
            request.tick.0,
            state.last_index,
            state.last_tick.0
        );
        state.last_index = request.index;
        state.last_tick = request.tick;
        if state.writer_done || state.stop.is_some() {
            return;
        }
        state.space.enqueue(payload_bytes);
        state.queue.push_back(Queued {
            request,
            payload_crc,
        });
        if std::mem::take(&mut state.writer_idle) {
            drop(state);
            self.shared.writer.notify_all();
        }
    }

    fn release_below(&self, index: JournalIndex) {
        let mut state = self.shared.state.lock();
        let freed = state.space.release_below(index);
        state.asked_for_checkpoint &= !freed;
        let owes = state.space.owes_space_freed();
        if owes {
            state.notices.push_back(JournalEvent::SpaceFreed);
        }
        // On a full disk the preparer tries again when it is asked, and the writer waits for it.
        let asks = freed || owes || state.space.no_space;
        state.space.try_again |= asks;
        drop(state);
        if asks {
            self.shared.writer.notify_all();
            self.shared.preparer.notify_all();
        }
    }

    fn request_sync(&self, index: JournalIndex) {
        let mut state = self.shared.state.lock();
        state.sync_wanted = state.sync_wanted.max(index);
        drop(state);
        self.shared.writer.notify_all();
    }

    fn max_record_bytes(&self) -> u64 {
        max_payload(self.shared.options.slot_bytes)
    }

    fn has_space(&self, payload_bytes: u64, admission: Admission) -> bool {
        let mut state = self.shared.state.lock();
        let fits = state.space.has_space(payload_bytes, admission);
        if !fits && !std::mem::replace(&mut state.asked_for_checkpoint, true) {
            state.notices.push_back(JournalEvent::NeedCheckpoint);
            drop(state);
            self.shared.writer.notify_all();
        }
        fits
    }
}

impl State {
    /// Forgets what is queued; called when the journal has failed or is abandoned.
    pub(crate) fn drop_queue(&mut self) {
        let payloads = self
            .queue
            .iter()
            .map(|queued| queued.request.payload_bytes());
        let bytes = payloads.map(group_bytes);
        self.space.dequeue(bytes.sum());
        self.queue.clear();
    }
}
