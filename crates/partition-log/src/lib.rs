//! A partition's log: the recent batches in memory (the *tail*, whose durability is the journal),
//! the older ones in *segments* in Kafka's on-disk format, and the checkpoint files that say which
//! bytes of the segments may be trusted at a start.
//!
//! - [`PartitionLog`] is shared by one appending owner and many readers. Readers answer as of a
//!   published tick ([`PartitionLog::at`]) and read batches from segments and tail
//!   ([`PartitionLog::read`]).
//! - [`WriteBehind`] moves confirmed batches from the tail to the segments and syncs them before a
//!   checkpoint names them.
//! - [`CheckpointWriter`] and [`read_latest`] keep two generations of checkpoint files.
//! - [`LogStore`] is what all logs of one data directory share.
//!
//! All I/O is blocking and goes through [`tidemark_disk::Disk`]. No clock is read here: ages are
//! ticks given by the caller.

mod batch;
mod bytes_io;
mod checkpoint;
mod checkpoint_format;
mod compact;
mod epochs;
mod error;
mod files;
mod log;
mod manifest;
mod names;
mod notes;
mod read;
mod rebuild;
mod recover;
mod retention;
mod retired;
mod roll;
mod seal;
mod segment;
mod segment_writer;
mod store;
mod tick_cut;
mod tick_index;
mod timestamps;
mod trim;
mod versions;
mod waiters;
mod write_behind;

pub use batch::{BatchMeta, ControlMeta, TailBatch};
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointWriter, read_latest, read_previous};
pub use checkpoint_format::{Block, BlockKind, CheckpointHeader};
pub use compact::{Compactable, CompactionOrder, CompactionReport, Pace};
pub use epochs::LeaderEpochs;
pub use error::LogError;
pub use log::PartitionLog;
pub use manifest::{Compacted, SegmentManifest, TailNote};
pub use notes::BatchNote;
pub use read::ReadResult;
pub use rebuild::Shortened;
pub use recover::{Named, recover_logs, remove_unreferenced};
pub use retention::RetentionRules;
pub use retired::Retired;
pub use roll::SegmentRules;
pub use segment::{SegmentId, SegmentState};
pub use store::{LogStore, StoreSettings};
pub use tick_cut::TickCut;
pub use tick_index::{TICK_ENTRY_BYTES, TICK_HEADER_BYTES, TickEntry, TickIndexHeader};
pub use timestamps::TimestampOffset;
pub use versions::Version;
pub use waiters::{WaiterId, Waiters};
pub use write_behind::{
    Beside, FlushPolicy, FlushReport, SyncReport, WriteBehind, WriteBehindSettings,
};
