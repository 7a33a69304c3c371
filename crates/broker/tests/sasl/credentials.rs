//! AlterUserScramCredentials and DescribeUserScramCredentials (KIP-554): users come and go while the
//! broker runs, and stay over its end.

use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest,
};
use tidemark_sasl::Hash;
use tidemark_testkit::requests::{error_code, text};
use tidemark_testkit::{RawClient, TestBroker};
use tidemark_types::ErrorCode;

use crate::support::*;

const OK: ErrorCode = ErrorCode::None;

fn upsert(user: &str, mechanism: i8, password: &str, iterations: i32) -> ScramCredentialUpsertion {
    let hash = match mechanism {
        1 => Hash::Sha256,
        _ => Hash::Sha512,
    };
    let salt = format!("salt of {user}").into_bytes();
    let salted = salted(hash, password, &salt, iterations.unsigned_abs());
    ScramCredentialUpsertion::default()
        .with_name(text(user))
        .with_mechanism(mechanism)
        .with_iterations(iterations)
        .with_salt(salt.into())
        .with_salted_password(salted.into())
}

fn delete(user: &str, mechanism: i8) -> ScramCredentialDeletion {
    ScramCredentialDeletion::default()
        .with_name(text(user))
        .with_mechanism(mechanism)
}

async fn alter(
    client: &mut RawClient,
    deletions: &[ScramCredentialDeletion],
    upsertions: &[ScramCredentialUpsertion],
) -> Vec<(String, ErrorCode, String)> {
    let request = AlterUserScramCredentialsRequest::default()
        .with_deletions(deletions.to_vec())
        .with_upsertions(upsertions.to_vec());
    let answer = client.send(0, &request).await;
    let result = |r: &kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult| {
        let message = r.error_message.as_deref().unwrap_or_default().to_owned();
        (r.user.to_string(), error_code(r.error_code), message)
    };
    answer.results.iter().map(result).collect()
}

/// User, error, and (mechanism, iterations) of each credential.
async fn describe(
    client: &mut RawClient,
    users: Option<&[&str]>,
) -> Vec<(String, ErrorCode, Vec<(i8, i32)>)> {
    let users = users.map(|users| {
        users
            .iter()
            .map(|user| UserName::default().with_name(text(user)))
            .collect()
    });
    let request = DescribeUserScramCredentialsRequest::default().with_users(users);
    let answer = client.send(0, &request).await;
    assert_eq!(answer.error_code, 0);
    let mut results: Vec<_> = answer
        .results
        .iter()
        .map(|r| {
            let infos = r
                .credential_infos
                .iter()
                .map(|i| (i.mechanism, i.iterations));
            (
                r.user.to_string(),
                error_code(r.error_code),
                infos.collect(),
            )
        })
        .collect();
    results.sort_by(|a: &(String, _, _), b| a.0.cmp(&b.0));
    results
}

/// A broker with an open listener for the administrator.
async fn broker() -> TestBroker {
    builder()
        .set(
            "listeners",
            "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        )
        .start()
        .await
}

async fn logs_in(broker: &TestBroker, hash: Hash, user: &str, password: &str) -> bool {
    let delays = let_delays_pass(broker);
    let mut client = broker.client_at("SASL_PLAINTEXT").await;
    let by_scram = client.sasl_scram(hash, user, password).await.error_code == 0;
    delays.abort();
    by_scram && is_in(&mut client).await
}

async fn logs_in_plainly(broker: &TestBroker, user: &str, password: &str) -> bool {
    let delays = let_delays_pass(broker);
    let mut client = broker.client_at("SASL_PLAINTEXT").await;
    let answer = client.sasl_plain(user, password).await;
    delays.abort();
    answer.error_code == 0 && is_in(&mut client).await
}

#[tokio::test(flavor = "multi_thread")]
async fn users_come_change_and_go_while_the_broker_runs() {
    let broker = broker().await;
    let mut admin = broker.client_at("PLAINTEXT").await;
    let both = vec![(1, 4096), (2, 4096)];
    assert_eq!(
        describe(&mut admin, None).await,
        [
            ("alice".to_owned(), OK, both.clone()),
            ("bob".to_owned(), OK, both)
        ]
    );

    assert!(!logs_in(&broker, Hash::Sha512, "carol", "carol-secret").await);
    let done = |user: &str| vec![(user.to_owned(), OK, String::new())];
    let new = [upsert("carol", 2, "carol-secret", 8192)];
    assert_eq!(alter(&mut admin, &[], &new).await, done("carol"));
    assert!(logs_in(&broker, Hash::Sha512, "carol", "carol-secret").await);
    assert!(
        logs_in_plainly(&broker, "carol", "carol-secret").await,
        "by PLAIN as well"
    );
    assert!(
        !logs_in(&broker, Hash::Sha256, "carol", "carol-secret").await,
        "not by the other"
    );
    assert_eq!(
        describe(&mut admin, Some(&["carol"])).await,
        [("carol".to_owned(), OK, vec![(2, 8192)])]
    );

    let changed = [upsert("carol", 2, "new-secret", 4096)];
    assert_eq!(alter(&mut admin, &[], &changed).await, done("carol"));
    assert!(!logs_in(&broker, Hash::Sha512, "carol", "carol-secret").await);
    assert!(logs_in(&broker, Hash::Sha512, "carol", "new-secret").await);

    // Who is in goes on when its credential is gone, as in Kafka; it does not get in again.
    let mut inside = broker.client_at("SASL_PLAINTEXT").await;
    inside.sasl_scram(Hash::Sha512, "carol", "new-secret").await;
    assert_eq!(
        alter(&mut admin, &[delete("carol", 2)], &[]).await,
        done("carol")
    );
    assert!(is_in(&mut inside).await);
    assert!(!logs_in(&broker, Hash::Sha512, "carol", "new-secret").await);
    assert!(!logs_in_plainly(&broker, "carol", "new-secret").await);
    assert_eq!(
        describe(&mut admin, Some(&["carol"])).await,
        [("carol".to_owned(), ErrorCode::ResourceNotFound, Vec::new())]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn users_outlive_kills_checkpoints_and_restarts() {
    let broker = broker().await;
    let mut admin = broker.client_at("PLAINTEXT").await;
    alter(
        &mut admin,
        &[delete("bob", 1)],
        &[upsert("carol", 1, "carol-secret", 4096)],
    )
    .await;
    let users = describe(&mut admin, None).await;
    let broker = broker.crash(1).await.start().await;
    let mut admin = broker.client_at("PLAINTEXT").await;
    assert_eq!(describe(&mut admin, None).await, users);
    broker.broker().checkpoint().await;
    let broker = broker.stop().await.start().await;
    let mut admin = broker.client_at("PLAINTEXT").await;
    assert_eq!(describe(&mut admin, None).await, users);
    assert!(logs_in(&broker, Hash::Sha256, "carol", "carol-secret").await);
    assert!(logs_in(&broker, Hash::Sha512, "bob", "bob-secret").await);
    assert!(!logs_in(&broker, Hash::Sha256, "bob", "bob-secret").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_kafkas() {
    let broker = broker().await;
    let mut admin = broker.client_at("PLAINTEXT").await;
    let twice = "A user credential cannot be altered twice in the same request";
    let altered = alter(
        &mut admin,
        &[delete("nobody", 1), delete("alice", 3)],
        &[
            upsert("few", 1, "x", 4095),
            upsert("many", 2, "x", 16_385),
            upsert("", 1, "x", 4096),
            upsert("twice", 1, "x", 4096),
            upsert("twice", 2, "x", 4096),
            upsert("good", 1, "x", 16_384),
        ],
    )
    .await;
    let told = |user: &str, code, message: &str| (user.to_owned(), code, message.to_owned());
    use ErrorCode::*;
    assert_eq!(
        altered,
        [
            told("good", OK, ""),
            told(
                "nobody",
                ResourceNotFound,
                "Attempt to delete a user credential that does not exist"
            ),
            told("alice", UnsupportedSaslMechanism, "Unknown SCRAM mechanism"),
            told("few", UnacceptableCredential, "Too few iterations"),
            told("many", UnacceptableCredential, "Too many iterations"),
            told("", UnacceptableCredential, "Username must not be empty"),
            told("twice", DuplicateResource, twice),
        ]
    );
    assert_eq!(
        describe(&mut admin, Some(&["good", "few", "alice", "alice"])).await,
        [
            ("alice".to_owned(), DuplicateResource, Vec::new()),
            ("few".to_owned(), ResourceNotFound, Vec::new()),
            ("good".to_owned(), OK, vec![(1, 16_384)]),
        ]
    );
    assert_eq!(
        describe(&mut admin, Some(&[])).await.len(),
        3,
        "no names are all"
    );
    assert_eq!(alter(&mut admin, &[], &[]).await, []);
}
