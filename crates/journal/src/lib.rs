//! The write-ahead log: slots, frames, group commit, recovery
