//! Fetch (1), v4-v16: batches of partitions, as of one published tick.
//!
//! v4 isolation levels; v5 log start offset; v7 sessions (declined: session id 0 is always right);
//! v9 leader epochs; v10 zstd; v12 flexible; v13 topic ids; v15 replica state. The broker filters
//! nothing for the client: a read_committed reader gets everything below the last stable offset,
//! with the list of aborted transactions, and their markers.
//!
//! A fetch that finds less than min.bytes is parked on its partitions and woken by the publication
//! that changes one of them; nothing polls.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::FetchRequest;
use tidemark_partition_log::{LogError, PartitionLog, WaiterId};
use tidemark_record_batch::{BatchHeader, Codec};
use tidemark_types::{ErrorCode, LeaderEpoch, TopicId, TopicPartitionId};
use tidemark_wire::{AbortedTransaction, FetchPartition, FetchResponse, FetchTopic};
use tokio::sync::Notify;
use tracing::error;

use super::{Cx, Outcome, Pending};
use crate::shared::{Shared, View};

pub(crate) fn handle(cx: Cx, request: FetchRequest) -> Pending {
    Pending::later(async move {
        let response = fetch(&cx, &request).await;
        match response.encode(cx.version(), cx.header.correlation_id) {
            Ok(chunks) => Outcome::Answer(chunks),
            Err(e) => {
                error!("{e}; connection of {} closed", cx.connection.peer);
                Outcome::Close
            }
        }
    })
}

async fn fetch(cx: &Cx, request: &FetchRequest) -> FetchResponse {
    let shared = &cx.shared;
    let deadline =
        shared.clock.now() + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
    let mut parked: Option<Parked> = None;
    let mut expired = request.max_wait_ms <= 0;
    loop {
        let found = match read_all(cx, request, Reads::TailOnly) {
            Some(found) => found,
            None => tokio::task::block_in_place(|| read_all(cx, request, Reads::Disk))
                .expect("reads that may block are never put off"),
        };
        if expired || found.must_answer || found.bytes >= min_bytes {
            return found.response;
        }
        let Some(parked) = &parked else {
            // Registered first, looked again afterwards: a publication in between is not missed.
            parked = Some(Parked::new(shared, found.logs));
            continue;
        };
        tokio::select! {
            () = parked.woken.notified() => {}
            () = shared.clock.sleep_until(deadline) => expired = true,
        }
    }
}

/// A fetch's registrations; taken back when it is answered or its connection goes away.
struct Parked {
    id: WaiterId,
    logs: Vec<Arc<PartitionLog>>,
    woken: Arc<Notify>,
}

impl Parked {
    fn new(shared: &Shared, logs: Vec<Arc<PartitionLog>>) -> Parked {
        let woken = Arc::new(Notify::new());
        let id = shared.next_waiter_id();
        for log in &logs {
            let woken = woken.clone();
            log.waiters().add(id, Arc::new(move || woken.notify_one()));
        }
        Parked { id, logs, woken }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        for log in &self.logs {
            log.waiters().remove(self.id);
        }
    }
}

struct Found {
    response: FetchResponse,
    bytes: usize,
    /// An error is answered at once, whatever min.bytes says.
    must_answer: bool,
    logs: Vec<Arc<PartitionLog>>,
}

/// Whether a read may wait for a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    TailOnly,
    Disk,
}

/// Reads every partition of the request at one tick. `None`: it needs a disk and may not wait.
fn read_all(cx: &Cx, request: &FetchRequest, reads: Reads) -> Option<Found> {
    let view = cx.shared.read();
    let by_id = cx.version() >= 13;
    let mut found = Found {
        response: FetchResponse {
            throttle_time_ms: 0,
            error_code: ErrorCode::None,
            session_id: 0,
            topics: Vec::with_capacity(request.topics.len()),
        },
        bytes: 0,
        must_answer: request.topics.is_empty(),
        logs: Vec::new(),
    };
    let mut budget = usize::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(usize::try_from(cx.shared.settings.fetch_max_bytes).unwrap_or(0));
    for topic in &request.topics {
        let id = if by_id {
            Some(TopicId(*topic.topic_id.as_bytes()))
        } else {
            view.image.topic(&topic.topic).map(|t| t.id)
        };
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let log = id.and_then(|id| view.log(TopicPartitionId::new(id, wanted.partition)));
            if reads == Reads::TailOnly
                && log
                    .as_ref()
                    .is_some_and(|log| wanted.fetch_offset < log.tail_start_offset())
            {
                return None;
            }
            let read = match &log {
                None => Err(unknown(&view, by_id, id)),
                Some(log) => read_partition(
                    cx.version(),
                    request.isolation_level,
                    &view,
                    log,
                    wanted,
                    budget,
                    found.bytes == 0,
                ),
            };
            let partition = read.unwrap_or_else(|error| {
                found.must_answer = true;
                empty(wanted.partition, error)
            });
            if partition.error_code.is_err() {
                found.must_answer = true;
            }
            let bytes: usize = partition.records.iter().map(bytes::Bytes::len).sum();
            budget = budget.saturating_sub(bytes);
            found.bytes += bytes;
            found.logs.extend(log);
            partitions.push(partition);
        }
        found.response.topics.push(FetchTopic {
            name: topic.topic.0.clone(),
            topic_id: TopicId(*topic.topic_id.as_bytes()),
            partitions,
        });
    }
    Some(found)
}

fn unknown(view: &View<'_>, by_id: bool, id: Option<TopicId>) -> ErrorCode {
    match id {
        Some(id) if by_id && view.image.topic_by_id(id).is_none() => ErrorCode::UnknownTopicId,
        _ => ErrorCode::UnknownTopicOrPartition,
    }
}

fn empty(index: i32, error_code: ErrorCode) -> FetchPartition {
    FetchPartition {
        partition_index: index,
        error_code,
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        aborted_transactions: None,
        current_leader: None,
        records: Vec::new(),
    }
}

fn read_partition(
    api_version: i16,
    isolation_level: i8,
    view: &View<'_>,
    log: &PartitionLog,
    wanted: &kafka_protocol::messages::fetch_request::FetchPartition,
    budget: usize,
    is_first: bool,
) -> Result<FetchPartition, ErrorCode> {
    let version = log.at(view.tick());
    check_leader_epoch(wanted.current_leader_epoch, version.leader_epoch)?;
    let high_watermark = version.log_end_offset;
    let mut partition = FetchPartition {
        high_watermark,
        last_stable_offset: version.last_stable_offset,
        log_start_offset: version.log_start_offset,
        ..empty(wanted.partition, ErrorCode::None)
    };
    let from = wanted.fetch_offset;
    // The range is judged by the high watermark, also for read_committed: what lies between the
    // last stable offset and it is not an error, only not yet there.
    if from < version.log_start_offset || from > high_watermark {
        partition.error_code = ErrorCode::OffsetOutOfRange;
        return Ok(partition);
    }
    let read_committed = isolation_level == 1;
    let upper = match read_committed {
        true => version.last_stable_offset,
        false => high_watermark,
    };
    let mut next = from;
    let partition_max_bytes = usize::try_from(wanted.partition_max_bytes).unwrap_or(0);
    // A full answer asks no disk for the partitions that no longer fit.
    if from < upper && (is_first || partition_max_bytes.min(budget) > 0) {
        // Of the whole answer the first batch is given whole, however large it is (KIP-74).
        let read = log
            .read(from, upper, partition_max_bytes.min(budget), is_first)
            .map_err(|e| storage_error(&e))?;
        next = read.next_offset().unwrap_or(from).min(upper);
        if api_version < 10 && has_zstd(&read.chunks) {
            partition.error_code = ErrorCode::UnsupportedCompressionType;
            return Ok(partition);
        }
        partition.records = read.chunks;
    }
    if read_committed {
        partition.aborted_transactions = Some(
            log.aborted(from, next)
                .into_iter()
                .map(|(producer_id, first_offset)| AbortedTransaction {
                    producer_id,
                    first_offset,
                })
                .collect(),
        );
    }
    Ok(partition)
}

/// KIP-320: a client that knows another leader epoch than ours must learn the present one first.
pub(crate) fn check_leader_epoch(known: i32, current: LeaderEpoch) -> Result<(), ErrorCode> {
    match known {
        -1 => Ok(()),
        known if known < current.0 => Err(ErrorCode::FencedLeaderEpoch),
        known if known > current.0 => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

fn has_zstd(chunks: &[bytes::Bytes]) -> bool {
    chunks.iter().any(|chunk| {
        tidemark_record_batch::batches(chunk).any(|batch| {
            batch.is_ok_and(|(header, _): (BatchHeader, _)| {
                header.attributes.codec() == Some(Codec::Zstd)
            })
        })
    })
}

pub(crate) fn storage_error(e: &LogError) -> ErrorCode {
    match e {
        LogError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        LogError::Closed => ErrorCode::UnknownTopicOrPartition,
        LogError::Damaged { .. } => {
            error!("{e}");
            ErrorCode::CorruptMessage
        }
        _ => {
            error!("{e}");
            ErrorCode::KafkaStorageError
        }
    }
}
