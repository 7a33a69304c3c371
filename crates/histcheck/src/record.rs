//! The payload of a journal record: an atomic set of appends.

use crate::bytes::Fields;
use crate::finding::Bad;
use crate::ids::{PartitionId, TopicId};

const FORMAT: u8 = 1;

/// One batch for one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Append<'a> {
    pub partition: PartitionId,
    /// Of the batch within the payload.
    pub position: usize,
    pub batch: &'a [u8],
}

/// The appends of a payload. Positions in errors are within it.
pub fn appends(payload: &[u8]) -> Result<Vec<Append<'_>>, Bad> {
    let mut f = Fields::new(payload);
    let short = |f: &Fields<'_>| Bad::new(f.position() as u64, "the record ends too early");
    let format = f.u8().ok_or_else(|| short(&f))?;
    if format != FORMAT {
        return Err(Bad::newer(0, format!("a record of format {format}")));
    }
    let count = f.u32().ok_or_else(|| short(&f))?;
    let mut found = Vec::new();
    for _ in 0..count {
        let head = (|| Some((f.array()?, f.i32()?, f.u32()?)))();
        let (topic, partition, len) = head.ok_or_else(|| short(&f))?;
        let position = f.position();
        let batch = f.take(len as usize).ok_or_else(|| short(&f))?;
        found.push(Append {
            partition: PartitionId {
                topic: TopicId(topic),
                partition,
            },
            position,
            batch,
        });
    }
    match f.left() {
        0 => Ok(found),
        left => Err(Bad::new(
            f.position() as u64,
            format!("{left} bytes are left over in the record"),
        )),
    }
}
