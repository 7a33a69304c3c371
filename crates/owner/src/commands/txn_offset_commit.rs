//! TxnOffsetCommit: a group's offsets as part of a transaction. They stay pending until its end.

use std::sync::Arc;

use bytes::BytesMut;
use tidemark_group_coordinator::TxnOffsetCommitRequest;
use tidemark_producer_state::Origin;
use tidemark_record_batch::{BatchBuilder, BatchHeader};
use tidemark_txn_coordinator::{self as txn, Dialect, Partitions};
use tidemark_types::{
    CONSUMER_OFFSETS, COORDINATOR_PARTITIONS, ErrorCode, ProducerEpoch, ProducerId,
    TopicPartitionId, coordinator_partition,
};

use crate::Owner;
use crate::command::{Now, Step};

use super::offsets::{keep, spread};
use crate::record::APPEND_HEAD_BYTES;
use crate::room::{enrolled_bytes, transaction_bytes};

#[derive(Clone, Debug)]
pub struct TxnOffsetCommit {
    pub transactional_id: Arc<str>,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// TxnOffsetCommit v5 and later (version 2) enrols the group's partition itself.
    pub dialect: Dialect,
    pub commit: TxnOffsetCommitRequest,
}

impl Owner {
    pub(crate) fn txn_offset_commit(
        &mut self,
        mut request: TxnOffsetCommit,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<ErrorCode> {
        let offsets = &request.commit.offsets;
        let known = self.known(offsets.iter().map(|o| (&*o.topic, o.partition)));
        keep(&mut request.commit.offsets, &known);
        let codes = match self.txn_offset_commit_known(request, now, step) {
            Ok(codes) => codes,
            Err(code) => vec![code; known.len()],
        };
        spread(&known, codes.into_iter())
    }

    fn txn_offset_commit_known(
        &mut self,
        request: TxnOffsetCommit,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Result<Vec<ErrorCode>, ErrorCode> {
        let partition = coordinator_partition(&request.commit.group_id, COORDINATOR_PARTITIONS);
        let id = TopicPartitionId::consumer_offsets(partition);
        let meta = self.coordinator.get(&request.transactional_id);
        txn::check_txn_offset_commit(
            meta,
            request.producer_id,
            request.producer_epoch,
            partition,
            request.dialect,
        )?;
        let enrol = match request.dialect {
            Dialect::V1 => None,
            Dialect::V2 => {
                let wanted = Partitions::from([(Arc::from(CONSUMER_OFFSETS), partition)]);
                let (producer_id, epoch) = (request.producer_id, request.producer_epoch);
                let outcome =
                    txn::decide_implicit_enrolment(meta, producer_id, epoch, &wanted, now.wall_ms)?;
                if let Some(meta) = meta
                    && let Err(limit) = self.may_enrol(meta, &wanted)
                {
                    let event = limit.event(&meta.who.principal, &request.transactional_id);
                    step.events.push(event);
                    return Err(limit.code());
                }
                Some(outcome)
            }
        };
        let transactional_id = request.transactional_id;
        let decided = self
            .groups
            .decide_txn_offset_commit(request.commit, now.wall_ms);
        let codes = decided.results.into_iter().map(|r| r.error).collect();
        if decided.records.is_empty() {
            return Ok(codes);
        }
        let mut batch = BatchBuilder::new(now.wall_ms);
        batch.producer(request.producer_id, request.producer_epoch, -1);
        batch.transactional();
        for record in &decided.records {
            batch.push(Some(&record.encode_key()), record.encode_value().as_deref());
        }
        let batch = batch.build();
        let header = BatchHeader::parse(&batch).expect("a batch just built has a header");
        self.partitions
            .get(&id)
            .expect("__consumer_offsets exists from the first start")
            .producers
            .decide_append(&header, Origin::Coordinator)?;
        let mut draft = self.begin(now);
        // What it enrols is stored in the same record, and has to be ended in one later on.
        let enrols = enrol.as_ref().is_some_and(|outcome| outcome.next.is_some());
        let state_bytes = meta.filter(|_| enrols).map_or(0, |meta| {
            transaction_bytes(meta, meta.partitions.iter()) + enrolled_bytes(CONSUMER_OFFSETS)
        });
        if draft.bytes + APPEND_HEAD_BYTES + batch.len() + state_bytes > self.max_record_bytes {
            return Err(ErrorCode::InvalidCommitOffsetSize);
        }
        if let Some(outcome) = enrol {
            self.write_outcome(
                &mut draft,
                &transactional_id,
                &outcome,
                ProducerId::NONE,
                now,
            );
        }
        self.append(&mut draft, id, BytesMut::from(&batch[..]));
        self.renew_lease(&transactional_id, now);
        self.finish(draft, step);
        Ok(codes)
    }
}
