//! The guard of the classic dialect: every interleaving of one client's transactions over connections
//! that it gives up, and whose requests arrive all the same, over the decisions that the broker runs.
//!
//! A connection is a queue. Its client may give it up while requests are on it and open another; what
//! is on it arrives in its order, whenever it likes, and its answers reach nobody.
//!
//! Four kinds of clients: one connection at a time for everything (Java); one at a time for each
//! coordinator, the group's being the older one (librdkafka); a pool of two that are used at the same
//! time; and a session that is handed to somebody whose connection is older.
//!
//! A client that gave TxnOffsetCommit up may end its transaction without it: it aborts.

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
    /// One at a time to the transaction's coordinator, and one to the group's.
    TwoRoads,
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
    CommitOffsets,
    End,
}

impl Ask {
    const ALL: [Ask; 4] = [Ask::Add, Ask::AddOffsets, Ask::CommitOffsets, Ask::End];

    fn guarded(self) -> Guarded {
        match self {
            Ask::Add => Guarded::AddPartitions,
            Ask::AddOffsets => Guarded::AddOffsets,
            Ask::CommitOffsets => Guarded::TxnOffsetCommit,
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
    /// It goes to the group's coordinator, and nothing else does.
    to_group: bool,
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
    put_off: usize,
    /// Offsets of an earlier transaction became pending in this one.
    late_offsets: bool,
    wrong: BTreeSet<Wrong>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Ask(Ask, usize),
    GiveUp(usize),
    Deliver(usize),
    Open { to_group: bool },
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
            Ask::CommitOffsets => {
                check_txn_offset_commit(meta, producer_id, epoch, 0, Dialect::V1)?;
                self.late_offsets |= txn < self.txn;
                return Ok(());
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
                    Kind::OneAtATime => {
                        self.wrong.insert(Wrong::PutOff);
                    }
                    _ if self.put_off > self.put_off_at_most() => {
                        self.wrong.insert(Wrong::PutOffAgainAndAgain);
                    }
                    _ => {}
                }
            }
            Err(_) => {
                self.wrong.insert(Wrong::Refused);
            }
        }
        if self.done.contains(&Ask::End) && self.txn < setup.txns {
            self.txn += 1;
            self.done.clear();
            self.again.clear();
        }
    }

    fn alive(&self) -> impl Iterator<Item = (usize, &Connection)> + '_ {
        let all = self.connections.iter().enumerate();
        all.filter(|(_, c)| !c.given_up)
    }

    /// Each connection but the newest once for each kind of request, and for offsets once for each
    /// newer connection.
    fn put_off_at_most(&self) -> usize {
        let older = self.connections.len() - 1;
        (Ask::ALL.len() - 1) * older + older * (older + 1) / 2
    }

    fn asks(&self, ask: Ask) -> bool {
        self.waits.iter().any(|(waiting, _)| *waiting == ask)
    }

    /// True if the client may ask it now.
    fn may_ask(&self, ask: Ask) -> bool {
        let done = |ask| self.done.contains(&ask);
        let ends = done(Ask::End) || self.asks(Ask::End) || self.again.contains(&Ask::End);
        if done(ask) || self.asks(ask) || (ends && ask != Ask::End) {
            return false;
        }
        match ask {
            // The enrolments may be on their way together.
            Ask::Add | Ask::AddOffsets => true,
            Ask::CommitOffsets => done(Ask::AddOffsets),
            // The end comes last. It does not wait for offsets that were given up.
            Ask::End => done(Ask::Add) && done(Ask::AddOffsets) && !self.asks(Ask::CommitOffsets),
        }
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let open = |to_group| Connection {
            requests: Vec::new(),
            given_up: false,
            to_group,
        };
        let connections = match self.kind {
            Kind::OneAtATime => vec![open(false)],
            Kind::TwoRoads => vec![open(true), open(false)],
            Kind::Pool | Kind::HandedOver => vec![open(false), open(false)],
        };
        vec![State {
            meta: empty_at(3),
            guard: ConnectionGuard::default(),
            connections,
            txn: 1,
            done: BTreeSet::new(),
            waits: Vec::new(),
            again: Vec::new(),
            give_ups: 0,
            put_off: 0,
            late_offsets: false,
            wrong: BTreeSet::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.wrong.is_empty() {
            return;
        }
        for ask in Ask::ALL.into_iter().filter(|ask| state.may_ask(*ask)) {
            actions.extend(state.alive().filter_map(|(at, connection)| {
                let its = match self.kind {
                    Kind::OneAtATime | Kind::Pool => true,
                    Kind::TwoRoads => (ask == Ask::CommitOffsets) == connection.to_group,
                    Kind::HandedOver => (ask >= Ask::CommitOffsets) == (at == 0),
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
        for to_group in [false, true] {
            let wanted = match self.kind {
                Kind::TwoRoads => 1,
                Kind::OneAtATime if !to_group => 1,
                Kind::Pool if !to_group => 2,
                // Each keeps to its own.
                _ => 0,
            };
            let open = state.alive().filter(|(_, c)| c.to_group == to_group);
            if open.count() < wanted {
                actions.push(Action::Open { to_group });
            }
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
            Action::Open { to_group } => state.connections.push(Connection {
                requests: Vec::new(),
                given_up: false,
                to_group,
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
                s.txn == setup.txns && s.done.contains(&Ask::End)
            }),
        ];
        if matches!(self.kind, Kind::OneAtATime | Kind::TwoRoads) {
            properties.push(Property::always(HOLE, |_, s: &State| {
                !s.wrong.contains(&Wrong::TookEffectLate)
            }));
        }
        if self.kind == Kind::OneAtATime {
            properties.push(Property::always(OFFSETS_HOLE, |_, s: &State| {
                !s.late_offsets
            }));
        } else {
            properties.push(Property::sometimes("is put off", |_, s: &State| {
                s.put_off > 0
            }));
        }
        if self.kind == Kind::TwoRoads {
            // Where only the connection to the group's coordinator was given up, nothing newer has
            // been spoken on.
            let known = "offsets over a connection of their own are not always told";
            properties.push(Property::sometimes(known, |_, s: &State| s.late_offsets));
        }
        properties
    }
}

const HOLE: &str = "no request of an earlier transaction takes effect";
const OFFSETS_HOLE: &str = "no offsets of an earlier transaction become pending";

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
fn without_the_guard_delayed_offsets_join_the_next_transaction() {
    let setup = Setup {
        kind: Kind::OneAtATime,
        guarded: false,
        txns: 2,
        give_ups: 1,
    };
    let checker = setup
        .checker()
        .finish_when(HasDiscoveries::AllOf([OFFSETS_HOLE].into_iter().collect()));
    let checker = checker.spawn_bfs().join();
    assert!(checker.discoveries().contains_key(OFFSETS_HOLE));
}

#[test]
fn a_client_whose_offsets_go_another_way_is_put_off_a_few_times_and_never_refused() {
    Setup {
        kind: Kind::TwoRoads,
        guarded: true,
        txns: 3,
        give_ups: 2,
    }
    .explore();
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
