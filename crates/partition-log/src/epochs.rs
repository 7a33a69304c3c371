//! Leader epochs of a partition and where each began (OffsetForLeaderEpoch, KIP-101, KIP-320).

use tidemark_types::LeaderEpoch;

/// (epoch, start offset), both rising.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeaderEpochs {
    entries: Vec<(LeaderEpoch, i64)>,
}

impl LeaderEpochs {
    /// Epochs from a checkpoint; `None` when they do not rise.
    pub fn from_entries(entries: Vec<(LeaderEpoch, i64)>) -> Option<LeaderEpochs> {
        let rising = entries
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        rising.then_some(LeaderEpochs { entries })
    }

    pub fn entries(&self) -> &[(LeaderEpoch, i64)] {
        &self.entries
    }

    /// The newest epoch, `LeaderEpoch::NONE` when there is none.
    pub fn current(&self) -> LeaderEpoch {
        self.entries.last().map_or(LeaderEpoch::NONE, |e| e.0)
    }

    /// The epoch that an offset was written in, or would be; `None` below the first one known.
    pub fn at(&self, offset: i64) -> Option<LeaderEpoch> {
        let after = self
            .entries()
            .partition_point(|(_, start)| *start <= offset);
        after.checked_sub(1).map(|i| self.entries()[i].0)
    }

    /// Notes that `epoch` begins at `start_offset`; nothing happens when it is not newer. An epoch
    /// that wrote nothing gives its place to the next.
    pub fn start(&mut self, epoch: LeaderEpoch, start_offset: i64) {
        if epoch <= self.current() {
            return;
        }
        while self.entries.last().is_some_and(|e| e.1 >= start_offset) {
            self.entries.pop();
        }
        self.entries.push((epoch, start_offset));
    }

    /// The log ends at `end_offset` again, in `epoch`: what began later is forgotten.
    pub fn truncate(&mut self, epoch: LeaderEpoch, end_offset: i64) {
        while (self.entries.last()).is_some_and(|e| e.0 > epoch || e.1 > end_offset) {
            self.entries.pop();
        }
        self.start(epoch, end_offset);
    }

    /// Kafka's answer to "where did `epoch` end": the largest known epoch at or below it and the
    /// first offset that is not of it. The newest epoch ends at `log_end_offset`. `None` (-1 on
    /// the wire) for an epoch newer than all.
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end_offset: i64,
    ) -> Option<(LeaderEpoch, i64)> {
        if epoch == LeaderEpoch::NONE {
            return None;
        }
        let above = self.entries.partition_point(|e| e.0 <= epoch);
        match (above.checked_sub(1), self.entries.get(above)) {
            (Some(at), None) if self.entries[at].0 == epoch => Some((epoch, log_end_offset)),
            (_, None) => None,
            (Some(at), Some(next)) => Some((self.entries[at].0, next.1.min(log_end_offset))),
            (None, Some(next)) => Some((epoch, next.1.min(log_end_offset))),
        }
    }

    /// Forgets the epochs that lie wholly below `log_start_offset`; the one in force there now
    /// begins there.
    pub fn remove_below(&mut self, log_start_offset: i64) {
        let after = self.entries.partition_point(|e| e.1 <= log_start_offset);
        if after > 0 {
            self.entries.drain(..after - 1);
            self.entries[0].1 = log_start_offset.max(self.entries[0].1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_offsets_are_kafkas() {
        let mut epochs = LeaderEpochs::default();
        assert_eq!(epochs.end_offset_for(LeaderEpoch(0), 0), None);
        epochs.start(LeaderEpoch(2), 0);
        epochs.start(LeaderEpoch(4), 10);
        epochs.start(LeaderEpoch(4), 11);
        epochs.start(LeaderEpoch(7), 30);
        let answers = [
            (-1, None),
            (1, Some((1, 0))),
            (2, Some((2, 10))),
            (3, Some((2, 10))),
            (4, Some((4, 30))),
            (6, Some((4, 30))),
            (7, Some((7, 42))),
            (8, None),
        ];
        for (asked, answer) in answers {
            assert_eq!(
                epochs.end_offset_for(LeaderEpoch(asked), 42),
                answer.map(|(e, o)| (LeaderEpoch(e), o)),
                "epoch {asked}"
            );
        }
    }

    #[test]
    fn an_epoch_without_records_leaves_no_entry() {
        let mut epochs = LeaderEpochs::default();
        epochs.start(LeaderEpoch(1), 0);
        epochs.start(LeaderEpoch(2), 5);
        epochs.start(LeaderEpoch(3), 5);
        assert_eq!(epochs.entries(), [(LeaderEpoch(1), 0), (LeaderEpoch(3), 5)]);
        epochs.remove_below(7);
        assert_eq!(epochs.entries(), [(LeaderEpoch(3), 7)]);
    }
}
