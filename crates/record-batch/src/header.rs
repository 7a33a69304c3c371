use std::ops::Range;

use tidemark_types::{LeaderEpoch, ProducerEpoch, ProducerId};

use crate::{Attributes, BatchError};

/// Size of a v2 batch header, the two fields before the length included.
pub const HEADER_BYTES: usize = 61;
/// Base offset and batch length: what `batch_length` does not count.
pub const LENGTH_PREFIX_BYTES: usize = 12;

const MAGIC: i8 = 2;

mod at {
    pub(super) const BASE_OFFSET: usize = 0;
    pub(super) const BATCH_LENGTH: usize = 8;
    pub(super) const LEADER_EPOCH: usize = 12;
    pub(super) const MAGIC: usize = 16;
    pub(super) const CRC: usize = 17;
    pub(super) const ATTRIBUTES: usize = 21;
    pub(super) const LAST_OFFSET_DELTA: usize = 23;
    pub(super) const BASE_TIMESTAMP: usize = 27;
    pub(super) const MAX_TIMESTAMP: usize = 35;
    pub(super) const PRODUCER_ID: usize = 43;
    pub(super) const PRODUCER_EPOCH: usize = 51;
    pub(super) const BASE_SEQUENCE: usize = 53;
    pub(super) const RECORD_COUNT: usize = 57;
}

/// The header of a v2 batch (KIP-98), field by field as it stands in the bytes.
///
/// Only `batch_length` and `magic` are known to make sense: every other field is what its writer
/// put there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Bytes after this field: the batch is 12 longer.
    pub batch_length: i32,
    pub leader_epoch: LeaderEpoch,
    pub magic: i8,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    pub attributes: Attributes,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    /// Records in the batch; 0 is legal in a log (compaction), never from a client.
    pub record_count: i32,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which need not hold the rest of the batch.
    ///
    /// Errors: `Truncated` below 61 bytes, `Length` when the length field is too small for a
    /// header, `Magic` for anything but 2. The CRC is not looked at ([`crc_is_valid`]).
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        // Magic is the one byte that all of Kafka's formats have in the same place, so that an old
        // batch, shorter than our header, is still told by its name.
        if let Some(&magic) = bytes.get(at::MAGIC) {
            let magic = magic as i8;
            if magic != MAGIC {
                return Err(BatchError::Magic(magic));
            }
        }
        if bytes.len() < HEADER_BYTES {
            return Err(BatchError::Truncated);
        }
        let batch_length = i32::from_be_bytes(field(bytes, at::BATCH_LENGTH));
        if batch_length < (HEADER_BYTES - LENGTH_PREFIX_BYTES) as i32 {
            return Err(BatchError::Length(batch_length));
        }
        Ok(BatchHeader {
            base_offset: i64::from_be_bytes(field(bytes, at::BASE_OFFSET)),
            batch_length,
            leader_epoch: LeaderEpoch(i32::from_be_bytes(field(bytes, at::LEADER_EPOCH))),
            magic: MAGIC,
            crc: u32::from_be_bytes(field(bytes, at::CRC)),
            attributes: Attributes(i16::from_be_bytes(field(bytes, at::ATTRIBUTES))),
            last_offset_delta: i32::from_be_bytes(field(bytes, at::LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(field(bytes, at::BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(field(bytes, at::MAX_TIMESTAMP)),
            producer_id: ProducerId(i64::from_be_bytes(field(bytes, at::PRODUCER_ID))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(field(bytes, at::PRODUCER_EPOCH))),
            base_sequence: i32::from_be_bytes(field(bytes, at::BASE_SEQUENCE)),
            record_count: i32::from_be_bytes(field(bytes, at::RECORD_COUNT)),
        })
    }

    /// When tombstones and markers of the batch may go (ms since 1970); a first compaction has
    /// written it into the base timestamp (KIP-534).
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.attributes.has_delete_horizon()).then_some(self.base_timestamp)
    }

    /// Bytes of the whole batch.
    pub fn size_bytes(&self) -> usize {
        LENGTH_PREFIX_BYTES + self.batch_length as usize
    }

    /// Offset of the last record; compaction may have removed that record, its offset stays.
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    /// Offset after this batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Sequence of the last record: sequences run 0 to `i32::MAX` and start again at 0. -1 when the
    /// batch has none.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        (last & i64::from(i32::MAX)) as i32
    }

    /// Writes all fields, the first 61 bytes of a batch. The CRC is written as it stands here.
    pub(crate) fn write(&self, out: &mut [u8]) {
        out[at::BASE_OFFSET..at::BATCH_LENGTH].copy_from_slice(&self.base_offset.to_be_bytes());
        out[at::BATCH_LENGTH..at::LEADER_EPOCH].copy_from_slice(&self.batch_length.to_be_bytes());
        out[at::LEADER_EPOCH..at::MAGIC].copy_from_slice(&self.leader_epoch.0.to_be_bytes());
        out[at::MAGIC] = self.magic as u8;
        out[at::CRC..at::ATTRIBUTES].copy_from_slice(&self.crc.to_be_bytes());
        out[at::ATTRIBUTES..at::LAST_OFFSET_DELTA]
            .copy_from_slice(&self.attributes.0.to_be_bytes());
        out[at::LAST_OFFSET_DELTA..at::BASE_TIMESTAMP]
            .copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[at::BASE_TIMESTAMP..at::MAX_TIMESTAMP]
            .copy_from_slice(&self.base_timestamp.to_be_bytes());
        out[at::MAX_TIMESTAMP..at::PRODUCER_ID].copy_from_slice(&self.max_timestamp.to_be_bytes());
        out[at::PRODUCER_ID..at::PRODUCER_EPOCH].copy_from_slice(&self.producer_id.0.to_be_bytes());
        out[at::PRODUCER_EPOCH..at::BASE_SEQUENCE]
            .copy_from_slice(&self.producer_epoch.0.to_be_bytes());
        out[at::BASE_SEQUENCE..at::RECORD_COUNT].copy_from_slice(&self.base_sequence.to_be_bytes());
        out[at::RECORD_COUNT..HEADER_BYTES].copy_from_slice(&self.record_count.to_be_bytes());
    }
}

/// CRC-32C (Castagnoli) of a batch's bytes from the attributes on.
fn crc_of(batch: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &batch[at::ATTRIBUTES..]) as u32
}

/// True when `batch`, exactly one whole batch, carries the CRC of its bytes. False for anything
/// shorter than a header.
pub fn crc_is_valid(batch: &[u8]) -> bool {
    batch.len() >= HEADER_BYTES && u32::from_be_bytes(field(batch, at::CRC)) == crc_of(batch)
}

/// Writes the CRC of `batch`, exactly one whole batch.
pub(crate) fn patch_crc(batch: &mut [u8]) {
    let crc = crc_of(batch);
    batch[at::CRC..at::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
}

/// Gives a batch its place in the log. Both fields lie outside the CRC.
///
/// Panics when `batch` is shorter than a header: it was validated before it gets an offset.
pub fn patch_position(batch: &mut [u8], base_offset: i64, leader_epoch: LeaderEpoch) {
    assert!(batch.len() >= HEADER_BYTES, "not a batch");
    batch[at::BASE_OFFSET..at::BATCH_LENGTH].copy_from_slice(&base_offset.to_be_bytes());
    batch[at::LEADER_EPOCH..at::MAGIC].copy_from_slice(&leader_epoch.0.to_be_bytes());
}

/// Stamps a batch with the broker's time (`message.timestamp.type=LogAppendTime`). Timestamp type
/// and max timestamp are inside the CRC, which is written anew; the records are left alone, as
/// readers take the max timestamp for all of them.
///
/// Panics when `batch` is shorter than a header.
pub fn patch_log_append_time(batch: &mut [u8], wall_ms: i64) {
    assert!(batch.len() >= HEADER_BYTES, "not a batch");
    let attributes = Attributes(i16::from_be_bytes(field(batch, at::ATTRIBUTES)));
    batch[at::ATTRIBUTES..at::LAST_OFFSET_DELTA]
        .copy_from_slice(&attributes.with_log_append_time().0.to_be_bytes());
    patch_max_timestamp(batch, wall_ms);
}

/// Makes the times of a batch those of its records (`message.timestamp.type=CreateTime`), with their
/// maximum, and writes the CRC.
///
/// Panics when `batch` is shorter than a header.
pub fn patch_create_time(batch: &mut [u8], max_timestamp: i64) {
    assert!(batch.len() >= HEADER_BYTES, "not a batch");
    let attributes = Attributes(i16::from_be_bytes(field(batch, at::ATTRIBUTES)));
    batch[at::ATTRIBUTES..at::LAST_OFFSET_DELTA]
        .copy_from_slice(&attributes.with_create_time().0.to_be_bytes());
    patch_max_timestamp(batch, max_timestamp);
}

/// Writes a max timestamp and the CRC.
///
/// Panics when `batch` is shorter than a header.
pub fn patch_max_timestamp(batch: &mut [u8], max_timestamp: i64) {
    assert!(batch.len() >= HEADER_BYTES, "not a batch");
    batch[at::MAX_TIMESTAMP..at::PRODUCER_ID].copy_from_slice(&max_timestamp.to_be_bytes());
    patch_crc(batch);
}

/// The batches of a stretch of log, in order; see [`batches`].
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Headers of the batches in `bytes` with the range each batch takes.
///
/// A last batch that is cut short ends the iteration without an error, as the bytes of a Fetch
/// answer may be cut anywhere. A broken length or magic is yielded once and ends it too. CRCs are
/// not checked.
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { bytes, at: 0 }
}

impl Iterator for Batches<'_> {
    type Item = Result<(BatchHeader, Range<usize>), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.at..];
        match BatchHeader::parse(rest) {
            Ok(header) if header.size_bytes() <= rest.len() => {
                let start = self.at;
                self.at += header.size_bytes();
                Some(Ok((header, start..self.at)))
            }
            Ok(_) | Err(BatchError::Truncated) => {
                self.at = self.bytes.len();
                None
            }
            Err(error) => {
                self.at = self.bytes.len();
                Some(Err(error))
            }
        }
    }
}
