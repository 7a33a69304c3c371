//! What stands before a body: sizes, keys, versions, headers; and what is no request at all.

use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::Decodable;
use tidemark_testkit::requests::text;
use tidemark_testkit::{Batch, RawClient, TestBroker, produced, requests, version};
use tidemark_types::ErrorCode;
use tidemark_wire::{ApiKey, ApiTable};

use crate::memory::Memory;
use crate::shapes::{self, Choices, Fill};
use crate::support::code;
use crate::witness::Witness;

/// The smallest requests there are: ApiVersions v0.
fn a_request(correlation_id: i32) -> Vec<u8> {
    shapes::header(ApiKey::ApiVersions, 0, correlation_id, None)
}

/// A frame that is refused: its connection is closed without an answer.
async fn assert_closes(broker: &TestBroker, what: &str, bytes: &[u8]) {
    let mut client = connection(broker);
    client.send_bytes(bytes).await;
    let answer = client.next_frame().await;
    assert!(answer.is_none(), "{what}: answered {answer:?}");
    client.hang_up().await;
}

fn connection(broker: &TestBroker) -> RawClient {
    broker.client_from("10.0.0.66:6666".parse().expect("an address"))
}

fn framed(frame: &[u8]) -> Vec<u8> {
    let size = i32::try_from(frame.len()).expect("a test's frame is small");
    [&size.to_be_bytes(), frame].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_that_cannot_be_closes_the_connection() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let memory = Memory::now();
    for size in [-1, i32::MIN, 0, 1, 7, (100 << 20) + 1, i32::MAX] {
        let bytes = [&size.to_be_bytes()[..], &a_request(1)].concat();
        assert_closes(&broker, &format!("size {size}"), &bytes).await;
        witness.is_served().await;
    }

    // The largest legal size, and nothing behind it: that costs nothing, and many of it neither.
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let mut client = connection(&broker);
        client.send_bytes(&(100i32 << 20).to_be_bytes()).await;
        client.send_bytes(&a_request(1)).await;
        waiting.push(client);
    }
    witness.writes().await;
    witness.is_served().await;
    assert!(waiting.iter().all(|client| !client.is_closed()));
    memory.assert_no_jump("sizes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_key_or_version_closes_the_connection() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let served =
        |key: i16, version: i16| ApiKey::from_code(key).is_some_and(|key| key.is_served(version));
    let mut tried = 0;
    for key in (-2..=130).chain([i16::MIN, i16::MAX, 0x4745, 0x1603]) {
        if key == ApiKey::ApiVersions.code() {
            continue;
        }
        let known = ApiKey::from_code(key).and_then(|key| key.api().serves);
        let edges = known.map_or(vec![], |s| vec![s.versions.min - 1, s.versions.max + 1]);
        for version in [-1, 0, 5, 20, i16::MIN, i16::MAX].into_iter().chain(edges) {
            if served(key, version) {
                continue;
            }
            let mut frame = [key.to_be_bytes(), version.to_be_bytes()].concat();
            frame.extend_from_slice(&[0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
            assert_closes(&broker, &format!("key {key} v{version}"), &framed(&frame)).await;
            tried += 1;
        }
        witness.is_served().await;
    }
    assert!(tried > 500, "{tried}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_version_of_api_versions_is_answered_with_what_there_is() {
    let broker = TestBroker::start().await;
    let mut client = connection(&broker);
    let newest = ApiKey::ApiVersions
        .api()
        .serves
        .expect("it is served")
        .versions
        .max;
    for version in [newest + 1, 99, i16::MAX, -1, i16::MIN] {
        // Whatever follows: a client of that version knows a body that we do not.
        let mut frame = shapes::header(ApiKey::ApiVersions, version, 7, Some("new"));
        frame.extend_from_slice(&[0x7f; 9]);
        client.send_frame(&frame).await;
        let mut answer = client.next_frame().await.expect("it is answered");
        assert_eq!(answer.split_to(4), 7i32.to_be_bytes()[..]);
        let answer = ApiVersionsResponse::decode(&mut answer, 0).expect("a body of v0");
        assert_eq!(
            code(answer.error_code),
            ErrorCode::UnsupportedVersion,
            "v{version}"
        );
        // Nothing but what the client needs to ask again, as in Kafka.
        let [told] = &answer.api_keys[..] else {
            panic!("{answer:?}");
        };
        assert_eq!(told.api_key, ApiKey::ApiVersions.code());
        assert_eq!((told.min_version, told.max_version), (0, newest));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_versions_wants_a_name_for_the_software() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    for version in 3..=4 {
        for (name, software_version, want) in [
            ("librdkafka", "2.15.0", ErrorCode::None),
            ("a", "v1.0-rc.2", ErrorCode::None),
            ("", "1", ErrorCode::InvalidRequest),
            ("lib rd kafka", "1", ErrorCode::InvalidRequest),
            ("kafka", "", ErrorCode::InvalidRequest),
            ("-kafka", "1", ErrorCode::InvalidRequest),
            ("kafka", "1.0_", ErrorCode::InvalidRequest),
        ] {
            let request = ApiVersionsRequest::default()
                .with_client_software_name(text(name))
                .with_client_software_version(text(software_version));
            let answer = client.send(version, &request).await;
            assert_eq!(
                code(answer.error_code),
                want,
                "{name:?} {software_version:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_does_not_fit_closes_the_connection() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let memory = Memory::now();
    for (api, served) in ApiTable::served_apis() {
        for version in served.versions.iter() {
            let prefix = &shapes::header(api.key, version, 1, None)[..8];
            let mut broken: Vec<Vec<u8>> = vec![
                // The client id: missing, by half, negative and not null, beyond the frame, no text.
                vec![],
                vec![0],
                vec![0xff, 0xfe],
                vec![0x80, 0],
                vec![0x7f, 0xff],
                vec![0, 4, b'a', b'b', b'c'],
                vec![0, 1, 0xff],
            ];
            if api.key.request_header_version(version) >= 2 {
                // Its tagged fields: a huge count, a huge size, a varint without end.
                broken.push(vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]);
                broken.push(vec![0xff, 0xff, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
                broken.push(vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
            }
            for header in broken {
                let frame = [prefix, &header].concat();
                let what = format!("{} v{version}, header {header:02x?}", api.name);
                assert_closes(&broker, &what, &framed(&frame)).await;
            }
            witness.is_served().await;
        }
    }
    memory.assert_no_jump("headers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_kafka_at_all_closes_the_connection() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    for (what, bytes) in [
        ("HTTP", &b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"[..]),
        (
            "TLS",
            &[
                0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
            ],
        ),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n"),
        ("ones", &[0xff; 64]),
        ("zeros", &[0; 64]),
    ] {
        assert_closes(&broker, what, bytes).await;
        witness.is_served().await;
    }
    let mut choices = Choices(7);
    for n in 0..500 {
        let length = 1 + choices.below(200);
        let bytes: Vec<u8> = (0..length).map(|_| choices.next() as u8).collect();
        let mut client = connection(&broker);
        // As a stream it may be the begin of a frame; as a frame it is a request of some kind.
        client.send_bytes(&bytes).await;
        client.hang_up().await;
        let mut client = connection(&broker);
        client.send_frame(&bytes).await;
        client.hang_up().await;
        if n % 50 == 0 {
            witness.is_served().await;
        }
    }
    witness.writes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_whole_however_it_arrives_and_garbage_after_it_is_its_own_matter() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    // Byte by byte.
    let mut client = connection(&broker);
    for byte in framed(&a_request(77)) {
        client.send_bytes(&[byte]).await;
    }
    let answer = client.next_frame().await.expect("it is answered");
    assert_eq!(answer[..4], 77i32.to_be_bytes());

    // A client that goes away in the middle of every kind of request.
    for (api, served) in ApiTable::served_apis() {
        for version in served.versions.iter() {
            let mut frame = shapes::header(api.key, version, 1, Some("half"));
            frame.extend(shapes::body(api.key, version, Fill::Full, &mut Choices(1)).bytes);
            let frame = framed(&frame);
            let mut client = connection(&broker);
            client.send_bytes(&frame[..frame.len() / 2]).await;
            client.hang_up().await;
        }
    }
    witness.is_served().await;

    // Bytes behind a body, within its frame, are passed over, as clients of some versions send them.
    let mut client = connection(&broker);
    client
        .send_frame(&[a_request(5), vec![0xff; 10]].concat())
        .await;
    let answer = client.next_frame().await.expect("it is answered");
    assert_eq!(answer[..4], 5i32.to_be_bytes());
    // Garbage behind the frame is no frame. What was asked before it may be answered.
    client
        .send_bytes(&[framed(&a_request(6)), vec![0xff; 10]].concat())
        .await;
    while let Some(answer) = client.next_frame().await {
        assert_eq!(answer[..4], 6i32.to_be_bytes());
    }
    witness.writes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_of_none_say_nothing_and_close_on_an_error() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let batch = Batch::of(&["v"]).build();
    let produce = |topic: &str, acks: i16| {
        let request = requests::produce(None, [(topic, 0, batch.clone())]);
        request.with_acks(acks)
    };
    for version in 3..=version::PRODUCE {
        // No answer, and the next request's answer is the next that comes.
        let mut unanswered = client.start_request(version, &produce("t", 0)).await;
        let offset = i64::from(version - 3) * 2 + 1;
        let answer = client.send(version, &produce("t", 1)).await;
        assert_eq!(
            produced(&answer),
            [Ok(offset)],
            "acks=0 was written before it"
        );
        assert!(!unanswered.is_answered());

        let mut other = broker.client().await;
        let lost = other.start_request(version, &produce("nobody", 0)).await;
        assert!(lost.try_answer().await.is_none(), "v{version}");
        other.closed().await;
        witness.is_served().await;
        for acks in [2, -2, i16::MAX, i16::MIN] {
            let answer = client.send(version, &produce("t", acks)).await;
            assert_eq!(
                produced(&answer),
                [Err(ErrorCode::InvalidRequiredAcks)],
                "acks={acks}"
            );
        }
    }
}
