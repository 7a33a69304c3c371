//! Which connection a classic transactional request came on (`transaction.connection.guard`): one of an
//! earlier transaction that was delayed comes on a connection that its client has given up since. The
//! rule and what it takes to hold are in [`tidemark_txn_coordinator::guard`].

use tidemark_txn_coordinator::guard::{ConnectionId, Guarded};
use tidemark_txn_coordinator::{Dialect, Session};
use tidemark_types::ErrorCode;

use crate::Owner;
use crate::command::{Command, Now, Reply, Step, Token};

/// Clients ask again on it, on the same connection, and it is nothing that ends a transaction.
const ASK_AGAIN: ErrorCode = ErrorCode::CoordinatorLoadInProgress;

impl Owner {
    pub(crate) fn step_on(
        &mut self,
        token: Token,
        connection: ConnectionId,
        principal: &str,
        command: Command,
        now: &mut Now<'_>,
    ) -> Step {
        let reply = self.refuse_stranger(principal, &command).or_else(|| {
            let guards = self.options.guard_connections;
            guards.then(|| self.put_off(connection, &command)).flatten()
        });
        if let Some(reply) = reply {
            return Step {
                replies: vec![(token, reply)],
                ..Step::default()
            };
        }
        self.step(token, command, now)
    }

    /// The answer to a request that is not carried out. Nothing of this is durable: after a start the
    /// connections are new as well.
    fn put_off(&mut self, connection: ConnectionId, command: &Command) -> Option<Reply> {
        let (id, producer_id, epoch, request, reply) = match command {
            Command::AddPartitions(r) => {
                let reply = Reply::AddPartitions(vec![ASK_AGAIN; r.partitions.len()]);
                let request = Guarded::AddPartitions;
                (
                    &r.transactional_id,
                    r.producer_id,
                    r.producer_epoch,
                    request,
                    reply,
                )
            }
            Command::AddOffsets(r) => {
                let reply = Reply::AddOffsets(ASK_AGAIN);
                let request = Guarded::AddOffsets;
                (
                    &r.transactional_id,
                    r.producer_id,
                    r.producer_epoch,
                    request,
                    reply,
                )
            }
            Command::EndTxn(r) if r.dialect == Dialect::V1 => {
                let reply = Reply::EndTxn(Err(ASK_AGAIN));
                let request = Guarded::EndTxn;
                (
                    &r.transactional_id,
                    r.producer_id,
                    r.producer_epoch,
                    request,
                    reply,
                )
            }
            Command::TxnOffsetCommit(r) if r.dialect == Dialect::V1 => {
                let reply = Reply::TxnOffsetCommit(vec![ASK_AGAIN; r.commit.offsets.len()]);
                let request = Guarded::TxnOffsetCommit;
                (
                    &r.transactional_id,
                    r.producer_id,
                    r.producer_epoch,
                    request,
                    reply,
                )
            }
            _ => return None,
        };
        // Whoever is fenced is told so.
        let meta = self.coordinator.get(id)?;
        if Session::of(meta, producer_id, epoch) != Session::Current {
            return None;
        }
        let session = (producer_id, epoch);
        let admitted = self.guard.admits(id, session, request, connection);
        (!admitted).then_some(reply)
    }
}
