//! Everything that clients can see of a broker's state, to be compared before and after a start.
//!
//! What is asked changes nothing: a repeated batch is answered from its producer's window.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeGroupsRequest, GroupId, ListGroupsRequest, MetadataRequest,
};
use tidemark_testkit::requests::{self, text};
use tidemark_testkit::{Isolation, RawClient, listed, version};
use tidemark_types::ErrorCode;

/// A batch that was sent once, to be sent again.
#[derive(Clone)]
pub struct Sent {
    pub transactional: Option<String>,
    pub topic: String,
    pub partition: i32,
    pub batch: Bytes,
}

/// What to ask for besides what the broker lists itself.
#[derive(Clone, Default)]
pub struct Probes {
    pub groups: Vec<String>,
    pub sent: Vec<Sent>,
}

#[derive(Debug, Default, PartialEq)]
pub struct Snapshot {
    pub cluster_id: String,
    /// Topic ids and counts of partitions, by name.
    pub topics: BTreeMap<String, ([u8; 16], usize)>,
    pub configs: BTreeMap<String, Vec<String>>,
    pub partitions: BTreeMap<(String, i32), Partition>,
    /// Offsets by group, topic and partition: as a reader takes them, and if they must be stable.
    pub offsets: BTreeMap<(String, String, i32), [Result<i64, ErrorCode>; 2]>,
    pub groups: Vec<String>,
    /// What each repeated batch is answered.
    pub repeats: Vec<Result<i64, ErrorCode>>,
}

#[derive(Debug, PartialEq)]
pub struct Partition {
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
    /// Of all batches: what their headers and records say.
    pub batches: Vec<String>,
    pub committed: Vec<String>,
    pub aborted: Vec<(i64, i64)>,
    /// By timestamp, for some timestamps and both kinds of readers.
    pub by_time: Vec<Result<i64, ErrorCode>>,
}

/// Asks for everything.
pub async fn take(client: &mut RawClient, probes: &Probes) -> Snapshot {
    let request = MetadataRequest::default().with_topics(None);
    let metadata = client.send(version::METADATA, &request).await;
    let mut snapshot = Snapshot {
        cluster_id: metadata.cluster_id.expect("a cluster id").to_string(),
        ..Snapshot::default()
    };
    let topics: Vec<(String, [u8; 16], usize)> = metadata
        .topics
        .iter()
        .map(|topic| {
            let name = topic.name.as_ref().expect("a name").to_string();
            (name, *topic.topic_id.as_bytes(), topic.partitions.len())
        })
        .collect();
    for (topic, id, partitions) in topics {
        if topic.starts_with("__") {
            continue;
        }
        for partition in 0..partitions as i32 {
            let state = take_partition(client, &topic, partition).await;
            snapshot
                .partitions
                .insert((topic.clone(), partition), state);
            for group in &probes.groups {
                let mut offsets = [Ok(-1); 2];
                for (require_stable, offset) in [false, true].into_iter().zip(&mut offsets) {
                    *offset = client
                        .committed_offset(group, &topic, partition, require_stable)
                        .await;
                }
                let key = (group.clone(), topic.clone(), partition);
                snapshot.offsets.insert(key, offsets);
            }
        }
        snapshot
            .configs
            .insert(topic.clone(), configs(client, &topic).await);
        snapshot.topics.insert(topic, (id, partitions));
    }
    snapshot.groups = groups(client).await;
    for sent in &probes.sent {
        let batches = [(&sent.topic, sent.partition, sent.batch.clone())];
        let request = requests::produce(sent.transactional.as_deref(), batches);
        let answer = client.send(version::PRODUCE, &request).await;
        snapshot
            .repeats
            .push(tidemark_testkit::produced(&answer)[0]);
    }
    snapshot
}

async fn take_partition(client: &mut RawClient, topic: &str, partition: i32) -> Partition {
    let first = client
        .fetch(topic, partition, 0, Isolation::ReadCommitted)
        .await;
    let mut batches = Vec::new();
    let mut aborted = Vec::new();
    let mut at = first.log_start_offset;
    loop {
        let fetched = client
            .fetch(topic, partition, at, Isolation::ReadUncommitted)
            .await;
        let Some(next) = fetched.next_offset() else {
            break;
        };
        batches.extend(fetched.batches.iter().map(|batch| format!("{batch:?}")));
        let committed = client
            .fetch(topic, partition, at, Isolation::ReadCommitted)
            .await;
        aborted.extend(committed.aborted.expect("a list, if an empty one"));
        at = next;
    }
    let mut by_time = Vec::new();
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let first_time = tidemark_testkit::WALL_START_MS;
        for timestamp in [0, first_time, first_time + 5, first_time + 1000, -2, -3] {
            let request = requests::list_offsets(topic, [partition], timestamp, isolation);
            let answer = client.send(version::LIST_OFFSETS, &request).await;
            by_time.push(listed(&answer)[0].1);
        }
    }
    Partition {
        high_watermark: first.high_watermark,
        last_stable_offset: first.last_stable_offset,
        log_start_offset: first.log_start_offset,
        batches,
        committed: client
            .read_values(topic, partition, Isolation::ReadCommitted)
            .await,
        aborted,
        by_time,
    }
}

async fn configs(client: &mut RawClient, topic: &str) -> Vec<String> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(topic))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = client.send(1, &request).await;
    answer.results[0]
        .configs
        .iter()
        .map(|config| format!("{:?} = {:?}", config.name, config.value))
        .collect()
}

/// Every group: its state and its members.
async fn groups(client: &mut RawClient) -> Vec<String> {
    let listed = client.send(4, &ListGroupsRequest::default()).await;
    let mut ids: Vec<String> = listed
        .groups
        .iter()
        .map(|g| g.group_id.to_string())
        .collect();
    ids.sort_unstable();
    let ids = ids.iter().map(|id| GroupId(text(id))).collect();
    let request = DescribeGroupsRequest::default().with_groups(ids);
    let described = client.send(5, &request).await;
    described
        .groups
        .iter()
        .map(|group| {
            let members: Vec<_> = group
                .members
                .iter()
                .map(|m| {
                    (
                        &m.member_id,
                        &m.client_id,
                        &m.member_metadata,
                        &m.member_assignment,
                    )
                })
                .collect();
            format!(
                "{:?} {:?} {:?} {:?} {members:?}",
                group.group_id, group.group_state, group.protocol_type, group.protocol_data
            )
        })
        .collect()
}
