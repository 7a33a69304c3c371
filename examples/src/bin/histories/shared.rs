//! What all clients share: topics, settings, the recorder.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use tidemark_examples::clients::{self, Complaints};
use tidemark_histcheck::history::Event;

use crate::recorder::{Recorder, error_name, locked, now};

/// Written by producers, read by movers.
pub const SOURCE: &str = "history-in";
/// Written by movers.
pub const TARGET: &str = "history-out";
/// Written by producers.
pub const MIXED: &str = "history-mixed";
/// Transfers between accounts.
pub const BANK: &str = "history-bank";
pub const TOPICS: [(&str, i32); 4] = [(SOURCE, 4), (TARGET, 4), (MIXED, 3), (BANK, 3)];
/// Its one partition has the broker's stamps. It is no part of the history.
pub const CLOCK: &str = "history-clock";
pub const GROUP: &str = "history-movers";

/// Where the mover of another program writes to, and its group.
pub fn target_of(program: &str) -> String {
    format!("{TARGET}-{program}")
}

pub fn group_of(program: &str) -> String {
    format!("{GROUP}-{program}")
}

/// What a reader may be told while connections are cut and the broker is away. Of anything else nothing that is done
/// here is the cause.
const OF_FAULTS: [&str; 2] = ["DISCONNECTED", "TIMED_OUT"];

pub const CALL: Duration = Duration::from_secs(5);

pub struct Shared {
    pub address: String,
    /// Other programs that take part, by name.
    pub programs: Vec<String>,
    /// How long a call may stay undecided.
    pub patience: Duration,
    pub recorder: Recorder,
    pub stop_writing: AtomicBool,
    pub stop_reading: AtomicBool,
    complaints: Complaints,
    /// Errors that readers were given, by kind.
    read_errors: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    pub fn new(
        address: String,
        programs: Vec<String>,
        patience: Duration,
        recorder: Recorder,
    ) -> Shared {
        Shared {
            address,
            programs,
            patience,
            recorder,
            stop_writing: AtomicBool::new(false),
            stop_reading: AtomicBool::new(false),
            complaints: Complaints::default(),
            read_errors: Mutex::default(),
        }
    }

    pub fn writing(&self) -> bool {
        !self.stop_writing.load(Ordering::Relaxed)
    }

    pub fn reading(&self) -> bool {
        !self.stop_reading.load(Ordering::Relaxed)
    }

    /// All topics, those of other programs' movers too.
    pub fn topics(&self) -> Vec<(String, i32)> {
        let own = TOPICS
            .iter()
            .map(|(name, partitions)| ((*name).to_owned(), *partitions));
        let others = self.programs.iter().map(|program| (target_of(program), 4));
        own.chain(others).collect()
    }

    /// A client that could not go on: a failure of the run, whatever the history says.
    pub fn complain(&self, text: String) {
        self.complaints.add(&text);
    }

    pub fn complaints(&self) -> usize {
        self.complaints.count()
    }

    /// Counts an error that a reader was given; the first of a kind that no fault explains is a failure of the run.
    pub fn read_error(&self, client: &str, error: &KafkaError) {
        let kind = error_name(error);
        let explained = OF_FAULTS.contains(&kind.as_str());
        let mut errors = locked(&self.read_errors);
        let count = errors.entry(kind).or_insert(0);
        *count += 1;
        if *count == 1 && !explained {
            self.complain(format!("{client} was told: {error}"));
        }
    }

    pub fn read_errors(&self) -> BTreeMap<String, u64> {
        locked(&self.read_errors).clone()
    }

    pub fn config(&self) -> ClientConfig {
        clients::config(&self.address)
    }

    /// Names an instance of a client in the history.
    pub fn introduce(&self, client: &str, id: Option<&str>, timeout_ms: Option<u64>) {
        self.recorder.write(&Event::Client {
            at: now(),
            client: client.to_owned(),
            library: format!("librdkafka {}", rdkafka::util::get_rdkafka_version().1),
            transactional_id: id.map(str::to_owned),
            transaction_timeout_ms: timeout_ms,
        });
    }

    /// # Errors
    /// When a topic cannot be made.
    pub fn create_topics(&self) -> Result<()> {
        let all = self.topics();
        let new = |name, partitions| NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let mut topics: Vec<NewTopic<'_>> = all
            .iter()
            .map(|(name, partitions)| new(name, *partitions))
            .collect();
        topics.push(new(CLOCK, 1).set("message.timestamp.type", "LogAppendTime"));
        clients::create_topics(&self.address, &topics, CALL)?;
        for (topic, partitions) in all {
            self.recorder.write(&Event::Topic { topic, partitions });
        }
        self.recorder.write(&Event::Move {
            group: GROUP.to_owned(),
            source: SOURCE.to_owned(),
            target: TARGET.to_owned(),
        });
        Ok(())
    }
}
