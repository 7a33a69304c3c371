//! When keys are read again.

/// All in milliseconds; Kafka's names in brackets.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// After a reading that went well (`sasl.oauthbearer.jwks.endpoint.refresh.ms`).
    pub refresh_ms: u64,
    /// After one that failed (`...retry.backoff.ms`), twice as long each time,
    pub retry_ms: u64,
    /// up to this (`...retry.backoff.max.ms`).
    pub retry_max_ms: u64,
    /// Between two readings that tokens with unknown keys have caused: such a token costs its sender
    /// nothing, and must not cost the provider much.
    pub unknown_key_ms: u64,
}

/// Times are of any clock that does not go back.
#[derive(Clone, Debug)]
pub struct Schedule {
    backoff: Backoff,
    failures: u32,
    next_ms: u64,
    last_ms: Option<u64>,
}

impl Schedule {
    /// The first reading is due at once.
    pub fn new(backoff: Backoff, now_ms: u64) -> Schedule {
        Schedule {
            backoff,
            failures: 0,
            next_ms: now_ms,
            last_ms: None,
        }
    }

    /// When to read next.
    pub fn next_ms(&self) -> u64 {
        self.next_ms
    }

    /// A token came whose key is not there: whether to read now because of it.
    pub fn unknown_key(&self, now_ms: u64) -> bool {
        let least = self.backoff.unknown_key_ms;
        self.last_ms
            .is_none_or(|last| now_ms.saturating_sub(last) >= least)
    }

    /// A reading ended.
    pub fn done(&mut self, now_ms: u64, good: bool) {
        self.last_ms = Some(now_ms);
        let wait_ms = if good {
            self.failures = 0;
            self.backoff.refresh_ms
        } else {
            let doubled = self
                .backoff
                .retry_ms
                .saturating_mul(1 << self.failures.min(30));
            self.failures = self.failures.saturating_add(1);
            doubled.min(self.backoff.retry_max_ms)
        };
        self.next_ms = now_ms.saturating_add(wait_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> Schedule {
        let backoff = Backoff {
            refresh_ms: 3_600_000,
            retry_ms: 100,
            retry_max_ms: 10_000,
            unknown_key_ms: 10_000,
        };
        Schedule::new(backoff, 5)
    }

    #[test]
    fn failures_wait_longer_each_time_and_one_success_forgets_them() {
        let mut schedule = schedule();
        assert_eq!(schedule.next_ms(), 5);
        for wait_ms in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            schedule.done(1000, false);
            assert_eq!(schedule.next_ms(), 1000 + wait_ms);
        }
        schedule.done(2000, true);
        assert_eq!(schedule.next_ms(), 3_602_000);
        schedule.done(3000, false);
        assert_eq!(schedule.next_ms(), 3100);
    }

    #[test]
    fn tokens_with_unknown_keys_cause_one_reading_in_a_while() {
        let mut schedule = schedule();
        assert!(schedule.unknown_key(5));
        schedule.done(100, true);
        assert!(!schedule.unknown_key(101));
        assert!(!schedule.unknown_key(10_099));
        assert!(schedule.unknown_key(10_100));
        schedule.done(10_100, false);
        assert!(!schedule.unknown_key(10_200), "whether it went well or not");
    }
}
