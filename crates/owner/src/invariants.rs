//! What must hold of the whole state, as one ordered chain.

use tidemark_txn_coordinator::{self as txn, TxnState};
use tidemark_types::{CONSUMER_OFFSETS, TopicId, TopicPartitionId};

use crate::Owner;
use crate::partition::Partition;

impl Owner {
    /// Checks what must hold between records: I2, I6, I11 and the crates' own invariants. Slow; for
    /// tests and the model.
    pub fn check(&self) -> Result<(), String> {
        self.metadata.check()?;
        self.check_replayed().map_err(|e| e.to_string())?;
        for partition in self.partitions.values() {
            partition.check()?;
            self.check_open_transactions(partition)?;
        }
        for meta in self.coordinator.iter() {
            txn::check(meta).map_err(|e| e.to_string())?;
        }
        self.check_pending_offsets()?;
        self.check_deadlines()?;
        self.groups.check()
    }

    /// I11: no transaction is open in a partition that no coordinator knows of, so that each one
    /// ends: by its client, by a new session or by its timeout.
    fn check_open_transactions(&self, partition: &Partition) -> Result<(), String> {
        let id = partition.id;
        let topic = self
            .metadata
            .topic_by_id(id.topic)
            .map(|topic| &*topic.name);
        for open in partition.producers.open_transactions() {
            let known = self
                .coordinator
                .by_producer_id(open.producer_id)
                .is_some_and(|meta| {
                    meta.state == TxnState::Ongoing
                        && meta.producer_id == open.producer_id
                        && topic.is_some_and(|topic| meta.has_partition(topic, id.partition))
                });
            if !known {
                return Err(format!(
                    "{id}: the transaction of producer {} open at {} is known to no coordinator (I11)",
                    open.producer_id, open.first_offset
                ));
            }
        }
        Ok(())
    }

    /// Offsets wait for a marker exactly as long as their transaction is open in the partition they
    /// are in. (A deleted topic's offsets are gone before.)
    fn check_pending_offsets(&self) -> Result<(), String> {
        for index in self.groups.partitions() {
            let id = TopicPartitionId::consumer_offsets(index);
            let records = self.groups.records_of_partition(index);
            for producer_id in records.iter().filter_map(|(_, _, producer)| *producer) {
                let is_open = self.partitions[&id]
                    .producers
                    .get(producer_id)
                    .is_some_and(|entry| entry.current_txn_first_offset().is_some());
                if !is_open {
                    return Err(format!(
                        "{CONSUMER_OFFSETS}-{index}: offsets of producer {producer_id} wait for a \
                         marker that will not come (I11)"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Every ongoing transaction has a deadline, and nothing else has.
    fn check_deadlines(&self) -> Result<(), String> {
        for meta in self.coordinator.iter() {
            let ongoing = meta.state == TxnState::Ongoing;
            let armed = self.deadline_of.get(&meta.transactional_id);
            if self.armed && ongoing != armed.is_some() {
                return Err(format!(
                    "transactional id {:?} is {} and its deadline {armed:?} (I11)",
                    meta.transactional_id, meta.state
                ));
            }
        }
        let same = self.deadlines.len() == self.deadline_of.len()
            && self.deadlines.iter().all(|(at, id)| {
                self.deadline_of
                    .get(id)
                    .is_some_and(|armed| armed.at == *at)
                    && self.coordinator.get(id).is_some()
            });
        match same {
            true => Ok(()),
            false => Err("the two orders of deadlines differ".to_owned()),
        }
    }
}

impl Partition {
    /// What must hold of one partition: ends in order, epochs rising, the crate's own rules.
    pub fn check(&self) -> Result<(), String> {
        self.producers.check();
        let lso = self.last_stable_offset();
        if !(self.log_start_offset <= lso && lso <= self.log_end_offset) {
            return Err(format!(
                "{}: log start {}, last stable {lso}, log end {} are out of order (I6)",
                self.id, self.log_start_offset, self.log_end_offset
            ));
        }
        let last_open = self.producers.open_transactions().last();
        if last_open.is_some_and(|open| open.first_offset >= self.log_end_offset) {
            return Err(format!(
                "{}: {last_open:?} begins after the log (I6)",
                self.id
            ));
        }
        let rising = self.epochs.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
        let internal = [TopicId::CLUSTER_METADATA, TopicId::TRANSACTION_STATE];
        if !rising || self.epochs.is_empty() {
            return Err(format!("{}: leader epochs {:?} (I5)", self.id, self.epochs));
        }
        if internal.contains(&self.id.topic) && last_open.is_some() {
            return Err(format!("{}: {last_open:?} in a coordinator's log", self.id));
        }
        Ok(())
    }
}
