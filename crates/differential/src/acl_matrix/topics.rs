//! Topics and their records.

use anyhow::Result;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest,
    DeleteTopicsRequest, DescribeProducersRequest, FetchRequest, ListOffsetsRequest,
    MetadataRequest, OffsetForLeaderEpochRequest, ProduceRequest,
};
use tidemark_record_batch::BatchBuilder;
use tidemark_types::{ProducerEpoch, ProducerId};

use super::Asked;
use super::world::{World, numbers};
use crate::batches::SCRIPT_TIME_MS;

pub(super) const ASKED: &[Asked] = &[
    Asked {
        key: 0,
        name: "Produce v9",
        rights: &[
            "Write topic",
            "Write topic-",
            "Read topic",
            "All topic",
            "Write id",
        ],
        ask: |w| produce(w, 9, false, false),
    },
    Asked {
        key: 0,
        name: "Produce v13",
        rights: &["Write topic", "Describe topic"],
        ask: |w| produce(w, 13, false, false),
    },
    Asked {
        key: 0,
        name: "Produce v12 of a transaction",
        rights: &["Write topic", "Write id", "Write topic, Write id-"],
        ask: |w| produce(w, 12, true, true),
    },
    Asked {
        key: 0,
        name: "Produce v9 of a transaction without its name",
        rights: &["Write topic", "Write topic, Write id"],
        ask: |w| produce(w, 9, true, false),
    },
    Asked {
        key: 0,
        name: "Produce v9 with a transaction's name and none of its batches",
        rights: &["Write topic"],
        ask: |w| produce(w, 9, false, true),
    },
    Asked {
        key: 1,
        name: "Fetch v12",
        rights: &["Read topic", "Read topic-", "Describe topic", "Write topic"],
        ask: |w| fetch(w, 12, -1),
    },
    Asked {
        key: 1,
        name: "Fetch v17",
        rights: &["Read topic", "Describe topic"],
        ask: |w| fetch(w, 17, -1),
    },
    Asked {
        key: 1,
        name: "Fetch v12 of a follower",
        rights: &["Read topic", "All topic"],
        ask: |w| fetch(w, 12, 7),
    },
    Asked {
        key: 1,
        name: "Fetch v17 of a follower",
        rights: &["Read topic"],
        ask: |w| fetch(w, 17, 7),
    },
    Asked {
        key: 2,
        name: "ListOffsets v7",
        rights: &[
            "Describe topic",
            "Read topic",
            "Write topic-",
            "Create topic",
        ],
        ask: list_offsets,
    },
    Asked {
        key: 23,
        name: "OffsetForLeaderEpoch v4",
        rights: &["Describe topic", "ClusterAction cluster", "Create topic"],
        ask: offset_for_leader_epoch,
    },
    Asked {
        key: 3,
        name: "Metadata v12 by name, with operations",
        rights: &[
            "Describe topic",
            "Read topic, AlterConfigs topic",
            "All topic",
        ],
        ask: |w| metadata(w, false),
    },
    Asked {
        key: 3,
        name: "Metadata v12 by id",
        rights: &["Describe topic", "Create topic"],
        ask: |w| metadata(w, true),
    },
    Asked {
        key: 3,
        name: "Metadata v9 of all topics",
        rights: &["Describe topic", "Write topic-"],
        ask: all_topics,
    },
    Asked {
        key: 3,
        name: "Metadata v9 of what is to be made",
        // With the right to create, Kafka makes it in its own time.
        rights: &["Describe topic", "Create topic", "Create cluster"],
        ask: to_be_made,
    },
    Asked {
        key: 19,
        name: "CreateTopics v6",
        rights: &[
            "Create topic",
            "Create cluster",
            "Create topic-, DescribeConfigs topic",
            "Describe topic",
        ],
        ask: create_topics,
    },
    Asked {
        key: 37,
        name: "CreatePartitions v3",
        rights: &["Alter topic", "Alter cluster", "Describe topic"],
        ask: create_partitions,
    },
    Asked {
        key: 20,
        name: "DeleteTopics v5",
        rights: &[
            "Delete topic",
            "Describe topic",
            "Delete cluster",
            "Write topic",
        ],
        ask: delete_topics,
    },
    Asked {
        key: 20,
        name: "DeleteTopics v6 by id",
        rights: &["Delete topic", "Describe topic", "Delete cluster"],
        ask: delete_topics_by_id,
    },
    Asked {
        key: 21,
        name: "DeleteRecords v2",
        rights: &["Delete topic", "Describe topic"],
        ask: delete_records,
    },
    Asked {
        key: 61,
        name: "DescribeProducers v0",
        rights: &["Read topic", "Describe topic"],
        ask: describe_producers,
    },
];

fn produce(w: &mut World, version: i16, transactional: bool, named: bool) -> Result<Vec<i64>> {
    let mut batch = BatchBuilder::new(SCRIPT_TIME_MS);
    if transactional {
        batch.producer(ProducerId(w.session.0), ProducerEpoch(w.session.1), 0);
        batch.transactional();
    }
    batch.push(None, Some(b"value"));
    let partition = PartitionProduceData::default()
        .with_index(0)
        .with_records(Some(batch.build().into()));
    let topic = TopicProduceData::default().with_partition_data(vec![partition]);
    let topic = match version {
        13.. => topic.with_topic_id(w.topic_id),
        _ => topic.with_name(w.topic_name()),
    };
    let request = ProduceRequest::default()
        .with_transactional_id(named.then(|| w.transactional_id()))
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic]);
    let answer = w.ask(version, &request)?;
    numbers(answer, |a| {
        let topics = a.responses.iter();
        topics
            .flat_map(|t| &t.partition_responses)
            .map(|p| p.error_code.into())
            .collect()
    })
}

fn fetch(w: &mut World, version: i16, replica_id: i32) -> Result<Vec<i64>> {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(-1)
        .with_last_fetched_epoch(-1)
        .with_fetch_offset(0)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_partitions(vec![partition]);
    let topic = match version {
        13.. => topic.with_topic_id(w.topic_id),
        _ => topic.with_topic(w.topic_name()),
    };
    let mut request = FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic]);
    match version {
        15.. => request.replica_state.replica_id = BrokerId(replica_id),
        _ => request.replica_id = BrokerId(replica_id),
    }
    let answer = w.ask(version, &request)?;
    numbers(answer, |a| {
        let partitions = a.responses.iter().flat_map(|t| &t.partitions);
        std::iter::once(a.error_code.into())
            .chain(partitions.map(|p| p.error_code.into()))
            .collect()
    })
}

fn list_offsets(w: &mut World) -> Result<Vec<i64>> {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_current_leader_epoch(-1)
        .with_timestamp(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(w.topic_name())
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![topic]);
    let answer = w.ask(7, &request)?;
    numbers(answer, |a| {
        let partitions = a.topics.iter().flat_map(|t| &t.partitions);
        partitions
            .flat_map(|p| [p.error_code.into(), p.offset])
            .collect()
    })
}

fn offset_for_leader_epoch(w: &mut World) -> Result<Vec<i64>> {
    let partition = OffsetForLeaderPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(-1)
        .with_leader_epoch(0);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(w.topic_name())
        .with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![topic]);
    let answer = w.ask(4, &request)?;
    numbers(answer, |a| {
        let partitions = a.topics.iter().flat_map(|t| &t.partitions);
        partitions.map(|p| p.error_code.into()).collect()
    })
}

/// The code, whether there is a name and an id, how many partitions, which operations.
fn metadata(w: &mut World, by_id: bool) -> Result<Vec<i64>> {
    let topic = match by_id {
        true => MetadataRequestTopic::default()
            .with_name(None)
            .with_topic_id(w.topic_id),
        false => MetadataRequestTopic::default().with_name(Some(w.topic_name())),
    };
    let request = MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(false)
        .with_include_topic_authorized_operations(!by_id);
    let answer = w.ask(12, &request)?;
    numbers(answer, |a| {
        let topics = a.topics.iter();
        topics
            .flat_map(|t| {
                [
                    t.error_code.into(),
                    i64::from(t.name.is_some()),
                    i64::from(!t.topic_id.is_nil()),
                    t.partitions.len() as i64,
                    t.topic_authorized_operations.into(),
                ]
            })
            .collect()
    })
}

/// How often the topic is told.
fn all_topics(w: &mut World) -> Result<Vec<i64>> {
    let request = MetadataRequest::default().with_topics(None);
    let name = w.topic_name();
    let answer = w.ask(9, &request)?;
    numbers(answer, |a| {
        let told = a.topics.iter().filter(|t| t.name.as_ref() == Some(&name));
        vec![told.count() as i64]
    })
}

fn to_be_made(w: &mut World) -> Result<Vec<i64>> {
    let topic = MetadataRequestTopic::default().with_name(Some(w.topic_name()));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(true);
    let answer = w.ask(9, &request)?;
    numbers(answer, |a| {
        a.topics.iter().map(|t| t.error_code.into()).collect()
    })
}

/// The code, that of the configuration, how many partitions are told.
fn create_topics(w: &mut World) -> Result<Vec<i64>> {
    let topic = CreatableTopic::default()
        .with_name(w.topic_name())
        .with_num_partitions(2)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default()
        .with_timeout_ms(30_000)
        .with_topics(vec![topic]);
    let answer = w.ask(6, &request)?;
    numbers(answer, |a| {
        let topics = a.topics.iter();
        topics
            .flat_map(|t| {
                [
                    t.error_code.into(),
                    t.topic_config_error_code.into(),
                    t.num_partitions.into(),
                ]
            })
            .collect()
    })
}

fn create_partitions(w: &mut World) -> Result<Vec<i64>> {
    let topic = CreatePartitionsTopic::default()
        .with_name(w.topic_name())
        .with_count(2)
        .with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_timeout_ms(30_000)
        .with_topics(vec![topic]);
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| {
        a.results.iter().map(|r| r.error_code.into()).collect()
    })
}

fn delete_topics(w: &mut World) -> Result<Vec<i64>> {
    let request = DeleteTopicsRequest::default()
        .with_timeout_ms(30_000)
        .with_topic_names(vec![w.topic_name()]);
    let answer = w.ask(5, &request)?;
    numbers(answer, |a| {
        a.responses.iter().map(|r| r.error_code.into()).collect()
    })
}

/// The code, and whether the name is told.
fn delete_topics_by_id(w: &mut World) -> Result<Vec<i64>> {
    let topic = DeleteTopicState::default()
        .with_name(None)
        .with_topic_id(w.topic_id);
    let request = DeleteTopicsRequest::default()
        .with_timeout_ms(30_000)
        .with_topics(vec![topic]);
    let answer = w.ask(6, &request)?;
    numbers(answer, |a| {
        let topics = a.responses.iter();
        topics
            .flat_map(|r| [r.error_code.into(), i64::from(r.name.is_some())])
            .collect()
    })
}

fn delete_records(w: &mut World) -> Result<Vec<i64>> {
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(0)
        .with_offset(0);
    let topic = DeleteRecordsTopic::default()
        .with_name(w.topic_name())
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default()
        .with_timeout_ms(30_000)
        .with_topics(vec![topic]);
    let answer = w.ask(2, &request)?;
    numbers(answer, |a| {
        let partitions = a.topics.iter().flat_map(|t| &t.partitions);
        partitions.map(|p| p.error_code.into()).collect()
    })
}

fn describe_producers(w: &mut World) -> Result<Vec<i64>> {
    let topic = TopicRequest::default()
        .with_name(w.topic_name())
        .with_partition_indexes(vec![0]);
    let request = DescribeProducersRequest::default().with_topics(vec![topic]);
    let answer = w.ask(0, &request)?;
    numbers(answer, |a| {
        let partitions = a.topics.iter().flat_map(|t| &t.partitions);
        partitions.map(|p| p.error_code.into()).collect()
    })
}
