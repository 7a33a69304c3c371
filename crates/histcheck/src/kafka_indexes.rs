//! The indexes that Kafka's tools expect beside a sealed segment: checked against its batches.

use crate::bytes::Fields;
use crate::files::Files;
use crate::finding::{Bad, Findings, mend};
use crate::partition::Batch;
use crate::segment::SegmentFiles;
use crate::segments_block::{Aborted, Segment, aborted};

const OFFSET_ENTRY_BYTES: u64 = 8;
const TIME_ENTRY_BYTES: u64 = 12;
const TXN_ENTRY_BYTES: u64 = 34;

/// Checks the three indexes of a segment whose batches are `batches`; `expected` are the aborted
/// transactions whose markers lie in it, `None` when they are not all known.
pub(crate) fn check(
    files: &dyn Files,
    names: &SegmentFiles,
    segment: &Segment,
    batches: &[Batch],
    expected: Option<&[Aborted]>,
    findings: &mut Findings,
) {
    let mut check = |extension: &str, required: bool, body: &dyn Fn(&[u8]) -> Result<(), Bad>| {
        let file = names.file(extension);
        match files.whole(&file) {
            Err(e) => findings.io(&file, &e),
            Ok(None) if required => findings.damage(&file, "the file is missing", mend::INDEX),
            Ok(bytes) => {
                if let Err(bad) = body(&bytes.unwrap_or_default()) {
                    findings.bad(bad, &file, mend::INDEX);
                }
            }
        }
    };
    check("index", true, &|bytes| offsets(bytes, segment, batches));
    check("timeindex", true, &|bytes| times(bytes, segment, batches));
    if let Some(expected) = expected {
        check("txnindex", !expected.is_empty(), &|bytes| {
            txns(bytes, expected)
        });
    }
}

fn entries<T>(
    bytes: &[u8],
    entry_bytes: u64,
    parse: impl Fn(&mut Fields<'_>) -> Option<T>,
) -> Result<Vec<T>, Bad> {
    let mut found = Vec::new();
    let mut f = Fields::new(bytes);
    while f.left() > 0 {
        let at = f.position() as u64;
        let entry = parse(&mut f);
        found.push(entry.ok_or_else(|| {
            Bad::new(
                at,
                format!("the file ends within an entry of {entry_bytes} bytes"),
            )
        })?);
    }
    Ok(found)
}

fn offsets(bytes: &[u8], segment: &Segment, batches: &[Batch]) -> Result<(), Bad> {
    let mut last = -1;
    let found = entries(bytes, OFFSET_ENTRY_BYTES, |f| Some((f.i32()?, f.i32()?)))?;
    for (n, (relative, position)) in (0..).zip(found) {
        let offset = segment.base_offset + i64::from(relative);
        let points_at_it = batches
            .binary_search_by_key(&(position as u64), |batch| batch.place.position)
            .is_ok_and(|at| batches[at].header.last_offset() == offset);
        if !points_at_it || offset <= last {
            let what =
                format!("it says that the batch up to offset {offset} is at position {position}");
            return Err(Bad::new(n * OFFSET_ENTRY_BYTES, what));
        }
        last = offset;
    }
    Ok(())
}

fn times(bytes: &[u8], segment: &Segment, batches: &[Batch]) -> Result<(), Bad> {
    let mut last = None;
    let found = entries(bytes, TIME_ENTRY_BYTES, |f| Some((f.i64()?, f.i32()?)))?;
    for (n, (timestamp, relative)) in (0..).zip(found) {
        let offset = segment.base_offset + i64::from(relative);
        let at = batches.partition_point(|batch| batch.header.last_offset() < offset);
        let is_max = batches.get(at).is_some_and(|batch| {
            batch.header.last_offset() == offset && batch.header.max_timestamp == timestamp
        }) && batches[..at]
            .iter()
            .filter(|batch| batch.header.record_count > 0)
            .all(|batch| batch.header.max_timestamp < timestamp);
        if !is_max || last.is_some_and(|last| timestamp <= last) {
            let what = format!("it says that {timestamp} is reached first at offset {offset}");
            return Err(Bad::new(n * TIME_ENTRY_BYTES, what));
        }
        last = Some(timestamp);
    }
    let has_records = batches.iter().any(|batch| batch.header.record_count > 0);
    match last == has_records.then_some(segment.max_timestamp) {
        true => Ok(()),
        false => Err(Bad::new(
            bytes.len() as u64,
            format!(
                "its last timestamp is {last:?}, the segment's highest is {}",
                segment.max_timestamp
            ),
        )),
    }
}

fn txns(bytes: &[u8], expected: &[Aborted]) -> Result<(), Bad> {
    let found = entries(bytes, TXN_ENTRY_BYTES, aborted)?;
    let differs = (0..found.len().max(expected.len())).find(|n| found.get(*n) != expected.get(*n));
    match differs {
        None => Ok(()),
        Some(n) => Err(Bad::new(
            n as u64 * TXN_ENTRY_BYTES,
            format!(
                "it says {:?}, the batches say {:?}",
                found.get(n),
                expected.get(n)
            ),
        )),
    }
}
