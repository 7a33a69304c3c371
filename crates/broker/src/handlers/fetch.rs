//! Fetch (1), v4-v18: batches of partitions, as of one published tick.
//!
//! v4 isolation levels; v5 log start offset; v7 sessions (KIP-227); v9 leader epochs; v10 zstd; v12
//! flexible; v13 topic ids; v15 replica state, v17 and v18 fields of followers (passed over). The
//! broker filters nothing for the client: a read_committed reader gets everything below the last
//! stable offset, with the list of aborted transactions, and their markers.
//!
//! Read on each topic. Who says it is another broker needs ClusterAction for it, and then gets what a
//! client gets (CVE-2018-1288).
//!
//! A fetch that finds less than min.bytes is parked on its partitions and woken by the publication
//! that changes one of them; nothing polls.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition as Asked, FetchTopic as AskedTopic};
use kafka_protocol::protocol::StrBytes;
use tidemark_authorizer::Operation;
use tidemark_partition_log::{LogError, PartitionLog, WaiterId};
use tidemark_record_batch::{BatchHeader, Codec};
use tidemark_types::{ErrorCode, LeaderEpoch, TopicId, TopicPartitionId, mutant};
use tidemark_wire::{AbortedTransaction, FetchPartition, FetchResponse, FetchTopic};
use tokio::sync::Notify;
use tracing::error;

use super::{Cx, Outcome, Pending};
use crate::authorize::Resource;
use crate::fetch_sessions::{Closing, NO_SESSION, Opening, TopicKey, Wanted};
use crate::memory::Held;
use crate::shared::{Shared, View};

pub(crate) fn handle(cx: Cx, request: FetchRequest) -> Pending {
    Pending::later(async move {
        let (response, held) = match fetch(&cx, request).await {
            Ok((response, held)) => (response, Some(held)),
            Err(error_code) => {
                let response = FetchResponse {
                    throttle_time_ms: 0,
                    error_code,
                    session_id: NO_SESSION,
                    topics: Vec::new(),
                };
                (response, None)
            }
        };
        match (
            response.encode(cx.version(), cx.header.correlation_id),
            held,
        ) {
            (Ok(chunks), Some(held)) => Outcome::Budgeted(chunks, held),
            (Ok(chunks), None) => Outcome::Answer(chunks),
            (Err(e), _) => {
                error!("{e}; connection of {} closed", cx.connection.peer);
                Outcome::Close
            }
        }
    })
}

/// Fails with an error of the request as a whole, which is one of its session.
async fn fetch(cx: &Cx, request: FetchRequest) -> Result<(FetchResponse, Held), ErrorCode> {
    let (shared, now) = (&cx.shared, cx.shared.clock.now());
    let (context, wanted) = {
        let image = shared.read().image;
        let name_of = |id| image.topic_by_id(id).map(|topic| topic.name.clone());
        let opening = opening(cx.version(), &request);
        shared.fetch_sessions.open(opening, now, name_of)?
    };
    let rights = may_read(cx, &request, &wanted);
    let deadline = now + Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
    let mut parked: Option<Parked> = None;
    let mut expired = request.max_wait_ms <= 0;
    let (read, held) = loop {
        let found = match read_all(cx, &request, &wanted, rights.as_deref(), Reads::TailOnly) {
            Some(found) => found,
            None => {
                let _turn = shared.disk_reads.acquire().await;
                tokio::task::block_in_place(|| {
                    read_all(cx, &request, &wanted, rights.as_deref(), Reads::Disk)
                })
                .expect("reads that may block are never put off")
            }
        };
        if expired || found.must_answer || found.bytes >= min_bytes {
            break (found.partitions, found.held);
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
    };
    let topics: Vec<TopicKey> = wanted.iter().map(|wanted| wanted.topic.clone()).collect();
    let now = shared.clock.now();
    let closing = shared.fetch_sessions.close(context, wanted, &read, now)?;
    Ok((respond(topics, read, closing), held))
}

/// Whether each partition may be read; `None`: all of them. A topic of an id that means nothing is no
/// secret.
fn may_read(cx: &Cx, request: &FetchRequest, wanted: &[Wanted]) -> Option<Vec<bool>> {
    let rights = cx.rights();
    if !rights.are_judged() {
        return None;
    }
    let replica_id = match cx.version() {
        15.. => request.replica_state.replica_id.0,
        _ => request.replica_id.0,
    };
    if replica_id >= 0 {
        let may = rights.may(Operation::ClusterAction, Resource::Cluster);
        return Some(vec![may; wanted.len()]);
    }
    let image = cx.shared.read().image;
    // Partitions of a topic follow each other.
    let mut last: Option<(&TopicKey, bool)> = None;
    let may = wanted.iter().map(|wanted| match last {
        Some((topic, may)) if *topic == wanted.topic => may,
        _ => {
            let name = match &wanted.topic {
                TopicKey::Name(name) => Some(&**name),
                TopicKey::Id(id) => image.topic_by_id(*id).map(|topic| &*topic.name),
            };
            let may = name.is_none_or(|name| rights.may(Operation::Read, Resource::Topic(name)));
            last = Some((&wanted.topic, may));
            may
        }
    });
    Some(may.collect())
}

/// The request's session and partitions. Below v7 there are no sessions.
fn opening(api_version: i16, request: &FetchRequest) -> Opening {
    let by_id = api_version >= 13;
    let key = |name: &StrBytes, id: &uuid::Uuid| match by_id {
        true => TopicKey::Id(TopicId(*id.as_bytes())),
        false => TopicKey::Name(name.clone()),
    };
    let (id, epoch) = match api_version {
        7.. => (request.session_id, request.session_epoch),
        _ => (NO_SESSION, -1),
    };
    let wanted = |topic: &AskedTopic, asked: &Asked| Wanted {
        topic: key(&topic.topic, &topic.topic_id),
        known_as: None,
        partition: asked.partition,
        current_leader_epoch: asked.current_leader_epoch,
        last_fetched_epoch: asked.last_fetched_epoch,
        fetch_offset: asked.fetch_offset,
        max_bytes: asked.partition_max_bytes,
    };
    Opening {
        id,
        epoch,
        by_id,
        wanted: (request.topics.iter())
            .flat_map(|topic| topic.partitions.iter().map(move |p| (topic, p)))
            .map(|(topic, partition)| wanted(topic, partition))
            .collect(),
        forgotten: (request.forgotten_topics_data.iter())
            .flat_map(|topic| topic.partitions.iter().map(move |p| (topic, *p)))
            .map(|(topic, partition)| (key(&topic.topic, &topic.topic_id), partition))
            .collect(),
    }
}

/// The answer: what is sent of the partitions that were read, in the order of reading. Partitions of
/// one topic that follow each other share an entry.
fn respond(topics: Vec<TopicKey>, read: Vec<FetchPartition>, closing: Closing) -> FetchResponse {
    let mut last: Option<TopicKey> = None;
    let mut answered: Vec<FetchTopic> = Vec::new();
    let sent = topics.into_iter().zip(read).zip(closing.sends);
    for ((topic, partition), _) in sent.filter(|(_, is_sent)| *is_sent) {
        if last.as_ref() != Some(&topic) {
            let (name, topic_id) = match &topic {
                TopicKey::Name(name) => (name.clone(), TopicId::ZERO),
                TopicKey::Id(id) => (StrBytes::new(), *id),
            };
            answered.push(FetchTopic {
                name,
                topic_id,
                partitions: Vec::new(),
            });
            last = Some(topic);
        }
        let topic = answered
            .last_mut()
            .expect("pushed with its first partition");
        topic.partitions.push(partition);
    }
    FetchResponse {
        throttle_time_ms: 0,
        error_code: ErrorCode::None,
        session_id: closing.session_id,
        topics: answered,
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
    /// One per partition that is wanted, in that order.
    partitions: Vec<FetchPartition>,
    bytes: usize,
    /// There is nothing to wait for: an error of a partition that exists, or none that does.
    must_answer: bool,
    logs: Vec<Arc<PartitionLog>>,
    /// The memory that the records count for.
    held: Held,
}

/// Whether a read may wait for a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    TailOnly,
    Disk,
}

/// Reads every partition that is wanted at one tick. `None`: it needs a disk and may not wait.
fn read_all(
    cx: &Cx,
    request: &FetchRequest,
    wanted: &[Wanted],
    rights: Option<&[bool]>,
    reads: Reads,
) -> Option<Found> {
    let view = cx.shared.read();
    let most = usize::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(usize::try_from(cx.shared.settings.fetch_max_bytes).unwrap_or(0));
    let held = cx.shared.answers.grant(most);
    let mut budget = held.bytes();
    let is_short = budget < most;
    let mut found = Found {
        held,
        partitions: Vec::with_capacity(wanted.len()),
        bytes: 0,
        must_answer: false,
        logs: Vec::with_capacity(wanted.len()),
    };
    for (nth, wanted) in wanted.iter().enumerate() {
        if rights.is_some_and(|may| !may[nth]) {
            found.partitions.push(FetchPartition {
                aborted_transactions: Some(Vec::new()),
                ..empty(wanted.partition, ErrorCode::TopicAuthorizationFailed)
            });
            continue;
        }
        let id = match &wanted.topic {
            TopicKey::Name(name) => view.image.topic(name).map(|topic| topic.id),
            TopicKey::Id(id) => Some(*id),
        };
        let log = id.and_then(|id| view.log(TopicPartitionId::new(id, wanted.partition)));
        let Some(log) = log else {
            found.partitions.push(FetchPartition {
                aborted_transactions: Some(Vec::new()),
                ..empty(wanted.partition, unknown(&view, wanted))
            });
            continue;
        };
        if reads == Reads::TailOnly && wanted.fetch_offset < log.tail_start_offset() {
            return None;
        }
        let level = request.isolation_level;
        let is_first = found.bytes == 0;
        let read = read_partition(cx.version(), level, &view, &log, wanted, budget, is_first);
        let partition = read.unwrap_or_else(|error| {
            found.must_answer = true;
            empty(wanted.partition, error)
        });
        found.must_answer |= partition.diverging_epoch.is_some();
        let bytes: usize = partition.records.iter().map(bytes::Bytes::len).sum();
        budget = budget.saturating_sub(bytes);
        found.bytes += bytes;
        found.logs.push(log);
        found.partitions.push(partition);
    }
    found.must_answer |= found.logs.is_empty();
    // With little memory there may never be min.bytes.
    found.must_answer |= is_short && found.bytes > 0;
    found.held.settle(found.bytes);
    Some(found)
}

/// Why a partition is not there. An id that a session knew under a name that another topic has now
/// is INCONSISTENT_TOPIC_ID; one that never had a name is UNKNOWN_TOPIC_ID.
fn unknown(view: &View<'_>, wanted: &Wanted) -> ErrorCode {
    match (&wanted.topic, &wanted.known_as) {
        (TopicKey::Id(id), None) if view.image.topic_by_id(*id).is_none() => {
            ErrorCode::UnknownTopicId
        }
        (TopicKey::Id(id), Some(name)) => match view.image.topic(name) {
            Some(topic) if topic.id != *id => ErrorCode::InconsistentTopicId,
            _ => ErrorCode::UnknownTopicOrPartition,
        },
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
        diverging_epoch: None,
        current_leader: None,
        records: Vec::new(),
    }
}

fn read_partition(
    api_version: i16,
    isolation_level: i8,
    view: &View<'_>,
    log: &PartitionLog,
    wanted: &Wanted,
    budget: usize,
    is_first: bool,
) -> Result<FetchPartition, ErrorCode> {
    let version = log.at(view.tick());
    // As in Kafka, where Fetch takes any negative epoch for none.
    let known_epoch = wanted.current_leader_epoch.max(-1);
    check_leader_epoch(known_epoch, version.leader_epoch)?;
    let high_watermark = version.log_end_offset;
    let mut partition = FetchPartition {
        high_watermark,
        last_stable_offset: version.last_stable_offset,
        log_start_offset: version.log_start_offset,
        ..empty(wanted.partition, ErrorCode::None)
    };
    let from = wanted.fetch_offset;
    partition.diverging_epoch = divergence(wanted, log, high_watermark)?;
    if partition.diverging_epoch.is_some() {
        // Not from here: the client goes back to where its log and this one are the same.
        return Ok(partition);
    }
    // The range is judged by the high watermark, also for read_committed: what lies between the
    // last stable offset and it is not an error, only not yet there.
    if from < version.log_start_offset || from > high_watermark {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    let read_committed = isolation_level == 1;
    let upper = match read_committed {
        true => version.last_stable_offset,
        false => high_watermark,
    };
    let from = match mutant!("fetch-skips") && from % 50 == 7 && from + 1 < upper {
        true => from + 1,
        false => from,
    };
    let mut aborted = read_committed.then(Vec::new);
    let partition_max_bytes = usize::try_from(wanted.max_bytes).unwrap_or(0);
    // A full answer asks no disk for the partitions that no longer fit.
    if from < upper && (is_first || partition_max_bytes.min(budget) > 0) {
        // Of the whole answer the first batch is given whole, however large it is (KIP-74).
        let read = loop {
            let read = log
                .read(from, upper, partition_max_bytes.min(budget), is_first)
                .map_err(|e| storage_error(&e))?;
            let next = read.next_offset().unwrap_or(from).min(upper);
            match read_committed.then(|| log.aborted_in(&read, from, next)) {
                // A run of compaction ended in between: what was read may hold aborted records of
                // which the log knows nothing any more.
                Some(None) => continue,
                found => aborted = found.flatten(),
            }
            break read;
        };
        if api_version < 10 && has_zstd(&read.chunks) {
            return Err(ErrorCode::UnsupportedCompressionType);
        }
        partition.records = read.chunks;
    }
    partition.aborted_transactions = aborted.map(|found| {
        found
            .into_iter()
            .map(|(producer_id, first_offset)| AbortedTransaction {
                producer_id,
                first_offset,
            })
            .collect()
    });
    Ok(partition)
}

/// Where the log leaves the one that the client has read, if it does: the client's last batch is of
/// an epoch that ended before its position. OFFSET_OUT_OF_RANGE for an epoch that never was.
fn divergence(
    wanted: &Wanted,
    log: &PartitionLog,
    log_end_offset: i64,
) -> Result<Option<(LeaderEpoch, i64)>, ErrorCode> {
    if wanted.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let last = LeaderEpoch(wanted.last_fetched_epoch);
    let (epoch, end_offset) = log
        .end_offset_for_epoch(last, log_end_offset)
        .ok_or(ErrorCode::OffsetOutOfRange)?;
    let diverges = epoch < last || end_offset < wanted.fetch_offset;
    Ok(diverges.then_some((epoch, end_offset)))
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
