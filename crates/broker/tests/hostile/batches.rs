//! Batches that are not what they say they are.

use std::io::Write;

use bytes::Bytes;
use kafka_protocol::messages::ProduceResponse;
use tidemark_testkit::{Batch, Isolation, TestBroker, requests, version};
use tidemark_types::ErrorCode;

use crate::memory::Memory;
use crate::support::changed::{Changed, compressed};
use crate::support::{Target, code};

const INVALID_RECORD: ErrorCode = ErrorCode::InvalidRecord;
const CORRUPT: ErrorCode = ErrorCode::CorruptMessage;
const UNKNOWN: ErrorCode = ErrorCode::UnknownServerError;

/// A records field and what it is answered.
struct Broken {
    what: &'static str,
    records: Bytes,
    /// What Tidemark answers, in any case without a word to the other partitions.
    ours: ErrorCode,
    /// What Kafka 4.1.1 answers, where it is something else; `None` in it: it takes the batch.
    kafka: Option<Option<ErrorCode>>,
}

impl Broken {
    fn in_kafka(mut self, code: ErrorCode) -> Broken {
        self.kafka = Some(Some(code));
        self
    }

    fn taken_by_kafka(mut self) -> Broken {
        self.kafka = Some(None);
        self
    }
}

fn broken(what: &'static str, records: Bytes, ours: ErrorCode) -> Broken {
    Broken {
        what,
        records,
        ours,
        kafka: None,
    }
}

/// Framing: lengths, magic, CRC, how many batches.
fn badly_framed(batch: &Bytes) -> Vec<Broken> {
    let of = || Changed::batch(batch);
    let length = i32::try_from(batch.len()).unwrap() - 12;
    vec![
        broken("nothing", Bytes::new(), INVALID_RECORD),
        broken("garbage", Bytes::from_static(&[0xff; 100]), CORRUPT),
        broken("zeros", Bytes::from_static(&[0; 100]), INVALID_RECORD).in_kafka(CORRUPT),
        broken("less than a header", of().cut(60).raw(), INVALID_RECORD),
        broken("less than a length", of().cut(11).raw(), INVALID_RECORD),
        broken(
            "a byte missing",
            of().cut(batch.len() - 1).raw(),
            INVALID_RECORD,
        ),
        // Kafka takes less than a whole batch for a torn end, which it may be in a fetch only.
        broken("a byte more", of().followed_by(&[0]).raw(), INVALID_RECORD).taken_by_kafka(),
        broken("two batches", of().followed_by(batch).raw(), INVALID_RECORD),
        broken("a wrong CRC", of().last_byte().raw(), CORRUPT),
        broken("a negative length", of().length(-1).raw(), CORRUPT),
        broken("a length of 0", of().length(0).raw(), CORRUPT),
        broken(
            "a length of 2^31-1",
            of().length(i32::MAX).raw(),
            INVALID_RECORD,
        )
        .in_kafka(UNKNOWN),
        broken("one byte too short", of().length(length - 1).raw(), CORRUPT),
        broken(
            "one byte too long",
            of().length(length + 1).raw(),
            INVALID_RECORD,
        ),
        broken("magic 0", of().magic(0).raw(), INVALID_RECORD),
        broken("magic 1", of().magic(1).raw(), INVALID_RECORD),
        broken("magic 3", of().magic(3).raw(), CORRUPT),
        broken("magic -1", of().magic(-1).raw(), CORRUPT),
    ]
}

/// A sound frame around something else than its header says.
fn badly_filled(batch: &Bytes) -> Vec<Broken> {
    let of = || Changed::batch(batch);
    let garbage = |codec| compressed(batch, codec, |_| b"no compressor wrote this".to_vec());
    let unsupported = ErrorCode::UnsupportedCompressionType;
    // 2^50 and above are no times: they are ticks.
    let tick = 1 << 50;
    let ticks = of().base_timestamp(tick).max_timestamp(tick).sealed();
    let max_timestamp = of().max_timestamp(i64::MAX).sealed();
    let overflow = of().base_timestamp(i64::MAX).sealed();
    let count_and_offset = of().record_count(i32::MAX).last_offset_delta(i32::MAX - 1);
    let invalid_timestamp = ErrorCode::InvalidTimestamp;
    vec![
        broken(
            "no records counted",
            of().record_count(0).sealed(),
            INVALID_RECORD,
        ),
        broken(
            "a negative count",
            of().record_count(-1).sealed(),
            INVALID_RECORD,
        ),
        broken(
            "a record too few",
            of().record_count(2).sealed(),
            INVALID_RECORD,
        ),
        broken(
            "a record too many",
            of().record_count(4).sealed(),
            INVALID_RECORD,
        ),
        broken(
            "2^31-1 records",
            of().record_count(i32::MAX).sealed(),
            INVALID_RECORD,
        ),
        broken(
            "2^31-1 records and offsets",
            count_and_offset.sealed(),
            INVALID_RECORD,
        ),
        broken(
            "a last offset too small",
            of().last_offset_delta(1).sealed(),
            INVALID_RECORD,
        ),
        broken(
            "a last offset too large",
            of().last_offset_delta(3).sealed(),
            INVALID_RECORD,
        ),
        broken(
            "a negative last offset",
            of().last_offset_delta(-1).sealed(),
            INVALID_RECORD,
        ),
        broken(
            "the control bit",
            of().attribute_bits(0x20).sealed(),
            INVALID_RECORD,
        ),
        broken(
            "of nobody's transaction",
            of().attribute_bits(0x10).sealed(),
            ErrorCode::TransactionalIdAuthorizationFailed,
        ),
        broken("ticks for times", ticks, invalid_timestamp),
        broken(
            "a tick for the highest time",
            max_timestamp,
            invalid_timestamp,
        )
        .taken_by_kafka(),
        broken("times beyond 64 bits", overflow, invalid_timestamp),
        // Kafka lets what goes wrong within a decompressor go up as an unknown error.
        broken("gzip that is none", garbage(1), INVALID_RECORD).in_kafka(UNKNOWN),
        broken("snappy that is none", garbage(2), INVALID_RECORD).in_kafka(UNKNOWN),
        broken("lz4 that is none", garbage(3), INVALID_RECORD).in_kafka(UNKNOWN),
        broken("zstd that is none", garbage(4), INVALID_RECORD).in_kafka(UNKNOWN),
        broken("codec 5", garbage(5), unsupported).in_kafka(UNKNOWN),
        broken("codec 7", garbage(7), unsupported).in_kafka(UNKNOWN),
    ]
}

/// A batch of one record of `bytes` zeros, which zstd makes small, written in pieces: the test must
/// not need the memory that it forbids the broker.
fn bomb(bytes: usize) -> Bytes {
    fn varint(out: &mut Vec<u8>, value: i64) {
        let mut value = (value << 1) as u64;
        while value >= 0x80 {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    let value_bytes = i64::try_from(bytes).unwrap();
    // Attributes, timestamp delta, offset delta, no key (-1 in zigzag).
    let mut head = vec![0, 0, 0, 1];
    varint(&mut head, value_bytes);
    let mut record = Vec::new();
    varint(
        &mut record,
        value_bytes + i64::try_from(head.len()).unwrap() + 1,
    );
    record.extend(head);
    compressed(&Batch::of(&["v"]).build(), 4, |_| {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).expect("an encoder");
        encoder.write_all(&record).expect("it writes to memory");
        let piece = vec![0; 1 << 19];
        for _ in 0..bytes / piece.len() {
            encoder.write_all(&piece).expect("it writes to memory");
        }
        encoder.write_all(&[0]).expect("it writes to memory");
        encoder.finish().expect("it writes to memory")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_batch_that_opens_into_a_huge_one_is_refused() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let memory = Memory::now();
    // Within its bounds a batch may be compressed as well as it can be.
    assert_eq!(client.produce("t", 0, bomb(1 << 19)).await, Ok(0));
    let large = bomb(1 << 30);
    assert!(large.len() < 1 << 20, "{}", large.len());
    for _ in 0..4 {
        let produced = client.produce("t", 0, large.clone()).await;
        assert_eq!(produced, Err(ErrorCode::MessageTooLarge));
    }
    let values = client.read_all("t", 0, Isolation::ReadUncommitted).await;
    assert_eq!(values[0].value.len(), 1 << 19);
    memory.assert_no_jump("bombs");
}

/// The code of a partition; `None` for success.
fn code_of(response: &ProduceResponse, index: i32) -> Option<ErrorCode> {
    let mut partitions = response
        .responses
        .iter()
        .flat_map(|t| &t.partition_responses);
    let found = partitions
        .find(|p| p.index == index)
        .expect("every partition is answered");
    (found.error_code != 0).then(|| code(found.error_code))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_batch_is_refused_and_nothing_of_it_is_written() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let topic = target.topic(&mut client, "t", 2).await;
    let memory = Memory::now();
    let batch = Batch::of(&["one", "two", "three"]).build();
    let mut wrong = Vec::new();
    let (mut written_beside, mut taken) = (0, 0);
    for case in badly_framed(&batch).into_iter().chain(badly_filled(&batch)) {
        let what = case.what;
        let want = match (target.is_kafka(), case.kafka) {
            (true, Some(other)) => other,
            _ => Some(case.ours),
        };
        let request = requests::produce(
            None,
            [(&topic, 0, case.records), (&topic, 1, batch.clone())],
        );
        let answer = client.send(version::PRODUCE, &request).await;
        let (found, beside) = (code_of(&answer, 0), code_of(&answer, 1));
        if found != want {
            wrong.push(format!("{what}: {found:?}, not {want:?}"));
        }
        // The other partition is none of it. (Of some of these Kafka fails the whole request, and a
        // transactional batch without an id always fails all of it.)
        let whole = want == Some(ErrorCode::TransactionalIdAuthorizationFailed);
        if beside.is_some() && !target.is_kafka() && !whole {
            wrong.push(format!(
                "{what}: the partition beside it is answered {beside:?}"
            ));
        }
        written_beside += i64::from(beside.is_none());
        taken += i64::from(found.is_none());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let isolation = Isolation::ReadUncommitted;
    let end = client
        .list_offset(&topic, 0, requests::LATEST, isolation)
        .await;
    assert_eq!(end, Ok(3 * taken));
    if !target.is_kafka() {
        assert_eq!(taken, 0);
        target
            .assert_ends(
                &mut client,
                &topic,
                1,
                (3 * written_beside, 3 * written_beside),
            )
            .await;
    }
    memory.assert_no_jump("broken batches");
}
