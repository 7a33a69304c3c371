//! How often each API and version was asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use tidemark_wire::ApiKey;

const KEYS: usize = 128;
const VERSIONS: usize = 32;

/// Requests by API key and version.
pub struct ApiCounts {
    counts: Box<[AtomicU64]>,
}

impl Default for ApiCounts {
    fn default() -> ApiCounts {
        ApiCounts {
            counts: (0..KEYS * VERSIONS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl ApiCounts {
    pub(crate) fn count(&self, key: ApiKey, version: i16) {
        let slot = usize::try_from(key.code())
            .ok()
            .zip(usize::try_from(version).ok())
            .filter(|(key, version)| *key < KEYS && *version < VERSIONS)
            .map(|(key, version)| key * VERSIONS + version);
        if let Some(slot) = slot {
            self.counts[slot].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// (API key, version, requests) for each that was asked for.
    pub fn served(&self) -> Vec<(i16, i16, u64)> {
        self.counts
            .iter()
            .enumerate()
            .filter_map(|(slot, count)| {
                let count = count.load(Ordering::Relaxed);
                (count > 0).then_some(((slot / VERSIONS) as i16, (slot % VERSIONS) as i16, count))
            })
            .collect()
    }
}
