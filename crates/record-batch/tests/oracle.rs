//! Cross-check with the record layer of the kafka-protocol crate, which is not used on the data
//! path (it believes counts) but is written by others.

mod support;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record as TheirRecord, RecordBatchDecoder, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType as TheirTimestampType,
};
use proptest::prelude::*;
use tidemark_record_batch::*;
use tidemark_types::{LeaderEpoch, ProducerEpoch, ProducerId};

#[derive(Clone, Debug)]
struct Input {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: BTreeMap<String, Option<Vec<u8>>>,
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let field = || prop::option::of(prop::collection::vec(any::<u8>(), 0..200));
    let record = (
        0i64..1 << 45,
        field(),
        field(),
        prop::collection::btree_map("[a-z]{0,5}", field(), 0..4),
    )
        .prop_map(|(timestamp, key, value, headers)| Input {
            timestamp,
            key,
            value,
            headers,
        });
    prop::collection::vec(record, 1..20)
}

fn build(inputs: &[Input], base_timestamp: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(base_timestamp);
    builder
        .producer(ProducerId(9), ProducerEpoch(3), 40)
        .transactional();
    for input in inputs {
        let headers: Vec<_> = input
            .headers
            .iter()
            .map(|(key, value)| (key.as_bytes(), value.as_deref()))
            .collect();
        builder.push_at(
            input.timestamp,
            input.key.as_deref(),
            input.value.as_deref(),
            &headers,
        );
    }
    let mut batch = builder.build();
    patch_position(&mut batch, 1_000, LeaderEpoch(5));
    batch
}

fn theirs(inputs: &[Input]) -> Vec<TheirRecord> {
    inputs
        .iter()
        .enumerate()
        .map(|(i, input)| TheirRecord {
            transactional: true,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: 5,
            producer_id: 9,
            producer_epoch: 3,
            timestamp_type: TheirTimestampType::Creation,
            offset: 1_000 + i as i64,
            sequence: 40 + i as i32,
            timestamp: input.timestamp,
            key: input.key.clone().map(Bytes::from),
            value: input.value.clone().map(Bytes::from),
            headers: input
                .headers
                .iter()
                .map(|(key, value)| {
                    (
                        StrBytes::from_string(key.clone()),
                        value.clone().map(Bytes::from),
                    )
                })
                .collect::<IndexMap<_, _>>(),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn both_write_the_same_bytes_and_read_the_same_records(inputs in inputs()) {
        let base_timestamp = inputs.iter().map(|input| input.timestamp).min().unwrap();
        let ours = build(&inputs, base_timestamp);
        let their_records = theirs(&inputs);
        let mut their_bytes = BytesMut::new();
        let options = RecordEncodeOptions { version: 2, compression: Compression::None };
        RecordBatchEncoder::encode(&mut their_bytes, &their_records, &options).unwrap();
        prop_assert_eq!(&ours, &their_bytes.to_vec());

        let decoded = RecordBatchDecoder::decode(&mut Bytes::from(ours.clone())).unwrap();
        prop_assert_eq!(&decoded.records, &their_records);

        let batch = Bytes::from(ours);
        let rules = ProduceRules { wall_ms: 1 << 45, ..ProduceRules::default() };
        // Their encoder takes the first record's offset for the batch's; a producer's is 0.
        let mut sent = batch.to_vec();
        sent[..8].fill(0);
        prop_assert!(validate_produce(&sent, &rules).is_ok());
        let read: Vec<Record> = records(&batch, &DecompressLimits::default())
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        prop_assert_eq!(read.len(), inputs.len());
        for (i, (record, input)) in read.iter().zip(&inputs).enumerate() {
            prop_assert_eq!(record.offset_delta, i as i32);
            prop_assert_eq!(record.timestamp, input.timestamp);
            prop_assert_eq!(record.key.as_deref(), input.key.as_deref());
            prop_assert_eq!(record.value.as_deref(), input.value.as_deref());
            let headers: Vec<_> = record
                .headers
                .iter()
                .map(|(key, value)| (key.to_vec(), value.as_ref().map(|v| v.to_vec())))
                .collect();
            let expected: Vec<_> = input
                .headers
                .iter()
                .map(|(key, value)| (key.clone().into_bytes(), value.clone()))
                .collect();
            prop_assert_eq!(headers, expected);
        }
    }
}

#[test]
fn a_marker_is_the_same_to_both() {
    let ours = control_batch(
        1_000,
        LeaderEpoch(5),
        ProducerId(9),
        ProducerEpoch(3),
        ControlType::Commit,
        tidemark_types::CoordinatorEpoch(2),
        77,
    );
    let record = TheirRecord {
        transactional: true,
        control: true,
        delete_horizon: false,
        partition_leader_epoch: 5,
        producer_id: 9,
        producer_epoch: 3,
        timestamp_type: TheirTimestampType::Creation,
        offset: 1_000,
        sequence: -1,
        timestamp: 77,
        key: Some(Bytes::from_static(&[0, 0, 0, 1])),
        value: Some(Bytes::from_static(&[0, 0, 0, 0, 0, 2])),
        headers: IndexMap::new(),
    };
    let mut theirs = BytesMut::new();
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    RecordBatchEncoder::encode(&mut theirs, [&record], &options).unwrap();
    assert_eq!(ours, theirs);
}

/// A record header's key may repeat: order and repeats are kept.
#[test]
fn repeated_header_keys_are_kept() {
    let headers: [(&[u8], Option<&[u8]>); 3] =
        [(b"h", Some(b"1")), (b"g", None), (b"h", Some(b"2"))];
    let batch: Bytes = BatchBuilder::new(0)
        .push_at(0, None, None, &headers)
        .build()
        .into();
    let record = records(&batch, &DecompressLimits::default())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let read: Vec<_> = record
        .headers
        .iter()
        .map(|(key, value)| (&key[..], value.as_deref()))
        .collect();
    assert_eq!(read, headers);
}

#[test]
fn the_last_sequence_wraps_to_zero() {
    let sequence = |base_sequence: i32, records: i32| {
        let mut builder = BatchBuilder::new(0);
        builder.producer(ProducerId(1), ProducerEpoch(0), base_sequence);
        for _ in 0..records {
            builder.push(None, None);
        }
        BatchHeader::parse(&builder.build())
            .unwrap()
            .last_sequence()
    };
    assert_eq!(sequence(0, 1), 0);
    assert_eq!(sequence(i32::MAX - 2, 3), i32::MAX);
    assert_eq!(sequence(i32::MAX - 2, 4), 0);
    assert_eq!(sequence(i32::MAX, 3), 1);
    assert_eq!(sequence(-1, 3), -1);
}
