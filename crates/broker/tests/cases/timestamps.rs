//! Offsets by timestamp.

use tidemark_testkit::{Batch, Isolation, RawClient, TestBroker, requests, version};
use tidemark_types::ErrorCode;

use crate::support::code;

const SMALLEST_SEGMENT_BYTES: &str = "1048576";

/// ListOffsets of a time: (offset, timestamp).
async fn first_at_or_after(client: &mut RawClient, topic: &str, time_ms: i64) -> (i64, i64) {
    let request = requests::list_offsets(topic, [0], time_ms, Isolation::ReadUncommitted);
    let answer = client.send(version::LIST_OFFSETS, &request).await;
    let found = &answer.topics[0].partitions[0];
    assert_eq!(
        code(found.error_code),
        ErrorCode::None,
        "{topic} at {time_ms}"
    );
    (found.offset, found.timestamp)
}

async fn assert_found(client: &mut RawClient, when: &str) {
    for topic in ["whole", "rolled"] {
        let rising = format!("{topic}-rising");
        for (time_ms, want) in [
            (1, (0, 2)),
            (2, (0, 2)),
            (3, (1, 4)),
            (8, (3, 8)),
            (9, (-1, -1)),
        ] {
            let found = first_at_or_after(client, &rising, time_ms).await;
            assert_eq!(found, want, "{rising} at {time_ms}, {when}");
        }
        let uneven = format!("{topic}-uneven");
        for (time_ms, want) in [(6, (0, 10)), (11, (2, 20)), (21, (-1, -1))] {
            let found = first_at_or_after(client, &uneven, time_ms).await;
            assert_eq!(found, want, "{uneven} at {time_ms}, {when}");
        }
    }
}

/// From the tail; after a power cut, from the journal; and after a clean stop from segments, one for all records and one
/// for each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a24_the_first_record_at_or_after_a_time_is_found_also_after_restarts_and_rolls() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    for topic in ["whole", "rolled"] {
        for (order, times) in [("rising", &[2, 4, 6, 8][..]), ("uneven", &[10, 5, 20][..])] {
            let name = format!("{topic}-{order}");
            let configs = [("segment.bytes", SMALLEST_SEGMENT_BYTES)];
            client.create_topic_with(&name, 1, &configs).await;
            // Two of the long ones do not fit into a segment.
            let value = "v".repeat(if topic == "rolled" { 600 << 10 } else { 1 });
            for (offset, time_ms) in (0..).zip(times) {
                let batch = Batch::of(&[&value]).at(*time_ms).build();
                assert_eq!(client.produce(&name, 0, batch).await, Ok(offset));
            }
        }
    }
    assert_found(&mut client, "at once").await;
    let broker = broker.crash(24).await.start().await;
    assert_found(&mut broker.client().await, "after a power cut").await;
    let broker = broker.restart().await;
    assert_found(&mut broker.client().await, "after a stop").await;
    let broker = broker.crash(25).await.start().await;
    assert_found(&mut broker.client().await, "after a stop and a power cut").await;
}
