//! Power cuts at random moments: no acknowledged record is lost, no transaction is torn, nothing
//! that a reader saw is taken back. And the same harness on a disk whose sync is a lie finds loss,
//! so it would find it here.

mod janitor;
mod ledger;
mod raw;
mod writers;

use std::sync::Arc;
use std::time::Duration;

use janitor::{COMPACTED, COMPACTED_CONFIGS, SHRINKING};
use ledger::{Ledger, PARTITIONS, TOPIC};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_testkit::{StoppedBroker, TestBroker, eventually, raw_bytes};
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
    /// Every acknowledgement is synced: the janitor works, and nothing it was told may be undone.
    strict: bool,
}

impl Life {
    async fn begin(seed: u64) -> (Life, TestBroker) {
        Life::begin_in(seed, "always").await
    }

    async fn begin_in(seed: u64, mode: &str) -> (Life, TestBroker) {
        let broker = TestBroker::builder()
            .seed(seed)
            .set("journal.sync", mode)
            .set("segment.bytes.min", 14)
            .start()
            .await;
        let mut client = broker.client().await;
        client.create_topic(TOPIC, PARTITIONS).await;
        client.create_topic(SHRINKING, 1).await;
        client
            .create_topic_with(COMPACTED, 1, &COMPACTED_CONFIGS)
            .await;
        let life = Life {
            ledger: Arc::default(),
            writers: Writers::new(&mut client).await,
            rng: StdRng::seed_from_u64(seed),
            strict: mode == "always",
        };
        (life, broker)
    }

    /// Everybody works until the power goes at a random moment.
    async fn work_until_the_cut(&mut self, broker: TestBroker, seed: u64) -> StoppedBroker {
        let steps = self.rng.random_range(1..=MAX_STEPS);
        broker.disk().cut_power_after(steps);
        let disk = broker.disk().clone();
        let checkpoints = self.strict.then(|| self.rng.random_range(0..3));
        let mut work = Box::pin(self.writers.work(&broker, &self.ledger, checkpoints));
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
    /// With it what an independent reader finds different.
    async fn start(
        &mut self,
        mut stopped: StoppedBroker,
    ) -> Result<(TestBroker, Vec<String>), String> {
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
        let files = raw_bytes(stopped.disk());
        let broker = stopped.try_start().await.map_err(|e| e.to_string())?;
        let different = raw::differences(&files, &mut broker.client().await).await;
        Ok((broker, different))
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
        if self.strict {
            wrong.extend(janitor::check(&mut client, &self.ledger).await);
        }
        wrong
    }
}

/// What happened in a life, and what was wrong.
#[derive(Default)]
struct Report {
    cuts: u64,
    acked: usize,
    commits: usize,
    /// (cut, what), by kind.
    lost: Vec<(u64, String)>,
    torn: Vec<(u64, String)>,
    state_differs: Vec<(u64, String)>,
}

impl Report {
    fn add(&mut self, other: Report) {
        self.cuts += other.cuts;
        self.acked += other.acked;
        self.commits += other.commits;
        self.lost.extend(other.lost);
        self.torn.extend(other.torn);
        self.state_differs.extend(other.state_differs);
    }

    fn wrong(&self) -> Vec<&(u64, String)> {
        let kinds = [&self.lost, &self.torn, &self.state_differs];
        kinds.into_iter().flatten().collect()
    }
}

async fn live_through_cuts(seeds: std::ops::Range<u64>) -> Report {
    let mut report = Report::default();
    let (mut life, mut broker) = Life::begin(seeds.start).await;
    for seed in seeds {
        let stopped = life.work_until_the_cut(broker, seed).await;
        report.cuts += 1;
        let different;
        (broker, different) = match life.start(stopped).await {
            Ok(started) => started,
            Err(e) => {
                report
                    .lost
                    .push((seed, format!("the broker does not start: {e}")));
                return report;
            }
        };
        let different = different.into_iter().map(|what| (seed, what));
        report.state_differs.extend(different);
        for what in life.check(&broker).await {
            let kind = match what.contains(" is visible in ") {
                true => &mut report.torn,
                false => &mut report.lost,
            };
            kind.push((seed, what));
        }
        if !report.wrong().is_empty() {
            break;
        }
    }
    let ledger = life.ledger.lock();
    report.acked = ledger.acked.len() + ledger.kept.acked.len();
    report.commits = ledger.ended();
    report
}

fn assert_good(report: &Report) {
    assert!(report.wrong().is_empty(), "{:#?}", report.wrong());
    let (acked, ended) = (report.acked, report.commits);
    assert!(
        acked > 50 && ended > 5,
        "too little happened: {acked} acked, {ended} ended"
    );
}

/// Runs a test on a runtime that does not wait, at the end, for starts that lost their disk.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let done = runtime.block_on(test);
    runtime.shutdown_background();
    done
}

macro_rules! lives {
    ($($name:ident: $first:literal,)*) => {
        $(#[test]
        fn $name() {
            let report = run(live_through_cuts($first..$first + CUTS_PER_LIFE));
            assert_good(&report);
        })*
    };
}

// Two hundred cuts, in twenty lives of ten.
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
    cuts_100_to_109: 100,
    cuts_110_to_119: 110,
    cuts_120_to_129: 120,
    cuts_130_to_139: 130,
    cuts_140_to_149: 140,
    cuts_150_to_159: 150,
    cuts_160_to_169: 160,
    cuts_170_to_179: 170,
    cuts_180_to_189: 180,
    cuts_190_to_199: 190,
}

/// In the weak modes a loss of power takes acknowledged records of the last moment, the newest, and
/// nothing else; a kill takes nothing.
async fn live_through_cuts_in(mode: &str, seeds: std::ops::Range<u64>) {
    let (mut life, mut broker) = Life::begin_in(seeds.start, mode).await;
    let mut lost = 0;
    for seed in seeds {
        let stopped = life.work_until_the_cut(broker, seed).await;
        broker = match life.start(stopped).await {
            // What was open is aborted by such a start, so the bytes do not say the same.
            Ok((broker, _different)) => broker,
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

/// The long proof, `scripts/prove power-cuts`: as many cuts as the environment says, with a line in
/// the end.
#[test]
#[ignore = "the long proof: scripts/prove power-cuts"]
fn proof() {
    let number = |name: &str, default: u64| {
        let set = std::env::var(name).ok();
        set.map_or(default, |text| text.parse().expect("a number"))
    };
    let count = number("TIDEMARK_TEST_CUTS", 1_000);
    let seed = number("TIDEMARK_TEST_SEED", 0);
    let mut total = Report::default();
    let mut at = seed;
    while at < seed + count {
        let until = (at + CUTS_PER_LIFE).min(seed + count);
        total.add(run(live_through_cuts(at..until)));
        at = until;
        if total.cuts % 500 < CUTS_PER_LIFE {
            println!("{} cuts, {} acked", total.cuts, total.acked);
        }
    }
    for (cut, what) in total.wrong() {
        println!(
            "cut {cut}: {what} (begin its life again: --seed {} --count {CUTS_PER_LIFE})",
            cut - (cut - seed) % CUTS_PER_LIFE
        );
    }
    println!(
        "power-cuts: cuts={} acked={} commits={} lost={} torn={} state_differs={}",
        total.cuts,
        total.acked,
        total.commits,
        total.lost.len(),
        total.torn.len(),
        total.state_differs.len()
    );
    assert!(total.wrong().is_empty());
    // Less would show less than the line claims.
    assert!(
        total.acked as u64 >= count * 5,
        "too few acknowledged records"
    );
    assert!(
        total.commits as u64 * 2 >= count,
        "too few transactions ended"
    );
}
