//! CreateAcls, DescribeAcls, DeleteAcls.

use kafka_protocol::messages::{DescribeAclsRequest, MetadataRequest};
use tidemark_testkit::{Isolation, TestBroker};
use tidemark_types::ErrorCode;

use crate::support::{
    EVERY, admin, allow, code_of, create, creation, delete, describe, described, guarded,
};

#[tokio::test(flavor = "multi_thread")]
async fn without_an_authorizer_there_are_no_acls() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    for version in 1..=3 {
        let described = client.send(version, &describe(EVERY)).await;
        assert_eq!(code_of(described.error_code), ErrorCode::SecurityDisabled);
        let two = [
            "allow a Read topic literal t",
            "allow b Read topic literal t",
        ];
        let created = client.send(version, &create(&two)).await;
        let codes: Vec<_> = created
            .results
            .iter()
            .map(|r| code_of(r.error_code))
            .collect();
        assert_eq!(codes, [ErrorCode::SecurityDisabled; 2]);
        let deleted = client.send(version, &delete(&[EVERY])).await;
        let codes = deleted.filter_results.iter();
        let codes: Vec<_> = codes.map(|r| code_of(r.error_code)).collect();
        assert_eq!(codes, [ErrorCode::SecurityDisabled]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acls_are_made_told_and_removed_and_outlive_restarts() {
    let broker = guarded().start().await;
    let mut root = admin(&broker).await;
    let all = [
        "allow alice Read topic literal orders",
        "allow alice Write topic prefixed orders-",
        "deny bob All group literal *",
        "allow carol Describe cluster literal kafka-cluster 10.0.0.1",
        "allow dave Write txn prefixed pay-",
    ];
    for (version, acls) in [(1, &all[..2]), (2, &all[2..4]), (3, &all[4..])] {
        let created = root.send(version, &create(acls)).await;
        assert!(
            created.results.iter().all(|r| r.error_code == 0),
            "{created:?}"
        );
    }
    // Once more is no error, and makes nothing.
    allow(&mut root, &all[..3]).await;
    let mut expected: Vec<String> = all.iter().map(|acl| (*acl).to_owned()).collect();
    expected.sort();
    for version in 1..=3 {
        assert_eq!(described(&mut root, version, EVERY).await, expected);
    }
    assert_eq!(
        described(&mut root, 3, "any any any topic match orders-eu").await,
        [all[1]]
    );
    assert_eq!(
        described(&mut root, 3, "any any any topic match orders").await,
        [all[0]]
    );
    assert_eq!(
        described(&mut root, 3, "any any any group match any").await,
        [all[2]]
    );
    assert_eq!(
        described(&mut root, 3, "allow any Write any any any")
            .await
            .len(),
        2
    );
    assert_eq!(
        described(&mut root, 3, "any any any group any x").await,
        Vec::<String>::new()
    );

    // From the journal, then from a checkpoint.
    let broker = broker.kill().await.start().await;
    assert_eq!(
        described(&mut admin(&broker).await, 3, EVERY).await,
        expected
    );
    let broker = broker.restart().await;
    let mut root = admin(&broker).await;
    assert_eq!(described(&mut root, 3, EVERY).await, expected);

    // What two filters mean is told by both, and nothing else goes.
    let filters = ["any alice any any any any", "any any Write any any any"];
    let deleted = root.send(2, &delete(&filters)).await;
    let counts: Vec<usize> = (deleted.filter_results.iter())
        .map(|result| {
            assert_eq!(result.error_code, 0);
            result.matching_acls.len()
        })
        .collect();
    assert_eq!(counts, [2, 2]);
    assert_eq!(described(&mut root, 3, EVERY).await, [all[3], all[2]]);
    for version in [1, 3] {
        let deleted = root
            .send(version, &delete(&["any zoe any any any any"]))
            .await;
        assert_eq!(deleted.filter_results[0].matching_acls.len(), 0);
    }
    let broker = broker.restart().await;
    assert_eq!(
        described(&mut admin(&broker).await, 3, EVERY).await,
        [all[3], all[2]]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_acl_is_refused_as_kafka_refuses_it() {
    let broker = guarded().set("max.acls", 2).start().await;
    let mut root = admin(&broker).await;
    let good = creation("allow alice Read topic literal t");
    let other = |n: i8| creation(&format!("allow alice Read topic literal t{n}"));
    let wrong = [
        good.clone().with_resource_name("".into()),
        good.clone().with_principal("alice".into()),
        good.clone().with_resource_type(99),
        good.clone().with_operation(99),
        good.clone().with_permission_type(-3),
        good.clone().with_resource_pattern_type(77),
        creation("allow alice Read cluster literal elsewhere"),
    ];
    let mut request = create(&[]);
    request.creations = wrong.to_vec();
    request.creations.push(good.clone());
    let response = root.send(3, &request).await;
    let codes: Vec<_> = response
        .results
        .iter()
        .map(|r| code_of(r.error_code))
        .collect();
    assert_eq!(codes[..7], [ErrorCode::InvalidRequest; 7], "{response:?}");
    assert_eq!(codes[7], ErrorCode::None, "each is made for itself");

    request.creations = vec![good.clone(), other(1), other(2)];
    let response = root.send(3, &request).await;
    let codes: Vec<_> = response
        .results
        .iter()
        .map(|r| code_of(r.error_code))
        .collect();
    let expected = [ErrorCode::None, ErrorCode::None, ErrorCode::PolicyViolation];
    assert_eq!(codes, expected, "max.acls");

    // What is open in an ACL makes the whole request one that Kafka has no answer to.
    request.creations = vec![good.clone(), good.clone().with_operation(1)];
    let response = root.send(3, &request).await;
    let codes: Vec<_> = response
        .results
        .iter()
        .map(|r| code_of(r.error_code))
        .collect();
    assert_eq!(codes, [ErrorCode::UnknownServerError; 2]);

    // Numbers that nobody knows mean no ACL in a filter, and no filter where something is removed.
    let unknown = describe(EVERY).with_operation(99);
    assert_eq!(root.send(3, &unknown).await.resources.len(), 0);
    let mut request = delete(&[EVERY, EVERY]);
    request.filters[0].pattern_type_filter = 99;
    let response = root.send(3, &request).await;
    assert_eq!(
        code_of(response.filter_results[0].error_code),
        ErrorCode::InvalidRequest
    );
    assert_eq!(response.filter_results[1].matching_acls.len(), 2);

    // The number that stands for nothing closes the connection.
    let nothing: DescribeAclsRequest = describe(EVERY).with_permission_type(0);
    assert!(root.try_send(3, &nothing).await.is_none());
    let mut root = admin(&broker).await;
    let mut request = create(&[]);
    request.creations = vec![good.with_resource_pattern_type(0)];
    assert!(root.try_send(3, &request).await.is_none());
    let mut root = admin(&broker).await;
    let mut request = delete(&[EVERY]);
    request.filters[0].operation = 0;
    assert!(root.try_send(3, &request).await.is_none());
}

/// An ACL is in force for what is asked after its answer, and so is its removal.
#[tokio::test(flavor = "multi_thread")]
async fn an_acl_is_in_force_when_it_is_answered() {
    let broker = guarded().start().await;
    let mut root = admin(&broker).await;
    root.create_topic("t", 1).await;
    let mut alice = broker.client_as("User:alice");
    for _ in 0..3 {
        let read = alice.fetch("t", 0, 0, Isolation::ReadUncommitted).await;
        assert_eq!(read.error, ErrorCode::TopicAuthorizationFailed);
        allow(&mut root, &["allow alice Read topic literal t"]).await;
        let read = alice.fetch("t", 0, 0, Isolation::ReadUncommitted).await;
        assert_eq!(read.error, ErrorCode::None);
        let deleted = root.send(3, &delete(&["any alice any any any any"])).await;
        assert_eq!(deleted.filter_results[0].matching_acls.len(), 1);
    }
    let everything = MetadataRequest::default().with_topics(None);
    assert_eq!(alice.send(12, &everything).await.topics.len(), 0);
}
