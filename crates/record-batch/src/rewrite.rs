//! What compaction leaves of a batch: some of its records, or none. Offsets, sequences, producer and
//! leader epoch stay, so that readers and producer windows find the batch where it was.

use bytes::Bytes;

use crate::builder::write_record;
use crate::compression::{compress, compress_at, decompress};
use crate::framing::RawRecord;
use crate::header::patch_crc;
use crate::{
    BatchError, BatchHeader, Codec, DecompressLimits, HEADER_BYTES, LENGTH_PREFIX_BYTES, Record,
    TimestampType,
};

/// The batch of `header` with `records` only, which are its own, in order; in its codec, with its
/// base offset and last offset delta. `horizon_ms`, if given, becomes its delete horizon (KIP-534).
///
/// The maximum timestamp is that of the records that stay. Without any the batch is an
/// [`empty_batch`].
///
/// `None`: a record's timestamp is too far from the horizon to be written relative to it. Errors:
/// `Codec` for a codec that is not Kafka's, `Length` when the result is longer than a batch can be.
pub fn rewrite_batch(
    header: &BatchHeader,
    records: &[Record],
    horizon_ms: Option<i64>,
) -> Result<Option<Bytes>, BatchError> {
    if records.is_empty() {
        return Ok(Some(empty_batch(header)));
    }
    let codec = header
        .attributes
        .codec()
        .ok_or(BatchError::Codec(header.attributes.codec_id()))?;
    let mut header = *header;
    if let Some(horizon_ms) = horizon_ms {
        header.attributes = header.attributes.with_delete_horizon();
        header.base_timestamp = horizon_ms;
    }
    let mut body = Vec::new();
    let mut scratch = Vec::new();
    let mut max_timestamp = i64::MIN;
    for record in records {
        let Some(timestamp_delta) = record.timestamp.checked_sub(header.base_timestamp) else {
            return Ok(None);
        };
        let raw = RawRecord {
            offset_delta: record.offset_delta,
            timestamp_delta,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
        };
        write_record(&mut body, &mut scratch, &raw, &record.headers);
        max_timestamp = max_timestamp.max(record.timestamp);
    }
    if header.attributes.timestamp_type() == TimestampType::CreateTime {
        header.max_timestamp = max_timestamp;
    }
    header.record_count =
        i32::try_from(records.len()).map_err(|_| BatchError::Length(header.batch_length))?;
    let body = compress(codec, &body)?;
    finish(header, &body).map(Some)
}

/// `batch` with its records in another codec, as a topic with a `compression.type` of its own stores
/// it: everything else stays, sequences and producer included. `level` is one of gzip or zstd.
///
/// Errors: `Codec` for a codec that is not Kafka's, `Decompress`, `DecompressedTooLarge` beyond
/// `limits`, `Length` when the result is longer than a batch can be.
pub fn recompress_batch(
    batch: &Bytes,
    codec: Codec,
    level: Option<i32>,
    limits: &DecompressLimits,
) -> Result<Bytes, BatchError> {
    let mut header = BatchHeader::parse(batch)?;
    let was = header.attributes;
    let was = was.codec().ok_or(BatchError::Codec(was.codec_id()))?;
    let body = decompress(was, &batch.slice(HEADER_BYTES..), limits)?;
    header.attributes = header.attributes.with_codec(codec);
    finish(header, &compress_at(codec, level, &body)?)
}

/// The batch of `header` without its records, as Kafka leaves it: no codec, no base timestamp, no
/// delete horizon, the maximum timestamp it had.
pub fn empty_batch(header: &BatchHeader) -> Bytes {
    let mut header = *header;
    header.attributes = header
        .attributes
        .with_codec(Codec::None)
        .without_delete_horizon();
    header.base_timestamp = -1;
    header.record_count = 0;
    finish(header, &[]).expect("a header alone is short")
}

fn finish(mut header: BatchHeader, body: &[u8]) -> Result<Bytes, BatchError> {
    let size = HEADER_BYTES + body.len();
    header.batch_length = i32::try_from(size - LENGTH_PREFIX_BYTES)
        .map_err(|_| BatchError::Length(header.batch_length))?;
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.reserve_exact(body.len());
    bytes.extend_from_slice(body);
    header.write(&mut bytes);
    patch_crc(&mut bytes);
    Ok(bytes.into())
}
