//! What an operator is told of transactions beyond Kafka's APIs: who holds a partition's last stable
//! offset, and everything that is known of them. Reads only, but for [`AbortTransaction`].

use std::sync::Arc;

use tidemark_txn_coordinator::{AbortReason, TxnMeta, TxnState};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::Owner;
use crate::command::{AbortedBy, Event, Now, RequestContext, Step};

/// What to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspect {
    /// Every ongoing transaction.
    Ongoing,
    /// One transactional id, whatever its state.
    TransactionalId(String),
    /// The transactional id that a producer id belongs to.
    Producer(ProducerId),
    /// Who has something open in a topic, or in one partition of it.
    Partitions {
        topic: String,
        partition: Option<i32>,
    },
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// By name.
    pub transactions: Vec<InspectedTransaction>,
    /// By partition; none if the topic or partition does not exist.
    pub partitions: Vec<InspectedPartition>,
}

/// A transactional id with what its transaction has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedTransaction {
    pub meta: TxnMeta,
    /// Time to its deadline, by the monotonic clock and with the lease it has; negative when it is
    /// overdue. `None` if nothing is ongoing.
    pub times_out_in_ms: Option<i64>,
    /// One per enrolled partition.
    pub enrolled: Vec<Enrolled>,
}

/// A partition of an ongoing transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolled {
    pub topic: Arc<str>,
    pub partition: i32,
    /// `None` while the transaction has written nothing there.
    pub first_offset: Option<i64>,
    /// When it last wrote there, by the broker's clock.
    pub last_wall_ms: Option<i64>,
}

/// A partition and who has something open in it, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedPartition {
    pub partition: i32,
    pub open: Vec<OpenHere>,
}

/// A transaction that is open in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenHere {
    pub first_offset: i64,
    pub producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    pub last_wall_ms: i64,
    /// `None` only if no coordinator knows it (I11 says that there is none such).
    pub meta: Option<TxnMeta>,
    /// As of the transaction.
    pub times_out_in_ms: Option<i64>,
}

/// An operator ends an ongoing transaction.
#[derive(Clone, Debug)]
pub struct AbortTransaction {
    pub context: RequestContext,
    pub transactional_id: Arc<str>,
    /// The transaction that was looked at: another one that has begun since is left alone.
    pub txn_number: u64,
}

impl Owner {
    pub(crate) fn inspect(&self, what: &Inspect, now: &Now<'_>) -> Inspected {
        let mut found = Inspected::default();
        match what {
            Inspect::Ongoing => {
                let ongoing = self.coordinator.iter();
                let ongoing = ongoing.filter(|meta| meta.state == TxnState::Ongoing);
                let ongoing = ongoing.map(|meta| self.inspect_transaction(meta, now));
                found.transactions = ongoing.collect();
                let by_name = |t: &InspectedTransaction| t.meta.transactional_id.clone();
                found.transactions.sort_by_key(by_name);
            }
            Inspect::TransactionalId(id) => {
                let meta = self.coordinator.get(id);
                found
                    .transactions
                    .extend(meta.map(|meta| self.inspect_transaction(meta, now)));
            }
            Inspect::Producer(producer_id) => {
                let meta = self.coordinator.by_producer_id(*producer_id);
                found
                    .transactions
                    .extend(meta.map(|meta| self.inspect_transaction(meta, now)));
            }
            Inspect::Partitions { topic, partition } => {
                let Some(topic) = self.metadata.topic(topic) else {
                    return found;
                };
                let wanted = topic.partition_ids();
                found.partitions = wanted
                    .filter(|id| partition.is_none_or(|partition| id.partition == partition))
                    .filter_map(|id| self.partitions.get(&id))
                    .map(|found| InspectedPartition {
                        partition: found.id.partition,
                        open: self.open_in(found, now),
                    })
                    .collect();
            }
        }
        found
    }

    fn inspect_transaction(&self, meta: &TxnMeta, now: &Now<'_>) -> InspectedTransaction {
        let enrolled = meta.partitions.iter().map(|(topic, partition)| {
            let id = self.metadata.partition(topic, *partition);
            let here = id.and_then(|id| self.partitions.get(&id));
            let entry = here.and_then(|here| here.producers.get(meta.producer_id));
            let first_offset = entry.and_then(|entry| entry.current_txn_first_offset());
            Enrolled {
                topic: topic.clone(),
                partition: *partition,
                first_offset,
                last_wall_ms: first_offset.and(entry).map(|entry| entry.last_wall_ms()),
            }
        });
        InspectedTransaction {
            enrolled: enrolled.collect(),
            times_out_in_ms: self.times_out_in_ms(&meta.transactional_id, now),
            meta: meta.clone(),
        }
    }

    fn open_in(&self, partition: &crate::Partition, now: &Now<'_>) -> Vec<OpenHere> {
        let open = partition.producers.open_transactions();
        open.map(|open| {
            let entry = partition.producers.get(open.producer_id);
            let meta = self.coordinator.by_producer_id(open.producer_id);
            let meta = meta.filter(|meta| meta.state == TxnState::Ongoing);
            OpenHere {
                first_offset: open.first_offset,
                producer_id: open.producer_id,
                epoch: entry.map_or(ProducerEpoch::NONE, |entry| entry.epoch()),
                last_wall_ms: entry.map_or(0, |entry| entry.last_wall_ms()),
                times_out_in_ms: meta
                    .and_then(|meta| self.times_out_in_ms(&meta.transactional_id, now)),
                meta: meta.cloned(),
            }
        })
        .collect()
    }

    /// Aborts as a timeout does: markers in every partition, the epoch rises, the client meets it
    /// with its next request.
    ///
    /// Errors: TRANSACTIONAL_ID_NOT_FOUND; INVALID_TXN_STATE if that transaction is over.
    pub(crate) fn abort_transaction(
        &mut self,
        request: &AbortTransaction,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Result<(), ErrorCode> {
        let id = &request.transactional_id;
        let meta = self.coordinator.get(id);
        let meta = meta.ok_or(ErrorCode::TransactionalIdNotFound)?;
        if meta.state != TxnState::Ongoing || meta.txn_number != request.txn_number {
            return Err(ErrorCode::InvalidTxnState);
        }
        let mut draft = self.begin(now);
        let meta = self.abort_by_broker(&mut draft, id, AbortReason::Operator, now);
        self.finish(draft, step);
        step.events.push(Event::TransactionAborted {
            transactional_id: id.clone(),
            producer_id: meta.producer_id,
            epoch: meta.epoch,
            who: meta.who,
            by: AbortedBy::Operator {
                principal: request.context.principal.clone(),
                client_id: request.context.client_id.clone(),
                host: request.context.client_host.clone(),
            },
        });
        Ok(())
    }
}
