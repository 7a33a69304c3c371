//! How fast a client sends a request, or takes an answer.
//!
//! A time in which all of it must be done would be too short for large ones on thin lines; a time in
//! which anything must move lets a byte now and then hold memory for ever. So: within the time, the
//! end or [`LEAST_BYTES`].

use std::time::Duration;

use crate::clock::{Clock, Sleep};

/// What has to move within the time, unless it is all there is.
pub(crate) const LEAST_BYTES: usize = 64 << 10;

/// Watches one direction of a connection. Costs a timer only where something has to be waited for.
pub(crate) struct Pace {
    time: Duration,
    moved_bytes: usize,
    /// When the time is over, from the first wait on.
    over: Option<Sleep>,
}

impl Pace {
    pub(crate) fn new(time_ms: u64) -> Pace {
        Pace {
            time: Duration::from_millis(time_ms),
            moved_bytes: 0,
            over: None,
        }
    }

    /// The request is whole, the answer is taken: the next has its own time.
    pub(crate) fn done(&mut self) {
        self.moved_bytes = 0;
        self.over = None;
    }

    /// So many bytes have come or gone.
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        if self.moved_bytes >= LEAST_BYTES {
            self.done();
        }
    }

    /// Ends when the time is over. To be waited for beside what moves bytes; what of the wait has
    /// passed counts on in the next call.
    pub(crate) async fn over(&mut self, clock: &dyn Clock) {
        let time = self.time;
        let over = self
            .over
            .get_or_insert_with(|| clock.sleep_until(clock.now() + time));
        over.as_mut().await;
    }
}
