//! Bodies of every advertised API and version, written from the schema and then bent: every length
//! and count claimed to be huge, cut at every byte, null where nothing may be null, any value in
//! every field.

use bytes::Bytes;
use tidemark_testkit::{RawClient, TestBroker};
use tidemark_wire::bounds::check_request;
use tidemark_wire::{ApiKey, ApiTable};

use crate::may_mean_nothing;
use crate::memory::Memory;
use crate::shapes::{self, Body, Choices, Fill};
use crate::witness::Witness;

const CORRELATION_ID: i32 = 4711;

fn advertised() -> impl Iterator<Item = (ApiKey, i16)> {
    ApiTable::served_apis().flat_map(|(api, served)| {
        let versions = served.versions.iter();
        versions.map(move |version| (api.key, version))
    })
}

/// Sends one request on a connection of its own; the answer, or `None` if the connection is closed.
async fn ask(broker: &TestBroker, key: ApiKey, version: i16, body: &[u8]) -> Option<Bytes> {
    let mut client: RawClient = broker.client_from("10.0.0.66:6666".parse().expect("an address"));
    let mut frame = shapes::header(key, version, CORRELATION_ID, Some("hostile"));
    frame.extend_from_slice(body);
    client.send_frame(&frame).await;
    let answer = client.next_frame().await;
    client.hang_up().await;
    let answer = answer?;
    assert_eq!(
        answer[..4],
        CORRELATION_ID.to_be_bytes(),
        "{key} v{version}"
    );
    Some(answer)
}

async fn assert_closed(broker: &TestBroker, key: ApiKey, version: i16, body: &[u8], what: &str) {
    let answer = ask(broker, key, version, body).await;
    assert!(
        answer.is_none(),
        "{key} v{version}, {what}: answered {answer:?}"
    );
}

fn full(key: ApiKey, version: i16, seed: u64) -> Body {
    shapes::body(key, version, Fill::Full, &mut Choices(seed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metadata_request_of_four_bytes_closes_only_its_own_connection() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let memory = Memory::now();
    for _ in 0..100 {
        let huge = [0x7f, 0xff, 0xff, 0xff];
        assert_closed(&broker, ApiKey::Metadata, 0, &huge, "2^31-1 topics").await;
        witness.is_served().await;
    }
    // 12 bytes of Produce v3: no transactional id is -1, acks, timeout, 2^31-1 topics.
    let produce = [0xff, 0xff, 0, 1, 0, 0, 0x3a, 0x98, 0x7f, 0xff, 0xff, 0xff];
    assert_closed(&broker, ApiKey::Produce, 3, &produce, "2^31-1 topics").await;
    witness.writes().await;
    memory.assert_no_jump("2^31-1 topics");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_count_or_length_anywhere_closes_the_connection() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let memory = Memory::now();
    let mut fields = 0;
    for (key, version) in advertised() {
        let body = full(key, version, 11);
        for at in &body.lengths {
            fields += 1;
            let what = format!("the length at {}", at.position);
            let huge = body.with_largest(*at);
            assert_closed(&broker, key, version, &huge, &format!("{what} is huge")).await;
            let more = body.with_one_too_many(*at);
            assert_closed(
                &broker,
                key,
                version,
                &more,
                &format!("{what} is too large"),
            )
            .await;
        }
        witness.is_served().await;
    }
    println!("{fields} counts and lengths");
    assert!(fields > 900, "{fields}");
    memory.assert_no_jump("huge counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_cut_at_any_byte_closes_the_connection() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let mut cuts = 0;
    for (key, version) in advertised() {
        let body = full(key, version, 12);
        for cut in 0..body.bytes.len() {
            let what = format!("cut at {cut} of {}", body.bytes.len());
            assert_closed(&broker, key, version, &body.bytes[..cut], &what).await;
            cuts += 1;
        }
        witness.is_served().await;
    }
    println!("{cuts} cuts");
    assert!(cuts > 5000, "{cuts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn null_closes_the_connection_where_it_is_no_value_and_is_answered_where_it_is() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let (mut answered, mut closed) = (0, 0);
    for (key, version) in advertised() {
        for field in 0..full(key, version, 13).lengths.len() {
            let fill = Fill::FullButNull(field);
            let body = shapes::body(key, version, fill, &mut Choices(13)).bytes;
            let fits = check_request(key, version, &body).is_ok();
            let answer = ask(&broker, key, version, &body).await;
            assert!(
                answer.is_some() == fits || (answer.is_none() && may_mean_nothing(key)),
                "{key} v{version}, null as field {field}: fits {fits}"
            );
            match answer {
                Some(_) => answered += 1,
                None => closed += 1,
            }
        }
        witness.is_served().await;
    }
    println!("{answered} answered, {closed} closed");
    assert!(
        answered > 50 && closed > 100,
        "{answered} answered, {closed} closed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_value_in_every_field_is_answered() {
    let broker = TestBroker::start().await;
    let mut witness = Witness::of(&broker).await;
    let memory = Memory::now();
    for seed in 0..20 {
        for (key, version) in advertised() {
            let mut choices = Choices(seed * 1000 + u64::from(version.unsigned_abs()));
            let body = shapes::body(key, version, Fill::Random, &mut choices).bytes;
            let answer = ask(&broker, key, version, &body).await;
            let answered = answer.is_some() || may_mean_nothing(key);
            assert!(answered, "{key} v{version}: {body:02x?}");
        }
        witness.is_served().await;
    }
    memory.assert_no_jump("any value");
}
