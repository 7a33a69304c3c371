//! The walker against the codec, for every known key and every version of it.

mod support;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::RequestKind;
use proptest::prelude::*;
use support::{Choices, Fill, body, every_version};
use tidemark_wire::bounds::{MAX_ELEMENTS, check_request};
use tidemark_wire::{ApiKey, BodyFault, WireError};

/// What the codec reads, and how many bytes it leaves.
fn codec(key: ApiKey, version: i16, bytes: &[u8]) -> Option<(RequestKind, usize)> {
    let codec_key = kafka_protocol::messages::ApiKey::try_from(key.code()).unwrap();
    let mut bytes = Bytes::copy_from_slice(bytes);
    let kind = RequestKind::decode(codec_key, &mut bytes, version).ok()?;
    Some((kind, bytes.remaining()))
}

#[test]
fn the_walker_accepts_exactly_what_the_codec_writes() {
    for (key, version) in every_version() {
        for seed in 0..40 {
            let fill = if seed == 0 { Fill::Full } else { Fill::Random };
            let written = body(key, version, fill, &mut Choices(seed)).bytes;
            let at = format!("{key} v{version} seed {seed}");
            assert_eq!(
                check_request(key, version, &written),
                Ok(written.len()),
                "{at}"
            );

            let (request, left) = codec(key, version, &written)
                .unwrap_or_else(|| panic!("{at}: the codec refuses what the schema writes"));
            assert_eq!(left, 0, "{at}: the codec stops before the end");

            let mut encoded = BytesMut::new();
            request.encode(&mut encoded, version).expect(&at);
            assert_eq!(
                check_request(key, version, &encoded),
                Ok(encoded.len()),
                "{at}"
            );
            assert_eq!(codec(key, version, &encoded), Some((request, 0)), "{at}");
        }
    }
}

#[test]
fn null_is_accepted_where_the_codec_accepts_it() {
    for (key, version) in every_version() {
        let full = body(key, version, Fill::Full, &mut Choices(1)).bytes;
        for number in 0.. {
            let fill = Fill::FullButNull(number);
            let written = body(key, version, fill, &mut Choices(1)).bytes;
            if written == full {
                break;
            }
            let walker = check_request(key, version, &written);
            if (key, version, number) == (ApiKey::Metadata, 0, 0) {
                // The codec takes null for the topics of every version; Kafka's schema does from v1.
                assert!(walker.is_err());
                continue;
            }
            assert_eq!(
                walker.is_ok(),
                codec(key, version, &written).is_some(),
                "{key} v{version} field {number}: {walker:?}"
            );
        }
    }
}

#[test]
fn every_hostile_count_and_length_is_refused() {
    for (key, version) in every_version() {
        for seed in 0..3 {
            let fill = if seed == 0 { Fill::Full } else { Fill::Random };
            let written = body(key, version, fill, &mut Choices(seed));
            for &at in &written.lengths {
                for hostile in [written.with_largest(at), written.with_one_too_many(at)] {
                    let result = check_request(key, version, &hostile);
                    assert!(result.is_err(), "{key} v{version} {at:?}: {result:?}");
                }
            }
        }
    }
}

#[test]
fn every_truncation_is_refused() {
    for (key, version) in every_version() {
        let written = body(key, version, Fill::Full, &mut Choices(7)).bytes;
        for end in 0..written.len() {
            let result = check_request(key, version, &written[..end]);
            assert!(result.is_err(), "{key} v{version} at {end}: {result:?}");
        }
    }
}

#[test]
fn trailing_bytes_are_accepted_and_not_counted() {
    for (key, version) in every_version() {
        let mut written = body(key, version, Fill::Full, &mut Choices(1)).bytes;
        let length = written.len();
        written.extend_from_slice(&[0xff; 9]);
        assert_eq!(
            check_request(key, version, &written),
            Ok(length),
            "{key} v{version}"
        );
    }
}

#[test]
fn a_version_without_a_schema_is_refused() {
    for (key, version) in [
        (ApiKey::Produce, 2),
        (ApiKey::Fetch, 19),
        (ApiKey::EndTxn, -1),
    ] {
        let want = WireError::UnsupportedVersion {
            api_key: key,
            api_version: version,
        };
        assert_eq!(check_request(key, version, &[0; 64]), Err(want));
    }
}

#[test]
fn the_four_bytes_that_abort_the_codec_are_refused() {
    let fault = |key, version, body: &[u8]| match check_request(key, version, body) {
        Err(WireError::Body { field, fault, .. }) => (field, fault),
        other => panic!("{other:?}"),
    };
    // Metadata v0: a count of 2^31 - 1 topics.
    let four = [0x7f, 0xff, 0xff, 0xff];
    let want = ("topics", BodyFault::CountBeyondFrame);
    assert_eq!(fault(ApiKey::Metadata, 0, &four), want);
    // Produce v3: null id, acks, timeout, and a count.
    let twelve = [0xff, 0xff, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff];
    let want = ("topic_data", BodyFault::CountBeyondFrame);
    assert_eq!(fault(ApiKey::Produce, 3, &twelve), want);
}

#[test]
fn the_fault_names_the_field() {
    let cases: &[(ApiKey, i16, &[u8], &str, BodyFault)] = &[
        (
            ApiKey::SaslHandshake,
            0,
            &[0xff, 0xff],
            "mechanism",
            BodyFault::UnexpectedNull,
        ),
        (
            ApiKey::SaslHandshake,
            0,
            &[0xff, 0xfe],
            "mechanism",
            BodyFault::NegativeLength,
        ),
        (
            ApiKey::SaslHandshake,
            0,
            &[0, 1, 0xff],
            "mechanism",
            BodyFault::NotUtf8,
        ),
        (
            ApiKey::SaslHandshake,
            0,
            &[0],
            "mechanism",
            BodyFault::Truncated,
        ),
        (
            ApiKey::ApiVersions,
            3,
            &[0xff, 0xff, 0xff, 0xff, 0x7f],
            "client_software_name",
            BodyFault::OverlongVarint,
        ),
        // Two empty strings, then two tagged fields in no bytes.
        (
            ApiKey::ApiVersions,
            3,
            &[1, 1, 2],
            "tagged fields",
            BodyFault::CountBeyondFrame,
        ),
        (
            ApiKey::ApiVersions,
            3,
            &[1, 1, 1, 9, 2, 0],
            "tagged fields",
            BodyFault::LengthBeyondFrame,
        ),
    ];
    for &(api_key, api_version, body, field, fault) in cases {
        let want = WireError::Body {
            api_key,
            api_version,
            field,
            fault,
        };
        assert_eq!(
            check_request(api_key, api_version, body),
            Err(want),
            "{body:02x?}"
        );
    }
}

#[test]
fn a_known_tagged_field_has_the_size_of_its_content() {
    // Fetch v12 without topics; one tagged field, tag 0 (cluster_id), size and content given.
    let fetch = |version, tagged: &[u8]| {
        let mut body = vec![0; if version >= 15 { 4 } else { 8 }];
        body.extend_from_slice(&[0; 4 + 4 + 1 + 4 + 4]);
        body.extend_from_slice(&[1, 1, 1, 1]);
        body.extend_from_slice(tagged);
        check_request(ApiKey::Fetch, version, &body).map(|_| ())
    };
    let invalid = |version, field| {
        Err(WireError::Body {
            api_key: ApiKey::Fetch,
            api_version: version,
            field,
            fault: BodyFault::InvalidTaggedField,
        })
    };
    assert_eq!(fetch(12, &[0, 2, 2, b'c']), Ok(()));
    assert_eq!(fetch(12, &[0, 1, 2, b'c']), invalid(12, "cluster_id"));
    assert_eq!(fetch(12, &[0, 3, 2, b'c', 0]), invalid(12, "cluster_id"));
    // The replica state is a tagged field from v15 on only.
    let mut state = vec![1, 13];
    state.extend_from_slice(&[0; 13]);
    assert_eq!(fetch(15, &state), Ok(()));
    assert_eq!(fetch(14, &state), invalid(14, "replica_state"));
}

#[test]
fn the_elements_of_a_request_are_bounded() {
    // FindCoordinator v4: keys of one byte each, the densest array there is.
    let keys = |n: usize| {
        let mut body = vec![0];
        let claim = n + 1;
        body.extend_from_slice(&[
            (claim & 0x7f) as u8 | 0x80,
            (claim >> 7 & 0x7f) as u8 | 0x80,
            (claim >> 14) as u8,
        ]);
        body.resize(body.len() + n, 1);
        body.push(0);
        check_request(ApiKey::FindCoordinator, 4, &body)
    };
    assert_eq!(keys(MAX_ELEMENTS), Ok(MAX_ELEMENTS + 5));
    let want = WireError::Body {
        api_key: ApiKey::FindCoordinator,
        api_version: 4,
        field: "coordinator_keys",
        fault: BodyFault::TooManyElements,
    };
    assert_eq!(keys(MAX_ELEMENTS + 1), Err(want));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Whatever is done to a body: what passes the walker, the codec reads to the same end.
    #[test]
    fn what_passes_the_walker_the_codec_decodes(
        seed: u64,
        which: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let versions: Vec<_> = every_version().collect();
        let (key, version) = versions[which.index(versions.len())];
        let mut bytes = body(key, version, Fill::Random, &mut Choices(seed)).bytes;
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        if let Ok(length) = check_request(key, version, &bytes) {
            let decoded = codec(key, version, &bytes);
            prop_assert!(decoded.is_some(), "{key} v{version}: {bytes:02x?}");
            prop_assert_eq!(decoded.unwrap().1, bytes.len() - length);
        }
    }
}
