//! Batches of a megabyte at most that open into hundreds, or say they would.

use std::io::{self, Write};

use tidemark_differential::batches::recompressed;
use tidemark_record_batch::BatchBuilder;

const OPENED: usize = 512 << 20;
/// LZ4 stores a 255th at best: what fits the largest batch.
const OPENED_LZ4: usize = 200 << 20;

/// One of each codec. What they hold is written in pieces: here no more memory is taken than there.
pub fn all() -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let gzip = {
        let level = flate2::Compression::best();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        write_record(&mut encoder, OPENED)?;
        encoder.finish()?
    };
    let zstd = {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3)?;
        write_record(&mut encoder, OPENED)?;
        encoder.finish()?
    };
    let lz4 = {
        let info =
            lz4_flex::frame::FrameInfo::new().block_mode(lz4_flex::frame::BlockMode::Independent);
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        write_record(&mut encoder, OPENED_LZ4)?;
        encoder.finish().map_err(io::Error::other)?
    };
    // A raw snappy block begins with the size it will have, as a varint: 4 GiB less one.
    let mut snappy = vec![0xff, 0xff, 0xff, 0xff, 0x0f];
    snappy.resize(900_000, 0xfe);
    // The stream of blocks that Java writes: the first says it is 2 GiB.
    let mut xerial = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\x7f\xff\xff\xff".to_vec();
    xerial.resize(900_000, 0);
    Ok(vec![
        ("gzip", batch(1, &gzip)),
        ("snappy", batch(2, &snappy)),
        ("snappy-stream", batch(2, &xerial)),
        ("lz4", batch(3, &lz4)),
        ("zstd", batch(4, &zstd)),
    ])
}

fn batch(codec: u16, records: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(tidemark_differential::compare::wall_ms());
    builder.push(None, Some(b"v"));
    recompressed(&builder.build(), codec, records)
}

/// One record whose value are `bytes` zeros.
fn write_record(to: &mut impl Write, bytes: usize) -> io::Result<()> {
    // Attributes, timestamp delta, offset delta, no key.
    let mut head = vec![0, 0, 0, 1];
    varint(&mut head, bytes as u64);
    let mut length = Vec::new();
    varint(&mut length, (head.len() + bytes + 1) as u64);
    to.write_all(&length)?;
    to.write_all(&head)?;
    let piece = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        to.write_all(&piece)?;
    }
    // No headers.
    to.write_all(&[0])
}

fn varint(out: &mut Vec<u8>, value: u64) {
    let mut value = value << 1;
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
