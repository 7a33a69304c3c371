//! Power cuts at random moments: no acknowledged record is lost, no transaction is torn, nothing
//! that a reader saw is taken back. And the same harness on a disk whose sync is a lie finds loss,
//! so it would find it here.

mod ledger;
mod writers;

use std::sync::Arc;
use std::time::Duration;

use ledger::{Ledger, PARTITIONS, TOPIC};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_testkit::{StoppedBroker, TestBroker, eventually};
use tokio::time::timeout;
use writers::Writers;

/// Cuts of one data directory, one after the other.
const CUTS_PER_LIFE: u64 = 10;
/// The most changing calls on the disk before a cut.
const MAX_STEPS: u64 = 400;

/// How long clients wait for answers of a broker whose disk is gone.
const GRACE: Duration = Duration::from_millis(20);

/// A broker, its clients and what they know, through many power cuts.
struct Life {
    ledger: Arc<Mutex<Ledger>>,
    writers: Writers,
    rng: StdRng,
}

impl Life {
    async fn begin(seed: u64) -> (Life, TestBroker) {
        Life::begin_in(seed, "always").await
    }

    async fn begin_in(seed: u64, mode: &str) -> (Life, TestBroker) {
        let broker = TestBroker::builder()
            .seed(seed)
            .set("journal.sync", mode)
            .start()
            .await;
        let mut client = broker.client().await;
        client.create_topic(TOPIC, PARTITIONS).await;
        let life = Life {
            ledger: Arc::default(),
            writers: Writers::new(&mut client).await,
            rng: StdRng::seed_from_u64(seed),
        };
        (life, broker)
    }

    /// Everybody works until the power goes at a random moment.
    async fn work_until_the_cut(&mut self, broker: TestBroker, seed: u64) -> StoppedBroker {
        let steps = self.rng.random_range(1..=MAX_STEPS);
        broker.disk().cut_power_after(steps);
        let disk = broker.disk().clone();
        let mut work = Box::pin(self.writers.work(&broker, &self.ledger));
        tokio::select! {
            () = &mut work => assert!(disk.is_powered_off(), "clients stop for nothing else"),
            () = eventually("the power goes", || disk.is_powered_off()) => {
                // What is on its way may still be answered, and is then believed.
                let _some_are_never_answered = timeout(GRACE, &mut work).await;
            }
        }
        drop(work);
        broker.crash(seed).await
    }

    /// Starts on what is left; now and then the power goes again while that is going on.
    async fn start(&mut self, mut stopped: StoppedBroker) -> Result<TestBroker, String> {
        for _ in 0..2 {
            if self.rng.random_bool(0.3) {
                stopped.disk().cut_power_after(self.rng.random_range(1..20));
                let disk = stopped.disk().clone();
                tokio::select! {
                    started = stopped.clone().try_start() => match started {
                        Ok(broker) => drop(broker),
                        Err(_) if disk.is_powered_off() => {}
                        Err(e) => return Err(e.to_string()),
                    },
                    () = eventually("the power goes", || disk.is_powered_off()) => {}
                }
                stopped = stopped.after_power_cut(self.rng.random());
            }
        }
        stopped.try_start().await.map_err(|e| e.to_string())
    }

    /// In a weak mode: takes it that acknowledged records of plain producers and of transactions that
    /// were not ended may be gone. Returns how many are, and what is gone that must not be.
    async fn forget_lost(&mut self, broker: &TestBroker) -> (usize, Vec<String>) {
        let mut client = broker.client().await;
        let lost = ledger::forget_lost(&mut client, &self.ledger).await;
        self.writers.begin_anew(&mut client).await;
        lost
    }

    /// What is wrong with what the broker serves now.
    async fn check(&mut self, broker: &TestBroker) -> Vec<String> {
        let mut client = broker.client().await;
        let mut wrong = ledger::torn(&mut client, &self.ledger).await;
        self.writers.end_open_transactions(&mut client).await;
        wrong.extend(ledger::check(&mut client, &self.ledger).await);
        wrong
    }
}

async fn live_through_cuts(seeds: std::ops::Range<u64>) {
    let (mut life, mut broker) = Life::begin(seeds.start).await;
    for seed in seeds {
        let stopped = life.work_until_the_cut(broker, seed).await;
        broker = match life.start(stopped).await {
            Ok(broker) => broker,
            Err(e) => panic!("cut {seed}: the broker does not start: {e}"),
        };
        let wrong = life.check(&broker).await;
        assert!(wrong.is_empty(), "cut {seed}: {wrong:#?}");
    }
    let ledger = life.ledger.lock();
    let (acked, ended) = (ledger.acked.len(), ledger.ended());
    assert!(
        acked > 50 && ended > 5,
        "too little happened: {acked} acked, {ended} ended"
    );
}

/// Runs a test on a runtime that does not wait, at the end, for starts that lost their disk.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test);
    runtime.shutdown_background();
}

macro_rules! lives {
    ($($name:ident: $first:literal,)*) => {
        $(#[test]
        fn $name() {
            run(live_through_cuts($first..$first + CUTS_PER_LIFE));
        })*
    };
}

// A hundred cuts, in ten lives of ten.
lives! {
    cuts_0_to_9: 0,
    cuts_10_to_19: 10,
    cuts_20_to_29: 20,
    cuts_30_to_39: 30,
    cuts_40_to_49: 40,
    cuts_50_to_59: 50,
    cuts_60_to_69: 60,
    cuts_70_to_79: 70,
    cuts_80_to_89: 80,
    cuts_90_to_99: 90,
}

/// In the weak modes a loss of power takes acknowledged records of the last moment, the newest, and
/// nothing else; a kill takes nothing.
async fn live_through_cuts_in(mode: &str, seeds: std::ops::Range<u64>) {
    let (mut life, mut broker) = Life::begin_in(seeds.start, mode).await;
    let mut lost = 0;
    for seed in seeds {
        let stopped = life.work_until_the_cut(broker, seed).await;
        broker = match life.start(stopped).await {
            Ok(broker) => broker,
            Err(e) => panic!("{mode}, cut {seed}: the broker does not start: {e}"),
        };
        let (more, mut wrong) = life.forget_lost(&broker).await;
        lost += more;
        wrong.extend(life.check(&broker).await);
        assert!(wrong.is_empty(), "{mode}, cut {seed}: {wrong:#?}");
    }
    let ledger = life.ledger.lock();
    let (acked, ended) = (ledger.acked.len(), ledger.ended());
    println!("{mode}: {acked} acked, {ended} ended, {lost} lost");
    assert!(
        acked > 50 && ended > 5,
        "{mode}: too little happened: {acked} acked, {ended} ended"
    );
}

#[test]
fn journal_sync_os_loses_acknowledged_records_of_the_last_moment_and_no_transaction() {
    run(live_through_cuts_in("os", 2000..2020));
}

#[test]
fn journal_sync_interval_loses_acknowledged_records_of_the_interval_and_no_transaction() {
    run(live_through_cuts_in("interval:20", 3000..3020));
}

#[test]
fn a_sync_that_lies_is_found_out() {
    run(async {
        let (mut found, mut refused) = (0, 0);
        for seed in 1000..1040 {
            let (mut life, broker) = Life::begin(seed).await;
            broker.disk().never_sync(true);
            let stopped = life.work_until_the_cut(broker, seed).await;
            match stopped.try_start().await {
                Ok(broker) => found += u32::from(!life.check(&broker).await.is_empty()),
                Err(_) => refused += 1,
            }
        }
        println!("of 40 cuts: loss found after {found}, {refused} starts refused");
        assert!(
            found > 0,
            "the harness does not see loss ({refused} starts were refused)"
        );
    });
}
