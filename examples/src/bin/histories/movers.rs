//! Movers: read, write a record for each that was read, and move the group's offset, in one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::Rng;
use rand::rngs::StdRng;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::Producer;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidemark_examples::transaction::{decided, wait_for_deliveries};
use tidemark_histcheck::history::Event;

use crate::producers::{Ended, Meaning, Sender, partition_of};
use crate::readers::{consumer, poll};
use crate::recorder::{error_name, now};
use crate::shared::{CALL, GROUP, SOURCE, Shared, TARGET, TOPICS};

/// The transactional id of a mover.
pub fn id(index: usize) -> String {
    format!("mover-{index}")
}

/// Moves what comes in the source's partitions `index`, `index + of` and so on.
pub fn run(shared: &Arc<Shared>, index: usize, of: usize, mut random: StdRng) -> Result<()> {
    let id = id(index);
    let all = TOPICS.iter().find(|(name, _)| *name == SOURCE);
    let partitions: Vec<i32> = (0..all.map_or(0, |(_, partitions)| *partitions))
        .filter(|partition| *partition as usize % of == index)
        .collect();
    for instance in 1.. {
        let sender = Sender::transactional(shared, format!("{id}.{instance}"), &id, 60_000)?;
        let consumer = consumer(shared, GROUP, true)?;
        let mut places = begin_again(shared, &consumer, &sender.name, &partitions)?;
        loop {
            // Before it stops it moves everything that is there, unless there is always more.
            let batch = poll(
                shared,
                &consumer,
                &sender.name,
                true,
                40,
                Duration::from_millis(100),
            );
            if batch.is_empty() {
                if !shared.writing() {
                    return Ok(());
                }
                continue;
            }
            match one(shared, &sender, &consumer, &batch, &mut places, &mut random)? {
                Ended::Committed => {}
                Ended::Aborted => {
                    places = begin_again(shared, &consumer, &sender.name, &partitions)?;
                }
                Ended::Gone => break,
            }
        }
    }
    Ok(())
}

/// Sets the consumer to the group's offsets.
fn begin_again(
    shared: &Shared,
    consumer: &BaseConsumer,
    client: &str,
    partitions: &[i32],
) -> Result<BTreeMap<i32, i64>> {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        list.add_partition(SOURCE, *partition);
    }
    let since = Instant::now();
    let committed = loop {
        match consumer.committed_offsets(list.clone(), CALL) {
            Ok(committed) if committed.elements().iter().all(|e| e.error().is_ok()) => {
                break committed;
            }
            other if since.elapsed() > shared.patience => {
                bail!("{client}: the group's offsets cannot be had: {other:?}")
            }
            _ => thread::sleep(Duration::from_millis(50)),
        }
    };
    let mut places = BTreeMap::new();
    let mut assignment = TopicPartitionList::new();
    for element in committed.elements() {
        let offset = match element.offset() {
            Offset::Offset(offset) => offset,
            _ => 0,
        };
        places.insert(element.partition(), offset);
        assignment.add_partition_offset(SOURCE, element.partition(), Offset::Offset(offset))?;
    }
    shared.recorder.write(&Event::Assign {
        at: now(),
        client: client.to_owned(),
    });
    consumer.assign(&assignment)?;
    Ok(places)
}

fn one(
    shared: &Shared,
    sender: &Sender,
    consumer: &BaseConsumer,
    batch: &[(String, i32, i64, u64)],
    places: &mut BTreeMap<i32, i64>,
    random: &mut StdRng,
) -> Result<Ended> {
    let txn = sender.begin()?;
    let mut failed = None;
    for (_, _, _, value) in batch {
        let meaning = Meaning {
            input: Some(*value),
            ..Meaning::default()
        };
        let partition = partition_of(TARGET, random);
        let padding = random.random_range(0..100);
        if let Err(error) = sender.send(Some(txn), TARGET, partition, meaning, padding) {
            failed = Some(error);
            break;
        }
    }
    let mut moved = places.clone();
    for (_, partition, offset, _) in batch {
        moved.insert(*partition, offset + 1);
    }
    if failed.is_none() {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in &moved {
            list.add_partition_offset(SOURCE, *partition, Offset::Offset(*offset))?;
        }
        let group = consumer.group_metadata().context("no group metadata")?;
        let from = now();
        let result = decided(shared.patience, || {
            sender
                .producer
                .send_offsets_to_transaction(&list, &group, CALL)
        });
        let positions = moved.iter().map(|(p, o)| (SOURCE.to_owned(), *p, *o));
        shared.recorder.write(&Event::Offsets {
            from,
            to: now(),
            client: sender.name.clone(),
            txn,
            group: GROUP.to_owned(),
            positions: positions.collect(),
            error: result.as_ref().err().map(error_name),
        });
        failed = result.err();
    }
    if failed.is_none() && random.random_ratio(1, 60) {
        wait_for_deliveries(
            &sender.producer,
            Duration::from_millis(random.random_range(0..100)),
        );
        return Ok(sender.gone());
    }
    let commit = !random.random_ratio(1, 12);
    let ended = sender.finish(txn, failed, commit);
    if ended == Ended::Committed {
        *places = moved;
    }
    Ok(ended)
}
