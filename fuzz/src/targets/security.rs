//! What comes before a client is known.

use std::sync::LazyLock;

use tidemark_sasl::scram::{ClientFirst, NONCE_BYTES};
use tidemark_sasl::{Credential, Hash, plain as plain_message};

use crate::claims::{Expected, Validator};
use crate::keys::KeySet;
use crate::message;
use crate::token::Token;

/// The example of RFC 7517, appendix A.1.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","kid":"1","use":"sig",
"x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;
/// The header {"alg":"ES256","kid":"1"}, the claims {"iss":"i","aud":"a","sub":"s","exp":4102444800}, and
/// a signature that is none.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJpIiwiYXVkIjoiYSIsInN1YiI6InMiLCJleHAiOjQxMDI0NDQ4MDB9.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

pub fn oauth_message(bytes: &[u8]) {
    let _ = message::parse(bytes);
}

pub fn oauth_message_seeds() -> Vec<Vec<u8>> {
    [
        "n,,\u{1}auth=Bearer a.b.c\u{1}\u{1}",
        "n,a=user,\u{1}auth=Bearer a.b.c\u{1}traceId=12\u{1}\u{1}",
        "\u{1}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

pub fn jwt(bytes: &[u8]) {
    static READY: LazyLock<(Validator, KeySet)> = LazyLock::new(|| {
        let expected = Expected {
            issuer: "i".to_owned(),
            audiences: vec!["a".to_owned()],
            clock_skew_s: 30,
            principal_claim: "sub".to_owned(),
            scope_claim: "scope".to_owned(),
        };
        let keys = KeySet::parse(KEYS.as_bytes()).expect("a good set of keys");
        (Validator::new(expected), keys)
    });
    let (validator, keys) = &*READY;
    let token = Token::new(String::from_utf8_lossy(bytes));
    // Nobody has the key: whatever the bytes are, they are no token of its.
    assert!(
        validator
            .validate(&token, None, keys, 1_700_000_000_000)
            .is_err()
    );
}

pub fn jwt_seeds() -> Vec<Vec<u8>> {
    let unsigned = TOKEN.rsplit_once('.').expect("three parts").0;
    vec![
        TOKEN.as_bytes().to_vec(),
        format!("{unsigned}.").into_bytes(),
        b"eyJhbGciOiJub25lIn0.e30.".to_vec(),
    ]
}

pub fn jwks(bytes: &[u8]) {
    let _ = KeySet::parse(bytes);
}

pub fn jwks_seeds() -> Vec<Vec<u8>> {
    vec![
        KEYS.as_bytes().to_vec(),
        br#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"r","alg":"RS256"}]}"#.to_vec(),
        br#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#.to_vec(),
    ]
}

pub fn plain(bytes: &[u8]) {
    let _ = plain_message::parse(bytes);
}

pub fn plain_seeds() -> Vec<Vec<u8>> {
    ["\0user\0password", "user\0user\0password", "other\0user\0p"]
        .map(|text| text.as_bytes().to_vec())
        .into()
}

/// Both messages, a byte 0xff between them.
pub fn scram(bytes: &[u8]) {
    static CREDENTIAL: LazyLock<Credential> =
        LazyLock::new(|| Credential::of_password(Hash::Sha256, "password", vec![7; 16], 4_096));
    let mut messages = bytes.splitn(2, |byte| *byte == 0xff);
    let first = messages.next().unwrap_or_default();
    let last = messages.next().unwrap_or_default();
    let Ok(first) = ClientFirst::parse(first) else {
        return;
    };
    let (answer, waiting) = first.answer(Hash::Sha256, CREDENTIAL.clone(), &[0; NONCE_BYTES]);
    assert!(answer.is_ascii());
    // Nobody knows the password.
    assert!(waiting.finish(last).is_err());
}

pub fn scram_seeds() -> Vec<Vec<u8>> {
    let nonce = "A".repeat(NONCE_BYTES / 3 * 4);
    let proof = "A".repeat(43);
    let whole = format!("n,,n=user,r=abc\u{0}c=biws,r=abc{nonce},p={proof}=");
    let mut seeds = vec![
        b"n,a=user,n=user,r=abc,x=1".to_vec(),
        b"y,,n=u=2Cser,r=abc".to_vec(),
    ];
    seeds.push(
        whole
            .bytes()
            .map(|b| if b == 0 { 0xff } else { b })
            .collect(),
    );
    seeds
}
