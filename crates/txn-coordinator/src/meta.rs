use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tidemark_types::{ProducerEpoch, ProducerId};

/// A transaction's partitions by topic name, in canonical order. A group's offsets are a partition
/// of `__consumer_offsets` like any other.
pub type Partitions = BTreeSet<(Arc<str>, i32)>;

/// Where a transactional id stands. Numbers and names are Kafka's, because they are on disk and in
/// DescribeTransactions.
///
/// ```text
///            InitProducerId                    first partition
///   (none) ────────────────► Empty ───────────────────────────────► Ongoing
///                              ▲  InitProducerId (aborts it)           │
///                              ├───────────────────────────────────────┤ one record: markers
///                              │ InitProducerId                        ▼ + completed state
///                              └───────────────────────── CompleteCommit / CompleteAbort
///                                       first partition: back to Ongoing
/// ```
///
/// `PrepareCommit`, `PrepareAbort` and `PrepareEpochFence` belong to transactions over several
/// journals; on one journal they are not entered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(i8)]
pub enum TxnState {
    Empty = 0,
    Ongoing = 1,
    PrepareCommit = 2,
    PrepareAbort = 3,
    CompleteCommit = 4,
    CompleteAbort = 5,
    Dead = 6,
    PrepareEpochFence = 7,
}

impl TxnState {
    /// Every state, in the order of its number.
    pub const ALL: [TxnState; 8] = [
        TxnState::Empty,
        TxnState::Ongoing,
        TxnState::PrepareCommit,
        TxnState::PrepareAbort,
        TxnState::CompleteCommit,
        TxnState::CompleteAbort,
        TxnState::Dead,
        TxnState::PrepareEpochFence,
    ];

    /// Kafka's number, as in TransactionLogValue.
    pub const fn id(self) -> i8 {
        self as i8
    }

    /// The state of Kafka's number.
    pub fn from_id(id: i8) -> Option<TxnState> {
        TxnState::ALL.into_iter().find(|s| s.id() == id)
    }

    /// Kafka's name, as in ListTransactions and DescribeTransactions.
    pub const fn name(self) -> &'static str {
        match self {
            TxnState::Empty => "Empty",
            TxnState::Ongoing => "Ongoing",
            TxnState::PrepareCommit => "PrepareCommit",
            TxnState::PrepareAbort => "PrepareAbort",
            TxnState::CompleteCommit => "CompleteCommit",
            TxnState::CompleteAbort => "CompleteAbort",
            TxnState::Dead => "Dead",
            TxnState::PrepareEpochFence => "PrepareEpochFence",
        }
    }

    /// True in the states that exist only between deciding and having written the markers.
    pub const fn is_prepare(self) -> bool {
        matches!(
            self,
            TxnState::PrepareCommit | TxnState::PrepareAbort | TxnState::PrepareEpochFence
        )
    }

    /// True where an idle id may be forgotten (`transactional.id.expiration.ms`).
    pub const fn is_expirable(self) -> bool {
        matches!(
            self,
            TxnState::Empty | TxnState::CompleteCommit | TxnState::CompleteAbort
        )
    }
}

impl fmt::Display for TxnState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a client speaks transactions (KIP-890).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dialect {
    /// Classic: AddPartitionsToTxn, EndTxn up to v4, one epoch for a whole session.
    V1,
    /// Transaction version 2: enrolment by Produce v12, EndTxn v5, a new epoch per transaction.
    V2,
}

impl Dialect {
    /// `ClientTransactionVersion` of the record format.
    pub const fn client_transaction_version(self) -> i16 {
        match self {
            Dialect::V1 => 0,
            Dialect::V2 => 2,
        }
    }

    /// The dialect of a `ClientTransactionVersion`; 1 is classic too (it differs on disk only).
    pub fn from_client_transaction_version(version: i16) -> Option<Dialect> {
        match version {
            0 | 1 => Some(Dialect::V1),
            2 => Some(Dialect::V2),
            _ => None,
        }
    }

    /// The dialect of an EndTxn request.
    pub const fn of_end_txn(api_version: i16) -> Dialect {
        if api_version >= 5 {
            Dialect::V2
        } else {
            Dialect::V1
        }
    }
}

/// Who ended the last transaction. It decides what a client that missed the end is told, and it is
/// what people ask for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(i8)]
pub enum EndedBy {
    /// None has ended yet, or the record does not say.
    Unknown = 0,
    /// EndTxn.
    Client = 1,
    /// InitProducerId over an ongoing transaction: a new session.
    NewSession = 2,
    /// `transaction.timeout.ms` passed.
    Timeout = 3,
    /// A person or a tool, also by WriteTxnMarkers.
    Operator = 4,
    /// An exclusive operation cut through it: DeleteTopics, or one that
    /// `transaction.exclusive.operations` names.
    Exclusive = 5,
    /// A restart that may have lost records of it (`journal.sync` other than `always`).
    Loss = 6,
}

impl EndedBy {
    pub(crate) fn from_id(id: i8) -> Option<EndedBy> {
        [
            EndedBy::Unknown,
            EndedBy::Client,
            EndedBy::NewSession,
            EndedBy::Timeout,
            EndedBy::Operator,
            EndedBy::Exclusive,
            EndedBy::Loss,
        ]
        .into_iter()
        .find(|e| *e as i8 == id)
    }

    /// True when the broker ended it without the client asking.
    pub const fn is_broker(self) -> bool {
        matches!(
            self,
            EndedBy::Timeout | EndedBy::Operator | EndedBy::Exclusive | EndedBy::Loss
        )
    }
}

/// Who opened the session: what InitProducerId came with.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Who {
    pub principal: Arc<str>,
    pub client_id: Arc<str>,
    pub host: Arc<str>,
}

/// All that is known of one transactional id: the value of its last record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TxnMeta {
    pub transactional_id: Arc<str>,
    pub producer_id: ProducerId,
    /// The producer id before the last change of it, NONE if there was none. Its epochs are used up:
    /// whoever still speaks under it is fenced.
    pub previous_producer_id: ProducerId,
    /// Reserved for the next one in `Prepare*`; NONE on one journal.
    pub next_producer_id: ProducerId,
    /// The epoch of the current session (V1) or of the next transaction (V2).
    pub epoch: ProducerEpoch,
    /// The epoch that was exchanged for `epoch` and whose owner may not have heard of it yet: a
    /// retry under it is answered with the current one. NONE when there is no such owner, and from
    /// the moment `epoch` is used. It belongs to `previous_producer_id` when `epoch` is 0.
    pub last_epoch: ProducerEpoch,
    pub timeout_ms: i32,
    pub state: TxnState,
    /// Empty except while Ongoing.
    pub partitions: Partitions,
    /// When the last transaction began (its first partition), wall clock; -1 before the first of a
    /// session.
    pub start_wall_ms: i64,
    /// When the state last changed, wall clock; never goes back.
    pub last_update_wall_ms: i64,
    /// Counts the transactions of this id from 1; 0 before the first.
    pub txn_number: u64,
    /// How the client spoke last.
    pub dialect: Dialect,
    pub ended_by: EndedBy,
    pub who: Who,
}

impl TxnMeta {
    /// Kafka's `start_wall_ms` before the first transaction of a session.
    pub const NO_START: i64 = -1;

    /// True if the partition is part of the ongoing transaction.
    pub fn has_partition(&self, topic: &str, partition: i32) -> bool {
        // A look-up by (Arc<str>, i32) would copy the name for every batch. Comparing numbers first
        // makes the scan cheaper than that for any transaction of a usual size.
        self.partitions
            .iter()
            .any(|(t, p)| *p == partition && &**t == topic)
    }

    /// The state with the wall clock moved on, never back.
    pub(crate) fn touched(&self, now_wall_ms: i64) -> TxnMeta {
        let mut next = self.clone();
        next.last_update_wall_ms = now_wall_ms.max(self.last_update_wall_ms);
        next
    }
}
