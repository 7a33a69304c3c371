//! What single APIs ask of ACLs, where a table of codes does not say it.

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeGroupsRequest, GroupId, MetadataRequest,
};
use tidemark_testkit::requests::{self, text, topic_name};
use tidemark_testkit::{Batch, Isolation, RawClient, produced};
use tidemark_types::ErrorCode;

use crate::support::{admin, allow, code_of, delete, guarded, is};

const FORBIDDEN: ErrorCode = ErrorCode::TransactionalIdAuthorizationFailed;

/// A stranger's session of an id would fence whoever uses it.
#[tokio::test(flavor = "multi_thread")]
async fn m17_a_stranger_cannot_fence_a_transactional_id() {
    let broker = guarded().start().await;
    let mut root = admin(&broker).await;
    root.create_topic("t", 1).await;
    let acls = [
        "allow alice Write txn literal billing",
        "allow alice Write topic literal t",
        // Bob is no nobody: he has an id of his own.
        "allow bob Write txn prefixed bob-",
        "allow bob Write topic literal t",
    ];
    allow(&mut root, &acls).await;
    let mut alice = broker.client_as("User:alice");
    let mut bob = broker.client_as("User:bob");
    let session = alice.init_producer_id(Some("billing")).await.unwrap();
    alice
        .add_partitions("billing", session, &[("t", 0)])
        .await
        .unwrap();

    is(bob.init_producer_id(Some("billing")).await, FORBIDDEN);
    is(
        bob.add_partitions("billing", session, &[("t", 0)]).await,
        FORBIDDEN,
    );
    is(bob.add_offsets("billing", session, "g").await, FORBIDDEN);
    is(bob.end_txn("billing", session, true).await, FORBIDDEN);
    let offsets = [("t", 0, 5)];
    is(
        bob.txn_offset_commit("billing", session, "g", &offsets)
            .await,
        FORBIDDEN,
    );
    let batch = || {
        let batch = Batch::of(&["x"]).producer(session.0, session.1, 0);
        batch.transactional().build()
    };
    is(bob.produce_in("billing", "t", 0, batch()).await, FORBIDDEN);
    assert!(bob.init_producer_id(Some("bob-1")).await.is_ok());

    // Alice's epoch is what it was.
    alice.produce_in("billing", "t", 0, batch()).await.unwrap();
    alice.end_txn("billing", session, true).await.unwrap();
    let values = root.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["x"]);
}

/// The right to write transactionally was asked for by the request's field, and a batch that said it of
/// itself passed without.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2018_17196_a_transactional_batch_needs_the_right_by_its_own_header() {
    let broker = guarded().start().await;
    let mut root = admin(&broker).await;
    root.create_topic("t", 2).await;
    allow(&mut root, &["allow bob Write topic literal t"]).await;
    let session = root.init_producer_id(Some("billing")).await.unwrap();
    root.add_partitions("billing", session, &[("t", 0)])
        .await
        .unwrap();
    let mut bob = broker.client_as("User:bob");
    let batch = Batch::of(&["x"]).producer(session.0, session.1, 0);
    let batch = batch.transactional().build();
    for version in 3..=12 {
        for id in [None, Some("mine")] {
            // Beside one that needs no right: all of the request is refused.
            let batches = [("t", 0, batch.clone()), ("t", 1, Batch::of(&["y"]).build())];
            let response = bob.send(version, &requests::produce(id, batches)).await;
            assert_eq!(
                produced(&response),
                [Err(FORBIDDEN), Err(FORBIDDEN)],
                "v{version} {id:?}"
            );
        }
    }
    let mut silent = requests::produce(None, [("t", 0, batch)]).with_acks(0);
    silent.timeout_ms = 1000;
    assert!(
        bob.try_send(9, &silent).await.is_none(),
        "acks=0: the connection is closed"
    );
    assert_eq!(root.ends("t", 2, Isolation::ReadUncommitted).await, [0, 0]);
}

/// A client that says it is a broker was given what only brokers get.
#[tokio::test(flavor = "multi_thread")]
async fn cve_2018_1288_a_client_is_no_follower() {
    let broker = guarded().start().await;
    let mut root = admin(&broker).await;
    root.create_topic("t", 1).await;
    allow(&mut root, &["allow bob Read topic literal t"]).await;
    let mut bob = broker.client_as("User:bob");
    let client = requests::fetch("t", &[(0, 0)], Isolation::ReadUncommitted);
    for version in 4..=12 {
        let follower = client.clone().with_replica_id(BrokerId(1));
        let response = bob.send(version, &follower).await;
        let partition = &response.responses[0].partitions[0];
        assert_eq!(
            code_of(partition.error_code),
            ErrorCode::TopicAuthorizationFailed
        );
        let response = bob.send(version, &client).await;
        assert_eq!(response.responses[0].partitions[0].error_code, 0);
    }
    let id = root.describe_topic("t").await.topic_id;
    for version in 13..=17 {
        let mut follower = client.clone();
        follower.topics[0].topic = topic_name("");
        follower.topics[0].topic_id = id;
        follower.replica_id = BrokerId(-1);
        if version >= 15 {
            follower.replica_state.replica_id = BrokerId(1);
        } else {
            follower.replica_id = BrokerId(1);
        }
        let response = bob.send(version, &follower).await;
        let partition = &response.responses[0].partitions[0];
        assert_eq!(
            code_of(partition.error_code),
            ErrorCode::TopicAuthorizationFailed
        );
    }
    allow(
        &mut root,
        &["allow bob ClusterAction cluster literal kafka-cluster"],
    )
    .await;
    let response = bob.send(12, &client.with_replica_id(BrokerId(1))).await;
    assert_eq!(response.responses[0].partitions[0].error_code, 0);
}

/// Whether there is a topic is nothing for whoever may not describe it: what is told of a name is the
/// same in every byte but the name.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_may_not_be_described_tell_nothing() {
    let broker = guarded()
        .set("auto.create.topics.enable", true)
        .start()
        .await;
    let mut root = admin(&broker).await;
    root.create_topic("secret", 3).await;
    root.create_topic("mine", 1).await;
    let id = root.describe_topic("secret").await.topic_id;
    allow(&mut root, &["allow bob Read topic literal mine"]).await;
    let mut bob = broker.client_as("User:bob");
    for version in 0..=13 {
        let mut request = requests::metadata(&["secret", "absent", "mine"]);
        // Not even asking for it makes it.
        request.allow_auto_topic_creation = true;
        let response = bob.send(version, &request).await;
        let told: Vec<i16> = response.topics.iter().map(|t| t.error_code).collect();
        assert_eq!(told, [29, 29, 0], "v{version}");
        let mut secret = response.topics[0].clone();
        secret.name = response.topics[1].name.clone();
        assert_eq!(secret, response.topics[1], "v{version}");
        let all = match version {
            0 => MetadataRequest::default().with_topics(Some(Vec::new())),
            _ => MetadataRequest::default().with_topics(None),
        };
        let response = bob.send(version, &all).await;
        assert_eq!(response.topics.len(), 1, "v{version}");
    }
    // An id is no secret, its name is.
    let ids = [id, uuid::Uuid::from_u128(7)].map(|id| {
        MetadataRequestTopic::default()
            .with_topic_id(id)
            .with_name(None)
    });
    let request = MetadataRequest::default().with_topics(Some(ids.to_vec()));
    let response = bob.send(12, &request).await;
    let told: Vec<_> = response
        .topics
        .iter()
        .map(|t| (t.error_code, t.name.clone()))
        .collect();
    assert_eq!(told, [(29, None), (100, None)]);
    assert_eq!(root.describe_topic("absent").await.error_code, 3);

    // Who may describe and not create is told so; who may create may.
    allow(&mut root, &["allow bob Describe topic prefixed new"]).await;
    let request = requests::metadata(&["new-1"]).with_allow_auto_topic_creation(true);
    assert_eq!(bob.send(12, &request).await.topics[0].error_code, 29);
    allow(&mut root, &["allow bob Create topic literal new-1"]).await;
    assert_eq!(bob.send(12, &request).await.topics[0].error_code, 0);
    let request = requests::metadata(&["new-2"]).with_allow_auto_topic_creation(true);
    assert_eq!(bob.send(12, &request).await.topics[0].error_code, 29);
    allow(
        &mut root,
        &["allow bob Create cluster literal kafka-cluster"],
    )
    .await;
    assert_eq!(bob.send(12, &request).await.topics[0].error_code, 0);
}

async fn topic_operations(client: &mut RawClient, topic: &str) -> i32 {
    let mut request = requests::metadata(&[topic]);
    request.include_topic_authorized_operations = true;
    client.send(10, &request).await.topics[0].topic_authorized_operations
}

async fn cluster_operations(client: &mut RawClient) -> [i32; 2] {
    let mut metadata = requests::metadata(&[]);
    metadata.include_cluster_authorized_operations = true;
    let mut cluster = DescribeClusterRequest::default();
    cluster.include_cluster_authorized_operations = true;
    [
        client
            .send(10, &metadata)
            .await
            .cluster_authorized_operations,
        client.send(1, &cluster).await.cluster_authorized_operations,
    ]
}

async fn group_operations(client: &mut RawClient, group: &str) -> (i16, i32) {
    let request = DescribeGroupsRequest::default()
        .with_groups(vec![GroupId(text(group))])
        .with_include_authorized_operations(true);
    let response = client.send(5, &request).await;
    let group = &response.groups[0];
    (group.error_code, group.authorized_operations)
}

/// KIP-430: what a client is told it may do is what it may do.
#[tokio::test(flavor = "multi_thread")]
async fn authorised_operations_are_those_of_the_client() {
    let broker = guarded().start().await;
    let mut root = admin(&broker).await;
    root.create_topic("t", 1).await;
    let mut bob = broker.client_as("User:bob");
    let bits = |codes: &[i32]| codes.iter().fold(0, |bits, code| bits | 1 << code);
    // Read 3, Write 4, Create 5, Delete 6, Alter 7, Describe 8, ClusterAction 9, DescribeConfigs 10,
    // AlterConfigs 11, IdempotentWrite 12.
    assert_eq!(
        topic_operations(&mut root, "t").await,
        bits(&[3, 4, 5, 6, 7, 8, 10, 11])
    );
    assert_eq!(
        cluster_operations(&mut root).await,
        [bits(&[5, 7, 8, 9, 10, 11, 12]); 2]
    );
    assert_eq!(
        group_operations(&mut root, "g").await,
        (0, bits(&[3, 6, 8, 10, 11]))
    );

    assert_eq!(cluster_operations(&mut bob).await, [0; 2]);
    assert_eq!(group_operations(&mut bob, "g").await, (30, i32::MIN));
    let acls = [
        "allow bob Write topic literal t",
        "allow bob AlterConfigs topic prefixed t",
        "allow bob Delete group literal g",
        "allow bob Alter cluster literal kafka-cluster",
    ];
    allow(&mut root, &acls).await;
    assert_eq!(topic_operations(&mut bob, "t").await, bits(&[4, 8, 10, 11]));
    assert_eq!(group_operations(&mut bob, "g").await, (0, bits(&[6, 8])));
    assert_eq!(cluster_operations(&mut bob).await, [bits(&[7, 8]); 2]);
    allow(&mut root, &["deny bob Describe topic literal t"]).await;
    let request = requests::metadata(&["t"]);
    assert_eq!(bob.send(10, &request).await.topics[0].error_code, 29);
}

/// A consumer's session goes on; what it may not read any more is told, and nothing of it is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_was_taken_ends_in_a_fetch_session_too() {
    let broker = guarded().start().await;
    let mut root = admin(&broker).await;
    root.create_topic("t", 1).await;
    root.create_topic("u", 1).await;
    allow(
        &mut root,
        &[
            "allow bob Read topic literal t",
            "allow bob Read topic literal u",
        ],
    )
    .await;
    let mut bob = broker.client_as("User:bob");
    let mut request = requests::fetch("t", &[(0, 0)], Isolation::ReadUncommitted);
    let other = requests::fetch("u", &[(0, 0)], Isolation::ReadUncommitted);
    request.topics.extend(other.topics);
    request.session_epoch = 0;
    let opened = bob.send(12, &request).await;
    assert_ne!(opened.session_id, 0);
    root.produce("t", 0, Batch::of(&["secret"]).build())
        .await
        .unwrap();
    root.produce("u", 0, Batch::of(&["open"]).build())
        .await
        .unwrap();
    let gone = root
        .send(3, &delete(&["any bob any topic literal t"]))
        .await;
    assert_eq!(gone.filter_results[0].matching_acls.len(), 1);
    request.topics.clear();
    (request.session_id, request.session_epoch) = (opened.session_id, 1);
    let response = bob.send(12, &request).await;
    assert_eq!(response.error_code, 0);
    for topic in &response.responses {
        let partition = &topic.partitions[0];
        let records = partition
            .records
            .as_ref()
            .map_or(0, |records| records.len());
        match &**topic.topic {
            "t" => assert_eq!((partition.error_code, records), (29, 0)),
            _ => assert!(partition.error_code == 0 && records > 0),
        }
    }
    assert_eq!(response.responses.len(), 2);
}

/// Hosts of ACLs are those that clients come from.
#[tokio::test(flavor = "multi_thread")]
async fn an_acl_for_a_host_is_for_that_host() {
    let broker = guarded().start().await;
    let mut root = admin(&broker).await;
    root.create_topic("t", 1).await;
    let acls = [
        "allow bob Read topic literal t 10.0.0.1",
        "deny bob Read topic literal t ::1",
    ];
    allow(&mut root, &acls).await;
    for (peer, code) in [("10.0.0.1:9", 0), ("10.0.0.2:9", 29), ("[::1]:9", 29)] {
        let mut bob = broker.client_of("User:bob", peer.parse().unwrap());
        let read = bob.fetch("t", 0, 0, Isolation::ReadUncommitted).await;
        assert_eq!(read.error.code(), code, "{peer}");
    }
}
