//! A history's topics as the stopped broker's directory has them, read by this crate's own reader.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::data_dir::{DataDir, batch_records};
use crate::files::Files;
use crate::partition::Partition;

/// What a directory says of a history's topics.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LogView {
    pub partitions: BTreeMap<(String, i32), LogPartition>,
    /// By group, topic and partition.
    pub group_offsets: BTreeMap<(String, String, i32), i64>,
    /// Transactional ids whose transaction is not ended.
    pub ongoing: Vec<String>,
}

/// A partition of a history's topic.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LogPartition {
    pub start: i64,
    pub end: i64,
    pub last_stable_offset: i64,
    /// By offset.
    pub records: Vec<LogRecord>,
}

/// A record of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRecord {
    pub offset: i64,
    pub value: u64,
    /// The tick from which on a read_committed reader gets it; `None`: never.
    pub visible_at: Option<u64>,
}

/// The value that a record carries: digits up to the first space.
pub fn value_of(payload: &[u8]) -> Option<u64> {
    let digits = payload.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl LogView {
    /// Takes the partitions of `topics` from a directory that was read.
    ///
    /// Errors: a batch that cannot be read, a record that carries no value.
    pub fn new(
        files: &dyn Files,
        data: &DataDir,
        topics: &BTreeSet<String>,
    ) -> Result<LogView, String> {
        let mut view = LogView::default();
        for topic in topics {
            let partitions = data.metadata.topics.get(topic).map_or(0, |t| t.partitions);
            for partition in 0..partitions {
                let log = data
                    .partition(topic, partition)
                    .ok_or_else(|| format!("{topic}-{partition} is not in the directory"))?;
                let read = LogPartition::new(files, log)
                    .map_err(|what| format!("{topic}-{partition}: {what}"))?;
                view.partitions.insert((topic.clone(), partition), read);
            }
        }
        for (key, committed) in &data.groups.offsets {
            let key = (key.group.clone(), key.topic.clone(), key.partition);
            view.group_offsets.insert(key, committed.offset);
        }
        let ids = data.transactional_ids.iter();
        view.ongoing = ids
            .filter(|(_, id)| id.is_ongoing())
            .map(|(name, _)| name.clone())
            .collect();
        Ok(view)
    }
}

impl LogPartition {
    fn new(files: &dyn Files, log: &Partition) -> Result<LogPartition, String> {
        let mut records: Vec<LogRecord> = Vec::new();
        // Of each producer id the records whose marker has not come.
        let mut waiting: HashMap<i64, Vec<usize>> = HashMap::new();
        for batch in &log.batches {
            let header = &batch.header;
            if let Some(marker) = batch.marker {
                for at in waiting.remove(&header.producer_id).unwrap_or_default() {
                    records[at].visible_at = marker.commit.then_some(batch.tick);
                }
                continue;
            }
            if header.is_control() {
                continue;
            }
            for record in batch_records(files, batch)? {
                let payload = record.value.as_deref().unwrap_or_default();
                let value = value_of(payload)
                    .ok_or_else(|| format!("offset {}: no value of a history", record.offset))?;
                if record.offset < log.log_start_offset {
                    continue;
                }
                let transactional = header.is_transactional();
                if transactional {
                    let waiting = waiting.entry(header.producer_id).or_default();
                    waiting.push(records.len());
                }
                records.push(LogRecord {
                    offset: record.offset,
                    value,
                    visible_at: (!transactional).then_some(batch.tick),
                });
            }
        }
        Ok(LogPartition {
            start: log.log_start_offset,
            end: log.log_end_offset,
            last_stable_offset: log.last_stable_offset,
            records,
        })
    }
}
