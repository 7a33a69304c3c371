//! `transactional.id.owner=first`: a transactional id belongs to the principal that opened its first
//! session, and nobody else's requests for it are carried out, whatever ACLs allow: a right to a
//! prefix of ids would otherwise be enough to fence whoever has one of them.
//!
//! Whose an id is stands in its state as who opened the last session, which is the first one's
//! principal as long as the setting is on. It is nobody's again when the id is forgotten.

use tidemark_txn_coordinator::{TxnMeta, TxnState};
use tidemark_types::ErrorCode;

use crate::Owner;
use crate::command::{Command, Reply};
use crate::commands::Produced;

const NOT_YOURS: ErrorCode = ErrorCode::TransactionalIdAuthorizationFailed;

impl Owner {
    /// True for an id that is somebody else's.
    pub(crate) fn is_strangers(&self, meta: Option<&TxnMeta>, principal: &str) -> bool {
        let owner = meta
            .filter(|meta| self.options.own_transactional_ids && meta.state != TxnState::Dead)
            .map(|meta| &*meta.who.principal)
            .filter(|owner| !owner.is_empty());
        owner.is_some_and(|owner| owner != principal)
    }

    /// The answer to a request for an id of somebody else's.
    pub(crate) fn refuse_stranger(&self, principal: &str, command: &Command) -> Option<Reply> {
        if !self.options.own_transactional_ids {
            return None;
        }
        let (id, reply) = match command {
            Command::AddPartitions(r) => {
                let reply = Reply::AddPartitions(vec![NOT_YOURS; r.partitions.len()]);
                (&r.transactional_id, reply)
            }
            Command::AddOffsets(r) => (&r.transactional_id, Reply::AddOffsets(NOT_YOURS)),
            Command::EndTxn(r) => (&r.transactional_id, Reply::EndTxn(Err(NOT_YOURS))),
            Command::TxnOffsetCommit(r) => {
                let reply = Reply::TxnOffsetCommit(vec![NOT_YOURS; r.commit.offsets.len()]);
                (&r.transactional_id, reply)
            }
            Command::Produce(r) => {
                let is_strangers = r.batches.iter().any(|batch| {
                    let id = batch.valid.header.producer_id;
                    self.is_strangers(self.coordinator.by_producer_id(id), principal)
                });
                let refused = || vec![Produced::refused(NOT_YOURS); r.batches.len()];
                return is_strangers.then(|| Reply::Produce(refused()));
            }
            _ => return None,
        };
        let is_strangers = self.is_strangers(self.coordinator.get(id), principal);
        is_strangers.then_some(reply)
    }
}
