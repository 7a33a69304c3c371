//! OAUTHBEARER over real connections: tokens that are good, bad, and good no longer.

use std::fs;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kafka_protocol::messages::{
    MetadataRequest, SaslAuthenticateRequest, SaslAuthenticateResponse,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidemark_broker::StartError;
use tidemark_testkit::{RawClient, StoppedBroker, TestBroker, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::*;

const ISSUER: &str = "https://id.example/realms/shop";
const INVALID: &str = r#"{"status":"invalid_token"}"#;
const SENTENCE: &str = "Authentication failed during authentication due to invalid credentials with \
                        SASL mechanism OAUTHBEARER";
const LIFE_S: i64 = 3600;

/// Who signs tokens.
struct Signer {
    kid: &'static str,
    key: EcdsaKeyPair,
}

fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    fn new(kid: &'static str) -> Signer {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Signer { kid, key }
    }

    fn jwks(&self) -> String {
        let point = self.key.public_key().as_ref();
        let (x, y) = (base64url(&point[1..33]), base64url(&point[33..]));
        json!({"keys": [
            {"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": self.kid, "x": x, "y": y},
        ]})
        .to_string()
    }

    fn token(&self, alg: &str, claims: &Value) -> String {
        let header = json!({"alg": alg, "typ": "JWT", "kid": self.kid}).to_string();
        let signed = format!("{}.{}", base64url(header), base64url(claims.to_string()));
        let signature = self
            .key
            .sign(&SystemRandom::new(), signed.as_bytes())
            .unwrap();
        format!("{signed}.{}", base64url(signature.as_ref()))
    }
}

struct World {
    dir: TempDir,
    signer: Signer,
}

impl World {
    fn new() -> World {
        let world = World {
            dir: TempDir::new().unwrap(),
            signer: Signer::new("one"),
        };
        world.publish(&world.signer.jwks());
        world
    }

    fn publish(&self, jwks: &str) {
        // As tools that replace files do it, so that no time stamp need differ.
        let next = self.dir.path().join("next");
        fs::write(&next, jwks).unwrap();
        fs::rename(&next, self.dir.path().join("jwks.json")).unwrap();
    }

    fn builder(&self) -> StoppedBroker {
        let url = format!("file://{}/jwks.json", self.dir.path().display());
        TestBroker::builder()
            .set("listeners", "SASL_PLAINTEXT://127.0.0.1:0")
            .set("sasl.enabled.mechanisms", "OAUTHBEARER")
            // Time is made to pass in leaps.
            .set("connections.max.idle.ms", -1)
            .set("auth.timeout.ms", 600_000)
            .set("oauth.tokens.without.tls", "true")
            .set("sasl.oauthbearer.jwks.endpoint.url", url)
            .set("sasl.oauthbearer.expected.issuer", ISSUER)
            .set("sasl.oauthbearer.expected.audience", "kafka,billing")
    }

    /// What a token of this user says now.
    fn claims(&self, broker: &TestBroker, user: &str) -> Value {
        use tidemark_broker::Clock;
        let now_s = broker.clock().wall_ms() / 1000;
        json!({
            "iss": ISSUER, "aud": "kafka", "sub": user, "iat": now_s - 1, "exp": now_s + LIFE_S,
        })
    }

    fn token(&self, broker: &TestBroker, user: &str) -> String {
        self.signer.token("ES256", &self.claims(broker, user))
    }
}

fn message(token: &str) -> Vec<u8> {
    format!("n,,\x01auth=Bearer {token}\x01\x01").into_bytes()
}

async fn show(client: &mut RawClient, token: &str) -> SaslAuthenticateResponse {
    assert_eq!(client.sasl_handshake(1, "OAUTHBEARER").await.error_code, 0);
    client.sasl_token(2, message(token)).await
}

/// The client is told that its token is bad, says that it heard it, and is sent away.
async fn refused(broker: &TestBroker, client: &mut RawClient, token: &str, what: &str) {
    let challenge = show(client, token).await;
    assert_eq!(told(&challenge), (0, ""), "{what}");
    assert_eq!(challenge.auth_bytes, INVALID.as_bytes(), "{what}");
    assert_eq!(challenge.session_lifetime_ms, 0, "{what}");
    let request = SaslAuthenticateRequest::default().with_auth_bytes(vec![1].into());
    let mut end = client.start_request(2, &request).await;
    assert!(!end.is_answered(), "the answer waits for the delay");
    let delays = let_delays_pass(broker);
    assert_eq!(told(&end.answer().await), (FAILED, INVALID), "{what}");
    client.closed().await;
    delays.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_token_lets_its_owner_in_until_it_ends() {
    let world = World::new();
    let broker = world.builder().start().await;
    for version in 0..=2 {
        let mut client = broker.client().await;
        let handshake = client.sasl_handshake(1, "OAUTHBEARER").await;
        assert_eq!(
            handshake
                .mechanisms
                .iter()
                .map(|m| &**m)
                .collect::<Vec<_>>(),
            ["OAUTHBEARER"]
        );
        let token = world.token(&broker, "till-7");
        let answer = client.sasl_token(version, message(&token)).await;
        assert_eq!(told(&answer), (0, ""));
        assert!(answer.auth_bytes.is_empty());
        let told_ms = if version == 0 { 0 } else { LIFE_S * 1000 };
        assert_eq!(answer.session_lifetime_ms, told_ms);
        assert!(is_in(&mut client).await);
        broker
            .clock()
            .advance(Duration::from_millis(LIFE_S as u64 * 1000 - 1));
        assert!(is_in(&mut client).await);
        broker.clock().advance(Duration::from_millis(1));
        assert!(
            !is_in(&mut client).await,
            "version {version}: the token has ended"
        );
        client.closed().await;
    }
    // Whoever names himself, and brings extensions.
    let mut client = broker.client().await;
    client.sasl_handshake(1, "OAUTHBEARER").await;
    let token = world.token(&broker, "till-7");
    let text = format!("n,a=till-7,\x01auth=bearer {token}\x01traceId=7\x01\x01");
    assert_eq!(
        told(&client.sasl_token(2, text.into_bytes()).await),
        (0, "")
    );
    assert!(is_in(&mut client).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_is_told_as_such_and_its_bearer_sent_away() {
    let world = World::new();
    let broker = world.builder().start().await;
    let good = world.claims(&broker, "till-7");
    let now_s = good["iat"].as_i64().unwrap() + 1;
    let but = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        world.signer.token("ES256", &claims)
    };
    let unsigned = |alg: &str| {
        let token = world.signer.token(alg, &good);
        format!("{}.", token.rsplit_once('.').unwrap().0)
    };
    let hmac = {
        let token = world.signer.token("HS256", &good);
        let signed = token.rsplit_once('.').unwrap().0;
        let key = aws_lc_rs::hmac::Key::new(
            aws_lc_rs::hmac::HMAC_SHA256,
            world.signer.key.public_key().as_ref(),
        );
        let tag = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
        format!("{signed}.{}", base64url(tag.as_ref()))
    };
    let tampered = {
        let (token, other) = (but("sub", json!("till-7")), but("sub", json!("admin")));
        let signature = token.rsplit_once('.').unwrap().1;
        format!("{}.{signature}", other.rsplit_once('.').unwrap().0)
    };
    for (what, token) in [
        ("ended", but("exp", json!(now_s - 31))),
        ("without an end", but("exp", Value::Null)),
        ("not yet good", but("nbf", json!(now_s + LIFE_S / 2))),
        ("unsigned", unsigned("none")),
        ("unsigned, spelled otherwise", unsigned("nOnE")),
        ("its signature cut off", unsigned("ES256")),
        ("signed with the public key", hmac),
        (
            "of another key with the same name",
            Signer::new("one").token("ES256", &good),
        ),
        (
            "of an unknown key",
            Signer::new("two").token("ES256", &good),
        ),
        ("tampered with", tampered),
        (
            "of another issuer",
            but("iss", json!("https://evil.example")),
        ),
        ("for something else", but("aud", json!(["shop"]))),
        ("for nobody", but("sub", Value::Null)),
        ("no token", "sesame".to_owned()),
    ] {
        let mut client = broker.client().await;
        refused(&broker, &mut client, &token, what).await;
    }
    let mut client = broker.client().await;
    assert_eq!(
        told(&show(&mut client, &but("aud", json!(["a", "billing"]))).await),
        (0, "")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_and_then_any_api_is_closed() {
    let world = World::new();
    let broker = world.builder().start().await;
    let mut client = broker.client().await;
    assert_eq!(
        show(&mut client, "a.b.c").await.auth_bytes,
        INVALID.as_bytes()
    );
    assert!(
        client
            .try_send(9, &MetadataRequest::default())
            .await
            .is_none()
    );
    client.closed().await;

    // Nor does another token help: one is asked for once.
    let delays = let_delays_pass(&broker);
    let mut client = broker.client().await;
    show(&mut client, "a.b.c").await;
    let good = message(&world.token(&broker, "till-7"));
    assert_eq!(told(&client.sasl_token(2, good).await), (FAILED, SENTENCE));
    client.closed().await;
    delays.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_and_who_wants_to_be_another_is_refused_at_once() {
    let world = World::new();
    let broker = world.builder().start().await;
    let delays = let_delays_pass(&broker);
    let token = world.token(&broker, "till-7");
    let other = "Authentication failed: Client requested an authorization id that is different from \
                 the token's principal name";
    for (text, message) in [
        (format!("n,a=admin,\x01auth=Bearer {token}\x01\x01"), other),
        (
            format!("p=tls-unique,,\x01auth=Bearer {token}\x01\x01"),
            SENTENCE,
        ),
        (format!("auth=Bearer {token}"), SENTENCE),
        (format!("n,,\x01auth=Basic {token}\x01\x01"), SENTENCE),
        ("\x01".to_owned(), SENTENCE),
        (String::new(), SENTENCE),
        (
            format!("n,,\x01auth=Bearer {}\x01\x01", "a".repeat(8192)),
            SENTENCE,
        ),
    ] {
        let mut client = broker.client().await;
        client.sasl_handshake(1, "OAUTHBEARER").await;
        let answer = client.sasl_token(2, text.clone().into_bytes()).await;
        assert_eq!(told(&answer), (FAILED, message), "{text:?}");
        client.closed().await;
    }
    delays.abort();
}

/// Tokens as frames of their own.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_handshake_of_version_0_a_bad_token_is_told_too() {
    let world = World::new();
    let broker = world.builder().start().await;
    let delays = let_delays_pass(&broker);
    for (token, expected) in [
        (world.token(&broker, "till-7"), Some("")),
        ("a.b.c".to_owned(), Some(INVALID)),
    ] {
        let mut stream = TcpStream::connect(broker.address()).await.unwrap();
        let mut handshake = vec![0, 17, 0, 0, 0, 0, 0, 7, 0, 1, b'x', 0, 11];
        handshake.extend(b"OAUTHBEARER");
        let exchange = async |stream: &mut TcpStream, frame: &[u8]| -> Option<Vec<u8>> {
            stream.write_u32(frame.len() as u32).await.unwrap();
            stream.write_all(frame).await.unwrap();
            let size = within("an answer", stream.read_u32()).await.ok()?;
            let mut answer = vec![0; size as usize];
            stream.read_exact(&mut answer).await.unwrap();
            Some(answer)
        };
        assert!(exchange(&mut stream, &handshake).await.is_some());
        let answer = exchange(&mut stream, &message(&token)).await;
        assert_eq!(answer.as_deref(), expected.map(str::as_bytes));
        if expected == Some(INVALID) {
            assert_eq!(exchange(&mut stream, &[1]).await, None, "sent away");
        }
    }
    delays.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_with_a_new_token_of_the_same_owner() {
    let world = World::new();
    let broker = world.builder().start().await;
    let mut client = broker.client().await;
    assert_eq!(
        told(&show(&mut client, &world.token(&broker, "till-7")).await),
        (0, "")
    );
    for _ in 0..3 {
        broker
            .clock()
            .advance(Duration::from_secs(LIFE_S as u64 - 1));
        let answer = show(&mut client, &world.token(&broker, "till-7")).await;
        assert_eq!(told(&answer), (0, ""));
        assert_eq!(answer.session_lifetime_ms, LIFE_S * 1000);
    }
    broker
        .clock()
        .advance(Duration::from_secs(LIFE_S as u64 - 1));
    assert!(is_in(&mut client).await);

    // A token that is over does not renew it.
    let ended = world.token(&broker, "till-7");
    broker
        .clock()
        .advance(Duration::from_secs(LIFE_S as u64 + 31));
    refused(&broker, &mut client, &ended, "ended").await;

    // Nor does another's.
    let delays = let_delays_pass(&broker);
    let mut client = broker.client().await;
    show(&mut client, &world.token(&broker, "till-7")).await;
    let answer = show(&mut client, &world.token(&broker, "till-8")).await;
    let message = "Cannot change principals during re-authentication from User.till-7: User.till-8";
    assert_eq!(told(&answer), (FAILED, message));
    client.closed().await;
    delays.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shorter_of_a_tokens_life_and_the_longest_session_counts() {
    let world = World::new();
    for (max_ms, expected_ms) in [(60_000, 60_000), (LIFE_S * 2000, LIFE_S * 1000)] {
        let broker = world
            .builder()
            .set("connections.max.reauth.ms", max_ms)
            .start()
            .await;
        let mut client = broker.client().await;
        let answer = show(&mut client, &world.token(&broker, "till-7")).await;
        assert_eq!(answer.session_lifetime_ms, expected_ms);
        broker
            .clock()
            .advance(Duration::from_millis(expected_ms as u64));
        assert!(!is_in(&mut client).await);
    }
    // Past its end, and good because clocks differ: as long as it is.
    let broker = world.builder().start().await;
    let token = world.token(&broker, "till-7");
    broker
        .clock()
        .advance(Duration::from_secs(LIFE_S as u64 + 10));
    let mut client = broker.client().await;
    assert_eq!(show(&mut client, &token).await.session_lifetime_ms, 20_000);
    assert!(is_in(&mut client).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_change_while_the_broker_runs() {
    let world = World::new();
    let broker = world.builder().start().await;
    let two = Signer::new("two");
    let new = two.token("ES256", &world.claims(&broker, "till-7"));
    let mut client = broker.client().await;
    refused(&broker, &mut client, &new, "not known yet").await;
    // The last look for it was just now; the next one is when the file's turn comes, or for a later token.
    world.publish(&two.jwks());
    broker.clock().advance(Duration::from_secs(10));
    let mut client = broker.client().await;
    assert_eq!(
        told(&show(&mut client, &new).await),
        (0, ""),
        "it is looked for at once"
    );
    let mut client = broker.client().await;
    let old = world.token(&broker, "till-7");
    refused(&broker, &mut client, &old, "a key that was withdrawn").await;

    world.publish("{");
    broker.clock().advance(Duration::from_secs(20));
    let mut client = broker.client().await;
    assert_eq!(
        told(&show(&mut client, &new).await),
        (0, ""),
        "a bad file changes nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_there_is_no_start_and_without_an_answer_nobody_gets_in() {
    let world = World::new();
    world.publish("{}");
    let Err(error) = world.builder().try_start().await else {
        panic!("it started without keys");
    };
    assert!(matches!(error, StartError::Oauth(_)), "{error}");
    assert!(
        error.to_string().contains("jwks.json is no JWKS"),
        "{error}"
    );

    let ca = world.dir.path().join("ca.pem");
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
    // On this port nobody answers.
    let broker = world
        .builder()
        .set(
            "sasl.oauthbearer.jwks.endpoint.url",
            "https://127.0.0.1:1/jwks",
        )
        .set("oauth.jwks.truststore.location", ca.display())
        .start()
        .await;
    let mut client = broker.client().await;
    let token = world.token(&broker, "till-7");
    refused(&broker, &mut client, &token, "no keys").await;
}
