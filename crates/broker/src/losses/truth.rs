//! What the journal says: a state of its own made from the durable records, and the log in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemark_config::Settings;
use tidemark_journal::Cluster;
use tidemark_owner::{Observation, Owner, Record, Watermarks};
use tidemark_record_batch::{BatchHeader, ControlType, DecompressLimits, parse_control, records};
use tidemark_types::{Tick, TopicPartitionId};

use crate::owner_thread::OwnerThread;
use crate::replay::owner_options;

use super::{PARTITIONS, topic_partition};

/// One value and where it stands.
#[derive(Clone, Debug)]
pub struct Entry {
    pub partition: i32,
    pub offset: i64,
    pub value: String,
    /// `None`: its transaction has not ended.
    pub committed: Option<bool>,
}

pub struct Truth {
    pub owner: Owner,
    followed: usize,
    /// After each record that touched the partition.
    watermarks: BTreeMap<TopicPartitionId, Vec<(Tick, Watermarks)>>,
    batches: BTreeMap<TopicPartitionId, Vec<bytes::Bytes>>,
}

impl Truth {
    pub fn new(settings: &Arc<Settings>) -> Truth {
        Truth {
            owner: Owner::new(owner_options(settings)),
            followed: 0,
            watermarks: BTreeMap::new(),
            batches: BTreeMap::new(),
        }
    }

    /// Applies what has become durable since.
    pub fn follow(&mut self, cluster: &Cluster) {
        for record in &cluster.records()[self.followed..] {
            let tick = record.tick;
            let record = Record::decode(record.index, tick, record.wall_ms, &record.payload);
            let record = record.expect("our own record");
            for observation in self.owner.replay(&record).expect("our own record") {
                match observation {
                    Observation::Appended(appended) => {
                        let batches = self.batches.entry(appended.partition).or_default();
                        batches.push(appended.batch);
                    }
                    Observation::Watermarks(w) => {
                        self.watermarks
                            .entry(w.partition)
                            .or_default()
                            .push((tick, w));
                    }
                    _ => {}
                }
            }
            self.followed += 1;
        }
    }

    /// What a reader of this broker sees is what was durable at its published tick: watermarks and
    /// bytes. So nothing that anybody saw ever goes.
    pub fn check_reader(&self, thread: &OwnerThread) {
        let tick = thread.published.tick();
        if self.owner.metadata().topic(super::TOPIC).is_none() {
            return;
        }
        for partition in 0..PARTITIONS {
            let id = topic_partition(self, partition);
            let Some(log) = thread.catalogue.log(id) else {
                continue;
            };
            let version = log.at(tick);
            let known = self.watermarks.get(&id).map_or(&[][..], Vec::as_slice);
            let at = known.partition_point(|(of, _)| *of <= tick);
            let (end, lso) = at.checked_sub(1).map_or((0, 0), |at| {
                (known[at].1.log_end_offset, known[at].1.last_stable_offset)
            });
            assert_eq!(version.log_end_offset, end, "{id} at {tick:?}");
            assert_eq!(version.last_stable_offset, lso, "{id} at {tick:?}");
            let read = log.read(0, end, usize::MAX, true).expect("it is in memory");
            let mut expected = Vec::new();
            for batch in self.batches.get(&id).into_iter().flatten() {
                let header = BatchHeader::parse(batch).expect("our own batch");
                if header.last_offset() < end {
                    expected.extend_from_slice(batch);
                }
            }
            assert!(
                read.chunks.concat() == expected,
                "{id}: other bytes at {tick:?}"
            );
        }
    }

    /// A broker that has heard everything has the state that the journal gives.
    pub fn check_state(&self, thread: &OwnerThread) {
        thread.owner.check().expect("what must hold");
        assert_eq!(self.owner.difference(&thread.owner), None, "P12");
        for partition in 0..PARTITIONS {
            let id = topic_partition(self, partition);
            let log = thread.catalogue.log(id).expect("it has a log");
            let (here, there) = (log.newest_version(), self.owner.partition(id).unwrap());
            assert_eq!(here.log_end_offset, there.log_end_offset);
            assert_eq!(here.leader_epoch, there.leader_epoch());
            assert_eq!(log.end_offset(), there.log_end_offset);
        }
    }

    /// Every value in the log.
    pub fn log(&self) -> Vec<Entry> {
        (0..PARTITIONS)
            .flat_map(|p| self.partition_log(p))
            .collect()
    }

    fn partition_log(&self, partition: i32) -> Vec<Entry> {
        let id = topic_partition(self, partition);
        let mut log: Vec<Entry> = Vec::new();
        let mut open: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for batch in self.batches.get(&id).into_iter().flatten() {
            let header = BatchHeader::parse(batch).expect("our own batch");
            let producer_id = header.producer_id.0;
            if header.attributes.is_control() {
                let (kind, _) = parse_control(batch).unwrap().expect("a marker");
                for at in open.remove(&producer_id).unwrap_or_default() {
                    log[at].committed = Some(kind == ControlType::Commit);
                }
                continue;
            }
            for record in records(batch, &DecompressLimits::default()).unwrap() {
                let record = record.unwrap();
                let value = record.value.as_deref().unwrap_or_default();
                let transactional = header.attributes.is_transactional();
                if transactional {
                    open.entry(producer_id).or_default().push(log.len());
                }
                log.push(Entry {
                    partition,
                    offset: header.base_offset + i64::from(record.offset_delta),
                    value: String::from_utf8(value.to_vec()).unwrap(),
                    committed: (!transactional).then_some(true),
                });
            }
        }
        assert!(open.is_empty(), "transactions that nobody ended: {open:?}");
        log
    }
}
