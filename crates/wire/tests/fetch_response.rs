//! The Fetch response writer against the codec's encoder, versions 4 to 18.

use bytes::{Buf, Bytes};
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction as CodecAborted, EpochEndOffset, FetchResponse as CodecResponse,
    FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use kafka_protocol::messages::{
    BrokerId, ProducerId as CodecProducerId, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, StrBytes};
use proptest::prelude::*;
use tidemark_types::{ErrorCode, LeaderEpoch, NodeId, ProducerId, TopicId};
use tidemark_wire::{
    AbortedTransaction, ApiKey, FetchPartition, FetchResponse, FetchTopic, WireError,
    encode_response,
};
use uuid::Uuid;

/// Our response in the codec's type, without the fields that the version lacks.
fn to_codec(response: &FetchResponse, version: i16) -> CodecResponse {
    let partition = |partition: &FetchPartition| {
        let aborted = partition.aborted_transactions.as_ref().map(|aborted| {
            let one = |aborted: &AbortedTransaction| {
                CodecAborted::default()
                    .with_producer_id(CodecProducerId(aborted.producer_id.0))
                    .with_first_offset(aborted.first_offset)
            };
            aborted.iter().map(one).collect()
        });
        let data = PartitionData::default()
            .with_partition_index(partition.partition_index)
            .with_error_code(partition.error_code.code())
            .with_high_watermark(partition.high_watermark)
            .with_last_stable_offset(partition.last_stable_offset)
            .with_log_start_offset(partition.log_start_offset)
            .with_aborted_transactions(aborted)
            .with_records(Some(partition.records.concat().into()));
        let data = match partition.diverging_epoch {
            Some((epoch, end_offset)) if version >= 12 => data.with_diverging_epoch(
                EpochEndOffset::default()
                    .with_epoch(epoch.0)
                    .with_end_offset(end_offset),
            ),
            _ => data,
        };
        match partition.current_leader {
            Some((id, epoch)) => data.with_current_leader(
                LeaderIdAndEpoch::default()
                    .with_leader_id(BrokerId(id.0))
                    .with_leader_epoch(epoch.0),
            ),
            None => data,
        }
    };
    let topics = response.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(partition).collect();
        let out = FetchableTopicResponse::default().with_partitions(partitions);
        match version {
            ..=12 => out.with_topic(TopicName(topic.name.clone())),
            _ => out.with_topic_id(Uuid::from_bytes(topic.topic_id.0)),
        }
    });
    let out = CodecResponse::default()
        .with_throttle_time_ms(response.throttle_time_ms)
        .with_responses(topics.collect());
    match version {
        ..=6 => out,
        _ => out
            .with_error_code(response.error_code.code())
            .with_session_id(response.session_id),
    }
}

fn partition(records: Vec<Bytes>) -> FetchPartition {
    FetchPartition {
        partition_index: 0,
        error_code: ErrorCode::None,
        high_watermark: 10,
        last_stable_offset: 9,
        log_start_offset: 1,
        aborted_transactions: None,
        diverging_epoch: None,
        current_leader: None,
        records,
    }
}

fn response(partitions: Vec<FetchPartition>) -> FetchResponse {
    FetchResponse {
        throttle_time_ms: 0,
        error_code: ErrorCode::None,
        session_id: 0,
        topics: vec![FetchTopic {
            name: StrBytes::from_static_str("orders"),
            topic_id: TopicId([7; 16]),
            partitions,
        }],
    }
}

fn any_partition() -> impl Strategy<Value = FetchPartition> {
    let error = prop::sample::select(ErrorCode::ALL);
    let aborted = prop::collection::vec((any::<i64>(), any::<i64>()), 0..4);
    // Below and above the size up to which a slice is copied, and lengths of 1 to 3 varint bytes.
    let slice = prop::sample::select(&[0usize, 1, 61, 127, 128, 511, 512, 513, 2_000, 17_000][..])
        .prop_map(|bytes| Bytes::from(vec![0xab; bytes]));
    let records = prop::collection::vec(slice, 0..4);
    // The codec leaves out what has its default: a current leader or a diverging epoch of (-1, -1).
    let diverging = (0i32..5, any::<i64>());
    let leader = (0i32..5, any::<i32>());
    (
        any::<(i32, i64, i64, i64)>(),
        error,
        prop::option::of(aborted),
        prop::option::of(diverging),
        prop::option::of(leader),
        records,
    )
        .prop_map(
            |(numbers, error_code, aborted, diverging, leader, records)| FetchPartition {
                partition_index: numbers.0,
                error_code,
                high_watermark: numbers.1,
                last_stable_offset: numbers.2,
                log_start_offset: numbers.3,
                aborted_transactions: aborted.map(|aborted| {
                    let one = |(id, first_offset)| AbortedTransaction {
                        producer_id: ProducerId(id),
                        first_offset,
                    };
                    aborted.into_iter().map(one).collect()
                }),
                diverging_epoch: diverging.map(|(epoch, end)| (LeaderEpoch(epoch), end)),
                current_leader: leader.map(|(id, epoch)| (NodeId(id), LeaderEpoch(epoch))),
                records,
            },
        )
}

fn any_response() -> impl Strategy<Value = FetchResponse> {
    let topic = (
        "[a-z.]{0,200}",
        any::<[u8; 16]>(),
        prop::collection::vec(any_partition(), 0..4),
    )
        .prop_map(|(name, id, partitions)| FetchTopic {
            name: StrBytes::from_string(name),
            topic_id: TopicId(id),
            partitions,
        });
    (
        any::<(i32, i32)>(),
        prop::sample::select(ErrorCode::ALL),
        prop::collection::vec(topic, 0..3),
    )
        .prop_map(
            |((throttle_time_ms, session_id), error_code, topics)| FetchResponse {
                throttle_time_ms,
                error_code,
                session_id,
                topics,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_chunks_are_the_codecs_bytes(response in any_response(), correlation_id: i32) {
        for version in ApiKey::Fetch.api().decodes.iter() {
            let codec = to_codec(&response, version);
            let want = encode_response(ApiKey::Fetch, version, correlation_id, &codec).unwrap();
            let chunks = response.clone().encode(version, correlation_id).unwrap();
            prop_assert_eq!(Bytes::from(chunks.concat()), want, "v{}", version);
            prop_assert!(chunks.iter().all(|chunk| !chunk.is_empty()), "an empty chunk");
        }
    }
}

#[test]
fn large_slices_are_handed_through_and_small_ones_join_their_neighbours() {
    let large = Bytes::from(vec![1; 4096]);
    let small = Bytes::from(vec![2; 61]);
    let chunks = response(vec![
        partition(vec![large.clone(), small.clone(), large.clone()]),
        partition(vec![small]),
    ])
    .encode(12, 1)
    .unwrap();
    // Head, large, small, large, the rest.
    let lengths: Vec<usize> = chunks.iter().map(Bytes::len).collect();
    assert_eq!(lengths.len(), 5, "{lengths:?}");
    for at in [1, 3] {
        assert_eq!(chunks[at].as_ptr(), large.as_ptr(), "copied");
    }
    assert_eq!(lengths[2], 61);
}

#[test]
fn no_records_are_empty_and_never_null() {
    for version in ApiKey::Fetch.api().decodes.iter() {
        let frame = response(vec![partition(Vec::new())])
            .encode(version, 5)
            .unwrap();
        let mut frame = Bytes::from(frame.concat());
        assert_eq!(frame.get_i32() as usize, frame.len());
        let header_version = ApiKey::Fetch.response_header_version(version);
        let header = ResponseHeader::decode(&mut frame, header_version).unwrap();
        assert_eq!(header.correlation_id, 5);
        let decoded = CodecResponse::decode(&mut frame, version).unwrap();
        let partition = &decoded.responses[0].partitions[0];
        assert_eq!(partition.records, Some(Bytes::new()), "v{version}");
        assert_eq!(partition.aborted_transactions, None, "v{version}");
        assert_eq!(partition.preferred_read_replica, BrokerId(-1), "v{version}");
        assert!(frame.is_empty());
    }
}

#[test]
fn only_its_versions_are_encoded() {
    for api_version in [-1, 3, 19] {
        let want = WireError::Encode {
            api_key: ApiKey::Fetch,
            api_version,
        };
        assert_eq!(response(Vec::new()).encode(api_version, 1), Err(want));
    }
}
