//! A connection as the broker sees it: bytes in, frames, requests, answers.

mod support;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{
    ApiVersionsResponse, HeartbeatResponse, RequestKind, ResponseHeader, ResponseKind,
};
use kafka_protocol::protocol::Decodable;
use support::{Choices, Fill, body, header};
use tidemark_types::ErrorCode;
use tidemark_wire::api_versions::{Feature, api_versions_response, unsupported_version};
use tidemark_wire::{
    ApiKey, ApiTable, Decoded, FrameSplitter, Opened, Request, Stage, WireError, decode_request,
    encode_response, encode_response_kind, open_frame,
};

fn request_frame(key: ApiKey, version: i16, correlation_id: i32) -> Bytes {
    let mut frame = header(key, version, correlation_id, Some("tests"));
    frame.extend(body(key, version, Fill::Full, &mut Choices(3)).bytes);
    frame.into()
}

fn request(frame: Bytes) -> Request {
    match decode_request(frame, Stage::Open) {
        Ok(Decoded::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_served_version_is_decoded_with_its_header() {
    for (api, served) in ApiTable::served_apis() {
        for version in served.versions.iter() {
            let request = request(request_frame(api.key, version, 77));
            assert_eq!(request.header.api_key, api.key);
            assert_eq!(request.header.api_version, version);
            assert_eq!(request.header.correlation_id, 77);
            assert_eq!(request.header.client_id.as_deref(), Some("tests"));
        }
    }
}

#[test]
fn frames_come_out_however_the_bytes_arrive() {
    let frames = [
        request_frame(ApiKey::ApiVersions, 3, 1),
        request_frame(ApiKey::Metadata, 9, 2),
        request_frame(ApiKey::Heartbeat, 0, 3),
    ];
    let mut stream = Vec::new();
    for frame in &frames {
        stream.extend_from_slice(&(frame.len() as i32).to_be_bytes());
        stream.extend_from_slice(frame);
    }
    for step in [1, 2, 3, 7, 64, stream.len()] {
        let mut splitter = FrameSplitter::new(1024);
        let mut out = Vec::new();
        for piece in stream.chunks(step) {
            splitter.read_buffer().extend_from_slice(piece);
            while let Some(frame) = splitter.next_frame().unwrap() {
                out.push(frame);
            }
        }
        assert_eq!(out, frames, "in steps of {step}");
        assert_eq!(splitter.pending_bytes(), 0);
    }
}

#[test]
fn what_is_not_served_closes_the_connection() {
    let refused = |frame: Vec<u8>, stage| decode_request(frame.into(), stage).unwrap_err();
    let at = |key: i16, version: i16| {
        let mut frame = Vec::new();
        frame.extend_from_slice(&key.to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&[0; 64]);
        frame
    };
    for key in [-1, 4, 88, i16::MAX] {
        let want = WireError::UnknownApiKey { api_key: key };
        assert_eq!(refused(at(key, 0), Stage::Open), want);
    }
    // A version too old, and one too new.
    for (key, version) in [
        (ApiKey::Produce, 2),
        (ApiKey::Produce, 14),
        (ApiKey::AddPartitionsToTxn, 4),
        (ApiKey::Metadata, -1),
        (ApiKey::SaslHandshake, 2),
    ] {
        let want = WireError::UnsupportedVersion {
            api_key: key,
            api_version: version,
        };
        assert_eq!(refused(at(key.code(), version), Stage::Open), want);
    }
    let want = WireError::BeforeAuthentication {
        api_key: ApiKey::Metadata,
        api_version: 1,
    };
    assert_eq!(refused(at(3, 1), Stage::PreAuth), want);
    let want = WireError::Header {
        what: "frame is shorter than a header",
    };
    for length in 0..8 {
        assert_eq!(
            refused(vec![0; length], Stage::Open),
            want,
            "{length} bytes"
        );
    }
}

#[test]
fn api_versions_is_open_before_authentication() {
    let frame = request_frame(ApiKey::ApiVersions, 3, 5);
    let opened = open_frame(frame, Stage::PreAuth).unwrap();
    assert!(matches!(opened, Opened::Request { header, .. } if header.correlation_id == 5));
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_at_version_0() {
    for version in [5, i16::MAX, -1] {
        for stage in [Stage::PreAuth, Stage::Open] {
            let mut frame = header(ApiKey::ApiVersions, version, 9, None);
            frame.extend_from_slice(&[0xff; 20]);
            let decoded = decode_request(frame.into(), stage).unwrap();
            let Decoded::UnsupportedApiVersions { correlation_id } = decoded else {
                panic!("{decoded:?}");
            };
            assert_eq!(correlation_id, 9);
        }
    }
    let mut answer = encode_response(ApiKey::ApiVersions, 0, 9, &unsupported_version()).unwrap();
    assert_eq!(answer.get_i32() as usize, answer.len());
    assert_eq!(answer.get_i32(), 9);
    let answer = ApiVersionsResponse::decode(&mut answer, 0).unwrap();
    assert_eq!(answer.error_code, ErrorCode::UnsupportedVersion.code());
    // Nothing but what the client needs to ask again, as in Kafka.
    let [own] = &answer.api_keys[..] else {
        panic!("{answer:?}");
    };
    assert_eq!((own.api_key, own.min_version, own.max_version), (18, 0, 4));
}

#[test]
fn api_versions_answers_encode_at_every_version() {
    let features = [
        Feature {
            name: "transaction.version",
            min_level: 0,
            max_level: 2,
            finalized_level: 1,
        },
        Feature {
            name: "metadata.version",
            min_level: 7,
            max_level: 27,
            finalized_level: 27,
        },
    ];
    for version in 0..=4 {
        let response = api_versions_response(version, ErrorCode::None, &features, 3);
        let mut frame = encode_response(ApiKey::ApiVersions, version, 1, &response).unwrap();
        assert_eq!(frame.get_i32() as usize, frame.len());
        // Header v0 at every version: no byte of tagged fields after the correlation id.
        assert_eq!(frame.get_i32(), 1);
        let decoded = ApiVersionsResponse::decode(&mut frame, version).unwrap();
        assert_eq!(decoded, response);
        assert!(frame.is_empty());

        let produce = decoded
            .api_keys
            .iter()
            .find(|api| api.api_key == 0)
            .unwrap();
        assert_eq!(produce.min_version, 0);
        let supported: Vec<_> = decoded
            .supported_features
            .iter()
            .map(|f| &*f.name)
            .collect();
        let finalized: Vec<_> = decoded
            .finalized_features
            .iter()
            .map(|f| &*f.name)
            .collect();
        match version {
            0..3 => assert!(supported.is_empty() && finalized.is_empty()),
            // KAFKA-17492: a smallest level of 0 is not told below v4.
            3 => assert_eq!(supported, ["metadata.version"]),
            _ => assert_eq!(supported, ["transaction.version", "metadata.version"]),
        }
        if version >= 3 {
            assert_eq!(finalized, ["transaction.version", "metadata.version"]);
        }
    }
}

#[test]
fn a_response_has_its_size_and_the_header_of_its_version() {
    let response = HeartbeatResponse::default().with_error_code(27);
    let kind = ResponseKind::Heartbeat(response.clone());
    for version in 1..=4 {
        let key = ApiKey::Heartbeat;
        let frame = encode_response(key, version, 42, &response).unwrap();
        assert_eq!(
            encode_response_kind(key, version, 42, &kind).unwrap(),
            frame
        );
        let mut rest = frame;
        assert_eq!(rest.get_i32() as usize, rest.len());
        let header =
            ResponseHeader::decode(&mut rest, key.response_header_version(version)).unwrap();
        assert_eq!(header.correlation_id, 42);
        assert_eq!(
            HeartbeatResponse::decode(&mut rest, version).unwrap(),
            response
        );
        assert!(rest.is_empty());
    }
}

#[test]
fn a_field_that_the_version_lacks_is_an_error_of_the_handler() {
    let features = [Feature {
        name: "metadata.version",
        min_level: 7,
        max_level: 27,
        finalized_level: 27,
    }];
    let response = api_versions_response(3, ErrorCode::None, &features, 3);
    let result = encode_response(ApiKey::ApiVersions, 9, 1, &response);
    let want = WireError::Encode {
        api_key: ApiKey::ApiVersions,
        api_version: 9,
    };
    assert_eq!(result, Err(want));
}

#[test]
fn byte_fields_are_slices_of_the_frame() {
    let mut frame = header(ApiKey::Produce, 3, 1, None);
    frame.extend_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 0, 1]);
    frame.extend_from_slice(&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1]);
    frame.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4]);
    let frame = Bytes::from(frame);
    let RequestKind::Produce(produce) = request(frame.clone()).body else {
        panic!("not a Produce request");
    };
    let records = produce.topic_data[0].partition_data[0]
        .records
        .clone()
        .unwrap();
    assert_eq!(records.as_ptr(), frame[frame.len() - 4..].as_ptr());
}
