//! `tidemark check` and `tidemark dump`: the data directory of a broker that does not run.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use tidemark_offline::dump::{self, DumpError, Options};

use crate::{print, refuse};

const PATH: &str = "path";
const JSON: &str = "json";
const RECORDS: &str = "records";
const FROM: &str = "from";
const TO: &str = "to";
const REBUILD: &str = "rebuild";
const YES: &str = "yes";

const CHECK_HELP: &str = "\
Reads every byte that a start depends on and changes nothing: identity, journal (frames, checksums,
order, damage against an interrupted write), both checkpoints, segments, their tick indexes and
Kafka's indexes. An independent reader computes from the raw bytes what a start would serve; the
broker's own start is run up to where it would write; the two must agree on offsets, last stable
offsets, aborted transactions, producers, committed offsets and transactional ids.

Each finding is a line: how bad, file, position, the value seen, what to do. A note is no fault. The
last line has the numbers. Exit status 0 without faults, 1 with faults or when a broker is running.

Examples:
  tidemark check /var/lib/tidemark
  tidemark check /var/lib/tidemark --json | jq '.findings[].what'

--rebuild is for when neither checkpoint can be read, or the journal is lost. It makes a directory
that a broker starts on from the segments alone, and keeps: log ends, last stable offsets, aborted
transactions, topics and their settings, committed offsets, transactional ids. What cannot be kept
is named, a line each: batches that were in the journal only (seconds of writes, as a rule), windows
of producers, ticks where a tick index is damaged. A transaction some of whose markers are lost ends
as the others did. Nothing is deleted: what is not used any more is moved to before-rebuild-1 in the
data directory. Without --yes it says all this and changes nothing.

  tidemark check /var/lib/tidemark --rebuild
  tidemark check /var/lib/tidemark --rebuild --yes && tidemark check /var/lib/tidemark";

const DUMP_HELP: &str = "\
Examples:
  tidemark dump state DIR                      topics, partitions, committed offsets, transactional ids
  tidemark dump journal DIR                    every record, with its tick and what it appends where
  tidemark dump journal DIR --from 1000 --to 1010 --records
  tidemark dump journal DIR --json | jq 'select(.appends[]?.control == \"abort\") | .tick'
  tidemark dump checkpoint DIR                 both generations, block by block
  tidemark dump segment DIR/partitions/ID-0    the batches of a partition, with ticks
  tidemark dump segment FILE.log --records     with keys and values
  tidemark dump tickindex FILE.tickindex       its entries as they stand

A tick is shown as its time and a counter, in JSON as the number (tick) and its milliseconds (tick_ms). docs/formats.md
describes the files. What cannot be read is said in place, and the rest is printed.";

/// What a check is asked.
#[derive(Debug)]
pub(crate) struct CheckArgs {
    dir: PathBuf,
    json: bool,
    rebuild: bool,
    yes: bool,
}

/// What a dump is asked.
#[derive(Debug)]
pub(crate) struct DumpArgs {
    what: String,
    path: PathBuf,
    options: Options,
}

fn path_arg(name: &'static str, help: &'static str) -> Arg {
    Arg::new(PATH)
        .value_name(name)
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help(help)
}

fn json_arg(help: &'static str) -> Arg {
    Arg::new(JSON)
        .long(JSON)
        .action(ArgAction::SetTrue)
        .help(help)
}

pub(crate) fn check_command() -> Command {
    Command::new("check")
        .about("Check the data directory of a stopped broker")
        .after_help(CHECK_HELP)
        .arg(path_arg("DIR", "The data directory"))
        .arg(json_arg("Print one line of JSON"))
        .arg(
            Arg::new(REBUILD)
                .long(REBUILD)
                .action(ArgAction::SetTrue)
                .help(
                    "Make checkpoint and journal anew from the segments alone, when they are lost",
                ),
        )
        .arg(
            Arg::new(YES)
                .long(YES)
                .action(ArgAction::SetTrue)
                .requires(REBUILD)
                .help("Do it; without, only say what would be kept and what is lost"),
        )
}

pub(crate) fn dump_command() -> Command {
    let what = |name: &'static str, path: &'static str, about: &'static str, help: &'static str| {
        Command::new(name)
            .about(about)
            .arg(path_arg(path, help))
            .arg(json_arg("Print a line of JSON for each thing"))
            .arg(
                Arg::new(RECORDS)
                    .long(RECORDS)
                    .action(ArgAction::SetTrue)
                    .help("Print the records of each batch too, and producers"),
            )
            .arg(bound_arg(
                FROM,
                "The first to print: journal record, or offset",
            ))
            .arg(bound_arg(TO, "The last to print"))
    };
    Command::new("dump")
        .about("Print what the files of a data directory hold")
        .after_help(DUMP_HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(what(
            "state",
            "DIR",
            "What a start would serve",
            "The data directory",
        ))
        .subcommand(what(
            "journal",
            "PATH",
            "The journal's records and marks",
            "The data directory, or a .slot file",
        ))
        .subcommand(what(
            "checkpoint",
            "PATH",
            "Checkpoints, block by block",
            "The data directory, or a checkpoint file",
        ))
        .subcommand(what(
            "segment",
            "PATH",
            "The batches of segments, with their ticks",
            "The data directory, a partition's directory, or a .log file",
        ))
        .subcommand(what(
            "tickindex",
            "PATH",
            "The entries of a tick index",
            "A .tickindex file",
        ))
}

fn bound_arg(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("NUMBER")
        .value_parser(value_parser!(i64))
        .help(help)
}

fn path_of(matches: &ArgMatches) -> PathBuf {
    let path = matches.get_one::<PathBuf>(PATH).cloned();
    path.expect("clap requires it")
}

impl CheckArgs {
    pub(crate) fn of(matches: &ArgMatches) -> CheckArgs {
        CheckArgs {
            dir: path_of(matches),
            json: matches.get_flag(JSON),
            rebuild: matches.get_flag(REBUILD),
            yes: matches.get_flag(YES),
        }
    }
}

impl DumpArgs {
    pub(crate) fn of(matches: &ArgMatches) -> DumpArgs {
        let (what, matches) = matches.subcommand().expect("clap requires it");
        DumpArgs {
            what: what.to_owned(),
            path: path_of(matches),
            options: Options {
                json: matches.get_flag(JSON),
                records: matches.get_flag(RECORDS),
                from: matches.get_one(FROM).copied(),
                to: matches.get_one(TO).copied(),
            },
        }
    }
}

pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    if args.rebuild {
        return match tidemark_offline::rebuild(&args.dir, args.yes) {
            Ok(rebuilt) if args.json => print(&rebuilt.json()),
            Ok(rebuilt) => print(&rebuilt.text()),
            Err(refusal) => refuse(refusal),
        };
    }
    let checked = match tidemark_offline::check(&args.dir, !args.json) {
        Ok(checked) => checked,
        Err(refusal) => return refuse(refusal),
    };
    print(&match args.json {
        true => checked.json(),
        false => checked.text(),
    });
    match checked.faults() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

pub(crate) fn dump(args: &DumpArgs) -> ExitCode {
    type Dump = fn(&Path, &Options, &mut dyn Write) -> Result<(), DumpError>;
    let what: Dump = match args.what.as_str() {
        "journal" => dump::journal,
        "checkpoint" => dump::checkpoint,
        "segment" => dump::segment,
        "tickindex" => dump::tick_index,
        _ => dump::state,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let done = what(&args.path, &args.options, &mut out);
    let done = done.and_then(|()| Ok(out.flush()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(DumpError::Refused(refusal)) => refuse(refusal),
        // A reader that went away (`| head`) is no failure.
        Err(DumpError::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(DumpError::Output(e)) => refuse(format!("the output cannot be written: {e}")),
    }
}
