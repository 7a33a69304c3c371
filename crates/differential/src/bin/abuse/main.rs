//! A broker under abuse, from addresses all over 127.0.0.0/8, while an honest producer goes on: is it there
//! afterwards, what memory did it take at most, and how much slower was the producer than before?

mod attacks;
mod bombs;
mod from;

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use kafka_protocol::messages::{ApiVersionsRequest, ProduceResponse};
use kafka_protocol::protocol::Decodable;
use tidemark_differential::raw::{Raw, latest, plain_produce};

use attacks::Target;

/// The topic of the honest producer.
pub const HONEST: &str = "honest";
/// What slow readers ask for.
pub const BULK: &str = "bulk";

/// Limits that the attacks must have reached: otherwise nothing was shown. (The rate of one address and the
/// memory of requests that wait are not reached from so many addresses: `broker/tests/limits.rs` has them.)
const MUST_BE_REACHED: [&str; 6] = [
    "max.connection.creation.rate",
    "socket.request.max.bytes",
    "control.request.max.bytes",
    "request.read.timeout.ms",
    "response.write.timeout.ms",
    "decompression.max.bytes",
];

const LOGIN_THREADS: usize = 20;

#[derive(Parser)]
#[command(about = "Abuses a broker and watches an honest producer meanwhile")]
struct Args {
    #[arg(long, value_name = "HOST:PORT")]
    broker: SocketAddrV4,
    /// Its admin endpoint, for what it has counted.
    #[arg(long, value_name = "HOST:PORT")]
    admin: SocketAddr,
    /// The port of its listener with SASL, whose user is alice.
    #[arg(long)]
    sasl_port: u16,
    /// Logins with a wrong proof.
    #[arg(long, default_value_t = 10_000)]
    logins: usize,
    /// Its process, for its memory.
    #[arg(long)]
    pid: u32,
    #[arg(long, default_value_t = 20)]
    quiet_s: u64,
    #[arg(long, default_value_t = 120)]
    abuse_s: u64,
    /// Connections that only stay.
    #[arg(long, default_value_t = 5_000)]
    idle: usize,
    /// Requests a second of the honest producer.
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// How much of the other attacks.
    #[arg(long, default_value_t = 10)]
    scale: usize,
    /// The most memory the broker may ever have held.
    #[arg(long)]
    max_rss_mb: u64,
    /// How many times the p99 of the quiet time that of the abuse may be; without it nothing is asked.
    #[arg(long)]
    max_ratio: Option<f64>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("abuse: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let broker = SocketAddr::V4(args.broker);
    let mut raw = Raw::open(broker)?;
    raw.create_topic(HONEST, 1)?;
    raw.create_topic(BULK, 1)?;
    fill(&mut raw)?;
    let bombs = bombs::all()?;
    let producer = Producer::default();
    let (over, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let target = Target {
        broker: args.broker,
        over: &over,
        scale: args.scale,
    };
    let told = thread::scope(|scope| -> Result<_> {
        // Whatever happens here, the others must end.
        let _ends = Ends([&over, &stop]);
        let honest = scope.spawn(|| producer.run(broker, args.rate, &stop));
        // What the first requests of a process cost is not what is compared.
        sleep(Duration::from_secs(2));
        producer.take();
        sleep(Duration::from_secs(args.quiet_s));
        let quiet = producer.take();
        let resident_quiet = memory_mb(args.pid, "VmRSS:")?;

        let idle = scope.spawn(|| attacks::idle(&target, args.idle));
        let storm = scope.spawn(|| attacks::storm(&target));
        let oversized = scope.spawn(|| attacks::oversized(&target));
        let writers = scope.spawn(|| attacks::slow_writers(&target));
        let readers = scope.spawn(|| attacks::slow_readers(&target));
        let bombed = scope.spawn(|| attacks::bombs(&target, &bombs));
        let parked = scope.spawn(|| attacks::parked(&target));
        // Each waits for the answer, which the broker delays.
        let logins: Vec<_> = (0..LOGIN_THREADS)
            .map(|_| {
                let target = &target;
                let most = args.logins / LOGIN_THREADS;
                scope.spawn(move || attacks::logins(target, args.sasl_port, most))
            })
            .collect();
        let newcomers = scope.spawn(|| attacks::newcomers(&target));
        sleep(Duration::from_secs(args.abuse_s));
        let abused = producer.take();
        over.store(true, Ordering::Relaxed);
        for line in [
            idle.join().expect("no attack panics"),
            storm.join().expect("no attack panics"),
            oversized.join().expect("no attack panics"),
            writers.join().expect("no attack panics"),
            readers.join().expect("no attack panics")?,
            bombed.join().expect("no attack panics")?,
            parked.join().expect("no attack panics")?,
        ] {
            println!("{line}");
        }
        let mut got_in = 0;
        for login in logins {
            let (line, successes) = login.join().expect("no attack panics")?;
            println!("{line}");
            got_in += successes;
        }
        ensure!(got_in == 0, "{got_in} logins with a wrong proof got in");
        let (came, tried, slowest) = newcomers.join().expect("no attack panics");
        println!(
            "newcomers: served={came} of={tried} slowest_ms={}",
            slowest.as_millis()
        );
        // Afterwards all is as before.
        sleep(Duration::from_secs(2));
        producer.take();
        sleep(Duration::from_secs((args.quiet_s / 4).max(1)));
        let after = producer.take();
        stop.store(true, Ordering::Relaxed);
        let written = honest.join().expect("the producer does not panic")?;
        Ok((quiet, abused, after, resident_quiet, written))
    })?;
    let (mut quiet, mut abused, mut after, resident_quiet, written) = told;
    Raw::open(broker)?.ask(0, &ApiVersionsRequest::default())?;
    let ends = raw.list_offsets(&latest(HONEST, 1, 0)?)?;
    ensure!(
        ends == [(0, written)],
        "{written} records were acknowledged, the log's end is {ends:?}"
    );
    let reached = reached(args.admin)?;
    for line in &reached {
        println!("{line}");
    }
    let missing: Vec<&str> = MUST_BE_REACHED
        .into_iter()
        .filter(|limit| {
            !reached
                .iter()
                .any(|line| line.contains(&format!("\"{limit}\"")))
        })
        .collect();
    ensure!(
        missing.is_empty(),
        "limits that nobody reached: {missing:?}"
    );

    let rss_max_mb = memory_mb(args.pid, "VmHWM:")?;
    let (before_ms, during_ms, after_ms) = (p99(&mut quiet), p99(&mut abused), p99(&mut after));
    // A short time in which the disk stalled has no p99, which matters only where times count.
    ensure!(
        args.max_ratio.is_none() || before_ms.and(during_ms).and(after_ms).is_some(),
        "nothing was measured"
    );
    println!(
        "honest producer, {} requests a second: p99 {} ms before ({} requests, {resident_quiet} MB resident), \
         {} ms under abuse ({}), {} ms after ({})",
        args.rate,
        or_none(before_ms),
        quiet.len(),
        or_none(during_ms),
        abused.len(),
        or_none(after_ms),
        after.len()
    );
    let ratio = during_ms
        .zip(before_ms)
        .map(|(during, before)| during / before);
    let survived = rss_max_mb <= args.max_rss_mb;
    println!(
        "abuse: survived={} rss_max_mb={rss_max_mb} p99_ratio={}",
        if survived { "yes" } else { "no" },
        or_none(ratio)
    );
    if !survived {
        eprintln!("the broker's memory may be {} MB", args.max_rss_mb);
    }
    let fast = args
        .max_ratio
        .is_none_or(|most| ratio.is_some_and(|ratio| ratio <= most));
    if !fast {
        eprintln!(
            "the producer was more than {:?} times slower",
            args.max_ratio
        );
    }
    Ok(survived && fast)
}

/// Ends what runs until it is told to.
struct Ends<'a>([&'a AtomicBool; 2]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        for flag in self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

/// Writes what slow readers ask for: 32 MB.
fn fill(raw: &mut Raw) -> Result<()> {
    let value: Vec<u8> = (0..800_000u32).map(|n| (n * 7 % 251) as u8).collect();
    let body = plain_produce(BULK, 0, &value)?;
    for _ in 0..40 {
        raw.exchange(&body)?;
    }
    Ok(())
}

/// Requests of one record each, acks=all, one after the other on a schedule. A latency counts from when the request
/// was due: one that is late because the one before it took long is late.
#[derive(Default)]
struct Producer {
    latencies: Mutex<Vec<Duration>>,
}

impl Producer {
    /// Returns how many were acknowledged; an error that is answered is one of its own.
    fn run(&self, broker: SocketAddr, rate: u64, stop: &AtomicBool) -> Result<i64> {
        let mut raw = Raw::open(broker)?;
        let body = plain_produce(HONEST, 0, &[b'v'; 1024])?;
        let begun = Instant::now();
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            let due = begun + Duration::from_secs_f64(written as f64 / rate as f64);
            sleep(due.saturating_duration_since(Instant::now()));
            let mut answer = raw.exchange(&body).context("the honest producer")?;
            let answer = ProduceResponse::decode(&mut answer, body.version)?;
            let code = answer.responses[0].partition_responses[0].error_code;
            ensure!(code == 0, "the honest producer was answered {code}");
            self.latencies
                .lock()
                .expect("nobody panics")
                .push(due.elapsed());
            written += 1;
        }
        Ok(written)
    }

    /// What was measured since the last call.
    fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.latencies.lock().expect("nobody panics"))
    }
}

/// In milliseconds; none of nothing.
fn p99(latencies: &mut [Duration]) -> Option<f64> {
    latencies.sort_unstable();
    let at = (latencies.len() * 99).div_ceil(100).saturating_sub(1);
    Some(latencies.get(at)?.as_secs_f64() * 1_000.0)
}

fn or_none(number: Option<f64>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| format!("{number:.2}"))
}

/// A line of what Linux tells of a process, in MB.
fn memory_mb(pid: u32, line: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .context("the broker is gone, or this is not Linux")?;
    let found = status.lines().find(|l| l.starts_with(line));
    let kib = found.and_then(|l| l.split_whitespace().nth(1));
    let kib: u64 = kib.context("no such line")?.parse()?;
    Ok(kib / 1024)
}

/// The limits that the broker says were reached, as it says it.
fn reached(admin: SocketAddr) -> Result<Vec<String>> {
    let mut stream = TcpStream::connect(admin).context("the admin endpoint")?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {admin}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let lines = text.lines().filter(|line| {
        let of_limit = line.starts_with("tidemark_limit_");
        of_limit && !line.ends_with(" 0")
    });
    Ok(lines.map(str::to_owned).collect())
}
