//! What all clients share: topics, settings, the recorder.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use tidemark_histcheck::history::Event;

use crate::recorder::{Recorder, locked, now};

/// Written by producers, read by movers.
pub const SOURCE: &str = "history-in";
/// Written by movers.
pub const TARGET: &str = "history-out";
/// Written by producers.
pub const MIXED: &str = "history-mixed";
/// Transfers between accounts.
pub const BANK: &str = "history-bank";
pub const TOPICS: [(&str, i32); 4] = [(SOURCE, 4), (TARGET, 4), (MIXED, 3), (BANK, 3)];
pub const GROUP: &str = "history-movers";

/// Where the mover of another program writes to, and its group.
pub fn target_of(program: &str) -> String {
    format!("{TARGET}-{program}")
}

pub fn group_of(program: &str) -> String {
    format!("{GROUP}-{program}")
}

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
    complaints: Mutex<Vec<String>>,
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
            complaints: Mutex::default(),
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
        eprintln!("{text}");
        locked(&self.complaints).push(text);
    }

    pub fn complaints(&self) -> usize {
        locked(&self.complaints).len()
    }

    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.address)
            .set("reconnect.backoff.ms", "20")
            .set("reconnect.backoff.max.ms", "200")
            // As in the word count: one broker, and librdkafka's issue 5511.
            .set("metadata.recovery.strategy", "none");
        config
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
        let admin: AdminClient<DefaultClientContext> = self.config().create()?;
        let all = self.topics();
        let topics: Vec<NewTopic<'_>> = all
            .iter()
            .map(|(name, partitions)| NewTopic::new(name, *partitions, TopicReplication::Fixed(1)))
            .collect();
        let options = AdminOptions::new().operation_timeout(Some(CALL));
        for result in futures_executor::block_on(admin.create_topics(&topics, &options))? {
            if let Err((topic, code)) = result {
                bail!("cannot create {topic}: {code}");
            }
        }
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
