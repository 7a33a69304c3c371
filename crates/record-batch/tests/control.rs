//! Markers: Kafka's bytes, and nothing else taken for one.

mod support;

use bytes::Bytes;
use support::*;
use tidemark_record_batch::*;
use tidemark_types::{CoordinatorEpoch, LeaderEpoch, ProducerEpoch, ProducerId};

fn marker(control_type: ControlType) -> Bytes {
    control_batch(
        0x0102_0304,
        LeaderEpoch(5),
        ProducerId(0x1112_1314),
        ProducerEpoch(6),
        control_type,
        CoordinatorEpoch(7),
        0x0a0b_0c0d,
    )
}

/// The layout of Kafka's `MemoryRecords.withEndTransactionMarker`, written out.
#[test]
fn a_marker_has_kafkas_bytes() {
    let expected: &[u8] = &[
        0, 0, 0, 0, 1, 2, 3, 4, // base offset
        0, 0, 0, 66, // batch length
        0, 0, 0, 5, // partition leader epoch
        2, // magic
        0, 0, 0, 0, // CRC, below
        0, 0x30, // transactional, control
        0, 0, 0, 0, // last offset delta
        0, 0, 0, 0, 0x0a, 0x0b, 0x0c, 0x0d, // base timestamp
        0, 0, 0, 0, 0x0a, 0x0b, 0x0c, 0x0d, // max timestamp
        0, 0, 0, 0, 0x11, 0x12, 0x13, 0x14, // producer id
        0, 6, // producer epoch
        0xff, 0xff, 0xff, 0xff, // base sequence
        0, 0, 0, 1,  // records
        32, // record length 16
        0, 0, 0, // attributes, timestamp delta, offset delta
        8, // key length 4
        0, 0, 0, 1,  // version, COMMIT
        12, // value length 6
        0, 0, 0, 0, 0, 7, // version, coordinator epoch
        0, // headers
    ];
    let mut expected = expected.to_vec();
    seal(&mut expected);
    assert_eq!(marker(ControlType::Commit), expected);
    expected[HEADER_BYTES + 8] = 0;
    seal(&mut expected);
    assert_eq!(marker(ControlType::Abort), expected);
    assert_eq!(expected.len(), 78);
}

#[test]
fn a_marker_is_read_back() {
    for control_type in [ControlType::Abort, ControlType::Commit] {
        let batch = marker(control_type);
        assert!(crc_is_valid(&batch));
        assert_eq!(
            parse_control(&batch),
            Ok(Some((control_type, CoordinatorEpoch(7))))
        );
    }
    assert_eq!(parse_control(&plain(1)), Ok(None));
}

#[test]
fn later_versions_may_append_fields() {
    let body = [
        40, 0, 0, 0, 12, 0, 9, 0, 0, 1, 2, 16, 0, 9, 0, 0, 0, 7, 3, 4, 0,
    ];
    let batch = with_body(marker(ControlType::Commit).to_vec(), &body);
    assert_eq!(
        parse_control(&batch),
        Ok(Some((ControlType::Abort, CoordinatorEpoch(7))))
    );
}

#[test]
fn what_is_not_a_transactions_marker_is_none_or_an_error() {
    let base = marker(ControlType::Commit).to_vec();
    let body = |at: usize, byte: u8| {
        let mut batch = base.clone();
        batch[HEADER_BYTES + at] = byte;
        seal(&mut batch);
        batch
    };
    // Type 2: a leader change of Kafka's quorum.
    assert_eq!(parse_control(&body(8, 2)), Ok(None));
    for (what, batch) in [
        ("negative key version", body(5, 0x80)),
        ("negative value version", body(10, 0x80)),
        ("null key", with_body(base.clone(), &[10, 0, 0, 0, 1, 1, 0])),
        (
            "short key",
            with_body(base.clone(), &[14, 0, 0, 0, 4, 0, 0, 1, 0]),
        ),
        (
            "short value",
            with_body(base.clone(), &[20, 0, 0, 0, 8, 0, 0, 0, 1, 2, 0, 0]),
        ),
        ("no record", with_body(base.clone(), &[])),
        ("cut short", base[..77].to_vec()),
    ] {
        assert!(parse_control(&batch).is_err(), "{what}");
    }
}
