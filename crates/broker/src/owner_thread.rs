//! The owner's thread: takes commands one by one, decides and applies them, hands records on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use tidemark_audit::Audit;
use tidemark_compaction::LastAppend;
use tidemark_journal::{Admission, After, AppendRequest, Journal, JournalEvent};
use tidemark_owner::{
    AbortedBy, Appended, Command, Event, Now, Observation, Owner, Reply, Step, Token,
};
use tidemark_partition_log::{ControlMeta, PartitionLog, SegmentManifest, TailBatch, Version};
use tidemark_types::{JournalIndex, MonoTime, NodeId, ProducerId, Tick, TopicPartitionId};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{info, warn};

use crate::admission::Reservation;
use crate::barrier::{Barrier, Parked};
use crate::catalogue::{Catalogue, segment_rules};
use crate::clock::{Clock, Entropy};
use crate::identity::Identity;
use crate::limits::Limits;
use crate::metrics::TxnMetrics;
use crate::published::Published;
use tidemark_partition_log::LogStore;

/// How long a full journal puts off what can wait.
const SWEEP_PUT_OFF: Duration = Duration::from_secs(10);

/// Producers of one answer: the owner's step stays short.
const PRODUCERS_AT_ONCE: usize = 4096;

/// What the owner's queue carries.
pub enum Message {
    Command {
        command: Command,
        to: oneshot::Sender<Reply>,
        /// A place in the queue, given back when the command is taken.
        place: OwnedSemaphorePermit,
        /// Room in tail and journal, given back when the record is in the journal's queue; none for
        /// a command that writes nothing.
        reservation: Option<Reservation>,
    },
    /// The records that a start itself writes, before the first command.
    Begin {
        begin: Begin,
        to: crossbeam_channel::Sender<JournalIndex>,
    },
    /// What the journal says of who owns it.
    Journal(JournalEvent),
    /// A clock that is turned by hand has moved: look at the deadlines.
    Wake,
    /// A command of maintenance, which has no reply.
    Upkeep {
        command: Command,
        reservation: Reservation,
        /// Gets the owner's last record: once it is durable, what the command did is.
        to: crossbeam_channel::Sender<JournalIndex>,
    },
    /// A partition's producers by id, those after the given one, some thousands at most. None
    /// when the partition is gone.
    ActiveProducers {
        partition: TopicPartitionId,
        after: Option<ProducerId>,
        to: crossbeam_channel::Sender<Option<Vec<(ProducerId, LastAppend)>>>,
    },
    /// Take checkpoint blocks.
    Capture {
        what: Capture,
        to: crossbeam_channel::Sender<CapturedSlice>,
    },
    Stop,
}

/// What a start knows that the journal does not say yet.
pub struct Begin {
    pub identity: Identity,
    /// The journal's epoch from now on.
    pub epoch: i32,
    /// Bytes that this start cut from the journal's end.
    pub cut_bytes: u64,
    /// Acknowledged records may be missing: what was open with them is aborted.
    pub may_have_lost: bool,
}

/// Which blocks to take.
pub enum Capture {
    /// Of the metadata, with the list of every partition there is at that position. It comes first:
    /// what is created later is in the journal after it, what is deleted later is deleted there.
    Metadata,
    /// Of these partitions, all as of one position. One that is gone is left out.
    Partitions(Vec<TopicPartitionId>),
}

/// Blocks of one step of the owner.
pub struct CapturedSlice {
    pub blocks: Vec<Captured>,
    /// The owner's position: the checkpoint may not count before this record is durable, also when
    /// no block came of it (its partitions may have been deleted by then).
    pub last_index: JournalIndex,
    /// With [`Capture::Metadata`]: every other partition.
    pub others: Vec<TopicPartitionId>,
}

/// A partition's state as of `stamp`, for a checkpoint.
pub struct Captured {
    pub id: TopicPartitionId,
    /// Every effect of the journal up to here is in the block.
    pub stamp: JournalIndex,
    pub tick: Tick,
    pub block: Bytes,
    pub manifest: SegmentManifest,
}

/// The wall clock at start and the monotonic clock since: the floor of the ticks of a run.
#[derive(Clone, Copy)]
pub struct TickClock {
    start_wall_ms: i64,
    start: MonoTime,
}

impl TickClock {
    pub fn new(clock: &dyn Clock) -> TickClock {
        TickClock {
            start_wall_ms: clock.wall_ms(),
            start: clock.now(),
        }
    }

    pub fn tick(&self, now: MonoTime) -> Tick {
        let elapsed_ms = i64::try_from(now.since(self.start).as_millis()).unwrap_or(i64::MAX);
        Tick::from_wall_ms(self.start_wall_ms.saturating_add(elapsed_ms))
    }
}

pub struct OwnerThread {
    pub owner: Owner,
    pub journal: Arc<dyn Journal>,
    pub barrier: Arc<Barrier>,
    pub published: Arc<Published>,
    pub catalogue: Arc<Catalogue>,
    pub store: Arc<LogStore>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub metrics: TxnMetrics,
    pub audit: Audit,
    pub limits: Arc<Limits>,
    pub ticks: TickClock,
    /// Under which the journal takes records; `None`: another broker owns it.
    pub epoch: Option<u32>,
    /// Tick of the record before the next.
    pub appended: Tick,
    /// Who waits for which token.
    pub waiting: HashMap<Token, oneshot::Sender<Reply>>,
    pub next_token: u64,
    /// This start still aborts transactions of which records may be missing. Should it not come to
    /// an end, the next one has to.
    pub unsettled: bool,
}

impl OwnerThread {
    /// Runs until told to stop, or until nobody can send any more.
    pub fn run(mut self, queue: &Receiver<Message>) {
        loop {
            let now = self.clock.now();
            // Deadlines are the owner's business.
            let deadline = self.epoch.and_then(|_| self.owner.next_deadline());
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.expire();
                continue;
            }
            let sweep = self.epoch.and_then(|_| self.owner.next_sweep());
            let message = if sweep.is_some_and(|sweep| sweep <= now) {
                self.sweep(now);
                // It takes many steps: whoever waits goes between two of them.
                match queue.try_recv() {
                    Ok(message) => message,
                    Err(TryRecvError::Empty) => continue,
                    Err(TryRecvError::Disconnected) => return,
                }
            } else {
                let next = deadline.into_iter().chain(sweep).min();
                match next.and_then(|next| self.clock.block_for(next)) {
                    None => match queue.recv() {
                        Ok(message) => message,
                        Err(_) => return,
                    },
                    Some(timeout) => match queue.recv_timeout(timeout) {
                        Ok(message) => message,
                        Err(RecvTimeoutError::Timeout) => continue,
                        Err(RecvTimeoutError::Disconnected) => return,
                    },
                }
            };
            if !self.handle(message) {
                return;
            }
        }
    }

    /// Acts on a message; false when it is the last.
    pub fn handle(&mut self, message: Message) -> bool {
        if self.owner.keeps_undo() {
            self.owner.confirmed(self.barrier.confirmed());
        }
        match message {
            // Its sender is dropped: the client hears that there is no answer here, and looks again
            // for who has one.
            Message::Command { .. } if self.epoch.is_none() => {}
            Message::Command {
                command,
                to,
                place,
                reservation,
            } => {
                drop(place);
                self.next_token += 1;
                let token = Token(self.next_token);
                self.waiting.insert(token, to);
                self.step(token, command);
                drop(reservation);
            }
            Message::Begin { begin, to } => {
                let _the_start_was_given_up = to.send(self.begin(&begin));
            }
            Message::Upkeep {
                command,
                reservation,
                to,
            } => {
                if self.epoch.is_some() {
                    self.step(Token(0), command);
                }
                drop(reservation);
                let _nobody_waits = to.send(self.owner.last_index());
            }
            Message::Journal(event) => self.hear(event),
            Message::ActiveProducers {
                partition,
                after,
                to,
            } => {
                let _it_is_stopping = to.send(self.active_producers(partition, after));
            }
            Message::Wake => {}
            Message::Capture { what, to } => {
                let _checkpoint_was_given_up = to.send(self.capture(what));
            }
            Message::Stop => return false,
        }
        true
    }

    pub(crate) fn expire(&mut self) {
        self.step(Token(0), Command::Expire);
    }

    /// A step of what is not urgent. It takes no space that requests could need.
    fn sweep(&mut self, now: MonoTime) {
        let bytes = self.owner.sweep_bytes() as u64;
        match self.journal.has_space(bytes, Admission::Ordinary) {
            true => self.step(Token(0), Command::Sweep),
            false => self.owner.put_off_sweeps(now + SWEEP_PUT_OFF),
        }
    }

    fn step(&mut self, token: Token, command: Command) {
        let entropy = self.entropy.clone();
        let mono = self.clock.now();
        let mut now = Now {
            mono,
            wall_ms: self.clock.wall_ms(),
            tick: self.ticks.tick(mono),
            uuid: &mut || entropy.uuid(),
        };
        let step = self.owner.step(token, command, &mut now);
        self.carry_out(step);
    }

    /// Tells logs and catalogue, parks the replies, hands the record to the writer, in that order:
    /// when the record is durable everything that its publication shows is in place.
    pub fn carry_out(&mut self, step: Step) {
        let tick = step.record.as_ref().map(|record| record.tick);
        let touched = self.observe(step.observations, tick, self.owner.last_index());
        let replies: Vec<Parked> = step
            .replies
            .into_iter()
            .filter_map(|(token, reply)| {
                let to = self.waiting.remove(&token)?;
                Some(Parked { to, reply })
            })
            .collect();
        self.barrier.park(self.owner.last_index(), touched, replies);
        if let Some(record) = step.record {
            let after = After {
                epoch: self.epoch.expect("only an owner writes"),
                tick: std::mem::replace(&mut self.appended, record.tick),
            };
            let request = AppendRequest {
                index: record.index,
                tick: record.tick,
                wall_ms: record.wall_ms,
                must_sync: !record.is_data(),
                unsettled: self.unsettled,
                pieces: record.encode(),
            };
            self.journal.append(after, request);
        }
        for event in step.events {
            self.metrics.note(&event);
            crate::audit::tell_of_owner(&self.audit, &event);
            if let Event::LimitReached {
                limit,
                principal,
                transactional_id,
            } = &event
            {
                self.limits
                    .principal_reached(*limit, principal, transactional_id);
            }
            log_event(event);
        }
    }

    pub(crate) fn observe(
        &self,
        observations: Vec<Observation>,
        tick: Option<Tick>,
        index: JournalIndex,
    ) -> Vec<Arc<PartitionLog>> {
        let Some(tick) = tick else {
            return Vec::new();
        };
        let oldest_needed = self.published.oldest_needed();
        // The image before the logs: whoever lists the logs and then looks at the newest image finds
        // every log's topic in it.
        if observations
            .iter()
            .any(|o| matches!(o, Observation::MetadataChanged))
        {
            let image = Arc::new(self.owner.metadata().clone());
            if self.catalogue.push_image(tick, image, oldest_needed) {
                self.catalogue.apply_segment_rules();
            }
        }
        let mut touched = Vec::new();
        for observation in observations {
            match observation {
                Observation::Appended(appended) => {
                    let id = appended.partition;
                    let log = self.catalogue.log(id);
                    let (batch, aborted) = tail_batch(appended, tick, index);
                    log.unwrap_or_else(|| panic!("partition {id} has no log"))
                        .append(batch, aborted);
                }
                Observation::Watermarks(w) => {
                    if let Some(log) = self.catalogue.log(w.partition) {
                        log.push_version(Version {
                            tick,
                            log_end_offset: w.log_end_offset,
                            last_stable_offset: w.last_stable_offset,
                            log_start_offset: w.log_start_offset,
                            leader_epoch: w.leader_epoch,
                        });
                        log.prune_versions(oldest_needed);
                        touched.push(log);
                    }
                }
                Observation::TopicCreated(topic) => {
                    for id in topic.partition_ids() {
                        if self.catalogue.log(id).is_none() {
                            let epoch = topic.leader_epoch(self.owner.metadata().journal_epoch());
                            let log = PartitionLog::new(&self.store, id, epoch);
                            log.set_segment_rules(segment_rules(
                                &topic,
                                &self.catalogue.newest().defaults,
                            ));
                            self.catalogue.insert_log(id, log);
                        }
                    }
                }
                Observation::TopicConfigured(topic) => {
                    let defaults = self.catalogue.newest().defaults;
                    self.catalogue.apply_segment_rules_of(&topic, &defaults);
                }
                // The partition's watermarks follow, and say it.
                Observation::LogStartMoved(_) => {}
                // The logs stay until the deletion is published (readers until then see the
                // topic); maintenance takes them away. Fetches parked on them are woken.
                Observation::TopicDeleted(topic) => {
                    touched.extend(
                        topic
                            .partition_ids()
                            .filter_map(|id| self.catalogue.log(id)),
                    );
                }
                Observation::MetadataChanged
                | Observation::TakenBack(_)
                | Observation::NeverCreated(_) => {}
            }
        }
        touched
    }

    /// A new directory's first record, or the rise of the journal's epoch; and the deadlines of what
    /// replay found open. Returns the last record's index: requests wait until it is durable.
    fn begin(&mut self, begin: &Begin) -> JournalIndex {
        let entropy = self.entropy.clone();
        let mono = self.clock.now();
        let now = Now {
            mono,
            wall_ms: self.clock.wall_ms(),
            tick: self.ticks.tick(mono),
            uuid: &mut || entropy.uuid(),
        };
        self.owner.arm_after_replay(&now);
        let Begin {
            identity,
            epoch,
            cut_bytes,
            may_have_lost,
        } = begin;
        self.unsettled = *may_have_lost;
        if self.owner.metadata().cluster_id().is_none() {
            let node_id = NodeId(identity.node_id);
            let step =
                self.owner
                    .bootstrap(&identity.cluster_id, node_id, identity.incarnation, &now);
            self.carry_out(step);
        }
        self.begin_journal_epoch(*epoch, *cut_bytes, &now);
        if *may_have_lost {
            while let Some(step) = self.owner.abort_incomplete(&now) {
                self.carry_out(step);
            }
        }
        self.unsettled = false;
        self.owner.last_index()
    }

    fn active_producers(
        &self,
        id: TopicPartitionId,
        after: Option<ProducerId>,
    ) -> Option<Vec<(ProducerId, LastAppend)>> {
        let partition = self.owner.partition(id)?;
        let some = partition.producers.producers_after(after);
        let some = some.take(PRODUCERS_AT_ONCE).map(|(id, entry)| {
            let last = match entry.window().last() {
                Some(batch) => LastAppend::Data {
                    last_offset: batch.last_offset(),
                },
                None => LastAppend::Marker {
                    producer_epoch: entry.epoch(),
                },
            };
            (id, last)
        });
        Some(some.collect())
    }

    pub(crate) fn begin_journal_epoch(&mut self, epoch: i32, cut_bytes: u64, now: &Now<'_>) {
        if epoch <= self.owner.metadata().journal_epoch() {
            return;
        }
        let step = self.owner.begin_journal_epoch(epoch, cut_bytes, now);
        self.carry_out(step);
        self.push_leader_epochs();
    }

    /// Tells every log its leader epoch: that of the record before.
    pub(crate) fn push_leader_epochs(&self) {
        for (id, log) in self.catalogue.logs().iter() {
            if let Some(partition) = self.owner.partition(*id) {
                log.start_leader_epoch(partition.leader_epoch());
                log.push_version(version(partition, self.owner.last_tick()));
            }
        }
    }

    fn capture(&self, what: Capture) -> CapturedSlice {
        let (ids, others) = match what {
            Capture::Metadata => {
                let mut others = self.owner.partition_ids();
                others.retain(|id| *id != TopicPartitionId::METADATA);
                (vec![TopicPartitionId::METADATA], others)
            }
            Capture::Partitions(ids) => (ids, Vec::new()),
        };
        let blocks = ids
            .into_iter()
            .filter_map(|id| {
                let (stamp, block) = self.owner.encode_block(id)?;
                let log = self.catalogue.log(id);
                let manifest = log
                    .unwrap_or_else(|| panic!("partition {id} has no log"))
                    .segment_manifest();
                Some(Captured {
                    id,
                    stamp,
                    tick: self.owner.last_tick(),
                    block,
                    manifest,
                })
            })
            .collect();
        CapturedSlice {
            blocks,
            last_index: self.owner.last_index(),
            others,
        }
    }
}

/// A partition's offsets, as readers take them at `tick` and later.
pub fn version(partition: &tidemark_owner::Partition, tick: Tick) -> Version {
    let w = partition.watermarks();
    Version {
        tick,
        log_end_offset: w.log_end_offset,
        last_stable_offset: w.last_stable_offset,
        log_start_offset: w.log_start_offset,
        leader_epoch: w.leader_epoch,
    }
}

/// The tail's entry of an applied batch.
pub fn tail_batch(
    appended: Appended,
    tick: Tick,
    index: JournalIndex,
) -> (TailBatch, Option<tidemark_abort_index::AbortedTxn>) {
    let control = appended.control.map(|control| ControlMeta {
        control_type: control.kind,
        txn_first_offset: control.first_offset,
    });
    let batch = TailBatch::new(
        &appended.header,
        appended.batch,
        tick,
        index,
        appended.last_stable_offset,
        control,
    );
    (batch, appended.aborted)
}

fn log_event(event: Event) {
    match event {
        Event::ProducerFenced {
            transactional_id,
            producer_id,
            old_epoch,
            new_epoch,
            who: _,
            by_principal: _,
            by_client_id,
            by_host,
        } => info!(
            "transactional.id {transactional_id:?}: open transaction of producer {producer_id} \
             epoch {old_epoch} aborted, a new session of client {by_client_id:?} at {by_host} \
             goes on at epoch {new_epoch}"
        ),
        Event::TransactionMayBeIncomplete {
            transactional_id,
            producer_id,
            epoch,
            principal: _,
            client_id,
            host,
        } => warn!(
            "transactional.id {transactional_id:?}: the open transaction of producer {producer_id} \
             epoch {epoch} was aborted: the broker did not stop in order, and with its journal.sync \
             records of the transaction may be lost; its client {client_id:?} at {host} must call \
             init_transactions to go on"
        ),
        Event::TransactionTimedOut {
            transactional_id,
            producer_id,
            epoch,
            timeout_ms,
            principal: _,
            client_id,
            host,
        } => warn!(
            "transactional.id {transactional_id:?}: transaction of producer {producer_id} epoch \
             {epoch} aborted after its {timeout_ms} ms timeout; its client {client_id:?} at {host} \
             must call init_transactions to go on"
        ),
        // The limit says it, once a minute.
        Event::LimitReached { .. } | Event::TransactionEnded { .. } => {}
        Event::SessionReplaced {
            transactional_id,
            producer_id,
            old_epoch,
            new_epoch,
            old_principal: _,
            old_client_id,
            old_host,
            by_principal: _,
            by_client_id,
            by_host,
        } => info!(
            "transactional.id {transactional_id:?}: a new session of client {by_client_id:?} at \
             {by_host} goes on at epoch {new_epoch} and fences client {old_client_id:?} at \
             {old_host} (producer {producer_id} epoch {old_epoch}); nothing was open"
        ),
        Event::TransactionAborted {
            transactional_id,
            producer_id,
            epoch,
            who: _,
            by,
        } => {
            let by = match by {
                AbortedBy::Operator {
                    principal,
                    client_id,
                    host,
                } => {
                    format!("asked for by {principal}, client {client_id:?} at {host}")
                }
                AbortedBy::TopicDeleted { topic } => {
                    format!("topic {topic}, which it was writing to, was deleted")
                }
                AbortedBy::Exclusive { operation, topic } => {
                    let operation = operation.name();
                    format!(
                        "{operation} of topic {topic}, which it was writing to, cuts through it"
                    )
                }
            };
            warn!(
                "transactional.id {transactional_id:?}: transaction of producer {producer_id} epoch \
                 {epoch} aborted: {by}; its client meets the abort with its next request"
            );
        }
    }
}
