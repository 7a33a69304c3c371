//! Records what many clients do and see while faults come down on the broker, and has it checked.
//!
//! Transactional and idempotent producers, movers (consume, transform, produce, offsets in the transaction), readers of
//! both isolation levels; all through a relay that can cut their connections. In the end everything is read once more,
//! the broker is killed, and `histcheck` judges the history, also against the log, which it reads by itself. Run by
//! `scripts/prove histories`. The last line:
//!
//! `histories: ops=... txns=... faults=... anomalies=0`
//!
//! An operation is a record that was sent or read, or a step of a transaction (init, begin, offsets, commit, abort).

mod faults;
mod finish;
mod movers;
mod producers;
mod programs;
mod readers;
mod recorder;
mod relay;
mod shared;

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_examples::broker_process::{BrokerProcess, free_port};
use tidemark_histcheck::DirFiles;
use tidemark_histcheck::history::{self, LogView, Verdict};

use faults::{Fault, Faults, WallClock};
use programs::Program;
use recorder::Recorder;
use relay::Relay;
use shared::Shared;

#[derive(Parser)]
struct Args {
    /// How long faults come down on the broker
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Kinds of faults, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "kill,pause,clock,disconnect"
    )]
    faults: Vec<Fault>,
    /// No faults at all
    #[arg(long, conflicts_with = "faults")]
    no_faults: bool,
    /// Starts the broker; {port} and {data} are filled in
    #[arg(long)]
    broker: String,
    /// An empty folder: the broker's data and log, and history.jsonl
    #[arg(long)]
    dir: PathBuf,
    /// A library that adds the number in $TIDEMARK_TEST_CLOCK_FILE to the wall clock; without it there is no fault clock
    #[arg(long)]
    clock_library: Option<PathBuf>,
    /// Repeats the random choices (not the timing) of an earlier run
    #[arg(long)]
    seed: Option<u64>,
    /// Transactional producers
    #[arg(long, default_value_t = 4)]
    producers: usize,
    /// Idempotent producers outside transactions
    #[arg(long, default_value_t = 2)]
    idempotent: usize,
    /// Movers
    #[arg(long, default_value_t = 2)]
    movers: usize,
    /// Readers of each isolation level; the second and every other one begins anew all the time
    #[arg(long, default_value_t = 2)]
    readers: usize,
    /// Another program that takes part: NAME=COMMAND. May be repeated
    #[arg(long)]
    program: Vec<String>,
    /// How long a call, and in the end an open transaction, may stay undecided
    #[arg(long, default_value_t = 90)]
    patience_s: u64,
    /// Fail with fewer operations; default 200 a second
    #[arg(long)]
    min_operations: Option<u64>,
    /// Fail with fewer faults; default one in ten seconds
    #[arg(long)]
    min_faults: Option<u64>,
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    if args.no_faults {
        args.faults.clear();
    }
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("histories: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    std::fs::create_dir_all(&args.dir)?;
    let data = args.dir.join("data");
    std::fs::create_dir_all(&data)?;
    let seed = args.seed.unwrap_or_else(|| rand::rng().random());
    eprintln!("histories: seed {seed}");

    let (front, back) = (free_port()?, free_port()?);
    if front == back {
        bail!("the same port twice; try again");
    }
    let relay = Relay::start(front, back)?;
    let log = args.dir.join("broker.log");
    let mut broker = BrokerProcess::new(&args.broker, back, &data, &log)?;
    broker.set_env(
        "TIDEMARK_ADVERTISED_LISTENERS",
        &format!("PLAINTEXT://{}", relay.address()),
    );
    let clock = match &args.clock_library {
        None if args.faults.contains(&Fault::Clock) => {
            bail!("the fault clock needs --clock-library")
        }
        Some(library) if args.faults.contains(&Fault::Clock) => {
            let file = args.dir.join("clock");
            broker.set_env("LD_PRELOAD", &library.display().to_string());
            broker.set_env("TIDEMARK_TEST_CLOCK_FILE", &file.display().to_string());
            Some(WallClock::new(&file)?)
        }
        _ => None,
    };
    broker.start()?;

    let file = args.dir.join("history.jsonl");
    let names = args
        .program
        .iter()
        .map(|program| programs::name_of(program));
    let names: Result<Vec<String>> = names.map(|name| Ok(name?.0.to_owned())).collect();
    let shared = Arc::new(Shared::new(
        relay.address(),
        names?,
        Duration::from_secs(args.patience_s),
        Recorder::new(&file, seed)?,
    ));
    shared.create_topics()?;
    let mut programs = Vec::new();
    for (program, number) in args.program.iter().zip(1..) {
        programs.push(Program::start(
            program,
            number,
            &relay.address(),
            &args.dir,
            seed,
        )?);
    }
    let (writers, readers) = start_clients(args, &shared, seed);

    let faulted = Faults {
        kinds: &args.faults,
        broker: &mut broker,
        relay: &relay,
        clock: clock.as_ref(),
        shared: &shared,
        random: StdRng::seed_from_u64(seed ^ 0xfa17),
    }
    .run(Instant::now() + Duration::from_secs(args.seconds));
    shared.stop_writing.store(true, Ordering::Relaxed);
    if let Err(error) = faulted {
        // What there is of a history is judged all the same.
        shared.complain(format!("{error:#}"));
        if !broker.is_running() {
            broker.start()?;
        }
    }
    join(&shared, writers, "writers");
    eprintln!("writers have ended");
    for program in &mut programs {
        if let Err(error) = program.stop() {
            shared.complain(format!("{error:#}"));
        }
    }
    thread::sleep(Duration::from_millis(500)); // the readers' last look; the final scans do not depend on it
    shared.stop_reading.store(true, Ordering::Relaxed);
    join(&shared, readers, "readers");
    eprintln!("readers have ended");

    finish::write_down(&shared)?;
    shared.recorder.flush()?;
    eprintln!("everything is written down");
    let panics = broker.panics();
    broker.kill()?;
    for line in &panics {
        eprintln!("the broker panicked: {line}");
    }
    let mut files = vec![file];
    files.extend(programs.iter().map(|program| program.history.clone()));
    let verdict = judge(&files, &data)?;
    let enough = enough(args, &shared, &verdict);
    report(&verdict);
    let complaints = shared.complaints();
    if complaints > 0 {
        eprintln!("{complaints} clients gave up");
    }
    Ok(verdict.anomalies() == 0 && enough && panics.is_empty() && complaints == 0)
}

/// Waits for clients to end what they are at; one that does not is a failure of the run, and what there is is judged.
fn join(shared: &Shared, threads: Threads, what: &str) {
    let deadline = Instant::now() + shared.patience;
    while threads.iter().any(|thread| !thread.is_finished()) {
        if Instant::now() > deadline {
            let stuck = threads.iter().filter(|thread| !thread.is_finished());
            return shared.complain(format!("{} {what} do not end", stuck.count()));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

type Threads = Vec<JoinHandle<()>>;
type Body = Box<dyn FnOnce(&Arc<Shared>, StdRng) -> Result<()> + Send>;

/// Those that write, and those that read.
fn start_clients(args: &Args, shared: &Arc<Shared>, seed: u64) -> (Threads, Threads) {
    let mut number = 0_u64;
    let mut start = |name: String, body: Body| {
        number += 1;
        let (shared, random) = (shared.clone(), StdRng::seed_from_u64(seed ^ number));
        thread::spawn(move || {
            if let Err(error) = body(&shared, random) {
                shared.complain(format!("{name} gave up: {error:#}"));
            }
        })
    };
    let mut writers = Vec::new();
    for index in 0..args.producers {
        let body =
            move |shared: &Arc<Shared>, random| producers::transactional(shared, index, random);
        writers.push(start(format!("producer {index}"), Box::new(body)));
    }
    for index in 0..args.idempotent {
        let body = move |shared: &Arc<Shared>, random| producers::idempotent(shared, index, random);
        writers.push(start(
            format!("idempotent producer {index}"),
            Box::new(body),
        ));
    }
    let of = args.movers;
    for index in 0..of {
        let body = move |shared: &Arc<Shared>, random| movers::run(shared, index, of, random);
        writers.push(start(format!("mover {index}"), Box::new(body)));
    }
    let mut readers = Vec::new();
    for index in 0..args.readers {
        for read_committed in [true, false] {
            let body = move |shared: &Arc<Shared>, random| {
                readers::follow(shared, index, read_committed, index % 2 == 1, random)
            };
            readers.push(start(format!("reader {index}"), Box::new(body)));
        }
    }
    let body = |shared: &Arc<Shared>, random| readers::watch(shared, random);
    readers.push(start("watcher".to_owned(), Box::new(body)));
    (writers, readers)
}

/// The checker knows the history and the stopped broker's directory, and nothing else.
fn judge(histories: &[PathBuf], data: &PathBuf) -> Result<Verdict> {
    let mut events = Vec::new();
    for file in histories {
        let read = history::read(BufReader::new(File::open(file)?));
        events.push(read.map_err(|what| anyhow!("{}: {what}", file.display()))?);
    }
    let files = DirFiles::new(data);
    let read = tidemark_histcheck::read(&files)
        .map_err(|findings| anyhow!("the data directory is not in order: {findings:?}"))?;
    let log =
        LogView::new(&files, &read, &history::topics(&events)).map_err(|what| anyhow!(what))?;
    history::check(&events, Some(&log)).map_err(|what| anyhow!(what))
}

/// Whether so much happened that a clean verdict says something.
fn enough(args: &Args, shared: &Shared, verdict: &Verdict) -> bool {
    let seconds = args.seconds;
    let faults = match args.faults.is_empty() {
        true => 0,
        false => args.min_faults.unwrap_or(seconds.div_ceil(10)),
    };
    let minimums = [
        (
            "ops",
            verdict.operations,
            args.min_operations.unwrap_or(200 * seconds),
        ),
        ("faults", verdict.faults, faults),
        ("commits", verdict.commits, 4 * seconds),
        ("aborts", verdict.aborts, seconds / 2),
    ];
    let mut enough = true;
    for (name, got, minimum) in minimums {
        if got < minimum {
            eprintln!("too little happened: {name}={got}, at least {minimum} is asked for");
            enough = false;
        }
    }
    let by_kind = shared.recorder.faults();
    let kinds: Vec<String> = by_kind
        .iter()
        .map(|(kind, count)| format!("{kind}={count}"))
        .collect();
    println!("faults: {}", kinds.join(" "));
    enough
}

fn report(verdict: &Verdict) {
    for (check, sentence) in &verdict.sentences {
        println!("{check}: {sentence}");
    }
    for (check, count) in verdict.found() {
        println!("{check}={count}");
    }
    println!(
        "sends={} reads={} commits={} aborts={} unknown={}",
        verdict.sends, verdict.reads, verdict.commits, verdict.aborts, verdict.unknown
    );
    println!(
        "histories: ops={} txns={} faults={} anomalies={}",
        verdict.operations,
        verdict.transactions,
        verdict.faults,
        verdict.anomalies()
    );
}
