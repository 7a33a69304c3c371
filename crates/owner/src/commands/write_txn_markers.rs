//! WriteTxnMarkers: an operator ends a transaction in a partition (KIP-664).
//!
//! Kafka's coordinators write markers with it into partitions of other brokers. Here they are in
//! the record of the end, and what is left of the API is what `kafka-transactions abort` does. An
//! abort of a partition that a known transaction has enrolled aborts the whole transaction, at its
//! coordinator: a marker in one partition alone would leave a transaction of which a part is gone
//! and the rest commits. A commit is no operator's to decide, and no other broker is here that
//! could have decided it.

use std::sync::Arc;

use bytes::BytesMut;
use tidemark_record_batch::{ControlType, control_batch};
use tidemark_txn_coordinator::{AbortReason, TxnMeta, TxnState};
use tidemark_types::{CoordinatorEpoch, ErrorCode, ProducerEpoch, ProducerId, TopicPartitionId};

use crate::Owner;
use crate::command::{AbortedBy, Event, Now, RequestContext, Step};
use crate::draft::Draft;
use crate::room::{MARKER_BYTES, end_bytes};

/// One marker of a request.
#[derive(Clone, Debug)]
pub struct WriteTxnMarkers {
    pub context: RequestContext,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub commit: bool,
    pub coordinator_epoch: CoordinatorEpoch,
    pub partitions: Vec<(String, i32)>,
}

impl Owner {
    /// One code per partition, in the order of the request.
    ///
    /// Errors: CLUSTER_AUTHORIZATION_FAILED for a commit; INVALID_REQUEST without a producer; UNKNOWN_TOPIC_OR_PARTITION;
    /// INVALID_PRODUCER_EPOCH when the epoch is not the one that the transaction is open under;
    /// TRANSACTION_COORDINATOR_FENCED below the epoch of an earlier marker; REQUEST_TIMED_OUT, as
    /// Kafka's for what may be asked again, for what the record had no room for.
    pub(crate) fn write_txn_markers(
        &mut self,
        request: &WriteTxnMarkers,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<ErrorCode> {
        let is_nobodys = request.producer_id.0 < 0 || request.producer_epoch.0 < 0;
        let refused = match request.commit {
            true => Some(ErrorCode::ClusterAuthorizationFailed),
            false => is_nobodys.then_some(ErrorCode::InvalidRequest),
        };
        if let Some(code) = refused {
            return vec![code; request.partitions.len()];
        }
        let mut draft = self.begin(now);
        let mut aborted = None;
        let codes = request
            .partitions
            .iter()
            .map(|(topic, partition)| {
                let Some(id) = self.metadata.partition(topic, *partition) else {
                    return ErrorCode::UnknownTopicOrPartition;
                };
                let found = (topic.as_str(), *partition, id);
                match self.write_txn_marker(&mut draft, request, found, &mut aborted, now) {
                    Ok(()) => ErrorCode::None,
                    Err(code) => code,
                }
            })
            .collect();
        self.finish(draft, step);
        if let Some(meta) = aborted {
            step.events.push(Event::TransactionAborted {
                transactional_id: meta.transactional_id,
                producer_id: meta.producer_id,
                epoch: meta.epoch,
                who: meta.who,
                by: AbortedBy::Operator {
                    principal: request.context.principal.clone(),
                    client_id: request.context.client_id.clone(),
                    host: request.context.client_host.clone(),
                },
            });
        }
        codes
    }

    fn write_txn_marker(
        &mut self,
        draft: &mut Draft,
        request: &WriteTxnMarkers,
        (topic, partition, id): (&str, i32, TopicPartitionId),
        aborted: &mut Option<TxnMeta>,
        now: &Now<'_>,
    ) -> Result<(), ErrorCode> {
        // A partition of the transaction that this request has just aborted.
        if let Some(meta) = aborted
            && meta.has_partition(topic, partition)
        {
            return Ok(());
        }
        let producers = &self.partitions[&id].producers;
        producers.decide_marker(
            request.producer_id,
            request.producer_epoch,
            request.coordinator_epoch,
        )?;
        if let Some(meta) = self.coordinator.by_producer_id(request.producer_id) {
            if meta.producer_id != request.producer_id || meta.epoch != request.producer_epoch {
                return Err(ErrorCode::InvalidProducerEpoch);
            }
            if meta.state == TxnState::Ongoing && meta.has_partition(topic, partition) {
                let bytes = end_bytes(meta, meta.partitions.iter());
                let transactional_id: Arc<str> = meta.transactional_id.clone();
                self.check_room(draft, bytes)?;
                let reason = AbortReason::Operator;
                *aborted = Some(self.abort_by_broker(draft, &transactional_id, reason, now));
            }
            // Nothing is open here that a marker could end.
            return Ok(());
        }
        self.check_room(draft, MARKER_BYTES)?;
        let marker = control_batch(
            0,
            self.partitions[&id].leader_epoch(),
            request.producer_id,
            request.producer_epoch,
            ControlType::Abort,
            request.coordinator_epoch,
            draft.wall_ms,
        );
        self.append(draft, id, BytesMut::from(marker));
        Ok(())
    }

    /// One marker always fits, whatever else is said of room.
    fn check_room(&self, draft: &Draft, bytes: usize) -> Result<(), ErrorCode> {
        if draft.is_empty() || draft.bytes + bytes <= self.max_record_bytes {
            return Ok(());
        }
        Err(ErrorCode::RequestTimedOut)
    }
}
