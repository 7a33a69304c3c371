//! What takes things away while the power goes: DeleteRecords, deletions of topics, checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use kafka_protocol::messages::DeleteTopicsRequest;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use parking_lot::Mutex;
use tidemark_testkit::requests::{self, error_code};
use tidemark_testkit::{Batch, Isolation, RawClient, TestBroker, produced, version};
use tidemark_types::ErrorCode;

use super::ledger::Ledger;
use super::writers::{Gone, first_error, or_gone};

/// A topic that is written to and shortened.
pub const SHRINKING: &str = "shrinking";
/// Records that a deletion leaves.
const LEFT: i64 = 3;

/// What the janitor was told.
#[derive(Default)]
pub struct Kept {
    /// Acknowledged records by offset.
    pub acked: BTreeMap<i64, String>,
    /// The highest log start that was acknowledged, and that was asked for.
    pub start_acked: i64,
    pub start_asked: i64,
    pub written: u64,
    /// Topics whose deletion was acknowledged.
    pub deleted: BTreeSet<String>,
}

/// Writes, and deletes what it has written.
pub async fn shorten(client: &mut RawClient, ledger: &Mutex<Ledger>) -> Result<Infallible, Gone> {
    loop {
        let number = {
            let kept = &mut ledger.lock().kept;
            kept.written += 1;
            kept.written
        };
        let value = format!("passing-{number}");
        let batch = Batch::of(&[&value]).build();
        let request = requests::produce(None, [(SHRINKING, 0, batch)]);
        let answer = client.try_send(version::PRODUCE, &request).await;
        let answer = or_gone(answer, |a| first_error(produced(a)[0]))?;
        let offset = produced(&answer)[0].expect("looked at above");
        ledger.lock().kept.acked.insert(offset, value);
        if number % 5 != 0 {
            continue;
        }
        let to = (offset - LEFT).max(0);
        {
            let kept = &mut ledger.lock().kept;
            kept.start_asked = kept.start_asked.max(to);
        }
        let request = requests::delete_records(SHRINKING, 0, to);
        let answer = client.try_send(version::DELETE_RECORDS, &request).await;
        let answer = or_gone(answer, |a| error_code(a.topics[0].partitions[0].error_code))?;
        let low_watermark = answer.topics[0].partitions[0].low_watermark;
        let kept = &mut ledger.lock().kept;
        kept.start_acked = kept.start_acked.max(low_watermark);
    }
}

/// Makes topics with a record each, and deletes them.
pub async fn delete_topics(
    client: &mut RawClient,
    ledger: &Mutex<Ledger>,
    round: u32,
) -> Result<Infallible, Gone> {
    for n in 0..4 {
        let name = format!("doomed-{round}-{n}");
        let request = requests::create_topic(&name, 2, &[]);
        let answer = client.try_send(version::CREATE_TOPICS, &request).await;
        or_gone(answer, |a| error_code(a.topics[0].error_code))?;
        let batch = Batch::of(&["gone"]).build();
        let request = requests::produce(None, [(&*name, 1, batch)]);
        let answer = client.try_send(version::PRODUCE, &request).await;
        or_gone(answer, |a| first_error(produced(a)[0]))?;
        let topic = DeleteTopicState::default().with_name(Some(requests::topic_name(&name)));
        let request = DeleteTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(30_000);
        let answer = client.try_send(6, &request).await;
        or_gone(answer, |a| error_code(a.responses[0].error_code))?;
        ledger.lock().kept.deleted.insert(name);
    }
    Err(Gone)
}

/// Checkpoints, so that cuts meet segments, their files and the recycling of slots too.
pub async fn checkpoint(broker: &TestBroker, times: u32) -> Infallible {
    for _ in 0..times {
        broker.broker().checkpoint().await;
    }
    std::future::pending().await
}

/// Everything that is not as it must be.
pub async fn check(client: &mut RawClient, ledger: &Mutex<Ledger>) -> Vec<String> {
    let mut wrong = Vec::new();
    let (ru, earliest) = (Isolation::ReadUncommitted, requests::EARLIEST);
    let start = client.list_offset(SHRINKING, 0, earliest, ru).await;
    let start = start.expect("the partition exists");
    let records: BTreeMap<i64, String> = (client.read_all(SHRINKING, 0, ru).await)
        .into_iter()
        .map(|record| (record.offset, record.text()))
        .collect();
    let deleted = {
        let mut ledger = ledger.lock();
        let kept = &mut ledger.kept;
        if !(kept.start_acked..=kept.start_asked).contains(&start) {
            wrong.push(format!(
                "{SHRINKING} begins at {start}; {} was acknowledged, {} asked for",
                kept.start_acked, kept.start_asked
            ));
        }
        kept.start_acked = kept.start_acked.max(start);
        for (offset, value) in kept.acked.range(start..) {
            let found = records.get(offset);
            if found != Some(value) {
                wrong.push(format!(
                    "lost: {value}, acknowledged at {SHRINKING}:{offset}, there is {found:?}"
                ));
            }
        }
        kept.deleted.clone()
    };
    for name in deleted {
        let described = client.describe_topic(&name).await;
        if error_code(described.error_code) != ErrorCode::UnknownTopicOrPartition {
            wrong.push(format!("topic {name} is there again after its deletion"));
        }
    }
    wrong
}
