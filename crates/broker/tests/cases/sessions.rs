//! Sessions of a transactional id: fencing, timeouts, what the instance that was overtaken is told.

use kafka_protocol::messages::EndTxnResponse;
use tidemark_record_batch::ControlType;
use tidemark_testkit::{Dialect, Isolation, RawClient, TestBroker, TxnProducer, requests, version};
use tidemark_types::ErrorCode;
use tidemark_wire::ApiKey;

use crate::support::{Target, code, in_both_dialects};

/// EndTxn of an instance that is no longer the owner, at every classic version: never success, and
/// the code its client knows.
async fn assert_fenced(client: &mut RawClient, producer: &TxnProducer, commit: bool) {
    let served = ApiKey::EndTxn.api().serves.expect("EndTxn is served");
    for version in served.versions.min..=served.versions.max.min(4) {
        let request = requests::end_txn(&producer.id, producer.producer(), commit);
        let answer: EndTxnResponse = client.send(version, &request).await;
        let want = match version {
            2.. => ErrorCode::ProducerFenced,
            _ => ErrorCode::InvalidProducerEpoch,
        };
        assert_eq!(code(answer.error_code), want, "EndTxn v{version}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a14_a_zombie_is_fenced() {
    let target = Target::start().await;
    let (mut client_x, mut client_y) = (target.client().await, target.client().await);
    let topic = target.topic(&mut client_x, "t", 2).await;
    let id = target.name("tx1");
    let mut x = target.session(&mut client_x, &id).await;
    target.begin(&mut client_x, &x, &[(&topic, 0)]).await;
    assert_eq!(x.send(&mut client_x, &topic, 0, &["r1"]).await, Ok(0));

    let y = target.session(&mut client_y, &id).await;
    assert_eq!(y.producer_id, x.producer_id);
    // One epoch for the markers of the abort, one for the new session.
    assert_eq!(y.epoch, x.epoch + 2);
    target.assert_ends(&mut client_x, &topic, 0, (2, 2)).await;

    let zombie = x.send(&mut client_x, &topic, 0, &["r2"]).await;
    assert_eq!(zombie, Err(ErrorCode::InvalidProducerEpoch));
    assert_fenced(&mut client_x, &x, true).await;
    assert_fenced(&mut client_x, &x, false).await;
    let enrolled = x.enrol(&mut client_x, &[(&topic, 0)]).await;
    assert_eq!(enrolled, Err(ErrorCode::InvalidProducerEpoch));
    let offsets = x
        .send_offsets(&mut client_x, &target.name("g"), &[(&topic, 0, 1)])
        .await;
    assert_eq!(offsets, Err(ErrorCode::InvalidProducerEpoch));
    target.assert_ends(&mut client_x, &topic, 0, (2, 2)).await;
    let values = client_x
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert!(values.is_empty(), "{values:?}");

    // Nor may it write where its id has never been seen (Kafka lets that batch in: it knows of the
    // new epoch only where a marker went).
    if !target.is_kafka() {
        let plain = tidemark_testkit::Batch::of(&["z"]).producer(x.producer_id, x.epoch, 0);
        let zombie = client_x.produce(&topic, 1, plain.build()).await;
        assert_eq!(zombie, Err(ErrorCode::InvalidProducerEpoch));
        target.assert_ends(&mut client_x, &topic, 1, (0, 0)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m5_the_new_session_ends_the_old_ones_transaction() {
    in_both_dialects(m5_story).await;
}

async fn m5_story(dialect: Dialect) {
    let target = Target::start().await;
    let (mut client_a, mut client_b) = (target.client().await, target.client().await);
    let topic = target.topic(&mut client_a, "t", 1).await;
    let id = target.name("tx");
    let mut a = target.session_in(&mut client_a, &id, dialect).await;
    assert_eq!(a.epoch, 0);
    target.begin(&mut client_a, &a, &[(&topic, 0)]).await;
    assert_eq!(
        a.send(&mut client_a, &topic, 0, &["0", "1", "2"]).await,
        Ok(0)
    );

    let mut b = target.session_in(&mut client_b, &id, dialect).await;
    assert!(b.epoch >= 1);
    target.assert_ends(&mut client_b, &topic, 0, (4, 4)).await;
    let fetched = client_b.fetch(&topic, 0, 0, Isolation::ReadCommitted).await;
    assert_eq!(fetched.markers(), [(a.producer_id, 3, ControlType::Abort)]);
    assert_eq!(fetched.aborted, Some(vec![(a.producer_id, 0)]));
    assert_fenced(&mut client_a, &a, true).await;

    target.begin(&mut client_b, &b, &[(&topic, 0)]).await;
    assert_eq!(b.send(&mut client_b, &topic, 0, &["of b"]).await, Ok(4));
    assert_eq!(b.end(&mut client_b, true).await, Ok(()));
    target.assert_ends(&mut client_b, &topic, 0, (6, 6)).await;
    let values = client_a
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert_eq!(values, ["of b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m6_the_same_connection_starts_over() {
    in_both_dialects(m6_story).await;
}

async fn m6_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let id = target.name("tx");
    let mut before = target.session_in(&mut client, &id, dialect).await;
    target.begin(&mut client, &before, &[(&topic, 0)]).await;
    assert_eq!(
        before.send(&mut client, &topic, 0, &["a", "b"]).await,
        Ok(0)
    );

    let mut after = target.session_in(&mut client, &id, dialect).await;
    assert_eq!(after.epoch, 2, "epoch 1 is that of the abort's markers");
    let mut between = TxnProducer {
        epoch: 1,
        ..after.clone()
    };
    let sent = between.send(&mut client, &topic, 0, &["x"]).await;
    assert_eq!(sent, Err(ErrorCode::InvalidProducerEpoch));
    target.begin(&mut client, &after, &[(&topic, 0)]).await;
    assert_eq!(after.send(&mut client, &topic, 0, &["c"]).await, Ok(3));
    assert_eq!(after.end(&mut client, false).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (5, 5)).await;
    let values = client
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert!(values.is_empty(), "{values:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a15_a_timeout_out_of_range_is_refused_and_leaves_nothing() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let id = target.name("tx1");
    let served = ApiKey::InitProducerId.api().serves.expect("it is served");
    for version in served.versions.iter() {
        for timeout_ms in [900_001, i32::MAX, 0, -1] {
            let request = requests::init_producer_id(Some(&id), timeout_ms);
            let answer = client.send(version, &request).await;
            let want = ErrorCode::InvalidTransactionTimeout;
            assert_eq!(code(answer.error_code), want, "{timeout_ms} ms, v{version}");
            assert_eq!((answer.producer_id.0, answer.producer_epoch), (-1, -1));
        }
    }
    let request = requests::init_producer_id(Some(&id), 900_000);
    let granted = client.send(version::INIT_PRODUCER_ID, &request).await;
    assert_eq!(
        (code(granted.error_code), granted.producer_epoch),
        (ErrorCode::None, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a16_m15_a_transaction_past_its_timeout_is_aborted_and_its_client_fenced() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let request = requests::init_producer_id(Some("tx"), 2000);
    let granted = client.send(version::INIT_PRODUCER_ID, &request).await;
    let granted = (granted.producer_id.0, granted.producer_epoch);
    let mut silent = TxnProducer::at("tx", granted, Dialect::Classic);
    silent.enrol(&mut client, &[("t", 0)]).await.unwrap();
    assert_eq!(silent.send(&mut client, "t", 0, &["r1"]).await, Ok(0));

    // Asked through the owner, which has then seen the time: one millisecond before it is over.
    broker.clock().advance_ms(1999);
    client.committed_offset("g", "t", 0, false).await.unwrap();
    assert_eq!(client.ends("t", 1, Isolation::ReadCommitted).await, [0]);
    broker.clock().advance_ms(1);
    client.committed_offset("g", "t", 0, false).await.unwrap();
    assert_eq!(client.ends("t", 1, Isolation::ReadCommitted).await, [2]);
    let fetched = client.fetch("t", 0, 0, Isolation::ReadCommitted).await;
    assert_eq!(
        fetched.markers(),
        [(silent.producer_id, 1, ControlType::Abort)]
    );
    assert!(fetched.committed().is_empty());

    assert_fenced(&mut client, &silent, true).await;
    assert_fenced(&mut client, &silent, false).await;
    let late = silent.send(&mut client, "t", 0, &["late"]).await;
    assert_eq!(late, Err(ErrorCode::InvalidProducerEpoch));
    assert_eq!(client.ends("t", 1, Isolation::ReadUncommitted).await, [2]);

    let mut next = TxnProducer::init(&mut client, "tx").await;
    assert_eq!(next.producer_id, silent.producer_id);
    assert!(next.epoch > silent.epoch);
    next.enrol(&mut client, &[("t", 0)]).await.unwrap();
    assert_eq!(next.send(&mut client, "t", 0, &["r2"]).await, Ok(2));
    assert_eq!(next.end(&mut client, true).await, Ok(()));
    let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["r2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t6_a_lease_is_renewed_by_what_is_appended() {
    let broker = TestBroker::builder()
        .set("transaction.lease.mode", "renew")
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let request = requests::init_producer_id(Some("tx"), 10_000);
    let granted = client.send(version::INIT_PRODUCER_ID, &request).await;
    let granted = (granted.producer_id.0, granted.producer_epoch);
    let mut working = TxnProducer::at("tx", granted, Dialect::Classic);
    working.enrol(&mut client, &[("t", 0)]).await.unwrap();
    for n in 0..3 {
        let sent = working.send(&mut client, "t", 0, &[n.to_string()]).await;
        assert_eq!(sent, Ok(n));
        broker.clock().advance_ms(8_000);
    }
    broker.clock().advance_ms(1_999);
    client.committed_offset("g", "t", 0, false).await.unwrap();
    assert_eq!(client.ends("t", 1, Isolation::ReadCommitted).await, [0]);
    broker.clock().advance_ms(1);
    client.committed_offset("g", "t", 0, false).await.unwrap();
    assert_eq!(client.ends("t", 1, Isolation::ReadCommitted).await, [4]);
    assert_fenced(&mut client, &working, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t8_an_exclusive_operation_aborts_what_it_cuts_through() {
    let broker = TestBroker::builder()
        .set("transaction.exclusive.operations", "DeleteRecords")
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("a", 1).await;
    client.create_topic("b", 1).await;
    let mut cut = TxnProducer::init(&mut client, "cut").await;
    let mut other = TxnProducer::init(&mut client, "other").await;
    cut.enrol(&mut client, &[("a", 0)]).await.unwrap();
    other.enrol(&mut client, &[("b", 0)]).await.unwrap();
    assert_eq!(cut.send(&mut client, "a", 0, &["v"]).await, Ok(0));
    assert_eq!(other.send(&mut client, "b", 0, &["v"]).await, Ok(0));
    let beyond = client.delete_records("a", 0, 2).await;
    assert_eq!(beyond, Err(ErrorCode::OffsetOutOfRange));
    assert_eq!(client.ends("a", 1, Isolation::ReadCommitted).await, [0]);
    assert_eq!(client.delete_records("a", 0, -1).await, Ok(1));
    assert_eq!(client.ends("a", 1, Isolation::ReadCommitted).await, [2]);
    assert_fenced(&mut client, &cut, true).await;
    assert_eq!(other.end(&mut client, true).await, Ok(()));
    let values = client.read_values("b", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["v"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a11_a_classic_request_on_a_connection_that_was_left_is_not_carried_out() {
    let broker = TestBroker::builder()
        .set("transaction.connection.guard", "true")
        .start()
        .await;
    let mut left = broker.client().await;
    left.create_topic("t", 1).await;
    let mut producer = TxnProducer::init(&mut left, "tx").await;
    producer.enrol(&mut left, &[("t", 0)]).await.unwrap();
    assert_eq!(producer.send(&mut left, "t", 0, &["first"]).await, Ok(0));
    // EndTxn is on its way on the first connection; its client goes on over another one.
    let mut next = broker.client().await;
    assert_eq!(producer.end(&mut next, true).await, Ok(()));
    producer.enrol(&mut next, &[("t", 0)]).await.unwrap();
    assert_eq!(producer.send(&mut next, "t", 0, &["second"]).await, Ok(2));
    let delayed = producer.end(&mut left, true).await;
    assert_eq!(delayed, Err(ErrorCode::CoordinatorLoadInProgress));
    let values = next.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["first"]);
    // Who is there asks again, and is heard.
    assert_eq!(producer.end(&mut left, true).await, Ok(()));
    let values = next.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["first", "second"]);
}
