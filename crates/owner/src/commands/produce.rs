//! Produce: the batches of one request, decided one by one and written as one record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::BytesMut;
use tidemark_producer_state::{AppendVerdict, Origin};
use tidemark_record_batch::{TimestampType, ValidBatch};
use tidemark_txn_coordinator::{self as txn, Partitions, TxnMeta};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartitionId, mutant};

use crate::Owner;
use crate::command::{Event, Now, Step};
use crate::draft::Draft;
use crate::record::APPEND_HEAD_BYTES;
use crate::room::{enrolled_bytes, transaction_bytes};

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
    /// The id that the request speaks for, where it names one. A transactional batch must be of its
    /// producer id: the right to write is that of the id that was named.
    pub transactional_id: Option<Arc<str>>,
    pub batches: Vec<ProduceBatch>,
}

/// What became of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    pub error: ErrorCode,
    /// -1 with an error.
    pub base_offset: i64,
    /// -1 unless the topic stamps its batches (LogAppendTime), or the batch is a repeat.
    pub log_append_time_ms: i64,
    /// -1 for a batch that was refused before its partition was asked.
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

/// What the batches of one request enrol (version 2), by transactional id. It is written once, after
/// them, however many they are: all of it is one record.
#[derive(Default)]
struct Enrolments {
    by_id: BTreeMap<Arc<str>, Enrolment>,
    /// Those that are not allowed, for the log.
    refused: Vec<Event>,
}

struct Enrolment {
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    partitions: Partitions,
    /// What the transaction takes with them, as [`transaction_bytes`] counts.
    bytes: usize,
}

impl Enrolments {
    fn bytes(&self) -> usize {
        self.by_id.values().map(|enrolment| enrolment.bytes).sum()
    }

    /// What one more partition adds.
    fn bytes_for(&self, meta: &TxnMeta, topic: &str) -> usize {
        let first = !self.by_id.contains_key(&meta.transactional_id);
        let before = first.then(|| transaction_bytes(meta, meta.partitions.iter()));
        before.unwrap_or(0) + enrolled_bytes(topic)
    }

    /// How many partitions a transaction enrols with this one too; 0 if it is enrolled already.
    fn new_with(&self, meta: &TxnMeta, partition: &(Arc<str>, i32)) -> usize {
        let enrolment = self.by_id.get(&meta.transactional_id);
        let so_far = enrolment.map(|e| &e.partitions);
        let is_known = |enrolled: &Partitions| enrolled.contains(partition);
        match is_known(&meta.partitions) || so_far.is_some_and(is_known) {
            true => 0,
            false => so_far.map_or(0, Partitions::len) + 1,
        }
    }

    fn add(&mut self, meta: &TxnMeta, topic: &Arc<str>, partition: i32) {
        let bytes = self.bytes_for(meta, topic);
        let enrolment = self.by_id.entry(meta.transactional_id.clone());
        let enrolment = enrolment.or_insert_with(|| Enrolment {
            producer_id: meta.producer_id,
            epoch: meta.epoch,
            partitions: Partitions::new(),
            bytes: 0,
        });
        if enrolment.partitions.insert((topic.clone(), partition)) {
            enrolment.bytes += bytes;
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
        let mut enrolments = Enrolments::default();
        let mut renewed = BTreeSet::new();
        let produced = request
            .batches
            .into_iter()
            .map(|batch| {
                self.check_named(request.transactional_id.as_deref(), &batch)
                    .and_then(|()| {
                        self.produce_batch(
                            &mut draft,
                            &mut enrolments,
                            &mut renewed,
                            batch,
                            request.version,
                        )
                    })
                    .unwrap_or_else(Produced::refused)
            })
            .collect();
        step.events.append(&mut enrolments.refused);
        for (id, enrolment) in enrolments.by_id {
            let outcome = txn::decide_implicit_enrolment(
                self.coordinator.get(&id),
                enrolment.producer_id,
                enrolment.epoch,
                &enrolment.partitions,
                draft.wall_ms,
            );
            let outcome = outcome.expect("each of its partitions was accepted");
            self.write_outcome(&mut draft, &id, &outcome, ProducerId::NONE, now);
        }
        for id in renewed {
            self.renew_lease(&id, now);
        }
        self.finish(draft, step);
        produced
    }

    /// 49 for a transactional batch of another id than the request names. (An id that nobody has
    /// opened a session of is caught by the checks that follow.)
    fn check_named(&self, named: Option<&str>, batch: &ProduceBatch) -> Result<(), ErrorCode> {
        let header = &batch.valid.header;
        let meta = self.coordinator.by_producer_id(header.producer_id);
        match (named, meta) {
            (Some(named), Some(meta))
                if header.attributes.is_transactional() && *meta.transactional_id != *named =>
            {
                Err(ErrorCode::InvalidProducerIdMapping)
            }
            _ => Ok(()),
        }
    }

    fn produce_batch(
        &mut self,
        draft: &mut Draft,
        enrolments: &mut Enrolments,
        renewed: &mut BTreeSet<Arc<str>>,
        mut batch: ProduceBatch,
        version: i16,
    ) -> Result<Produced, ErrorCode> {
        if batch.partition.topic.is_reserved() {
            // Whatever a client's bytes are, they are no coordinator's records.
            return Err(ErrorCode::InvalidTopicException);
        }
        let header = &batch.valid.header;
        let partition = self
            .partitions
            .get(&batch.partition)
            .ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let mut enrols = None;
        if header.producer_id.is_some() {
            // P7: a producer id that belongs to a transactional id is fenced everywhere, also on
            // partitions that never saw it and for batches outside transactions.
            let meta = self.coordinator.by_producer_id(header.producer_id);
            let fenced = txn::check_any_produce(meta, header.producer_id, header.producer_epoch);
            if let Err(error) = fenced
                && !header.attributes.is_transactional()
            {
                return Ok(Produced {
                    log_start_offset: partition.log_start_offset,
                    ..Produced::refused(error)
                });
            }
            fenced?;
            // What the coordinator says counts only where the batch begins the transaction in this
            // partition; the window is asked before it, so that a repeat of an acknowledged batch
            // is answered as it was, also when its transaction has ended since.
            let by_itself = version >= IMPLICIT_ENROLMENT && header.attributes.is_transactional();
            let enrolment = if by_itself {
                self.check_implicit_enrolment(enrolments, meta, &batch, draft.wall_ms)
            } else if header.attributes.is_transactional() {
                txn::check_transactional_produce(
                    meta,
                    header.producer_id,
                    header.producer_epoch,
                    &batch.topic,
                    batch.partition.partition,
                    version,
                )
            } else {
                Ok(())
            };
            let origin = Origin::Client {
                transactional_v2: by_itself,
                enrolment,
            };
            if let AppendVerdict::Duplicate {
                base_offset,
                log_append_time,
            } = match partition.producers.decide_append(header, origin) {
                Ok(verdict) => verdict,
                // What the coordinator refuses has not come to the partition.
                Err(error) if enrolment == Err(error) => return Err(error),
                Err(error) => {
                    return Ok(Produced {
                        log_start_offset: partition.log_start_offset,
                        ..Produced::refused(error)
                    });
                }
            } && !mutant!("no-dedup")
            {
                return Ok(Produced {
                    error: ErrorCode::None,
                    base_offset,
                    log_append_time_ms: log_append_time,
                    log_start_offset: partition.log_start_offset,
                });
            }
            let enrolled =
                |meta: &&TxnMeta| meta.has_partition(&batch.topic, batch.partition.partition);
            enrols = meta.filter(|meta| by_itself && !enrolled(meta));
        }
        let more = enrols.map_or(0, |meta| enrolments.bytes_for(meta, &batch.topic));
        let bytes = draft.bytes + APPEND_HEAD_BYTES + batch.bytes.len() + enrolments.bytes() + more;
        if bytes > self.max_record_bytes {
            return Err(ErrorCode::MessageTooLarge);
        }
        if self.options.renew_leases && header.attributes.is_transactional() {
            // Only what is appended renews: no repeat, and nothing that is refused.
            let meta = self.coordinator.by_producer_id(header.producer_id);
            renewed.extend(meta.map(|meta| meta.transactional_id.clone()));
        }
        if let Some(meta) = enrols {
            enrolments.add(meta, &batch.topic, batch.partition.partition);
        }
        let log_start_offset = partition.log_start_offset;
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
    /// Whether a version 2 batch may begin its transaction in its partition.
    fn check_implicit_enrolment(
        &self,
        enrolments: &mut Enrolments,
        meta: Option<&TxnMeta>,
        batch: &ProduceBatch,
        wall_ms: i64,
    ) -> Result<(), ErrorCode> {
        let header = &batch.valid.header;
        let partition = (batch.topic.clone(), batch.partition.partition);
        let wanted = Partitions::from([partition.clone()]);
        let (producer_id, epoch) = (header.producer_id, header.producer_epoch);
        txn::decide_implicit_enrolment(meta, producer_id, epoch, &wanted, wall_ms)?;
        if let Some(meta) = meta {
            let new = enrolments.new_with(meta, &partition);
            self.may_enrol_new(meta, new).map_err(|limit| {
                let event = limit.event(&meta.who.principal, &meta.transactional_id);
                enrolments.refused.push(event);
                limit.code()
            })?;
        }
        Ok(())
    }
}
