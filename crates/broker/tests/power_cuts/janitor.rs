//! What takes things away while the power goes: DeleteRecords, deletions of topics, compaction,
//! retention by time, checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use kafka_protocol::messages::DeleteTopicsRequest;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemark_broker::Clock;
use tidemark_record_batch::BatchBuilder;
use tidemark_testkit::requests::{self, error_code};
use tidemark_testkit::{
    Batch, Isolation, RawClient, TestBroker, WALL_START_MS, listed, produced, version,
};
use tidemark_types::ErrorCode;

use super::ledger::Ledger;
use super::writers::{Gone, first_error, or_gone};

/// A topic that is written to and shortened.
pub const SHRINKING: &str = "shrinking";
/// A compacted topic, of a few keys.
pub const COMPACTED: &str = "compacted";
pub const COMPACTED_CONFIGS: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "400"),
    ("min.cleanable.dirty.ratio", "0"),
];
const KEYS: u64 = 5;
/// A topic of which records go by their age.
pub const EXPIRING: &str = "expiring";
const RETENTION_MS: i64 = 1_500;
pub const EXPIRING_CONFIGS: [(&str, &str); 2] =
    [("retention.ms", "1500"), ("segment.bytes", "400")];
/// How far the clock moves before a look for expired records. Far less, over a life, than the timeout
/// of a transaction.
const AGE_MS: u64 = 2_000;
/// Records that a deletion leaves.
const LEFT: i64 = 3;

/// What the janitor was told.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Kept {
    /// Acknowledged records by offset.
    pub acked: BTreeMap<i64, String>,
    /// The highest log start that was acknowledged, and that was asked for.
    pub start_acked: i64,
    pub start_asked: i64,
    pub written: u64,
    /// Per key of the compacted topic, the newest acknowledged record: its offset and number.
    pub newest: BTreeMap<u64, (i64, u64)>,
    pub overwritten: u64,
    /// Topics whose deletion was acknowledged.
    pub deleted: BTreeSet<String>,
    /// Acknowledged records of the expiring topic by offset, with their timestamps.
    pub aging: BTreeMap<i64, (String, i64)>,
    pub aged: u64,
    /// The highest log start of it that was told.
    pub aging_start: i64,
}

impl Kept {
    /// Acknowledged records that retention has taken, as of the last look.
    pub fn expired(&self) -> usize {
        self.aging.range(..self.aging_start).count()
    }
}

/// Everything that takes away, until the broker is gone.
pub async fn work(
    [shorter, deleter, overwriter, ager]: [&mut RawClient; 4],
    broker: &TestBroker,
    ledger: &Mutex<Ledger>,
    round: u32,
    at_work: bool,
) -> Result<Infallible, Gone> {
    if at_work {
        let gone: (_, _, _, _) = tokio::join!(
            shorten(shorter, ledger),
            delete_topics(deleter, ledger, round),
            overwrite(overwriter, ledger),
            age(ager, broker, ledger),
        );
        let (Err(Gone), Err(Gone), Err(Gone), Err(Gone)) = gone;
    }
    Err(Gone)
}

/// Writes, and deletes what it has written.
async fn shorten(client: &mut RawClient, ledger: &Mutex<Ledger>) -> Result<Infallible, Gone> {
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

/// Writes the same few keys again and again.
async fn overwrite(client: &mut RawClient, ledger: &Mutex<Ledger>) -> Result<Infallible, Gone> {
    loop {
        let number = {
            let kept = &mut ledger.lock().kept;
            kept.overwritten += 1;
            kept.overwritten
        };
        let key = number % KEYS;
        let mut batch = BatchBuilder::new(WALL_START_MS);
        let (name, value) = (format!("key-{key}"), number.to_string());
        batch.push(Some(name.as_bytes()), Some(value.as_bytes()));
        let request = requests::produce(None, [(COMPACTED, 0, batch.build().into())]);
        let answer = client.try_send(version::PRODUCE, &request).await;
        let answer = or_gone(answer, |a| first_error(produced(a)[0]))?;
        let offset = produced(&answer)[0].expect("looked at above");
        ledger.lock().kept.newest.insert(key, (offset, number));
    }
}

/// Writes records that will be too old, and asks where the topic begins.
async fn age(
    client: &mut RawClient,
    broker: &TestBroker,
    ledger: &Mutex<Ledger>,
) -> Result<Infallible, Gone> {
    loop {
        let number = {
            let kept = &mut ledger.lock().kept;
            kept.aged += 1;
            kept.aged
        };
        let (value, timestamp) = (format!("aging-{number}"), broker.clock().wall_ms());
        let batch = Batch::of(&[&value]).at(timestamp).build();
        let request = requests::produce(None, [(EXPIRING, 0, batch)]);
        let answer = client.try_send(version::PRODUCE, &request).await;
        let answer = or_gone(answer, |a| first_error(produced(a)[0]))?;
        let offset = produced(&answer)[0].expect("looked at above");
        ledger.lock().kept.aging.insert(offset, (value, timestamp));
        if number % 5 == 0 {
            let (at, ru) = (requests::EARLIEST, Isolation::ReadUncommitted);
            let request = requests::list_offsets(EXPIRING, [0], at, ru);
            let answer = client.try_send(version::LIST_OFFSETS, &request).await;
            let answer = or_gone(answer, |a| first_error(listed(a)[0].1))?;
            let start = listed(&answer)[0].1.expect("looked at above");
            let kept = &mut ledger.lock().kept;
            kept.aging_start = kept.aging_start.max(start);
        }
    }
}

/// Makes topics with a record each, and deletes them.
async fn delete_topics(
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

/// Checkpoints, retention and compaction, so that cuts meet segments, their files and the recycling of
/// slots too.
pub async fn checkpoint(broker: &TestBroker, times: u32) -> Infallible {
    for _ in 0..times {
        broker.clock().advance_ms(AGE_MS);
        broker.broker().retain().await;
        broker.broker().checkpoint().await;
        broker.broker().compact().await;
    }
    std::future::pending().await
}

/// Everything that is not as it must be, by a clock that shows `wall_ms`.
pub async fn check(client: &mut RawClient, ledger: &Mutex<Ledger>, wall_ms: i64) -> Vec<String> {
    let mut wrong = check_ages(client, ledger, wall_ms).await;
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
    let mut newest: BTreeMap<u64, (i64, u64)> = BTreeMap::new();
    for record in client.read_all(COMPACTED, 0, ru).await {
        let number: u64 = record.text().parse().unwrap_or(0);
        newest.insert(number % KEYS, (record.offset, number));
    }
    for (key, acked) in &ledger.lock().kept.newest {
        let found = newest.get(key);
        // What was not answered may be there too, later.
        if found.is_none_or(|found| found < acked) {
            wrong.push(format!(
                "lost: key {key} of {COMPACTED} is at {found:?}, {acked:?} was acknowledged"
            ));
        }
    }
    for name in deleted {
        let described = client.describe_topic(&name).await;
        if error_code(described.error_code) != ErrorCode::UnknownTopicOrPartition {
            wrong.push(format!("topic {name} is there again after its deletion"));
        }
    }
    wrong
}

/// Only what is older than it may be is gone, and a log start that was told stays.
async fn check_ages(client: &mut RawClient, ledger: &Mutex<Ledger>, wall_ms: i64) -> Vec<String> {
    let mut wrong = Vec::new();
    let (ru, earliest) = (Isolation::ReadUncommitted, requests::EARLIEST);
    let start = client.list_offset(EXPIRING, 0, earliest, ru).await;
    let start = start.expect("the partition exists");
    let records: BTreeMap<i64, String> = (client.read_all(EXPIRING, 0, ru).await)
        .into_iter()
        .map(|record| (record.offset, record.text()))
        .collect();
    let kept = &mut ledger.lock().kept;
    if start < kept.aging_start {
        wrong.push(format!(
            "{EXPIRING} begins at {start}; {} was told",
            kept.aging_start
        ));
    }
    kept.aging_start = kept.aging_start.max(start);
    for (offset, (value, timestamp)) in &kept.aging {
        let found = records.get(offset);
        let may_be_gone = *offset < start && wall_ms - timestamp > RETENTION_MS;
        if found != Some(value) && !(found.is_none() && may_be_gone) {
            wrong.push(format!(
                "lost: {value} of {timestamp} at {wall_ms}, acknowledged at {EXPIRING}:{offset}, \
                 which begins at {start}; there is {found:?}"
            ));
        }
    }
    wrong
}
