//! Idempotent producers: windows, gaps, and who may write what.

use tidemark_record_batch::{ControlType, control_batch};
use tidemark_testkit::{Batch, Dialect, Isolation};
use tidemark_types::{CoordinatorEpoch, ErrorCode, LeaderEpoch, ProducerEpoch, ProducerId};

use crate::support::changed::Changed;
use crate::support::{Target, in_both_dialects};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a1_the_last_five_batches_are_remembered_and_no_other() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let (id, epoch) = client.init_producer_id(None).await.unwrap();
    let batch = |sequence: i32, values: &[&str]| {
        let batch = Batch::of(values);
        batch.producer(id, epoch, sequence).build()
    };
    for sequence in 0..6 {
        let produced = client.produce(&topic, 0, batch(sequence, &["v"])).await;
        assert_eq!(produced, Ok(i64::from(sequence)));
    }

    assert_eq!(client.produce(&topic, 0, batch(1, &["v"])).await, Ok(1));
    for (what, refused) in [
        ("the sixth back", batch(0, &["v"])),
        ("a gap", batch(7, &["v"])),
        (
            "a known first sequence with another last one",
            batch(1, &["v", "w"]),
        ),
    ] {
        let produced = client.produce(&topic, 0, refused).await;
        assert_eq!(produced, Err(ErrorCode::OutOfOrderSequenceNumber), "{what}");
        target.assert_ends(&mut client, &topic, 0, (6, 6)).await;
    }
    assert_eq!(client.produce(&topic, 0, batch(6, &["v"])).await, Ok(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m1_batches_of_ten_are_repeated_each_once() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let (id, epoch) = client.init_producer_id(None).await.unwrap();
    let ten: Vec<String> = (0..10).map(|n| format!("record {n}")).collect();
    let batch = |sequence| Batch::of(&ten).producer(id, epoch, sequence).build();
    for round in ["sent", "sent again"] {
        for sequence in [0, 10, 20, 30, 40] {
            let produced = client.produce(&topic, 0, batch(sequence)).await;
            assert_eq!(produced, Ok(i64::from(sequence)), "{round}");
        }
    }
    target.assert_ends(&mut client, &topic, 0, (50, 50)).await;

    assert_eq!(client.produce(&topic, 0, batch(50)).await, Ok(50));
    let forgotten = client.produce(&topic, 0, batch(0)).await;
    assert_eq!(forgotten, Err(ErrorCode::OutOfOrderSequenceNumber));
    target.assert_ends(&mut client, &topic, 0, (60, 60)).await;
    let values = client
        .read_values(&topic, 0, Isolation::ReadUncommitted)
        .await;
    assert_eq!(values, vec![ten; 6].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m3_a_gap_is_refused_and_nothing_is_written() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let (id, epoch) = client.init_producer_id(None).await.unwrap();
    let batch = |sequence| Batch::of(&["v"]).producer(id, epoch, sequence).build();
    assert_eq!(client.produce(&topic, 0, batch(0)).await, Ok(0));
    let gap = client.produce(&topic, 0, batch(2)).await;
    assert_eq!(gap, Err(ErrorCode::OutOfOrderSequenceNumber));
    target.assert_ends(&mut client, &topic, 0, (1, 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a18_a_plain_batch_inside_its_producers_transaction_is_refused() {
    in_both_dialects(a18_story).await;
}

async fn a18_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let mut producer = target
        .session_in(&mut client, &target.name("tx"), dialect)
        .await;
    target.begin(&mut client, &producer, &[(&topic, 0)]).await;
    assert_eq!(producer.send(&mut client, &topic, 0, &["r"]).await, Ok(0));
    let (id, epoch) = producer.producer();

    let plain = Batch::of(&["plain"]).producer(id, epoch, 1).build();
    let marker = control_batch(
        0,
        LeaderEpoch(0),
        ProducerId(id),
        ProducerEpoch(epoch),
        ControlType::Commit,
        CoordinatorEpoch(0),
        0,
    );
    let next = producer.clone().batch(&topic, 0, &["x"]).build();
    let control = Changed::batch(&next).attribute_bits(0x20).sealed();
    let unnumbered = Changed::batch(&next).base_sequence(-1).sealed();
    for (what, batch, code) in [
        ("a plain batch", plain, ErrorCode::InvalidTxnState),
        (
            "a marker of the client's own",
            marker,
            ErrorCode::InvalidRecord,
        ),
        (
            "a batch with the control bit",
            control,
            ErrorCode::InvalidRecord,
        ),
        (
            "a producer id without a sequence",
            unnumbered,
            ErrorCode::InvalidRecord,
        ),
    ] {
        let produced = client.produce_in(&producer.id, &topic, 0, batch).await;
        assert_eq!(produced, Err(code), "{what}");
        target.assert_ends(&mut client, &topic, 0, (0, 1)).await;
    }

    // Nor one of the transaction that comes in nobody's name.
    let next = producer.clone().batch(&topic, 0, &["x"]).build();
    let unnamed = client.produce(&topic, 0, next).await;
    assert_eq!(unnamed, Err(ErrorCode::TransactionalIdAuthorizationFailed));
    target.assert_ends(&mut client, &topic, 0, (0, 1)).await;

    // None of it took a sequence or ended the transaction.
    assert_eq!(producer.send(&mut client, &topic, 0, &["s"]).await, Ok(1));
    assert_eq!(producer.end(&mut client, true).await, Ok(()));
    target.assert_ends(&mut client, &topic, 0, (3, 3)).await;
    let values = client
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert_eq!(values, ["r", "s"]);
}
