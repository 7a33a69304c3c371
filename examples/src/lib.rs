//! What the proof and bench drivers share. The word count (`src/bin/wordcount.rs`) uses none of it: it is the
//! example to copy from and stands alone.

pub mod broker_process;
pub mod cleaning;
pub mod clients;
pub mod latency;
pub mod ledger;
pub mod transaction;
