//! Keyed batches, rolled segments, and what a reader finds of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidemark_histcheck::{Severity, inspect};
use tidemark_record_batch::{
    BatchBuilder, BatchHeader, ControlType, DecompressLimits, batches, parse_control, records,
};
use tidemark_testkit::{
    Isolation, RawClient, StoppedBroker, TestBroker, raw_bytes, requests, version,
};
use tidemark_types::{ProducerEpoch, ProducerId};

/// Of a topic that is compacted as soon as anything is new, in the smallest segments there are.
pub const EAGER: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "1048576"),
    ("min.cleanable.dirty.ratio", "0"),
];

/// The key of what is written only to close a segment.
pub const FILLER: &[u8] = b"filler";

/// A key, and a value or none.
pub type Keyed<'a> = (&'a [u8], Option<&'a [u8]>);

/// A batch of keyed records; `producer` is (id, epoch, first sequence, in a transaction).
pub fn batch(
    timestamp_ms: i64,
    producer: Option<(i64, i16, i32, bool)>,
    of: &[Keyed<'_>],
) -> Bytes {
    let mut builder = BatchBuilder::new(timestamp_ms);
    if let Some((id, epoch, sequence, transactional)) = producer {
        builder.producer(ProducerId(id), ProducerEpoch(epoch), sequence);
        if transactional {
            builder.transactional();
        }
    }
    for (n, (key, value)) in (0..).zip(of) {
        builder.push_at(timestamp_ms + n, Some(key), *value, &[]);
    }
    builder.build().into()
}

/// Closes the segment that is being written, writes it out and syncs it.
pub async fn roll(broker: &TestBroker, client: &mut RawClient, topic: &str) {
    let value = vec![b'.'; 600_000];
    for _ in 0..2 {
        let timestamp = requests_time(broker);
        let filler = batch(timestamp, None, &[(FILLER, Some(&value))]);
        client
            .produce(topic, 0, filler)
            .await
            .expect("a filler is taken");
    }
    broker.broker().checkpoint().await;
}

/// The wall clock of the broker.
pub fn requests_time(broker: &TestBroker) -> i64 {
    use tidemark_broker::Clock;
    broker.clock().wall_ms()
}

/// One record as a consumer sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub offset: i64,
    pub key: Bytes,
    pub value: Option<Bytes>,
    pub timestamp: i64,
}

/// What a consumer of partition 0 is handed, with the headers of the batches it came through. Fillers
/// are left out.
pub async fn read(
    client: &mut RawClient,
    topic: &str,
    isolation: Isolation,
) -> (Vec<Seen>, Vec<BatchHeader>) {
    let (mut seen, mut headers) = (Vec::new(), Vec::new());
    let end = client.ends(topic, 1, isolation).await[0];
    let mut at = client
        .list_offset(topic, 0, requests::EARLIEST, isolation)
        .await
        .expect("the topic exists");
    while at < end {
        let request = requests::fetch(topic, &[(0, at)], isolation);
        let response = client.send(version::FETCH, &request).await;
        let data = &response.responses[0].partitions[0];
        assert_eq!(data.error_code, 0, "at {at}");
        let mut told: Vec<(i64, i64)> = (data.aborted_transactions.iter().flatten())
            .map(|txn| (txn.first_offset, txn.producer_id.0))
            .collect();
        told.sort_unstable();
        let mut told = told.into_iter().peekable();
        let mut dropping = std::collections::BTreeSet::new();
        let bytes = data.records.clone().unwrap_or_default();
        let from = at;
        for found in batches(&bytes) {
            let (header, range) = found.expect("a batch");
            let batch = bytes.slice(range);
            while let Some((_, id)) = told.next_if(|(first, _)| *first <= header.last_offset()) {
                dropping.insert(id);
            }
            at = header.next_offset();
            headers.push(header);
            if let Some((kind, _)) = parse_control(&batch).expect("a marker") {
                if kind == ControlType::Abort {
                    dropping.remove(&header.producer_id.0);
                }
                continue;
            }
            if header.attributes.is_transactional() && dropping.contains(&header.producer_id.0) {
                continue;
            }
            for record in records(&batch, &DecompressLimits::default()).expect("records") {
                let record = record.expect("a record");
                let offset = header.base_offset + i64::from(record.offset_delta);
                let key = record.key.expect("a key");
                if offset >= from && key != FILLER {
                    seen.push(Seen {
                        offset,
                        key,
                        value: record.value,
                        timestamp: record.timestamp,
                    });
                }
            }
        }
        assert!(
            at > from,
            "nothing to go on from at {from}, the end is {end}"
        );
    }
    (seen, headers)
}

/// The last value of each key.
pub fn last_values(seen: &[Seen]) -> BTreeMap<Bytes, Bytes> {
    let mut values = BTreeMap::new();
    for record in seen {
        match &record.value {
            None => drop(values.remove(&record.key)),
            Some(value) => drop(values.insert(record.key.clone(), value.clone())),
        }
    }
    values
}

/// What a reader that shares no code with the broker finds wrong with the directory.
pub fn inspected(stopped: &StoppedBroker) {
    let inspection = inspect(&raw_bytes(stopped.disk()), &mut |_| {});
    let damage = (inspection.findings.iter()).filter(|f| f.severity == Severity::Damage);
    let damage: Vec<_> = damage.collect();
    assert!(damage.is_empty(), "{damage:#?}");
}
