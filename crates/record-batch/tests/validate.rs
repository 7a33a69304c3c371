//! The codes of a refused Produce, as Kafka gives them.

mod support;

use support::*;
use tidemark_record_batch::*;
use tidemark_types::ErrorCode::{
    self, CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge,
    UnsupportedCompressionType,
};
use tidemark_types::{ProducerEpoch, ProducerId};

const OK: ErrorCode = ErrorCode::None;

fn rules() -> ProduceRules {
    ProduceRules {
        wall_ms: 1_000,
        ..ProduceRules::default()
    }
}

fn code(records: &[u8], rules: &ProduceRules) -> ErrorCode {
    match validate_produce(records, rules) {
        Ok(_) => OK,
        Err(refusal) => {
            assert!(refusal.message.is_some(), "{refusal:?}");
            refusal.code
        }
    }
}

#[test]
fn each_rule_has_kafkas_code() {
    let two = [plain(1), plain(1)].concat();
    let mut leftover = plain(1);
    leftover.push(0);
    let mut bad_crc = plain(1);
    bad_crc[at::CRC] ^= 1;
    let mut cut = plain(1);
    cut.pop();
    let magic = |magic: i8| {
        let mut batch = plain(1);
        batch[at::MAGIC] = magic as u8;
        batch
    };
    let length = |length: i32| {
        let mut batch = plain(1);
        batch[at::BATCH_LENGTH..at::BATCH_LENGTH + 4].copy_from_slice(&length.to_be_bytes());
        batch
    };
    let transactional = BatchBuilder::new(1_000)
        .producer(ProducerId(7), ProducerEpoch(0), 0)
        .transactional()
        .push(None, Some(b"v"))
        .build();

    let table: &[(&str, ErrorCode, Vec<u8>)] = &[
        ("one batch", OK, plain(3)),
        ("an idempotent batch", OK, idempotent(5)),
        ("a transactional batch", OK, transactional),
        ("no records field, or an empty one", InvalidRecord, vec![]),
        ("two batches", InvalidRecord, two),
        ("a byte too many", InvalidRecord, leftover),
        ("a byte too few", InvalidRecord, cut),
        (
            "less than a magic byte",
            InvalidRecord,
            plain(1)[..16].to_vec(),
        ),
        ("less than a header", InvalidRecord, plain(1)[..60].to_vec()),
        ("a wrong CRC", CorruptMessage, bad_crc),
        ("magic 0", InvalidRecord, magic(0)),
        ("magic 1", InvalidRecord, magic(1)),
        ("magic 3", CorruptMessage, magic(3)),
        ("magic -1", CorruptMessage, magic(-1)),
        ("a length below the header", CorruptMessage, length(48)),
        ("a negative length", CorruptMessage, length(-1)),
        ("a huge length", InvalidRecord, length(i32::MAX)),
        (
            "a control batch",
            InvalidRecord,
            with_bits(idempotent(0), 1 << 5),
        ),
        (
            "a transactional batch without a producer",
            InvalidRecord,
            with_bits(plain(1), 1 << 4),
        ),
        (
            "a base offset",
            InvalidRecord,
            with_field(plain(1), 0, 7i64.to_be_bytes()),
        ),
        (
            "codec 5",
            UnsupportedCompressionType,
            with_bits(plain(1), 5),
        ),
        (
            "codec 7",
            UnsupportedCompressionType,
            with_bits(plain(1), 7),
        ),
        (
            "a producer without a sequence",
            InvalidRecord,
            idempotent(-1),
        ),
        (
            "a producer without an epoch",
            InvalidRecord,
            with_field(idempotent(0), at::PRODUCER_EPOCH, (-1i16).to_be_bytes()),
        ),
        (
            "no records",
            InvalidRecord,
            with_field(plain(1), at::RECORD_COUNT, 0i32.to_be_bytes()),
        ),
        (
            "a negative count",
            InvalidRecord,
            with_field(plain(1), at::RECORD_COUNT, i32::MIN.to_be_bytes()),
        ),
        (
            "count and last offset delta differ",
            InvalidRecord,
            with_field(plain(2), at::LAST_OFFSET_DELTA, 2i32.to_be_bytes()),
        ),
        (
            "one record more than there is",
            InvalidRecord,
            with_field(
                with_field(plain(2), at::LAST_OFFSET_DELTA, 2i32.to_be_bytes()),
                at::RECORD_COUNT,
                3i32.to_be_bytes(),
            ),
        ),
        (
            "one record less than there is",
            InvalidRecord,
            with_field(
                with_field(plain(2), at::LAST_OFFSET_DELTA, 0i32.to_be_bytes()),
                at::RECORD_COUNT,
                1i32.to_be_bytes(),
            ),
        ),
    ];
    for (what, expected, batch) in table {
        assert_eq!(code(batch, &rules()), *expected, "{what}");
    }
}

#[test]
fn the_records_themselves_are_looked_at() {
    // Length, attributes, timestamp delta, offset delta, key, value, header count.
    let good: &[u8] = &[14, 0, 0, 0, 1, 2, b'v', 0];
    let table: &[(&str, ErrorCode, &[u8])] = &[
        ("a record", OK, good),
        (
            "the offset delta is not 0",
            InvalidRecord,
            &[14, 0, 0, 2, 1, 2, b'v', 0],
        ),
        ("it ends early", InvalidRecord, &[14, 0, 0, 0, 1, 2, b'v']),
        (
            "its length is too small",
            InvalidRecord,
            &[12, 0, 0, 0, 1, 2, b'v', 0],
        ),
        (
            "its length is too large",
            InvalidRecord,
            &[16, 0, 0, 0, 1, 2, b'v', 0, 0],
        ),
        (
            "its length is negative",
            InvalidRecord,
            &[13, 0, 0, 0, 1, 2, b'v', 0],
        ),
        ("its length is 0", InvalidRecord, &[0]),
        (
            "its key's length is -2",
            InvalidRecord,
            &[14, 0, 0, 0, 3, 2, b'v', 0],
        ),
        (
            "its value reaches beyond it",
            InvalidRecord,
            &[14, 0, 0, 0, 1, 6, b'v', 0],
        ),
        (
            "a header count of -1",
            InvalidRecord,
            &[14, 0, 0, 0, 1, 2, b'v', 1],
        ),
        (
            "a header that is not there",
            InvalidRecord,
            &[14, 0, 0, 0, 1, 2, b'v', 2],
        ),
        ("a header", OK, &[20, 0, 0, 0, 1, 2, b'v', 2, 2, b'h', 1]),
        (
            "a header without a key",
            InvalidRecord,
            &[18, 0, 0, 0, 1, 2, b'v', 2, 1, 1],
        ),
        (
            "a header count of 2^31 - 1",
            InvalidRecord,
            &[24, 0, 0, 0, 1, 2, b'v', 0xfe, 0xff, 0xff, 0xff, 0x0f, 0],
        ),
        (
            "a key length of 2^31 - 1",
            InvalidRecord,
            &[24, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 2, b'v', 0, 0],
        ),
        (
            "a record length of 2^31 - 1",
            InvalidRecord,
            &[0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 2, b'v', 0],
        ),
        ("an endless varint", InvalidRecord, &[0xff; 12]),
        (
            "bytes after it",
            InvalidRecord,
            &[14, 0, 0, 0, 1, 2, b'v', 0, 14],
        ),
    ];
    for (what, expected, body) in table {
        let batch = with_body(plain(1), body);
        let mut rules = rules();
        // The batch's own max timestamp is right for the record's delta of 0.
        assert_eq!(code(&batch, &rules), *expected, "{what}");
        for form in FORMS {
            let batch = compressed(&batch, form);
            assert_eq!(code(&batch, &rules), *expected, "{what}, {form:?}");
        }
        rules.check_records = false;
        assert_eq!(code(&batch, &rules), OK, "{what}, header only");
    }
}

#[test]
fn size_is_that_of_the_whole_batch() {
    let batch = plain(10);
    let mut rules = rules();
    rules.max_message_bytes = batch.len();
    assert_eq!(code(&batch, &rules), OK);
    rules.max_message_bytes -= 1;
    assert_eq!(code(&batch, &rules), MessageTooLarge);
}

#[test]
fn zstd_needs_produce_v7() {
    // Case A28.
    let batch = compressed(&plain(3), Form::Zstd);
    let mut rules = rules();
    rules.produce_version = 6;
    assert_eq!(code(&batch, &rules), UnsupportedCompressionType);
    assert_eq!(code(&compressed(&plain(3), Form::Lz4), &rules), OK);
    rules.produce_version = 7;
    assert_eq!(code(&batch, &rules), OK);
}

fn at_times(times: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(times[0]);
    for &time in times {
        builder.push_at(time, Some(b"k"), None, &[]);
    }
    builder.build()
}

#[test]
fn timestamps_are_bounded_on_both_sides() {
    let now = 1_700_000_000_000;
    let rules = ProduceRules {
        wall_ms: now,
        message_timestamp_before_max_ms: 100,
        message_timestamp_after_max_ms: 10,
        ..ProduceRules::default()
    };
    for (times, expected) in [
        (vec![now, now - 100, now + 10], vec![]),
        (vec![now, now - 101, now + 10], vec![1]),
        (vec![now, now - 100, now + 11], vec![2]),
        (vec![0, now, i64::MIN], vec![0, 2]),
        (vec![-1, -1], vec![]),
        (vec![now, -1], vec![]),
        (vec![-2], vec![0]),
    ] {
        let verdict = validate_produce(&at_times(&times), &rules);
        let refused: Vec<i32> = match &verdict {
            Ok(valid) => {
                assert_eq!(valid.max_timestamp, times.iter().copied().max().unwrap());
                vec![]
            }
            Err(refusal) => {
                assert_eq!(refusal.code, InvalidTimestamp);
                refusal.record_errors.iter().map(|(i, _)| *i).collect()
            }
        };
        assert_eq!(refused, expected, "{times:?}");
        // The broker's clock overrides: the client's times do not matter.
        let log_append_time = ProduceRules {
            timestamp_type: TimestampType::LogAppendTime,
            ..rules
        };
        assert_eq!(code(&at_times(&times), &log_append_time), OK);
    }
}

#[test]
fn a_tick_is_never_a_timestamp() {
    let any_time = ProduceRules {
        message_timestamp_after_max_ms: i64::MAX,
        ..rules()
    };
    assert_eq!(code(&at_times(&[(1 << 50) - 1]), &any_time), OK);
    for times in [[1 << 50, 0], [0, 1 << 50], [5, i64::MAX]] {
        for check_records in [true, false] {
            for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
                let rules = ProduceRules {
                    check_records,
                    timestamp_type,
                    ..any_time
                };
                assert_eq!(code(&at_times(&times), &rules), InvalidTimestamp);
            }
        }
    }
    // Not in the header, only in a record: found by looking.
    let hidden = with_field(
        at_times(&[0, 1 << 50]),
        at::MAX_TIMESTAMP,
        0i64.to_be_bytes(),
    );
    assert_eq!(code(&hidden, &any_time), InvalidTimestamp);
    // Base and delta whose sum does not fit 64 bits.
    let overflow = with_field(
        at_times(&[0, (1 << 50) - 1]),
        at::BASE_TIMESTAMP,
        i64::MIN.to_be_bytes(),
    );
    assert_eq!(code(&overflow, &any_time), OK);
    let overflow = with_field(
        at_times(&[0, i64::MIN + 1]),
        at::BASE_TIMESTAMP,
        (-2i64).to_be_bytes(),
    );
    assert_eq!(code(&overflow, &any_time), InvalidTimestamp);
}

#[test]
fn a_wrong_max_timestamp_is_corrected_not_refused() {
    let lying = with_field(
        at_times(&[1_000, 1_500, 1_200]),
        at::MAX_TIMESTAMP,
        7i64.to_be_bytes(),
    );
    let valid = validate_produce(&lying, &rules()).unwrap();
    assert_eq!(
        (valid.header.max_timestamp, valid.max_timestamp),
        (7, 1_500)
    );
    let mut stored = lying.clone();
    valid.finish(&mut stored, TimestampType::CreateTime, 2_000);
    assert_eq!(stored, at_times(&[1_000, 1_500, 1_200]));

    let honest = at_times(&[1_000, 1_500, 1_200]);
    let valid = validate_produce(&honest, &rules()).unwrap();
    let mut stored = honest.clone();
    valid.finish(&mut stored, TimestampType::CreateTime, 2_000);
    assert_eq!(stored, honest);
    valid.finish(&mut stored, TimestampType::LogAppendTime, 2_000);
    assert!(crc_is_valid(&stored));
    let header = BatchHeader::parse(&stored).unwrap();
    assert_eq!(header.max_timestamp, 2_000);
    assert_eq!(
        header.attributes.timestamp_type(),
        TimestampType::LogAppendTime
    );
    let times: Vec<i64> = records(&bytes(&stored), &DecompressLimits::default())
        .unwrap()
        .map(|record| record.unwrap().timestamp)
        .collect();
    assert_eq!(times, [2_000; 3]);
}

#[test]
fn a_compacted_topic_needs_keys() {
    let mut builder = BatchBuilder::new(1_000);
    builder
        .push(Some(b""), Some(b"v"))
        .push(None, Some(b"v"))
        .push(Some(b"k"), None)
        .push(None, None);
    let batch = builder.build();
    assert_eq!(code(&batch, &rules()), OK);
    for check_records in [true, false] {
        let rules = ProduceRules {
            compacted: true,
            check_records,
            ..rules()
        };
        let refusal = validate_produce(&batch, &rules).unwrap_err();
        assert_eq!(refusal.code, InvalidRecord);
        let indexes: Vec<i32> = refusal.record_errors.iter().map(|(i, _)| *i).collect();
        assert_eq!(indexes, [1, 3]);
        assert_eq!(code(&plain(3), &rules), OK);
    }
}

#[test]
fn a_refusal_lists_only_so_many_records() {
    let mut builder = BatchBuilder::new(1_000);
    for _ in 0..MAX_RECORD_ERRORS + 5 {
        builder.push(None, None);
    }
    let rules = ProduceRules {
        compacted: true,
        ..rules()
    };
    let refusal = validate_produce(&builder.build(), &rules).unwrap_err();
    assert_eq!(refusal.record_errors.len(), MAX_RECORD_ERRORS);
    assert!(refusal.message.unwrap().starts_with("1005 of"));
}

#[test]
fn a_client_that_claims_append_time_is_taken_at_its_times() {
    let claims = with_field(
        with_bits(at_times(&[5, 9]), 1 << 3),
        at::MAX_TIMESTAMP,
        700i64.to_be_bytes(),
    );
    // The bit makes the header's time that of all records.
    let valid = validate_produce(&claims, &rules()).expect("Kafka takes it");
    assert_eq!(valid.max_timestamp, 700);
    let mut stored = claims.clone();
    valid.finish(&mut stored, TimestampType::CreateTime, 2_000);
    let header = BatchHeader::parse(&stored).unwrap();
    assert!(crc_is_valid(&stored));
    assert_eq!(
        header.attributes.timestamp_type(),
        TimestampType::CreateTime
    );
    assert_eq!(header.max_timestamp, 700);
    // Where the broker stamps, it refuses every record.
    let stamped = ProduceRules {
        timestamp_type: TimestampType::LogAppendTime,
        ..rules()
    };
    let refusal = validate_produce(&claims, &stamped).unwrap_err();
    assert_eq!(refusal.code, InvalidTimestamp);
    let refused: Vec<i32> = refusal.record_errors.iter().map(|(i, _)| *i).collect();
    assert_eq!(refused, [0, 1]);
}

#[test]
fn bytes_behind_the_batch_are_damage_unless_they_begin_another() {
    let mut damaged = plain(1);
    damaged.extend_from_slice(&[0; 12]);
    assert_eq!(code(&damaged, &rules()), CorruptMessage);
    damaged.truncate(damaged.len() - 1);
    assert_eq!(code(&damaged, &rules()), InvalidRecord);
    let two = [plain(1), plain(1)].concat();
    assert_eq!(code(&two, &rules()), InvalidRecord);
}

#[test]
fn what_is_refused_for_its_content_says_so() {
    let mut bad_crc = plain(1);
    bad_crc[at::CRC] ^= 1;
    let cases = [
        (bad_crc, false),
        ([plain(1), plain(1)].concat(), false),
        (with_bits(idempotent(0), 1 << 5), true),
    ];
    for (records, of_content) in cases {
        let refusal = validate_produce(&records, &rules()).unwrap_err();
        assert_eq!(refusal.of_content, of_content, "{refusal:?}");
    }
}
