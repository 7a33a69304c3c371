//! Bytes that no client of good will sends. Nothing may panic, abort, allocate what a length claims,
//! or disturb another connection; the connection itself is answered or closed as Kafka would.

mod batches;
mod bodies;
mod cves;
mod frames;
mod memory;
mod plausible;
#[path = "../../../wire/tests/support/mod.rs"]
mod shapes;
#[path = "../support/mod.rs"]
mod support;
mod witness;
