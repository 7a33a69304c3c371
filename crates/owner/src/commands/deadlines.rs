//! When ongoing transactions time out.
//!
//! As Kafka counts it, `transaction.timeout.ms` runs from a transaction's start and what the
//! transaction does later changes nothing. With leases (`transaction.lease.mode=renew`) it runs from
//! what was last written or enrolled in it: a long transaction lives as long as its producer works,
//! and one whose producer is gone ends as early as ever. `transaction.max.timeout.ms` from the start
//! ends it in any case.
//!
//! Deadlines are of this run, by the monotonic clock. What they are made from is in records: the
//! start and the last enrolment in the coordinator's, the last write in each partition's producers.
//! So a start finds them again, and a loss of records takes the lease that they gave with them.

use std::sync::Arc;
use std::time::Duration;

use tidemark_txn_coordinator::{self as txn, TxnMeta, TxnState};
use tidemark_types::MonoTime;

use crate::Owner;
use crate::command::Now;

/// When a transaction times out, and which of its transactional id it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: MonoTime,
    /// Where renewals end.
    cap: MonoTime,
    txn_number: u64,
}

impl Owner {
    /// Arms or drops the deadline of a transactional id after its state changed. A deadline counts
    /// from the start of its transaction: what the transaction does later leaves it where it is,
    /// also when the wall clock has been set meanwhile. With leases the change renews it.
    pub(crate) fn rearm(&mut self, transactional_id: &Arc<str>, now: &Now<'_>) {
        let ongoing = self
            .coordinator
            .get(transactional_id)
            .filter(|meta| meta.state == TxnState::Ongoing);
        let armed = self.deadline_of.get(transactional_id);
        if let (Some(meta), Some(armed)) = (ongoing, armed)
            && armed.txn_number == meta.txn_number
        {
            self.renew_lease(transactional_id, now);
            return;
        }
        let next = ongoing.map(|meta| self.deadline(meta, now));
        self.set_deadline(transactional_id, next);
    }

    /// A batch of the transaction was appended: with leases it gets its whole timeout again.
    pub(crate) fn renew_lease(&mut self, transactional_id: &Arc<str>, now: &Now<'_>) {
        if !self.options.renew_leases {
            return;
        }
        let armed = self.deadline_of.get(transactional_id).copied();
        let meta = self.coordinator.get(transactional_id);
        if let (Some(armed), Some(meta)) = (armed, meta) {
            let timeout = Duration::from_millis(u64::try_from(meta.timeout_ms).unwrap_or(0));
            let at = (now.mono + timeout).min(armed.cap);
            self.set_deadline(transactional_id, Some(Deadline { at, ..armed }));
        }
    }

    /// Records of the transaction were lost. A lease that came of them goes; without leases only
    /// a lost start, or a lost end, changes anything.
    pub(crate) fn rearm_after_loss(&mut self, transactional_id: &Arc<str>, now: &Now<'_>) {
        if self.options.renew_leases {
            self.set_deadline(transactional_id, None);
        }
        self.rearm(transactional_id, now);
    }

    /// Until the ongoing transaction of an id times out, as things are now; negative when it is
    /// overdue.
    pub(crate) fn times_out_in_ms(&self, transactional_id: &str, now: &Now<'_>) -> Option<i64> {
        let at = self.deadline_of.get(transactional_id)?.at;
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Some(ms(at.since(now.mono)) - ms(now.mono.since(at)))
    }

    fn set_deadline(&mut self, transactional_id: &Arc<str>, next: Option<Deadline>) {
        if let Some(armed) = self.deadline_of.remove(transactional_id) {
            self.deadlines.remove(&(armed.at, transactional_id.clone()));
        }
        if let Some(next) = next {
            self.deadlines.insert((next.at, transactional_id.clone()));
            self.deadline_of.insert(transactional_id.clone(), next);
        }
    }

    /// From the state alone: the time that is left by the wall clock, never more than the whole
    /// timeout.
    fn deadline(&self, meta: &TxnMeta, now: &Now<'_>) -> Deadline {
        let timeout_ms = i64::from(meta.timeout_ms);
        // A maximum that was set below the timeout of a session that exists does not shorten it.
        let longest_ms = timeout_ms.max(i64::from(self.options.transaction_max_timeout_ms));
        let cap_wall_ms = meta.start_wall_ms.saturating_add(longest_ms);
        let at_wall_ms = match self.options.renew_leases {
            false => txn::deadline_wall_ms(meta).unwrap_or(cap_wall_ms),
            true => self
                .last_activity_wall_ms(meta)
                .saturating_add(timeout_ms)
                .min(cap_wall_ms),
        };
        let left = |at_wall_ms: i64, most_ms: i64| {
            let left_ms = at_wall_ms.saturating_sub(now.wall_ms).clamp(0, most_ms);
            now.mono + Duration::from_millis(left_ms as u64)
        };
        Deadline {
            at: left(at_wall_ms, timeout_ms),
            cap: left(cap_wall_ms, longest_ms),
            txn_number: meta.txn_number,
        }
    }

    /// When something was last enrolled or written in the ongoing transaction, wall clock.
    fn last_activity_wall_ms(&self, meta: &TxnMeta) -> i64 {
        let written = meta.partitions.iter().filter_map(|(topic, partition)| {
            let id = self.metadata.partition(topic, *partition)?;
            let entry = self.partitions.get(&id)?.producers.get(meta.producer_id)?;
            entry.current_txn_first_offset()?;
            Some(entry.last_wall_ms())
        });
        written.fold(meta.last_update_wall_ms, i64::max)
    }
}
