//! Counting words exactly once: an ordinary Kafka program, written against librdkafka.
//!
//! Lines of text go into the topic `lines`. Workers read lines, split them into words and write one record
//! (word, times in this line) per distinct word into the topic `counts`. Adding up the records of a word gives
//! its count, so a line that was worked on twice, or not at all, shows up as a wrong sum.
//!
//! ```text
//! wordcount load --file book.txt          one record per line, spread over 4 partitions
//! wordcount worker --name w1              run as many as you like, each with a name of its own
//! wordcount verify --truth counts.txt     compare with the output of `sort | uniq -c`
//! ```
//!
//! The worker is the part to read. What makes it exactly-once is a transaction that holds BOTH the results and
//! the positions in the input up to which lines were read. Either all of it happened or none of it, however
//! often the worker, or the broker, is killed in between:
//!
//! 1. `begin_transaction`
//! 2. `send` results while reading lines
//! 3. `send_offsets_to_transaction`: "I have read up to here"
//! 4. `commit_transaction`, or `abort_transaction` and read the same lines again

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

const LINES: &str = "lines";
const COUNTS: &str = "counts";
const GROUP: &str = "wordcount";
const PARTITIONS: i32 = 4;

/// One call into the broker waits this long before it reports back; the program then decides to try again.
const CALL: Duration = Duration::from_secs(10);
/// A broker that has been away for this long is not coming back: give up.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Parser)]
#[command(about = "Counts words exactly once through a Kafka broker")]
struct Cli {
    /// Where the broker listens
    #[arg(long, global = true, default_value = "127.0.0.1:9092")]
    broker: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send each line of a file to the topic `lines`
    Load {
        #[arg(long)]
        file: PathBuf,
        /// Lines per second; 0 is as fast as possible
        #[arg(long, default_value_t = 0)]
        rate: u64,
    },
    /// Turn lines into word counts until killed
    Worker {
        /// Names this worker; its transactional.id is made of it, so no two running workers may share it
        #[arg(long)]
        name: String,
        /// A transaction is committed after this long ...
        #[arg(long, default_value_t = 100)]
        commit_ms: u64,
        /// ... or after this many lines, whichever comes first
        #[arg(long, default_value_t = 1000)]
        commit_lines: u64,
    },
    /// Wait until every line is counted, then compare the sums with the truth
    Verify {
        /// Lines of "count word", as `sort | uniq -c` prints them
        #[arg(long)]
        truth: PathBuf,
        /// How long to wait for the workers to finish
        #[arg(long, default_value_t = 60)]
        wait_secs: u64,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wordcount: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Load { file, rate } => load(&cli.broker, &file, rate),
        Command::Worker {
            name,
            commit_ms,
            commit_lines,
        } => Worker::start(
            &cli.broker,
            &name,
            Limits {
                time: Duration::from_millis(commit_ms),
                lines: commit_lines,
            },
        )?
        .run(),
        Command::Verify { truth, wait_secs } => {
            verify(&cli.broker, &truth, Duration::from_secs(wait_secs))
        }
    }
}

/// Settings that all clients here share. A broker may restart at any time: look for it again soon and often.
fn client_config(broker: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", broker)
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "500")
        // One broker: there is nobody else to ask while it restarts. (And librdkafka 2.16 can hang in
        // send_offsets_to_transaction after it has asked: its issue 5511.)
        .set("metadata.recovery.strategy", "none");
    config
}

fn create_topics(broker: &str) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = client_config(broker).create()?;
    let topics = [
        NewTopic::new(LINES, PARTITIONS, TopicReplication::Fixed(1)),
        NewTopic::new(COUNTS, PARTITIONS, TopicReplication::Fixed(1)),
    ];
    let options = AdminOptions::new().operation_timeout(Some(CALL));
    for result in futures_executor::block_on(admin.create_topics(&topics, &options))? {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => bail!("cannot create the topic {topic}: {code}"),
        }
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------- load

/// Counts what the broker has confirmed. An idempotent producer resends by itself until it is.
#[derive(Default)]
struct Deliveries {
    ok: AtomicU64,
    failed: AtomicU64,
}

#[derive(Clone, Default)]
struct CountDeliveries(Arc<Deliveries>);

impl ClientContext for CountDeliveries {}

impl ProducerContext for CountDeliveries {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        match result {
            Ok(_) => self.0.ok.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.0.failed.fetch_add(1, Ordering::Relaxed),
        };
    }
}

fn load(broker: &str, file: &PathBuf, rate: u64) -> Result<()> {
    let mut input = BufReader::new(
        File::open(file).with_context(|| format!("cannot open {}", file.display()))?,
    );
    create_topics(broker)?;
    let deliveries = CountDeliveries::default();
    let producer: ThreadedProducer<CountDeliveries> = client_config(broker)
        .set("enable.idempotence", "true") // a resent line is stored once, in its place
        .set("linger.ms", "5")
        .set("message.timeout.ms", PATIENCE.as_millis().to_string())
        .create_with_context(deliveries.clone())?;

    let started = Instant::now();
    let (mut line, mut sent) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        while line.last().is_some_and(|b| *b == b'\n' || *b == b'\r') {
            line.pop();
        }
        let key = sent.to_string();
        send(&producer, LINES, &key, &line)?;
        sent += 1;
        if let Some(due_us) = (sent * 1_000_000).checked_div(rate) {
            std::thread::sleep(Duration::from_micros(due_us).saturating_sub(started.elapsed()));
        }
        if sent % 1_000 == 0 {
            say(&format!(
                "sent lines={sent} confirmed={}",
                deliveries.0.ok.load(Ordering::Relaxed)
            ));
        }
    }
    producer
        .flush(PATIENCE)
        .context("not all lines were confirmed in time")?;
    let failed = deliveries.0.failed.load(Ordering::Relaxed);
    if failed > 0 {
        bail!("{failed} of {sent} lines were not stored");
    }
    say(&format!("loaded lines={sent}"));
    Ok(())
}

/// Hands one record to the client's queue, waiting while that is full.
fn send<C>(
    producer: &ThreadedProducer<C>,
    topic: &str,
    key: &str,
    payload: &[u8],
) -> Result<(), KafkaError>
where
    C: ProducerContext<DeliveryOpaque = ()> + 'static,
{
    let mut record = BaseRecord::to(topic).key(key).payload(payload);
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err((error, _)) => return Err(error),
        }
    }
}

// -------------------------------------------------------------------------------------------- worker

/// Tells the worker that partitions were taken from it. The callback runs inside `poll`.
#[derive(Clone, Default)]
struct WatchRebalance {
    revoked: Arc<AtomicBool>,
}

impl ClientContext for WatchRebalance {}

impl ConsumerContext for WatchRebalance {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(_) = rebalance {
            self.revoked.store(true, Ordering::SeqCst);
        }
    }
}

#[derive(Clone, Copy)]
struct Limits {
    time: Duration,
    lines: u64,
}

/// What one open transaction has read so far.
struct Batch {
    opened: Instant,
    lines: u64,
    words: u64,
    /// Per partition of `lines`: the first offset read, to go back to when the transaction is aborted.
    first: BTreeMap<i32, i64>,
    /// Per partition: the offset after the last one read, which goes into the transaction.
    next: BTreeMap<i32, i64>,
}

/// What a failed call asks of us. librdkafka says it in the error itself.
enum Remedy {
    /// Nothing is decided: make the same call again.
    Retry,
    /// The transaction cannot commit any more; abort it and read the lines again.
    Abort,
    /// This producer is finished, for example because a newer worker of the same name has taken over.
    GiveUp,
}

fn remedy(error: &KafkaError) -> Remedy {
    match error {
        KafkaError::Transaction(e) if e.is_fatal() => Remedy::GiveUp,
        KafkaError::Transaction(e) if e.is_retriable() => Remedy::Retry,
        KafkaError::Transaction(e) if e.txn_requires_abort() => Remedy::Abort,
        // Records still wait for the broker: commit_transaction flushes first, and has not begun to commit.
        KafkaError::Flush(_) => Remedy::Retry,
        KafkaError::MessageProduction(RDKafkaErrorCode::Fatal) => Remedy::GiveUp,
        KafkaError::MessageProduction(_) => Remedy::Abort,
        _ => Remedy::GiveUp,
    }
}

/// Makes a transactional call until it is decided one way or the other. Retrying is always safe: the broker
/// recognises a repeated request. Giving up after a commit whose answer was lost would not be: nobody would know
/// whether the lines were counted. (If the process dies here, the committed offsets know.)
fn decided(what: &str, mut call: impl FnMut() -> Result<(), KafkaError>) -> Result<(), KafkaError> {
    let started = Instant::now();
    loop {
        match call() {
            Err(error)
                if matches!(remedy(&error), Remedy::Retry) && started.elapsed() < PATIENCE =>
            {
                say(&format!("retry {what}: {error}"));
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

struct Worker {
    consumer: BaseConsumer<WatchRebalance>,
    producer: ThreadedProducer<CountDeliveries>,
    watch: WatchRebalance,
    limits: Limits,
}

impl Worker {
    fn start(broker: &str, name: &str, limits: Limits) -> Result<Worker> {
        create_topics(broker)?;
        let producer: ThreadedProducer<CountDeliveries> = client_config(broker)
            .set("transactional.id", format!("wordcount-{name}"))
            .set("transaction.timeout.ms", "20000")
            .set("linger.ms", "5")
            .create_with_context(CountDeliveries::default())?;
        // From here on every older producer with this transactional.id is fenced off, and what it left open is
        // aborted. A restarted worker therefore starts clean.
        decided("init_transactions", || producer.init_transactions(CALL))
            .context("init_transactions")?;

        let watch = WatchRebalance::default();
        let consumer: BaseConsumer<WatchRebalance> = client_config(broker)
            .set("group.id", GROUP)
            .set("client.id", name)
            // Positions travel in the transaction, never by themselves.
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", "read_committed")
            .set("session.timeout.ms", "6000")
            .set("heartbeat.interval.ms", "500")
            .create_with_context(watch.clone())?;
        consumer.subscribe(&[LINES])?;
        say(&format!("started name={name}"));
        Ok(Worker {
            consumer,
            producer,
            watch,
            limits,
        })
    }

    /// Runs until killed. There is no shutdown code, and none is needed: what was not committed is read again.
    fn run(&self) -> Result<()> {
        let mut open: Option<Batch> = None;
        loop {
            let wait = match &open {
                Some(batch) => self.limits.time.saturating_sub(batch.opened.elapsed()),
                None => Duration::from_millis(200),
            };
            let polled = self.consumer.poll(wait);

            // Partitions were taken away: their new owner starts from the committed offsets, so must we. (A commit
            // that comes too late would be refused: the offsets carry the group's generation.)
            if self.watch.revoked.swap(false, Ordering::SeqCst)
                && let Some(batch) = open.take()
            {
                self.abort(&batch, "rebalance")?;
            }

            match polled {
                None => {}
                Some(Ok(message)) => {
                    if open.is_none() {
                        self.producer.begin_transaction()?;
                        open = Some(Batch::new());
                    }
                    if let Some(batch) = &mut open
                        && let Err(error) = self.count_line(batch, &message)
                    {
                        self.abort_or_give_up(&mut open, error)?;
                    }
                }
                Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                    bail!("the consumer failed: {code}")
                }
                Some(Err(_)) => {} // the broker is away: librdkafka reconnects by itself
            }

            let due = open.as_ref().is_some_and(|batch| {
                batch.lines >= self.limits.lines || batch.opened.elapsed() >= self.limits.time
            });
            if due && let Some(batch) = &open {
                match self.commit(batch) {
                    Ok(()) => open = None,
                    Err(error) => self.abort_or_give_up(&mut open, error)?,
                }
            }
        }
    }

    fn count_line(&self, batch: &mut Batch, line: &BorrowedMessage<'_>) -> Result<(), KafkaError> {
        batch.first.entry(line.partition()).or_insert(line.offset());
        batch.next.insert(line.partition(), line.offset() + 1);
        batch.lines += 1;
        for (word, times) in words(line.payload().unwrap_or_default()) {
            send(&self.producer, COUNTS, &word, times.to_string().as_bytes())?;
            batch.words += times;
        }
        Ok(())
    }

    fn commit(&self, batch: &Batch) -> Result<(), KafkaError> {
        let mut read_up_to = TopicPartitionList::new();
        for (&partition, &next) in &batch.next {
            read_up_to.add_partition_offset(LINES, partition, Offset::Offset(next))?;
        }
        let group = self
            .consumer
            .group_metadata()
            .ok_or_else(|| KafkaError::Subscription("the consumer has no group".into()))?;
        decided("send_offsets", || {
            self.producer
                .send_offsets_to_transaction(&read_up_to, &group, CALL)
        })?;
        self.wait_for_deliveries();
        decided("commit", || self.producer.commit_transaction(CALL))?;
        say(&format!(
            "commit lines={} words={}",
            batch.lines, batch.words
        ));
        Ok(())
    }

    /// Commit flushes by itself, but the Rust library's flush looks only every 100 ms. Looking more often before it
    /// is called makes small transactions quick.
    fn wait_for_deliveries(&self) {
        let started = Instant::now();
        while self.producer.in_flight_count() > 0 && started.elapsed() < CALL {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn abort_or_give_up(&self, open: &mut Option<Batch>, error: KafkaError) -> Result<()> {
        match (remedy(&error), open.take()) {
            (Remedy::Abort, Some(batch)) => {
                self.abort(&batch, &error.to_string())?;
                // Kafka clients do not go back by themselves.
                let mut back = TopicPartitionList::new();
                for (&partition, &first) in &batch.first {
                    back.add_partition_offset(LINES, partition, Offset::Offset(first))?;
                }
                for partition in self
                    .consumer
                    .seek_partitions(back, CALL)
                    .context("rewind")?
                    .elements()
                {
                    partition.error().context("rewind")?;
                }
                Ok(())
            }
            _ => Err(error).context("the producer cannot go on"),
        }
    }

    fn abort(&self, batch: &Batch, reason: &str) -> Result<()> {
        decided("abort", || self.producer.abort_transaction(CALL)).context("abort")?;
        say(&format!(
            "abort lines={} words={} reason={reason}",
            batch.lines, batch.words
        ));
        Ok(())
    }
}

impl Batch {
    fn new() -> Batch {
        Batch {
            opened: Instant::now(),
            lines: 0,
            words: 0,
            first: BTreeMap::new(),
            next: BTreeMap::new(),
        }
    }
}

/// The words of a line and how often each occurs. A word is a run of ASCII letters and digits, in lower case,
/// as `tr -cs 'A-Za-z0-9' '\n' | tr A-Z a-z` makes them.
fn words(line: &[u8]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for word in line.split(|byte| !byte.is_ascii_alphanumeric()) {
        if !word.is_empty() {
            *counts
                .entry(String::from_utf8_lossy(word).to_ascii_lowercase())
                .or_insert(0) += 1;
        }
    }
    counts
}

// -------------------------------------------------------------------------------------------- verify

fn verify(broker: &str, truth: &PathBuf, patience: Duration) -> Result<()> {
    let truth = read_truth(truth)?;
    let deadline = Instant::now() + patience;
    wait_until_counted(broker, deadline)?;
    let seen = read_counts(broker, deadline)?;

    let (mut lost, mut duplicated) = (0, 0);
    for word in truth
        .keys()
        .chain(seen.keys().filter(|word| !truth.contains_key(*word)))
    {
        let (right, got) = (
            truth.get(word).copied().unwrap_or(0),
            seen.get(word).copied().unwrap_or(0),
        );
        if got != right {
            eprintln!("wrong: {word} occurs {right} times and was counted {got} times");
        }
        lost += right.saturating_sub(got);
        duplicated += got.saturating_sub(right);
    }
    say(&format!(
        "words={} distinct={} lost={lost} duplicated={duplicated}",
        seen.values().sum::<u64>(),
        seen.len()
    ));
    if lost > 0 || duplicated > 0 {
        bail!("the counts are wrong");
    }
    Ok(())
}

fn read_truth(file: &PathBuf) -> Result<BTreeMap<String, u64>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    text.lines()
        .map(|line| {
            let (count, word) = line
                .trim_start()
                .split_once(' ')
                .context("not a line of `uniq -c`")?;
            Ok((word.to_owned(), count.parse()?))
        })
        .collect()
}

/// Until the group's committed offsets have reached the end of `lines`, and nothing in `counts` is open any more.
fn wait_until_counted(broker: &str, deadline: Instant) -> Result<()> {
    let member: BaseConsumer = client_config(broker)
        .set("group.id", GROUP)
        .set("isolation.level", "read_committed")
        .create()?;
    let raw: BaseConsumer = client_config(broker)
        .set("group.id", GROUP)
        .set("isolation.level", "read_uncommitted")
        .create()?;
    loop {
        match uncounted(&member, &raw) {
            Ok(0) => return Ok(()),
            Ok(left) if Instant::now() > deadline => bail!("{left} lines or open results are left"),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            _ => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn uncounted(member: &BaseConsumer, raw: &BaseConsumer) -> Result<i64, KafkaError> {
    let mut lines = TopicPartitionList::new();
    lines.add_partition_range(LINES, 0, PARTITIONS - 1);
    let mut left = 0;
    for partition in member.committed_offsets(lines, CALL)?.elements() {
        let (_, end) = raw.fetch_watermarks(LINES, partition.partition(), CALL)?;
        left += end - partition.offset().to_raw().unwrap_or(0).max(0);
    }
    for partition in 0..PARTITIONS {
        let (_, stable_end) = member.fetch_watermarks(COUNTS, partition, CALL)?;
        let (_, end) = raw.fetch_watermarks(COUNTS, partition, CALL)?;
        left += end - stable_end;
    }
    Ok(left)
}

fn read_counts(broker: &str, deadline: Instant) -> Result<BTreeMap<String, u64>> {
    let consumer: BaseConsumer = client_config(broker)
        .set("group.id", "wordcount-verify")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .create()?;
    let mut everything = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        everything.add_partition_offset(COUNTS, partition, Offset::Beginning)?;
    }
    consumer.assign(&everything)?;
    let (mut counts, mut finished) = (BTreeMap::new(), [false; PARTITIONS as usize]);
    while finished.contains(&false) {
        match consumer.poll(CALL) {
            Some(Ok(record)) => {
                let word = String::from_utf8_lossy(record.key().unwrap_or_default()).into_owned();
                let times =
                    std::str::from_utf8(record.payload().unwrap_or_default())?.parse::<u64>()?;
                *counts.entry(word).or_insert(0) += times;
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => finished[partition as usize] = true,
            Some(Err(error)) if Instant::now() > deadline => return Err(error.into()),
            None if Instant::now() > deadline => bail!("the end of {COUNTS} was not reached"),
            _ => {}
        }
    }
    Ok(counts)
}

/// One line on stdout, with the time, written at once: others follow it through a file.
fn say(text: &str) {
    let ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis());
    let mut out = std::io::stdout().lock();
    // A reader that went away is no reason to stop counting.
    let _ = writeln!(out, "{ms} {text}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_are_lower_case_runs_of_letters_and_digits() {
        let counted: Vec<_> = words(b"The quick -- the 2nd fox; QUICK\xe9r")
            .into_iter()
            .collect();
        let expected = [("2nd", 1), ("fox", 1), ("quick", 2), ("r", 1), ("the", 2)];
        assert_eq!(
            counted,
            expected.map(|(word, times)| (word.to_owned(), times))
        );
        assert!(words(b"").is_empty());
    }
}
