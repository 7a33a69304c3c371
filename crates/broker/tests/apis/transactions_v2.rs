//! Transaction version 2 on the wire (KIP-890), beside the classic dialect.

use kafka_protocol::messages::ApiVersionsRequest;
use kafka_protocol::messages::produce_request::TopicProduceData;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest};
use tidemark_record_batch::ControlType;
use tidemark_testkit::requests::{self, error_code, text};
use tidemark_testkit::{
    Batch, Dialect, Isolation, RawClient, TestBroker, TxnProducer, enrolled, fetched, produced,
    txn_offsets_committed,
};
use tidemark_types::ErrorCode;

use crate::support::{ProducerV2, end_txn};

const RC: Isolation = Isolation::ReadCommitted;
const RU: Isolation = Isolation::ReadUncommitted;

/// A broker with topic `t` of one partition, and a connection.
async fn with_topic() -> (TestBroker, RawClient) {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    (broker, client)
}

/// (high watermark, last stable offset) of `t`-0.
async fn ends(client: &mut RawClient) -> (i64, i64) {
    (
        client.ends("t", 1, RU).await[0],
        client.ends("t", 1, RC).await[0],
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn features_are_told_as_each_version_may_hear_them() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("tests"))
        .with_client_software_version(text("1"));
    for version in 3..=4 {
        let response = client.send(version, &request).await;
        assert_eq!(response.error_code, 0);
        let supported: Vec<(&str, i16, i16)> = (response.supported_features.iter())
            .map(|f| (&*f.name, f.min_version, f.max_version))
            .collect();
        let metadata = ("metadata.version", 7, 27);
        let transaction = ("transaction.version", 0, 2);
        match version {
            // KAFKA-17492: a smallest level of 0 stops older Java clients.
            3 => assert_eq!(supported, [metadata]),
            _ => assert_eq!(supported, [metadata, transaction]),
        }
        let finalized: Vec<(&str, i16, i16)> = (response.finalized_features.iter())
            .map(|f| (&*f.name, f.min_version_level, f.max_version_level))
            .collect();
        // group.version is at 0: KIP-848's groups are not served. Kafka 4.1 tells level 0 of a feature by leaving it out.
        let in_force = [("metadata.version", 27, 27), ("transaction.version", 2, 2)];
        assert_eq!(finalized, in_force);
        assert!(response.finalized_features_epoch >= 0);
    }
    for version in 0..3 {
        let response = client.send(version, &ApiVersionsRequest::default()).await;
        assert!(response.finalized_features.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_needs_no_add_partitions_and_ends_with_the_next_epoch() {
    let (_broker, mut client) = with_topic().await;
    client.create_topic("u", 2).await;
    let mut x = ProducerV2::init(&mut client, "tx", 60_000).await;
    let (producer_id, epoch) = x.producer();
    assert_eq!(x.send(&mut client, "t", 0, &["a"]).await, Ok(0));
    assert_eq!(x.send(&mut client, "u", 1, &["b", "c"]).await, Ok(0));
    assert_eq!(x.send(&mut client, "t", 0, &["d"]).await, Ok(1));
    x.send_offsets(&mut client, "g", &[("t", 0, 43)])
        .await
        .unwrap();
    assert_eq!(ends(&mut client).await, (2, 0));
    let fetched = client.committed_offset("g", "t", 0, true).await;
    assert_eq!(fetched, Err(ErrorCode::UnstableOffsetCommit));

    x.end(&mut client, true).await.unwrap();
    assert_eq!(x.producer(), (producer_id, epoch + 1));
    assert_eq!(client.read_values("t", 0, RC).await, ["a", "d"]);
    assert_eq!(client.read_values("u", 1, RC).await, ["b", "c"]);
    assert_eq!(client.committed_offset("g", "t", 0, true).await, Ok(43));
    // The marker carries the next epoch: it fences what is late by itself.
    let log = client.fetch("t", 0, 0, RC).await;
    assert_eq!(log.batches[2].control, Some(ControlType::Commit));
    assert_eq!(log.batches[2].header.producer_epoch.0, epoch + 1);

    // The next one aborts, and takes its group's offset with it.
    assert_eq!(x.send(&mut client, "t", 0, &["no"]).await, Ok(3));
    x.send_offsets(&mut client, "g", &[("t", 0, 99)])
        .await
        .unwrap();
    x.end(&mut client, false).await.unwrap();
    assert_eq!(x.producer(), (producer_id, epoch + 2));
    assert_eq!(client.read_values("t", 0, RC).await, ["a", "d"]);
    assert_eq!(client.committed_offset("g", "t", 0, true).await, Ok(43));
    assert_eq!(ends(&mut client).await, (5, 5));
}

/// A11. Two copies of one EndTxn: the late one must not end the transaction after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a11_a_delayed_end_does_not_end_the_next_transaction() {
    let (_broker, mut client) = with_topic().await;
    let mut x = ProducerV2::init(&mut client, "tx", 60_000).await;
    let first = x.producer();
    x.send(&mut client, "t", 0, &["r1"]).await.unwrap();
    x.end(&mut client, true).await.unwrap();
    x.send(&mut client, "t", 0, &["r2"]).await.unwrap();

    let late = end_txn(&mut client, "tx", first, true).await;
    assert_eq!(late, Err(ErrorCode::ProducerFenced));
    assert_eq!(ends(&mut client).await, (3, 2), "r2 is still open");

    x.end(&mut client, false).await.unwrap();
    assert_eq!(client.read_values("t", 0, RC).await, ["r1"]);
}

/// A12. The answer to an EndTxn may be lost: asked again it is the same, and nothing is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a12_an_end_that_is_sent_again_is_answered_as_the_first_time() {
    for commit in [true, false] {
        let (broker, mut client) = with_topic().await;
        let mut x = ProducerV2::init(&mut client, "tx", 60_000).await;
        let before = x.producer();
        x.send(&mut client, "t", 0, &["a"]).await.unwrap();
        x.end(&mut client, commit).await.unwrap();
        let after = Ok((before.0, before.1 + 1));
        let end = client.ends("t", 1, RU).await;
        assert_eq!(end_txn(&mut client, "tx", before, commit).await, after);
        let other = end_txn(&mut client, "tx", before, !commit).await;
        assert_eq!(other, Err(ErrorCode::InvalidTxnState));
        // Also when the broker has forgotten that it ever answered.
        let broker = broker.crash(5).await.start().await;
        let mut client = broker.client().await;
        assert_eq!(end_txn(&mut client, "tx", before, commit).await, after);
        assert_eq!(client.ends("t", 1, RU).await, end, "no second marker");
    }
}

/// A13. A transaction that wrote nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a13_an_empty_transaction_can_be_aborted_and_not_committed() {
    let (_broker, mut client) = with_topic().await;
    client.create_topic("u", 1).await;
    let mut x = ProducerV2::init(&mut client, "tx", 60_000).await;
    let commit = end_txn(&mut client, "tx", x.producer(), true).await;
    assert_eq!(commit, Err(ErrorCode::InvalidTxnState));
    let before = x.producer();
    x.end(&mut client, false).await.unwrap();
    assert_eq!(x.producer(), (before.0, before.1 + 1));

    // Enrolled and never written: the partition gets its marker, readers get nothing.
    let enrol = requests::add_partitions("tx", x.producer(), &[("t", 0), ("u", 0)]);
    assert_eq!(enrolled(&client.send(3, &enrol).await), Ok(()));
    x.send(&mut client, "u", 0, &["written"]).await.unwrap();
    x.end(&mut client, true).await.unwrap();
    assert_eq!(ends(&mut client).await, (1, 1));
    assert!(client.read_values("t", 0, RC).await.is_empty());
    assert_eq!(client.read_values("u", 0, RC).await, ["written"]);
}

/// A14. The zombie learns of its end from every request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a14_a_zombie_is_fenced() {
    let (_broker, mut client) = with_topic().await;
    let mut zombie = ProducerV2::init(&mut client, "tx", 60_000).await;
    zombie.send(&mut client, "t", 0, &["r1"]).await.unwrap();

    let mut heir = ProducerV2::init(&mut client, "tx", 60_000).await;
    assert_eq!(heir.producer_id, zombie.producer_id);
    assert!(heir.epoch > zombie.epoch);
    assert_eq!(ends(&mut client).await, (2, 2), "aborted when answered");

    let produce = zombie.send(&mut client, "t", 0, &["r2"]).await;
    assert_eq!(produce, Err(ErrorCode::InvalidProducerEpoch));
    let offsets = zombie.send_offsets(&mut client, "g", &[("t", 0, 1)]).await;
    assert_eq!(offsets, Err(ErrorCode::InvalidProducerEpoch));
    for commit in [true, false] {
        let end = end_txn(&mut client, "tx", zombie.producer(), commit).await;
        assert_eq!(end, Err(ErrorCode::ProducerFenced));
    }
    heir.send(&mut client, "t", 0, &["r3"]).await.unwrap();
    heir.end(&mut client, true).await.unwrap();
    assert_eq!(client.read_values("t", 0, RC).await, ["r3"]);
}

/// A16. The timeout fences; the instance that was overtaken aborts and goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a16_m15_a_transaction_past_its_timeout_can_only_be_aborted() {
    let (broker, mut client) = with_topic().await;
    let mut x = ProducerV2::init(&mut client, "tx", 2_000).await;
    x.send(&mut client, "t", 0, &["r1"]).await.unwrap();
    broker.clock().advance_ms(2_001);
    while ends(&mut client).await != (2, 2) {
        tokio::task::yield_now().await;
    }
    let produce = x.clone().send(&mut client, "t", 0, &["r2"]).await;
    assert_eq!(produce, Err(ErrorCode::InvalidProducerEpoch));
    let offsets = x.send_offsets(&mut client, "g", &[("t", 0, 1)]).await;
    assert_eq!(offsets, Err(ErrorCode::TransactionAbortable));
    let commit = end_txn(&mut client, "tx", x.producer(), true).await;
    assert_eq!(commit, Err(ErrorCode::TransactionAbortable));
    assert_eq!(ends(&mut client).await, (2, 2));

    let before = x.producer();
    x.end(&mut client, false).await.unwrap();
    assert_eq!(x.producer(), (before.0, before.1 + 1));
    x.send(&mut client, "t", 0, &["r3"]).await.unwrap();
    x.end(&mut client, true).await.unwrap();
    assert_eq!(client.read_values("t", 0, RC).await, ["r3"]);

    // And by a new session.
    x.send(&mut client, "t", 0, &["r4"]).await.unwrap();
    broker.clock().advance_ms(2_001);
    while ends(&mut client).await.1 != 6 {
        tokio::task::yield_now().await;
    }
    let mut y = ProducerV2::init(&mut client, "tx", 2_000).await;
    y.send(&mut client, "t", 0, &["r5"]).await.unwrap();
    y.end(&mut client, true).await.unwrap();
    assert_eq!(client.read_values("t", 0, RC).await, ["r3", "r5"]);
}

/// A17. A batch that was on its way when its transaction ended opens nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a17_a_late_batch_does_not_open_a_transaction() {
    let (_broker, mut client) = with_topic().await;
    client.create_topic("u", 1).await;
    let mut x = ProducerV2::init(&mut client, "tx", 60_000).await;
    x.send(&mut client, "t", 0, &["r1"]).await.unwrap();
    let mut late = x.clone();
    x.end(&mut client, false).await.unwrap();
    for topic in ["t", "u"] {
        let produce = late.send(&mut client, topic, 0, &["late"]).await;
        assert_eq!(produce, Err(ErrorCode::InvalidProducerEpoch), "{topic}");
    }
    assert_eq!(ends(&mut client).await, (2, 2));
    assert_eq!(client.ends("u", 1, RU).await, [0]);

    // The classic dialect, where the epoch stays: the coordinator knows of no such transaction.
    let mut classic = TxnProducer::init(&mut client, "classic").await;
    classic.enrol(&mut client, &[("u", 0)]).await.unwrap();
    classic.send(&mut client, "u", 0, &["c1"]).await.unwrap();
    classic.end(&mut client, false).await.unwrap();
    let batch = classic.batch("u", 0, &["late"]).build();
    let request = requests::produce(Some("classic"), [("u", 0, batch)]);
    for (version, error) in [
        (3, ErrorCode::InvalidTxnState),
        (10, ErrorCode::InvalidTxnState),
        (11, ErrorCode::TransactionAbortable),
    ] {
        let refused = produced(&client.send(version, &request).await);
        assert_eq!(refused, [Err(error)], "v{version}");
    }
    assert_eq!(client.ends("u", 1, RU).await, [2]);
    assert_eq!(client.ends("u", 1, RC).await, [2]);
}

/// Sequences begin at 0 with every epoch; a gap at the start is told, not accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_transaction_begins_at_sequence_0() {
    let (_broker, mut client) = with_topic().await;
    let mut x = ProducerV2::init(&mut client, "tx", 60_000).await;
    let ahead = |producer: (i64, i16), sequence| {
        let batch = Batch::of(&["ahead"])
            .producer(producer.0, producer.1, sequence)
            .transactional();
        requests::produce(Some("tx"), [("t", 0, batch.build())])
    };
    for _ in 0..2 {
        let request = ahead(x.producer(), 1);
        let refused = produced(&client.send(12, &request).await);
        assert_eq!(refused, [Err(ErrorCode::OutOfOrderSequenceNumber)]);
        x.send(&mut client, "t", 0, &["a"]).await.unwrap();
        x.end(&mut client, true).await.unwrap();
    }
    assert_eq!(client.read_values("t", 0, RC).await, ["a", "a"]);
}

/// One id, both dialects in turn: an upgrade of a client, and its rollback.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_moves_between_the_dialects_while_it_lives() {
    let (broker, mut client) = with_topic().await;
    let mut now = TxnProducer::init(&mut client, "tx").await.producer();
    let mut written = Vec::new();
    for round in 0..3i16 {
        // Classic: the epoch stays over two transactions, sequences go on.
        let mut classic = TxnProducer::at("tx", now, Dialect::Classic);
        for n in 0..2 {
            let value = format!("classic {round} {n}");
            classic.enrol(&mut client, &[("t", 0)]).await.unwrap();
            classic.send(&mut client, "t", 0, &[&value]).await.unwrap();
            let end = requests::end_txn("tx", classic.producer(), true);
            let response = client.send(4, &end).await;
            assert_eq!(response.error_code, 0);
            written.push(value);
        }
        // Version 2 under the epoch that the classic client left behind: what that one sent is
        // still in the window, so its sequences go on for one transaction.
        let mut v2 = ProducerV2::at("tx", classic.producer());
        let value = format!("enrolled here {round}");
        let sequence = classic.sequences[&("t".to_owned(), 0)];
        let batch = Batch::of(&[&value])
            .producer(v2.producer_id, v2.epoch, sequence)
            .transactional();
        let request = requests::produce(Some("tx"), [("t", 0, batch.build())]);
        assert!(produced(&client.send(12, &request).await)[0].is_ok());
        written.push(value);
        v2.end(&mut client, true).await.unwrap();
        assert_eq!(v2.producer(), (now.0, now.1 + 1));
        for n in 0..2 {
            let value = format!("version 2 {round} {n}");
            v2.send(&mut client, "t", 0, &[&value]).await.unwrap();
            v2.end(&mut client, true).await.unwrap();
            written.push(value);
        }
        now = v2.producer();
        assert_eq!(now.1, 3 * (round + 1));
    }
    assert_eq!(client.read_values("t", 0, RC).await, written);
    let broker = broker.crash(9).await.start().await;
    let mut client = broker.client().await;
    assert_eq!(client.read_values("t", 0, RC).await, written);

    // Enrolled the classic way, ended the new way, and the other way round.
    let mut v2 = ProducerV2::at("tx", now);
    let enrol = requests::add_partitions("tx", v2.producer(), &[("t", 0)]);
    assert_eq!(enrolled(&client.send(3, &enrol).await), Ok(()));
    v2.send(&mut client, "t", 0, &["mixed"]).await.unwrap();
    let end = requests::end_txn("tx", v2.producer(), true);
    assert_eq!(client.send(1, &end).await.error_code, 0);
    let again = end_txn(&mut client, "tx", v2.producer(), true).await;
    assert_eq!(again, Err(ErrorCode::InvalidTxnState), "it has ended");
    written.push("mixed".to_owned());
    assert_eq!(client.read_values("t", 0, RC).await, written);
}

/// The last epoch of a producer id: its transaction ends under the next producer id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_run_out_and_the_session_goes_on_under_another_producer_id() {
    let (broker, mut client) = with_topic().await;
    let first = ProducerV2::init(&mut client, "tx", 60_000).await;
    let request = requests::init_producer_id(Some("tx"), 60_000);
    let mut sessions = Vec::new();
    for _ in 0..i16::MAX - 1 {
        sessions.push(client.start_request(5, &request).await);
        if sessions.len() == 90 {
            for session in sessions.drain(..) {
                assert_eq!(session.answer().await.error_code, 0);
            }
        }
    }
    let last = sessions.pop().unwrap().answer().await;
    let old = (last.producer_id.0, last.producer_epoch);
    assert_eq!(old, (first.producer_id, 32_766));

    let mut x = ProducerV2::at("tx", old);
    x.send(&mut client, "t", 0, &["last"]).await.unwrap();
    x.end(&mut client, true).await.unwrap();
    assert_ne!(x.producer_id, old.0);
    assert_eq!(x.epoch, 0);
    let marker = &client.fetch("t", 0, 1, RC).await.batches[0];
    let of_old = (marker.header.producer_id.0, marker.header.producer_epoch.0);
    assert_eq!(of_old, (old.0, i16::MAX));

    // The answer was lost, the broker too: asked again it is the same.
    let broker = broker.crash(2).await.start().await;
    let mut client = broker.client().await;
    let again = end_txn(&mut client, "tx", old, true).await;
    assert_eq!(again, Ok(x.producer()));
    let mut late = ProducerV2::at("tx", old);
    let refused = late.send(&mut client, "t", 0, &["late"]).await;
    assert_eq!(refused, Err(ErrorCode::InvalidProducerEpoch));

    x.send(&mut client, "t", 0, &["first"]).await.unwrap();
    x.end(&mut client, true).await.unwrap();
    assert_eq!(x.epoch, 1);
    assert_eq!(client.read_values("t", 0, RC).await, ["last", "first"]);
}

/// KIP-588, KIP-890: a client is told what it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_versions_hear_of_fencing_in_their_own_words() {
    let (_broker, mut client) = with_topic().await;
    let zombie = TxnProducer::init(&mut client, "tx").await.producer();
    let heir = TxnProducer::init(&mut client, "tx").await.producer();
    let old = ErrorCode::InvalidProducerEpoch;
    let new = ErrorCode::ProducerFenced;

    for (version, error) in [(3, old), (4, new), (5, new)] {
        let request = requests::init_producer_id(Some("tx"), 60_000)
            .with_producer_id(zombie.0.into())
            .with_producer_epoch(zombie.1);
        let response = client.send(version, &request).await;
        assert_eq!(
            error_code(response.error_code),
            error,
            "InitProducerId v{version}"
        );
    }
    for version in 0..=3 {
        let request = requests::add_partitions("tx", zombie, &[("t", 0)]);
        let refused = enrolled(&client.send(version, &request).await);
        let error = if version < 2 { old } else { new };
        assert_eq!(refused, Err(error), "AddPartitionsToTxn v{version}");
    }
    for version in 0..=4 {
        let request = requests::add_offsets("tx", zombie, "g");
        let response = client.send(version, &request).await;
        let error = if version < 2 { old } else { new };
        assert_eq!(
            error_code(response.error_code),
            error,
            "AddOffsetsToTxn v{version}"
        );
    }
    for version in 0..=5 {
        let request = requests::end_txn("tx", zombie, true);
        let response = client.send(version, &request).await;
        let error = if version < 2 { old } else { new };
        assert_eq!(error_code(response.error_code), error, "EndTxn v{version}");
    }
    for version in 0..=5 {
        let request =
            requests::txn_offset_commit("tx", zombie, "g", &[("t", 0, 1)]).with_generation_id(-1);
        let refused = txn_offsets_committed(&client.send(version, &request).await);
        assert_eq!(refused, Err(old), "TxnOffsetCommit v{version}");
        if version < 5 {
            // The present session, whose transaction does not have the group.
            let request =
                requests::txn_offset_commit("tx", heir, "g", &[("t", 0, 1)]).with_generation_id(-1);
            let refused = txn_offsets_committed(&client.send(version, &request).await);
            let error = match version {
                ..4 => ErrorCode::InvalidTxnState,
                4.. => ErrorCode::TransactionAbortable,
            };
            assert_eq!(refused, Err(error), "TxnOffsetCommit v{version}");
        }
    }
}

/// The right to write is the named id's: another's producer id does not come along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transactional_batch_is_written_for_the_id_it_names() {
    let (_broker, mut client) = with_topic().await;
    let x = ProducerV2::init(&mut client, "tx", 60_000).await;
    ProducerV2::init(&mut client, "other", 60_000).await;
    let batch = Batch::of(&["a"])
        .producer(x.producer_id, x.epoch, 0)
        .transactional()
        .build();
    for (named, error) in [
        (None, ErrorCode::TransactionalIdAuthorizationFailed),
        (Some("other"), ErrorCode::InvalidProducerIdMapping),
        (Some("unheard of"), ErrorCode::InvalidProducerIdMapping),
    ] {
        let request = requests::produce(named, [("t", 0, batch.clone())]);
        for version in [10, 12] {
            let refused = produced(&client.send(version, &request).await);
            assert_eq!(refused, [Err(error)], "{named:?} v{version}");
        }
    }
    assert_eq!(ends(&mut client).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn produce_v13_names_topics_by_their_id() {
    let (_broker, mut client) = with_topic().await;
    let id = client.describe_topic("t").await.topic_id;
    let unknown = uuid::Uuid::from_u128(77);
    let produce = |id: uuid::Uuid, partition: i32| {
        let mut request = requests::produce(None, [("", partition, Batch::of(&["a"]).build())]);
        let partitions = std::mem::take(&mut request.topic_data[0].partition_data);
        request.topic_data[0] = TopicProduceData::default()
            .with_topic_id(id)
            .with_partition_data(partitions);
        request
    };
    for (id, partition, expected) in [
        (id, 0, Ok(0)),
        (id, 1, Err(ErrorCode::UnknownTopicOrPartition)),
        (unknown, 0, Err(ErrorCode::UnknownTopicId)),
        (uuid::Uuid::nil(), 0, Err(ErrorCode::UnknownTopicId)),
    ] {
        let response = client.send(13, &produce(id, partition)).await;
        assert_eq!(response.responses[0].topic_id, id);
        assert_eq!(produced(&response), [expected], "{id} {partition}");
    }
    let log = client.fetch("t", 0, 0, RU).await;
    assert_eq!(log.values(), ["a"]);
    assert_eq!(log.high_watermark, 1);
    // A topic that is made again has another id: what was meant for the old one does not end there.
    let request = kafka_protocol::messages::DeleteTopicsRequest::default()
        .with_topic_names(vec![requests::topic_name("t")])
        .with_timeout_ms(30_000);
    assert_eq!(client.send(4, &request).await.responses[0].error_code, 0);
    client.create_topic("t", 1).await;
    let refused = produced(&client.send(13, &produce(id, 0)).await);
    assert_eq!(refused, [Err(ErrorCode::UnknownTopicId)]);
    assert_eq!(client.ends("t", 1, RU).await, [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinators_are_found_one_by_one_and_in_batches() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let port = i32::from(broker.address().port());
    const MALFORMED: i16 = ErrorCode::InvalidRequest as i16;
    for key_type in 0..=3i8 {
        let error = if key_type <= 1 { 0 } else { MALFORMED };
        let node = BrokerId(if error == 0 { 0 } else { -1 });
        let port = if error == 0 { port } else { -1 };
        for version in 1..=3 {
            let request = FindCoordinatorRequest::default()
                .with_key(text("k"))
                .with_key_type(key_type);
            let found = client.send(version, &request).await;
            assert_eq!(
                (found.error_code, found.node_id, found.port),
                (error, node, port)
            );
        }
        for version in 4..=6 {
            let request = FindCoordinatorRequest::default()
                .with_key_type(key_type)
                .with_coordinator_keys(vec![text("a"), text(""), text("a")]);
            let found = client.send(version, &request).await.coordinators;
            let keys: Vec<&str> = found.iter().map(|c| &*c.key).collect();
            assert_eq!(keys, ["a", "", "a"]);
            for c in &found {
                assert_eq!((c.error_code, c.node_id, c.port), (error, node, port));
            }
        }
    }
    let request = FindCoordinatorRequest::default().with_key(text("k"));
    let found = client.send(0, &request).await;
    assert_eq!((found.error_code, found.port), (0, port));
    let none = client.send(4, &FindCoordinatorRequest::default()).await;
    assert!(none.coordinators.is_empty());
}

/// KIP-447 with version 2: a member that is behind does not commit, and nothing stays pending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a20_a_stale_generation_commits_nothing() {
    let (_broker, mut client) = with_topic().await;
    let mut x = ProducerV2::init(&mut client, "tx", 60_000).await;
    x.send(&mut client, "t", 0, &["a"]).await.unwrap();
    let request = requests::txn_offset_commit("tx", x.producer(), "g", &[("t", 0, 7)])
        .with_generation_id(4)
        .with_member_id(text("m"));
    let refused = txn_offsets_committed(&client.send(5, &request).await);
    assert_eq!(refused, Err(ErrorCode::IllegalGeneration));
    assert_eq!(client.committed_offset("g", "t", 0, true).await, Ok(-1));
    x.send_offsets(&mut client, "g", &[("t", 0, 8)])
        .await
        .unwrap();
    x.end(&mut client, true).await.unwrap();
    assert_eq!(client.committed_offset("g", "t", 0, true).await, Ok(8));
}

/// Markers of both dialects, as a reader sees them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a6_an_aborted_version_2_transaction_is_listed_for_its_readers() {
    let (_broker, mut client) = with_topic().await;
    let mut x = ProducerV2::init(&mut client, "tx", 60_000).await;
    x.send(&mut client, "t", 0, &["a"]).await.unwrap();
    x.end(&mut client, false).await.unwrap();
    x.send(&mut client, "t", 0, &["b"]).await.unwrap();
    x.end(&mut client, true).await.unwrap();
    let request = requests::fetch("t", &[(0, 0)], RC);
    let seen = fetched(&client.send(12, &request).await).remove(0);
    assert_eq!(seen.aborted, Some(vec![(x.producer_id, 0)]));
    let kinds: Vec<ControlType> = seen.markers().iter().map(|m| m.2).collect();
    assert_eq!(kinds, [ControlType::Abort, ControlType::Commit]);
    let values: Vec<String> = seen.committed().iter().map(|r| r.text()).collect();
    assert_eq!(values, ["b"]);
}
