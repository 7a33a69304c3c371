//! Before a client is through: what it may send, what it is answered, and how it is sent away.

use std::time::Duration;

use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, MetadataRequest, SaslAuthenticateRequest,
    SaslHandshakeRequest,
};
use tidemark_sasl::Hash;
use tidemark_testkit::requests::text;
use tidemark_testkit::{RawClient, ScramClient, TestBroker, plain_token, within};
use tidemark_types::ErrorCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::*;

const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

#[tokio::test(flavor = "multi_thread")]
async fn users_get_in_by_every_mechanism_at_every_version() {
    let broker = builder().start().await;
    for version in 0..=2 {
        for mechanism in MECHANISMS {
            let mut client = broker.client().await;
            for api_version in [2, 4] {
                // As clients that find out first, and as those that do not.
                if version == 0 && api_version == 2 {
                    let known = client.send(3, &api_versions()).await;
                    let told: Vec<i16> = known.api_keys.iter().map(|api| api.api_key).collect();
                    assert!(
                        [17, 36, 50, 51].iter().all(|key| told.contains(key)),
                        "{told:?}"
                    );
                }
            }
            let handshake = client.sasl_handshake(1, mechanism).await;
            assert_eq!(handshake.error_code, 0);
            let names: Vec<&str> = handshake.mechanisms.iter().map(|m| &**m).collect();
            assert_eq!(names, MECHANISMS);
            let hash = match mechanism {
                "PLAIN" => {
                    let answer = client
                        .sasl_token(version, plain_token("alice", "alice-secret"))
                        .await;
                    assert_eq!(told(&answer), (0, ""), "{mechanism} v{version}");
                    assert!(answer.auth_bytes.is_empty());
                    assert_eq!(answer.session_lifetime_ms, 0);
                    assert!(is_in(&mut client).await);
                    continue;
                }
                "SCRAM-SHA-256" => Hash::Sha256,
                _ => Hash::Sha512,
            };
            let scram = ScramClient::new(hash, "bob", "bob-secret");
            let first = client.sasl_token(version, scram.first()).await;
            assert_eq!(told(&first), (0, ""));
            let (last, expected) = scram.last(&first.auth_bytes);
            let answer = client.sasl_token(version, last).await;
            assert_eq!(told(&answer), (0, ""), "{mechanism} v{version}");
            assert_eq!(answer.auth_bytes, expected);
            assert!(is_in(&mut client).await);
        }
    }
}

/// Tokens as frames of their own: an empty one says that the password was right.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_handshake_of_version_0_tokens_are_bare() {
    let broker = builder().start().await;
    let exchange = async |stream: &mut TcpStream, token: &[u8]| -> Option<Vec<u8>> {
        stream.write_u32(token.len() as u32).await.unwrap();
        stream.write_all(token).await.unwrap();
        let size = within("a bare token", stream.read_u32()).await.ok()?;
        let mut answer = vec![0; size as usize];
        stream.read_exact(&mut answer).await.unwrap();
        Some(answer)
    };
    let connect = async |mechanism: &str| {
        let mut stream = TcpStream::connect(broker.address()).await.unwrap();
        // SaslHandshake v0, correlation id 7, no client id.
        let mut request = vec![
            0,
            17,
            0,
            0,
            0,
            0,
            0,
            7,
            0xff,
            0xff,
            0,
            mechanism.len() as u8,
        ];
        request.extend(mechanism.as_bytes());
        let answer = exchange(&mut stream, &request).await.unwrap();
        assert_eq!(answer[..6], [0, 0, 0, 7, 0, 0]);
        stream
    };
    let mut stream = connect("PLAIN").await;
    let answer = exchange(&mut stream, &plain_token("alice", "alice-secret")).await;
    assert_eq!(answer, Some(Vec::new()));
    let (reader, writer) = stream.into_split();
    assert!(is_in(&mut RawClient::over(reader, writer)).await);

    let mut stream = connect("SCRAM-SHA-512").await;
    let scram = ScramClient::new(Hash::Sha512, "alice", "alice-secret");
    let server_first = exchange(&mut stream, &scram.first()).await.unwrap();
    let (last, expected) = scram.last(&server_first);
    assert_eq!(exchange(&mut stream, &last).await, Some(expected));
    let (reader, writer) = stream.into_split();
    assert!(is_in(&mut RawClient::over(reader, writer)).await);

    // A failure is told by the end of the connection, and a token of no bytes is one too.
    let delays = let_delays_pass(&broker);
    for (mechanism, token) in [
        ("PLAIN", plain_token("alice", "wrong")),
        ("PLAIN", Vec::new()),
        ("SCRAM-SHA-256", b"x".to_vec()),
        ("SCRAM-SHA-256", Vec::new()),
    ] {
        let mut stream = connect(mechanism).await;
        assert_eq!(exchange(&mut stream, &token).await, None, "{mechanism}");
    }
    delays.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_prove_it_is_told_so_late_and_sent_away() {
    let broker = builder().start().await;
    let wrong = "Authentication failed: Invalid username or password";
    let scram = |name| {
        format!(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism {name}"
        )
    };
    let other = "Authentication failed: Client requested an authorization id that is different from username";
    let cases: Vec<(&str, Vec<u8>, String)> = vec![
        (
            "PLAIN",
            plain_token("alice", "bob-secret"),
            wrong.to_owned(),
        ),
        (
            "PLAIN",
            plain_token("nobody", "alice-secret"),
            wrong.to_owned(),
        ),
        (
            "PLAIN",
            b"bob\0alice\0alice-secret".to_vec(),
            other.to_owned(),
        ),
        ("PLAIN", b"bob\0alice\0wrong".to_vec(), wrong.to_owned()),
        ("PLAIN", b"alice-secret".to_vec(), scram("PLAIN")),
        ("PLAIN", Vec::new(), scram("PLAIN")),
        ("PLAIN", vec![b'x'; 60_000], scram("PLAIN")),
        (
            "SCRAM-SHA-256",
            b"n,a=bob,n=alice,r=x".to_vec(),
            other.to_owned(),
        ),
        (
            "SCRAM-SHA-256",
            b"p=tls-unique,,n=alice,r=x".to_vec(),
            scram("SCRAM-SHA-256"),
        ),
        (
            "SCRAM-SHA-512",
            b"n,,n=alice,r=x,tokenauth=true".to_vec(),
            scram("SCRAM-SHA-512"),
        ),
        (
            "SCRAM-SHA-512",
            b"n,,m=x,n=alice,r=x".to_vec(),
            scram("SCRAM-SHA-512"),
        ),
        ("SCRAM-SHA-512", vec![b'x'; 60_000], scram("SCRAM-SHA-512")),
    ];
    for (mechanism, token, message) in cases {
        let mut client = broker.client().await;
        client.sasl_handshake(1, mechanism).await;
        let request = SaslAuthenticateRequest::default().with_auth_bytes(token.into());
        let mut answer = client.start_request(1, &request).await;
        // What it asks behind a failure is not even read.
        let behind = client.start_request(9, &MetadataRequest::default()).await;
        assert!(!answer.is_answered(), "the answer waits for the delay");
        let delays = let_delays_pass(&broker);
        let answer = answer.answer().await;
        assert_eq!(told(&answer), (FAILED, message.as_str()), "{mechanism}");
        assert!(behind.try_answer().await.is_none(), "it was let in");
        client.closed().await;
        delays.abort();
    }
}

/// A bad proof, then any API: the finished exchange is no authenticated one.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_proof_and_then_any_api_is_closed() {
    let broker = builder().start().await;
    for (user, password) in [("alice", "wrong"), ("nobody", "alice-secret")] {
        let mut client = broker.client().await;
        client.sasl_handshake(1, "SCRAM-SHA-256").await;
        let scram = ScramClient::new(Hash::Sha256, user, password);
        let first = client.sasl_token(2, scram.first()).await;
        assert_eq!(
            first.error_code, 0,
            "a user that does not exist is challenged as any"
        );
        let request = SaslAuthenticateRequest::default()
            .with_auth_bytes(scram.last(&first.auth_bytes).0.into());
        let refused = client.start_request(2, &request).await;
        let create = client
            .start_request(5, &CreateTopicsRequest::default())
            .await;
        let delays = let_delays_pass(&broker);
        let refused = refused.answer().await;
        assert_eq!(refused.error_code, FAILED);
        assert!(refused.auth_bytes.is_empty());
        assert!(create.try_answer().await.is_none());
        client.closed().await;
        delays.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cve_2024_56128_a_recorded_exchange_does_not_work_again() {
    let broker = builder().start().await;
    let scram = ScramClient::new(Hash::Sha512, "alice", "alice-secret");
    let mut client = broker.client().await;
    client.sasl_handshake(1, "SCRAM-SHA-512").await;
    let first = client.sasl_token(2, scram.first()).await;
    let (recorded, _) = scram.last(&first.auth_bytes);
    assert_eq!(client.sasl_token(2, recorded.clone()).await.error_code, 0);

    let delays = let_delays_pass(&broker);
    let mut thief = broker.client().await;
    thief.sasl_handshake(1, "SCRAM-SHA-512").await;
    let second = thief.sasl_token(2, scram.first()).await;
    assert_ne!(second.auth_bytes, first.auth_bytes, "a nonce is used once");
    assert_eq!(thief.sasl_token(2, recorded).await.error_code, FAILED);
    thief.closed().await;
    delays.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_does_not_exist_cannot_be_told_from_one_that_does() {
    let broker = builder().start().await;
    let ask = async |broker: &TestBroker, user: &str| {
        let mut client = broker.client().await;
        client.sasl_handshake(1, "SCRAM-SHA-256").await;
        let first = client
            .sasl_token(2, ScramClient::new(Hash::Sha256, user, "x").first())
            .await;
        let iterations = first.auth_bytes.ends_with(b",i=4096");
        assert!(iterations, "the same count for all");
        salt_of(&first.auth_bytes)
    };
    let (alice, nobody) = (ask(&broker, "alice").await, ask(&broker, "nobody").await);
    assert_ne!(alice, nobody);
    assert_eq!(
        ask(&broker, "nobody").await,
        nobody,
        "the same salt each time"
    );
    assert_ne!(ask(&broker, "nobody2").await, nobody);
    let is_base36 = |salt: &[u8]| {
        salt.iter()
            .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    };
    assert!(is_base36(&alice) && is_base36(&nobody));
    let broker = broker.stop().await.start().await;
    assert_eq!(ask(&broker, "nobody").await, nobody, "also after a restart");
    assert_eq!(ask(&broker, "alice").await, alice);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mechanism_that_is_not_offered_is_refused_with_those_that_are() {
    let broker = builder()
        .set("sasl.enabled.mechanisms", "SCRAM-SHA-512")
        .start()
        .await;
    let delays = let_delays_pass(&broker);
    for version in 0..=1 {
        for mechanism in [
            "PLAIN",
            "SCRAM-SHA-256",
            "GSSAPI",
            "OAUTHBEARER",
            "",
            "scram-sha-512",
        ] {
            let mut client = broker.client().await;
            let refused = client.sasl_handshake(version, mechanism).await;
            assert_eq!(
                refused.error_code,
                ErrorCode::UnsupportedSaslMechanism.code()
            );
            assert_eq!(&*refused.mechanisms[0], "SCRAM-SHA-512");
            assert_eq!(refused.mechanisms.len(), 1);
            client.closed().await;
        }
    }
    delays.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_else_is_served_before() {
    let broker = builder().start().await;
    let delays = let_delays_pass(&broker);
    let fresh = async || broker.client().await;

    let mut client = fresh().await;
    assert!(!is_in(&mut client).await);
    client.closed().await;

    // A token before the handshake.
    let mut client = fresh().await;
    let request = SaslAuthenticateRequest::default()
        .with_auth_bytes(plain_token("alice", "alice-secret").into());
    assert!(client.try_send(1, &request).await.is_none());

    // A second ApiVersions, as in Kafka; one of a version that is not known may be followed by one.
    let mut client = fresh().await;
    client.send(3, &api_versions()).await;
    assert!(client.try_send(3, &api_versions()).await.is_none());
    let mut client = fresh().await;
    client.send_frame(&[0, 18, 0, 99, 0, 0, 0, 9, 0, 0]).await;
    assert!(client.next_frame().await.is_some());
    client.send(0, &ApiVersionsRequest::default()).await;
    assert_eq!(
        client.sasl_plain("alice", "alice-secret").await.error_code,
        0
    );
    assert!(is_in(&mut client).await);

    // Another handshake, or another request, in the middle of one.
    let mut client = fresh().await;
    client.sasl_handshake(1, "PLAIN").await;
    let again = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    let refused = client.send(1, &again).await;
    assert_eq!(refused.error_code, ILLEGAL_STATE);
    client.closed().await;
    let mut client = fresh().await;
    client.sasl_handshake(1, "PLAIN").await;
    assert!(client.try_send(3, &api_versions()).await.is_none());
    let mut client = fresh().await;
    client.sasl_handshake(1, "PLAIN").await;
    assert!(!is_in(&mut client).await);

    // A frame that is large where nobody is trusted yet.
    let mut client = fresh().await;
    client.send_bytes(&70_000_i32.to_be_bytes()).await;
    client.closed().await;
    let mut client = fresh().await;
    client.sasl_handshake(0, "PLAIN").await;
    client.send_bytes(&i32::MAX.to_be_bytes()).await;
    client.closed().await;
    delays.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_it_the_requests_of_sasl_are_out_of_place() {
    let broker = builder()
        .set(
            "listeners",
            "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        )
        .start()
        .await;
    let mut authenticated = broker.client_at("SASL_PLAINTEXT").await;
    assert_eq!(
        authenticated
            .sasl_plain("alice", "alice-secret")
            .await
            .error_code,
        0
    );
    let open = broker.client_at("PLAINTEXT").await;
    for mut client in [authenticated, open] {
        for version in 0..=1 {
            assert_eq!(
                client.sasl_handshake(version, "PLAIN").await.error_code,
                ILLEGAL_STATE
            );
        }
        for version in 0..=2 {
            let refused = client
                .sasl_token(version, plain_token("alice", "alice-secret"))
                .await;
            let message = "SaslAuthenticate request received after successful authentication";
            assert_eq!(told(&refused), (ILLEGAL_STATE, message));
        }
        assert!(is_in(&mut client).await, "it goes on as before");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_too_long_is_sent_away() {
    let broker = builder().set("auth.timeout.ms", 5000).start().await;
    let mut silent = broker.client().await;
    let mut half = broker.client().await;
    half.sasl_handshake(1, "SCRAM-SHA-256").await;
    let mut through = broker.client().await;
    assert_eq!(
        through.sasl_plain("alice", "alice-secret").await.error_code,
        0
    );
    // The silent one has been accepted before the others were answered.
    broker.clock().advance(Duration::from_millis(4999));
    assert!(!silent.is_closed() && !half.is_closed());
    broker.clock().advance(Duration::from_millis(1));
    silent.closed().await;
    half.closed().await;
    assert!(is_in(&mut through).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_token_after_token_is_sent_away() {
    let broker = builder().start().await;
    let mut client = broker.client().await;
    // A version of ApiVersions that nobody knows is answered, and changes nothing.
    for _ in 0..20 {
        client.send_frame(&[0, 18, 0, 99, 0, 0, 0, 9, 0, 0]).await;
        assert!(client.next_frame().await.is_some());
    }
    let delays = let_delays_pass(&broker);
    client.send_frame(&[0, 18, 0, 99, 0, 0, 0, 9, 0, 0]).await;
    client.closed().await;
    delays.abort();
}

/// Users of one listener's own settings, as a server.properties has them.
#[tokio::test(flavor = "multi_thread")]
async fn users_of_a_listeners_jaas_string_get_in_there_and_nowhere_else() {
    let jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                username=\"broker\" password=\"x\" user_carol=\"carol-secret\" user_alice=\"other\";";
    let broker = builder()
        .set("listeners", "A://127.0.0.1:0,B://127.0.0.1:0")
        .set(
            "listener.security.protocol.map",
            "A:SASL_PLAINTEXT,B:SASL_PLAINTEXT",
        )
        .set("listener.name.a.plain.sasl.jaas.config", jaas)
        .start()
        .await;
    let delays = let_delays_pass(&broker);
    for (listener, user, password, code) in [
        ("A", "carol", "carol-secret", 0),
        ("B", "carol", "carol-secret", FAILED),
        // The listener's own word about a user wins.
        ("A", "alice", "other", 0),
        ("A", "alice", "alice-secret", FAILED),
        ("B", "alice", "alice-secret", 0),
        ("A", "bob", "bob-secret", 0),
        ("A", "broker", "x", FAILED),
    ] {
        let mut client = broker.client_at(listener).await;
        let answer = client.sasl_plain(user, password).await;
        assert_eq!(answer.error_code, code, "{listener} {user} {password}");
    }
    delays.abort();
}
