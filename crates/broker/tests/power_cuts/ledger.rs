//! What the clients know, and what must therefore be true of a broker.

use std::collections::{BTreeMap, BTreeSet};

use super::janitor::Kept;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemark_testkit::{FetchedRecord, Isolation, RawClient};

pub const TOPIC: &str = "t";
pub const PARTITIONS: i32 = 4;
pub const PLAIN_GROUP: &str = "g-plain";

/// How far a transaction got, as its producer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// Its end was never asked for.
    Open,
    /// Asked to commit (or abort), not answered: a commit may have happened, whole, or not at all.
    Ending { commit: bool },
    /// Answered.
    Ended { commit: bool },
    /// Not answered, and looked at since: it stays what it was then.
    Found { committed: bool },
}

/// A transaction: one record, its value, in each partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Txn {
    pub group: String,
    pub number: i64,
    /// The group's offset `number` was sent with it.
    pub with_offset: bool,
    pub fate: Fate,
}

/// Everything the clients were told, by value (each is written once per partition).
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Ledger {
    pub sent: BTreeSet<String>,
    /// Acknowledged records: partition and value, and the offset they were given.
    #[serde(with = "pairs")]
    pub acked: BTreeMap<(i32, String), i64>,
    /// Records that a reader was given.
    #[serde(with = "pairs")]
    pub seen: BTreeMap<(i32, i64), String>,
    /// The highest end that a reader was told: high watermark and last stable offset.
    pub ends: BTreeMap<i32, (i64, i64)>,
    pub txns: BTreeMap<String, Txn>,
    /// The plain group's offset: the highest acknowledged, the highest sent.
    pub plain_acked: i64,
    pub plain_sent: i64,
    /// Topics that were acknowledged, and their ids once they were described.
    pub topics: BTreeMap<String, Option<[u8; 16]>>,
    pub kept: Kept,
}

/// JSON's keys are texts.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'a, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'a> + Ord,
        V: Deserialize<'a>,
        D: Deserializer<'a>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}

impl Ledger {
    /// Transactions whose end was answered.
    pub fn ended(&self) -> usize {
        let ended = |txn: &&Txn| matches!(txn.fate, Fate::Ended { .. });
        self.txns.values().filter(ended).count()
    }
}

/// In how many partitions each transaction is visible.
async fn visible(client: &mut RawClient) -> BTreeMap<String, i32> {
    let mut visible = BTreeMap::new();
    for partition in 0..PARTITIONS {
        for value in client
            .read_values(TOPIC, partition, Isolation::ReadCommitted)
            .await
        {
            *visible.entry(value).or_insert(0) += 1;
        }
    }
    visible
}

/// Transactions that a read_committed reader sees in part, whatever is still open.
pub async fn torn(client: &mut RawClient, ledger: &Mutex<Ledger>) -> Vec<String> {
    let visible = visible(client).await;
    let ledger = ledger.lock();
    visible
        .into_iter()
        .filter(|(value, count)| ledger.txns.contains_key(value) && *count != PARTITIONS)
        .map(|(value, count)| format!("{value} is visible in {count} of {PARTITIONS} partitions"))
        .collect()
}

/// Takes out of the ledger what a weak mode may have lost; see `Life::forget_lost`.
pub async fn forget_lost(client: &mut RawClient, ledger: &Mutex<Ledger>) -> (usize, Vec<String>) {
    let (mut lost, mut wrong) = (0, Vec::new());
    for partition in 0..PARTITIONS {
        let records = client
            .read_all(TOPIC, partition, Isolation::ReadUncommitted)
            .await;
        let there: BTreeMap<i64, String> = (records.iter())
            .map(|record| (record.offset, record.text()))
            .collect();
        let ledger = &mut *ledger.lock();
        let mut acked: Vec<(i64, String)> = (ledger.acked.iter())
            .filter(|((p, _), _)| *p == partition)
            .map(|((_, value), offset)| (*offset, value.clone()))
            .collect();
        acked.sort_unstable();
        let mut first_lost = None;
        for (offset, value) in acked {
            let ended =
                (ledger.txns.get(&value)).is_some_and(|txn| matches!(txn.fate, Fate::Ended { .. }));
            match (there.get(&offset) == Some(&value), first_lost) {
                (true, None) => {}
                (true, Some(first)) => wrong.push(format!(
                    "{value} is there at {partition}:{offset}, and {first} before it is lost"
                )),
                (false, _) if ended => wrong.push(format!(
                    "{value} of an ended transaction is lost at {partition}:{offset}"
                )),
                (false, _) => {
                    first_lost.get_or_insert(offset);
                    ledger.acked.remove(&(partition, value));
                    lost += 1;
                }
            }
        }
        // What readers saw and were told of may be taken back with it.
        ledger
            .seen
            .retain(|(p, offset), value| *p != partition || there.get(offset) == Some(value));
    }
    ledger.lock().ends.clear();
    (lost, wrong)
}

/// Everything that is not as it must be. No transaction is open.
pub async fn check(client: &mut RawClient, ledger: &Mutex<Ledger>) -> Vec<String> {
    let mut wrong = Vec::new();
    for partition in 0..PARTITIONS {
        let records = client
            .read_all(TOPIC, partition, Isolation::ReadUncommitted)
            .await;
        check_partition(partition, &records, &ledger.lock(), &mut wrong);
    }
    let high = client
        .ends(TOPIC, PARTITIONS, Isolation::ReadUncommitted)
        .await;
    let stable = client
        .ends(TOPIC, PARTITIONS, Isolation::ReadCommitted)
        .await;
    for (partition, (seen_high, seen_stable)) in &ledger.lock().ends {
        let (high, stable) = (high[*partition as usize], stable[*partition as usize]);
        if high < *seen_high || stable < *seen_stable {
            wrong.push(format!(
                "partition {partition} went back from {seen_high}/{seen_stable} to {high}/{stable}"
            ));
        }
    }

    let visible = visible(client).await;
    let mut offsets: BTreeMap<String, i64> = BTreeMap::new();
    for (value, txn) in &mut ledger.lock().txns {
        let count = visible.get(value).copied().unwrap_or(0);
        let committed = count == PARTITIONS;
        let right = match txn.fate {
            Fate::Open | Fate::Ended { commit: false } | Fate::Ending { commit: false } => {
                count == 0
            }
            Fate::Ended { commit: true } => committed,
            Fate::Ending { commit: true } => count == 0 || committed,
            Fate::Found { committed: before } => before == committed && (committed || count == 0),
        };
        if !right {
            wrong.push(format!(
                "{value} is visible in {count} partitions, and was {:?}",
                txn.fate
            ));
        }
        if !matches!(txn.fate, Fate::Ended { .. }) {
            txn.fate = Fate::Found { committed };
        }
        let offset = offsets.entry(txn.group.clone()).or_insert(-1);
        if committed && txn.with_offset {
            *offset = (*offset).max(txn.number);
        }
    }
    for (group, expected) in offsets {
        let found = client.committed_offset(&group, TOPIC, 0, true).await;
        if found != Ok(expected) {
            wrong.push(format!(
                "group {group}: offset {found:?}, its transactions say {expected}"
            ));
        }
    }
    let plain = client.committed_offset(PLAIN_GROUP, TOPIC, 0, true).await;
    let sent = ledger.lock().plain_sent;
    let acked = ledger.lock().plain_acked;
    if !plain.is_ok_and(|offset| (acked..=sent).contains(&offset) || (offset, acked) == (-1, 0)) {
        wrong.push(format!(
            "group {PLAIN_GROUP}: offset {plain:?}, acked {acked}, sent {sent}"
        ));
    }
    check_topics(client, ledger, &mut wrong).await;
    wrong
}

fn check_partition(
    partition: i32,
    records: &[FetchedRecord],
    ledger: &Ledger,
    wrong: &mut Vec<String>,
) {
    let by_offset: BTreeMap<i64, String> = records
        .iter()
        .map(|record| (record.offset, record.text()))
        .collect();
    let mut values = BTreeSet::new();
    for (offset, value) in &by_offset {
        if !values.insert(value) {
            wrong.push(format!(
                "{value} twice in partition {partition}, again at {offset}"
            ));
        }
        if !ledger.sent.contains(value) {
            wrong.push(format!("{value:?} in partition {partition} was never sent"));
        }
    }
    let acked = ledger.acked.iter().filter(|((p, _), _)| *p == partition);
    for ((_, value), offset) in acked {
        let found = by_offset.get(offset);
        if found != Some(value) {
            wrong.push(format!(
                "lost: {value}, acknowledged at {partition}:{offset}, there is {found:?}"
            ));
        }
    }
    for ((_, offset), value) in ledger.seen.range((partition, 0)..=(partition, i64::MAX)) {
        let found = by_offset.get(offset);
        if found != Some(value) {
            wrong.push(format!(
                "{value}, read at {partition}:{offset}, there is {found:?}"
            ));
        }
    }
}

async fn check_topics(client: &mut RawClient, ledger: &Mutex<Ledger>, wrong: &mut Vec<String>) {
    let topics = ledger.lock().topics.clone();
    for (name, known) in topics {
        let described = client.describe_topic(&name).await;
        let id = *described.topic_id.as_bytes();
        let lost = described.error_code != 0;
        if lost || known.is_some_and(|known| known != id) {
            wrong.push(format!(
                "topic {name}: error {}, id {id:?}",
                described.error_code
            ));
        }
        ledger.lock().topics.insert(name, Some(id));
    }
}
