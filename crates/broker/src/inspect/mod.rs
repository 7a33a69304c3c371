//! What the broker tells an operator about transactions: who holds what, since when, what became of
//! an offset, and what ending a transaction would discard.
//!
//! State comes from the owner, behind the barrier like every answer; offsets as of the published
//! tick; the past from a view (`history`) that is brought up to date when it is asked for.

mod explain;
mod gauges;
mod history;
mod report;
pub mod reports;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidemark_audit::{Event, Kind, Origin, Outcome};
use tidemark_node_store::{KvStore, MemoryStore, SledStore};
use tidemark_owner::{AbortTransaction, Command, Inspect, Inspected, Reply, RequestContext};
use tidemark_tls::Tls;
use tidemark_types::{COORDINATOR_PARTITIONS, ErrorCode, TopicPartitionId};
use tracing::{error, warn};

use crate::admission::Wants;
use crate::front::Front;
use crate::shared::{ADMISSION_PATIENCE, Shared};
use history::TxnHistory;
use reports::{AbortReport, ExplainReport, PartitionReport, ShownTransaction, TransactionReport};

/// How often the view follows the log when nobody asks.
const FOLLOW_EVERY: Duration = Duration::from_secs(5);

/// Why an operator gets no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    #[error("there is no {0}")]
    NotFound(String),
    #[error("{0}")]
    Refused(String),
    #[error(
        "the broker is not serving: its journal has stopped, or it is stopping; its log says why"
    )]
    Unavailable,
    #[error("{0}")]
    Failed(String),
}

/// Answers questions about a running broker.
#[derive(Clone)]
pub struct Inspector {
    shared: Arc<Shared>,
    /// Not of the thread that follows the log.
    front: Option<Arc<Front>>,
    history: Arc<History>,
    tls: Option<Arc<Tls>>,
}

/// The view of the past, opened when it is first needed: most brokers have no transactional id, and
/// the store takes memory.
struct History {
    /// Where it is kept; in memory without.
    dir: Option<PathBuf>,
    open: Mutex<Opened>,
}

enum Opened {
    NotYet,
    Open(Arc<TxnHistory>),
    /// It cannot be had; it was said once.
    Failed(String),
}

impl History {
    fn get(&self) -> Result<Arc<TxnHistory>, InspectError> {
        let mut open = self.open.lock();
        if let Opened::NotYet = *open {
            *open = match self.open_store() {
                Ok(store) => Opened::Open(Arc::new(TxnHistory::new(store))),
                Err(e) => {
                    error!("the history of transactional ids is not kept: {e}");
                    Opened::Failed(e)
                }
            };
        }
        match &*open {
            Opened::Open(history) => Ok(history.clone()),
            Opened::Failed(e) => Err(InspectError::Failed(e.clone())),
            Opened::NotYet => unreachable!("it was just opened"),
        }
    }

    fn open_store(&self) -> Result<Box<dyn KvStore>, String> {
        let Some(dir) = &self.dir else {
            return Ok(Box::new(MemoryStore::default()));
        };
        let (store, quarantined) =
            SledStore::open_or_begin_anew(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        if let Some(quarantined) = quarantined {
            warn!(
                "{} could not be opened ({}): moved to {} and made again from the logs; nothing \
                 depends on it",
                dir.display(),
                quarantined.why,
                quarantined.moved_to.display()
            );
        }
        Ok(Box::new(store))
    }
}

impl Inspector {
    /// `views` is a directory for look-up views; without one they are kept in memory. Starts the
    /// thread that follows the log; it ends with the last clone of the inspector.
    pub(crate) fn new(
        shared: Arc<Shared>,
        front: Arc<Front>,
        views: Option<PathBuf>,
        tls: Option<Arc<Tls>>,
    ) -> Inspector {
        let inspector = Inspector {
            shared,
            front: Some(front),
            history: Arc::new(History {
                dir: views,
                open: Mutex::new(Opened::NotYet),
            }),
            tls,
        };
        inspector.follow();
        inspector
    }

    fn follow(&self) {
        let shared = Arc::downgrade(&self.shared);
        let history = Arc::downgrade(&self.history);
        let spawned = std::thread::Builder::new()
            .name("txn-history".to_owned())
            .spawn(move || {
                loop {
                    std::thread::sleep(FOLLOW_EVERY);
                    let (Some(shared), Some(history)) = (shared.upgrade(), history.upgrade())
                    else {
                        return;
                    };
                    let inspector = Inspector {
                        shared,
                        front: None,
                        history,
                        tls: None,
                    };
                    let _it_was_said = inspector.caught_up();
                }
            });
        if let Err(e) = spawned {
            warn!("the history of transactional ids is made only when it is asked for: {e}");
        }
    }

    /// The history, up to what is published. Blocks.
    fn caught_up(&self) -> Result<Option<Arc<TxnHistory>>, InspectError> {
        let view = self.shared.read();
        let logs: Vec<_> = (0..COORDINATOR_PARTITIONS)
            .filter_map(|partition| {
                let log = view.log(TopicPartitionId::transaction_state(partition))?;
                let version = log.at(view.tick());
                (version.log_end_offset > 0).then_some((partition, log, version))
            })
            .collect();
        if logs.is_empty() {
            return Ok(None);
        }
        let history = self.history.get()?;
        for (partition, log, version) in logs {
            let (start, end) = (version.log_start_offset, version.log_end_offset);
            if let Err(e) = history.catch_up(partition, &log, start, end) {
                let failed = format!("the history of transactional ids cannot be kept: {e}");
                error!("{failed}");
                *self.history.open.lock() = Opened::Failed(failed.clone());
                return Err(InspectError::Failed(failed));
            }
        }
        Ok(Some(history))
    }

    async fn ask(&self, command: Command) -> Result<Reply, InspectError> {
        let reply = self.shared.submit_read(command).await;
        let reply = reply.map_err(|_| InspectError::Unavailable)?;
        reply.await.map_err(|_| InspectError::Unavailable)
    }

    async fn inspect(&self, what: Inspect) -> Result<Inspected, InspectError> {
        match self.ask(Command::Inspect(what)).await? {
            Reply::Inspect(found) => Ok(found),
            other => unreachable!("an inspection was answered with {other:?}"),
        }
    }

    /// Runs what reads files where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Inspector) -> Result<T, InspectError> + Send + 'static,
    ) -> Result<T, InspectError> {
        let inspector = self.clone();
        let done = tokio::task::spawn_blocking(move || work(inspector)).await;
        done.unwrap_or_else(|e| Err(InspectError::Failed(e.to_string())))
    }

    /// Tells the audit log of somebody who asked without the right to.
    pub fn refused(&self, address: IpAddr, why: &str) {
        self.shared.audit.record(|| {
            let origin = Origin {
                address: Some(address),
                listener: Some(Arc::from("ADMIN")),
                ..Origin::default()
            };
            Event::new(Kind::Authentication)
                .outcome(Outcome::Failed)
                .of(&origin)
                .reason(why)
        });
    }

    /// True while commands are decided and made durable.
    pub async fn is_serving(&self) -> bool {
        self.ask(Command::Settle).await.is_ok()
    }

    /// Every ongoing transaction, the oldest first.
    pub async fn transactions(&self) -> Result<Vec<TransactionReport>, InspectError> {
        let found = self.inspect(Inspect::Ongoing).await?;
        self.blocking(move |inspector| {
            let mut reports: Vec<_> = (found.transactions.iter())
                .map(|t| inspector.report_transaction(t))
                .collect::<Result<_, _>>()?;
            reports.sort_by_key(|t| (t.opened_at_ms, t.transactional_id.clone()));
            Ok(reports)
        })
        .await
    }

    /// One transactional id with its timeline.
    pub async fn transaction(&self, id: &str) -> Result<ShownTransaction, InspectError> {
        let found = self
            .inspect(Inspect::TransactionalId(id.to_owned()))
            .await?;
        let id = id.to_owned();
        self.blocking(move |inspector| {
            let missing = || InspectError::NotFound(format!("transactional id {id:?}"));
            let transaction = found.transactions.first().ok_or_else(missing)?;
            let timeline = match inspector.caught_up()? {
                Some(history) => {
                    (history.timeline(&id)).map_err(|e| InspectError::Failed(e.to_string()))?
                }
                None => Vec::new(),
            };
            Ok(ShownTransaction {
                transaction: inspector.report_transaction(transaction)?,
                timeline,
            })
        })
        .await
    }

    /// Who holds the last stable offset of a topic's partitions, or of one of them.
    pub async fn partitions(
        &self,
        topic: &str,
        partition: Option<i32>,
    ) -> Result<Vec<PartitionReport>, InspectError> {
        let what = Inspect::Partitions {
            topic: topic.to_owned(),
            partition,
        };
        let found = self.inspect(what).await?;
        let topic = topic.to_owned();
        self.blocking(move |inspector| {
            if found.partitions.is_empty() {
                let partition = partition.map_or(String::new(), |p| format!(" partition {p}"));
                return Err(InspectError::NotFound(format!(
                    "topic {topic:?}{partition}"
                )));
            }
            let partitions = found.partitions.iter();
            partitions
                .map(|p| inspector.report_partition(&topic, p))
                .collect()
        })
        .await
    }

    /// Which transaction wrote an offset, and what became of it.
    pub async fn explain(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<ExplainReport, InspectError> {
        // Behind the barrier: what is told below is not older than the question.
        let topic = topic.to_owned();
        let explained = {
            let topic = topic.clone();
            self.inspect(Inspect::Partitions {
                topic: topic.clone(),
                partition: Some(partition),
            })
            .await?;
            self.blocking(move |inspector| inspector.explain_offset(&topic, partition, offset))
                .await?
        };
        let (mut report, producer) = explained;
        if let Some(producer_id) = producer {
            let found = self.inspect(Inspect::Producer(producer_id)).await?;
            let id = found.transactions.first();
            let mut id = id.map(|t| t.meta.transactional_id.to_string());
            if id.is_none() {
                let past = self.blocking(move |inspector| {
                    let history = inspector.caught_up()?;
                    Ok(history.and_then(|history| history.id_of_producer(producer_id)))
                });
                id = past.await?;
            }
            explain::name_transaction(&mut report, id);
        }
        Ok(report)
    }

    /// Aborts an ongoing transaction, or with `dry_run` says what that would discard.
    pub async fn abort(
        &self,
        id: &str,
        dry_run: bool,
        context: RequestContext,
    ) -> Result<AbortReport, InspectError> {
        let found = self
            .inspect(Inspect::TransactionalId(id.to_owned()))
            .await?;
        let missing = || InspectError::NotFound(format!("transactional id {id:?}"));
        let looked_at = found.transactions.first().ok_or_else(missing)?.clone();
        let number = looked_at.meta.txn_number;
        let transaction = self
            .blocking(move |inspector| inspector.report_transaction(&looked_at))
            .await?;
        let over = || {
            InspectError::Refused(format!(
                "no transaction of {id:?} is ongoing: there is nothing to abort"
            ))
        };
        if transaction.opened_at_ms.is_none() {
            return Err(over());
        }
        if !dry_run {
            let command = Command::AbortTransaction(AbortTransaction {
                context,
                transactional_id: Arc::from(id),
                txn_number: number,
            });
            let wants = Wants::Control;
            let reply = self.shared.submit(command, wants, ADMISSION_PATIENCE).await;
            let reply = reply.map_err(|_| InspectError::Unavailable)?;
            match reply.await.map_err(|_| InspectError::Unavailable)? {
                Reply::AbortTransaction(Ok(())) => {}
                Reply::AbortTransaction(Err(ErrorCode::InvalidTxnState)) => return Err(over()),
                Reply::AbortTransaction(Err(code)) => {
                    return Err(InspectError::Refused(code.to_string()));
                }
                other => unreachable!("an abort was answered with {other:?}"),
            }
        }
        Ok(report::of_abort(transaction, !dry_run))
    }
}
