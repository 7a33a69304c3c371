//! The block of a checkpoint that holds a partition's state: offsets, epochs, producers, and for an
//! internal topic's partition what its records say.

use std::collections::BTreeMap;

use crate::bytes::Fields;
use crate::checkpoint::Block;
use crate::finding::Bad;
use crate::ids::{PartitionId, TopicId};

const FILE_FORMAT: u16 = 1;
const FORMAT: u8 = 1;
const PRODUCERS_FORMAT: u8 = 1;
/// Batches that a producer's window holds at most.
pub(crate) const WINDOW_BATCHES: usize = 5;

/// A batch in a producer's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowBatch {
    pub base_sequence: i32,
    pub last_offset_delta: i32,
    pub base_offset: i64,
    pub max_timestamp: i64,
}

/// What a partition knows of a producer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Producer {
    pub epoch: i16,
    /// Of the last marker, -1 before the first.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction.
    pub open_from: Option<i64>,
    /// Wall clock of the last write; not in the batches, 0 where it is computed from them.
    pub last_wall_ms: i64,
    /// Oldest first.
    pub window: Vec<WindowBatch>,
}

/// A record of an internal topic, as the block keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyedRecord {
    /// Where its log holds it; only in `__consumer_offsets`.
    pub offset: i64,
    /// The open transaction it waits for, -1 = none; only in `__consumer_offsets`.
    pub producer_id: i64,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// The whole block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateBlock {
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    /// (leader epoch, first offset it may write)
    pub epochs: Vec<(i32, i64)>,
    pub producers: BTreeMap<i64, Producer>,
    pub records: Vec<KeyedRecord>,
}

impl StateBlock {
    pub fn parse(block: &Block) -> Result<StateBlock, Bad> {
        if block.format_version != FILE_FORMAT {
            let what = format!("a state block of format {}", block.format_version);
            return Err(Bad::newer(block.position + 3, what));
        }
        StateBlock::parse_payload(block.partition, &block.payload, block.payload_position())
    }

    /// Reads a payload that begins at position `start` of its file.
    pub fn parse_payload(
        partition: PartitionId,
        payload: &[u8],
        start: u64,
    ) -> Result<StateBlock, Bad> {
        let mut f = Fields::new(payload);
        match f.u8() {
            Some(FORMAT) => {}
            Some(other) => {
                let what = format!("a state block of format {other}");
                return Err(Bad::newer(start, what));
            }
            None => return Err(Bad::new(start, "the state block is empty")),
        }
        let parsed = parse(&mut f, partition.topic);
        let at = start + f.position() as u64;
        let of = |what: &str| format!("the state of {partition}: {what}");
        match parsed {
            None => Err(Bad::new(
                at,
                of("it ends too early, or is of no known format"),
            )),
            Some(_) if f.left() > 0 => Err(Bad::new(
                at,
                of(&format!("{} bytes are left over", f.left())),
            )),
            Some(parsed) => Ok(parsed),
        }
    }

    /// The last stable offset.
    pub fn last_stable_offset(&self) -> i64 {
        let open = self.producers.values().filter_map(|p| p.open_from).min();
        open.unwrap_or(self.log_end_offset)
            .min(self.log_end_offset)
            .max(self.log_start_offset)
    }
}

fn parse(f: &mut Fields<'_>, topic: TopicId) -> Option<StateBlock> {
    let mut block = StateBlock {
        log_start_offset: f.i64()?,
        log_end_offset: f.i64()?,
        epochs: Vec::new(),
        producers: BTreeMap::new(),
        records: Vec::new(),
    };
    for _ in 0..f.u32()? {
        block.epochs.push((f.i32()?, f.i64()?));
    }
    block.producers = producers(f.long_bytes()?)?;
    let (keyed, with_place) = match topic {
        TopicId::CLUSTER_METADATA | TopicId::TRANSACTION_STATE => (true, false),
        TopicId::CONSUMER_OFFSETS => (true, true),
        _ => (false, false),
    };
    if keyed {
        for _ in 0..f.u32()? {
            let (offset, producer_id) = match with_place {
                true => (f.i64()?, f.i64()?),
                false => (-1, -1),
            };
            block.records.push(KeyedRecord {
                offset,
                producer_id,
                key: f.long_bytes()?.to_vec(),
                value: f.long_bytes()?.to_vec(),
            });
        }
    }
    Some(block)
}

fn producers(bytes: &[u8]) -> Option<BTreeMap<i64, Producer>> {
    let mut f = Fields::new(bytes);
    if f.u8()? != PRODUCERS_FORMAT {
        return None;
    }
    let mut found = BTreeMap::new();
    for _ in 0..f.u32()? {
        let producer_id = f.i64()?;
        let mut producer = Producer {
            epoch: f.i16()?,
            coordinator_epoch: f.i32()?,
            open_from: Some(f.i64()?).filter(|offset| *offset >= 0),
            last_wall_ms: f.i64()?,
            window: Vec::new(),
        };
        for _ in 0..f.u8()? {
            producer.window.push(WindowBatch {
                base_sequence: f.i32()?,
                last_offset_delta: f.i32()?,
                base_offset: f.i64()?,
                max_timestamp: f.i64()?,
            });
        }
        found.insert(producer_id, producer);
    }
    (f.left() == 0).then_some(found)
}
