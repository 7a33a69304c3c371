//! The transaction coordinator's rules as pure functions: what a request does to a transactional
//! id, given the id's last state and the time.
//!
//! On one journal the end of a transaction is ONE record: every partition's marker and the
//! completed state together. So the states that Kafka needs between deciding and having written the
//! markers (`Prepare*`) are never entered here, and nobody is told to come back later
//! (CONCURRENT_TRANSACTIONS). The enum keeps their numbers, because the record format has them.
//!
//! How to read it: [`TxnMeta`] is the state; each `decide_*` looks at it and answers an
//! [`Outcome`] (what to write and what to say) or an error code; [`Coordinator::apply`] is the only
//! way state changes, live and at replay alike. Which instance a request speaks for is decided in
//! one place, [`Session::of`].

mod add_partitions;
mod broker_abort;
mod coordinator;
mod end_txn;
pub mod guard;
mod init_producer_id;
mod invariants;
mod lifetime;
mod meta;
mod outcome;
mod produce;
mod record;
mod session;
pub mod several;
mod version_map;

pub use add_partitions::{decide_add_partitions, decide_implicit_enrolment};
pub use broker_abort::{AbortReason, decide_abort_by_broker};
pub use coordinator::{ApplyError, Coordinator, Holdings, IdsCursor};
pub use end_txn::{EndTxn, decide_end_txn};
pub use init_producer_id::{InitProducerId, decide_init_producer_id};
pub use invariants::{Violation, check, check_transition};
pub use lifetime::{deadline_wall_ms, is_expired};
pub use meta::{Dialect, EndedBy, Partitions, TxnMeta, TxnState, Who};
pub use outcome::{MarkerSet, Outcome};
pub use produce::{check_any_produce, check_transactional_produce, check_txn_offset_commit};
pub use record::{RecordError, decode_key, decode_value, encode_key, encode_value};
pub use session::Session;
pub use version_map::{TxnApi, map_for_version};
