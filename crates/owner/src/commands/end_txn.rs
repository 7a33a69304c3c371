//! EndTxn: the markers of every enrolled partition, the group's offsets and the completed state are
//! one record at one tick (P4, P14).

use std::sync::Arc;

use tidemark_txn_coordinator::{self as txn, Dialect};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::Owner;
use crate::command::{Event, Now, Step};

#[derive(Clone, Debug)]
pub struct EndTxn {
    pub transactional_id: Arc<str>,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub committed: bool,
    /// By the request's version, not by any setting of the cluster: v5 and later carry the bumped
    /// epoch back, older ones cannot.
    pub dialect: Dialect,
}

impl Owner {
    pub(crate) fn end_txn(
        &mut self,
        request: EndTxn,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Result<(ProducerId, ProducerEpoch), ErrorCode> {
        let id = &request.transactional_id;
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let (fresh, _) = self.peek_producer_id();
        let outcome = txn::decide_end_txn(
            self.coordinator.get(id),
            &txn::EndTxn {
                producer_id: request.producer_id,
                epoch: request.producer_epoch,
                commit: request.committed,
                dialect: request.dialect,
            },
            fresh,
            now.wall_ms,
        )?;
        // I7: markers, offsets and state in one draft, hence one record.
        let mut draft = self.begin(now);
        self.write_outcome(&mut draft, id, &outcome, fresh, now);
        self.finish(draft, step);
        if outcome.markers.is_some() {
            let committed = request.committed;
            step.events.push(Event::TransactionEnded { committed });
        }
        Ok(outcome.reply)
    }
}
