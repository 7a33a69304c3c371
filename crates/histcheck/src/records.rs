//! The records of a batch, decompressed.

use std::io::Read;

use crate::batch::{BATCH_HEADER_BYTES, BatchHeader};
use crate::bytes::Fields;
use crate::finding::Bad;

/// No batch grows to more than this.
const MAX_BYTES: u64 = 256 << 20;
const XERIAL_MAGIC: &[u8] = &[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];

/// A record of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub offset: i64,
    /// Of the record itself; under LogAppendTime readers take the batch's.
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

pub(crate) fn codec_name(attributes: i16) -> &'static str {
    match attributes & 7 {
        0 => "none",
        1 => "gzip",
        2 => "snappy",
        3 => "lz4",
        4 => "zstd",
        _ => "unknown",
    }
}

/// The records of exactly one batch.
pub fn records(batch: &[u8]) -> Result<Vec<Record>, Bad> {
    let header = BatchHeader::parse(batch)?;
    let at = BATCH_HEADER_BYTES as u64;
    let body = batch.get(BATCH_HEADER_BYTES..).unwrap_or_default();
    let plain = decompress(header.attributes, body).map_err(|what| {
        let what = format!("the batch at offset {}: {what}", header.base_offset);
        Bad::new(at, what)
    })?;
    let mut f = Fields::new(&plain);
    let mut found = Vec::new();
    for n in 0..header.record_count {
        let record = record(&header, &mut f).ok_or_else(|| {
            let what = format!(
                "record {n} of the batch at offset {} is not well formed",
                header.base_offset
            );
            Bad::new(at, what)
        })?;
        found.push(record);
    }
    match f.left() {
        0 => Ok(found),
        left => Err(Bad::new(
            at,
            format!(
                "{left} bytes follow the last record of the batch at offset {}",
                header.base_offset
            ),
        )),
    }
}

fn record(header: &BatchHeader, f: &mut Fields<'_>) -> Option<Record> {
    let len = usize::try_from(f.varint()?).ok()?;
    let mut r = Fields::new(f.take(len)?);
    r.i8()?;
    let timestamp = header.base_timestamp.checked_add(r.varint()?)?;
    let offset = header.base_offset.checked_add(r.varint()?)?;
    let bytes = |r: &mut Fields<'_>| match r.varint()? {
        -1 => Some(None),
        len => Some(Some(r.take(usize::try_from(len).ok()?)?.to_vec())),
    };
    let (key, value) = (bytes(&mut r)?, bytes(&mut r)?);
    let mut headers = Vec::new();
    for _ in 0..r.varint()? {
        let name = String::from_utf8_lossy(&bytes(&mut r)??).into_owned();
        headers.push((name, bytes(&mut r)?));
    }
    (r.left() == 0).then_some(Record {
        offset,
        timestamp,
        key,
        value,
        headers,
    })
}

fn decompress(attributes: i16, body: &[u8]) -> Result<Vec<u8>, String> {
    let codec = codec_name(attributes);
    let read = |reader: &mut dyn Read| {
        let mut out = Vec::new();
        let read = reader.take(MAX_BYTES).read_to_end(&mut out);
        read.map(|_| out).map_err(|e| format!("{codec}: {e}"))
    };
    match codec {
        "none" => Ok(body.to_vec()),
        "gzip" => read(&mut flate2::read::MultiGzDecoder::new(body)),
        "snappy" => snappy(body).map_err(|e| format!("snappy: {e}")),
        "lz4" => read(&mut lz4_flex::frame::FrameDecoder::new(body)),
        "zstd" => {
            let mut decoder = zstd::Decoder::new(body).map_err(|e| format!("zstd: {e}"))?;
            read(&mut decoder)
        }
        _ => Err(format!("codec {} is not known", attributes & 7)),
    }
}

/// Raw snappy, or Java's framing of it: a header of 16 bytes, then blocks with a length in front.
fn snappy(body: &[u8]) -> Result<Vec<u8>, String> {
    let block = |bytes: &[u8]| {
        let len = snap::raw::decompress_len(bytes).map_err(|e| e.to_string())?;
        // Three bytes make 64 at most: what says more is not believed, and no memory taken for it.
        if len as u64 > MAX_BYTES || len / 32 > bytes.len() {
            return Err(format!("a block of {len} bytes"));
        }
        let mut decoder = snap::raw::Decoder::new();
        decoder.decompress_vec(bytes).map_err(|e| e.to_string())
    };
    if !body.starts_with(XERIAL_MAGIC) {
        return block(body);
    }
    let mut f = Fields::new(body);
    f.take(16).ok_or("its frame ends too early")?;
    let mut out = Vec::new();
    while f.left() > 0 {
        out.extend(block(f.long_bytes().ok_or("a block ends too early")?)?);
    }
    Ok(out)
}
