//! What Kafka and its libraries were broken by before, as far as decoders, memory and reading go.
//! `docs/security-cases.md` has all of them.

use std::io::Write;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::ReplicaState;
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest};
use tidemark_broker::Limit;
use tidemark_testkit::{
    Batch, Isolation, RawClient, TestBroker, TxnProducer, fetched, listed, produced, requests,
    version,
};
use tidemark_types::ErrorCode;

use crate::memory::Memory;
use crate::support::changed::compressed;
use crate::witness::Witness;

/// Kafka CVE-2018-1288: a client's Fetch that says it is a follower's was taken for one, and made
/// records disappear.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2018_1288_a_fetch_that_claims_to_be_a_replicas_reads_as_a_consumer_and_moves_nothing()
{
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let topic_id = client.describe_topic("t").await.topic_id;
    for n in 0..5 {
        let batch = Batch::of(&[format!("v{n}")]).build();
        client.produce("t", 0, batch).await.unwrap();
    }
    let mut open = TxnProducer::init(&mut client, "tx").await;
    open.enrol(&mut client, &[("t", 0)]).await.unwrap();
    open.send(&mut client, "t", 0, &["open"]).await.unwrap();
    // Written and not durable: a follower would have to be told, a reader must not be.
    let mut writer = broker.client().await;
    let in_flight = broker.hold_syncs_behind_a_record(&mut writer, "t", 0).await;
    let mut stranger = broker.client().await;
    for replica in [0, 1, 5, i32::MAX, -2] {
        for offset in [0, 5, 6] {
            let isolation = Isolation::ReadCommitted;
            let request = requests::fetch("t", &[(0, offset)], isolation);
            let by_name = request.clone().with_replica_id(BrokerId(replica));
            let mut by_id = request.with_replica_state(
                ReplicaState::default()
                    .with_replica_id(BrokerId(replica))
                    .with_replica_epoch(7),
            );
            by_id.topics[0].topic = Default::default();
            by_id.topics[0].topic_id = topic_id;
            for (version, request) in [(version::FETCH, by_name), (15, by_id)] {
                let answer = stranger.send(version, &request).await;
                let read = fetched(&answer).remove(0);
                assert_eq!(
                    read.error,
                    ErrorCode::None,
                    "v{version} of replica {replica}"
                );
                let want: Vec<String> = (offset..5).map(|n| format!("v{n}")).collect();
                assert_eq!(
                    read.values(),
                    want,
                    "v{version} of replica {replica} at {offset}"
                );
                assert_eq!(read.high_watermark, 6);
                assert_eq!(read.last_stable_offset, 5);
            }
        }
        // Far ahead, as a follower that has all of it would ask: nothing moves.
        let ahead = requests::fetch("t", &[(0, 1_000)], Isolation::ReadUncommitted);
        let ahead = ahead.with_replica_id(BrokerId(replica));
        let answer = stranger.send(version::FETCH, &ahead).await;
        assert_eq!(fetched(&answer)[0].error, ErrorCode::OffsetOutOfRange);
        let ends = requests::list_offsets("t", [0], requests::LATEST, Isolation::ReadUncommitted);
        let ends: ListOffsetsRequest = ends.with_replica_id(BrokerId(replica));
        let answer = stranger.send(version::LIST_OFFSETS, &ends).await;
        assert_eq!(listed(&answer), [(0, Ok(6))], "replica {replica}");
    }
    broker.disk().release_syncs();
    in_flight.answer().await;
    open.end(&mut client, true).await.unwrap();
    let all = client.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(all.len(), 7);
}

/// Kafka CVE-2018-17196: a Produce that names no transactional id carried transactional batches past
/// the check of the right to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2018_17196_a_transactional_batch_needs_its_id_in_the_request() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 2).await;
    let mut owner = TxnProducer::init(&mut client, "mine").await;
    owner.enrol(&mut client, &[("t", 0)]).await.unwrap();
    owner.send(&mut client, "t", 0, &["a"]).await.unwrap();
    let other = TxnProducer::init(&mut client, "other").await;

    let mut stranger = broker.client().await;
    let batch = |sequence| {
        Batch::of(&["forged"])
            .producer(owner.producer_id, owner.epoch, sequence)
            .transactional()
            .build()
    };
    for version in [3, version::PRODUCE, 11, 12] {
        let unnamed = requests::produce(
            None,
            [("t", 0, batch(1)), ("t", 1, Batch::of(&["plain"]).build())],
        );
        let answer = stranger.send(version, &unnamed).await;
        let codes = produced(&answer);
        // All of it, as in Kafka: the request is one that its sender has no right to make.
        let refused = Err(ErrorCode::TransactionalIdAuthorizationFailed);
        assert_eq!(codes, [refused, refused], "v{version}");
        // Under the name of an id that one may have a right to.
        for name in ["other", "nobody"] {
            let named = requests::produce(Some(name), [("t", 0, batch(1))]);
            let answer = stranger.send(version, &named).await;
            assert_eq!(
                produced(&answer),
                [Err(ErrorCode::InvalidProducerIdMapping)],
                "v{version} {name}"
            );
        }
    }
    drop(other);
    // Nor is the transaction disturbed.
    owner.send(&mut client, "t", 0, &["b"]).await.unwrap();
    owner.end(&mut client, true).await.unwrap();
    let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["a", "b"]);
}

/// Kafka CVE-2022-34917: a few bytes that claim a large size or count made the broker take the
/// memory, before anybody had authenticated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2022_34917_what_is_claimed_takes_no_memory_until_it_comes() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let memory = Memory::now();
    let mut claimants: Vec<RawClient> = Vec::new();
    for n in 0..400 {
        let mut client = broker.client().await;
        client.send_bytes(&(100i32 << 20).to_be_bytes()).await;
        // Of some the header comes too, of some a count of elements.
        let begun: &[u8] = &[
            0, 3, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0, 1, b'x',
        ];
        client.send_bytes(&begun[..n % (begun.len() + 1)]).await;
        claimants.push(client);
    }
    // The same counts in requests that are whole.
    for n in 0..400i32 {
        let mut client = broker.client().await;
        let mut body = vec![0, 3, 0, 1, 0, 0, 0, 9, 0xff, 0xff];
        body.extend_from_slice(&(i32::MAX - n).to_be_bytes());
        body.extend_from_slice(&[0, 1, b'x']);
        client.send_frame(&body).await;
        client.closed().await;
    }
    witness.writes().await;
    assert!(claimants.iter().all(|client| !client.is_closed()));
    // The room of one read each, and not what is claimed: that would be 40 GB.
    let in_use = broker.broker().memory_in_use().request_bytes;
    assert!(in_use < 400 * (16 << 10), "{in_use}");
    memory.assert_no_jump("claims");
}

/// CVE-2023-34455 (snappy-java, under Kafka): a chunk's size was believed, and memory taken for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2023_34455_a_snappy_block_that_claims_gigabytes_takes_no_memory() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    client
        .create_topic_with("again", 1, &[("compression.type", "zstd")])
        .await;
    let memory = Memory::now();
    let batch = Batch::of(&["v"]).build();
    let header = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
    let xerial = |rest: &[u8]| [&header[..], rest].concat();
    for (what, body) in [
        ("a block of 4 GiB", vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]),
        ("a block of 2 GiB", vec![0xff, 0xff, 0xff, 0xff, 0x07, 0, 0]),
        ("a block beyond 64 bits", vec![0xff; 30]),
        ("a chunk of 2 GiB", xerial(&[0x7f, 0xff, 0xff, 0xff, 0, 0])),
        ("a chunk of -1", xerial(&[0xff, 0xff, 0xff, 0xff, 0, 0])),
        (
            "a chunk that opens into 4 GiB",
            xerial(&[0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]),
        ),
        ("no chunk", xerial(&[])),
        ("half a size", xerial(&[0, 0])),
    ] {
        let bad = compressed(&batch, 2, |_| body);
        for topic in ["t", "again"] {
            let answer = client.produce(topic, 0, bad.clone()).await;
            assert_eq!(answer, Err(ErrorCode::InvalidRecord), "{what} to {topic}");
        }
    }
    // Many chunks, each of a size that may be, and together beyond what may be.
    let chunk = snappy_zeros(1 << 20);
    let mut rest = Vec::new();
    for _ in 0..20 {
        rest.extend_from_slice(&(chunk.len() as i32).to_be_bytes());
        rest.extend_from_slice(&chunk);
    }
    let many = compressed(&batch, 2, |_| xerial(&rest));
    let answer = client.produce("t", 0, many).await;
    assert_ne!(answer, Ok(0));
    memory.assert_no_jump("snappy");
    assert_eq!(client.ends("t", 1, Isolation::ReadUncommitted).await, [0]);
}

/// A raw snappy block of zeros, written by hand: a literal and copies of it.
fn snappy_zeros(bytes: usize) -> Vec<u8> {
    let mut block = Vec::new();
    let mut length = bytes;
    while length >= 0x80 {
        block.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    block.push(length as u8);
    // One literal byte; then copies of 64 bytes from one byte before.
    block.extend_from_slice(&[0, 0]);
    let mut left = bytes - 1;
    while left > 0 {
        let copied = left.min(64);
        block.extend_from_slice(&[((copied - 1) << 2) as u8 | 2, 1, 0]);
        left -= copied;
    }
    block
}

/// The head of a record of so many zeros, with its length.
fn record_head(bytes: usize) -> Vec<u8> {
    fn varint(out: &mut Vec<u8>, value: usize) {
        let mut value = (value as u64) << 1;
        while value >= 0x80 {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    let mut head = vec![0, 0, 0, 1];
    varint(&mut head, bytes);
    let mut record = Vec::new();
    varint(&mut record, head.len() + bytes + 1);
    record.extend(head);
    record
}

fn zeros(to: &mut impl Write, bytes: usize) {
    let piece = vec![0; 1 << 16];
    to.write_all(&record_head(bytes)).expect("memory");
    for _ in 0..bytes >> 16 {
        to.write_all(&piece).expect("memory");
    }
    to.write_all(&[0]).expect("memory");
}

/// A record of so many zeros in each codec that packs them well.
fn bombs(bytes: usize) -> Vec<(&'static str, Bytes)> {
    let batch = Batch::of(&["v"]).build();
    let gzip = compressed(&batch, 1, |_| {
        let level = flate2::Compression::fast();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        zeros(&mut encoder, bytes);
        encoder.finish().expect("memory")
    });
    let lz4 = compressed(&batch, 3, |_| {
        let info = lz4_flex::frame::FrameInfo::new();
        let info = info.block_mode(lz4_flex::frame::BlockMode::Independent);
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        zeros(&mut encoder, bytes);
        encoder.finish().expect("memory")
    });
    let zstd = compressed(&batch, 4, |_| {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).expect("an encoder");
        zeros(&mut encoder, bytes);
        encoder.finish().expect("memory")
    });
    vec![("gzip", gzip), ("lz4", lz4), ("zstd", zstd)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_of_every_codec_are_refused_by_ratio_and_by_size_and_counted() {
    let broker = TestBroker::builder()
        .set("decompression.max.ratio", 100)
        .set("decompression.max.bytes", 24 << 20)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    client
        .create_topic_with("again", 1, &[("compression.type", "gzip")])
        .await;
    let memory = Memory::now();
    let refused = Err(ErrorCode::MessageTooLarge);
    // 15 MiB are no matter of ratio. 20 MiB are one, and for LZ4, whose 80 KB may become 8 MB, too.
    // 160 MiB are beyond the size.
    for (bytes, allowed) in [(15usize << 20, true), (20 << 20, false), (160 << 20, false)] {
        for (codec, bomb) in bombs(bytes) {
            let answer = client.produce("t", 0, bomb.clone()).await;
            assert_eq!(answer.is_ok(), allowed, "{codec} of {bytes}: {answer:?}");
            if !allowed {
                assert_eq!(answer, refused, "{codec} of {bytes}");
                assert_eq!(client.produce("again", 0, bomb).await, refused);
            }
        }
    }
    assert_eq!(broker.broker().reached(Limit::Decompression), 12);
    // The bombs that this test makes take what they take; not their content.
    memory.assert_no_jump("bombs");
}
