//! The `.tickindex` file: one fixed-size entry per batch of its segment, with what Kafka's batches
//! do not carry. Primary data, as durable as the batches; the format cannot be widened later.
//!
//! ```text
//! header, 96 bytes            entry, 96 bytes (big-endian)
//!  0 magic "TIDETICK"          0 base offset            i64
//!  8 format version    u16     8 last offset delta      i32
//! 10 entry size        u16    12 tick                   u64
//! 12 reserved (0)      u32    20 position in .log       u32
//! 16 cluster id       [16]    24 size in bytes          u32
//! 32 topic id         [16]    28 base timestamp         i64
//! 48 partition         i32    36 max timestamp          i64
//! 52 base offset       i64    44 running max timestamp  i64
//! 60 reserved (0)     [32]    52 producer id            i64
//! 92 CRC-32C of 0..92  u32    60 producer epoch         i16
//!                             62 attributes             i16
//!                             64 last stable offset     i64  after this batch
//!                             72 txn first offset       i64  of a marker's transaction; else -1
//!                             80 journal index          u64
//!                             88 control                u8   0 data, 1 abort, 2 commit
//!                             89 reserved (0)          [3]
//!                             92 CRC-32C of 0..92       u32
//! ```
//!
//! The running maximum makes a search by timestamp a binary search although timestamps of batches
//! do not rise. A batch that compaction has emptied keeps its maximum timestamp and does not count;
//! before the first record it is i64::MIN.

use tidemark_disk::{DiskFile, read_exact_at};
use tidemark_record_batch::{BatchHeader, ControlType, HEADER_BYTES};
use tidemark_types::{JournalIndex, ProducerEpoch, ProducerId, Tick, TopicId, TopicPartitionId};

use crate::bytes_io::{Fields, crc32c};
use crate::{ControlMeta, TailBatch};

pub const TICK_HEADER_BYTES: usize = 96;
pub const TICK_ENTRY_BYTES: usize = 96;
const MAGIC: &[u8; 8] = b"TIDETICK";
const FORMAT_VERSION: u16 = 1;
/// Entries read at once, in a scan and at the end of a search.
const BLOCK_ENTRIES: u64 = 64;

/// The position of an entry in the file.
pub(crate) fn entry_position(index: u64) -> u64 {
    TICK_HEADER_BYTES as u64 + index * TICK_ENTRY_BYTES as u64
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TickIndexHeader {
    pub cluster_id: [u8; 16],
    pub partition: TopicPartitionId,
    pub base_offset: i64,
}

impl TickIndexHeader {
    pub fn encode(&self) -> [u8; TICK_HEADER_BYTES] {
        let mut out = Vec::with_capacity(TICK_HEADER_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
        out.extend_from_slice(&(TICK_ENTRY_BYTES as u16).to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.cluster_id);
        out.extend_from_slice(&self.partition.topic.0);
        out.extend_from_slice(&self.partition.partition.to_be_bytes());
        out.extend_from_slice(&self.base_offset.to_be_bytes());
        out.resize(TICK_HEADER_BYTES - 4, 0);
        out.extend_from_slice(&crc32c(&out).to_be_bytes());
        out.try_into().expect("96 bytes were written")
    }

    /// Errors say in a few words what is wrong.
    pub fn decode(bytes: &[u8; TICK_HEADER_BYTES]) -> Result<TickIndexHeader, &'static str> {
        let (body, crc) = bytes.split_at(TICK_HEADER_BYTES - 4);
        if &bytes[..8] != MAGIC {
            return Err("no .tickindex header");
        }
        if crc32c(body).to_be_bytes() != crc {
            return Err("the header's checksum does not match");
        }
        let mut fields = Fields(&body[8..]);
        let parsed = (|| {
            let version = fields.u16()?;
            let entry_size = fields.u16()?;
            fields.u32()?;
            Some((
                version,
                entry_size,
                TickIndexHeader {
                    cluster_id: fields.array()?,
                    partition: TopicPartitionId::new(TopicId(fields.array()?), fields.i32()?),
                    base_offset: fields.i64()?,
                },
            ))
        })();
        match parsed {
            Some((FORMAT_VERSION, size, header)) if usize::from(size) == TICK_ENTRY_BYTES => {
                Ok(header)
            }
            _ => Err(
                "the file has a newer format than this version of Tidemark reads: start that version",
            ),
        }
    }
}

/// One batch of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TickEntry {
    pub base_offset: i64,
    pub last_offset: i64,
    pub tick: Tick,
    /// Of the batch in the `.log` file.
    pub position: u32,
    pub size_bytes: u32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    /// Largest `max_timestamp` of this segment up to and with this batch.
    pub running_max_timestamp: i64,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub attributes: i16,
    pub last_stable_offset: i64,
    pub index: JournalIndex,
    pub control: Option<ControlMeta>,
}

impl TickEntry {
    /// Compaction has left the batch's header and nothing else: it has no record with its maximum
    /// timestamp, nor any other.
    pub fn is_empty(&self) -> bool {
        self.size_bytes as usize == HEADER_BYTES
    }

    /// The entry of the same batch at another position, after batches whose largest timestamp is
    /// `running_max`; `header` is what compaction has made of the batch's. Its tick, its journal
    /// record and the last stable offset after it are history and stay.
    pub(crate) fn moved(&self, header: &BatchHeader, position: u32, running_max: i64) -> TickEntry {
        let mut entry = TickEntry {
            position,
            size_bytes: u32::try_from(header.size_bytes()).expect("a batch length is an int32"),
            base_timestamp: header.base_timestamp,
            max_timestamp: header.max_timestamp,
            running_max_timestamp: running_max,
            attributes: header.attributes.0,
            ..*self
        };
        if !entry.is_empty() {
            entry.running_max_timestamp = running_max.max(header.max_timestamp);
        }
        entry
    }

    /// The entry of a batch at `position`, after batches whose largest timestamp is `running_max`.
    pub(crate) fn of(batch: &TailBatch, position: u32, running_max: i64) -> TickEntry {
        TickEntry {
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            tick: batch.tick,
            position,
            size_bytes: u32::try_from(batch.bytes.len()).expect("a batch length is an int32"),
            base_timestamp: batch.meta.base_timestamp,
            max_timestamp: batch.meta.max_timestamp,
            running_max_timestamp: running_max.max(batch.meta.max_timestamp),
            producer_id: batch.meta.producer_id,
            producer_epoch: batch.meta.producer_epoch,
            attributes: batch.meta.attributes,
            last_stable_offset: batch.meta.last_stable_offset,
            index: batch.index,
            control: batch.meta.control,
        }
    }

    pub fn encode(&self) -> [u8; TICK_ENTRY_BYTES] {
        let delta = i32::try_from(self.last_offset - self.base_offset)
            .expect("an offset delta is an int32");
        let (control, txn_first_offset) = match self.control {
            None => (0, -1),
            Some(control) => (
                match control.control_type {
                    ControlType::Abort => 1,
                    ControlType::Commit => 2,
                },
                control.txn_first_offset.unwrap_or(-1),
            ),
        };
        let mut out = Vec::with_capacity(TICK_ENTRY_BYTES);
        out.extend_from_slice(&self.base_offset.to_be_bytes());
        out.extend_from_slice(&delta.to_be_bytes());
        out.extend_from_slice(&self.tick.0.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
        out.extend_from_slice(&self.size_bytes.to_be_bytes());
        out.extend_from_slice(&self.base_timestamp.to_be_bytes());
        out.extend_from_slice(&self.max_timestamp.to_be_bytes());
        out.extend_from_slice(&self.running_max_timestamp.to_be_bytes());
        out.extend_from_slice(&self.producer_id.0.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.0.to_be_bytes());
        out.extend_from_slice(&self.attributes.to_be_bytes());
        out.extend_from_slice(&self.last_stable_offset.to_be_bytes());
        out.extend_from_slice(&txn_first_offset.to_be_bytes());
        out.extend_from_slice(&self.index.0.to_be_bytes());
        out.push(control);
        out.extend_from_slice(&[0; 3]);
        out.extend_from_slice(&crc32c(&out).to_be_bytes());
        out.try_into().expect("96 bytes were written")
    }

    /// `None` when the entry is not what was written.
    pub fn decode(bytes: &[u8; TICK_ENTRY_BYTES]) -> Option<TickEntry> {
        let (body, crc) = bytes.split_at(TICK_ENTRY_BYTES - 4);
        if crc32c(body).to_be_bytes() != crc {
            return None;
        }
        let mut f = Fields(body);
        let base_offset = f.i64()?;
        let last_offset = base_offset.checked_add(i64::from(f.i32()?))?;
        // The offset after it is one too.
        if !(0..=last_offset).contains(&base_offset) || last_offset == i64::MAX {
            return None;
        }
        let mut entry = TickEntry {
            base_offset,
            last_offset,
            tick: Tick(f.u64()?),
            position: f.u32()?,
            size_bytes: f.u32()?,
            base_timestamp: f.i64()?,
            max_timestamp: f.i64()?,
            running_max_timestamp: f.i64()?,
            producer_id: ProducerId(f.i64()?),
            producer_epoch: ProducerEpoch(f.i16()?),
            attributes: f.i16()?,
            last_stable_offset: f.i64()?,
            index: JournalIndex::default(),
            control: None,
        };
        let txn_first_offset = f.i64()?;
        entry.index = JournalIndex(f.u64()?);
        let control_type = match f.u8()? {
            0 => None,
            1 => Some(ControlType::Abort),
            2 => Some(ControlType::Commit),
            _ => return None,
        };
        entry.control = control_type.map(|control_type| ControlMeta {
            control_type,
            txn_first_offset: (txn_first_offset >= 0).then_some(txn_first_offset),
        });
        Some(entry)
    }
}

/// What can go wrong in reading entries; the caller knows the path.
#[derive(Debug)]
pub(crate) enum EntryError {
    Io(std::io::Error),
    /// Position of the entry.
    Damaged(u64),
}

/// The entries of one file: its first `count` are what the reader may see.
pub(crate) struct Entries<'a> {
    pub(crate) file: &'a dyn DiskFile,
    pub(crate) count: u64,
}

impl Entries<'_> {
    pub(crate) fn get(&self, index: u64) -> Result<TickEntry, EntryError> {
        Ok(self.block(index, 1)?.remove(0))
    }

    fn block(&self, first: u64, n: u64) -> Result<Vec<TickEntry>, EntryError> {
        debug_assert!(n <= BLOCK_ENTRIES && first + n <= self.count);
        let mut bytes = vec![0; n as usize * TICK_ENTRY_BYTES];
        read_exact_at(self.file, &mut bytes, entry_position(first)).map_err(EntryError::Io)?;
        bytes
            .as_chunks::<TICK_ENTRY_BYTES>()
            .0
            .iter()
            .zip(first..)
            .map(|(entry, index)| {
                TickEntry::decode(entry).ok_or(EntryError::Damaged(entry_position(index)))
            })
            .collect()
    }

    /// Index of the first entry for which `before` is false, and that entry; `None` when it is true for
    /// all. `before` must be true for a prefix of the entries only.
    pub(crate) fn search(
        &self,
        before: impl Fn(&TickEntry) -> bool,
    ) -> Result<Option<(u64, TickEntry)>, EntryError> {
        let (mut low, mut high) = (0, self.count);
        while high - low > BLOCK_ENTRIES {
            let middle = low + (high - low) / 2;
            if before(&self.get(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low < high {
            let block = self.block(low, high - low)?;
            if let Some(at) = block.iter().position(|entry| !before(entry)) {
                return Ok(Some((low + at as u64, block[at])));
            }
        }
        if high < self.count {
            return Ok(Some((high, self.get(high)?)));
        }
        Ok(None)
    }

    /// Calls `each` with the entries from index `from` on, until it says stop (false).
    pub(crate) fn scan(
        &self,
        from: u64,
        mut each: impl FnMut(u64, &TickEntry) -> bool,
    ) -> Result<(), EntryError> {
        let mut at = from;
        while at < self.count {
            let n = BLOCK_ENTRIES.min(self.count - at);
            for (entry, index) in self.block(at, n)?.iter().zip(at..) {
                if !each(index, entry) {
                    return Ok(());
                }
            }
            at += n;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(n: i64) -> TickEntry {
        TickEntry {
            base_offset: n,
            last_offset: n + 4,
            tick: Tick(n as u64 * 3),
            position: n as u32 * 100,
            size_bytes: 100,
            base_timestamp: n,
            max_timestamp: n * 2,
            running_max_timestamp: n * 2,
            producer_id: ProducerId(-1),
            producer_epoch: ProducerEpoch(-1),
            attributes: 0x30,
            last_stable_offset: n,
            index: JournalIndex(n as u64),
            control: (n % 3 > 0).then_some(ControlMeta {
                control_type: if n % 3 == 1 {
                    ControlType::Abort
                } else {
                    ControlType::Commit
                },
                txn_first_offset: (n % 2 == 0).then_some(n / 2),
            }),
        }
    }

    /// The layout is on disks for ever.
    #[test]
    fn an_entry_is_these_bytes() {
        let bytes = entry(2).encode();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex[..184],
            [
                "0000000000000002",
                "00000004",
                "0000000000000006",
                "000000c8",
                "00000064",
                "0000000000000002",
                "0000000000000004",
                "0000000000000004",
                "ffffffffffffffff",
                "ffff",
                "0030",
                "0000000000000002",
                "0000000000000001",
                "0000000000000002",
                "02",
                "000000",
            ]
            .concat()
        );
    }

    proptest! {
        #[test]
        fn entries_read_back_and_flips_show(n in 0i64..1 << 24, at in 0..TICK_ENTRY_BYTES, bit in 0..8) {
            let bytes = entry(n).encode();
            prop_assert_eq!(TickEntry::decode(&bytes), Some(entry(n)));
            let mut flipped = bytes;
            flipped[at] ^= 1u8 << bit;
            prop_assert_eq!(TickEntry::decode(&flipped), None);
        }

        #[test]
        fn headers_read_back_and_flips_show(at in 0..TICK_HEADER_BYTES, bit in 0..8) {
            let header = TickIndexHeader {
                cluster_id: [9; 16],
                partition: TopicPartitionId::new(TopicId([8; 16]), 5),
                base_offset: 1 << 40,
            };
            let bytes = header.encode();
            prop_assert_eq!(TickIndexHeader::decode(&bytes), Ok(header));
            let mut flipped = bytes;
            flipped[at] ^= 1u8 << bit;
            prop_assert!(TickIndexHeader::decode(&flipped).is_err());
        }
    }

    #[test]
    fn search_and_scan_find_every_entry_in_files_of_any_length() {
        use std::path::Path;
        use std::sync::Arc;
        use tidemark_disk::{Disk, OpenMode, SimDisk};

        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        disk.create_dir_all(Path::new("/d")).unwrap();
        let file = disk
            .open(Path::new("/d/x.tickindex"), OpenMode::CreateNew)
            .unwrap();
        for n in 0..300 {
            file.write_at(&entry(n).encode(), entry_position(n as u64))
                .unwrap();
        }
        for count in [1, 2, 63, 64, 65, 66, 127, 128, 129, 300] {
            let entries = Entries {
                file: &*file,
                count,
            };
            for wanted in 0..count as i64 + 2 {
                let found = entries.search(|e| e.base_offset < wanted).unwrap();
                let expected = (wanted < count as i64).then(|| (wanted as u64, entry(wanted)));
                assert_eq!(found, expected, "{wanted} of {count}");
            }
            let mut seen = 0;
            entries
                .scan(1, |index, found| {
                    assert_eq!(*found, entry(index as i64));
                    seen += 1;
                    true
                })
                .unwrap();
            assert_eq!(seen, count - 1);
        }
    }
}
