//! Idempotent and transactional producers: what they send, and what they are told of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::Rng;
use rand::rngs::StdRng;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, PurgeConfig, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidemark_examples::clients;
use tidemark_examples::ledger::{Outcome, TxnId};
use tidemark_examples::transaction::{Remedy, decided, remedy, wait_for_deliveries};

use crate::{CALL, IDEMPOTENT_PRODUCERS, KEYS, NUMBERS, PARTITIONS, PATIENCE, Shared, TOPICS};

#[derive(Clone)]
struct Reports(Arc<Shared>);

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize; // the SendId
    fn delivery(&self, result: &DeliveryResult<'_>, id: usize) {
        match result {
            Ok(message) => {
                self.0.acked.fetch_add(1, Ordering::Relaxed);
                self.0.ledger().delivered(id, message.offset());
            }
            // Purged while still in the client's queue: it cannot be in the log.
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::PurgeQueue), _)) => {
                self.0.ledger().never_sent(id)
            }
            Err(_) => {} // stays unknown
        }
    }
}

fn send_numbered(
    shared: &Shared,
    producer: &ThreadedProducer<Reports>,
    index: usize,
    random: &mut StdRng,
    txn: Option<TxnId>,
) -> Result<(), KafkaError> {
    let topic = TOPICS[random.random_range(0..TOPICS.len())];
    let partition = random.random_range(0..PARTITIONS);
    let key = random.random_range(0..KEYS);
    let id = shared
        .ledger()
        .send(index, topic, partition, Some(key), txn);
    let key = format!("{index}-{key}");
    let payload = format!("{id} {}", "x".repeat(random.random_range(0..200)));
    let mut record = BaseRecord::with_opaque_to(topic, id)
        .partition(partition)
        .key(&key)
        .payload(&payload);
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                thread::sleep(Duration::from_millis(5));
            }
            Err((error, _)) => {
                shared.ledger().never_sent(id);
                return Err(error);
            }
        }
    }
}

pub(super) fn write_idempotent(
    shared: &Arc<Shared>,
    index: usize,
    mut random: StdRng,
) -> Result<()> {
    let producer: ThreadedProducer<Reports> = clients::many_batches_in_flight(shared.config())
        .create_with_context(Reports(shared.clone()))?;
    while shared.writing() {
        for _ in 0..random.random_range(1..20) {
            send_numbered(shared, &producer, index, &mut random, None)?;
        }
        while producer.in_flight_count() > 2_000 {
            thread::sleep(Duration::from_millis(10)); // the broker is away: do not pile up
        }
        thread::sleep(Duration::from_millis(random.random_range(1..20)));
    }
    producer
        .flush(PATIENCE)
        .context("some records were never answered")?;
    Ok(())
}

/// How a transaction came out, and whether the producer can be used again.
enum Ended {
    Continue,
    /// The producer was dropped with the transaction open, as a crashed client would leave it.
    Crashed,
    /// librdkafka said that this producer is finished.
    Finished,
}

pub(super) fn write_transactions(
    shared: &Arc<Shared>,
    index: usize,
    mut random: StdRng,
) -> Result<()> {
    // Its metadata is that of a consumer outside any group: offsets are then only guarded by the transaction.
    let consumer: BaseConsumer = shared.config().set("group.id", group_of(index)).create()?;
    let (mut number, mut left_open): (i64, Option<TxnId>) = (0, None);
    loop {
        let producer: ThreadedProducer<Reports> = shared
            .config()
            .set("transactional.id", format!("kill9-{index}"))
            .set("transaction.timeout.ms", "60000")
            .set("linger.ms", "1")
            .create_with_context(Reports(shared.clone()))?;
        decided(PATIENCE, || producer.init_transactions(CALL)).context("init_transactions")?;
        if let Some(txn) = left_open.take() {
            // Nobody ever asked to commit it, and now nobody can.
            shared.ledger().end(txn, Outcome::Fail);
            shared.aborted.fetch_add(1, Ordering::Relaxed);
        }
        loop {
            if !shared.writing() {
                return Ok(());
            }
            number += 1;
            let txn = shared.ledger().begin(index, number);
            match one_transaction(
                shared,
                &producer,
                &consumer,
                index,
                &mut random,
                txn,
                number,
            )? {
                Ended::Continue => {}
                Ended::Crashed => {
                    left_open = Some(txn);
                    break;
                }
                Ended::Finished => break,
            }
        }
    }
}

pub(super) fn group_of(index: usize) -> String {
    format!("kill9-group-{index}")
}

fn one_transaction(
    shared: &Shared,
    producer: &ThreadedProducer<Reports>,
    consumer: &BaseConsumer,
    index: usize,
    random: &mut StdRng,
    txn: TxnId,
    number: i64,
) -> Result<Ended> {
    producer.begin_transaction().context("begin")?;
    let mut failed = None;
    for _ in 0..random.random_range(1..=6) {
        if let Err(error) = send_numbered(shared, producer, index, random, Some(txn)) {
            failed = Some(error);
            break;
        }
    }
    if failed.is_none() && random.random_ratio(1, 10) {
        thread::sleep(Duration::from_millis(random.random_range(0..100))); // long enough to be killed in
    }
    if failed.is_none() && random.random_ratio(1, 40) {
        wait_for_deliveries(producer, Duration::from_millis(random.random_range(0..200)));
        producer.purge(PurgeConfig::default().queue().inflight());
        return Ok(Ended::Crashed);
    }
    let deliberate = random.random_ratio(1, 6);
    if failed.is_none() && deliberate && random.random_ratio(4, 5) {
        wait_for_deliveries(producer, CALL); // most aborts shall leave records in the log
    }
    let mut asked_to_commit = false;
    if failed.is_none() && !deliberate {
        let mut position = TopicPartitionList::new();
        position.add_partition_offset(
            NUMBERS,
            (index - IDEMPOTENT_PRODUCERS) as i32,
            Offset::Offset(number),
        )?;
        let group = consumer.group_metadata().context("no group metadata")?;
        failed = decided(PATIENCE, || {
            producer.send_offsets_to_transaction(&position, &group, CALL)
        })
        .err();
        if failed.is_none() {
            wait_for_deliveries(producer, CALL);
            asked_to_commit = true;
            match decided(PATIENCE, || producer.commit_transaction(CALL)) {
                Ok(()) => {
                    shared.ledger().end(txn, Outcome::Ok);
                    shared.committed.fetch_add(1, Ordering::Relaxed);
                    return Ok(Ended::Continue);
                }
                Err(error) => failed = Some(error),
            }
        }
    }
    if let Some(error) = &failed {
        eprintln!("producer {index}, transaction {number}: {error}");
        if remedy(error) != Remedy::Abort {
            // After a commit was asked for, nobody knows; before, the next init_transactions aborts it.
            return Ok(if asked_to_commit {
                Ended::Finished
            } else {
                Ended::Crashed
            });
        }
    }
    match decided(PATIENCE, || producer.abort_transaction(CALL)) {
        Ok(()) if !asked_to_commit => {
            shared.ledger().end(txn, Outcome::Fail);
            shared.aborted.fetch_add(1, Ordering::Relaxed);
            Ok(Ended::Continue)
        }
        Ok(()) => Ok(Ended::Continue),
        Err(error) => {
            eprintln!("producer {index}, abort of transaction {number}: {error}");
            Ok(if asked_to_commit {
                Ended::Finished
            } else {
                Ended::Crashed
            })
        }
    }
}
