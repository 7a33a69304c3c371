//! A small model of what clients were told: the value at each offset that was answered, and how each
//! transaction ended. It knows none of the broker's rules but this: what was answered stays, and readers
//! of committed data see what was committed.

use std::collections::BTreeMap;

use tidemark_types::TopicPartitionId;

#[derive(Default)]
pub struct Ledger {
    /// By offset, with the transaction that a value is part of.
    logs: BTreeMap<TopicPartitionId, BTreeMap<i64, (String, Option<usize>)>>,
    /// Transactions in the order of their first value: committed, aborted, or open.
    transactions: Vec<Option<bool>>,
    /// By transactional id.
    open: BTreeMap<String, usize>,
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
        let log = self.logs.entry(id).or_default();
        if log.contains_key(&offset) {
            return;
        }
        let transaction = transactional_id.map(|id| match self.open.get(id) {
            Some(&at) => at,
            None => {
                self.transactions.push(None);
                let at = self.transactions.len() - 1;
                self.open.insert(id.to_owned(), at);
                at
            }
        });
        log.insert(offset, (value, transaction));
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
