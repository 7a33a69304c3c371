//! What the programs share that speak to Tidemark and to Apache Kafka alike: `differential` (every answer compared),
//! `abuse` (what strangers do), `atomic` (what readers see of a commit), `acl_matrix` (what clients with and without a right
//! are answered), `commit_latency`, `count_codes` and `storage_bench` (rows of scripts/bench).
//!
//! All of them know a broker as a process behind a port.

pub mod acl_matrix;
pub mod answers;
pub mod batches;
pub mod compare;
pub mod connection;
pub mod differences;
pub mod driver;
pub mod env;
pub mod raw;
pub mod records;
pub mod report;
pub mod requests;
pub mod script;
pub mod side;
pub mod steps;
pub mod tree;
