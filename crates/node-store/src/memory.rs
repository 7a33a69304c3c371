use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Batch, KvStore, StoreError};

/// A store that is gone with the process: for tests, and where no directory can be had.
#[derive(Debug, Default)]
pub struct MemoryStore {
    map: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl MemoryStore {
    fn map(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Vec<u8>>> {
        // A batch is applied by code that cannot panic half-way.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KvStore for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.map().get(key).cloned())
    }

    fn last(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        let map = self.map();
        let found = map
            .range(prefix.to_vec()..)
            .take_while(|(key, _)| key.starts_with(prefix));
        let mut found: Vec<_> = found.map(|(k, v)| (k.clone(), v.clone())).collect();
        found.drain(..found.len().saturating_sub(limit));
        Ok(found)
    }

    fn count(&self, prefix: &[u8]) -> Result<usize, StoreError> {
        let map = self.map();
        let found = map
            .range(prefix.to_vec()..)
            .take_while(|(key, _)| key.starts_with(prefix));
        Ok(found.count())
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        let mut map = self.map();
        for key in &batch.removes {
            map.remove(key);
        }
        map.extend(batch.puts);
        Ok(())
    }
}
