//! What compaction leaves of a batch.

use bytes::Bytes;
use tidemark_record_batch::*;
use tidemark_types::{LeaderEpoch, ProducerEpoch, ProducerId};

fn batch_of(codec: Codec, log_append_time: bool) -> Bytes {
    let mut builder = BatchBuilder::new(1_000);
    builder.producer(ProducerId(7), ProducerEpoch(3), 40);
    for n in 0..10i64 {
        let (key, value) = (format!("k{n}"), format!("value {n}"));
        let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"x")), (b"h", None)];
        builder.push_at(
            1_000 + n * 7,
            Some(key.as_bytes()),
            Some(value.as_bytes()),
            headers,
        );
    }
    let mut bytes = builder.build();
    patch_position(&mut bytes, 100, LeaderEpoch(5));
    let whole: Bytes = bytes.into();
    // In the codec: rewriting a batch with all its records compresses them.
    let mut header = BatchHeader::parse(&whole).unwrap();
    header.attributes = header.attributes.with_codec(codec);
    let mut bytes = rewrite_batch(&header, &all(&whole), None)
        .unwrap()
        .unwrap()
        .to_vec();
    if log_append_time {
        patch_log_append_time(&mut bytes, 9_999);
    }
    bytes.into()
}

fn all(batch: &Bytes) -> Vec<Record> {
    records(batch, &DecompressLimits::default())
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

#[test]
fn what_stays_of_a_batch_is_where_and_what_it_was() {
    for codec in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ] {
        for log_append_time in [false, true] {
            let batch = batch_of(codec, log_append_time);
            let before = BatchHeader::parse(&batch).unwrap();
            assert_eq!(before.attributes.codec(), Some(codec));
            let kept: Vec<Record> = all(&batch).into_iter().skip(1).step_by(3).collect();
            for horizon in [None, Some(1_700_000_000_000)] {
                let after = rewrite_batch(&before, &kept, horizon).unwrap().unwrap();
                assert!(crc_is_valid(&after), "{codec:?}");
                assert_eq!(all(&after), kept, "{codec:?}, horizon {horizon:?}");
                let header = BatchHeader::parse(&after).unwrap();
                assert_eq!(header.size_bytes(), after.len());
                assert_eq!(header.delete_horizon_ms(), horizon);
                let max = if log_append_time { 9_999 } else { 1_049 };
                let expected = BatchHeader {
                    batch_length: header.batch_length,
                    crc: header.crc,
                    record_count: 3,
                    max_timestamp: max,
                    base_timestamp: horizon.unwrap_or(before.base_timestamp),
                    attributes: match horizon {
                        Some(_) => before.attributes.with_delete_horizon(),
                        None => before.attributes,
                    },
                    ..before
                };
                assert_eq!(header, expected);
            }
        }
    }
}

#[test]
fn an_emptied_batch_keeps_its_place_and_its_sequences() {
    let batch = batch_of(Codec::Zstd, false);
    let before = BatchHeader::parse(&batch).unwrap();
    let empty = rewrite_batch(&before, &[], None).unwrap().unwrap();
    assert_eq!(empty, empty_batch(&before));
    assert_eq!(empty.len(), HEADER_BYTES);
    assert!(crc_is_valid(&empty));
    assert!(all(&empty).is_empty());
    let header = BatchHeader::parse(&empty).unwrap();
    assert_eq!((header.base_offset, header.last_offset()), (100, 109));
    assert_eq!((header.base_sequence, header.last_sequence()), (40, 49));
    assert_eq!(header.max_timestamp, before.max_timestamp);
    assert_eq!(header.leader_epoch, LeaderEpoch(5));
}

/// The first record may be gone, also where all have one time.
#[test]
fn a_record_is_found_by_its_time_among_those_that_stay() {
    let limits = DecompressLimits::default();
    for (log_append_time, wanted) in [(false, (1_007, 101)), (true, (9_999, 101))] {
        let batch = batch_of(Codec::Lz4, log_append_time);
        let header = BatchHeader::parse(&batch).unwrap();
        let kept = &all(&batch)[1..2];
        let after = rewrite_batch(&header, kept, None).unwrap().unwrap();
        assert_eq!(
            offset_for_timestamp(&after, 1_000, &limits).unwrap(),
            Some(wanted)
        );
        assert_eq!(max_timestamp_offset(&after, &limits).unwrap(), Some(wanted));
        assert_eq!(
            max_timestamp_offset(&empty_batch(&header), &limits).unwrap(),
            None
        );
    }
}

/// Such a timestamp is no time; the batch then keeps its tombstones for ever.
#[test]
fn a_time_too_far_from_the_horizon_refuses_it() {
    let mut builder = BatchBuilder::new(i64::MIN);
    builder.push(Some(b"k"), None);
    let batch: Bytes = builder.build().into();
    let header = BatchHeader::parse(&batch).unwrap();
    assert_eq!(rewrite_batch(&header, &all(&batch), Some(1)), Ok(None));
}
