//! Who sent what, what became of it, and whether the log agrees. No client and no clock in here: the drivers
//! write down what they did and saw, `judge` compares.
//!
//! The hard part of such a check is to say what an error means. Three outcomes:
//!
//! | seen by the client | a single send | a transaction |
//! |---|---|---|
//! | success | `Ok` | commit: `Ok`; abort: `Fail` |
//! | the record never left the client's queue | `Fail` | - |
//! | ended by a successor before commit was ever called | - | `Fail` |
//! | anything else, timeouts above all | `Unknown` | `Unknown` |
//!
//! `Ok` must be there, `Fail` must not (for a read_committed reader), `Unknown` may be either, but wholly.

use std::collections::{BTreeMap, BTreeSet};

/// Index of a send; travels in the record's payload.
pub type SendId = usize;
/// Index of a transaction.
pub type TxnId = usize;
/// (topic, partition)
pub type Partition = (String, i32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Fail,
    Unknown,
}

struct Send {
    producer: usize,
    partition: Partition,
    txn: Option<TxnId>,
    outcome: Outcome,
    /// Where the broker said that it is.
    offset: Option<i64>,
}

struct Txn {
    producer: usize,
    /// Counts the transactions of one producer from 1; it goes into the transaction as a group offset.
    number: i64,
    outcome: Outcome,
}

#[derive(Default)]
pub struct Ledger {
    sends: Vec<Send>,
    txns: Vec<Txn>,
}

impl Ledger {
    pub fn begin(&mut self, producer: usize, number: i64) -> TxnId {
        self.txns.push(Txn {
            producer,
            number,
            outcome: Outcome::Unknown,
        });
        self.txns.len() - 1
    }

    pub fn end(&mut self, txn: TxnId, outcome: Outcome) {
        self.txns[txn].outcome = outcome;
    }

    pub fn send(
        &mut self,
        producer: usize,
        topic: &str,
        partition: i32,
        txn: Option<TxnId>,
    ) -> SendId {
        let partition = (topic.to_owned(), partition);
        self.sends.push(Send {
            producer,
            partition,
            txn,
            outcome: Outcome::Unknown,
            offset: None,
        });
        self.sends.len() - 1
    }

    pub fn delivered(&mut self, id: SendId, offset: i64) {
        self.sends[id].outcome = Outcome::Ok;
        self.sends[id].offset = Some(offset);
    }

    pub fn never_sent(&mut self, id: SendId) {
        self.sends[id].outcome = Outcome::Fail;
    }

    /// Records acknowledged so far, transactional or not: the measure of progress.
    pub fn acknowledged(&self) -> usize {
        self.sends
            .iter()
            .filter(|send| send.outcome == Outcome::Ok)
            .count()
    }
}

/// What readers found, by position.
#[derive(Default)]
pub struct Reads {
    at: BTreeMap<Partition, BTreeMap<i64, SendId>>,
    conflicts: Vec<String>,
}

impl Reads {
    pub fn saw(&mut self, topic: &str, partition: i32, offset: i64, id: SendId) {
        let log = self.at.entry((topic.to_owned(), partition)).or_default();
        if let Some(other) = log.insert(offset, id)
            && other != id
        {
            self.conflicts.push(format!(
                "{topic}-{partition} offset {offset} was record {other}, then {id}"
            ));
        }
    }

    fn positions(&self) -> impl Iterator<Item = (&Partition, i64, SendId)> {
        self.at.iter().flat_map(|(partition, log)| {
            log.iter()
                .map(move |(offset, id)| (partition, *offset, *id))
        })
    }

    fn ids(&self) -> BTreeSet<SendId> {
        self.positions().map(|(_, _, id)| id).collect()
    }
}

/// Everything that is known at the end of a run.
pub struct Evidence<'a> {
    pub ledger: &'a Ledger,
    /// read_committed readers during the run.
    pub live: &'a Reads,
    /// A read_committed scan of everything, at the end.
    pub committed: &'a Reads,
    /// A read_uncommitted scan of everything, at the end.
    pub raw: &'a Reads,
    /// Per transactional producer the group offset that its transactions carried; 0 without one.
    pub group_offsets: &'a BTreeMap<usize, i64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub acked: usize,
    pub commits: usize,
    pub aborts: usize,
    pub lost: usize,
    pub duplicated: usize,
    pub torn: usize,
    pub aborted_read: usize,
    /// Two values at one offset, an ack that names another offset, records of one producer out of order.
    pub inconsistent: usize,
    /// A sentence per finding, the first hundred.
    pub findings: Vec<String>,
}

impl Verdict {
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicated + self.torn + self.aborted_read + self.inconsistent == 0
    }

    fn find(&mut self, sentence: String) {
        if self.findings.len() < 100 {
            self.findings.push(sentence);
        }
    }
}

pub fn judge(evidence: &Evidence<'_>) -> Verdict {
    let Evidence {
        ledger,
        live,
        committed,
        raw,
        group_offsets,
    } = *evidence;
    let mut verdict = Verdict::default();
    let (visible, ever_visible) = (committed.ids(), live.ids());

    // Transactions: how many of their records a read_committed reader sees in the end.
    let mut parts: Vec<(usize, usize)> = vec![(0, 0); ledger.txns.len()];
    for (id, send) in ledger.sends.iter().enumerate() {
        if let Some(txn) = send.txn {
            parts[txn].0 += usize::from(visible.contains(&id));
            parts[txn].1 += 1;
        }
    }
    let mut newest_visible: BTreeMap<usize, i64> = BTreeMap::new();
    for (txn, &(seen, all)) in ledger.txns.iter().zip(&parts) {
        if seen > 0 && seen < all {
            verdict.torn += 1;
            verdict.find(format!(
                "torn: {seen} of {all} records of transaction {} of producer {}",
                txn.number, txn.producer
            ));
        }
        match txn.outcome {
            Outcome::Ok => verdict.commits += 1,
            Outcome::Fail => verdict.aborts += 1,
            Outcome::Unknown => verdict.commits += usize::from(seen == all && all > 0),
        }
        if seen == all && all > 0 {
            let newest = newest_visible.entry(txn.producer).or_insert(0);
            *newest = (*newest).max(txn.number);
        }
    }
    for (&producer, &offset) in group_offsets {
        let newest = newest_visible.get(&producer).copied().unwrap_or(0);
        if offset != newest {
            verdict.torn += 1;
            verdict.find(format!(
                "torn: producer {producer} has the group offset of transaction {offset}, its newest visible one is {newest}"
            ));
        }
    }

    // Single records, and those of transactions.
    for (id, send) in ledger.sends.iter().enumerate() {
        let outcome = send
            .txn
            .map_or(send.outcome, |txn| ledger.txns[txn].outcome);
        let name = || {
            format!(
                "record {id} of producer {} to {}-{}",
                send.producer, send.partition.0, send.partition.1
            )
        };
        match outcome {
            Outcome::Ok => {
                verdict.acked += 1;
                if !visible.contains(&id) {
                    verdict.lost += 1;
                    verdict.find(format!(
                        "lost: {} (acknowledged at offset {:?})",
                        name(),
                        send.offset
                    ));
                }
            }
            Outcome::Fail if visible.contains(&id) || ever_visible.contains(&id) => {
                verdict.aborted_read += 1;
                verdict.find(format!("aborted, and read: {}", name()));
            }
            Outcome::Unknown if ever_visible.contains(&id) && !visible.contains(&id) => {
                verdict.lost += 1;
                verdict.find(format!(
                    "lost: {} (a read_committed reader had seen it)",
                    name()
                ));
            }
            _ => {}
        }
    }

    // Positions: one place per record, the place that was acknowledged, each producer's records in order.
    let mut place: BTreeMap<SendId, (&Partition, i64)> = BTreeMap::new();
    let mut last_of: BTreeMap<(&Partition, usize), SendId> = BTreeMap::new();
    for (partition, offset, id) in raw.positions() {
        let Some(send) = ledger.sends.get(id) else {
            verdict.inconsistent += 1;
            verdict.find(format!(
                "{}-{} offset {offset}: record {id} was never sent",
                partition.0, partition.1
            ));
            continue;
        };
        if let Some((_, first)) = place.insert(id, (partition, offset)) {
            verdict.duplicated += 1;
            verdict.find(format!(
                "duplicated: record {id} in {}-{} at {first} and {offset}",
                partition.0, partition.1
            ));
        } else {
            let last = last_of.insert((partition, send.producer), id);
            if last.is_some_and(|last| last > id) {
                verdict.inconsistent += 1;
                verdict.find(format!(
                    "out of order: record {id} in {}-{} at {offset}",
                    partition.0, partition.1
                ));
            }
            if send.offset.is_some_and(|acked| acked != offset) || send.partition != *partition {
                verdict.inconsistent += 1;
                verdict.find(format!(
                    "record {id} was acknowledged at {:?} and is at {offset}",
                    send.offset
                ));
            }
        }
    }
    for reads in [live, committed] {
        for (partition, offset, id) in reads.positions() {
            if raw.at.get(partition).and_then(|log| log.get(&offset)) != Some(&id) {
                verdict.inconsistent += 1;
                verdict.find(format!(
                    "{}-{} offset {offset}: a reader saw record {id}, the final scan does not",
                    partition.0, partition.1
                ));
            }
        }
    }
    for conflict in [live, committed, raw]
        .iter()
        .flat_map(|reads| &reads.conflicts)
    {
        verdict.inconsistent += 1;
        verdict.find(conflict.clone());
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::{Evidence, Ledger, Outcome, Reads, Verdict, judge};
    use std::collections::BTreeMap;

    /// One committed transaction over two partitions (records 0, 1), one aborted (2), one plain record (3).
    struct Story {
        ledger: Ledger,
        live: Reads,
        committed: Reads,
        raw: Reads,
        group_offset: i64,
    }

    fn clean_story() -> Story {
        let mut ledger = Ledger::default();
        let first = ledger.begin(1, 1);
        for partition in 0..2 {
            let id = ledger.send(1, "t", partition, Some(first));
            ledger.delivered(id, 0);
        }
        ledger.end(first, Outcome::Ok);
        let second = ledger.begin(1, 2);
        let aborted = ledger.send(1, "t", 0, Some(second));
        ledger.delivered(aborted, 2);
        ledger.end(second, Outcome::Fail);
        let plain = ledger.send(2, "t", 1, None);
        ledger.delivered(plain, 2);

        let mut story = Story {
            ledger,
            live: Reads::default(),
            committed: Reads::default(),
            raw: Reads::default(),
            group_offset: 1,
        };
        for (partition, offset, id) in [(0, 0, 0), (1, 0, 1), (1, 2, 3)] {
            story.committed.saw("t", partition, offset, id);
            story.raw.saw("t", partition, offset, id);
        }
        story.raw.saw("t", 0, 2, 2);
        story.live.saw("t", 0, 0, 0);
        story
    }

    fn verdict(story: &Story) -> Verdict {
        let group_offsets = BTreeMap::from([(1, story.group_offset)]);
        let Story {
            ledger,
            live,
            committed,
            raw,
            ..
        } = story;
        judge(&Evidence {
            ledger,
            live,
            committed,
            raw,
            group_offsets: &group_offsets,
        })
    }

    /// Takes a record out of a scan, as a broker that forgot it would.
    fn forget(reads: &mut Reads, partition: i32, offset: i64) {
        reads
            .at
            .entry(("t".into(), partition))
            .or_default()
            .remove(&offset);
    }

    #[test]
    fn a_right_log_is_clean() {
        let verdict = verdict(&clean_story());
        assert!(verdict.is_clean(), "{:?}", verdict.findings);
        assert_eq!((verdict.acked, verdict.commits, verdict.aborts), (3, 1, 1));
    }

    #[test]
    fn a_missing_acknowledged_record_is_lost() {
        let mut story = clean_story();
        forget(&mut story.committed, 1, 2);
        forget(&mut story.raw, 1, 2);
        assert_eq!(verdict(&story).lost, 1);
    }

    #[test]
    fn half_a_transaction_is_torn() {
        let mut story = clean_story();
        story.ledger.end(0, Outcome::Unknown);
        forget(&mut story.committed, 1, 0);
        let verdict = verdict(&story);
        assert_eq!(
            (verdict.torn, verdict.lost),
            (2, 0),
            "the records, and the group offset"
        );
    }

    #[test]
    fn an_unknown_transaction_may_be_absent_but_not_its_offset_present() {
        let mut story = clean_story();
        story.ledger.end(0, Outcome::Unknown);
        for partition in 0..2 {
            forget(&mut story.committed, partition, 0);
        }
        story.live = Reads::default();
        assert_eq!(
            verdict(&story).torn,
            1,
            "the group offset says that it committed"
        );
        story.group_offset = 0;
        assert!(verdict(&story).is_clean());
    }

    #[test]
    fn an_aborted_record_that_a_reader_saw_is_found() {
        let mut story = clean_story();
        story.live.saw("t", 0, 2, 2);
        assert_eq!(verdict(&story).aborted_read, 1);
    }

    #[test]
    fn the_same_record_twice_is_a_duplicate() {
        let mut story = clean_story();
        story.raw.saw("t", 1, 3, 3);
        assert_eq!(verdict(&story).duplicated, 1);
    }

    #[test]
    fn two_values_at_one_offset_and_wrong_order_are_inconsistent() {
        let mut story = clean_story();
        story.live.saw("t", 0, 0, 3);
        assert!(verdict(&story).inconsistent >= 1);

        let mut story = clean_story();
        let earlier = story.ledger.send(2, "t", 1, None);
        let later = story.ledger.send(2, "t", 1, None);
        for (offset, id) in [(3, later), (4, earlier)] {
            story.raw.saw("t", 1, offset, id);
            story.committed.saw("t", 1, offset, id);
        }
        assert_eq!(verdict(&story).inconsistent, 1);
    }
}
