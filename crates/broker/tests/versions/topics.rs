//! CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs, AlterConfigs,
//! IncrementalAlterConfigs.

use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource as ReplacedResource, AlterableConfig as ReplacedConfig,
};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, CreatePartitionsRequest, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DescribeConfigsRequest, DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
};
use tidemark_testkit::requests::{text, topic_name};
use tidemark_types::ErrorCode;
use uuid::Uuid;

use crate::World;
use crate::support::{code, retry};

fn creatable(topic: &str, partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(topic_name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(replication_factor)
}

fn created<'a>(response: &'a CreateTopicsResponse, topic: &str) -> &'a CreatableTopicResult {
    let found = response.topics.iter().find(|t| **t.name == *topic);
    found.expect("every name is answered")
}

pub async fn create_topics(world: &mut World, version: i16) {
    let (plain, defaults) = (world.name("plain"), world.name("defaults"));
    let config = CreatableTopicConfig::default()
        .with_name(text("max.message.bytes"))
        .with_value(Some(text("51200")));
    let mut topics = vec![
        creatable(&plain, 2, 1).with_configs(vec![config.clone()]),
        creatable("not a name", 1, 1),
        creatable(&world.name("none"), 0, 1),
        creatable(&world.name("wide"), 1, 2),
    ];
    // -1 is the broker's default (KIP-464), for clients that know that there is one.
    topics.push(creatable(&defaults, -1, -1));
    let request = CreateTopicsRequest::default()
        .with_timeout_ms(30_000)
        .with_topics(topics);

    // First only asked whether it could.
    let response = world
        .client
        .send(version, &request.clone().with_validate_only(true))
        .await;
    assert_eq!(code(created(&response, &plain).error_code), ErrorCode::None);
    let described = world.describe(&plain).await;
    assert_eq!(
        code(described.error_code),
        ErrorCode::UnknownTopicOrPartition
    );

    let response = world.client.send(version, &request).await;
    let answer = created(&response, &plain);
    assert_eq!(
        (code(answer.error_code), &answer.error_message),
        (ErrorCode::None, &None)
    );
    if version >= 5 {
        assert_eq!((answer.num_partitions, answer.replication_factor), (2, 1));
        assert_eq!(answer.topic_config_error_code, 0);
        let configs = answer.configs.as_ref().expect("clients of v5 expect them");
        let limit = configs
            .iter()
            .find(|c| &*c.name == "max.message.bytes")
            .unwrap();
        assert_eq!(limit.value.as_deref(), Some("51200"));
        assert_eq!(
            (limit.read_only, limit.is_sensitive, limit.config_source),
            (false, false, 1)
        );
    }
    let by_default = created(&response, &defaults);
    assert_eq!(code(by_default.error_code), ErrorCode::None);
    for (stem, want) in [
        ("not a name", ErrorCode::InvalidTopicException),
        ("none", ErrorCode::InvalidPartitions),
        ("wide", ErrorCode::InvalidReplicationFactor),
    ] {
        let answer = response
            .topics
            .iter()
            .find(|t| t.name.starts_with(stem))
            .unwrap();
        assert_eq!(code(answer.error_code), want, "{stem}");
        assert!(answer.error_message.is_some(), "{stem}");
    }
    retry("the topic is known", async || {
        let described = world.describe(&plain).await;
        (described.error_code == 0).then_some(())
    })
    .await;
    let described = world.describe(&plain).await;
    assert_eq!(described.partitions.len(), 2);
    if version >= 7 {
        assert_eq!(created(&response, &plain).topic_id, described.topic_id);
    }

    let again = world.client.send(version, &request).await;
    let answer = created(&again, &plain);
    assert_eq!(code(answer.error_code), ErrorCode::TopicAlreadyExists);
    let empty = CreateTopicsRequest::default().with_timeout_ms(30_000);
    assert!(world.client.send(version, &empty).await.topics.is_empty());
}

pub async fn describe_log_dirs(world: &mut World, version: i16) {
    let topic = world.topic("t", 2).await;
    let batch = tidemark_testkit::Batch::of(&["v"]).build();
    let size = i64::try_from(batch.len()).unwrap();
    assert_eq!(world.client.produce(&topic, 1, batch).await, Ok(0));
    let asked = DescribableLogDirTopic::default()
        .with_topic(topic_name(&topic))
        .with_partitions(vec![0, 1, 7]);
    let nobody = DescribableLogDirTopic::default()
        .with_topic(topic_name("nobody"))
        .with_partitions(vec![0]);
    let request = DescribeLogDirsRequest::default().with_topics(Some(vec![asked, nobody]));
    let response = world.client.send(version, &request).await;
    assert_eq!(response.error_code, 0);
    let dir = &response.results[0];
    assert_eq!((response.results.len(), dir.error_code), (1, 0));
    assert!(!dir.log_dir.is_empty());
    let names: Vec<&str> = dir.topics.iter().map(|t| &**t.name).collect();
    assert_eq!(names, [&*topic]);
    let mut sizes: Vec<(i32, i64, i64, bool)> = (dir.topics[0].partitions.iter())
        .map(|p| {
            (
                p.partition_index,
                p.partition_size,
                p.offset_lag,
                p.is_future_key,
            )
        })
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [(0, 0, 0, false), (1, size, 0, false)]);
    if version >= 4 && dir.total_bytes >= 0 {
        assert!((0..=dir.total_bytes).contains(&dir.usable_bytes));
    }
    // Null is every topic, none is none.
    let all = DescribeLogDirsRequest::default().with_topics(None);
    let response = world.client.send(version, &all).await;
    let mut all = response.results[0].topics.iter();
    assert!(all.any(|t| **t.name == *topic));
    let none = DescribeLogDirsRequest::default().with_topics(Some(Vec::new()));
    let response = world.client.send(version, &none).await;
    assert!(response.results[0].topics.is_empty());
}

pub async fn delete_topics(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    let other = world.topic("u", 1).await;
    let id = world.describe(&other).await.topic_id;
    let unknown = Uuid::from_u128(0x1234);
    let request = DeleteTopicsRequest::default().with_timeout_ms(30_000);
    let request = match version {
        6.. => request.with_topics(vec![
            DeleteTopicState::default().with_name(Some(topic_name(&topic))),
            DeleteTopicState::default().with_name(Some(topic_name("nobody"))),
            DeleteTopicState::default()
                .with_name(None)
                .with_topic_id(id),
            DeleteTopicState::default()
                .with_name(None)
                .with_topic_id(unknown),
        ]),
        _ => request.with_topic_names(vec![topic_name(&topic), topic_name("nobody")]),
    };
    let response = world.client.send(version, &request).await;
    let answer = |name: &str| {
        let named = |n: &kafka_protocol::messages::TopicName| &***n == name;
        let mut answers = response.responses.iter();
        let found = answers.find(|r| r.name.as_ref().is_some_and(named));
        found.expect("every name is answered")
    };
    assert_eq!(code(answer(&topic).error_code), ErrorCode::None);
    assert_eq!(
        code(answer("nobody").error_code),
        ErrorCode::UnknownTopicOrPartition
    );
    assert_eq!(answer("nobody").error_message.is_some(), version >= 5);
    if version >= 6 {
        assert_eq!(code(answer(&other).error_code), ErrorCode::None);
        assert_eq!(answer(&other).topic_id, id);
        let mut answers = response.responses.iter();
        let by_id = answers.find(|r| r.topic_id == unknown).unwrap();
        assert_eq!(
            (code(by_id.error_code), &by_id.name),
            (ErrorCode::UnknownTopicId, &None)
        );
    }
    retry("the topic is gone", async || {
        let described = world.describe(&topic).await;
        let gone = ErrorCode::UnknownTopicOrPartition.code();
        (described.error_code == gone).then_some(())
    })
    .await;
    let empty = DeleteTopicsRequest::default().with_timeout_ms(30_000);
    assert!(
        world
            .client
            .send(version, &empty)
            .await
            .responses
            .is_empty()
    );
}

pub async fn create_partitions(world: &mut World, version: i16) {
    let topic = world.topic("t", 2).await;
    for (name, count, validate_only, want) in [
        (topic.as_str(), 4, true, ErrorCode::None),
        (topic.as_str(), 4, false, ErrorCode::None),
        (topic.as_str(), 3, false, ErrorCode::InvalidPartitions),
        ("nobody", 4, false, ErrorCode::UnknownTopicOrPartition),
    ] {
        let request = CreatePartitionsRequest::default()
            .with_timeout_ms(30_000)
            .with_validate_only(validate_only)
            .with_topics(vec![
                CreatePartitionsTopic::default()
                    .with_name(topic_name(name))
                    .with_count(count)
                    .with_assignments(None),
            ]);
        let response = world.client.send(version, &request).await;
        let result = &response.results[0];
        assert_eq!(
            (&**result.name, code(result.error_code)),
            (name, want),
            "to {count}"
        );
        if want == ErrorCode::InvalidPartitions {
            assert!(result.error_message.is_some());
        }
        if validate_only {
            assert_eq!(world.describe(&topic).await.partitions.len(), 2);
        }
    }
    retry("the partitions are there", async || {
        (world.describe(&topic).await.partitions.len() == 4).then_some(())
    })
    .await;
}

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

async fn describe(
    world: &mut World,
    version: i16,
    (kind, name): (i8, &str),
    keys: Option<&[&str]>,
) -> DescribeConfigsResult {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(keys.map(|keys| keys.iter().map(|key| text(key)).collect()));
    let request = DescribeConfigsRequest::default()
        .with_include_synonyms(true)
        .with_include_documentation(version >= 3)
        .with_resources(vec![resource]);
    let mut response = world.client.send(version, &request).await;
    assert_eq!(response.results.len(), 1);
    response.results.remove(0)
}

fn config<'a>(result: &'a DescribeConfigsResult, name: &str) -> &'a DescribeConfigsResourceResult {
    let found = result.configs.iter().find(|c| &*c.name == name);
    found.unwrap_or_else(|| panic!("{name} is not described"))
}

pub async fn describe_configs(world: &mut World, version: i16) {
    let configs = [("max.message.bytes", "51200")];
    let topic = world.topic_with("t", 1, &configs).await;
    let key = ["max.message.bytes"];
    let one = describe(world, version, (TOPIC, &topic), Some(&key)).await;
    assert_eq!(code(one.error_code), ErrorCode::None);
    assert_eq!(
        (one.resource_type, &*one.resource_name),
        (TOPIC, topic.as_str())
    );
    assert_eq!(one.configs.len(), 1);
    let limit = config(&one, "max.message.bytes");
    assert_eq!(limit.value.as_deref(), Some("51200"));
    assert_eq!((limit.read_only, limit.is_sensitive), (false, false));
    assert_eq!(limit.config_source, 1, "the topic's own");
    let synonyms: Vec<(&str, i8)> = limit
        .synonyms
        .iter()
        .map(|s| (&*s.name, s.source))
        .collect();
    assert_eq!(
        synonyms,
        [("max.message.bytes", 1), ("message.max.bytes", 5)]
    );
    if version >= 3 {
        assert_eq!(limit.config_type, 3, "an int");
        assert!(
            limit
                .documentation
                .as_ref()
                .is_some_and(|doc| !doc.is_empty())
        );
    }

    // Without a list, and with an empty one, everything is described.
    for keys in [None, Some(&[][..])] {
        let all = describe(world, version, (TOPIC, &topic), keys).await;
        assert_eq!(
            config(&all, "cleanup.policy").value.as_deref(),
            Some("delete")
        );
        assert!(all.configs.len() > 20, "{}", all.configs.len());
    }

    let node = i32::from(world.target.is_kafka()).to_string();
    let broker = describe(world, version, (BROKER, &node), None).await;
    assert_eq!(code(broker.error_code), ErrorCode::None);
    assert!(config(&broker, "message.max.bytes").value.is_some());
    for (resource, want) in [
        ((TOPIC, "nobody"), ErrorCode::UnknownTopicOrPartition),
        ((TOPIC, "not a name"), ErrorCode::InvalidTopicException),
        ((BROKER, "77"), ErrorCode::InvalidRequest),
        ((BROKER, "x"), ErrorCode::InvalidRequest),
        ((99, "x"), ErrorCode::InvalidRequest),
    ] {
        let refused = describe(world, version, resource, None).await;
        assert_eq!(code(refused.error_code), want, "{resource:?}");
        assert!(refused.error_message.is_some() && refused.configs.is_empty());
    }
}

const SET: i8 = 0;

pub async fn incremental_alter_configs(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    for (name, key, value, validate_only, want) in [
        (
            topic.as_str(),
            "max.message.bytes",
            "1234",
            true,
            ErrorCode::None,
        ),
        (
            topic.as_str(),
            "max.message.bytes",
            "1234",
            false,
            ErrorCode::None,
        ),
        (
            topic.as_str(),
            "max.message.bytes",
            "many",
            false,
            ErrorCode::InvalidConfig,
        ),
        (
            topic.as_str(),
            "no.such.key",
            "1",
            false,
            ErrorCode::InvalidConfig,
        ),
        (
            "nobody",
            "max.message.bytes",
            "1234",
            false,
            ErrorCode::UnknownTopicOrPartition,
        ),
    ] {
        let request = IncrementalAlterConfigsRequest::default()
            .with_validate_only(validate_only)
            .with_resources(vec![
                AlterConfigsResource::default()
                    .with_resource_type(TOPIC)
                    .with_resource_name(text(name))
                    .with_configs(vec![
                        AlterableConfig::default()
                            .with_name(text(key))
                            .with_config_operation(SET)
                            .with_value(Some(text(value))),
                    ]),
            ]);
        let response = world.client.send(version, &request).await;
        let answer = &response.responses[0];
        assert_eq!(
            (&*answer.resource_name, answer.resource_type),
            (name, TOPIC)
        );
        assert_eq!(code(answer.error_code), want, "{name}: {key}={value}");
    }
    retry("the config is in force", async || {
        let described = describe(world, 1, (TOPIC, &topic), None).await;
        let value = config(&described, "max.message.bytes").value.clone();
        (value.as_deref() == Some("1234")).then_some(())
    })
    .await;
}

pub async fn alter_configs(world: &mut World, version: i16) {
    let configs = [("max.message.bytes", "51200"), ("retention.ms", "1000")];
    let topic = world.topic_with("t", 1, &configs).await;
    for (name, value, validate_only, want) in [
        (topic.as_str(), "1234", true, ErrorCode::None),
        (topic.as_str(), "1234", false, ErrorCode::None),
        (topic.as_str(), "many", false, ErrorCode::InvalidConfig),
        ("nobody", "1234", false, ErrorCode::UnknownTopicOrPartition),
    ] {
        let config = ReplacedConfig::default()
            .with_name(text("max.message.bytes"))
            .with_value(Some(text(value)));
        let resource = ReplacedResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(name))
            .with_configs(vec![config]);
        let request = AlterConfigsRequest::default()
            .with_validate_only(validate_only)
            .with_resources(vec![resource]);
        let response = world.client.send(version, &request).await;
        let answer = &response.responses[0];
        assert_eq!(
            (&*answer.resource_name, answer.resource_type),
            (name, TOPIC)
        );
        assert_eq!(code(answer.error_code), want, "{name}: {value}");
    }
    // What it names is set, and what it does not name has its default again.
    retry("the configs are in force", async || {
        let described = describe(world, 1, (TOPIC, &topic), None).await;
        let limit = config(&described, "max.message.bytes").value.clone();
        let retention = config(&described, "retention.ms").value.clone();
        let both = (limit.as_deref(), retention.as_deref());
        (both == (Some("1234"), Some("604800000"))).then_some(())
    })
    .await;
}
