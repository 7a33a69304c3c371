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

mod producers;
mod readers;
mod verdict;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::config::ClientConfig;
use tidemark_examples::broker_process::{BrokerProcess, free_port};
use tidemark_examples::cleaning::{Segments, compactions};
use tidemark_examples::clients;
use tidemark_examples::clients::Complaints;
use tidemark_examples::ledger::{Ledger, Reads};

use crate::producers::{write_idempotent, write_transactions};
use crate::readers::{follow, watch_log_starts};
use crate::verdict::report;

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
