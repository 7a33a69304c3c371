//! ApiVersions, Metadata, FindCoordinator, DescribeCluster.

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{MetadataResponse, MetadataResponseTopic};
use kafka_protocol::messages::{
    ApiVersionsRequest, DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest,
};
use tidemark_testkit::requests::{text, topic_name};
use tidemark_types::ErrorCode;
use tidemark_wire::ApiTable;
use uuid::Uuid;

use crate::World;
use crate::support::code;

/// "Not asked for" of the authorised-operations fields.
const NO_OPERATIONS: i32 = i32::MIN;

pub async fn api_versions(world: &mut World, version: i16) {
    let request = match version {
        3.. => ApiVersionsRequest::default()
            .with_client_software_name(text("tests"))
            .with_client_software_version(text("1.0")),
        _ => ApiVersionsRequest::default(),
    };
    let response = world.client.send(version, &request).await;
    assert_eq!(code(response.error_code), ErrorCode::None);
    let told: Vec<(i16, i16, i16)> = response
        .api_keys
        .iter()
        .map(|api| (api.api_key, api.min_version, api.max_version))
        .collect();
    assert!(told.contains(&(18, 0, 4)));
    assert!(
        told.iter().any(|(key, min, _)| (*key, *min) == (0, 0)),
        "Produce from 0 (KAFKA-18659)"
    );
    if !world.target.is_kafka() {
        let served: Vec<(i16, i16, i16)> = ApiTable::served_apis()
            .map(|(api, s)| (api.key.code(), s.min_advertised, s.versions.max))
            .collect();
        assert_eq!(told, served);
    }

    let finalized = |name: &str| {
        let mut features = response.finalized_features.iter();
        features
            .find(|f| &*f.name == name)
            .map(|f| f.max_version_level)
    };
    let supported = |name: &str| response.supported_features.iter().any(|f| &*f.name == name);
    match version {
        0..3 => assert!(response.finalized_features.is_empty()),
        _ => {
            assert!(response.finalized_features_epoch >= 0);
            assert_eq!(finalized("transaction.version"), Some(2));
            // Below v4 a feature whose smallest level is 0 cannot be told (KAFKA-17492).
            assert_eq!(supported("transaction.version"), version >= 4);
        }
    }
}

fn by_name(topics: &[&str]) -> Vec<MetadataRequestTopic> {
    let named = |topic: &&str| MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
    topics.iter().map(named).collect()
}

async fn ask(
    world: &mut World,
    version: i16,
    topics: Option<Vec<MetadataRequestTopic>>,
) -> MetadataResponse {
    let request = MetadataRequest::default().with_topics(topics);
    let request = match version {
        4.. => request.with_allow_auto_topic_creation(false),
        _ => request,
    };
    world.client.send(version, &request).await
}

fn find<'a>(response: &'a MetadataResponse, topic: &str) -> Option<&'a MetadataResponseTopic> {
    let is_it = |t: &&MetadataResponseTopic| t.name.as_ref().is_some_and(|name| &***name == topic);
    response.topics.iter().find(is_it)
}

pub async fn metadata(world: &mut World, version: i16) {
    let topic = world.topic("t", 2).await;
    let id = world.describe(&topic).await.topic_id;
    let asked = by_name(&[&topic, "nobody", "not a name", "__consumer_offsets"]);
    let response = ask(world, version, Some(asked)).await;
    assert_eq!(response.topics.len(), 4);

    let node = response.brokers[0].node_id;
    assert_eq!(response.brokers.len(), 1);
    let (host, port) = (
        response.brokers[0].host.to_string(),
        response.brokers[0].port,
    );
    assert_eq!(format!("{host}:{port}"), world.target.address().to_string());
    assert_eq!(response.brokers[0].rack, None);
    assert_eq!(response.controller_id == node, version >= 1);
    assert_eq!(response.cluster_id.is_some(), version >= 2);
    if (8..=10).contains(&version) {
        assert_eq!(response.cluster_authorized_operations, NO_OPERATIONS);
    }

    let found = find(&response, &topic).expect("it exists");
    assert_eq!(code(found.error_code), ErrorCode::None);
    assert!(!found.is_internal);
    assert_eq!(found.topic_id, if version >= 10 { id } else { Uuid::nil() });
    assert_eq!(found.partitions.len(), 2);
    for index in 0..2 {
        let mut partitions = found.partitions.iter();
        let partition = partitions.find(|p| p.partition_index == index).unwrap();
        assert_eq!(code(partition.error_code), ErrorCode::None);
        assert_eq!(partition.leader_id, node);
        assert_eq!(partition.leader_epoch >= 0, version >= 7);
        assert_eq!(
            (&*partition.replica_nodes, &*partition.isr_nodes),
            (&[node][..], &[node][..])
        );
        assert!(partition.offline_replicas.is_empty());
    }
    if version >= 8 {
        assert_eq!(found.topic_authorized_operations, NO_OPERATIONS);
    }
    let offsets = find(&response, "__consumer_offsets").expect("it exists");
    assert_eq!(
        (offsets.is_internal, offsets.partitions.len()),
        (version >= 1, 50)
    );
    for (name, want) in [
        ("nobody", ErrorCode::UnknownTopicOrPartition),
        ("not a name", ErrorCode::InvalidTopicException),
    ] {
        let refused = find(&response, name).expect("every name is answered");
        assert_eq!(code(refused.error_code), want);
        assert!(refused.partitions.is_empty());
    }

    all_or_none(world, version, &topic).await;
    if version >= 12 {
        by_id(world, version, &topic, id).await;
    }
}

/// v0 has no null: there an empty list means all. From v1 on null means all, and empty none.
async fn all_or_none(world: &mut World, version: i16, topic: &str) {
    let empty = ask(world, version, Some(vec![])).await;
    assert_eq!(empty.brokers.len(), 1);
    match version {
        0 => assert!(find(&empty, topic).is_some(), "an empty list is all"),
        _ => {
            assert!(empty.topics.is_empty(), "an empty list is none");
            let all = ask(world, version, None).await;
            assert!(find(&all, topic).is_some(), "null is all");
            assert!(find(&all, "__consumer_offsets").is_some());
            assert!(
                find(&all, "__cluster_metadata").is_none(),
                "that one is nobody's business"
            );
        }
    }
}

async fn by_id(world: &mut World, version: i16, topic: &str, id: Uuid) {
    let unknown = Uuid::from_u128(0x1234);
    let asked = [id, unknown]
        .map(|id| {
            MetadataRequestTopic::default()
                .with_topic_id(id)
                .with_name(None)
        })
        .to_vec();
    let response = ask(world, version, Some(asked)).await;
    let found = find(&response, topic).expect("found by its id");
    assert_eq!(
        (code(found.error_code), found.topic_id),
        (ErrorCode::None, id)
    );
    let other = response.topics.iter().find(|t| t.topic_id == unknown);
    let other = other.expect("every id is answered");
    assert_eq!(code(other.error_code), ErrorCode::UnknownTopicId);
    assert_eq!(other.name, None);
}

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

pub async fn find_coordinator(world: &mut World, version: i16) {
    let address = world.target.address().to_string();
    for key_type in [GROUP, TRANSACTION] {
        if version == 0 && key_type != GROUP {
            continue;
        }
        let request = match version {
            0 => FindCoordinatorRequest::default().with_key(text("k")),
            1..4 => FindCoordinatorRequest::default()
                .with_key(text("k"))
                .with_key_type(key_type),
            _ => FindCoordinatorRequest::default()
                .with_coordinator_keys(vec![text("k"), text("l")])
                .with_key_type(key_type),
        };
        let response = world.client.send(version, &request).await;
        let found: Vec<(i16, i32, String)> = match version {
            0..4 => {
                let at = format!("{}:{}", &*response.host, response.port);
                vec![(response.error_code, response.node_id.0, at)]
            }
            _ => {
                let keys: Vec<&str> = response.coordinators.iter().map(|c| &*c.key).collect();
                assert_eq!(keys, ["k", "l"]);
                let mut found = Vec::new();
                for c in &response.coordinators {
                    found.push((
                        c.error_code,
                        c.node_id.0,
                        format!("{}:{}", &*c.host, c.port),
                    ));
                }
                found
            }
        };
        for (error, node, at) in found {
            assert_eq!(code(error), ErrorCode::None);
            assert_eq!(node, i32::from(world.target.is_kafka()));
            assert_eq!(at, address);
        }
    }
    // A kind of key that nobody coordinates.
    if version >= 1 {
        let request = FindCoordinatorRequest::default().with_key_type(9);
        let request = match version {
            1..4 => request.with_key(text("k")),
            _ => request.with_coordinator_keys(vec![text("k")]),
        };
        let response = world.client.send(version, &request).await;
        let error = match version {
            1..4 => response.error_code,
            _ => response.coordinators[0].error_code,
        };
        assert_eq!(code(error), ErrorCode::InvalidRequest);
    }
}

pub async fn describe_cluster(world: &mut World, version: i16) {
    let request = DescribeClusterRequest::default();
    let response = world.client.send(version, &request).await;
    assert_eq!(code(response.error_code), ErrorCode::None);
    assert_eq!(*response.cluster_id, world.client.cluster_id().await);
    assert_eq!(response.brokers.len(), 1);
    let broker = &response.brokers[0];
    assert_eq!(response.controller_id, broker.broker_id);
    let at = format!("{}:{}", &*broker.host, broker.port);
    assert_eq!(at, world.target.address().to_string());
    assert_eq!(response.cluster_authorized_operations, NO_OPERATIONS);
    if version >= 1 {
        assert_eq!(
            response.endpoint_type, 1,
            "a broker's endpoint, not a controller's"
        );
    }
}
