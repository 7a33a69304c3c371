//! Counters of what happens to transactions. Gauges are read when somebody asks for them
//! (`inspect::gauges`).

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tidemark_owner::{AbortedBy, Event};

/// Why something ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Cheap to clone: all clones count into the same.
#[derive(Clone)]
pub struct TxnMetrics {
    commits: Counter,
    aborts: Family<Reason, Counter>,
    fences: Family<Reason, Counter>,
    end_to_visible: Histogram,
}

/// Half a millisecond is a sync on a good disk; a second is a disk in trouble.
const SECONDS: [f64; 11] = [
    0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
];

impl Default for TxnMetrics {
    fn default() -> TxnMetrics {
        TxnMetrics {
            commits: Counter::default(),
            aborts: Family::default(),
            fences: Family::default(),
            end_to_visible: Histogram::new(SECONDS),
        }
    }
}

impl TxnMetrics {
    pub(crate) fn note(&self, event: &Event) {
        let abort = |reason| {
            self.aborts.get_or_create(&Reason { reason }).inc();
        };
        let fence = |reason| {
            self.fences.get_or_create(&Reason { reason }).inc();
        };
        match event {
            Event::TransactionEnded { committed: true } => {
                self.commits.inc();
            }
            Event::TransactionEnded { committed: false } => abort("client"),
            Event::ProducerFenced { .. } => {
                abort("new_session");
                fence("new_session");
            }
            Event::SessionReplaced { .. } => fence("new_session"),
            Event::TransactionTimedOut { .. } => {
                abort("timeout");
                fence("timeout");
            }
            Event::TransactionMayBeIncomplete { .. } => {
                abort("loss");
                fence("loss");
            }
            // A limit's (`limits`).
            Event::LimitReached { .. } => {}
            Event::TransactionAborted { by, .. } => {
                let reason = match by {
                    AbortedBy::Operator { .. } => "operator",
                    AbortedBy::TopicDeleted { .. } => "topic_deleted",
                    AbortedBy::Exclusive { .. } => "exclusive",
                };
                abort(reason);
                fence(reason);
            }
        }
    }

    pub(crate) fn end_to_visible(&self, took: Duration) {
        self.end_to_visible.observe(took.as_secs_f64());
    }

    /// Adds them to what is scraped.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tidemark_transaction_commits",
            "Transactions that their clients committed",
            self.commits.clone(),
        );
        registry.register(
            "tidemark_transaction_aborts",
            "Transactions that were aborted, by reason",
            self.aborts.clone(),
        );
        registry.register(
            "tidemark_producer_fences",
            "Instances of transactional ids that were fenced, by reason",
            self.fences.clone(),
        );
        registry.register(
            "tidemark_transaction_end_to_visible_seconds",
            "From EndTxn's arrival until its markers are durable and every reader sees them",
            self.end_to_visible.clone(),
        );
    }
}
