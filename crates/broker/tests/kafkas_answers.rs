//! Answers that Kafka was seen to give where this broker once gave others (`scripts/prove
//! differential`).

use bytes::Bytes;
use kafka_protocol::messages::{FetchResponse, ListOffsetsRequest};
use tidemark_testkit::requests;
use tidemark_testkit::{
    Batch, Isolation, RawClient, TestBroker, TxnProducer, WALL_START_MS, version,
};
use tidemark_types::ErrorCode;

/// (error, base offset, log append time, log start offset) of a batch for t-0.
async fn produce(client: &mut RawClient, id: Option<&str>, batch: Bytes) -> (i16, i64, i64, i64) {
    let request = requests::produce(id, [("t", 0, batch)]);
    let answer = client.send(version::PRODUCE, &request).await;
    let answer = &answer.responses[0].partition_responses[0];
    (
        answer.error_code,
        answer.base_offset,
        answer.log_append_time_ms,
        answer.log_start_offset,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_is_answered_with_the_time_of_the_original() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let (id, epoch) = client.init_producer_id(None).await.unwrap();
    let batch = Batch::of(&["a"]).producer(id, epoch, 0).build();
    assert_eq!(
        produce(&mut client, None, batch.clone()).await,
        (0, 0, -1, 0)
    );
    let repeat = produce(&mut client, None, batch).await;
    assert_eq!(repeat, (0, 0, WALL_START_MS, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_partition_tells_its_log_start() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let (id, epoch) = client.init_producer_id(None).await.unwrap();
    let first = Batch::of(&["a"]).producer(id, epoch, 0).build();
    produce(&mut client, None, first).await;
    let gap = Batch::of(&["b"]).producer(id, epoch, 7).build();
    let out_of_order = ErrorCode::OutOfOrderSequenceNumber.code();
    assert_eq!(
        produce(&mut client, None, gap).await,
        (out_of_order, -1, -1, 0)
    );

    let mut two_counted = Batch::of(&["c"]).build().to_vec();
    two_counted[57..61].copy_from_slice(&2i32.to_be_bytes());
    let crc = crc32c::crc32c(&two_counted[21..]);
    two_counted[17..21].copy_from_slice(&crc.to_be_bytes());
    let invalid = ErrorCode::InvalidRecord.code();
    let refused = produce(&mut client, None, two_counted.into()).await;
    assert_eq!(refused, (invalid, -1, -1, 0));

    // What is refused before the partition is asked does not.
    let mut damaged = Batch::of(&["d"]).build().to_vec();
    damaged[17] ^= 1;
    let corrupt = ErrorCode::CorruptMessage.code();
    let refused = produce(&mut client, None, damaged.into()).await;
    assert_eq!(refused, (corrupt, -1, -1, -1));
    let mut producer = TxnProducer::init(&mut client, "x").await;
    let not_enrolled = producer.batch("t", 0, &["e"]).build();
    let invalid_state = ErrorCode::InvalidTxnState.code();
    let refused = produce(&mut client, Some("x"), not_enrolled).await;
    assert_eq!(refused, (invalid_state, -1, -1, -1));
}

/// (error, diverging epoch and its end, bytes of records)
fn read(response: &FetchResponse) -> (i16, (i32, i64), usize) {
    let partition = &response.responses[0].partitions[0];
    let diverging = &partition.diverging_epoch;
    (
        partition.error_code,
        (diverging.epoch, diverging.end_offset),
        partition.records.as_ref().map_or(0, Bytes::len),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_learns_where_its_log_and_this_one_part() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let batch = Batch::of(&["a", "b"]).build();
    let bytes = batch.len();
    produce(&mut client, None, batch).await;
    let ask = |offset, last_fetched_epoch| {
        let mut request = requests::fetch("t", &[(0, offset)], Isolation::ReadUncommitted);
        request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch;
        request
    };
    let none = (-1, -1);
    for (offset, epoch, expected) in [
        (0, -1, (0, none, bytes)),
        (0, 0, (0, none, bytes)),
        (2, 0, (0, none, 0)),
        // Further than this log ever came in that epoch.
        (20, 0, (0, (0, 2), 0)),
        // An epoch that never was.
        (0, 9, (ErrorCode::OffsetOutOfRange.code(), none, 0)),
    ] {
        let answer = client.send(12, &ask(offset, epoch)).await;
        assert_eq!(read(&answer), expected, "from {offset}, last epoch {epoch}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_asked_for_twice_is_refused_once() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 2).await;
    let request: ListOffsetsRequest =
        requests::list_offsets("t", [0, 1, 0], requests::LATEST, Isolation::ReadUncommitted);
    let answer = client.send(version::LIST_OFFSETS, &request).await;
    let partitions = answer.topics[0].partitions.iter();
    let told: Vec<_> = partitions
        .map(|p| (p.partition_index, p.error_code, p.offset))
        .collect();
    let invalid = ErrorCode::InvalidRequest.code();
    assert_eq!(told, [(0, invalid, -1), (1, 0, 0)]);
}
