//! The end of a history: everything as it is when nothing is open any more.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidemark_histcheck::history::{Event, value_of};

use crate::readers::consumer;
use crate::shared::{CALL, GROUP, SOURCE, Shared, TOPICS, group_of};

/// Waits until nothing is open, for as long as patience lasts, reads everything in both ways, asks for the group's offsets.
///
/// # Errors
/// When the broker does not answer.
pub fn write_down(shared: &Shared) -> Result<()> {
    let committed = consumer(shared, "history-end", true)?;
    let raw = consumer(shared, "history-end", false)?;
    let deadline = Instant::now() + shared.patience;
    for (topic, partitions) in shared.topics() {
        for partition in 0..partitions {
            let (stable, end) = settled(&committed, &raw, &topic, partition, deadline)?;
            scan(shared, true, &topic, partition, stable)?;
            scan(shared, false, &topic, partition, end)?;
        }
    }
    group_offsets(shared, GROUP)?;
    for program in &shared.programs {
        group_offsets(shared, &group_of(program))?;
    }
    Ok(())
}

/// Log start and last stable offset, log start and high watermark: the same once nothing is open. What does not get
/// there in time is written down as it is, and the checker says so.
fn settled(
    committed: &BaseConsumer,
    raw: &BaseConsumer,
    topic: &str,
    partition: i32,
    deadline: Instant,
) -> Result<((i64, i64), (i64, i64))> {
    loop {
        let ends = committed
            .fetch_watermarks(topic, partition, CALL)
            .and_then(|stable| Ok((stable, raw.fetch_watermarks(topic, partition, CALL)?)));
        let late = Instant::now() > deadline;
        match ends {
            Ok((stable, end)) if stable == end || late => return Ok((stable, end)),
            Err(error) if late => bail!("{topic}-{partition}: {error}"),
            _ => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn scan(
    shared: &Shared,
    read_committed: bool,
    topic: &str,
    partition: i32,
    (start, end): (i64, i64),
) -> Result<()> {
    let consumer = consumer(shared, "history-end", read_committed)?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Beginning)?;
    consumer.assign(&list)?;
    let (deadline, mut records) = (Instant::now() + shared.patience, Vec::new());
    loop {
        match consumer.poll(Duration::from_secs(1)) {
            Some(Ok(message)) => records.push((
                message.offset(),
                value_of(message.payload().unwrap_or_default()).unwrap_or(0),
            )),
            Some(Err(KafkaError::PartitionEOF(_))) => break,
            other => {
                if let Some(Err(error)) = other {
                    shared.read_error("the final scan", &error);
                }
                if Instant::now() > deadline {
                    bail!("the final scan of {topic}-{partition} does not come to its end");
                }
            }
        }
    }
    shared.recorder.write(&Event::Scan {
        read_committed,
        topic: topic.to_owned(),
        partition,
        start,
        end,
        records,
    });
    Ok(())
}

fn group_offsets(shared: &Shared, group: &str) -> Result<()> {
    let consumer = consumer(shared, group, true)?;
    let mut list = TopicPartitionList::new();
    for (topic, partitions) in TOPICS {
        for partition in 0..partitions {
            if topic == SOURCE {
                list.add_partition(topic, partition);
            }
        }
    }
    let committed = consumer.committed_offsets(list, Duration::from_secs(30))?;
    for element in committed.elements() {
        shared.recorder.write(&Event::Committed {
            group: group.to_owned(),
            topic: element.topic().to_owned(),
            partition: element.partition(),
            offset: match element.offset() {
                Offset::Offset(offset) => offset,
                _ => -1,
            },
        });
    }
    Ok(())
}
