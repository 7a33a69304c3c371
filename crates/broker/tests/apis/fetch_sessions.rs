//! Fetch with sessions (KIP-227) and topic ids (KIP-516), as a consumer drives them.

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{BrokerId, DeleteTopicsRequest, FetchRequest, FetchResponse};
use tidemark_testkit::requests::{self, error_code, topic_name};
use tidemark_testkit::{Batch, Isolation, RawClient, TestBroker, fetched};
use tidemark_types::ErrorCode;
use uuid::Uuid;

/// A consumer's Fetch: of (topic, partition, offset) each, forgetting (topic, partition) each.
struct Ask<'a> {
    version: i16,
    session: (i32, i32),
    read: &'a [(&'a str, i32, i64)],
    forget: &'a [(&'a str, i32)],
    /// The topics' ids, for v13 and later.
    ids: &'a [(&'a str, Uuid)],
}

impl Ask<'_> {
    fn request(&self) -> FetchRequest {
        let id = |topic: &str| {
            let found = self.ids.iter().find(|(name, _)| *name == topic);
            found.map_or(Uuid::nil(), |(_, id)| *id)
        };
        let by_id = self.version >= 13;
        let read = self.read.iter().map(|(topic, partition, offset)| {
            let partition = FetchPartition::default()
                .with_partition(*partition)
                .with_current_leader_epoch(-1)
                .with_fetch_offset(*offset)
                .with_partition_max_bytes(1 << 20);
            let topic = match by_id {
                true => FetchTopic::default().with_topic_id(id(topic)),
                false => FetchTopic::default().with_topic(topic_name(topic)),
            };
            topic.with_partitions(vec![partition])
        });
        let forget = self.forget.iter().map(|(topic, partition)| {
            let topic = match by_id {
                true => ForgottenTopic::default().with_topic_id(id(topic)),
                false => ForgottenTopic::default().with_topic(topic_name(topic)),
            };
            topic.with_partitions(vec![*partition])
        });
        FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(0)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_isolation_level(1)
            .with_session_id(self.session.0)
            .with_session_epoch(self.session.1)
            .with_topics(read.collect())
            .with_forgotten_topics_data(forget.collect())
    }

    async fn send(&self, client: &mut RawClient) -> FetchResponse {
        client.send(self.version, &self.request()).await
    }
}

/// The error and the session of a response, and (partition, error, records) of what it brings.
fn seen(response: &FetchResponse) -> (ErrorCode, i32, Vec<(i32, ErrorCode, usize)>) {
    let partitions = fetched(response);
    let partitions = partitions
        .iter()
        .map(|p| (p.partition, p.error, p.records().len()))
        .collect();
    (
        error_code(response.error_code),
        response.session_id,
        partitions,
    )
}

const OK: ErrorCode = ErrorCode::None;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incremental_fetch_brings_what_is_new() {
    for version in [7, 11, 12, 13, 18] {
        let broker = TestBroker::start().await;
        let mut client = broker.client().await;
        client.create_topic("t", 3).await;
        let ids = [("t", client.describe_topic("t").await.topic_id)];
        let produce = async |client: &mut RawClient, partition: i32| {
            let batch = Batch::of(&["r"]).build();
            client.produce("t", partition, batch).await.unwrap();
        };
        produce(&mut client, 1).await;
        let ask = |session, read| Ask {
            version,
            session,
            read,
            forget: &[],
            ids: &ids,
        };
        let all = [("t", 0, 0), ("t", 1, 0), ("t", 2, 0)];
        let first = seen(&ask((0, 0), &all).send(&mut client).await);
        let id = first.1;
        assert!(id > 0, "v{version} opens a session");
        let everything = vec![(0, OK, 0), (1, OK, 1), (2, OK, 0)];
        assert_eq!(first, (OK, id, everything), "v{version}");

        // The position moves on; nothing is new.
        let moved = [("t", 1, 1)];
        let next = seen(&ask((id, 1), &moved).send(&mut client).await);
        assert_eq!(next, (OK, id, vec![]), "v{version}");
        // A record where the consumer stands, which need not be named.
        produce(&mut client, 2).await;
        let next = seen(&ask((id, 2), &[]).send(&mut client).await);
        assert_eq!(next, (OK, id, vec![(2, OK, 1)]), "v{version}");
        // Still there: the consumer has not moved.
        let next = seen(&ask((id, 3), &[]).send(&mut client).await);
        assert_eq!(next, (OK, id, vec![(2, OK, 1)]), "v{version}");

        // Forgotten and added, in one request.
        let swap = Ask {
            forget: &[("t", 2), ("t", 0)],
            read: &[("t", 9, 0)],
            ..ask((id, 4), &[])
        };
        let unknown = ErrorCode::UnknownTopicOrPartition;
        let next = seen(&swap.send(&mut client).await);
        assert_eq!(next, (OK, id, vec![(9, unknown, 0)]), "v{version}");
        produce(&mut client, 0).await;
        let next = seen(&ask((id, 5), &[]).send(&mut client).await);
        assert_eq!(next, (OK, id, vec![(9, unknown, 0)]), "an error stays");

        // Out of range, and back.
        let ahead = [("t", 1, 77)];
        let next = seen(&ask((id, 6), &ahead).send(&mut client).await);
        let out = (1, ErrorCode::OffsetOutOfRange, 0);
        assert!(next.2.contains(&out), "v{version}: {next:?}");
        let next = seen(&ask((id, 7), &moved).send(&mut client).await);
        assert!(next.2.contains(&(1, OK, 0)), "its end is news: {next:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_not_there_or_not_at_that_epoch_is_refused_whole() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let ids = [("t", client.describe_topic("t").await.topic_id)];
    let ask = |version, session| Ask {
        version,
        session,
        read: &[("t", 0, 0)],
        forget: &[],
        ids: &ids,
    };
    let not_found = (ErrorCode::FetchSessionIdNotFound, 0, vec![]);
    let wrong_epoch = (ErrorCode::InvalidFetchSessionEpoch, 0, vec![]);
    let found = vec![(0, OK, 0)];
    for session in [(0, 5), (0, -7), (12345, 1)] {
        let refused = seen(&ask(12, session).send(&mut client).await);
        assert_eq!(refused, not_found, "{session:?}");
    }
    let (_, id, _) = seen(&ask(12, (0, 0)).send(&mut client).await);
    assert_eq!(seen(&ask(12, (id, 2)).send(&mut client).await), wrong_epoch);
    let used = seen(&ask(12, (id, 1)).send(&mut client).await);
    assert_eq!(used, (OK, id, vec![]));
    assert_eq!(seen(&ask(12, (id, 1)).send(&mut client).await), wrong_epoch);
    // Names and ids do not mix.
    let mixed = seen(&ask(13, (id, 2)).send(&mut client).await);
    assert_eq!(mixed, (ErrorCode::FetchSessionTopicIdError, 0, vec![]));

    // A full fetch ends the session it names: with another one, or with none.
    let (_, other, _) = seen(&ask(12, (id, 0)).send(&mut client).await);
    assert_ne!(other, id);
    assert_eq!(seen(&ask(12, (id, 2)).send(&mut client).await), not_found);
    let last = seen(&ask(12, (other, -1)).send(&mut client).await);
    assert_eq!(last, (OK, 0, found.clone()));
    let gone = seen(&ask(12, (other, 1)).send(&mut client).await);
    assert_eq!(gone, not_found);

    // All forgotten: the session is over, and the answer says so.
    let (_, id, _) = seen(&ask(12, (0, 0)).send(&mut client).await);
    let forget = Ask {
        read: &[],
        forget: &[("t", 0)],
        ..ask(12, (id, 1))
    };
    assert_eq!(seen(&forget.send(&mut client).await), (OK, 0, vec![]));
    assert_eq!(seen(&ask(12, (id, 2)).send(&mut client).await), not_found);

    // Sessions do not outlive the broker.
    let (_, id, _) = seen(&ask(12, (0, 0)).send(&mut client).await);
    let broker = broker.restart().await;
    let mut client = broker.client().await;
    assert_eq!(seen(&ask(12, (id, 1)).send(&mut client).await), not_found);
    // And below v7 there are none.
    for version in 4..7 {
        let answer = seen(&ask(version, (0, 0)).send(&mut client).await);
        assert_eq!(answer, (OK, 0, found.clone()), "v{version}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_sessions_than_slots_are_declined_and_their_consumers_read_on() {
    let broker = TestBroker::builder()
        .set("max.incremental.fetch.session.cache.slots", 2)
        .start()
        .await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let batch = Batch::of(&["r"]).build();
    client.produce("t", 0, batch).await.unwrap();
    let ask = |session| Ask {
        version: 12,
        session,
        read: &[("t", 0, 0)],
        forget: &[],
        ids: &[],
    };
    let (_, a, _) = seen(&ask((0, 0)).send(&mut client).await);
    let (_, b, _) = seen(&ask((0, 0)).send(&mut client).await);
    assert!(a > 0 && b > 0 && a != b);
    let third = seen(&ask((0, 0)).send(&mut client).await);
    assert_eq!(third, (OK, 0, vec![(0, OK, 1)]));
    // Idle for two minutes: its place goes to one that is in use.
    broker.clock().advance_ms(60_000);
    assert_eq!(seen(&ask((b, 1)).send(&mut client).await).0, OK);
    broker.clock().advance_ms(60_001);
    let (_, c, _) = seen(&ask((0, 0)).send(&mut client).await);
    assert!(c > 0);
    let gone = seen(&ask((a, 1)).send(&mut client).await);
    assert_eq!(gone.0, ErrorCode::FetchSessionIdNotFound);
    assert_eq!(seen(&ask((b, 2)).send(&mut client).await).0, OK);
}

/// A topic that goes, and one of its name that comes: the id tells them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_not_served_by_another_topic_of_the_same_name() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let old = client.describe_topic("t").await.topic_id;
    let ids = [("t", old), ("never", Uuid::from_u128(9))];
    let ask = |session, read| Ask {
        version: 16,
        session,
        read,
        forget: &[],
        ids: &ids,
    };
    let both = [("t", 0, 0), ("never", 0, 0)];
    let opened = ask((0, 0), &both).send(&mut client).await;
    let (_, id, partitions) = seen(&opened);
    let unknown_id = ErrorCode::UnknownTopicId;
    assert_eq!(partitions, [(0, OK, 0), (0, unknown_id, 0)]);
    assert_eq!(opened.responses[0].topic_id, old);

    let delete = DeleteTopicsRequest::default()
        .with_topic_names(vec![topic_name("t")])
        .with_timeout_ms(30_000);
    assert_eq!(client.send(4, &delete).await.responses[0].error_code, 0);
    let errors = |response: &FetchResponse| -> Vec<ErrorCode> {
        fetched(response).iter().map(|p| p.error).collect()
    };
    let gone = ask((id, 1), &[]).send(&mut client).await;
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(errors(&gone), [unknown, unknown_id]);

    client.create_topic("t", 1).await;
    let replaced = ask((id, 2), &[]).send(&mut client).await;
    let inconsistent = ErrorCode::InconsistentTopicId;
    assert_eq!(errors(&replaced), [inconsistent, unknown_id]);
    // Who asks for the first time knows no name.
    let fresh = ask((0, -1), &both).send(&mut client).await;
    assert_eq!(errors(&fresh), [unknown_id, unknown_id]);
}

/// A fetch that waits in a session is woken by a record, and hears of it alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_incremental_fetch_is_woken() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 3).await;
    let ask = |session, read| Ask {
        version: 12,
        session,
        read,
        forget: &[],
        ids: &[],
    };
    let all = [("t", 0, 0), ("t", 1, 0), ("t", 2, 0)];
    let (_, id, _) = seen(&ask((0, 0), &all).send(&mut client).await);
    let waits = ask((id, 1), &[]).request().with_max_wait_ms(3_600_000);
    let mut waiting = client.start_request(12, &waits).await;
    let mut other = broker.client().await;
    for _ in 0..10 {
        other.ends("t", 3, Isolation::ReadUncommitted).await;
        assert!(!waiting.is_answered());
    }
    let batch = Batch::of(&["r"]).build();
    other.produce("t", 2, batch).await.unwrap();
    let woken = seen(&waiting.answer().await);
    assert_eq!(woken, (OK, id, vec![(2, OK, 1)]));

    // Nothing comes: answered at the end of its time, with nothing.
    let waits = ask((id, 2), &[("t", 2, 1)]).request().with_max_wait_ms(500);
    let mut waiting = client.start_request(12, &waits).await;
    while !waiting.is_answered() {
        // It may still be on its way: then its time begins after this.
        broker.clock().advance_ms(500);
        other.ends("t", 3, Isolation::ReadUncommitted).await;
    }
    assert_eq!(seen(&waiting.answer().await), (OK, id, vec![]));
}

/// Partitions that fill every answer do not starve those behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_partition_has_its_turn() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 3).await;
    for partition in 0..3 {
        for _ in 0..3 {
            let batch = Batch::of(&["r"]).build();
            client.produce("t", partition, batch).await.unwrap();
        }
    }
    let mut offsets = [0i64; 3];
    let mut served = Vec::new();
    let mut session = (0, 0);
    for _ in 0..9 {
        let read: Vec<_> = (0..3)
            .map(|p: i32| ("t", p, offsets[usize::try_from(p).unwrap()]))
            .collect();
        let ask = Ask {
            version: 12,
            session,
            read: &read,
            forget: &[],
            ids: &[],
        };
        // Room for one batch.
        let request = ask.request().with_max_bytes(1);
        let response = client.send(12, &request).await;
        session = (response.session_id, session.1 + 1);
        let with_records: Vec<_> = fetched(&response)
            .into_iter()
            .filter(|p| !p.batches.is_empty())
            .collect();
        assert_eq!(with_records.len(), 1);
        let one = &with_records[0];
        offsets[usize::try_from(one.partition).unwrap()] += 1;
        served.push(one.partition);
    }
    assert_eq!(offsets, [3, 3, 3]);
    // The first, full fetch reads in the order of the request; from then on the one that was served
    // is last.
    assert_eq!(served[1..], [0, 1, 2, 0, 1, 2, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_offsets_answers_timestamps_as_each_version_knows_them() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    for (values, ms) in [(["a", "b"], 1_000), (["c", "d"], 3_000)] {
        let batch = Batch::of(&values).at(ms).build();
        client.produce("t", 0, batch).await.unwrap();
    }
    let none = Ok((-1, -1));
    let unknown = Err(ErrorCode::UnsupportedVersion);
    for version in 1..=10 {
        let answers = [
            (-1, Ok((-1, 4))),
            (-2, Ok((-1, 0))),
            (
                -3,
                if version >= 7 {
                    Ok((3_000, 2))
                } else {
                    unknown
                },
            ),
            (-4, if version >= 8 { Ok((-1, 0)) } else { unknown }),
            (-5, if version >= 9 { none } else { unknown }),
            (-6, unknown),
            (2_000, Ok((3_000, 2))),
            (9_999, none),
        ];
        for (timestamp, expected) in answers {
            let isolation = Isolation::ReadUncommitted;
            let request = requests::list_offsets("t", [0], timestamp, isolation);
            let request = match version {
                1 => request.with_isolation_level(0),
                _ => request,
            };
            let response = client.send(version, &request).await;
            let found = &response.topics[0].partitions[0];
            let answer = match error_code(found.error_code) {
                ErrorCode::None => Ok((found.timestamp, found.offset)),
                error => Err(error),
            };
            assert_eq!(answer, expected, "v{version}, timestamp {timestamp}");
        }
    }
}
