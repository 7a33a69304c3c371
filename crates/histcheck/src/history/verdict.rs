//! What a check has found.

use std::collections::BTreeMap;
use std::fmt;

/// What can be wrong with a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Check {
    /// Two records at one offset, or a record that nobody sent.
    InconsistentOffset,
    /// One record at two offsets.
    Duplicate,
    /// An acknowledged record is not in the log.
    Lost,
    /// An acknowledged record is in the log, and a read_committed reader does not get it.
    Unseen,
    /// A read_committed reader got a record that was aborted or never written.
    AbortedRead,
    /// A read_committed reader got a record before anybody asked to commit it.
    EarlyRead,
    /// A reader got a record that is not there in the end.
    VanishedRead,
    /// Some of a transaction's records or group offsets are there, some are not.
    Torn,
    /// A producer's records are not in the order in which it sent them.
    Order,
    /// A reader was given an offset at or below one it had.
    BackwardRead,
    /// A reader was not given a record between two that it was given.
    SkippedRead,
    /// What was read came from what began after the reading had ended.
    Cycle,
    /// A read_committed reader got a record beyond the begin of a transaction that was open.
    Snapshot,
    /// A watermark went back, was beyond an open transaction or short of an acknowledged record.
    Watermark,
    /// What was moved is not what was read up to the group's offset.
    Ledger,
    /// The total of all accounts is not nothing at some moment.
    Bank,
    /// The log, read by other code, is not what the broker served.
    Replay,
    /// An earlier instance of a transactional id wrote or committed after the next one had begun.
    Fencing,
}

impl Check {
    pub const ALL: [Check; 18] = [
        Check::InconsistentOffset,
        Check::Duplicate,
        Check::Lost,
        Check::Unseen,
        Check::AbortedRead,
        Check::EarlyRead,
        Check::VanishedRead,
        Check::Torn,
        Check::Order,
        Check::BackwardRead,
        Check::SkippedRead,
        Check::Cycle,
        Check::Snapshot,
        Check::Watermark,
        Check::Ledger,
        Check::Bank,
        Check::Replay,
        Check::Fencing,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Check::InconsistentOffset => "inconsistent-offset",
            Check::Duplicate => "duplicate",
            Check::Lost => "lost",
            Check::Unseen => "unseen",
            Check::AbortedRead => "aborted-read",
            Check::EarlyRead => "early-read",
            Check::VanishedRead => "vanished-read",
            Check::Torn => "torn",
            Check::Order => "order",
            Check::BackwardRead => "backward-read",
            Check::SkippedRead => "skipped-read",
            Check::Cycle => "cycle",
            Check::Snapshot => "snapshot",
            Check::Watermark => "watermark",
            Check::Ledger => "ledger",
            Check::Bank => "bank",
            Check::Replay => "replay",
            Check::Fencing => "fencing",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Of one kind that many sentences are kept; all are counted.
const SENTENCES: u64 = 20;

/// Numbers of what a history holds, and everything that is wrong with it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Records sent or read, and steps of transactions (init, begin, offsets, commit, abort).
    pub operations: u64,
    pub sends: u64,
    pub reads: u64,
    pub transactions: u64,
    pub commits: u64,
    pub aborts: u64,
    /// Transactions of which neither client nor readers know whether they committed: none of their records is there.
    pub unknown: u64,
    pub faults: u64,
    /// The log was read by the checker too.
    pub log_read: bool,
    pub(super) counts: BTreeMap<Check, u64>,
    /// A sentence per anomaly, the first few of each kind.
    pub sentences: Vec<(Check, String)>,
}

impl Verdict {
    pub fn anomalies(&self) -> u64 {
        self.counts.values().sum()
    }

    pub fn count(&self, check: Check) -> u64 {
        self.counts.get(&check).copied().unwrap_or(0)
    }

    /// Kinds that were found, with their numbers.
    pub fn found(&self) -> impl Iterator<Item = (Check, u64)> {
        self.counts.iter().map(|(check, count)| (*check, *count))
    }

    pub(crate) fn find(&mut self, check: Check, sentence: impl FnOnce() -> String) {
        let count = self.counts.entry(check).or_insert(0);
        *count += 1;
        if *count <= SENTENCES {
            self.sentences.push((check, sentence()));
        }
    }
}
