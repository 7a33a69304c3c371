//! The compaction thread: which logs are worth a run, at what pace, and what it has done.
//!
//! It has a thread of its own, behind everything else: it takes moments of a log's lock, never the
//! owner's time but for the list of a partition's producers, and no more of the disk than
//! `log.cleaner.io.max.bytes.per.second`. What a run does to a log is in
//! [`PartitionLog::compact`]; what is kept and why in `tidemark_compaction`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use parking_lot::Mutex;
use tidemark_compaction::{LastAppend, OffsetMap};
use tidemark_metadata::TopicConfig;
use tidemark_partition_log::{
    Compactable, CompactionOrder, CompactionReport, LogError, PartitionLog, Retired,
};
use tidemark_types::{MonoTime, ProducerId, TopicPartitionId};
use tracing::{error, info, warn};

use crate::barrier::Barrier;
use crate::catalogue::Catalogue;
use crate::clock::Clock;
use crate::owner_thread::Message;
use crate::published::Published;

/// A look at all logs takes its time too.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// A log whose disk failed or was full is left alone for so long.
const AFTER_AN_ERROR: Duration = Duration::from_secs(60);
/// A run waits for the disk in pieces of this length, and looks whether it is to stop.
const PACE: Duration = Duration::from_millis(50);
/// The owner that does not answer in this time is stopping or stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the thread is asked for.
pub(crate) enum Ask {
    /// A clock that is turned by hand has moved.
    Wake,
    /// Compact everything that has anything to compact, whatever its share; it is told when that is
    /// done.
    Now(Sender<()>),
    Stop,
}

/// What compaction has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CompactionStats {
    /// Runs that came to their end.
    pub runs: u64,
    /// Runs that ended early: the topic went, retention passed by, the broker stops.
    pub runs_given_up: u64,
    /// Runs that met an error, of which the log tells.
    pub runs_failed: u64,
    /// Bytes of the segments that runs have gone through, and what was left of them.
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub bytes_written: u64,
    pub records_removed: u64,
    pub aborted_removed: u64,
    pub tombstones_removed: u64,
    pub markers_removed: u64,
    pub batches_dropped: u64,
    /// Partitions that are due for a run, as of the last look.
    pub partitions_due: u64,
    /// The highest share of uncompacted bytes of any partition, as of the last look.
    pub max_dirty_ratio: f64,
}

/// How to reach the thread from outside.
pub(crate) struct Compaction {
    pub(crate) asks: Sender<Ask>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) stats: Arc<Mutex<CompactionStats>>,
}

impl Compaction {
    /// Ends a run that is under way, and then the thread.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let _it_has_ended = self.asks.send(Ask::Stop);
    }

    /// Compacts what there is to compact. Blocks.
    pub(crate) fn now(asks: &Sender<Ask>) {
        let (done, told) = crossbeam_channel::bounded(1);
        if asks.send(Ask::Now(done)).is_ok() {
            let _told_or_stopped = told.recv();
        }
    }
}

pub(crate) struct Compactor {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) published: Arc<Published>,
    pub(crate) barrier: Arc<Barrier>,
    pub(crate) retired: Arc<Retired>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owner: Sender<Message>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) stats: Arc<Mutex<CompactionStats>>,
    /// `log.cleaner.enable`: without it only what is asked for is done.
    pub(crate) enabled: bool,
    /// `log.cleaner.backoff.ms`.
    pub(crate) backoff: Duration,
    /// `log.cleaner.io.max.bytes.per.second`, reading and writing together.
    pub(crate) bytes_per_second: f64,
    /// `log.cleaner.dedupe.buffer.size`.
    pub(crate) buffer_bytes: u64,
    /// From which each run's seed is made.
    pub(crate) secret: u128,
    /// Logs that are left alone: until then, or for good.
    pub(crate) set_aside: HashMap<TopicPartitionId, Option<MonoTime>>,
}

/// A log that is worth a run.
struct Due {
    id: TopicPartitionId,
    topic: Arc<str>,
    log: Arc<PartitionLog>,
    config: TopicConfig,
    found: Compactable,
    /// A record has waited for `max.compaction.lag.ms`.
    overdue: bool,
}

impl Compactor {
    pub(crate) fn run(mut self, asks: &Receiver<Ask>) {
        let mut next_look = self.clock.now() + self.backoff.max(MIN_BACKOFF);
        loop {
            let asked = match self.clock.block_for(next_look) {
                None => asks.recv().ok(),
                Some(wait) => match asks.recv_timeout(wait) {
                    Ok(ask) => Some(ask),
                    Err(RecvTimeoutError::Timeout) => Some(Ask::Wake),
                    Err(RecvTimeoutError::Disconnected) => None,
                },
            };
            match asked {
                None | Some(Ask::Stop) => return,
                Some(Ask::Now(done)) => {
                    self.pass(true);
                    let _nobody_waits = done.send(());
                }
                Some(Ask::Wake) => {
                    if self.clock.now() >= next_look {
                        if self.enabled {
                            self.pass(false);
                        }
                        next_look = self.clock.now() + self.backoff.max(MIN_BACKOFF);
                    }
                }
            }
        }
    }

    fn must_stop(&self) -> bool {
        // What is not confirmed is not touched in any case; but nothing new is begun.
        self.stopping.load(Ordering::Relaxed) || self.barrier.has_failed()
    }

    /// Each log that is due has one run, the dirtiest first.
    fn pass(&mut self, everything: bool) {
        let mut done = BTreeSet::new();
        while !self.must_stop() {
            let Some(due) = self.most_due(everything, &done) else {
                return;
            };
            done.insert(due.id);
            self.compact(&due);
        }
    }

    fn most_due(&mut self, everything: bool, done: &BTreeSet<TopicPartitionId>) -> Option<Due> {
        let tick = self.published.tick();
        let metadata = self.catalogue.at(tick);
        let now = self.clock.now();
        self.set_aside
            .retain(|_, until| until.is_none_or(|until| until > now));
        let mut most: Option<Due> = None;
        let (mut waiting, mut max_dirty_ratio) = (0, 0.0_f64);
        for (id, log) in self.catalogue.logs().iter() {
            // Deletions, settings and identities of the cluster are not one record per key.
            if *id == TopicPartitionId::METADATA || self.set_aside.contains_key(id) {
                continue;
            }
            let Some(topic) = metadata.image.topic_by_id(id.topic) else {
                continue;
            };
            let config = topic.resolve(&metadata.defaults);
            if !config.cleanup_policy.compact {
                continue;
            }
            let stable = log.at(tick).last_stable_offset;
            let Some((found, overdue, is_due)) = self.look(*id, log, &config, stable, everything)
            else {
                continue;
            };
            max_dirty_ratio = max_dirty_ratio.max(found.dirty_ratio());
            if !is_due || done.contains(id) {
                continue;
            }
            waiting += 1;
            let rank = |overdue, found: &Compactable| (overdue, found.dirty_ratio());
            if most
                .as_ref()
                .is_none_or(|most| rank(overdue, &found) > rank(most.overdue, &most.found))
            {
                most = Some(Due {
                    id: *id,
                    topic: topic.name.clone(),
                    log: log.clone(),
                    config,
                    found,
                    overdue,
                });
            }
        }
        let mut stats = self.stats.lock();
        stats.partitions_due = waiting;
        stats.max_dirty_ratio = max_dirty_ratio;
        most
    }

    /// What there is to compact, whether a record is overdue, and whether a run is due.
    fn look(
        &mut self,
        id: TopicPartitionId,
        log: &PartitionLog,
        config: &TopicConfig,
        stable: i64,
        everything: bool,
    ) -> Option<(Compactable, bool, bool)> {
        let wall_ms = self.clock.wall_ms();
        let newest_timestamp = match config.min_compaction_lag_ms {
            0 => i64::MAX,
            lag => wall_ms.saturating_sub(lag),
        };
        let found = log.compactable(stable, newest_timestamp);
        if found.end_offset == 0 {
            return None;
        }
        let horizon_passed = found.next_horizon_ms.is_some_and(|at| at <= wall_ms);
        let oldest_allowed = wall_ms.saturating_sub(config.max_compaction_lag_ms);
        let mut overdue = false;
        if found.dirty_bytes > 0 && config.max_compaction_lag_ms < i64::MAX {
            match log.oldest_dirty_timestamp(found.end_offset) {
                Ok(oldest) => overdue = oldest.is_some_and(|oldest| oldest < oldest_allowed),
                Err(e) => {
                    self.failed(id, &e);
                    return None;
                }
            }
        }
        let dirty_enough = match everything {
            true => found.dirty_bytes > 0,
            false => found.dirty_ratio() > config.min_cleanable_dirty_ratio,
        };
        let is_due = overdue || horizon_passed || dirty_enough;
        Some((found, overdue, is_due))
    }

    fn compact(&mut self, due: &Due) {
        let started = Instant::now();
        let Some(producers) = self.producers(due.id) else {
            return;
        };
        self.secret = self.secret.wrapping_add(1);
        let order = CompactionOrder {
            end_offset: due.found.end_offset,
            now_ms: self.clock.wall_ms(),
            delete_retention_ms: due.config.delete_retention_ms,
            producers,
            max_keys: OffsetMap::keys_in(self.buffer_bytes),
            seed: self.secret,
        };
        let mut pacer = Pacer::new(self.bytes_per_second);
        let mut pace = |bytes| {
            pacer.take(bytes, &self.stopping);
            !self.must_stop()
        };
        match due.log.compact(&order, &self.retired, &mut pace) {
            Ok(report) => self.done(due, &report, started.elapsed()),
            Err(LogError::Closed) => self.stats.lock().runs_given_up += 1,
            Err(e) => self.failed(due.id, &e),
        }
    }

    fn done(&self, due: &Due, report: &CompactionReport, took: Duration) {
        let mut stats = self.stats.lock();
        match report.finished {
            true => stats.runs += 1,
            false => stats.runs_given_up += 1,
        }
        stats.bytes_before += report.bytes_before;
        stats.bytes_after += report.bytes_after;
        stats.bytes_written += report.bytes_written;
        let tally = &report.tally;
        stats.records_removed += tally.records_removed;
        stats.aborted_removed += tally.aborted_removed;
        stats.tombstones_removed += tally.tombstones_removed;
        stats.markers_removed += tally.markers_removed;
        stats.batches_dropped += tally.batches_dropped;
        drop(stats);
        let end = match report.finished {
            true => format!("up to offset {}", report.compacted.to_offset),
            false => "given up, to be begun again".to_owned(),
        };
        info!(
            "compaction of {:?} partition {}, {:.0} % new: {} bytes in {} segments became {} in {} \
             ({} written); of {} batches {} rewritten, {} dropped; {} records removed ({} aborted, {} \
             tombstones, {} without a key) and {} markers; {} keys; {} ms, {end}",
            due.topic,
            due.id.partition,
            due.found.dirty_ratio() * 100.0,
            report.bytes_before,
            report.segments_before,
            report.bytes_after,
            report.segments_after,
            report.bytes_written,
            tally.batches,
            tally.batches_rewritten,
            tally.batches_dropped,
            tally.records_removed,
            tally.aborted_removed,
            tally.tombstones_removed,
            tally.keyless_removed,
            tally.markers_removed,
            report.keys,
            took.as_millis()
        );
    }

    /// What a disk lacks for now is tried again. A damaged log, or one on a disk that fails, is not
    /// compacted any more: that could only spread the damage. Its data is where it was.
    fn failed(&mut self, id: TopicPartitionId, error: &LogError) {
        self.stats.lock().runs_failed += 1;
        let until = if error.is_shortage() {
            warn!("compaction of partition {id}: {error}; tried again in a minute");
            Some(self.clock.now() + AFTER_AN_ERROR)
        } else {
            error!("compaction of partition {id}: {error}; it is not compacted until a restart");
            None
        };
        self.set_aside.insert(id, until);
    }

    /// The partition's active producers, asked for a few thousand at a time. None: the owner is
    /// gone, or the partition.
    fn producers(&self, id: TopicPartitionId) -> Option<BTreeMap<ProducerId, LastAppend>> {
        let mut all = BTreeMap::new();
        let mut after = None;
        loop {
            let (to, some) = crossbeam_channel::bounded(1);
            let message = Message::ActiveProducers {
                partition: id,
                after,
                to,
            };
            self.owner.send(message).ok()?;
            let some = some.recv_timeout(PATIENCE).ok()??;
            let Some((last, _)) = some.last() else {
                return Some(all);
            };
            after = Some(*last);
            all.extend(some);
        }
    }
}

/// Keeps reading and writing below a rate.
struct Pacer {
    bytes_per_second: f64,
    since: Instant,
    bytes: u64,
}

impl Pacer {
    fn new(bytes_per_second: f64) -> Pacer {
        Pacer {
            bytes_per_second: bytes_per_second.max(1.0),
            since: Instant::now(),
            bytes: 0,
        }
    }

    /// Returns when so many bytes more are allowed, or when told to stop.
    fn take(&mut self, bytes: u64, stopping: &AtomicBool) {
        self.bytes += bytes;
        loop {
            let allowed_after = self.bytes as f64 / self.bytes_per_second;
            let elapsed = self.since.elapsed().as_secs_f64();
            let ahead = allowed_after - elapsed;
            if ahead < -1.0 {
                // The disk was slower: that is no credit for later.
                self.since = Instant::now();
                self.bytes = 0;
            }
            // Short waits are gathered into one that a timer can keep.
            if ahead < PACE.as_secs_f64() || stopping.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(PACE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pacer_lets_no_more_through_than_it_may() {
        let stopping = AtomicBool::new(false);
        let mut pacer = Pacer::new(1e6);
        let started = Instant::now();
        for _ in 0..20 {
            pacer.take(20_000, &stopping);
        }
        // 400 kB at 1 MB/s, less what it may be ahead.
        assert!(started.elapsed() >= Duration::from_millis(300));
        // One that is told to stop waits for nothing.
        stopping.store(true, Ordering::Relaxed);
        pacer.take(u64::MAX / 2, &stopping);
    }
}
