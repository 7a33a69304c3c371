//! Records of the internal topics, and what checkpoints keep of a partition.

use tidemark_abort_index::{AbortIndex, AbortedTxn};
use tidemark_group_coordinator::GroupRecord;
use tidemark_metadata::MetadataRecord;
use tidemark_producer_state::PartitionProducers;
use tidemark_txn_coordinator::{decode_key, decode_value, encode_value};
use tidemark_types::{ProducerId, TopicId};

use super::state::lived;

/// A byte that says how long the key is, the key, the value.
fn key_and_value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(length))
}

fn joined(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![u8::try_from(key.len()).ok()?];
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    Some(out)
}

/// Keys and values that a broker has written to one of its topics.
fn written(topic: TopicId) -> Vec<Vec<u8>> {
    let limits = Default::default();
    let appends = lived().into_iter().flat_map(|record| record.appends);
    let batches = appends.filter(|append| append.partition.topic == topic);
    let mut all: Vec<Vec<u8>> = batches
        .filter_map(|append| tidemark_record_batch::records(&append.batch, &limits).ok())
        .flat_map(|records| records.flatten().collect::<Vec<_>>())
        .filter_map(|record| {
            let value = record.value.unwrap_or_default();
            joined(&record.key.unwrap_or_default(), &value)
        })
        .collect();
    all.sort_by_key(Vec::len);
    all.dedup();
    all.truncate(60);
    all
}

pub fn aborted(bytes: &[u8]) {
    if let Ok(index) = AbortIndex::decode(bytes) {
        assert_eq!(AbortIndex::decode(&index.encode()), Ok(index.clone()));
        // The tree finds what a look at each finds.
        let entries = index.entries();
        let ranges = entries
            .iter()
            .take(40)
            .map(|at| (at.first_offset, at.last_offset));
        for (from, to) in ranges.filter(|(from, to)| from < to).chain([(0, i64::MAX)]) {
            let found = index.lookup(from, to);
            let overlap = |txn: &&AbortedTxn| txn.last_offset >= from && txn.first_offset < to;
            let searched: Vec<AbortedTxn> = entries.iter().filter(overlap).copied().collect();
            assert_eq!(found, searched);
        }
    }
}

pub fn aborted_seeds() -> Vec<Vec<u8>> {
    // More than one block of its tree, and one that begins before the others.
    let mut index = AbortIndex::new();
    let mut seeds = vec![index.encode()];
    for n in 0..70i64 {
        let first_offset = if n == 40 { 3 } else { 10 * n };
        index.push(AbortedTxn {
            producer_id: ProducerId(n % 3),
            first_offset,
            last_offset: 10 * n + 5,
            last_stable_offset: 10 * n + 6,
        });
        if [0, 2, 32, 69].contains(&n) {
            seeds.push(index.encode());
        }
    }
    seeds
}

pub fn producers(bytes: &[u8]) {
    if let Ok(producers) = PartitionProducers::decode(bytes) {
        let again = PartitionProducers::decode(&producers.encode());
        assert!(again.as_ref() == Ok(&producers), "{again:?}");
        let _ = producers.first_unstable_offset();
    }
}

pub fn producers_seeds() -> Vec<Vec<u8>> {
    let player = super::state::played(7);
    let owner = &player.world.owner;
    let all = owner.partition_ids().into_iter();
    let mut seeds: Vec<Vec<u8>> = all
        .filter_map(|id| owner.partition(id))
        .filter(|partition| !partition.producers.is_empty())
        .map(|partition| partition.producers.encode())
        .collect();
    seeds.truncate(10);
    seeds.push(PartitionProducers::new().encode());
    seeds
}

pub fn metadata(bytes: &[u8]) {
    let Some((key, value)) = key_and_value(bytes) else {
        return;
    };
    let _ = tidemark_histcheck::MetadataRecord::parse(key, value);
    if let Ok(record) = MetadataRecord::decode(key, value) {
        let again = MetadataRecord::decode(&record.key(), &record.value());
        assert_eq!(again, Ok(record));
    }
}

pub fn metadata_seeds() -> Vec<Vec<u8>> {
    written(TopicId::CLUSTER_METADATA)
}

pub fn transactions(bytes: &[u8]) {
    let Some((key, value)) = key_and_value(bytes) else {
        return;
    };
    let _ = tidemark_histcheck::parse_transactional_id_key(key);
    let _ = tidemark_histcheck::parse_transactional_id_value(value);
    let Ok(id) = decode_key(key) else {
        return;
    };
    if let Ok(meta) = decode_value(&id, value) {
        assert_eq!(decode_value(&id, &encode_value(&meta)), Ok(meta));
    }
}

pub fn transactions_seeds() -> Vec<Vec<u8>> {
    written(TopicId::TRANSACTION_STATE)
}

pub fn groups(bytes: &[u8]) {
    let Some((key, value)) = key_and_value(bytes) else {
        return;
    };
    for value in [Some(value), None] {
        let _ = tidemark_histcheck::GroupRecord::parse(key, value, 0);
        if let Ok(record) = GroupRecord::decode(key, value) {
            let again = GroupRecord::decode(&record.encode_key(), record.encode_value().as_deref());
            // An older version may hold what the newest does not.
            assert!(again.is_ok(), "{again:?}");
        }
    }
}

pub fn groups_seeds() -> Vec<Vec<u8>> {
    written(TopicId::CONSUMER_OFFSETS)
}

/// A transaction that moves a record and is committed, one that is aborted, a reader of each kind, and the end.
const HISTORY: &str = r#"{"kind":"history","version":1,"seed":1}
{"kind":"topic","topic":"a","partitions":1}
{"kind":"topic","topic":"b","partitions":1}
{"kind":"move","group":"g","source":"a","target":"b"}
{"kind":"client","at":1,"client":"p","library":"x"}
{"kind":"client","at":1,"client":"m","library":"x","transactional_id":"t","transaction_timeout_ms":9000}
{"kind":"init","from":2,"to":3,"client":"m"}
{"kind":"send","at":4,"client":"p","topic":"a","partition":0,"value":1}
{"kind":"sent","at":5,"value":1,"offset":0}
{"kind":"begin","at":6,"client":"m","txn":1}
{"kind":"send","at":7,"client":"m","txn":1,"topic":"b","partition":0,"value":2,"input":1,"amount":0}
{"kind":"sent","at":8,"value":2,"offset":0}
{"kind":"offsets","from":9,"to":10,"client":"m","txn":1,"group":"g","positions":[["a",0,1]]}
{"kind":"end","from":11,"to":12,"client":"m","txn":1,"commit":true}
{"kind":"begin","at":13,"client":"m","txn":2}
{"kind":"send","at":14,"client":"m","txn":2,"topic":"b","partition":0,"value":3}
{"kind":"sent","at":15,"value":3,"offset":2}
{"kind":"end","from":16,"to":17,"client":"m","txn":2,"commit":false,"error":"PRODUCER_FENCED"}
{"kind":"fault","from":18,"to":19,"fault":"kill"}
{"kind":"client","at":1,"client":"r","library":"x"}
{"kind":"assign","at":20,"client":"r"}
{"kind":"poll","from":21,"to":22,"client":"r","read_committed":true,"records":[["b",0,0,2]]}
{"kind":"poll","from":23,"to":24,"client":"r","read_committed":false,"records":[["b",0,2,3]]}
{"kind":"watermarks","from":25,"to":26,"client":"r","read_committed":true,"topic":"b","partition":0,"start":0,"end":4}
{"kind":"scan","read_committed":true,"topic":"a","partition":0,"start":0,"end":1,"records":[[0,1]]}
{"kind":"scan","read_committed":true,"topic":"b","partition":0,"start":0,"end":4,"records":[[0,2]]}
{"kind":"scan","read_committed":false,"topic":"b","partition":0,"start":0,"end":4,"records":[[0,2],[2,3]]}
{"kind":"committed","group":"g","topic":"a","partition":0,"offset":1}
"#;

pub fn history(bytes: &[u8]) {
    if let Ok(events) = tidemark_histcheck::history::read(bytes) {
        let _ = tidemark_histcheck::history::check(&[events], None);
    }
}

pub fn history_seeds() -> Vec<Vec<u8>> {
    let whole = HISTORY.as_bytes().to_vec();
    let head = HISTORY.lines().next().expect("it has lines");
    vec![whole, format!("{head}\n").into_bytes()]
}
