//! Kills the broker with SIGKILL again and again while stock clients work, then checks every record.
//!
//! Idempotent producers and transactional producers write numbered records over several topics and partitions,
//! read_committed consumers follow; the broker is killed at random moments and started again over the same data.
//! One topic loses its old segments to retention by size, another is compacted. In the end everything is read once
//! more and compared with what the clients were told: a record may be missing below the log start of the former, and
//! in the latter when a newer one of its key is there. Run by `scripts/prove kill9`, which sets the broker's intervals.
//! The last line:
//!
//! `kill9: rounds=N acked=... commits=... aborts=... lost=0 duplicated=0 torn=0 aborted_read=0 compactions=N segments_retired=N`

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, PurgeConfig, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidemark_examples::broker_process::{BrokerProcess, free_port};
use tidemark_examples::cleaning::{Segments, compactions};
use tidemark_examples::clients::{self, Complaints};
use tidemark_examples::ledger::{
    Cleaning, Evidence, Ledger, Outcome, Reads, TxnId, Verdict, judge,
};
use tidemark_examples::transaction::{Remedy, decided, remedy, wait_for_deliveries};

const TOPICS: [&str; 5] = ["kill9-a", "kill9-b", "kill9-c", EXPIRING, COMPACTED];
/// Keeps `RETENTION_BYTES` in segments of `SEGMENT_BYTES`.
const EXPIRING: &str = "kill9-expiring";
/// Keeps the newest of `KEYS` keys of each producer.
const COMPACTED: &str = "kill9-compacted";
const SEGMENT_BYTES: i64 = 8 * 1024;
const RETENTION_BYTES: i64 = 24 * 1024;
const KEYS: u32 = 8;
/// No offset takes more bytes: a record alone in its batch, or a marker.
const MAX_BYTES_PER_OFFSET: i64 = 320;
/// Carries only group offsets: the number of the newest transaction of a producer.
const NUMBERS: &str = "kill9-numbers";
const PARTITIONS: i32 = 3;
const IDEMPOTENT_PRODUCERS: usize = 2;
const TRANSACTIONAL_PRODUCERS: usize = 3;
const READERS: usize = 2;
const CALL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Parser)]
struct Args {
    /// How often the broker is killed
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Starts the broker; {port} and {data} are filled in
    #[arg(long)]
    broker: String,
    /// An empty folder for the broker's data and log
    #[arg(long)]
    dir: PathBuf,
    /// Repeats the random choices (not the timing) of an earlier run
    #[arg(long)]
    seed: Option<u64>,
    /// The broker runs at most this long between two kills
    #[arg(long, default_value_t = 1200)]
    max_uptime_ms: u64,
    /// Fail with fewer acknowledged records; default 100 a round
    #[arg(long)]
    min_acked: Option<usize>,
    /// Fail with fewer commits; default 10 a round
    #[arg(long)]
    min_commits: Option<usize>,
    /// Fail with fewer aborted transactions; default 2 a round
    #[arg(long)]
    min_aborts: Option<usize>,
    /// Fail with fewer finished runs of compaction; default 1 in 2 rounds
    #[arg(long)]
    min_compactions: Option<usize>,
    /// Fail with fewer segments that retention has taken; default 1 a round
    #[arg(long)]
    min_retired: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kill9: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What all threads share.
struct Shared {
    address: String,
    ledger: Mutex<Ledger>,
    live: Mutex<Reads>,
    stop_writing: AtomicBool,
    stop_reading: AtomicBool,
    acked: AtomicUsize,
    committed: AtomicUsize,
    aborted: AtomicUsize,
    /// The highest log start that was told, by partition of `EXPIRING`.
    log_starts: Mutex<BTreeMap<i32, i64>>,
    complaints: Complaints,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complain(&self, text: String) {
        self.complaints.add(&text);
    }

    fn writing(&self) -> bool {
        !self.stop_writing.load(Ordering::Relaxed)
    }

    fn config(&self) -> ClientConfig {
        clients::config(&self.address)
    }
}

fn run(args: &Args) -> Result<bool> {
    std::fs::create_dir_all(&args.dir)?;
    let data = args.dir.join("data");
    std::fs::create_dir_all(&data)?;
    let seed = args.seed.unwrap_or_else(|| rand::rng().random());
    eprintln!("kill9: seed {seed}");
    let mut broker = BrokerProcess::new(
        &args.broker,
        free_port()?,
        &data,
        &args.dir.join("broker.log"),
    )?;
    broker.start()?;

    let shared = Arc::new(Shared {
        address: broker.address(),
        ledger: Mutex::default(),
        live: Mutex::default(),
        stop_writing: AtomicBool::new(false),
        stop_reading: AtomicBool::new(false),
        acked: AtomicUsize::new(0),
        committed: AtomicUsize::new(0),
        aborted: AtomicUsize::new(0),
        log_starts: Mutex::default(),
        complaints: Complaints::default(),
    });
    create_topics(&shared)?;

    let mut writers = Vec::new();
    for producer in 0..IDEMPOTENT_PRODUCERS + TRANSACTIONAL_PRODUCERS {
        let (shared, random) = (
            shared.clone(),
            StdRng::seed_from_u64(seed ^ producer as u64),
        );
        let body = if producer < IDEMPOTENT_PRODUCERS {
            write_idempotent
        } else {
            write_transactions
        };
        writers.push(thread::spawn(move || {
            if let Err(error) = body(&shared, producer, random) {
                shared.complain(format!("producer {producer} gave up: {error:#}"));
            }
        }));
    }
    let mut readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let shared = shared.clone();
            thread::spawn(move || {
                if let Err(error) = follow(&shared, reader) {
                    shared.complain(format!("reader {reader} gave up: {error:#}"));
                }
            })
        })
        .collect();
    readers.push({
        let shared = shared.clone();
        thread::spawn(move || {
            if let Err(error) = watch_log_starts(&shared) {
                shared.complain(format!("the log starts: {error:#}"));
            }
        })
    });

    let mut segments = Segments::of(EXPIRING);
    let killed = kill_rounds(
        args,
        &mut broker,
        &shared,
        StdRng::seed_from_u64(seed ^ 0xdead),
        || segments.look(&data),
    );
    shared.stop_writing.store(true, Ordering::Relaxed);
    if killed.is_err() {
        shared.stop_reading.store(true, Ordering::Relaxed);
        return killed.map(|()| false);
    }
    for writer in writers {
        let _ = writer.join();
    }
    thread::sleep(Duration::from_millis(500)); // the readers' last look; the final scan does not depend on it
    shared.stop_reading.store(true, Ordering::Relaxed);
    for reader in readers {
        let _ = reader.join();
    }
    let clean = report(&shared, &broker)?;
    segments.look(&data);
    let compactions = compactions(&args.dir.join("broker.log"), COMPACTED);
    Ok(clean.told(args, compactions, segments.retired()))
}

fn create_topics(shared: &Shared) -> Result<()> {
    let mut topics: Vec<_> = TOPICS
        .iter()
        .map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1)))
        .collect();
    let (segment, retention) = (SEGMENT_BYTES.to_string(), RETENTION_BYTES.to_string());
    for topic in &mut topics {
        if topic.name == EXPIRING {
            topic.config = vec![("segment.bytes", &segment), ("retention.bytes", &retention)];
        } else if topic.name == COMPACTED {
            topic.config = vec![
                ("segment.bytes", &segment),
                ("cleanup.policy", "compact"),
                ("min.cleanable.dirty.ratio", "0.1"),
                ("delete.retention.ms", "1000"),
            ];
        }
    }
    topics.push(NewTopic::new(
        NUMBERS,
        TRANSACTIONAL_PRODUCERS as i32,
        TopicReplication::Fixed(1),
    ));
    clients::create_topics(&shared.address, &topics, CALL)
}

/// The kills. Most come at any moment of normal work, one in five right after a start.
fn kill_rounds(
    args: &Args,
    broker: &mut BrokerProcess,
    shared: &Shared,
    mut random: StdRng,
    mut while_dead: impl FnMut(),
) -> Result<()> {
    for round in 1..=args.rounds {
        let hasty = random.random_ratio(1, 5);
        let uptime_ms = if hasty {
            random.random_range(0..50)
        } else {
            random.random_range(100..=args.max_uptime_ms)
        };
        let up_since = Instant::now();
        let acked_before = shared.acked.load(Ordering::Relaxed);
        // Unless it is to be hasty, the clients must have found the broker again before it dies.
        while !hasty && shared.acked.load(Ordering::Relaxed) == acked_before {
            if up_since.elapsed() > Duration::from_secs(60) {
                bail!("round {round}: nothing was acknowledged for a minute after a restart");
            }
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(uptime_ms));
        broker.kill()?;
        while_dead();
        thread::sleep(Duration::from_millis(random.random_range(0..100)));
        broker.start()?;
        eprintln!(
            "round {round} of {}: acked {}, commits {}, aborts {}",
            args.rounds,
            shared.acked.load(Ordering::Relaxed),
            shared.committed.load(Ordering::Relaxed),
            shared.aborted.load(Ordering::Relaxed),
        );
    }
    Ok(())
}

// ----------------------------------------------------------------------------------------- producers

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

fn write_idempotent(shared: &Arc<Shared>, index: usize, mut random: StdRng) -> Result<()> {
    let producer: ThreadedProducer<Reports> = shared
        .config()
        .set("enable.idempotence", "true")
        .set("max.in.flight.requests.per.connection", "5")
        .set("linger.ms", "1")
        .set("batch.num.messages", "20") // many batches in flight
        .set("message.timeout.ms", "0")
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

fn write_transactions(shared: &Arc<Shared>, index: usize, mut random: StdRng) -> Result<()> {
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

fn group_of(index: usize) -> String {
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

// ------------------------------------------------------------------------------------------- readers

fn consumer(shared: &Shared, isolation: &str, reset: &str) -> Result<BaseConsumer> {
    let consumer = shared
        .config()
        .set("group.id", "kill9-reader")
        .set("enable.auto.commit", "false")
        .set("isolation.level", isolation)
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", reset)
        .set("fetch.wait.max.ms", "100")
        .create()?;
    Ok(consumer)
}

/// Reads all topics from their begin. In `EXPIRING` retention may have taken what is asked for; in
/// every other topic it is an error that the log does not begin at 0, or ends too early.
struct Reader {
    expiring: BaseConsumer,
    others: BaseConsumer,
    /// Whose turn it is.
    turn: Cell<bool>,
}

impl Reader {
    fn new(shared: &Shared, isolation: &str) -> Result<Reader> {
        let (mut expiring, mut others) = (TopicPartitionList::new(), TopicPartitionList::new());
        for topic in TOPICS {
            for partition in 0..PARTITIONS {
                if topic == EXPIRING {
                    expiring.add_partition_offset(topic, partition, Offset::Beginning)?;
                } else {
                    others.add_partition_offset(topic, partition, Offset::Offset(0))?;
                }
            }
        }
        let reader = Reader {
            expiring: consumer(shared, isolation, "earliest")?,
            others: consumer(shared, isolation, "error")?,
            turn: Cell::new(false),
        };
        reader.expiring.assign(&expiring)?;
        reader.others.assign(&others)?;
        Ok(reader)
    }

    /// What came next, or came within a moment. Most errors are those of a broker that was killed, and pass.
    ///
    /// Errors: a topic whose records nobody takes away did not have the offset that was asked for.
    fn poll(&self) -> Result<Option<Result<BorrowedMessage<'_>, KafkaError>>> {
        let turn = self.turn.replace(!self.turn.get());
        let (first, second) = match turn {
            true => (&self.expiring, &self.others),
            false => (&self.others, &self.expiring),
        };
        // Who has nothing is waited for only when the other has nothing either.
        let next = first
            .poll(Duration::ZERO)
            .or_else(|| second.poll(Duration::ZERO))
            .or_else(|| first.poll(Duration::from_millis(10)));
        match next {
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset))) => {
                bail!("a partition that keeps everything does not have the offset asked for")
            }
            came => Ok(came),
        }
    }
}

/// The record's number; readers fail on a payload that none of us wrote.
fn number_in(payload: Option<&[u8]>) -> Result<usize> {
    let text = std::str::from_utf8(payload.unwrap_or_default()).context("payload is not text")?;
    text.split(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .with_context(|| format!("payload {text:?}"))
}

/// Follows all partitions. The second reader begins anew every few seconds: it must find the same again.
fn follow(shared: &Shared, reader_index: usize) -> Result<()> {
    while !shared.stop_reading.load(Ordering::Relaxed) {
        let reader = Reader::new(shared, "read_committed")?;
        let (started, mut positions) = (Instant::now(), BTreeMap::new());
        while !shared.stop_reading.load(Ordering::Relaxed) {
            if reader_index > 0 && started.elapsed() > Duration::from_secs(4) {
                break;
            }
            let Some(Ok(message)) = reader.poll()? else {
                continue;
            };
            let (topic, partition, offset) =
                (message.topic(), message.partition(), message.offset());
            let id = number_in(message.payload())?;
            let last = positions.insert((topic.to_owned(), partition), offset);
            if last.is_some_and(|last| last >= offset) {
                shared.complain(format!(
                    "reader {reader_index}: {topic}-{partition} went from {last:?} back to {offset}"
                ));
            }
            shared
                .live
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .saw(topic, partition, offset, id);
        }
    }
    Ok(())
}

/// Asks where the partitions begin: a log start that was told does not go back.
fn watch_log_starts(shared: &Shared) -> Result<()> {
    let consumer = consumer(shared, "read_committed", "error")?;
    while !shared.stop_reading.load(Ordering::Relaxed) {
        for partition in 0..PARTITIONS {
            // Most errors are those of a broker that was killed.
            if let Ok((start, _)) = consumer.fetch_watermarks(EXPIRING, partition, CALL) {
                see_log_start(shared, partition, start);
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn see_log_start(shared: &Shared, partition: i32, start: i64) {
    let mut starts = (shared.log_starts.lock()).unwrap_or_else(PoisonError::into_inner);
    let told = starts.insert(partition, start).unwrap_or(0);
    if start < told {
        shared.complain(format!(
            "{EXPIRING}-{partition} began at {told} and begins at {start} now"
        ));
    }
}

/// Where the partitions begin; with it what is left of each, in offsets.
fn log_starts(shared: &Shared) -> Result<BTreeMap<i32, (i64, i64)>> {
    let consumer = consumer(shared, "read_uncommitted", "error")?;
    let mut starts = BTreeMap::new();
    for partition in 0..PARTITIONS {
        let (start, end) = consumer
            .fetch_watermarks(EXPIRING, partition, PATIENCE)
            .context("the log start of a broker that nobody kills")?;
        see_log_start(shared, partition, start);
        starts.insert(partition, (start, end - start));
    }
    Ok(starts)
}

/// Reads everything up to the ends of all partitions.
fn scan(shared: &Shared, isolation: &str) -> Result<Reads> {
    let reader = Reader::new(shared, isolation)?;
    let (mut reads, mut left) = (Reads::default(), TOPICS.len() as i32 * PARTITIONS);
    let deadline = Instant::now() + PATIENCE;
    while left > 0 {
        match reader.poll()? {
            Some(Ok(message)) => {
                reads.saw(
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    number_in(message.payload())?,
                );
            }
            Some(Err(KafkaError::PartitionEOF(_))) => left -= 1,
            _ if Instant::now() > deadline => {
                bail!("the {isolation} scan does not come to its end")
            }
            _ => {}
        }
    }
    Ok(reads)
}

/// Until the last stable offset of every partition is its end: no transaction is open any more.
fn wait_until_settled(shared: &Shared) -> Result<()> {
    let committed = consumer(shared, "read_committed", "error")?;
    let raw = consumer(shared, "read_uncommitted", "error")?;
    let deadline = Instant::now() + Duration::from_secs(30);
    for topic in TOPICS {
        for partition in 0..PARTITIONS {
            loop {
                let ends = committed
                    .fetch_watermarks(topic, partition, CALL)
                    .and_then(|stable| {
                        Ok((stable.1, raw.fetch_watermarks(topic, partition, CALL)?.1))
                    });
                match ends {
                    Ok((stable, end)) if stable == end => break,
                    _ if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
                    other => {
                        bail!("{topic}-{partition}: a transaction hangs, or no answer: {other:?}")
                    }
                }
            }
        }
    }
    Ok(())
}

// ------------------------------------------------------------------------------------------- verdict

fn group_offsets(shared: &Shared) -> Result<BTreeMap<usize, i64>> {
    let mut offsets = BTreeMap::new();
    for producer in IDEMPOTENT_PRODUCERS..IDEMPOTENT_PRODUCERS + TRANSACTIONAL_PRODUCERS {
        let consumer: BaseConsumer = shared
            .config()
            .set("group.id", group_of(producer))
            .create()?;
        let mut list = TopicPartitionList::new();
        list.add_partition(NUMBERS, (producer - IDEMPOTENT_PRODUCERS) as i32);
        let committed = consumer
            .committed_offsets(list, Duration::from_secs(30))
            .context("committed offsets")?;
        let offset = committed
            .elements()
            .first()
            .and_then(|element| element.offset().to_raw())
            .unwrap_or(0);
        offsets.insert(producer, offset.max(0));
    }
    Ok(offsets)
}

/// What was found in the end, but for what the files and the log tell.
struct Finding {
    verdict: Verdict,
    clean: bool,
}

fn report(shared: &Shared, broker: &BrokerProcess) -> Result<Finding> {
    wait_until_settled(shared)?;
    let before = log_starts(shared)?;
    let (committed, raw) = (
        scan(shared, "read_committed")?,
        scan(shared, "read_uncommitted")?,
    );
    let after = log_starts(shared)?;
    let mut cleaning = Cleaning {
        compacted: BTreeSet::from([COMPACTED.to_owned()]),
        ..Cleaning::default()
    };
    let mut clean = true;
    for (partition, (start, left)) in after {
        let starts = (before[&partition].0, start);
        (cleaning.log_starts).insert((EXPIRING.to_owned(), partition), starts);
        if start > 0 && left * MAX_BYTES_PER_OFFSET < RETENTION_BYTES {
            eprintln!(
                "{EXPIRING}-{partition}: retention has left {left} offsets, which cannot be {RETENTION_BYTES} bytes"
            );
            clean = false;
        }
    }
    let verdict = judge(&Evidence {
        ledger: &shared.ledger(),
        live: &shared.live.lock().unwrap_or_else(PoisonError::into_inner),
        committed: &committed,
        raw: &raw,
        group_offsets: &group_offsets(shared)?,
        cleaning: &cleaning,
    });
    for finding in &verdict.findings {
        eprintln!("{finding}");
    }
    clean &= verdict.is_clean();
    if verdict.inconsistent > 0 {
        eprintln!("{} inconsistent offsets", verdict.inconsistent);
    }
    let panics = broker.panics();
    for line in &panics {
        eprintln!("the broker panicked: {line}");
    }
    clean &= panics.is_empty() && shared.complaints.count() == 0;
    eprintln!(
        "of the acknowledged records retention has taken {}, and compaction {} for newer ones",
        verdict.retired, verdict.superseded
    );
    Ok(Finding { verdict, clean })
}

impl Finding {
    /// Prints the last line; whether everything is as it must be and enough happened.
    fn told(self, args: &Args, compactions: usize, segments_retired: usize) -> bool {
        let Finding { verdict, mut clean } = self;
        let rounds = args.rounds;
        let minimums = [
            ("acked", verdict.acked, args.min_acked, 100 * rounds),
            ("commits", verdict.commits, args.min_commits, 10 * rounds),
            ("aborts", verdict.aborts, args.min_aborts, 2 * rounds),
            (
                "compactions",
                compactions,
                args.min_compactions,
                rounds.div_ceil(2),
            ),
            (
                "segments_retired",
                segments_retired,
                args.min_retired,
                rounds,
            ),
        ];
        for (name, got, asked, default) in minimums {
            let minimum = asked.unwrap_or(default);
            if got < minimum {
                eprintln!("too little happened: {name}={got}, at least {minimum} is asked for");
                clean = false;
            }
        }
        println!(
            "kill9: rounds={rounds} acked={} commits={} aborts={} lost={} duplicated={} torn={} aborted_read={} \
             compactions={compactions} segments_retired={segments_retired}",
            verdict.acked,
            verdict.commits,
            verdict.aborts,
            verdict.lost,
            verdict.duplicated,
            verdict.torn,
            verdict.aborted_read
        );
        clean
    }
}
