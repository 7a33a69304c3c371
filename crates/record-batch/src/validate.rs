//! What a client may append: Kafka's rules for the records of a Produce request, v3 and later.

use std::io::BufReader;

use tidemark_types::ErrorCode;

use crate::framing::{Source, StreamSource, read_record};
use crate::{
    BatchError, BatchHeader, Codec, DecompressLimits, HEADER_BYTES, TICK_TIMESTAMP, TimestampType,
    compression, crc_is_valid,
};

/// Record errors that a refusal lists; a client shows the first few.
pub const MAX_RECORD_ERRORS: usize = 1000;

/// The topic's and the request's side of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProduceRules {
    /// `max.message.bytes`: of the whole batch, compressed.
    pub max_message_bytes: usize,
    /// Version of the Produce request: zstd needs 7.
    pub produce_version: i16,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far in the past a CreateTime may be.
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far in the future.
    pub message_timestamp_after_max_ms: i64,
    /// `cleanup.policy` contains `compact`: every record needs a key.
    pub compacted: bool,
    /// Look at every record. Without it (`record.validation=header`) only the header is checked,
    /// except for a compacted topic's keys.
    pub check_records: bool,
    /// The wall clock that timestamps are compared with.
    pub wall_ms: i64,
    pub limits: DecompressLimits,
}

impl Default for ProduceRules {
    /// Kafka's defaults of a topic, for the newest request and a wall clock at 0.
    fn default() -> ProduceRules {
        ProduceRules {
            max_message_bytes: 1_048_588,
            produce_version: 13,
            timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            compacted: false,
            check_records: true,
            wall_ms: 0,
            limits: DecompressLimits::default(),
        }
    }
}

/// Why nothing of a partition's records is appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub code: ErrorCode,
    /// For `error_message` (Produce v8).
    pub message: Option<String>,
    /// Batch index and message of single records, for `record_errors` (KIP-467).
    pub record_errors: Vec<(i32, String)>,
    /// The batch is whole and its CRC is right, and its content was refused: then Kafka tells the
    /// partition's `log_start_offset` with the error.
    pub of_content: bool,
}

impl Refusal {
    /// Of what can be told without looking into the batch.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal {
            code,
            message: Some(message.into()),
            record_errors: Vec::new(),
            of_content: false,
        }
    }

    fn of_content(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal {
            of_content: true,
            ..Refusal::new(code, message)
        }
    }
}

/// A batch that may be appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidBatch {
    /// As the client sent it.
    pub header: BatchHeader,
    /// The highest timestamp of its records; the header's when they were not looked at.
    ///
    /// Some clients (old sarama) leave the header's field at another value. Kafka does not refuse
    /// that, it writes the true one and a new CRC, as time index and retention rely on it: so must
    /// whoever appends ([`ValidBatch::finish`]).
    pub max_timestamp: i64,
}

impl ValidBatch {
    /// Makes `batch`, the bytes that were validated, ready for the log as far as its times go:
    /// stamps LogAppendTime, or corrects a wrong max timestamp or timestamp type. Leaves a correct batch untouched.
    pub fn finish(&self, batch: &mut [u8], timestamp_type: TimestampType, wall_ms: i64) {
        match timestamp_type {
            TimestampType::LogAppendTime => crate::patch_log_append_time(batch, wall_ms),
            TimestampType::CreateTime => {
                let claims = self.header.attributes.timestamp_type();
                if claims != timestamp_type || self.max_timestamp != self.header.max_timestamp {
                    crate::patch_create_time(batch, self.max_timestamp);
                }
            }
        }
    }
}

/// Decides whether `records`, the records field of one partition of a Produce request (empty when
/// it was null), may be appended: exactly one v2 batch, whole, and sound.
///
/// Codes: CORRUPT_MESSAGE for what a retry may mend, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP,
/// UNSUPPORTED_COMPRESSION_TYPE, and INVALID_RECORD for the rest. A body that decompresses beyond
/// its limit is MESSAGE_TOO_LARGE: clients then split the batch.
pub fn validate_produce(records: &[u8], rules: &ProduceRules) -> Result<ValidBatch, Refusal> {
    let header = one_whole_batch(records)?;
    check_header(records, &header, rules)?;
    let mut max_timestamp = header.max_timestamp;
    if rules.check_records || rules.compacted {
        max_timestamp = check_records(&header, &records[HEADER_BYTES..], rules)?;
    } else {
        check_timestamp(header.base_timestamp, rules)
            .and_then(|()| check_timestamp(header.max_timestamp, rules))
            .map_err(|message| Refusal::of_content(ErrorCode::InvalidTimestamp, message))?;
    }
    Ok(ValidBatch {
        header,
        max_timestamp,
    })
}

fn one_whole_batch(records: &[u8]) -> Result<BatchHeader, Refusal> {
    if records.is_empty() {
        return Err(Refusal::new(
            ErrorCode::InvalidRecord,
            "Produce requests must have exactly one record batch per partition, this one has none",
        ));
    }
    let header = BatchHeader::parse(records).map_err(|error| {
        let code = match error {
            // Kafka has no batch to speak of where the bytes end early.
            BatchError::Truncated => ErrorCode::InvalidRecord,
            BatchError::Magic(0 | 1) => ErrorCode::InvalidRecord,
            _ => ErrorCode::CorruptMessage,
        };
        Refusal::new(code, error.to_string())
    })?;
    if header.size_bytes() > records.len() {
        return Err(Refusal::new(
            ErrorCode::InvalidRecord,
            BatchError::Truncated.to_string(),
        ));
    }
    if let Some(rest) = records.get(header.size_bytes()..)
        && !rest.is_empty()
    {
        // Kafka looks whether they can begin a second batch, and then at the CRC.
        if !begins_a_batch(rest) || !crc_is_valid(&records[..header.size_bytes()]) {
            return Err(Refusal::new(
                ErrorCode::CorruptMessage,
                "bytes that are no batch follow the batch, or it is damaged",
            ));
        }
        return Err(Refusal::new(
            ErrorCode::InvalidRecord,
            "Produce requests must have exactly one record batch per partition, more bytes follow",
        ));
    }
    Ok(header)
}

/// False for bytes whose length or magic no batch has; what is too short to tell may be one.
fn begins_a_batch(bytes: &[u8]) -> bool {
    // The least that a batch of the oldest format counts behind its length field.
    const LEAST_LENGTH: i32 = 14;
    let length = bytes.get(8..12).and_then(|field| field.try_into().ok());
    let length = length.map(i32::from_be_bytes);
    let magic = bytes.get(16);
    length.is_none_or(|length| length >= LEAST_LENGTH) && magic.is_none_or(|magic| *magic <= 2)
}

fn check_header(batch: &[u8], header: &BatchHeader, rules: &ProduceRules) -> Result<(), Refusal> {
    let invalid = |message: String| Err(Refusal::of_content(ErrorCode::InvalidRecord, message));
    let attributes = header.attributes;

    if attributes.codec() == Some(Codec::Zstd) && rules.produce_version < 7 {
        return Err(Refusal::new(
            ErrorCode::UnsupportedCompressionType,
            "zstd needs Produce v7 or later",
        ));
    }
    if batch.len() > rules.max_message_bytes {
        return Err(Refusal::new(
            ErrorCode::MessageTooLarge,
            format!(
                "the batch has {} bytes, max.message.bytes is {}",
                batch.len(),
                rules.max_message_bytes
            ),
        ));
    }
    if !crc_is_valid(batch) {
        return Err(Refusal::new(
            ErrorCode::CorruptMessage,
            "the CRC of the batch does not match its bytes",
        ));
    }
    if attributes.codec().is_none() {
        return Err(Refusal::of_content(
            ErrorCode::UnsupportedCompressionType,
            BatchError::Codec(attributes.codec_id()).to_string(),
        ));
    }
    if header.base_offset != 0 {
        return invalid(format!(
            "the batch's base offset is {}, a producer's is 0",
            header.base_offset
        ));
    }
    if header.record_count <= 0 {
        return invalid(format!("the batch counts {} records", header.record_count));
    }
    if header.last_offset_delta != header.record_count - 1 {
        return invalid(format!(
            "the batch counts {} records, its last offset delta is {}",
            header.record_count, header.last_offset_delta
        ));
    }
    if header.producer_id.is_some() && (header.base_sequence < 0 || header.producer_epoch.0 < 0) {
        return invalid(format!(
            "producer id {} comes with epoch {} and base sequence {}",
            header.producer_id, header.producer_epoch, header.base_sequence
        ));
    }
    if attributes.is_control() {
        return invalid("clients cannot write control records".into());
    }
    if attributes.is_transactional() && !header.producer_id.is_some() {
        return invalid("a transactional batch needs a producer id".into());
    }
    // Under CreateTime Kafka takes such a batch and clears the bit.
    if attributes.timestamp_type() == TimestampType::LogAppendTime
        && rules.timestamp_type == TimestampType::LogAppendTime
    {
        let message = "producers cannot set the timestamp type to LogAppendTime";
        let records = usize::try_from(header.record_count).unwrap_or(0);
        return Err(Refusal {
            record_errors: (0..header.record_count)
                .take(records.min(MAX_RECORD_ERRORS))
                .map(|index| (index, message.to_owned()))
                .collect(),
            ..Refusal::of_content(ErrorCode::InvalidTimestamp, message)
        });
    }
    // Whatever the topic allows, and whatever is then taken from the records: no header in the log
    // carries a tick where a time is expected.
    for timestamp in [header.base_timestamp, header.max_timestamp] {
        if timestamp >= TICK_TIMESTAMP {
            return Err(Refusal::of_content(
                ErrorCode::InvalidTimestamp,
                beyond_time(timestamp),
            ));
        }
    }
    Ok(())
}

/// Goes through all records once, streaming. Returns their highest timestamp.
fn check_records(header: &BatchHeader, body: &[u8], rules: &ProduceRules) -> Result<i64, Refusal> {
    let mut check = RecordCheck {
        header,
        rules,
        // As in Kafka: records without a timestamp (-1) leave the batch without one.
        max_timestamp: -1,
        timestamp_errors: false,
        record_errors: Vec::new(),
        error_count: 0,
    };
    match header.attributes.codec() {
        Some(Codec::None) => check.run(StreamSource(body)),
        Some(codec) => compression::reader(codec, body, &rules.limits)
            .and_then(|reader| check.run(StreamSource(BufReader::new(reader)))),
        None => Err(BatchError::Codec(header.attributes.codec_id())),
    }
    .map_err(|error| {
        let code = match error {
            BatchError::DecompressedTooLarge => ErrorCode::MessageTooLarge,
            // The CRC was right: a retry would send the same bytes again.
            _ => ErrorCode::InvalidRecord,
        };
        Refusal::of_content(code, error.to_string())
    })?;
    let claims_append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    let max_timestamp = check.verdict()?;
    // Then the header's time is the time of all its records.
    Ok(match claims_append_time {
        true => header.max_timestamp,
        false => max_timestamp,
    })
}

struct RecordCheck<'a> {
    header: &'a BatchHeader,
    rules: &'a ProduceRules,
    max_timestamp: i64,
    timestamp_errors: bool,
    record_errors: Vec<(i32, String)>,
    error_count: usize,
}

impl RecordCheck<'_> {
    fn run<S: Source<Field = ()>>(&mut self, mut source: S) -> Result<(), BatchError> {
        for index in 0..self.header.record_count {
            let record =
                read_record(&mut source, |(), _| {}).map_err(|error| error.at_record(index))?;
            if record.offset_delta != index {
                return Err(BatchError::Record {
                    index,
                    what: "its offset delta is not its place in the batch",
                });
            }
            if self.rules.compacted && record.key.is_none() {
                self.refuse(index, "a compacted topic needs a key".into());
            }
            match self.timestamp(record.timestamp_delta) {
                Ok(timestamp) => self.max_timestamp = self.max_timestamp.max(timestamp),
                Err(message) => {
                    self.timestamp_errors = true;
                    self.refuse(index, message);
                }
            }
        }
        match source.is_at_end() {
            Ok(true) => Ok(()),
            Ok(false) => Err(BatchError::TrailingBytes),
            Err(error) => Err(error.at_record(self.header.record_count)),
        }
    }

    fn timestamp(&self, timestamp_delta: i64) -> Result<i64, String> {
        let timestamp = self
            .header
            .base_timestamp
            .checked_add(timestamp_delta)
            .ok_or("the timestamp does not fit 64 bits")?;
        check_timestamp(timestamp, self.rules)?;
        Ok(timestamp)
    }

    fn refuse(&mut self, index: i32, message: String) {
        self.error_count += 1;
        if self.record_errors.len() < MAX_RECORD_ERRORS {
            self.record_errors.push((index, message));
        }
    }

    fn verdict(self) -> Result<i64, Refusal> {
        if self.error_count == 0 {
            return Ok(self.max_timestamp);
        }
        Err(Refusal {
            code: if self.timestamp_errors {
                ErrorCode::InvalidTimestamp
            } else {
                ErrorCode::InvalidRecord
            },
            message: Some(format!(
                "{} of the batch's {} records are refused",
                self.error_count, self.header.record_count
            )),
            record_errors: self.record_errors,
            of_content: true,
        })
    }
}

fn beyond_time(timestamp: i64) -> String {
    format!("timestamp {timestamp} is not a time: 2^50 and above are reserved")
}

fn check_timestamp(timestamp: i64, rules: &ProduceRules) -> Result<(), String> {
    if timestamp >= TICK_TIMESTAMP {
        return Err(beyond_time(timestamp));
    }
    // -1 is "no timestamp", and LogAppendTime overrides whatever the client wrote.
    if rules.timestamp_type == TimestampType::LogAppendTime || timestamp == -1 {
        return Ok(());
    }
    if rules.wall_ms.saturating_sub(timestamp) > rules.message_timestamp_before_max_ms {
        return Err(format!(
            "timestamp {timestamp} is more than {} ms before the broker's time {}",
            rules.message_timestamp_before_max_ms, rules.wall_ms
        ));
    }
    if timestamp.saturating_sub(rules.wall_ms) > rules.message_timestamp_after_max_ms {
        return Err(format!(
            "timestamp {timestamp} is more than {} ms after the broker's time {}",
            rules.message_timestamp_after_max_ms, rules.wall_ms
        ));
    }
    Ok(())
}
