//! Start: checkpoint, then the journal's tail, then serve.
//!
//! Everything is rebuilt by the same apply that made it (P12). Nothing is served before the end of
//! the journal is reached, except ApiVersions, which needs no state.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tidemark_config::{JournalSync, Settings};
use tidemark_disk::{Disk, create_dir_all_durable};
use tidemark_journal::{
    Journal, JournalEvent, JournalOptions, LocalJournal, RESERVED_SLOTS, SyncMode, recover,
};
use tidemark_owner::Record;
use tidemark_partition_log::{LogStore, StoreSettings, read_latest};
use tidemark_types::{JournalIndex, Tick};
use tokio::sync::Semaphore;
use tracing::{error, info, warn};

use crate::admission::{Admission, DiskRoom};
use crate::ballast::Ballast;
use crate::barrier::Barrier;
use crate::clock::{Clock, Entropy};
use crate::compaction::{Ask, Compaction, Compactor};
use crate::error::StartError;
use crate::fetch_sessions::FetchSessions;
use crate::front::Front;
use crate::identity::{Identity, cluster_id_text};
use crate::maintenance::{BesideRequests, KNOWN_BLOCKS, Maintenance, Request};
use crate::memory::AnswerMemory;
use crate::metrics::TxnMetrics;
use crate::owner_thread::{Begin, Message, OwnerThread, TickClock};
use crate::published::Published;
use crate::replay::{Replay, journal_slot_bytes, publish_replayed};
use crate::running::{Replayed, Running};
use crate::shared::Shared;

const LOCK: &str = "lock";
pub(crate) const JOURNAL: &str = "journal";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
const PARTITIONS: &str = "partitions";
/// Fetches that read segments at the same time.
const DISK_READS: usize = 4;
/// A start gives up when checkpoints do not free a slot in this time.
const MAKE_ROOM_PATIENCE: Duration = Duration::from_secs(60);
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_millis(1);
/// What a start writes of its own is much less.
pub(crate) const ROOM_TO_BEGIN: u64 = 64 << 10;

/// Everything from outside that a broker stands on.
#[derive(Clone)]
pub struct Seams {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
}

/// The data directory is this process's own while this lives.
pub(crate) type DataLock = Box<dyn Send + Sync>;

/// Without checkpoint and journal nothing says what the segments hold. A start would begin empty and
/// take them for leftovers.
fn refuse_orphaned_segments(disk: &dyn Disk, data_dir: &Path) -> Result<(), StartError> {
    let entries = |name: &str| {
        let dir = data_dir.join(name);
        match disk.list(&dir) {
            Ok(entries) => Ok(entries),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(StartError::io("list", &dir, e)),
        }
    };
    let partitions = entries(PARTITIONS)?
        .into_iter()
        .filter(|entry| entry.is_dir);
    let partitions = partitions.count();
    if partitions == 0 || !entries(JOURNAL)?.is_empty() {
        return Ok(());
    }
    Err(StartError::Orphaned {
        path: data_dir.to_owned(),
        partitions,
    })
}

/// Makes the data directory and takes its lock, held as long as what this returns. Comes before the
/// ports are bound: a second broker on the same data must not be seen to listen. Blocks.
pub(crate) fn claim(settings: &Settings, seams: &Seams) -> Result<DataLock, StartError> {
    let data_dir = &settings.data_dir;
    let refused = |source| StartError::DataDir {
        path: data_dir.clone(),
        source,
    };
    create_dir_all_durable(&*seams.disk, data_dir).map_err(refused)?;
    let lock = seams.disk.lock(&data_dir.join(LOCK));
    lock.map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => StartError::InUse {
            path: data_dir.clone(),
        },
        // Nothing else was tried in there: it is the directory that cannot be written to.
        _ => refused(e),
    })
}

/// Replays the data directory and starts the threads. Blocks; the front is told when requests may
/// come in.
pub(crate) fn start(
    settings: &Arc<Settings>,
    seams: &Seams,
    lock: DataLock,
    front: &Arc<Front>,
) -> Result<Running, StartError> {
    let data_dir = settings.data_dir.clone();
    let disk = seams.disk.clone();
    let identity = identify(settings, seams, &data_dir)?;
    let store = LogStore::open(
        disk.clone(),
        &data_dir,
        identity.directory_id,
        &StoreSettings::default(),
    )?;

    let options = JournalOptions {
        slot_bytes: journal_slot_bytes(settings),
        budget_bytes: settings.journal_budget_bytes,
        sync: match settings.journal_sync {
            JournalSync::Always => SyncMode::Always,
            JournalSync::Interval { ms } => SyncMode::Interval(Duration::from_millis(ms)),
            JournalSync::Os => SyncMode::Os,
        },
        ..JournalOptions::new(data_dir.join(JOURNAL), identity.directory_id)
    };
    let mut replay = Replay::new(settings, &store);
    let checkpoints = data_dir.join(CHECKPOINTS);
    let checkpoint = read_latest(&*disk, &checkpoints, identity.directory_id, KNOWN_BLOCKS)?;
    if checkpoint.is_none() {
        refuse_orphaned_segments(&*disk, &data_dir)?;
    }
    if let Some(checkpoint) = &checkpoint {
        replay.restore(checkpoint, &disk, &checkpoints, &options)?;
    }
    let from = checkpoint
        .as_ref()
        .map_or(JournalIndex(1), |c| c.header.replay_from);
    let recovery = recover(disk.clone(), options, from, &mut |record| {
        let record = Record::decode(record.index, record.tick, record.wall_ms, &record.payload)
            .map_err(|e| e.to_string())?;
        replay.apply(&record)
    })?;
    let highest_tick = checkpoint
        .as_ref()
        .map_or(Tick::ZERO, |c| c.header.highest_tick)
        .max(recovery.highest_tick);
    replay
        .owner
        .raise_floor(JournalIndex(recovery.next_index.0 - 1), highest_tick);
    if let Some(cut) = &recovery.cut {
        warn!(
            "{}: {} bytes of an interrupted write cut at position {}; nothing acknowledged was in \
             them",
            cut.file.display(),
            cut.bytes,
            cut.position
        );
    }
    if recovery.records > 0 {
        info!(
            "replayed {} records ({} bytes) of the journal",
            recovery.records, recovery.bytes_read
        );
    }
    let replayed = Replayed {
        records: recovery.records,
        bytes: recovery.bytes_read,
    };
    let epoch = i32::try_from(recovery.epoch).unwrap_or(i32::MAX);
    let may_have_lost = recovery.may_have_lost;
    let cut_bytes = recovery.cut.as_ref().map_or(0, |cut| cut.bytes);

    let Replay {
        mut owner,
        catalogue,
        mut write_behind,
        retired,
        ..
    } = replay;
    let published = Published::new();
    published.publish(owner.last_tick());
    publish_replayed(&owner, &catalogue)?;
    let barrier = Arc::new(Barrier::new(owner.last_index(), published.clone()));
    let (requests, request_queue) = crossbeam_channel::bounded::<Request>(64);
    let admission_slot: Arc<std::sync::OnceLock<Arc<Admission>>> = Arc::default();
    let (queue, commands) = crossbeam_channel::unbounded::<Message>();
    let owns = recovery.epoch;
    let journal = Arc::new(recovery.start(Box::new({
        let events = queue.clone();
        let (barrier, requests, front) = (barrier.clone(), requests.clone(), front.clone());
        let admission = admission_slot.clone();
        let guard = WriterGuard {
            front: front.clone(),
            barrier: barrier.clone(),
        };
        move |event| match event {
            // Named here, so that the closure holds the guard.
            JournalEvent::Failed { message } if guard.has_failed() => error!("{message}"),
            JournalEvent::Written { index, tick } => barrier.written(index, tick),
            JournalEvent::Confirmed { index, tick } => {
                barrier.confirm(index, tick);
                // What became durable can be moved out of the tail.
                if admission.get().is_some_and(|a| a.wants_relief()) {
                    let _a_full_queue_has_been_asked_already = requests.try_send(Request::MakeRoom);
                }
            }
            JournalEvent::Failed { message } => {
                error!("{message}");
                barrier.fail();
                front.set_failed(&message);
                if let Some(admission) = admission.get() {
                    admission.set_disk_room(DiskRoom::Gone);
                }
            }
            JournalEvent::NeedCheckpoint => {
                let _a_full_queue_has_been_asked_already = requests.try_send(Request::Checkpoint);
            }
            JournalEvent::NoSpace { message } => {
                warn!("{message}");
                if let Some(admission) = admission.get() {
                    // Whoever waits for room hears at once that there will be none soon.
                    if admission.disk_room() == DiskRoom::Plenty {
                        admission.set_disk_room(DiskRoom::Short);
                    }
                }
                let _a_full_queue_has_been_asked_already = requests.try_send(Request::MakeRoom);
            }
            // Nobody else can own the journal: what is published may be shown for ever.
            JournalEvent::Lease { until: _ } => {}
            event @ (JournalEvent::Lost { .. }
            | JournalEvent::Owner { .. }
            | JournalEvent::Follower { .. }
            | JournalEvent::Record { .. }
            | JournalEvent::Replaced { .. }) => {
                let _owner_is_gone = events.send(Message::Journal(event));
            }
            JournalEvent::SpaceFreed => {
                if let Some(admission) = admission.get() {
                    admission.room_made();
                }
            }
        }
    })));
    let admission = Arc::new(Admission::new(
        store.tail_bytes_counter(),
        settings.tail_bytes,
        journal.clone(),
        Box::new({
            let requests = requests.clone();
            move || {
                let _a_full_queue_has_been_asked_already = requests.try_send(Request::MakeRoom);
            }
        }),
    ));
    drop(admission_slot.set(admission.clone()));

    owner.set_max_record_bytes(max_record_bytes(&*journal));
    let ticks = TickClock::new(&*seams.clock);
    let metrics = TxnMetrics::default();
    let appended = owner.last_tick();
    let thread = OwnerThread {
        owner,
        journal: journal.clone(),
        barrier: barrier.clone(),
        published: published.clone(),
        catalogue: catalogue.clone(),
        store: store.clone(),
        clock: seams.clock.clone(),
        entropy: seams.entropy.clone(),
        metrics: metrics.clone(),
        audit: front.audit.clone(),
        limits: front.limits.clone(),
        ticks,
        epoch: Some(owns),
        appended,
        waiting: HashMap::new(),
        next_token: 0,
        unsettled: false,
    };
    let owner = spawn("owner", front, move || thread.run(&commands))?;
    // The journal's events keep its queue open.
    let stop_if_given_up = StopOwner(Some(queue.clone()));
    seams.clock.on_advance({
        let queue = queue.clone();
        Arc::new(move || drop(queue.send(Message::Wake)))
    });
    let (compaction, compactor) = start_compaction(
        seams,
        Compactor {
            catalogue: catalogue.clone(),
            published: published.clone(),
            barrier: barrier.clone(),
            retired: retired.clone(),
            clock: seams.clock.clone(),
            owner: queue.clone(),
            stopping: Arc::default(),
            stats: Arc::default(),
            enabled: settings.log_cleaner_enable,
            backoff: Duration::from_millis(settings.log_cleaner_backoff_ms),
            bytes_per_second: settings.log_cleaner_io_max_bytes_per_second,
            buffer_bytes: settings.log_cleaner_dedupe_buffer_size,
            secret: u128::from_be_bytes(seams.entropy.uuid()),
            set_aside: HashMap::new(),
        },
        front,
    )?;
    let previous = checkpoint.as_ref().and_then(|c| c.previous);
    write_behind.set_beside(Box::new(BesideRequests {
        admission: admission.clone(),
        journal: journal.clone(),
    }));
    let maintenance = Maintenance {
        // The slot that the journal's writer may need beyond its budget, and some for a checkpoint.
        ballast: Ballast::new(
            disk.clone(),
            &data_dir,
            journal_slot_bytes(settings) / 4 * 5,
        )
        .map_err(|e| StartError::io("look into", &data_dir, e))?,
        short: None,
        checkpoint_is_short: false,
        given_up: false,
        has_removed: false,
        disk,
        checkpoint_dir: checkpoints,
        directory_id: identity.directory_id,
        store: store.clone(),
        write_behind,
        retired,
        catalogue: catalogue.clone(),
        published: published.clone(),
        barrier: barrier.clone(),
        admission: admission.clone(),
        journal: journal.clone(),
        owner: queue.clone(),
        clock: seams.clock.clone(),
        front: front.clone(),
        tail_budget_bytes: settings.tail_bytes,
        checkpoint_interval: Duration::from_millis(settings.checkpoint_interval_ms),
        retention_interval: Duration::from_millis(settings.log_retention_check_interval_ms),
        metadata_snapshot_bytes: settings.metadata_log_max_record_bytes_between_snapshots,
        next_retention: seams.clock.now()
            + Duration::from_millis(settings.log_initial_task_delay_ms),
        last_checkpoint: std::time::Instant::now(),
        next_generation: checkpoint.as_ref().map_or(1, |c| c.next_generation),
        newest: checkpoint.as_ref().map(|c| c.header),
        previous,
    };
    let maintenance = spawn("maintenance", front, move || {
        maintenance.run(&request_queue);
    })?;

    if let (Some(newest), Some(previous)) = (checkpoint.as_ref().map(|c| c.header), previous) {
        journal.release_below(newest.replay_from.min(previous.replay_from));
    }
    make_room_to_begin(&journal, &barrier, &requests)?;
    let cluster_id = identity.cluster_id.clone();
    let (to, begun) = crossbeam_channel::bounded(1);
    let begin = Begin {
        identity,
        epoch,
        cut_bytes,
        may_have_lost,
    };
    let first_served = queue
        .send(Message::Begin { begin, to })
        .ok()
        .and_then(|()| begun.recv().ok())
        .ok_or_else(|| StartError::Stopped("the owner thread ended".to_owned()))?;

    let shared = Arc::new(Shared {
        settings: settings.clone(),
        disk: seams.disk.clone(),
        clock: seams.clock.clone(),
        metrics,
        audit: front.audit.clone(),
        limits: front.limits.clone(),
        compaction: compaction.stats.clone(),
        ticks,
        catalogue,
        published,
        barrier: barrier.clone(),
        admission,
        max_record_bytes: max_record_bytes(&*journal),
        queue: queue.clone(),
        places: Arc::new(Semaphore::new(settings.queued_max_requests)),
        next_waiter: AtomicU64::new(1),
        answers: AnswerMemory::new(settings.fetch_memory_bytes),
        disk_reads: Semaphore::new(DISK_READS),
        fetch_sessions: FetchSessions::new(
            settings.max_incremental_fetch_session_cache_slots,
            seams.entropy.clone(),
        ),
    });
    stop_if_given_up.keep();
    Ok(Running {
        shared,
        journal,
        queue,
        requests,
        owner: Some(owner),
        maintenance: Some(maintenance),
        compaction,
        compactor: Some(compactor),
        first_served,
        cluster_id,
        replayed,
        _lock: lock,
    })
}

fn start_compaction(
    seams: &Seams,
    compactor: Compactor,
    front: &Arc<Front>,
) -> Result<(Compaction, std::thread::JoinHandle<()>), StartError> {
    let (asks, asked) = crossbeam_channel::unbounded();
    let compaction = Compaction {
        asks: asks.clone(),
        stopping: compactor.stopping.clone(),
        stats: compactor.stats.clone(),
    };
    seams
        .clock
        .on_advance(Arc::new(move || drop(asks.send(Ask::Wake))));
    let thread = spawn("compaction", front, move || compactor.run(&asked))?;
    Ok((compaction, thread))
}

/// Ends the owner's thread when the start is given up after it began.
struct StopOwner(Option<crossbeam_channel::Sender<Message>>);

impl StopOwner {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for StopOwner {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            let _owner_has_ended = queue.send(Message::Stop);
        }
    }
}

/// Held by the journal's event handler, which lives and dies with its writer threads: if one
/// panics, nothing will be confirmed any more, and clients must not be left to wait.
struct WriterGuard {
    front: Arc<Front>,
    barrier: Arc<Barrier>,
}

impl WriterGuard {
    fn has_failed(&self) -> bool {
        self.barrier.has_failed()
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.barrier.fail();
            self.front.set_failed(
                "the journal's writer panicked (see above); what was acknowledged is on disk, a \
                 restart replays it",
            );
        }
    }
}

/// A thread without which the broker cannot go on: if it panics, the broker stops serving and says
/// so, instead of leaving clients to wait.
fn spawn(
    name: &'static str,
    front: &Arc<Front>,
    run: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, StartError> {
    struct Guard(&'static str, Arc<Front>);
    impl Drop for Guard {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.1.set_failed(&format!(
                    "the {} thread panicked (see above); what was acknowledged is on disk, a \
                     restart replays it",
                    self.0
                ));
            }
        }
    }
    let guard = Guard(name, front.clone());
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _guard = guard;
            run();
        })
        .map_err(|e| StartError::Stopped(format!("no thread for the {name}: {e}")))
}

fn max_record_bytes(journal: &dyn Journal) -> usize {
    usize::try_from(journal.max_record_bytes()).unwrap_or(usize::MAX)
}

fn ask(
    barrier: &Barrier,
    requests: &crossbeam_channel::Sender<Request>,
    request: impl FnOnce(crossbeam_channel::Sender<()>) -> Request,
) -> Result<(), StartError> {
    let (done, answered) = crossbeam_channel::bounded(1);
    let asked = requests.send(request(done)).is_ok();
    let is_done = asked && answered.recv_timeout(MAKE_ROOM_PATIENCE).is_ok();
    // A journal that has stopped is told of where its first record is waited for.
    if !is_done && !barrier.has_failed() {
        let why = "the maintenance thread ended".to_owned();
        return Err(StartError::Stopped(why));
    }
    Ok(())
}

/// A start after a crash goes on in a fresh slot. Several crashes in a row may have used up the
/// journal's slots, nearly empty as they are: then checkpoints of what was just replayed free them
/// before anything is written. Nothing is in flight yet, so they do not depend on a free slot. The
/// same on a full disk, where no slot can be made: a record that waits for one would be waited for
/// by the very checkpoint that could free one.
fn make_room_to_begin(
    journal: &LocalJournal,
    barrier: &Barrier,
    requests: &crossbeam_channel::Sender<Request>,
) -> Result<(), StartError> {
    let until = std::time::Instant::now() + MAKE_ROOM_PATIENCE;
    // Before anybody is served: where the reserve was given up the disk is as full now.
    ask(barrier, requests, Request::SettleNow)?;
    loop {
        let usage = journal.usage();
        let in_budget = usage.slots_in_use + RESERVED_SLOTS <= usage.max_slots;
        if barrier.has_failed() || (in_budget && usage.room_bytes >= ROOM_TO_BEGIN) {
            return Ok(());
        }
        if std::time::Instant::now() > until {
            return Err(StartError::Stopped(match usage.no_space {
                true => {
                    "the disk is full, and nothing can be written before a slot of the journal \
                         (journal.slot.bytes) has space: free as much on the disk of the data \
                         directory, then start again"
                        .to_owned()
                }
                false => {
                    "the journal has no free slot and no checkpoint could free one; the log says \
                          why"
                    .to_owned()
                }
            }));
        }
        if in_budget && !usage.no_space {
            // A slot is being prepared, or it turns out that there is no space for one.
            std::thread::sleep(LOOK_FOR_ROOM_EVERY);
            continue;
        }
        ask(barrier, requests, Request::CheckpointNow)?;
        if usage.no_space {
            std::thread::sleep(LOOK_FOR_ROOM_EVERY * 10);
        }
    }
}

fn identify(settings: &Settings, seams: &Seams, data_dir: &Path) -> Result<Identity, StartError> {
    let wanted = settings.cluster_id.as_deref();
    if let Some(identity) = Identity::read(&*seams.disk, data_dir)? {
        identity.check(data_dir, settings.node_id, wanted)?;
        return Ok(identity);
    }
    for holds in [JOURNAL, CHECKPOINTS] {
        let path = data_dir.join(holds);
        let there = seams.disk.exists(&path);
        if there.map_err(|e| StartError::io("look at", &path, e))? {
            return Err(StartError::Identity {
                path: data_dir.join("identity"),
                what: format!("it is missing, and {} is there", path.display()),
                mend: "restore it from a copy of the data directory, or choose an empty directory \
                       with --data-dir"
                    .to_owned(),
            });
        }
    }
    let random = seams.entropy.uuid();
    let identity = Identity {
        cluster_id: wanted.map_or_else(|| cluster_id_text(seams.entropy.uuid()), str::to_owned),
        node_id: settings.node_id,
        directory_id: seams.entropy.uuid(),
        incarnation: u64::from_be_bytes(random[..8].try_into().expect("eight bytes")),
    };
    identity.write(&*seams.disk, data_dir)?;
    Ok(identity)
}
