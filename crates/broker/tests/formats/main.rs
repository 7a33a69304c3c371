//! The formats on disk: what a release has written every later one reads, and what is newer is refused
//! with what to do.
//!
//! `fixtures/format-1` is a data directory as it was written, its journal's slots without the zeroes at
//! their end. When a format changes in place, before a release: make it anew with
//!
//! ```text
//! TIDEMARK_TEST_WRITE=1 cargo test -p tidemark-broker --test formats
//! ```
//!
//! From the first release on, a changed format is a new version, and a further fixture beside this.

mod fixture;
mod newer;

use tidemark_histcheck::{Severity, inspect};
use tidemark_testkit::{Isolation, TestBroker};

use fixture::{CONTENT, OFFSETS, load, stopped_with, write_if_asked};

/// Everything in the fixture, as clients see it.
async fn assert_content(broker: &TestBroker) {
    let mut client = broker.client().await;
    for (topic, partition, committed, all) in CONTENT {
        let values = client
            .read_values(topic, partition, Isolation::ReadCommitted)
            .await;
        assert_eq!(values, committed, "{topic}-{partition}, read_committed");
        let values = client
            .read_values(topic, partition, Isolation::ReadUncommitted)
            .await;
        assert_eq!(values, all, "{topic}-{partition}");
    }
    for (group, topic, partition, offset) in OFFSETS {
        let served = client
            .committed_offset(group, topic, partition, false)
            .await;
        assert_eq!(served, Ok(offset), "{group} {topic}-{partition}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_directory_of_format_1_opens_and_says_what_it_said() {
    write_if_asked().await;
    let files = load();
    let inspection = inspect(&files, &mut |_| {});
    let faults = inspection.faults().collect::<Vec<_>>();
    assert!(faults.is_empty(), "{faults:#?}");
    let broker = stopped_with(&files).start().await;
    assert_content(&broker).await;
    let mut client = broker.client().await;
    // It goes on: the transaction that was open ends, windows know what was sent.
    let (id, epoch) = fixture::open_transaction(&files);
    assert_eq!(client.end_txn("open", (id, epoch), true).await, Ok(()));
    let values = client
        .read_values("orders", 1, Isolation::ReadCommitted)
        .await;
    assert_eq!(values.last().map(String::as_str), Some("open"));
    let repeat = client.produce("orders", 0, fixture::repeat(&files)).await;
    assert_eq!(repeat, Ok(fixture::REPEATED_AT));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_directory_is_copied_and_started_elsewhere() {
    write_if_asked().await;
    let temp = tempfile::tempdir().expect("a directory");
    let (first, second) = (temp.path().join("first"), temp.path().join("second"));
    fixture::unpack(&load(), &first);
    let broker = TestBroker::builder().on_os_disk(&first).start().await;
    let cluster = broker.client().await.cluster_id().await;
    broker.stop().await;
    fixture::copy(&first, &second);
    let broker = TestBroker::builder().on_os_disk(&second).start().await;
    assert_content(&broker).await;
    assert_eq!(broker.client().await.cluster_id().await, cluster);
    broker.stop().await;
}

/// Every kind of file with a version that does not exist yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_of_a_newer_format_is_refused_with_what_to_do() {
    write_if_asked().await;
    let files = load();
    for newer in newer::all(&files) {
        let refused = stopped_with(&newer.files).try_start().await.err();
        let Some(refused) = refused else {
            panic!("{}: a broker starts on it", newer.what);
        };
        let text = refused.to_string();
        assert!(
            newer::says_what_to_do(&text),
            "{}: {text:?} does not say what to do",
            newer.what
        );
        let inspection = inspect(&newer.files, &mut |_| {});
        let told = inspection
            .findings
            .iter()
            .any(|finding| finding.severity == Severity::Newer && finding.file == newer.file);
        assert!(told, "{}: {:#?}", newer.what, inspection.findings);
    }
}
