//! Judges a recorded history: `histcheck HISTORY... [--data-dir DIR]`.
//!
//! The files together are one history (`docs/formats.md`, "Histories"); DIR is the data directory of the broker, stopped
//! after the history's final scans. Prints a sentence per anomaly; the last line counts. Exit 1: anomalies; 2: the
//! history or the directory cannot be read.

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

use tidemark_histcheck::DirFiles;
use tidemark_histcheck::history::{self, LogView, Verdict};

const USAGE: &str = "usage: histcheck HISTORY... [--data-dir DIR]";

fn main() -> ExitCode {
    match run() {
        Err(what) => {
            eprintln!("histcheck: {what}");
            ExitCode::from(2)
        }
        Ok(verdict) => {
            for (check, sentence) in &verdict.sentences {
                println!("{check}: {sentence}");
            }
            for (check, count) in verdict.found() {
                println!("{check}={count}");
            }
            println!(
                "histcheck: ops={} sends={} reads={} txns={} commits={} aborts={} unknown={} faults={} log={} anomalies={}",
                verdict.operations,
                verdict.sends,
                verdict.reads,
                verdict.transactions,
                verdict.commits,
                verdict.aborts,
                verdict.unknown,
                verdict.faults,
                if verdict.log_read {
                    "read"
                } else {
                    "not-given"
                },
                verdict.anomalies(),
            );
            match verdict.anomalies() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn run() -> Result<Verdict, String> {
    let (mut files, mut data_dir) = (Vec::new(), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--data-dir" => data_dir = Some(arguments.next().ok_or(USAGE)?),
            "-h" | "--help" => return Err(USAGE.into()),
            option if option.starts_with('-') => return Err(format!("{option}? {USAGE}")),
            file => files.push(file.to_owned()),
        }
    }
    if files.is_empty() {
        return Err(USAGE.into());
    }
    let mut events = Vec::new();
    for file in &files {
        let opened = File::open(file).map_err(|error| format!("{file}: {error}"))?;
        events
            .push(history::read(BufReader::new(opened)).map_err(|what| format!("{file}: {what}"))?);
    }
    let log = match data_dir {
        None => None,
        Some(dir) => Some(read_log(&dir, &events)?),
    };
    history::check(&events, log.as_ref())
}

fn read_log(dir: &str, events: &[Vec<history::Event>]) -> Result<LogView, String> {
    let files = DirFiles::new(dir);
    let data = tidemark_histcheck::read(&files).map_err(|findings| {
        let lines: Vec<String> = findings.iter().map(|f| format!("{f:?}")).collect();
        format!("{dir} is not in order:\n{}", lines.join("\n"))
    })?;
    LogView::new(&files, &data, &history::topics(events)).map_err(|what| format!("{dir}: {what}"))
}
