//! The power goes during the very first start, at each of its steps: the next one succeeds.

use std::future::Future;
use std::path::Path;

use tidemark_disk::Disk;
use tidemark_testkit::{Batch, DATA_DIR, Isolation, TestBroker, eventually, raw_bytes};

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

#[test]
fn a_first_start_may_be_cut_at_every_step() {
    run(async {
        for step in 1.. {
            let stopped = TestBroker::builder().seed(step);
            let disk = stopped.disk().clone();
            disk.cut_power_after(step);
            let mut finished = false;
            tokio::select! {
                started = stopped.clone().try_start() => match started {
                    Ok(broker) => {
                        finished = true;
                        drop(broker);
                    }
                    Err(e) => assert!(disk.is_powered_off(), "step {step}: {e}"),
                },
                () = eventually("the power goes", || disk.is_powered_off()) => {}
            }
            let cluster_ids = cluster_ids(stopped.after_power_cut(step), step).await;
            assert_eq!(cluster_ids[0], cluster_ids[1], "step {step}");
            if finished {
                assert!(step > 10, "a start takes more steps than {step}");
                return;
            }
        }
    });
}

/// What the next two brokers on this disk say, each of which must work.
async fn cluster_ids(stopped: tidemark_testkit::StoppedBroker, step: u64) -> [String; 2] {
    let broker = match stopped.try_start().await {
        Ok(broker) => broker,
        Err(e) => panic!("cut at step {step} of the first start, the next says: {e}"),
    };
    let mut client = broker.client().await;
    let first = client.cluster_id().await;
    client.create_topic("t", 1).await;
    assert_eq!(
        client.produce("t", 0, Batch::of(&["x"]).build()).await,
        Ok(0)
    );
    let broker = broker.crash(step).await.start().await;
    let mut client = broker.client().await;
    let values = client.read_values("t", 0, Isolation::ReadCommitted).await;
    assert_eq!(values, ["x"]);
    [first, client.cluster_id().await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_without_journal_and_checkpoint_are_never_taken_for_leftovers() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let batch = Batch::of(&["x"]).build();
    client.produce("t", 0, batch).await.expect("a good batch");
    let stopped = broker.stop().await;
    let disk = stopped.disk().clone();
    for name in ["journal", "checkpoints"] {
        let dir = Path::new(DATA_DIR).join(name);
        for entry in disk.list(&dir).expect("a directory") {
            disk.remove_file(&dir.join(entry.name)).expect("a file");
        }
    }
    let before = raw_bytes(&disk).0;
    let refused = stopped.try_start().await.err().expect("it is damaged");
    let why = refused.to_string();
    assert!(
        why.contains("segments of") && why.contains("--rebuild"),
        "{why}"
    );
    assert_eq!(raw_bytes(&disk).0, before, "nothing was changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_cannot_be_used_is_one_clear_line_and_a_missing_one_is_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "not a directory").expect("a file");
    let below = file.join("data");
    let refused = TestBroker::builder().on_os_disk(&below).try_start().await;
    let why = refused.err().expect("a file is no directory").to_string();
    assert_eq!(why.lines().count(), 1, "{why}");
    for part in [
        below.to_str().expect("text"),
        "cannot be used",
        "--data-dir",
    ] {
        assert!(why.contains(part), "{why}");
    }
    let missing = dir.path().join("a/b/c");
    let broker = TestBroker::builder().on_os_disk(&missing).start().await;
    assert!(missing.join("identity").exists());
    broker.stop().await;

    // A disk that has turned read-only (30: EROFS).
    let stopped = TestBroker::builder();
    stopped.disk().fail_create_after(0, 30);
    let refused = stopped.try_start().await;
    let why = refused
        .err()
        .expect("nothing can be made there")
        .to_string();
    assert!(
        why.contains("cannot be used") && why.contains("os error 30"),
        "{why}"
    );
}
