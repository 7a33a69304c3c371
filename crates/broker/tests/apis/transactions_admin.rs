//! What operators ask of transactions, and the abort they may ask for (KIP-664).

use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest,
    ListTransactionsResponse, ProducerId, WriteTxnMarkersRequest,
};
use tidemark_record_batch::ControlType;
use tidemark_testkit::requests::{error_code, text, topic_name, transactional_id};
use tidemark_testkit::{Isolation, RawClient, TestBroker, TxnProducer};
use tidemark_types::ErrorCode;

const RC: Isolation = Isolation::ReadCommitted;

/// A transaction of id `tx` with a record in `t`-0 and in `u`-1.
async fn open_in_two(client: &mut RawClient) -> TxnProducer {
    client.create_topic("t", 1).await;
    client.create_topic("u", 2).await;
    let mut producer = TxnProducer::init(client, "tx").await;
    producer.enrol(client, &[("t", 0), ("u", 1)]).await.unwrap();
    for (topic, partition) in [("t", 0), ("u", 1)] {
        let batch = producer.batch(topic, partition, &["open"]).build();
        client
            .produce_in("tx", topic, partition, batch)
            .await
            .unwrap();
    }
    producer
}

fn names(response: &ListTransactionsResponse) -> Vec<&str> {
    let states = response.transaction_states.iter();
    states.map(|s| &**s.transactional_id).collect()
}

/// WriteTxnMarkers for one producer: a code per partition.
async fn write_markers(
    client: &mut RawClient,
    (producer_id, epoch): (i64, i16),
    commit: bool,
    coordinator_epoch: i32,
    partitions: &[(&str, i32)],
) -> Vec<ErrorCode> {
    let topics = partitions.iter().map(|(topic, partition)| {
        WritableTxnMarkerTopic::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(vec![*partition])
    });
    let marker = WritableTxnMarker::default()
        .with_producer_id(ProducerId(producer_id))
        .with_producer_epoch(epoch)
        .with_transaction_result(commit)
        .with_coordinator_epoch(coordinator_epoch)
        .with_topics(topics.collect());
    let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
    let response = client.send(1, &request).await;
    let topics = response.markers[0].topics.iter();
    topics
        .flat_map(|topic| topic.partitions.iter())
        .map(|partition| error_code(partition.error_code))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_are_listed_by_state_pattern_and_age() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    open_in_two(&mut client).await;
    TxnProducer::init(&mut client, "tx-idle").await;
    TxnProducer::init(&mut client, "other").await;
    let all = ListTransactionsRequest::default().with_duration_filter(-1);

    let listed = client.send(2, &all).await;
    let mut found = names(&listed);
    found.sort_unstable();
    assert_eq!(found, ["other", "tx", "tx-idle"]);

    let filters = vec![text("Ongoing"), text("Sleeping")];
    let ongoing = all.clone().with_state_filters(filters);
    let listed = client.send(2, &ongoing).await;
    assert_eq!(names(&listed), ["tx"]);
    assert_eq!(&*listed.transaction_states[0].transaction_state, "Ongoing");
    assert_eq!(listed.unknown_state_filters, [text("Sleeping")]);
    let none = all.clone().with_state_filters(vec![text("Sleeping")]);
    assert!(names(&client.send(0, &none).await).is_empty());

    // The whole id must match.
    for (pattern, count) in [("tx", 1), ("tx.*", 2), ("", 3), ("x", 0)] {
        let request = all
            .clone()
            .with_transactional_id_pattern(Some(text(pattern)));
        assert_eq!(
            names(&client.send(2, &request).await).len(),
            count,
            "{pattern:?}"
        );
    }
    let too_large = "(((a{1000}){1000}){1000})";
    for pattern in ["tx(", too_large] {
        let request = all
            .clone()
            .with_transactional_id_pattern(Some(text(pattern)));
        let answer = client.send(2, &request).await;
        assert_eq!(
            error_code(answer.error_code),
            ErrorCode::InvalidRegularExpression,
            "{pattern:?}"
        );
    }

    broker.clock().advance_ms(5_000);
    for (longer_than_ms, listed) in [(4_999, true), (5_000, false)] {
        let request = ongoing.clone().with_duration_filter(longer_than_ms);
        assert_eq!(
            names(&client.send(1, &request).await).contains(&"tx"),
            listed
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_described_survives_a_restart() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let producer = open_in_two(&mut client).await;
    let broker = broker.crash(7).await.start().await;
    let mut client = broker.client().await;

    let request = DescribeTransactionsRequest::default()
        .with_transactional_ids(["tx", "", "nobody"].map(transactional_id).to_vec());
    let described = client.send(0, &request).await;
    let tx = &described.transaction_states[0];
    assert_eq!(&*tx.transaction_state, "Ongoing");
    assert_eq!((tx.producer_id.0, tx.producer_epoch), producer.producer());
    let topics: Vec<_> = (tx.topics.iter())
        .map(|t| (&**t.topic, t.partitions.as_slice()))
        .collect();
    assert_eq!(topics, [("t", &[0][..]), ("u", &[1][..])]);
    let refused = described.transaction_states[1..].iter();
    let refused: Vec<ErrorCode> = refused.map(|s| error_code(s.error_code)).collect();
    let codes = [
        ErrorCode::InvalidRequest,
        ErrorCode::TransactionalIdNotFound,
    ];
    assert_eq!(refused, codes);

    let of = |topic, partitions: &[i32]| {
        TopicRequest::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(partitions.to_vec())
    };
    let topics = vec![of("t", &[0, -1]), of("no/topic", &[0]), of("u", &[0])];
    let request = DescribeProducersRequest::default().with_topics(topics);
    let described = client.send(0, &request).await;
    let answers: Vec<_> = (described.topics.iter())
        .flat_map(|topic| topic.partitions.iter())
        .map(|p| (error_code(p.error_code), p.active_producers.len()))
        .collect();
    assert_eq!(
        answers,
        [
            (ErrorCode::None, 1),
            (ErrorCode::UnknownTopicOrPartition, 0),
            (ErrorCode::InvalidTopicException, 0),
            (ErrorCode::None, 0),
        ]
    );
    assert_eq!(
        described.topics[0].partitions[0].active_producers[0].current_txn_start_offset,
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_abort_in_one_partition_aborts_the_whole_transaction() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let producer = open_in_two(&mut client).await;
    let (producer_id, epoch) = producer.producer();

    // What does not name the open transaction touches nothing.
    let t0 = [("t", 0)];
    for (who, commit, partitions, code) in [
        (
            (producer_id, epoch + 1),
            false,
            t0,
            ErrorCode::InvalidProducerEpoch,
        ),
        (
            (producer_id, epoch),
            true,
            t0,
            ErrorCode::ClusterAuthorizationFailed,
        ),
        (
            (producer_id, epoch),
            false,
            [("t", 9)],
            ErrorCode::UnknownTopicOrPartition,
        ),
        // It has not written there.
        ((producer_id, epoch), false, [("u", 0)], ErrorCode::None),
    ] {
        let codes = write_markers(&mut client, who, commit, 0, &partitions).await;
        assert_eq!(codes, [code]);
    }
    assert_eq!(client.ends("t", 1, RC).await, [0]);
    assert_eq!(client.ends("u", 2, RC).await, [0, 0]);

    let records = broker.journal_stats().records;
    let codes = write_markers(
        &mut client,
        (producer_id, epoch),
        false,
        0,
        &[t0[0], ("u", 1)],
    )
    .await;
    assert_eq!(codes, [ErrorCode::None, ErrorCode::None]);
    assert_eq!(broker.journal_stats().records, records + 1);
    assert_eq!(client.ends("t", 1, RC).await, [2]);
    assert_eq!(client.ends("u", 2, RC).await, [0, 2]);
    assert!(client.read_values("u", 1, RC).await.is_empty());

    // The instance is fenced, its id goes on.
    let late = client.end_txn("tx", (producer_id, epoch), true).await;
    assert_eq!(late, Err(ErrorCode::InvalidProducerEpoch));
    let mut next = TxnProducer::init(&mut client, "tx").await;
    next.enrol(&mut client, &t0).await.unwrap();
    let batch = next.batch("t", 0, &["kept"]).build();
    client.produce_in("tx", "t", 0, batch).await.unwrap();
    client.end_txn("tx", next.producer(), true).await.unwrap();
    assert_eq!(client.read_values("t", 0, RC).await, ["kept"]);

    // Asked again, it meets the next epoch.
    let again = write_markers(&mut client, (producer_id, epoch), false, 0, &t0).await;
    assert_eq!(again, [ErrorCode::InvalidProducerEpoch]);
    assert_eq!(client.read_values("t", 0, RC).await, ["kept"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_no_coordinator_knows_gets_the_bare_marker() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let t0 = [("t", 0)];
    let unknown = (77_000, 3);
    for coordinator_epoch in [5, 5] {
        let codes = write_markers(&mut client, unknown, false, coordinator_epoch, &t0).await;
        assert_eq!(codes, [ErrorCode::None]);
    }
    let older = write_markers(&mut client, unknown, false, 4, &t0).await;
    assert_eq!(older, [ErrorCode::TransactionCoordinatorFenced]);
    let older = write_markers(&mut client, (77_000, 2), false, 5, &t0).await;
    assert_eq!(older, [ErrorCode::InvalidProducerEpoch]);
    for nobody in [(-1, -1), (77_000, -1), (-1, 3)] {
        let codes = write_markers(&mut client, nobody, false, 5, &t0).await;
        assert_eq!(codes, [ErrorCode::InvalidRequest], "{nobody:?}");
    }
    let read = client.fetch("t", 0, 0, Isolation::ReadUncommitted).await;
    assert_eq!(
        read.markers(),
        [
            (77_000, 0, ControlType::Abort),
            (77_000, 1, ControlType::Abort)
        ]
    );
    assert_eq!(client.ends("t", 1, RC).await, [2]);
}
