//! Whether a token is good here and now, and for whom.

use crate::json::{Json, Object};
use crate::jws;
use crate::keys::KeySet;
use crate::token::Token;

/// 31 December 9999: what is later is no number of seconds.
const MAX_SECONDS: f64 = 253_402_300_799.0;

const MAX_PRINCIPAL_BYTES: usize = 1024;

/// What every token must say, and where it says it.
#[derive(Clone, Debug)]
pub struct Expected {
    /// `sasl.oauthbearer.expected.issuer`: what `iss` must be, letter for letter.
    pub issuer: String,
    /// `sasl.oauthbearer.expected.audience`: one of these must be in `aud`.
    pub audiences: Vec<String>,
    /// `sasl.oauthbearer.clock.skew.seconds`: how far the issuer's clock may be from ours.
    pub clock_skew_s: u32,
    /// `sasl.oauthbearer.sub.claim.name`: the claim with the principal's name.
    pub principal_claim: String,
    /// `sasl.oauthbearer.scope.claim.name`
    pub scope_claim: String,
}

/// Why a token is refused, for the broker's own log: a client hears `invalid_token` whatever it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    #[error(
        "the token names no algorithm that is accepted: RS, PS, ES with 256, 384, 512, and EdDSA are"
    )]
    Algorithm,
    #[error("the token is for another purpose: its typ is neither JWT nor at+jwt")]
    Type,
    #[error("the token has the header crit, and none of its extensions is known here")]
    Critical,
    #[error("no keys have been read yet")]
    NoKeys,
    #[error("the token has no kid, and there are several keys")]
    NoKeyId,
    #[error("the token's kid is none of the keys'")]
    UnknownKey,
    #[error("the token's algorithm is not that of its key")]
    KeysAlgorithm,
    #[error("the token's signature is not that of its key")]
    Signature,
    #[error("the token has no {0}, or one that is of the wrong kind")]
    Claim(String),
    #[error("the token is not from sasl.oauthbearer.expected.issuer")]
    Issuer,
    #[error("the token is not for sasl.oauthbearer.expected.audience")]
    Audience,
    #[error("the token ended {ago_s} s ago")]
    Expired { ago_s: i64 },
    #[error("the token begins in {in_s} s; are the clocks right?")]
    NotYet { in_s: i64 },
    #[error("the client asked for an authorization id that is not the token's principal")]
    AuthorizationId,
}

impl Refused {
    /// Newer keys could be the mend.
    pub fn is_for_want_of_a_key(&self) -> bool {
        matches!(self, Refused::UnknownKey | Refused::NoKeys)
    }
}

/// Whom a token lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Without `User:` in front.
    pub principal: String,
    /// When this must be shown again, in milliseconds since 1970: `exp`; of a token that is past it, and
    /// accepted because clocks differ, when it no longer is.
    pub expires_at_ms: i64,
    pub scopes: Vec<String>,
}

/// Checks tokens. Knows no keys and no time of its own.
#[derive(Clone, Debug)]
pub struct Validator {
    expected: Expected,
}

impl Validator {
    pub fn new(expected: Expected) -> Validator {
        Validator { expected }
    }

    /// `authorization_id` is what the client asked for, if it did; `now_ms` is since 1970.
    pub fn validate(
        &self,
        token: &Token,
        authorization_id: Option<&str>,
        keys: &KeySet,
        now_ms: i64,
    ) -> Result<Accepted, Refused> {
        let claims = jws::verified_claims(token.text(), keys)?;
        let accepted = self.judge(&claims, now_ms)?;
        match authorization_id {
            Some(id) if id != accepted.principal => Err(Refused::AuthorizationId),
            _ => Ok(accepted),
        }
    }

    fn judge(&self, claims: &Object, now_ms: i64) -> Result<Accepted, Refused> {
        let expected = &self.expected;
        let missing = |name: &str| Refused::Claim(name.to_owned());
        let text = |name: &str| claims.get(name).and_then(Json::text);

        if text("iss").ok_or_else(|| missing("iss"))? != expected.issuer {
            return Err(Refused::Issuer);
        }
        let audience = match claims.get("aud") {
            Some(Json::String(one)) => Some(vec![one.as_str()]),
            Some(several) => several.texts(),
            None => None,
        };
        let audience = audience.ok_or_else(|| missing("aud"))?;
        let ours = |it: &&str| expected.audiences.iter().any(|known| known == it);
        if !audience.iter().any(ours) {
            return Err(Refused::Audience);
        }

        let skew_ms = i64::from(expected.clock_skew_s) * 1000;
        let expires_at_ms = time_ms(claims, "exp")?.ok_or_else(|| missing("exp"))?;
        if now_ms.saturating_sub(skew_ms) >= expires_at_ms {
            let ago_s = now_ms.saturating_sub(expires_at_ms) / 1000;
            return Err(Refused::Expired { ago_s });
        }
        let shown_again_ms = match now_ms < expires_at_ms {
            true => expires_at_ms,
            false => expires_at_ms + skew_ms,
        };
        let issued_at_ms = time_ms(claims, "iat")?.ok_or_else(|| missing("iat"))?;
        let begins_at_ms = time_ms(claims, "nbf")?.unwrap_or(issued_at_ms);
        let begins_at_ms = begins_at_ms.max(issued_at_ms);
        if now_ms.saturating_add(skew_ms) < begins_at_ms {
            let in_s = begins_at_ms.saturating_sub(now_ms) / 1000;
            return Err(Refused::NotYet { in_s });
        }

        let principal = text(&expected.principal_claim).filter(|name| is_name(name));
        let principal = principal.ok_or_else(|| missing(&expected.principal_claim))?;
        let scopes = match claims.get(&expected.scope_claim) {
            None | Some(Json::Null) => Some(Vec::new()),
            Some(Json::String(words)) => Some(words.split_ascii_whitespace().collect()),
            Some(several) => several.texts(),
        };
        let scopes = scopes.ok_or_else(|| missing(&expected.scope_claim))?;
        Ok(Accepted {
            principal: principal.to_owned(),
            expires_at_ms: shown_again_ms,
            scopes: scopes.into_iter().map(str::to_owned).collect(),
        })
    }
}

/// What can be a principal's name, and a person can tell from others in a list of them.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_PRINCIPAL_BYTES
        && name.trim() == name
        && !name.chars().any(char::is_control)
}

/// A NumericDate (RFC 7519, 2) in milliseconds.
fn time_ms(claims: &Object, name: &str) -> Result<Option<i64>, Refused> {
    match claims.get(name) {
        None => Ok(None),
        Some(Json::Number(seconds)) if (0.0..=MAX_SECONDS).contains(seconds) => {
            Ok(Some((seconds * 1000.0).floor() as i64))
        }
        Some(_) => Err(Refused::Claim(name.to_owned())),
    }
}
