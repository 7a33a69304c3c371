//! The clock seam. Everything that waits or stamps takes the time from here, so that tests turn it
//! by hand.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidemark_types::MonoTime;

/// A future that ends at a deadline.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Monotonic time for deadlines, wall time for stamps that people read.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> MonoTime;

    /// Milliseconds since 1970. It may step either way.
    fn wall_ms(&self) -> i64;

    /// How long a thread may block before `deadline`; `None` when only a wake-up through
    /// [`Clock::on_advance`] can bring the deadline nearer (a manual clock).
    fn block_for(&self, deadline: MonoTime) -> Option<Duration>;

    /// Ends when `now()` has reached `deadline`.
    fn sleep_until(&self, deadline: MonoTime) -> Sleep;

    /// `wake` is called after each jump of a clock that is turned by hand.
    fn on_advance(&self, wake: Arc<dyn Fn() + Send + Sync>);
}

/// The operating system's clocks.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub fn new() -> SystemClock {
        SystemClock {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> MonoTime {
        MonoTime::ZERO + self.start.elapsed()
    }

    fn wall_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(d) => i64::try_from(d.as_millis()).unwrap_or(i64::MAX),
            Err(_) => 0,
        }
    }

    fn block_for(&self, deadline: MonoTime) -> Option<Duration> {
        Some(deadline.since(self.now()))
    }

    fn sleep_until(&self, deadline: MonoTime) -> Sleep {
        Box::pin(tokio::time::sleep(deadline.since(self.now())))
    }

    fn on_advance(&self, _wake: Arc<dyn Fn() + Send + Sync>) {}
}

/// Where random values come from: topic ids, member ids, the cluster id of a new directory.
pub trait Entropy: Send + Sync + 'static {
    fn uuid(&self) -> [u8; 16];
}

/// The operating system's randomness.
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn uuid(&self) -> [u8; 16] {
        *uuid::Uuid::new_v4().as_bytes()
    }
}
