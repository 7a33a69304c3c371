//! The command line. Flags of settings are made from the settings' rows; the few that most starts
//! need stand apart.

use std::path::PathBuf;

use crate::offline::{CheckArgs, DumpArgs, check_command, dump_command};
use clap::{Arg, ArgAction, ArgMatches, Command, builder::ValueParser, value_parser};
use tidemark_config::{ConfigError, ConfigFile, ENV_PREFIX, Inputs, Kind, Row, Section, rows};

/// What a command line asks for.
#[derive(Debug)]
pub(crate) enum Action {
    Serve { inputs: Sources, json: bool },
    Explain { inputs: Sources, json: bool },
    Docs,
    Check(CheckArgs),
    Dump(DumpArgs),
}

/// Where the settings are to be read from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    pub(crate) file: Option<PathBuf>,
    pub(crate) flags: Vec<(String, String)>,
    pub(crate) secure: bool,
}

impl Sources {
    /// Reads the file and the environment.
    pub(crate) fn read(self) -> Result<Inputs, ConfigError> {
        let file = match self.file {
            Some(path) => Some(ConfigFile::read(&path)?),
            None => None,
        };
        let env = std::env::vars_os()
            .map(|(name, value)| {
                let text = |s: std::ffi::OsString| s.to_string_lossy().into_owned();
                (text(name), text(value))
            })
            .filter(|(name, _)| name.starts_with(ENV_PREFIX))
            .collect();
        Ok(Inputs {
            file,
            env,
            flags: self.flags,
            secure: self.secure,
        })
    }
}

const ABOUT: &str = "A Kafka-compatible broker whose heart is exactly-once";

const TEACH: &str = "\
First steps:
  tidemark                                     a broker on 127.0.0.1:9092, data in ./tidemark-data
  tidemark --listen 0.0.0.0:9092 --data-dir /var/lib/tidemark
  tidemark --secure                            only for clients that log in, over TLS; prints their lines
  tidemark --config server.properties          a file of Kafka's, or TOML as in config/tidemark.toml
  echo hello | kcat -b 127.0.0.1:9092 -P -t greetings
  kcat -b 127.0.0.1:9092 -C -t greetings -e

Transactions:
  tidemark txn who-blocks TOPIC                why read_committed readers do not get on
  tidemark txn --help                          list, show, explain and abort transactions

Settings:
  Each setting is a flag (--num-partitions 3), an environment variable (TIDEMARK_NUM_PARTITIONS=3)
  and a key in the file (num.partitions). Flags win over the environment, that over the file.
  tidemark config explain, config docs         the value in force of each; what each is for
  tidemark serve --help                        every flag

With the broker stopped:
  tidemark check DIR                           is everything in a data directory as it was written?
  tidemark dump state DIR                      topics, offsets, transactions; also journal, segments ...

Every acknowledged record has been synced to disk. SIGTERM and Ctrl-C stop the broker cleanly.";

const LISTEN: &str = "listen";
const DATA_DIR: &str = "data-dir";
const CONFIG: &str = "config";
const SECURE: &str = "secure";
const JSON: &str = "json";

pub(crate) fn command() -> Command {
    let json = |help: &'static str| {
        Arg::new(JSON)
            .long(JSON)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let banner_json = || json("Print the start's banner as one line of JSON");
    Command::new("tidemark")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(TEACH)
        .args_conflicts_with_subcommands(true)
        .subcommand_precedence_over_arg(true)
        .args(settings_args(Shown::Main))
        .arg(banner_json())
        .subcommand(
            Command::new("serve")
                .about("Run the broker (what `tidemark` alone does)")
                .args(settings_args(Shown::All))
                .arg(banner_json()),
        )
        .subcommand(crate::txn::command())
        .subcommand(
            Command::new("config")
                .about("Show the settings")
                .subcommand_required(true)
                .arg_required_else_help(true)
                .subcommand(
                    Command::new("explain")
                        .about("Print every setting's value in force and where it is from")
                        .args(settings_args(Shown::Main))
                        .arg(json("Print JSON")),
                )
                .subcommand(
                    Command::new("docs")
                        .about("Print a TOML file with every setting, its default and its range"),
                ),
        )
        .subcommand(crate::audit::command())
        .subcommand(check_command())
        .subcommand(dump_command())
}

/// Which of the settings' flags the help shows; all of them work.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Main,
    All,
}

fn settings_args(shown: Shown) -> Vec<Arg> {
    let mut args = vec![
        Arg::new(LISTEN)
            .long(LISTEN)
            .value_name("HOST:PORT")
            .help("Where clients connect; port 0 is any free one [default: 127.0.0.1:9092]"),
        Arg::new(DATA_DIR).long(DATA_DIR).value_name("DIR").help(
            "Where everything that must outlive the broker is kept [default: ./tidemark-data]",
        ),
        Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .env("TIDEMARK_CONFIG")
            .hide_env(true)
            .value_parser(value_parser!(PathBuf))
            .help("Settings in TOML, or Kafka's server.properties (or TIDEMARK_CONFIG)"),
        Arg::new(SECURE)
            .long(SECURE)
            .env("TIDEMARK_SECURE")
            .hide_env(true)
            .action(ArgAction::SetTrue)
            .value_parser(clap::builder::BoolishValueParser::new())
            .help(
                "Let in only clients that log in: makes a CA, a certificate and the user admin in DIR/secure",
            ),
    ];
    for section in Section::ALL {
        for row in rows().iter().filter(|row| row.section == section) {
            for name in row.names().filter(|name| Row::flag(name) != DATA_DIR) {
                let arg = setting_arg(row, name)
                    .help_heading(section.title())
                    .hide(shown == Shown::Main || name != row.name);
                args.push(arg);
            }
        }
    }
    args
}

fn setting_arg(row: &Row, name: &'static str) -> Arg {
    let default = match &row.default {
        Some(default) if !default.is_empty() => format!(" [default: {default}]"),
        _ => String::new(),
    };
    let value_name = match row.kind {
        Kind::Boolean => "BOOL",
        Kind::Short | Kind::Int | Kind::Long | Kind::Double => "NUMBER",
        Kind::List => "LIST",
        Kind::String | Kind::Class | Kind::Password => "TEXT",
    };
    Arg::new(Row::flag(name))
        .long(Row::flag(name))
        .value_name(value_name)
        .allow_hyphen_values(true)
        .value_parser(ValueParser::string())
        .help(format!("{}{default}", row.doc))
        .hide_short_help(true)
}

/// What was asked for. clap has already ended the process for --help, --version and flags that do
/// not exist.
pub(crate) fn action(matches: &ArgMatches) -> Action {
    match matches.subcommand() {
        Some(("config", config)) => match config.subcommand() {
            Some(("explain", explain)) => Action::Explain {
                inputs: sources(explain),
                json: explain.get_flag(JSON),
            },
            _ => Action::Docs,
        },
        Some(("check", check)) => Action::Check(CheckArgs::of(check)),
        Some(("dump", dump)) => Action::Dump(DumpArgs::of(dump)),
        Some((_, serve)) => Action::Serve {
            inputs: sources(serve),
            json: serve.get_flag(JSON),
        },
        None => Action::Serve {
            inputs: sources(matches),
            json: matches.get_flag(JSON),
        },
    }
}

fn sources(matches: &ArgMatches) -> Sources {
    let names = rows().iter().flat_map(Row::names).map(Row::flag);
    let mut flags = Vec::new();
    for flag in names.chain([LISTEN.to_owned()]) {
        if let Some(value) = matches.get_one::<String>(&flag) {
            flags.push((flag, value.clone()));
        }
    }
    Sources {
        file: matches.get_one::<PathBuf>(CONFIG).cloned(),
        flags,
        secure: matches.get_flag(SECURE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags_of(line: &[&str]) -> Vec<(String, String)> {
        let matches = command().try_get_matches_from(line).unwrap();
        match action(&matches) {
            Action::Serve { inputs, .. } | Action::Explain { inputs, .. } => inputs.flags,
            _ => Vec::new(),
        }
    }

    #[test]
    fn the_command_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn serve_may_be_left_out() {
        let flags = ["--listen", "127.0.0.1:0", "--data-dir", "/d"];
        let with = flags_of(&[&["tidemark", "serve"], flags.as_slice()].concat());
        let without = flags_of(&[&["tidemark"], flags.as_slice()].concat());
        assert_eq!(with, without);
        assert!(with.contains(&("listen".to_owned(), "127.0.0.1:0".to_owned())));
        assert!(with.contains(&("data-dir".to_owned(), "/d".to_owned())));
    }

    #[test]
    fn every_setting_is_a_flag() {
        for row in rows() {
            for name in row.names() {
                let flag = format!("--{}", Row::flag(name));
                let flags = flags_of(&["tidemark", "serve", &flag, "7"]);
                assert_eq!(flags, [(Row::flag(name), "7".to_owned())]);
            }
        }
        let negative = flags_of(&["tidemark", "--log-retention-ms", "-1"]);
        assert_eq!(negative[0].1, "-1");
    }

    #[test]
    fn a_flag_that_does_not_exist_is_refused_with_what_was_meant() {
        let error = command()
            .try_get_matches_from(["tidemark", "--num-partition", "3"])
            .unwrap_err();
        assert!(error.to_string().contains("--num-partitions"), "{error}");
    }

    #[test]
    fn the_help_teaches_and_fits_a_screen_or_two() {
        let help = command().render_long_help().to_string();
        assert!(help.contains("kcat -b 127.0.0.1:9092"), "{help}");
        assert!(help.lines().count() < 60, "{help}");
        let mut command = command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        assert!(serve.render_help().to_string().lines().count() < 30);
        let long = serve.render_long_help().to_string();
        assert!(long.contains("--transaction-max-timeout-ms"), "{long}");
    }
}
