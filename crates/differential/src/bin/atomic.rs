//! What readers see of a commit, counted: do the last stable offsets of all partitions of a transaction move together,
//! and is a record visible when the EndTxn that committed it was answered?
//!
//! Raw requests on plain connections, in both transaction dialects. Every answer of ListOffsets(read_committed) over
//! all partitions must show the same offset for each: a transaction puts one record and one marker into every one of
//! them. And the fetch that follows an answered EndTxn, on another connection, must bring the record.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{BrokerId, FetchRequest};
use tidemark_differential::driver::Driver;
use tidemark_differential::raw::{Dialect, Raw, Writer, latest, topic_name};

#[derive(Parser)]
#[command(
    about = "Counts half-visible transactions and commits that are not visible when they are answered"
)]
struct Args {
    /// Where Tidemark listens.
    #[arg(long, value_name = "HOST:PORT")]
    tidemark: SocketAddr,
    /// Where an Apache Kafka listens, for the contrast.
    #[arg(long, value_name = "HOST:PORT")]
    kafka: Option<SocketAddr>,
    /// Partitions of each transaction that the readers of offsets look at.
    #[arg(long, default_value_t = 8)]
    partitions: i32,
    /// Transactions that they look at, at least.
    #[arg(long, default_value_t = 2_000)]
    transactions: u64,
    /// ListOffsets requests over all partitions, at least.
    #[arg(long, default_value_t = 10_000)]
    reads: u64,
    /// Commits that are each followed by a fetch.
    #[arg(long, default_value_t = 10_000)]
    commits: u64,
}

#[derive(Default)]
struct Counts {
    transactions: u64,
    reads: u64,
    violations: u64,
    commits: u64,
    at_once: u64,
    concurrent: u64,
    /// The longest that a commit stayed invisible after its answer.
    latest_ms: f64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("atomic: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let ours = counts("tidemark", args.tidemark, args)?;
    let theirs = match args.kafka {
        Some(address) => Some(counts("kafka", address, args)?),
        None => None,
    };
    print!("atomic: {}", summary(&ours));
    if let Some(theirs) = &theirs {
        print!(" | kafka: {}", summary(theirs));
    }
    println!();
    Ok(ours.violations == 0 && ours.at_once == ours.commits)
}

fn summary(counts: &Counts) -> String {
    format!(
        "reads={} violations={} commits={} read_at_once={}",
        counts.reads, counts.violations, counts.commits, counts.at_once
    )
}

/// Both dialects, half of everything each.
fn counts(who: &str, address: SocketAddr, args: &Args) -> Result<Counts> {
    let mut all = Counts::default();
    Driver::connect(address)?.warm_up()?;
    for dialect in Dialect::BOTH {
        let mut one = Counts::default();
        together(address, dialect, args, &mut one).with_context(|| format!("{who}, offsets"))?;
        at_once(address, dialect, args, &mut one).with_context(|| format!("{who}, fetches"))?;
        println!(
            "{who}, {}: {} of {} reads of {} partitions saw part of one of {} transactions; {} of {} commits were not \
             visible at once, the last of them after {:.1} ms; {} answers CONCURRENT_TRANSACTIONS",
            dialect.name(),
            one.violations,
            one.reads,
            args.partitions,
            one.transactions,
            one.commits - one.at_once,
            one.commits,
            one.latest_ms,
            one.concurrent,
        );
        all.transactions += one.transactions;
        all.reads += one.reads;
        all.violations += one.violations;
        all.commits += one.commits;
        all.at_once += one.at_once;
        all.concurrent += one.concurrent;
    }
    Ok(all)
}

/// One writer, two readers of offsets, until there is enough of both.
fn together(address: SocketAddr, dialect: Dialect, args: &Args, counts: &mut Counts) -> Result<()> {
    let topic = format!("together-{}", dialect.name().replace(' ', "-"));
    Raw::open(address)?.create_topic(&topic, args.partitions)?;
    let mut writer = Writer::start(address, &topic, dialect)?;
    let (reads, violations, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let read = || -> Result<()> {
        let mut raw = Raw::open(address)?;
        let stable = latest(&topic, args.partitions, 1)?;
        while !done.load(Ordering::Relaxed) {
            let answer = raw.list_offsets(&stable)?;
            ensure!(
                answer.len() == args.partitions as usize
                    && answer.iter().all(|(code, _)| *code == 0),
                "ListOffsets: {answer:?}"
            );
            if answer.iter().any(|offset| *offset != answer[0]) {
                violations.fetch_add(1, Ordering::Relaxed);
            }
            reads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let mut write = || -> Result<u64> {
        let mut transactions = 0;
        while transactions < args.transactions / 2 || reads.load(Ordering::Relaxed) < args.reads / 2
        {
            writer.write(&topic, 0..args.partitions)?;
            writer.commit()?;
            transactions += 1;
        }
        Ok(transactions)
    };
    let written = std::thread::scope(|scope| {
        // A reader that fails ends the run: the writer would wait for its reads.
        let readers = [0, 1].map(|_| scope.spawn(|| read().inspect_err(|_| reads_failed(&reads))));
        let written = write();
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("the thread does not panic")?;
        }
        written
    });
    counts.transactions += written?;
    counts.concurrent += writer.concurrent;
    counts.reads += reads.into_inner();
    counts.violations += violations.into_inner();
    Ok(())
}

fn reads_failed(reads: &AtomicU64) {
    reads.fetch_add(1 << 40, Ordering::Relaxed);
}

/// One writer; after each answered commit one fetch on another connection.
fn at_once(address: SocketAddr, dialect: Dialect, args: &Args, counts: &mut Counts) -> Result<()> {
    let topic = format!("at-once-{}", dialect.name().replace(' ', "-"));
    let mut reader = Raw::open(address)?;
    reader.create_topic(&topic, 1)?;
    let mut writer = Writer::start(address, &topic, dialect)?;
    let mut position = 0;
    for _ in 0..args.commits / 2 {
        writer.write(&topic, 0..1)?;
        writer.commit()?;
        let answered = Instant::now();
        let mut is_visible = brings(&mut reader, &topic, position)?;
        if is_visible {
            counts.at_once += 1;
        }
        while !is_visible {
            ensure!(
                answered.elapsed() < Duration::from_secs(30),
                "a commit never became visible"
            );
            is_visible = brings(&mut reader, &topic, position)?;
            counts.latest_ms = counts.latest_ms.max(answered.elapsed().as_secs_f64() * 1e3);
        }
        counts.commits += 1;
        position += 2;
    }
    counts.concurrent += writer.concurrent;
    Ok(())
}

/// Whether a read_committed fetch at this position brings records.
fn brings(reader: &mut Raw, topic: &str, position: i64) -> Result<bool> {
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(1 << 20)
        .with_isolation_level(1)
        .with_session_epoch(-1)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(topic_name(topic))
                .with_partitions(vec![
                    FetchPartition::default()
                        .with_current_leader_epoch(-1)
                        .with_fetch_offset(position)
                        .with_partition_max_bytes(1 << 20),
                ]),
        ]);
    let answer = reader.ask(12, &request)?;
    let topic = answer.responses.first().context("Fetch without a topic")?;
    let partition = topic
        .partitions
        .first()
        .context("Fetch without a partition")?;
    ensure!(
        partition.error_code == 0,
        "Fetch at {position}: error {}",
        partition.error_code
    );
    let has_records = partition
        .records
        .as_ref()
        .is_some_and(|records| !records.is_empty());
    Ok(has_records && partition.last_stable_offset > position)
}
