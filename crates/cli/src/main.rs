//! The tidemark command.

mod admin;
mod args;
mod audit;
mod banner;
mod explain;
mod logging;
mod offline;
mod secure;
mod serve;
mod txn;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use tidemark_config::{ConfigError, Loaded, load};

use crate::args::{Action, Sources};

fn main() -> ExitCode {
    let matches = args::command().get_matches();
    if let Some(("txn", matches)) = matches.subcommand() {
        return txn::run(matches);
    }
    if let Some(("audit", matches)) = matches.subcommand() {
        return audit::run(matches);
    }
    match args::action(&matches) {
        Action::Docs => print(&tidemark_config::toml_document()),
        Action::Explain { inputs, json } => match loaded(inputs) {
            Ok(loaded) if json => print(&explain::explain_json(&loaded)),
            Ok(loaded) => print(&explain::explain(&loaded)),
            Err(error) => refuse(error),
        },
        Action::Check(check) => offline::check(&check),
        Action::Dump(dump) => offline::dump(&dump),
        Action::Serve { inputs, json } => match (inputs.secure, loaded(inputs)) {
            (secure, Ok(loaded)) => serve(loaded, secure, json),
            (_, Err(error)) => refuse(error),
        },
    }
}

fn loaded(sources: Sources) -> Result<Loaded, ConfigError> {
    load(&sources.read()?)
}

fn serve(loaded: Loaded, secure: bool, json: bool) -> ExitCode {
    if let Err(problem) = logging::init(&loaded.settings) {
        return refuse(problem);
    }
    for note in &loaded.notes {
        say(&format!("note: {note}"));
    }
    let secured = match secure {
        true => secure::prepare(&loaded.settings, &mut |line| {
            say(&format!("secure: {line}"))
        })
        .map(Some),
        false => secure::refuse_to_open(&loaded.settings).map(|()| None),
    };
    let secured = match secured {
        Ok(secured) => secured,
        Err(why) => return refuse(format!("error: {why}")),
    };
    match serve::serve(loaded, secured, json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(error),
    }
}

/// Prints to standard output. A reader that went away (`| head`) is no failure.
fn print(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn refuse(error: impl Display) -> ExitCode {
    say(&error.to_string());
    ExitCode::FAILURE
}

/// Prints a line to standard error, which may be closed.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
