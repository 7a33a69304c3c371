//! When is what was written synced and confirmed, and by which thread?
//!
//! With [`SyncMode::Always`] two threads take turns: one takes the pen, writes all that is queued, gives
//! the pen back and syncs. Meanwhile the other may write the next group and sync it: a disk does two
//! syncs in less than twice the time of one, and what must be done before a write and after a sync costs
//! the disk nothing. What comes while both are in flight gathers for the group after, also while the
//! later one has landed and the earlier has not.
//!
//! A group counts when its own sync has ended and those of all groups before it ([`Shared::land`]): a
//! later group whose sync ends first waits for the earlier. No frame says that a group was synced before
//! that is so, so that after a power cut a later group without the one before it is a torn end.
//!
//! After a failed write or sync the journal stops for good: a second sync could succeed without having
//! written anything. From then on nothing is confirmed, whatever the other's sync says.
//!
//! Events are told in order by one thread at a time, whichever comes first ([`Shared::tell`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use parking_lot::MutexGuard;
use tidemark_disk::DiskFile;
use tidemark_types::{JournalIndex, Tick};

use crate::local::{Shared, State};
use crate::slot::SlotFile;
use crate::writer::{Work, Writer, Written};
use crate::{JournalEvent, SyncMode};

/// Threads with [`SyncMode::Always`]. In the other modes, in which syncs are rare, there is one.
const HANDS: usize = 2;

/// What was written and is to be synced now.
pub(crate) struct Flight {
    /// A handle that no other sync uses; `None`: this thread has none.
    pub handle: Option<Arc<dyn DiskFile>>,
    pub slot: Arc<SlotFile>,
    pub pos: u64,
    pub landing: Landing,
}

/// What a flight means once it and all before it have landed.
pub(crate) struct Landing {
    /// The last record in it or before it.
    pub index: JournalIndex,
    pub tick: Tick,
    /// LSN of its end.
    pub end: u64,
    /// What is queued is so much less then.
    pub queued: u64,
    /// Its records are to be confirmed.
    pub tells: bool,
    /// Its own sync has succeeded.
    pub synced: bool,
}

impl Flight {
    /// Counts as in flight from here on; returns what to sync, and the end to land with.
    fn launch(self, state: &mut State) -> (ToSync, u64) {
        let end = self.landing.end;
        state.in_flight.push_back(self.landing);
        let Flight {
            handle, slot, pos, ..
        } = self;
        (ToSync { handle, slot, pos }, end)
    }
}

struct ToSync {
    handle: Option<Arc<dyn DiskFile>>,
    slot: Arc<SlotFile>,
    pos: u64,
}

impl ToSync {
    fn sync(&self) -> Result<(), Failure> {
        let file = self.handle.as_ref().unwrap_or(&self.slot.file);
        (file.sync_data()).map_err(|e| failure("sync of", &self.slot, self.pos, &e))
    }
}

/// The journal cannot go on.
pub(crate) enum Failure {
    /// What to tell the owner.
    Message(String),
    /// It has been told.
    Known,
}

pub(crate) fn failure(what: &str, slot: &SlotFile, pos: u64, e: &io::Error) -> Failure {
    Failure::Message(format!(
        "journal: {what} {} at position {pos} failed: {e}. The journal has stopped: what was not \
         acknowledged is not durable, and no more is accepted. Check the disk (the kernel log says \
         more), then start again: every acknowledged record is kept",
        slot.path.display()
    ))
}

/// How many threads take turns.
pub(crate) fn hands(sync: SyncMode) -> usize {
    match sync {
        SyncMode::Always => HANDS,
        SyncMode::Interval(_) | SyncMode::Os => 1,
    }
}

/// A writer thread, the `hand`-th of [`hands`].
pub(crate) fn run(shared: &Shared, hand: usize) {
    let _at_the_end = AtTheEnd(shared);
    match take_turns(shared, hand) {
        Ok(()) => shared.end(None),
        Err(Failure::Known) => {}
        Err(Failure::Message(message)) => {
            tracing::error!("{message}");
            shared.end(Some(message));
        }
    }
}

fn take_turns(shared: &Shared, hand: usize) -> Result<(), Failure> {
    while let Some((mut pen, work)) = shared.next_turn() {
        let flight = match work {
            Work::Records => match pen.write_group(hand)? {
                Written::InFlight(flight) => Some(flight),
                Written::Told => None,
                Written::NoSlot => return Ok(()),
            },
            Work::Sync => {
                shared.syncs.fetch_add(1, Relaxed);
                Some(pen.take_off(hand, 0, true))
            }
            Work::Mark => {
                pen.write_mark()?;
                None
            }
            Work::CleanEnd => return pen.write_clean_end(),
            Work::Fail(message) => return Err(Failure::Message(message)),
            Work::End | Work::Wait(_) => return Ok(()),
        };
        match flight {
            None => shared.put_back(shared.state.lock(), pen),
            Some(flight) if flight.handle.is_none() => {
                shared.wait_for_landings()?;
                shared.fly(flight)?;
                shared.put_back(shared.state.lock(), pen);
            }
            Some(flight) => {
                let mut state = shared.state.lock();
                let (to_sync, end) = flight.launch(&mut state);
                shared.put_back(state, pen);
                to_sync.sync()?;
                shared.land(end);
            }
        }
    }
    Ok(())
}

impl Shared {
    /// Waits for the pen and something to do with it; `None` when the journal has ended.
    fn next_turn(&self) -> Option<(Box<Writer>, Work)> {
        let mut state = self.state.lock();
        loop {
            self.tell(&mut state);
            if state.writer_done {
                return None;
            }
            let mut timeout = None;
            if let Some(mut pen) = state.pen.take() {
                match pen.next_work(&mut state) {
                    Work::Wait(wait) => timeout = wait,
                    work => return Some((pen, work)),
                }
                state.pen = Some(pen);
            }
            state.idle_writers += 1;
            match timeout {
                Some(timeout) => {
                    self.writer.wait_for(&mut state, timeout);
                }
                None => self.writer.wait(&mut state),
            }
            state.idle_writers -= 1;
            state.writer_woken = false;
        }
    }

    /// Gives the pen back, to the other thread if there is more to write.
    fn put_back(&self, mut state: MutexGuard<'_, State>, pen: Box<Writer>) {
        let more = pen.has_more() || !state.queue.is_empty();
        state.pen = Some(pen);
        if more && state.wakes_writer() {
            self.writer.notify_one();
        }
    }

    /// Syncs with the pen in hand, while nothing else is in flight.
    pub(crate) fn fly(&self, flight: Flight) -> Result<(), Failure> {
        let (to_sync, end) = flight.launch(&mut self.state.lock());
        to_sync.sync()?;
        self.land(end);
        Ok(())
    }

    /// The sync of what ends at `end` has succeeded: it counts, and so does what was waiting for it.
    fn land(&self, end: u64) {
        let mut state = self.state.lock();
        let flight = state.in_flight.iter_mut().find(|flight| flight.end == end);
        flight.expect("it was launched and has not landed").synced = true;
        if state.writer_done {
            return;
        }
        let mut confirmed = None;
        while state.in_flight.front().is_some_and(|front| front.synced) {
            let Some(landed) = state.in_flight.pop_front() else {
                break;
            };
            state.durable = landed.end;
            state.synced_index = landed.index;
            state.space.dequeue(landed.queued);
            if landed.tells {
                confirmed = Some((landed.index, landed.tick));
            }
        }
        if let Some((index, tick)) = confirmed {
            state.unmarked_since = Some(Instant::now());
            (state.notices).push_back(JournalEvent::Confirmed { index, tick });
            state.tell_of_space();
        }
        if state.in_flight.is_empty() && state.landing_awaited {
            self.landed.notify_all();
        }
        self.tell(&mut state);
    }

    /// With the pen in hand: nothing is in flight afterwards.
    pub(crate) fn wait_for_landings(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        while !state.in_flight.is_empty() && !state.writer_done {
            state.landing_awaited = true;
            self.landed.wait(&mut state);
        }
        state.landing_awaited = false;
        match state.writer_done {
            true => Err(Failure::Known),
            false => Ok(()),
        }
    }

    /// Tells what is to be told, unless the other thread is at it: that one tells this too.
    pub(crate) fn tell(&self, state: &mut MutexGuard<'_, State>) {
        if state.notices.is_empty() {
            return;
        }
        let Some(mut events) = state.events.take() else {
            return;
        };
        while let Some(event) = state.notices.pop_front() {
            let is_last = matches!(event, JournalEvent::Failed { .. });
            // A panic in there drops it in there, without the lock.
            let kept = MutexGuard::unlocked(state, move || {
                events(event);
                (!is_last).then_some(events)
            });
            match kept {
                Some(kept) => events = kept,
                None => return,
            }
        }
        state.events = Some(events);
    }

    /// Nothing is written or confirmed from here on; `failure` is told, last of all.
    fn end(&self, failure: Option<String>) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.writer_done, true) {
            state.drop_queue();
            let failed = failure.map(|message| JournalEvent::Failed { message });
            state.notices.extend(failed);
        }
        self.preparer.notify_all();
        self.writer.notify_all();
        self.landed.notify_all();
        self.tell(&mut state);
    }
}

/// What a writer thread does last.
struct AtTheEnd<'a>(&'a Shared);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The pen may be gone with it, and then nothing is ever written again.
            let what = "journal: its writer panicked (see above); what was acknowledged is on disk, a \
                        restart replays it";
            self.0.end(Some(what.to_string()));
        }
        let mut state = self.0.state.lock();
        state.writers -= 1;
        let left = match state.writers {
            0 => (state.events.take(), state.pen.take()),
            _ => (None, None),
        };
        drop(state);
        // Whoever listens hears that nothing more comes.
        drop(left);
    }
}
