//! The block of a checkpoint that says which bytes of which segments are synced.

use crate::bytes::Fields;
use crate::checkpoint::Block;
use crate::finding::Bad;

const FORMAT: u16 = 1;
const ABORTED_FORMAT: u8 = 1;

/// How far a segment's files may be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub base_offset: i64,
    /// 0 as it was first written; else the run of compaction that wrote it.
    pub generation: u32,
    pub next_offset: i64,
    pub log_bytes: u64,
    /// Batches.
    pub entries: u64,
    pub max_timestamp: i64,
    pub last_tick: u64,
    /// CRC-32C of the `.log` file up to `log_bytes`.
    pub log_crc: u32,
    /// It no longer grows, and Kafka's indexes lie beside it.
    pub indexed: bool,
}

/// An aborted transaction of one partition: an entry of Kafka's `.txnindex`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Aborted {
    pub producer_id: i64,
    pub first_offset: i64,
    /// Of the marker.
    pub last_offset: i64,
    /// The last stable offset after the marker.
    pub last_stable_offset: i64,
}

/// Of a batch whose bytes are not in a segment yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TailNote {
    pub base_offset: i64,
    pub last_stable_offset: i64,
    /// First offset of the transaction that a marker ended, -1 = none.
    pub txn_first_offset: i64,
}

/// The whole block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentsBlock {
    pub log_start_offset: i64,
    /// First offset that is not synced in a segment.
    pub synced_end_offset: i64,
    /// End of the log when the block was taken.
    pub end_offset: i64,
    /// First journal record with bytes behind `synced_end_offset`, 0 = none.
    pub first_needed_index: u64,
    pub segments: Vec<Segment>,
    /// (leader epoch, first offset it may write)
    pub epochs: Vec<(i32, i64)>,
    pub tail: Vec<TailNote>,
    /// Below this offset each key has its last record only, and those that wait to be deleted.
    pub compacted_to: i64,
    /// When the first of the latter may go (ms since 1970), i64::MAX: there is none.
    pub next_horizon_ms: i64,
    pub aborted: Vec<Aborted>,
}

impl SegmentsBlock {
    pub fn parse(block: &Block) -> Result<SegmentsBlock, Bad> {
        if block.format_version != FORMAT {
            let what = format!("a list of segments of format {}", block.format_version);
            return Err(Bad::newer(block.position + 3, what));
        }
        let mut f = Fields::new(&block.payload);
        let parsed = parse(&mut f);
        let at = block.payload_position() + f.position() as u64;
        let bad = |what: &str| {
            Bad::new(
                at,
                format!("the list of segments of {}: {what}", block.partition),
            )
        };
        let parsed = parsed.ok_or_else(|| bad("it ends too early"))?;
        if f.left() > 0 {
            return Err(bad(&format!("{} bytes are left over", f.left())));
        }
        parsed.check().map_err(|what| bad(&what))?;
        Ok(parsed)
    }

    fn check(&self) -> Result<(), String> {
        for segment in &self.segments {
            if segment.entries == 0 || segment.next_offset <= segment.base_offset {
                return Err(format!("segment {} is empty", segment.base_offset));
            }
        }
        for pair in self.segments.windows(2) {
            if pair[0].next_offset > pair[1].base_offset {
                let (a, b) = (pair[0].next_offset, pair[1].base_offset);
                return Err(format!("a segment ends at {a} and the next begins at {b}"));
            }
        }
        let end = self.segments.last().map(|segment| segment.next_offset);
        if end.is_some_and(|end| end != self.synced_end_offset)
            || self.synced_end_offset > self.end_offset
        {
            return Err(format!(
                "segments end at {end:?}, synced up to {}, the log ends at {}",
                self.synced_end_offset, self.end_offset
            ));
        }
        Ok(())
    }
}

fn parse(f: &mut Fields<'_>) -> Option<SegmentsBlock> {
    let mut block = SegmentsBlock {
        log_start_offset: f.i64()?,
        synced_end_offset: f.i64()?,
        end_offset: f.i64()?,
        first_needed_index: f.u64()?,
        segments: Vec::new(),
        epochs: Vec::new(),
        tail: Vec::new(),
        compacted_to: 0,
        next_horizon_ms: i64::MAX,
        aborted: Vec::new(),
    };
    for _ in 0..f.u32()? {
        block.segments.push(Segment {
            base_offset: f.i64()?,
            generation: f.u32()?,
            next_offset: f.i64()?,
            log_bytes: f.u64()?,
            entries: f.u64()?,
            max_timestamp: f.i64()?,
            last_tick: f.u64()?,
            log_crc: f.u32()?,
            indexed: f.u8()? != 0,
        });
    }
    for _ in 0..f.u32()? {
        block.epochs.push((f.i32()?, f.i64()?));
    }
    for _ in 0..f.u32()? {
        block.tail.push(TailNote {
            base_offset: f.i64()?,
            last_stable_offset: f.i64()?,
            txn_first_offset: f.i64()?,
        });
    }
    block.compacted_to = f.i64()?;
    block.next_horizon_ms = f.i64()?;
    if f.u8()? != ABORTED_FORMAT {
        return None;
    }
    for _ in 0..f.u32()? {
        block.aborted.push(aborted(f)?);
    }
    Some(block)
}

/// An entry of a `.txnindex`: 34 bytes.
pub(crate) fn aborted(f: &mut Fields<'_>) -> Option<Aborted> {
    if f.i16()? != 0 {
        return None;
    }
    Some(Aborted {
        producer_id: f.i64()?,
        first_offset: f.i64()?,
        last_offset: f.i64()?,
        last_stable_offset: f.i64()?,
    })
}
