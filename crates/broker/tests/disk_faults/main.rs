//! A disk that fails: one that is full, and one that does not do what it is told.

mod eio;
mod full;

use tidemark_testkit::{Batch, RawClient, StoppedBroker, TestBroker};
use tidemark_types::ErrorCode;

/// A broker whose files are small, so that each kind of them is written soon.
fn small() -> StoppedBroker {
    TestBroker::builder()
        .set("journal.slot.bytes", 2 << 20)
        .set("journal.budget.bytes", 8 << 20)
        .set("tail.bytes", 1 << 20)
        .set("log.segment.bytes", 1 << 20)
}

/// A record of 50 KB that can be told from every other.
fn value(n: usize) -> String {
    format!("{n}:{}", "v".repeat(50_000))
}

fn number(value: &str) -> usize {
    let (number, _) = value.split_once(':').expect("a value of this test");
    number.parse().expect("a value of this test")
}

async fn produce(client: &mut RawClient, topic: &str, n: usize) -> Result<i64, ErrorCode> {
    client
        .produce(topic, 0, Batch::of(&[value(n)]).build())
        .await
}
