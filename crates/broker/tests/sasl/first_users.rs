//! The users that the first start makes, and a start that nobody could use.

use tidemark_sasl::Hash;
use tidemark_testkit::TestBroker;

use crate::support::*;

async fn gets_in(broker: &TestBroker, user: &str, password: &str) -> bool {
    let delays = let_delays_pass(broker);
    let mut client = broker.client().await;
    let answer = client.sasl_scram(Hash::Sha512, user, password).await;
    delays.abort();
    answer.error_code == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_made_once_and_never_overwritten() {
    let broker = builder().start().await;
    assert!(gets_in(&broker, "alice", "alice-secret").await);
    let again = broker
        .stop()
        .await
        .set("auth.users", "alice:other,dave:dave-secret");
    let broker = again.start().await;
    assert!(gets_in(&broker, "alice", "alice-secret").await);
    assert!(!gets_in(&broker, "alice", "other").await);
    assert!(
        !gets_in(&broker, "dave", "dave-secret").await,
        "for the first start only"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn users_may_stand_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    std::fs::write(&path, "# the first ones\n\nalice:with:colon, and comma\r\n").unwrap();
    let builder = || builder().set("auth.users", "alice:weaker,bob:bob-secret");
    let broker = builder()
        .set("auth.users.file", path.display())
        .start()
        .await;
    assert!(gets_in(&broker, "alice", "with:colon, and comma").await);
    assert!(gets_in(&broker, "bob", "bob-secret").await);

    std::fs::write(&path, "alice hunter2\n").unwrap();
    for bad in [
        path.clone(),
        dir.path().join("none"),
        dir.path().to_path_buf(),
    ] {
        let refused = builder()
            .set("auth.users.file", bad.display())
            .try_start()
            .await;
        let told = refused.err().expect("it does not start").to_string();
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_nobody_could_use_is_refused() {
    let refused = builder().set("auth.users", "").try_start().await;
    let told = refused.err().expect("it does not start").to_string();
    assert!(
        told.contains("SASL_PLAINTEXT") && told.contains("auth.users.file"),
        "{told}"
    );
    // With another listener users can be made.
    let broker = builder()
        .set("auth.users", "")
        .set(
            "listeners",
            "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        )
        .start()
        .await;
    assert!(is_in(&mut broker.client_at("PLAINTEXT").await).await);
}
