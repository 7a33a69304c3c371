//! SCRAM (RFC 5802) with SHA-256 (RFC 7677) and SHA-512, the server's side.
//!
//! ```text
//! client                                         server
//!   n,,n=USER,r=CNONCE           ─────────►  ClientFirst::parse, look the user up
//!                                ◄─────────  r=CNONCE SNONCE,s=SALT,i=ITERATIONS   (answer)
//!   c=biws,r=CNONCE SNONCE,p=PROOF ───────►  AwaitFinal::finish
//!                                ◄─────────  v=SIGNATURE
//! ```
//!
//! The server keeps what is derived from a password, never the password: from a stolen credential
//! nobody can log in, only guess. Its own nonce must come back unaltered (CVE-2024-56128).
//!
//! Channel binding is not offered: `n` and `y` are accepted, `p=` is refused, and what the first
//! message said of it must be what the last one says. Extensions that must be understood (`m=`) and
//! Kafka's `tokenauth` (delegation tokens) are refused; others are passed over, and signed.

use std::fmt;
use std::num::NonZeroU32;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, hmac, pbkdf2};

use crate::{Refusal, base64};

/// The longest message of a client.
pub const MAX_MESSAGE_BYTES: usize = 4096;
/// The longest nonce of a client; Kafka's has 26 characters.
const MAX_NONCE_BYTES: usize = 512;
/// Bytes of randomness in the server's nonce.
pub const NONCE_BYTES: usize = 24;

/// Kafka's bounds of the iteration count; a stored credential has no other.
pub const MIN_ITERATIONS: u32 = 4096;
pub const MAX_ITERATIONS: u32 = 16_384;

/// Which hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    /// The mechanism's name in SaslHandshake.
    pub const fn mechanism(self) -> &'static str {
        match self {
            Hash::Sha256 => "SCRAM-SHA-256",
            Hash::Sha512 => "SCRAM-SHA-512",
        }
    }

    pub const fn output_bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha512 => 64,
        }
    }

    pub fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        let key = hmac::Key::new(algorithm, key);
        hmac::sign(&key, message).as_ref().to_vec()
    }

    pub fn digest(self, message: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, message).as_ref().to_vec()
    }

    /// `Hi` of the RFC: PBKDF2. Takes a millisecond and more, by intent: not to be called where others
    /// wait.
    pub fn salted_password(self, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        let mut out = vec![0; self.output_bytes()];
        pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut out);
        out
    }
}

/// What is kept of a user's password for one mechanism.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub salt: Vec<u8>,
    pub iterations: u32,
    /// H(HMAC(SaltedPassword, "Client Key")): what a proof is checked with.
    pub stored_key: Vec<u8>,
    /// HMAC(SaltedPassword, "Server Key"): how the server proves that it knows the user.
    pub server_key: Vec<u8>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl Credential {
    /// From a password. As slow as [`Hash::salted_password`].
    pub fn of_password(hash: Hash, password: &str, salt: Vec<u8>, iterations: u32) -> Credential {
        let salted = hash.salted_password(password, &salt, iterations);
        Credential::of_salted_password(hash, &salted, salt, iterations)
    }

    /// From what AlterUserScramCredentials carries: the client has salted the password itself.
    pub fn of_salted_password(
        hash: Hash,
        salted_password: &[u8],
        salt: Vec<u8>,
        iterations: u32,
    ) -> Credential {
        let client_key = hash.hmac(salted_password, b"Client Key");
        Credential {
            salt,
            iterations,
            stored_key: hash.digest(&client_key),
            server_key: hash.hmac(salted_password, b"Server Key"),
        }
    }

    /// True for the password that it was made from. As slow as [`Hash::salted_password`]. For PLAIN.
    pub fn is_of(&self, hash: Hash, password: &str) -> bool {
        let salted = hash.salted_password(password, &self.salt, self.iterations);
        let stored_key = hash.digest(&hash.hmac(&salted, b"Client Key"));
        verify_slices_are_equal(&stored_key, &self.stored_key).is_ok()
    }
}

/// A client's first message: who it says it is.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientFirst {
    user: String,
    nonce: String,
    /// `n,,` and what may stand in it: to come back in the last message.
    gs2_header: String,
    bare: String,
}

impl ClientFirst {
    /// Reads the first message.
    pub fn parse(message: &[u8]) -> Result<ClientFirst, Refusal> {
        let text = text(message)?;
        let mut parts = text.splitn(3, ',');
        let (Some(binding), Some(identity), Some(bare)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(Refusal::Message("SCRAM: the first message is cut short"));
        };
        match binding {
            "n" | "y" => {}
            _ if binding.starts_with("p=") => {
                return Err(Refusal::Message("SCRAM: channel binding is not offered"));
            }
            _ => return Err(Refusal::Message("SCRAM: not a first message")),
        }
        let identity = match identity {
            "" => None,
            identity => {
                let name = identity.strip_prefix("a=").and_then(saslname);
                Some(name.ok_or(Refusal::Message("SCRAM: a bad authorization id"))?)
            }
        };
        let mut fields = bare.split(',');
        let user = match fields.next().unwrap_or_default() {
            field if field.starts_with("m=") => {
                return Err(Refusal::Message(
                    "SCRAM: an extension that must be understood",
                ));
            }
            field => field.strip_prefix("n=").and_then(saslname),
        };
        let user = user.ok_or(Refusal::Message("SCRAM: no user in the first message"))?;
        let nonce = fields.next().and_then(|field| field.strip_prefix("r="));
        let nonce = nonce
            .filter(|nonce| is_nonce(nonce))
            .ok_or(Refusal::Message("SCRAM: no nonce in the first message"))?;
        extensions(fields)?;
        if identity.is_some_and(|identity| identity != user) {
            return Err(Refusal::OtherIdentity);
        }
        let gs2_bytes = text.len() - bare.len();
        Ok(ClientFirst {
            nonce: nonce.to_owned(),
            user,
            gs2_header: text[..gs2_bytes].to_owned(),
            bare: bare.to_owned(),
        })
    }

    /// Who the client says it is; nothing is proved yet.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The server's first message, and what waits for the client's last one. `credential` is the
    /// user's, or [`crate::fake::credential`] for a user that does not exist. `nonce` is random and used
    /// once.
    pub fn answer(
        self,
        hash: Hash,
        credential: Credential,
        nonce: &[u8; NONCE_BYTES],
    ) -> (Vec<u8>, AwaitFinal) {
        let nonce = format!("{}{}", self.nonce, base64::encode(nonce));
        let server_first = format!(
            "r={nonce},s={},i={}",
            base64::encode(&credential.salt),
            credential.iterations
        );
        let waiting = AwaitFinal {
            hash,
            credential,
            nonce,
            gs2_header: self.gs2_header,
            so_far: format!("{},{server_first}", self.bare),
        };
        (server_first.into_bytes(), waiting)
    }
}

/// The second half of an exchange: the proof is to come.
pub struct AwaitFinal {
    hash: Hash,
    credential: Credential,
    nonce: String,
    gs2_header: String,
    /// Both messages as they are signed.
    so_far: String,
}

impl AwaitFinal {
    /// Checks the proof. `Ok` is the server's last message; only it says that the client is who it
    /// says it is.
    pub fn finish(self, message: &[u8]) -> Result<Vec<u8>, Refusal> {
        let text = text(message)?;
        let (signed, proof) = text
            .rsplit_once(",p=")
            .ok_or(Refusal::Message("SCRAM: no proof in the last message"))?;
        let mut fields = signed.split(',');
        let binding = fields.next().and_then(|field| field.strip_prefix("c="));
        let binding = binding
            .and_then(base64::decode)
            .ok_or(Refusal::Message("SCRAM: not a last message"))?;
        if binding != self.gs2_header.as_bytes() {
            return Err(Refusal::Message(
                "SCRAM: the last message says another channel binding than the first",
            ));
        }
        let nonce = fields.next().and_then(|field| field.strip_prefix("r="));
        if nonce != Some(self.nonce.as_str()) {
            return Err(Refusal::Message(
                "SCRAM: the nonce did not come back as sent (a librdkafka below 2.6.1?)",
            ));
        }
        extensions(fields)?;
        let proof = base64::decode(proof)
            .filter(|proof| proof.len() == self.hash.output_bytes())
            .ok_or(Refusal::Message("SCRAM: the proof is no hash"))?;

        let all = format!("{},{signed}", self.so_far);
        let signature = self.hash.hmac(&self.credential.stored_key, all.as_bytes());
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(p, s)| p ^ s).collect();
        let stored_key = self.hash.digest(&client_key);
        verify_slices_are_equal(&stored_key, &self.credential.stored_key)
            .map_err(|_| Refusal::Credentials)?;
        let ours = self.hash.hmac(&self.credential.server_key, all.as_bytes());
        Ok(format!("v={}", base64::encode(&ours)).into_bytes())
    }
}

fn text(message: &[u8]) -> Result<&str, Refusal> {
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(Refusal::Message("SCRAM: the message is too long"));
    }
    let text = std::str::from_utf8(message)
        .map_err(|_| Refusal::Message("SCRAM: the message is not UTF-8"))?;
    match text.contains('\0') {
        true => Err(Refusal::Message("SCRAM: the message has a NUL")),
        false => Ok(text),
    }
}

/// A name as it is meant: `=2C` is a comma, `=3D` is `=`, and no other `=` may stand in it.
fn saslname(escaped: &str) -> Option<String> {
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((before, after)) = rest.split_once('=') {
        name.push_str(before);
        rest = match (after.strip_prefix("2C"), after.strip_prefix("3D")) {
            (Some(after), _) => {
                name.push(',');
                after
            }
            (_, Some(after)) => {
                name.push('=');
                after
            }
            _ => return None,
        };
    }
    name.push_str(rest);
    (!name.is_empty()).then_some(name)
}

fn is_nonce(nonce: &str) -> bool {
    !nonce.is_empty()
        && nonce.len() <= MAX_NONCE_BYTES
        && nonce.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Optional extensions: one letter of meaning to them, `=`, a value.
fn extensions<'a>(fields: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    for field in fields {
        match field.split_once('=') {
            // A delegation token in place of a password (KIP-48).
            Some(("tokenauth", _)) => {
                return Err(Refusal::Message("SCRAM: delegation tokens are not offered"));
            }
            Some(("m", _)) => {
                return Err(Refusal::Message(
                    "SCRAM: an extension that must be understood",
                ));
            }
            Some((name, value))
                if !value.is_empty()
                    && !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_alphabetic()) => {}
            _ => return Err(Refusal::Message("SCRAM: a field that is none")),
        }
    }
    Ok(())
}
