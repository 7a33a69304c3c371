//! `tidemark audit`: checks an audit log, and shows its end. The broker may run meanwhile.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use tidemark_audit::{Anchor, Verified, newest_lines, verify};
use tidemark_config::AUDIT_DIR;

use crate::{print, refuse};

const PATHS: &str = "paths";
const DATA_DIR: &str = "data-dir";
const JSON: &str = "json";
const EXPECT: &str = "expect";
const LINES: &str = "lines";

/// There was nothing to check.
const NOTHING: u8 = 2;

const TEACH: &str = "\
Examples:
  tidemark audit verify                        the log in ./tidemark-data/audit
  tidemark audit verify --data-dir DIR         the log in DIR/audit
  tidemark audit verify /var/log/tidemark      a directory (audit.log.path), or files, the oldest first
  tidemark audit verify --expect 1041:5f0c9a41d2e7 --json
  tidemark audit tail -n 50 | jq 'select(.outcome == \"denied\")'

Each line's hash is the SHA-256 of the hash before it and of the line without its own hash. A line that
was changed, taken out or put in, and a file that is missing, break the chain: the finding names file and
line. Who can write the files can also write them all anew, or cut their end: note the last hash (the
last line here prints it, so do the broker's log and its metrics) in another place now and then, and give
it back with --expect.

Exit status of verify: 0 whole, 1 broken or a noted hash is missing, 2 nothing there to check.";

pub(crate) fn command() -> Command {
    let place = |command: Command| {
        command
            .arg(
                Arg::new(PATHS)
                    .value_name("PATH")
                    .num_args(0..)
                    .value_parser(value_parser!(PathBuf))
                    .help("The directory of the log, or its files, the oldest first"),
            )
            .arg(
                Arg::new(DATA_DIR)
                    .long(DATA_DIR)
                    .value_name("DIR")
                    .value_parser(value_parser!(PathBuf))
                    .conflicts_with(PATHS)
                    .help("The data directory whose log is meant [default: ./tidemark-data]"),
            )
    };
    Command::new("audit")
        .about("Check the audit log: is the chain of its lines whole; show its end")
        .after_help(TEACH)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            place(Command::new("verify").about("Check the chain; says where it is broken"))
                .arg(
                    Arg::new(EXPECT)
                        .long(EXPECT)
                        .value_name("LINE:HASH")
                        .action(ArgAction::Append)
                        .value_parser(|text: &str| Anchor::parse(text))
                        .help("A hash that was noted: the line of that number must bear it"),
                )
                .arg(
                    Arg::new(JSON)
                        .long(JSON)
                        .action(ArgAction::SetTrue)
                        .help("Print one line of JSON"),
                ),
        )
        .subcommand(
            place(Command::new("tail").about("Print the newest lines")).arg(
                Arg::new(LINES)
                    .short('n')
                    .long(LINES)
                    .value_name("NUMBER")
                    .default_value("20")
                    .value_parser(value_parser!(usize))
                    .help("How many"),
            ),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let Some((name, matches)) = matches.subcommand() else {
        return ExitCode::FAILURE;
    };
    let paths = paths(matches);
    if name == "tail" {
        let lines = matches.get_one::<usize>(LINES).copied().unwrap_or_default();
        return match newest_lines(&paths, lines) {
            Ok(lines) => print(&lines),
            Err(e) => refuse(format!("error: {e}")),
        };
    }
    let anchors: Vec<Anchor> = (matches.get_many::<Anchor>(EXPECT).into_iter().flatten())
        .cloned()
        .collect();
    match verify(&paths, &anchors) {
        Ok(verified) => {
            print(&match matches.get_flag(JSON) {
                true => json(&verified),
                false => text(&verified),
            });
            match verified.whole {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(e) => {
            crate::say(&format!(
                "error: {e}\nName the directory of the log (audit.log.path) or the data directory \
                 (--data-dir)"
            ));
            ExitCode::from(NOTHING)
        }
    }
}

fn paths(matches: &ArgMatches) -> Vec<PathBuf> {
    let named: Vec<PathBuf> = (matches.get_many::<PathBuf>(PATHS).into_iter().flatten())
        .cloned()
        .collect();
    if !named.is_empty() {
        return named;
    }
    let data_dir = matches.get_one::<PathBuf>(DATA_DIR).cloned();
    let data_dir = data_dir.unwrap_or_else(|| PathBuf::from("./tidemark-data"));
    vec![data_dir.join(AUDIT_DIR)]
}

fn json(verified: &Verified) -> String {
    let text = serde_json::to_string(verified).expect("strings and numbers are JSON");
    format!("{text}\n")
}

fn text(verified: &Verified) -> String {
    let mut out = String::new();
    for finding in &verified.findings {
        let what = if finding.broken { "BROKEN" } else { "note" };
        let place = match (finding.file.as_str(), finding.line) {
            ("", _) => String::new(),
            (file, 0) => format!("{file}: "),
            (file, line) => format!("{file}:{line}: "),
        };
        out += &format!("{what}: {place}{}\n", finding.what);
    }
    let whole = if verified.whole { "whole" } else { "BROKEN" };
    out + &format!(
        "audit: {whole}, files={} lines={} from={} ({}) to={} ({}) last={}:{}\n",
        verified.files,
        verified.lines,
        verified.first_seq,
        verified.first_time,
        verified.last_seq,
        verified.last_time,
        verified.last_seq,
        verified.last_hash
    )
}
