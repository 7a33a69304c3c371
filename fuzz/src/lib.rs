//! What is fuzzed: every reader of bytes that somebody else wrote, and the owner of all state by
//! sequences of what its clients may ask.
//!
//! `scripts/fuzz` builds and runs it. The targets are a table ([`TARGETS`]) and one program
//! (`src/bin/fuzz.rs`), so that all of them are built at once. It also writes what each begins with, made
//! by our own encoders.
//!
//! A crash is a panic, a failed assertion, memory without bound or an input that takes long. Where two
//! readers of one format exist (the broker's and `histcheck`'s, which share no code) the targets feed
//! both. Checksums are made right where they would only keep the fuzzer out (`sealed.rs`).

#![deny(unsafe_code)]

// Modules of the product's tests, used here as they are.
#[path = "../../crates/wire/tests/support/mod.rs"]
mod bodies;
#[path = "../../crates/owner/tests/common/mod.rs"]
mod common;
#[path = "../../crates/owner/tests/random/ledger.rs"]
mod ledger;
#[allow(dead_code)]
#[path = "../../crates/owner/tests/random/moves.rs"]
mod moves;
#[path = "../../crates/owner/tests/random/play.rs"]
mod play;
#[allow(dead_code)]
#[path = "../../crates/owner/tests/random/player.rs"]
mod player;
#[path = "../../crates/owner/tests/random/player_topics.rs"]
mod player_topics;
#[path = "../../crates/owner/tests/random/player_transactions.rs"]
mod player_transactions;

// What reads tokens, without what fetches an issuer's keys and the TLS that it stands on.
#[allow(dead_code)]
#[path = "../../crates/oauth/src/claims.rs"]
mod claims;
#[allow(dead_code)]
#[path = "../../crates/oauth/src/json.rs"]
mod json;
#[allow(dead_code)]
#[path = "../../crates/oauth/src/jws.rs"]
mod jws;
#[allow(dead_code)]
#[path = "../../crates/oauth/src/keys.rs"]
mod keys;
#[allow(dead_code)]
#[path = "../../crates/oauth/src/message.rs"]
mod message;
#[allow(dead_code)]
#[path = "../../crates/oauth/src/token.rs"]
mod token;

pub mod drive;
mod sealed;
mod targets;

pub use targets::{TARGETS, Target, named};
