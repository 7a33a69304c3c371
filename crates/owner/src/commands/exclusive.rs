//! Exclusive operations: what they do to a topic would leave a transaction that is open there with
//! less, or with something else, than its producer wrote. They abort the open transactions they cut
//! through, in their own record and so at their own tick, and are answered when all of it is durable.
//! An operation that is refused aborts nobody.
//!
//! The deletion of a topic always is one (`delete_topics.rs`). Others are by configuration
//! (`transaction.exclusive.operations`), as Kafka lets transactions go on through them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tidemark_metadata::{MetadataRecord, Refusal};
use tidemark_txn_coordinator::{AbortReason, TxnState};
use tidemark_types::{ErrorCode, ProducerId, TopicPartitionId};

use crate::Owner;
use crate::command::{AbortedBy, Event, Now, Step};
use crate::commands::topics::metadata_bytes;
use crate::draft::Draft;
use crate::room::end_bytes;

/// What else is exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExclusiveOptions {
    /// It cuts through transactions that have written below the new log start, in that partition.
    pub delete_records: bool,
    /// It cuts through transactions that have enrolled a partition of the topic: keys may go
    /// elsewhere from then on.
    pub create_partitions: bool,
    /// As `create_partitions`, where the topic's own configs change what `cleanup.policy` is in
    /// force. A change of the broker's default cuts through nobody.
    pub cleanup_policy: bool,
}

/// The operation that cut through a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusiveOperation {
    DeleteRecords,
    CreatePartitions,
    CleanupPolicy,
}

impl ExclusiveOperation {
    /// For people and metrics.
    pub fn name(self) -> &'static str {
        match self {
            ExclusiveOperation::DeleteRecords => "DeleteRecords",
            ExclusiveOperation::CreatePartitions => "CreatePartitions",
            ExclusiveOperation::CleanupPolicy => "a change of cleanup.policy",
        }
    }
}

/// The transactions that an operation is about to abort, and how many bytes of its record they take.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    ids: BTreeMap<Arc<str>, AbortedBy>,
    bytes: usize,
    /// Of the request: none ends or begins before the request's own cuts.
    through: Option<Through>,
}

/// The ids whose ongoing transaction has enrolled a partition of a topic, by topic.
#[derive(Debug, Default)]
pub(crate) struct Through(HashMap<Arc<str>, Vec<Arc<str>>>);

impl Through {
    pub(crate) fn topic(&self, topic: &str) -> &[Arc<str>] {
        self.0.get(topic).map_or(&[], Vec::as_slice)
    }
}

impl Cuts {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Owner {
    /// Which topics the ongoing transactions go through: one walk over all ids, whatever the number
    /// of topics that a request names.
    pub(crate) fn transactions_through(&self) -> Through {
        let mut through = Through::default();
        let ongoing = self.coordinator.iter();
        for meta in ongoing.filter(|meta| meta.state == TxnState::Ongoing) {
            let mut last = None;
            // A topic's partitions stand together.
            for (topic, _) in &meta.partitions {
                if last.replace(topic) != Some(topic) {
                    let ids = through.0.entry(topic.clone()).or_default();
                    ids.push(meta.transactional_id.clone());
                }
            }
        }
        through
    }

    /// The ids whose open transaction has written below `offset` in the partition.
    pub(crate) fn transactions_below(&self, id: TopicPartitionId, offset: i64) -> Vec<Arc<str>> {
        let Some(partition) = self.partitions.get(&id) else {
            return Vec::new();
        };
        let open = partition.producers.open_transactions();
        open.take_while(|open| open.first_offset < offset)
            .filter_map(|open| self.ongoing_of(open.producer_id))
            .collect()
    }

    fn ongoing_of(&self, producer_id: ProducerId) -> Option<Arc<str>> {
        self.coordinator
            .by_producer_id(producer_id)
            .filter(|meta| meta.state == TxnState::Ongoing)
            .map(|meta| meta.transactional_id.clone())
    }

    /// What the end of an id's ongoing transaction takes in a record.
    pub(crate) fn abort_bytes(&self, transactional_id: &str) -> usize {
        let meta = self.coordinator.get(transactional_id);
        meta.map_or(0, |meta| end_bytes(meta, meta.partitions.iter()))
    }

    /// Adds transactions to those that are cut, if the record has room for their ends beside `more`
    /// bytes of the operation. False, and nothing is added, if it has not.
    pub(crate) fn add_cuts(
        &self,
        cuts: &mut Cuts,
        ids: Vec<Arc<str>>,
        by: &AbortedBy,
        draft: &Draft,
        more: usize,
    ) -> bool {
        let new = ids.into_iter().filter(|id| !cuts.ids.contains_key(id));
        let new: Vec<_> = new.collect();
        let bytes: usize = new.iter().map(|id| self.abort_bytes(id)).sum();
        let all = draft.bytes + more + cuts.bytes + bytes;
        if bytes > 0 && all > self.max_record_bytes {
            return false;
        }
        cuts.bytes += bytes;
        cuts.ids.extend(new.into_iter().map(|id| (id, by.clone())));
        true
    }

    /// As [`Owner::add_cuts`], for all that is open in a topic that `record` changes. INVALID_REQUEST
    /// if that is too much: no client repeats these requests by itself.
    pub(crate) fn cut_topic(
        &self,
        cuts: &mut Cuts,
        operation: ExclusiveOperation,
        topic: &str,
        draft: &Draft,
        record: &MetadataRecord,
    ) -> Result<(), Refusal> {
        let through = cuts
            .through
            .get_or_insert_with(|| self.transactions_through());
        let ids = through.topic(topic).to_vec();
        let by = AbortedBy::Exclusive {
            operation,
            topic: Arc::from(topic),
        };
        match self.add_cuts(cuts, ids, &by, draft, metadata_bytes(record)) {
            true => Ok(()),
            false => {
                let message = "the open transactions that this cuts through do not end in one \
                               journal record; try again with fewer topics, or later";
                Err((ErrorCode::InvalidRequest, message.to_owned()))
            }
        }
    }

    /// Aborts what the operations of a request cut through. They stand in the draft already: replay
    /// follows the record's canonical order, in which the metadata comes first.
    pub(crate) fn cut_through(
        &mut self,
        draft: &mut Draft,
        cuts: Cuts,
        now: &Now<'_>,
        step: &mut Step,
    ) {
        for (id, by) in cuts.ids {
            let meta = self.abort_by_broker(draft, &id, AbortReason::Exclusive, now);
            step.events.push(Event::TransactionAborted {
                transactional_id: id,
                producer_id: meta.producer_id,
                epoch: meta.epoch,
                who: meta.who,
                by,
            });
        }
    }
}
