//! Checkpoints bound what a start replays: slots are recycled under load, and nothing is missed.

use std::path::Path;

use tidemark_disk::{Disk, SimDisk};
use tidemark_testkit::{
    Batch, DATA_DIR, Isolation, RawClient, StoppedBroker, TestBroker, TxnProducer, eventually,
    produced, requests,
};
use tidemark_types::ErrorCode;

use crate::snapshot::{Probes, Sent, take};

const SLOT_BYTES: u64 = 2 << 20;
const BUDGET_BYTES: u64 = 8 << 20;
/// Far more than the budget.
const WRITTEN_BYTES: usize = 40 << 20;
const VALUE_BYTES: usize = 60_000;

fn small_journal() -> StoppedBroker {
    TestBroker::builder()
        .set("journal.slot.bytes", SLOT_BYTES)
        .set("journal.budget.bytes", BUDGET_BYTES)
        .set("tail.bytes", 2 << 20)
}

fn journal_files(disk: &SimDisk) -> Vec<(String, u64)> {
    let dir = Path::new(DATA_DIR).join("journal");
    let files = disk.list(&dir).unwrap().into_iter();
    files
        .map(|file| {
            let len = disk.file_len(&dir.join(&file.name)).unwrap();
            (file.name, len)
        })
        .collect()
}

fn value(n: usize) -> Vec<u8> {
    let mut value = format!("{n}:").into_bytes();
    value.resize(VALUE_BYTES, b'a' + (n % 26) as u8);
    value
}

/// Every value in order, each once.
async fn read_everything(client: &mut RawClient, partition: i32, expected: usize) {
    let records = client
        .read_all("t", partition, Isolation::ReadCommitted)
        .await;
    assert_eq!(records.len(), expected);
    for (n, record) in records.iter().enumerate() {
        assert!(
            record.value == value(n),
            "record {n} of partition {partition} is another"
        );
    }
}

/// As [`read_everything`], the last few only.
async fn read_the_last(client: &mut RawClient, partition: i32, end: usize) {
    let mut at = end.saturating_sub(20);
    while at < end {
        let isolation = Isolation::ReadCommitted;
        let fetched = client.fetch("t", partition, at as i64, isolation).await;
        for record in fetched.committed() {
            assert!(
                record.value == value(record.offset as usize),
                "record {}",
                record.offset
            );
        }
        at = fetched.next_offset().expect("there is more") as usize;
    }
    assert_eq!(at, end);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_times_the_journal_is_written_read_from_the_start_and_replayed_within_the_budget() {
    let mut broker = small_journal().start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 2).await;
    client.create_topic("idle", 1).await;

    // What was there before the journal went round: a window, an open transaction, offsets.
    let idempotent = client.init_producer_id(None).await.unwrap();
    let mut probes = Probes {
        groups: vec!["g".to_owned(), "g-open".to_owned()],
        sent: Vec::new(),
    };
    for n in 0..6 {
        let batch = Batch::of(&[format!("old-{n}")])
            .producer(idempotent.0, idempotent.1, n)
            .build();
        client.produce("idle", 0, batch.clone()).await.unwrap();
        probes.sent.push(Sent {
            transactional: None,
            topic: "idle".to_owned(),
            partition: 0,
            batch,
        });
    }
    let mut open = TxnProducer::init(&mut client, "open").await;
    open.enrol(&mut client, &[("idle", 0)]).await.unwrap();
    open.send(&mut client, "idle", 0, &["open"]).await.unwrap();
    open.send_offsets(&mut client, "g-open", &[("idle", 0, 3)])
        .await
        .unwrap();
    client.commit_offsets("g", &[("idle", 0, 9)]).await.unwrap();

    let mut journal_bytes = 0;
    let mut producer = TxnProducer::init(&mut client, "writes").await;
    let rounds = WRITTEN_BYTES / VALUE_BYTES / 2;
    for n in 0..rounds {
        producer
            .enrol(&mut client, &[("t", 0), ("t", 1)])
            .await
            .unwrap();
        let batches: Vec<_> = (0..2)
            .map(|p| ("t", p, producer.batch("t", p, &[value(n)]).build()))
            .collect();
        let request = requests::produce(Some("writes"), batches);
        let answer = client.send(10, &request).await;
        assert!(produced(&answer).iter().all(Result::is_ok));
        producer.end(&mut client, true).await.unwrap();
        if n % 150 == 149 {
            // In the middle of it all.
            journal_bytes += broker.journal_stats().bytes;
            broker = broker.crash(n as u64).await.start().await;
            client = broker.client().await;
        }
    }
    journal_bytes += broker.journal_stats().bytes;
    assert!(journal_bytes > 4 * BUDGET_BYTES, "{journal_bytes}");
    let files = journal_files(broker.disk());
    let total: u64 = files.iter().map(|(_, len)| len).sum();
    assert!(
        total <= BUDGET_BYTES,
        "the journal keeps to its budget: {files:?}"
    );

    for partition in 0..2 {
        read_everything(&mut client, partition, rounds).await;
    }
    let before = take(&mut client, &probes).await;
    for crash in [true, false, true] {
        broker = match crash {
            true => broker.crash(77).await.start().await,
            false => broker.restart().await,
        };
        client = broker.client().await;
        for partition in 0..2 {
            read_everything(&mut client, partition, rounds).await;
        }
        assert!(
            take(&mut client, &probes).await == before,
            "the rebuilt state differs"
        );
    }
    assert_eq!(before.repeats[0], Err(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(before.repeats[1..], [Ok(1), Ok(2), Ok(3), Ok(4), Ok(5)]);
    open.end(&mut client, true).await.unwrap();
    let values = client
        .read_values("idle", 0, Isolation::ReadCommitted)
        .await;
    assert_eq!(values.last().map(String::as_str), Some("open"));
    assert_eq!(
        client.committed_offset("g-open", "idle", 0, true).await,
        Ok(3)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cuts_while_checkpoints_are_written_lose_nothing() {
    let mut broker = small_journal().seed(9).start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 2).await;
    let producer = client.init_producer_id(None).await.unwrap();
    // By partition: how many records are acknowledged, the sequence number of the next.
    let mut acked = [0_usize; 2];
    for cut in 0..17 {
        // Some steps into what a few megabytes bring about: slots, segments, checkpoints.
        broker.disk().cut_power_after(40 + 37 * cut);
        'work: loop {
            for (partition, acked) in (0..).zip(&mut acked) {
                let batch = Batch::of(&[value(*acked)])
                    .producer(producer.0, producer.1, *acked as i32)
                    .build();
                let request = requests::produce(None, [("t", partition, batch)]);
                let mut sent = client.start_request(10, &request).await;
                let disk = broker.disk().clone();
                eventually("an answer, or the end", || {
                    disk.is_powered_off() || sent.is_answered()
                })
                .await;
                if disk.is_powered_off() {
                    break 'work;
                }
                assert_eq!(produced(&sent.answer().await), [Ok(*acked as i64)]);
                *acked += 1;
            }
        }
        broker = broker.crash(cut).await.start().await;
        client = broker.client().await;
        let ends = client.ends("t", 2, Isolation::ReadCommitted).await;
        for (partition, (end, acked)) in (0..).zip(ends.iter().zip(acked)) {
            let end = *end as usize;
            // The one in flight may have been written; sent again it is a duplicate.
            assert!((acked..=acked + 1).contains(&end), "cut {cut}");
            match cut % 8 {
                0 => read_everything(&mut client, partition, end).await,
                _ => read_the_last(&mut client, partition, end).await,
            }
        }
    }
    assert!(acked[0] > 100, "too little was written: {acked:?}");
}
