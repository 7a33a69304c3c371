//! ListOffsets (2), v1-v10: offsets by timestamp, all as of one published tick.
//!
//! v2 isolation level; v4 leader epochs; v7 the highest timestamp (KIP-734); v8 the first local and
//! v9 the last tiered offset (KIP-405, KIP-1005), of which there are none apart; v10 a timeout, which
//! nothing takes. "Latest" of a read_committed reader is the last stable offset. A record at or after
//! it is not found. Describe on each topic.
//!
//! Timestamps of 2^50 and more are ticks: positions in the journal's one order. The answer is an exact
//! cut, the same over all partitions: the first offset whose record's tick is at or after the one
//! asked for, which may be the next to be written; for read_committed the last stable offset as it
//! stood just before that tick, so that no record that was decided later is missed. A tick that lies
//! in the future cuts nothing yet: no offset, as for a timestamp after every record.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::ListOffsetsRequest;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use tidemark_authorizer::Operation;
use tidemark_owner::Command;
use tidemark_partition_log::{PartitionLog, Version};
use tidemark_record_batch::TICK_TIMESTAMP;
use tidemark_types::{ErrorCode, Tick, TopicPartitionId};

use super::fetch::{check_leader_epoch, storage_error};
use super::{Cx, Pending};
use crate::authorize::Resource;
use crate::shared::View;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

pub(crate) fn handle(cx: Cx, request: ListOffsetsRequest) -> Pending {
    // When its turn comes, as in Kafka: what the requests before it on the connection did is seen.
    Pending::later(async move {
        let settled = settle(&cx, &request).await;
        // By timestamp it reads segments; the ends of a log are in memory.
        let reads_segments = request
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .any(|wanted| {
                !matches!(
                    wanted.timestamp,
                    LATEST | EARLIEST | EARLIEST_LOCAL | LATEST_TIERED
                )
            });
        let response = match reads_segments {
            true => tokio::task::block_in_place(|| list(&cx, &request, settled)),
            false => list(&cx, &request, settled),
        };
        cx.answer(&response)
    })
}

/// Ticks below this one are published, all of them. Records without a tick of their own between the
/// published one and now are not written, so that for a tick in between one waits until what was
/// decided before is published: what is decided later has a later tick.
async fn settle(cx: &Cx, request: &ListOffsetsRequest) -> Tick {
    let shared = &cx.shared;
    let published = shared.published.tick().next();
    let now = shared.ticks.tick(shared.clock.now());
    let waits = request
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .filter_map(|wanted| tick(wanted.timestamp))
        .any(|tick| tick > published && tick <= now);
    if !waits {
        return published;
    }
    let settled = match shared.submit_read(Command::Settle).await {
        Ok(reply) => reply.await.is_ok(),
        Err(_) => false,
    };
    match settled {
        true => published.max(now),
        false => published,
    }
}

fn tick(timestamp: i64) -> Option<Tick> {
    (timestamp >= TICK_TIMESTAMP).then_some(Tick(timestamp as u64))
}

fn list(cx: &Cx, request: &ListOffsetsRequest, settled: Tick) -> ListOffsetsResponse {
    let view = cx.shared.read();
    let settled = settled.max(view.tick().next());
    let rights = cx.rights();
    let topics = request
        .topics
        .iter()
        .map(|topic| {
            if !rights.may(Operation::Describe, Resource::Topic(&topic.name)) {
                return forbidden(topic);
            }
            let id = view.image.topic(&topic.name).map(|t| t.id);
            // A partition that stands twice is answered once, with INVALID_REQUEST.
            let mut times: BTreeMap<i32, u32> = BTreeMap::new();
            for wanted in &topic.partitions {
                *times.entry(wanted.partition_index).or_default() += 1;
            }
            let mut answered = BTreeSet::new();
            ListOffsetsTopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(
                    topic
                        .partitions
                        .iter()
                        .filter(|wanted| answered.insert(wanted.partition_index))
                        .map(|wanted| {
                            let id = id.map(|id| TopicPartitionId::new(id, wanted.partition_index));
                            let answer = ListOffsetsPartitionResponse::default()
                                .with_partition_index(wanted.partition_index)
                                .with_timestamp(-1)
                                .with_offset(-1);
                            let found = match times[&wanted.partition_index] {
                                1 => {
                                    let level = request.isolation_level;
                                    find(cx.version(), level, &view, settled, id, wanted)
                                }
                                _ => Err(ErrorCode::InvalidRequest),
                            };
                            match found {
                                Err(error) => answer.with_error_code(error.code()),
                                Ok((timestamp, offset, leader_epoch)) => {
                                    let answer =
                                        answer.with_timestamp(timestamp).with_offset(offset);
                                    match cx.version() {
                                        4.. => answer.with_leader_epoch(leader_epoch),
                                        _ => answer,
                                    }
                                }
                            }
                        })
                        .collect(),
                )
        })
        .collect();
    ListOffsetsResponse::default().with_topics(topics)
}

fn forbidden(topic: &ListOffsetsTopic) -> ListOffsetsTopicResponse {
    let partitions = topic.partitions.iter().map(|wanted| {
        ListOffsetsPartitionResponse::default()
            .with_partition_index(wanted.partition_index)
            .with_error_code(ErrorCode::TopicAuthorizationFailed.code())
            .with_timestamp(-1)
            .with_offset(-1)
    });
    ListOffsetsTopicResponse::default()
        .with_name(topic.name.clone())
        .with_partitions(partitions.collect())
}

/// (timestamp, offset, leader epoch); -1 for each that there is none of.
fn find(
    api_version: i16,
    isolation_level: i8,
    view: &View<'_>,
    settled: Tick,
    id: Option<TopicPartitionId>,
    wanted: &ListOffsetsPartition,
) -> Result<(i64, i64, i32), ErrorCode> {
    let log = id
        .and_then(|id| view.log(id))
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let version = log.at(view.tick());
    check_leader_epoch(wanted.current_leader_epoch, version.leader_epoch)?;
    let upper = match isolation_level {
        1 => version.last_stable_offset,
        _ => version.log_end_offset,
    };
    let found = match wanted.timestamp {
        LATEST => return Ok((-1, upper, version.leader_epoch.0)),
        LATEST_TIERED if api_version >= 9 => return Ok((-1, -1, -1)),
        first if first == EARLIEST || (first == EARLIEST_LOCAL && api_version >= 8) => {
            let epoch = log.epoch_at(version.log_start_offset);
            return Ok((-1, version.log_start_offset, epoch.map_or(-1, |e| e.0)));
        }
        MAX_TIMESTAMP if api_version >= 7 => {
            // As in Kafka the highest there is, or nothing where the reader may not see it yet.
            let highest = log.max_timestamp(version.log_start_offset, version.log_end_offset);
            highest.map(|found| found.filter(|found| found.offset < upper))
        }
        ticks if ticks >= TICK_TIMESTAMP => {
            return cut(&log, &version, Tick(ticks as u64), settled, isolation_level);
        }
        timestamp if timestamp >= 0 => {
            log.offset_for_timestamp(timestamp, version.log_start_offset, upper)
        }
        _ => return Err(ErrorCode::UnsupportedVersion),
    };
    Ok(match found.map_err(|e| storage_error(&e))? {
        Some(found) => (found.timestamp, found.offset, found.leader_epoch.0),
        None => (-1, -1, -1),
    })
}

/// As [`find`], for a tick, which is also the timestamp of the answer.
fn cut(
    log: &PartitionLog,
    version: &Version,
    tick: Tick,
    settled: Tick,
    isolation_level: i8,
) -> Result<(i64, i64, i32), ErrorCode> {
    if tick > settled {
        return Ok((-1, -1, -1));
    }
    let found = log.cut_at(tick).map_err(|e| storage_error(&e))?;
    // Nothing is held that was written before: the log begins at or after the tick.
    let offset = found.map_or(version.log_start_offset, |cut| match isolation_level {
        1 => cut.last_stable_offset,
        _ => cut.end_offset,
    });
    let offset = offset.clamp(version.log_start_offset, version.log_end_offset);
    let epoch = log.epoch_at(offset).unwrap_or(version.leader_epoch);
    Ok((tick.0 as i64, offset, epoch.0))
}
