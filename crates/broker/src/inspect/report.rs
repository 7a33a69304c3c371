//! From the owner's state and the logs to what an operator is told.

use tidemark_owner::{Enrolled, InspectedPartition, InspectedTransaction, OpenHere};
use tidemark_txn_coordinator::{Dialect, EndedBy, TxnMeta, TxnState};
use tidemark_types::{CONSUMER_OFFSETS, ProducerId};

use super::reports::{
    AbortReport, EnrolledReport, HolderReport, PartitionReport, TransactionReport,
};
use super::{InspectError, Inspector};

/// Records and bytes of a producer's open transaction in one partition.
#[derive(Default)]
struct Written {
    records: i64,
    bytes: u64,
}

impl Inspector {
    pub(super) fn report_transaction(
        &self,
        found: &InspectedTransaction,
    ) -> Result<TransactionReport, InspectError> {
        let meta = &found.meta;
        let partitions = found.enrolled.iter();
        let partitions = partitions.map(|e| self.report_enrolled(e, meta.producer_id));
        let times = self.times(meta);
        Ok(TransactionReport {
            transactional_id: meta.transactional_id.to_string(),
            state: meta.state.name(),
            producer_id: meta.producer_id.0,
            producer_epoch: meta.epoch.0,
            dialect: match meta.dialect {
                Dialect::V1 => "classic",
                Dialect::V2 => "version 2",
            },
            timeout_ms: meta.timeout_ms,
            opened_at_ms: times.map(|t| t.opened_at_ms),
            age_ms: times.map(|t| t.age_ms),
            times_out_in_ms: found.times_out_in_ms,
            last_update_ms: meta.last_update_wall_ms,
            transaction_number: meta.txn_number,
            principal: meta.who.principal.to_string(),
            client_id: meta.who.client_id.to_string(),
            host: meta.who.host.to_string(),
            last_end: match meta.ended_by {
                EndedBy::Unknown => "none yet",
                EndedBy::Client => "by its client",
                EndedBy::NewSession => "aborted by a new session",
                EndedBy::Timeout => "aborted by its timeout",
                EndedBy::Operator => "aborted by an operator",
                EndedBy::Exclusive => {
                    "aborted by the deletion of a topic, or another operation on one that cut \
                     through it"
                }
                EndedBy::Loss => "aborted by a restart that may have lost records of it",
            },
            partitions: partitions.collect::<Result<_, _>>()?,
        })
    }

    fn times(&self, meta: &TxnMeta) -> Option<Times> {
        (meta.state == TxnState::Ongoing).then(|| {
            let age_ms = (self.shared.clock.wall_ms() - meta.start_wall_ms).max(0);
            Times {
                opened_at_ms: meta.start_wall_ms,
                age_ms,
            }
        })
    }

    fn report_enrolled(
        &self,
        enrolled: &Enrolled,
        producer_id: ProducerId,
    ) -> Result<EnrolledReport, InspectError> {
        let written = match enrolled.first_offset {
            Some(first) => self.written(&enrolled.topic, enrolled.partition, producer_id, first)?,
            None => Written::default(),
        };
        Ok(EnrolledReport {
            topic: enrolled.topic.to_string(),
            partition: enrolled.partition,
            first_offset: enrolled.first_offset,
            records: written.records,
            bytes: written.bytes,
            last_activity_ms: enrolled.last_wall_ms,
        })
    }

    /// What a producer has written from `first_offset` on, as far as it is published.
    fn written(
        &self,
        topic: &str,
        partition: i32,
        producer_id: ProducerId,
        first_offset: i64,
    ) -> Result<Written, InspectError> {
        let view = self.shared.read();
        let mut written = Written::default();
        let log = (view.image.partition(topic, partition)).and_then(|id| view.log(id));
        let Some(log) = log else {
            return Ok(written);
        };
        let upper = log.at(view.tick()).log_end_offset;
        log.each_batch(first_offset, upper, |batch| {
            if batch.meta.producer_id == producer_id {
                written.records += batch.last_offset - batch.base_offset + 1;
                written.bytes += u64::from(batch.size_bytes);
            }
            true
        })
        .map_err(|e| InspectError::Failed(e.to_string()))?;
        Ok(written)
    }

    pub(super) fn report_partition(
        &self,
        topic: &str,
        found: &InspectedPartition,
    ) -> Result<PartitionReport, InspectError> {
        let view = self.shared.read();
        let missing = || InspectError::NotFound(format!("topic {topic:?}"));
        let id = view
            .image
            .partition(topic, found.partition)
            .ok_or_else(missing)?;
        let log = view.log(id).ok_or_else(missing)?;
        let version = log.at(view.tick());
        let lag_records = version.log_end_offset - version.last_stable_offset;
        // The owner was asked first: what it called open may have ended since.
        let holder = found.open.first();
        let holder =
            holder.filter(|h| lag_records > 0 && h.first_offset <= version.last_stable_offset);
        let mut waits_since_ms = None;
        if lag_records > 0 {
            log.each_batch(
                version.last_stable_offset,
                version.log_end_offset,
                |batch| {
                    waits_since_ms = Some(batch.tick.alignment_ms());
                    false
                },
            )
            .map_err(|e| InspectError::Failed(e.to_string()))?;
        }
        let now_ms = self.shared.clock.wall_ms();
        Ok(PartitionReport {
            topic: topic.to_owned(),
            partition: found.partition,
            log_start_offset: version.log_start_offset,
            high_watermark: version.log_end_offset,
            last_stable_offset: version.last_stable_offset,
            lag_records,
            lag_ms: waits_since_ms.map_or(0, |since| (now_ms - since).max(0)),
            open_transactions: found.open.len(),
            holder: holder
                .map(|open| self.report_holder(topic, found.partition, open))
                .transpose()?,
        })
    }

    fn report_holder(
        &self,
        topic: &str,
        partition: i32,
        open: &OpenHere,
    ) -> Result<HolderReport, InspectError> {
        let written = self.written(topic, partition, open.producer_id, open.first_offset)?;
        let meta = open.meta.as_ref();
        let times = meta.and_then(|meta| self.times(meta));
        Ok(HolderReport {
            transactional_id: meta.map(|m| m.transactional_id.to_string()),
            producer_id: open.producer_id.0,
            producer_epoch: open.epoch.0,
            principal: meta.map(|m| m.who.principal.to_string()),
            client_id: meta.map(|m| m.who.client_id.to_string()),
            host: meta.map(|m| m.who.host.to_string()),
            opened_at_ms: times.map(|t| t.opened_at_ms),
            age_ms: times.map(|t| t.age_ms),
            timeout_ms: meta.map(|m| m.timeout_ms),
            times_out_in_ms: open.times_out_in_ms,
            first_offset: open.first_offset,
            records: written.records,
            bytes: written.bytes,
            last_activity_ms: open.last_wall_ms,
        })
    }
}

#[derive(Clone, Copy)]
struct Times {
    opened_at_ms: i64,
    age_ms: i64,
}

pub(super) fn of_abort(transaction: TransactionReport, aborted: bool) -> AbortReport {
    let of_users = |e: &&EnrolledReport| e.topic != CONSUMER_OFFSETS;
    AbortReport {
        aborted,
        discarded_records: transaction
            .partitions
            .iter()
            .filter(of_users)
            .map(|e| e.records)
            .sum(),
        discarded_bytes: transaction
            .partitions
            .iter()
            .filter(of_users)
            .map(|e| e.bytes)
            .sum(),
        discards_group_offsets: (transaction.partitions.iter())
            .any(|e| e.topic == CONSUMER_OFFSETS && e.records > 0),
        transaction,
    }
}
