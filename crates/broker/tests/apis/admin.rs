//! Topics, their partitions and configs, as an administrator changes them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kafka_protocol::messages::alter_configs_request::AlterConfigsResource as ReplacedResource;
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, BrokerId, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
};
use tidemark_disk::{Disk, read_all};
use tidemark_testkit::requests::{self, error_code, text, topic_name};
use tidemark_testkit::{
    Batch, DATA_DIR, Isolation, RawClient, StoppedBroker, TestBroker, TxnProducer, WALL_START_MS,
    fetched,
};
use tidemark_types::ErrorCode;
use uuid::Uuid;

const OK: ErrorCode = ErrorCode::None;
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;

/// A change to a config: its name, the operation, the value.
type Change<'a> = (&'a str, i8, Option<&'a str>);

/// A resource of IncrementalAlterConfigs.
fn resource(kind: i8, name: &str, configs: &[Change<'_>]) -> AlterConfigsResource {
    let configs = configs
        .iter()
        .map(|(config, operation, value)| {
            AlterableConfig::default()
                .with_name(text(config))
                .with_config_operation(*operation)
                .with_value(value.map(text))
        })
        .collect();
    AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(configs)
}

async fn alter(client: &mut RawClient, resources: Vec<AlterConfigsResource>) -> Vec<ErrorCode> {
    let names: Vec<_> = resources.iter().map(|r| r.resource_name.clone()).collect();
    let request = IncrementalAlterConfigsRequest::default().with_resources(resources);
    let response = client.send(1, &request).await;
    let answered: Vec<_> = (response.responses.iter())
        .map(|r| r.resource_name.clone())
        .collect();
    assert_eq!(answered, names);
    for answer in &response.responses {
        assert_eq!(answer.error_message.is_some(), answer.error_code != 0);
    }
    let codes = response.responses.iter().map(|r| error_code(r.error_code));
    codes.collect()
}

/// Sets one config of a topic.
async fn set(client: &mut RawClient, topic: &str, config: &str, value: &str) -> ErrorCode {
    let changes = [(config, SET, Some(value))];
    alter(client, vec![resource(TOPIC, topic, &changes)]).await[0]
}

/// A topic's own configs.
async fn own_configs(client: &mut RawClient, topic: &str) -> BTreeMap<String, String> {
    let request = DescribeConfigsRequest::default().with_resources(vec![
        DescribeConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(topic))
            .with_configuration_keys(None),
    ]);
    let response = client.send(4, &request).await;
    let result = &response.results[0];
    assert_eq!(result.error_code, 0);
    let own = result.configs.iter().filter(|c| c.config_source == 1);
    own.map(|c| (c.name.to_string(), c.value.as_deref().unwrap().to_owned()))
        .collect()
}

fn map(configs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
    configs.iter().map(owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configs_are_set_taken_back_and_survive() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client
        .create_topic_with("t", 1, &[("retention.ms", "1000")])
        .await;
    let changes = [
        ("max.message.bytes", SET, Some(" 2000 ")),
        ("retention.ms", DELETE, None),
        ("cleanup.policy", APPEND, Some("compact")),
    ];
    assert_eq!(
        alter(&mut client, vec![resource(TOPIC, "t", &changes)]).await,
        [OK]
    );
    let expected = map(&[
        ("cleanup.policy", "delete,compact"),
        ("max.message.bytes", "2000"),
    ]);
    assert_eq!(own_configs(&mut client, "t").await, expected);

    // All of a resource or nothing; each resource for itself.
    client.create_topic("u", 1).await;
    let bad = [("retention.ms", SET, Some("5")), ("bogus", SET, Some("1"))];
    let good = [("retention.ms", SET, Some("5"))];
    let both = vec![resource(TOPIC, "t", &bad), resource(TOPIC, "u", &good)];
    let codes = alter(&mut client, both).await;
    assert_eq!(codes, [ErrorCode::InvalidConfig, OK]);
    assert_eq!(own_configs(&mut client, "t").await, expected);
    assert_eq!(
        own_configs(&mut client, "u").await,
        map(&[("retention.ms", "5")])
    );

    let validate = IncrementalAlterConfigsRequest::default()
        .with_validate_only(true)
        .with_resources(vec![resource(
            TOPIC,
            "u",
            &[("retention.ms", SET, Some("6"))],
        )]);
    let response = client.send(0, &validate).await;
    assert_eq!(response.responses[0].error_code, 0);
    let broker = broker.crash(4).await.start().await;
    let mut client = broker.client().await;
    assert_eq!(own_configs(&mut client, "t").await, expected);
    assert_eq!(
        own_configs(&mut client, "u").await,
        map(&[("retention.ms", "5")])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alterations_are_refused_with_kafkas_codes() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let invalid = ErrorCode::InvalidRequest;
    let retention: &[_] = &[("retention.ms", SET, Some("5"))];
    let cases: [(i8, &str, &[Change<'_>], ErrorCode); 20] = [
        (TOPIC, "t", &[("retention.ms", SET, None)], invalid),
        (TOPIC, "t", &[("cleanup.policy", APPEND, None)], invalid),
        (
            TOPIC,
            "t",
            &[retention[0], ("retention.ms", SET, Some("6"))],
            invalid,
        ),
        (TOPIC, "t", &[("retention.ms", 9, Some("5"))], invalid),
        (TOPIC, "t", &[("retention.ms", -1, Some("5"))], invalid),
        (
            TOPIC,
            "t",
            &[("retention.ms", SET, Some("soon"))],
            ErrorCode::InvalidConfig,
        ),
        (
            TOPIC,
            "t",
            &[("retention.ms", APPEND, Some("5"))],
            ErrorCode::InvalidConfig,
        ),
        (TOPIC, "t", &[("bogus", DELETE, None)], OK),
        (
            TOPIC,
            "missing",
            retention,
            ErrorCode::UnknownTopicOrPartition,
        ),
        (TOPIC, "a b", retention, ErrorCode::InvalidTopicException),
        (TOPIC, "", retention, invalid),
        (0, "t", retention, invalid),
        (3, "t", retention, invalid),
        (8, "0", retention, invalid),
        (BROKER, "0", &[("num.partitions", SET, Some("5"))], invalid),
        (BROKER, "", &[("num.partitions", SET, Some("5"))], invalid),
        (BROKER, "0", &[("num.partitions", DELETE, None)], OK),
        (BROKER, "77", &[("num.partitions", DELETE, None)], invalid),
        (BROKER, "x", &[("num.partitions", DELETE, None)], invalid),
        (TOPIC, "t", &[], OK),
    ];
    for (kind, name, changes, expected) in cases {
        let codes = alter(&mut client, vec![resource(kind, name, changes)]).await;
        assert_eq!(codes, [expected], "{kind} {name} {changes:?}");
    }
    assert_eq!(own_configs(&mut client, "t").await, map(&[]));
    let thrice = ["t", "u", "t"].map(|name| resource(TOPIC, name, retention));
    client.create_topic("u", 1).await;
    let codes = alter(&mut client, thrice.to_vec()).await;
    assert_eq!(codes, [invalid, OK, invalid]);
}

/// In force with the answer: the next batch is checked by the new configuration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_configuration_is_in_force_at_once() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let large = || Batch::of(&[vec![7; 3_000]]).build();
    client.produce("t", 0, large()).await.unwrap();
    assert_eq!(set(&mut client, "t", "max.message.bytes", "2000").await, OK);
    let refused = client.produce("t", 0, large()).await;
    assert_eq!(refused, Err(ErrorCode::MessageTooLarge));
    assert_eq!(set(&mut client, "t", "max.message.bytes", "4000").await, OK);
    client.produce("t", 0, large()).await.unwrap();

    let old = || Batch::of(&["old"]).at(WALL_START_MS - 10_000).build();
    client.produce("t", 0, old()).await.unwrap();
    let limit = "message.timestamp.before.max.ms";
    assert_eq!(set(&mut client, "t", limit, "5000").await, OK);
    let refused = client.produce("t", 0, old()).await;
    assert_eq!(refused, Err(ErrorCode::InvalidTimestamp));

    assert_eq!(
        set(&mut client, "t", "message.timestamp.type", "LogAppendTime").await,
        OK
    );
    let offset = client.produce("t", 0, old()).await.unwrap();
    let request = requests::fetch("t", &[(0, offset)], Isolation::ReadUncommitted);
    let seen = fetched(&client.send(12, &request).await).remove(0);
    assert_eq!(
        seen.records()[0].timestamp,
        WALL_START_MS,
        "stamped by the broker"
    );

    assert_eq!(set(&mut client, "t", "cleanup.policy", "compact").await, OK);
    let refused = client.produce("t", 0, old()).await;
    assert_eq!(
        refused,
        Err(ErrorCode::InvalidRecord),
        "a key is needed now"
    );
}

/// How many segments of `t`-0 are on disk. Everything is, after a clean stop.
fn segments(stopped: &StoppedBroker) -> usize {
    let mut dirs = vec![PathBuf::from(DATA_DIR)];
    let mut found = 0;
    while let Some(dir) = dirs.pop() {
        for entry in stopped.disk().list(&dir).unwrap_or_default() {
            if entry.name.ends_with(".log") {
                let size = read_all(stopped.disk(), &dir.join(&entry.name))
                    .unwrap()
                    .len();
                // Those of the internal topics are small.
                found += usize::from(size > 100_000);
            } else {
                dirs.push(dir.join(&entry.name));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_segment_size_is_that_of_the_next_segments() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    async fn three_megabytes(client: &mut RawClient) {
        for _ in 0..6 {
            let batch = Batch::of(&[vec![7; 500_000]]).build();
            client.produce("t", 0, batch).await.unwrap();
        }
    }
    three_megabytes(&mut client).await;
    let stopped = broker.stop().await;
    assert_eq!(segments(&stopped), 1);

    let broker = stopped.start().await;
    let mut client = broker.client().await;
    assert_eq!(set(&mut client, "t", "segment.bytes", "1048576").await, OK);
    three_megabytes(&mut client).await;
    let stopped = broker.stop().await;
    assert_eq!(segments(&stopped), 4);
    // Also after a start that finds the size in its checkpoint.
    let broker = stopped.start().await;
    let mut client = broker.client().await;
    three_megabytes(&mut client).await;
    assert_eq!(segments(&broker.stop().await), 7);
}

/// (value, source) of a config of a topic or a broker, and the sources of its synonyms.
async fn describe(
    client: &mut RawClient,
    (kind, name): (i8, &str),
    config: &str,
) -> Option<(String, i8, Vec<i8>)> {
    let request = DescribeConfigsRequest::default()
        .with_include_synonyms(true)
        .with_resources(vec![
            DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configuration_keys(Some(vec![text(config)])),
        ]);
    let response = client.send(4, &request).await;
    let found = response.results[0].configs.first()?;
    let synonyms = found.synonyms.iter().map(|s| s.source).collect();
    let value = found.value.as_deref()?.to_owned();
    Some((value, found.config_source, synonyms))
}

/// KIP-226: the defaults of topic configs change while the broker runs, for it or for every broker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_brokers_defaults_change_while_it_runs() {
    const TOPIC_SOURCE: i8 = 1;
    const THIS_BROKER: i8 = 2;
    const EVERY_BROKER: i8 = 3;
    const START: i8 = 4;
    const DEFAULT: i8 = 5;
    let broker = TestBroker::builder()
        .set("message.max.bytes", 100_000)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    client
        .create_topic_with("own", 1, &[("max.message.bytes", "5000")])
        .await;
    let (key, topic_key) = ("message.max.bytes", "max.message.bytes");
    let change = |node: &str, operation: i8, value: Option<&str>| {
        vec![resource(BROKER, node, &[(key, operation, value)])]
    };
    let batch = || Batch::of(&[vec![7; 3_000]]).build();
    client.produce("t", 0, batch()).await.unwrap();

    let everywhere = change("", SET, Some("2000"));
    assert_eq!(alter(&mut client, everywhere).await, [OK]);
    let refused = client.produce("t", 0, batch()).await;
    assert_eq!(refused, Err(ErrorCode::MessageTooLarge));
    client.produce("own", 0, batch()).await.unwrap();

    // This broker's own wins over that of all.
    let here = change("0", SET, Some("4000"));
    assert_eq!(alter(&mut client, here).await, [OK]);
    client.produce("t", 0, batch()).await.unwrap();
    let told =
        |value: &str, synonyms: &[i8]| Some((value.to_owned(), synonyms[0], synonyms.to_vec()));
    let chain = [THIS_BROKER, EVERY_BROKER, START, DEFAULT];
    let of_broker = describe(&mut client, (BROKER, "0"), key).await;
    assert_eq!(of_broker, told("4000", &chain));
    let of_all = describe(&mut client, (BROKER, ""), key).await;
    assert_eq!(of_all, told("2000", &[EVERY_BROKER]));
    let of_topic = describe(&mut client, (TOPIC, "t"), topic_key).await;
    assert_eq!(of_topic, told("4000", &chain));
    let of_own = describe(&mut client, (TOPIC, "own"), topic_key).await;
    let own_chain = [&[TOPIC_SOURCE][..], &chain].concat();
    assert_eq!(of_own, told("5000", &own_chain));

    // What cannot be is refused, and changes nothing.
    let wrong = change("0", SET, Some("many"));
    let codes = alter(&mut client, wrong).await;
    assert_eq!(codes, [ErrorCode::InvalidRequest]);

    let broker = broker.crash(6).await.start().await;
    let mut client = broker.client().await;
    client.produce("t", 0, batch()).await.unwrap();
    let taken_back = change("0", DELETE, None);
    assert_eq!(alter(&mut client, taken_back).await, [OK]);
    let refused = client.produce("t", 0, batch()).await;
    assert_eq!(refused, Err(ErrorCode::MessageTooLarge));

    // AlterConfigs names what is set: nothing, here.
    let replacement = AlterConfigsRequest::default().with_resources(vec![
        ReplacedResource::default()
            .with_resource_type(BROKER)
            .with_resource_name(text("")),
    ]);
    let response = client.send(2, &replacement).await;
    assert_eq!(response.responses[0].error_code, 0);
    client.produce("t", 0, batch()).await.unwrap();
    let broker = broker.restart().await;
    let mut client = broker.client().await;
    let of_broker = describe(&mut client, (BROKER, "0"), key).await;
    assert_eq!(of_broker, told("100000", &[START, DEFAULT]));
    assert_eq!(describe(&mut client, (BROKER, ""), key).await, None);
}

fn grow(name: &str, count: i32) -> CreatePartitionsTopic {
    CreatePartitionsTopic::default()
        .with_name(topic_name(name))
        .with_count(count)
        .with_assignments(None)
}

/// CreatePartitions: (topic, code) of each answer.
async fn create_partitions(
    client: &mut RawClient,
    version: i16,
    topics: Vec<CreatePartitionsTopic>,
) -> Vec<(String, ErrorCode)> {
    let request = CreatePartitionsRequest::default()
        .with_topics(topics)
        .with_timeout_ms(30_000);
    let response = client.send(version, &request).await;
    let results = response.results.iter();
    results
        .map(|r| (r.name.to_string(), error_code(r.error_code)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_gets_more_partitions_while_it_is_in_use() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let epoch = client.describe_topic("t").await.partitions[0].leader_epoch;
    let mut producer = TxnProducer::init(&mut client, "tx").await;
    producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
    producer.send(&mut client, "t", 0, &["a"]).await.unwrap();
    for version in 0..=3 {
        let count = 2 + i32::from(version);
        let grown = create_partitions(&mut client, version, vec![grow("t", count)]).await;
        assert_eq!(grown, [("t".to_owned(), OK)]);
        let partitions = client.describe_topic("t").await.partitions;
        assert_eq!(i32::try_from(partitions.len()), Ok(count));
        assert!(partitions.iter().all(|p| p.leader_epoch == epoch));
    }
    // Written to at once, also by the transaction that was open before.
    producer.enrol(&mut client, &[("t", 4)]).await.unwrap();
    producer.send(&mut client, "t", 4, &["b"]).await.unwrap();
    producer.end(&mut client, true).await.unwrap();
    let committed = Isolation::ReadCommitted;
    assert_eq!(client.read_values("t", 0, committed).await, ["a"]);
    assert_eq!(client.read_values("t", 4, committed).await, ["b"]);

    let broker = broker.crash(8).await.start().await;
    let mut client = broker.client().await;
    assert_eq!(client.describe_topic("t").await.partitions.len(), 5);
    assert_eq!(client.read_values("t", 4, committed).await, ["b"]);
    let batch = Batch::of(&["c"]).build();
    assert_eq!(client.produce("t", 3, batch).await, Ok(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_refused_with_kafkas_codes() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 3).await;
    client.create_topic("u", 1).await;
    let by_hand = |brokers: &[&[i32]]| {
        let assignments = brokers.iter().map(|ids| {
            let ids = ids.iter().map(|id| BrokerId(*id)).collect();
            CreatePartitionsAssignment::default().with_broker_ids(ids)
        });
        grow("t", 4).with_assignments(Some(assignments.collect()))
    };
    let cases = [
        (grow("t", 3), ErrorCode::InvalidPartitions),
        (grow("t", 2), ErrorCode::InvalidPartitions),
        (grow("t", -1), ErrorCode::InvalidPartitions),
        (grow("t", i32::MAX), ErrorCode::InvalidPartitions),
        (grow("missing", 3), ErrorCode::UnknownTopicOrPartition),
        (grow("__consumer_offsets", 60), ErrorCode::InvalidPartitions),
        (by_hand(&[&[0], &[0]]), ErrorCode::InvalidReplicaAssignment),
        (by_hand(&[&[1]]), ErrorCode::InvalidReplicaAssignment),
        (by_hand(&[&[]]), ErrorCode::InvalidReplicaAssignment),
        (by_hand(&[&[0]]), OK),
    ];
    for (topic, expected) in cases {
        let name = topic.name.to_string();
        let codes = create_partitions(&mut client, 3, vec![topic.clone()]).await;
        assert_eq!(codes, [(name, expected)], "{topic:?}");
    }
    // A name that comes twice is refused, once; the others go on.
    let codes = create_partitions(
        &mut client,
        3,
        vec![grow("t", 9), grow("u", 2), grow("t", 9)],
    )
    .await;
    let expected = [("t", ErrorCode::InvalidRequest), ("u", OK)];
    assert_eq!(codes, expected.map(|(name, code)| (name.to_owned(), code)));
    // Only asked.
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![grow("t", 9)])
        .with_validate_only(true);
    assert_eq!(client.send(3, &request).await.results[0].error_code, 0);
    assert_eq!(client.describe_topic("t").await.partitions.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_are_refused_or_clamped_to_one() {
    let three = |name| {
        let mut request = requests::create_topic(name, 2, &[]);
        request.topics[0].replication_factor = 3;
        request
    };
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let refused = client.send(7, &three("t")).await.topics.remove(0);
    assert_eq!(
        error_code(refused.error_code),
        ErrorCode::InvalidReplicationFactor
    );
    let message = refused.error_message.expect("a refusal says why");
    assert!(message.contains("replication.factor.clamp"), "{message}");
    broker.stop().await;

    let broker = TestBroker::builder()
        .set("auto.create.topics.enable", true)
        .set("replication.factor.clamp", true)
        .set("default.replication.factor", 3)
        .start()
        .await;
    let mut client = broker.client().await;
    let created = client.send(7, &three("t")).await.topics.remove(0);
    assert_eq!(error_code(created.error_code), OK);
    // What is answered is what there is.
    assert_eq!((created.num_partitions, created.replication_factor), (2, 1));
    // More partitions of it, and a topic that asking for it makes with the default of three.
    let grown = CreatePartitionsTopic::default()
        .with_name(topic_name("t"))
        .with_count(4)
        .with_assignments(None);
    let codes = create_partitions(&mut client, 3, vec![grown]).await;
    assert_eq!(codes, [("t".to_owned(), OK)]);
    for (name, partitions) in [("t", 4), ("made-by-asking", 1)] {
        let request = requests::metadata(&[name]).with_allow_auto_topic_creation(true);
        let described = client.send(12, &request).await.topics.remove(0);
        assert_eq!(error_code(described.error_code), OK, "{name}");
        assert_eq!(described.partitions.len(), partitions, "{name}");
        for partition in described.partitions {
            assert_eq!(partition.replica_nodes, [BrokerId(0)], "{name}");
        }
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_created_is_told_from_version_5_on() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    for version in 2..=7 {
        let name = format!("t{version}");
        let request = requests::create_topic(&name, 3, &[("retention.ms", "1000")]);
        let created = client.send(version, &request).await.topics.remove(0);
        assert_eq!(created.error_code, 0);
        let is_told = version >= 5;
        let counts = (created.num_partitions, created.replication_factor);
        assert_eq!(counts, if is_told { (3, 1) } else { (-1, -1) });
        let configs: BTreeMap<&str, (&str, i8)> = (created.configs.iter().flatten())
            .map(|c| (&*c.name, (c.value.as_deref().unwrap(), c.config_source)))
            .collect();
        if is_told {
            assert_eq!(configs["retention.ms"], ("1000", 1));
            assert_eq!(configs["cleanup.policy"], ("delete", 5));
        } else {
            assert!(configs.is_empty());
        }
        let id = client.describe_topic(&name).await.topic_id;
        assert_eq!(
            created.topic_id,
            if version >= 7 { id } else { Uuid::nil() }
        );
    }
    // Refused, or only asked: there is no topic.
    let twice = requests::create_topic("twice", 1, &[]);
    let twice =
        CreateTopicsRequest::default().with_topics([&twice.topics[..], &twice.topics[..]].concat());
    let refused = client.send(7, &twice).await.topics;
    assert_eq!(refused.len(), 1);
    assert_eq!(error_code(refused[0].error_code), ErrorCode::InvalidRequest);
    assert_eq!(refused[0].configs, Some(Vec::new()));
    let ask = requests::create_topic("asked", 2, &[]).with_validate_only(true);
    let asked = client.send(7, &ask).await.topics.remove(0);
    assert_eq!((asked.error_code, asked.num_partitions), (0, 2));
    for name in ["twice", "asked"] {
        let error = error_code(client.describe_topic(name).await.error_code);
        assert_eq!(error, ErrorCode::UnknownTopicOrPartition);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_deleted_by_name_or_by_id() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut ids = BTreeMap::new();
    for name in ["a", "b", "c", "d"] {
        client.create_topic(name, 1).await;
        ids.insert(name, client.describe_topic(name).await.topic_id);
    }
    let by = |name: Option<&str>, id: Uuid| {
        DeleteTopicState::default()
            .with_name(name.map(topic_name))
            .with_topic_id(id)
    };
    let mut delete = async |topics: Vec<DeleteTopicState>| {
        let request = DeleteTopicsRequest::default()
            .with_topics(topics)
            .with_timeout_ms(30_000);
        let response = client.send(6, &request).await;
        let results = response.responses.iter();
        results
            .map(|r| {
                let name = r.name.as_ref().map(|name| name.to_string());
                (name, r.topic_id, error_code(r.error_code))
            })
            .collect::<Vec<_>>()
    };
    let (nil, unknown, invalid) = (Uuid::nil(), Uuid::from_u128(7), ErrorCode::InvalidRequest);
    let name = |name: &str| Some(name.to_owned());

    let deleted = delete(vec![
        by(Some("a"), nil),
        by(None, ids["b"]),
        by(None, unknown),
    ])
    .await;
    let expected = [
        (name("a"), ids["a"], OK),
        (None, unknown, ErrorCode::UnknownTopicId),
        (name("b"), ids["b"], OK),
    ];
    let sorted = |mut results: Vec<_>| {
        results.sort_by_key(|r: &(Option<String>, Uuid, ErrorCode)| r.0.clone());
        results
    };
    assert_eq!(sorted(deleted), sorted(expected.to_vec()));

    for (asked, expected) in [
        (vec![by(None, nil)], (None, nil, invalid)),
        (
            vec![by(Some("c"), ids["c"])],
            (name("c"), ids["c"], invalid),
        ),
        (
            vec![by(Some("c"), nil), by(Some("c"), nil)],
            (name("c"), nil, invalid),
        ),
        (
            vec![by(None, ids["c"]), by(None, ids["c"])],
            (None, ids["c"], invalid),
        ),
        (
            vec![by(Some("c"), nil), by(None, ids["c"])],
            (name("c"), nil, invalid),
        ),
        (
            vec![by(Some("a"), nil)],
            (name("a"), nil, ErrorCode::UnknownTopicOrPartition),
        ),
        (
            vec![by(None, ids["a"])],
            (None, ids["a"], ErrorCode::UnknownTopicId),
        ),
        (vec![by(None, ids["d"])], (name("d"), ids["d"], OK)),
    ] {
        assert_eq!(delete(asked.clone()).await, [expected], "{asked:?}");
    }
    assert_eq!(client.describe_topic("c").await.error_code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_is_described() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let port = i32::from(broker.address().port());
    let cluster_id = client.cluster_id().await;
    for version in 0..=2 {
        for endpoint_type in 0..=3i8 {
            let request =
                DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
            let request = match version {
                0 if endpoint_type > 0 => continue,
                0 => request,
                _ => request.with_endpoint_type(endpoint_type),
            };
            let described = client.send(version, &request).await;
            let error = match (version, endpoint_type) {
                (0, _) | (_, 1) => OK,
                (_, 2) => ErrorCode::MismatchedEndpointType,
                _ => ErrorCode::UnsupportedEndpointType,
            };
            assert_eq!(error_code(described.error_code), error);
            if error == OK {
                assert_eq!(&*described.cluster_id, cluster_id);
                assert_eq!(described.controller_id, BrokerId(0));
                let brokers: Vec<_> = (described.brokers.iter())
                    .map(|b| (b.broker_id.0, b.port, b.is_fenced))
                    .collect();
                assert_eq!(brokers, [(0, port, false)]);
                assert_eq!(described.cluster_authorized_operations, 0b1_1111_1010_0000);
            } else {
                assert!(described.brokers.is_empty());
                assert_eq!(described.controller_id, BrokerId(-1));
            }
        }
    }
}
