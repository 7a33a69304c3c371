//! The records of `__transaction_state`: fixed bytes per version, damage, and round trips.

mod common;

use std::sync::Arc;

use common::*;
use proptest::prelude::*;
use tidemark_txn_coordinator::*;
use tidemark_types::{ProducerEpoch, ProducerId};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| d as u8)
        .collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

fn ongoing() -> TxnMeta {
    TxnMeta {
        previous_producer_id: ProducerId(6),
        epoch: ProducerEpoch(1),
        state: TxnState::Ongoing,
        partitions: parts(&[("a", 0), ("a", 2), ("bc", 1)]),
        start_wall_ms: 999,
        txn_number: 3,
        dialect: Dialect::V2,
        ended_by: EndedBy::Timeout,
        ..empty_at(0)
    }
}

#[test]
fn a_key_is_kafkas() {
    let bytes = hex("0000 0003 747831");
    assert_eq!(encode_key("tx1"), bytes);
    assert_eq!(&*decode_key(&bytes).unwrap(), "tx1");
    assert_eq!(
        decode_key(&hex("0001 0003 747831")),
        Err(RecordError::UnknownVersion {
            what: "TransactionLogKey",
            version: 1
        })
    );
    assert_eq!(
        decode_key(&hex("0000 0003 747831 00")),
        Err(RecordError::LeftOver(1))
    );
    assert!(decode_key(&hex("0000 ffff")).is_err());
    assert!(decode_key(&hex("0000 0001 ff")).is_err());
}

#[test]
fn the_value_of_an_ongoing_transaction_is_these_bytes() {
    // Fixed for ever: what one release writes, every later one must read.
    let bytes = hex(concat!(
        "0001",                 // version
        "0000000000000007",     // producer id
        "0001",                 // producer epoch
        "0000ea60",             // timeout
        "01",                   // status: Ongoing
        "03",                   // two topics
        "02 61",                // "a"
        "03 00000000 00000002", // partitions 0 and 2
        "00",
        "03 6263",     // "bc"
        "02 00000001", // partition 1
        "00",
        "00000000000003e8",             // last update
        "00000000000003e7",             // start
        "07",                           // tagged fields
        "00 08 0000000000000006",       // previous producer id
        "02 02 0002",                   // client transaction version
        "914e 08 0000000000000003",     // 10001 txn_number
        "924e 0a 557365723a616c696365", // 10002 principal
        "934e 02 6331",                 // 10003 client id
        "944e 08 31302e302e302e31",     // 10004 host
        "954e 01 03",                   // 10005 ended by: Timeout
    ));
    assert_eq!(encode_value(&ongoing()), bytes);
    assert_eq!(decode_value("tx1", &bytes).unwrap(), ongoing());
}

#[test]
fn an_empty_state_has_null_partitions_and_a_completed_one_an_empty_array() {
    let mut meta = empty_at(3);
    meta.who = Who::default();
    meta.last_epoch = ProducerEpoch(2);
    let bytes = hex(concat!(
        "0001 0000000000000007 0003 0000ea60 00 00",
        "00000000000003e8 ffffffffffffffff",
        "01 904e 02 0002", // 10000 last_epoch
    ));
    assert_eq!(encode_value(&meta), bytes);
    assert_eq!(decode_value("tx1", &bytes).unwrap(), meta);

    meta.state = TxnState::CompleteCommit;
    meta.last_epoch = ProducerEpoch::NONE;
    meta.start_wall_ms = 0;
    let bytes = hex(concat!(
        "0001 0000000000000007 0003 0000ea60 04 01",
        "00000000000003e8 0000000000000000 00",
    ));
    assert_eq!(encode_value(&meta), bytes);
    assert_eq!(decode_value("tx1", &bytes).unwrap(), meta);
}

#[test]
fn partitions_of_an_empty_state_are_not_looked_at() {
    let meta = ongoing();
    let mut value = encode_value(&meta);
    // Version, producer id, epoch, timeout; then the status.
    let status = 2 + 8 + 2 + 4;
    assert_eq!(value[status], 1, "Ongoing");
    value[status] = 0;
    let read = decode_value(&meta.transactional_id, &value).unwrap();
    assert_eq!(read.state, TxnState::Empty);
    assert!(!meta.partitions.is_empty() && read.partitions.is_empty());
}

#[test]
fn version_0_is_read() {
    let bytes = hex(concat!(
        "0000 0000000000000007 0001 0000ea60 01",
        "00000001 0001 61 00000002 00000000 00000002",
        "00000000000003e8 00000000000003e7",
    ));
    let meta = decode_value("tx1", &bytes).unwrap();
    assert_eq!(meta.partitions, parts(&[("a", 0), ("a", 2)]));
    assert_eq!((meta.dialect, meta.txn_number), (Dialect::V1, 0));
    let null = hex(concat!(
        "0000 0000000000000007 0001 0000ea60 00 ffffffff",
        "00000000000003e8 ffffffffffffffff",
    ));
    assert!(decode_value("tx1", &null).unwrap().partitions.is_empty());
}

#[test]
fn a_later_versions_tagged_fields_are_skipped() {
    let bytes = hex(concat!(
        "0001 0000000000000007 0003 0000ea60 01",
        "02 02 61 02 00000000 01 05 03 aabbcc", // a tagged field of the topic
        "00000000000003e8 00000000000003e7",
        "02 03 04 deadbeef ff7f 00", // 3, and 16383 without bytes
    ));
    let meta = decode_value("tx1", &bytes).unwrap();
    assert_eq!(meta.partitions, parts(&[("a", 0)]));
}

#[test]
fn a_value_cut_anywhere_or_grown_is_an_error() {
    let bytes = encode_value(&ongoing());
    for len in 0..bytes.len() {
        assert!(decode_value("tx1", &bytes[..len]).is_err(), "cut at {len}");
    }
    let grown = [&bytes[..], &[0]].concat();
    assert_eq!(decode_value("tx1", &grown), Err(RecordError::LeftOver(1)));
}

#[test]
fn a_claimed_count_reserves_nothing() {
    let head = "0001 0000000000000007 0003 0000ea60 01";
    for claim in [
        "ffffffff0f",            // topics
        "02 ffffffff0f",         // length of a topic
        "02 0261 ffffffff0f",    // partitions
        "02 0261 01 ffffffff0f", // tagged fields of a topic
        "ffffffffff01",          // a varint of six bytes
        "ffffffff1f",            // a varint of more than 32 bits
    ] {
        assert!(decode_value("tx1", &hex(&format!("{head} {claim}"))).is_err());
    }
    let tail = hex(&format!(
        "{head} 01 00000000000003e8 00000000000003e7 ffffffff0f"
    ));
    assert!(decode_value("tx1", &tail).is_err());
}

#[test]
fn values_that_the_format_does_not_have_are_errors() {
    let value = |version: &str, status: &str, tagged: &str| {
        let text = format!(
            "{version} 0000000000000007 0003 0000ea60 {status} 00 \
             00000000000003e8 ffffffffffffffff {tagged}"
        );
        decode_value("tx1", &hex(&text))
    };
    assert!(value("0001", "00", "00").is_ok());
    for version in ["0002", "ffff", "7fff"] {
        assert!(matches!(
            value(version, "00", "00"),
            Err(RecordError::UnknownVersion { .. })
        ));
    }
    assert!(value("0001", "08", "00").is_err());
    assert!(value("0001", "ff", "00").is_err());
    assert!(value("0001", "00", "01 02 02 0009").is_err(), "dialect 9");
    assert!(value("0001", "00", "01 02 01 00").is_err(), "a short field");
    assert!(
        value("0001", "00", "01 02 03 000000").is_err(),
        "a long field"
    );
    assert!(value("0001", "00", "01 954e 01 63").is_err(), "ended by 99");
    assert!(value("0001", "00", "01 924e 01 ff").is_err(), "not UTF-8");
}

fn any_meta() -> impl Strategy<Value = TxnMeta> {
    let text = || "[a-zé]{0,6}".prop_map(Arc::<str>::from);
    let ids = (any::<i64>(), any::<i64>(), any::<i64>());
    let epochs = (any::<i16>(), any::<i16>());
    let times = (any::<i32>(), any::<i64>(), any::<i64>(), any::<u64>());
    let kinds = (0..8i8, any::<bool>(), 0..6usize);
    let partitions = prop::collection::btree_set((text(), any::<i32>()), 0..9);
    let who = (text(), text(), text());
    (ids, epochs, times, kinds, partitions, who).prop_map(|(ids, epochs, times, kinds, p, who)| {
        let state = TxnState::from_id(kinds.0).unwrap();
        TxnMeta {
            transactional_id: "tx1".into(),
            producer_id: ProducerId(ids.0),
            previous_producer_id: ProducerId(ids.1),
            next_producer_id: ProducerId(ids.2),
            epoch: ProducerEpoch(epochs.0),
            last_epoch: ProducerEpoch(epochs.1),
            timeout_ms: times.0,
            state,
            // An Empty state's partitions are null on disk.
            partitions: if state == TxnState::Empty {
                Partitions::new()
            } else {
                p
            },
            start_wall_ms: times.1,
            last_update_wall_ms: times.2,
            txn_number: times.3,
            dialect: if kinds.1 { Dialect::V1 } else { Dialect::V2 },
            ended_by: [
                EndedBy::Unknown,
                EndedBy::Client,
                EndedBy::NewSession,
                EndedBy::Timeout,
                EndedBy::Operator,
                EndedBy::Exclusive,
            ][kinds.2],
            who: Who {
                principal: who.0,
                client_id: who.1,
                host: who.2,
            },
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_state_comes_back(meta in any_meta()) {
        prop_assert_eq!(decode_value("tx1", &encode_value(&meta)).unwrap(), meta);
    }

    #[test]
    fn every_id_comes_back(id in "\\PC{0,40}") {
        prop_assert_eq!(&*decode_key(&encode_key(&id)).unwrap(), &*id);
    }

    #[test]
    fn any_bytes_are_a_state_or_an_error(
        key in prop::collection::vec(any::<u8>(), 0..40),
        value in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = decode_key(&key);
        let _ = decode_value("tx1", &value);
        let mut coordinator = Coordinator::default();
        let _ = coordinator.apply_record(&encode_key("tx1"), Some(&value));
    }

    #[test]
    fn a_damaged_state_is_a_state_or_an_error(
        meta in any_meta(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode_value(&meta);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut coordinator = Coordinator::default();
        let _ = coordinator.apply_record(&encode_key("tx1"), Some(&bytes));
    }
}
