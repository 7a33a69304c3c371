//! OAUTHBEARER (RFC 7628, KIP-255, KIP-768): what a client says, whether its token is good, and the keys
//! that tell.
//!
//! - [`message`]: the client's one message, its bounds, and the server's error.
//! - [`Validator`]: a token (JWT, RFC 7519, signed as RFC 7515 says) to a principal and an end. Pure:
//!   keys and time are arguments.
//! - [`KeySet`]: public keys from a JWKS (RFC 7517), each pinned to one asymmetric algorithm.
//! - [`Jwks`]: where the set is from, a file or an https URL, read again while the broker runs.
//! - [`Schedule`]: when it is read again. Pure.
//!
//! Nothing is accepted that was not asked for: algorithm, key, issuer, audience and times must all be
//! there and right. Tokens are in no error, no log line and no Debug output.

mod claims;
mod json;
mod jws;
mod keys;
pub mod message;
mod schedule;
mod source;
mod token;

pub use claims::{Accepted, Expected, Refused, Validator};
pub use keys::{Algorithm, KeySet, KeysError};
pub use schedule::{Backoff, Schedule};
pub use source::{Jwks, JwksError, JwksOptions, Location};
pub use token::Token;
