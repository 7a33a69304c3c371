//! The clients: each works until its broker is gone and goes on where it was after the next start.

use std::collections::VecDeque;

use kafka_protocol::messages::ProduceResponse;
use parking_lot::Mutex;
use tidemark_testkit::requests::{self, error_code};
use tidemark_testkit::{
    Batch, Dialect, InFlight, Isolation, RawClient, TestBroker, TxnProducer, enrolled, fetched,
    listed, offsets_committed, produced, txn_offsets_committed, version,
};
use tidemark_types::ErrorCode;

use super::janitor;
use super::ledger::{Fate, Ledger, PARTITIONS, PLAIN_GROUP, TOPIC, Txn};

/// The broker is gone; what was asked last may have happened.
pub struct Gone;

/// What a call on a broker that loses its power came to.
pub fn or_gone<T>(answer: Option<T>, error: impl Fn(&T) -> ErrorCode) -> Result<T, Gone> {
    let answer = answer.ok_or(Gone)?;
    match error(&answer) {
        ErrorCode::None => Ok(answer),
        // The journal has stopped under it.
        ErrorCode::KafkaStorageError
        | ErrorCode::RequestTimedOut
        | ErrorCode::NotCoordinator
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotLeaderOrFollower => Err(Gone),
        other => panic!("a healthy request was answered {other:?}"),
    }
}

pub fn first_error<T>(result: Result<T, ErrorCode>) -> ErrorCode {
    result.err().unwrap_or(ErrorCode::None)
}

pub struct Writers {
    idempotent: [IdempotentWriter; 2],
    transactional: [TransactionalWriter; 2],
    rounds: u32,
}

impl Writers {
    pub async fn new(client: &mut RawClient) -> Writers {
        let idempotent = |partition, producer| IdempotentWriter {
            partition,
            producer,
            next: 0,
            unanswered: VecDeque::new(),
        };
        let first = client
            .init_producer_id(None)
            .await
            .expect("a healthy broker");
        let second = client
            .init_producer_id(None)
            .await
            .expect("a healthy broker");
        Writers {
            idempotent: [idempotent(0, first), idempotent(1, second)],
            transactional: TRANSACTIONAL_IDS.map(TransactionalWriter::new),
            rounds: 0,
        }
    }

    /// Everybody works until the broker is gone.
    /// With a number of checkpoints the janitor works too.
    pub async fn work(
        &mut self,
        broker: &TestBroker,
        ledger: &Mutex<Ledger>,
        checkpoints: Option<u32>,
    ) {
        self.rounds += 1;
        let [i0, i1] = &mut self.idempotent;
        let [t0, t1] = &mut self.transactional;
        let mut clients = Vec::new();
        for _ in 0..11 {
            clients.push(broker.client().await);
        }
        let [c0, c1, c2, c3, c4, c5, c6, janitors @ ..] = &mut clients[..] else {
            unreachable!("eleven were made")
        };
        let [c7, c8, c9, c10] = janitors else {
            unreachable!("eleven were made")
        };
        let at_work = checkpoints.is_some();
        let clients = async {
            tokio::join!(
                i0.work(c0, ledger),
                i1.work(c1, ledger),
                t0.work(c2, ledger),
                t1.work(c3, ledger),
                commit_offsets(c4, ledger),
                create_topics(c5, ledger, self.rounds),
                read(c6, ledger),
                janitor::work([c7, c8, c9, c10], broker, ledger, self.rounds, at_work),
            )
        };
        tokio::select! {
            _all_are_gone = clients => {}
            never = janitor::checkpoint(broker, checkpoints.unwrap_or(0)) => match never {},
        }
    }

    /// New producer ids, for whom nothing was lost.
    pub async fn begin_anew(&mut self, client: &mut RawClient) {
        for writer in &mut self.idempotent {
            let producer = client.init_producer_id(None).await;
            writer.producer = producer.expect("a healthy broker");
            writer.next = 0;
            writer.unanswered.clear();
        }
    }
}

const TRANSACTIONAL_IDS: [&str; 2] = ["a", "b"];

/// New sessions of the transactional ids: whatever they had open is aborted.
pub async fn end_open_transactions(client: &mut RawClient) {
    for id in TRANSACTIONAL_IDS {
        TxnProducer::init(client, id).await;
    }
}

/// An idempotent producer with up to five batches in flight. It sends again what was not answered,
/// as librdkafka does after a lost connection.
struct IdempotentWriter {
    partition: i32,
    producer: (i64, i16),
    /// The sequence number of the next new batch of one record.
    next: i32,
    unanswered: VecDeque<i32>,
}

impl IdempotentWriter {
    fn value(&self, sequence: i32) -> String {
        format!("idempotent-{}-{sequence}", self.producer.0)
    }

    async fn start(&self, client: &mut RawClient, sequence: i32) -> InFlight<ProduceResponse> {
        let batch = Batch::of(&[self.value(sequence)])
            .producer(self.producer.0, self.producer.1, sequence)
            .build();
        let request = requests::produce(None, [(TOPIC, self.partition, batch)]);
        client.start_request(version::PRODUCE, &request).await
    }

    async fn work(
        &mut self,
        client: &mut RawClient,
        ledger: &Mutex<Ledger>,
    ) -> Result<std::convert::Infallible, Gone> {
        let mut in_flight = VecDeque::new();
        for sequence in &self.unanswered {
            in_flight.push_back(self.start(client, *sequence).await);
        }
        loop {
            while in_flight.len() < 5 {
                let sequence = self.next;
                self.next += 1;
                self.unanswered.push_back(sequence);
                ledger.lock().sent.insert(self.value(sequence));
                in_flight.push_back(self.start(client, sequence).await);
            }
            let answer = in_flight.pop_front().expect("five").try_answer().await;
            let answer = or_gone(answer, |a| first_error(produced(a)[0]))?;
            let sequence = self.unanswered.pop_front().expect("as many as in flight");
            let offset = produced(&answer)[0].expect("looked at above");
            let record = (self.partition, self.value(sequence));
            ledger.lock().acked.insert(record, offset);
        }
    }
}

/// A transactional producer: a record into every partition, sometimes an offset, an end.
struct TransactionalWriter {
    id: String,
    group: String,
    next: i64,
}

impl TransactionalWriter {
    fn new(id: &str) -> TransactionalWriter {
        TransactionalWriter {
            id: id.to_owned(),
            group: format!("g-{id}"),
            next: 0,
        }
    }

    async fn work(
        &mut self,
        client: &mut RawClient,
        ledger: &Mutex<Ledger>,
    ) -> Result<std::convert::Infallible, Gone> {
        let request = requests::init_producer_id(Some(&self.id), 60_000);
        let answer = client.try_send(version::INIT_PRODUCER_ID, &request).await;
        let answer = or_gone(answer, |a| error_code(a.error_code))?;
        let granted = (answer.producer_id.0, answer.producer_epoch);
        let mut session = TxnProducer::at(&self.id, granted, Dialect::Classic);
        loop {
            self.one_transaction(client, &mut session, ledger).await?;
        }
    }

    async fn one_transaction(
        &mut self,
        client: &mut RawClient,
        session: &mut TxnProducer,
        ledger: &Mutex<Ledger>,
    ) -> Result<(), Gone> {
        let number = self.next;
        self.next += 1;
        let value = format!("transaction-{}-{number}", self.id);
        let (commit, with_offset) = (number % 4 != 3, number % 3 != 0);
        let producer = session.producer();
        {
            let mut ledger = ledger.lock();
            ledger.sent.insert(value.clone());
            let txn = Txn {
                group: self.group.clone(),
                number,
                with_offset,
                fate: Fate::Open,
            };
            ledger.txns.insert(value.clone(), txn);
        }
        let set_fate = |fate| {
            let mut ledger = ledger.lock();
            ledger.txns.get_mut(&value).expect("just put there").fate = fate;
        };

        let partitions: Vec<(&str, i32)> = (0..PARTITIONS).map(|p| (TOPIC, p)).collect();
        let request = requests::add_partitions(&self.id, producer, &partitions);
        let answer = client
            .try_send(version::ADD_PARTITIONS_TO_TXN, &request)
            .await;
        or_gone(answer, |a| first_error(enrolled(a)))?;

        let batches: Vec<_> = (0..PARTITIONS)
            .map(|p| (TOPIC, p, session.batch(TOPIC, p, &[&value]).build()))
            .collect();
        let request = requests::produce(Some(&self.id), batches);
        let answer = client.try_send(version::PRODUCE, &request).await;
        let answer = or_gone(answer, |a| {
            first_error(produced(a).into_iter().collect::<Result<Vec<_>, _>>())
        })?;
        for (partition, offset) in (0..).zip(produced(&answer)) {
            let offset = offset.expect("looked at above");
            ledger
                .lock()
                .acked
                .insert((partition, value.clone()), offset);
        }

        if with_offset {
            let request = requests::add_offsets(&self.id, producer, &self.group);
            let answer = client.try_send(version::ADD_OFFSETS_TO_TXN, &request).await;
            or_gone(answer, |a| error_code(a.error_code))?;
            let offsets = [(TOPIC, 0, number)];
            let request = requests::txn_offset_commit(&self.id, producer, &self.group, &offsets);
            let answer = client.try_send(version::TXN_OFFSET_COMMIT, &request).await;
            or_gone(answer, |a| first_error(txn_offsets_committed(a)))?;
        }

        set_fate(Fate::Ending { commit });
        let request = requests::end_txn(&self.id, producer, commit);
        let answer = client.try_send(version::END_TXN, &request).await;
        or_gone(answer, |a| error_code(a.error_code))?;
        set_fate(Fate::Ended { commit });
        Ok(())
    }
}

/// A group without members commits one offset after the other.
async fn commit_offsets(
    client: &mut RawClient,
    ledger: &Mutex<Ledger>,
) -> Result<std::convert::Infallible, Gone> {
    loop {
        let offset = ledger.lock().plain_sent + 1;
        ledger.lock().plain_sent = offset;
        let request = requests::offset_commit(PLAIN_GROUP, &[(TOPIC, 0, offset)]);
        let answer = client.try_send(version::OFFSET_COMMIT, &request).await;
        or_gone(answer, |a| first_error(offsets_committed(a)))?;
        ledger.lock().plain_acked = offset;
    }
}

/// Makes a few topics, then only asks for them.
async fn create_topics(
    client: &mut RawClient,
    ledger: &Mutex<Ledger>,
    round: u32,
) -> Result<std::convert::Infallible, Gone> {
    for n in 0..3 {
        let name = format!("made-{round}-{n}");
        let request = requests::create_topic(&name, 1, &[]);
        let answer = client.try_send(version::CREATE_TOPICS, &request).await;
        or_gone(answer, |a| error_code(a.topics[0].error_code))?;
        ledger.lock().topics.insert(name, None);
    }
    Err(Gone)
}

/// Reads every partition and remembers what it was told.
async fn read(
    client: &mut RawClient,
    ledger: &Mutex<Ledger>,
) -> Result<std::convert::Infallible, Gone> {
    let mut next = [0; PARTITIONS as usize];
    loop {
        let mut ends = Vec::new();
        for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
            let request = requests::list_offsets(TOPIC, 0..PARTITIONS, requests::LATEST, isolation);
            let answer = client.try_send(version::LIST_OFFSETS, &request).await;
            ends.push(listed(&answer.ok_or(Gone)?));
        }
        let from: Vec<(i32, i64)> = (0..).zip(next).collect();
        let request = requests::fetch(TOPIC, &from, Isolation::ReadUncommitted);
        let answer = client
            .try_send(version::FETCH, &request)
            .await
            .ok_or(Gone)?;
        let mut ledger = ledger.lock();
        for ((partition, high), (_, stable)) in ends[0].iter().zip(&ends[1]) {
            let seen = ledger.ends.entry(*partition).or_insert((0, 0));
            seen.0 = seen.0.max(high.map_err(|_| Gone)?);
            seen.1 = seen.1.max(stable.map_err(|_| Gone)?);
        }
        for fetched in fetched(&answer) {
            for record in fetched.records() {
                let at = (fetched.partition, record.offset);
                ledger.seen.insert(at, record.text());
            }
            let next = &mut next[fetched.partition as usize];
            *next = fetched.next_offset().unwrap_or(*next);
        }
    }
}
