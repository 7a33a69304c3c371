use crate::PartitionProducers;

impl PartitionProducers {
    /// Panics when the state contradicts itself. For tests and the simulator, after every step.
    pub fn check(&self) {
        for (producer_id, entry) in self.producers() {
            assert!(producer_id.is_some(), "producer {producer_id}");
            assert!(entry.epoch().0 >= 0, "producer {producer_id}: {entry:?}");
            for batch in entry.window() {
                assert!(
                    batch.base_sequence >= 0 && batch.last_offset_delta >= 0,
                    "producer {producer_id}: {batch:?}"
                );
            }
            for pair in entry.window().windows(2) {
                assert!(
                    pair[0].last_offset() < pair[1].base_offset,
                    "producer {producer_id}: {pair:?}"
                );
            }
            if let Some(first_offset) = entry.current_txn_first_offset() {
                assert_eq!(
                    self.open.get(&first_offset),
                    Some(&producer_id),
                    "the transaction of producer {producer_id} is not in the set"
                );
            }
        }
        for txn in self.open_transactions() {
            let entry = self.get(txn.producer_id).expect("an open one has an entry");
            assert_eq!(entry.current_txn_first_offset(), Some(txn.first_offset));
        }
        for pair in self.open.keys().collect::<Vec<_>>().windows(2) {
            assert!(pair[0] < pair[1]);
        }
    }
}
