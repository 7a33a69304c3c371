//! Sends the same request scripts to Tidemark and to Apache Kafka and compares every answer.
//!
//! Both brokers run already, fresh and with the same settings: see `scripts/prove differential`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use tidemark_differential::differences::{Differences, KafkaVersion};
use tidemark_differential::report::Report;
use tidemark_differential::script::Script;
use tidemark_differential::side::{Answer, Side};
use tidemark_differential::steps::{Common, Step, plan};

#[derive(Parser)]
#[command(
    about = "The same request scripts to Tidemark and to Apache Kafka, every answer compared"
)]
struct Args {
    /// Where Tidemark listens.
    #[arg(long, value_name = "HOST:PORT")]
    tidemark: SocketAddr,
    /// Where Apache Kafka listens.
    #[arg(long, value_name = "HOST:PORT")]
    kafka: SocketAddr,
    /// The folder with the scripts.
    #[arg(long, value_name = "DIR")]
    scripts: PathBuf,
    /// The file that names the allowed differences.
    #[arg(long, value_name = "FILE")]
    differences: PathBuf,
    /// Which Kafka that is: rows of the file may hold for some versions only.
    #[arg(long, value_name = "VERSION", default_value = "4.1.1")]
    kafka_version: KafkaVersion,
    /// Only scripts whose name contains one of these.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Not the scripts whose name contains one of these.
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// Print both answers of every step, also of those that agree.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let text = std::fs::read_to_string(&args.differences)
        .with_context(|| format!("{}", args.differences.display()))?;
    let differences = Differences::parse(&text, &args.kafka_version)
        .with_context(|| format!("{}", args.differences.display()))?;
    let mut scripts = read_scripts(&args.scripts, &args.only)?;
    let is_skipped = |script: &Script| args.skip.iter().any(|part| script.name.contains(part));
    scripts.retain(|script| !is_skipped(script));
    let is_whole = args.only.is_empty() && args.skip.is_empty();
    let mut tidemark = Side::connect(args.tidemark)?;
    let mut kafka = Side::connect(args.kafka)?;
    tidemark.driver().warm_up().context("Tidemark")?;
    kafka.driver().warm_up().context("Kafka")?;
    let common = common(&mut tidemark, &mut kafka);
    let mut report = Report::new(&differences, is_whole, args.verbose);
    for script in &scripts {
        let planned = plan(script, &common)?;
        report.not_driven(&planned.not_driven);
        let (ours, theirs) = std::thread::scope(|scope| {
            let ours = scope.spawn(|| run_script(&mut tidemark, &planned.steps));
            let theirs = scope.spawn(|| run_script(&mut kafka, &planned.steps));
            (ours.join(), theirs.join())
        });
        let ours = ours.expect("the thread does not panic");
        let theirs = theirs.expect("the thread does not panic");
        report.script(
            script,
            &planned.steps,
            (&ours, &tidemark),
            (&theirs, &kafka),
        );
    }
    Ok(report.finish())
}

fn read_scripts(dir: &Path, only: &[String]) -> Result<Vec<Script>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("{}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "txt") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut scripts = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if only.is_empty() || only.iter().any(|part| name.contains(part)) {
            scripts.push(Script::parse(&name, &std::fs::read_to_string(&path)?)?);
        }
    }
    Ok(scripts)
}

/// The versions that both advertise.
fn common(tidemark: &mut Side, kafka: &mut Side) -> Common {
    let theirs = kafka.driver().versions.clone();
    let ours = &tidemark.driver().versions;
    ours.iter()
        .filter_map(|(key, (min, max))| {
            let (their_min, their_max) = theirs.get(key)?;
            let range = (*min.max(their_min), *max.min(their_max));
            (range.0 <= range.1).then_some((*key, range))
        })
        .collect()
}

/// Runs until the end, or to the first step that cannot be run.
fn run_script(side: &mut Side, steps: &[Step]) -> Vec<Result<Answer>> {
    side.next_script();
    let mut answers = Vec::new();
    for step in steps {
        let answer = side.run(step);
        let stop = answer.is_err();
        answers.push(answer);
        if stop {
            break;
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_one_and_cites_what_is_written_down() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let scripts = read_scripts(&root.join("tests/differential"), &[]).expect("they parse");
        assert!(scripts.len() >= 13);
        let text = std::fs::read_to_string(root.join("docs/differences.md")).expect("the file");
        let version = "4.1.1".parse().expect("a version");
        let differences = Differences::parse(&text, &version).expect("it parses");
        for script in &scripts {
            for line in &script.lines {
                for id in &line.allowed {
                    let at = format!("{}.txt:{}", script.name, line.number);
                    assert!(differences.knows(id), "{at} cites {id}");
                }
            }
        }
    }
}
