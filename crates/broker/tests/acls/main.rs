//! Authorisation: ACLs as Kafka keeps them, and what each API asks of them.

mod manage;
mod matrix;
mod rights;
mod support;
mod txn_owner;
