//! What is done to the broker and its connections while the clients work.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rdkafka::client::ClientContext;
use rdkafka::message::{DeliveryResult, Message, Timestamp};
use rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};
use rustix::process::{Pid, Signal, kill_process};
use tidemark_examples::broker_process::BrokerProcess;
use tidemark_histcheck::history::Event;

use crate::recorder::now;
use crate::relay::Relay;
use crate::shared::{CLOCK, Shared};

/// The wall clock is never further from the truth than this: timestamps an hour in the future are refused.
const MAX_OFFSET_S: i64 = 40 * 60;
/// A step is not smaller, so that it cannot be taken for the time that passes.
const MIN_STEP_S: i64 = 60;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Fault {
    /// SIGKILL, and a start over the same data
    Kill,
    /// SIGSTOP, and SIGCONT a while later
    Pause,
    /// The broker's wall clock is stepped, forward or back
    Clock,
    /// Connections are cut, some after their answers were swallowed for a while
    Disconnect,
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Pause => "pause",
            Fault::Clock => "clock",
            Fault::Disconnect => "disconnect",
        }
    }
}

/// The broker's wall clock: what the library preloaded into it adds to the real one.
pub struct WallClock {
    file: PathBuf,
    offset_s: i64,
}

impl WallClock {
    /// # Errors
    /// When the file cannot be made.
    pub fn new(file: &Path) -> Result<WallClock> {
        std::fs::write(file, 0_i64.to_le_bytes())?;
        Ok(WallClock {
            file: file.to_path_buf(),
            offset_s: 0,
        })
    }

    /// Steps it, and has the broker show that it sees the step.
    fn step(&mut self, shared: &Shared, random: &mut StdRng) -> Result<()> {
        let offset_s = loop {
            let offset_s = random.random_range(-MAX_OFFSET_S..=MAX_OFFSET_S);
            if (offset_s - self.offset_s).abs() >= MIN_STEP_S {
                break offset_s;
            }
        };
        let file = OpenOptions::new().write(true).open(&self.file)?;
        file.write_all_at(&(offset_s * 1_000_000_000).to_le_bytes(), 0)
            .context("the clock's offset")?;
        self.offset_s = offset_s;
        let before_ms = wall_ms()?;
        let shown_ms = stamp_ms(shared)? - offset_s * 1000;
        let after_ms = wall_ms()?;
        let tolerance_ms = MIN_STEP_S * 1000 / 2;
        if shown_ms < before_ms - tolerance_ms || shown_ms > after_ms + tolerance_ms {
            bail!(
                "the broker's clock was set {offset_s} s ahead, and its stamps are {} s ahead",
                (shown_ms - before_ms) / 1000 + offset_s
            );
        }
        eprintln!("the wall clock is {offset_s} s ahead");
        Ok(())
    }
}

fn wall_ms() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64)
}

/// Hears of the stamp that a record got.
struct Stamps(Sender<Result<Timestamp>>);

impl ClientContext for Stamps {}

impl ProducerContext for Stamps {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let stamp = match result {
            Ok(message) => Ok(message.timestamp()),
            Err((error, _)) => Err(error.clone().into()),
        };
        let _ = self.0.send(stamp); // nobody waits any more
    }
}

/// What the broker's wall clock says: the time of a record that it stamps itself.
fn stamp_ms(shared: &Shared) -> Result<i64> {
    let (told, heard) = channel();
    let producer: ThreadedProducer<Stamps> = shared.config().create_with_context(Stamps(told))?;
    let record = BaseRecord::to(CLOCK).partition(0).key("").payload("");
    producer.send(record).map_err(|(error, _)| error)?;
    let stamp = heard.recv_timeout(shared.patience);
    match stamp.context("the broker does not tell the time")?? {
        Timestamp::LogAppendTime(ms) => Ok(ms),
        other => bail!("{CLOCK} has the broker's stamps, and a record has {other:?}"),
    }
}

pub struct Faults<'a> {
    pub kinds: &'a [Fault],
    pub broker: &'a mut BrokerProcess,
    pub relay: &'a Relay,
    pub clock: Option<&'a mut WallClock>,
    pub shared: &'a Shared,
    pub random: StdRng,
}

impl Faults<'_> {
    /// Until the time is over: a fault, and a while without.
    ///
    /// # Errors
    /// When the broker had ended by itself, or does not work again while patience lasts.
    pub fn run(&mut self, until: Instant) -> Result<()> {
        let mut turn = 0;
        while Instant::now() < until {
            let calm = Duration::from_millis(self.random.random_range(300..2500));
            thread::sleep(calm.min(until.saturating_duration_since(Instant::now())));
            if self.kinds.is_empty() || Instant::now() >= until {
                continue;
            }
            // The first ones in turn, so that a short run has each kind.
            let kind = match self.kinds.get(turn) {
                Some(kind) => *kind,
                None => *self.kinds.choose(&mut self.random).expect("not empty"),
            };
            turn += 1;
            let acked = self.shared.recorder.acked.load(Ordering::Relaxed);
            self.fault(kind)?;
            self.wait_for_work(kind, acked)?;
        }
        Ok(())
    }

    fn fault(&mut self, kind: Fault) -> Result<()> {
        let from = now();
        match kind {
            Fault::Kill => self.kill()?,
            Fault::Pause => self.pause()?,
            Fault::Clock => {
                let clock = self.clock.as_mut().context("there is no clock to step")?;
                clock.step(self.shared, &mut self.random)?;
            }
            Fault::Disconnect => self.disconnect()?,
        }
        self.shared.recorder.write(&Event::Fault {
            from,
            to: now(),
            fault: kind.name().to_owned(),
        });
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        // Half of the time nobody hears of what it did last.
        if self.random.random_ratio(1, 2) {
            self.relay.swallow(&mut || true);
            thread::sleep(Duration::from_millis(self.random.random_range(1..120)));
        }
        self.broker.kill()?;
        self.relay.cut(&mut || true);
        thread::sleep(Duration::from_millis(self.random.random_range(0..150)));
        self.broker.start()?;
        eprintln!("killed and started");
        // One in four dies again as soon as it serves.
        if self.random.random_ratio(1, 4) {
            thread::sleep(Duration::from_millis(self.random.random_range(0..60)));
            self.broker.kill()?;
            self.broker.start()?;
        }
        Ok(())
    }

    fn pause(&mut self) -> Result<()> {
        let pid = self.broker.pid().context("the broker is not there")?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.context("no process id")?;
        kill_process(pid, Signal::STOP)?;
        // Now and then longer than the shortest transactions may last.
        let ms = match self.random.random_ratio(1, 6) {
            true => self.random.random_range(2000..3500),
            false => self.random.random_range(20..800),
        };
        thread::sleep(Duration::from_millis(ms));
        kill_process(pid, Signal::CONT)?;
        eprintln!("paused for {ms} ms");
        Ok(())
    }

    fn disconnect(&mut self) -> Result<()> {
        let (relay, random) = (self.relay, &mut self.random);
        if random.random_ratio(2, 3) {
            relay.swallow(&mut || random.random_ratio(1, 2));
            thread::sleep(Duration::from_millis(random.random_range(1..300)));
        }
        let share = *[0.0, 0.3, 1.0].choose(random).expect("not empty");
        let mut cut = relay.cut(&mut || random.random_bool(share));
        relay.swallow(&mut || false);
        if cut == 0 {
            cut = relay.cut(&mut || true); // chance has chosen none, and it is to be a fault
        }
        if cut == 0 {
            bail!("no client has a connection that could be cut");
        }
        eprintln!("{cut} connections cut");
        Ok(())
    }

    /// A fault is one only for clients that were at work.
    fn wait_for_work(&self, kind: Fault, acked: u64) -> Result<()> {
        let since = Instant::now();
        while self.shared.recorder.acked.load(Ordering::Relaxed) <= acked + 20 {
            let patience = self.shared.patience;
            if since.elapsed() > patience {
                bail!(
                    "nothing was acknowledged for {patience:?} after {}",
                    kind.name()
                );
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}
