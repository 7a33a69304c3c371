//! The disk answers an error to one call: nothing is tried again, nothing goes on in silence, and
//! nothing that was acknowledged is lost.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tidemark_disk::SimDisk;
use tidemark_testkit::{
    Batch, Dialect, Isolation, StoppedBroker, TestBroker, TxnProducer, enrolled, produced,
    requests, version, within,
};
use tidemark_types::ErrorCode;

use super::{number, small};

const EIO: i32 = 5;

/// The call that fails.
#[derive(Clone, Copy, Debug)]
enum Call {
    Sync,
    DirSync,
    Rename,
    Write,
}

impl Call {
    fn fail(self, disk: &SimDisk, skip: u64) {
        match self {
            Call::Sync => disk.fail_sync_after(skip, EIO),
            Call::DirSync => disk.fail_dir_sync_after(skip, EIO),
            Call::Rename => disk.fail_rename_after(skip, EIO),
            Call::Write => disk.fail_write_after(skip, EIO),
        }
    }
}

/// What kind of place a path is, whatever its number.
fn place(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kind = match path.extension() {
        Some(kind) => kind.to_string_lossy().into_owned(),
        None => match name.starts_with("checkpoint-") {
            true => "checkpoint".to_owned(),
            false => name.into_owned(),
        },
    };
    // A partition's directory is named by its topic's id.
    match path.parent().and_then(Path::file_name) {
        Some(parent) if parent == "partitions" => "partition directory".to_owned(),
        _ => kind,
    }
}

/// Starts, writes through several checkpoints, stops. What was acknowledged; and whether the broker
/// got through all of it, or what it said.
async fn life(
    stopped: StoppedBroker,
    acked: &mut Vec<usize>,
    committed: &mut Vec<usize>,
) -> Result<StoppedBroker, String> {
    let disk = stopped.disk().clone();
    let broker = match stopped.try_start().await {
        Ok(broker) => broker,
        Err(e) => return Err(e.to_string()),
    };
    let result = work(&broker, acked, committed).await;
    if result.is_err() {
        // It ends by itself and says why.
        let why = within(
            "a broker whose disk failed says so",
            broker.broker().failure(),
        )
        .await;
        let faults = disk.failed_paths();
        assert_eq!(faults.len(), 1, "{why}");
        drop(broker.kill().await);
        return Err(why);
    }
    let stopped = broker.stop().await;
    // A stop writes a last checkpoint, and the journal's end.
    match stopped.ended_badly() {
        Some(why) => Err(why.to_owned()),
        None => Ok(stopped),
    }
}

/// The answer, if there is one and it says that all went well.
fn went_well<T>(answer: Option<T>, error: impl Fn(&T) -> i16) -> Result<T, ()> {
    answer.filter(|answer| error(answer) == 0).ok_or(())
}

fn code<T>(result: &Result<T, ErrorCode>) -> i16 {
    result.as_ref().err().map_or(0, |error| error.code())
}

async fn work(
    broker: &TestBroker,
    acked: &mut Vec<usize>,
    committed: &mut Vec<usize>,
) -> Result<(), ()> {
    let mut c = broker.client().await;
    {
        let request = requests::create_topic("t", 1, &[]);
        let made = c.try_send(version::CREATE_TOPICS, &request).await;
        went_well(made, |made| made.topics[0].error_code)?;
    }
    let request = requests::init_producer_id(Some("x"), 60_000);
    let session = c.try_send(version::INIT_PRODUCER_ID, &request).await;
    let session = went_well(session, |session| session.error_code)?;
    let mut txn = TxnProducer::at(
        "x",
        (session.producer_id.0, session.producer_epoch),
        Dialect::Classic,
    );
    for _ in 0..100 {
        let n = acked.len() + committed.len() + 1;
        if n.is_multiple_of(4) {
            let request = requests::add_partitions("x", txn.producer(), &[("t", 0)]);
            let answer = c.try_send(version::ADD_PARTITIONS_TO_TXN, &request).await;
            went_well(answer, |answer| code(&enrolled(answer)))?;
            let batch = txn.batch("t", 0, &[super::value(n)]).build();
            let request = requests::produce(Some("x"), [("t", 0, batch)]);
            let answer = c.try_send(version::PRODUCE, &request).await;
            went_well(answer, |answer| code(&produced(answer)[0]))?;
            let request = requests::end_txn("x", txn.producer(), true);
            let answer = c.try_send(version::END_TXN, &request).await;
            went_well(answer, |answer| answer.error_code)?;
            committed.push(n);
        } else {
            let batch = Batch::of(&[super::value(n)]).build();
            let request = requests::produce(None, [("t", 0, batch)]);
            let answer = c.try_send(version::PRODUCE, &request).await;
            went_well(answer, |answer| code(&produced(answer)[0]))?;
            acked.push(n);
        }
    }
    Ok(())
}

/// Fails the call after `skip` ones. The place it hit; `None` when there were not so many calls.
async fn fail_once(call: Call, skip: u64) -> Option<(String, String)> {
    let stopped = small().seed(skip + 1);
    let disk = stopped.disk().clone();
    call.fail(&disk, skip);
    let (mut acked, mut committed) = (Vec::new(), Vec::new());
    let lived = life(stopped, &mut acked, &mut committed).await;
    let hit: Vec<PathBuf> = disk.failed_paths();
    let Some(path) = hit.first() else {
        lived.unwrap_or_else(|e| panic!("{call:?} {skip}: nothing failed, and the broker: {e}"));
        return None;
    };
    let at = place(path);
    let Err(why) = lived else {
        panic!("{call:?} {skip} at {at}: nobody says that it failed");
    };
    let named = why.contains("os error 5") || why.contains("journal did not make its first");
    assert!(
        named,
        "{call:?} {skip} at {at}: {why:?} does not say what failed"
    );
    // The next start, after a kill or a loss of power, finds everything.
    for after in [disk.fork().kill(), disk.crash(skip)] {
        let stopped = small().on_disk(after);
        let broker = match stopped.try_start().await {
            Ok(broker) => broker,
            Err(e) => panic!("{call:?} {skip} at {at}: {e}"),
        };
        let mut c = broker.client().await;
        if acked.is_empty() && committed.is_empty() {
            continue;
        }
        let values = c.read_values("t", 0, Isolation::ReadCommitted).await;
        let there: BTreeSet<usize> = values.iter().map(|value| number(value)).collect();
        for n in acked.iter().chain(&committed) {
            assert!(there.contains(n), "{call:?} {skip} at {at}: {n} is lost");
        }
    }
    Some((at, why))
}

/// Fails each call once, or with `one_in` one in so many; the places that were hit.
async fn fail_each(call: Call, one_in: u64) -> BTreeSet<String> {
    let one_in = match std::env::var_os("TIDEMARK_TEST_EVERY") {
        Some(_) => 1,
        None => one_in,
    };
    let mut places = BTreeSet::new();
    let mut skip = 0;
    while let Some((at, _)) = fail_once(call, skip).await {
        places.insert(at);
        // The first calls are those of a start: each of another kind.
        skip += if skip < 12 { 1 } else { one_in };
    }
    println!("{call:?}: {skip} calls, at {places:?}");
    places
}

/// A sample need not hit every place.
fn all_of(places: &BTreeSet<String>, expected: &[&str]) {
    assert!(!places.is_empty());
    if std::env::var_os("TIDEMARK_TEST_EVERY").is_none() && places.len() >= 3 {
        return;
    }
    for place in expected {
        assert!(places.contains(*place), "never at a {place}: {places:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_of_any_file_stops_the_broker_and_loses_nothing() {
    let places = fail_each(Call::Sync, 5).await;
    all_of(&places, &["slot", "log", "tickindex", "tmp"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_of_any_directory_stops_the_broker_and_loses_nothing() {
    let places = fail_each(Call::DirSync, 1).await;
    all_of(
        &places,
        &[
            "journal",
            "checkpoints",
            "partitions",
            "partition directory",
        ],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_rename_stops_the_broker_and_loses_nothing() {
    let places = fail_each(Call::Rename, 1).await;
    all_of(&places, &["identity", "checkpoint"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_write_stops_the_broker_and_loses_nothing() {
    let places = fail_each(Call::Write, 9).await;
    all_of(&places, &["slot", "log", "tickindex", "tmp"]);
}

/// The broker has nothing to do any more when its stop meets the error: it says so, in its last words
/// (the process ends with them and exit code 1), and the next start has everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_the_last_checkpoint_of_a_stop_is_told() {
    let mut told = BTreeSet::new();
    for call in [Call::Sync, Call::DirSync, Call::Rename, Call::Write] {
        for skip in 0.. {
            let broker = small().start().await;
            let mut c = broker.client().await;
            c.create_topic("t", 1).await;
            let batch = Batch::of(&[super::value(1)]).build();
            c.produce("t", 0, batch).await.unwrap();
            drop(c);
            let disk = broker.disk().clone();
            call.fail(&disk, skip);
            let stopped = broker.stop().await;
            let Some(path) = disk.failed_paths().first().cloned() else {
                assert_eq!(stopped.ended_badly(), None);
                break;
            };
            let why = stopped
                .ended_badly()
                .unwrap_or_else(|| panic!("{call:?} {skip} at {}: it ended well", path.display()));
            assert!(why.contains("os error 5"), "{call:?} {skip}: {why}");
            told.insert(place(&path));
            let next = small().on_disk(disk.crash(skip)).start().await;
            let mut c = next.client().await;
            let values = c.read_values("t", 0, Isolation::ReadCommitted).await;
            assert_eq!(values, [super::value(1)], "{call:?} {skip}");
        }
    }
    all_of(&told, &["slot", "log", "tickindex", "tmp", "checkpoint"]);
    assert!(told.len() >= 5, "{told:?}");
}
