use std::ops::Add;
use std::time::Duration;

/// A reading of the monotonic clock, in nanoseconds since some start of the process's own.
///
/// Timeouts and deadlines use this, never ticks and never the wall clock. It means nothing after a
/// restart: what must outlive one is kept as wall-clock milliseconds in a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MonoTime(pub u64);

impl MonoTime {
    pub const ZERO: MonoTime = MonoTime(0);

    pub fn from_ms(ms: u64) -> MonoTime {
        MonoTime(ms.saturating_mul(1_000_000))
    }

    pub fn as_ms(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time since `earlier`, zero if `earlier` is later.
    pub fn since(self, earlier: MonoTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for MonoTime {
    type Output = MonoTime;

    fn add(self, d: Duration) -> MonoTime {
        MonoTime(
            self.0
                .saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}
