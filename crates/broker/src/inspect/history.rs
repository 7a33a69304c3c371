//! The past of transactional ids: a look-up view, folded from the `__transaction_state` log.
//!
//! For each of its partitions the view keeps how far it has read, in the same batch as the entries
//! made from it. So it may be deleted, or come back older than it was: it goes on where it stands.
//! Nothing waits for it but the person who asks.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemark_node_store::{Batch, KvStore, StoreError};
use tidemark_partition_log::PartitionLog;
use tidemark_record_batch::{DecompressLimits, batches, records};
use tidemark_txn_coordinator::{Dialect, EndedBy, TxnMeta, TxnState, decode_key, decode_value};
use tidemark_types::ProducerId;

use super::reports::ChangeReport;

/// Changes kept per id.
const KEPT: usize = 256;
/// Partitions of a transaction that are kept by name.
const NAMED: usize = 32;
/// Bytes of the log that are folded at a time.
const READ_BYTES: usize = 1 << 20;
/// Of the coordinator's own batches: not compressed.
const LIMITS: DecompressLimits = DecompressLimits {
    ratio: 1,
    floor_bytes: 0,
    max_bytes: 64 << 20,
};

/// The view over a store.
pub(crate) struct TxnHistory {
    store: Box<dyn KvStore>,
}

/// One change as it is stored. `v` is the format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    v: u8,
    at_ms: i64,
    /// `None`: the id was forgotten.
    state: Option<i8>,
    producer_id: i64,
    epoch: i16,
    number: u64,
    ended_by: i8,
    version_2: bool,
    partitions: Vec<String>,
    /// Partitions beyond those named.
    more: usize,
    principal: String,
    client_id: String,
    host: String,
}

const FORMAT: u8 = 1;

impl Change {
    fn of(meta: &TxnMeta, at_ms: i64) -> Change {
        let named = meta.partitions.iter().take(NAMED);
        Change {
            v: FORMAT,
            at_ms,
            state: Some(meta.state.id()),
            producer_id: meta.producer_id.0,
            epoch: meta.epoch.0,
            number: meta.txn_number,
            ended_by: meta.ended_by as i8,
            version_2: meta.dialect == Dialect::V2,
            partitions: named.map(|(topic, p)| format!("{topic}-{p}")).collect(),
            more: meta.partitions.len().saturating_sub(NAMED),
            principal: meta.who.principal.to_string(),
            client_id: meta.who.client_id.to_string(),
            host: meta.who.host.to_string(),
        }
    }

    fn forgotten(at_ms: i64) -> Change {
        Change {
            v: FORMAT,
            at_ms,
            state: None,
            producer_id: -1,
            epoch: -1,
            number: 0,
            ended_by: 0,
            version_2: false,
            partitions: Vec::new(),
            more: 0,
            principal: String::new(),
            client_id: String::new(),
            host: String::new(),
        }
    }

    fn is(&self, state: TxnState) -> bool {
        self.state == Some(state.id())
    }

    fn was_ended_by(&self, by: EndedBy) -> bool {
        self.ended_by == by as i8
    }

    fn who(&self) -> String {
        format!("client {:?} at {}", self.client_id, self.host)
    }
}

/// Keys. An id's changes lie together, by offset in its partition of the log.
mod key {
    pub(super) fn stamp(partition: i32) -> Vec<u8> {
        [&b"stamp/"[..], &partition.to_be_bytes()].concat()
    }

    pub(super) fn changes(id: &str) -> Vec<u8> {
        let len = u16::try_from(id.len()).unwrap_or(u16::MAX);
        [&b"id/"[..], &len.to_be_bytes(), id.as_bytes()].concat()
    }

    pub(super) fn change(id: &str, offset: i64) -> Vec<u8> {
        [&changes(id)[..], &offset.to_be_bytes()].concat()
    }

    pub(super) fn producer(producer_id: i64) -> Vec<u8> {
        [&b"pid/"[..], &producer_id.to_be_bytes()].concat()
    }
}

impl TxnHistory {
    pub(crate) fn new(store: Box<dyn KvStore>) -> TxnHistory {
        TxnHistory { store }
    }

    /// Folds in what a partition of `__transaction_state` has below `upper`.
    pub(crate) fn catch_up(
        &self,
        partition: i32,
        log: &Arc<PartitionLog>,
        log_start: i64,
        upper: i64,
    ) -> Result<(), StoreError> {
        let stamp = self.store.get(&key::stamp(partition))?;
        let stamp = stamp.and_then(|bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?)));
        // A stamp beyond the end is that of another log: begin anew, the entries are the same or
        // are written over.
        let stamp = stamp.filter(|at| *at <= upper).unwrap_or(0);
        let mut next = stamp.max(log_start);
        while next < upper {
            let read = log
                .read(next, upper, READ_BYTES, true)
                .map_err(|e| StoreError(e.to_string()))?;
            let Some(after) = read.next_offset() else {
                return Ok(());
            };
            let mut batch = Batch::default();
            let mut counts = HashMap::new();
            for chunk in &read.chunks {
                for found in batches(chunk) {
                    let (header, range) = found.map_err(|e| StoreError(e.to_string()))?;
                    if header.attributes.is_control() || header.base_offset >= upper {
                        continue;
                    }
                    let bytes = chunk.slice(range);
                    let records =
                        records(&bytes, &LIMITS).map_err(|e| StoreError(e.to_string()))?;
                    for record in records {
                        let record = record.map_err(|e| StoreError(e.to_string()))?;
                        let offset = header.base_offset + i64::from(record.offset_delta);
                        let Ok(id) = decode_key(record.key.as_deref().unwrap_or_default()) else {
                            continue;
                        };
                        let change = match record.value.as_deref() {
                            None => Change::forgotten(record.timestamp),
                            Some(value) => match decode_value(&id, value) {
                                Ok(meta) => Change::of(&meta, record.timestamp),
                                Err(_) => continue,
                            },
                        };
                        self.add(&mut batch, &mut counts, &id, offset, &change)?;
                    }
                }
            }
            batch.put(key::stamp(partition), after.to_be_bytes());
            self.store.apply(batch)?;
            next = after;
        }
        Ok(())
    }

    /// Adds a change, and takes the oldest of its id away when there are too many.
    fn add(
        &self,
        batch: &mut Batch,
        counts: &mut HashMap<String, usize>,
        id: &str,
        offset: i64,
        change: &Change,
    ) -> Result<(), StoreError> {
        let value = serde_json::to_vec(change).map_err(|e| StoreError(e.to_string()))?;
        batch.put(key::change(id, offset), value);
        if change.producer_id >= 0 {
            batch.put(key::producer(change.producer_id), id.as_bytes());
        }
        let count = match counts.get_mut(id) {
            Some(count) => count,
            None => {
                let held = self.store.count(&key::changes(id))?;
                counts.entry(id.to_owned()).or_insert(held)
            }
        };
        *count += 1;
        // Not at every change: a sweep takes many.
        if *count >= KEPT * 2 {
            let held = self.store.last(&key::changes(id), usize::MAX)?;
            let surplus = held.len().saturating_sub(KEPT);
            for (key, _) in held.into_iter().take(surplus) {
                batch.remove(key);
            }
            *count = KEPT;
        }
        Ok(())
    }

    /// The transactional id that a producer id belongs to, or belonged to.
    pub(crate) fn id_of_producer(&self, producer_id: ProducerId) -> Option<String> {
        let id = self.store.get(&key::producer(producer_id.0)).ok()??;
        String::from_utf8(id).ok()
    }

    /// The newest changes of an id, oldest first, told in words.
    pub(crate) fn timeline(&self, id: &str) -> Result<Vec<ChangeReport>, StoreError> {
        let held = self.store.last(&key::changes(id), KEPT)?;
        let changes: Vec<Change> = held
            .iter()
            .filter_map(|(_, value)| serde_json::from_slice(value).ok())
            .filter(|change: &Change| change.v == FORMAT)
            .collect();
        let before = std::iter::once(None).chain(changes.iter().map(Some));
        let told = before
            .zip(&changes)
            .map(|(before, change)| tell(before, change));
        Ok(told.collect())
    }
}

fn tell(before: Option<&Change>, change: &Change) -> ChangeReport {
    let mut partitions = change.partitions.clone();
    if change.more > 0 {
        partitions.push(format!("and {} more", change.more));
    }
    let state = change.state.and_then(TxnState::from_id);
    ChangeReport {
        at_ms: change.at_ms,
        state: state.map_or("forgotten", TxnState::name).to_owned(),
        producer_id: change.producer_id,
        producer_epoch: change.epoch,
        transaction_number: change.number,
        partitions,
        what: what_happened(before, change),
    }
}

/// What a change means, seen from the one before it.
fn what_happened(before: Option<&Change>, change: &Change) -> String {
    if change.state.is_none() {
        return "expired: transactional.id.expiration.ms has passed without use".to_owned();
    }
    let ended = |how: &str| {
        let epoch = match change.version_2 || !change.was_ended_by(EndedBy::Client) {
            true => format!("; the id goes on at epoch {}", change.epoch),
            false => String::new(),
        };
        format!("transaction {} {how}{epoch}", change.number)
    };
    if change.is(TxnState::CompleteCommit) {
        return ended("committed by its client");
    }
    if change.is(TxnState::CompleteAbort) {
        return match change.ended_by {
            by if by == EndedBy::Timeout as i8 => ended("aborted: its timeout passed"),
            by if by == EndedBy::Operator as i8 => ended("aborted by an operator"),
            by if by == EndedBy::Loss as i8 => {
                ended("aborted by a restart that may have lost records of it")
            }
            by if by == EndedBy::Exclusive as i8 => ended(
                "aborted: a topic of it was deleted, or another operation on one cut through it",
            ),
            _ => ended("aborted by its client"),
        };
    }
    if change.is(TxnState::Ongoing) {
        let begun = before
            .is_none_or(|before| !before.is(TxnState::Ongoing) || before.number != change.number);
        return match begun {
            true => format!("transaction {} begins", change.number),
            false => format!("transaction {} enrols more partitions", change.number),
        };
    }
    let session = format!("new session of {}", change.who());
    match before.filter(|before| before.state.is_some()) {
        None => session,
        Some(before) if before.is(TxnState::Ongoing) => format!(
            "{session}: transaction {} of {} aborted and fenced",
            before.number,
            before.who()
        ),
        Some(before) if before.producer_id != change.producer_id => {
            format!(
                "{session}; the epochs of producer id {} were used up",
                before.producer_id
            )
        }
        Some(before) => format!(
            "{session}, fences epoch {} ({})",
            before.epoch,
            before.who()
        ),
    }
}
