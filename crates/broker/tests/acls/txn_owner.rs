//! `transactional.id.owner=first`.

use tidemark_testkit::{Batch, Isolation, TestBroker};
use tidemark_types::ErrorCode;

use crate::support::is;

const NOT_YOURS: ErrorCode = ErrorCode::TransactionalIdAuthorizationFailed;

/// With no authorizer at all: whoever was there first has the id, over restarts.
#[tokio::test(flavor = "multi_thread")]
async fn m17_an_id_is_its_first_principals() {
    let broker = TestBroker::builder()
        .set("transactional.id.owner", "first")
        .start()
        .await;
    let mut alice = broker.client_as("User:alice");
    alice.create_topic("t", 1).await;
    let session = alice.init_producer_id(Some("billing")).await.unwrap();
    alice
        .add_partitions("billing", session, &[("t", 0)])
        .await
        .unwrap();

    let broker = broker.kill().await.start().await;
    let mut alice = broker.client_as("User:alice");
    let mut bob = broker.client_as("User:bob");
    is(bob.init_producer_id(Some("billing")).await, NOT_YOURS);
    is(
        bob.add_partitions("billing", session, &[("t", 0)]).await,
        NOT_YOURS,
    );
    is(bob.add_offsets("billing", session, "g").await, NOT_YOURS);
    is(
        bob.txn_offset_commit("billing", session, "g", &[("t", 0, 1)])
            .await,
        NOT_YOURS,
    );
    is(bob.end_txn("billing", session, false).await, NOT_YOURS);
    let batch = |sequence| {
        let batch = Batch::of(&["x"]).producer(session.0, session.1, sequence);
        batch.transactional().build()
    };
    is(bob.produce_in("billing", "t", 0, batch(0)).await, NOT_YOURS);
    // Not under another name either, nor as a producer without transactions.
    is(bob.produce_in("bobs", "t", 0, batch(0)).await, NOT_YOURS);
    let plain = Batch::of(&["x"]).producer(session.0, session.1, 0).build();
    is(bob.produce("t", 0, plain).await, NOT_YOURS);
    // What is nobody's he may have, and writes beside it as ever.
    assert!(bob.init_producer_id(Some("bobs")).await.is_ok());
    let idempotent = bob.init_producer_id(None).await.unwrap();
    let plain = Batch::of(&["y"])
        .producer(idempotent.0, idempotent.1, 0)
        .build();
    bob.produce("t", 0, plain).await.unwrap();

    alice.produce_in("billing", "t", 0, batch(0)).await.unwrap();
    alice.end_txn("billing", session, true).await.unwrap();
    let values = alice.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["y", "x"]);
    let next = alice.init_producer_id(Some("billing")).await.unwrap();
    assert_eq!(
        next,
        (session.0, session.1 + 1),
        "nobody else opened a session"
    );

    // Without the setting an id is whoever's comes, as in Kafka.
    let broker = broker
        .stop()
        .await
        .set("transactional.id.owner", "any")
        .start()
        .await;
    let mut bob = broker.client_as("User:bob");
    assert!(bob.init_producer_id(Some("billing")).await.is_ok());
}
