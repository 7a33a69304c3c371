//! A clock that only moves when a test moves it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidemark_broker::{Clock, Sleep};
use tidemark_types::MonoTime;
use tokio::sync::watch;

/// Wall time of a new [`ManualClock`], in milliseconds since 1970.
pub const WALL_START_MS: i64 = 1_750_000_000_000;

/// Monotonic and wall time, moved independently of each other.
pub struct ManualClock {
    now: watch::Sender<MonoTime>,
    wall_ms: Mutex<i64>,
    wakers: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

impl ManualClock {
    /// A clock at some monotonic time, and at `wall_ms` by the wall clock.
    pub fn new(wall_ms: i64) -> Arc<ManualClock> {
        Arc::new(ManualClock {
            now: watch::Sender::new(MonoTime::from_ms(1_000_000)),
            wall_ms: Mutex::new(wall_ms),
            wakers: Mutex::default(),
        })
    }

    /// Moves both clocks on and wakes what waited for it.
    pub fn advance(&self, by: Duration) {
        let by_ms = i64::try_from(by.as_millis()).expect("a test's time fits");
        *self.wall_ms.lock() += by_ms;
        self.now.send_modify(|now| *now = *now + by);
        for wake in self.wakers.lock().iter() {
            wake();
        }
    }

    /// As [`ManualClock::advance`], in milliseconds.
    pub fn advance_ms(&self, by_ms: u64) {
        self.advance(Duration::from_millis(by_ms));
    }

    /// Sets the wall clock, as an operator or NTP does: the monotonic clock knows nothing of it.
    pub fn set_wall_ms(&self, wall_ms: i64) {
        *self.wall_ms.lock() = wall_ms;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> MonoTime {
        *self.now.borrow()
    }

    fn wall_ms(&self) -> i64 {
        *self.wall_ms.lock()
    }

    fn block_for(&self, _deadline: MonoTime) -> Option<Duration> {
        None
    }

    fn sleep_until(&self, deadline: MonoTime) -> Sleep {
        let mut now = self.now.subscribe();
        Box::pin(async move {
            if now.wait_for(|now| *now >= deadline).await.is_err() {
                // The clock is gone: this time never comes.
                std::future::pending::<()>().await;
            }
        })
    }

    fn on_advance(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.wakers.lock().push(wake);
    }
}
