//! The thread that writes the log. Nobody waits for it; where it cannot keep up or its disk fails,
//! events are counted as lost, and the log says so as soon as it can.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use parking_lot::Mutex;
use tracing::{error, info};

use crate::Times;
use crate::chain::Link;
use crate::event::{Event, Kind};
use crate::log::{Log, Place};
use crate::repeats::Repeats;

/// How long a line may wait for its sync, a repeat for its count, a failed disk for the next try.
const BEAT: Duration = Duration::from_secs(1);
/// Events that are written at a time.
const AT_ONCE: usize = 1_024;

pub(crate) enum Message {
    Event {
        wall_ms: i64,
        event: Box<Event>,
    },
    /// Tell all counts, write and sync; then answer.
    Sync(Sender<()>),
    Stop,
}

/// What the log is doing.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) lines: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// Of these the log has not told yet.
    pub(crate) lost_untold: AtomicU64,
    pub(crate) is_failing: AtomicBool,
    /// The chain's end: number of lines and hash.
    pub(crate) end: Mutex<(u64, Link)>,
}

impl State {
    /// So many events will not be in the log; how many it was, will.
    pub(crate) fn lose(&self, events: u64) {
        self.lost.fetch_add(events, Ordering::Relaxed);
        self.lost_untold.fetch_add(events, Ordering::Relaxed);
    }
}

pub(crate) type OnFailure = Box<dyn Fn(&str) + Send + Sync>;

pub(crate) struct Writer {
    pub(crate) place: Place,
    pub(crate) log: Option<Log>,
    pub(crate) repeats: Arc<Repeats>,
    pub(crate) state: Arc<State>,
    pub(crate) times: Times,
    pub(crate) on_failure: Arc<std::sync::OnceLock<OnFailure>>,
}

impl Writer {
    pub(crate) fn run(mut self, queue: &Receiver<Message>) {
        let mut next_beat = Instant::now() + BEAT;
        let mut events = Vec::new();
        loop {
            let mut done = None;
            let mut stops = false;
            let first = match queue.recv_deadline(next_beat) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Message::Stop),
            };
            for message in first.into_iter().chain(queue.try_iter()) {
                match message {
                    Message::Event { wall_ms, event } => events.push((wall_ms, event)),
                    Message::Sync(to) => done = Some(to),
                    Message::Stop => stops = true,
                }
                if events.len() >= AT_ONCE || done.is_some() || stops {
                    break;
                }
            }
            let beats = Instant::now() >= next_beat;
            let settles = done.is_some() || stops;
            if beats || settles {
                next_beat = Instant::now() + BEAT;
                let (wall_ms, now) = (self.times)();
                let due = self.repeats.due(now, settles);
                events.extend(due.into_iter().map(|event| (wall_ms, Box::new(event))));
            }
            self.write(&mut events, beats || settles);
            if let Some(done) = done {
                let _nobody_waits = done.send(());
            }
            if stops {
                if let Some(log) = &self.log {
                    info!("audit log: closed at line {}, hash {}", log.seq, log.last);
                }
                return;
            }
        }
    }

    /// Writes the events, or counts them as lost. The beat is also when a failed log is tried again.
    fn write(&mut self, events: &mut Vec<(i64, Box<Event>)>, sync: bool) {
        if self.log.is_none() && sync {
            match Log::open(self.place.clone(), (self.times)().0) {
                Ok(log) => {
                    self.log = Some(log);
                    self.state.is_failing.store(false, Ordering::Relaxed);
                    info!("the audit log can be written again");
                }
                Err(_) => self.lose(events.drain(..).count()),
            }
        }
        let Some(log) = &mut self.log else {
            self.lose(events.drain(..).count());
            return;
        };
        let lost = self.state.lost_untold.swap(0, Ordering::Relaxed);
        let mut write = || -> io::Result<()> {
            if lost > 0 {
                let mut event = Event::new(Kind::Lost)
                    .reason("the queue was full, or the log could not be written");
                event.count = Some(lost);
                log.add((self.times)().0, &event)?;
            }
            for (wall_ms, event) in events.iter() {
                log.add(*wall_ms, event)?;
            }
            match sync {
                true => log.sync(),
                false => log.flush(),
            }
        };
        match write() {
            Ok(()) => {
                let lines = events.drain(..).count() as u64;
                self.state.lines.fetch_add(lines, Ordering::Relaxed);
                *self.state.end.lock() = (log.seq, log.last);
            }
            Err(e) => {
                let why = format!(
                    "the audit log in {} cannot be written: {e}",
                    self.place.dir.display()
                );
                error!("{why}; events are lost until it can");
                self.log = None;
                self.state.is_failing.store(true, Ordering::Relaxed);
                // How many of them are in the file nobody knows: it may say too many, never too few.
                self.state.lost_untold.fetch_add(lost, Ordering::Relaxed);
                self.lose(events.drain(..).count());
                if let Some(tell) = self.on_failure.get() {
                    tell(&why);
                }
            }
        }
    }

    fn lose(&self, events: usize) {
        self.state.lose(events as u64);
    }
}
