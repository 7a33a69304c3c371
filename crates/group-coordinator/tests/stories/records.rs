//! Fixtures of every version that is read, and bytes that are none.

use bytes::Bytes;
use proptest::prelude::*;
use tidemark_group_coordinator::{
    DecodeError, GroupMetadata, GroupRecord, OffsetAndMetadata, OffsetKey, StoredMember,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|b| !b.is_ascii_whitespace())
        .map(|b| (b as char).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

const OFFSET_KEY: &str = "0001 0001 67 0001 74 00000005";
const GROUP_KEY: &str = "0002 0001 67";

fn offset_record(leader_epoch: i32) -> GroupRecord {
    GroupRecord::Offset {
        key: OffsetKey {
            group_id: "g".to_owned(),
            topic: "t".to_owned(),
            partition: 5,
        },
        value: Some(OffsetAndMetadata {
            offset: 42,
            leader_epoch,
            metadata: "m".to_owned(),
            commit_timestamp_ms: 1_000,
            expire_timestamp_ms: -1,
        }),
    }
}

fn group_record(instance: bool, timestamp_ms: i64, rebalance_timeout_ms: i32) -> GroupRecord {
    GroupRecord::Group {
        group_id: "g".to_owned(),
        value: Some(GroupMetadata {
            protocol_type: "consumer".to_owned(),
            generation: 3,
            protocol: Some("range".to_owned()),
            leader: Some("m1".to_owned()),
            current_state_timestamp_ms: timestamp_ms,
            members: vec![StoredMember {
                member_id: "m1".to_owned(),
                group_instance_id: instance.then(|| "i".to_owned()),
                client_id: "c".to_owned(),
                client_host: "/h".to_owned(),
                rebalance_timeout_ms,
                session_timeout_ms: 10_000,
                subscription: Bytes::from_static(b"\x01\x02"),
                assignment: Bytes::from_static(b"\x03"),
            }],
        }),
    }
}

#[test]
fn offsets_of_every_version() {
    let cases = [
        ("0000 000000000000002a 0001 6d 00000000000003e8", -1),
        (
            "0001 000000000000002a 0001 6d 00000000000003e8 ffffffffffffffff",
            -1,
        ),
        ("0002 000000000000002a 0001 6d 00000000000003e8", -1),
        ("0003 000000000000002a 00000007 0001 6d 00000000000003e8", 7),
        (
            "0004 000000000000002a 00000007 02 6d 00000000000003e8 00",
            7,
        ),
        // An unknown tagged field.
        (
            "0004 000000000000002a 00000007 02 6d 00000000000003e8 01 09 02 abcd",
            7,
        ),
    ];
    for (value, leader_epoch) in cases {
        let record = GroupRecord::decode(&hex(OFFSET_KEY), Some(&hex(value)));
        assert_eq!(record, Ok(offset_record(leader_epoch)), "{value}");
    }
    let written = offset_record(7);
    assert_eq!(written.encode_key(), hex(OFFSET_KEY));
    assert_eq!(written.encode_value(), Some(hex(cases[3].0)));
    // An expiry of its own.
    let value = hex("0001 000000000000002a 0001 6d 00000000000003e8 00000000000007d0");
    let mut expiring = offset_record(-1);
    if let GroupRecord::Offset {
        value: Some(value), ..
    } = &mut expiring
    {
        value.expire_timestamp_ms = 2_000;
    }
    assert_eq!(expiring.encode_value().as_ref(), Some(&value));
    let read = GroupRecord::decode(&hex(OFFSET_KEY), Some(&value));
    assert_eq!(read, Ok(expiring));
    // Key version 0 is the same.
    let key = hex("0000 0001 67 0001 74 00000005");
    assert_eq!(
        GroupRecord::decode(&key, Some(&hex(cases[3].0))),
        Ok(offset_record(7))
    );
}

#[test]
fn groups_of_every_version() {
    let head = "0008 636f6e73756d6572 00000003 0005 72616e6765 0002 6d31";
    let ends = "00000002 0102 00000001 03";
    let cases = [
        (
            format!("0000 {head} 00000001 0002 6d31 0001 63 0002 2f68 00002710 {ends}"),
            group_record(false, -1, 10_000),
        ),
        (
            format!("0001 {head} 00000001 0002 6d31 0001 63 0002 2f68 0000ea60 00002710 {ends}"),
            group_record(false, -1, 60_000),
        ),
        (
            format!(
                "0002 {head} 00000000000003e8 00000001 0002 6d31 0001 63 0002 2f68 0000ea60 00002710 {ends}"
            ),
            group_record(false, 1_000, 60_000),
        ),
        (
            format!(
                "0003 {head} 00000000000003e8 00000001 0002 6d31 0001 69 0001 63 0002 2f68 0000ea60 00002710 {ends}"
            ),
            group_record(true, 1_000, 60_000),
        ),
        (
            "0004 09 636f6e73756d6572 00000003 06 72616e6765 03 6d31 00000000000003e8 02 \
             03 6d31 02 69 02 63 03 2f68 0000ea60 00002710 03 0102 02 03 00 00"
                .to_owned(),
            group_record(true, 1_000, 60_000),
        ),
    ];
    for (value, expected) in &cases {
        let record = GroupRecord::decode(&hex(GROUP_KEY), Some(&hex(value)));
        assert_eq!(record.as_ref(), Ok(expected), "{value}");
    }
    let written = group_record(true, 1_000, 60_000);
    assert_eq!(written.encode_key(), hex(GROUP_KEY));
    assert_eq!(written.encode_value(), Some(hex(&cases[3].0)));
}

#[test]
fn tombstones() {
    let group = GroupRecord::Group {
        group_id: "g".to_owned(),
        value: None,
    };
    assert_eq!(
        GroupRecord::decode(&hex(GROUP_KEY), None),
        Ok(group.clone())
    );
    assert_eq!(group.encode_value(), None);
    let decoded = GroupRecord::decode(&hex(OFFSET_KEY), None).unwrap();
    assert!(matches!(decoded, GroupRecord::Offset { value: None, .. }));
}

#[test]
fn what_is_no_record_is_named() {
    let offset_3 = "0003 000000000000002a 00000007";
    let cases = [
        ("", None, DecodeError::Short),
        ("0003 0001 67", None, DecodeError::KeyVersion(3)),
        ("ffff", None, DecodeError::KeyVersion(-1)),
        ("0002 0005 67", None, DecodeError::Short),
        ("0002 ffff", None, DecodeError::Null),
        ("0002 fffe", None, DecodeError::Length),
        ("0002 0001 ff", None, DecodeError::NotUtf8),
        ("0002 0001 67 00", None, DecodeError::Trailing(1)),
        (OFFSET_KEY, Some("0005"), DecodeError::ValueVersion(5)),
        (GROUP_KEY, Some("0005"), DecodeError::ValueVersion(5)),
        (OFFSET_KEY, Some(offset_3), DecodeError::Short),
        // More members than there are bytes.
        (
            GROUP_KEY,
            Some("0003 0000 00000003 ffff ffff 0000000000000000 7fffffff"),
            DecodeError::Length,
        ),
        (
            GROUP_KEY,
            Some("0003 0000 00000003 ffff ffff 0000000000000000 ffffffff"),
            DecodeError::Null,
        ),
        // A varint that has no end.
        (
            OFFSET_KEY,
            Some("0004 000000000000002a 00000007 ffffffffffff"),
            DecodeError::Length,
        ),
    ];
    for (key, value, expected) in cases {
        let value = value.map(hex);
        let decoded = GroupRecord::decode(&hex(key), value.as_deref());
        assert_eq!(decoded, Err(expected), "{key} {value:?}");
    }
}

proptest! {
    #[test]
    fn decoding_never_panics(
        key in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            Just(hex(OFFSET_KEY)),
            Just(hex(GROUP_KEY)),
        ],
        value in proptest::collection::vec(any::<u8>(), 0..200),
        version in 0u8..6,
    ) {
        let _ = GroupRecord::decode(&key, None);
        let _ = GroupRecord::decode(&key, Some(&value));
        let mut versioned = vec![0, version];
        versioned.extend_from_slice(&value);
        let _ = GroupRecord::decode(&key, Some(&versioned));
    }

    #[test]
    fn a_damaged_record_is_refused_or_another_record(at in any::<prop::sample::Index>(), flip in 1u8..) {
        for record in [offset_record(7), group_record(true, 1_000, 60_000)] {
            let mut value = record.encode_value().unwrap();
            let at = at.index(value.len());
            value[at] ^= flip;
            let decoded = GroupRecord::decode(&record.encode_key(), Some(&value));
            prop_assert_ne!(decoded, Ok(record));
        }
    }
}
