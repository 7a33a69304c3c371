//! A broker that asks who is there.

use std::time::Duration;

use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest, SaslAuthenticateResponse};
use tidemark_sasl::{Hash, base64};
use tidemark_testkit::{RawClient, StoppedBroker, TestBroker};

pub const FAILED: i16 = 58;
pub const ILLEGAL_STATE: i16 = 34;

/// One listener without TLS, every mechanism, and two users.
pub fn builder() -> StoppedBroker {
    TestBroker::builder()
        .set("listeners", "SASL_PLAINTEXT://127.0.0.1:0")
        .set(
            "sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        )
        .set("auth.plain.without.tls", "true")
        .set("auth.users", "alice:alice-secret,bob:bob-secret")
        // Time is made to pass faster than a login can be on a busy machine.
        .set("auth.timeout.ms", 600_000)
}

/// True if the client may ask for more than who is there.
pub async fn is_in(client: &mut RawClient) -> bool {
    let request = MetadataRequest::default().with_topics(Some(Vec::new()));
    client.try_send(9, &request).await.is_some()
}

/// The delay of a failed authentication passes as soon as somebody waits for it.
pub fn let_delays_pass(broker: &TestBroker) -> tokio::task::JoinHandle<()> {
    let clock = broker.clock().clone();
    tokio::spawn(async move {
        loop {
            clock.advance(Duration::from_millis(100));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
}

pub fn told(answer: &SaslAuthenticateResponse) -> (i16, &str) {
    (
        answer.error_code,
        answer.error_message.as_deref().unwrap_or_default(),
    )
}

/// ApiVersions, as clients ask before they say who they are.
pub fn api_versions() -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name("testkit".to_owned().into())
        .with_client_software_version("1".to_owned().into())
}

/// What is asked for a user's credential.
pub fn salted(hash: Hash, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
    hash.salted_password(password, salt, iterations)
}

/// The salt that the broker answers to a first message.
pub fn salt_of(server_first: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(server_first).unwrap();
    let salt = text
        .split(',')
        .nth(1)
        .and_then(|field| field.strip_prefix("s="));
    base64::decode(salt.unwrap()).unwrap()
}
