//! Kafka v2 record batches: header view, validation on Produce, records, control batches.
//!
//! A batch is not re-encoded on its way through the broker, unless its topic asks for another codec. [`BatchHeader`] reads its 61-byte
//! header, [`validate_produce`] decides whether a client's batch may be appended,
//! [`patch_position`] writes the two fields that lie outside the CRC, and [`records`] looks inside
//! where something must (internal topics, ListOffsets by timestamp).
//!
//! Nothing here trusts a count or a length of the bytes it reads: memory is taken only for bytes
//! that are really there, and decompression is bounded by [`DecompressLimits`].

mod attributes;
mod builder;
mod compression;
mod control;
mod error;
mod framing;
mod header;
mod records;
mod rewrite;
mod timestamps;
mod validate;

pub use attributes::{Attributes, Codec, TimestampType};
pub use builder::BatchBuilder;
pub use compression::DecompressLimits;
pub use control::{ControlType, control_batch, parse_control};
pub use error::BatchError;
pub use header::{
    BatchHeader, Batches, HEADER_BYTES, LENGTH_PREFIX_BYTES, batches, crc_is_valid,
    patch_create_time, patch_log_append_time, patch_max_timestamp, patch_position,
};
pub use records::{Record, Records, records};
pub use rewrite::{empty_batch, recompress_batch, rewrite_batch};
pub use timestamps::{TICK_TIMESTAMP, max_timestamp_offset, offset_for_timestamp};
pub use validate::{MAX_RECORD_ERRORS, ProduceRules, Refusal, ValidBatch, validate_produce};
