//! An identity provider in a test: keys, their JWKS, and tokens of every kind.

// Each test program uses a part of it.
#![allow(dead_code)]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tidemark_oauth::{Accepted, Expected, KeySet, Refused, Token, Validator};

/// 2026-11-30 12:00:00 UTC
pub const NOW_S: i64 = 1_796_040_000;
pub const ISSUER: &str = "https://id.example/realms/shop";

pub enum Private {
    Rsa(Box<RsaKeyPair>),
    Ec(EcdsaKeyPair, usize),
    Ed(Ed25519KeyPair),
}

pub struct Signer {
    pub kid: Option<&'static str>,
    pub alg: &'static str,
    pub private: Private,
}

pub fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub fn new(kid: &'static str, alg: &'static str) -> Signer {
        let ec = |algorithm: &'static EcdsaSigningAlgorithm, size| {
            Private::Ec(EcdsaKeyPair::generate(algorithm).unwrap(), size)
        };
        let private = match alg {
            "ES256" => ec(&ECDSA_P256_SHA256_FIXED_SIGNING, 32),
            "ES384" => ec(&ECDSA_P384_SHA384_FIXED_SIGNING, 48),
            "ES512" => ec(&ECDSA_P521_SHA512_FIXED_SIGNING, 66),
            "EdDSA" => Private::Ed(Ed25519KeyPair::generate().unwrap()),
            _ => {
                let size = aws_lc_rs::rsa::KeySize::Rsa2048;
                Private::Rsa(Box::new(RsaKeyPair::generate(size).unwrap()))
            }
        };
        Signer {
            kid: Some(kid),
            alg,
            private,
        }
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.private {
            Private::Ed(key) => key.sign(message).as_ref().to_vec(),
            Private::Ec(key, _) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Private::Rsa(key) => {
                let encoding: &'static dyn RsaEncoding = match self.alg {
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    "PS512" => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(encoding, &random, message, &mut signature)
                    .unwrap();
                signature
            }
        }
    }

    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.private {
            Private::Rsa(key) => {
                // PKCS #1 in DER, whose lengths are known: 2048 bits, exponent 65537.
                let der = key.public_key().as_ref();
                json!({
                    "kty": "RSA",
                    "n": base64url(&der[9..265]),
                    "e": base64url(&der[267..]),
                })
            }
            Private::Ec(key, size) => {
                let point = key.public_key().as_ref();
                let crv = match size {
                    32 => "P-256",
                    48 => "P-384",
                    _ => "P-521",
                };
                json!({
                    "kty": "EC",
                    "crv": crv,
                    "x": base64url(&point[1..=*size]),
                    "y": base64url(&point[1 + size..]),
                })
            }
            Private::Ed(key) => json!({
                "kty": "OKP",
                "crv": "Ed25519",
                "x": base64url(key.public_key().as_ref()),
            }),
        };
        jwk["alg"] = self.alg.into();
        jwk["use"] = "sig".into();
        if let Some(kid) = self.kid {
            jwk["kid"] = kid.into();
        }
        jwk
    }

    pub fn header(&self) -> Value {
        match self.kid {
            Some(kid) => json!({"alg": self.alg, "typ": "JWT", "kid": kid}),
            None => json!({"alg": self.alg, "typ": "JWT"}),
        }
    }

    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header().to_string(), &claims.to_string())
    }

    pub fn token_with(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", base64url(header), base64url(claims));
        let signature = self.sign(signed.as_bytes());
        format!("{signed}.{}", base64url(signature))
    }
}

pub fn jwks(signers: &[&Signer]) -> String {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

pub fn key_set(signers: &[&Signer]) -> KeySet {
    KeySet::parse(jwks(signers).as_bytes()).unwrap()
}

/// What a good token says.
pub fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": "kafka", "sub": "till-7", "iat": NOW_S - 10, "nbf": NOW_S - 10,
        "exp": NOW_S + 300, "scope": "read write",
    })
}

/// The good claims with one of them other, or, with null, without it.
pub fn but(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

pub fn expected() -> Expected {
    Expected {
        issuer: ISSUER.to_owned(),
        audiences: vec!["kafka".to_owned(), "tidemark".to_owned()],
        clock_skew_s: 30,
        principal_claim: "sub".to_owned(),
        scope_claim: "scope".to_owned(),
    }
}

pub fn validate(token: &str, keys: &KeySet) -> Result<Accepted, Refused> {
    Validator::new(expected()).validate(&Token::new(token), None, keys, NOW_S * 1000)
}
