use bytes::Bytes;

use crate::framing::{BytesSource, Source, read_record};
use crate::{BatchError, BatchHeader, DecompressLimits, HEADER_BYTES, TimestampType, compression};

/// One record of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// To the batch's base offset.
    pub offset_delta: i32,
    /// Milliseconds since 1970; the batch's max timestamp under LogAppendTime.
    pub timestamp: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    /// In the order of the bytes; a key may come more than once.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

/// The records of one batch; see [`records`].
pub struct Records {
    header: BatchHeader,
    source: BytesSource,
    read: i32,
    done: bool,
}

/// The records of `batch`, exactly one whole batch, of which compaction may have removed some.
///
/// Fields are slices of the batch, or of its decompressed body, which is held whole (within
/// `limits`) as long as they live. After an `Err` the iterator ends. The CRC is not checked.
///
/// Errors: what [`BatchHeader::parse`] gives, `Codec`, `Decompress`, `DecompressedTooLarge`; from
/// the iterator `Record` and `TrailingBytes`.
pub fn records(batch: &Bytes, limits: &DecompressLimits) -> Result<Records, BatchError> {
    let header = BatchHeader::parse(batch)?;
    if header.size_bytes() != batch.len() {
        return Err(BatchError::Truncated);
    }
    let codec = header
        .attributes
        .codec()
        .ok_or(BatchError::Codec(header.attributes.codec_id()))?;
    let body = batch.slice(HEADER_BYTES..);
    // Compaction leaves empty batches whose codec bits no longer say anything about their bytes.
    let body = if body.is_empty() {
        body
    } else {
        compression::decompress(codec, &body, limits)?
    };
    Ok(Records {
        header,
        source: BytesSource(body),
        read: 0,
        done: false,
    })
}

impl Records {
    /// The header of the batch that is read.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    fn read_next(&mut self) -> Result<Option<Record>, BatchError> {
        let index = self.read;
        if index >= self.header.record_count {
            return match self.source.is_at_end() {
                Ok(true) => Ok(None),
                Ok(false) => Err(BatchError::TrailingBytes),
                Err(error) => Err(error.at_record(index)),
            };
        }
        let mut headers = Vec::new();
        let raw = read_record(&mut self.source, |key, value| headers.push((key, value)))
            .map_err(|error| error.at_record(index))?;
        if !(0..=self.header.last_offset_delta).contains(&raw.offset_delta) {
            return Err(BatchError::Record {
                index,
                what: "its offset is outside the batch",
            });
        }
        self.read += 1;
        Ok(Some(Record {
            offset_delta: raw.offset_delta,
            timestamp: record_timestamp(&self.header, raw.timestamp_delta),
            key: raw.key,
            value: raw.value,
            headers,
        }))
    }
}

impl Iterator for Records {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.read_next().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// A record's timestamp: a sum that does not fit is as far away as can be said.
pub(crate) fn record_timestamp(header: &BatchHeader, timestamp_delta: i64) -> i64 {
    match header.attributes.timestamp_type() {
        TimestampType::CreateTime => header.base_timestamp.saturating_add(timestamp_delta),
        TimestampType::LogAppendTime => header.max_timestamp,
    }
}
