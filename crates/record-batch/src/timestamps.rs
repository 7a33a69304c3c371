//! ListOffsets by timestamp, within one batch.

use std::io::BufReader;

use bytes::Bytes;

use crate::framing::{StreamSource, read_record};
use crate::records::record_timestamp;
use crate::{BatchError, BatchHeader, DecompressLimits, HEADER_BYTES, TimestampType, compression};

/// The first timestamp that is not a time: from here on (2^50 ms, the year 37,648) ListOffsets
/// means a tick, so that no record may carry one.
pub const TICK_TIMESTAMP: i64 = 1 << 50;

/// The first record of `batch` at or after `target_ms`: its timestamp and offset. `None` when all
/// are earlier. Records are not ordered by timestamp, and none is kept in memory.
///
/// `batch` is exactly one whole batch with its final base offset.
pub fn offset_for_timestamp(
    batch: &Bytes,
    target_ms: i64,
    limits: &DecompressLimits,
) -> Result<Option<(i64, i64)>, BatchError> {
    let mut found = None;
    scan(batch, limits, |timestamp, offset| {
        if timestamp >= target_ms {
            found = Some((timestamp, offset));
        }
        found.is_none()
    })?;
    Ok(found)
}

/// The record of `batch` with the highest timestamp, the first of them if there are several: its
/// timestamp and offset (ListOffsets -3, KIP-734). `None` for a batch without records.
pub fn max_timestamp_offset(
    batch: &Bytes,
    limits: &DecompressLimits,
) -> Result<Option<(i64, i64)>, BatchError> {
    let mut max: Option<(i64, i64)> = None;
    scan(batch, limits, |timestamp, offset| {
        if max.is_none_or(|(highest, _)| timestamp > highest) {
            max = Some((timestamp, offset));
        }
        true
    })?;
    Ok(max)
}

/// Calls `on_record` with timestamp and offset of each record until it returns false.
fn scan(
    batch: &Bytes,
    limits: &DecompressLimits,
    mut on_record: impl FnMut(i64, i64) -> bool,
) -> Result<(), BatchError> {
    let header = BatchHeader::parse(batch)?;
    if header.size_bytes() != batch.len() {
        return Err(BatchError::Truncated);
    }
    if header.record_count <= 0 {
        return Ok(());
    }
    let is_whole = header.last_offset_delta == header.record_count - 1;
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime && is_whole {
        // All records have one timestamp: the first answers for them, and nothing is decompressed.
        on_record(header.max_timestamp, header.base_offset);
        return Ok(());
    }
    let codec = header
        .attributes
        .codec()
        .ok_or(BatchError::Codec(header.attributes.codec_id()))?;
    let body = compression::reader(codec, &batch[HEADER_BYTES..], limits)?;
    let mut source = StreamSource(BufReader::new(body));
    for index in 0..header.record_count {
        let record = read_record(&mut source, |(), _| {}).map_err(|e| e.at_record(index))?;
        let offset = header
            .base_offset
            .saturating_add(i64::from(record.offset_delta));
        if !on_record(record_timestamp(&header, record.timestamp_delta), offset) {
            break;
        }
    }
    Ok(())
}
