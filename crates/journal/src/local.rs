//! The journal of one broker on its own disk: the handle that the owner holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tidemark_disk::Disk;
use tidemark_types::{JournalIndex, Tick};

use crate::frame::{crc_of_pieces, group_bytes};
use crate::slot::max_payload;
use crate::space::Space;
use crate::turns::{self, Landing};
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

/// What the owner, the writer threads and the preparer thread share.
pub(crate) struct Shared {
    pub epoch: u32,
    pub options: JournalOptions,
    pub disk: Arc<dyn Disk>,
    pub state: Mutex<State>,
    /// Writers wait here when they have nothing to do or no slot.
    pub writer: Condvar,
    /// The one with the pen waits here for what is in flight.
    pub landed: Condvar,
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
    /// `None` while a writer thread has it.
    pub pen: Option<Box<Writer>>,
    /// What was written and is being synced, oldest first.
    pub in_flight: VecDeque<Landing>,
    /// Everything below this LSN is synced.
    pub durable: u64,
    /// The last record that is.
    pub synced_index: JournalIndex,
    /// Since when something is synced and no frame says so.
    pub unmarked_since: Option<Instant>,
    /// Events to be told, in order.
    pub notices: VecDeque<JournalEvent>,
    /// Whom they are told; `None` while a writer thread is telling, and after the end.
    pub events: Option<Box<dyn FnMut(JournalEvent) + Send>>,
    pub stop: Option<Stop>,
    /// Nothing is confirmed any more, for whatever reason, and no writer begins another group; one
    /// that is being written may still reach the disk.
    pub writer_done: bool,
    /// Writer threads that have not ended.
    pub writers: usize,
    /// Those that wait and must be woken for a record. The others look by themselves.
    pub idle_writers: usize,
    /// One was woken and has not looked yet.
    pub writer_woken: bool,
    pub landing_awaited: bool,
    /// Records up to here are to be synced as soon as may be.
    pub sync_wanted: JournalIndex,
    /// The preparer met what cannot be waited out: the journal stops.
    pub failed: Option<String>,
    /// `NeedCheckpoint` was sent since slots were last freed.
    pub asked_for_checkpoint: bool,
}

/// A running journal: its writer threads and a preparer thread. Dropping it without
/// [`LocalJournal::shutdown`] is like a kill: what is not confirmed may be lost.
pub struct LocalJournal {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Recovery {
    /// Starts the journal and returns at once: a new directory's first slot is prepared in the
    /// background while records queue. Events come on a writer's thread, so `events` must be
    /// quick and must not wait for the journal.
    pub fn start(self, events: Box<dyn FnMut(JournalEvent) + Send>) -> LocalJournal {
        let last_index = JournalIndex(self.next_index.0 - 1);
        let hands = turns::hands(self.options.sync);
        // Nobody else can have this disk's journal.
        let owner = JournalEvent::Owner {
            epoch: self.epoch,
            floor: self.highest_tick,
        };
        let shared = Arc::new(Shared {
            epoch: self.epoch,
            options: self.options,
            disk: self.disk,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                last_index,
                last_tick: self.highest_tick,
                space: self.space,
                pen: None,
                in_flight: VecDeque::new(),
                durable: self.resume.prev_end,
                synced_index: last_index,
                unmarked_since: None,
                notices: VecDeque::from([owner, JournalEvent::Lease { until: None }]),
                events: Some(events),
                stop: None,
                writer_done: false,
                writers: hands,
                idle_writers: 0,
                writer_woken: false,
                landing_awaited: false,
                sync_wanted: JournalIndex(0),
                failed: None,
                asked_for_checkpoint: false,
            }),
            writer: Condvar::new(),
            landed: Condvar::new(),
            preparer: Condvar::new(),
            groups: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            other_syncs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            records: AtomicU64::new(0),
        });
        let writer = Writer::new(
            Arc::clone(&shared),
            self.resume,
            self.epoch,
            self.may_have_lost,
            last_index,
            self.highest_tick,
        );
        shared.state.lock().pen = Some(Box::new(writer));
        let for_preparer = Arc::clone(&shared);
        let mut threads = vec![spawn("journal-prepare", move || {
            prepare::run(&for_preparer)
        })];
        threads.extend((0..hands).map(|hand| {
            let shared = Arc::clone(&shared);
            spawn("journal-write", move || turns::run(&shared, hand))
        }));
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
        let threads = std::mem::take(&mut *self.threads.lock());
        // The last handle may be dropped by an event, on a thread of the journal's own: the others may
        // wait for what that one does next.
        let own = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        if threads.iter().any(own) {
            return;
        }
        for thread in threads {
            // A panic in there has been reported by the thread itself.
            let _ = thread.join();
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
        if state.wakes_writer() {
            // Under the lock: the pen is there, so that nobody waits with it for a slot, and the one
            // that is woken is one that waits for records.
            self.shared.writer.notify_one();
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
    /// Whether a writer is to be woken for what was queued: one waits, and the pen is there for it.
    pub(crate) fn wakes_writer(&mut self) -> bool {
        let wakes = self.idle_writers > 0 && self.pen.is_some() && !self.writer_woken;
        self.writer_woken |= wakes;
        wakes
    }

    /// Has `SpaceFreed` told if it is owed.
    pub(crate) fn tell_of_space(&mut self) {
        if self.space.owes_space_freed() {
            self.notices.push_back(JournalEvent::SpaceFreed);
        }
    }

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
