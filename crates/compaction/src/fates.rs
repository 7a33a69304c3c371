//! Which transactional batches were aborted.

use std::collections::HashMap;

use tidemark_types::ProducerId;

/// One aborted transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedRange {
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its marker.
    pub last_offset: i64,
}

/// The aborted transactions of a range in which every transaction has ended: what is not here was
/// committed.
#[derive(Clone, Debug, Default)]
pub struct Fates {
    /// By first offset; of one producer they never overlap.
    aborted: HashMap<ProducerId, Vec<(i64, i64)>>,
}

impl Fates {
    /// `aborted` holds every aborted transaction that has a record in the range, in any order; more
    /// do not matter.
    pub fn new(aborted: impl IntoIterator<Item = AbortedRange>) -> Fates {
        let mut fates = Fates::default();
        for txn in aborted {
            let of_producer = fates.aborted.entry(txn.producer_id).or_default();
            of_producer.push((txn.first_offset, txn.last_offset));
        }
        for of_producer in fates.aborted.values_mut() {
            of_producer.sort_unstable();
        }
        fates
    }

    /// Whether the transactional batch of this producer at this offset was aborted.
    pub fn is_aborted(&self, producer_id: ProducerId, offset: i64) -> bool {
        let Some(of_producer) = self.aborted.get(&producer_id) else {
            return false;
        };
        let after = of_producer.partition_point(|(first, _)| *first <= offset);
        after > 0 && offset <= of_producer[after - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_aborted_within_its_producers_transaction_only() {
        let range = |producer_id, first_offset, last_offset| AbortedRange {
            producer_id: ProducerId(producer_id),
            first_offset,
            last_offset,
        };
        let fates = Fates::new([range(1, 20, 25), range(1, 3, 9), range(2, 0, 30)]);
        let aborted: Vec<i64> = (0..30)
            .filter(|offset| fates.is_aborted(ProducerId(1), *offset))
            .collect();
        let expected: Vec<i64> = (3..=9).chain(20..=25).collect();
        assert_eq!(aborted, expected);
        assert!(fates.is_aborted(ProducerId(2), 12));
        assert!(!fates.is_aborted(ProducerId(3), 12));
    }
}
