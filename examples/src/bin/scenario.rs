//! The verbs of the clients' scenario (`tests/clients/lib/scenario.py`), on librdkafka through the rdkafka crate.
//! One verb a line on standard input, one answer a line on standard output.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use futures_executor::block_on;
use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let mut program = Program {
        broker: std::env::args()
            .nth(1)
            .context("usage: scenario HOST:PORT")?,
        producers: BTreeMap::new(),
        seen: Arc::default(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split('\t').collect();
        let answer = match program.perform(&words) {
            Ok(values) => {
                let mut answer = vec!["ok".to_owned()];
                answer.extend(values);
                answer.join("\t")
            }
            Err(error) => {
                let text = format!("{error:#}");
                let text: Vec<&str> = text.split_whitespace().collect();
                format!("err\t{}\t{}", kind(&error), text.join(" "))
            }
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn kind(error: &anyhow::Error) -> &'static str {
    let Some(error) = error.downcast_ref::<KafkaError>() else {
        return "other";
    };
    let fatal = matches!(error, KafkaError::Transaction(e) if e.is_fatal());
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch,
        ) => "fenced",
        Some(RDKafkaErrorCode::Fatal) => "fatal",
        _ if fatal => "fatal",
        _ => "other",
    }
}

/// What the member of a group has and has read.
#[derive(Default)]
struct Seen {
    assigned: BTreeSet<i32>,
    received: Vec<String>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts what is not yet answered and keeps the first error.
#[derive(Default)]
struct Acks {
    answered: AtomicUsize,
    error: Mutex<Option<KafkaError>>,
}

impl ClientContext for Acks {}

impl ProducerContext for Acks {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            lock(&self.error).get_or_insert_with(|| error.clone());
        }
        self.answered.fetch_add(1, Ordering::Release);
    }
}

type Writer = ThreadedProducer<Acks>;

struct Member(Arc<Mutex<Seen>>);

impl ClientContext for Member {}

impl ConsumerContext for Member {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(list) = rebalance {
            for element in list.elements() {
                lock(&self.0).assigned.remove(&element.partition());
            }
        }
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance {
            for element in list.elements() {
                lock(&self.0).assigned.insert(element.partition());
            }
        }
    }
}

struct Program {
    broker: String,
    producers: BTreeMap<String, Writer>,
    seen: Arc<Mutex<Seen>>,
}

impl Program {
    fn perform(&mut self, words: &[&str]) -> Result<Vec<String>> {
        let none = Vec::new();
        match *words {
            ["hello"] => {
                let (_, librdkafka) = rdkafka::util::get_rdkafka_version();
                Ok(["rdkafka", "0.39.0", "librdkafka", &librdkafka]
                    .map(str::to_owned)
                    .to_vec())
            }
            ["reconnects"] => Ok(none),
            // zstd is a feature of the crate that this build leaves out.
            ["codecs"] => Ok(["none", "gzip", "snappy", "lz4"]
                .map(str::to_owned)
                .to_vec()),
            ["producer", name, how] => self.producer(name, how, None).map(|()| none),
            ["producer", name, how, id] => self.producer(name, how, Some(id)).map(|()| none),
            ["send", name, topic, partition, value] => self
                .deliver(name, topic, partition.parse()?, &[value.to_owned()])
                .map(|()| none),
            ["many", name, topic, partition, prefix, count] => {
                let values: Vec<String> = (0..count.parse::<usize>()?)
                    .map(|i| format!("{prefix}{i}"))
                    .collect();
                self.deliver(name, topic, partition.parse()?, &values)?;
                Ok(none)
            }
            ["begin", name] => Ok(self.writer(name)?.begin_transaction().map(|()| none)?),
            ["commit", name] => Ok(self
                .writer(name)?
                .commit_transaction(PATIENCE)
                .map(|()| none)?),
            ["abort", name] => Ok(self
                .writer(name)?
                .abort_transaction(PATIENCE)
                .map(|()| none)?),
            ["close", name] => {
                self.producers.remove(name);
                Ok(none)
            }
            ["process", name, group, input, output, count, end] => self
                .process(name, group, input, output, count.parse()?, end == "commit")
                .map(|()| none),
            ["committed", group, topic, partition] => {
                self.committed(group, topic, partition.parse()?)
            }
            ["read", topic, partition, level, last, ms] => {
                let limit = Duration::from_millis(ms.parse()?);
                self.read(topic, partition.parse()?, level, last, limit)
            }
            ["join", group, topic] => self.join(group, topic).map(|()| none),
            ["assignment"] => Ok(lock(&self.seen)
                .assigned
                .iter()
                .map(ToString::to_string)
                .collect()),
            ["received"] => Ok(lock(&self.seen).received.clone()),
            ["create-topic", topic, partitions] => {
                let topic = NewTopic::new(topic, partitions.parse()?, TopicReplication::Fixed(1));
                let made = block_on(self.admin()?.create_topics([&topic], &AdminOptions::new()))?;
                for one in made {
                    one.map_err(|(name, code)| anyhow!("{name}: {code}"))?;
                }
                Ok(none)
            }
            ["describe-config", topic, key] => {
                let wanted = ResourceSpecifier::Topic(topic);
                let admin = self.admin()?;
                let found = block_on(admin.describe_configs([&wanted], &AdminOptions::new()))?;
                let resource = found.into_iter().next().context("no resource")??;
                let entry = resource.get(key).context("no such key")?;
                Ok(vec![entry.value.clone().unwrap_or_default()])
            }
            _ => bail!("no such verb: {words:?}"),
        }
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.broker)
            .set("reconnect.backoff.ms", "20")
            .set("reconnect.backoff.max.ms", "200");
        config
    }

    fn admin(&self) -> Result<AdminClient<rdkafka::client::DefaultClientContext>> {
        Ok(self.config().create()?)
    }

    fn writer(&self, name: &str) -> Result<&Writer> {
        self.producers.get(name).context("no such producer")
    }

    fn producer(&mut self, name: &str, how: &str, id: Option<&str>) -> Result<()> {
        let mut config = self.config();
        config.set("linger.ms", "0");
        match how {
            "plain" => {}
            "idempotent" => {
                config.set("enable.idempotence", "true");
            }
            "transactional" => {
                config.set("transactional.id", id.context("no transactional id")?);
            }
            codec => {
                config.set("compression.type", codec);
            }
        }
        let writer: Writer = config.create_with_context(Acks::default())?;
        if id.is_some() {
            writer.init_transactions(PATIENCE)?;
        }
        self.producers.insert(name.to_owned(), writer);
        Ok(())
    }

    fn deliver(&self, name: &str, topic: &str, partition: i32, values: &[String]) -> Result<()> {
        let writer = self.writer(name)?;
        let wanted = writer.context().answered.load(Ordering::Acquire) + values.len();
        for value in values {
            let record = BaseRecord::<str, str>::to(topic)
                .payload(value.as_str())
                .partition(partition);
            writer.send(record).map_err(|(error, _)| error)?;
        }
        let started = Instant::now();
        while writer.context().answered.load(Ordering::Acquire) < wanted {
            ensure!(
                started.elapsed() < PATIENCE,
                "not answered within {PATIENCE:?}"
            );
            thread::sleep(Duration::from_millis(1));
        }
        lock(&writer.context().error)
            .take()
            .map_or(Ok(()), |e| Err(e.into()))
    }

    fn consumer_config(&self, group: &str, level: &str) -> ClientConfig {
        let mut config = self.config();
        config
            .set("group.id", group)
            .set("isolation.level", level)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("session.timeout.ms", "6000")
            .set("heartbeat.interval.ms", "500");
        config
    }

    fn process(
        &self,
        name: &str,
        group: &str,
        input: &str,
        output: &str,
        count: usize,
        commit: bool,
    ) -> Result<()> {
        let reader: BaseConsumer = self.consumer_config(group, "read_committed").create()?;
        reader.subscribe(&[input])?;
        let (mut values, mut next) = (Vec::new(), 0);
        let started = Instant::now();
        while values.len() < count {
            ensure!(
                started.elapsed() < PATIENCE,
                "only {} records within {PATIENCE:?}",
                values.len()
            );
            if let Some(message) = reader.poll(Duration::from_millis(200)) {
                let message = message?;
                values.push(format!("{}*", text(&message)));
                next = message.offset() + 1;
            }
        }
        let writer = self.writer(name)?;
        writer.begin_transaction()?;
        self.deliver(name, output, 0, &values)?;
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(input, 0, Offset::Offset(next))?;
        let metadata = reader.group_metadata().context("no group metadata")?;
        writer.send_offsets_to_transaction(&offsets, &metadata, PATIENCE)?;
        if commit {
            writer.commit_transaction(PATIENCE)?;
        } else {
            writer.abort_transaction(PATIENCE)?;
        }
        Ok(())
    }

    fn committed(&self, group: &str, topic: &str, partition: i32) -> Result<Vec<String>> {
        let reader: BaseConsumer = self.consumer_config(group, "read_committed").create()?;
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition(topic, partition);
        let found = reader.committed_offsets(wanted, PATIENCE)?;
        let element = found
            .find_partition(topic, partition)
            .context("no such partition")?;
        element.error()?;
        Ok(vec![match element.offset() {
            Offset::Offset(offset) => offset.to_string(),
            _ => "-1".to_owned(),
        }])
    }

    fn read(
        &self,
        topic: &str,
        partition: i32,
        level: &str,
        last: &str,
        limit: Duration,
    ) -> Result<Vec<String>> {
        let reader: BaseConsumer = self.consumer_config("reader", level).create()?;
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition_offset(topic, partition, Offset::Beginning)?;
        reader.assign(&wanted)?;
        let mut values = Vec::new();
        let started = Instant::now();
        while started.elapsed() < limit && values.last().is_none_or(|v| v != last) {
            if let Some(message) = reader.poll(Duration::from_millis(100)) {
                values.push(text(&message?));
            }
        }
        Ok(values)
    }

    fn join(&self, group: &str, topic: &str) -> Result<()> {
        let reader: BaseConsumer<Member> = self
            .consumer_config(group, "read_committed")
            .create_with_context(Member(Arc::clone(&self.seen)))?;
        reader.subscribe(&[topic])?;
        let seen = Arc::clone(&self.seen);
        thread::spawn(move || {
            loop {
                match reader.poll(Duration::from_millis(100)) {
                    Some(Ok(message)) => {
                        lock(&seen).received.push(text(&message));
                        if let Err(error) =
                            reader.commit_message(&message, rdkafka::consumer::CommitMode::Sync)
                        {
                            eprintln!("{error}");
                        }
                    }
                    Some(Err(error)) => eprintln!("{error}"),
                    None => {}
                }
            }
        });
        Ok(())
    }
}

fn text(message: &impl Message) -> String {
    String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned()
}
