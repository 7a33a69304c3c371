use crate::{AbortIndex, FANOUT};

impl AbortIndex {
    /// Panics when the index contradicts itself. For tests and the simulator, after every step.
    pub fn check(&self) {
        assert!(self.removed <= self.entries.len());
        for txn in &self.entries {
            assert!(txn.first_offset <= txn.last_offset, "{txn:?}");
        }
        for pair in self.entries.windows(2) {
            assert!(pair[0].last_offset < pair[1].last_offset, "{pair:?}");
        }
        let mut below: Vec<i64> = self.entries.iter().map(|txn| txn.first_offset).collect();
        for (level, blocks) in self.lowest.iter().enumerate() {
            let expected: Vec<i64> = below
                .chunks(FANOUT)
                .map(|block| block.iter().copied().min().expect("chunks are not empty"))
                .collect();
            assert_eq!(*blocks, expected, "level {level}");
            below = expected;
        }
        assert!(below.len() <= FANOUT, "the top level has outgrown a block");
    }
}
