//! `.tickindex`: an entry per batch with what Kafka's batches do not carry.

use crate::bytes::Fields;
use crate::finding::Bad;
use crate::ids::{PartitionId, TopicId};

pub(crate) const HEADER_BYTES: u64 = 96;
pub(crate) const ENTRY_BYTES: u64 = 96;
const MAGIC: &[u8] = b"TIDETICK";
const FORMAT: u16 = 1;

/// The first 96 bytes of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TickHeader {
    pub directory_id: [u8; 16],
    pub partition: PartitionId,
    pub base_offset: i64,
}

/// What a batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TickKind {
    Data,
    Abort,
    Commit,
}

/// One batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TickEntry {
    pub base_offset: i64,
    pub last_offset_delta: i32,
    pub tick: u64,
    /// Of the batch in the `.log` file.
    pub position: u32,
    pub size_bytes: u32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub running_max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub attributes: i16,
    /// After this batch.
    pub last_stable_offset: i64,
    /// First offset of the transaction that a marker ended, -1 = none.
    pub txn_first_offset: i64,
    pub journal_index: u64,
    pub kind: TickKind,
}

fn check_crc(bytes: &[u8], position: u64, what: &str) -> Result<(), Bad> {
    let stored = u32::from_be_bytes(bytes[92..96].try_into().expect("four bytes"));
    let crc = crc32c::crc32c(&bytes[..92]);
    match stored == crc {
        true => Ok(()),
        false => Err(Bad::new(
            position,
            format!("{what} carries the CRC {stored:08x}, its bytes have {crc:08x}"),
        )),
    }
}

impl TickHeader {
    pub fn parse(bytes: &[u8]) -> Result<TickHeader, Bad> {
        let Some(bytes) = bytes.get(..HEADER_BYTES as usize) else {
            return Err(Bad::new(0, "it is shorter than a tick index's header"));
        };
        if &bytes[..8] != MAGIC {
            return Err(Bad::new(0, "it has no tick index header"));
        }
        check_crc(bytes, 0, "the header")?;
        let mut f = Fields::new(&bytes[8..]);
        let parsed = (|| {
            let (format, entry_bytes, _) = (f.u16()?, f.u16()?, f.u32()?);
            let header = TickHeader {
                directory_id: f.array()?,
                partition: PartitionId {
                    topic: TopicId(f.array()?),
                    partition: f.i32()?,
                },
                base_offset: f.i64()?,
            };
            Some((format, entry_bytes, header))
        })();
        match parsed {
            Some((FORMAT, entry, header)) if u64::from(entry) == ENTRY_BYTES => Ok(header),
            Some((format, entry, _)) => Err(Bad::newer(
                8,
                format!("a tick index of format {format} with entries of {entry} bytes"),
            )),
            None => Err(Bad::new(0, "it is shorter than a tick index's header")),
        }
    }
}

impl TickEntry {
    /// Reads the entry that lies at `position` of its file.
    pub fn parse(bytes: &[u8], position: u64) -> Result<TickEntry, Bad> {
        let Some(bytes) = bytes.get(..ENTRY_BYTES as usize) else {
            return Err(Bad::new(position, "the file ends within an entry"));
        };
        check_crc(bytes, position, "the entry")?;
        let mut f = Fields::new(bytes);
        let parsed = (|| {
            Some(TickEntry {
                base_offset: f.i64()?,
                last_offset_delta: f.i32()?,
                tick: f.u64()?,
                position: f.u32()?,
                size_bytes: f.u32()?,
                base_timestamp: f.i64()?,
                max_timestamp: f.i64()?,
                running_max_timestamp: f.i64()?,
                producer_id: f.i64()?,
                producer_epoch: f.i16()?,
                attributes: f.i16()?,
                last_stable_offset: f.i64()?,
                txn_first_offset: f.i64()?,
                journal_index: f.u64()?,
                kind: match f.u8()? {
                    0 => TickKind::Data,
                    1 => TickKind::Abort,
                    2 => TickKind::Commit,
                    _ => return None,
                },
            })
        })();
        parsed.ok_or_else(|| Bad::new(position + 88, format!("a batch of kind {}", bytes[88])))
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }
}
