//! Limits that somebody ran into: each refusal is counted, and said once per offender and minute.
//!
//! What a refusal is, an error code, a closed connection, is decided where the limit is. Here is
//! only what an operator gets to know of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tidemark_owner::TxnLimit;
use tidemark_types::MonoTime;
use tracing::warn;

use crate::clock::Clock;

/// One log line per limit and offender in this time.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Who uses an old library does so at each connection.
const SAY_OLD_CLIENT_EVERY: Duration = Duration::from_secs(86_400);
/// Offenders remembered for that. Beyond it those that were said long enough ago are forgotten, and
/// if there are none, all.
const MAX_REMEMBERED: usize = 10_000;

/// What was reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Limit {
    Connections,
    ConnectionsPerIp,
    CreationRate,
    CreationRatePerIp,
    Unauthenticated,
    TlsHandshake,
    AuthTimeout,
    Idle,
    RequestSize,
    ControlRequestSize,
    RequestMemory,
    ParkedRequests,
    RequestRead,
    ResponseWrite,
    InflightRequests,
    InflightBytes,
    Decompression,
    GroupSize,
    TransactionalIds,
    OpenTransactions,
    TransactionPartitions,
}

impl Limit {
    pub const ALL: [Limit; 21] = [
        Limit::Connections,
        Limit::ConnectionsPerIp,
        Limit::CreationRate,
        Limit::CreationRatePerIp,
        Limit::Unauthenticated,
        Limit::TlsHandshake,
        Limit::AuthTimeout,
        Limit::Idle,
        Limit::RequestSize,
        Limit::ControlRequestSize,
        Limit::RequestMemory,
        Limit::ParkedRequests,
        Limit::RequestRead,
        Limit::ResponseWrite,
        Limit::InflightRequests,
        Limit::InflightBytes,
        Limit::Decompression,
        Limit::GroupSize,
        Limit::TransactionalIds,
        Limit::OpenTransactions,
        Limit::TransactionPartitions,
    ];

    /// The setting that it is.
    pub const fn setting(self) -> &'static str {
        match self {
            Limit::Connections => "max.connections",
            Limit::ConnectionsPerIp => "max.connections.per.ip",
            Limit::CreationRate => "max.connection.creation.rate",
            Limit::CreationRatePerIp => "max.connection.creation.rate.per.ip",
            Limit::Unauthenticated => "max.unauthenticated.connections",
            Limit::TlsHandshake => "tls.handshake.timeout.ms",
            Limit::AuthTimeout => "auth.timeout.ms",
            Limit::Idle => "connections.max.idle.ms",
            Limit::RequestSize => "socket.request.max.bytes",
            Limit::ControlRequestSize => "control.request.max.bytes",
            Limit::RequestMemory => "request.memory.bytes",
            Limit::ParkedRequests => "parked.request.memory.bytes",
            Limit::RequestRead => "request.read.timeout.ms",
            Limit::ResponseWrite => "response.write.timeout.ms",
            Limit::InflightRequests => "max.inflight.requests.per.connection",
            Limit::InflightBytes => "max.inflight.bytes.per.connection",
            Limit::Decompression => "decompression.max.bytes",
            Limit::GroupSize => "group.max.size",
            Limit::TransactionalIds => "max.transactional.ids.per.principal",
            Limit::OpenTransactions => "max.open.transactions.per.principal",
            Limit::TransactionPartitions => "max.partitions.per.transaction",
        }
    }

    /// Whoever runs into it waits: nothing is refused. The others refuse.
    const fn makes_wait(self) -> bool {
        matches!(
            self,
            Limit::CreationRate | Limit::InflightRequests | Limit::InflightBytes
        )
    }
}

/// Who ran into it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Offender {
    Address(IpAddr),
    Principal(Arc<str>),
}

impl From<SocketAddr> for Offender {
    fn from(peer: SocketAddr) -> Offender {
        Offender::Address(peer.ip().to_canonical())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLimit {
    limit: &'static str,
}

/// What is known of refusals. One per broker.
pub struct Limits {
    clock: Arc<dyn Clock>,
    refused: Family<OfLimit, Counter>,
    waited: Family<OfLimit, Counter>,
    /// When something was said last.
    said: DashMap<(About, Offender), MonoTime>,
}

/// What is said of somebody.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum About {
    Limit(Limit),
    Protocol,
    Login,
    OldClient,
}

impl About {
    const fn every(self) -> Duration {
        match self {
            About::OldClient => SAY_OLD_CLIENT_EVERY,
            About::Limit(_) | About::Protocol | About::Login => SAY_EVERY,
        }
    }
}

impl Limits {
    pub fn new(clock: Arc<dyn Clock>) -> Limits {
        let limits = Limits {
            clock,
            refused: Family::default(),
            waited: Family::default(),
            said: DashMap::new(),
        };
        // So that every limit is there to be looked at before it is reached.
        for limit in Limit::ALL {
            let _shown_as_zero = limits.counter(limit);
        }
        limits
    }

    fn counter(&self, limit: Limit) -> Counter {
        let family = match limit.makes_wait() {
            true => &self.waited,
            false => &self.refused,
        };
        let of = OfLimit {
            limit: limit.setting(),
        };
        family.get_or_create(&of).clone()
    }

    /// How often it was reached.
    pub fn count_of(&self, limit: Limit) -> u64 {
        self.counter(limit).get()
    }

    /// Counts, without a word in the log: what happens every day.
    pub fn count(&self, limit: Limit) {
        self.counter(limit).inc();
    }

    /// Counts, and says it if this offender was not named for this limit within a minute.
    pub fn reached(
        &self,
        limit: Limit,
        offender: impl Into<Offender>,
        what: impl FnOnce() -> String,
    ) {
        self.count(limit);
        self.say(About::Limit(limit), offender.into(), what);
    }

    /// A principal has all it may have.
    pub(crate) fn principal_reached(&self, limit: TxnLimit, principal: &Arc<str>, id: &str) {
        let limit = match limit {
            TxnLimit::TransactionalIds => Limit::TransactionalIds,
            TxnLimit::OpenTransactions => Limit::OpenTransactions,
            TxnLimit::Partitions => Limit::TransactionPartitions,
        };
        self.reached(limit, Offender::Principal(principal.clone()), || {
            let setting = limit.setting();
            format!("{principal}: {setting} is reached, transactional.id {id:?} is refused")
        });
    }

    /// As [`Limits::reached`], for what breaks the protocol and no limit.
    pub fn broken(&self, offender: impl Into<Offender>, what: impl FnOnce() -> String) {
        self.say(About::Protocol, offender.into(), what);
    }

    /// As [`Limits::broken`], for who is not who it says it is.
    pub fn unauthenticated(&self, offender: impl Into<Offender>, what: impl FnOnce() -> String) {
        self.say(About::Login, offender.into(), what);
    }

    /// A library that is better not used.
    pub fn old_client(&self, offender: impl Into<Offender>, what: impl FnOnce() -> String) {
        self.say(About::OldClient, offender.into(), what);
    }

    fn say(&self, about: About, offender: Offender, what: impl FnOnce() -> String) {
        let now = self.clock.now();
        if self.said.len() >= MAX_REMEMBERED {
            self.said
                .retain(|(about, _), said| now.since(*said) < about.every());
            if self.said.len() >= MAX_REMEMBERED {
                self.said.clear();
            }
        }
        let mut news = false;
        self.said
            .entry((about, offender))
            .and_modify(|said| {
                news = now.since(*said) >= about.every();
                if news {
                    *said = now;
                }
            })
            .or_insert_with(|| {
                news = true;
                now
            });
        if news {
            warn!("{}", what());
        }
    }

    /// Adds the counters to what is scraped.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tidemark_limit_refused",
            "Requests that were refused and connections that were closed for a limit, by its setting",
            self.refused.clone(),
        );
        registry.register(
            "tidemark_limit_waited",
            "How often somebody had to wait for a limit, by its setting",
            self.waited.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn every_limit_is_a_setting_and_is_shown_before_it_is_reached() {
        let limits = Limits::new(Arc::new(SystemClock::new()));
        let mut registry = Registry::default();
        limits.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let mut names = BTreeSet::new();
        for limit in Limit::ALL {
            assert!(names.insert(limit.setting()), "{limit:?}");
            assert!(
                tidemark_config::row(limit.setting()).is_some(),
                "{limit:?}: there is no setting {}",
                limit.setting()
            );
            let shown = format!("{{limit=\"{}\"}} 0", limit.setting());
            assert!(text.contains(&shown), "{shown} is not in {text}");
        }
    }

    #[test]
    fn who_offends_from_many_addresses_takes_no_memory() {
        let limits = Limits::new(Arc::new(SystemClock::new()));
        for n in 0..3 * MAX_REMEMBERED as u32 {
            let peer = SocketAddr::from((n.to_be_bytes(), 1));
            limits.reached(Limit::RequestSize, peer, String::new);
            assert!(limits.said.len() <= MAX_REMEMBERED);
        }
        assert_eq!(
            limits.count_of(Limit::RequestSize),
            3 * MAX_REMEMBERED as u64
        );
    }
}
