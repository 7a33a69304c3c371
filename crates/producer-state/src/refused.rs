use std::collections::BTreeMap;

use tidemark_types::{ProducerEpoch, ProducerId};

/// Producers remembered; the one noted first goes when there are more. Clients may name any
/// producer id, so that this must be bounded.
const MAX_PRODUCERS: usize = 1024;

/// The lowest sequence that was refused to each producer of which nothing is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusedSequences {
    lowest: BTreeMap<ProducerId, Refused>,
    noted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    epoch: ProducerEpoch,
    base_sequence: i32,
    /// Rises with each producer that is noted.
    order: u64,
}

impl RefusedSequences {
    pub(crate) fn note(
        &mut self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: i32,
    ) {
        if let Some(refused) = self.lowest.get_mut(&producer_id) {
            if epoch > refused.epoch {
                (refused.epoch, refused.base_sequence) = (epoch, base_sequence);
            } else if epoch == refused.epoch {
                refused.base_sequence = refused.base_sequence.min(base_sequence);
            }
            return;
        }
        if self.lowest.len() == MAX_PRODUCERS {
            let first = self.lowest.iter().min_by_key(|(_, refused)| refused.order);
            if let Some((&first, _)) = first {
                self.lowest.remove(&first);
            }
        }
        self.noted += 1;
        self.lowest.insert(
            producer_id,
            Refused {
                epoch,
                base_sequence,
                order: self.noted,
            },
        );
    }

    /// False for a sequence that must wait for a lower one of the same epoch.
    pub(crate) fn allows(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: i32,
    ) -> bool {
        self.lowest
            .get(&producer_id)
            .is_none_or(|refused| refused.epoch != epoch || base_sequence <= refused.base_sequence)
    }

    /// The producer has written: from now on its sequences follow its batches.
    pub(crate) fn forget(&mut self, producer_id: ProducerId) {
        self.lowest.remove(&producer_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const E0: ProducerEpoch = ProducerEpoch(0);
    const E1: ProducerEpoch = ProducerEpoch(1);

    #[test]
    fn a_later_sequence_waits_for_the_lowest() {
        let mut refused = RefusedSequences::default();
        let p = ProducerId(1);
        assert!(refused.allows(p, E0, 10));
        refused.note(p, E0, 5);
        refused.note(p, E0, 10);
        assert!(refused.allows(p, E0, 5) && refused.allows(p, E0, 0));
        assert!(!refused.allows(p, E0, 10) && !refused.allows(p, E0, 6));
        refused.note(p, E0, 0);
        assert!(!refused.allows(p, E0, 5));
        // Another epoch starts afresh.
        assert!(refused.allows(p, E1, 5));
        refused.note(p, E1, 7);
        assert!(!refused.allows(p, E1, 8));
        refused.note(p, E0, 0);
        assert!(refused.allows(p, E1, 7));
        refused.forget(p);
        assert!(refused.allows(p, E1, 8));
    }

    #[test]
    fn it_remembers_only_so_many() {
        let mut refused = RefusedSequences::default();
        for id in 0..MAX_PRODUCERS as i64 + 1 {
            refused.note(ProducerId(id), E0, 0);
            refused.note(ProducerId(0), E0, 0);
        }
        assert_eq!(refused.lowest.len(), MAX_PRODUCERS);
        // 1 was noted first of those that were not noted anew.
        assert!(refused.allows(ProducerId(1), E0, 1));
        assert!(!refused.allows(ProducerId(2), E0, 1));
    }
}
