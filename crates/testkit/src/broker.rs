//! A broker in this process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafka_protocol::messages::ProduceResponse;
use tidemark_broker::{Broker, Clock, ConnectionInfo, Seams, StartError};
use tidemark_config::{Inputs, Settings, load};
use tidemark_disk::{Disk, OsDisk, SimDisk, read_all};
use tidemark_journal::JournalStats;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::batch::Batch;
use crate::calls::version;
use crate::client::{InFlight, RawClient};
use crate::clock::{ManualClock, WALL_START_MS};
use crate::entropy::SeededEntropy;
use crate::{coverage, eventually, panics, requests};

/// The data directory on a simulated disk.
pub const DATA_DIR: &str = "/data";

/// Settings of tests, before their own: small files, nothing that happens by itself in real time. On
/// a clock that is turned by hand no connection would ever have its turn again.
const DEFAULTS: [(&str, &str); 8] = [
    ("max.connection.creation.rate", "2147483647"),
    ("max.connection.creation.rate.per.ip", "2147483647"),
    ("listeners", "PLAINTEXT://127.0.0.1:0"),
    ("journal.slot.bytes", "2097152"),
    ("journal.budget.bytes", "16777216"),
    ("checkpoint.interval.ms", "3600000"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("auto.create.topics.enable", "false"),
];

/// What a broker starts on, before the first start and between two.
#[derive(Clone)]
pub struct StoppedBroker {
    settings: Vec<(String, String)>,
    disk: Storage,
    clock: Arc<ManualClock>,
    seed: u64,
    starts: u64,
    ended_badly: Option<String>,
}

#[derive(Clone)]
enum Storage {
    Sim(SimDisk),
    Os(PathBuf),
}

impl StoppedBroker {
    /// Overrides a setting, by its name as in Kafka.
    pub fn set(mut self, name: &str, value: impl ToString) -> StoppedBroker {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// The seed of ids and of the disk's own choices. Before the first start only.
    pub fn seed(mut self, seed: u64) -> StoppedBroker {
        self.seed = seed;
        if let Storage::Sim(disk) = &mut self.disk {
            *disk = SimDisk::new(seed);
        }
        self
    }

    /// Keeps the data in a directory of the operating system.
    pub fn on_os_disk(mut self, data_dir: &Path) -> StoppedBroker {
        self.disk = Storage::Os(data_dir.to_path_buf());
        self
    }

    /// Keeps the data on this simulated disk, with whatever is there.
    pub fn on_disk(mut self, disk: SimDisk) -> StoppedBroker {
        self.disk = Storage::Sim(disk);
        self
    }

    /// The wall clock at the next start.
    pub fn wall_ms(self, wall_ms: i64) -> StoppedBroker {
        self.clock.set_wall_ms(wall_ms);
        self
    }

    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    /// The simulated disk.
    pub fn disk(&self) -> &SimDisk {
        sim(&self.disk)
    }

    /// What a stop said that did not end in order.
    pub fn ended_badly(&self) -> Option<&str> {
        self.ended_badly.as_deref()
    }

    /// Cuts the power of a machine whose broker did not get to run: the disk it finds next.
    pub fn after_power_cut(self, seed: u64) -> StoppedBroker {
        StoppedBroker {
            disk: Storage::Sim(self.disk().crash(seed)),
            ..self
        }
    }

    /// Starts the broker.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(self) -> TestBroker {
        match self.try_start().await {
            Ok(broker) => broker,
            Err(e) => panic!("the broker does not start: {e}"),
        }
    }

    /// Starts the broker, or says why it does not.
    pub async fn try_start(mut self) -> Result<TestBroker, StartError> {
        panics::watch();
        self.starts += 1;
        let (disk, data_dir): (Arc<dyn Disk>, PathBuf) = match &self.disk {
            Storage::Sim(disk) => (Arc::new(disk.clone()), PathBuf::from(DATA_DIR)),
            Storage::Os(dir) => (Arc::new(OsDisk), dir.clone()),
        };
        let seams = Seams {
            disk,
            clock: self.clock.clone(),
            entropy: Arc::new(SeededEntropy::new(
                self.seed.wrapping_mul(1000).wrapping_add(self.starts),
            )),
        };
        let broker = Broker::start_with(self.settings_for(&data_dir), seams).await?;
        Ok(TestBroker {
            broker: Some(broker),
            stopped: self,
        })
    }

    fn settings_for(&self, data_dir: &Path) -> Settings {
        let data_dir = data_dir.to_str().expect("a test's path is text").to_owned();
        let own = self.settings.iter().map(|(n, v)| (n.as_str(), v.clone()));
        let mut flags: Vec<(String, String)> = Vec::new();
        let all = DEFAULTS
            .iter()
            .map(|(n, v)| (*n, (*v).to_owned()))
            .chain([("log.dirs", data_dir)])
            .chain(own);
        for (name, value) in all {
            let flag = name.replace('.', "-");
            flags.retain(|(n, _)| *n != flag);
            flags.push((flag, value));
        }
        let inputs = Inputs {
            flags,
            ..Inputs::default()
        };
        match load(&inputs) {
            Ok(loaded) => loaded.settings,
            Err(e) => panic!("a test's settings: {e}"),
        }
    }
}

fn sim(storage: &Storage) -> &SimDisk {
    match storage {
        Storage::Sim(disk) => disk,
        Storage::Os(dir) => panic!("the data is in {}, not on a simulated disk", dir.display()),
    }
}

/// A running broker.
pub struct TestBroker {
    /// Taken when it ends.
    broker: Option<Broker>,
    stopped: StoppedBroker,
}

impl TestBroker {
    /// A broker that has not been started yet, on an empty simulated disk.
    pub fn builder() -> StoppedBroker {
        StoppedBroker {
            settings: Vec::new(),
            disk: Storage::Sim(SimDisk::new(1)),
            clock: ManualClock::new(WALL_START_MS),
            seed: 1,
            starts: 0,
            ended_badly: None,
        }
    }

    /// A broker with the settings of tests.
    pub async fn start() -> TestBroker {
        TestBroker::builder().start().await
    }

    pub fn broker(&self) -> &Broker {
        self.broker.as_ref().expect("it runs until it is taken")
    }

    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.stopped.clock
    }

    /// The simulated disk under it.
    pub fn disk(&self) -> &SimDisk {
        sim(&self.stopped.disk)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.broker().listeners()[0].address
    }

    pub fn journal_stats(&self) -> JournalStats {
        self.broker().journal_stats()
    }

    /// A new connection over TCP to the listener of this name.
    pub async fn client_at(&self, listener: &str) -> RawClient {
        let mut listeners = self.broker().listeners().iter();
        let found = listeners.find(|l| l.name == listener);
        RawClient::connect(found.expect("a listener of the test's").address).await
    }

    /// A new connection over TCP.
    pub async fn client(&self) -> RawClient {
        RawClient::connect(self.address()).await
    }

    /// A new connection within the process, from an address of the test's choice.
    pub fn client_from(&self, peer: SocketAddr) -> RawClient {
        self.client_of("User:ANONYMOUS", peer)
    }

    /// A new connection within the process, of a client that has said who it is: `User:NAME`.
    pub fn client_as(&self, principal: &str) -> RawClient {
        let peer = "127.0.0.1:40000".parse().expect("an address");
        self.client_of(principal, peer)
    }

    /// As [`TestBroker::client_as`], from an address of the test's choice.
    pub fn client_of(&self, principal: &str, peer: SocketAddr) -> RawClient {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let info = ConnectionInfo {
            sasl: None,
            principal: Arc::from(principal),
            peer,
            local: self.address(),
            listener: Arc::from("PLAINTEXT"),
            advertised: None,
            id: Default::default(),
        };
        self.broker().serve(theirs, info);
        let (reader, writer) = tokio::io::split(ours);
        RawClient::over(reader, writer)
    }

    /// Holds all syncs, with a record written and not yet synced: a Produce of one batch, in flight.
    /// Whatever the broker decides from now on, it decides on top of what is not durable.
    ///
    /// Undone with [`SimDisk::release_syncs`].
    pub async fn hold_syncs_behind_a_record(
        &self,
        client: &mut RawClient,
        topic: &str,
        partition: i32,
    ) -> InFlight<ProduceResponse> {
        let value = format!("written, not synced: {}", self.disk().steps());
        let batch = Batch::of(&[&value]).build();
        self.disk().hold_syncs();
        let request = requests::produce(None, [(topic, partition, batch)]);
        let mut produce = client.start_request(version::PRODUCE, &request).await;
        eventually("the record is written while syncs are held", || {
            let before = self.disk().first_held_sync();
            if self.is_in_the_journal(value.as_bytes()) {
                return self.disk().held_syncs() > 0;
            }
            // A sync of something that was written before, for which the record waits.
            before
                .into_iter()
                .for_each(|sync| self.disk().release_held_sync(sync));
            false
        })
        .await;
        assert!(!produce.is_answered(), "its sync is held");
        produce
    }

    fn is_in_the_journal(&self, bytes: &[u8]) -> bool {
        let dir = Path::new(DATA_DIR).join("journal");
        let files = self.disk().list(&dir).expect("a running journal");
        files.iter().any(|file| {
            let content = read_all(self.disk(), &dir.join(&file.name)).unwrap_or_default();
            content.windows(bytes.len()).any(|window| window == bytes)
        })
    }

    /// Cuts the power. What the next start finds is what a disk may keep of it; `seed` chooses.
    pub async fn crash(mut self, seed: u64) -> StoppedBroker {
        let after = self.disk().crash(seed);
        let _it_lost_its_disk = self.end().await;
        let clock = ManualClock::new(self.clock().wall_ms());
        StoppedBroker {
            disk: Storage::Sim(after),
            clock,
            ..self.stopped.clone()
        }
    }

    /// Kills it: what it had written is there for the next one, and what it had not synced is not
    /// synced.
    pub async fn kill(mut self) -> StoppedBroker {
        let after = self.disk().kill();
        let _it_lost_its_disk = self.end().await;
        StoppedBroker {
            disk: Storage::Sim(after),
            clock: ManualClock::new(self.clock().wall_ms()),
            ..self.stopped.clone()
        }
    }

    /// Stops it as SIGTERM does.
    pub async fn stop(mut self) -> StoppedBroker {
        let ended = self.end().await;
        StoppedBroker {
            ended_badly: ended.err(),
            clock: ManualClock::new(self.clock().wall_ms()),
            ..self.stopped.clone()
        }
    }

    /// Stops it as SIGTERM does and starts it again.
    pub async fn restart(self) -> TestBroker {
        self.stop().await.start().await
    }

    async fn end(&mut self) -> Result<(), String> {
        let Some(broker) = self.broker.take() else {
            return Ok(());
        };
        let counts = broker.api_counts();
        let ended = broker.shutdown().await;
        coverage::note(&counts).expect("the coverage directory can be written");
        ended
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        // A power cut ends its threads soonest, whatever a test holds.
        if let (Storage::Sim(disk), true) = (&self.stopped.disk, self.broker.is_some()) {
            drop(disk.crash(0));
        }
        let can_wait = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        if self.broker.is_some() && can_wait {
            let ended = || Handle::current().block_on(self.end());
            let _it_may_have_lost_its_disk = tokio::task::block_in_place(ended);
        }
        if !std::thread::panicking() {
            let panics = panics::broker_panics();
            assert!(panics.is_empty(), "a broker panicked: {panics:?}");
        }
    }
}
