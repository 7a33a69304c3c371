//! A compacted segment that is shorter than was synced: a disk has lost what it said it had.

use std::path::{Path, PathBuf};

use tidemark_disk::{Disk, OpenMode, SimDisk};
use tidemark_testkit::{DATA_DIR, TestBroker};

use crate::reader::{EAGER, batch, requests_time, roll};

/// `.log` and `.tickindex` of the segments that compaction has written.
fn compacted(disk: &SimDisk) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut dirs = vec![Path::new(DATA_DIR).join("partitions")];
    while let Some(dir) = dirs.pop() {
        for entry in disk.list(&dir).unwrap() {
            let path = dir.join(&entry.name);
            let is_ours = dir.to_str().unwrap().contains("/compacted-");
            match path.extension().and_then(|e| e.to_str()) {
                _ if entry.is_dir => dirs.push(path),
                Some("log" | "tickindex") if is_ours => {
                    let len = disk.file_len(&path).unwrap();
                    found.push((path, len));
                }
                _ => {}
            }
        }
    }
    found
}

/// What compaction leaves is in no journal, so a start cannot mend it: it refuses, with file, length and
/// what to do, and touches nothing. Only a copy has what is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a25_a_compacted_segment_that_is_short_is_refused_with_file_position_and_mend() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic_with("t", 1, &EAGER).await;
    for n in 0..200 {
        let (key, value) = (format!("{}", n % 20), format!("{n}"));
        let record = [(key.as_bytes(), Some(value.as_bytes()))];
        let plain = batch(requests_time(&broker), None, &record);
        client.produce("t", 0, plain).await.unwrap();
    }
    roll(&broker, &mut client, "t").await;
    broker.broker().compact().await;
    broker.broker().checkpoint().await;
    let stopped = broker.stop().await;
    let files = compacted(stopped.disk());
    assert!(files.len() >= 2, "{files:?}");
    for (path, len) in &files {
        for left in [0, len / 2, len - 1] {
            let damaged = stopped.clone().after_power_cut(left);
            let file = damaged.disk().open(path, OpenMode::ReadWrite).unwrap();
            file.set_len(left).unwrap();
            file.sync_data().unwrap();
            let disk = damaged.disk().clone();
            let Err(refused) = damaged.try_start().await else {
                panic!("{} of {left} bytes was taken for the whole", path.display());
            };
            let refused = refused.to_string();
            for said in [
                path.to_str().unwrap(),
                &format!("ends at position {left}"),
                &format!("{len} bytes of it were synced"),
                "what compaction has left",
                "restore the data directory from a copy",
                "tidemark check DIR --rebuild",
            ] {
                assert!(refused.contains(said), "{said:?} is not in {refused:?}");
            }
            assert_eq!(compacted(&disk).len(), files.len(), "nothing was touched");
        }
        // Without the file at all it is no different.
        let damaged = stopped.clone().after_power_cut(1);
        damaged.disk().remove_file(path).unwrap();
        damaged.disk().sync_dir(path.parent().unwrap()).unwrap();
        let refused = damaged.try_start().await.err().expect("a file is missing");
        assert!(
            refused.to_string().contains(path.to_str().unwrap()),
            "{refused}"
        );
    }
}
