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
    /// In a compacted topic only the newest record of a key has to stay. A producer has keys of its own.
    key: Option<u32>,
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
        key: Option<u32>,
        txn: Option<TxnId>,
    ) -> SendId {
        let partition = (topic.to_owned(), partition);
        self.sends.push(Send {
            producer,
            partition,
            key,
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
    pub cleaning: &'a Cleaning,
}

/// What retention and compaction had the right to take away by the end of a run.
#[derive(Default)]
pub struct Cleaning {
    /// Where each partition of a topic with retention began: asked before the final scans, and after them.
    pub log_starts: BTreeMap<Partition, (i64, i64)>,
    /// Topics of which the newest record of each key stays, if it is committed.
    pub compacted: BTreeSet<String>,
}

/// Which records may be missing in the final scans.
struct MayBeGone<'a> {
    ledger: &'a Ledger,
    cleaning: &'a Cleaning,
    /// The offset of every record that an acknowledgement or a reader tells.
    places: BTreeMap<SendId, i64>,
    /// The newest record of each key that the final read_committed scan has.
    newest: BTreeMap<(&'a Partition, usize, u32), SendId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taker {
    Retention,
    Compaction,
}

impl<'a> MayBeGone<'a> {
    fn new(evidence: &Evidence<'a>) -> MayBeGone<'a> {
        let ledger = evidence.ledger;
        let mut places = BTreeMap::new();
        for reads in [evidence.live, evidence.raw] {
            places.extend(reads.positions().map(|(_, offset, id)| (id, offset)));
        }
        for (id, send) in ledger.sends.iter().enumerate() {
            places.extend(send.offset.map(|offset| (id, offset)));
        }
        let mut newest = BTreeMap::new();
        for (_, _, id) in evidence.committed.positions() {
            if let Some(send) = ledger.sends.get(id)
                && let Some(key) = send.key
            {
                let at = newest.entry((&send.partition, send.producer, key));
                let newest = at.or_insert(id);
                *newest = id.max(*newest);
            }
        }
        MayBeGone {
            ledger,
            cleaning: evidence.cleaning,
            places,
            newest,
        }
    }

    /// Who may have taken the record. A producer's records stand in the order of their numbers, so a higher
    /// number under the same key is a newer value. Of a record whose offset nobody was told retention may have
    /// taken it; it is then one whose outcome nobody knows either.
    fn taker(&self, id: SendId) -> Option<Taker> {
        let send = self.ledger.sends.get(id)?;
        if let Some((_, start)) = self.cleaning.log_starts.get(&send.partition) {
            let below = self.places.get(&id).is_none_or(|place| place < start);
            return below.then_some(Taker::Retention);
        }
        if !self.cleaning.compacted.contains(&send.partition.0) {
            return None;
        }
        let newest = self
            .newest
            .get(&(&send.partition, send.producer, send.key?))?;
        (*newest > id).then_some(Taker::Compaction)
    }
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
    /// Two values at one offset, an ack that names another offset, records of one producer out of order, a record
    /// below the log start.
    pub inconsistent: usize,
    /// Acknowledged records that retention has taken, and that compaction has taken for a newer one of their key.
    pub retired: usize,
    pub superseded: usize,
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
        cleaning,
    } = *evidence;
    let mut verdict = Verdict::default();
    let (visible, ever_visible) = (committed.ids(), live.ids());
    let may_be_gone = MayBeGone::new(evidence);

    // Transactions: how many of their records a read_committed reader sees in the end, of those that must be there
    // if any is; and whether one was seen that is gone by now.
    let mut parts: Vec<(usize, usize, bool)> = vec![(0, 0, false); ledger.txns.len()];
    for (id, send) in ledger.sends.iter().enumerate() {
        if let Some(txn) = send.txn {
            let (seen, all, was_seen) = &mut parts[txn];
            let there = visible.contains(&id);
            *was_seen |= there || ever_visible.contains(&id);
            if there || may_be_gone.taker(id).is_none() {
                *seen += usize::from(there);
                *all += 1;
            }
        }
    }
    let mut newest_visible: BTreeMap<usize, i64> = BTreeMap::new();
    // Transactions of which nothing is left that could tell how they ended.
    let mut undecidable: BTreeSet<(usize, i64)> = BTreeSet::new();
    for (txn, &(seen, all, was_seen)) in ledger.txns.iter().zip(&parts) {
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
        let committed = match (all, txn.outcome) {
            (0, Outcome::Ok) => true,
            (0, Outcome::Fail) => false,
            (0, Outcome::Unknown) => {
                undecidable.insert((txn.producer, txn.number));
                was_seen
            }
            _ => seen == all,
        };
        if committed {
            let newest = newest_visible.entry(txn.producer).or_insert(0);
            *newest = (*newest).max(txn.number);
        }
    }
    for (&producer, &offset) in group_offsets {
        let newest = newest_visible.get(&producer).copied().unwrap_or(0);
        let may_be = offset > newest && undecidable.contains(&(producer, offset));
        if offset != newest && !may_be {
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
                let taker = may_be_gone.taker(id);
                if visible.contains(&id) {
                } else if taker == Some(Taker::Retention) {
                    verdict.retired += 1;
                } else if taker == Some(Taker::Compaction) {
                    verdict.superseded += 1;
                } else {
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
            Outcome::Unknown
                if ever_visible.contains(&id)
                    && !visible.contains(&id)
                    && may_be_gone.taker(id).is_none() =>
            {
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
    for (partition, offset, id) in raw.positions() {
        let told = cleaning.log_starts.get(partition);
        if let Some((start, _)) = told.filter(|(start, _)| offset < *start) {
            verdict.inconsistent += 1;
            verdict.find(format!(
                "{}-{}: record {id} at {offset}, below the log start {start}",
                partition.0, partition.1
            ));
        }
    }
    for reads in [live, committed] {
        for (partition, offset, id) in reads.positions() {
            let found = raw.at.get(partition).and_then(|log| log.get(&offset));
            if found != Some(&id) && (found.is_some() || may_be_gone.taker(id).is_none()) {
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
    use super::{Cleaning, Evidence, Ledger, Outcome, Reads, Verdict, judge};
    use std::collections::{BTreeMap, BTreeSet};

    /// One committed transaction over two partitions (records 0, 1), one aborted (2), one plain record (3).
    struct Story {
        ledger: Ledger,
        live: Reads,
        committed: Reads,
        raw: Reads,
        group_offset: i64,
        cleaning: Cleaning,
    }

    fn clean_story() -> Story {
        let mut ledger = Ledger::default();
        let first = ledger.begin(1, 1);
        for partition in 0..2 {
            let id = ledger.send(1, "t", partition, Some(0), Some(first));
            ledger.delivered(id, 0);
        }
        ledger.end(first, Outcome::Ok);
        let second = ledger.begin(1, 2);
        let aborted = ledger.send(1, "t", 0, Some(1), Some(second));
        ledger.delivered(aborted, 2);
        ledger.end(second, Outcome::Fail);
        let plain = ledger.send(2, "t", 1, Some(0), None);
        ledger.delivered(plain, 2);

        let mut story = Story {
            ledger,
            live: Reads::default(),
            committed: Reads::default(),
            raw: Reads::default(),
            group_offset: 1,
            cleaning: Cleaning::default(),
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
            cleaning,
            ..
        } = story;
        judge(&Evidence {
            ledger,
            live,
            committed,
            raw,
            group_offsets: &group_offsets,
            cleaning,
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
        let earlier = story.ledger.send(2, "t", 1, Some(0), None);
        let later = story.ledger.send(2, "t", 1, Some(0), None);
        for (offset, id) in [(3, later), (4, earlier)] {
            story.raw.saw("t", 1, offset, id);
            story.committed.saw("t", 1, offset, id);
        }
        assert_eq!(verdict(&story).inconsistent, 1);
    }

    #[test]
    fn what_retention_took_is_not_lost_and_what_it_must_leave_is() {
        let mut story = clean_story();
        for partition in 0..2 {
            forget(&mut story.committed, partition, 0);
            forget(&mut story.raw, partition, 0);
        }
        assert!(verdict(&story).lost > 0);
        // Both partitions begin behind the committed transaction: its end is known from its client alone.
        for partition in 0..2 {
            let at = ("t".to_owned(), partition);
            story.cleaning.log_starts.insert(at, (1, 1));
        }
        let right = verdict(&story);
        assert!(right.is_clean(), "{:?}", right.findings);
        assert_eq!((right.retired, right.lost), (2, 0));
        // A record behind the log start is lost all the same.
        forget(&mut story.committed, 1, 2);
        forget(&mut story.raw, 1, 2);
        assert_eq!(verdict(&story).lost, 1);
    }

    #[test]
    fn a_record_below_a_log_start_that_was_told_is_found() {
        let mut story = clean_story();
        story.cleaning.log_starts.insert(("t".into(), 1), (1, 1));
        assert_eq!(verdict(&story).inconsistent, 1);
    }

    #[test]
    fn a_key_keeps_its_newest_value() {
        let mut story = clean_story();
        story.cleaning.compacted = BTreeSet::from(["t".to_owned()]);
        let newer = story.ledger.send(2, "t", 1, Some(0), None);
        story.ledger.delivered(newer, 4);
        for reads in [&mut story.committed, &mut story.raw] {
            reads.saw("t", 1, 4, newer);
            forget(reads, 1, 2); // record 3, of the same producer and key
        }
        let right = verdict(&story);
        assert!(right.is_clean(), "{:?}", right.findings);
        assert_eq!(right.superseded, 1);
        // Nothing newer is there for the newest, and another producer's key supersedes nothing.
        for reads in [&mut story.committed, &mut story.raw] {
            forget(reads, 1, 4);
            forget(reads, 1, 0);
        }
        assert!(verdict(&story).lost >= 2);
    }
}
