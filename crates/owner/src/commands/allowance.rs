//! What one principal may have of transactional ids and open transactions, and one transaction of
//! partitions. They are counted in the coordinator's state, so a replay counts them again.

use std::sync::Arc;

use tidemark_txn_coordinator::{Partitions, TxnMeta, TxnState};
use tidemark_types::ErrorCode;

use crate::Owner;
use crate::command::Event;

/// The limits; from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct TxnLimits {
    pub ids_per_principal: usize,
    pub open_per_principal: usize,
    pub partitions_per_transaction: usize,
}

impl Default for TxnLimits {
    /// None.
    fn default() -> TxnLimits {
        TxnLimits {
            ids_per_principal: usize::MAX,
            open_per_principal: usize::MAX,
            partitions_per_transaction: usize::MAX,
        }
    }
}

/// Which of them was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnLimit {
    TransactionalIds,
    OpenTransactions,
    Partitions,
}

impl TxnLimit {
    /// What the client is told.
    ///
    /// - One id too many is POLICY_VIOLATION: it will not pass soon. Java fails the producer with it,
    ///   librdkafka names it when `init_transactions` gives up.
    /// - One open transaction too many is CONCURRENT_TRANSACTIONS, with which Kafka itself says that a
    ///   transaction cannot begin yet: all clients ask again after some milliseconds, and others'
    ///   transactions end, by their timeouts if not before.
    /// - One partition too many is MESSAGE_TOO_LARGE, as where one record could not end the
    ///   transaction: clients abort it and go on.
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            TxnLimit::TransactionalIds => ErrorCode::PolicyViolation,
            TxnLimit::OpenTransactions => ErrorCode::ConcurrentTransactions,
            TxnLimit::Partitions => ErrorCode::MessageTooLarge,
        }
    }

    pub(crate) fn event(self, principal: &Arc<str>, transactional_id: &Arc<str>) -> Event {
        Event::LimitReached {
            limit: self,
            principal: principal.clone(),
            transactional_id: transactional_id.clone(),
        }
    }
}

impl Owner {
    /// Whether a principal may open a session of an id: one of its own, or one more.
    pub(crate) fn may_have_id(
        &self,
        before: Option<&TxnMeta>,
        principal: &str,
    ) -> Result<(), TxnLimit> {
        let is_its_own = before.is_some_and(|meta| *meta.who.principal == *principal);
        let has = || self.coordinator.holdings(principal).ids;
        match is_its_own || has() < self.options.limits.ids_per_principal {
            true => Ok(()),
            false => Err(TxnLimit::TransactionalIds),
        }
    }

    /// Whether a transaction may enrol more partitions, and begin if it has none yet.
    pub(crate) fn may_enrol(&self, meta: &TxnMeta, more: &Partitions) -> Result<(), TxnLimit> {
        let new = more
            .iter()
            .filter(|p| !meta.partitions.contains(*p))
            .count();
        self.may_enrol_new(meta, new)
    }

    /// The same, for so many partitions that it has not enrolled.
    pub(crate) fn may_enrol_new(&self, meta: &TxnMeta, new: usize) -> Result<(), TxnLimit> {
        let limits = &self.options.limits;
        if new == 0 {
            return Ok(());
        }
        if meta.partitions.len() + new > limits.partitions_per_transaction {
            return Err(TxnLimit::Partitions);
        }
        let begins = meta.state != TxnState::Ongoing;
        let open = || self.coordinator.holdings(&meta.who.principal).open;
        match begins && open() >= limits.open_per_principal {
            true => Err(TxnLimit::OpenTransactions),
            false => Ok(()),
        }
    }
}
