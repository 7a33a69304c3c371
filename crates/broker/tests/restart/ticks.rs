//! Ticks are unique and rise for ever: over partitions, over restarts, whatever the wall clock says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tidemark_disk::{SimDisk, read_all};
use tidemark_journal::{JournalOptions, recover};
use tidemark_owner::Record;
use tidemark_testkit::{
    Batch, DATA_DIR, Isolation, StoppedBroker, TestBroker, WALL_START_MS, requests, version,
};
use tidemark_types::{JournalIndex, Tick, TopicPartitionId};

const YEAR_MS: i64 = 365 * 24 * 3_600_000;
const TEN_MINUTES_MS: i64 = 600_000;
const PARTITIONS: i32 = 16;
const PRODUCERS: i32 = 8;
/// Records of each producer between two restarts.
const EACH: i32 = 12;

/// Every record that the journal holds, as its bytes on the disk say.
fn records(disk: &SimDisk) -> Vec<Record> {
    let dir = Path::new(DATA_DIR).join("journal");
    let slot = read_all(disk, &dir.join("000000.slot")).expect("the first slot");
    let journal_id: [u8; 16] = slot[16..32].try_into().expect("sixteen bytes");
    let options = JournalOptions {
        slot_bytes: 2 << 20,
        ..JournalOptions::new(dir, journal_id)
    };
    let mut records = Vec::new();
    recover(Arc::new(disk.fork()), options, JournalIndex(1), &mut |r| {
        let record = Record::decode(r.index, r.tick, r.wall_ms, &r.payload);
        records.push(record.map_err(|e| e.to_string())?);
        Ok(())
    })
    .expect("a journal that is whole");
    records
}

/// Ticks rise from record to record, and in each partition offsets rise with them. The highest.
fn check(records: &[Record]) -> Tick {
    let mut last = Tick::ZERO;
    let mut ends: BTreeMap<TopicPartitionId, i64> = BTreeMap::new();
    for record in records {
        assert!(record.tick > last, "{:?} after {last:?}", record.tick);
        last = record.tick;
        for append in &record.appends {
            let header = tidemark_record_batch::BatchHeader::parse(&append.batch).expect("a batch");
            let end = ends.entry(append.partition).or_insert(0);
            assert_eq!(header.base_offset, *end, "{} at {last:?}", append.partition);
            *end = header.last_offset() + 1;
        }
    }
    last
}

/// Eight producers at the same time, each over all partitions.
async fn write(broker: &TestBroker) {
    let mut tasks = Vec::new();
    for producer in 0..PRODUCERS {
        let mut c = broker.client().await;
        let clock = broker.clock().clone();
        tasks.push(tokio::spawn(async move {
            for n in 0..EACH {
                let partition = (producer + n * 5) % PARTITIONS;
                let batch = Batch::of(&[format!("{producer}-{n}")]).build();
                c.produce("t", partition, batch)
                    .await
                    .expect("a healthy broker");
                clock.advance_ms(1);
            }
        }));
    }
    for task in tasks {
        task.await.expect("a producer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_ticks_are_unique_and_offsets_follow_them_whatever_the_wall_clock_says() {
    let mut broker = TestBroker::start().await;
    broker.client().await.create_topic("t", PARTITIONS).await;
    let mut highest = Tick::ZERO;
    let clocks = [
        WALL_START_MS,
        WALL_START_MS - TEN_MINUTES_MS,
        WALL_START_MS + YEAR_MS,
        WALL_START_MS,
        WALL_START_MS - TEN_MINUTES_MS,
    ];
    for (round, wall_ms) in clocks.into_iter().enumerate() {
        // Set while it runs, and over a stop, a kill and a loss of power.
        broker.clock().set_wall_ms(wall_ms);
        write(&broker).await;
        let stopped = match round % 3 {
            0 => broker.kill().await,
            1 => broker.stop().await,
            _ => broker.crash(round as u64).await,
        };
        let records = records(stopped.disk());
        let now = check(&records);
        assert!(now > highest, "the next tick is above all before it");
        highest = now;
        broker = stopped.wall_ms(wall_ms).start().await;
        write(&broker).await;
    }
    let stopped = broker.stop().await;
    let records = records(stopped.disk());
    let last = check(&records);
    assert!(last > highest);
    let data = records.iter().filter(|record| record.is_data()).count();
    let written = 2 * clocks.len() as i32 * PRODUCERS * EACH;
    assert_eq!(data as i32, written);
    // A year ahead once, ahead for ever.
    assert!(last >= Tick::from_wall_ms(WALL_START_MS + YEAR_MS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t2_what_comes_after_a_record_that_is_not_durable_is_not_visible_either() {
    let broker = TestBroker::start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 2).await;
    c.produce("t", 0, Batch::of(&["ten"]).build())
        .await
        .unwrap();
    // Eleven is written and its sync is held; twelve is queued behind it, for another partition.
    let mut eleven = broker.hold_syncs_behind_a_record(&mut c, "t", 0).await;
    let mut other = broker.client().await;
    let batch = Batch::of(&["twelve"]).build();
    let request = requests::produce(None, [("t", 1, batch)]);
    let mut twelve = other.start_request(version::PRODUCE, &request).await;
    let mut reader = broker.client().await;
    let ends = reader.ends("t", 2, Isolation::ReadUncommitted).await;
    assert_eq!(ends[1], 0);
    for _ in 0..50 {
        let now = reader.ends("t", 2, Isolation::ReadUncommitted).await;
        assert_eq!(now, ends);
        assert!(!eleven.is_answered() && !twelve.is_answered());
    }
    // The sync never comes back with success: neither is ever seen, and neither is acknowledged.
    broker.disk().fail_next_sync(5);
    broker.disk().release_syncs();
    let why = broker.broker().failure().await;
    assert!(why.contains("os error 5"), "{why}");
    let broker = broker.crash(3).await.start().await;
    let mut c = broker.client().await;
    let first = c.read_values("t", 0, Isolation::ReadUncommitted).await;
    assert_eq!(first[0], "ten");
    assert!(
        c.read_values("t", 1, Isolation::ReadUncommitted)
            .await
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t3_an_idle_broker_writes_nothing_after_the_mark() {
    let stopped: StoppedBroker = TestBroker::builder();
    let broker = stopped.start().await;
    let mut c = broker.client().await;
    c.create_topic("t", 1).await;
    c.produce("t", 0, Batch::of(&["x"]).build()).await.unwrap();
    let steps = || broker.disk().steps();
    // The mark, the ballast, slots that are prepared ahead: until nothing more comes.
    let mut quiet = 0;
    let mut last = steps();
    while quiet < 100 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        quiet = if steps() == last { quiet + 1 } else { 0 };
        last = steps();
    }
    // Readers, heartbeats, listings, time: nothing of it is written.
    for _ in 0..100 {
        c.ends("t", 1, Isolation::ReadCommitted).await;
        c.read_all("t", 0, Isolation::ReadCommitted).await;
        c.describe_topic("t").await;
        let _none = c.committed_offset("g", "t", 0, true).await;
        broker.clock().advance_ms(60_000);
    }
    assert_eq!(steps(), last);
}
