//! What a partition looked like at each recent tick.

use std::collections::VecDeque;

use tidemark_types::{LeaderEpoch, Tick};

/// A partition's watermarks as of one tick. A reader that holds a published tick takes the newest
/// version at or below it, so that all partitions a transaction touched change at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    pub tick: Tick,
    /// Offset of the next record. The high watermark, once the tick is published.
    pub log_end_offset: i64,
    /// Exclusive bound of what a read_committed reader may see.
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    pub leader_epoch: LeaderEpoch,
}

/// Versions in the order of their ticks; never empty.
#[derive(Debug)]
pub(crate) struct Versions {
    versions: VecDeque<Version>,
}

impl Versions {
    pub(crate) fn new(first: Version) -> Versions {
        Versions {
            versions: VecDeque::from([first]),
        }
    }

    /// The batches of one record share a tick: the last of them is the version of that tick.
    pub(crate) fn push(&mut self, version: Version) {
        let newest = self.versions.back_mut().expect("never empty");
        assert!(
            version.tick >= newest.tick,
            "version at tick {:?} after tick {:?}",
            version.tick,
            newest.tick
        );
        if version.tick == newest.tick {
            *newest = version;
        } else {
            self.versions.push_back(version);
        }
    }

    /// Drops what is above `tick`: it was lost. The newest at or below it was published and is here.
    pub(crate) fn lose(&mut self, tick: Tick) {
        let above = self.versions.partition_point(|v| v.tick <= tick);
        self.versions.truncate(above.max(1));
    }

    pub(crate) fn newest(&self) -> Version {
        *self.versions.back().expect("never empty")
    }

    pub(crate) fn oldest(&self) -> Version {
        *self.versions.front().expect("never empty")
    }

    /// The newest version at or below `tick`; the oldest that is kept when all are above it (a
    /// reader slower than the pruning sees a later, equally published state).
    pub(crate) fn at(&self, tick: Tick) -> Version {
        let above = self.versions.partition_point(|v| v.tick <= tick);
        self.versions[above.saturating_sub(1)]
    }

    /// Drops what no reader at `min_tick` or later can ask for.
    pub(crate) fn prune(&mut self, min_tick: Tick) {
        let above = self.versions.partition_point(|v| v.tick <= min_tick);
        self.versions.drain(..above.saturating_sub(1));
        // A burst must not leave its capacity behind in every idle partition.
        if self.versions.capacity() > 64 && self.versions.len() * 4 < self.versions.capacity() {
            self.versions.shrink_to(16);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.versions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(tick: u64, end: i64) -> Version {
        Version {
            tick: Tick(tick),
            log_end_offset: end,
            last_stable_offset: end,
            log_start_offset: 0,
            leader_epoch: LeaderEpoch(0),
        }
    }

    #[test]
    fn a_reader_sees_the_newest_version_at_or_below_its_tick() {
        let mut versions = Versions::new(version(0, 0));
        versions.push(version(10, 1));
        versions.push(version(20, 2));
        versions.push(version(20, 3));
        for (tick, end) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 3), (99, 3)] {
            assert_eq!(versions.at(Tick(tick)).log_end_offset, end, "at {tick}");
        }
        assert_eq!(versions.newest().log_end_offset, 3);
    }

    #[test]
    fn pruning_keeps_what_a_reader_at_the_bound_needs() {
        let mut versions = Versions::new(version(0, 0));
        for tick in 1..=200 {
            versions.push(version(tick * 10, tick as i64));
        }
        versions.prune(Tick(155));
        assert_eq!(versions.at(Tick(155)).log_end_offset, 15);
        assert_eq!(versions.at(Tick(160)).log_end_offset, 16);
        // A tick below everything that is kept gets the oldest there is.
        assert_eq!(versions.at(Tick(20)).log_end_offset, 15);
        versions.prune(Tick(u64::MAX));
        assert_eq!(versions.len(), 1);
        assert_eq!(versions.at(Tick(0)).log_end_offset, 200);
    }
}
