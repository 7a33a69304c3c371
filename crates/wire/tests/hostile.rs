//! Bytes that no client of good will sends: nothing panics, whatever arrives.
//!
//! The fuzz targets drive the same functions for longer.

mod support;

#[path = "../../../fuzz/src/drive.rs"]
mod drive;

use bytes::Bytes;
use drive::{Reached, connection};
use proptest::prelude::*;
use support::{Choices, Fill, body, every_version, header};
use tidemark_record_batch::BatchBuilder;
use tidemark_types::{ProducerEpoch, ProducerId};
use tidemark_wire::ApiKey;

/// A frame with its size.
fn framed(frame: &[u8]) -> Vec<u8> {
    let mut out = (frame.len() as i32).to_be_bytes().to_vec();
    out.extend_from_slice(frame);
    out
}

fn valid_frame(key: ApiKey, version: i16, fill: Fill, choices: &mut Choices) -> Vec<u8> {
    let mut frame = header(key, version, 1, Some("hostile"));
    frame.extend(body(key, version, fill, choices).bytes);
    framed(&frame)
}

/// A Produce request with one batch of two records.
fn produce_frame(version: i16) -> Vec<u8> {
    let batch = BatchBuilder::new(0)
        .producer(ProducerId(7), ProducerEpoch(0), 0)
        .push(Some(b"key"), Some(b"value"))
        .push(None, Some(b"value"))
        .build();
    let mut frame = header(ApiKey::Produce, version, 1, None);
    frame.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0x3a, 0x98]);
    frame.extend_from_slice(&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0]);
    frame.extend_from_slice(&(batch.len() as i32).to_be_bytes());
    frame.extend_from_slice(&batch);
    framed(&frame)
}

#[test]
fn the_cases_reach_the_last_step() {
    for (key, version) in every_version() {
        let frame = valid_frame(key, version, Fill::Full, &mut Choices(1));
        let reached = connection(&frame);
        assert_eq!((reached.frames, reached.bodies), (1, 1), "{key} v{version}");
        assert_eq!(
            reached.requests == 1,
            key.is_served(version),
            "{key} v{version}"
        );
    }
    let want = Reached {
        frames: 1,
        bodies: 1,
        requests: 1,
        batches: 1,
        valid_batches: 1,
        records: 2,
    };
    assert_eq!(connection(&produce_frame(3)), want);
}

#[test]
fn every_byte_of_a_produce_request_may_be_any_byte() {
    let frame = produce_frame(3);
    for at in 4..frame.len() {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff, frame[at] ^ 1] {
            let mut changed = frame.clone();
            changed[at] = byte;
            let reached = connection(&changed);
            assert_eq!(reached.frames, 1);
        }
    }
}

#[test]
fn every_byte_of_a_full_frame_may_be_any_byte() {
    for (key, version) in every_version() {
        let frame = valid_frame(key, version, Fill::Full, &mut Choices(2));
        for at in 4..frame.len() {
            for byte in [0x00, 0x7f, 0x80, 0xff] {
                let mut changed = frame.clone();
                changed[at] = byte;
                connection(&changed);
            }
        }
    }
}

/// What to do to a frame.
#[derive(Clone, Debug)]
enum Change {
    Byte(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Cut(prop::sample::Index),
}

fn any_change() -> impl Strategy<Value = Change> {
    let at = || any::<prop::sample::Index>();
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        1 => (at(), prop::sample::select(&[0x00u8, 0x7f, 0x80, 0xff][..]))
            .prop_map(|(at, byte)| Change::Insert(at, vec![byte; 4])),
        1 => (at(), prop::collection::vec(any::<u8>(), 0..8))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => at().prop_map(Change::Cut),
    ]
}

impl Change {
    fn apply(self, bytes: &mut Vec<u8>) {
        match self {
            Change::Byte(at, byte) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            Change::Byte(..) => {}
            Change::Insert(at, inserted) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, inserted);
            }
            Change::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn random_bytes_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        prefix in prop::option::of(any::<prop::sample::Index>()),
    ) {
        connection(&bytes);
        // The same as a frame, and as the body of some request.
        connection(&framed(&bytes));
        if let Some(which) = prefix {
            let versions: Vec<_> = every_version().collect();
            let (key, version) = versions[which.index(versions.len())];
            let mut frame = header(key, version, 1, None);
            frame.extend_from_slice(&bytes);
            connection(&framed(&frame));
        }
        drive::batch(&Bytes::from(bytes), 10, &mut Reached::default());
    }

    #[test]
    fn changed_frames_do_no_harm(
        seed: u64,
        which: prop::sample::Index,
        produce: bool,
        changes in prop::collection::vec(any_change(), 1..6),
    ) {
        let versions: Vec<_> = every_version().collect();
        let (key, version) = versions[which.index(versions.len())];
        let frame = match produce {
            true => produce_frame(3 + (seed % 6) as i16),
            false => valid_frame(key, version, Fill::Random, &mut Choices(seed)),
        };
        // Change what is in the frame and keep the size right, or else nothing is looked at.
        let mut frame = frame[4..].to_vec();
        for change in changes {
            change.apply(&mut frame);
        }
        connection(&framed(&frame));
    }
}
