//! Ids, error codes and units shared by every Tidemark crate.
//!
//! Pure: no clock, file, socket or randomness. Two integers that could be swapped by mistake are
//! two types here; raw integers stop at the wire.

mod error_code;
mod ids;
#[cfg(feature = "mutants")]
pub mod mutants;
mod tick;
mod time;

pub use error_code::ErrorCode;
pub use ids::{
    CoordinatorEpoch, JournalIndex, LeaderEpoch, NodeId, ProducerEpoch, ProducerId, TopicId,
    TopicPartitionId,
};
pub use tick::Tick;
pub use time::MonoTime;

/// Whether the broker is to be broken in the way of that name: `false`, but for builds with the feature `mutants`, of
/// which none is ever released.
#[cfg(not(feature = "mutants"))]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        false
    };
}
#[cfg(feature = "mutants")]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::chosen($name)
    };
}

/// Internal topic of group offsets and group metadata (Kafka's record formats).
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// Internal topic of the transaction coordinator (Kafka's record formats).
pub const TRANSACTION_STATE: &str = "__transaction_state";
/// Internal topic of topics, configuration and producer-id blocks (our own, versioned format).
pub const CLUSTER_METADATA: &str = "__cluster_metadata";
/// Partitions of `__consumer_offsets` and of `__transaction_state`.
pub const COORDINATOR_PARTITIONS: i32 = 50;

/// The partition of an internal coordinator topic that a group id or transactional id belongs to:
/// Kafka's `Utils.abs(key.hashCode()) % partitions`, over UTF-16 code units as Java hashes.
pub fn coordinator_partition(key: &str, partitions: i32) -> i32 {
    let hash = key.encode_utf16().fold(0i32, |h, unit| {
        h.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    (hash & 0x7fff_ffff) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinator_partition_is_javas_string_hash() {
        // "abc".hashCode() = 96354; "".hashCode() = 0; Integer.MIN_VALUE has no absolute value.
        assert_eq!(coordinator_partition("abc", 50), 96354 % 50);
        assert_eq!(coordinator_partition("", 50), 0);
        // "polygenelubricants".hashCode() == Integer.MIN_VALUE: Utils.abs masks the sign bit.
        assert_eq!(coordinator_partition("polygenelubricants", 50), 0);
    }
}
