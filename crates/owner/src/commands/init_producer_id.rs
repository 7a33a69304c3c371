//! InitProducerId: a new session of a transactional id, or a bare producer id.
//!
//! Over an ongoing transaction this is one record: its abort markers, and the new session's epoch.
//! When it is answered no earlier session can write or commit (P7).

use std::sync::Arc;

use tidemark_metadata::MetadataRecord;
use tidemark_txn_coordinator::{self as txn, Who};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::Owner;
use crate::command::{Event, Now, RequestContext, Step};
use crate::draft::Draft;
use crate::room::MAX_NAME_BYTES;

#[derive(Clone, Debug)]
pub struct InitProducerId {
    pub context: RequestContext,
    pub transactional_id: Option<Arc<str>>,
    pub transaction_timeout_ms: i32,
    /// As sent from v3 on (KIP-360); -1 for none.
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
}

impl Owner {
    pub(crate) fn init_producer_id(
        &mut self,
        request: InitProducerId,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Result<(ProducerId, ProducerEpoch), ErrorCode> {
        let given = txn::InitProducerId::given(request.producer_id, request.producer_epoch)?;
        let mut draft = self.begin(now);
        let Some(id) = &request.transactional_id else {
            let fresh = self.take_producer_id(&mut draft, -1);
            self.finish(draft, step);
            return Ok((fresh, ProducerEpoch(0)));
        };
        // A name without a bound could make the end of what is open exceed its record (`room.rs`).
        let context = &request.context;
        if context.principal.len() > MAX_NAME_BYTES || context.client_id.len() > MAX_NAME_BYTES {
            return Err(ErrorCode::InvalidRequest);
        }
        let (fresh, _) = self.peek_producer_id();
        let before = self.coordinator.get(id).cloned();
        if self.is_strangers(before.as_ref(), &request.context.principal) {
            return Err(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        let outcome = txn::decide_init_producer_id(
            before.as_ref(),
            &txn::InitProducerId {
                transactional_id: id.clone(),
                timeout_ms: request.transaction_timeout_ms,
                given,
            },
            self.options.transaction_max_timeout_ms,
            fresh,
            now.wall_ms,
            Who {
                principal: request.context.principal.clone(),
                client_id: request.context.client_id.clone(),
                host: request.context.client_host.clone(),
            },
        )?;
        if outcome.next.is_some() {
            let principal = &request.context.principal;
            self.may_have_id(before.as_ref(), principal)
                .map_err(|limit| {
                    step.events.push(limit.event(principal, id));
                    limit.code()
                })?;
        }
        self.write_outcome(&mut draft, id, &outcome, fresh, now);
        let (by_principal, by_client_id, by_host) = (
            request.context.principal.clone(),
            request.context.client_id.clone(),
            request.context.client_host.clone(),
        );
        match before {
            Some(before) if outcome.markers.is_some() => step.events.push(Event::ProducerFenced {
                transactional_id: id.clone(),
                producer_id: before.producer_id,
                old_epoch: before.epoch,
                new_epoch: outcome.reply.1,
                who: before.who,
                by_principal,
                by_client_id,
                by_host,
            }),
            Some(before) if outcome.next.is_some() => step.events.push(Event::SessionReplaced {
                transactional_id: id.clone(),
                producer_id: before.producer_id,
                old_epoch: before.epoch,
                new_epoch: outcome.reply.1,
                old_principal: before.who.principal,
                old_client_id: before.who.client_id,
                old_host: before.who.host,
                by_principal,
                by_client_id,
                by_host,
            }),
            _ => {}
        }
        self.finish(draft, step);
        Ok(outcome.reply)
    }

    /// Takes the next producer id, recording a new block first when the last one is spent: the
    /// block is in the same record as the first use of it, so an id that left is never free again (I9).
    pub(crate) fn take_producer_id(
        &mut self,
        draft: &mut Draft,
        coordinator_partition: i32,
    ) -> ProducerId {
        let (id, block) = self.peek_producer_id();
        if let Some(block) = block {
            let record = MetadataRecord::ProducerIdBlock {
                coordinator_partition,
                first: block.start,
                count: block.end - block.start,
            };
            self.append_metadata(draft, &[record]);
            self.producer_ids = block;
        }
        self.producer_ids.start += 1;
        id
    }
}
