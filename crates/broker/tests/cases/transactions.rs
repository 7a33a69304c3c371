//! One transaction from begin to end: retries of its end, nothing in it, several partitions.

use kafka_protocol::messages::EndTxnResponse;
use tidemark_record_batch::ControlType;
use tidemark_testkit::{Batch, Dialect, Isolation, produced, requests};
use tidemark_types::ErrorCode;
use tidemark_wire::ApiKey;

use crate::support::{Target, code, in_both_dialects};

/// Versions of EndTxn in the classic dialect.
fn classic_end_txn() -> impl Iterator<Item = i16> {
    let served = ApiKey::EndTxn.api().serves.expect("EndTxn is served");
    served.versions.min..=served.versions.max.min(4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a12_the_end_of_a_transaction_may_be_repeated_but_not_changed() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let mut producer = target.session(&mut client, &target.name("tx")).await;
    let mut end = 0;
    for committed in [true, false] {
        target.begin(&mut client, &producer, &[(&topic, 0)]).await;
        assert_eq!(producer.send(&mut client, &topic, 0, &["r"]).await, Ok(end));
        assert_eq!(producer.end(&mut client, committed).await, Ok(()));
        end += 2;
        target.assert_ends(&mut client, &topic, 0, (end, end)).await;
        for version in classic_end_txn() {
            for (again, want) in [
                (committed, ErrorCode::None),
                (!committed, ErrorCode::InvalidTxnState),
            ] {
                let request = requests::end_txn(&producer.id, producer.producer(), again);
                let answer: EndTxnResponse = client.send(version, &request).await;
                let what = format!("committed {committed}, again {again}, v{version}");
                assert_eq!(code(answer.error_code), want, "{what}");
                target.assert_ends(&mut client, &topic, 0, (end, end)).await;
            }
        }
    }
    let values = client
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert_eq!(values, ["r"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a13_an_empty_transaction_commits() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 2).await;
    let mut producer = target.session(&mut client, &target.name("tx")).await;
    for committed in [true, false] {
        let end = producer.end(&mut client, committed).await;
        assert_eq!(end, Err(ErrorCode::InvalidTxnState), "nothing was begun");
    }

    target.begin(&mut client, &producer, &[(&topic, 0)]).await;
    assert_eq!(producer.end(&mut client, true).await, Ok(()));
    // As in Kafka an enrolled partition gets its marker, written to or not.
    target.assert_ends(&mut client, &topic, 0, (1, 1)).await;
    let fetched = client.fetch(&topic, 0, 0, Isolation::ReadCommitted).await;
    assert!(fetched.committed().is_empty());
    assert_eq!(
        fetched.markers(),
        [(producer.producer_id, 0, ControlType::Commit)]
    );

    target
        .begin(&mut client, &producer, &[(&topic, 0), (&topic, 1)])
        .await;
    assert_eq!(
        producer.send(&mut client, &topic, 1, &["written"]).await,
        Ok(0)
    );
    assert_eq!(producer.end(&mut client, true).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (2, 2)).await;
    target.assert_ends(&mut client, &topic, 1, (2, 2)).await;
    let values = client
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert!(values.is_empty());
    let values = client
        .read_values(&topic, 1, Isolation::ReadCommitted)
        .await;
    assert_eq!(values, ["written"]);

    // An abort of nothing leaves no entry in the list of aborted transactions.
    target.begin(&mut client, &producer, &[(&topic, 0)]).await;
    assert_eq!(producer.end(&mut client, false).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (3, 3)).await;
    let fetched = client.fetch(&topic, 0, 0, Isolation::ReadCommitted).await;
    assert_eq!(fetched.aborted, Some(vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a17_a_batch_that_arrives_after_the_end_opens_nothing() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let mut producer = target.session(&mut client, &target.name("tx")).await;
    let mut end = 0;
    for committed in [false, true] {
        target.begin(&mut client, &producer, &[(&topic, 0)]).await;
        assert_eq!(producer.send(&mut client, &topic, 0, &["r"]).await, Ok(end));
        assert_eq!(producer.end(&mut client, committed).await, Ok(()));
        end += 2;
        target.assert_ends(&mut client, &topic, 0, (end, end)).await;
        // The next of the same session, which no enrolment announced. v11 brought a code for it; from
        // v12 on such a batch begins a transaction.
        let late = producer.clone().batch(&topic, 0, &["late"]).build();
        for version in 3..=11 {
            let request = requests::produce(Some(&producer.id), [(&topic, 0, late.clone())]);
            let answer = produced(&client.send(version, &request).await);
            let want = match version {
                11 => ErrorCode::TransactionAbortable,
                _ => ErrorCode::InvalidTxnState,
            };
            assert_eq!(answer, [Err(want)], "v{version}");
            target.assert_ends(&mut client, &topic, 0, (end, end)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m7_a_transaction_ends_in_all_its_partitions_and_its_group() {
    in_both_dialects(m7_story).await;
}

async fn m7_story(dialect: Dialect) {
    for (committed, marker, offset) in [
        (true, ControlType::Commit, 99),
        (false, ControlType::Abort, -1),
    ] {
        let target = Target::start().await;
        let mut client = target.client().await;
        let out = target.topic(&mut client, "out", 2).await;
        let input = target.topic(&mut client, "in", 1).await;
        let group = target.name("g");
        let mut producer = target
            .session_in(&mut client, &target.name("tx"), dialect)
            .await;
        target
            .begin(&mut client, &producer, &[(&out, 0), (&out, 1)])
            .await;
        assert_eq!(producer.send(&mut client, &out, 0, &["a"]).await, Ok(0));
        assert_eq!(producer.send(&mut client, &out, 1, &["b"]).await, Ok(0));
        let offsets = [(input.as_str(), 0, 99)];
        assert_eq!(
            producer.send_offsets(&mut client, &group, &offsets).await,
            Ok(())
        );
        assert_eq!(
            client.committed_offset(&group, &input, 0, false).await,
            Ok(-1)
        );
        assert_eq!(producer.end(&mut client, committed).await, Ok(()));

        for (partition, value) in [(0, "a"), (1, "b")] {
            target
                .assert_ends(&mut client, &out, partition, (2, 2))
                .await;
            let fetched = client
                .fetch(&out, partition, 0, Isolation::ReadCommitted)
                .await;
            assert_eq!(fetched.markers(), [(producer.producer_id, 1, marker)]);
            let delivered: Vec<String> = fetched.committed().iter().map(|r| r.text()).collect();
            match committed {
                true => assert_eq!(delivered, [value]),
                false => assert!(delivered.is_empty()),
            }
        }
        target
            .assert_committed(&mut client, (&group, &input, 0), offset)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m10_an_enrolled_partition_without_data_holds_nobody_up() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let producer = target.session(&mut client, &target.name("tx")).await;
    target.begin(&mut client, &producer, &[(&topic, 0)]).await;
    let values: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    assert_eq!(
        client.produce(&topic, 0, Batch::of(&values).build()).await,
        Ok(0)
    );
    target.assert_ends(&mut client, &topic, 0, (10, 10)).await;
    let seen = client
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert_eq!(seen, values);
    assert_eq!(producer.end(&mut client, true).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (11, 11)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t15_two_transactions_back_to_back_never_meet_concurrent_transactions() {
    in_both_dialects(t15_story).await;
}

async fn t15_story(dialect: Dialect) {
    let target = Target::start().await;
    if target.is_kafka() {
        // Its markers are written after EndTxn is answered: CONCURRENT_TRANSACTIONS is normal.
        return;
    }
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 8).await;
    let partitions: Vec<(&str, i32)> = (0..8).map(|p| (topic.as_str(), p)).collect();
    let mut producer = target.session_in(&mut client, "tx", dialect).await;
    for round in 0..50 {
        assert_eq!(
            producer.enrol(&mut client, &partitions).await,
            Ok(()),
            "round {round}"
        );
        for partition in 0..8 {
            let sent = producer.send(&mut client, &topic, partition, &["r"]).await;
            assert_eq!(sent, Ok(2 * round));
        }
        assert_eq!(
            producer.end_and_go_on(&mut client, round % 3 != 0).await,
            Ok(()),
            "round {round}"
        );
        let ends = client.ends(&topic, 8, Isolation::ReadCommitted).await;
        assert_eq!(ends, [2 * (round + 1); 8], "answered is visible");
    }
}
