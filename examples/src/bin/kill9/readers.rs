//! Readers of both isolation levels, and where logs begin and end.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidemark_examples::ledger::Reads;

use crate::{CALL, EXPIRING, PARTITIONS, PATIENCE, Shared, TOPICS};

pub(super) fn consumer(shared: &Shared, isolation: &str, reset: &str) -> Result<BaseConsumer> {
    let consumer = shared
        .config()
        .set("group.id", "kill9-reader")
        .set("enable.auto.commit", "false")
        .set("isolation.level", isolation)
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", reset)
        .set("fetch.wait.max.ms", "100")
        .create()?;
    Ok(consumer)
}

/// Reads all topics from their begin. In `EXPIRING` retention may have taken what is asked for; in
/// every other topic it is an error that the log does not begin at 0, or ends too early.
struct Reader {
    expiring: BaseConsumer,
    others: BaseConsumer,
    /// Whose turn it is.
    turn: Cell<bool>,
}

impl Reader {
    fn new(shared: &Shared, isolation: &str) -> Result<Reader> {
        let (mut expiring, mut others) = (TopicPartitionList::new(), TopicPartitionList::new());
        for topic in TOPICS {
            for partition in 0..PARTITIONS {
                if topic == EXPIRING {
                    expiring.add_partition_offset(topic, partition, Offset::Beginning)?;
                } else {
                    others.add_partition_offset(topic, partition, Offset::Offset(0))?;
                }
            }
        }
        let reader = Reader {
            expiring: consumer(shared, isolation, "earliest")?,
            others: consumer(shared, isolation, "error")?,
            turn: Cell::new(false),
        };
        reader.expiring.assign(&expiring)?;
        reader.others.assign(&others)?;
        Ok(reader)
    }

    /// What came next, or came within a moment. Most errors are those of a broker that was killed, and pass.
    ///
    /// Errors: a topic whose records nobody takes away did not have the offset that was asked for.
    fn poll(&self) -> Result<Option<Result<BorrowedMessage<'_>, KafkaError>>> {
        let turn = self.turn.replace(!self.turn.get());
        let (first, second) = match turn {
            true => (&self.expiring, &self.others),
            false => (&self.others, &self.expiring),
        };
        // Who has nothing is waited for only when the other has nothing either.
        let next = first
            .poll(Duration::ZERO)
            .or_else(|| second.poll(Duration::ZERO))
            .or_else(|| first.poll(Duration::from_millis(10)));
        match next {
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset))) => {
                bail!("a partition that keeps everything does not have the offset asked for")
            }
            came => Ok(came),
        }
    }
}

/// The record's number; readers fail on a payload that none of us wrote.
fn number_in(payload: Option<&[u8]>) -> Result<usize> {
    let text = std::str::from_utf8(payload.unwrap_or_default()).context("payload is not text")?;
    text.split(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .with_context(|| format!("payload {text:?}"))
}

/// Follows all partitions. The second reader begins anew every few seconds: it must find the same again.
pub(super) fn follow(shared: &Shared, reader_index: usize) -> Result<()> {
    while !shared.stop_reading.load(Ordering::Relaxed) {
        let reader = Reader::new(shared, "read_committed")?;
        let (started, mut positions) = (Instant::now(), BTreeMap::new());
        while !shared.stop_reading.load(Ordering::Relaxed) {
            if reader_index > 0 && started.elapsed() > Duration::from_secs(4) {
                break;
            }
            let Some(Ok(message)) = reader.poll()? else {
                continue;
            };
            let (topic, partition, offset) =
                (message.topic(), message.partition(), message.offset());
            let id = number_in(message.payload())?;
            let last = positions.insert((topic.to_owned(), partition), offset);
            if last.is_some_and(|last| last >= offset) {
                shared.complain(format!(
                    "reader {reader_index}: {topic}-{partition} went from {last:?} back to {offset}"
                ));
            }
            shared
                .live
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .saw(topic, partition, offset, id);
        }
    }
    Ok(())
}

/// Asks where the partitions begin: a log start that was told does not go back.
pub(super) fn watch_log_starts(shared: &Shared) -> Result<()> {
    let consumer = consumer(shared, "read_committed", "error")?;
    while !shared.stop_reading.load(Ordering::Relaxed) {
        for partition in 0..PARTITIONS {
            // Most errors are those of a broker that was killed.
            if let Ok((start, _)) = consumer.fetch_watermarks(EXPIRING, partition, CALL) {
                see_log_start(shared, partition, start);
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn see_log_start(shared: &Shared, partition: i32, start: i64) {
    let mut starts = (shared.log_starts.lock()).unwrap_or_else(PoisonError::into_inner);
    let told = starts.insert(partition, start).unwrap_or(0);
    if start < told {
        shared.complain(format!(
            "{EXPIRING}-{partition} began at {told} and begins at {start} now"
        ));
    }
}

/// Where the partitions begin; with it what is left of each, in offsets.
pub(super) fn log_starts(shared: &Shared) -> Result<BTreeMap<i32, (i64, i64)>> {
    let consumer = consumer(shared, "read_uncommitted", "error")?;
    let mut starts = BTreeMap::new();
    for partition in 0..PARTITIONS {
        let (start, end) = consumer
            .fetch_watermarks(EXPIRING, partition, PATIENCE)
            .context("the log start of a broker that nobody kills")?;
        see_log_start(shared, partition, start);
        starts.insert(partition, (start, end - start));
    }
    Ok(starts)
}

/// Reads everything up to the ends of all partitions.
pub(super) fn scan(shared: &Shared, isolation: &str) -> Result<Reads> {
    let reader = Reader::new(shared, isolation)?;
    let (mut reads, mut left) = (Reads::default(), TOPICS.len() as i32 * PARTITIONS);
    let deadline = Instant::now() + PATIENCE;
    while left > 0 {
        match reader.poll()? {
            Some(Ok(message)) => {
                reads.saw(
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    number_in(message.payload())?,
                );
            }
            Some(Err(KafkaError::PartitionEOF(_))) => left -= 1,
            _ if Instant::now() > deadline => {
                bail!("the {isolation} scan does not come to its end")
            }
            _ => {}
        }
    }
    Ok(reads)
}

/// Until the last stable offset of every partition is its end: no transaction is open any more.
pub(super) fn wait_until_settled(shared: &Shared) -> Result<()> {
    let committed = consumer(shared, "read_committed", "error")?;
    let raw = consumer(shared, "read_uncommitted", "error")?;
    let deadline = Instant::now() + Duration::from_secs(30);
    for topic in TOPICS {
        for partition in 0..PARTITIONS {
            loop {
                let ends = committed
                    .fetch_watermarks(topic, partition, CALL)
                    .and_then(|stable| {
                        Ok((stable.1, raw.fetch_watermarks(topic, partition, CALL)?.1))
                    });
                match ends {
                    Ok((stable, end)) if stable == end => break,
                    _ if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
                    other => {
                        bail!("{topic}-{partition}: a transaction hangs, or no answer: {other:?}")
                    }
                }
            }
        }
    }
    Ok(())
}
