//! What people look up, and nothing that correctness needs: views that are made from the logs and
//! can be made again.
//!
//! A view lives in a [`KvStore`]. It keeps beside its entries how far into the logs it has come, in
//! the same [`Batch`], so that a store that is lost, or comes back as it was some time ago, is
//! brought up to date from there. No start and no acknowledgement waits for one.
//!
//! [`SledStore`] keeps it in a directory that may be deleted at any time. What cannot be opened is
//! moved aside and begun anew ([`SledStore::open_or_begin_anew`]).

mod memory;
mod sled_store;

pub use memory::MemoryStore;
pub use sled_store::{Quarantined, SledStore};

/// A store that cannot be read or written. A view is then left alone until the next start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Changes that are in the store together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub puts: Vec<(Vec<u8>, Vec<u8>)>,
    /// Removed before the puts.
    pub removes: Vec<Vec<u8>>,
}

impl Batch {
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.puts.push((key.into(), value.into()));
    }

    pub fn remove(&mut self, key: impl Into<Vec<u8>>) {
        self.removes.push(key.into());
    }

    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.removes.is_empty()
    }
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// An ordered map of bytes. A crash may take the newest batches away, never a part of one.
pub trait KvStore: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// The entries whose key begins with `prefix`, by key, at most `limit` of them from the end.
    fn last(&self, prefix: &[u8], limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// How many keys begin with `prefix`.
    fn count(&self, prefix: &[u8]) -> Result<usize, StoreError>;

    fn apply(&self, batch: Batch) -> Result<(), StoreError>;
}
