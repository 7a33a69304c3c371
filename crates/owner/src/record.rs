//! A journal record: an atomic set of batch appends at one tick, and its bytes.
//!
//! Layout of the payload (big-endian): `format: u8 = 1`, `appends: u32`, then for each append
//! `topic id: 16 bytes`, `partition: i32`, `length: u32`, the batch. Appends stand in canonical
//! order (topic id, partition), never in request order, so that the same set of appends has one
//! encoding and an order of the journal's own.

use bytes::{BufMut, Bytes, BytesMut};
use tidemark_types::{JournalIndex, Tick, TopicId, TopicPartitionId};

/// The version of the payload layout that this code writes, and the only one it reads.
const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 5;
pub(crate) const APPEND_HEAD_BYTES: usize = 24;

/// One batch for one partition, its base offset and leader epoch final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub partition: TopicPartitionId,
    pub batch: Bytes,
}

impl Append {
    /// Bytes that it takes in a record's payload.
    pub fn size_bytes(&self) -> usize {
        APPEND_HEAD_BYTES + self.batch.len()
    }
}

/// An atomic set of appends: all of them are in the journal or none is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub index: JournalIndex,
    pub tick: Tick,
    /// The wall clock when the record was decided, for times shown to people.
    pub wall_ms: i64,
    pub appends: Vec<Append>,
}

/// Why a payload is not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError(pub String);

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecordError {}

impl Record {
    /// Bytes that a record over batches of these lengths takes in the journal.
    pub fn payload_bytes(batches: impl Iterator<Item = usize>) -> usize {
        batches.fold(HEAD_BYTES, |sum, len| sum + APPEND_HEAD_BYTES + len)
    }

    /// True for batches of users' topics and nothing else. With a weak `journal.sync` only such a
    /// record may be lost after it was acknowledged: whatever touches a coordinator, a group or the
    /// metadata is synced first.
    pub fn is_data(&self) -> bool {
        let mut appends = self.appends.iter();
        appends.all(|append| !append.partition.topic.is_reserved())
    }

    /// The payload as pieces, so that batches are written from where they are.
    pub fn encode(&self) -> Vec<Bytes> {
        debug_assert!(
            self.appends.is_sorted_by(|a, b| a.partition <= b.partition),
            "appends of record {} are not in canonical order",
            self.index
        );
        let mut heads =
            BytesMut::with_capacity(HEAD_BYTES + self.appends.len() * APPEND_HEAD_BYTES);
        heads.put_u8(FORMAT);
        heads.put_u32(u32::try_from(self.appends.len()).expect("appends of one request fit u32"));
        let mut pieces = Vec::with_capacity(1 + 2 * self.appends.len());
        for append in &self.appends {
            heads.put_slice(&append.partition.topic.0);
            heads.put_i32(append.partition.partition);
            heads.put_u32(u32::try_from(append.batch.len()).expect("a batch is below 2 GiB"));
            pieces.push(heads.split().freeze());
            pieces.push(append.batch.clone());
        }
        if pieces.is_empty() {
            pieces.push(heads.freeze());
        }
        pieces
    }

    /// Reads a payload back. The batches are slices of it.
    pub fn decode(
        index: JournalIndex,
        tick: Tick,
        wall_ms: i64,
        payload: &Bytes,
    ) -> Result<Record, RecordError> {
        let damaged = |what: &str| RecordError(format!("journal record {index}: {what}"));
        let mut at = HEAD_BYTES;
        if payload.len() < at {
            return Err(damaged("shorter than its head"));
        }
        if payload[0] != FORMAT {
            return Err(damaged(&format!(
                "payload format {} is not known to this release (it reads {FORMAT}); \
                 start the release that wrote it",
                payload[0]
            )));
        }
        let count = u32::from_be_bytes(payload[1..5].try_into().expect("four bytes")) as usize;
        if count > (payload.len() - at) / APPEND_HEAD_BYTES {
            return Err(damaged("claims more appends than it has bytes for"));
        }
        let mut appends = Vec::with_capacity(count);
        for _ in 0..count {
            if payload.len() - at < APPEND_HEAD_BYTES {
                return Err(damaged("ends inside an append"));
            }
            let topic: [u8; 16] = payload[at..at + 16].try_into().expect("sixteen bytes");
            let partition =
                i32::from_be_bytes(payload[at + 16..at + 20].try_into().expect("four bytes"));
            let len = u32::from_be_bytes(payload[at + 20..at + 24].try_into().expect("four bytes"))
                as usize;
            at += APPEND_HEAD_BYTES;
            if len > payload.len() - at {
                return Err(damaged("ends inside a batch"));
            }
            appends.push(Append {
                partition: TopicPartitionId::new(TopicId(topic), partition),
                batch: payload.slice(at..at + len),
            });
            at += len;
        }
        if at != payload.len() {
            return Err(damaged("has bytes left over"));
        }
        Ok(Record {
            index,
            tick,
            wall_ms,
            appends,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn joined(pieces: &[Bytes]) -> Bytes {
        let mut all = BytesMut::new();
        pieces.iter().for_each(|p| all.extend_from_slice(p));
        all.freeze()
    }

    proptest! {
        #[test]
        fn a_record_reads_back_and_no_cut_of_it_does(
            appends in prop::collection::vec((0u8..4, 0i32..3, prop::collection::vec(any::<u8>(), 0..80)), 0..6)
        ) {
            let mut appends: Vec<Append> = appends
                .into_iter()
                .map(|(t, p, b)| Append {
                    partition: TopicPartitionId::new(TopicId([t; 16]), p),
                    batch: Bytes::from(b),
                })
                .collect();
            appends.sort_by_key(|a| a.partition);
            let record = Record { index: JournalIndex(7), tick: Tick(9), wall_ms: 3, appends };
            let payload = joined(&record.encode());
            prop_assert_eq!(
                payload.len(),
                Record::payload_bytes(record.appends.iter().map(|a| a.batch.len()))
            );
            let back = Record::decode(record.index, record.tick, record.wall_ms, &payload).unwrap();
            prop_assert_eq!(&back, &record);
            for cut in 0..payload.len() {
                prop_assert!(
                    Record::decode(record.index, record.tick, 0, &payload.slice(..cut)).is_err()
                );
            }
        }

        #[test]
        fn damaged_payloads_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode(JournalIndex(1), Tick(1), 0, &Bytes::from(bytes));
        }
    }
}
