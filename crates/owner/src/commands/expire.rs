//! Deadlines: transactions past their timeout are aborted, members past theirs leave.

use std::sync::Arc;

use tidemark_txn_coordinator::{AbortReason, TxnState};

use crate::Owner;
use crate::command::{Event, Now, Step};

impl Owner {
    /// Ends what is due. One record at most: the next of a deletion that takes several, or the first
    /// due transaction, or the groups; what
    /// else is due keeps [`Owner::next_deadline`] in the past and comes with the next step.
    pub(crate) fn expire(&mut self, now: &mut Now<'_>, step: &mut Step) {
        if !self.deletions.is_empty() {
            self.go_on_deleting(now, step);
            return;
        }
        let due = self
            .deadlines
            .first()
            .filter(|(at, _)| *at <= now.mono)
            .map(|(_, id)| id.clone());
        if let Some(id) = due {
            self.time_out(&id, now, step);
            return;
        }
        let effects = self.groups.expire(now.mono, now.wall_ms);
        self.carry_out(effects, now, step);
    }

    /// At a start after which records may be missing: aborts the first ongoing transaction and fences
    /// its producer. `None` when there is none left.
    pub fn abort_incomplete(&mut self, now: &Now<'_>) -> Option<Step> {
        let ongoing = self
            .coordinator
            .iter()
            .find(|meta| meta.state == TxnState::Ongoing);
        let id = ongoing.map(|meta| meta.transactional_id.clone())?;
        let mut step = Step::default();
        let mut draft = self.begin(now);
        let meta = self.abort_by_broker(&mut draft, &id, AbortReason::Loss, now);
        self.finish(draft, &mut step);
        step.events.push(Event::TransactionMayBeIncomplete {
            transactional_id: id,
            producer_id: meta.producer_id,
            epoch: meta.epoch,
            principal: meta.who.principal.clone(),
            client_id: meta.who.client_id.clone(),
            host: meta.who.host.clone(),
        });
        Some(step)
    }

    fn time_out(&mut self, id: &Arc<str>, now: &Now<'_>, step: &mut Step) {
        let mut draft = self.begin(now);
        let meta = self.abort_by_broker(&mut draft, id, AbortReason::Timeout, now);
        self.finish(draft, step);
        step.events.push(Event::TransactionTimedOut {
            transactional_id: id.clone(),
            producer_id: meta.producer_id,
            epoch: meta.epoch,
            timeout_ms: meta.timeout_ms,
            principal: meta.who.principal.clone(),
            client_id: meta.who.client_id.clone(),
            host: meta.who.host.clone(),
        });
    }
}
