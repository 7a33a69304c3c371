//! Transactions over several journals: prepare, enroll, resolve. Pure, and not in use yet: a broker
//! of this release has one journal, on which the end of a transaction is one record.
//!
//! Each journal has an owner that decides for it, and may get another one at any time. The journal of
//! the id's partition of `__transaction_state` is the transaction's **home**. Every other journal on
//! which it has partitions is a **participant**. What goes between owners may be lost, come twice and
//! come late; it leaves only after the record it tells of is durable.
//!
//! ```text
//!  home                                             participant
//!  AddPartitions: Ongoing with the partition
//!    (the intent) is durable          ── Enroll ──► Open is durable
//!  AddPartitions is answered          ◄─ Enrolled ─
//!                                                   batches
//!  EndTxn, a timeout, a new session:
//!    Prepare* is durable: it is decided.
//!    The home's own markers are in it ── Resolve ─► markers and Ended, one record
//!  when all have: Complete* is durable ◄─ Resolved ─
//!  EndTxn is answered
//! ```
//!
//! Why it holds together (`tests/several_journals.rs` tries every interleaving):
//!
//! - **The intent comes first.** Who is resolved is what the home's record names, so an Enroll whose
//!   answer never came is resolved too; and a participant that has not heard of a transaction notes
//!   its end all the same, so that an Enroll that comes after it is refused. A transaction that is
//!   open on a participant is therefore known to its home, and ends (I11).
//! - **One decision.** Prepare* is a record like any other: of a commit and a timeout that race, the
//!   first one decided counts. From then on nothing needs the client, and nothing is undone.
//! - **Each message names its transaction** by its number, not by an epoch only: a Resolve of
//!   transaction n that comes during n+1 of the same epoch is told, which the classic dialect's
//!   epochs cannot do. So every message may be repeated: it changes something once.
//! - **Nobody is told to come back.** What would be answered CONCURRENT_TRANSACTIONS is parked
//!   ([`is_parked`]) and decided anew when the transaction is complete: the EndTxn that prepared it
//!   is then its own repeat, InitProducerId finds nothing open any more, the next transaction's
//!   enrolment begins it. What is parked is forgotten with the owner; clients ask again.
//! - **Ticks tell before and after.** A message carries the tick of the record that it tells of, and
//!   who hears it gives later ticks from then on. So a marker is later than its decision, and the
//!   completed state than every marker, whatever the clocks say.
//!
//! What a journal holds up is its own: the home's partitions end with the decision, and each
//! participant's when it hears of it. Not covered here: plain batches of a transactional producer on
//! a journal that has never seen it (P7 on one journal asks the coordinator in the same step). Nor
//! does a participant ever forget a producer id: what it knows of one, its last transaction's number
//! and end, stays for good, and grows with the ids. When a home forgets an id
//! (`transactional.id.expiration.ms`) it would have to tell the participants, before this is used.

mod home;
mod participant;

use tidemark_types::{CoordinatorEpoch, ProducerEpoch, ProducerId, Tick};

use crate::Partitions;

pub use home::{Driver, complete, is_parked, prepare, resolution};
pub use participant::{Enrolment, Participant, Share, Verdict};

/// A journal, by its number in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JournalId(pub u32);

/// Which transaction a message is about, and who says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnRef {
    pub producer_id: ProducerId,
    /// Counts the transactions of the transactional id, over all its sessions.
    pub txn_number: u64,
    /// The leader epoch of the home's partition of `__transaction_state`.
    pub coordinator_epoch: CoordinatorEpoch,
}

/// From the home to a participant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ToParticipant {
    /// These partitions of the participant's are in the transaction.
    Enroll {
        txn: TxnRef,
        /// The epoch that its batches bear.
        epoch: ProducerEpoch,
        partitions: Partitions,
        tick: Tick,
    },
    /// The transaction has ended.
    Resolve {
        txn: TxnRef,
        /// The epoch that the markers bear, and with it the lowest that may write afterwards.
        epoch: ProducerEpoch,
        commit: bool,
        tick: Tick,
    },
}

impl ToParticipant {
    /// Of the record it tells of: what the receiver writes from now on is later.
    pub fn tick(&self) -> Tick {
        match self {
            ToParticipant::Enroll { tick, .. } | ToParticipant::Resolve { tick, .. } => *tick,
        }
    }
}

/// From a participant to the home.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ToHome {
    /// The partitions are in the transaction, durably.
    Enrolled {
        txn_number: u64,
        partitions: Partitions,
        tick: Tick,
    },
    /// The markers are durable and visible.
    Resolved { txn_number: u64, tick: Tick },
}

impl ToHome {
    /// Of the record it tells of: what the receiver writes from now on is later.
    pub fn tick(&self) -> Tick {
        match self {
            ToHome::Enrolled { tick, .. } | ToHome::Resolved { tick, .. } => *tick,
        }
    }
}
