//! What readers see, from the batches that apply reported: a consumer's own rules, and none of the
//! broker's.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_abort_index::AbortIndex;
use tidemark_owner::{Appended, Observation, Watermarks};
use tidemark_record_batch::{ControlType, DecompressLimits, records};
use tidemark_types::TopicPartitionId;

#[derive(Default)]
pub(super) struct Logs {
    batches: BTreeMap<TopicPartitionId, Vec<Appended>>,
    aborted: BTreeMap<TopicPartitionId, AbortIndex>,
    watermarks: BTreeMap<TopicPartitionId, Watermarks>,
}

impl Logs {
    pub(super) fn observe(&mut self, observations: Vec<Observation>) {
        for observation in observations {
            match observation {
                Observation::Appended(appended) => {
                    if let Some(aborted) = appended.aborted {
                        self.aborted
                            .entry(appended.partition)
                            .or_default()
                            .push(aborted);
                    }
                    let log = self.batches.entry(appended.partition).or_default();
                    let end = log.last().map_or(0, |b| b.header.last_offset() + 1);
                    assert_eq!(appended.header.base_offset, end, "P2: one value per offset");
                    log.push(appended);
                }
                Observation::Watermarks(w) => {
                    if let Some(last) = self.watermarks.insert(w.partition, w) {
                        let rises = last.log_start_offset <= w.log_start_offset
                            && last.last_stable_offset <= w.last_stable_offset
                            && last.log_end_offset <= w.log_end_offset
                            && last.leader_epoch <= w.leader_epoch;
                        assert!(rises, "P9: {last:?} is followed by {w:?}");
                    }
                }
                // What becomes of topics is asked of the metadata.
                _ => {}
            }
        }
    }

    /// Where a consumer begins that asks for the earliest.
    fn log_start(&self, id: TopicPartitionId) -> i64 {
        self.watermarks.get(&id).map_or(0, |w| w.log_start_offset)
    }

    fn values(&self, batch: &Appended) -> Vec<String> {
        values_from(batch, self.log_start(batch.partition))
    }

    fn batches(&self, id: TopicPartitionId) -> &[Appended] {
        self.batches.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn read_uncommitted(&self, id: TopicPartitionId) -> Vec<String> {
        let data = self.batches(id).iter().filter(|b| !is_control(b));
        data.flat_map(|b| self.values(b)).collect()
    }

    /// As clients do it: a producer's batches are dropped from the first offset of its aborted
    /// transaction on, until its ABORT marker.
    pub(super) fn read_committed(
        &self,
        id: TopicPartitionId,
        last_stable_offset: i64,
    ) -> Vec<String> {
        let none = AbortIndex::new();
        let index = self.aborted.get(&id).unwrap_or(&none);
        let from = self.log_start(id);
        let mut list = index.lookup(from, last_stable_offset);
        list.sort_by_key(|txn| txn.first_offset);
        let mut list = list.into_iter().peekable();
        let mut dropping = BTreeSet::new();
        let mut seen = Vec::new();
        let read = self.batches(id).iter();
        for batch in read.skip_while(|b| b.header.last_offset() < from) {
            if batch.header.base_offset >= last_stable_offset {
                break;
            }
            while let Some(txn) = list.next_if(|txn| txn.first_offset <= batch.header.base_offset) {
                dropping.insert(txn.producer_id);
            }
            if is_control(batch) {
                if batch.control.is_some_and(|c| c.kind == ControlType::Abort) {
                    dropping.remove(&batch.header.producer_id);
                }
            } else if !batch.header.attributes.is_transactional()
                || !dropping.contains(&batch.header.producer_id)
            {
                seen.extend(self.values(batch));
            }
        }
        seen
    }

    /// What the markers say of the records below the last stable offset: a transactional record
    /// counts if its producer's next marker is a COMMIT. Another way to [`Logs::read_committed`].
    pub(super) fn settled(&self, id: TopicPartitionId, last_stable_offset: i64) -> Vec<String> {
        let batches = self.batches(id);
        let counts = |at: usize| {
            let header = &batches[at].header;
            let next_marker = || {
                let mut later = batches[at..].iter();
                later.find_map(|b| {
                    b.control
                        .filter(|_| b.header.producer_id == header.producer_id)
                })
            };
            !header.attributes.is_transactional()
                || next_marker().is_some_and(|c| c.kind == ControlType::Commit)
        };
        (0..batches.len())
            .filter(|&at| batches[at].header.base_offset < last_stable_offset)
            .filter(|&at| !is_control(&batches[at]) && counts(at))
            .flat_map(|at| self.values(&batches[at]))
            .collect()
    }

    pub(super) fn aborted(&self, id: TopicPartitionId) -> Vec<(i64, i64, i64)> {
        let entries = self.aborted.get(&id).map_or(&[][..], AbortIndex::entries);
        entries
            .iter()
            .map(|txn| (txn.producer_id.0, txn.first_offset, txn.last_offset))
            .collect()
    }

    pub(super) fn markers(&self, id: TopicPartitionId) -> Vec<(char, i16)> {
        let kind = |b: &Appended| match b.control.expect("a marker").kind {
            ControlType::Commit => 'C',
            ControlType::Abort => 'A',
        };
        let markers = self.batches(id).iter().filter(|b| is_control(b));
        markers
            .map(|b| (kind(b), b.header.producer_epoch.0))
            .collect()
    }
}

fn is_control(batch: &Appended) -> bool {
    batch.header.attributes.is_control()
}

/// The values of a batch from an offset on.
fn values_from(batch: &Appended, from: i64) -> Vec<String> {
    records(&batch.batch, &DecompressLimits::default())
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .expect("our own batch")
        .into_iter()
        .filter(|r| batch.header.base_offset + i64::from(r.offset_delta) >= from)
        .map(|r| String::from_utf8(r.value.unwrap_or_default().to_vec()).expect("text"))
        .collect()
}
