//! The newest offset of each key, in bounded memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

use bytes::Bytes;
use tidemark_record_batch::{BatchError, BatchHeader, DecompressLimits, records};

use crate::Fates;

/// Stands for a key. Two keys of one log share a digest with a chance of 2^-128, so that among the
/// four million keys of the default buffer any two do with a chance below 2^-84: far below that of
/// a disk giving back other bytes than it took, checksum and all. The seed is new for each run and
/// secret, and SipHash is made so that without it nobody can choose keys that collide; with what
/// one run did to a log nobody learns about the next.
type Digest = [u64; 2];

/// The digests are uniform already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 ^= value;
    }

    fn write_usize(&mut self, _length_of_a_digest: usize) {}
}

/// The newest offset of each key in a stretch of log, of records that count: committed ones with a
/// key. Keys themselves are not kept.
pub struct OffsetMap {
    offsets: HashMap<Digest, i64, BuildHasherDefault<AsItIs>>,
    max_keys: usize,
    /// SipHash states that have taken the seed in.
    hashers: [DefaultHasher; 2],
    end_offset: i64,
}

/// Bytes of the table per place: a digest, an offset and a byte of the table's own.
const PLACE_BYTES: usize = 25;

impl OffsetMap {
    /// An empty map for the log from `from_offset` on, of at most `max_keys` keys, at least one.
    pub fn new(from_offset: i64, max_keys: usize, seed: u128) -> OffsetMap {
        let hashers = [0u8, 1].map(|half| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u128(seed);
            hasher.write_u8(half);
            hasher
        });
        OffsetMap {
            offsets: HashMap::default(),
            max_keys: max_keys.max(1),
            hashers,
            end_offset: from_offset,
        }
    }

    /// How many keys fit into `buffer_bytes` (`log.cleaner.dedupe.buffer.size`). The table has a
    /// power of two of places, of which seven eighths are used.
    pub fn keys_in(buffer_bytes: u64) -> usize {
        let places = usize::try_from(buffer_bytes).unwrap_or(usize::MAX) / PLACE_BYTES;
        let places = places.checked_ilog2().map_or(1, |bits| 1usize << bits);
        (places / 8 * 7).max(1)
    }

    /// Makes room for this many keys at once, as far as they are allowed: a table that grows is
    /// there twice meanwhile.
    pub fn reserve(&mut self, keys: usize) {
        self.offsets.reserve(keys.min(self.max_keys));
    }

    /// The first offset that the map says nothing about.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    fn digest(&self, key: &[u8]) -> Digest {
        self.hashers.clone().map(|mut hasher| {
            hasher.write(key);
            hasher.finish()
        })
    }

    /// The newest offset of a key; `None` when the stretch has no record of it.
    pub fn newest(&self, key: &[u8]) -> Option<i64> {
        self.offsets.get(&self.digest(key)).copied()
    }

    /// Takes in the next batch, whole, in offset order. False when it does not fit any more: the
    /// map then ends before it. A first batch always fits.
    ///
    /// Errors: what reading its records gives.
    pub fn add(
        &mut self,
        batch: &Bytes,
        fates: &Fates,
        limits: &DecompressLimits,
    ) -> Result<bool, BatchError> {
        let header = BatchHeader::parse(batch)?;
        let aborted = header.attributes.is_transactional()
            && fates.is_aborted(header.producer_id, header.base_offset);
        if header.attributes.is_control() || aborted || header.record_count <= 0 {
            self.end_offset = header.next_offset();
            return Ok(true);
        }
        let keys = usize::try_from(header.record_count).unwrap_or(0);
        if !self.is_empty() && self.len() + keys > self.max_keys {
            return Ok(false);
        }
        for record in records(batch, limits)? {
            let record = record?;
            if let Some(key) = &record.key {
                let offset = header.base_offset + i64::from(record.offset_delta);
                self.offsets.insert(self.digest(key), offset);
            }
        }
        self.end_offset = header.next_offset();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use tidemark_record_batch::{BatchBuilder, patch_position};
    use tidemark_types::LeaderEpoch;

    use super::*;

    fn batch(base_offset: i64, keys: &[&str]) -> Bytes {
        let mut builder = BatchBuilder::new(0);
        for key in keys {
            builder.push(Some(key.as_bytes()), Some(b"v"));
        }
        let mut bytes = builder.build();
        patch_position(&mut bytes, base_offset, LeaderEpoch(0));
        bytes.into()
    }

    #[test]
    fn the_newest_offset_of_each_key_is_known_up_to_where_the_map_is_full() {
        let limits = DecompressLimits::default();
        let fates = Fates::default();
        let mut map = OffsetMap::new(5, 4, 77);
        assert_eq!(map.end_offset(), 5);
        // The first batch is taken whatever its size, or nothing would ever be compacted.
        let first = batch(5, &["a", "b", "c", "d", "e", "a"]);
        assert!(map.add(&first, &fates, &limits).unwrap());
        assert_eq!((map.len(), map.end_offset()), (5, 11));
        assert!(!map.add(&batch(11, &["z"]), &fates, &limits).unwrap());
        assert_eq!(map.end_offset(), 11);
        assert_eq!(map.newest(b"a"), Some(10));
        assert_eq!(map.newest(b"b"), Some(6));
        assert_eq!(map.newest(b"z"), None);
    }

    #[test]
    fn a_seed_changes_every_digest_and_halves_differ() {
        let digest = |seed| OffsetMap::new(0, 1, seed).digest(b"key");
        assert_eq!(digest(1), digest(1));
        let (one, two) = (digest(1), digest(2));
        assert!(one[0] != two[0] && one[1] != two[1] && one[0] != one[1]);
    }

    #[test]
    fn a_buffer_holds_so_many_keys() {
        assert_eq!(OffsetMap::keys_in(128 << 20), (1 << 22) / 8 * 7);
        assert_eq!(OffsetMap::keys_in(0), 1);
        let mut map = OffsetMap::new(0, OffsetMap::keys_in(1 << 20), 0);
        map.reserve(usize::MAX);
        assert!(map.offsets.capacity() * 8 / 7 * PLACE_BYTES <= 1 << 20);
    }
}
