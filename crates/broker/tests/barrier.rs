//! The reply barrier at the disk seam: while a sync is held nothing that depends on it leaves, not
//! an answer, not an error, not a watermark. Released, everything does.

use std::path::Path;

use bytes::Bytes;
use kafka_protocol::messages::{DeleteTopicsRequest, GroupId, HeartbeatRequest, ProduceResponse};
use kafka_protocol::protocol::{Decodable, HeaderVersion};
use tidemark_testkit::requests::{self, text, topic_name};
use tidemark_testkit::{
    Batch, DATA_DIR, InFlight, Isolation, RawClient, TestBroker, TxnProducer, enrolled, eventually,
    fetched, offsets_committed, produced, txn_offsets_committed, version,
};
use tidemark_types::ErrorCode;

/// Something in flight whose type does not matter while it waits.
trait Waits {
    fn is_answered(&mut self) -> bool;
}

impl<T: Decodable + HeaderVersion> Waits for InFlight<T> {
    fn is_answered(&mut self) -> bool {
        InFlight::is_answered(self)
    }
}

/// Reads a good while through another connection; nobody may have been answered at its end, and
/// the reader sees the offsets it saw before.
async fn nobody_is_answered(
    reader: &mut RawClient,
    ends: &[i64],
    stable: &[i64],
    waiting: &mut [(&str, &mut dyn Waits)],
) {
    let partitions = i32::try_from(ends.len()).unwrap();
    for _ in 0..20 {
        let seen = reader
            .ends("t", partitions, Isolation::ReadUncommitted)
            .await;
        assert_eq!(seen, ends);
        let seen = reader.ends("t", partitions, Isolation::ReadCommitted).await;
        assert_eq!(seen, stable);
        let from: Vec<(i32, i64)> = (0..).zip(ends.iter().copied()).collect();
        let request = requests::fetch("t", &from, Isolation::ReadUncommitted);
        let response = reader.send(version::FETCH, &request).await;
        for (fetched, (end, stable)) in fetched(&response).iter().zip(ends.iter().zip(stable)) {
            assert_eq!(fetched.high_watermark, *end);
            assert_eq!(fetched.last_stable_offset, *stable);
            assert!(fetched.batches.is_empty(), "an undurable batch was fetched");
        }
        for topic in ["new", "doomed"] {
            let described = reader.describe_topic(topic).await;
            let exists = described.error_code == ErrorCode::None.code();
            assert_eq!(exists, topic == "doomed", "{topic}");
        }
        for (what, request) in waiting.iter_mut() {
            assert!(
                !request.is_answered(),
                "{what} was answered while a sync is held"
            );
        }
    }
}

fn idempotent(producer: (i64, i16), sequence: i32, value: &str) -> Bytes {
    Batch::of(&[value])
        .producer(producer.0, producer.1, sequence)
        .build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_sync_is_held_nothing_leaves_and_no_watermark_moves() {
    let broker = TestBroker::start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 8).await;
    c.create_topic("doomed", 1).await;

    // Everybody gets as far as the request that will be held.
    let plain = c.init_producer_id(None).await.unwrap();
    c.produce("t", 1, idempotent(plain, 0, "first"))
        .await
        .unwrap();
    let mut commits = TxnProducer::init(&mut c, "commits").await;
    let mut aborts = TxnProducer::init(&mut c, "aborts").await;
    for (producer, partition) in [(&mut commits, 2), (&mut aborts, 3)] {
        producer.enrol(&mut c, &[("t", partition)]).await.unwrap();
        producer.send(&mut c, "t", partition, &["x"]).await.unwrap();
    }
    let ended = TxnProducer::init(&mut c, "ended").await;
    ended.enrol(&mut c, &[("t", 4)]).await.unwrap();
    ended.end(&mut c, true).await.unwrap();
    let enrols = TxnProducer::init(&mut c, "enrols").await;
    let adds_offsets = TxnProducer::init(&mut c, "adds-offsets").await;
    let commits_offsets = TxnProducer::init(&mut c, "commits-offsets").await;
    let offsets_of = commits_offsets.producer();
    c.add_offsets("commits-offsets", offsets_of, "g-txn")
        .await
        .unwrap();
    let fenced = TxnProducer::init(&mut c, "fenced").await;
    TxnProducer::init(&mut c, "fenced").await;
    c.commit_offsets("g-plain", &[("t", 0, 5)]).await.unwrap();

    let mut first = broker.hold_syncs_behind_a_record(&mut c, "t", 0).await;
    let mut reader = broker.client().await;
    let ends = reader.ends("t", 8, Isolation::ReadUncommitted).await;
    let stable = reader.ends("t", 8, Isolation::ReadCommitted).await;

    // Each on a connection of its own: what holds an answer back must be the barrier, not the
    // order of answers on a connection.
    let mut connections = Vec::new();
    macro_rules! start {
        ($version:expr, $request:expr) => {{
            let request = $request;
            connections.push(broker.client().await);
            let client = connections.last_mut().expect("just pushed");
            client.start_request($version, &request).await
        }};
    }
    let create = requests::create_topic("new", 1, &[]);
    let next = requests::produce(None, [("t", 1, idempotent(plain, 1, "next"))]);
    let end_commit = requests::end_txn("commits", commits.producer(), true);

    let mut create_topic = start!(version::CREATE_TOPICS, create.clone());
    let mut create_again = start!(version::CREATE_TOPICS, create);
    let mut delete_topic = start!(
        4,
        DeleteTopicsRequest::default()
            .with_topic_names(vec![topic_name("doomed")])
            .with_timeout_ms(30_000)
    );
    let mut produce = start!(version::PRODUCE, next.clone());
    let mut duplicate_in_flight = start!(version::PRODUCE, next);
    let mut duplicate = start!(
        version::PRODUCE,
        requests::produce(None, [("t", 1, idempotent(plain, 0, "first"))])
    );
    let mut out_of_order = start!(
        version::PRODUCE,
        requests::produce(None, [("t", 1, idempotent(plain, 9, "gap"))])
    );
    let mut add_partitions = start!(
        version::ADD_PARTITIONS_TO_TXN,
        requests::add_partitions("enrols", enrols.producer(), &[("t", 5), ("t", 6)])
    );
    let mut add_partitions_fenced = start!(
        version::ADD_PARTITIONS_TO_TXN,
        requests::add_partitions("fenced", fenced.producer(), &[("t", 6)])
    );
    let mut add_offsets = start!(
        version::ADD_OFFSETS_TO_TXN,
        requests::add_offsets("adds-offsets", adds_offsets.producer(), "g-other")
    );
    let mut txn_offset_commit = start!(
        version::TXN_OFFSET_COMMIT,
        requests::txn_offset_commit("commits-offsets", offsets_of, "g-txn", &[("t", 0, 7)])
    );
    let mut commit = start!(version::END_TXN, end_commit.clone());
    let mut commit_again = start!(version::END_TXN, end_commit);
    let mut abort = start!(
        version::END_TXN,
        requests::end_txn("aborts", aborts.producer(), false)
    );
    let mut end_retry = start!(
        version::END_TXN,
        requests::end_txn("ended", ended.producer(), true)
    );
    let mut offset_commit = start!(
        version::OFFSET_COMMIT,
        requests::offset_commit("g-plain", &[("t", 0, 6)])
    );
    let mut offset_fetch = start!(
        version::OFFSET_FETCH,
        requests::offset_fetch("g-plain", "t", &[0], false)
    );
    let mut init_transactional = start!(
        version::INIT_PRODUCER_ID,
        requests::init_producer_id(Some("fresh"), 60_000)
    );
    let mut init_idempotent = start!(
        version::INIT_PRODUCER_ID,
        requests::init_producer_id(None, 60_000)
    );
    let mut heartbeat = start!(
        3,
        HeartbeatRequest::default()
            .with_group_id(GroupId(text("g-plain")))
            .with_member_id(text("nobody"))
    );

    nobody_is_answered(
        &mut reader,
        &ends,
        &stable,
        &mut [
            ("Produce", &mut first),
            ("CreateTopics", &mut create_topic),
            ("CreateTopics of the same", &mut create_again),
            ("DeleteTopics", &mut delete_topic),
            ("idempotent Produce", &mut produce),
            ("duplicate in flight", &mut duplicate_in_flight),
            ("duplicate of a durable batch", &mut duplicate),
            ("Produce out of order", &mut out_of_order),
            ("AddPartitionsToTxn", &mut add_partitions),
            (
                "AddPartitionsToTxn of a fenced producer",
                &mut add_partitions_fenced,
            ),
            ("AddOffsetsToTxn", &mut add_offsets),
            ("TxnOffsetCommit", &mut txn_offset_commit),
            ("EndTxn commit", &mut commit),
            ("EndTxn commit, again", &mut commit_again),
            ("EndTxn abort", &mut abort),
            ("EndTxn of an ended transaction", &mut end_retry),
            ("OffsetCommit", &mut offset_commit),
            ("OffsetFetch, read through the owner", &mut offset_fetch),
            (
                "InitProducerId of a transactional id",
                &mut init_transactional,
            ),
            ("InitProducerId", &mut init_idempotent),
            ("Heartbeat of nobody", &mut heartbeat),
        ],
    )
    .await;

    broker.disk().release_syncs();
    assert_eq!(produced(&first.answer().await), [Ok(ends[0])]);
    // The topic was made once, whoever of the two was first.
    let mut created = [
        create_topic.answer().await.topics[0].error_code,
        create_again.answer().await.topics[0].error_code,
    ];
    created.sort_unstable();
    assert_eq!(created, [0, ErrorCode::TopicAlreadyExists.code()]);
    assert_eq!(delete_topic.answer().await.responses[0].error_code, 0);
    assert_eq!(produced(&produce.answer().await), [Ok(1)]);
    assert_eq!(produced(&duplicate_in_flight.answer().await), [Ok(1)]);
    assert_eq!(produced(&duplicate.answer().await), [Ok(0)]);
    assert_eq!(
        produced(&out_of_order.answer().await),
        [Err(ErrorCode::OutOfOrderSequenceNumber)]
    );
    assert_eq!(enrolled(&add_partitions.answer().await), Ok(()));
    assert_eq!(
        enrolled(&add_partitions_fenced.answer().await),
        Err(ErrorCode::InvalidProducerEpoch)
    );
    assert_eq!(add_offsets.answer().await.error_code, 0);
    let committed = txn_offset_commit.answer().await;
    assert_eq!(txn_offsets_committed(&committed), Ok(()));
    for end in [commit, commit_again, abort, end_retry] {
        assert_eq!(end.answer().await.error_code, 0);
    }
    assert_eq!(offsets_committed(&offset_commit.answer().await), Ok(()));
    let fetched = offset_fetch.answer().await.groups[0].topics[0].partitions[0].committed_offset;
    assert!(
        [5, 6].contains(&fetched),
        "before the commit or after it: {fetched}"
    );
    for init in [init_transactional, init_idempotent] {
        assert_eq!(init.answer().await.error_code, 0);
    }
    assert_ne!(heartbeat.answer().await.error_code, 0);

    // And now the watermarks have moved.
    let after = reader.ends("t", 8, Isolation::ReadUncommitted).await;
    let moved: Vec<i64> = after.iter().zip(&ends).map(|(a, b)| a - b).collect();
    assert_eq!(
        moved,
        [1, 1, 1, 1, 0, 0, 0, 0],
        "a record, a record, two markers"
    );
    assert_eq!(reader.ends("t", 8, Isolation::ReadCommitted).await, after);
    assert_eq!(
        reader.read_values("t", 2, Isolation::ReadCommitted).await,
        ["x"]
    );
    let aborted = reader.read_values("t", 3, Isolation::ReadCommitted).await;
    assert!(aborted.is_empty());
    assert_eq!(reader.describe_topic("new").await.error_code, 0);
    let doomed = reader.describe_topic("doomed").await.error_code;
    assert_eq!(doomed, ErrorCode::UnknownTopicOrPartition.code());
    let committed = reader.committed_offset("g-plain", "t", 0, true).await;
    assert_eq!(committed, Ok(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_when_the_power_goes_is_never_answered_as_done() {
    let broker = TestBroker::start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 1).await;
    let held = broker.hold_syncs_behind_a_record(&mut c, "t", 0).await;
    let stopped = broker.crash(11).await;
    if let Some(answer) = held.try_answer().await {
        assert_eq!(produced(&answer), [Err(ErrorCode::KafkaStorageError)]);
    }
    let broker = stopped.start().await;
    let mut c = broker.client().await;
    assert_eq!(
        c.ends("t", 1, Isolation::ReadCommitted).await,
        c.ends("t", 1, Isolation::ReadUncommitted).await
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t5_a_commit_over_64_partitions_is_one_record_and_one_sync() {
    let broker = TestBroker::start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 64).await;
    let mut producer = TxnProducer::init(&mut c, "tx").await;
    // At rest, as far as is known: nothing is being synced, and two looks see the same. The slot's header
    // and the mark after the last group are synced as well.
    let disk = broker.disk().clone();
    let look = || {
        let counts = disk.counts(Path::new(DATA_DIR));
        let stats = broker.journal_stats();
        (counts.syncs, counts.synced, stats.syncs + stats.other_syncs)
    };
    let mut before = look();
    eventually("the journal is idle", || {
        let now = look();
        let is_at_rest = now == before && now.0 == now.1;
        before = now;
        is_at_rest && broker.journal_stats().other_syncs >= 2
    })
    .await;
    let (_, synced_at_rest, syncs_at_rest) = before;

    let partitions: Vec<(&str, i32)> = (0..64).map(|p| ("t", p)).collect();
    for round in 0..20 {
        producer.enrol(&mut c, &partitions).await.unwrap();
        let batches: Vec<_> = (0..64)
            .map(|p| ("t", p, producer.batch("t", p, &["x"]).build()))
            .collect();
        let before = broker.journal_stats();
        let request = requests::produce(Some("tx"), batches);
        let answer = c.send(version::PRODUCE, &request).await;
        assert!(produced(&answer).iter().all(Result::is_ok));
        let after = broker.journal_stats();
        assert_eq!(after.records - before.records, 1, "a Produce is one record");
        assert_eq!(after.syncs - before.syncs, 1, "and one sync");
        producer
            .send_offsets(&mut c, "g", &[("t", 0, round)])
            .await
            .unwrap();

        let before = broker.journal_stats();
        producer.end(&mut c, round % 4 != 3).await.unwrap();
        let after = broker.journal_stats();
        assert_eq!(
            after.records - before.records,
            1,
            "an end of a transaction is one record"
        );
        assert_eq!(after.syncs - before.syncs, 1, "and one sync");
        let ends = [2 * (round + 1); 64];
        assert_eq!(c.ends("t", 64, Isolation::ReadCommitted).await, ends);
    }
    // No other sync is hidden anywhere: the disk saw those that the journal counts.
    eventually("the disk's count is the journal's", || {
        let syncs = broker.journal_stats().syncs + broker.journal_stats().other_syncs;
        disk.counts(Path::new(DATA_DIR)).synced - synced_at_rest == syncs - syncs_at_rest
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_in_flight_waits_for_the_original_and_has_its_offset() {
    let broker = TestBroker::start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 2).await;
    let producer = c.init_producer_id(None).await.unwrap();
    let first = idempotent(producer, 0, "b0");
    c.produce("t", 1, first).await.unwrap();

    let held = broker.hold_syncs_behind_a_record(&mut c, "t", 0).await;
    // Five batches in flight, and all five again over a new connection, as after a lost one.
    let requests: Vec<_> = (1..6)
        .map(|n| {
            let batch = idempotent(producer, n, &format!("b{n}"));
            requests::produce(None, [("t", 1, batch)])
        })
        .collect();
    let mut connections = [broker.client().await, broker.client().await];
    let mut answers: [Vec<InFlight<ProduceResponse>>; 2] = Default::default();
    for (connection, answers) in connections.iter_mut().zip(&mut answers) {
        for request in &requests {
            answers.push(connection.start_request(version::PRODUCE, request).await);
        }
    }
    let mut reader = broker.client().await;
    for _ in 0..20 {
        assert_eq!(reader.ends("t", 2, Isolation::ReadUncommitted).await[1], 1);
        let mut all = answers.iter_mut().flatten();
        assert!(
            !all.any(InFlight::is_answered),
            "answered while a sync is held"
        );
    }
    broker.disk().release_syncs();
    held.answer().await;
    for answers in answers {
        for (n, answer) in (1..).zip(answers) {
            assert_eq!(produced(&answer.answer().await), [Ok(n)]);
        }
    }
    let values = reader.read_values("t", 1, Isolation::ReadUncommitted).await;
    assert_eq!(values, ["b0", "b1", "b2", "b3", "b4", "b5"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_batch_on_two_connections_at_once_is_one_append() {
    const ROUNDS: i32 = 500;
    let broker = TestBroker::start().await;
    let mut one = broker.client().await;
    let mut two = broker.client().await;
    one.create_topic("t", 1).await;
    let producer = one.init_producer_id(None).await.unwrap();
    for n in 0..ROUNDS {
        let batch = idempotent(producer, n, &n.to_string());
        let (first, second) = tokio::join!(
            one.produce("t", 0, batch.clone()),
            two.produce("t", 0, batch)
        );
        assert_eq!((first, second), (Ok(i64::from(n)), Ok(i64::from(n))));
    }
    let values = one.read_values("t", 0, Isolation::ReadUncommitted).await;
    let expected: Vec<String> = (0..ROUNDS).map(|n| n.to_string()).collect();
    assert_eq!(values, expected);
}
