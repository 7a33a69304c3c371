//! Admission: before a batch is decided there is room for it in the journal and in the tail.
//!
//! Past this point nothing is refused for lack of space. Whoever waits here holds up its own
//! connection only, in order; ends of transactions, offsets and deletions do not pass through here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Waits until the tail is below its budget and the journal has room.
pub struct Admission {
    tail_bytes: Arc<AtomicU64>,
    tail_budget_bytes: u64,
    journal_has_room: Box<dyn Fn() -> bool + Send + Sync>,
    room: Notify,
    /// Asks maintenance to make room.
    pressure: Box<dyn Fn() + Send + Sync>,
}

impl Admission {
    pub fn new(
        tail_bytes: Arc<AtomicU64>,
        tail_budget_bytes: u64,
        journal_has_room: Box<dyn Fn() -> bool + Send + Sync>,
        pressure: Box<dyn Fn() + Send + Sync>,
    ) -> Admission {
        Admission {
            tail_bytes,
            tail_budget_bytes,
            journal_has_room,
            room: Notify::new(),
            pressure,
        }
    }

    /// Returns when there is room for more data.
    pub async fn admit(&self) {
        loop {
            let notified = self.room.notified();
            tokio::pin!(notified);
            // Registered before the look: room made in between is not missed.
            notified.as_mut().enable();
            if self.has_room() {
                return;
            }
            (self.pressure)();
            notified.await;
        }
    }

    /// Maintenance made room.
    pub fn room_made(&self) {
        self.room.notify_waiters();
    }

    fn has_room(&self) -> bool {
        self.tail_bytes.load(Ordering::Relaxed) < self.tail_budget_bytes
            && (self.journal_has_room)()
    }
}
