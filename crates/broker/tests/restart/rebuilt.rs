//! P12: the state that a start rebuilds is the state that was there.

use kafka_protocol::messages::DeleteTopicsRequest;
use tidemark_testkit::requests::topic_name;
use tidemark_testkit::{Batch, Isolation, RawClient, TestBroker, TxnProducer, WALL_START_MS};
use tidemark_types::ErrorCode;

use crate::member::Member;
use crate::snapshot::{Probes, Sent, take};

/// Producers, transactions, groups and topics in every state that matters, some of each kind open.
struct World {
    probes: Probes,
    open: TxnProducer,
    member: Member,
    round: i32,
}

impl World {
    async fn new(client: &mut RawClient) -> World {
        client.create_topic("t", 3).await;
        let configs = [
            ("max.message.bytes", "100000"),
            ("message.timestamp.type", "LogAppendTime"),
        ];
        client.create_topic_with("configured", 1, &configs).await;
        client.create_topic("doomed", 1).await;
        let mut open = TxnProducer::init(client, "open").await;
        begin(client, &mut open, -1).await;
        let groups = ["g-plain", "g-committed", "g-aborted", "g-open", "g-member"];
        World {
            probes: Probes {
                groups: groups.map(str::to_owned).to_vec(),
                sent: Vec::new(),
            },
            open,
            member: Member::alone(client, "g-member").await,
            round: 0,
        }
    }

    /// One more of everything.
    async fn go_on(&mut self, client: &mut RawClient) {
        let round = self.round;
        self.round += 1;
        let time = WALL_START_MS + i64::from(round);
        let plain = Batch::of(&[format!("plain-{round}")]).at(time).build();
        client.produce("t", round % 3, plain).await.unwrap();
        let stamped = Batch::of(&["stamped"]).at(time).build();
        client.produce("configured", 0, stamped).await.unwrap();

        // An idempotent producer of seven batches: five are remembered.
        let producer = client.init_producer_id(None).await.unwrap();
        for n in 0..7 {
            let batch = Batch::of(&[format!("idempotent-{round}-{n}")])
                .at(time)
                .producer(producer.0, producer.1, n)
                .build();
            client.produce("t", 0, batch.clone()).await.unwrap();
            self.probes.sent.push(Sent {
                transactional: None,
                topic: "t".to_owned(),
                partition: 0,
                batch,
            });
        }

        for (id, commit) in [("commits", true), ("aborts", false)] {
            let mut producer = TxnProducer::init(client, id).await;
            producer.enrol(client, &[("t", 1), ("t", 2)]).await.unwrap();
            for partition in 1..3 {
                let batch = producer.batch("t", partition, &[format!("{id}-{round}")]);
                let batch = batch.at(time).build();
                client
                    .produce_in(id, "t", partition, batch.clone())
                    .await
                    .unwrap();
                self.probes.sent.push(Sent {
                    transactional: Some(id.to_owned()),
                    topic: "t".to_owned(),
                    partition,
                    batch,
                });
            }
            let group = if commit { "g-committed" } else { "g-aborted" };
            let offsets = [("t", 1, i64::from(round))];
            producer
                .send_offsets(client, group, &offsets)
                .await
                .unwrap();
            producer.end(client, commit).await.unwrap();
        }
        let offsets = [("t", 0, i64::from(round)), ("configured", 0, 7)];
        client.commit_offsets("g-plain", &offsets).await.unwrap();

        self.open.end(client, round % 2 == 0).await.unwrap();
        begin(client, &mut self.open, round).await;
    }
}

/// A transaction that stays open over what comes next.
async fn begin(client: &mut RawClient, producer: &mut TxnProducer, round: i32) {
    producer.enrol(client, &[("t", 0), ("t", 2)]).await.unwrap();
    for partition in [0, 2] {
        let values = [format!("open-{round}")];
        producer
            .send(client, "t", partition, &values)
            .await
            .unwrap();
    }
    let offsets = [("t", 0, 1000 + i64::from(round))];
    producer
        .send_offsets(client, "g-open", &offsets)
        .await
        .unwrap();
}

async fn delete_topic(client: &mut RawClient, topic: &str) {
    let request = DeleteTopicsRequest::default()
        .with_topic_names(vec![topic_name(topic)])
        .with_timeout_ms(30_000);
    let answer = client.send(4, &request).await;
    assert_eq!(answer.responses[0].error_code, 0);
}

/// How a broker ends and what the next one starts from.
#[derive(Clone, Copy, Debug)]
enum End {
    /// A power cut: the journal since the last checkpoint.
    Crash,
    /// A stop: a checkpoint of everything.
    Stop,
    /// A stop, and a power cut before anything new was written.
    StopAndCrash,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_after_a_start_is_the_state_before_it() {
    let mut broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut world = World::new(&mut client).await;
    for _ in 0..3 {
        world.go_on(&mut client).await;
    }
    let ends = [
        End::Crash,
        End::Crash,
        End::Stop,
        End::Crash,
        End::StopAndCrash,
        End::Stop,
        End::Stop,
        End::Crash,
    ];
    for (n, end) in ends.into_iter().enumerate() {
        let before = take(&mut client, &world.probes).await;
        broker = match end {
            End::Crash => broker.crash(n as u64).await.start().await,
            End::Stop => broker.restart().await,
            End::StopAndCrash => {
                let stopped = broker.stop().await.after_power_cut(n as u64);
                stopped.start().await
            }
        };
        client = broker.client().await;
        let after = take(&mut client, &world.probes).await;
        pretty_assert(&before, &after, &format!("start {n}, after {end:?}"));
        // And nothing was only remembered for looking at: everything goes on.
        world.go_on(&mut client).await;
        world.member.rejoin(&mut client, b"again").await;
    }
    let fresh = take(&mut client, &world.probes).await;
    let windows: Vec<_> = fresh.repeats.iter().filter(|r| r.is_ok()).collect();
    assert!(
        windows.len() >= 5 * world.round as usize,
        "five batches of each are known"
    );
    assert!(
        fresh
            .repeats
            .contains(&Err(ErrorCode::OutOfOrderSequenceNumber))
    );
    let open = fresh.offsets[&("g-open".to_owned(), "t".to_owned(), 0)];
    assert_eq!(open[1], Err(ErrorCode::UnstableOffsetCommit));
}

/// Both, part by part, so that a difference can be found.
fn pretty_assert(
    before: &crate::snapshot::Snapshot,
    after: &crate::snapshot::Snapshot,
    what: &str,
) {
    assert_eq!(before.cluster_id, after.cluster_id, "{what}");
    assert_eq!(before.topics, after.topics, "{what}");
    assert_eq!(before.configs, after.configs, "{what}");
    for (at, partition) in &before.partitions {
        assert_eq!(partition, &after.partitions[at], "{what}: {at:?}");
    }
    assert_eq!(before.offsets, after.offsets, "{what}");
    assert_eq!(before.groups, after.groups, "{what}");
    assert_eq!(before.repeats, after.repeats, "{what}");
    assert_eq!(before, after, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_goes_on_after_a_crash_and_ends_whole() {
    for commit in [true, false] {
        for checkpoint in [false, true] {
            let broker = TestBroker::start().await;
            let mut client = broker.client().await;
            client.create_topic("t", 2).await;
            let mut producer = TxnProducer::init(&mut client, "tx").await;
            producer.enrol(&mut client, &[("t", 0)]).await.unwrap();
            producer
                .send(&mut client, "t", 0, &["before"])
                .await
                .unwrap();
            producer
                .send_offsets(&mut client, "g", &[("t", 0, 5)])
                .await
                .unwrap();

            let broker = match checkpoint {
                true => broker.restart().await,
                false => broker.crash(5).await.start().await,
            };
            let mut client = broker.client().await;
            assert_eq!(client.ends("t", 2, Isolation::ReadCommitted).await, [0, 0]);
            // The next batch continues the sequence, the other partition joins, the end is whole.
            producer
                .send(&mut client, "t", 0, &["after"])
                .await
                .unwrap();
            producer.enrol(&mut client, &[("t", 1)]).await.unwrap();
            producer
                .send(&mut client, "t", 1, &["other"])
                .await
                .unwrap();
            producer.end(&mut client, commit).await.unwrap();

            let broker = broker.crash(6).await.start().await;
            let mut client = broker.client().await;
            assert_eq!(client.ends("t", 2, Isolation::ReadCommitted).await, [3, 2]);
            let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
            let other = client.read_values("t", 1, Isolation::ReadCommitted).await;
            let offset = client.committed_offset("g", "t", 0, true).await;
            if commit {
                assert_eq!((values.len(), other.len(), offset), (2, 1, Ok(5)));
            } else {
                assert_eq!((values.len(), other.len(), offset), (0, 0, Ok(-1)));
            }
            // The end may be asked for again, also now.
            assert_eq!(producer.end(&mut client, commit).await, Ok(()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_topic_stays_deleted_and_a_new_one_of_its_name_is_another() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 2).await;
    let first = client.describe_topic("t").await.topic_id;
    client
        .produce("t", 0, Batch::of(&["old"]).build())
        .await
        .unwrap();
    client.commit_offsets("g", &[("t", 0, 1)]).await.unwrap();
    delete_topic(&mut client, "t").await;
    let broker = broker.crash(1).await.start().await;
    let mut client = broker.client().await;
    let gone = client.describe_topic("t").await.error_code;
    assert_eq!(gone, ErrorCode::UnknownTopicOrPartition.code());

    client.create_topic("t", 1).await;
    let second = client.describe_topic("t").await.topic_id;
    assert_ne!(first, second);
    assert_eq!(client.ends("t", 1, Isolation::ReadUncommitted).await, [0]);
    client
        .produce("t", 0, Batch::of(&["new"]).build())
        .await
        .unwrap();
    let mut broker = broker.restart().await;
    for seed in 0..3 {
        let mut client = broker.client().await;
        assert_eq!(client.describe_topic("t").await.topic_id, second);
        let values = client.read_values("t", 0, Isolation::ReadUncommitted).await;
        assert_eq!(values, ["new"]);
        broker = broker.crash(seed).await.start().await;
    }
}
