//! The bugs of other brokers, and the rules they broke, as cases on raw frames, in both
//! transaction dialects where it makes sense. A test is named after its case (`docs/scenarios.md`).

mod batches;
mod kills;
mod offsets;
mod races;
mod reads;
mod records;
mod restarts;
mod segments;
mod sequences;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod timestamps;
mod transactions;
