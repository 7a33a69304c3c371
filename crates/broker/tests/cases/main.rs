//! The bugs of other brokers, and the rules they broke, as cases on raw frames in the classic
//! transaction dialect. A test is named after its case: A1-A28 and M1-M18 of `docs/scenarios.md`.

mod batches;
mod kills;
mod offsets;
mod reads;
mod records;
mod restarts;
mod sequences;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod transactions;
