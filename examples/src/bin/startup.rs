//! How long a broker takes from exec to its first successful ApiVersions reply on an empty directory, and how much
//! memory it holds when idle. Run by `scripts/bench startup`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use tidemark_examples::broker_process::{BrokerProcess, free_port};
use tidemark_examples::latency::Samples;

#[derive(Parser)]
struct Args {
    /// Starts the broker; {port} and {data} are filled in
    #[arg(long)]
    broker: String,
    /// A folder for data and logs; each start gets a new one inside
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, default_value_t = 10)]
    starts: usize,
    /// How long it idles before its memory is looked at
    #[arg(long, default_value_t = 3000)]
    idle_ms: u64,
    /// Fail when the median of the starts takes longer
    #[arg(long)]
    limit_ms: Option<f64>,
    /// Fail when any idle broker holds more
    #[arg(long)]
    limit_rss_mb: Option<f64>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("startup: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let (mut replies, mut rss_mb) = (Samples::default(), 0.0_f64);
    for start in 0..args.starts {
        let dir = args.dir.join(format!("start-{start}"));
        let data = dir.join("data");
        std::fs::create_dir_all(&data)?;
        let port = free_port()?;
        let mut broker = BrokerProcess::new(&args.broker, port, &data, &dir.join("broker.log"))?;
        let begun = Instant::now();
        broker.spawn()?;
        replies.push(first_reply(port, begun)?);
        std::thread::sleep(Duration::from_millis(args.idle_ms));
        let pid = broker.pid().context("no pid")?;
        rss_mb = rss_mb.max(resident_mb(pid)?);
        broker.kill()?;
        ensure!(
            broker.panics().is_empty(),
            "the broker panicked: {}",
            broker.panics()[0]
        );
        remove(&dir);
    }
    let summary = replies.summary().context("no start was asked for")?;
    println!(
        "startup: starts={} first_reply_p50_ms={:.1} max_ms={:.1} idle_rss_mb={rss_mb:.1}",
        args.starts, summary.p50_ms, summary.max_ms
    );
    if let Some(limit) = args.limit_ms.filter(|limit| summary.p50_ms > *limit) {
        bail!(
            "the first reply took {:.1} ms, at most {limit} are allowed",
            summary.p50_ms
        );
    }
    if let Some(limit) = args.limit_rss_mb.filter(|limit| rss_mb > *limit) {
        bail!("{rss_mb:.1} MB are resident when idle, at most {limit} are allowed");
    }
    Ok(())
}

/// Asks for ApiVersions, version 0, until it is answered without an error.
fn first_reply(port: u16, begun: Instant) -> Result<Duration> {
    loop {
        if let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            // length 10; key 18, version 0, correlation 7, no client id
            stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff])?;
            let mut head = [0_u8; 10]; // length, correlation, error code
            stream
                .read_exact(&mut head)
                .context("ApiVersions was not answered")?;
            ensure!(head[4..8] == [0, 0, 0, 7], "another request's answer");
            ensure!(
                head[8..10] == [0, 0],
                "ApiVersions was answered with an error"
            );
            return Ok(begun.elapsed());
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "no answer after 60 s"
        );
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn resident_mb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .trim()
                .strip_suffix(" kB")?
                .parse::<f64>()
                .ok()
        })
        .context("no VmRSS in /proc")?;
    Ok(kib * 1024.0 / 1e6)
}

fn remove(dir: &Path) {
    // What stays behind goes with the caller's folder.
    let _ = std::fs::remove_dir_all(dir);
}
