//! What connections, handlers and background threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;
use tidemark_audit::Audit;
use tidemark_config::Settings;
use tidemark_disk::Disk;
use tidemark_metadata::{MetadataImage, TopicDefaults};
use tidemark_owner::{Command, Reply};
use tidemark_partition_log::{PartitionLog, WaiterId};
use tidemark_types::{NodeId, TopicPartitionId};
use tokio::sync::{Semaphore, oneshot};

use crate::admission::{Admission, Reservation, Wants};
use crate::barrier::Barrier;
use crate::catalogue::{Catalogue, Metadata};
use crate::clock::Clock;
use crate::compaction::CompactionStats;
use crate::fetch_sessions::FetchSessions;
use crate::limits::Limits;
use crate::memory::AnswerMemory;
use crate::metrics::TxnMetrics;
use crate::owner_thread::{Message, TickClock};
use crate::published::{Published, ReadTick};

/// Why a command was not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDecided {
    /// The journal stopped, or the broker is stopping.
    Stopped,
    /// No room came free in time (a full disk, a journal that cannot be relieved).
    NoRoom,
}

/// The longest that a request waits for room in tail and journal before it is refused.
pub const ADMISSION_PATIENCE: Duration = Duration::from_secs(10);

/// A running broker, from the inside.
pub struct Shared {
    pub settings: Arc<Settings>,
    pub clock: Arc<dyn Clock>,
    pub disk: Arc<dyn Disk>,
    pub metrics: TxnMetrics,
    pub audit: Audit,
    pub limits: Arc<Limits>,
    /// What compaction has done.
    pub compaction: Arc<parking_lot::Mutex<CompactionStats>>,
    /// The floor of the ticks of what is decided from now on.
    pub ticks: TickClock,
    pub catalogue: Arc<Catalogue>,
    pub published: Arc<Published>,
    pub barrier: Arc<Barrier>,
    pub admission: Arc<Admission>,
    pub max_record_bytes: usize,
    pub queue: Sender<Message>,
    /// Places in the owner's queue.
    pub places: Arc<Semaphore>,
    pub next_waiter: AtomicU64,
    pub fetch_sessions: FetchSessions,
    pub answers: Arc<AnswerMemory>,
    /// Fetches that read segments at the same time: those who catch up take turns, and leave the
    /// disk and the cores to what must be fast.
    pub disk_reads: Semaphore,
}

impl Shared {
    pub fn node_id(&self) -> NodeId {
        NodeId(self.settings.node_id)
    }

    /// Queues a command for the owner. Commands of one caller are decided in the order of its
    /// calls. The reply comes when everything it may tell of is durable. A command that writes nothing
    /// needs a place in the queue and no other room, whatever `wants` says.
    pub async fn submit(
        &self,
        command: Command,
        wants: Wants,
        patience: Duration,
    ) -> Result<oneshot::Receiver<Reply>, NotDecided> {
        if command.only_reads() {
            return self.enqueue(command, None).await;
        }
        let give_up = self.clock.sleep_until(self.clock.now() + patience);
        let reservation = self.admission.admit(wants, give_up).await;
        let reservation = reservation.ok_or(NotDecided::NoRoom)?;
        self.enqueue(command, Some(reservation)).await
    }

    /// Queues a command that writes nothing: it needs a place in the queue and no other room.
    pub async fn submit_read(
        &self,
        command: Command,
    ) -> Result<oneshot::Receiver<Reply>, NotDecided> {
        self.enqueue(command, None).await
    }

    async fn enqueue(
        &self,
        command: Command,
        reservation: Option<Reservation>,
    ) -> Result<oneshot::Receiver<Reply>, NotDecided> {
        let place = self.places.clone().acquire_owned().await;
        let (to, reply) = oneshot::channel();
        self.queue
            .send(Message::Command {
                command,
                to,
                place: place.map_err(|_| NotDecided::Stopped)?,
                reservation,
            })
            .map_err(|_| NotDecided::Stopped)?;
        Ok(reply)
    }

    /// The published state: one tick for a whole request.
    pub fn read(&self) -> View<'_> {
        let tick = self.published.read();
        let Metadata {
            image, defaults, ..
        } = self.catalogue.at(tick.tick());
        View {
            shared: self,
            tick,
            image,
            defaults,
        }
    }

    pub fn next_waiter_id(&self) -> WaiterId {
        WaiterId(self.next_waiter.fetch_add(1, Ordering::Relaxed))
    }
}

/// Everything as of one published tick.
pub struct View<'a> {
    shared: &'a Shared,
    tick: ReadTick,
    pub image: Arc<MetadataImage>,
    /// What topics get that set nothing themselves.
    pub defaults: Arc<TopicDefaults>,
}

impl View<'_> {
    pub fn tick(&self) -> tidemark_types::Tick {
        self.tick.tick()
    }

    /// The log of a partition that exists at this tick. Not that of the cluster's metadata: as in
    /// Kafka it is no topic of clients.
    pub fn log(&self, id: TopicPartitionId) -> Option<Arc<PartitionLog>> {
        (self.image.contains(id) && id != TopicPartitionId::METADATA)
            .then(|| self.shared.catalogue.log(id))
            .flatten()
    }
}
