//! Records what many clients do and see while faults come down on the broker, and has it checked.
//!
//! Transactional and idempotent producers, movers (consume, transform, produce, offsets in the transaction), readers of
//! both isolation levels; all through a relay that can cut their connections. In the end everything is read once more,
//! the broker is killed, and `histcheck` judges the history, also against the log, which it reads by itself. Run by
//! `scripts/prove histories`. The last line:
//!
//! `histories: ops=... txns=... faults=... anomalies=0`
//!
//! The line before it says how much of each thing there was, and how much is asked for.
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
mod tally;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_examples::broker_process::{BrokerProcess, free_port};
use tidemark_histcheck::DirFiles;
use tidemark_histcheck::history::{self, Event, LogView, Verdict};

use faults::{Fault, Faults, WallClock};
use programs::Program;
use recorder::Recorder;
use relay::Relay;
use shared::{SOURCE, Shared, TOPICS};
use tally::{Minimum, Tally};

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
    let partitions = TOPICS.iter().find(|(topic, _)| *topic == SOURCE);
    if partitions.is_some_and(|(_, partitions)| args.movers > *partitions as usize) {
        bail!(
            "--movers {}: {SOURCE} has a partition for each of at most {}",
            args.movers,
            partitions.map_or(0, |(_, partitions)| *partitions)
        );
    }
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
    let mut clock = match &args.clock_library {
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
        clock: clock.as_mut(),
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
    let events: Result<Vec<_>> = files.iter().map(|file| events_of(file)).collect();
    let events = events?;
    let judged = judge(&events, &data)?;
    judged.tell();
    tell_counts("faults", &shared.recorder.faults());
    tell_counts("errors of readers", &shared.read_errors());
    let minimums = minimums(args, &shared, &judged.verdict, &events);
    let enough = tally::reached(&minimums);
    judged.last_line();
    let complaints = shared.complaints();
    if complaints > 0 {
        eprintln!("{complaints} complaints of clients");
    }
    Ok(judged.anomalies() == 0 && enough && panics.is_empty() && complaints == 0)
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

fn events_of(file: &Path) -> Result<Vec<Event>> {
    let opened = File::open(file).with_context(|| file.display().to_string())?;
    history::read(BufReader::new(opened)).map_err(|what| anyhow!("{}: {what}", file.display()))
}

/// The checker knows the history and the stopped broker's directory, and nothing else.
fn judge(events: &[Vec<Event>], data: &Path) -> Result<Judged> {
    let files = DirFiles::new(data);
    let mut unreadable = Vec::new();
    let log = match tidemark_histcheck::read(&files) {
        Ok(read) => match LogView::new(&files, &read, &history::topics(events)) {
            Ok(log) => Some(log),
            Err(what) => {
                unreadable.push(what);
                None
            }
        },
        Err(findings) => {
            unreadable.extend(findings.iter().map(|finding| finding.to_string()));
            None
        }
    };
    let verdict = history::check(events, log.as_ref()).map_err(|what| anyhow!(what))?;
    Ok(Judged {
        verdict,
        unreadable,
    })
}

struct Judged {
    verdict: Verdict,
    /// What the independent reader finds wrong with the directory. Then the history is judged without the log.
    unreadable: Vec<String>,
}

impl Judged {
    fn anomalies(&self) -> u64 {
        self.verdict.anomalies() + self.unreadable.len() as u64
    }

    fn tell(&self) {
        let verdict = &self.verdict;
        for (check, sentence) in &verdict.sentences {
            println!("{check}: {sentence}");
        }
        for (check, count) in verdict.found() {
            println!("{check}={count}");
        }
        for what in &self.unreadable {
            println!("the data directory is not in order: {what}");
        }
        println!(
            "sends={} reads={} commits={} aborts={} unknown={}",
            verdict.sends, verdict.reads, verdict.commits, verdict.aborts, verdict.unknown
        );
    }

    fn last_line(&self) {
        let verdict = &self.verdict;
        println!(
            "histories: ops={} txns={} faults={} anomalies={}",
            verdict.operations,
            verdict.transactions,
            verdict.faults,
            self.anomalies()
        );
    }
}

fn tell_counts(what: &str, counts: &BTreeMap<String, u64>) {
    let mut line = format!("{what}:");
    for (kind, count) in counts {
        line.push_str(&format!(" {kind}={count}"));
    }
    println!("{line}");
}

/// What must have happened for a clean verdict to say something; of most things a tenth of what a slow machine does.
fn minimums(
    args: &Args,
    shared: &Shared,
    verdict: &Verdict,
    events: &[Vec<Event>],
) -> Vec<Minimum> {
    let seconds = args.seconds;
    // Of what nobody is there to do nothing is asked for.
    let by = |doers: usize, least: u64| if doers == 0 { 0 } else { least };
    let kinds = args.faults.len();
    let operations = args.min_operations.unwrap_or(200 * seconds);
    let faults = args.min_faults.unwrap_or(seconds.div_ceil(10));
    let mut all = vec![
        Minimum::new("ops", verdict.operations, operations),
        Minimum::new("faults", verdict.faults, by(kinds, faults)),
        Minimum::new("commits", verdict.commits, 4 * seconds),
        Minimum::new("aborts", verdict.aborts, seconds / 2),
    ];
    // A run that is long enough has each kind of fault.
    let done = shared.recorder.faults();
    for kind in &args.faults {
        let least = u64::from(seconds >= 10 * kinds as u64);
        let got = done.get(kind.name()).copied().unwrap_or(0);
        let what = format!("faults[{}]", kind.name());
        if !all.iter().any(|minimum| minimum.what == what) {
            all.push(Minimum::new(what, got, least));
        }
    }
    let tallies: Vec<Tally> = events.iter().map(|events| Tally::of(events)).collect();
    let Some((own, others)) = tallies.split_first() else {
        return all;
    };
    let reads = by(args.readers, 100 * seconds);
    let (producers, watermarks) = (args.producers, 4 * seconds);
    let refused = by(producers, seconds.div_ceil(10));
    all.extend([
        Minimum::new("committed_reads", own.committed_reads, reads),
        Minimum::new("raw_reads", own.raw_reads, reads),
        Minimum::new("committed_watermarks", own.committed_watermarks, watermarks),
        Minimum::new("raw_watermarks", own.raw_watermarks, watermarks),
        Minimum::new("transfers", own.transfers, by(producers, seconds)),
        Minimum::new("replaced_refused", own.refused, refused),
    ]);
    for mover in 0..args.movers {
        let id = movers::id(mover);
        let moved = own.moved.get(&id).copied().unwrap_or(0);
        all.push(Minimum::new(format!("moved[{id}]"), moved, 10 * seconds));
    }
    for (name, tally) in shared.programs.iter().zip(others) {
        let moved = tally.moved.values().sum();
        all.extend([
            Minimum::new(format!("commits[{name}]"), tally.commits, seconds),
            Minimum::new(format!("polled[{name}]"), tally.polled, 20 * seconds),
            Minimum::new(format!("moved[{name}]"), moved, 2 * seconds),
        ]);
    }
    all
}
