//! SASL mechanisms, the server's side: what a client's message says and whether it proves who sent
//! it. PLAIN (RFC 4616) and SCRAM with SHA-256 and SHA-512 (RFC 5802, RFC 7677).
//!
//! Pure: no clock, file, socket or randomness. Nonces and salts are arguments, users are looked up by
//! the caller between two messages. Primitives (HMAC, PBKDF2, comparison in constant time) are
//! aws-lc-rs's.
//!
//! Nothing here shows a secret: what holds one has a `Debug` that leaves it out, and no refusal
//! quotes what a client sent.

pub mod base64;
pub mod fake;
pub mod plain;
pub mod scram;

pub use scram::{Credential, Hash};

/// Why an exchange failed. What of it the client hears is the caller's to say ([`Refusal::told`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The password or the proof is wrong, or there is no such user: which of these is not told.
    Credentials,
    /// The client wants to act for somebody else (CVE-2017-12610).
    OtherIdentity,
    /// The message is not one of this mechanism, or asks for what is not spoken here.
    Message(&'static str),
}

impl Refusal {
    /// What Kafka tells the client beyond "invalid credentials"; nothing of what the message was.
    pub const fn told(self) -> Option<&'static str> {
        match self {
            Refusal::OtherIdentity => Some(
                "Authentication failed: Client requested an authorization id that is different from \
                 username",
            ),
            Refusal::Credentials | Refusal::Message(_) => None,
        }
    }

    /// For the log: no secret, and nothing that the client chose.
    pub const fn why(self) -> &'static str {
        match self {
            Refusal::Credentials => "wrong user, password or proof",
            Refusal::OtherIdentity => "an authorization id other than the user",
            Refusal::Message(what) => what,
        }
    }
}
