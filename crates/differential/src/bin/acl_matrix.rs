//! What clients with and without a right are answered, by Tidemark and by Apache Kafka: every row of
//! the matrix, compared with each other and with `tests/acl-matrix.txt`.
//!
//! Both brokers run already, fresh and with the same settings: see `scripts/prove acl-matrix`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use tidemark_differential::acl_matrix::{Row, run};

#[derive(Parser)]
struct Args {
    /// Where Tidemark listens.
    #[arg(long, value_name = "HOST:PORT")]
    tidemark: SocketAddr,
    /// Where Apache Kafka listens.
    #[arg(long, value_name = "HOST:PORT")]
    kafka: SocketAddr,
    /// The file of the answers that are expected.
    #[arg(long, value_name = "FILE")]
    expected: PathBuf,
    /// Write Kafka's answers into that file instead.
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    match compare(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("acl-matrix: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &Args) -> Result<bool> {
    let (ours, theirs) = std::thread::scope(|scope| {
        let ours = scope.spawn(|| run(args.tidemark));
        let theirs = scope.spawn(|| run(args.kafka));
        (ours.join(), theirs.join())
    });
    let ours = ours
        .expect("the thread does not panic")
        .context("Tidemark")?;
    let theirs = theirs
        .expect("the thread does not panic")
        .context("Kafka")?;
    let path = &args.expected;
    if args.write {
        let lines: Vec<String> = theirs.iter().map(Row::line).collect();
        std::fs::write(path, lines.join("\n") + "\n")?;
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let expected: Vec<&str> = text.lines().collect();
    let mut differences = 0;
    for (nth, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        if ours != theirs {
            differences += 1;
            println!("Tidemark {}\nKafka    {}", ours.line(), theirs.line());
        } else if expected.get(nth).copied() != Some(&theirs.line()) {
            differences += 1;
            let known = expected.get(nth).copied().unwrap_or("nothing");
            println!("both     {}\nexpected {known}", theirs.line());
        }
    }
    if expected.len() != theirs.len() {
        differences += 1;
        println!(
            "{} rows are expected, {} were asked",
            expected.len(),
            theirs.len()
        );
    }
    println!(
        "acl-matrix: rows={} differences={differences}",
        theirs.len()
    );
    Ok(differences == 0)
}
