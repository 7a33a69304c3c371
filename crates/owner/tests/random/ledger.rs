//! A small model of what clients were told: the value at each offset that was answered, the offsets of
//! groups, and how each transaction ended. It knows none of the broker's rules but this: what was answered
//! stays, readers of committed data see what was committed, and so do consumers that ask where they were.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_types::{ProducerEpoch, ProducerId, TopicPartitionId};

/// Whose sequences are counted, and where: producer id, epoch.
type Counted = (TopicPartitionId, ProducerId, ProducerEpoch);

/// The offset that was told for each sequence.
#[derive(Default)]
struct Sequences {
    told: BTreeMap<i32, i64>,
    /// Of the time before it may have been forgotten.
    before: BTreeMap<i32, i64>,
    may_begin_anew: bool,
}

/// A group's place in a partition, by the topic's name.
type Place = (String, String, i32);

#[derive(Default)]
pub struct Ledger {
    /// By offset, with the transaction that a value is part of.
    logs: BTreeMap<TopicPartitionId, BTreeMap<i64, (String, Option<usize>)>>,
    /// Transactions in the order of their first value: committed, aborted, or open.
    transactions: Vec<Option<bool>>,
    /// By transactional id.
    open: BTreeMap<String, usize>,
    sequences: BTreeMap<Counted, Sequences>,
    /// The offsets that were taken, the newest last, with the transaction that each is part of.
    offsets: BTreeMap<Place, Vec<(i64, Option<usize>)>>,
    /// Nobody has committed there since time went by: the offset may have expired.
    may_have_expired: BTreeSet<Place>,
    /// The journal lost what clients were told: nothing can be said any more.
    blind: bool,
}

impl Ledger {
    /// A value was answered. At an offset that was answered before it is a repeat.
    pub fn written(
        &mut self,
        id: TopicPartitionId,
        offset: i64,
        value: String,
        transactional_id: Option<&str>,
    ) {
        let known = self.logs.get(&id);
        if known.is_some_and(|log| log.contains_key(&offset)) {
            return;
        }
        let transaction = self.transaction_of(transactional_id);
        let log = self.logs.entry(id).or_default();
        log.insert(offset, (value, transaction));
    }

    /// A producer was told an offset: what it sends again is where it was, and what is new follows what it sent
    /// before.
    pub fn counted(&mut self, whose: Counted, sequence: i32, offset: i64) {
        if self.blind || !whose.1.is_some() {
            return;
        }
        let count = self.sequences.entry(whose).or_default();
        match count.told.get(&sequence) {
            Some(before) if offset == *before => {}
            _ if count.before.get(&sequence) == Some(&offset) => {}
            _ if count.may_begin_anew => {
                count.before.append(&mut count.told);
                count.may_begin_anew = false;
                count.told.insert(sequence, offset);
            }
            Some(before) => panic!("{whose:?}: {sequence} at {offset}, and before at {before}"),
            None => {
                let told = &count.told;
                let follows = told
                    .last_key_value()
                    .is_none_or(|(last, _)| last + 1 == sequence);
                assert!(follows, "{whose:?}: {sequence} was taken after {told:?}");
                count.told.insert(sequence, offset);
            }
        }
    }

    /// The one that is open, or a new one.
    fn transaction_of(&mut self, transactional_id: Option<&str>) -> Option<usize> {
        let id = transactional_id?;
        if let Some(at) = self.open.get(id) {
            return Some(*at);
        }
        self.transactions.push(None);
        let at = self.transactions.len() - 1;
        self.open.insert(id.to_owned(), at);
        Some(at)
    }

    /// A group's offset was taken.
    pub fn offset(
        &mut self,
        (group, topic, partition): (&str, &str, i32),
        offset: i64,
        transactional_id: Option<&str>,
    ) {
        let transaction = self.transaction_of(transactional_id);
        let place = (group.to_owned(), topic.to_owned(), partition);
        self.may_have_expired.remove(&place);
        let offsets = self.offsets.entry(place).or_default();
        offsets.push((offset, transaction));
    }

    /// Nobody's offsets in a topic that is gone are left.
    pub fn topic_deleted(&mut self, topic: &str) {
        self.offsets.retain(|(_, of, _), _| of != topic);
    }

    /// Offsets may have expired, and producers been forgotten.
    pub fn time_passed(&mut self) {
        for count in self.sequences.values_mut() {
            count.may_begin_anew = true;
        }
        self.may_have_expired.extend(self.offsets.keys().cloned());
    }

    /// A consumer that wants no offset of an open transaction asked; `None`: it was told to ask again.
    pub fn fetched(&mut self, (group, topic, partition): (&str, &str, i32), told: Option<i64>) {
        if self.blind {
            return;
        }
        let place = (group.to_owned(), topic.to_owned(), partition);
        let none = Vec::new();
        let offsets = self.offsets.get(&place).unwrap_or(&none);
        let outcome = |(_, transaction): &(i64, Option<usize>)| match transaction {
            None => Some(true),
            Some(at) => self.transactions[*at],
        };
        let is_open = offsets.iter().any(|offset| outcome(offset).is_none());
        assert_eq!(told.is_none(), is_open, "{place:?}: is a transaction open?");
        let committed = offsets.iter().rfind(|offset| outcome(offset) == Some(true));
        let committed = committed.map_or(-1, |(offset, _)| *offset);
        match told {
            Some(-1) if self.may_have_expired.contains(&place) => drop(self.offsets.remove(&place)),
            Some(told) => assert_eq!(told, committed, "{place:?}"),
            None => {}
        }
    }

    /// EndTxn was answered with success, and the id's transaction is over.
    pub fn ended(&mut self, transactional_id: &str, commit: bool) {
        if let Some(at) = self.open.remove(transactional_id) {
            self.transactions[at] = Some(commit);
        }
    }

    /// What else is over was aborted by the broker.
    pub fn only_these_are_open(&mut self, is_open: impl Fn(&str) -> bool) {
        let transactions = &mut self.transactions;
        self.open.retain(|id, at| {
            let open = is_open(id);
            if !open {
                transactions[*at] = Some(false);
            }
            open
        });
    }

    pub fn is_blind(&self) -> bool {
        self.blind
    }

    pub fn lost(&mut self) {
        self.blind = true;
    }

    /// What a reader of committed data sees of a partition; `None` if that is not known.
    pub fn committed(
        &self,
        id: TopicPartitionId,
        log_start: i64,
        last_stable_offset: i64,
    ) -> Option<Vec<String>> {
        let values = self.range(id, log_start..last_stable_offset.max(log_start))?;
        let counts = |transaction: &Option<usize>| match transaction {
            None => true,
            Some(at) => self.transactions[*at].expect("below the last stable offset all are over"),
        };
        Some(
            values
                .filter(|(_, transaction)| counts(transaction))
                .map(|(value, _)| value.clone())
                .collect(),
        )
    }

    /// What a reader of everything sees.
    pub fn all(&self, id: TopicPartitionId, log_start: i64) -> Option<Vec<String>> {
        let values = self.range(id, log_start..i64::MAX)?;
        Some(values.map(|(value, _)| value.clone()).collect())
    }

    fn range(
        &self,
        id: TopicPartitionId,
        offsets: std::ops::Range<i64>,
    ) -> Option<impl Iterator<Item = &(String, Option<usize>)>> {
        let log = self.logs.get(&id).into_iter();
        let values = log.flat_map(move |log| log.range(offsets.clone()));
        (!self.blind).then(|| values.map(|(_, value)| value))
    }
}
