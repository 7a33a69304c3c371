//! `tidemark serve`: start, banner, wait for a signal, clean end.

use std::fmt;
use std::io::Write;
use std::path::absolute;
use std::time::Duration;

use tidemark_config::Loaded;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::Admin;
use crate::banner::{self, StartedInfo, banner, banner_json};
use crate::secure::{self, Secure};
use tidemark_broker::Broker;

/// How often the certificate of `--secure` is looked at.
const LOOK_AFTER_EVERY: Duration = Duration::from_secs(12 * 3_600);

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

pub(crate) fn serve(loaded: Loaded, secured: Option<Secure>, json: bool) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("tidemark-net")
        .build()
        .map_err(|error| failed(format!("the threads cannot be started: {error}")))?;
    let ended = runtime.block_on(run(loaded, secured, json));
    // A start that a signal cut short may still be reading the data directory: it only reads what
    // the next start reads again, and need not be waited for.
    runtime.shutdown_background();
    ended
}

async fn run(loaded: Loaded, secured: Option<Secure>, json: bool) -> Result<(), Failed> {
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
    let mut started = StartedInfo {
        admin: admin.as_ref().map(Admin::address),
        cluster_id: broker.cluster_id().to_owned(),
        addresses: broker
            .listeners()
            .iter()
            .map(|listener| (listener.name.clone(), listener.address))
            .collect(),
        secured: Vec::new(),
        data_dir: absolute(&settings.data_dir).unwrap_or_else(|_| settings.data_dir.clone()),
    };
    let keeper = match &secured {
        None => None,
        Some(secured) => {
            let dial = banner::dial(&settings, &started).unwrap_or_default();
            started.secured = secured.clients(&dial, started.admin).map_err(failed)?;
            Some(tokio::spawn(look_after(settings.clone())))
        }
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
    if let Some(keeper) = keeper {
        keeper.abort();
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

/// Makes the certificate anew in time, also for a broker that runs for years.
async fn look_after(settings: tidemark_config::Settings) {
    loop {
        tokio::time::sleep(LOOK_AFTER_EVERY).await;
        let settings = settings.clone();
        let looked = tokio::task::spawn_blocking(move || secure::look_after(&settings));
        let _a_panic_was_printed = looked.await;
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
