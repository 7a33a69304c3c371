//! Compaction (`cleanup.policy=compact`), without files: which batches of a log stay as they are,
//! which lose records, and which go.
//!
//! A run has two passes, both over whole batches in offset order. The first fills an [`OffsetMap`]
//! from the part of the log that is new since the last run: the newest offset of each key, of
//! committed records only. The second, a [`Cleaner`], looks at all batches from the start of the
//! log on and gives a [`Verdict`] for each.
//!
//! What holds for every verdict:
//!
//! - Offsets are never given anew, batches are never merged or split. A batch that loses records
//!   keeps its header but for counts, times and checksum.
//! - A record goes when a later committed record has its key, when its transaction was aborted, or
//!   when it has no key. Whether it was aborted is known from its producer and offset ([`Fates`]):
//!   markers have no part in the map of keys (KAFKA-14055).
//! - A tombstone goes when all earlier records of its key are gone and its batch's *delete horizon*
//!   has passed: the run that first finds it writes now + `delete.retention.ms` into the batch
//!   (KIP-534), a later one drops it.
//! - A marker goes in the same way once nothing of its transaction is left.
//! - Of each active producer the last batch stays, empty if need be, with its sequences; so does
//!   the last batch of the run, so that a reader below the end of what was cleaned always finds a
//!   batch to go on from.
//!
//! The verdicts of a run must take effect from the front: whoever carries them out may stop
//! anywhere, and what was done up to there is right. Then the run is begun again from where the map
//! of this one began.

mod cleaner;
mod fates;
mod offset_map;

pub use cleaner::{Cleaner, LastAppend, Round, Tally, Verdict};
pub use fates::{AbortedRange, Fates};
pub use offset_map::OffsetMap;
