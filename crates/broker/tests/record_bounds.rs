//! Requests that would make a record larger than the journal's slots can hold, sent to a broker with the
//! smallest slots there can be: each is refused with Kafka's code, or written in parts, and the broker
//! goes on. What fits is decided in the owner; its own stories (`owner/tests/stories/bounds.rs`) cover the
//! requests that take too long to make large here.

#[allow(dead_code)] // Others use the rest of it.
#[path = "support/member.rs"]
mod member;

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource as ReplacedResource, AlterableConfig as ReplacedConfig,
};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AlterConfigsRequest, CreateTopicsRequest,
    IncrementalAlterConfigsRequest, OffsetCommitRequest, ProducerId, TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
};
use tidemark_testkit::requests::{error_code, text, topic_name, transactional_id};
use tidemark_testkit::{
    Batch, Dialect, RawClient, TestBroker, TxnProducer, produced, requests, version,
};
use tidemark_types::ErrorCode;

const OK: ErrorCode = ErrorCode::None;
const SLOT_BYTES: usize = 1 << 20;
/// A marker in each of its partitions is more than a slot.
const WIDE: i32 = 4_000;
const LIST_CONFIG: &str = "leader.replication.throttled.replicas";

/// As long as a topic's name can be, so that a record of many partitions is large.
fn wide() -> String {
    "w".repeat(249)
}

async fn broker() -> TestBroker {
    let broker = TestBroker::builder()
        .set("journal.slot.bytes", SLOT_BYTES)
        .set("message.max.bytes", SLOT_BYTES / 2)
        .set("group.initial.rebalance.delay.ms", 0)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic(&wide(), WIDE).await;
    client.create_topic("t", 1).await;
    broker
}

/// It serves as before, also after a start on what it has written.
async fn goes_on(broker: TestBroker) {
    let broker = broker.kill().await.start().await;
    let mut client = broker.client().await;
    let sent = client.produce("t", 0, Batch::of(&["v"]).build()).await;
    assert!(sent.is_ok(), "{sent:?}");
}

async fn enrol(
    client: &mut RawClient,
    p: &TxnProducer,
    partitions: std::ops::Range<i32>,
) -> ErrorCode {
    let topic = AddPartitionsToTxnTopic::default()
        .with_name(topic_name(&wide()))
        .with_partitions(partitions.collect());
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transactional_id(&p.id))
        .with_v3_and_below_producer_id(ProducerId(p.producer_id))
        .with_v3_and_below_producer_epoch(p.epoch)
        .with_v3_and_below_topics(vec![topic]);
    let answer = client.send(3, &request).await;
    let topics = answer.results_by_topic_v3_and_below.iter();
    let mut codes = topics.flat_map(|t| &t.results_by_partition);
    error_code(codes.next().expect("one for each").partition_error_code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_thousands_of_partitions_ends_or_does_not_begin() {
    let broker = broker().await;
    let mut client = broker.client().await;
    // Classic: as a whole, and bit by bit until no more is taken.
    let p = TxnProducer::init(&mut client, "classic").await;
    let all = enrol(&mut client, &p, 0..WIDE).await;
    assert_eq!(all, ErrorCode::MessageTooLarge);
    let mut enrolled = 0;
    while enrol(&mut client, &p, enrolled..enrolled + 100).await == OK {
        enrolled += 100;
    }
    assert!((1_000..WIDE).contains(&enrolled), "{enrolled}");
    assert_eq!(p.end(&mut client, true).await, Ok(()));

    // A new session ends one that is as large as can be, under the longest names.
    let p = TxnProducer::init(&mut client, "classic").await;
    assert_eq!(enrol(&mut client, &p, 0..enrolled).await, OK);
    let mut named = broker.client().await;
    named.set_client_id(&"c".repeat(32_767));
    let again = TxnProducer::init(&mut named, "classic").await;
    assert!(again.epoch > p.epoch, "a new session");

    // Version 2: one request that would enrol them all.
    let mut p = TxnProducer::init_in(&mut client, "two", Dialect::Version2).await;
    let mut batches = Vec::new();
    for partition in 0..WIDE {
        let batch = p.batch(&wide(), partition, &["v"]).build();
        batches.push((wide(), partition, batch));
    }
    let request = requests::produce(Some("two"), batches);
    let version = Dialect::Version2.produce_version();
    let produced = produced(&client.send(version, &request).await);
    let taken = produced.iter().filter(|p| p.is_ok()).count();
    assert!((1_000..WIDE as usize).contains(&taken), "{taken}");
    let refused = Err(ErrorCode::MessageTooLarge);
    assert!(produced.iter().all(|p| p.is_ok() || *p == refused));
    assert_eq!(p.end(&mut client, true).await, Ok(()));
    goes_on(broker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_of_more_than_a_slot_are_refused() {
    let broker = broker().await;
    let mut client = broker.client().await;
    let long = text(&"x".repeat(4_000));
    let wide = wide();
    let offsets: Vec<_> = (0..300).map(|p| (&*wide, p, 1)).collect();

    let mut plain: OffsetCommitRequest = requests::offset_commit("g", &offsets);
    for partition in plain.topics.iter_mut().flat_map(|t| &mut t.partitions) {
        partition.committed_metadata = Some(long.clone());
    }
    let answer = client.send(version::OFFSET_COMMIT, &plain).await;
    let mut codes = answer.topics.iter().flat_map(|t| &t.partitions);
    let too_large = ErrorCode::InvalidCommitOffsetSize;
    assert!(codes.all(|p| error_code(p.error_code) == too_large));

    for dialect in Dialect::BOTH {
        let id = format!("{dialect:?}");
        let p = TxnProducer::init_in(&mut client, &id, dialect).await;
        if dialect == Dialect::Classic {
            let added = client.add_offsets(&id, p.producer(), "g").await;
            assert_eq!(added, Ok(()));
        }
        let mut pending: TxnOffsetCommitRequest =
            requests::txn_offset_commit(&id, p.producer(), "g", &offsets);
        for partition in pending.topics.iter_mut().flat_map(|t| &mut t.partitions) {
            partition.committed_metadata = Some(long.clone());
        }
        let version = dialect.txn_offset_commit_version();
        let answer = client.send(version, &pending).await;
        let mut codes = answer.topics.iter().flat_map(|t| &t.partitions);
        assert!(codes.all(|p| error_code(p.error_code) == too_large));
        let few = &offsets[..3];
        assert_eq!(p.send_offsets(&mut client, "g", few).await, Ok(()));
        assert_eq!(p.end(&mut client, true).await, Ok(()));
    }
    assert_eq!(client.committed_offset("g", &wide, 2, true).await, Ok(1));
    goes_on(broker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_more_than_a_slot_is_refused() {
    let broker = broker().await;
    let mut client = broker.client().await;
    let large = vec![b'm'; 2 * SLOT_BYTES];
    for (group, metadata, assignment) in [
        ("metadata", &large[..], &b"a"[..]),
        ("assignment", &b"m"[..], &large[..]),
    ] {
        let joined = client.send(2, &member::join(2, group, "", metadata)).await;
        assert_eq!(error_code(joined.error_code), OK);
        let generation = joined.generation_id;
        let sync = member::sync(group, generation, &joined.member_id, Some(assignment));
        let synced = client.send(2, &sync).await;
        assert_eq!(error_code(synced.error_code), ErrorCode::MessageTooLarge);
    }
    goes_on(broker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_and_configs_of_more_than_a_slot_are_refused() {
    let broker = broker().await;
    let mut client = broker.client().await;
    let list = |bytes: usize| text(&vec!["1:0"; bytes / 4].join(","));
    // Many that fit by themselves.
    let topics = (0..60).map(|n| {
        let config = CreatableTopicConfig::default()
            .with_name(text(LIST_CONFIG))
            .with_value(Some(list(30_000)));
        CreatableTopic::default()
            .with_name(topic_name(&format!("c{n}")))
            .with_num_partitions(1)
            .with_replication_factor(1)
            .with_configs(vec![config])
    });
    let request = CreateTopicsRequest::default()
        .with_timeout_ms(30_000)
        .with_topics(topics.collect());
    let answer = client.send(version::CREATE_TOPICS, &request).await;
    let codes: Vec<_> = answer
        .topics
        .iter()
        .map(|t| error_code(t.error_code))
        .collect();
    let fit = codes.iter().filter(|code| **code == OK).count();
    assert!((20..60).contains(&fit), "{fit}");
    assert!(
        codes
            .iter()
            .all(|c| [OK, ErrorCode::InvalidRequest].contains(c))
    );

    // One value that is larger than any record.
    let huge = list(2 * SLOT_BYTES);
    let change = AlterableConfig::default()
        .with_name(text(LIST_CONFIG))
        .with_value(Some(huge.clone()));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configs(vec![change]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = client.send(1, &request).await;
    let code = error_code(answer.responses[0].error_code);
    assert_eq!(code, ErrorCode::InvalidRequest);
    let config = ReplacedConfig::default()
        .with_name(text(LIST_CONFIG))
        .with_value(Some(huge));
    let resource = ReplacedResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configs(vec![config]);
    let request = AlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = client.send(2, &request).await;
    let code = error_code(answer.responses[0].error_code);
    assert_eq!(code, ErrorCode::InvalidRequest);
    goes_on(broker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markers_of_more_than_a_slot_are_written_as_far_as_it_goes() {
    let broker = broker().await;
    let mut client = broker.client().await;
    for name in ["x", "y", "z"] {
        client.create_topic(name, WIDE).await;
    }
    let topics = ["x", "y", "z"].map(|name| {
        WritableTxnMarkerTopic::default()
            .with_name(topic_name(name))
            .with_partition_indexes((0..WIDE).collect())
    });
    let marker = WritableTxnMarker::default()
        .with_producer_id(ProducerId(77))
        .with_producer_epoch(0)
        .with_transaction_result(false)
        .with_topics(topics.into());
    let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
    let answer = client.send(1, &request).await;
    let topics = answer.markers.iter().flat_map(|marker| &marker.topics);
    let codes = topics
        .flat_map(|t| &t.partitions)
        .map(|p| error_code(p.error_code));
    let codes: Vec<_> = codes.collect();
    let written = codes.iter().filter(|code| **code == OK).count();
    assert!((8_000..12_000).contains(&written), "{written}");
    let late = ErrorCode::RequestTimedOut;
    assert!(codes.iter().all(|code| [OK, late].contains(code)));
    goes_on(broker).await;
}
