//! Sessions with an end (KIP-368): renewed on a connection that is in use, or over.

use std::time::Duration;

use kafka_protocol::messages::{MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest};
use tidemark_sasl::Hash;
use tidemark_testkit::requests::{self, text};
use tidemark_testkit::{Batch, ScramClient, TestBroker, plain_token, produced, version};

use crate::support::*;

const SESSION_MS: u64 = 60_000;

async fn broker() -> TestBroker {
    builder()
        .set("connections.max.reauth.ms", SESSION_MS)
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_told_and_then_over() {
    let broker = broker().await;
    let mut client = broker.client().await;
    let answer = client.sasl_plain("alice", "alice-secret").await;
    assert_eq!(answer.session_lifetime_ms, SESSION_MS as i64);
    // v0 has no room for it, and its session ends all the same.
    let mut old = broker.client().await;
    old.sasl_handshake(1, "PLAIN").await;
    let answer = old
        .sasl_token(0, plain_token("alice", "alice-secret"))
        .await;
    assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, 0));
    broker
        .clock()
        .advance(Duration::from_millis(SESSION_MS - 1));
    assert!(is_in(&mut client).await && is_in(&mut old).await);
    broker.clock().advance(Duration::from_millis(1));
    assert!(!is_in(&mut client).await && !is_in(&mut old).await);
    client.closed().await;
}

/// Case A27: a session is renewed on a connection with requests in flight. What was asked before is
/// answered in its place and carried out, what is asked behind is too, and nothing comes out of order.
#[tokio::test(flavor = "multi_thread")]
async fn a27_a_session_is_renewed_on_a_connection_in_use() {
    let broker = broker().await;
    let mut client = broker.client().await;
    assert_eq!(
        client
            .sasl_scram(Hash::Sha256, "alice", "alice-secret")
            .await
            .error_code,
        0
    );
    client.create_topic("t", 1).await;
    for round in 0..3 {
        broker
            .clock()
            .advance(Duration::from_millis(SESSION_MS - 1));
        // A Produce that cannot be answered yet: its sync is held.
        let held = broker.hold_syncs_behind_a_record(&mut client, "t", 0).await;
        let batch = Batch::of(&["before"]).build();
        let before = client
            .start_request(
                version::PRODUCE,
                &requests::produce(None, [("t", 0, batch)]),
            )
            .await;
        let handshake = SaslHandshakeRequest::default().with_mechanism(text("SCRAM-SHA-256"));
        let mut handshake = client.start_request(1, &handshake).await;
        assert!(
            !handshake.is_answered(),
            "round {round}: not before what was asked before it"
        );
        broker.disk().release_syncs();
        assert_eq!(produced(&held.answer().await)[0].map(drop), Ok(()));
        assert_eq!(produced(&before.answer().await)[0].map(drop), Ok(()));
        assert_eq!(handshake.answer().await.error_code, 0);

        let scram = ScramClient::new(Hash::Sha256, "alice", "alice-secret");
        let first = client.sasl_token(2, scram.first()).await;
        let (last, expected) = scram.last(&first.auth_bytes);
        let last = SaslAuthenticateRequest::default().with_auth_bytes(last.into());
        // What is asked right behind the proof is of the new session.
        let renewed = client.start_request(2, &last).await;
        let batch = Batch::of(&["behind"]).build();
        let behind = client
            .start_request(
                version::PRODUCE,
                &requests::produce(None, [("t", 0, batch)]),
            )
            .await;
        let renewed = renewed.answer().await;
        assert_eq!(told(&renewed), (0, ""));
        assert_eq!(renewed.auth_bytes, expected);
        assert_eq!(renewed.session_lifetime_ms, SESSION_MS as i64);
        assert_eq!(produced(&behind.answer().await)[0].map(drop), Ok(()));
    }
    broker.clock().advance(Duration::from_millis(SESSION_MS));
    assert!(!is_in(&mut client).await, "and once it is not");
}

/// A session that is over may still be renewed, as nothing was asked in it since.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_over_may_be_renewed_first() {
    let broker = broker().await;
    let mut client = broker.client().await;
    client.sasl_plain("alice", "alice-secret").await;
    broker
        .clock()
        .advance(Duration::from_millis(2 * SESSION_MS));
    assert_eq!(
        client.sasl_plain("alice", "alice-secret").await.error_code,
        0
    );
    assert!(is_in(&mut client).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_not_renewed_twice_a_second() {
    let broker = broker().await;
    let mut client = broker.client().await;
    client.sasl_plain("alice", "alice-secret").await;
    assert_eq!(
        client.sasl_plain("alice", "alice-secret").await.error_code,
        0
    );
    assert_eq!(
        client.sasl_handshake(1, "PLAIN").await.error_code,
        ILLEGAL_STATE
    );
    assert!(is_in(&mut client).await);
    broker.clock().advance(Duration::from_secs(1));
    assert_eq!(
        client.sasl_plain("alice", "alice-secret").await.error_code,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_user_nor_mechanism_may_change() {
    let broker = broker().await;
    let delays = let_delays_pass(&broker);
    let mut client = broker.client().await;
    client.sasl_plain("alice", "alice-secret").await;
    let refused = client.sasl_plain("bob", "bob-secret").await;
    let message = "Cannot change principals during re-authentication from User.alice: User.bob";
    assert_eq!(told(&refused), (FAILED, message));
    client.closed().await;

    // Kafka answers the handshake, and ends the connection at what follows.
    let mut client = broker.client().await;
    client.sasl_plain("alice", "alice-secret").await;
    assert_eq!(
        client.sasl_handshake(1, "SCRAM-SHA-256").await.error_code,
        0
    );
    let first = ScramClient::new(Hash::Sha256, "alice", "alice-secret").first();
    let request = SaslAuthenticateRequest::default().with_auth_bytes(first.into());
    assert!(client.try_send(2, &request).await.is_none());
    client.closed().await;

    let mut client = broker.client().await;
    client.sasl_plain("alice", "alice-secret").await;
    let refused = client.sasl_plain("alice", "wrong").await;
    assert_eq!(refused.error_code, FAILED);
    client.closed().await;
    delays.abort();
}

/// Between the handshake and the proof nothing is served, although the connection was open for all.
#[tokio::test(flavor = "multi_thread")]
async fn in_the_middle_of_a_renewal_nothing_else_is_served() {
    let broker = broker().await;
    let mut client = broker.client().await;
    client.sasl_plain("alice", "alice-secret").await;
    client.sasl_handshake(1, "PLAIN").await;
    assert!(
        client
            .try_send(9, &MetadataRequest::default())
            .await
            .is_none()
    );
    client.closed().await;
}
