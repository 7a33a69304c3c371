//! Records of the internal topics, and what checkpoints keep of a partition.

use tidemark_abort_index::AbortIndex;
use tidemark_group_coordinator::GroupRecord;
use tidemark_metadata::MetadataRecord;
use tidemark_producer_state::PartitionProducers;
use tidemark_txn_coordinator::{decode_key, decode_value, encode_value};
use tidemark_types::TopicId;

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
        let _ = index.lookup(0, i64::MAX);
    }
}

pub fn aborted_seeds() -> Vec<Vec<u8>> {
    vec![AbortIndex::new().encode()]
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

pub fn history(bytes: &[u8]) {
    if let Ok(events) = tidemark_histcheck::history::read(bytes) {
        let _ = tidemark_histcheck::history::check(&[events], None);
    }
}

pub fn history_seeds() -> Vec<Vec<u8>> {
    vec![b"{}\n".to_vec(), Vec::new()]
}
