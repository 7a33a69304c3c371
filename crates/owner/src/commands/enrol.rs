//! AddPartitionsToTxn and AddOffsetsToTxn: a transaction names the partitions it will write.

use std::sync::Arc;

use tidemark_txn_coordinator::{self as txn, Partitions};
use tidemark_types::{
    CONSUMER_OFFSETS, COORDINATOR_PARTITIONS, ErrorCode, ProducerEpoch, ProducerId,
    coordinator_partition,
};

use crate::Owner;
use crate::command::{Now, Step};

#[derive(Clone, Debug)]
pub struct AddPartitions {
    pub transactional_id: Arc<str>,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub partitions: Vec<(Arc<str>, i32)>,
}

#[derive(Clone, Debug)]
pub struct AddOffsets {
    pub transactional_id: Arc<str>,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub group_id: String,
}

impl Owner {
    pub(crate) fn add_partitions(
        &mut self,
        request: AddPartitions,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<ErrorCode> {
        // One bad partition fails the whole call: it gets its error, the others "not attempted".
        let checked: Vec<ErrorCode> = request
            .partitions
            .iter()
            .map(|(topic, partition)| self.check_enrolled(topic, *partition))
            .collect();
        if checked.iter().any(|code| code.is_err()) {
            let not_attempted = |code: ErrorCode| match code.is_err() {
                true => code,
                false => ErrorCode::OperationNotAttempted,
            };
            return checked.into_iter().map(not_attempted).collect();
        }
        let partitions = request.partitions.iter().cloned().collect();
        let error = self.enrol(
            &request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            partitions,
            now,
            step,
        );
        vec![error; request.partitions.len()]
    }

    /// Only a user's partitions are named by clients. An internal one is refused as in Kafka: a
    /// group's partition of `__consumer_offsets` comes with AddOffsetsToTxn, and no client has
    /// business in the others, where its markers would stand among a coordinator's own records.
    fn check_enrolled(&self, topic: &str, partition: i32) -> ErrorCode {
        match self.metadata.topic(topic) {
            Some(topic) if topic.internal => ErrorCode::TopicAuthorizationFailed,
            Some(topic) if topic.has_partition(partition) => ErrorCode::None,
            _ => ErrorCode::UnknownTopicOrPartition,
        }
    }

    pub(crate) fn add_offsets(
        &mut self,
        request: AddOffsets,
        now: &Now<'_>,
        step: &mut Step,
    ) -> ErrorCode {
        // An empty group id too, as in Kafka: TxnOffsetCommit refuses it.
        let partition = coordinator_partition(&request.group_id, COORDINATOR_PARTITIONS);
        self.enrol(
            &request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            Partitions::from([(Arc::from(CONSUMER_OFFSETS), partition)]),
            now,
            step,
        )
    }

    fn enrol(
        &mut self,
        transactional_id: &Arc<str>,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Partitions,
        now: &Now<'_>,
        step: &mut Step,
    ) -> ErrorCode {
        if transactional_id.is_empty() {
            return ErrorCode::InvalidRequest;
        }
        let existing = self.coordinator.get(transactional_id);
        let decided = txn::decide_add_partitions(
            existing,
            producer_id,
            producer_epoch,
            &partitions,
            now.wall_ms,
        );
        match decided {
            Err(code) => code,
            // It could not be ended at one tick. Clients abort on this code and go on.
            Ok(_) if existing.is_some_and(|meta| !self.can_end_with(meta, &partitions)) => {
                ErrorCode::MessageTooLarge
            }
            Ok(outcome) => {
                if let Some(meta) = existing
                    && let Err(limit) = self.may_enrol(meta, &partitions)
                {
                    let event = limit.event(&meta.who.principal, transactional_id);
                    step.events.push(event);
                    return limit.code();
                }
                let mut draft = self.begin(now);
                self.write_outcome(
                    &mut draft,
                    transactional_id,
                    &outcome,
                    ProducerId::NONE,
                    now,
                );
                self.finish(draft, step);
                ErrorCode::None
            }
        }
    }
}
