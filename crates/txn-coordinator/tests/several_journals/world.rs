//! What there is: journals with their owners, a client, messages, and the faults that are planted.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_txn_coordinator::several::{Driver, JournalId, Participant, ToHome, ToParticipant};
use tidemark_txn_coordinator::*;
use tidemark_types::Tick;

use crate::common::Pair;

pub const TOPIC: &str = "t";

/// A mistake that somebody could make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Sound,
    /// A participant that was not enrolled takes no note of the end.
    ForgetsAnEndItHasNotBegun,
    /// The decision names those participants only that have answered.
    OnlyTheEnrolled,
    /// A timeout aborts what is decided already.
    DecidesTwice,
    /// Participants hear of the decision before it is durable, and it is lost.
    TellsBeforeItIsDurable,
    /// A participant goes by the producer and not by the transaction's number.
    IgnoresTheNumber,
    /// EndTxn is answered, and the next transaction begun, when the end is decided.
    AnswersWhenDecided,
    /// The next owner of a participant's journal does not know what was enrolled.
    ForgetsEnrolments,
    /// Ticks go by each owner's clock alone.
    ClocksOnly,
}

#[derive(Clone)]
pub struct Setup {
    pub fault: Fault,
    pub dialect: Dialect,
    pub first_epoch: i16,
    /// The home and its participants; the client writes to each.
    pub journals: i32,
    pub txns: u8,
    pub timeouts: u8,
    pub home_moves: u8,
    pub participant_moves: u8,
    /// New sessions by somebody else, who then does nothing.
    pub sessions: u8,
    /// Batches may be given up while they are on their way.
    pub gives_up: bool,
    /// Follow ticks, from clocks far apart.
    pub ticks: bool,
}

impl Setup {
    pub fn new(dialect: Dialect) -> Setup {
        Setup {
            fault: Fault::Sound,
            dialect,
            first_epoch: 3,
            journals: 2,
            txns: 2,
            timeouts: 1,
            home_moves: 1,
            participant_moves: 0,
            sessions: 0,
            gives_up: false,
            ticks: false,
        }
    }

    /// The participant that has a partition; the home has partition 0.
    pub fn journal_of(_: &str, partition: i32) -> Option<JournalId> {
        (partition > 0).then_some(JournalId(partition as u32))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ask {
    /// A session of its own again, with the pair it holds.
    Init,
    Add(i32),
    End(bool),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    ToParticipant(JournalId, ToParticipant),
    ToHome(JournalId, ToHome),
    /// A batch of the client's n-th transaction.
    Batch {
        pair: Pair,
        txn: u8,
        partition: i32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wrong {
    /// One journal commits what another aborts, or it is decided twice.
    Torn,
    /// Markers of one transaction twice in a journal.
    MarkedTwice,
    /// Records of a transaction that ended without a marker for them.
    Unmarked,
    /// A record in a transaction that has ended in its journal, or with another transaction's.
    Joined,
    /// The end was answered, and not all of it is so.
    NotAsAnswered,
    /// A transaction began in a journal where the one before was open.
    BeganTooEarly,
    /// A later thing has an earlier tick.
    TickOrder,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Client {
    pub pair: Pair,
    pub txn: u8,
    pub added: u8,
    pub written: u8,
    pub in_txn: bool,
    pub waiting: Option<Ask>,
    pub parked: bool,
    /// Something was refused: it opens a session of its own, once.
    pub failed: bool,
    pub inits: u8,
    pub dead: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    // Durable, the home's.
    pub meta: TxnMeta,
    pub state_tick: Tick,
    pub next_pid: i64,
    pub coordinator_epoch: i32,
    // In the memory of the home's owner.
    pub driver: Driver,
    // Durable, each participant's.
    pub participants: BTreeMap<JournalId, Participant>,
    /// The last tick of each journal, 0 the home's.
    pub ticks: BTreeMap<i32, Tick>,
    pub network: BTreeSet<Message>,
    pub client: Client,
    /// The session that somebody else is opening.
    pub session_waits: bool,
    pub timeouts: u8,
    pub home_moves: u8,
    pub participant_moves: u8,
    pub sessions: u8,
    // What the properties look at.
    pub decided: BTreeMap<u64, (bool, Tick)>,
    pub ended: BTreeMap<(u64, i32), (bool, Tick)>,
    /// (client's transaction, partition): the transaction it is in.
    pub records: BTreeMap<(u8, i32), u64>,
    pub commits: u8,
    pub aborts: u8,
    pub wrong: BTreeSet<Wrong>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Ask(Ask),
    AskAgain,
    Send(i32),
    GiveUp,
    Deliver(usize),
    Timeout,
    NewSession,
    SessionAgain,
    MoveHome,
    MoveParticipant(u32),
}

impl Client {
    pub fn fail(&mut self) {
        self.dead = self.inits > 0;
        self.failed = true;
    }
}
