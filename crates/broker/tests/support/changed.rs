//! Batches that were changed after they were built.

use bytes::Bytes;

const LENGTH: usize = 8;
const MAGIC: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
const MAX_TIMESTAMP: usize = 35;
const PRODUCER_ID: usize = 43;
const BASE_SEQUENCE: usize = 53;
const RECORD_COUNT: usize = 57;

/// A batch with some of its header's fields overwritten.
#[derive(Clone)]
pub struct Changed(Vec<u8>);

impl Changed {
    pub fn batch(batch: &Bytes) -> Changed {
        Changed(batch.to_vec())
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Changed {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub fn length(self, length: i32) -> Changed {
        self.put(LENGTH, &length.to_be_bytes())
    }

    pub fn magic(self, magic: i8) -> Changed {
        self.put(MAGIC, &magic.to_be_bytes())
    }

    /// Sets bits of the attributes.
    pub fn attribute_bits(self, bits: u16) -> Changed {
        let now = u16::from_be_bytes([self.0[ATTRIBUTES], self.0[ATTRIBUTES + 1]]);
        self.put(ATTRIBUTES, &(now | bits).to_be_bytes())
    }

    pub fn last_offset_delta(self, delta: i32) -> Changed {
        self.put(LAST_OFFSET_DELTA, &delta.to_be_bytes())
    }

    pub fn base_timestamp(self, timestamp: i64) -> Changed {
        self.put(BASE_TIMESTAMP, &timestamp.to_be_bytes())
    }

    pub fn max_timestamp(self, timestamp: i64) -> Changed {
        self.put(MAX_TIMESTAMP, &timestamp.to_be_bytes())
    }

    pub fn producer_id(self, id: i64) -> Changed {
        self.put(PRODUCER_ID, &id.to_be_bytes())
    }

    pub fn base_sequence(self, sequence: i32) -> Changed {
        self.put(BASE_SEQUENCE, &sequence.to_be_bytes())
    }

    pub fn record_count(self, count: i32) -> Changed {
        self.put(RECORD_COUNT, &count.to_be_bytes())
    }

    /// Flips the last byte of the batch, which is a record's.
    pub fn last_byte(mut self) -> Changed {
        *self.0.last_mut().expect("a batch has bytes") ^= 0xff;
        self
    }

    pub fn cut(mut self, bytes: usize) -> Changed {
        self.0.truncate(bytes);
        self
    }

    pub fn followed_by(mut self, bytes: &[u8]) -> Changed {
        self.0.extend_from_slice(bytes);
        self
    }

    /// As it is, with whatever CRC it had.
    pub fn raw(self) -> Bytes {
        self.0.into()
    }

    /// With the CRC that fits the bytes.
    pub fn sealed(self) -> Bytes {
        let crc = crc32c::crc32c(&self.0[ATTRIBUTES..]);
        self.put(CRC, &crc.to_be_bytes()).raw()
    }
}

/// The body of an uncompressed batch replaced by what `compress` makes of it.
pub fn compressed(batch: &Bytes, codec: u16, compress: impl FnOnce(&[u8]) -> Vec<u8>) -> Bytes {
    let body = compress(&batch[61..]);
    let length = i32::try_from(61 - 12 + body.len()).expect("a test's batch is small");
    Changed::batch(batch)
        .cut(61)
        .followed_by(&body)
        .length(length)
        .attribute_bits(codec)
        .sealed()
}

/// A zstd batch.
pub fn zstd(batch: &Bytes) -> Bytes {
    compressed(batch, 4, |body| {
        zstd::bulk::compress(body, 3).expect("bytes compress")
    })
}
