//! What comes before a client is known.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidemark_authorizer::{
    Acl, AclFilter, Acls, Operation, PatternFilter, PatternType, Permission, ResourceType,
    parse_super_users,
};
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

fn expected() -> Expected {
    Expected {
        issuer: "i".to_owned(),
        audiences: vec!["a".to_owned()],
        clock_skew_s: 30,
        principal_claim: "sub".to_owned(),
        scope_claim: "scope".to_owned(),
    }
}

pub fn jwt(bytes: &[u8]) {
    static READY: LazyLock<(Validator, KeySet)> = LazyLock::new(|| {
        let keys = KeySet::parse(KEYS.as_bytes()).expect("a good set of keys");
        (Validator::new(expected()), keys)
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

/// The header of a token and its claims, a byte 0xff between them, signed with a key that is known.
pub fn jwt_claims(bytes: &[u8]) {
    static READY: LazyLock<(Ed25519KeyPair, KeySet)> = LazyLock::new(|| {
        let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("any seed is a key");
        let x = URL_SAFE_NO_PAD.encode(key.public_key().as_ref());
        let keys = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"1","x":"{x}"}}]}}"#);
        let keys = KeySet::parse(keys.as_bytes()).expect("a good set of keys");
        (key, keys)
    });
    const NOW_MS: i64 = 1_700_000_000_000;
    let (key, keys) = &*READY;
    let mut parts = bytes.splitn(2, |byte| *byte == 0xff);
    let mut part = || URL_SAFE_NO_PAD.encode(parts.next().unwrap_or_default());
    let signed = format!("{}.{}", part(), part());
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).as_ref());
    let token = Token::new(format!("{signed}.{signature}"));
    let validator = Validator::new(expected());
    if let Ok(accepted) = validator.validate(&token, None, keys, NOW_MS) {
        assert!(!accepted.principal.is_empty());
        assert!(accepted.expires_at_ms > NOW_MS);
    }
}

pub fn jwt_claims_seeds() -> Vec<Vec<u8>> {
    const HEADERS: [&str; 3] = [
        r#"{"alg":"EdDSA","kid":"1"}"#,
        r#"{"alg":"EdDSA","kid":"1","typ":"at+jwt"}"#,
        r#"{"alg":"EdDSA","kid":"1","crit":["b64"]}"#,
    ];
    const CLAIMS: [&str; 3] = [
        r#"{"iss":"i","aud":"a","sub":"s","exp":4102444800,"iat":1600000000}"#,
        r#"{"iss":"i","aud":["b","a"],"sub":"s","exp":1700000001.5,"iat":0,"nbf":1e9,"scope":["x","y"]}"#,
        r#"{"iss":"i","aud":"a","sub":"\u00fc\ud83d\ude00","exp":4102444800,"iat":1,"scope":"x y","o":{"a":[null,true]}}"#,
    ];
    let pairs = HEADERS.iter().zip(CLAIMS);
    pairs
        .map(|(header, claims)| [header.as_bytes(), &[0xff], claims.as_bytes()].concat())
        .collect()
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

/// Eight bytes for a filter, then as many for each ACL: what the index finds is what a search finds.
pub fn acls(bytes: &[u8]) {
    let _ = parse_super_users(&String::from_utf8_lossy(bytes));
    let Some((wanted, rest)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let all: BTreeSet<Acl> = rest.as_chunks::<8>().0.iter().map(acl).collect();
    let mut index = Acls::new();
    for acl in &all {
        assert!(index.insert(acl));
        assert!(!index.insert(acl), "it is there");
    }
    index.check().expect("what must hold");
    let like = acl(wanted);
    let mask = wanted[7];
    let is_set = |bit: u8| mask >> bit & 1 == 1;
    let filter = AclFilter {
        resource_type: is_set(0).then_some(like.resource_type),
        name: is_set(1).then_some(like.name),
        pattern: match wanted[6] % 4 {
            0 => PatternFilter::Any,
            1 => PatternFilter::Match,
            _ => PatternFilter::Of(like.pattern_type),
        },
        principal: is_set(2).then_some(like.principal),
        host: is_set(3).then_some(like.host),
        operation: is_set(4).then_some(like.operation),
        permission: is_set(5).then_some(like.permission),
    };
    let found: BTreeSet<Acl> = index.matching(&filter).collect();
    let searched: BTreeSet<Acl> = all
        .iter()
        .filter(|acl| filter.matches(acl))
        .cloned()
        .collect();
    assert_eq!(found, searched, "{filter:?}");
    for acl in &found {
        assert!(index.remove(acl));
    }
    assert_eq!(index.len(), all.len() - found.len());
    index.check().expect("what must hold");
}

fn acl(bytes: &[u8; 8]) -> Acl {
    fn one_of<T: Copy>(all: &[T], byte: u8) -> T {
        all[usize::from(byte) % all.len()]
    }
    const NAMES: [&str; 6] = ["*", "a", "ab", "abc", "b", "kafka-cluster"];
    Acl {
        resource_type: one_of(ResourceType::ALL, bytes[0]),
        name: Arc::from(one_of(&NAMES, bytes[1])),
        pattern_type: one_of(PatternType::ALL, bytes[2]),
        principal: Arc::from(one_of(&["User:*", "User:a", "User:b"], bytes[3])),
        host: Arc::from(one_of(&["*", "127.0.0.1"], bytes[4])),
        operation: one_of(Operation::ALL, bytes[5]),
        permission: one_of(Permission::ALL, bytes[6] >> 4),
    }
}

pub fn acls_seeds() -> Vec<Vec<u8>> {
    let many = (0..64u8).map(|n| n.wrapping_mul(37)).collect();
    vec![many, b"User:admin;User:CN=a,O=b".to_vec()]
}
