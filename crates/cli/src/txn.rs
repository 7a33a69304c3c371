//! `tidemark txn`: what a running broker knows of transactions, asked of its admin endpoint.

mod client;
mod show;

use std::fmt::Write;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::Value;

use client::{Admin, Failed};

const ADMIN: &str = "admin";
const TOKEN_FILE: &str = "token-file";
const JSON: &str = "json";
pub(crate) const DEFAULT_ADMIN: &str = "127.0.0.1:9644";

const TEACH: &str = "\
Examples:
  tidemark txn ls                              what is open, the oldest first
  tidemark txn who-blocks payments             why read_committed readers of a topic do not get on
  tidemark txn show transfer-7                 one transactional id: its transaction and its past
  tidemark txn explain payments-3 1041         which transaction wrote an offset, what became of it
  tidemark txn abort transfer-7                what aborting it would discard; nothing is done
  tidemark txn abort transfer-7 --yes          abort it

They ask the admin endpoint of a running broker (admin.listen, by default 127.0.0.1:9644).";

/// The subcommand's flags.
pub(crate) fn command() -> Command {
    let with = |command: Command| {
        command
            .arg(
                Arg::new(ADMIN)
                    .long(ADMIN)
                    .value_name("HOST:PORT")
                    .env("TIDEMARK_ADMIN_LISTEN")
                    .default_value(DEFAULT_ADMIN)
                    .help("The broker's admin endpoint"),
            )
            .arg(
                Arg::new(TOKEN_FILE)
                    .long(TOKEN_FILE)
                    .value_name("FILE")
                    .env("TIDEMARK_ADMIN_TOKEN_FILE")
                    .help(
                        "The file with the endpoint's token (admin.token.file), if it asks for one",
                    ),
            )
            .arg(
                Arg::new(JSON)
                    .long(JSON)
                    .action(ArgAction::SetTrue)
                    .help("Print the endpoint's JSON"),
            )
    };
    let word = |name: &'static str, help: &'static str| Arg::new(name).required(true).help(help);
    Command::new("txn")
        .about("Look at transactions: who holds what open, what became of it; abort one")
        .after_help(TEACH)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(with(
            Command::new("ls").about("List ongoing transactions, the oldest first"),
        ))
        .subcommand(with(
            Command::new("show")
                .about("Show a transactional id: its transaction, and its past with the reason of each epoch")
                .arg(word("ID", "The transactional id")),
        ))
        .subcommand(with(
            Command::new("who-blocks")
                .about("Show who holds the last stable offset of a topic's partitions")
                .arg(word("TOPIC[-PARTITION]", "A topic, or one partition of it")),
        ))
        .subcommand(with(
            Command::new("explain")
                .about("Tell which transaction wrote an offset and what became of it")
                .arg(word("TOPIC-PARTITION", "The partition, as payments-3"))
                .arg(
                    word("OFFSET", "The offset")
                        .value_parser(value_parser!(i64))
                        .allow_negative_numbers(true),
                ),
        ))
        .subcommand(with(
            Command::new("abort")
                .about("Abort an ongoing transaction; without --yes only say what that discards")
                .arg(word("ID", "The transactional id"))
                .arg(
                    Arg::new("yes")
                        .long("yes")
                        .action(ArgAction::SetTrue)
                        .help("Do it"),
                ),
        ))
}

/// Asks, prints, and says how it went.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let Some((name, matches)) = matches.subcommand() else {
        return ExitCode::FAILURE;
    };
    let text = |arg: &str| matches.get_one::<String>(arg).cloned().unwrap_or_default();
    let token_file = matches.get_one::<String>(TOKEN_FILE);
    let admin = match Admin::new(&text(ADMIN), token_file.map(String::as_str)) {
        Ok(admin) => admin,
        Err(failed) => return crate::refuse(failed),
    };
    let asked = match name {
        "ls" => admin
            .get(&["v1", "transactions"], "")
            .map(|v| (v, show::transactions as Show)),
        "show" => (admin.get(&["v1", "transactions", &text("ID")], ""))
            .map(|v| (v, show::transaction as Show)),
        "who-blocks" => who_blocks(&admin, &text("TOPIC[-PARTITION]")),
        "explain" => {
            let offset = matches
                .get_one::<i64>("OFFSET")
                .copied()
                .unwrap_or_default();
            explain(&admin, &text("TOPIC-PARTITION"), offset)
        }
        _ => {
            let query = format!("dry_run={}", !matches.get_flag("yes"));
            (admin.post(&["v1", "transactions", &text("ID"), "abort"], &query))
                .map(|v| (v, show::abort as Show))
        }
    };
    match asked {
        Ok((value, _)) if matches.get_flag(JSON) => crate::print(&format!("{value}\n")),
        Ok((value, show)) => {
            let mut out = String::new();
            let _writing_to_a_string_cannot_fail = show(&value, &mut out);
            crate::print(&out)
        }
        Err(failed) => crate::refuse(failed),
    }
}

type Show = fn(&Value, &mut dyn Write) -> std::fmt::Result;

/// A name may end like a partition: what exists decides.
fn who_blocks(admin: &Admin, what: &str) -> Result<(Value, Show), Failed> {
    let whole = admin.get(&["v1", "partitions", what], "");
    let found = match (whole, split(what)) {
        (Err(Failed::NotFound(_)), Some((topic, partition))) => admin.get(
            &["v1", "partitions", topic],
            &format!("partition={partition}"),
        ),
        (whole, _) => whole,
    };
    found.map(|value| (value, show::partitions as Show))
}

fn explain(admin: &Admin, what: &str, offset: i64) -> Result<(Value, Show), Failed> {
    let (topic, partition) = split(what).ok_or_else(|| {
        Failed::Usage(format!(
            "error: {what:?} is no partition: give topic and number, as payments-3"
        ))
    })?;
    let (partition, offset) = (partition.to_string(), offset.to_string());
    let value = admin.get(&["v1", "explain", topic, &partition, &offset], "")?;
    Ok((value, show::explain))
}

/// `payments-3` as topic and partition.
fn split(what: &str) -> Option<(&str, u32)> {
    let (topic, partition) = what.rsplit_once('-')?;
    Some((topic, partition.parse().ok()?)).filter(|(topic, _)| !topic.is_empty())
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_partition_is_what_follows_the_last_dash() {
        assert_eq!(split("payments-3"), Some(("payments", 3)));
        assert_eq!(split("eu-west-payments-12"), Some(("eu-west-payments", 12)));
        for not in ["payments", "payments-", "-3", "payments--1x"] {
            assert_eq!(split(not), None, "{not}");
        }
    }
}
