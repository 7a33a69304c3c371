//! Every interleaving of two instances of one transactional id, their delayed and repeated
//! requests, lost answers, a timeout and a crash, over the decisions that the broker runs.
//!
//! An instance does one thing at a time, as a client library does: it sends a request, and until it
//! is answered it may send it again. A request travels for as long as it likes. The answer arrives
//! with the decision or not at all: to be answered later is to be decided, unanswered, and asked
//! again. A crash cuts the connections and rebuilds the state from its records.
//!
//! The records an instance writes are followed by name (instance, its own count of transactions,
//! partition), so a property can ask what became of them; the decisions see none of that.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Pair, empty_at, parts, typed, who};
use stateright::{Checker, Model, Property};
use tidemark_txn_coordinator::*;
use tidemark_types::{ErrorCode, ProducerId};

const ID: &str = "tx1";
const TOPIC: &str = "t";

/// What goes wrong, and how much of it.
#[derive(Clone)]
struct Setup {
    dialects: [Dialect; 2],
    /// The id exists already, at this epoch of producer id 7.
    first_epoch: Option<i16>,
    /// Transactions each instance begins.
    txns: [u8; 2],
    /// Partitions each instance writes to in a transaction.
    partitions: [i32; 2],
    /// Requests sent again.
    repeats: u8,
    /// True if a request is sent again while the first copy may still be on its way, and given up
    /// while it is. False: only the answer was lost.
    delays: bool,
    timeouts: u8,
    crashes: u8,
    /// The always-properties that are known not to hold and are then expected to fail.
    known_holes: bool,
}

impl Setup {
    fn new(dialects: [Dialect; 2]) -> Setup {
        Setup {
            dialects,
            first_epoch: None,
            txns: [1, 1],
            partitions: [2, 1],
            repeats: 1,
            delays: true,
            timeouts: 1,
            crashes: 1,
            known_holes: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Ask {
    Init { given: Option<Pair>, nth: u8 },
    Add { pair: Pair, txn: u8, partition: i32 },
    Write { pair: Pair, txn: u8, partition: i32 },
    End { pair: Pair, txn: u8, commit: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Request {
    from: usize,
    /// The session of the sender, counted by the sessions opened. Only the properties look at it.
    session: u8,
    ask: Ask,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    New,
    Ready,
    InTxn,
    /// The transaction cannot be committed any more.
    MustAbort,
    /// Fenced, or told that it did something it must not.
    Dead,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Client {
    phase: Phase,
    pair: Pair,
    session: u8,
    inits: u8,
    txn: u8,
    added: u8,
    acked: u8,
    waiting: Option<Request>,
}

/// What a property says must not happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Wrong {
    /// A transaction ended twice.
    EndedTwice,
    /// A session that another has followed enrolled, wrote or ended something.
    ZombieActed,
    /// A commit was answered 0 and a record of it that was acked is not committed.
    CommitLost,
    /// An abort was answered 0 and a record of it is committed.
    AbortVisible,
    /// A record is committed, another of the same transaction of the instance aborted.
    Torn,
    /// A record is in a transaction with one of another transaction of an instance.
    Mixed,
    /// One EndTxn, or one InitProducerId with a pair, took effect twice.
    EffectTwice,
}

/// What must be reachable for the properties to mean anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Seen {
    RetriedEnd,
    RetriedInit,
    ZombieRefused,
    CameBackAfterTimeout,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    coordinator: Coordinator,
    next_pid: i64,
    clients: [Client; 2],
    on_the_way: Vec<Request>,
    repeats: u8,
    timeouts: u8,
    crashes: u8,
    sessions: u8,
    /// The instance that opened the last session.
    owner: usize,
    /// (instance, its transaction, partition) and the transaction number it was written in.
    written: BTreeMap<(usize, u8, i32), u64>,
    /// Transaction number and commit or not.
    ends: BTreeMap<u64, bool>,
    effective: BTreeSet<Request>,
    wrong: BTreeSet<Wrong>,
    seen: BTreeSet<Seen>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Send(usize, Ask),
    SendAgain(usize),
    GiveUp(usize),
    Deliver { at: usize, answered: bool },
    Timeout,
    Crash,
}

impl State {
    fn meta(&self) -> Option<&TxnMeta> {
        self.coordinator.get(ID)
    }

    /// What the owner does with a decision.
    fn record(&mut self, outcome: Outcome) -> Pair {
        if outcome.used_fresh_producer_id {
            self.next_pid += 1;
        }
        if let Some(markers) = outcome.markers {
            let number = self.meta().expect("it ends").txn_number;
            if self.ends.insert(number, markers.commit).is_some() {
                self.wrong.insert(Wrong::EndedTwice);
            }
        }
        if let Some(next) = outcome.next {
            self.coordinator.apply(ID, Some(next));
        }
        (outcome.reply.0.0, outcome.reply.1.0)
    }

    fn decide(&mut self, dialect: Dialect, request: Request) -> Result<Pair, ErrorCode> {
        let fresh = ProducerId(self.next_pid);
        let meta = self.meta();
        let outcome = match request.ask {
            Ask::Init { given, .. } => {
                let init = InitProducerId {
                    transactional_id: ID.into(),
                    timeout_ms: 1_000,
                    given: given.map(typed),
                };
                decide_init_producer_id(meta, &init, 1_000, fresh, 0, who("c1"))?
            }
            Ask::Add {
                pair, partition, ..
            } => {
                let (producer_id, epoch) = typed(pair);
                let added = parts(&[(TOPIC, partition)]);
                decide_add_partitions(meta, producer_id, epoch, &added, 0)?
            }
            Ask::Write {
                pair, partition, ..
            } => {
                let (producer_id, epoch) = typed(pair);
                let by_producer_id = self.coordinator.by_producer_id(producer_id);
                check_any_produce(by_producer_id, producer_id, epoch)?;
                match dialect {
                    Dialect::V1 => {
                        check_transactional_produce(
                            by_producer_id,
                            producer_id,
                            epoch,
                            TOPIC,
                            partition,
                            9,
                        )?;
                        return Ok(pair);
                    }
                    Dialect::V2 => {
                        let added = parts(&[(TOPIC, partition)]);
                        decide_implicit_enrolment(meta, producer_id, epoch, &added, 0)?
                    }
                }
            }
            Ask::End { pair, commit, .. } => {
                let (producer_id, epoch) = typed(pair);
                let end = EndTxn {
                    producer_id,
                    epoch,
                    commit,
                    dialect,
                };
                decide_end_txn(meta, &end, fresh, 0)?
            }
        };
        let changes = outcome.next.is_some();
        let is_init = matches!(request.ask, Ask::Init { .. });
        if changes && is_init {
            self.sessions += 1;
            self.owner = request.from;
        }
        let repeatable = matches!(request.ask, Ask::Init { given: None, .. });
        let ends = matches!(request.ask, Ask::Init { .. } | Ask::End { .. });
        if ends && !repeatable {
            if changes && !self.effective.insert(request) {
                self.wrong.insert(Wrong::EffectTwice);
            } else if !changes {
                self.seen.insert(match request.ask {
                    Ask::End { .. } => Seen::RetriedEnd,
                    _ => Seen::RetriedInit,
                });
            }
        }
        if changes && !is_init && request.session != self.sessions {
            self.wrong.insert(Wrong::ZombieActed);
        }
        Ok(self.record(outcome))
    }

    /// The batch itself. One that was written already is a duplicate by its sequence.
    fn append(&mut self, request: Request, txn: u8, partition: i32) {
        let record = (request.from, txn, partition);
        if self.written.contains_key(&record) {
            return;
        }
        if request.session != self.sessions {
            self.wrong.insert(Wrong::ZombieActed);
        }
        let number = self.meta().expect("it was checked").txn_number;
        let mixed = self
            .written
            .iter()
            .any(|(&(from, other, _), &n)| n == number && (from, other) != (request.from, txn));
        if mixed {
            self.wrong.insert(Wrong::Mixed);
        }
        self.written.insert(record, number);
    }

    /// What became of the records of one transaction of an instance.
    fn fates(&self, from: usize, txn: u8) -> BTreeSet<Option<bool>> {
        self.written
            .iter()
            .filter(|((f, t, _), _)| (*f, *t) == (from, txn))
            .map(|(_, number)| self.ends.get(number).copied())
            .collect()
    }

    fn look_for_torn(&mut self) {
        for from in 0..2 {
            for txn in 1..=self.clients[from].txn {
                let fates = self.fates(from, txn);
                if fates.contains(&Some(true)) && fates.contains(&Some(false)) {
                    self.wrong.insert(Wrong::Torn);
                }
            }
        }
    }

    fn answer(&mut self, dialect: Dialect, request: Request, answer: Result<Pair, ErrorCode>) {
        let (sessions, owner) = (self.sessions, self.owner);
        let fates = match request.ask {
            Ask::End { txn, .. } => self.fates(request.from, txn),
            _ => BTreeSet::new(),
        };
        let client = &mut self.clients[request.from];
        client.waiting = None;
        match (request.ask, answer) {
            (Ask::Init { .. }, Ok(pair)) => {
                client.pair = pair;
                // Whoever is handed the pair of another's session still has none of its own.
                if owner == request.from {
                    client.session = sessions;
                }
                client.phase = Phase::Ready;
                client.added = 0;
                client.acked = 0;
            }
            (Ask::Add { partition, .. }, Ok(_)) => client.added |= 1 << partition,
            (Ask::Write { partition, .. }, Ok(_)) => {
                client.added |= 1 << partition;
                client.acked |= 1 << partition;
            }
            (Ask::End { commit, .. }, Ok(pair)) => {
                if dialect == Dialect::V2 {
                    client.pair = pair;
                }
                let acked = client.acked != 0;
                client.phase = Phase::Ready;
                client.added = 0;
                client.acked = 0;
                if commit && acked && fates != BTreeSet::from([Some(true)]) {
                    self.wrong.insert(Wrong::CommitLost);
                }
                if !commit && fates.contains(&Some(true)) {
                    self.wrong.insert(Wrong::AbortVisible);
                }
            }
            (Ask::Write { .. }, Err(code)) if code != ErrorCode::InvalidProducerIdMapping => {
                client.phase = Phase::MustAbort;
            }
            (Ask::End { .. }, Err(ErrorCode::TransactionAbortable)) => {
                client.phase = Phase::MustAbort;
            }
            (_, Err(_)) => client.phase = Phase::Dead,
        }
    }
}

type Condition = fn(&Setup, &State) -> bool;

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut coordinator = Coordinator::new(1);
        if let Some(epoch) = self.first_epoch {
            coordinator.restore(ID, Some(empty_at(epoch))).unwrap();
        }
        let client = Client {
            phase: Phase::New,
            pair: (-1, -1),
            session: 0,
            inits: 0,
            txn: 0,
            added: 0,
            acked: 0,
            waiting: None,
        };
        vec![State {
            coordinator,
            next_pid: 8,
            clients: [client.clone(), client],
            on_the_way: Vec::new(),
            repeats: 0,
            timeouts: 0,
            crashes: 0,
            sessions: 0,
            owner: 0,
            written: BTreeMap::new(),
            ends: BTreeMap::new(),
            effective: BTreeSet::new(),
            wrong: BTreeSet::new(),
            seen: BTreeSet::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // A repeated effect is where some of the other holes begin, so the story goes on.
        if state.wrong.iter().any(|w| *w != Wrong::EffectTwice) {
            return;
        }
        for (i, client) in state.clients.iter().enumerate() {
            if let Some(request) = client.waiting {
                let under_way = state.on_the_way.contains(&request);
                if state.repeats < self.repeats && (self.delays || !under_way) {
                    actions.push(Action::SendAgain(i));
                }
                let is_write = matches!(request.ask, Ask::Write { .. });
                if self.delays && is_write && under_way {
                    actions.push(Action::GiveUp(i));
                }
                continue;
            }
            self.next_asks(i, client, actions);
        }
        for at in 0..state.on_the_way.len() {
            let request = state.on_the_way[at];
            if state.on_the_way[..at].contains(&request) {
                continue;
            }
            if state.clients[request.from].waiting == Some(request) {
                actions.push(Action::Deliver { at, answered: true });
                // An answer that is lost and not asked for again ends the story.
                if state.repeats < self.repeats || state.on_the_way[at + 1..].contains(&request) {
                    actions.push(Action::Deliver {
                        at,
                        answered: false,
                    });
                }
            } else {
                actions.push(Action::Deliver {
                    at,
                    answered: false,
                });
            }
        }
        let ongoing = state.meta().is_some_and(|m| m.state == TxnState::Ongoing);
        if ongoing && state.timeouts < self.timeouts {
            actions.push(Action::Timeout);
        }
        if state.crashes < self.crashes && !state.on_the_way.is_empty() {
            actions.push(Action::Crash);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Send(i, ask) => {
                let client = &mut state.clients[i];
                match ask {
                    Ask::Init { nth, .. } => client.inits = nth,
                    Ask::Add { txn, .. } | Ask::Write { txn, .. } => {
                        client.txn = txn;
                        client.phase = Phase::InTxn;
                    }
                    Ask::End { .. } => {}
                }
                let request = Request {
                    from: i,
                    session: client.session,
                    ask,
                };
                client.waiting = Some(request);
                state.on_the_way.push(request);
                state.on_the_way.sort_unstable();
            }
            Action::SendAgain(i) => {
                let request = state.clients[i].waiting?;
                state.repeats += 1;
                state.on_the_way.push(request);
                state.on_the_way.sort_unstable();
            }
            Action::GiveUp(i) => {
                state.clients[i].waiting = None;
                state.clients[i].phase = Phase::MustAbort;
            }
            Action::Deliver { at, answered } => {
                let request = state.on_the_way.remove(at);
                let dialect = self.dialects[request.from];
                let answer = state.decide(dialect, request);
                if let (Ask::Write { txn, partition, .. }, Ok(_)) = (request.ask, answer) {
                    state.append(request, txn, partition);
                }
                if answer.is_err() && request.session != 0 && request.session != state.sessions {
                    state.seen.insert(Seen::ZombieRefused);
                }
                state.look_for_torn();
                let after_timeout = state.meta().is_some_and(|m| m.ended_by == EndedBy::Timeout);
                let moved_on = answer.is_ok_and(|pair| pair != state.clients[request.from].pair);
                let came_back = matches!(request.ask, Ask::End { .. })
                    || matches!(request.ask, Ask::Init { given: Some(_), .. });
                if after_timeout && moved_on && came_back {
                    state.seen.insert(Seen::CameBackAfterTimeout);
                }
                if answered {
                    state.answer(dialect, request, answer);
                }
            }
            Action::Timeout => {
                state.timeouts += 1;
                let fresh = ProducerId(state.next_pid);
                let decided = decide_abort_by_broker(state.meta()?, AbortReason::Timeout, fresh, 0);
                state.record(decided.expect("it is ongoing"));
                state.look_for_torn();
            }
            Action::Crash => {
                state.crashes += 1;
                state.on_the_way.clear();
                let mut rebuilt = Coordinator::new(1);
                for (key, value) in state.coordinator.records_of_partition(0) {
                    rebuilt.apply_record(&key, Some(&value)).unwrap();
                }
                assert_eq!(rebuilt, state.coordinator);
                state.coordinator = rebuilt;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Setup>> {
        fn never(state: &State, wrong: Wrong) -> bool {
            !state.wrong.contains(&wrong)
        }
        let mut properties = vec![
            Property::always("a transaction ends once", |_, s: &State| {
                never(s, Wrong::EndedTwice)
            }),
            Property::always("no earlier instance acts", |_, s: &State| {
                never(s, Wrong::ZombieActed)
            }),
            Property::always("the state makes sense", |_, s: &State| {
                s.meta().is_none_or(|m| check(m).is_ok())
            }),
            Property::sometimes("a commit", |_, s: &State| s.ends.values().any(|c| *c)),
            Property::sometimes("an abort", |_, s: &State| s.ends.values().any(|c| !*c)),
            Property::sometimes("an earlier instance is refused", |_, s: &State| {
                s.seen.contains(&Seen::ZombieRefused)
            }),
        ];
        if self.txns.iter().all(|n| *n > 0) {
            properties.push(Property::sometimes(
                "both instances commit",
                |_, s: &State| {
                    (0..2)
                        .all(|i| (1..=2).any(|txn| s.fates(i, txn) == BTreeSet::from([Some(true)])))
                },
            ));
        }
        if self.repeats > 0 {
            properties.push(Property::sometimes(
                "an end is asked again",
                |_, s: &State| s.seen.contains(&Seen::RetriedEnd),
            ));
            properties.push(Property::sometimes(
                "a pair is asked again",
                |_, s: &State| s.seen.contains(&Seen::RetriedInit),
            ));
        }
        if self.timeouts > 0 {
            properties.push(Property::sometimes(
                "a way back after a timeout",
                |_, s: &State| s.seen.contains(&Seen::CameBackAfterTimeout),
            ));
        }
        if self.first_epoch.is_some() {
            properties.push(Property::sometimes("epochs run out", |_, s: &State| {
                s.meta().is_some_and(|m| m.producer_id != ProducerId(7))
            }));
        }
        let stories: [(&str, Condition); 5] = [
            ("a commit that was answered 0 is whole", |_, s| {
                never(s, Wrong::CommitLost)
            }),
            ("an abort that was answered 0 is unseen", |_, s| {
                never(s, Wrong::AbortVisible)
            }),
            ("all or nothing", |_, s| never(s, Wrong::Torn)),
            ("a transaction is one transaction's records", |_, s| {
                never(s, Wrong::Mixed)
            }),
            ("asking again has no effect", |_, s| {
                never(s, Wrong::EffectTwice)
            }),
        ];
        let holes: [(&str, Condition); 5] = [
            ("hole: a commit is not whole", |_, s| {
                !never(s, Wrong::CommitLost)
            }),
            ("hole: an aborted record is seen", |_, s| {
                !never(s, Wrong::AbortVisible)
            }),
            ("hole: half of a transaction", |_, s| !never(s, Wrong::Torn)),
            ("hole: a delayed record joins the next", |_, s| {
                !never(s, Wrong::Mixed)
            }),
            ("hole: a delayed end takes effect again", |_, s| {
                !never(s, Wrong::EffectTwice)
            }),
        ];
        if self.known_holes {
            properties.extend(holes.map(|(name, p)| Property::sometimes(name, p)));
        } else {
            properties.extend(stories.map(|(name, p)| Property::always(name, p)));
        }
        properties
    }
}

impl Setup {
    fn next_asks(&self, i: usize, client: &Client, actions: &mut Vec<Action>) {
        let pair = client.pair;
        let mut send = |ask| actions.push(Action::Send(i, ask));
        let mut write = |txn: u8, partition: i32| {
            let added = client.phase == Phase::InTxn && client.added & 1 << partition != 0;
            send(if self.dialects[i] == Dialect::V1 && !added {
                Ask::Add {
                    pair,
                    txn,
                    partition,
                }
            } else {
                Ask::Write {
                    pair,
                    txn,
                    partition,
                }
            });
        };
        match client.phase {
            Phase::New => send(Ask::Init {
                given: None,
                nth: 1,
            }),
            Phase::Ready if client.txn < self.txns[i] => write(client.txn + 1, 0),
            Phase::InTxn => {
                let next = (0..self.partitions[i]).find(|p| client.acked & 1 << p == 0);
                if let Some(partition) = next {
                    write(client.txn, partition);
                }
                let half = client.added != client.acked;
                if client.acked != 0 && !half {
                    for commit in [true, false] {
                        send(Ask::End {
                            pair,
                            txn: client.txn,
                            commit,
                        });
                    }
                }
            }
            Phase::MustAbort => {
                send(Ask::End {
                    pair,
                    txn: client.txn,
                    commit: false,
                });
                if client.inits < 2 {
                    send(Ask::Init {
                        given: Some(pair),
                        nth: 2,
                    });
                }
            }
            Phase::Ready | Phase::Dead => {}
        }
    }

    fn explore(self, what: &str) {
        let checker = self.checker().threads(2).spawn_bfs().join();
        println!("{what}: {} states", checker.unique_state_count());
        checker.assert_properties();
    }
}

const V1: Dialect = Dialect::V1;
const V2: Dialect = Dialect::V2;

#[test]
fn version_2_one_transaction_each() {
    Setup::new([V2, V2]).explore("version 2, one transaction each");
}

#[test]
fn version_2_two_transactions_and_a_new_session() {
    Setup {
        txns: [2, 0],
        partitions: [1, 0],
        ..Setup::new([V2, V2])
    }
    .explore("version 2, two transactions");
}

#[test]
fn version_2_where_epochs_run_out() {
    for first_epoch in [32_763, 32_764, 32_765] {
        Setup {
            first_epoch: Some(first_epoch),
            partitions: [1, 1],
            crashes: 0,
            ..Setup::new([V2, V2])
        }
        .explore("version 2, last epochs");
    }
}

#[test]
fn the_classic_dialect_when_only_answers_are_lost() {
    Setup {
        delays: false,
        ..Setup::new([V1, V1])
    }
    .explore("classic");
}

#[test]
fn the_classic_dialect_where_epochs_run_out() {
    for first_epoch in [32_763, 32_764, 32_765] {
        Setup {
            first_epoch: Some(first_epoch),
            delays: false,
            partitions: [1, 1],
            ..Setup::new([V1, V1])
        }
        .explore("classic, last epochs");
    }
}

#[test]
fn an_upgrade_from_the_classic_dialect() {
    // Nothing can be mistaken for the next transaction's: the classic instance has only one.
    for txns in [[1, 2], [1, 1]] {
        let extra = u8::from(txns == [1, 1]);
        Setup {
            txns,
            partitions: [1, 1],
            timeouts: extra,
            crashes: extra,
            ..Setup::new([V1, V2])
        }
        .explore("classic and version 2");
    }
}

#[test]
fn the_classic_dialect_is_open_to_delayed_requests_but_fences() {
    // KIP-890's motivation: an epoch names a session, not a transaction, so a request of one
    // transaction that arrives during the next one of the same session cannot be told apart by what
    // is in it (`guard` goes by the connection); what must hold even so is fencing.
    Setup {
        txns: [2, 0],
        partitions: [2, 0],
        timeouts: 0,
        crashes: 0,
        known_holes: true,
        ..Setup::new([V1, V1])
    }
    .explore("classic, delayed");
}

#[test]
#[ignore = "four million states, about a minute; the tests above are its parts: scripts/prove models"]
fn everything_at_once() {
    let both = |setup: Setup, what| {
        Setup {
            txns: [2, 1],
            ..setup
        }
        .explore(what)
    };
    both(Setup::new([V2, V2]), "version 2, everything");
    let prompt = Setup {
        delays: false,
        repeats: 2,
        ..Setup::new([V1, V1])
    };
    both(prompt, "classic, everything");
}
