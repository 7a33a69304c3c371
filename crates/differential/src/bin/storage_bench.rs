//! Rows of `scripts/bench recovery` and `scripts/bench partitions`: fill a broker with a log of some size, wait until a
//! broker that starts is ready, produce to many partitions.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use kafka_protocol::messages::ProduceResponse;
use kafka_protocol::protocol::Decodable;
use tidemark_differential::raw::{Raw, latest, produce};
use tidemark_record_batch::BatchBuilder;

/// Connections that send at the same time.
const CONNECTIONS: u64 = 8;
/// The largest record of `fill`, and about what one of its requests carries.
const FILL_RECORD_BYTES: u64 = 64 << 10;
const FILL_REQUEST_BYTES: u64 = 1 << 20;
const PRODUCE_VERSION: i16 = 11;

#[derive(Parser)]
#[command(about = "Rows of scripts/bench recovery and scripts/bench partitions")]
struct Args {
    #[arg(long, value_name = "HOST:PORT")]
    broker: SocketAddr,
    #[arg(long, default_value = "bench")]
    topic: String,
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    #[command(subcommand)]
    row: Row,
}

#[derive(Subcommand)]
enum Row {
    /// Makes the topic.
    Create,
    /// Writes so many bytes, spread evenly over the partitions.
    Fill {
        #[arg(long)]
        bytes: u64,
    },
    /// Waits until the topic's end offsets are answered; prints their sum.
    Ready {
        #[arg(long, default_value_t = 300)]
        seconds: u64,
    },
    /// Records of 1 KiB, one a request, round the partitions, each connection as fast as it is answered.
    Produce {
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// The broker's process, for its memory and its open files.
        #[arg(long)]
        pid: u32,
        /// The file with the number of syncs, 64 bits in the machine's order.
        #[arg(long, value_name = "FILE")]
        syncs: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    let args = Args::parse();
    match &args.row {
        Row::Create => Raw::open(args.broker)?.create_topic(&args.topic, args.partitions),
        Row::Fill { bytes } => fill(&args, *bytes),
        Row::Ready { seconds } => ready(&args, Duration::from_secs(*seconds)),
        Row::Produce {
            seconds,
            pid,
            syncs,
        } => produce_row(&args, *seconds, *pid, syncs.as_ref()),
    }
}

/// A batch of one record that no disk and no codec can make smaller.
fn batch(bytes: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let value: Vec<u8> = (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect();
    let mut builder = BatchBuilder::new(1_750_000_000_000);
    builder.push(None, Some(&value));
    builder.build()
}

fn send(raw: &mut Raw, topic: &str, batches: Vec<(i32, Vec<u8>)>) -> Result<()> {
    let body = produce(PRODUCE_VERSION, None, topic, batches)?;
    let mut frame = raw.exchange(&body)?;
    let answer = ProduceResponse::decode(&mut frame, PRODUCE_VERSION)?;
    let refused = (answer.responses.iter())
        .flat_map(|topic| &topic.partition_responses)
        .find(|p| p.error_code != 0);
    ensure!(refused.is_none(), "Produce: {refused:?}");
    Ok(())
}

fn fill(args: &Args, bytes: u64) -> Result<()> {
    let partitions = u64::from(args.partitions.unsigned_abs());
    let record = (bytes / partitions).clamp(1 << 10, FILL_RECORD_BYTES);
    let per_request = (FILL_REQUEST_BYTES / record).min(partitions).max(1);
    let requests = bytes.div_ceil(record * per_request);
    let next = AtomicU64::new(0);
    let whole = batch(record, 1);
    let work = || -> Result<()> {
        let mut raw = Raw::open(args.broker)?;
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= requests {
                return Ok(());
            }
            let batches = (0..per_request)
                .map(|k| (n * per_request + k) % partitions)
                .map(|partition| (partition as i32, whole.clone()))
                .collect();
            send(&mut raw, &args.topic, batches)?;
        }
    };
    let started = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().expect("a worker does not panic")?;
        }
        Ok(())
    })?;
    let written = requests * per_request * record;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "filled bytes={written} mb_per_s={:.0}",
        written as f64 / seconds / 1e6
    );
    Ok(())
}

fn ready(args: &Args, patience: Duration) -> Result<()> {
    let until = Instant::now() + patience;
    let ends = latest(&args.topic, args.partitions, 0)?;
    loop {
        let answered = Raw::open(args.broker).and_then(|mut raw| raw.list_offsets(&ends));
        match answered {
            Ok(ends) if ends.iter().all(|(code, _)| *code == 0) => {
                println!("records={}", ends.iter().map(|(_, end)| end).sum::<i64>());
                return Ok(());
            }
            other => {
                ensure!(Instant::now() < until, "not ready in time: {other:?}");
                sleep(Duration::from_millis(2));
            }
        }
    }
}

fn produce_row(args: &Args, seconds: f64, pid: u32, syncs: Option<&PathBuf>) -> Result<()> {
    let syncs = match syncs {
        Some(path) => Some(File::open(path).with_context(|| format!("{}", path.display()))?),
        None => None,
    };
    let partitions = u64::from(args.partitions.unsigned_abs());
    let (next, measured, stop) = (
        AtomicU64::new(0),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    let record = batch(1 << 10, 7);
    let work = || -> Result<Vec<Duration>> {
        let mut raw = Raw::open(args.broker)?;
        let mut times = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let partition = (next.fetch_add(1, Ordering::Relaxed) % partitions) as i32;
            let started = Instant::now();
            send(&mut raw, &args.topic, vec![(partition, record.clone())])?;
            if measured.load(Ordering::Relaxed) {
                times.push(started.elapsed());
            }
        }
        Ok(times)
    };
    let (mut times, mut elapsed, mut synced) = (Vec::new(), 0.0, 0);
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(work)).collect();
        // A fifth of the time, and at least once round the partitions, is not measured.
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds / 5.0
            || (next.load(Ordering::Relaxed) < partitions && begun.elapsed().as_secs() < 120)
        {
            sleep(Duration::from_millis(20));
        }
        let before = count(syncs.as_ref());
        let started = Instant::now();
        measured.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs_f64(seconds));
        elapsed = started.elapsed().as_secs_f64();
        synced = count(syncs.as_ref())? - before?;
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            times.extend(worker.join().expect("a worker does not panic")?);
        }
        Ok(())
    })?;
    ensure!(!times.is_empty(), "nothing was acknowledged");
    times.sort_unstable();
    let at = |share: f64| {
        let rank = ((times.len() as f64 * share) as usize).min(times.len() - 1);
        times[rank].as_secs_f64() * 1e3
    };
    let per_second = times.len() as f64 / elapsed;
    println!(
        "partitions={} p50_ms={:.3} p99_ms={:.3} records_per_s={per_second:.0} mb_per_s={:.1} \
         syncs_per_s={:.0} open_files={} rss_mb={:.1}",
        args.partitions,
        at(0.5),
        at(0.99),
        per_second * 1024.0 / 1e6,
        synced as f64 / elapsed,
        std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
        resident_mb(pid)?
    );
    Ok(())
}

fn count(file: Option<&File>) -> Result<u64> {
    let mut bytes = [0; 8];
    if let Some(file) = file {
        file.read_exact_at(&mut bytes, 0)?;
    }
    Ok(u64::from_ne_bytes(bytes))
}

fn resident_mb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    Ok(kib.context("no VmRSS in /proc")? * 1024.0 / 1e6)
}
