//! What a connection meets first: it may come before the state is replayed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tidemark_audit::{Audit, Event, Kind, Origin, Outcome};
use tidemark_config::Settings;
use tidemark_txn_coordinator::guard::ConnectionId;
use tidemark_types::MonoTime;
use tidemark_wire::WireError;
use tokio::sync::watch;
use tracing::warn;

use crate::ListenerAddress;
use crate::api_counts::ApiCounts;
use crate::clock::Clock;
use crate::memory::RequestMemory;
use crate::shared::Shared;

/// One log line per offending address in this time.
const REFUSAL_LOG_EVERY: Duration = Duration::from_secs(60);
/// Addresses remembered for that.
const MAX_REMEMBERED: usize = 10_000;

/// How far the start is.
#[derive(Clone)]
enum Phase {
    Starting,
    Ready(Arc<Shared>),
    /// Why nothing is served any more.
    Failed(String),
}

/// Listeners accept as soon as the process runs; requests that need state wait here for it.
pub struct Front {
    pub settings: Arc<Settings>,
    pub api_counts: ApiCounts,
    pub clock: Arc<dyn Clock>,
    pub audit: Audit,
    pub(crate) request_memory: RequestMemory,
    phase: watch::Sender<Phase>,
    stopping: watch::Sender<bool>,
    refusals: DashMap<IpAddr, MonoTime>,
    /// Connections so far.
    connections: AtomicU64,
}

impl Front {
    pub fn new(settings: Arc<Settings>, clock: Arc<dyn Clock>, audit: Audit) -> Front {
        Front {
            audit,
            request_memory: RequestMemory::new(settings.request_memory_bytes),
            settings,
            api_counts: ApiCounts::default(),
            clock,
            phase: watch::Sender::new(Phase::Starting),
            stopping: watch::Sender::new(false),
            refusals: DashMap::new(),
            connections: AtomicU64::new(0),
        }
    }

    /// The number of a connection that begins now: higher than that of any before it.
    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A failure that came first stands.
    pub fn set_ready(&self, shared: Arc<Shared>) {
        self.phase.send_if_modified(|phase| {
            let starting = matches!(phase, Phase::Starting);
            if starting {
                *phase = Phase::Ready(shared);
            }
            starting
        });
    }

    /// The first reason is kept: what follows is its consequence.
    pub fn set_failed(&self, why: &str) {
        self.phase.send_if_modified(|phase| {
            let news = !matches!(phase, Phase::Failed(_));
            if news {
                *phase = Phase::Failed(why.to_owned());
            }
            news
        });
    }

    /// Ends when the broker cannot go on, with the reason.
    pub async fn failure(&self) -> String {
        let mut phase = self.phase.subscribe();
        let failed = phase
            .wait_for(|phase| matches!(phase, Phase::Failed(_)))
            .await;
        match failed.as_deref() {
            Ok(Phase::Failed(why)) => why.clone(),
            _ => std::future::pending().await,
        }
    }

    /// As [`Front::failure`], if it has failed by now.
    pub fn failed(&self) -> Option<String> {
        match &*self.phase.borrow() {
            Phase::Failed(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// The broker's state, as soon as it is there; `None` if the start failed.
    pub async fn ready(&self) -> Option<Arc<Shared>> {
        if let Phase::Ready(shared) = &*self.phase.borrow() {
            return Some(shared.clone());
        }
        let mut phase = self.phase.subscribe();
        let settled = phase
            .wait_for(|phase| !matches!(phase, Phase::Starting))
            .await
            .ok()?;
        match &*settled {
            Phase::Ready(shared) => Some(shared.clone()),
            Phase::Starting | Phase::Failed(_) => None,
        }
    }

    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// A client broke the protocol and its connection is closed.
    pub fn refused(&self, peer: SocketAddr, error: &WireError) {
        self.audit_refusal(Kind::ConnectionRefused, peer, &error.to_string());
        self.say_once(peer, &format!("connection of {peer} closed: {error}"));
    }

    /// A client stopped in the middle of a request while others wait for its memory.
    pub fn stalled(&self, peer: SocketAddr) {
        let why = "it stopped in the middle of a request, and others wait for request.memory.bytes";
        self.audit_refusal(Kind::ConnectionRefused, peer, why);
        self.say_once(
            peer,
            &format!(
                "connection of {peer} closed: it stopped in the middle of a request, and others wait \
                 for request.memory.bytes ({})",
                self.settings.request_memory_bytes
            ),
        );
    }

    /// A connection did not get through its TLS handshake.
    pub fn no_handshake(&self, peer: SocketAddr, why: &str) {
        self.audit_refusal(Kind::TlsRefused, peer, why);
        self.say_once(
            peer,
            &format!("connection of {peer} closed: TLS handshake: {why}"),
        );
    }

    /// A client did not say who it is in time.
    pub fn not_in_time(&self, peer: SocketAddr) {
        self.audit_refusal(
            Kind::ConnectionRefused,
            peer,
            "not authenticated in time (auth.timeout.ms)",
        );
        self.say_once(
            peer,
            &format!(
                "connection of {peer} closed: not authenticated after auth.timeout.ms ({})",
                self.settings.auth_timeout_ms
            ),
        );
    }

    /// A client is not who it says it is, or does not say so as it should.
    pub fn not_authenticated(&self, peer: SocketAddr, listener: &str, why: &str) {
        self.say_once(
            peer,
            &format!("connection of {peer} closed: not authenticated at {listener}: {why}"),
        );
    }

    /// A client did not renew its session.
    pub fn session_over(&self, peer: SocketAddr, principal: &str) {
        self.say_once(
            peer,
            &format!(
                "connection of {peer} closed: the session of {principal:?} is over, and its client did \
                 not authenticate again (connections.max.reauth.ms)"
            ),
        );
    }

    /// A connection over the limits was closed at once.
    pub fn over_limit(&self, peer: SocketAddr) {
        let why = "max.connections or max.connections.per.ip is reached";
        self.audit_refusal(Kind::ConnectionRefused, peer, why);
        self.say_once(
            peer,
            &format!(
                "connection of {peer} closed at once: max.connections ({}) or \
                 max.connections.per.ip ({}) is reached",
                self.settings.max_connections, self.settings.max_connections_per_ip
            ),
        );
    }

    fn audit_refusal(&self, kind: Kind, peer: SocketAddr, why: &str) {
        self.audit.record(|| {
            let origin = Origin {
                address: Some(peer.ip()),
                ..Origin::default()
            };
            Event::new(kind)
                .outcome(Outcome::Denied)
                .of(&origin)
                .reason(why)
        });
    }

    /// Tells the audit log who begins to serve where.
    pub(crate) fn tell_start(self: &Arc<Front>, listeners: &[ListenerAddress], cluster_id: &str) {
        if self.settings.audit_log_failure == "stop" {
            let front = Arc::downgrade(self);
            self.audit.on_failure(move |why| {
                if let Some(front) = front.upgrade() {
                    front.set_failed(&format!("{why} (audit.log.failure=stop)"));
                }
            });
        }
        self.audit.record(|| {
            let listeners = listeners.iter();
            let listeners: Vec<String> = listeners
                .map(|listener| format!("{} at {}", listener.name, listener.address))
                .collect();
            Event::new(Kind::Start).change(&format!(
                "version {}, cluster {cluster_id}, node {}, listeners {}",
                env!("CARGO_PKG_VERSION"),
                self.settings.node_id,
                listeners.join(", ")
            ))
        });
    }

    /// Tells the audit log of the end, and closes it. Blocks.
    pub(crate) fn tell_stop(&self) {
        // Counts of refusals come before the last line.
        self.audit.sync();
        self.audit.record(|| match self.failed() {
            None => Event::new(Kind::Stop).outcome(Outcome::Succeeded),
            Some(why) => Event::new(Kind::Stop).outcome(Outcome::Failed).reason(&why),
        });
        self.audit.stop();
    }

    /// Says it once per address and minute, so that one offender cannot fill the log.
    fn say_once(&self, peer: SocketAddr, what: &str) {
        let now = self.clock.now();
        if self.refusals.len() >= MAX_REMEMBERED {
            self.refusals
                .retain(|_, said| now.since(*said) < REFUSAL_LOG_EVERY);
        }
        let mut news = false;
        self.refusals
            .entry(peer.ip())
            .and_modify(|said| {
                news = now.since(*said) >= REFUSAL_LOG_EVERY;
                if news {
                    *said = now;
                }
            })
            .or_insert_with(|| {
                news = true;
                now
            });
        if news {
            warn!("{what}");
        }
    }
}
