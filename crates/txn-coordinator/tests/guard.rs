//! The guard of the classic dialect: every interleaving of one client's transactions over connections
//! that it gives up, and whose requests arrive all the same, over the decisions that the broker runs.
//!
//! A connection is a queue. Its client may give it up while requests are on it and open another; what
//! is on it arrives in its order, whenever it likes, and its answers reach nobody.
//!
//! Three kinds of clients: one connection at a time (librdkafka, Java); a pool of two that are used at
//! the same time; and a session that is handed to somebody whose connection is older.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{empty_at, parts, typed};
use stateright::{Checker, HasDiscoveries, Model, Property};
use tidemark_txn_coordinator::guard::{ConnectionGuard, ConnectionId, Guarded};
use tidemark_txn_coordinator::*;
use tidemark_types::{ErrorCode, ProducerId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    OneAtATime,
    Pool,
    /// The second half of each transaction is another's, on a connection that was opened first.
    HandedOver,
}

#[derive(Clone, Copy)]
struct Setup {
    kind: Kind,
    guarded: bool,
    txns: u8,
    give_ups: u8,
}

/// What a client asks in its n-th transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Ask {
    Add,
    AddOffsets,
    End,
}

impl Ask {
    const ALL: [Ask; 3] = [Ask::Add, Ask::AddOffsets, Ask::End];

    fn guarded(self) -> Guarded {
        match self {
            Ask::Add => Guarded::AddPartitions,
            Ask::AddOffsets => Guarded::AddOffsets,
            Ask::End => Guarded::EndTxn,
        }
    }
}

type Request = (u8, Ask);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Wrong {
    /// A request of an earlier transaction took effect.
    TookEffectLate,
    /// A request that is waited for was refused with something that is not asked again.
    Refused,
    /// A client that is waited for was put off more often than it has connections.
    PutOffAgainAndAgain,
    /// A client of one connection at a time was put off.
    PutOff,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Connection {
    requests: Vec<Request>,
    given_up: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    meta: TxnMeta,
    guard: ConnectionGuard,
    /// By their age.
    connections: Vec<Connection>,
    txn: u8,
    /// Answered in this transaction.
    done: BTreeSet<Ask>,
    /// Asked and not answered, and where.
    waits: Vec<(Ask, usize)>,
    /// To be asked again.
    again: Vec<Ask>,
    give_ups: u8,
    put_off: u8,
    wrong: BTreeSet<Wrong>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Ask(Ask, usize),
    GiveUp(usize),
    Deliver(usize),
    Open,
}

impl State {
    fn decide(&mut self, setup: &Setup, from: usize, request: Request) -> Result<(), ErrorCode> {
        let (txn, ask) = request;
        let (producer_id, epoch) = typed((7, 3));
        if setup.guarded {
            let id: Arc<str> = "tx1".into();
            let from = ConnectionId(from as u64);
            let session = (producer_id, epoch);
            if !self.guard.admits(&id, session, ask.guarded(), from) {
                return Err(ErrorCode::CoordinatorLoadInProgress);
            }
        }
        let meta = Some(&self.meta);
        let outcome = match ask {
            Ask::Add => {
                let wanted = parts(&[("t", i32::from(txn))]);
                decide_add_partitions(meta, producer_id, epoch, &wanted, 0)?
            }
            Ask::AddOffsets => {
                let wanted = parts(&[("__consumer_offsets", 0)]);
                decide_add_partitions(meta, producer_id, epoch, &wanted, 0)?
            }
            Ask::End => {
                let end = EndTxn {
                    producer_id,
                    epoch,
                    commit: true,
                    dialect: Dialect::V1,
                };
                decide_end_txn(meta, &end, ProducerId(8), 0)?
            }
        };
        if let Some(next) = outcome.next {
            if txn < self.txn {
                self.wrong.insert(Wrong::TookEffectLate);
            }
            self.meta = next;
        }
        Ok(())
    }

    fn deliver(&mut self, setup: &Setup, from: usize) {
        let request = self.connections[from].requests.remove(0);
        let answer = self.decide(setup, from, request);
        let (txn, ask) = request;
        let waited_for = self.waits.iter().position(|w| *w == (ask, from));
        let Some(at) = waited_for.filter(|_| txn == self.txn) else {
            return;
        };
        self.waits.remove(at);
        match answer {
            Ok(()) => drop(self.done.insert(ask)),
            Err(ErrorCode::CoordinatorLoadInProgress) => {
                self.put_off += 1;
                self.again.push(ask);
                match setup.kind {
                    Kind::OneAtATime => drop(self.wrong.insert(Wrong::PutOff)),
                    // Each connection once for each kind of request.
                    _ if self.put_off > 6 => drop(self.wrong.insert(Wrong::PutOffAgainAndAgain)),
                    _ => {}
                }
            }
            Err(_) => drop(self.wrong.insert(Wrong::Refused)),
        }
        if self.done.len() == Ask::ALL.len() && self.txn < setup.txns {
            self.txn += 1;
            self.done.clear();
        }
    }

    fn alive(&self) -> impl Iterator<Item = usize> + '_ {
        let all = self.connections.iter().enumerate();
        all.filter(|(_, c)| !c.given_up).map(|(at, _)| at)
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let open = Connection {
            requests: Vec::new(),
            given_up: false,
        };
        let connections = match self.kind {
            Kind::OneAtATime => 1,
            Kind::Pool | Kind::HandedOver => 2,
        };
        vec![State {
            meta: empty_at(3),
            guard: ConnectionGuard::default(),
            connections: vec![open; connections],
            txn: 1,
            done: BTreeSet::new(),
            waits: Vec::new(),
            again: Vec::new(),
            give_ups: 0,
            put_off: 0,
            wrong: BTreeSet::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.wrong.is_empty() {
            return;
        }
        let asked = |ask: Ask| {
            state.done.contains(&ask) || state.waits.iter().any(|(waiting, _)| *waiting == ask)
        };
        let roads: Vec<usize> = state.alive().collect();
        for ask in Ask::ALL {
            // The end comes last; the enrolments may be on their way together.
            let enrolled = state.done.len() == Ask::ALL.len() - 1;
            if asked(ask) || (ask == Ask::End && !enrolled) {
                continue;
            }
            actions.extend(roads.iter().filter_map(|&at| {
                let its = match self.kind {
                    Kind::OneAtATime | Kind::Pool => true,
                    Kind::HandedOver => (ask == Ask::End) == (at == 0),
                };
                its.then_some(Action::Ask(ask, at))
            }));
        }
        for (at, connection) in state.connections.iter().enumerate() {
            if !connection.requests.is_empty() {
                actions.push(Action::Deliver(at));
                if !connection.given_up && state.give_ups < self.give_ups {
                    actions.push(Action::GiveUp(at));
                }
            }
        }
        let wanted = match self.kind {
            Kind::OneAtATime => 1,
            Kind::Pool => 2,
            // Each keeps to its own.
            Kind::HandedOver => 0,
        };
        if roads.len() < wanted {
            actions.push(Action::Open);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask(ask, at) => {
                state.again.retain(|again| *again != ask);
                state.waits.push((ask, at));
                state.waits.sort_unstable();
                state.connections[at].requests.push((state.txn, ask));
            }
            Action::GiveUp(at) => {
                if self.kind == Kind::HandedOver {
                    return None;
                }
                state.give_ups += 1;
                state.connections[at].given_up = true;
                let lost = state.waits.iter().filter(|(_, on)| *on == at);
                state.again.extend(lost.map(|(ask, _)| *ask));
                state.again.sort_unstable();
                state.waits.retain(|(_, on)| *on != at);
            }
            Action::Deliver(at) => state.deliver(self, at),
            Action::Open => state.connections.push(Connection {
                requests: Vec::new(),
                given_up: false,
            }),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Setup>> {
        let mut properties = vec![
            Property::always("nobody who is there is refused", |_, s: &State| {
                !s.wrong.contains(&Wrong::Refused)
            }),
            Property::always("nobody is put off again and again", |_, s: &State| {
                !s.wrong.contains(&Wrong::PutOffAgainAndAgain)
            }),
            Property::always(
                "one connection at a time is never put off",
                |_, s: &State| !s.wrong.contains(&Wrong::PutOff),
            ),
            Property::sometimes("every transaction ends", |setup: &Setup, s: &State| {
                s.txn == setup.txns && s.done.len() == Ask::ALL.len()
            }),
        ];
        if self.kind == Kind::OneAtATime {
            properties.push(Property::always(HOLE, |_, s: &State| {
                !s.wrong.contains(&Wrong::TookEffectLate)
            }));
        } else {
            properties.push(Property::sometimes("is put off", |_, s: &State| {
                s.put_off > 0
            }));
        }
        properties
    }
}

const HOLE: &str = "no request of an earlier transaction takes effect";

impl Setup {
    fn explore(self) {
        let checker = self.checker().threads(2).spawn_bfs().join();
        println!("{:?}: {} states", self.kind, checker.unique_state_count());
        checker.assert_properties();
    }
}

#[test]
fn a_client_of_one_connection_at_a_time_is_guarded_and_never_put_off() {
    Setup {
        kind: Kind::OneAtATime,
        guarded: true,
        txns: 3,
        give_ups: 2,
    }
    .explore();
}

#[test]
fn without_the_guard_a_delayed_request_takes_effect() {
    let setup = Setup {
        kind: Kind::OneAtATime,
        guarded: false,
        txns: 2,
        give_ups: 1,
    };
    let checker = setup.checker().finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    assert!(checker.discoveries().contains_key(HOLE));
}

#[test]
fn a_pool_of_connections_is_put_off_a_few_times_and_never_refused() {
    // It is not guarded either: the age of a connection says nothing of what is on it.
    Setup {
        kind: Kind::Pool,
        guarded: true,
        txns: 2,
        give_ups: 1,
    }
    .explore();
}

#[test]
fn a_session_that_is_handed_to_an_older_connection_goes_on() {
    Setup {
        kind: Kind::HandedOver,
        guarded: true,
        txns: 3,
        give_ups: 0,
    }
    .explore();
}
