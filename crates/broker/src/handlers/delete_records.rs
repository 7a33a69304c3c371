//! DeleteRecords (21), v0-v2: the records below an offset go, partition by partition (KIP-107).
//!
//! v2 flexible. Delete on each topic. The timeout counts for nothing: there are no followers to wait for.

use std::collections::BTreeMap;

use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse, TopicName};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, DeleteRecords, MAX_LOG_START_MOVES, Reply};
use tidemark_types::{CLUSTER_METADATA, ErrorCode, TopicPartitionId};
use tokio::sync::oneshot;

use super::{Cx, Pending, wrong_reply};
use crate::admission::Wants;
use crate::audit::tell_change;
use crate::authorize::Resource;
use crate::shared::ADMISSION_PATIENCE;

/// With an error there is no low watermark.
const NO_LOW_WATERMARK: i64 = -1;

/// Topics in the order of the request; a partition that stands twice counts as its last mention, as
/// in Kafka.
type Asked = Vec<(TopicName, BTreeMap<i32, i64>)>;

pub(crate) async fn handle(cx: Cx, request: DeleteRecordsRequest) -> Pending {
    let asked = sort_out(request);
    let mut refused = BTreeMap::new();
    let mut admitted = Vec::new();
    {
        let view = cx.shared.read();
        let rights = cx.rights();
        for (name, partitions) in &asked {
            let found = match rights.may(Operation::Delete, Resource::Topic(name)) {
                true => find(&view, name),
                false => Err(ErrorCode::TopicAuthorizationFailed),
            };
            for (partition, offset) in partitions {
                match found {
                    Ok(id) => admitted.push((TopicPartitionId::new(id, *partition), *offset)),
                    Err(error) => {
                        refused.insert((name.clone(), *partition), error);
                    }
                }
            }
        }
    }
    // It frees space: what keeps others waiting for room does not hold it up.
    let mut waiting: Vec<(usize, Option<oneshot::Receiver<Reply>>)> = Vec::new();
    for some in admitted.chunks(MAX_LOG_START_MOVES) {
        let command = Command::DeleteRecords(DeleteRecords {
            partitions: some.to_vec(),
        });
        let submitted = cx
            .shared
            .submit(command, Wants::Control, ADMISSION_PATIENCE);
        waiting.push((some.len(), submitted.await.ok()));
    }
    Pending::later(async move {
        let mut results = Vec::with_capacity(admitted.len());
        for (count, reply) in waiting {
            let reply = match reply {
                Some(reply) => reply.await.ok(),
                None => None,
            };
            match reply {
                Some(Reply::DeleteRecords(some)) => results.extend(some),
                Some(other) => wrong_reply(other),
                // Whether they are gone is not known.
                None => results.extend(std::iter::repeat_n(Err(ErrorCode::RequestTimedOut), count)),
            }
        }
        let mut results = results.into_iter();
        let topics = asked.into_iter().map(|(name, partitions)| {
            let partitions = partitions.into_iter().map(|(partition, offset)| {
                let result = match refused.get(&(name.clone(), partition)) {
                    Some(error) => Err(*error),
                    None => results.next().expect("one for each that was admitted"),
                };
                let what = match offset {
                    -1 => format!("records of partition {partition} deleted"),
                    _ => format!("records of partition {partition} below {offset} deleted"),
                };
                let failed = result.err().map(|code| (code, None));
                tell_change(&cx, "Topic", &name, &what, failed);
                DeleteRecordsPartitionResult::default()
                    .with_partition_index(partition)
                    .with_low_watermark(result.unwrap_or(NO_LOW_WATERMARK))
                    .with_error_code(result.err().unwrap_or(ErrorCode::None).code())
            });
            DeleteRecordsTopicResult::default()
                .with_partitions(partitions.collect())
                .with_name(name)
        });
        cx.answer(&DeleteRecordsResponse::default().with_topics(topics.collect()))
    })
}

fn sort_out(request: DeleteRecordsRequest) -> Asked {
    let mut asked = Asked::new();
    for topic in request.topics {
        let at = asked.iter().position(|(name, _)| *name == topic.name);
        let at = at.unwrap_or_else(|| {
            asked.push((topic.name, BTreeMap::new()));
            asked.len() - 1
        });
        let offsets = topic.partitions.iter();
        asked[at]
            .1
            .extend(offsets.map(|p| (p.partition_index, p.offset)));
    }
    asked
}

/// The topic's id, if records of it may be deleted.
fn find(view: &crate::shared::View<'_>, name: &str) -> Result<tidemark_types::TopicId, ErrorCode> {
    let topic = view.image.topic(name).filter(|_| name != CLUSTER_METADATA);
    let topic = topic.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if topic.internal {
        return Err(ErrorCode::InvalidTopicException);
    }
    let policy = topic.resolve(&view.defaults).cleanup_policy;
    // What compaction alone keeps small has no old end to cut off.
    if policy.compact && !policy.delete {
        return Err(ErrorCode::PolicyViolation);
    }
    Ok(topic.id)
}
