//! Batches that are on their way while their transaction ends: in it whole, or nowhere.

use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::{DescribeProducersRequest, EndTxnResponse, ProduceResponse};
use tidemark_testkit::{
    Dialect, InFlight, Isolation, RawClient, TestBroker, TxnProducer, produced, requests,
};
use tidemark_types::ErrorCode;

use crate::support::{code, in_both_dialects};

const TOPIC: &str = "t";

/// A session over one partition, and its next transaction begun where that takes a request.
async fn begun(client: &mut RawClient, id: &str, dialect: Dialect) -> TxnProducer {
    let producer = TxnProducer::init_in(client, id, dialect).await;
    producer.enrol(client, &[(TOPIC, 0)]).await.unwrap();
    producer
}

async fn start_send(
    client: &mut RawClient,
    producer: &mut TxnProducer,
    value: &str,
) -> InFlight<ProduceResponse> {
    let batch = producer.batch(TOPIC, 0, &[value]).build();
    let request = requests::produce(Some(&producer.id), [(TOPIC, 0, batch)]);
    let version = producer.dialect.produce_version();
    client.start_request(version, &request).await
}

async fn start_end(
    client: &mut RawClient,
    producer: &TxnProducer,
    commit: bool,
) -> InFlight<EndTxnResponse> {
    let request = requests::end_txn(&producer.id, producer.producer(), commit);
    let version = producer.dialect.end_txn_version();
    client.start_request(version, &request).await
}

/// What the next batch of an ended transaction is told, if nothing was enrolled since.
fn too_late(dialect: Dialect) -> ErrorCode {
    match dialect {
        Dialect::Classic => ErrorCode::InvalidTxnState,
        Dialect::Version2 => ErrorCode::InvalidProducerEpoch,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t7_what_is_in_flight_at_the_commit_is_in_it_and_what_comes_later_is_not() {
    in_both_dialects(t7_story).await;
}

async fn t7_story(dialect: Dialect) {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic(TOPIC, 1).await;
    client.create_topic("held", 1).await;
    let mut other = broker.client().await;
    for commit in [true, false] {
        let id = format!("tx-{commit}");
        let mut producer = begun(&mut client, &id, dialect).await;
        let before = client.ends(TOPIC, 1, Isolation::ReadCommitted).await[0];
        assert_eq!(
            producer.send(&mut client, TOPIC, 0, &["a"]).await,
            Ok(before)
        );

        // Nothing is answered while no sync ends: append, end and the next append are all on their way.
        let held = broker
            .hold_syncs_behind_a_record(&mut other, "held", 0)
            .await;
        let mut in_flight = start_send(&mut client, &mut producer, "b").await;
        let mut end = start_end(&mut client, &producer, commit).await;
        let mut late = start_send(&mut client, &mut producer, "late").await;
        for _ in 0..20 {
            broker
                .client()
                .await
                .ends(TOPIC, 1, Isolation::ReadCommitted)
                .await;
            let answered = [
                in_flight.is_answered(),
                end.is_answered(),
                late.is_answered(),
            ];
            assert_eq!(answered, [false; 3], "answered before it is durable");
        }
        broker.disk().release_syncs();
        held.answer().await;

        assert_eq!(produced(&in_flight.answer().await), [Ok(before + 1)]);
        assert_eq!(code(end.answer().await.error_code), ErrorCode::None);
        assert_eq!(produced(&late.answer().await), [Err(too_late(dialect))]);
        for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
            assert_eq!(client.ends(TOPIC, 1, isolation).await, [before + 3]);
        }
    }
    let values = client.read_values(TOPIC, 0, Isolation::ReadCommitted).await;
    assert_eq!(
        values,
        ["a", "b"],
        "all of the commit, nothing of the abort"
    );
}

/// A batch and the end of its transaction on two connections at once, again and again: never an open transaction
/// that nobody knows of (LSO = HW), never half a commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a17_a_batch_that_races_the_end_is_in_it_or_nowhere() {
    in_both_dialects(a17_story).await;
}

async fn a17_story(dialect: Dialect) {
    const ROUNDS: usize = 2_500;
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic(TOPIC, 1).await;
    let (mut sender, mut ender) = (broker.client().await, broker.client().await);
    let mut producer = TxnProducer::init_in(&mut client, "tx", dialect).await;
    let (mut want, mut won, mut lost) = (Vec::new(), 0, 0);
    for round in 0..ROUNDS {
        let commit = round % 2 == 1;
        producer.enrol(&mut client, &[(TOPIC, 0)]).await.unwrap();
        let first = format!("{round} a");
        let sent = producer.send(&mut client, TOPIC, 0, &[&first]).await;
        assert!(sent.is_ok(), "{dialect:?}, round {round}: {sent:?}");
        let second = format!("{round} b");
        let before = producer.clone();
        let (in_flight, end) = if round % 4 < 2 {
            let in_flight = start_send(&mut sender, &mut producer, &second).await;
            (in_flight, start_end(&mut ender, &producer, commit).await)
        } else {
            let end = start_end(&mut ender, &producer, commit).await;
            (start_send(&mut sender, &mut producer, &second).await, end)
        };
        let end = end.answer().await;
        assert_eq!(code(end.error_code), ErrorCode::None, "round {round}");
        let appended = match produced(&in_flight.answer().await)[0] {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error, too_late(dialect), "round {round}");
                false
            }
        };
        let stable = client.ends(TOPIC, 1, Isolation::ReadCommitted).await;
        let high = client.ends(TOPIC, 1, Isolation::ReadUncommitted).await;
        assert_eq!(stable, high, "round {round}: a transaction stays open");
        if commit {
            want.push(first);
            want.extend(appended.then_some(second));
        }
        match appended {
            true => won += 1,
            false => lost += 1,
        }
        match dialect {
            // What was refused has not used up its sequence.
            Dialect::Classic if !appended => producer = before,
            Dialect::Classic => {}
            Dialect::Version2 => {
                let next = (end.producer_id.0, end.producer_epoch);
                producer = TxnProducer::at("tx", next, dialect);
            }
        }
    }
    let values = client.read_values(TOPIC, 0, Isolation::ReadCommitted).await;
    assert_eq!(values, want);
    // Nor does an operator see one.
    let of_topic = TopicRequest::default()
        .with_name(requests::topic_name(TOPIC))
        .with_partition_indexes(vec![0]);
    let request = DescribeProducersRequest::default().with_topics(vec![of_topic]);
    let described = client.send(0, &request).await;
    let producers = &described.topics[0].partitions[0].active_producers;
    assert_eq!(producers.len(), 1, "{producers:?}");
    assert_eq!(producers[0].current_txn_start_offset, -1, "{producers:?}");
    println!("{won} batches came in time, {lost} too late");
    assert!(
        won > 0 && lost > 0,
        "{won} in time, {lost} too late: no race"
    );
}
