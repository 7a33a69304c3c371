//! A reader that shares no code with the broker says of the raw bytes what the broker serves.

mod world;

use tidemark_histcheck::{Inspection, MemoryFiles, Severity, batch_records, inspect, read};
use tidemark_testkit::{Isolation, RawClient, TestBroker, raw_bytes, requests};

use world::{GROUPS, PARTITIONS, World};

fn inspected(files: &MemoryFiles) -> Inspection {
    inspect(files, &mut |_| {})
}

/// Every partition, offset and group of the world, from the bytes and from the broker that started
/// on them.
async fn compare(files: &MemoryFiles, client: &mut RawClient, what: &str) {
    let data = read(files).unwrap_or_else(|faults| panic!("{what}: {faults:#?}"));
    for (topic, partition) in PARTITIONS {
        let at = format!("{what}: {topic}-{partition}");
        let found = data.partition(topic, partition).expect("a topic");
        let ends =
            |isolation| requests::list_offsets(topic, [partition], requests::LATEST, isolation);
        for (isolation, end) in [
            (Isolation::ReadUncommitted, found.log_end_offset),
            (Isolation::ReadCommitted, found.last_stable_offset),
        ] {
            let served = client.send(7, &ends(isolation)).await;
            assert_eq!(
                served.topics[0].partitions[0].offset, end,
                "{at}: {isolation:?}"
            );
        }
        let start = client
            .list_offset(
                topic,
                partition,
                requests::EARLIEST,
                Isolation::ReadUncommitted,
            )
            .await;
        assert_eq!(start, Ok(found.log_start_offset), "{at}");

        let mut raw = Vec::new();
        for batch in found.committed() {
            let records = batch_records(files, batch).expect("a batch").into_iter();
            for record in records.filter(|record| record.offset >= found.log_start_offset) {
                raw.push((record.offset, record.value.unwrap_or_default()));
            }
        }
        let served = client
            .read_all(topic, partition, Isolation::ReadCommitted)
            .await;
        let served: Vec<_> = (served.into_iter())
            .map(|record| (record.offset, record.value.to_vec()))
            .collect();
        assert!(
            raw == served,
            "{at}: {} records, served {}",
            raw.len(),
            served.len()
        );

        for from in [
            found.log_start_offset,
            found.log_end_offset / 3,
            found.log_end_offset / 2,
        ] {
            let fetched = client
                .fetch(topic, partition, from, Isolation::ReadCommitted)
                .await;
            let Some(upper) = fetched.next_offset() else {
                continue;
            };
            let upper = upper.min(found.last_stable_offset);
            if !found.complete {
                // The transactions at its beginning are known by half.
                continue;
            }
            let mut served = fetched.aborted.unwrap_or_default();
            served.sort_by_key(|(producer_id, first)| (*first, *producer_id));
            let first = fetched.batches[0].header.base_offset.max(from);
            assert_eq!(found.aborted_in(first, upper), served, "{at} from {from}");
        }
    }
    for group in GROUPS {
        for (topic, partition) in PARTITIONS {
            let key = tidemark_histcheck::OffsetKey {
                group: group.to_owned(),
                topic: topic.to_owned(),
                partition,
            };
            let raw = data
                .groups
                .offsets
                .get(&key)
                .map_or(-1, |offset| offset.offset);
            let served = client
                .committed_offset(group, topic, partition, false)
                .await;
            assert_eq!(served, Ok(raw), "{what}: {key:?}");
        }
    }
    assert!(data.metadata.topics.contains_key("t"), "{what}");
    assert!(!data.metadata.topics.contains_key("doomed"), "{what}");
    let ongoing = data.transactional_ids["open"].is_ongoing();
    assert!(ongoing, "{what}");
    assert_eq!(
        data.transactional_ids["commits"].state_name(),
        "CompleteCommit"
    );
    assert_eq!(
        data.transactional_ids["aborts"].state_name(),
        "CompleteAbort"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_raw_bytes_say_what_the_broker_serves() {
    let mut broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut world = World::new(&mut client).await;
    for round in 0..6_u64 {
        world.go_on(&mut client).await;
        let stopped = match round % 3 {
            // The journal alone, then a checkpoint of everything, then a checkpoint and a tail.
            0 => broker.crash(round).await,
            1 => broker.stop().await,
            _ => broker.crash(round).await,
        };
        let files = raw_bytes(stopped.disk());
        broker = stopped.start().await;
        client = broker.client().await;
        compare(&files, &mut client, &format!("round {round}")).await;
    }
    let stopped = broker.stop().await;
    let inspection = inspected(&raw_bytes(stopped.disk()));
    assert!(inspection.totals.segments > 3, "{:?}", inspection.totals);
    assert!(inspection.data.journal.clean_end);
    let sealed = raw_bytes(stopped.disk()).0.into_keys();
    assert!(sealed.filter(|file| file.ends_with(".timeindex")).count() > 1);
}

/// Flips one bit of a file and asks what is found.
fn with_a_flip(files: &MemoryFiles, file: &str, bit: usize) -> Inspection {
    let mut flipped = files.clone();
    let bytes = flipped.0.get_mut(file).expect("a file");
    bytes[bit / 8] ^= 1 << (bit % 8);
    inspected(&flipped)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_anywhere_that_matters_is_found_with_its_file() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let mut world = World::new(&mut client).await;
    world.go_on(&mut client).await;
    world.go_on(&mut client).await;
    let broker = broker.restart().await;
    let mut client = broker.client().await;
    // Two checkpoints, and the newest is followed by records.
    world.go_on(&mut client).await;
    let stopped = broker.crash(1).await;
    let files = raw_bytes(stopped.disk());
    let clean = inspected(&files);
    assert_eq!(clean.faults().count(), 0, "{:#?}", clean.findings);

    let newest = clean.data.generation.expect("a checkpoint");
    let journal_end = clean.data.journal.end.clone().expect("a journal");
    let (mut flips, mut files_flipped) = (0, 0);
    for (file, bytes) in &files.0 {
        let extent = match file.rsplit_once('.').map_or("", |(_, extension)| extension) {
            // The lock is empty and the identity a text for people.
            "" if !file.starts_with("checkpoints/") => continue,
            "slot" if *file != journal_end.0 => continue,
            "slot" => journal_end.1 as usize,
            _ => bytes.len(),
        };
        let is_log = file.ends_with(".log") || file.ends_with(".tickindex");
        let seed = file.len() * 7919;
        let tries = if extent == 0 { 0 } else { 24 };
        files_flipped += usize::from(tries > 0);
        for n in 0..tries {
            let bit = (seed + n * 104_729 * 8 + n) % (extent * 8);
            let position = bit / 8;
            // Base offset and leader epoch of a batch are outside of its CRC, in a `.log` they are
            // covered by the segment's; padding between the journal's frames is nobody's.
            if file.ends_with(".slot") && bytes[position] == 0 {
                continue;
            }
            if file.ends_with("cluster-id") {
                continue;
            }
            let found = with_a_flip(&files, file, bit);
            let named = found.findings.iter().any(|f| {
                f.severity != Severity::Note
                    && (f.file == *file || is_log && f.file.contains(&file[..60]))
            });
            let cut = file.ends_with(".slot") && found.data.journal.cut_bytes > 0;
            assert!(
                named || cut,
                "{file}: bit {bit} (byte {position} of {extent}): {:#?}",
                found.findings
            );
            flips += 1;
        }
    }
    assert!(
        flips > 300 && files_flipped > 10,
        "{flips} flips in {files_flipped} files"
    );
    assert!(newest >= 1);
}
