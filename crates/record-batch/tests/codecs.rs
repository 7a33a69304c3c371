//! Each codec in each form that clients write, and what a bomb may cost.

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use support::*;
use tidemark_record_batch::*;
use tidemark_types::ErrorCode;

fn rules() -> ProduceRules {
    ProduceRules {
        wall_ms: 1_000,
        max_message_bytes: usize::MAX,
        ..ProduceRules::default()
    }
}

fn read(batch: &[u8]) -> Result<Vec<Record>, BatchError> {
    records(&bytes(batch), &DecompressLimits::default())?.collect()
}

#[test]
fn what_each_codec_carries_is_read_back() {
    let batch = plain(200);
    let expected = read(&batch).unwrap();
    assert_eq!(expected.len(), 200);
    assert_eq!(expected[199].key, Some(Bytes::from_static(b"k199")));
    for form in FORMS {
        let batch = compressed(&batch, form);
        let valid = validate_produce(&batch, &rules()).unwrap();
        assert_eq!(valid.header.attributes.codec(), Some(form.codec()));
        assert_eq!(read(&batch).unwrap(), expected, "{form:?}");
    }
}

#[test]
fn large_bodies_cross_block_boundaries() {
    let mut builder = BatchBuilder::new(1_000);
    let value: Vec<u8> = (0..100_000u32)
        .flat_map(|i| i.wrapping_mul(i).to_le_bytes())
        .collect();
    for _ in 0..3 {
        builder.push(Some(b"k"), Some(&value));
    }
    let batch = builder.build();
    let expected = read(&batch).unwrap();
    for form in FORMS {
        let batch = compressed(&batch, form);
        assert!(validate_produce(&batch, &rules()).is_ok(), "{form:?}");
        assert_eq!(read(&batch).unwrap(), expected, "{form:?}");
    }
}

#[test]
fn a_bomb_is_refused_at_the_bound() {
    let mut builder = BatchBuilder::new(1_000);
    builder.push(None, Some(&vec![0; 16 << 20]));
    let batch = builder.build();
    let limits = DecompressLimits {
        ratio: 4,
        floor_bytes: 1 << 20,
        max_bytes: 8 << 20,
    };
    for form in FORMS {
        let batch = compressed(&batch, form);
        let refusal = validate_produce(&batch, &ProduceRules { limits, ..rules() }).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::MessageTooLarge, "{form:?}");
        assert_eq!(
            records(&bytes(&batch), &limits).err(),
            Some(BatchError::DecompressedTooLarge),
            "{form:?}"
        );
        let limits = DecompressLimits {
            ratio: usize::MAX,
            floor_bytes: 0,
            max_bytes: 17 << 20,
        };
        let verdict = validate_produce(&batch, &ProduceRules { limits, ..rules() });
        assert!(verdict.is_ok(), "{form:?}");
    }
}

#[test]
fn the_bound_is_the_larger_of_ratio_and_floor_below_the_maximum() {
    let limits = DecompressLimits::default();
    assert_eq!(limits.bound_bytes(0), 16 << 20);
    assert_eq!(limits.bound_bytes(1 << 14), 16 << 20);
    assert_eq!(limits.bound_bytes(1 << 20), 64 << 20);
    assert_eq!(limits.bound_bytes(1 << 30), 128 << 20);
    assert_eq!(limits.bound_bytes(usize::MAX), 128 << 20);
}

#[test]
fn snappy_claims_take_no_memory() {
    // 4 GiB - 1 claimed by a block of nine bytes, raw and within xerial.
    let raw = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, b'x', 0, b'y'];
    let mut xerial = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x09".to_vec();
    xerial.extend_from_slice(&raw);
    // A block length beyond the bytes, a negative one, one cut short.
    let far = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\x7f\xff\xff\xffx".to_vec();
    let negative = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\xff\xff\xff\xffx".to_vec();
    let cut = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0".to_vec();
    for body in [raw.to_vec(), xerial, far, negative, cut] {
        let batch = with_bits(with_body(plain(1), &body), 2);
        let refusal = validate_produce(&batch, &rules()).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::InvalidRecord, "{body:?}");
        assert_eq!(read(&batch), Err(BatchError::Decompress), "{body:?}");
    }
}

#[test]
fn lz4s_legacy_frame_is_no_kafka_format() {
    let body = [0x02, 0x21, 0x4c, 0x18, 1, 0, 0, 0, 0];
    let batch = with_bits(with_body(plain(1), &body), 3);
    assert_eq!(read(&batch), Err(BatchError::Decompress));
}

/// Kafka's own reader refuses such a frame: what we stored Java consumers could not read.
#[test]
fn an_lz4_frame_whose_blocks_lean_on_each_other_is_refused() {
    let body = Form::Lz4Linked.compress(&plain(1)[HEADER_BYTES..]);
    let batch = with_bits(with_body(plain(1), &body), 3);
    let refusal = validate_produce(&batch, &rules()).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::InvalidRecord);
    assert_eq!(read(&batch), Err(BatchError::Decompress));
}

#[test]
fn an_empty_batch_left_by_compaction_is_read_as_empty() {
    for codec in 0..5i16 {
        let batch = with_field(
            with_bits(with_body(plain(3), &[]), codec),
            at::RECORD_COUNT,
            0i32.to_be_bytes(),
        );
        assert_eq!(read(&batch), Ok(vec![]));
        let limits = DecompressLimits::default();
        assert_eq!(offset_for_timestamp(&bytes(&batch), 0, &limits), Ok(None));
        assert_eq!(max_timestamp_offset(&bytes(&batch), &limits), Ok(None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands where a compressed body should: an error, no panic, and no great memory.
    #[test]
    fn damaged_bodies_never_panic(
        form in prop::sample::select(FORMS.to_vec()),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut: Option<prop::sample::Index>,
    ) {
        let good = compressed(&plain(50), form);
        let mut body = good[HEADER_BYTES..].to_vec();
        for (index, byte) in flips {
            let at = index.index(body.len());
            body[at] = byte;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()));
        }
        let batch = with_body(good, &body);
        let verdict = validate_produce(&batch, &rules());
        let read = read(&batch);
        if verdict.is_ok() {
            // A changed byte may be one that does not matter (a gzip header's time).
            prop_assert!(read.is_ok());
        }
    }

    #[test]
    fn arbitrary_bodies_never_panic(
        codec in 0i16..5,
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let batch = with_bits(with_body(plain(1), &body), codec);
        let valid = validate_produce(&batch, &rules()).is_ok();
        let read = read(&batch);
        prop_assert!(!valid || read.is_ok());
        let _ = max_timestamp_offset(&bytes(&batch), &DecompressLimits::default());
    }
}
