//! What a connection meets first: it may come before the state is replayed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemark_audit::{Audit, Event, Kind, Origin, Outcome};
use tidemark_config::Settings;
use tidemark_txn_coordinator::guard::ConnectionId;
use tidemark_wire::WireError;
use tokio::sync::watch;

use crate::ListenerAddress;
use crate::api_counts::ApiCounts;
use crate::clock::Clock;
use crate::connections::{Admitted, Connections, Counted};
use crate::limits::{Limit, Limits};
use crate::memory::{AnswerMemory, RequestMemory};
use crate::shared::Shared;

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
    /// Memory of requests that wait for their turn (`in_flight`).
    pub(crate) parked: Arc<AnswerMemory>,
    pub(crate) connections: Connections,
    pub(crate) limits: Arc<Limits>,
    /// Connections so far.
    numbered: AtomicU64,
}

impl Front {
    pub fn new(settings: Arc<Settings>, clock: Arc<dyn Clock>, audit: Audit) -> Front {
        Front {
            audit,
            request_memory: RequestMemory::new(settings.request_memory_bytes),
            parked: AnswerMemory::new(settings.parked_request_memory_bytes),
            connections: Connections::new(&settings),
            limits: Arc::new(Limits::new(clock.clone())),
            settings,
            api_counts: ApiCounts::default(),
            clock,
            phase: watch::Sender::new(Phase::Starting),
            stopping: watch::Sender::new(false),
            numbered: AtomicU64::new(0),
        }
    }

    /// The number of a connection that begins now: higher than that of any before it.
    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.numbered.fetch_add(1, Ordering::Relaxed) + 1)
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

    /// A connection that has come. `None`: it is over a limit, which is said, and to be closed.
    pub(crate) fn admit(&self, peer: SocketAddr) -> Option<Admitted> {
        let settings = &self.settings;
        match self.connections.admit(peer.ip(), self.clock.now()) {
            Ok(admitted) => {
                if admitted.wait > Duration::ZERO {
                    self.limits.reached(Limit::CreationRate, peer, || {
                        format!(
                            "connection of {peer} waits, and those behind it: more than \
                             max.connection.creation.rate ({} a second) have come",
                            settings.max_connection_creation_rate
                        )
                    });
                }
                Some(admitted)
            }
            Err(limit) => {
                self.close(limit, peer, || {
                    let value = match limit {
                        Limit::Connections => settings.max_connections.to_string(),
                        Limit::ConnectionsPerIp => settings.max_connections_per_ip.to_string(),
                        _ => format!("{} a second", settings.max_connection_creation_rate_per_ip),
                    };
                    format!(
                        "connection of {peer} closed at once: {} ({value}) is reached",
                        limit.setting()
                    )
                });
                None
            }
        }
    }

    /// A place for a connection that has not authenticated, held until it has. `None`: there is none
    /// left, which is said, and it is to be closed.
    pub(crate) fn unauthenticated(&self, peer: SocketAddr) -> Option<Counted> {
        let place = self.connections.unauthenticated(peer.ip());
        if place.is_none() {
            self.close(Limit::Unauthenticated, peer, || {
                format!(
                    "connection of {peer} closed at once: so many have not authenticated yet that \
                     max.unauthenticated.connections ({}) is reached, or a quarter of it by one \
                     address",
                    self.settings.max_unauthenticated_connections
                )
            });
        }
        place
    }

    /// A client broke the protocol and its connection is closed.
    pub fn refused(&self, peer: SocketAddr, error: &WireError) {
        let what = || format!("connection of {peer} closed: {error}");
        match error {
            WireError::FrameSize { .. } => self.close(Limit::RequestSize, peer, what),
            _ => {
                self.audit_refusal(Kind::ConnectionRefused, peer, &error.to_string());
                self.limits.broken(peer, what);
            }
        }
    }

    /// A client stopped in the middle of a request while others wait for its memory.
    pub fn stalled(&self, peer: SocketAddr) {
        self.close(Limit::RequestMemory, peer, || {
            format!(
                "connection of {peer} closed: it stopped in the middle of a request, and others wait \
                 for request.memory.bytes ({})",
                self.settings.request_memory_bytes
            )
        });
    }

    /// A client does not bring a request to its end.
    pub fn slow_request(&self, peer: SocketAddr) {
        self.close(Limit::RequestRead, peer, || {
            format!(
                "connection of {peer} closed: it began a request and sent too little of it within \
                 request.read.timeout.ms ({})",
                self.settings.request_read_timeout_ms
            )
        });
    }

    /// A client does not take an answer.
    pub fn slow_reader(&self, peer: SocketAddr) {
        self.close(Limit::ResponseWrite, peer, || {
            format!(
                "connection of {peer} closed: it took too little of an answer within \
                 response.write.timeout.ms ({})",
                self.settings.response_write_timeout_ms
            )
        });
    }

    /// A client sent a request that is over a limit.
    pub(crate) fn over_limit(&self, peer: SocketAddr, limit: Limit, bytes: usize) {
        self.close(limit, peer, || {
            let setting = limit.setting();
            format!("connection of {peer} closed: a request of {bytes} bytes is over {setting}")
        });
    }

    /// A client whose library is known to harm data, and which nothing can be refused for.
    pub(crate) fn old_java_client(&self, peer: SocketAddr, version: &str) {
        self.limits.old_client(peer, || {
            format!(
                "client at {peer} uses apache-kafka-java {version}, whose producer may write a batch to \
                 the wrong topic (CVE-2026-35554): update it to 3.9.2, 4.0.2, 4.1.2 or later"
            )
        });
    }

    /// A connection did not get through its TLS handshake.
    pub fn no_handshake(&self, peer: SocketAddr, why: &str) {
        self.audit_refusal(Kind::TlsRefused, peer, why);
        self.limits.broken(peer, || {
            format!("connection of {peer} closed: TLS handshake: {why}")
        });
    }

    /// A client did not say who it is in time.
    pub fn not_in_time(&self, peer: SocketAddr) {
        self.close(Limit::AuthTimeout, peer, || {
            format!(
                "connection of {peer} closed: not authenticated after auth.timeout.ms ({})",
                self.settings.auth_timeout_ms
            )
        });
    }

    /// A client is not who it says it is, or does not say so as it should.
    pub fn not_authenticated(&self, peer: SocketAddr, listener: &str, why: &str) {
        self.limits.unauthenticated(peer, || {
            format!("connection of {peer} closed: not authenticated at {listener}: {why}")
        });
    }

    /// A client did not renew its session.
    pub fn session_over(&self, peer: SocketAddr, principal: &str) {
        self.audit.record(|| {
            let origin = Origin {
                principal: Some(Arc::from(principal)),
                address: Some(peer.ip()),
                ..Origin::default()
            };
            Event::new(Kind::ConnectionRefused)
                .outcome(Outcome::Denied)
                .of(&origin)
                .reason("its session is over, and was not renewed (connections.max.reauth.ms)")
        });
        self.limits.unauthenticated(peer, || {
            format!(
                "connection of {peer} closed: the session of {principal:?} is over, and its client did \
                 not authenticate again (connections.max.reauth.ms)"
            )
        });
    }

    /// A connection did not get through its TLS handshake in time.
    pub fn slow_handshake(&self, peer: SocketAddr) {
        self.close(Limit::TlsHandshake, peer, || {
            format!(
                "connection of {peer} closed: TLS handshake: not finished after \
                 tls.handshake.timeout.ms ({})",
                self.settings.tls_handshake_timeout_ms
            )
        });
    }

    /// Counts and tells that a connection is closed for a limit.
    fn close(&self, limit: Limit, peer: SocketAddr, what: impl FnOnce() -> String) {
        let kind = match limit {
            Limit::TlsHandshake => Kind::TlsRefused,
            _ => Kind::ConnectionRefused,
        };
        self.audit_refusal(kind, peer, limit.setting());
        self.limits.reached(limit, peer, what);
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
}
