//! An instance of the transactional id: it does one thing at a time, as a client library does. It
//! sends a request, and until it is answered it may send it again.

use tidemark_txn_coordinator::Dialect;
use tidemark_types::ErrorCode;

use super::facts::Name;
use super::{NO_SESSION, OFFSETS};

/// Producer id and epoch.
pub type Pair = (i64, i16);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ask {
    Init {
        given: Option<Pair>,
        nth: u8,
    },
    /// AddPartitionsToTxn or AddOffsetsToTxn.
    Add {
        pair: Pair,
        txn: u8,
        place: u8,
    },
    /// Produce or TxnOffsetCommit. The sequence is -1 for offsets.
    Write {
        pair: Pair,
        txn: u8,
        place: u8,
        sequence: i32,
    },
    End {
        pair: Pair,
        txn: u8,
        commit: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Request {
    pub from: u8,
    /// The session of the sender, counted by the sessions opened. Only the properties look at it.
    pub session: u8,
    pub ask: Ask,
}

impl Request {
    pub fn opens_session(&self) -> bool {
        matches!(self.ask, Ask::Init { .. })
    }

    /// Asking for a session without a pair is a new session each time, writing is told apart by
    /// sequences; the rest must take effect once.
    pub fn takes_effect_once(&self) -> bool {
        matches!(self.ask, Ask::Init { given: Some(_), .. } | Ask::End { .. })
    }

    pub fn name(&self) -> Option<Name> {
        match self.ask {
            Ask::Write { txn, place, .. } => Some((self.from, txn, place)),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    New,
    Ready,
    InTxn,
    /// The transaction cannot be committed any more.
    MustAbort,
    /// Fenced, or told that it did something it must not.
    Dead,
}

/// What a reply says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Answer {
    pub result: Result<Pair, ErrorCode>,
    /// Of InitProducerId: the session that was opened, if this instance opened it.
    pub session: Option<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Client {
    pub phase: Phase,
    pub pair: Pair,
    pub session: u8,
    pub inits: u8,
    pub txn: u8,
    /// Places of this transaction, a bit each.
    pub added: u8,
    pub acked: u8,
    /// Next sequence in this epoch, by partition.
    pub sequences: [i32; 2],
    pub waiting: Option<Request>,
}

impl Client {
    pub fn new() -> Client {
        Client {
            phase: Phase::New,
            pair: (-1, -1),
            session: NO_SESSION,
            inits: 0,
            txn: 0,
            added: 0,
            acked: 0,
            sequences: [0; 2],
            waiting: None,
        }
    }

    /// What it may ask next: it writes to every place in turn, and ends the transaction when at
    /// least one record of it is acknowledged.
    pub fn next_asks(&self, dialect: Dialect, txns: u8, places: &[u8]) -> Vec<Ask> {
        let pair = self.pair;
        let write = |txn: u8, place: u8| {
            let added = self.phase == Phase::InTxn && self.added & 1 << place != 0;
            match dialect {
                Dialect::V1 if !added => Ask::Add { pair, txn, place },
                _ => Ask::Write {
                    pair,
                    txn,
                    place,
                    sequence: match place {
                        OFFSETS => -1,
                        partition => self.sequences[usize::from(partition)],
                    },
                },
            }
        };
        let end = |commit| Ask::End {
            pair,
            txn: self.txn,
            commit,
        };
        let mut asks = Vec::new();
        match self.phase {
            Phase::New => asks.push(Ask::Init {
                given: None,
                nth: 1,
            }),
            Phase::Ready if self.txn < txns => asks.push(write(self.txn + 1, places[0])),
            Phase::InTxn => {
                let next = places.iter().find(|p| self.acked & 1 << **p == 0);
                asks.extend(next.map(|place| write(self.txn, *place)));
                if self.acked != 0 && self.added == self.acked {
                    asks.extend([end(true), end(false)]);
                }
            }
            Phase::MustAbort => {
                asks.push(end(false));
                if self.inits < 2 {
                    asks.push(Ask::Init {
                        given: Some(pair),
                        nth: 2,
                    });
                }
            }
            Phase::Ready | Phase::Dead => {}
        }
        asks
    }

    pub fn sends(&mut self, from: u8, ask: Ask) -> Request {
        match ask {
            Ask::Init { nth, .. } => self.inits = nth,
            Ask::Add { txn, .. } | Ask::Write { txn, .. } => {
                self.txn = txn;
                self.phase = Phase::InTxn;
            }
            Ask::End { .. } => {}
        }
        let request = Request {
            from,
            session: self.session,
            ask,
        };
        self.waiting = Some(request);
        request
    }

    /// The answer to what it waits for.
    pub fn is_answered(&mut self, dialect: Dialect, request: Request, answer: Answer) {
        self.waiting = None;
        match (request.ask, answer.result) {
            (Ask::Init { .. }, Ok(pair)) => {
                self.goes_on_as(pair);
                // Whoever is handed the pair of another's session still has none of its own.
                self.session = answer.session.unwrap_or(self.session);
                self.is_ready();
            }
            (Ask::Add { place, .. }, Ok(_)) => self.added |= 1 << place,
            (Ask::Write { place, .. }, Ok(_)) => {
                self.added |= 1 << place;
                self.acked |= 1 << place;
                if place != OFFSETS {
                    self.sequences[usize::from(place)] += 1;
                }
            }
            (Ask::End { .. }, Ok(pair)) => {
                if dialect == Dialect::V2 {
                    self.goes_on_as(pair);
                }
                self.is_ready();
            }
            (Ask::Write { .. }, Err(code)) if code != ErrorCode::InvalidProducerIdMapping => {
                self.phase = Phase::MustAbort;
            }
            (Ask::End { .. }, Err(ErrorCode::TransactionAbortable)) => {
                self.phase = Phase::MustAbort;
            }
            (_, Err(_)) => self.phase = Phase::Dead,
        }
    }

    fn goes_on_as(&mut self, pair: Pair) {
        if self.pair != pair {
            self.sequences = [0; 2];
        }
        self.pair = pair;
    }

    fn is_ready(&mut self) {
        self.phase = Phase::Ready;
        self.added = 0;
        self.acked = 0;
    }
}
