//! ListTransactions, DescribeTransactions and DescribeProducers: what the coordinator and the
//! partitions hold, as it is told to people and tools. Nothing is decided here.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidemark_txn_coordinator::{Partitions, TxnMeta, TxnState};
use tidemark_types::{CoordinatorEpoch, ErrorCode, ProducerEpoch, ProducerId};

use crate::Owner;

/// Which transactional ids are listed. An empty set does not restrict (KIP-664).
#[derive(Clone, Debug, Default)]
pub struct ListTransactions {
    /// `None`: in any state. An empty set is what is left of names that mean nothing: no id.
    pub states: Option<BTreeSet<TxnState>>,
    pub producer_ids: BTreeSet<ProducerId>,
    /// Only those whose last transaction began longer ago than this; negative for all (KIP-994).
    pub longer_than_ms: i64,
}

/// A transactional id in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTransaction {
    pub transactional_id: Arc<str>,
    pub producer_id: ProducerId,
    pub state: TxnState,
}

/// All that DescribeTransactions tells of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedTransaction {
    pub state: TxnState,
    pub timeout_ms: i32,
    /// -1 before the first transaction of a session.
    pub start_wall_ms: i64,
    pub producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    pub partitions: Partitions,
}

/// A producer as a partition knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescribedProducer {
    pub producer_id: ProducerId,
    pub epoch: ProducerEpoch,
    /// -1 when it has written markers only.
    pub last_sequence: i32,
    /// When it last wrote here, by the broker's clock.
    pub last_wall_ms: i64,
    /// Of the last marker, -1 before the first.
    pub coordinator_epoch: CoordinatorEpoch,
    pub current_txn_first_offset: Option<i64>,
}

impl Owner {
    pub(crate) fn list_transactions(
        &self,
        request: &ListTransactions,
        wall_ms: i64,
    ) -> Vec<ListedTransaction> {
        let wanted = |meta: &&TxnMeta| {
            let states = request.states.as_ref();
            states.is_none_or(|states| states.contains(&meta.state))
                && (request.producer_ids.is_empty()
                    || request.producer_ids.contains(&meta.producer_id))
                && (request.longer_than_ms < 0
                    || wall_ms.saturating_sub(meta.start_wall_ms) > request.longer_than_ms)
        };
        let listed = self.coordinator.iter().filter(wanted);
        listed
            .map(|meta| ListedTransaction {
                transactional_id: meta.transactional_id.clone(),
                producer_id: meta.producer_id,
                state: meta.state,
            })
            .collect()
    }

    /// Per id of the request, in its order. INVALID_REQUEST for the empty one, which is nobody's.
    pub(crate) fn describe_transactions(
        &self,
        ids: &[String],
    ) -> Vec<Result<DescribedTransaction, ErrorCode>> {
        let describe = |id: &String| {
            if id.is_empty() {
                return Err(ErrorCode::InvalidRequest);
            }
            let meta = self.coordinator.get(id);
            let meta = meta.ok_or(ErrorCode::TransactionalIdNotFound)?;
            Ok(DescribedTransaction {
                state: meta.state,
                timeout_ms: meta.timeout_ms,
                start_wall_ms: meta.start_wall_ms,
                producer_id: meta.producer_id,
                epoch: meta.epoch,
                partitions: meta.partitions.clone(),
            })
        };
        ids.iter().map(describe).collect()
    }

    /// Per partition of the request, in its order.
    pub(crate) fn describe_producers(
        &self,
        partitions: &[(String, i32)],
    ) -> Vec<Result<Vec<DescribedProducer>, ErrorCode>> {
        let describe = |(topic, partition): &(String, i32)| {
            let id = self.metadata.partition(topic, *partition);
            let partition = id.and_then(|id| self.partitions.get(&id));
            let partition = partition.ok_or(ErrorCode::UnknownTopicOrPartition)?;
            let producers = partition.producers.producers();
            Ok(producers
                .map(|(producer_id, entry)| DescribedProducer {
                    producer_id,
                    epoch: entry.epoch(),
                    last_sequence: entry.last_sequence(),
                    last_wall_ms: entry.last_wall_ms(),
                    coordinator_epoch: entry.coordinator_epoch(),
                    current_txn_first_offset: entry.current_txn_first_offset(),
                })
                .collect())
        };
        partitions.iter().map(describe).collect()
    }
}
