//! Readers and those who ask for watermarks.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::Rng;
use rand::rngs::StdRng;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidemark_histcheck::history::{Event, Seen, value_of};

use crate::recorder::now;
use crate::shared::Shared;

/// A consumer that is told what to read.
///
/// # Errors
/// When librdkafka refuses the settings.
pub fn consumer(shared: &Shared, group: &str, read_committed: bool) -> Result<BaseConsumer> {
    let isolation = match read_committed {
        true => "read_committed",
        false => "read_uncommitted",
    };
    let consumer: BaseConsumer = shared
        .config()
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("isolation.level", isolation)
        .set("fetch.wait.max.ms", "100")
        // Nobody takes records away: an offset that is out of range is one that the broker should have.
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        .create()?;
    Ok(consumer)
}

/// Takes what is there, at most `most` records, and writes it down. A payload that is none of ours has value 0, which
/// nobody sends.
pub fn poll(
    shared: &Shared,
    consumer: &BaseConsumer,
    client: &str,
    read_committed: bool,
    most: usize,
    wait: Duration,
) -> Vec<Seen> {
    let (from, since, mut seen) = (now(), Instant::now(), Vec::new());
    while seen.len() < most {
        let left = match seen.is_empty() {
            true => wait.saturating_sub(since.elapsed()),
            false => Duration::ZERO,
        };
        match consumer.poll(left) {
            Some(Ok(message)) => seen.push((
                message.topic().to_owned(),
                message.partition(),
                message.offset(),
                value_of(message.payload().unwrap_or_default()).unwrap_or(0),
            )),
            // Ends of partitions and lost connections come in between.
            Some(Err(error)) => {
                if !matches!(error, KafkaError::PartitionEOF(_)) {
                    shared.read_error(client, &error);
                }
                if since.elapsed() >= wait {
                    break;
                }
            }
            None => break,
        }
    }
    if !seen.is_empty() {
        shared.recorder.write(&Event::Poll {
            from,
            to: now(),
            client: client.to_owned(),
            read_committed,
            records: seen.clone(),
        });
    }
    seen
}

/// Follows all partitions. A restless one begins anew every few seconds, somewhere in what it has read.
///
/// # Errors
/// When librdkafka refuses something that has nothing to do with the broker.
pub fn follow(
    shared: &Shared,
    index: usize,
    read_committed: bool,
    restless: bool,
    mut random: StdRng,
) -> Result<()> {
    let level = if read_committed {
        "committed"
    } else {
        "uncommitted"
    };
    let name = format!("reader-{level}-{index}");
    shared.introduce(&name, None, None);
    let mut furthest: BTreeMap<(String, i32), i64> = BTreeMap::new();
    while shared.reading() {
        let consumer = consumer(shared, "history-readers", read_committed)?;
        let mut list = TopicPartitionList::new();
        for (topic, partitions) in shared.topics() {
            for partition in 0..partitions {
                let upto = furthest.get(&(topic.clone(), partition)).copied();
                let begin = upto.map_or(0, |upto| upto - random.random_range(0..=upto.min(300)));
                list.add_partition_offset(&topic, partition, Offset::Offset(begin))?;
            }
        }
        shared.recorder.write(&Event::Assign {
            at: now(),
            client: name.clone(),
        });
        consumer.assign(&list)?;
        let since = Instant::now();
        while shared.reading() && !(restless && since.elapsed() > Duration::from_secs(4)) {
            let wait = Duration::from_millis(100);
            for (topic, partition, offset, _) in
                poll(shared, &consumer, &name, read_committed, 500, wait)
            {
                let upto = furthest.entry((topic, partition)).or_insert(0);
                *upto = (*upto).max(offset);
            }
        }
    }
    Ok(())
}

/// Asks for watermarks, of one partition after the other.
///
/// # Errors
/// When librdkafka refuses the settings.
pub fn watch(shared: &Shared, mut random: StdRng) -> Result<()> {
    let name = "watcher";
    shared.introduce(name, None, None);
    let consumers = [
        (true, consumer(shared, "history-watchers", true)?),
        (false, consumer(shared, "history-watchers", false)?),
    ];
    let topics = shared.topics();
    while shared.reading() {
        let (topic, partitions) = &topics[random.random_range(0..topics.len())];
        let partition = random.random_range(0..*partitions);
        for (read_committed, consumer) in &consumers {
            let from = now();
            let answer = consumer.fetch_watermarks(topic, partition, Duration::from_secs(2));
            match answer {
                Ok((start, end)) => shared.recorder.write(&Event::Watermarks {
                    from,
                    to: now(),
                    client: name.to_owned(),
                    read_committed: *read_committed,
                    topic: topic.clone(),
                    partition,
                    start,
                    end,
                }),
                Err(error) => shared.read_error(name, &error),
            }
        }
        thread::sleep(Duration::from_millis(random.random_range(5..40)));
    }
    Ok(())
}
