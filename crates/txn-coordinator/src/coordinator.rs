//! All transactional ids, by partition of `__transaction_state`, and the index by producer id.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use thiserror::Error;
use tidemark_types::{COORDINATOR_PARTITIONS, ProducerId, coordinator_partition};

use crate::{
    RecordError, TxnMeta, TxnState, Violation, check, check_transition, decode_key, decode_value,
    encode_key, encode_value, is_expired,
};

/// Why a record cannot be applied: it is damaged, or no decision can have made it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ApplyError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// Where a look at all ids is: partition and name.
pub type IdsCursor = (i32, Arc<str>);

/// What a principal has: the sessions that it opened last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Holdings {
    /// Transactional ids.
    pub ids: usize,
    /// Those of them whose transaction is not ended.
    pub open: usize,
}

/// The state of every partition of `__transaction_state` that is here. [`Coordinator::apply`]
/// changes it, live and at replay alike; nothing else decides anything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Coordinator {
    partitions: Vec<BTreeMap<Arc<str>, TxnMeta>>,
    /// Present and previous producer ids. An id's earlier ones are forgotten with its next change.
    by_producer_id: BTreeMap<ProducerId, Arc<str>>,
    /// Counted from the states, and changed with them. None of a principal that has nothing.
    by_principal: BTreeMap<Arc<str>, Holdings>,
}

impl Default for Coordinator {
    fn default() -> Coordinator {
        Coordinator::new(COORDINATOR_PARTITIONS)
    }
}

impl Coordinator {
    /// An empty state over so many partitions of `__transaction_state`.
    pub fn new(partitions: i32) -> Coordinator {
        let count = usize::try_from(partitions).unwrap_or(0).max(1);
        Coordinator {
            partitions: vec![BTreeMap::new(); count],
            by_producer_id: BTreeMap::new(),
            by_principal: BTreeMap::new(),
        }
    }

    /// The partition of `__transaction_state` that holds an id.
    pub fn partition_of(&self, transactional_id: &str) -> i32 {
        coordinator_partition(transactional_id, self.partitions.len() as i32)
    }

    /// The state of an id.
    pub fn get(&self, transactional_id: &str) -> Option<&TxnMeta> {
        self.partitions[self.partition_of(transactional_id) as usize].get(transactional_id)
    }

    /// The state of the id that a producer id belongs to: its present one, or the one before, whose
    /// every epoch [`crate::Session::of`] then calls fenced (or last).
    pub fn by_producer_id(&self, producer_id: ProducerId) -> Option<&TxnMeta> {
        self.get(self.by_producer_id.get(&producer_id)?)
    }

    /// What a principal has.
    pub fn holdings(&self, principal: &str) -> Holdings {
        let holdings = self.by_principal.get(principal);
        holdings.copied().unwrap_or_default()
    }

    /// Applies a recorded change; None forgets the id. Returns the state before, with which
    /// [`Coordinator::restore`] takes the change back.
    ///
    /// Panics if no decision can have made the change: going on would make it durable.
    pub fn apply(&mut self, transactional_id: &str, next: Option<TxnMeta>) -> Option<TxnMeta> {
        if let Err(violation) = self.check_change(transactional_id, next.as_ref()) {
            panic!("cannot be applied: {violation}");
        }
        self.replace(transactional_id, next)
    }

    /// Applies one record of `__transaction_state` at replay. Unlike [`Coordinator::apply`] it
    /// answers an error: bytes from a disk may be anything.
    pub fn apply_record(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Option<TxnMeta>, ApplyError> {
        let id = decode_key(key)?;
        let next = value.map(|value| decode_value(&id, value)).transpose()?;
        self.check_change(&id, next.as_ref())?;
        Ok(self.replace(&id, next))
    }

    /// Sets a state that is known to have been one: from a checkpoint, or to take back a change that
    /// was lost before it was durable. It need not follow the present state, but must make sense by
    /// itself.
    pub fn restore(
        &mut self,
        transactional_id: &str,
        state: Option<TxnMeta>,
    ) -> Result<(), Violation> {
        if let Some(state) = &state {
            check(state)?;
            self.check_producer_ids(transactional_id, state)?;
        }
        self.replace(transactional_id, state);
        Ok(())
    }

    /// Drops a whole partition: it moved away, or is about to be restored from a checkpoint.
    pub fn clear_partition(&mut self, partition: i32) {
        let ids: Vec<Arc<str>> = self
            .iter_partition(partition)
            .map(|meta| meta.transactional_id.clone())
            .collect();
        for id in ids {
            self.replace(&id, None);
        }
    }

    fn check_change(
        &self,
        transactional_id: &str,
        next: Option<&TxnMeta>,
    ) -> Result<(), Violation> {
        check_transition(self.get(transactional_id), next)?;
        next.map_or(Ok(()), |next| {
            self.check_producer_ids(transactional_id, next)
        })
    }

    /// A producer id belongs to one transactional id for ever.
    fn check_producer_ids(&self, transactional_id: &str, next: &TxnMeta) -> Result<(), Violation> {
        let is_others = |producer_id| {
            self.by_producer_id
                .get(&producer_id)
                .is_some_and(|id| **id != *transactional_id)
        };
        if producer_ids(next).any(is_others) {
            return Err(Violation {
                transactional_id: transactional_id.into(),
                what: "its producer id belongs to another transactional id",
            });
        }
        Ok(())
    }

    fn replace(&mut self, transactional_id: &str, next: Option<TxnMeta>) -> Option<TxnMeta> {
        let partition = self.partition_of(transactional_id) as usize;
        let states = &mut self.partitions[partition];
        let id: Arc<str> = match states.get_key_value(transactional_id) {
            Some((id, _)) => id.clone(),
            None => transactional_id.into(),
        };
        let previous = states.remove(transactional_id);
        if let Some(previous) = &previous {
            uncount(&mut self.by_principal, previous);
            for producer_id in producer_ids(previous) {
                self.by_producer_id.remove(&producer_id);
            }
        }
        if let Some(mut next) = next {
            next.transactional_id = id.clone();
            let of = self.by_principal.entry(next.who.principal.clone());
            let holdings = of.or_default();
            holdings.ids += 1;
            holdings.open += usize::from(is_open(&next));
            for producer_id in producer_ids(&next) {
                self.by_producer_id.insert(producer_id, id.clone());
            }
            states.insert(id, next);
        }
        previous
    }

    /// Every id, by partition, then by name.
    pub fn iter(&self) -> impl Iterator<Item = &TxnMeta> {
        self.partitions.iter().flat_map(BTreeMap::values)
    }

    /// The ids of one partition, by name; none for a partition that does not exist.
    pub fn iter_partition(&self, partition: i32) -> impl Iterator<Item = &TxnMeta> {
        usize::try_from(partition)
            .ok()
            .and_then(|partition| self.partitions.get(partition))
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// Looks at up to `looks` ids, from partition and name `from` on. Returns those that have been
    /// idle for `expiration_ms`, in the same order, and where to look next; `None` when there are no
    /// more.
    pub fn expirable(
        &self,
        from: &IdsCursor,
        looks: usize,
        now_wall_ms: i64,
        expiration_ms: i64,
    ) -> (Vec<Arc<str>>, Option<IdsCursor>) {
        let (first, name) = from;
        let after = (Bound::Included(&**name), Bound::Unbounded);
        let mut rest = (*first..)
            .zip(
                self.partitions
                    .iter()
                    .skip(usize::try_from(*first).unwrap_or(0)),
            )
            .flat_map(|(partition, states)| {
                let states = match partition == *first {
                    true => states.range::<str, _>(after),
                    false => states.range::<str, _>(..),
                };
                states.map(move |(_, meta)| (partition, meta))
            });
        let expired = rest
            .by_ref()
            .take(looks)
            .filter(|(_, meta)| is_expired(meta, now_wall_ms, expiration_ms))
            .map(|(_, meta)| meta.transactional_id.clone())
            .collect();
        let next = rest.next();
        (
            expired,
            next.map(|(partition, meta)| (partition, meta.transactional_id.clone())),
        )
    }

    /// One partition as records, by name: what a checkpoint block holds and
    /// [`Coordinator::apply_record`] reads into an empty partition.
    pub fn records_of_partition(
        &self,
        partition: i32,
    ) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
        self.iter_partition(partition)
            .map(|meta| (encode_key(&meta.transactional_id), encode_value(meta)))
    }

    /// How many ids there are.
    pub fn len(&self) -> usize {
        self.partitions.iter().map(BTreeMap::len).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.partitions.iter().all(BTreeMap::is_empty)
    }
}

fn uncount(by_principal: &mut BTreeMap<Arc<str>, Holdings>, previous: &TxnMeta) {
    let principal = &*previous.who.principal;
    let holdings = by_principal.get_mut(principal);
    let holdings = holdings.expect("what is in the state was counted");
    holdings.ids -= 1;
    holdings.open -= usize::from(is_open(previous));
    if holdings.ids == 0 {
        by_principal.remove(principal);
    }
}

fn is_open(meta: &TxnMeta) -> bool {
    meta.state == TxnState::Ongoing || meta.state.is_prepare()
}

fn producer_ids(meta: &TxnMeta) -> impl Iterator<Item = ProducerId> + use<> {
    [meta.producer_id, meta.previous_producer_id]
        .into_iter()
        .filter(|id| id.is_some())
}
