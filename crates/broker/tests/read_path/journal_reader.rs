//! The journal, read by a program of its own: it shares no code with the broker, only the layout that
//! is written down in `journal/src/frame.rs` and `owner/src/record.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use tidemark_disk::{Disk, SimDisk, read_all};
use tidemark_testkit::DATA_DIR;

const MAGIC: &[u8] = b"TMJF";
const PAGE: usize = 4096;
const HEADER: usize = 88;

/// One batch of the journal.
#[derive(Clone, Debug)]
pub struct Appended {
    pub tick: u64,
    pub topic: [u8; 16],
    pub partition: i32,
    pub batch: Bytes,
}

impl Appended {
    fn i64_at(&self, at: usize) -> i64 {
        i64::from_be_bytes(self.batch[at..at + 8].try_into().unwrap())
    }

    fn attributes(&self) -> i16 {
        i16::from_be_bytes(self.batch[21..23].try_into().unwrap())
    }

    pub fn base_offset(&self) -> i64 {
        self.i64_at(0)
    }

    pub fn next_offset(&self) -> i64 {
        let delta = i32::from_be_bytes(self.batch[23..27].try_into().unwrap());
        self.base_offset() + i64::from(delta) + 1
    }

    pub fn producer_id(&self) -> i64 {
        self.i64_at(43)
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes() & 0x10 != 0
    }

    pub fn is_marker(&self) -> bool {
        self.attributes() & 0x20 != 0
    }
}

/// Everything that was ever read, by record index.
#[derive(Default)]
pub struct JournalReader {
    /// With the use of the slot: an index whose record was cut comes again in a later use.
    records: BTreeMap<u64, (u64, Vec<Appended>)>,
}

impl JournalReader {
    /// Reads what the slots hold now. Slots are recycled: called often enough, nothing is missed.
    pub fn read(&mut self, disk: &SimDisk) {
        let dir = Path::new(DATA_DIR).join("journal");
        for file in disk.list(&dir).unwrap() {
            let bytes = Bytes::from(read_all(disk, &dir.join(file.name)).unwrap());
            let mut at = PAGE;
            while at + HEADER <= bytes.len() {
                match self.frame(&bytes, at) {
                    Some(next) => at = next,
                    None => at += 8,
                }
            }
        }
    }

    /// The frame at a position, if an intact one is there: where it ends.
    fn frame(&mut self, bytes: &Bytes, at: usize) -> Option<usize> {
        let u32_at = |i: usize| u32::from_le_bytes(bytes[at + i..at + i + 4].try_into().unwrap());
        let u64_at = |i: usize| u64::from_le_bytes(bytes[at + i..at + i + 8].try_into().unwrap());
        if &bytes[at + 4..at + 8] != MAGIC {
            return None;
        }
        let end = at + HEADER + u32_at(84) as usize;
        if end > bytes.len() || crc32c::crc32c(&bytes[at + 4..end]) != u32_at(0) {
            return None;
        }
        if bytes[at + 9] == 1 {
            let (index, used, tick) = (u64_at(32), u64_at(40), u64_at(56));
            let appends = appends(tick, &bytes.slice(at + HEADER..end));
            let known = self.records.get(&index);
            if known.is_none_or(|(before, _)| *before <= used) {
                self.records.insert(index, (used, appends));
            }
        }
        Some(end.next_multiple_of(8))
    }

    /// Every batch of a partition, in order, without a gap.
    pub fn batches(&self, topic: [u8; 16], partition: i32) -> Vec<Appended> {
        let batches: Vec<Appended> = self
            .records
            .values()
            .flat_map(|(_, appends)| appends)
            .filter(|a| a.topic == topic && a.partition == partition)
            .cloned()
            .collect();
        let mut next = 0;
        for batch in &batches {
            assert_eq!(batch.base_offset(), next, "the reader missed a batch");
            next = batch.next_offset();
        }
        batches
    }

    /// The ticks of all records, in order.
    pub fn ticks(&self) -> Vec<u64> {
        let ticks = self
            .records
            .values()
            .filter_map(|(_, appends)| appends.first());
        ticks.map(|append| append.tick).collect()
    }
}

fn appends(tick: u64, payload: &Bytes) -> Vec<Appended> {
    assert_eq!(payload[0], 1, "format of the payload");
    let u32_at = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
    let mut at = 5;
    (0..u32_at(1))
        .map(|_| {
            let len = u32_at(at + 20) as usize;
            let appended = Appended {
                tick,
                topic: payload[at..at + 16].try_into().unwrap(),
                partition: u32_at(at + 16) as i32,
                batch: payload.slice(at + 24..at + 24 + len),
            };
            at += 24 + len;
            appended
        })
        .collect()
}
