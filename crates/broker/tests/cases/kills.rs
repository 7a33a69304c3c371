//! The power goes at seeded random moments, in the middle of whatever is going on; the client goes on
//! where it was. Nothing is lost, doubled or halved.

use std::collections::VecDeque;

use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, EndTxnResponse, InitProducerIdResponse,
    TxnOffsetCommitResponse,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_testkit::{
    Batch, Dialect, InFlight, Isolation, RawClient, TestBroker, TxnProducer, enrolled, produced,
    requests, txn_offsets_committed, version,
};
use tidemark_types::ErrorCode;

use crate::support::{code, in_both_dialects};

/// A broker that loses its power, and one connection to it.
struct Stage {
    /// Taken while it is down.
    broker: Option<TestBroker>,
    client: RawClient,
    seed: u64,
    kills: u64,
}

impl Stage {
    async fn start(seed: u64) -> Stage {
        let broker = TestBroker::builder().seed(seed).start().await;
        let client = broker.client().await;
        Stage {
            broker: Some(broker),
            client,
            seed,
            kills: 0,
        }
    }

    /// The power goes within the `steps`-th change of the disk from now.
    fn cut_power_after(&self, steps: u64) {
        self.broker().disk().cut_power_after(steps);
    }

    fn broker(&self) -> &TestBroker {
        self.broker.as_ref().expect("it runs")
    }

    /// The power goes now, if it has not gone, and comes back.
    async fn kill(&mut self) {
        self.kills += 1;
        let broker = self.broker.take().expect("it runs");
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(self.kills);
        let broker = broker.crash(seed).await.start().await;
        self.client = broker.client().await;
        self.broker = Some(broker);
    }
}

/// Codes of a broker whose journal has stopped: what the request did is not known.
fn is_unknown(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::KafkaStorageError | ErrorCode::CoordinatorNotAvailable
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m2_an_idempotent_producer_is_killed_at_random_points() {
    const KILLS: u64 = 200;
    const RECORDS: i32 = 10_000;
    const BATCH: i32 = 5;
    const IN_FLIGHT: usize = 5;
    let mut random = StdRng::seed_from_u64(2);
    let mut stage = Stage::start(2).await;
    stage.client.create_topic("t", 1).await;
    let (id, epoch) = stage.client.init_producer_id(None).await.unwrap();
    let batch = |sequence: i32| {
        let values: Vec<String> = (sequence..sequence + BATCH)
            .map(|n| n.to_string())
            .collect();
        Batch::of(&values).producer(id, epoch, sequence).build()
    };

    let mut acked = 0;
    while stage.kills < KILLS || acked < RECORDS {
        stage.cut_power_after(random.random_range(1..60));
        // Five batches are always on their way, in order; after a kill from the first unacked one.
        let mut next = acked;
        let mut in_flight: VecDeque<InFlight<_>> = VecDeque::new();
        loop {
            while in_flight.len() < IN_FLIGHT {
                let request = requests::produce(None, [("t", 0, batch(next))]);
                let started = stage.client.start_request(version::PRODUCE, &request).await;
                in_flight.push_back(started);
                next += BATCH;
            }
            let first = in_flight.pop_front().expect("five are in flight");
            let Some(answer) = first.try_answer().await else {
                break;
            };
            match produced(&answer)[0] {
                Ok(offset) => {
                    assert_eq!(offset, i64::from(acked), "in order, at the first place");
                    acked += BATCH;
                }
                Err(error) if is_unknown(error) => break,
                Err(error) => panic!("sequence {acked} after {} kills: {error:?}", stage.kills),
            }
        }
        drop(in_flight);
        stage.kill().await;
    }

    // What was on its way at the last kill may be there or not, but whole and in order.
    let end = stage.client.ends("t", 1, Isolation::ReadUncommitted).await[0];
    assert!(
        end >= i64::from(acked),
        "{acked} records were acked, {end} are there"
    );
    let seen = stage
        .client
        .read_values("t", 0, Isolation::ReadUncommitted)
        .await;
    let want: Vec<String> = (0..end).map(|n| n.to_string()).collect();
    assert_eq!(seen, want);
}

/// What is left to do of a transaction that reads 42 of "in" and writes one record to "out".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Init,
    AddPartitions,
    Produce,
    AddOffsets,
    CommitOffsets,
    Commit,
    Done,
}

impl Step {
    /// In version 2 the batch and the offsets enrol by themselves.
    fn next(self, dialect: Dialect) -> Step {
        match self {
            Step::Init if dialect == Dialect::Version2 => Step::Produce,
            Step::Produce if dialect == Dialect::Version2 => Step::CommitOffsets,
            Step::Init => Step::AddPartitions,
            Step::AddPartitions => Step::Produce,
            Step::Produce => Step::AddOffsets,
            Step::AddOffsets => Step::CommitOffsets,
            Step::CommitOffsets => Step::Commit,
            Step::Commit | Step::Done => Step::Done,
        }
    }
}

struct Round {
    producer: TxnProducer,
    group: String,
    value: String,
}

impl Round {
    fn new(round: usize, dialect: Dialect) -> Round {
        Round {
            producer: TxnProducer::at(&format!("tx-{round}"), (-1, -1), dialect),
            group: format!("g-{round}"),
            value: format!("m-{round}"),
        }
    }

    /// Sends the request of a step; `None` if the connection closes instead of an answer.
    async fn send(&mut self, client: &mut RawClient, step: Step) -> Option<Result<(), ErrorCode>> {
        let result = |error: i16| match code(error) {
            ErrorCode::None => Ok(()),
            error => Err(error),
        };
        let id = self.producer.id.clone();
        let producer = self.producer.producer();
        Some(match step {
            Step::Init => {
                let request = requests::init_producer_id(Some(&id), 60_000);
                let answer: InitProducerIdResponse =
                    client.try_send(version::INIT_PRODUCER_ID, &request).await?;
                self.producer.producer_id = answer.producer_id.0;
                self.producer.epoch = answer.producer_epoch;
                result(answer.error_code)
            }
            Step::AddPartitions => {
                let request = requests::add_partitions(&id, producer, &[("out", 0)]);
                let answer: AddPartitionsToTxnResponse = client
                    .try_send(version::ADD_PARTITIONS_TO_TXN, &request)
                    .await?;
                enrolled(&answer)
            }
            Step::Produce => {
                let batch = Batch::of(&[&self.value])
                    .producer(producer.0, producer.1, 0)
                    .transactional();
                let request = requests::produce(Some(&id), [("out", 0, batch.build())]);
                let version = self.producer.dialect.produce_version();
                produced(&client.try_send(version, &request).await?)[0].map(|_| ())
            }
            Step::AddOffsets => {
                let request = requests::add_offsets(&id, producer, &self.group);
                let answer: AddOffsetsToTxnResponse = client
                    .try_send(version::ADD_OFFSETS_TO_TXN, &request)
                    .await?;
                result(answer.error_code)
            }
            Step::CommitOffsets => {
                let offsets = [("in", 0, 43)];
                let request = requests::txn_offset_commit(&id, producer, &self.group, &offsets);
                let version = self.producer.dialect.txn_offset_commit_version();
                let answer: TxnOffsetCommitResponse = client.try_send(version, &request).await?;
                txn_offsets_committed(&answer)
            }
            Step::Commit => {
                let request = requests::end_txn(&id, producer, true);
                let version = self.producer.dialect.end_txn_version();
                let answer: EndTxnResponse = client.try_send(version, &request).await?;
                result(answer.error_code)
            }
            Step::Done => Ok(()),
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a9_a_restart_of_the_coordinator_does_not_halve_a_transaction() {
    in_both_dialects(a9_story).await;
}

async fn a9_story(dialect: Dialect) {
    const ROUNDS: usize = 200;
    let mut random = StdRng::seed_from_u64(9);
    let mut stage = Stage::start(9).await;
    stage.client.create_topic("in", 1).await;
    stage.client.create_topic("out", 1).await;
    let mut committed = Vec::new();
    // "Sometimes": the test is only worth something if all of it happens.
    let (mut killed_within_a_step, mut given_up, mut decided_unheard) = (0, 0, 0);

    for number in 0..ROUNDS {
        let mut round = Round::new(number, dialect);
        // The client of some rounds is gone after the kill, and another instance takes over.
        let gives_up = random.random_bool(0.3);
        let steps = match dialect {
            Dialect::Classic => 6,
            Dialect::Version2 => 4,
        };
        let armed_at = random.random_range(0..steps);
        let mut step = Step::Init;
        let mut kills_left = 1;
        let mut steps_done = 0;
        let mut gone = false;
        while step != Step::Done && !gone {
            if kills_left > 0 && steps_done == armed_at {
                stage.cut_power_after(random.random_range(1..6));
            }
            match round.send(&mut stage.client, step).await {
                Some(Ok(())) => {
                    step = step.next(dialect);
                    steps_done += 1;
                }
                Some(Err(error)) if !is_unknown(error) => {
                    panic!(
                        "round {number}, {step:?} after {} kills: {error:?}",
                        stage.kills
                    )
                }
                // The same request again, to the broker that comes back.
                Some(Err(_)) | None => {
                    killed_within_a_step += 1;
                    kills_left -= 1;
                    stage.kill().await;
                    gone = gives_up;
                }
            }
        }
        if kills_left > 0 {
            // The power did not go before the end: it goes after it.
            stage.kill().await;
        }
        if gone {
            given_up += 1;
            let id = &round.producer.id;
            stage
                .client
                .init_producer_id(Some(id))
                .await
                .expect("another instance");
        }

        let seen = stage
            .client
            .read_values("out", 0, Isolation::ReadCommitted)
            .await;
        let visible = seen.contains(&round.value);
        let offset = stage
            .client
            .committed_offset(&round.group, "in", 0, true)
            .await;
        let want = if visible { 43 } else { -1 };
        assert_eq!(offset, Ok(want), "round {number}: all or nothing");
        if step == Step::Done {
            assert!(visible, "round {number}: the commit was answered");
        } else if visible {
            assert_eq!(step, Step::Commit, "round {number}: nobody committed");
            decided_unheard += 1;
        }
        if visible {
            committed.push(round.value);
        }
    }

    let seen = stage
        .client
        .read_values("out", 0, Isolation::ReadCommitted)
        .await;
    assert_eq!(seen, committed, "each once, in order");
    let ends = stage.client.ends("out", 1, Isolation::ReadCommitted).await;
    assert_eq!(
        ends,
        stage
            .client
            .ends("out", 1, Isolation::ReadUncommitted)
            .await
    );
    println!(
        "rounds {ROUNDS}, committed {}, killed within a step {killed_within_a_step}, given up \
         {given_up}, committed without an answer {decided_unheard}",
        committed.len()
    );
    assert!(killed_within_a_step >= 100 && given_up >= 20 && committed.len() >= 100);
}
