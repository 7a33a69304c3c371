//! Public keys from a JWKS (RFC 7517, 7518, 8037), each for one algorithm.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::json::{self, Json, Object};

/// The largest JWKS that is looked at; a few keys have a few KiB.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// More than any provider has at a time.
const MAX_KEYS: usize = 256;

/// How a token may be signed: with a private key that the broker does not have. There is no `none`, and
/// no HMAC, whose key would be the public one (RFC 8725, 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    EdDsa,
}

impl Algorithm {
    const ALL: [(&'static str, Algorithm); 11] = [
        ("RS256", Algorithm::Rs256),
        ("RS384", Algorithm::Rs384),
        ("RS512", Algorithm::Rs512),
        ("PS256", Algorithm::Ps256),
        ("PS384", Algorithm::Ps384),
        ("PS512", Algorithm::Ps512),
        ("ES256", Algorithm::Es256),
        ("ES384", Algorithm::Es384),
        ("ES512", Algorithm::Es512),
        ("EdDSA", Algorithm::EdDsa),
        // Its other name (RFC 9864); with Ed25519 keys the two are one.
        ("Ed25519", Algorithm::EdDsa),
    ];

    /// By its name, letter for letter.
    pub fn of(name: &str) -> Option<Algorithm> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, algorithm)| *algorithm)
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
            _ => return None,
        })
    }
}

/// Why a set of keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("it has more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("{0}")]
    NoJson(&'static str),
    #[error(
        "it has no array \"keys\": {{\"keys\":[{{\"kty\":\"RSA\",\"kid\":\"..\",\"n\":\"..\",\"e\":\"AQAB\"}}]}}"
    )]
    NoArray,
    #[error("it has more than {MAX_KEYS} keys")]
    TooMany,
    #[error("two of its keys have the kid {0:?}")]
    Twice(String),
    #[error(
        "none of its {total} keys can check signatures: {why}",
        why = if reasons.is_empty() { "the array is empty" } else { reasons }
    )]
    NoneOfUse { total: usize, reasons: String },
}

/// The keys that tokens may be signed with.
#[derive(Clone, Default)]
pub struct KeySet {
    keys: Vec<Key>,
    /// Of each key that is not used: which and why.
    passed_over: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Key {
    id: Option<String>,
    pub(crate) algorithm: Algorithm,
    public: ParsedPublicKey,
}

impl Key {
    pub(crate) fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        self.public.verify_sig(signed, signature).is_ok()
    }
}

impl KeySet {
    /// Reads a JWKS. Keys that are for something else are passed over; one without any that can be used
    /// is an error.
    pub fn parse(text: &[u8]) -> Result<KeySet, KeysError> {
        if text.len() > MAX_BYTES {
            return Err(KeysError::TooLarge);
        }
        let object = json::object(text).map_err(KeysError::NoJson)?;
        let Some(Json::Array(items)) = object.get("keys") else {
            return Err(KeysError::NoArray);
        };
        if items.len() > MAX_KEYS {
            return Err(KeysError::TooMany);
        }
        let mut set = KeySet::default();
        for (n, item) in items.iter().enumerate() {
            match key(item) {
                Ok(key) => set.add(key)?,
                Err(why) => set.passed_over.push(format!("{}: {why}", name_of(n, item))),
            }
        }
        match set.keys.is_empty() {
            true => Err(KeysError::NoneOfUse {
                total: items.len(),
                reasons: set.passed_over.join("; ").chars().take(500).collect(),
            }),
            false => Ok(set),
        }
    }

    fn add(&mut self, key: Key) -> Result<(), KeysError> {
        match &key.id {
            Some(id) if self.keys.iter().any(|known| known.id == key.id) => {
                Err(KeysError::Twice(id.clone()))
            }
            _ => {
                self.keys.push(key);
                Ok(())
            }
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// One line for each key of the set that is not used, and why.
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    /// The key of a kid; without one, the only key there is.
    pub(crate) fn find(&self, id: Option<&str>) -> Option<&Key> {
        match (id, &self.keys[..]) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(id), keys) => keys.iter().find(|key| key.id.as_deref() == Some(id)),
        }
    }
}

fn name_of(n: usize, item: &Json) -> String {
    let id = match item {
        Json::Object(fields) => fields.get("kid").and_then(Json::text),
        _ => None,
    };
    match id {
        Some(id) => format!("key {:?}", id.chars().take(64).collect::<String>()),
        None => format!("key number {}", n + 1),
    }
}

/// One JWK; the error is why it is not used.
fn key(item: &Json) -> Result<Key, &'static str> {
    let Json::Object(fields) = item else {
        return Err("it is no JSON object");
    };
    if fields.contains_key("d") || fields.contains_key("k") {
        return Err("it is a private or secret key, and a JWKS is read by everyone");
    }
    if fields.get("use").is_some_and(|it| it.text() != Some("sig")) {
        return Err("its use is not sig");
    }
    if let Some(operations) = fields.get("key_ops") {
        let operations = operations.texts().unwrap_or_default();
        if !operations.contains(&"verify") {
            return Err("its key_ops are without verify");
        }
    }
    let id = match fields.get("kid") {
        None => None,
        Some(id) => Some(id.text().ok_or("its kid is no string")?.to_owned()),
    };
    let named = match fields.get("alg") {
        None => None,
        Some(name) => Some(
            name.text()
                .and_then(Algorithm::of)
                .ok_or("its alg is none that is accepted here")?,
        ),
    };
    let (algorithm, public) = match fields.get("kty").and_then(Json::text) {
        Some("RSA") => rsa(fields, named)?,
        Some("EC" | "OKP") => curve(fields, named)?,
        Some("oct") => return Err("it is a secret key"),
        _ => return Err("its kty is none of RSA, EC, OKP"),
    };
    Ok(Key {
        id,
        algorithm,
        public,
    })
}

/// Without `alg` RS256: one key, one algorithm (RFC 8725, 3.1).
fn rsa(
    fields: &Object,
    named: Option<Algorithm>,
) -> Result<(Algorithm, ParsedPublicKey), &'static str> {
    let algorithm = named.unwrap_or(Algorithm::Rs256);
    let parameters = algorithm.rsa().ok_or("its alg is not one of RSA")?;
    let without_zeros =
        |bytes: Vec<u8>| -> Vec<u8> { bytes.into_iter().skip_while(|byte| *byte == 0).collect() };
    let n = without_zeros(bytes(fields, "n").ok_or("its n is no base64url")?);
    let e = without_zeros(bytes(fields, "e").ok_or("its e is no base64url")?);
    let bits = n.len() * 8 - n.first().map_or(0, |first| first.leading_zeros() as usize);
    if !(2048..=8192).contains(&bits) {
        return Err("its modulus has not between 2048 and 8192 bits");
    }
    // With the exponent 1 whatever is signed is its own signature.
    if e.len() > 4 || e.last().is_none_or(|last| last % 2 == 0) || e == [1] {
        return Err("its exponent is not an odd number from 3 to 2^32");
    }
    let public = RsaPublicKeyComponents { n, e }
        .to_parsed_public_key(parameters)
        .map_err(|_| "it is no RSA key")?;
    Ok((algorithm, public))
}

fn curve(
    fields: &Object,
    named: Option<Algorithm>,
) -> Result<(Algorithm, ParsedPublicKey), &'static str> {
    let kty = fields.get("kty").and_then(Json::text);
    let crv = fields.get("crv").and_then(Json::text);
    let (algorithm, verification, size): (_, &'static dyn VerificationAlgorithm, _) =
        match (kty, crv) {
            (Some("EC"), Some("P-256")) => (Algorithm::Es256, &ECDSA_P256_SHA256_FIXED, 32),
            (Some("EC"), Some("P-384")) => (Algorithm::Es384, &ECDSA_P384_SHA384_FIXED, 48),
            (Some("EC"), Some("P-521")) => (Algorithm::Es512, &ECDSA_P521_SHA512_FIXED, 66),
            (Some("OKP"), Some("Ed25519")) => (Algorithm::EdDsa, &ED25519, 32),
            _ => return Err("its crv is none of P-256, P-384, P-521, Ed25519"),
        };
    if named.is_some_and(|named| named != algorithm) {
        return Err("its alg does not fit its crv");
    }
    let coordinate = |name| {
        let bytes = bytes(fields, name)?;
        (bytes.len() == size).then_some(bytes)
    };
    let wrong = "its x or y is no base64url of the right length";
    let x = coordinate("x").ok_or(wrong)?;
    let point = match algorithm {
        Algorithm::EdDsa => x,
        // SEC 1's form of a point that is not compressed.
        _ => [&[4][..], &x, &coordinate("y").ok_or(wrong)?].concat(),
    };
    let public = ParsedPublicKey::new(verification, point)
        .map_err(|_| "its x and y are no point of the curve")?;
    Ok((algorithm, public))
}

fn bytes(fields: &Object, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(fields.get(name)?.text()?).ok()
}
