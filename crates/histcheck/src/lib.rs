//! An independent reader of a stopped data directory, and a checker of recorded histories ([`history`]).
//!
//! It shares no code with the broker: the formats are read from `docs/formats.md` alone, so that a
//! mistake in the broker's own reading or writing shows here as a contradiction. From the raw bytes
//! it computes what a start would serve: each partition's batches, log start and end, last stable
//! offset, aborted transactions and producers; the topics; committed offsets; transactional ids.
//!
//! ```no_run
//! let files = tidemark_histcheck::DirFiles::new("tidemark-data");
//! let data = tidemark_histcheck::read(&files).expect("a directory in order");
//! let partition = data.partition("orders", 0).expect("it exists");
//! println!("{} .. {}", partition.log_start_offset, partition.log_end_offset);
//! for batch in partition.committed() {
//!     for record in tidemark_histcheck::batch_records(&files, batch).expect("a good batch") {
//!         println!("{} at tick {}", record.offset, batch.tick);
//!     }
//! }
//! ```
//!
//! | module | question |
//! |-|-|
//! | `data_dir` | what would a start make of the directory? |
//! | `journal`, `slot`, `frame`, `record` | which records does the journal hold, in which order? |
//! | `checkpoint`, `segments_block`, `state_block` | what does a checkpoint say? |
//! | `segment`, `tick_index`, `kafka_indexes` | are a segment's files what was written, and do they agree? |
//! | `batch`, `records` | what is in a batch? |
//! | `partition` | what do a partition's batches add up to? |
//! | `internal`, `metadata`, `groups`, `transactions` | what do the internal topics say? |
//! | `raw` | frames, batches and checkpoints one by one, as far as they can be read |
//! | `compare` | does a checkpoint say what the batches say? |
//! | `files` | where do the bytes come from? |
//! | `finding` | how is it told what is wrong? |
//! | [`history`] | can a broker that keeps its promises have answered clients so? |
//!
//! Nothing here panics on any bytes, and nothing is sized by a claimed count.

mod batch;
mod bytes;
mod checkpoint;
mod compare;
mod data_dir;
mod files;
mod finding;
mod frame;
mod groups;
pub mod history;
mod identity;
mod ids;
mod internal;
mod journal;
mod kafka_indexes;
mod metadata;
mod partition;
mod raw;
mod record;
mod records;
mod segment;
mod segments_block;
mod slot;
mod state_block;
mod tick_index;
mod transactions;

pub use batch::{BATCH_HEADER_BYTES, BatchHeader, Marker, ParsedBatch, parse_batch};
pub use checkpoint::{Block, Checkpoint, SEGMENTS_BLOCK, STATE_BLOCK};
pub use compare::{contradictions, internal_contradictions};
pub use data_dir::{
    DataDir, Inspection, Progress, Totals, batch_bytes, batch_records, inspect, read,
};
pub use files::{DirFiles, Entry, Files, MemoryFiles};
pub use finding::{Bad, Finding, Severity};
pub use frame::{Frame, FrameKind};
pub use groups::{CommittedOffset, Group, GroupRecord, Groups, OffsetKey};
pub use identity::Identity;
pub use ids::{PartitionId, TopicId, tick_ms};
pub use journal::{FrameAt, Journal, Slot};
pub use metadata::{Metadata, MetadataRecord, Topic};
pub use partition::{Batch, Partition, Place};
pub use raw::{checkpoints, journal_frames, segment_batches, slot_frames, topics};
pub use record::{Append, appends};
pub use records::{Record, records};
pub use segment::{OnDisk, SegmentBatch, SegmentFiles, parse_segment_file, partitions_on_disk};
pub use segments_block::{Aborted, Segment, SegmentsBlock, TailNote};
pub use slot::SlotHeader;
pub use state_block::{KeyedRecord, Producer, StateBlock, WindowBatch};
pub use tick_index::{TickEntry, TickHeader, TickKind};
pub use transactions::{
    TransactionalId, TransactionalIds, parse_key as parse_transactional_id_key,
    parse_value as parse_transactional_id_value,
};
