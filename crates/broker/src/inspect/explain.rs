//! What became of an offset.

use tidemark_partition_log::BatchNote;
use tidemark_record_batch::{Attributes, ControlType};
use tidemark_types::ProducerId;

use super::reports::{BatchReport, ExplainReport, OutcomeReport};
use super::{InspectError, Inspector};

impl Inspector {
    /// The report, and the producer whose transactional id is to be found.
    pub(super) fn explain_offset(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<(ExplainReport, Option<ProducerId>), InspectError> {
        let view = self.shared.read();
        let id = view.image.partition(topic, partition);
        let log = id.and_then(|id| view.log(id)).ok_or_else(|| {
            InspectError::NotFound(format!("topic {topic:?} partition {partition}"))
        })?;
        let version = log.at(view.tick());
        let end = version.log_end_offset;
        let mut found: Option<BatchNote> = None;
        // The first marker of the batch's producer behind it: an epoch may have several
        // transactions, so the next one is its own.
        let mut marker: Option<BatchNote> = None;
        if offset >= version.log_start_offset && offset < end {
            log.each_batch(offset, end, |batch| {
                match &found {
                    None if batch.base_offset > offset => return false,
                    None => found = Some(*batch),
                    Some(first) => {
                        let ends = batch.meta.control.is_some()
                            && batch.meta.producer_id == first.meta.producer_id;
                        marker = ends.then_some(*batch);
                    }
                }
                let first = found.as_ref().expect("it was just found");
                is_data_of_a_transaction(first) && marker.is_none()
            })
            .map_err(|e| InspectError::Failed(e.to_string()))?;
        }
        let mut report = ExplainReport {
            topic: topic.to_owned(),
            partition,
            offset,
            log_start_offset: version.log_start_offset,
            high_watermark: end,
            last_stable_offset: version.last_stable_offset,
            batch: found.as_ref().map(report_batch),
            transaction: found
                .as_ref()
                .and_then(|batch| outcome(batch, marker.as_ref())),
            visible_to_read_uncommitted: false,
            visible_to_read_committed: false,
            says: String::new(),
        };
        let data = found.as_ref().is_some_and(|batch| !is_control(batch));
        report.visible_to_read_uncommitted = data;
        let aborted = |t: &OutcomeReport| t.outcome == "aborted";
        report.visible_to_read_committed = data
            && offset < version.last_stable_offset
            && !report.transaction.as_ref().is_some_and(aborted);
        report.says = say(&report);
        let producer = found
            .filter(|_| report.transaction.is_some())
            .map(|batch| batch.meta.producer_id);
        Ok((report, producer))
    }
}

/// Adds the name that was found, if any.
pub(super) fn name_transaction(report: &mut ExplainReport, id: Option<String>) {
    if let Some(transaction) = &mut report.transaction {
        transaction.transactional_id = id;
    }
    report.says = say(report);
}

fn is_control(batch: &BatchNote) -> bool {
    Attributes(batch.meta.attributes).is_control()
}

fn is_data_of_a_transaction(batch: &BatchNote) -> bool {
    Attributes(batch.meta.attributes).is_transactional() && !is_control(batch)
}

fn report_batch(batch: &BatchNote) -> BatchReport {
    BatchReport {
        base_offset: batch.base_offset,
        last_offset: batch.last_offset,
        tick: batch.tick.0,
        written_at_ms: batch.tick.alignment_ms(),
        bytes: batch.size_bytes,
        producer_id: batch.meta.producer_id.0,
        producer_epoch: batch.meta.producer_epoch.0,
        kind: match batch.meta.control.map(|control| control.control_type) {
            Some(ControlType::Commit) => "commit marker",
            Some(ControlType::Abort) => "abort marker",
            None if is_control(batch) => "control",
            None => "records",
        },
    }
}

fn outcome(batch: &BatchNote, marker: Option<&BatchNote>) -> Option<OutcomeReport> {
    // A marker is the end of its own transaction.
    let marker = match batch.meta.control {
        Some(_) => Some(batch),
        None if is_data_of_a_transaction(batch) => marker,
        None => return None,
    };
    let control = marker.and_then(|marker| marker.meta.control);
    Some(OutcomeReport {
        transactional_id: None,
        outcome: match control.map(|control| control.control_type) {
            None => "open",
            Some(ControlType::Commit) => "committed",
            Some(ControlType::Abort) => "aborted",
        },
        first_offset: control.and_then(|control| control.txn_first_offset),
        marker_offset: marker.map(|marker| marker.base_offset),
        marker_tick: marker.map(|marker| marker.tick.0),
        ended_at_ms: marker.map(|marker| marker.tick.alignment_ms()),
    })
}

fn say(report: &ExplainReport) -> String {
    let offset = report.offset;
    let Some(batch) = &report.batch else {
        return match offset {
            _ if offset >= report.high_watermark => {
                format!(
                    "offset {offset} is not written yet: the log ends at {}",
                    report.high_watermark
                )
            }
            _ if offset < report.log_start_offset => format!(
                "offset {offset} is gone: the log begins at {} (retention or DeleteRecords)",
                report.log_start_offset
            ),
            _ => format!("offset {offset} is gone: compaction has removed its record"),
        };
    };
    let Some(transaction) = &report.transaction else {
        let waits = match report.visible_to_read_committed {
            true => "every reader sees it",
            false => "read_committed waits: an older transaction is open before it",
        };
        return format!("offset {offset} belongs to no transaction; {waits}");
    };
    let who = match &transaction.transactional_id {
        Some(id) => format!("transactional id {id:?} (producer {})", batch.producer_id),
        None => format!("producer {}", batch.producer_id),
    };
    let end = transaction.marker_offset.unwrap_or(-1);
    match (batch.kind, transaction.outcome) {
        ("records", "open") => format!(
            "offset {offset} was written by {who} in a transaction that is open: read_committed \
             waits for its end"
        ),
        ("records", "committed") if report.visible_to_read_committed => format!(
            "offset {offset} was written by {who} in a transaction that committed at offset {end}: \
             every reader sees it"
        ),
        ("records", "committed") => format!(
            "offset {offset} was written by {who} in a transaction that committed at offset {end}; \
             read_committed waits: an older transaction is open before it"
        ),
        ("records", _) => format!(
            "offset {offset} was written by {who} in a transaction that was aborted at offset {end}: \
             read_committed never sees it"
        ),
        (kind, _) => format!(
            "offset {offset} is the {kind} that ended a transaction of {who}; no reader gets it as \
             a record"
        ),
    }
}
