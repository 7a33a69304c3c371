//! The broker: connections, handlers, the owner's thread, publication.
//!
//! ```text
//! client → connection → handler ──command──► owner thread: decide → apply → record ─► journal
//!                          ▲                                                            │ durable
//!                          └──── published tick moves, then replies are released ◄──────┘
//! ```
//!
//! [`Broker::start`] opens a data directory and serves it.

mod admission;
mod api_counts;
mod audit;
mod authorize;
mod ballast;
mod barrier;
mod catalogue;
mod clock;
mod compaction;
mod connection;
mod connections;
mod dry_start;
mod error;
mod fetch_sessions;
mod front;
mod handlers;
mod identity;
mod in_flight;
pub mod inspect;
mod limits;
mod listener;
#[cfg(test)]
mod losses;
mod maintenance;
mod memory;
mod mend;
mod metrics;
mod owner_thread;
mod ownership;
mod pace;
mod published;
mod replay;
mod retention;
mod running;
mod sasl;
mod shared;
mod start;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use tidemark_config::Settings;
use tidemark_disk::OsDisk;
use tidemark_journal::JournalStats;
use tidemark_tls::Tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

pub use clock::{Clock, Entropy, Sleep, SystemClock, SystemEntropy};
pub use compaction::CompactionStats;
pub use connection::ConnectionInfo;
pub use dry_start::{DryStart, dry_start};
pub use error::StartError;
pub use identity::Identity;
pub use limits::Limit;
pub use maintenance::{KNOWN_BLOCKS, OWNER_BLOCK, OWNER_BLOCK_FORMAT};
pub use replay::owner_options;
pub use running::Replayed;
pub use sasl::SaslListener;
pub use start::Seams;

use compaction::Compaction;
use front::Front;
use listener::Bound;
use running::Running;
use sasl::Kit;
use sasl::oauth::Issuer;

/// A running broker.
pub struct Broker {
    front: Arc<Front>,
    running: Running,
    listeners: Vec<ListenerAddress>,
    tasks: Vec<JoinHandle<()>>,
    tls: Option<Arc<Tls>>,
    issuer: Option<Arc<Issuer>>,
}

/// A listener's name and the address it is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAddress {
    pub name: String,
    pub address: SocketAddr,
}

/// Memory in use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInUse {
    /// Of frames that come in or are being carried out (`request.memory.bytes`).
    pub request_bytes: u64,
    /// Of answers to Fetch that are not written (`fetch.memory.bytes`).
    pub fetch_bytes: u64,
    /// Of the tails (`tail.bytes`).
    pub tail_bytes: u64,
}

impl Broker {
    /// Starts a broker on the operating system's disk and clocks.
    pub async fn start(settings: Settings) -> Result<Broker, StartError> {
        let seams = Seams {
            disk: Arc::new(OsDisk),
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(SystemEntropy),
        };
        Broker::start_with(settings, seams).await
    }

    /// Starts a broker on the given seams. Returns when it serves every request; ApiVersions is
    /// answered as soon as the ports are bound.
    pub async fn start_with(settings: Settings, seams: Seams) -> Result<Broker, StartError> {
        let settings = Arc::new(settings);
        let claimed = tokio::task::spawn_blocking({
            let (settings, seams) = (settings.clone(), seams.clone());
            move || {
                let kit = Kit::new(&settings, seams.entropy.clone(), seams.clock.now())?;
                let sasl = (kit.listeners(&settings), kit.issuer());
                let first_users = sasl::read_first_users(&settings)?;
                let tls = tls::load(&settings)?;
                let lock = start::claim(&settings, &seams)?;
                let audit = audit::open(&settings, &seams)?;
                Ok((tls, sasl, first_users, lock, audit))
            }
        });
        let (tls, (sasl, issuer), first_users, lock, audit) = claimed
            .await
            .map_err(|e| StartError::Stopped(e.to_string()))
            .and_then(|claimed| claimed)?;
        let clock = seams.clock.clone();
        let front = Arc::new(Front::new(settings.clone(), clock, audit));
        let bound = Bound::bind_all(&settings, tls.as_ref(), &sasl).await?;
        let listeners = bound.iter().map(Bound::address).collect();
        let mut tasks: Vec<JoinHandle<()>> = bound
            .into_iter()
            .map(|bound| tokio::spawn(bound.accept(front.clone())))
            .collect();
        if let Some(tls) = &tls {
            tasks.push(tokio::spawn(tls::watch(tls.clone(), front.clone())));
        }
        if let Some(issuer) = &issuer {
            tasks.push(tokio::spawn(sasl::oauth::watch(
                issuer.clone(),
                front.clone(),
            )));
        }
        let entropy = seams.entropy.clone();
        let started = tokio::task::spawn_blocking({
            let (front, settings) = (front.clone(), settings.clone());
            move || start::start(&settings, &seams, lock, &front)
        })
        .await
        .map_err(|e| StartError::Stopped(e.to_string()))
        .and_then(|started| started);
        let running = match started {
            Ok(running) => running,
            Err(e) => {
                front.set_failed(&e.to_string());
                front.tell_stop();
                return Err(e);
            }
        };
        let broker = Broker {
            front,
            running,
            listeners,
            tasks,
            tls,
            issuer,
        };
        let begun = async {
            broker.first_records_are_durable().await?;
            let shared = &broker.running.shared;
            sasl::first_users(first_users, shared, entropy).await?;
            sasl::may_authenticate(&settings, &sasl, shared)
        };
        if let Err(e) = begun.await {
            broker.front.set_failed(&e.to_string());
            let _it_failed_already = broker.shutdown().await;
            return Err(e);
        }
        broker
            .front
            .tell_start(&broker.listeners, broker.cluster_id());
        broker.front.set_ready(broker.running.shared.clone());
        Ok(broker)
    }

    async fn first_records_are_durable(&self) -> Result<(), StartError> {
        let barrier = self.running.shared.barrier.clone();
        let index = self.running.first_served;
        if barrier.confirmed() >= index {
            return Ok(());
        }
        let patience = std::time::Duration::from_secs(60);
        let durable =
            tokio::task::spawn_blocking(move || barrier.wait_confirmed(index, 0, patience));
        match durable.await {
            Ok(true) => Ok(()),
            _ => Err(StartError::Stopped(
                "the journal did not make its first record durable; the log says why".to_owned(),
            )),
        }
    }

    /// The bound listeners, in the order of the configuration.
    pub fn listeners(&self) -> &[ListenerAddress] {
        &self.listeners
    }

    pub fn cluster_id(&self) -> &str {
        &self.running.cluster_id
    }

    /// Ends when the broker cannot go on, with the reason: its journal stopped, or a thread did.
    pub async fn failure(&self) -> String {
        self.front.failure().await
    }

    /// Serves a connection that did not come through a listener.
    pub fn serve<S>(&self, stream: S, info: ConnectionInfo)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let place = match info.sasl {
            None => None,
            Some(_) => match self.front.unauthenticated(info.peer) {
                None => return,
                place => place,
            },
        };
        tokio::spawn(connection::serve(stream, info, place, self.front.clone()));
    }

    /// (API key, version, requests) for each that was asked for.
    pub fn api_counts(&self) -> Vec<(i16, i16, u64)> {
        self.front.api_counts.served()
    }

    /// Answers an operator's questions. `views` is a directory for what is kept only to be looked up,
    /// and may be deleted at any time; without one it is kept in memory.
    pub fn inspector(&self, views: Option<std::path::PathBuf>) -> inspect::Inspector {
        let (shared, front) = (self.running.shared.clone(), self.front.clone());
        inspect::Inspector::new(shared, front, views, self.tls.clone())
    }

    /// Has key, certificates and CAs read again; new connections use them. The log tells how it
    /// went; files that cannot be used change nothing. The keys of tokens are read again too. False
    /// without a listener with TLS.
    pub fn reload_tls(&self) -> bool {
        let Some(tls) = self.tls.clone() else {
            return false;
        };
        if let Some(issuer) = self.issuer.clone() {
            tokio::spawn(sasl::oauth::read_now(issuer, self.front.clone()));
        }
        let front = self.front.clone();
        // Not waited for: files on a network may take their time.
        tokio::task::spawn_blocking(move || tls::reload(&tls, &front));
        true
    }

    /// What this start read of the journal.
    pub fn replayed(&self) -> Replayed {
        self.running.replayed
    }

    /// Memory that requests, answers and tails hold at the moment, each against its own budget.
    pub fn memory_in_use(&self) -> MemoryInUse {
        MemoryInUse {
            request_bytes: self.front.request_memory.in_use(),
            fetch_bytes: self.running.shared.answers.in_use(),
            tail_bytes: self.running.shared.admission.tail_bytes(),
        }
    }

    /// How often a limit was reached since the start.
    pub fn reached(&self, limit: Limit) -> u64 {
        self.front.limits.count_of(limit)
    }

    pub fn journal_stats(&self) -> JournalStats {
        self.running.journal.stats()
    }

    /// Looks for expired records now. Returns when those that were found are gone for readers.
    pub async fn retain(&self) {
        let requests = self.running.requests.clone();
        let done = tokio::task::spawn_blocking(move || Running::retain(&requests)).await;
        done.expect("asking maintenance does not panic");
    }

    /// Writes what is confirmed to segments and makes a checkpoint, now. Returns when that is done or
    /// has failed, of which the log tells.
    pub async fn checkpoint(&self) {
        let requests = self.running.requests.clone();
        let done = tokio::task::spawn_blocking(move || Running::checkpoint(&requests)).await;
        done.expect("asking maintenance does not panic");
    }

    /// What compaction has done since the start.
    pub fn compaction(&self) -> CompactionStats {
        *self.running.compaction.stats.lock()
    }

    /// Compacts every compacted topic's closed segments of which anything is new, now, whatever its
    /// share, and drops what has waited for it. Returns when that is done.
    pub async fn compact(&self) {
        let asks = self.running.compaction.asks.clone();
        let done = tokio::task::spawn_blocking(move || Compaction::now(&asks)).await;
        done.expect("asking for compaction does not panic");
    }

    /// Numbers about the audit log; `None` without one.
    pub fn audit(&self) -> Option<tidemark_audit::Stats> {
        self.front.audit.stats()
    }

    /// Tells the audit log that the broker has failed, before the process ends.
    pub async fn tell_failure(&self) {
        let front = self.front.clone();
        let _a_panic_was_printed = tokio::task::spawn_blocking(move || front.tell_stop()).await;
    }

    /// Waits until everything that the audit log was told is on the disk.
    pub async fn sync_audit(&self) {
        let audit = self.front.audit.clone();
        let synced = tokio::task::spawn_blocking(move || audit.sync()).await;
        synced.expect("waiting for the audit log does not panic");
    }

    /// Stops serving, writes a checkpoint and closes the data directory.
    ///
    /// Errors: why the end is not in order, the last checkpoint or the journal's end mark: what was
    /// acknowledged is in the journal all the same, and the next start takes it from there.
    pub async fn shutdown(self) -> Result<(), String> {
        self.front.stop();
        for task in self.tasks {
            task.abort();
            // Its port is free once it is gone, and not before.
            let _it_was_aborted = task.await;
        }
        let running = self.running;
        let front = self.front.clone();
        let ended = tokio::task::spawn_blocking(move || {
            running.stop();
            front.tell_stop();
        })
        .await;
        if let Err(e) = ended {
            tracing::error!("shutdown: {e}");
            return Err(e.to_string());
        }
        match self.front.failed() {
            None => Ok(()),
            Some(why) => Err(why),
        }
    }
}
