//! Record batches to send: whole ones, compressed ones, and broken ones.

use std::io::Write;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use tidemark_record_batch::{BatchBuilder, HEADER_BYTES};
use tidemark_types::{ProducerEpoch, ProducerId};

use crate::script::Line;

/// 2023-11-14, so that no broker's clock is near it.
pub const SCRIPT_TIME_MS: i64 = 1_700_000_000_000;

const LENGTH_AT: usize = 8;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;

/// The `records` of a Produce line: `n=` records (1), or `values=a,b,c`; `null` for null.
///
/// `ts=` milliseconds after [`SCRIPT_TIME_MS`] (a list gives each record its own), `ts=now`, or `ts=recent`, which is
/// the same time throughout, before all of the brokers' own;
/// `key=` a key for all, `codec=gzip|snappy|lz4|zstd`, `size=` bytes of each value, `control=1`,
/// and `bad=` one of [`damage`]'s.
pub fn of_line(line: &Line, producer: (i64, i16)) -> Result<Option<Vec<u8>>> {
    match line.get("records") {
        Some("null") => return Ok(None),
        Some("empty") => return Ok(Some(Vec::new())),
        Some(other) => bail!("records={other}: null or empty"),
        None => {}
    }
    let mut batch = build(line, producer)?;
    if let Some(codec) = line.get("codec") {
        compress(&mut batch, codec)?;
    }
    let (mut set, mut clear) = (0, 0);
    if line.flag("control", false)? {
        set |= 0x20;
    }
    if line.flag("plain", false)? {
        clear |= 0x10;
    }
    change_attributes(&mut batch, set, clear);
    if let Some(kind) = line.get("bad") {
        damage(&mut batch, kind)?;
    }
    Ok(Some(batch))
}

/// A batch with other records, as a codec (1 gzip, 2 snappy, 3 lz4, 4 zstd) has made them.
pub fn recompressed(batch: &[u8], codec: u16, records: &[u8]) -> Vec<u8> {
    let mut changed = batch[..HEADER_BYTES].to_vec();
    changed.extend_from_slice(records);
    mend(&mut changed);
    change_attributes(&mut changed, codec, 0x07);
    changed
}

fn recent_ms() -> i64 {
    static RECENT_MS: OnceLock<i64> = OnceLock::new();
    *RECENT_MS.get_or_init(|| crate::compare::wall_ms() - 60_000)
}

fn build(line: &Line, (id, epoch): (i64, i16)) -> Result<Vec<u8>> {
    let values: Vec<String> = match line.get("values") {
        Some(values) => values.split(',').map(str::to_owned).collect(),
        None => {
            let size: usize = line.number("size", 4)?;
            let count: usize = line.number("n", 1)?;
            (0..count)
                .map(|i| format!("{i:0size$}").replace('0', "v"))
                .collect()
        }
    };
    let times: Vec<i64> = match line.get("ts") {
        None => vec![SCRIPT_TIME_MS],
        Some("now") => vec![crate::compare::wall_ms()],
        Some("recent") => vec![recent_ms()],
        Some(list) => list
            .split(',')
            .map(|t| Ok(SCRIPT_TIME_MS.saturating_add(t.parse::<i64>()?)))
            .collect::<Result<_>>()?,
    };
    let first = *times.first().context("ts= is empty")?;
    let mut builder = BatchBuilder::new(first);
    let sequence = line.number("seq", -1)?;
    builder.producer(ProducerId(id), ProducerEpoch(epoch), sequence);
    if line.get("txn").is_some() {
        builder.transactional();
    }
    let key = line.get("key").map(str::as_bytes);
    for (i, value) in values.iter().enumerate() {
        let time = times.get(i).or(times.last()).copied().unwrap_or(first);
        builder.push_at(time, key, Some(value.as_bytes()), &[]);
    }
    Ok(builder.build())
}

fn compress(batch: &mut Vec<u8>, codec: &str) -> Result<()> {
    let records = batch.split_off(HEADER_BYTES);
    let (bits, packed) = match codec {
        "gzip" => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&records)?;
            (1, encoder.finish()?)
        }
        "snappy" => (2, snap::raw::Encoder::new().compress_vec(&records)?),
        "lz4" => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(&records)?;
            (3, encoder.finish()?)
        }
        "zstd" => (4, zstd::encode_all(&records[..], 1)?),
        _ => bail!("codec={codec}"),
    };
    batch.extend_from_slice(&packed);
    mend(batch);
    change_attributes(batch, bits, 0);
    Ok(())
}

/// Breaks a batch. The CRC is right again afterwards unless that is what is broken.
fn damage(batch: &mut Vec<u8>, kind: &str) -> Result<()> {
    let (kind, argument) = kind.split_once(':').unwrap_or((kind, ""));
    let number = || -> Result<i64> { Ok(argument.parse()?) };
    match kind {
        "crc" => {
            batch[CRC_AT] ^= 0xff;
            return Ok(());
        }
        "magic" => batch[MAGIC_AT] = u8::try_from(number()?)?,
        "count" => put(batch, 57, &i32::try_from(number()?)?.to_be_bytes()),
        "last-delta" => put(batch, 23, &i32::try_from(number()?)?.to_be_bytes()),
        "base-offset" => put(batch, 0, &number()?.to_be_bytes()),
        "codec-bits" => change_attributes(batch, u16::try_from(number()?)?, 0x07),
        "attributes" => change_attributes(batch, u16::try_from(number()?)?, 0),
        "max-timestamp" => put(batch, 35, &number()?.to_be_bytes()),
        "length" => {
            put(batch, LENGTH_AT, &i32::try_from(number()?)?.to_be_bytes());
            return Ok(());
        }
        // The header's length is smaller than the batch.
        "shorter" => {
            let length = i32::try_from(batch.len() - 12)? - i32::try_from(number()?)?;
            put(batch, LENGTH_AT, &length.to_be_bytes());
            return Ok(());
        }
        // The last bytes of the records are gone, and the header knows it.
        "cut-records" => {
            let keep = batch.len().saturating_sub(usize::try_from(number()?)?);
            ensure!(keep >= HEADER_BYTES, "nothing left");
            batch.truncate(keep);
            mend(batch);
        }
        // The last bytes of the batch are gone, and the header does not know it.
        "cut" => {
            let keep = batch.len().saturating_sub(usize::try_from(number()?)?);
            batch.truncate(keep);
            return Ok(());
        }
        // Bytes behind the last record, inside the batch.
        "more-records" => {
            batch.extend(std::iter::repeat_n(0, usize::try_from(number()?)?));
            mend(batch);
        }
        "twice" => {
            let again = batch.clone();
            batch.extend_from_slice(&again);
            return Ok(());
        }
        "tail" => {
            batch.extend(std::iter::repeat_n(0, usize::try_from(number()?)?));
            return Ok(());
        }
        "rubbish" => {
            *batch = vec![0x55; usize::try_from(number()?)?];
            return Ok(());
        }
        // The first record's own length.
        "record-length" => batch[HEADER_BYTES] = u8::try_from(number()?)?,
        _ => bail!("bad={kind}"),
    }
    fix_crc(batch);
    Ok(())
}

fn put(batch: &mut [u8], at: usize, bytes: &[u8]) {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
}

fn change_attributes(batch: &mut [u8], set: u16, clear: u16) {
    if set | clear != 0 {
        let before = u16::from_be_bytes([batch[ATTRIBUTES_AT], batch[ATTRIBUTES_AT + 1]]);
        put(batch, ATTRIBUTES_AT, &(before & !clear | set).to_be_bytes());
        fix_crc(batch);
    }
}

/// Length and CRC after the records changed.
fn mend(batch: &mut [u8]) {
    let length = i32::try_from(batch.len() - 12).expect("a script's batch is small");
    put(batch, LENGTH_AT, &length.to_be_bytes());
    fix_crc(batch);
}

fn fix_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    put(batch, CRC_AT, &crc.to_be_bytes());
}
