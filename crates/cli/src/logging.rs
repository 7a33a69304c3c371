//! The log, on standard error.

use std::io::IsTerminal;

use tidemark_config::{Problem, Settings, Source};
use tracing_subscriber::EnvFilter;

const FILTER: &str = "log.filter";

/// Sets the log up. `log.filter` wins where somebody set it, then RUST_LOG, then the default.
pub(crate) fn init(settings: &Settings) -> Result<(), Problem> {
    let rust_log = std::env::var("RUST_LOG").ok().filter(|v| !v.is_empty());
    let source = settings.values.source(FILTER);
    let (text, place) = match (source, rust_log) {
        (Source::Default, Some(text)) => (text, "environment variable RUST_LOG".to_owned()),
        (source, _) => (settings.log_filter.clone(), source.to_string()),
    };
    let filter = EnvFilter::try_new(&text).map_err(|error| Problem {
        what: format!("this is no log filter: {error}"),
        place,
        value: Some(text),
        mend: "write a level (error, warn, info, debug, trace), or target=level pairs separated by commas".to_owned(),
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // Set up twice only in a test.
    let _ = log.try_init();
    Ok(())
}
