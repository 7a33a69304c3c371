//! `tidemark serve`: start, banner, wait for a signal, clean end.

use std::fmt;
use std::io::Write;
use std::path::absolute;

use tidemark_config::Loaded;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::Admin;
use crate::banner::{StartedInfo, banner, banner_json};
use tidemark_broker::Broker;

/// Why the broker did not start or did not end well, as a person should read it.
#[derive(Debug)]
pub(crate) struct Failed(String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn failed(what: impl fmt::Display) -> Failed {
    Failed(format!("error: {what}"))
}

pub(crate) fn serve(loaded: Loaded, json: bool) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("tidemark-net")
        .build()
        .map_err(|error| failed(format!("the threads cannot be started: {error}")))?;
    let ended = runtime.block_on(run(loaded, json));
    // A start that a signal cut short may still be reading the data directory: it only reads what
    // the next start reads again, and need not be waited for.
    runtime.shutdown_background();
    ended
}

async fn run(loaded: Loaded, json: bool) -> Result<(), Failed> {
    // Before the start, so that a signal that comes early still ends it cleanly.
    let mut stop = StopSignals::new().map_err(failed)?;
    // Asks for the files of keys and certificates to be read again; a stop where there are none.
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    let settings = loaded.settings;
    let broker = tokio::select! {
        started = Broker::start(settings.clone()) => started.map_err(failed)?,
        signal = stop.next() => {
            tracing::info!("{signal} before the start was over");
            return Ok(());
        }
    };
    let admin = Admin::start(&broker, &settings).await.map_err(failed)?;
    let started = StartedInfo {
        admin: admin.as_ref().map(Admin::address),
        cluster_id: broker.cluster_id().to_owned(),
        addresses: broker
            .listeners()
            .iter()
            .map(|listener| (listener.name.clone(), listener.address))
            .collect(),
        data_dir: absolute(&settings.data_dir).unwrap_or_else(|_| settings.data_dir.clone()),
    };
    let text = match json {
        true => banner_json(&settings, &started),
        false => banner(&settings, &started),
    };
    // Whoever closed our output does not want the banner; the broker runs all the same.
    let mut stdout = std::io::stdout();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());

    loop {
        tokio::select! {
            signal = stop.next() => {
                tracing::info!("{signal}: stopping");
                break;
            }
            _ = hang_up.recv() => {
                if !broker.reload_tls() {
                    // Nothing to read again: its terminal was closed.
                    tracing::info!("SIGHUP: stopping");
                    break;
                }
            }
            // Whoever supervises this process restarts it; what was acknowledged is replayed then.
            why = broker.failure() => {
                broker.tell_failure().await;
                return Err(failed(why));
            }
        }
    }
    if let Some(admin) = admin {
        admin.stop().await;
    }
    tokio::select! {
        ended = broker.shutdown() => ended.map_err(|why| failed(format!(
            "the stop did not end in order: {why}"
        ))),
        signal = stop.next() => Err(failed(format!(
            "{signal} again before the clean end; what was acknowledged is on disk all the same"
        ))),
    }
}

/// SIGTERM and Ctrl-C.
struct StopSignals {
    term: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> std::io::Result<StopSignals> {
        Ok(StopSignals {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
