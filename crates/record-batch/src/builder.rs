use tidemark_types::{LeaderEpoch, ProducerEpoch, ProducerId};

use crate::framing::{RawRecord, write_varlong};
use crate::header::patch_crc;
use crate::{Attributes, BatchHeader, HEADER_BYTES, LENGTH_PREFIX_BYTES};

/// Builds an uncompressed batch, for internal topics and tests. All records have one timestamp.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    attributes: Attributes,
    timestamp_ms: i64,
    max_timestamp_ms: i64,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: i32,
    records: i32,
    /// The header's place, then the records.
    bytes: Vec<u8>,
    /// One record, before its length is known; kept for its capacity.
    scratch: Vec<u8>,
}

impl BatchBuilder {
    /// A batch whose records carry `timestamp_ms`, without a producer.
    pub fn new(timestamp_ms: i64) -> BatchBuilder {
        BatchBuilder {
            attributes: Attributes::default(),
            timestamp_ms,
            max_timestamp_ms: timestamp_ms,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: -1,
            records: 0,
            bytes: vec![0; HEADER_BYTES],
            scratch: Vec::new(),
        }
    }

    /// Sets the producer; a base sequence of -1 for what a coordinator writes in its name.
    pub fn producer(
        &mut self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        base_sequence: i32,
    ) -> &mut BatchBuilder {
        self.producer_id = producer_id;
        self.producer_epoch = producer_epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Makes the batch part of its producer's transaction.
    pub fn transactional(&mut self) -> &mut BatchBuilder {
        self.attributes = self.attributes.with_transactional();
        self
    }

    pub(crate) fn with_attributes(mut self, attributes: Attributes) -> BatchBuilder {
        self.attributes = attributes;
        self
    }

    /// Adds a record at the batch's timestamp.
    pub fn push(&mut self, key: Option<&[u8]>, value: Option<&[u8]>) -> &mut BatchBuilder {
        self.push_at(self.timestamp_ms, key, value, &[])
    }

    /// Adds a record with a timestamp and headers of its own.
    pub fn push_at(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> &mut BatchBuilder {
        let record = RawRecord {
            offset_delta: self.records,
            timestamp_delta: timestamp_ms - self.timestamp_ms,
            key,
            value,
        };
        write_record(&mut self.bytes, &mut self.scratch, &record, headers);
        self.records += 1;
        self.max_timestamp_ms = self.max_timestamp_ms.max(timestamp_ms);
        self
    }

    /// Records so far.
    pub fn record_count(&self) -> i32 {
        self.records
    }

    /// Size of the batch as it stands.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The batch, at base offset 0 and without a leader epoch: [`crate::patch_position`] gives it
    /// both. The builder is spent.
    ///
    /// Panics without a record: a batch from a writer has at least one.
    pub fn build(&mut self) -> Vec<u8> {
        assert!(self.records > 0, "a batch needs a record");
        let mut bytes = std::mem::take(&mut self.bytes);
        let batch_length = i32::try_from(bytes.len() - LENGTH_PREFIX_BYTES)
            .expect("what the broker writes in one batch is far below 2 GiB");
        BatchHeader {
            base_offset: 0,
            batch_length,
            leader_epoch: LeaderEpoch::NONE,
            magic: 2,
            crc: 0,
            attributes: self.attributes,
            last_offset_delta: self.records - 1,
            base_timestamp: self.timestamp_ms,
            max_timestamp: self.max_timestamp_ms,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: std::mem::take(&mut self.records),
        }
        .write(&mut bytes);
        patch_crc(&mut bytes);
        bytes
    }
}

/// Appends one record; `scratch` is used for it before its length is known.
pub(crate) fn write_record<H: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    record: &RawRecord<&[u8]>,
    headers: &[(H, Option<H>)],
) {
    scratch.clear();
    // The attributes, of which none is in use.
    scratch.push(0);
    write_varlong(scratch, record.timestamp_delta);
    write_varlong(scratch, i64::from(record.offset_delta));
    write_nullable(scratch, record.key);
    write_nullable(scratch, record.value);
    write_varlong(scratch, headers.len() as i64);
    for (key, value) in headers {
        write_nullable(scratch, Some(key.as_ref()));
        write_nullable(scratch, value.as_ref().map(AsRef::as_ref));
    }
    write_varlong(out, scratch.len() as i64);
    out.extend_from_slice(scratch);
}

fn write_nullable(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => write_varlong(out, -1),
        Some(field) => {
            write_varlong(out, field.len() as i64);
            out.extend_from_slice(field);
        }
    }
}
