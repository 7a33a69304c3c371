//! Metadata, ApiVersions, topics, configurations.

use anyhow::{Context, Result};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest, MetadataRequest,
};

use super::{Body, encode, places, text, topic_name};
use crate::env::Env;
use crate::script::Line;

/// `metadata [T ... | id:T ... | all | none] [auto=1] [ops=1]`
pub fn metadata(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let topics = if line.has("all") {
        // Before v1 an empty list is all topics.
        if version == 0 { Some(Vec::new()) } else { None }
    } else if line.has("none") {
        Some(Vec::new())
    } else {
        Some(
            line.words
                .iter()
                .map(|word| match word.strip_prefix("id:") {
                    Some(name) => MetadataRequestTopic::default()
                        .with_topic_id(env.topic_id(name))
                        .with_name(None),
                    None => MetadataRequestTopic::default().with_name(Some(topic_name(word))),
                })
                .collect(),
        )
    };
    let mut request = MetadataRequest::default().with_topics(topics);
    if version >= 4 {
        request = request.with_allow_auto_topic_creation(line.flag("auto", false)?);
    }
    if version >= 8 {
        request = request.with_include_topic_authorized_operations(line.flag("ops", false)?);
    }
    if (8..=10).contains(&version) {
        request = request.with_include_cluster_authorized_operations(line.flag("cluster", false)?);
    }
    encode(version, &request)
}

/// `api-versions [name=] [version=]`
pub fn api_versions(line: &Line, version: i16) -> Result<Body> {
    let mut request = ApiVersionsRequest::default();
    if version >= 3 {
        request = request
            .with_client_software_name(text(line.get("name").unwrap_or("differential")))
            .with_client_software_version(text(line.get("version").unwrap_or("1.0")));
    }
    encode(version, &request)
}

/// `create NAME:PARTITIONS:REPLICAS ... [cfg.KEY=VALUE] [assign=0,0] [validate=1]`: -1 where a
/// number is missing; `assign=` gives partitions by broker, where 0 stands for the broker itself.
pub fn create_topics(line: &Line, version: i16) -> Result<Body> {
    let configs: Vec<CreatableTopicConfig> = line
        .named
        .iter()
        .filter_map(|(name, value)| {
            let name = name.strip_prefix("cfg.")?;
            Some(
                CreatableTopicConfig::default()
                    .with_name(text(name))
                    .with_value((value != "null").then(|| text(value))),
            )
        })
        .collect();
    let mut topics = Vec::new();
    for word in &line.words {
        let mut parts = word.split(':');
        let name = parts.next().unwrap_or("");
        let name = match name.strip_prefix("x*") {
            Some(length) => "x".repeat(length.parse()?),
            None => name.to_owned(),
        };
        let topic = CreatableTopic::default()
            .with_name(topic_name(&name))
            .with_num_partitions(parts.next().map_or(Ok(-1), str::parse)?)
            .with_replication_factor(parts.next().map_or(Ok(-1), str::parse)?)
            .with_configs(configs.clone());
        topics.push(match line.get("assign") {
            None => topic,
            Some(partitions) => topic.with_assignments(
                partitions
                    .split(',')
                    .map(|p| {
                        let (partition, broker) = p.split_once(':').context("partition:broker")?;
                        Ok(CreatableReplicaAssignment::default()
                            .with_partition_index(partition.parse()?)
                            .with_broker_ids(vec![BrokerId(broker.parse()?)]))
                    })
                    .collect::<Result<_>>()?,
            ),
        });
    }
    let request = CreateTopicsRequest::default()
        .with_topics(topics)
        .with_timeout_ms(line.number("timeout", 10_000)?)
        .with_validate_only(line.flag("validate", false)?);
    encode(version, &request)
}

/// `delete-records t/0@5 ...`: -1 is the high watermark.
pub fn delete_records(line: &Line, version: i16) -> Result<Body> {
    let topics = places(line)?.into_iter().map(|(topic, places)| {
        let partitions = places.iter().map(|place| {
            DeleteRecordsPartition::default()
                .with_partition_index(place.partition)
                .with_offset(place.offset.unwrap_or(0))
        });
        DeleteRecordsTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.collect())
    });
    let request = DeleteRecordsRequest::default()
        .with_topics(topics.collect())
        .with_timeout_ms(line.number("timeout", 10_000)?);
    encode(version, &request)
}

/// `delete NAME ... | id:NAME ...`
pub fn delete_topics(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let mut request =
        DeleteTopicsRequest::default().with_timeout_ms(line.number("timeout", 10_000)?);
    if version >= 6 {
        request = request.with_topics(
            line.words
                .iter()
                .map(|word| match word.strip_prefix("id:") {
                    Some(name) => DeleteTopicState::default().with_topic_id(env.topic_id(name)),
                    None => DeleteTopicState::default().with_name(Some(topic_name(word))),
                })
                .collect(),
        );
    } else {
        request = request.with_topic_names(line.words.iter().map(|w| topic_name(w)).collect());
    }
    encode(version, &request)
}

/// `create-partitions NAME:COUNT ... [validate=1]`
pub fn create_partitions(line: &Line, version: i16) -> Result<Body> {
    let mut topics = Vec::new();
    for word in &line.words {
        let (name, count) = word.split_once(':').context("name:count")?;
        topics.push(
            CreatePartitionsTopic::default()
                .with_name(topic_name(name))
                .with_count(count.parse()?)
                .with_assignments(None),
        );
    }
    let request = CreatePartitionsRequest::default()
        .with_topics(topics)
        .with_timeout_ms(10_000)
        .with_validate_only(line.flag("validate", false)?);
    encode(version, &request)
}

fn resource(word: &str) -> (i8, &str) {
    match word.split_once(':') {
        Some(("topic", name)) => (2, name),
        Some(("broker", name)) => (4, name),
        Some((number, name)) => (number.parse().unwrap_or(0), name),
        None => (2, word),
    }
}

/// `describe-configs topic:NAME ... [keys=a,b] [synonyms=1] [docs=1]`
pub fn describe_configs(line: &Line, version: i16) -> Result<Body> {
    let keys = line.get("keys").map(|keys| {
        keys.split(',')
            .filter(|k| !k.is_empty())
            .map(text)
            .collect::<Vec<_>>()
    });
    let resources = line
        .words
        .iter()
        .map(|word| {
            let (kind, name) = resource(word);
            DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configuration_keys(keys.clone())
        })
        .collect();
    let mut request = DescribeConfigsRequest::default()
        .with_resources(resources)
        .with_include_synonyms(line.flag("synonyms", false)?);
    if version >= 3 {
        request = request.with_include_documentation(line.flag("docs", false)?);
    }
    encode(version, &request)
}

/// `alter-configs topic:NAME ... set.KEY=VALUE delete=KEY append.KEY=VALUE subtract.KEY=VALUE
/// [validate=1]`
pub fn alter_configs(line: &Line, version: i16) -> Result<Body> {
    let mut configs = Vec::new();
    for (name, value) in &line.named {
        let (operation, key, value) = match name.split_once('.') {
            Some(("set", key)) => (0, key, Some(value)),
            Some(("append", key)) => (2, key, Some(value)),
            Some(("subtract", key)) => (3, key, Some(value)),
            Some(("op9", key)) => (9, key, Some(value)),
            None if name == "delete" => (1, value.as_str(), None),
            _ => continue,
        };
        configs.push(
            AlterableConfig::default()
                .with_name(text(key))
                .with_config_operation(operation)
                .with_value(value.filter(|v| *v != "null").map(|v| text(v))),
        );
    }
    let resources = line
        .words
        .iter()
        .map(|word| {
            let (kind, name) = resource(word);
            AlterConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configs(configs.clone())
        })
        .collect();
    let request = IncrementalAlterConfigsRequest::default()
        .with_resources(resources)
        .with_validate_only(line.flag("validate", false)?);
    encode(version, &request)
}

/// `describe-cluster [ops=1] [endpoint=1]`
pub fn describe_cluster(line: &Line, version: i16) -> Result<Body> {
    let mut request = DescribeClusterRequest::default()
        .with_include_cluster_authorized_operations(line.flag("ops", false)?);
    if version >= 1 {
        request = request.with_endpoint_type(line.number("endpoint", 1)?);
    }
    encode(version, &request)
}
