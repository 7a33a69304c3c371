//! A signed token in its compact form (RFC 7515, 7.1): three parts of base64url with dots between.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::claims::Refused;
use crate::json::{self, Json, Object};
use crate::keys::{Algorithm, KeySet};
use crate::message;

/// What tokens for APIs say that they are (RFC 9068), or nothing. Tokens for other purposes, such as
/// logout tokens and proofs of possession, say so and are signed with the same keys.
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];

/// The claims of a token whose signature is that of the key it names.
pub(crate) fn verified_claims(token: &str, keys: &KeySet) -> Result<Object, Refused> {
    if token.len() > message::MAX_BYTES {
        return Err(Refused::Malformed("it is too long"));
    }
    let mut parts = token.split('.');
    let (Some(header), Some(payload), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Refused::Malformed("it has not three parts"));
    };
    let signed = &token[..header.len() + 1 + payload.len()];
    let no_base64 = |_| Refused::Malformed("a part of it is no base64url");
    let decode = |part| URL_SAFE_NO_PAD.decode(part).map_err(no_base64);

    let header = json::object(&decode(header)?).map_err(Refused::Malformed)?;
    let (payload, signature) = (decode(payload)?, decode(signature)?);
    // Who writes it says that the token must not be used by who does not know what is named there.
    if header.contains_key("crit") {
        return Err(Refused::Critical);
    }
    let algorithm = header.get("alg").and_then(Json::text);
    let algorithm = algorithm
        .and_then(Algorithm::of)
        .ok_or(Refused::Algorithm)?;
    if let Some(kind) = header.get("typ") {
        let known = |kind: &str| TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind));
        if !kind.text().is_some_and(known) {
            return Err(Refused::Type);
        }
    }
    let id = match header.get("kid") {
        None => None,
        Some(id) => Some(
            id.text()
                .ok_or(Refused::Malformed("its kid is no string"))?,
        ),
    };
    let key = keys.find(id).ok_or_else(|| match id {
        _ if keys.is_empty() => Refused::NoKeys,
        None => Refused::NoKeyId,
        Some(_) => Refused::UnknownKey,
    })?;
    if key.algorithm != algorithm {
        return Err(Refused::KeysAlgorithm);
    }
    if !key.verifies(signed.as_bytes(), &signature) {
        return Err(Refused::Signature);
    }
    json::object(&payload).map_err(Refused::Malformed)
}
