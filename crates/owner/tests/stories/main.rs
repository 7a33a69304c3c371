//! Stories over the whole owner: commands in, records, replies and what readers see out.

#[path = "../common/mod.rs"]
mod common;

mod acls;
mod allowance;
mod bounds;
mod exclusive;
mod expiry;
mod fencing;
mod groups;
mod guard;
mod idempotence;
mod leases;
mod overlap;
mod start;
mod timeouts;
mod topics;
mod transactions;
mod undo;
mod version_2;
