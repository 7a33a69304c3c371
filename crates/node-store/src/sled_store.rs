use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::{Batch, KvStore, StoreError};

/// Memory for pages. What is kept is looked at by people, one page at a time.
const CACHE_BYTES: u64 = 8 << 20;
/// What has not been written for so long is written. Not a promise: the views need none.
const FLUSH_EVERY_MS: u64 = 1_000;

/// A store in a directory.
///
/// sled says that a flush is durable when the bytes have left the process; a power cut may take
/// them. Hence the rule of this crate: nothing that cannot be made again.
#[derive(Debug)]
pub struct SledStore {
    db: sled::Db,
}

/// A directory that could not be opened and was moved aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    pub moved_to: PathBuf,
    pub why: StoreError,
}

impl SledStore {
    /// Opens or makes a store.
    ///
    /// Errors: what is there is damaged, somebody else has it open, or the directory cannot be
    /// written. sled panics over some damage; that is an error like the others.
    pub fn open(dir: &Path) -> Result<SledStore, StoreError> {
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(Some(FLUSH_EVERY_MS))
            .print_profile_on_drop(false);
        guarded(|| config.open()).map(|db| SledStore { db })
    }

    /// Opens a store; one that cannot be opened is renamed and begun anew.
    ///
    /// Errors: it can be neither opened nor begun anew.
    pub fn open_or_begin_anew(dir: &Path) -> Result<(SledStore, Option<Quarantined>), StoreError> {
        let why = match SledStore::open(dir) {
            Ok(store) => return Ok((store, None)),
            Err(why) => why,
        };
        let moved_to = free_name(dir);
        std::fs::rename(dir, &moved_to)
            .map_err(|e| StoreError(format!("{why}; it cannot be moved aside: {e}")))?;
        let store = SledStore::open(dir)?;
        Ok((store, Some(Quarantined { moved_to, why })))
    }
}

/// `DIR.damaged-1` and so on, the first that is free.
fn free_name(dir: &Path) -> PathBuf {
    let name = |n: u32| {
        let mut name = dir.as_os_str().to_owned();
        name.push(format!(".damaged-{n}"));
        PathBuf::from(name)
    };
    (1..)
        .map(name)
        .find(|path| !path.exists())
        .expect("a directory has fewer than 2^32 entries")
}

/// Runs a call into sled; its errors and panics become ours.
fn guarded<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(e)) => Err(StoreError(e.to_string())),
        Err(_) => Err(StoreError(
            "the store is damaged (sled panicked)".to_owned(),
        )),
    }
}

impl KvStore for SledStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        guarded(|| self.db.get(key)).map(|found| found.map(|value| value.to_vec()))
    }

    fn last(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        let mut found = guarded(|| {
            let newest = self.db.scan_prefix(prefix).rev().take(limit);
            newest
                .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
                .collect::<sled::Result<Vec<_>>>()
        })?;
        found.reverse();
        Ok(found)
    }

    fn count(&self, prefix: &[u8]) -> Result<usize, StoreError> {
        guarded(|| {
            let keys = self.db.scan_prefix(prefix).keys();
            keys.map(|key| key.map(|_| 1)).sum()
        })
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        let mut changes = sled::Batch::default();
        for key in batch.removes {
            changes.remove(key);
        }
        for (key, value) in batch.puts {
            changes.insert(key, value);
        }
        guarded(|| self.db.apply_batch(changes))
    }
}
