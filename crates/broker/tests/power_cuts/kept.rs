//! A power cut that can be looked at again: the disk it left, what the clients knew, and the calls that
//! led to it.
//!
//! A seed repeats choices, not the interleaving of threads; so a life that is begun again meets other
//! calls. A kept cut repeats exactly: what is on the disk is on the disk.

use std::fs;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemark_broker::Clock;
use tidemark_disk::SimDisk;
use tidemark_testkit::StoppedBroker;

use super::ledger::Ledger;
use super::{builder, check, start_and_compare};

/// The disk's files.
const DISK: &str = "disk";
/// [`Model`], as JSON.
const MODEL: &str = "model.json";
/// The calls on the disk since the start before the cut, and what the cut left of them; then those of
/// starts that were cut too.
const SCHEDULE: &str = "schedule.txt";

pub struct Cut {
    model: Model,
    stopped: StoppedBroker,
    schedule: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Model {
    /// Of the cut.
    seed: u64,
    /// Of the last crash of the disk.
    disk_seed: u64,
    wall_ms: i64,
    ledger: Ledger,
}

/// What was found after a cut.
#[derive(PartialEq, Eq, Debug)]
pub enum Examined {
    /// Where the independent reader and the broker differ, and what clients find wrong.
    Started {
        different: Vec<String>,
        wrong: Vec<String>,
    },
    Refused(String),
}

impl Examined {
    pub fn started(&self) -> bool {
        matches!(self, Examined::Started { .. })
    }

    pub fn wrong(&self) -> Vec<String> {
        match self {
            Examined::Started { different, wrong } => [different.clone(), wrong.clone()].concat(),
            Examined::Refused(why) => vec![format!("the broker does not start: {why}")],
        }
    }
}

impl Cut {
    pub fn new(seed: u64, stopped: StoppedBroker, ledger: Ledger, schedule: Vec<String>) -> Cut {
        let model = Model {
            seed,
            disk_seed: SimDisk::seed_after(seed),
            wall_ms: stopped.clock().wall_ms(),
            ledger,
        };
        Cut {
            model,
            stopped,
            schedule,
        }
    }

    /// What the next start finds. A start changes a copy.
    pub fn stopped(&self) -> StoppedBroker {
        let disk = self.stopped.disk().fork();
        self.stopped.clone().on_disk(disk)
    }

    /// The power went once more, on a machine that was starting.
    pub fn again(&mut self, starting: StoppedBroker, seed: u64) {
        let disk = starting.disk().clone();
        self.stopped = starting.after_power_cut(seed);
        self.model.disk_seed = SimDisk::seed_after(seed);
        self.schedule.push("a start:".to_owned());
        self.schedule.extend(disk.recorded_calls());
    }

    /// Writes it into a directory of its own below `dir`, and names that.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn keep(&self, dir: &Path) -> PathBuf {
        let mut names = (0..).map(|n| match n {
            0 => dir.join(format!("cut-{}", self.model.seed)),
            n => dir.join(format!("cut-{}-{n}", self.model.seed)),
        });
        let to = names
            .find(|name| !name.exists())
            .expect("numbers do not end");
        fs::create_dir_all(&to).expect("the directory can be made");
        (self.stopped.disk().export(&to.join(DISK))).expect("the disk can be kept");
        let model = serde_json::to_vec(&self.model).expect("it is plain data");
        fs::write(to.join(MODEL), model).expect("the model can be kept");
        let schedule = self.schedule.join("\n") + "\n";
        fs::write(to.join(SCHEDULE), schedule).expect("the schedule can be kept");
        to
    }

    /// Reads what [`Cut::keep`] wrote.
    ///
    /// # Panics
    /// When it is not there.
    pub fn read(dir: &Path) -> Cut {
        let model = fs::read(dir.join(MODEL)).expect("the directory of a kept cut");
        let model: Model = serde_json::from_slice(&model).expect("a kept model");
        let disk = SimDisk::import(&dir.join(DISK), model.disk_seed).expect("a kept disk");
        let stopped = (builder("always").seed(model.seed))
            .on_disk(disk)
            .wall_ms(model.wall_ms);
        let schedule = fs::read_to_string(dir.join(SCHEDULE)).unwrap_or_default();
        Cut {
            model,
            stopped,
            schedule: schedule.lines().map(str::to_owned).collect(),
        }
    }

    /// Starts a broker on the disk and looks at everything.
    pub async fn examine(&self) -> Examined {
        let ledger = Mutex::new(self.model.ledger.clone());
        match start_and_compare(self.stopped()).await {
            Ok((broker, different)) => Examined::Started {
                different,
                wrong: check(&broker, &ledger, true).await,
            },
            Err(why) => Examined::Refused(why),
        }
    }
}
