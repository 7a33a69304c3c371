//! Groups as clients see them, one story per test. Every step checks the invariants, that every
//! record survives its encoding, and that every request is answered once or parked.

mod coordinator;
mod expiry;
mod membership;
mod offsets;
mod random;
mod records;
mod restart;
mod static_members;
mod timeouts;
mod txn_offsets;
