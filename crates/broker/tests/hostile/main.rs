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

use tidemark_wire::ApiKey;

/// Requests in which a number of a resource type, pattern, operation or permission may be one that means
/// nothing: for that Kafka closes the connection.
fn may_mean_nothing(key: ApiKey) -> bool {
    [ApiKey::DescribeAcls, ApiKey::CreateAcls, ApiKey::DeleteAcls].contains(&key)
}
