//! Checksums made right: what is behind them is what the fuzzer is to reach.

use aws_lc_rs::digest::{SHA256, digest};
use crc32c::crc32c;

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().expect("four bytes")))
}

/// One batch over all of the bytes: its length and its CRC.
pub fn batch(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 61 {
        let length = u32::try_from(bytes.len() - 12).expect("an input is small");
        put_u32(&mut bytes, 8, length);
        let crc = crc32c(&bytes[21..]);
        put_u32(&mut bytes, 17, crc);
    }
    bytes
}

/// A checkpoint file (`partition-log/src/checkpoint_format.rs`): of the header, of each block that is
/// whole, and of the end.
pub fn checkpoint(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() < 56 {
        return bytes;
    }
    let crc = crc32c(&bytes[..52]);
    put_u32(&mut bytes, 52, crc);
    let mut at = 56;
    while bytes.get(at) == Some(&b'B') {
        let Some(payload) = u32_at(&bytes, at + 33) else {
            return bytes;
        };
        let Some(end) = (at + 37).checked_add(payload as usize) else {
            return bytes;
        };
        if end + 4 > bytes.len() {
            return bytes;
        }
        let crc = crc32c(&bytes[at..end]);
        put_u32(&mut bytes, end, crc);
        at = end + 4;
    }
    if bytes.get(at) == Some(&b'E') && at + 13 <= bytes.len() {
        let crc = crc32c(&bytes[..at + 9]);
        put_u32(&mut bytes, at + 9, crc);
    }
    bytes
}

/// A tick index: header and entries of 96 bytes, each with its CRC at the end.
pub fn tick_index(mut bytes: Vec<u8>) -> Vec<u8> {
    for entry in bytes.chunks_exact_mut(96) {
        let crc = crc32c(&entry[..92]);
        put_u32(entry, 92, crc);
    }
    bytes
}

/// A file of the audit log (`audit/src/chain.rs`): each line that ends with a hash, the hash of that line and
/// of the one before it.
pub fn audit_log(bytes: &[u8]) -> Vec<u8> {
    const BEFORE: &[u8] = br#","hash":""#;
    const AFTER: &str = r#""after":""#;
    let mut before = "0".repeat(64);
    let mut out = Vec::with_capacity(bytes.len());
    for (n, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let at = line.windows(BEFORE.len()).rposition(|part| part == BEFORE);
        let Some(at) = at.filter(|at| line.len() > at + BEFORE.len() + 64) else {
            out.extend_from_slice(line);
            continue;
        };
        let body = &line[..at];
        if n == 0
            && let Ok(text) = std::str::from_utf8(body)
            && let Some((_, after)) = text.split_once(AFTER)
            && let Some(after) = after.get(..64)
        {
            before = after.to_owned();
        }
        let hashed = [before.as_bytes(), body, b"}"].concat();
        let hash = digest(&SHA256, &hashed);
        before = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        let hash_at = at + BEFORE.len();
        out.extend_from_slice(&line[..hash_at]);
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(&line[hash_at + 64..]);
    }
    out
}
