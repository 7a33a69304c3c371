//! What tests stand on: a broker in this process on a disk that can lose power, a clock turned by
//! hand, and a client that sends exactly the bytes it is told to.
//!
//! ```text
//! let broker = TestBroker::start().await;
//! let mut client = broker.client().await;
//! client.create_topic("t", 8).await;
//! assert_eq!(client.produce("t", 0, Batch::of(&["a"]).build()).await, Ok(0));
//! let broker = broker.crash(7).await.start().await;   // power cut, then a start on what is left
//! ```
//!
//! Tests run on a multi-thread runtime (`#[tokio::test(flavor = "multi_thread")]`): the broker
//! expects one. When a [`TestBroker`] goes, it is checked that no thread of a broker panicked, and
//! which APIs the test drove is noted for the [`coverage`] report.

mod batch;
mod broker;
mod calls;
mod client;
mod clock;
pub mod coverage;
mod entropy;
mod fetched;
mod panics;
mod raw_bytes;
pub mod requests;
mod sasl;
mod txn;
mod wait;

pub use batch::Batch;
pub use broker::{DATA_DIR, StoppedBroker, TestBroker};
pub use calls::{
    Isolation, enrolled, listed, offsets_committed, produced, txn_offsets_committed, version,
};
pub use client::{InFlight, RawClient};
pub use clock::{ManualClock, WALL_START_MS};
pub use entropy::SeededEntropy;
pub use fetched::{Fetched, FetchedBatch, FetchedRecord, fetched};
pub use panics::broker_panics;
pub use raw_bytes::raw_bytes;
pub use sasl::{ScramClient, plain_token};
pub use txn::{Dialect, TxnProducer};
pub use wait::{PATIENCE, eventually, within};
