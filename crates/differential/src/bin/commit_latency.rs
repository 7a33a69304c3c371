//! How long EndTxn takes over many partitions, beside a single produce with acks=all, and how many syncs it costs.
//!
//! The two are alternated on one connection each. Syncs are read from the file in which a library that was loaded
//! into the broker counts them (scripts/bench.d/count_syncs.c): before EndTxn is sent and after it was answered.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use kafka_protocol::messages::ProduceResponse;
use kafka_protocol::protocol::Decodable;
use tidemark_differential::driver::Driver;
use tidemark_differential::raw::{Dialect, Raw, Writer, plain_produce};

#[derive(Parser)]
#[command(
    about = "EndTxn over many partitions beside a single produce with acks=all, and its syncs"
)]
struct Args {
    #[arg(long, value_name = "HOST:PORT")]
    broker: SocketAddr,
    #[arg(long, default_value_t = 64)]
    partitions: i32,
    /// Pairs that are measured, after a tenth as many that are not.
    #[arg(long, default_value_t = 1_000)]
    count: usize,
    /// The file with the number of syncs, 64 bits in the machine's order.
    #[arg(long, value_name = "FILE")]
    syncs: Option<PathBuf>,
    /// So that runs on one broker do not meet.
    #[arg(long, default_value = "1")]
    run: String,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let syncs = match &args.syncs {
        Some(path) => Some(File::open(path).with_context(|| format!("{}", path.display()))?),
        None => None,
    };
    Driver::connect(args.broker)?.warm_up()?;
    let mut plain = Raw::open(args.broker)?;
    let (single, many) = (format!("single-{}", args.run), format!("many-{}", args.run));
    plain.create_topic(&single, 1)?;
    plain.create_topic(&many, args.partitions)?;
    let mut writer = Writer::start(args.broker, &many, Dialect::Version2)?;
    let produce = plain_produce(&single, 0, b"value")?;
    let (mut commits, mut produces, mut commit_syncs) = (Vec::new(), Vec::new(), 0);
    let warm_up = args.count / 10 + 1;
    for n in 0..warm_up + args.count {
        let started = Instant::now();
        let mut frame = plain.exchange(&produce)?;
        let took = started.elapsed();
        let answer = ProduceResponse::decode(&mut frame, produce.version)?;
        let partition =
            (answer.responses.first()).and_then(|topic| topic.partition_responses.first());
        ensure!(
            partition.is_some_and(|p| p.error_code == 0),
            "Produce: {partition:?}"
        );

        writer.write(&many, 0..args.partitions)?;
        let before = count(syncs.as_ref())?;
        let commit = writer.commit()?;
        let after = count(syncs.as_ref())?;
        if n >= warm_up {
            produces.push(took);
            commits.push(commit);
            commit_syncs += after - before;
        }
    }
    let (commit, produce) = (p50_ms(&mut commits), p50_ms(&mut produces));
    let mut line = format!(
        "partitions={} commits={} endtxn_p50_ms={commit:.3} produce_p50_ms={produce:.3} ratio={:.2}",
        args.partitions,
        args.count,
        commit / produce
    );
    if syncs.is_some() {
        let per_commit = commit_syncs as f64 / args.count as f64;
        line.push_str(&format!(" syncs_per_commit={per_commit:.3}"));
    }
    println!("{line} code_51={}", writer.concurrent);
    Ok(())
}

fn count(file: Option<&File>) -> Result<u64> {
    let mut bytes = [0; 8];
    if let Some(file) = file {
        file.read_exact_at(&mut bytes, 0)?;
    }
    Ok(u64::from_ne_bytes(bytes))
}

fn p50_ms(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}
