//! Deadlines, at most one per key, read in order of time.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_types::MonoTime;

/// What a deadline is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKind {
    /// End of the join phase.
    Join,
    /// Members that have not sent SyncGroup are removed.
    Sync,
    /// A member's, or a pending member's, session ends.
    Session(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    pub group_id: String,
    pub kind: TimerKind,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    deadlines: BTreeMap<TimerKey, MonoTime>,
    ordered: BTreeSet<(MonoTime, TimerKey)>,
}

impl Timers {
    /// Sets a deadline, in place of the key's last one.
    pub fn set(&mut self, key: TimerKey, deadline: MonoTime) {
        if let Some(last) = self.deadlines.insert(key.clone(), deadline) {
            self.ordered.remove(&(last, key.clone()));
        }
        self.ordered.insert((deadline, key));
    }

    pub fn cancel(&mut self, key: &TimerKey) {
        if let Some(last) = self.deadlines.remove(key) {
            self.ordered.remove(&(last, key.clone()));
        }
    }

    pub fn next_deadline(&self) -> Option<MonoTime> {
        self.ordered.first().map(|(deadline, _)| *deadline)
    }

    /// Takes the earliest deadline that has come.
    pub fn pop_due(&mut self, now: MonoTime) -> Option<TimerKey> {
        if self.next_deadline()? > now {
            return None;
        }
        let (_, key) = self.ordered.pop_first()?;
        self.deadlines.remove(&key);
        Some(key)
    }

    pub fn contains(&self, key: &TimerKey) -> bool {
        self.deadlines.contains_key(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &TimerKey> {
        self.deadlines.keys()
    }

    pub fn is_consistent(&self) -> bool {
        self.deadlines.len() == self.ordered.len()
            && self
                .ordered
                .iter()
                .all(|(deadline, key)| self.deadlines.get(key) == Some(deadline))
    }
}
