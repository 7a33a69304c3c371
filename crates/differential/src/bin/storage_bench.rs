//! Rows of `scripts/bench recovery`, `scripts/bench partitions` and `scripts/bench singles`: fill a broker with a log of
//! some size, wait until a broker that starts is ready, produce to many partitions, send one by one and at once, connect
//! many times.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
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
#[command(about = "Rows of scripts/bench recovery, partitions and singles")]
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
    /// Records of 1 KiB with acks=all, each sent when the one before it was answered; then as many in one batch.
    Singles {
        #[arg(long, default_value_t = 400)]
        count: u64,
        #[arg(long, default_value_t = 5)]
        runs: usize,
    },
    /// Connections that stay open and say nothing after their first request.
    Idle {
        #[arg(long, default_value_t = 10_000)]
        connections: u64,
        /// The broker's process, for its memory.
        #[arg(long)]
        pid: u32,
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
        Row::Singles { count, runs } => singles(&args, *count, *runs),
        Row::Idle { connections, pid } => idle(&args, *connections, *pid),
    }
}

/// A batch of one record that no disk and no codec can make smaller.
fn batch(bytes: u64, seed: u64) -> Vec<u8> {
    batch_of(1, bytes, seed)
}

/// As [`batch`], with as many such records.
fn batch_of(records: u64, bytes: u64, seed: u64) -> Vec<u8> {
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
    for _ in 0..records {
        builder.push(None, Some(&value));
    }
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

fn singles(args: &Args, count: u64, runs: usize) -> Result<()> {
    let mut raw = Raw::open(args.broker)?;
    let mut send = |batch: &[u8]| send(&mut raw, &args.topic, vec![(0, batch.to_vec())]);
    let (one, all) = (batch(1 << 10, 3), batch_of(count, 1 << 10, 3));
    let (mut singles, mut batches) = (Vec::new(), Vec::new());
    // The first of each is not measured.
    for run in 0..=runs {
        let started = Instant::now();
        for _ in 0..count {
            send(&one)?;
        }
        let between = Instant::now();
        send(&all)?;
        if run > 0 {
            singles.push(between - started);
            batches.push(between.elapsed());
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64()
    };
    println!(
        "singles={count} singles_s={:.3} batch_s={:.4}",
        median(&mut singles),
        median(&mut batches)
    );
    Ok(())
}

fn idle(args: &Args, connections: u64, pid: u32) -> Result<()> {
    // ApiVersions v0, correlation id 1, no client id.
    const HELLO: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let before = resident_mb(pid)?;
    let mut open = Vec::new();
    for n in 0..connections {
        let hello = || -> Result<TcpStream> {
            let mut stream = TcpStream::connect(args.broker)?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            stream.write_all(&HELLO)?;
            let mut size = [0; 4];
            stream.read_exact(&mut size)?;
            let mut answer = vec![0; u32::from_be_bytes(size).min(1 << 20) as usize];
            stream.read_exact(&mut answer)?;
            Ok(stream)
        };
        open.push(hello().with_context(|| format!("connection {n}"))?);
    }
    // All of them are open, and the next is served as ever.
    send(
        &mut Raw::open(args.broker)?,
        &args.topic,
        vec![(0, batch(1 << 10, 3))],
    )?;
    let per_connection = (resident_mb(pid)? - before) * 1e6 / connections as f64;
    println!(
        "idle_connections={} bytes_per_connection={per_connection:.0}",
        open.len()
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
