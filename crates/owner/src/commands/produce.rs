//! Produce: the batches of one request, decided one by one and written as one record.

use std::sync::Arc;

use bytes::BytesMut;
use tidemark_producer_state::{AppendVerdict, Origin};
use tidemark_record_batch::{TimestampType, ValidBatch};
use tidemark_txn_coordinator::{self as txn, Partitions};
use tidemark_types::{ErrorCode, ProducerId, TopicPartitionId};

use crate::Owner;
use crate::command::{Now, Step};
use crate::draft::Draft;

/// From this version on a transaction's first batch enrols its partition (KIP-890, version 2).
const IMPLICIT_ENROLMENT: i16 = 12;

/// One partition's batch of a Produce request. Its bytes have been validated: one batch, CRC,
/// counts and limits are right.
#[derive(Clone, Debug)]
pub struct ProduceBatch {
    pub partition: TopicPartitionId,
    pub topic: Arc<str>,
    pub valid: ValidBatch,
    pub bytes: BytesMut,
    /// `message.timestamp.type` of the topic: LogAppendTime stamps the batch.
    pub timestamp_type: TimestampType,
}

#[derive(Clone, Debug)]
pub struct Produce {
    /// The request's version: the transaction's dialect, and the codes the client knows.
    pub version: i16,
    pub batches: Vec<ProduceBatch>,
}

/// What became of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    pub error: ErrorCode,
    /// -1 with an error.
    pub base_offset: i64,
    /// -1 unless the topic stamps its batches (LogAppendTime).
    pub log_append_time_ms: i64,
    /// -1 when it is not known.
    pub log_start_offset: i64,
}

impl Produced {
    pub fn refused(error: ErrorCode) -> Produced {
        Produced {
            error,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
        }
    }
}

impl Owner {
    pub(crate) fn produce(
        &mut self,
        request: Produce,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<Produced> {
        let mut draft = self.begin(now);
        let produced = request
            .batches
            .into_iter()
            .map(|batch| {
                self.produce_batch(&mut draft, batch, request.version, now)
                    .unwrap_or_else(Produced::refused)
            })
            .collect();
        self.finish(draft, step);
        produced
    }

    fn produce_batch(
        &mut self,
        draft: &mut Draft,
        mut batch: ProduceBatch,
        version: i16,
        now: &Now<'_>,
    ) -> Result<Produced, ErrorCode> {
        let header = &batch.valid.header;
        let implicit_enrolment = version >= IMPLICIT_ENROLMENT;
        let partition = self
            .partitions
            .get(&batch.partition)
            .ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let mut enrol = None;
        if header.producer_id.is_some() {
            // P7: a producer id that belongs to a transactional id is fenced everywhere, also on
            // partitions that never saw it and for batches outside transactions.
            let meta = self.coordinator.by_producer_id(header.producer_id);
            txn::check_any_produce(meta, header.producer_id, header.producer_epoch)?;
            // What the coordinator says counts only where the batch begins the transaction in this
            // partition; the window is asked before it, so that a repeat of an acknowledged batch
            // is answered as it was, also when its transaction has ended since.
            let (pid, epoch) = (header.producer_id, header.producer_epoch);
            let index = batch.partition.partition;
            let enrolment = if !header.attributes.is_transactional() {
                Ok(())
            } else if implicit_enrolment {
                let wanted = Partitions::from([(batch.topic.clone(), index)]);
                txn::decide_implicit_enrolment(meta, pid, epoch, &wanted, draft.wall_ms).map(
                    |outcome| enrol = meta.map(|meta| (meta.transactional_id.clone(), outcome)),
                )
            } else {
                txn::check_transactional_produce(meta, pid, epoch, &batch.topic, index, version)
            };
            let verdict = partition.producers.decide_append(
                header,
                Origin::Client {
                    transactional_v2: implicit_enrolment && header.attributes.is_transactional(),
                    enrolment,
                },
            )?;
            if let AppendVerdict::Duplicate {
                base_offset,
                log_append_time,
            } = verdict
            {
                return Ok(Produced {
                    error: ErrorCode::None,
                    base_offset,
                    log_append_time_ms: log_append_time,
                    log_start_offset: partition.log_start_offset,
                });
            }
        }
        let log_start_offset = partition.log_start_offset;
        if let Some((id, outcome)) = enrol {
            self.write_outcome(draft, &id, &outcome, ProducerId::NONE, now);
        }
        batch
            .valid
            .finish(&mut batch.bytes, batch.timestamp_type, draft.wall_ms);
        let log_append_time_ms = match batch.timestamp_type {
            TimestampType::CreateTime => -1,
            TimestampType::LogAppendTime => draft.wall_ms,
        };
        let base_offset = self.append(draft, batch.partition, batch.bytes);
        Ok(Produced {
            error: ErrorCode::None,
            base_offset,
            log_append_time_ms,
            log_start_offset,
        })
    }
}
