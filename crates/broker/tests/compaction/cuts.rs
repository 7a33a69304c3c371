//! P11: power cuts while segments are replaced take nothing away.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_testkit::{Isolation, RawClient, TestBroker, TxnProducer};

use crate::reader::{EAGER, Seen, batch, inspected, last_values, read, requests_time, roll};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// In the open transaction of this writer.
    Open(usize),
    Committed,
    Aborted,
}

/// Every record that was acknowledged, by its offset.
#[derive(Default)]
struct Ledger(BTreeMap<i64, (Bytes, Option<Bytes>, Fate)>);

impl Ledger {
    fn end(&mut self, writer: usize, fate: Fate) {
        for (_, _, known) in self.0.values_mut() {
            if *known == Fate::Open(writer) {
                *known = fate;
            }
        }
    }

    /// What a read_committed reader must find last of each key, and what it may find at all.
    fn check(&self, seen: &[Seen], what: &str) {
        let open = self
            .0
            .iter()
            .find(|(_, (_, _, fate))| matches!(fate, Fate::Open(_)));
        let stable = open.map_or(i64::MAX, |(offset, _)| *offset);
        let mut values = BTreeMap::new();
        for (key, value, fate) in self.0.range(..stable).map(|(_, record)| record) {
            match value {
                _ if *fate == Fate::Aborted => {}
                None => drop(values.remove(key)),
                Some(value) => drop(values.insert(key.clone(), value.clone())),
            }
        }
        assert_eq!(last_values(seen), values, "{what}");
        for record in seen {
            let known = self.0.get(&record.offset);
            let (key, value, fate) = known.unwrap_or_else(|| panic!("{what}: {record:?}"));
            assert_eq!((key, value), (&record.key, &record.value), "{what}");
            assert_eq!(*fate, Fate::Committed, "{what}: {record:?}");
        }
    }
}

struct Writer {
    session: TxnProducer,
    sequence: i32,
    is_open: bool,
}

impl Writer {
    async fn end(&mut self, client: &mut RawClient, commit: bool) {
        self.session.end(client, commit).await.expect("it is open");
        self.is_open = false;
    }
}

/// A few transactions, some left open, and plain records; all acknowledged.
async fn write(
    client: &mut RawClient,
    rng: &mut StdRng,
    writers: &mut [Writer],
    ledger: &mut Ledger,
    now_ms: i64,
) {
    for _ in 0..rng.random_range(5..25) {
        let key = Bytes::from(vec![b'a' + rng.random_range(0..8)]);
        let value = Bytes::from(format!("{}", rng.random::<u32>()));
        let value = rng.random_bool(0.8).then_some(value);
        let record = [(&key[..], value.as_deref())];
        let n = rng.random_range(0..=writers.len());
        let Some(writer) = writers.get_mut(n) else {
            let plain = client.produce("t", 0, batch(now_ms, None, &record)).await;
            let offset = plain.expect("a plain record is taken");
            ledger.0.insert(offset, (key, value, Fate::Committed));
            continue;
        };
        if !writer.is_open {
            let enrolled = writer.session.enrol(client, &[("t", 0)]).await;
            enrolled.expect("a transaction begins");
            writer.is_open = true;
        }
        let (id, epoch) = writer.session.producer();
        let bytes = batch(now_ms, Some((id, epoch, writer.sequence, true)), &record);
        let name = writer.session.id.clone();
        let offset = client.produce_in(&name, "t", 0, bytes).await;
        let offset = offset.expect("a record in a transaction is taken");
        writer.sequence += 1;
        ledger.0.insert(offset, (key, value, Fate::Open(n)));
        if rng.random_bool(0.4) {
            let commit = rng.random_bool(0.5);
            writer.end(client, commit).await;
            let fate = if commit {
                Fate::Committed
            } else {
                Fate::Aborted
            };
            ledger.end(n, fate);
        }
    }
}

/// Returns how many runs came to their end and how much they removed.
async fn live(seed: u64, cuts: u64) -> (u64, u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut broker = TestBroker::builder().seed(seed).start().await;
    let mut client = broker.client().await;
    let mut configs = EAGER.to_vec();
    configs.push(("delete.retention.ms", "5"));
    client.create_topic_with("t", 1, &configs).await;
    let (mut writers, mut ledger) = (Vec::new(), Ledger::default());
    for n in 0..3 {
        writers.push(Writer {
            session: TxnProducer::init(&mut client, &format!("tx-{n}")).await,
            sequence: 0,
            is_open: false,
        });
    }
    let (mut runs, mut removed) = (0, 0);
    for cut in 0..cuts {
        let what = format!("seed {seed}, cut {cut}");
        for _ in 0..rng.random_range(1..3) {
            let now_ms = requests_time(&broker);
            write(&mut client, &mut rng, &mut writers, &mut ledger, now_ms).await;
            for (n, writer) in writers.iter_mut().enumerate() {
                if writer.is_open && rng.random_bool(0.7) {
                    writer.end(&mut client, false).await;
                    ledger.end(n, Fate::Aborted);
                }
            }
            roll(&broker, &mut client, "t").await;
        }
        // The power goes in the middle of compaction, of the checkpoints that follow, or of nothing.
        let bits = rng.random_range(3..11);
        let steps = rng.random_range(1..1_u64 << bits);
        broker.disk().cut_power_after(steps);
        for _ in 0..3 {
            if !broker.disk().is_powered_off() {
                broker.broker().compact().await;
                broker.clock().advance_ms(3);
            }
            if !broker.disk().is_powered_off() {
                broker.broker().checkpoint().await;
            }
        }
        let stats = broker.broker().compaction();
        runs += stats.runs;
        removed += stats.records_removed + stats.markers_removed;
        let stopped = broker.crash(rng.random()).await;
        inspected(&stopped);
        broker = match stopped.try_start().await {
            Ok(broker) => broker,
            Err(e) => panic!("{what}: the broker does not start: {e}"),
        };
        client = broker.client().await;
        let (seen, _) = read(&mut client, "t", Isolation::ReadCommitted).await;
        ledger.check(&seen, &what);
    }
    // The transactions that were open through it all go on.
    for (n, writer) in writers.iter_mut().enumerate() {
        if writer.is_open {
            writer.end(&mut client, true).await;
            ledger.end(n, Fate::Committed);
        }
    }
    let (seen, _) = read(&mut client, "t", Isolation::ReadCommitted).await;
    ledger.check(&seen, &format!("seed {seed}, in the end"));
    inspected(&broker.stop().await);
    (runs, removed)
}

/// Readers are told the same but for what was superseded, through power cuts at any step of compaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_power_cuts_during_compaction_change_nothing_that_is_delivered() {
    let (mut runs, mut removed) = (0, 0);
    for seed in 0..8 {
        let (finished, gone) = live(seed, 6).await;
        runs += finished;
        removed += gone;
    }
    assert!(runs > 10 && removed > 100, "{runs} runs, {removed} removed");
}
