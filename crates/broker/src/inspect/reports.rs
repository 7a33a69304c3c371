//! What an operator is told, as plain data with the names of the JSON.

use serde::Serialize;

/// A transactional id and its transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TransactionReport {
    pub transactional_id: String,
    /// Kafka's name of the state.
    pub state: &'static str,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// "classic" or "version 2" (KIP-890).
    pub dialect: &'static str,
    pub timeout_ms: i32,
    /// Wall clock of the first partition's enrolment; null when no transaction is ongoing.
    pub opened_at_ms: Option<i64>,
    pub age_ms: Option<i64>,
    /// By the deadline that the broker acts at, a lease counted in; negative when it is overdue.
    pub times_out_in_ms: Option<i64>,
    pub last_update_ms: i64,
    /// Counts the transactions of this id from 1.
    pub transaction_number: u64,
    pub principal: String,
    pub client_id: String,
    pub host: String,
    /// How the last transaction ended.
    pub last_end: &'static str,
    /// Of the ongoing transaction.
    pub partitions: Vec<EnrolledReport>,
}

/// What an ongoing transaction has written to a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EnrolledReport {
    pub topic: String,
    pub partition: i32,
    /// Null while it has written nothing there.
    pub first_offset: Option<i64>,
    pub records: i64,
    pub bytes: u64,
    pub last_activity_ms: Option<i64>,
}

/// A partition, and who keeps readers of committed records from its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionReport {
    pub topic: String,
    pub partition: i32,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// Offsets between the last stable offset and the high watermark.
    pub lag_records: i64,
    /// Since when the first of them waits.
    pub lag_ms: i64,
    pub open_transactions: usize,
    /// The transaction that begins at the last stable offset.
    pub holder: Option<HolderReport>,
}

/// The one transaction that a partition's last stable offset waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HolderReport {
    pub transactional_id: Option<String>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub principal: Option<String>,
    pub client_id: Option<String>,
    pub host: Option<String>,
    pub opened_at_ms: Option<i64>,
    pub age_ms: Option<i64>,
    pub timeout_ms: Option<i32>,
    pub times_out_in_ms: Option<i64>,
    pub first_offset: i64,
    pub records: i64,
    pub bytes: u64,
    pub last_activity_ms: i64,
}

/// A change of a transactional id, from its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangeReport {
    pub at_ms: i64,
    pub state: String,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub transaction_number: u64,
    /// Partitions that are part of the transaction after this change.
    pub partitions: Vec<String>,
    /// What happened, in words; for a new epoch its reason, and whom it fenced.
    pub what: String,
}

/// One transactional id with its past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownTransaction {
    pub transaction: TransactionReport,
    /// Oldest first; the newest few hundred changes are kept.
    pub timeline: Vec<ChangeReport>,
}

/// What became of an offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainReport {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// Null when no batch holds the offset.
    pub batch: Option<BatchReport>,
    /// Null for a batch that belongs to no transaction.
    pub transaction: Option<OutcomeReport>,
    pub visible_to_read_uncommitted: bool,
    pub visible_to_read_committed: bool,
    /// The same in a sentence.
    pub says: String,
}

/// The batch that holds an offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BatchReport {
    pub base_offset: i64,
    pub last_offset: i64,
    /// The tick of the journal record that wrote it.
    pub tick: u64,
    /// The tick's wall clock part.
    pub written_at_ms: i64,
    pub bytes: u32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// "records", "commit marker", "abort marker" or "control".
    pub kind: &'static str,
}

/// The transaction of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutcomeReport {
    /// Null when no coordinator and no history knows the producer id.
    pub transactional_id: Option<String>,
    /// "open", "committed" or "aborted".
    pub outcome: &'static str,
    /// First offset of the transaction here, once it has ended.
    pub first_offset: Option<i64>,
    pub marker_offset: Option<i64>,
    pub marker_tick: Option<u64>,
    pub ended_at_ms: Option<i64>,
}

/// What an abort did, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AbortReport {
    /// False for a dry run.
    pub aborted: bool,
    pub transaction: TransactionReport,
    pub discarded_records: i64,
    pub discarded_bytes: u64,
    /// Groups' offsets that the transaction would have committed are discarded with it.
    pub discards_group_offsets: bool,
}
