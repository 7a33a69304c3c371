//! What a batch may be: sizes, codecs, one batch per partition; and reading inside one.

use bytes::Bytes;
use kafka_protocol::messages::ProduceResponse;
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use tidemark_testkit::{Batch, Isolation, RawClient, fetched, produced, requests, version};
use tidemark_types::ErrorCode;

use crate::support::Target;
use crate::support::changed::{Changed, zstd};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a23_a_fetch_inside_a_batch_brings_the_whole_batch() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let values: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    let produced = client
        .produce(&topic, 0, Batch::of(&values[..10]).build())
        .await;
    assert_eq!(produced, Ok(0));
    let produced = client
        .produce(&topic, 0, Batch::of(&values[10..]).build())
        .await;
    assert_eq!(produced, Ok(10));

    for (at, base_offsets, yields) in [
        (7, vec![0, 10], &values[7..]),
        (11, vec![10], &values[11..]),
    ] {
        for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
            let fetched = client.fetch(&topic, 0, at, isolation).await;
            assert_eq!(fetched.error, ErrorCode::None);
            let found: Vec<i64> = fetched
                .batches
                .iter()
                .map(|b| b.header.base_offset)
                .collect();
            assert_eq!(found, base_offsets, "at {at}");
            // A client drops what comes before the offset it asked for.
            let records = fetched.records();
            let wanted: Vec<String> = records
                .iter()
                .filter(|record| record.offset >= at)
                .map(|record| record.text())
                .collect();
            assert_eq!(wanted, yields, "at {at}");
            assert_eq!(fetched.next_offset(), Some(12));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a26_a_batch_too_large_is_refused_and_a_large_one_is_always_fetched_whole() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let limit = [("max.message.bytes", "51200")];
    let topic = target.topic_with(&mut client, "t", 1, &limit).await;
    let large = Batch::of(&[vec![b'x'; 10 << 20]]).build();
    let refused = client.produce(&topic, 0, large).await;
    assert_eq!(refused, Err(ErrorCode::MessageTooLarge));
    target.assert_ends(&mut client, &topic, 0, (0, 0)).await;

    let value = vec![b'y'; 40 << 10];
    let batch = Batch::of(std::slice::from_ref(&value)).build();
    assert_eq!(client.produce(&topic, 0, batch).await, Ok(0));
    let mut request = requests::fetch(&topic, &[(0, 0)], Isolation::ReadUncommitted);
    request.max_bytes = 1;
    request.topics[0].partitions[0].partition_max_bytes = 1;
    let answer = fetched(&client.send(version::FETCH, &request).await).remove(0);
    assert_eq!(answer.records()[0].value, value);
    assert_eq!(answer.next_offset(), Some(1));
}

/// The one partition of a Produce at a version.
async fn produce_at(
    client: &mut RawClient,
    version: i16,
    topic: &str,
    records: Bytes,
) -> PartitionProduceResponse {
    let request = requests::produce(None, [(topic, 0, records)]);
    let mut response: ProduceResponse = client.send(version, &request).await;
    response.responses.remove(0).partition_responses.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a28_zstd_is_for_those_who_know_it() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 1).await;
    let batch = zstd(&Batch::of(&["squeezed", "squeezed"]).build());
    let old = produce_at(&mut client, 6, &topic, batch.clone()).await;
    assert_eq!(old.error_code, ErrorCode::UnsupportedCompressionType.code());
    assert_eq!(old.base_offset, -1);
    target.assert_ends(&mut client, &topic, 0, (0, 0)).await;
    let new = produce_at(&mut client, 7, &topic, batch).await;
    assert_eq!((new.error_code, new.base_offset), (0, 0));

    let request = requests::fetch(&topic, &[(0, 0)], Isolation::ReadUncommitted);
    // Kafka 4.1 asks neither the data nor the topic's compression.type, and hands out what the
    // client cannot read.
    if !target.is_kafka() {
        let old = fetched(&client.send(9, &request).await).remove(0);
        assert_eq!(old.error, ErrorCode::UnsupportedCompressionType);
        assert!(old.batches.is_empty());
    }
    let new = fetched(&client.send(10, &request).await).remove(0);
    assert_eq!(new.values(), ["squeezed", "squeezed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a28_one_sound_batch_per_partition_and_nothing_else() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 2).await;
    let good = Batch::of(&["good"]).build();
    let rotten = Changed::batch(&good).last_byte().raw();
    let two = Changed::batch(&good).followed_by(&good).raw();
    for version in [3, 7, version::PRODUCE] {
        let refused = produce_at(&mut client, version, &topic, rotten.clone()).await;
        assert_eq!(
            refused.error_code,
            ErrorCode::CorruptMessage.code(),
            "v{version}"
        );
        let refused = produce_at(&mut client, version, &topic, two.clone()).await;
        assert_eq!(
            refused.error_code,
            ErrorCode::InvalidRecord.code(),
            "v{version}"
        );
    }
    target.assert_ends(&mut client, &topic, 0, (0, 0)).await;

    // What is wrong in one partition is no matter of the other.
    let request = requests::produce(None, [(&topic, 0, rotten), (&topic, 1, good)]);
    let answer = produced(&client.send(version::PRODUCE, &request).await);
    assert_eq!(answer, [Err(ErrorCode::CorruptMessage), Ok(0)]);
}
