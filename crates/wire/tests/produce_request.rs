//! The thin Produce decoder against the codec, versions 3 to 13.

mod support;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest as CodecRequest, TopicProduceData,
};
use kafka_protocol::messages::{TopicName, TransactionalId};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;
use support::{Choices, Fill, body};
use tidemark_types::TopicId;
use tidemark_wire::bounds::check_request;
use tidemark_wire::{
    ApiKey, BodyFault, ProducePartition, ProduceRequest, ProduceTopic, WireError,
    decode_produce_request,
};

/// The codec's request in our type.
fn from_codec(request: CodecRequest) -> ProduceRequest {
    let topics = request.topic_data.into_iter().map(|topic| ProduceTopic {
        name: topic.name.0,
        topic_id: TopicId(topic.topic_id.into_bytes()),
        partitions: topic
            .partition_data
            .into_iter()
            .map(|partition| ProducePartition {
                index: partition.index,
                records: partition.records,
            })
            .collect(),
    });
    ProduceRequest {
        transactional_id: request.transactional_id.map(|id| id.0),
        acks: request.acks,
        timeout_ms: request.timeout_ms,
        topics: topics.collect(),
    }
}

#[test]
fn it_reads_what_the_codec_reads_of_every_version() {
    for version in ApiKey::Produce.api().decodes.iter() {
        for seed in 0..100 {
            let fill = if seed == 0 { Fill::Full } else { Fill::Random };
            let bytes = Bytes::from(body(ApiKey::Produce, version, fill, &mut Choices(seed)).bytes);
            let codec = CodecRequest::decode(&mut bytes.clone(), version).unwrap();
            let ours = decode_produce_request(version, &bytes).unwrap();
            assert_eq!(ours, from_codec(codec), "v{version} seed {seed}");
        }
    }
}

#[test]
fn records_are_slices_of_the_frame() {
    let records = Bytes::from(vec![7; 100]);
    let request = CodecRequest::default()
        .with_transactional_id(Some(TransactionalId(StrBytes::from_static_str("tx"))))
        .with_acks(-1)
        .with_timeout_ms(1500)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(TopicName(StrBytes::from_static_str("orders")))
                .with_partition_data(vec![
                    PartitionProduceData::default()
                        .with_index(3)
                        .with_records(Some(records.clone())),
                    PartitionProduceData::default()
                        .with_index(4)
                        .with_records(None),
                    PartitionProduceData::default()
                        .with_index(5)
                        .with_records(Some(Bytes::new())),
                ]),
        ]);
    let mut encoded = BytesMut::new();
    request.encode(&mut encoded, 9).unwrap();
    let frame = encoded.freeze();

    let decoded = decode_produce_request(9, &frame).unwrap();
    assert_eq!(decoded.transactional_id.as_deref(), Some("tx"));
    assert_eq!((decoded.acks, decoded.timeout_ms), (-1, 1500));
    let topic = &decoded.topics[0];
    assert_eq!((&*topic.name, topic.topic_id), ("orders", TopicId::ZERO));
    let slice = topic.partitions[0].records.as_ref().unwrap();
    assert_eq!(slice, &records);
    assert!(frame.as_ptr_range().contains(&slice.as_ptr()), "copied");
    assert_eq!(topic.partitions[1].records, None);
    assert_eq!(topic.partitions[2].records.as_deref(), Some(&[][..]));
}

#[test]
fn only_its_versions_are_decoded() {
    for api_version in [-1, 2, 14] {
        let want = WireError::UnsupportedVersion {
            api_key: ApiKey::Produce,
            api_version,
        };
        assert_eq!(
            decode_produce_request(api_version, &Bytes::from_static(&[0; 64])),
            Err(want)
        );
    }
}

#[test]
fn the_fault_names_the_field() {
    let refused = |bytes: &'static [u8]| match decode_produce_request(3, &Bytes::from_static(bytes))
        .unwrap_err()
    {
        WireError::Body { field, fault, .. } => (field, fault),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[0]), ("transactional_id", BodyFault::Truncated));
    assert_eq!(
        refused(&[0xff, 0xff, 0, 1, 0]),
        ("timeout_ms", BodyFault::Truncated)
    );
    let count = [0xff, 0xff, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff];
    let bytes: &'static [u8] = Box::leak(Box::new(count));
    assert_eq!(refused(bytes), ("topic_data", BodyFault::CountBeyondFrame));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Whatever is done to a body, the thin decoder and the walker take the same side.
    #[test]
    fn it_accepts_what_the_walker_accepts(
        seed: u64,
        version in 3i16..=13,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = body(ApiKey::Produce, version, Fill::Random, &mut Choices(seed)).bytes;
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let walker = check_request(ApiKey::Produce, version, &bytes);
        let bytes = Bytes::from(bytes);
        let ours = decode_produce_request(version, &bytes);
        prop_assert_eq!(ours.is_ok(), walker.is_ok(), "{:?} {:?}", ours, walker);
        if let Ok(ours) = ours {
            let codec = CodecRequest::decode(&mut bytes.clone(), version).unwrap();
            prop_assert_eq!(ours, from_codec(codec));
        }
    }
}
