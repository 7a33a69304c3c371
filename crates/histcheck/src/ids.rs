//! Ids as they stand in files.

use std::fmt;

/// A topic's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    pub const CLUSTER_METADATA: TopicId = reserved(1);
    pub const CONSUMER_OFFSETS: TopicId = reserved(2);
    pub const TRANSACTION_STATE: TopicId = reserved(3);
}

const fn reserved(n: u8) -> TopicId {
    let mut id = [0; 16];
    id[15] = n;
    TopicId(id)
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&at) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A partition of a topic; the order is that of appends in a journal record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId {
    pub topic: TopicId,
    pub partition: i32,
}

impl PartitionId {
    pub const METADATA: PartitionId = PartitionId {
        topic: TopicId::CLUSTER_METADATA,
        partition: 0,
    };

    /// The partition of a directory's name, `None` when it is not one of Tidemark's.
    pub fn from_dir_name(name: &str) -> Option<PartitionId> {
        let (topic, partition) = name.split_at_checked(36)?;
        let partition: i32 = partition.strip_prefix('-')?.parse().ok()?;
        let digits: String = topic.chars().filter(|c| *c != '-').collect();
        let id = PartitionId {
            topic: TopicId(unhex(&digits)?),
            partition,
        };
        (id.to_string() == name).then_some(id)
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// 32 hexadecimal digits.
pub(crate) fn unhex(digits: &str) -> Option<[u8; 16]> {
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut out = [0; 16];
    for (byte, pair) in out.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// Bits of a tick below the milliseconds.
const TICK_LOGICAL_BITS: u32 = 18;

/// The wall-clock part of a tick, in milliseconds.
pub fn tick_ms(tick: u64) -> i64 {
    (tick >> TICK_LOGICAL_BITS) as i64
}
