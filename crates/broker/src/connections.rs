//! How many connections there are, how fast they come, and how many have not said who they are.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use tidemark_config::Settings;
use tidemark_types::MonoTime;

use crate::limits::Limit;

/// After a quiet time so many seconds' worth of connections may come at once: a host whose clients
/// all come back after a restart is no storm.
const BURST_SECONDS: u64 = 10;
/// Addresses whose rate is remembered. It takes more of them than the overall rate lets in.
const MAX_RATES: usize = 10_000;
/// One address may hold this part of the places of those who have not authenticated.
const UNAUTHENTICATED_SHARE: usize = 4;

/// The connections of a broker, over all listeners.
pub(crate) struct Connections {
    all: Arc<Counts>,
    unauthenticated: Arc<Counts>,
    rate: Mutex<Rate>,
    rate_per_ip: RateLimit,
    rates: DashMap<IpAddr, Rate>,
}

/// A connection that may be served, after a wait.
pub(crate) struct Admitted {
    pub(crate) counted: Counted,
    /// Zero in quiet times.
    pub(crate) wait: Duration,
}

impl Connections {
    pub(crate) fn new(settings: &Settings) -> Connections {
        let unauthenticated = settings.max_unauthenticated_connections;
        Connections {
            all: Counts::new(settings.max_connections, settings.max_connections_per_ip),
            unauthenticated: Counts::new(
                unauthenticated,
                (unauthenticated / UNAUTHENTICATED_SHARE).max(1),
            ),
            rate: Mutex::new(Rate::new(RateLimit::per_second(
                settings.max_connection_creation_rate,
            ))),
            rate_per_ip: RateLimit::per_second(settings.max_connection_creation_rate_per_ip),
            rates: DashMap::new(),
        }
    }

    /// Counts a connection, or names the limit for which it has to be closed.
    ///
    /// What one address sends too fast is closed and takes nothing of what all share. What all
    /// addresses send together too fast waits, as in Kafka: meanwhile no other is accepted, and the
    /// rest stays with the operating system.
    pub(crate) fn admit(&self, ip: IpAddr, now: MonoTime) -> Result<Admitted, Limit> {
        let ip = ip.to_canonical();
        let counted = Counts::count(&self.all, ip).map_err(|full| match full {
            Full::All => Limit::Connections,
            Full::OfAddress => Limit::ConnectionsPerIp,
        })?;
        if self.rates.len() >= MAX_RATES {
            self.rates.retain(|_, rate| !rate.is_full(now));
            if self.rates.len() >= MAX_RATES {
                self.rates.clear();
            }
        }
        let in_time = self
            .rates
            .entry(ip)
            .or_insert_with(|| Rate::new(self.rate_per_ip))
            .take_if_at_once(now);
        if !in_time {
            return Err(Limit::CreationRatePerIp);
        }
        let wait = self.rate.lock().take(now);
        Ok(Admitted { counted, wait })
    }

    /// A place among those who have not authenticated; `None`: there is none left.
    pub(crate) fn unauthenticated(&self, ip: IpAddr) -> Option<Counted> {
        Counts::count(&self.unauthenticated, ip.to_canonical()).ok()
    }

    /// How many there are, and how many of them have not authenticated.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let of = |counts: &Counts| counts.total.load(Ordering::Relaxed);
        (of(&self.all), of(&self.unauthenticated))
    }
}

/// How many there are of something, in all and from each address.
struct Counts {
    max: usize,
    max_per_ip: usize,
    total: AtomicUsize,
    by_ip: DashMap<IpAddr, usize>,
}

enum Full {
    All,
    OfAddress,
}

impl Counts {
    fn new(max: usize, max_per_ip: usize) -> Arc<Counts> {
        Arc::new(Counts {
            max,
            max_per_ip,
            total: AtomicUsize::new(0),
            by_ip: DashMap::new(),
        })
    }

    fn count(this: &Arc<Counts>, ip: IpAddr) -> Result<Counted, Full> {
        if this.total.fetch_add(1, Ordering::Relaxed) >= this.max {
            this.total.fetch_sub(1, Ordering::Relaxed);
            return Err(Full::All);
        }
        let mut of_ip = this.by_ip.entry(ip).or_insert(0);
        if *of_ip >= this.max_per_ip {
            this.total.fetch_sub(1, Ordering::Relaxed);
            return Err(Full::OfAddress);
        }
        *of_ip += 1;
        drop(of_ip);
        Ok(Counted {
            counts: this.clone(),
            ip,
        })
    }
}

/// Counts until it is dropped.
pub(crate) struct Counted {
    counts: Arc<Counts>,
    ip: IpAddr,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.total.fetch_sub(1, Ordering::Relaxed);
        let left = self.counts.by_ip.get_mut(&self.ip).map(|mut of_ip| {
            *of_ip -= 1;
            *of_ip
        });
        if left == Some(0) {
            self.counts
                .by_ip
                .remove_if(&self.ip, |_, count| *count == 0);
        }
    }
}

/// So many in a second, with a burst.
#[derive(Clone, Copy)]
struct RateLimit {
    /// What one of them takes of the time.
    each: Duration,
    burst: Duration,
}

impl RateLimit {
    fn per_second(rate: u64) -> RateLimit {
        RateLimit {
            each: Duration::from_nanos(1_000_000_000 / rate.max(1)),
            burst: Duration::from_secs(BURST_SECONDS),
        }
    }
}

/// A token bucket, kept as the moment at which it will be full again.
struct Rate {
    limit: RateLimit,
    full_at: MonoTime,
}

impl Rate {
    fn new(limit: RateLimit) -> Rate {
        Rate {
            limit,
            full_at: MonoTime::ZERO,
        }
    }

    fn is_full(&self, now: MonoTime) -> bool {
        self.full_at <= now
    }

    /// When the bucket is full again if one more is taken, and how long that one has to wait.
    fn next(&self, now: MonoTime) -> (MonoTime, Duration) {
        let full_at = self.full_at.max(now) + self.limit.each;
        (full_at, full_at.since(now + self.limit.burst))
    }

    /// Takes one, for after the wait.
    fn take(&mut self, now: MonoTime) -> Duration {
        let (full_at, wait) = self.next(now);
        self.full_at = full_at;
        wait
    }

    /// Takes one if there is no wait.
    fn take_if_at_once(&mut self, now: MonoTime) -> bool {
        let (full_at, wait) = self.next(now);
        if wait > Duration::ZERO {
            return false;
        }
        self.full_at = full_at;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_what_follows_at_the_rate() {
        let mut rate = Rate::new(RateLimit::per_second(200));
        let start = MonoTime::from_ms(5_000);
        for _ in 0..2_000 {
            assert_eq!(rate.take(start), Duration::ZERO);
        }
        for n in 1..=400u32 {
            assert_eq!(rate.take(start), n * Duration::from_millis(5));
        }
        // Two seconds on they have had their turn, and the bucket is as empty as it was.
        let later = start + Duration::from_secs(2);
        assert_eq!(rate.take(later), Duration::from_millis(5));
        // After a quiet time the burst is there again, and no more than one.
        let quiet = later + Duration::from_secs(1_000);
        assert!(rate.is_full(quiet));
        for _ in 0..2_000 {
            assert!(rate.take_if_at_once(quiet));
        }
        assert!(!rate.take_if_at_once(quiet));
        assert!(rate.take_if_at_once(quiet + Duration::from_millis(5)));
        assert!(!rate.take_if_at_once(quiet + Duration::from_millis(5)));
    }

    #[test]
    fn a_rate_without_bound_never_waits() {
        let mut rate = Rate::new(RateLimit::per_second(u64::from(u32::MAX)));
        for _ in 0..100_000 {
            assert!(rate.take_if_at_once(MonoTime::from_ms(1)));
        }
    }
}
