//! The maintenance thread: write-behind, checkpoints, deleted partitions.
//!
//! It makes room: batches move from the tail to segments, and once a checkpoint says so the journal
//! may reuse its slots. Requests never wait for it unless the tail or the journal is full.
//!
//! A full disk is waited out, see [`crate::ballast`]: what cannot be written stays in the journal. Any
//! other error of the disk ends the broker: a second try could succeed without having written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tidemark_disk::Disk;
use tidemark_journal::{LocalJournal, RESERVED_SLOTS};
use tidemark_partition_log::{
    Beside, Block, BlockKind, CheckpointHeader, CheckpointWriter, FlushPolicy, LogError, LogStore,
    PartitionLog, Retired, SegmentManifest, WriteBehind,
};
use tidemark_types::{JournalIndex, MonoTime, Tick, TopicPartitionId};
use tracing::{debug, error, info, warn};

use tidemark_journal::Journal;

use crate::admission::{Admission, DiskRoom};
use crate::ballast::Ballast;
use crate::barrier::Barrier;
use crate::catalogue::Catalogue;
use crate::clock::Clock;
use crate::front::Front;
use crate::owner_thread::{Capture, Captured, CapturedSlice, Message};
use crate::published::Published;
use crate::start::ROOM_TO_BEGIN;

/// A partition's state as the owner encodes it, in a checkpoint.
pub const OWNER_BLOCK: BlockKind = BlockKind(2);
/// Version of [`OWNER_BLOCK`]'s payload, as the file says it; the payload has its own as well.
pub const OWNER_BLOCK_FORMAT: u16 = 1;

/// What a checkpoint of this version may hold.
pub const KNOWN_BLOCKS: &[(BlockKind, u16)] = &[
    (BlockKind::SEGMENTS, SegmentManifest::FORMAT_VERSION),
    (OWNER_BLOCK, OWNER_BLOCK_FORMAT),
];

/// Batches older than this are written to their segment, however few they are.
const MAX_TAIL_AGE: Duration = Duration::from_secs(5);
/// How often the thread looks when nobody asks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Partitions whose state the owner copies in one step.
const CAPTURE_SLICE: usize = 64;
/// A checkpoint that waits this long for the owner or the journal is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// While the journal is waited for: does its writer need the ballast's space?
const LOOK_FOR_SPACE_EVERY: Duration = Duration::from_millis(20);

/// A checkpoint is due when this many slots are in use, whatever the budget.
const EAGER_SLOTS: usize = 4;

/// What the thread is asked for.
#[derive(Clone, Debug)]
pub enum Request {
    /// The tail or the journal is filling up.
    MakeRoom,
    /// More than half of the journal is in use.
    Checkpoint,
    /// A checkpoint, whether or not there is news; it is told when that is done or has failed.
    CheckpointNow(Sender<()>),
    /// A look for expired records, whether or not it is time; it is told when the log starts have
    /// moved.
    RetainNow(Sender<()>),
    /// How full is the disk? It is told when admission knows.
    SettleNow(Sender<()>),
    /// Write everything, checkpoint, end.
    Stop,
}

pub struct Maintenance {
    pub disk: Arc<dyn Disk>,
    pub checkpoint_dir: PathBuf,
    pub directory_id: [u8; 16],
    pub store: Arc<LogStore>,
    pub write_behind: WriteBehind,
    pub retired: Arc<Retired>,
    pub catalogue: Arc<Catalogue>,
    pub published: Arc<Published>,
    pub barrier: Arc<Barrier>,
    pub admission: Arc<Admission>,
    pub journal: Arc<LocalJournal>,
    pub owner: Sender<Message>,
    pub clock: Arc<dyn Clock>,
    pub front: Arc<Front>,
    pub tail_budget_bytes: u64,
    pub checkpoint_interval: Duration,
    pub retention_interval: Duration,
    pub metadata_snapshot_bytes: u64,
    /// When expired records are looked for next.
    pub next_retention: MonoTime,
    pub ballast: Ballast,
    /// What this round met of a full disk.
    pub short: Option<String>,
    /// A checkpoint was not written in this round for lack of space.
    pub checkpoint_is_short: bool,
    /// A checkpoint was not written in this round for another reason.
    pub given_up: bool,
    /// A checkpoint of this round has removed deleted files.
    pub has_removed: bool,
    /// When one was last begun, or this.
    pub last_checkpoint: Instant,
    /// Generation of the next checkpoint.
    pub next_generation: u64,
    /// The newest checkpoint, and the one before it.
    pub newest: Option<CheckpointHeader>,
    pub previous: Option<CheckpointHeader>,
}

/// How fast segments go to the disk while nobody is in a hurry: as much as is written to a journal on
/// a good disk, in pieces that a sync in between can bear.
const WRITE_BACK_BYTES_PER_S: f64 = 256e6;

/// Write-behind's pace beside requests.
pub struct BesideRequests {
    pub admission: Arc<Admission>,
    pub journal: Arc<LocalJournal>,
}

impl Beside for BesideRequests {
    fn wait_for_turn(&self, bytes: u64) -> bool {
        let usage = self.journal.usage();
        let pressed = self.admission.tail_is_pressed()
            || usage.no_space
            || usage.slots_in_use * 4 >= usage.max_slots * 3;
        if !pressed {
            let turn = Duration::from_secs_f64(bytes as f64 / WRITE_BACK_BYTES_PER_S);
            std::thread::sleep(turn);
        }
        !pressed
    }

    fn room_made(&self) {
        // Notifying nobody costs little, but the lock for it is everybody's.
        if self.admission.is_waited_for() {
            self.admission.room_made();
        }
    }
}

impl Maintenance {
    pub fn run(mut self, requests: &Receiver<Request>) {
        let mut last_error = None;
        let mut last_look = Instant::now();
        loop {
            let request = match requests.recv_timeout(LOOK_EVERY) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let stop = matches!(request, Some(Request::Stop));
            let now = matches!(request, Some(Request::CheckpointNow(_)));
            if self.barrier.has_failed() {
                // What is not confirmed must not be written, and nothing new is.
                self.admission.set_disk_room(DiskRoom::Gone);
                if stop {
                    return;
                }
                continue;
            }
            // Also when somebody asks for room all the time.
            let looks = request.is_none() || last_look.elapsed() >= LOOK_EVERY;
            if looks {
                last_look = Instant::now();
                self.drop_deleted();
            }
            self.retain_if_due(&request, looks);
            self.trim();
            let due = self.journal_is_filling()
                || stop
                || matches!(request, Some(Request::Checkpoint))
                || self.last_checkpoint.elapsed() >= self.checkpoint_interval;
            self.short = None;
            self.checkpoint_is_short = false;
            self.given_up = false;
            // A start is being waited for. While the reserve is there data may be taken; what there is to
            // write is written beside the first requests, and may find then that there is no space.
            let settles = matches!(request, Some(Request::SettleNow(_)));
            let only_looks = settles && self.ballast.is_held() && !self.journal.usage().no_space;
            let done = match only_looks {
                true => Ok(()),
                false => self.work(&request, due),
            };
            let done = done.and_then(|()| self.settle_room(stop, now));
            match done {
                Ok(()) => last_error = None,
                Err(e) if e.is_disk_failure() => {
                    let message = format!(
                        "{e}. The broker stops: what was acknowledged is in the journal. Check the \
                         disk (the kernel log says more), then start again"
                    );
                    error!("{message}");
                    self.barrier.fail();
                    self.front.set_failed(&message);
                    self.admission.set_disk_room(DiskRoom::Gone);
                }
                Err(e) if stop => {
                    let message = format!(
                        "the last checkpoint was not written: {e}. What was acknowledged is in the \
                         journal, and the next start takes it from there"
                    );
                    error!("{message}");
                    self.front.set_failed(&message);
                }
                Err(e) => {
                    let text = e.to_string();
                    if last_error.as_ref() != Some(&text) {
                        error!("{text}; data stays in the journal, this is tried again");
                    }
                    last_error = Some(text);
                }
            }
            let is_full = self.checkpoint_is_short || self.journal.usage().is_stuck();
            if stop && self.given_up && !is_full {
                self.front.set_failed(
                    "the last checkpoint was given up, the log says why. What was acknowledged is in \
                     the journal, and the next start takes it from there",
                );
            }
            if stop && is_full {
                warn!(
                    "the last checkpoint was not written: the disk is full. What was acknowledged is \
                     in the journal, and the next start takes it from there"
                );
            }
            if looks {
                self.admission.room_made();
            }
            if let Some(Request::CheckpointNow(done) | Request::SettleNow(done)) = request {
                let _the_start_was_given_up = done.send(());
            }
            if stop {
                return;
            }
        }
    }

    /// A round of write-behind, and a checkpoint if there is news when one is `due`.
    fn work(&mut self, request: &Option<Request>, due: bool) -> Result<(), LogError> {
        let stop = matches!(request, Some(Request::Stop));
        let now = matches!(request, Some(Request::CheckpointNow(_)));
        self.write_behind(stop).or_else(|e| self.if_short(e))?;
        // What was deleted goes with the second checkpoint after it; on a full disk that is what
        // everybody waits for.
        let frees = self.admission.disk_room() != DiskRoom::Plenty
            || !self.ballast.is_held()
            || self.disk_is_short();
        let waits = frees && !self.retired.is_empty();
        if now || waits || (due && self.has_news()) {
            self.last_checkpoint = Instant::now();
            self.checkpoint_until_released(stop)?;
        }
        // Before data is taken again: the next slot may need just that space.
        if frees && !stop && !self.checkpoint_is_short && !self.retired.is_empty() {
            self.checkpoint()?;
        }
        // What was in the way at the beginning of the round may have gone with it.
        if std::mem::take(&mut self.has_removed) && self.short.take().is_some() {
            self.write_behind(false).or_else(|e| self.if_short(e))?;
        }
        Ok(())
    }

    /// Half of the slots are in use, or none is left but the reserve. With many slots it need not
    /// come to half: a slot that is recycled early need not be made anew, and a start has less to
    /// replay.
    fn journal_is_filling(&self) -> bool {
        let usage = self.journal.usage();
        // On a full disk there are only the slots there are.
        (usage.no_space && usage.slots_in_use > 1)
            || usage.slots_in_use >= EAGER_SLOTS.min(usage.max_slots / 2)
            || usage.slots_in_use + RESERVED_SLOTS >= usage.max_slots
    }

    /// Lets pass what comes of a full disk, and notes it.
    fn if_short(&mut self, e: LogError) -> Result<(), LogError> {
        if !e.is_shortage() {
            return Err(e);
        }
        self.short.get_or_insert(e.to_string());
        Ok(())
    }

    fn disk_is_short(&self) -> bool {
        self.short.is_some() || self.journal.usage().no_space
    }

    /// Tells admission how full the disk is. Gives the ballast up when a checkpoint, or the journal's
    /// writer, cannot go on without, and takes it again when there is space.
    fn settle_room(&mut self, stop: bool, begins: bool) -> Result<(), LogError> {
        let usage = self.journal.usage();
        // A start writes nothing before it has room, so that its journal does not starve.
        let cannot_begin = begins && usage.no_space && usage.room_bytes < ROOM_TO_BEGIN;
        if self.checkpoint_is_short || usage.is_stuck() || cannot_begin {
            if self.give_up_ballast()? {
                if self.checkpoint_is_short {
                    self.checkpoint_is_short = false;
                    self.checkpoint_until_released(stop)?;
                }
                // Not before the checkpoint has what it needs: the journal tries for a slot at once.
                self.journal.release_below(JournalIndex(0));
            }
        } else if !self.disk_is_short() && !stop {
            let taken = self.ballast.take();
            taken.map_err(|e| LogError::io(self.ballast.path(), e))?;
        }
        let room = match (self.ballast.is_of_use(), self.disk_is_short()) {
            (false, _) => DiskRoom::Full,
            (true, true) => DiskRoom::Short,
            (true, false) => DiskRoom::Plenty,
        };
        let before = self.admission.set_disk_room(room);
        let what = self
            .short
            .as_deref()
            .unwrap_or("no file can be made or grow");
        match room {
            _ if room == before => {}
            DiskRoom::Gone => {}
            DiskRoom::Plenty => info!("there is space on the disk again"),
            DiskRoom::Short => warn!(
                "the disk is full ({what}): data is taken while there is room in the journal; free \
                 some space, or delete topics or records"
            ),
            DiskRoom::Full => warn!(
                "the disk is full ({what}): no data is taken; free some space, or delete topics or \
                 records"
            ),
        }
        Ok(())
    }

    /// False when it is gone already.
    fn give_up_ballast(&mut self) -> Result<bool, LogError> {
        if !self.ballast.is_held() {
            return Ok(false);
        }
        warn!(
            "the disk is full and the last reserve, {}, is given up: no data is taken until there is \
             space; transactions end, offsets and deletions are taken",
            self.ballast.path().display()
        );
        let given_up = self.ballast.give_up();
        given_up.map_err(|e| LogError::io(self.ballast.path(), e))?;
        self.admission.set_disk_room(DiskRoom::Full);
        Ok(true)
    }

    /// Waits until a record is durable; false when that will not be soon. A journal whose writer has
    /// no slot left gets the ballast's space: nobody else gives it up while this waits.
    fn wait_confirmed(&mut self, index: JournalIndex, era: u64) -> Result<bool, LogError> {
        let deadline = Instant::now() + PATIENCE;
        while !self
            .barrier
            .wait_confirmed(index, era, LOOK_FOR_SPACE_EVERY)
        {
            let starves = self.journal.usage().is_stuck();
            if self.barrier.has_failed()
                || self.barrier.era() != era
                || (starves && !self.give_up_ballast()?)
                || Instant::now() >= deadline
            {
                return Ok(false);
            }
            if starves {
                self.journal.release_below(JournalIndex(0));
            }
        }
        Ok(true)
    }

    /// Something was written since the newest checkpoint, or files wait until it is the older one.
    fn has_news(&self) -> bool {
        let confirmed = self.barrier.confirmed();
        let waits = !self.retired.is_empty();
        self.newest.is_none_or(|newest| {
            waits || newest.highest_tick < self.published.tick() || newest.replay_from <= confirmed
        })
    }

    /// Moves what is worth it from the tail to segments: everything when told to, the large and the
    /// old otherwise, and whatever it takes when the tail is half full.
    fn write_behind(&mut self, all: bool) -> Result<(), LogError> {
        self.admission.relief_begins();
        if self.store.tail_bytes() == 0 {
            return Ok(());
        }
        let force = all || self.store.tail_bytes() * 2 >= self.tail_budget_bytes;
        if force {
            self.sync_journal()?;
        }
        let confirmed = self.barrier.confirmed_tick();
        let age_ms = i64::try_from(MAX_TAIL_AGE.as_millis()).expect("seconds");
        let policy = FlushPolicy {
            older_than: Some(Tick::from_wall_ms(confirmed.alignment_ms() - age_ms)),
            force,
            ..FlushPolicy::default()
        };
        self.flush_all(confirmed, &policy)
    }

    /// With a weak `journal.sync`: what clients were told of is synced now, as only that may be
    /// written behind.
    fn sync_journal(&mut self) -> Result<(), LogError> {
        let era = self.barrier.era();
        let released = self.barrier.released();
        if released > self.barrier.confirmed() {
            self.journal.request_sync(released);
            // If that fails the journal has stopped, and the barrier says so to everybody.
            self.wait_confirmed(released, era)?;
        }
        Ok(())
    }

    /// Flushes every log that has something; an error of one does not keep the others waiting.
    fn flush_all(&self, confirmed: Tick, policy: &FlushPolicy) -> Result<(), LogError> {
        let mut first_error = Ok(());
        for (_, log) in self.catalogue.logs().iter() {
            if log.tail_bytes() > 0 || (policy.force && log.has_longer_segment()) {
                match self.write_behind.flush(log, confirmed, policy) {
                    // Who waits looks again only when there is something to find: the tail may be
                    // full of what is not durable yet.
                    Ok(report) if report.bytes > 0 => self.admission.room_made(),
                    Ok(_) => {}
                    Err(e) if first_error.is_ok() => first_error = Err(e),
                    Err(_) => {}
                }
            }
        }
        first_error
    }

    fn retain_if_due(&mut self, request: &Option<Request>, looks: bool) {
        let now = self.clock.now();
        let wanted = match request {
            Some(Request::RetainNow(done)) => Some(done),
            _ if looks && now >= self.next_retention => None,
            _ => return,
        };
        self.next_retention = now + self.retention_interval;
        let era = self.barrier.era();
        let moved = self.retain();
        if let Some(done) = wanted {
            for record in moved
                .into_iter()
                .filter_map(|moved| moved.recv_timeout(PATIENCE).ok())
            {
                if let Err(e) = self.wait_confirmed(record, era) {
                    warn!("the reserve for a full disk cannot be given up: {e}");
                }
            }
            let _nobody_waits_any_more = done.send(());
        }
    }

    /// Gives up what lies below log starts that every reader knows of.
    fn trim(&self) {
        let oldest_needed = self.published.oldest_needed();
        for (id, log) in self.catalogue.logs().iter() {
            if log.may_be_trimmed() {
                let segments = log.trim(oldest_needed, &self.retired);
                if segments > 0 {
                    debug!("{id}: {segments} segments below the log start given up");
                }
            }
        }
    }

    /// Takes the logs of deleted topics away, once their deletion is published. The logs are listed
    /// before the images are read: a log that is being made is in the newest image by then.
    fn drop_deleted(&self) {
        let logs = self.catalogue.logs();
        let published = self.catalogue.image_at(self.published.tick());
        let newest = self.catalogue.newest_image();
        for (id, log) in logs.iter() {
            let exists = published.contains(*id) || newest.contains(*id);
            if !exists && *id != TopicPartitionId::METADATA {
                self.catalogue.remove_log(*id);
                log.close();
                self.write_behind.forget(log);
                self.retired.retire(*id);
            }
        }
    }

    /// A slot is reused only when the PREVIOUS checkpoint does not need it either, so it takes two
    /// of them to release what the first one covers.
    fn checkpoint_until_released(&mut self, stop: bool) -> Result<(), LogError> {
        self.checkpoint()?;
        let releases_more = match (&self.previous, &self.newest) {
            (Some(previous), Some(newest)) => previous.replay_from < newest.replay_from,
            (None, Some(_)) => true,
            _ => false,
        };
        if !stop && releases_more && self.journal_is_filling() {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), LogError> {
        let started = Instant::now();
        self.sync_journal()?;
        let confirmed = self.barrier.confirmed_tick();
        let force = FlushPolicy {
            force: true,
            ..FlushPolicy::default()
        };
        // What cannot be written for lack of space the journal keeps, and the checkpoint says so.
        if let Err(e) = self.flush_all(confirmed, &force) {
            self.if_short(e)?;
        }
        self.write_behind.sync_dirty()?;

        let generation = self.next_generation;
        self.retired.checkpoint_begun(generation);
        let Some((captured, last_index, era)) = self.capture() else {
            warn!("checkpoint {generation} given up: the owner did not answer in time");
            self.given_up = true;
            return Ok(());
        };
        self.journal.request_sync(last_index);
        if !self.wait_confirmed(last_index, era)? {
            warn!("checkpoint {generation} given up: the journal did not confirm in time");
            self.given_up = true;
            return Ok(());
        }
        let replay_from = captured
            .iter()
            .map(|c| {
                let needed = c.manifest.first_needed_index;
                needed.map_or(c.stamp.next(), |needed| needed.min(c.stamp.next()))
            })
            .min()
            .unwrap_or(JournalIndex(1));
        let header = CheckpointHeader {
            generation,
            replay_from,
            highest_tick: captured.iter().map(|c| c.tick).max().unwrap_or(Tick::ZERO),
            cluster_id: self.directory_id,
        };
        let bytes = match self.write(header, &captured) {
            Ok(bytes) => bytes,
            Err(e) => {
                self.checkpoint_is_short = e.is_shortage();
                return self.if_short(e.into());
            }
        };
        debug!(
            "checkpoint {generation}: {bytes} bytes, {} partitions up to record {last_index}, replay \
             from record {replay_from}, in {} ms",
            captured.len(),
            started.elapsed().as_millis()
        );
        self.previous = self.newest.replace(header);
        self.next_generation = generation + 1;
        if let Some(previous) = self.previous {
            self.journal
                .release_below(previous.replay_from.min(header.replay_from));
            self.admission.room_made();
            let removed =
                (self.retired).checkpoint_completed(&self.store, generation, previous.generation);
            match removed {
                Ok(removed) => self.has_removed |= removed > 0,
                Err(e) => self.if_short(e)?,
            }
            if self.journal.usage().no_space {
                // Deleted files have gone: the journal tries for a slot at once.
                self.journal.release_below(JournalIndex(0));
            }
        }
        Ok(())
    }

    /// Asks the owner for every partition's state, in slices, so that requests go on in between.
    /// With it the owner's last position: all of it must be durable before the checkpoint counts.
    /// The blocks, the last position of any, and of which era it is.
    fn capture(&self) -> Option<(Vec<Captured>, JournalIndex, u64)> {
        let era = self.barrier.era();
        let first = self.capture_slice(Capture::Metadata)?;
        let (mut captured, mut last_index) = (first.blocks, first.last_index);
        for ids in first.others.chunks(CAPTURE_SLICE) {
            let slice = self.capture_slice(Capture::Partitions(ids.to_vec()))?;
            captured.extend(slice.blocks);
            last_index = last_index.max(slice.last_index);
        }
        Some((captured, last_index, era))
    }

    fn capture_slice(&self, what: Capture) -> Option<CapturedSlice> {
        let (to, slice) = crossbeam_channel::bounded(1);
        self.owner.send(Message::Capture { what, to }).ok()?;
        slice.recv_timeout(PATIENCE).ok()
    }

    fn write(
        &self,
        header: CheckpointHeader,
        captured: &[Captured],
    ) -> Result<u64, tidemark_partition_log::CheckpointError> {
        let previous = self.newest.map(|newest| newest.generation);
        let mut writer =
            CheckpointWriter::begin(self.disk.clone(), &self.checkpoint_dir, header, previous)?;
        for c in captured {
            writer.block(&Block {
                kind: BlockKind::SEGMENTS,
                format_version: SegmentManifest::FORMAT_VERSION,
                partition: c.id,
                stamp: c.stamp,
                payload: c.manifest.encode().into(),
            })?;
            writer.block(&Block {
                kind: OWNER_BLOCK,
                format_version: OWNER_BLOCK_FORMAT,
                partition: c.id,
                stamp: c.stamp,
                payload: c.block.clone(),
            })?;
        }
        writer.finish()
    }
}

/// The partitions of a checkpoint and the base offsets of the segments it names.
pub fn log_of(blocks: &[Block]) -> impl Iterator<Item = (TopicPartitionId, &Block)> {
    blocks
        .iter()
        .filter(|block| block.kind == BlockKind::SEGMENTS)
        .map(|block| (block.partition, block))
}

/// A log that replay fills, beyond the tail's budget, is written as it goes.
pub fn relieve(
    write_behind: &WriteBehind,
    store: &LogStore,
    log: &Arc<PartitionLog>,
    tail_budget_bytes: u64,
    tick: Tick,
) -> Result<(), LogError> {
    if store.tail_bytes() < tail_budget_bytes {
        return Ok(());
    }
    let force = FlushPolicy {
        force: true,
        ..FlushPolicy::default()
    };
    match write_behind.flush(log, tick, &force) {
        // What there is no space for stays in memory, as it is in the journal.
        Err(e) if e.is_shortage() => Ok(()),
        done => done.map(|_| ()),
    }
}
