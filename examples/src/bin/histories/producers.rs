//! Producers: transactional ones, which also abort, stop in the middle, take too long and are replaced while they work;
//! and idempotent ones.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::Rng;
use rand::rngs::StdRng;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, PurgeConfig, ThreadedProducer};
use tidemark_examples::clients;
use tidemark_examples::transaction::{Remedy, decided, remedy, wait_for_deliveries};
use tidemark_histcheck::history::Event;

use crate::recorder::{error_name, now};
use crate::shared::{BANK, CALL, MIXED, SOURCE, Shared, TOPICS};

/// Some producers' transactions may last no longer, and now and then last longer all the same.
const SHORT_TIMEOUT_MS: u64 = 1_000;
const LONG_TIMEOUT_MS: u64 = 60_000;

#[derive(Clone)]
pub struct Reports(Arc<Shared>);

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize; // the record's value
    fn delivery(&self, result: &DeliveryResult<'_>, value: usize) {
        let (offset, error) = match result {
            Ok(message) => (Some(message.offset()), None),
            Err((error, _)) => (None, Some(error_name(error))),
        };
        self.0.recorder.write(&Event::Sent {
            at: now(),
            value: value as u64,
            offset,
            error,
        });
    }
}

/// A producer as the history knows it.
pub struct Sender {
    pub name: String,
    pub producer: ThreadedProducer<Reports>,
    shared: Arc<Shared>,
}

/// What is sent beside the value.
#[derive(Clone, Copy, Default)]
pub struct Meaning {
    pub input: Option<u64>,
    pub amount: Option<i64>,
}

/// How a transaction came out, and whether the producer can be used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Committed,
    Aborted,
    /// The producer is finished, or was left with its transaction open: another one has to begin.
    Gone,
}

impl Sender {
    pub fn transactional(
        shared: &Arc<Shared>,
        name: String,
        id: &str,
        timeout_ms: u64,
    ) -> Result<Sender> {
        shared.introduce(&name, Some(id), Some(timeout_ms));
        let producer: ThreadedProducer<Reports> = shared
            .config()
            .set("transactional.id", id)
            .set("transaction.timeout.ms", timeout_ms.to_string())
            .set("linger.ms", "0")
            .create_with_context(Reports(shared.clone()))?;
        let from = now();
        let result = decided(shared.patience, || producer.init_transactions(CALL));
        shared.recorder.write(&Event::Init {
            from,
            to: now(),
            client: name.clone(),
            error: result.as_ref().err().map(error_name),
        });
        result.with_context(|| format!("{name}: init_transactions"))?;
        Ok(Sender {
            name,
            producer,
            shared: shared.clone(),
        })
    }

    fn idempotent(shared: &Arc<Shared>, name: String) -> Result<Sender> {
        shared.introduce(&name, None, None);
        let producer = clients::many_batches_in_flight(shared.config())
            .create_with_context(Reports(shared.clone()))?;
        Ok(Sender {
            name,
            producer,
            shared: shared.clone(),
        })
    }

    /// Begins a transaction; answers its number.
    pub fn begin(&self) -> Result<u64> {
        let txn = self.shared.recorder.unique();
        self.shared.recorder.write(&Event::Begin {
            at: now(),
            client: self.name.clone(),
            txn,
        });
        let begun = self.producer.begin_transaction();
        begun.with_context(|| format!("{}: begin", self.name))?;
        Ok(txn)
    }

    pub fn send(
        &self,
        txn: Option<u64>,
        topic: &str,
        partition: i32,
        meaning: Meaning,
        padding: usize,
    ) -> Result<(), KafkaError> {
        let value = self.shared.recorder.unique();
        let payload = format!("{value} {}", "x".repeat(padding));
        self.shared.recorder.write(&Event::Send {
            at: now(),
            client: self.name.clone(),
            txn,
            topic: topic.to_owned(),
            partition,
            value,
            input: meaning.input,
            amount: meaning.amount,
        });
        let mut record = BaseRecord::with_opaque_to(topic, value as usize)
            .partition(partition)
            .key("")
            .payload(&payload);
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    thread::sleep(Duration::from_millis(5));
                }
                Err((error, _)) => {
                    self.shared.recorder.write(&Event::Sent {
                        at: now(),
                        value,
                        offset: None,
                        error: Some("NEVER_SENT".to_owned()),
                    });
                    return Err(error);
                }
            }
        }
    }

    /// Asks for the end of a transaction until it is known.
    pub fn end(&self, txn: u64, commit: bool) -> Result<(), KafkaError> {
        let from = now();
        let result = decided(self.shared.patience, || match commit {
            true => self.producer.commit_transaction(CALL),
            false => self.producer.abort_transaction(CALL),
        });
        self.shared.recorder.write(&Event::End {
            from,
            to: now(),
            client: self.name.clone(),
            txn,
            commit,
            error: result.as_ref().err().map(error_name),
        });
        result
    }

    /// Commits, or, when `failed` says why not, aborts, as far as the producer can.
    pub fn finish(&self, txn: u64, failed: Option<KafkaError>, commit: bool) -> Ended {
        let mut failed = failed;
        if failed.is_none() && commit {
            wait_for_deliveries(&self.producer, CALL);
            match self.end(txn, true) {
                Ok(()) => return Ended::Committed,
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = &failed {
            eprintln!("{}, transaction {txn}: {error}", self.name);
            if remedy(error) != Remedy::Abort {
                return self.gone();
            }
        }
        match self.end(txn, false) {
            Ok(()) => Ended::Aborted,
            Err(error) => {
                eprintln!("{}, abort of transaction {txn}: {error}", self.name);
                self.gone()
            }
        }
    }

    /// As a client that dies would leave it: what is not answered is dropped.
    pub fn gone(&self) -> Ended {
        self.producer
            .purge(PurgeConfig::default().queue().inflight());
        Ended::Gone
    }
}

/// Sends without transactions until it is to stop; every record is answered in the end.
pub fn idempotent(shared: &Arc<Shared>, index: usize, mut random: StdRng) -> Result<()> {
    let sender = Sender::idempotent(shared, format!("idempotent-{index}"))?;
    while shared.writing() {
        for _ in 0..random.random_range(1..12) {
            let (topic, partition) = anywhere(&mut random);
            let padding = random.random_range(0..100);
            sender.send(None, topic, partition, Meaning::default(), padding)?;
        }
        while sender.producer.in_flight_count() > 500 {
            thread::sleep(Duration::from_millis(5)); // the broker is away: do not pile up
        }
        thread::sleep(Duration::from_millis(random.random_range(1..30)));
    }
    let answered = sender.producer.flush(shared.patience);
    answered.with_context(|| format!("{}: some records were never answered", sender.name))
}

fn anywhere(random: &mut StdRng) -> (&'static str, i32) {
    let topic = match random.random_ratio(2, 3) {
        true => SOURCE,
        false => MIXED,
    };
    (topic, partition_of(topic, random))
}

pub fn partition_of(topic: &str, random: &mut StdRng) -> i32 {
    let of = TOPICS.iter().find(|(name, _)| *name == topic);
    random.random_range(0..of.map_or(1, |(_, partitions)| *partitions))
}

/// Transactions until it is to stop. Every second producer's are not allowed to last long.
pub fn transactional(shared: &Arc<Shared>, index: usize, mut random: StdRng) -> Result<()> {
    let id = format!("producer-{index}");
    let timeout_ms = match index % 2 {
        0 => LONG_TIMEOUT_MS,
        _ => SHORT_TIMEOUT_MS,
    };
    let mut instance = 0;
    loop {
        instance += 1;
        let name = format!("{id}.{instance}");
        let mut sender = Sender::transactional(shared, name, &id, timeout_ms)?;
        // The first thing an instance does is to end what its predecessor left open; so it stops here, not before.
        loop {
            if !shared.writing() {
                return Ok(());
            }
            if random.random_ratio(1, 80) {
                instance += 1;
                let next = format!("{id}.{instance}");
                let next = Sender::transactional_beside(
                    shared,
                    next,
                    &id,
                    timeout_ms,
                    sender,
                    &mut random,
                )?;
                match next {
                    Some(next) => sender = next,
                    None => break,
                }
            }
            let txn = sender.begin()?;
            let mut failed = fill(&sender, txn, &mut random);
            if failed.is_none() && random.random_ratio(1, 80) {
                wait_for_deliveries(
                    &sender.producer,
                    Duration::from_millis(random.random_range(0..200)),
                );
                sender.gone();
                break;
            }
            // Some transactions last a while, and some of those that must not last longer than they may.
            let too_long = timeout_ms == SHORT_TIMEOUT_MS && random.random_ratio(1, 20);
            if failed.is_none() && (too_long || random.random_ratio(1, 12)) {
                let ms = match too_long {
                    true => random.random_range(SHORT_TIMEOUT_MS..2 * SHORT_TIMEOUT_MS),
                    false => random.random_range(0..60),
                };
                thread::sleep(Duration::from_millis(ms));
                if random.random_ratio(2, 3) {
                    failed = fill(&sender, txn, &mut random);
                }
            }
            let commit = !random.random_ratio(1, 8);
            if !commit && failed.is_none() && random.random_ratio(4, 5) {
                wait_for_deliveries(&sender.producer, CALL); // most aborts shall leave records in the log
            }
            if sender.finish(txn, failed, commit) == Ended::Gone {
                break;
            }
        }
    }
}

impl Sender {
    /// Makes a new instance of the id while `earlier` is at work, which knows nothing of it and goes on: with its first
    /// records, or to commit what it has sent while the new one is in a transaction of its own. `None`: the new one is
    /// finished too.
    fn transactional_beside(
        shared: &Arc<Shared>,
        name: String,
        id: &str,
        timeout_ms: u64,
        earlier: Sender,
        random: &mut StdRng,
    ) -> Result<Option<Sender>> {
        let txn = earlier.begin()?;
        let sends_first = random.random_ratio(1, 2);
        if sends_first {
            let failed = fill(&earlier, txn, random);
            wait_for_deliveries(&earlier.producer, CALL);
            if failed.is_some() {
                earlier.gone();
                return Ok(None);
            }
        }
        let next = Sender::transactional(shared, name, id, timeout_ms)?;
        if sends_first {
            let own = next.begin()?;
            let failed = fill(&next, own, random);
            wait_for_deliveries(&next.producer, CALL);
            let _refused = earlier.end(txn, true);
            earlier.gone();
            let gone = next.finish(own, failed, random.random_ratio(1, 2)) == Ended::Gone;
            return Ok((!gone).then_some(next));
        }
        if fill(&earlier, txn, random).is_none() {
            wait_for_deliveries(&earlier.producer, Duration::from_secs(1));
            let _refused = earlier.end(txn, true);
        }
        earlier.gone();
        Ok(Some(next))
    }
}

/// Records of a transaction: a transfer, or some anywhere. Answers why it cannot go on.
fn fill(sender: &Sender, txn: u64, random: &mut StdRng) -> Option<KafkaError> {
    let padding = random.random_range(0..100);
    if random.random_ratio(1, 3) {
        let amount = random.random_range(1..1000);
        // Both accounts may be in one partition.
        for amount in [amount, -amount] {
            let meaning = Meaning {
                amount: Some(amount),
                ..Meaning::default()
            };
            let partition = partition_of(BANK, random);
            if let Err(error) = sender.send(Some(txn), BANK, partition, meaning, padding) {
                return Some(error);
            }
        }
        return None;
    }
    for _ in 0..random.random_range(1..=6) {
        let (topic, partition) = anywhere(random);
        let sent = sender.send(Some(txn), topic, partition, Meaning::default(), padding);
        if let Err(error) = sent {
            return Some(error);
        }
    }
    None
}
