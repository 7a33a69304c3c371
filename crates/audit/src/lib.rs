//! The audit log: who did what, from where, and whether it was allowed.
//!
//! Lines of JSON in `audit-00000001.jsonl` and on, chained by hashes ([`verify`] checks them): a line
//! that is changed, taken out or put in breaks the chain at its place. It does not keep the owner of
//! the disk from writing the whole of it anew, or from cutting its end; whoever has noted a hash
//! elsewhere can tell that too.
//!
//! [`Audit`] is the broker's handle. Switched off it is an empty handle, and costs a look at it.
//! Recording an event never waits: a thread of its own writes, behind a bounded queue.

mod chain;
mod event;
mod files;
mod log;
mod repeats;
mod scan;
mod verify;
mod writer;

use std::hash::Hash;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, TrySendError, bounded};
use parking_lot::Mutex;
use tidemark_disk::Disk;
use tidemark_types::MonoTime;

pub use chain::Link;
pub use event::{Event, Kind, Origin, Outcome};
pub use verify::{Anchor, Finding, Verified, VerifyError, newest_lines, verify};

use log::{Log, Place};
use repeats::Repeats;
use writer::{Message, OnFailure, State, Writer};

/// The wall clock (milliseconds since 1970) and the monotonic one.
pub type Times = Arc<dyn Fn() -> (i64, MonoTime) + Send + Sync>;

/// Events that wait for the writer.
const QUEUE: usize = 16_384;

/// What of that which may be left out is told. Refusals, start and stop always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    /// Logins that succeed.
    pub sessions: bool,
    /// Connections that are refused before anybody logs in: TLS, limits, broken frames.
    pub connections: bool,
    /// Transactions that somebody else ended, sessions that were fenced.
    pub transactions: bool,
    /// Changes of topics, settings, groups, ACLs, credentials.
    pub changes: bool,
    /// What requests were allowed to do, once per principal, resource and interval.
    pub access: bool,
}

impl Default for Which {
    fn default() -> Which {
        Which {
            sessions: true,
            connections: true,
            transactions: true,
            changes: true,
            access: true,
        }
    }
}

impl Which {
    fn takes(&self, event: &Event) -> bool {
        let succeeded = matches!(
            event.outcome,
            Some(Outcome::Allowed | Outcome::Succeeded) | None
        );
        match event.kind {
            Kind::Access => self.access || !succeeded,
            Kind::Authentication => self.sessions || !succeeded,
            Kind::TlsRefused | Kind::ConnectionRefused => self.connections,
            Kind::TransactionAborted | Kind::ProducerFenced => self.transactions,
            Kind::Change => self.changes,
            _ => true,
        }
    }
}

/// How the log is kept.
pub struct Options {
    pub disk: Arc<dyn Disk>,
    /// The directory of the files.
    pub dir: PathBuf,
    /// A file that is larger is closed and followed by the next.
    pub max_bytes: u64,
    /// Files that are kept.
    pub files: usize,
    /// In which repeats of a refusal are one line, and an allowed access is told once.
    pub interval: Duration,
    pub which: Which,
    pub times: Times,
}

/// The broker's handle on its audit log. Clones are the same log.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Inner>>);

struct Inner {
    queue: Sender<Message>,
    which: Which,
    repeats: Arc<Repeats>,
    state: Arc<State>,
    times: Times,
    on_failure: Arc<OnceLock<OnFailure>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Numbers about the log, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    pub lines: u64,
    pub lost: u64,
    pub is_failing: bool,
    /// The chain's end: lines since the beginning of the log, and the last one's hash.
    pub seq: u64,
    pub last: Link,
}

impl Audit {
    /// No log.
    pub fn off() -> Audit {
        Audit(None)
    }

    /// Opens the log and starts its thread. Blocks.
    ///
    /// Errors: the directory cannot be used, or another broker uses it.
    pub fn start(options: Options) -> io::Result<Audit> {
        let place = Place {
            disk: options.disk,
            dir: options.dir,
            max_bytes: options.max_bytes,
            files: options.files.max(1),
        };
        let (wall_ms, _) = (options.times)();
        let mut log = Log::open(place.clone(), wall_ms)?;
        log.sync()?;
        let state = Arc::new(State::default());
        *state.end.lock() = (log.seq, log.last);
        let repeats = Arc::new(Repeats::new(options.interval));
        let on_failure = Arc::new(OnceLock::new());
        let (queue, messages) = bounded(QUEUE);
        let writer = Writer {
            place,
            log: Some(log),
            repeats: repeats.clone(),
            state: state.clone(),
            times: options.times.clone(),
            on_failure: on_failure.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&messages))?;
        Ok(Audit(Some(Arc::new(Inner {
            queue,
            which: options.which,
            repeats,
            state,
            times: options.times,
            on_failure,
            thread: Mutex::new(Some(thread)),
        }))))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// `tell` is called when events can no longer be written, with the reason. Once, before the
    /// first event; a second call does nothing.
    pub fn on_failure(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        if let Some(inner) = &self.0 {
            let _it_stays_the_first = inner.on_failure.set(Box::new(tell));
        }
    }

    /// Records an event. Never waits; the event is made only if there is a log.
    pub fn record(&self, event: impl FnOnce() -> Event) {
        let Some(inner) = &self.0 else { return };
        let event = event();
        if !inner.which.takes(&event) {
            return;
        }
        let (wall_ms, now) = (inner.times)();
        let event = match event.may_repeat() {
            true => inner.repeats.first(event, now),
            false => Some(event),
        };
        if let Some(event) = event {
            inner.send(wall_ms, event);
        }
    }

    /// Records that an access was allowed, once per key and interval: cheap enough for every request.
    pub fn record_once(&self, key: impl Hash, event: impl FnOnce() -> Event) {
        let Some(inner) = &self.0 else { return };
        if !inner.which.access {
            return;
        }
        let (wall_ms, now) = (inner.times)();
        if !inner.repeats.is_news(key, now) {
            return;
        }
        // Half of the queue is for what is not allowed, and for changes: names can be made up, and must
        // not be the end of the log, nor of a broker that ends with it. Lost it is all the same.
        match inner.queue.len() < QUEUE / 2 {
            true => inner.send(wall_ms, event()),
            false => inner.state.lose(1),
        }
    }

    /// Waits until all that was recorded is on the disk, counts of repeats included. Blocks.
    pub fn sync(&self) {
        let Some(inner) = &self.0 else { return };
        let (done, told) = bounded(1);
        if inner.queue.send(Message::Sync(done)).is_ok() {
            let _told_or_stopped = told.recv();
        }
    }

    /// Writes what is queued and ends the log. What is recorded later is lost. Blocks.
    pub fn stop(&self) {
        let Some(inner) = &self.0 else { return };
        let thread = inner.thread.lock().take();
        if let Some(thread) = thread {
            let _it_has_ended = inner.queue.send(Message::Stop);
            let _a_panic_was_printed = thread.join();
        }
    }

    /// `None` without a log.
    pub fn stats(&self) -> Option<Stats> {
        let state = &self.0.as_ref()?.state;
        let (seq, last) = *state.end.lock();
        Some(Stats {
            lines: state.lines.load(Ordering::Relaxed),
            lost: state.lost.load(Ordering::Relaxed),
            is_failing: state.is_failing.load(Ordering::Relaxed),
            seq,
            last,
        })
    }
}

impl Inner {
    fn send(&self, wall_ms: i64, event: Event) {
        let event = Box::new(event);
        match self.queue.try_send(Message::Event { wall_ms, event }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.state.lose(1);
                if let Some(tell) = self.on_failure.get() {
                    tell("the audit log cannot be written as fast as it has to be");
                }
            }
            // The log was stopped.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}
