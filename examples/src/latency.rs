//! Percentiles of measured times.

use std::time::Duration;

/// Collected samples, in nanoseconds. Exact: they are kept and sorted, not put into buckets.
#[derive(Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    pub fn push(&mut self, time: Duration) {
        self.0
            .push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// p50, p99, p99.9 and the maximum in milliseconds. `None` without samples.
    pub fn summary(&mut self) -> Option<Summary> {
        self.0.sort_unstable();
        let at = |share: f64| {
            let rank = (self.0.len() as f64 * share).ceil() as usize;
            self.0
                .get(rank.clamp(1, self.0.len()) - 1)
                .map(|ns| *ns as f64 / 1e6)
        };
        if self.0.is_empty() {
            return None;
        }
        Some(Summary {
            p50_ms: at(0.5)?,
            p99_ms: at(0.99)?,
            p999_ms: at(0.999)?,
            max_ms: at(1.0)?,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Summary {
    pub fn json(&self) -> serde_json::Value {
        let round = |ms: f64| (ms * 1000.0).round() / 1000.0;
        serde_json::json!({
            "p50_ms": round(self.p50_ms), "p99_ms": round(self.p99_ms),
            "p999_ms": round(self.p999_ms), "max_ms": round(self.max_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Samples, Summary};

    #[test]
    fn percentiles_are_nearest_rank() {
        let mut samples = Samples::default();
        assert!(samples.summary().is_none());
        for ms in (1..=1000).rev() {
            samples.push(Duration::from_millis(ms));
        }
        let expected = Summary {
            p50_ms: 500.0,
            p99_ms: 990.0,
            p999_ms: 999.0,
            max_ms: 1000.0,
        };
        assert_eq!(samples.summary(), Some(expected));
    }
}
