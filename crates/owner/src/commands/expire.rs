//! Deadlines: transactions past their timeout are aborted, members past theirs leave.

use std::sync::Arc;

use tidemark_txn_coordinator::{self as txn, AbortReason};

use crate::Owner;
use crate::command::{Event, Now, Step};

impl Owner {
    /// Ends what is due. One record at most: the first due transaction, or else the groups; what
    /// else is due keeps [`Owner::next_deadline`] in the past and comes with the next step.
    pub(crate) fn expire(&mut self, now: &mut Now<'_>, step: &mut Step) {
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

    fn time_out(&mut self, id: &Arc<str>, now: &Now<'_>, step: &mut Step) {
        let meta = self
            .coordinator
            .get(id)
            .cloned()
            .expect("a deadline is armed for an ongoing transaction");
        let (fresh, _) = self.peek_producer_id();
        let outcome = txn::decide_abort_by_broker(&meta, AbortReason::Timeout, fresh, now.wall_ms)
            .expect("a deadline is armed for an ongoing transaction");
        let mut draft = self.begin(now);
        self.write_outcome(&mut draft, id, &outcome, fresh, now);
        self.finish(draft, step);
        step.events.push(Event::TransactionTimedOut {
            transactional_id: id.clone(),
            producer_id: meta.producer_id,
            epoch: meta.epoch,
            timeout_ms: meta.timeout_ms,
            client_id: meta.who.client_id.clone(),
            host: meta.who.host.clone(),
        });
    }
}
