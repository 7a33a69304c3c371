//! Admission: before a command is decided there is room for what it will write.
//!
//! Past this point nothing is refused for lack of space, so room is *reserved* here: what is on its
//! way to the journal counts as well as what is in it. Whoever waits holds up its own connection
//! only, in order. Data waits for the tail and for the journal's ordinary space; everything else
//! (ends of transactions, offsets, deletions) may also take the journal's reserve, so that a full
//! journal can still be relieved.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidemark_journal::{Admission as Space, Journal};
use tokio::sync::Notify;

/// What a command without data may write at most, before its own size is known: states, offsets
/// and markers are far smaller.
const SMALL_BYTES: u64 = 64 << 10;

/// Room that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Batches of clients, with their bytes.
    Data(u64),
    /// Anything else that may be written.
    Control,
}

/// Waits until the tail is below its budget and the journal has room, and reserves it.
pub struct Admission {
    tail_bytes: Arc<AtomicU64>,
    tail_budget_bytes: u64,
    journal: Arc<dyn Journal>,
    /// Bytes of commands that were admitted and are not in the journal's queue yet.
    reserved: Mutex<u64>,
    room: Notify,
    waiting: AtomicUsize,
    /// Asks maintenance to make room.
    pressure: Box<dyn Fn() + Send + Sync>,
}

/// Room that is kept until the command's record is in the journal's queue, where it counts itself.
pub struct Reservation {
    admission: Arc<Admission>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.admission.reserved.lock() -= self.bytes;
    }
}

/// Counts as waiting until it is dropped, also when the connection goes away meanwhile.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn count(waiting: &'a AtomicUsize) -> Waiting<'a> {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    pub fn new(
        tail_bytes: Arc<AtomicU64>,
        tail_budget_bytes: u64,
        journal: Arc<dyn Journal>,
        pressure: Box<dyn Fn() + Send + Sync>,
    ) -> Admission {
        Admission {
            tail_bytes,
            tail_budget_bytes,
            journal,
            reserved: Mutex::new(0),
            room: Notify::new(),
            waiting: AtomicUsize::new(0),
            pressure,
        }
    }

    /// Waits for room, until `give_up` ends: then nothing was reserved and `None` is returned.
    pub async fn admit(
        self: &Arc<Self>,
        wants: Wants,
        give_up: impl Future<Output = ()>,
    ) -> Option<Reservation> {
        if let Some(reservation) = self.try_reserve(wants) {
            return Some(reservation);
        }
        let _counted = Waiting::count(&self.waiting);
        tokio::select! {
            reservation = self.wait(wants) => Some(reservation),
            () = give_up => None,
        }
    }

    /// Somebody waits for room.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    async fn wait(self: &Arc<Self>, wants: Wants) -> Reservation {
        loop {
            let notified = self.room.notified();
            tokio::pin!(notified);
            // Registered before the look: room made in between is not missed.
            notified.as_mut().enable();
            if let Some(reservation) = self.try_reserve(wants) {
                return reservation;
            }
            (self.pressure)();
            notified.await;
        }
    }

    fn try_reserve(self: &Arc<Self>, wants: Wants) -> Option<Reservation> {
        let (bytes, space) = match wants {
            Wants::Data(bytes) => (bytes, Space::Ordinary),
            Wants::Control => (
                SMALL_BYTES.min(self.journal.max_record_bytes()),
                Space::Reserved,
            ),
        };
        // Look and reservation are one step under the lock.
        let mut reserved = self.reserved.lock();
        if matches!(wants, Wants::Data(_)) {
            let tail = self.tail_bytes.load(Ordering::Relaxed) + *reserved;
            // A tail that is empty takes any batch, however small its budget.
            if tail > 0 && tail + bytes > self.tail_budget_bytes {
                return None;
            }
        }
        if !self.journal.has_space(*reserved + bytes, space) {
            return None;
        }
        *reserved += bytes;
        drop(reserved);
        Some(Reservation {
            admission: self.clone(),
            bytes,
        })
    }

    /// Maintenance, or the journal, made room.
    pub fn room_made(&self) {
        self.room.notify_waiters();
    }
}
