//! Batches as clients write them: the bytes of a builder, changed and sealed again.
#![allow(dead_code)]

use std::io::Write;

use bytes::Bytes;
use tidemark_record_batch::{Attributes, BatchBuilder, Codec, HEADER_BYTES};
use tidemark_types::{ProducerEpoch, ProducerId};

/// A batch of records `k0=v0`, `k1=v1`... at timestamp 1000, without a producer.
pub fn plain(records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(1_000);
    for i in 0..records {
        builder.push(
            Some(format!("k{i}").as_bytes()),
            Some(format!("v{i}").as_bytes()),
        );
    }
    builder.build()
}

/// A one-record batch of producer 7, epoch 0.
pub fn idempotent(base_sequence: i32) -> Vec<u8> {
    BatchBuilder::new(1_000)
        .producer(ProducerId(7), ProducerEpoch(0), base_sequence)
        .push(Some(b"k"), Some(b"v"))
        .build()
}

/// Where the header's fields lie.
pub mod at {
    pub const BATCH_LENGTH: usize = 8;
    pub const MAGIC: usize = 16;
    pub const CRC: usize = 17;
    pub const ATTRIBUTES: usize = 21;
    pub const LAST_OFFSET_DELTA: usize = 23;
    pub const BASE_TIMESTAMP: usize = 27;
    pub const MAX_TIMESTAMP: usize = 35;
    pub const PRODUCER_ID: usize = 43;
    pub const PRODUCER_EPOCH: usize = 51;
    pub const BASE_SEQUENCE: usize = 53;
    pub const RECORD_COUNT: usize = 57;
}

/// Overwrites a field and makes the CRC right again: what a hostile client would send.
pub fn with_field<const N: usize>(mut batch: Vec<u8>, at: usize, value: [u8; N]) -> Vec<u8> {
    batch[at..at + N].copy_from_slice(&value);
    seal(&mut batch);
    batch
}

/// Sets attribute bits.
pub fn with_bits(batch: Vec<u8>, bits: i16) -> Vec<u8> {
    let old = i16::from_be_bytes([batch[at::ATTRIBUTES], batch[at::ATTRIBUTES + 1]]);
    with_field(batch, at::ATTRIBUTES, (old | bits).to_be_bytes())
}

/// Replaces everything after the header.
pub fn with_body(mut batch: Vec<u8>, body: &[u8]) -> Vec<u8> {
    batch.truncate(HEADER_BYTES);
    batch.extend_from_slice(body);
    seal(&mut batch);
    batch
}

/// Writes batch length and CRC; the CRC by another implementation than the crate's.
pub fn seal(batch: &mut [u8]) {
    let length = (batch.len() - 12) as i32;
    batch[at::BATCH_LENGTH..at::BATCH_LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[at::ATTRIBUTES..]);
    batch[at::CRC..at::CRC + 4].copy_from_slice(&crc.to_be_bytes());
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Gzip,
    SnappyRaw,
    SnappyXerial,
    Lz4,
    Lz4Linked,
    Zstd,
}

pub const FORMS: [Form; 5] = [
    Form::Gzip,
    Form::SnappyRaw,
    Form::SnappyXerial,
    Form::Lz4,
    Form::Zstd,
];

impl Form {
    pub fn codec(self) -> Codec {
        match self {
            Form::Gzip => Codec::Gzip,
            Form::SnappyRaw | Form::SnappyXerial => Codec::Snappy,
            Form::Lz4 | Form::Lz4Linked => Codec::Lz4,
            Form::Zstd => Codec::Zstd,
        }
    }

    pub fn compress(self, body: &[u8]) -> Vec<u8> {
        use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
        match self {
            Form::Gzip => {
                let mut out = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                out.write_all(body).unwrap();
                out.finish().unwrap()
            }
            Form::SnappyRaw => snap::raw::Encoder::new().compress_vec(body).unwrap(),
            Form::SnappyXerial => {
                let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
                // Java's blocks hold 32 KiB; smaller ones here make several of them.
                for chunk in body.chunks(100) {
                    let block = snap::raw::Encoder::new().compress_vec(chunk).unwrap();
                    out.extend_from_slice(&(block.len() as i32).to_be_bytes());
                    out.extend_from_slice(&block);
                }
                out
            }
            Form::Lz4 | Form::Lz4Linked => {
                let mode = if self == Form::Lz4 {
                    BlockMode::Independent
                } else {
                    BlockMode::Linked
                };
                let info = FrameInfo::new().block_mode(mode).content_checksum(true);
                let mut out = FrameEncoder::with_frame_info(info, Vec::new());
                out.write_all(body).unwrap();
                out.finish().unwrap()
            }
            Form::Zstd => zstd::encode_all(body, 3).unwrap(),
        }
    }
}

/// `batch`, which is uncompressed, with its body compressed.
pub fn compressed(batch: &[u8], form: Form) -> Vec<u8> {
    let body = form.compress(&batch[HEADER_BYTES..]);
    let attributes = i16::from_be_bytes([batch[at::ATTRIBUTES], batch[at::ATTRIBUTES + 1]]);
    let attributes = Attributes(attributes).with_codec(form.codec());
    let batch = with_body(batch.to_vec(), &body);
    with_field(batch, at::ATTRIBUTES, attributes.0.to_be_bytes())
}

pub fn bytes(batch: &[u8]) -> Bytes {
    Bytes::copy_from_slice(batch)
}
