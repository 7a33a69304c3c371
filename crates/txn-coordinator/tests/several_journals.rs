//! Transactions over several journals: every interleaving of a client's requests with messages between
//! the owners that are lost, late, out of order and repeated, with owners that change, timeouts and
//! new sessions, over the functions of `several`.
//!
//! The network is the set of all messages that were ever sent, each of which may arrive at any time
//! and again: so nothing else stands for a loss, a delay or a repeat. A message is sent with the
//! record that it tells of; whatever else its sender knew is gone when its journal gets another
//! owner. What must hold is asked in every state, and also what a broker without further faults makes
//! of that state: whatever was decided is ended everywhere, and nothing stays open.
//!
//! The planted faults show that the model would notice.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Pair, empty_at, parts, typed, who};
use stateright::{Checker, HasDiscoveries, Model, Property};
use tidemark_txn_coordinator::several::{
    Driver, JournalId, Participant, Share, ToHome, ToParticipant, Verdict, complete, is_parked,
    prepare,
};
use tidemark_txn_coordinator::*;
use tidemark_types::{CoordinatorEpoch, ErrorCode, ProducerId, Tick};

const TOPIC: &str = "t";

/// A mistake that somebody could make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
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
struct Setup {
    fault: Fault,
    dialect: Dialect,
    first_epoch: i16,
    /// The home and its participants; the client writes to each.
    journals: i32,
    txns: u8,
    timeouts: u8,
    home_moves: u8,
    participant_moves: u8,
    /// New sessions by somebody else, who then does nothing.
    sessions: u8,
    /// Batches may be given up while they are on their way.
    gives_up: bool,
    /// Follow ticks, from clocks far apart.
    ticks: bool,
}

impl Setup {
    fn new(dialect: Dialect) -> Setup {
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
    fn journal_of(_: &str, partition: i32) -> Option<JournalId> {
        (partition > 0).then_some(JournalId(partition as u32))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Ask {
    /// A session of its own again, with the pair it holds.
    Init,
    Add(i32),
    End(bool),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Message {
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
enum Wrong {
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
struct Client {
    pair: Pair,
    txn: u8,
    added: u8,
    written: u8,
    in_txn: bool,
    waiting: Option<Ask>,
    parked: bool,
    /// Something was refused: it opens a session of its own, once.
    failed: bool,
    inits: u8,
    dead: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    // Durable, the home's.
    meta: TxnMeta,
    state_tick: Tick,
    next_pid: i64,
    coordinator_epoch: i32,
    // In the memory of the home's owner.
    driver: Driver,
    // Durable, each participant's.
    participants: BTreeMap<JournalId, Participant>,
    /// The last tick of each journal, 0 the home's.
    ticks: BTreeMap<i32, Tick>,
    network: BTreeSet<Message>,
    client: Client,
    /// The session that somebody else is opening.
    session_waits: bool,
    timeouts: u8,
    home_moves: u8,
    participant_moves: u8,
    sessions: u8,
    // What the properties look at.
    decided: BTreeMap<u64, (bool, Tick)>,
    ended: BTreeMap<(u64, i32), (bool, Tick)>,
    /// (client's transaction, partition): the transaction it is in.
    records: BTreeMap<(u8, i32), u64>,
    commits: u8,
    aborts: u8,
    wrong: BTreeSet<Wrong>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
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
    fn fail(&mut self) {
        self.dead = self.inits > 0;
        self.failed = true;
    }
}

impl State {
    /// The tick of a record of a journal, after what it has heard of.
    fn tick(&mut self, setup: &Setup, journal: i32, heard: Tick) -> Tick {
        if !setup.ticks {
            return Tick::ZERO;
        }
        let heard = match setup.fault {
            Fault::ClocksOnly => Tick::ZERO,
            _ => heard,
        };
        let last = self.ticks.get_mut(&journal).expect("it has a clock");
        *last = (*last).max(heard).next();
        *last
    }

    fn check_tick(&mut self, setup: &Setup, before: Tick, after: Tick) {
        if setup.ticks && before >= after {
            self.wrong.insert(Wrong::TickOrder);
        }
    }

    /// A record of the home's: the state, and whatever follows from it.
    fn record(&mut self, setup: &Setup, next: TxnMeta, heard: Tick) {
        check_transition(Some(&self.meta), Some(&next)).expect("a state may follow the one before");
        self.state_tick = self.tick(setup, 0, heard);
        let before = std::mem::replace(&mut self.meta, next);
        if self.meta.state.is_prepare() {
            let commit = self.meta.state == TxnState::PrepareCommit;
            self.decide(setup, self.meta.txn_number, commit);
        } else if before.state.is_prepare() {
            let number = before.txn_number;
            let ends = self.ended.iter().filter(|((n, _), _)| *n == number);
            let latest = ends.map(|(_, (_, tick))| *tick).max();
            if let Some(latest) = latest.filter(|tick| *tick != self.decided[&number].1) {
                self.check_tick(setup, latest, self.state_tick);
            }
        }
        self.send(setup);
    }

    /// The home's journal says how a transaction ends, and ends it there.
    fn decide(&mut self, setup: &Setup, number: u64, commit: bool) {
        let tick = self.state_tick;
        let before = self.decided.insert(number, (commit, tick));
        if before.is_some_and(|(before, _)| before != commit) {
            self.wrong.insert(Wrong::Torn);
        }
        self.end(setup, number, 0, commit, true, tick);
    }

    fn end(&mut self, setup: &Setup, n: u64, at: i32, commit: bool, marked: bool, tick: Tick) {
        let before = self.ended.insert((n, at), (commit, tick));
        if before.is_some() && marked {
            self.wrong.insert(Wrong::MarkedTwice);
        }
        let records = self.records.iter();
        let mut here = records.filter(|((_, partition), number)| (**number, *partition) == (n, at));
        if here.next().is_some() && !marked {
            self.wrong.insert(Wrong::Unmarked);
        }
        let torn = self
            .ended
            .iter()
            .any(|((m, _), (c, _))| *m == n && *c != commit);
        if torn {
            self.wrong.insert(Wrong::Torn);
        }
        if let (true, Some((_, decided))) = (at > 0, self.decided.get(&n).copied()) {
            self.check_tick(setup, decided, tick);
        }
    }

    fn send(&mut self, setup: &Setup) {
        let epoch = CoordinatorEpoch(self.coordinator_epoch);
        let messages = self
            .driver
            .messages(&self.meta, epoch, self.state_tick, Setup::journal_of);
        for (to, message) in messages {
            self.network.insert(Message::ToParticipant(to, message));
        }
        debug_assert!(setup.journals > 1);
    }

    /// What the home's owner makes of a decision; the answer, or `None` if it is parked.
    fn carry_out(
        &mut self,
        setup: &Setup,
        decided: Result<Outcome, ErrorCode>,
        lost: bool,
    ) -> Option<Result<Pair, ErrorCode>> {
        if is_parked(&decided) {
            return None;
        }
        let outcome = match decided {
            Ok(outcome) => outcome,
            Err(code) => return Some(Err(code)),
        };
        let answer = (outcome.reply.0.0, outcome.reply.1.0);
        let Some(mut next) = prepare(&self.meta, &outcome) else {
            if let Some(next) = outcome.next {
                self.next_pid += i64::from(outcome.used_fresh_producer_id);
                self.record(setup, next, Tick::ZERO);
            }
            return Some(Ok(answer));
        };
        if setup.fault == Fault::OnlyTheEnrolled {
            let (meta, driver) = (&self.meta, &self.driver);
            next.partitions.retain(|partition| {
                let one = Partitions::from([partition.clone()]);
                driver.is_enrolled(meta, &one, Setup::journal_of)
            });
        }
        if lost {
            // Its messages are on their way, the record is not there.
            let before = self.clone();
            self.record(setup, next, Tick::ZERO);
            let network = std::mem::take(&mut self.network);
            *self = State { network, ..before };
            return None;
        }
        self.next_pid += i64::from(outcome.used_fresh_producer_id);
        self.record(setup, next, Tick::ZERO);
        self.complete(setup);
        if setup.fault == Fault::AnswersWhenDecided
            && let Some(next) = complete(&self.meta, 0)
        {
            let resolves = self.network.clone();
            self.record(setup, next, Tick::ZERO);
            self.network.extend(resolves);
            return Some(Ok(answer));
        }
        None
    }

    /// Completes what every participant has resolved.
    fn complete(&mut self, setup: &Setup) {
        if self.driver.is_resolved(&self.meta, Setup::journal_of)
            && let Some(next) = complete(&self.meta, 0)
        {
            let heard = self.ticks[&0];
            self.record(setup, next, heard);
        }
    }

    fn ask(&mut self, setup: &Setup, ask: Ask, lost: bool) {
        let (producer_id, epoch) = typed(self.client.pair);
        let fresh = ProducerId(self.next_pid);
        let meta = Some(&self.meta);
        self.client.waiting = Some(ask);
        self.client.parked = true;
        let answer = match ask {
            Ask::Init => {
                let request = InitProducerId {
                    transactional_id: "tx1".into(),
                    timeout_ms: 1_000,
                    given: Some((producer_id, epoch)),
                };
                let decided = decide_init_producer_id(meta, &request, 1_000, fresh, 0, who("c1"));
                self.carry_out(setup, decided, false)
            }
            Ask::Add(partition) => {
                let wanted = parts(&[(TOPIC, partition)]);
                let decided = decide_add_partitions(meta, producer_id, epoch, &wanted, 0);
                let answer = self.carry_out(setup, decided, false);
                // Answered when it is durable where the partition is.
                answer.filter(|answer| {
                    let enrolled = self
                        .driver
                        .is_enrolled(&self.meta, &wanted, Setup::journal_of);
                    answer.is_err() || enrolled
                })
            }
            Ask::End(commit) => {
                let end = EndTxn {
                    producer_id,
                    epoch,
                    commit,
                    dialect: setup.dialect,
                };
                let decided = decide_end_txn(meta, &end, fresh, 0);
                self.carry_out(setup, decided, lost)
            }
        };
        if lost {
            self.client.parked = false;
        } else if let Some(answer) = answer {
            self.answer(setup, ask, answer);
        }
    }

    fn answer(&mut self, setup: &Setup, ask: Ask, answer: Result<Pair, ErrorCode>) {
        self.client.waiting = None;
        self.client.parked = false;
        let Ok(pair) = answer else {
            self.client.fail();
            return;
        };
        match ask {
            Ask::Init => {
                self.client.pair = pair;
                self.client.failed = false;
                self.client.in_txn = false;
                self.client.added = 0;
                self.client.written = 0;
            }
            Ask::Add(partition) => self.client.added |= 1 << partition,
            Ask::End(commit) => {
                let txn = self.client.txn;
                let records = self.records.iter().filter(|((t, _), _)| *t == txn);
                let as_answered = records.into_iter().all(|((_, at), number)| {
                    let ended = self.ended.get(&(*number, *at));
                    ended.is_some_and(|(committed, _)| *committed == commit)
                });
                if !as_answered {
                    self.wrong.insert(Wrong::NotAsAnswered);
                }
                *(if commit {
                    &mut self.commits
                } else {
                    &mut self.aborts
                }) += 1;
                if setup.dialect == Dialect::V2 {
                    self.client.pair = pair;
                }
                self.client.in_txn = false;
                self.client.added = 0;
                self.client.written = 0;
            }
        }
    }

    /// Somebody else opens a session, without a pair.
    fn open_session(&mut self, setup: &Setup) {
        let request = InitProducerId {
            transactional_id: "tx1".into(),
            timeout_ms: 1_000,
            given: None,
        };
        let fresh = ProducerId(self.next_pid);
        let meta = Some(&self.meta);
        let decided = decide_init_producer_id(meta, &request, 1_000, fresh, 0, who("c2"));
        let answer = self.carry_out(setup, decided, false);
        self.session_waits = answer.is_none();
    }

    /// The home's owner looks again at what is parked.
    fn look_again(&mut self, setup: &Setup) {
        if let (Some(ask), true) = (self.client.waiting, self.client.parked) {
            self.ask(setup, ask, false);
        }
        if self.session_waits {
            self.open_session(setup);
        }
    }

    fn time_out(&mut self, setup: &Setup) {
        let mut meta = self.meta.clone();
        if setup.fault == Fault::DecidesTwice && meta.state.is_prepare() {
            meta.state = TxnState::Ongoing;
            meta.last_epoch = tidemark_types::ProducerEpoch::NONE;
            self.meta = meta.clone();
        }
        let fresh = ProducerId(self.next_pid);
        let decided = decide_abort_by_broker(&meta, AbortReason::Timeout, fresh, 0);
        self.carry_out(setup, decided, false);
        self.look_again(setup);
    }

    fn deliver(&mut self, setup: &Setup, message: &Message) {
        match message {
            Message::ToParticipant(to, message) => self.tell(setup, *to, message),
            Message::ToHome(from, answer) => {
                self.driver.hear(&self.meta, *from, answer);
                if setup.ticks && setup.fault != Fault::ClocksOnly {
                    let clock = self.ticks.get_mut(&0).expect("it has a clock");
                    *clock = (*clock).max(answer.tick());
                }
                self.complete(setup);
                self.look_again(setup);
            }
            Message::Batch {
                pair,
                txn,
                partition,
            } => self.append(setup, *pair, *txn, *partition),
        }
    }

    fn tell(&mut self, setup: &Setup, to: JournalId, message: &ToParticipant) {
        let mut message = message.clone();
        let (ToParticipant::Enroll { txn, .. } | ToParticipant::Resolve { txn, .. }) = &mut message;
        let producer_id = txn.producer_id;
        let known = self.participants[&to].get(producer_id).cloned();
        if setup.fault == Fault::IgnoresTheNumber
            && let Some(known) = &known
            && matches!(known.share, Share::Open(_))
        {
            txn.txn_number = known.txn_number;
        }
        let number = txn.txn_number;
        let ends = match &message {
            ToParticipant::Resolve { commit, .. } => Some(*commit),
            ToParticipant::Enroll { .. } => None,
        };
        if setup.fault == Fault::ForgetsAnEndItHasNotBegun
            && ends.is_some()
            && known.as_ref().is_none_or(|known| known.txn_number < number)
        {
            let tick = Tick::ZERO;
            let answer = ToHome::Resolved {
                txn_number: number,
                tick,
            };
            self.network.insert(Message::ToHome(to, answer));
            return;
        }
        let at = to.0 as i32;
        let clock = self.ticks[&at];
        let tick = self.tick(setup, at, message.tick());
        match self.participants[&to].decide(&message, tick) {
            Ok(Verdict::Record {
                enrolment,
                markers,
                answer,
            }) => {
                let participant = self.participants.get_mut(&to).expect("it is there");
                participant.apply(producer_id, enrolment);
                if let Some(commit) = ends {
                    self.end(setup, number, at, commit, markers.is_some(), tick);
                }
                self.network.insert(Message::ToHome(to, answer));
            }
            Ok(Verdict::Known(answer)) => {
                self.ticks.insert(at, clock);
                self.network.insert(Message::ToHome(to, answer));
            }
            Err(code) => {
                self.ticks.insert(at, clock);
                if code == ErrorCode::ConcurrentTransactions {
                    self.wrong.insert(Wrong::BeganTooEarly);
                }
            }
        }
    }

    fn append(&mut self, setup: &Setup, pair: Pair, txn: u8, partition: i32) {
        if self.records.contains_key(&(txn, partition)) {
            return;
        }
        let (producer_id, epoch) = typed(pair);
        let checked = match Setup::journal_of(TOPIC, partition) {
            None => {
                let ours = producer_id == self.meta.producer_id
                    || producer_id == self.meta.previous_producer_id;
                let meta = ours.then_some(&self.meta);
                check_transactional_produce(meta, producer_id, epoch, TOPIC, partition, 9)
                    .map(|()| self.meta.txn_number)
            }
            Some(journal) => {
                let participant = &self.participants[&journal];
                participant
                    .check_produce(producer_id, epoch, TOPIC, partition)
                    .map(|()| participant.get(producer_id).expect("checked").txn_number)
            }
        };
        let waits = self.client.in_txn && self.client.txn == txn && !self.client.failed;
        let Ok(number) = checked else {
            // It aborts what it can no longer write whole.
            if waits {
                self.client.fail();
            }
            return;
        };
        let mut others = self.records.iter();
        let mixed = others.any(|((other, _), n)| *n == number && *other != txn);
        if mixed || self.ended.contains_key(&(number, partition)) {
            self.wrong.insert(Wrong::Joined);
        }
        self.records.insert((txn, partition), number);
        if waits {
            self.client.written |= 1 << partition;
        }
        debug_assert!(setup.journals > partition);
    }

    /// What becomes of it if nothing else goes wrong, with all that is on its way lost, or with all
    /// of it arriving when everything is over. The first thing that does not come to an end.
    fn settle(&self, setup: &Setup) -> Result<(), &'static str> {
        let mut state = self.clone();
        let late = std::mem::take(&mut state.network);
        // The client is gone, and so is who wanted another session.
        state.client.dead = true;
        state.client.parked = false;
        state.session_waits = false;
        state.exchange(setup);
        if state.meta.state.is_prepare() {
            return Err("what is decided does not end");
        }
        if state.meta.state == TxnState::Ongoing {
            state.time_out(setup);
            state.exchange(setup);
        }
        state.is_over()?;
        // What comes late. An end of these may be lost, what begins something may not count on it.
        for message in &late {
            let ends = matches!(
                message,
                Message::ToParticipant(_, ToParticipant::Resolve { .. })
            );
            if !ends {
                state.deliver(setup, message);
            }
        }
        state.network.clear();
        state.exchange(setup);
        state.is_over()?;
        match state.wrong == self.wrong {
            true => Ok(()),
            false => Err("something goes wrong on the way"),
        }
    }

    fn is_over(&self) -> Result<(), &'static str> {
        if !matches!(
            self.meta.state,
            TxnState::Empty | TxnState::CompleteCommit | TxnState::CompleteAbort
        ) {
            return Err("the transaction does not end");
        }
        let mut participants = self.participants.values();
        let open = participants.any(|participant| {
            let ids = 7..self.next_pid;
            let mut known = ids.filter_map(|id| participant.get(ProducerId(id)));
            known.any(|known| matches!(known.share, Share::Open(_)))
        });
        if open {
            return Err("a participant's share stays open");
        }
        let as_decided = self.records.iter().all(|((_, at), number)| {
            let ended = self.ended.get(&(*number, *at));
            let decided = self.decided.get(number);
            ended.is_some_and(|(commit, _)| decided.is_some_and(|(d, _)| commit == d))
        });
        match as_decided {
            true => Ok(()),
            false => Err("a record's transaction has not ended as it was decided"),
        }
    }

    /// Messages between owners arrive until there is nothing new.
    fn exchange(&mut self, setup: &Setup) {
        for _ in 0..20 {
            let before = self.clone();
            self.send(setup);
            for message in self.network.clone() {
                if !matches!(message, Message::Batch { .. }) {
                    self.deliver(setup, &message);
                }
            }
            if *self == before {
                return;
            }
        }
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let participants = 1..self.journals;
        vec![State {
            meta: empty_at(self.first_epoch),
            state_tick: Tick::ZERO,
            next_pid: 8,
            coordinator_epoch: 0,
            driver: Driver::default(),
            participants: participants
                .map(|j| (JournalId(j as u32), Participant::default()))
                .collect(),
            // The home's clock is ahead of the first participant's, the second's ahead of both.
            ticks: (0..self.journals)
                .map(|j| (j, Tick([10, 0, 20][j as usize])))
                .collect(),
            network: BTreeSet::new(),
            client: Client {
                pair: (7, self.first_epoch),
                txn: 0,
                added: 0,
                written: 0,
                in_txn: false,
                waiting: None,
                parked: false,
                failed: false,
                inits: 0,
                dead: false,
            },
            session_waits: false,
            timeouts: 0,
            home_moves: 0,
            participant_moves: 0,
            sessions: 0,
            decided: BTreeMap::new(),
            ended: BTreeMap::new(),
            records: BTreeMap::new(),
            commits: 0,
            aborts: 0,
            wrong: BTreeSet::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.wrong.is_empty() {
            return;
        }
        let client = &state.client;
        if !client.dead {
            match client.waiting {
                Some(_) if client.parked => {}
                Some(_) => actions.push(Action::AskAgain),
                None => self.next_asks(state, actions),
            }
        }
        actions.extend((0..state.network.len()).map(Action::Deliver));
        let ongoing = state.meta.state == TxnState::Ongoing
            || (self.fault == Fault::DecidesTwice && state.meta.state.is_prepare());
        if ongoing && state.timeouts < self.timeouts {
            actions.push(Action::Timeout);
        }
        if state.sessions < self.sessions && state.meta.txn_number > 0 {
            actions.push(Action::NewSession);
        }
        if state.session_waits {
            actions.push(Action::SessionAgain);
        }
        if state.home_moves < self.home_moves {
            actions.push(Action::MoveHome);
        }
        if state.participant_moves < self.participant_moves {
            let participants = 1..self.journals as u32;
            actions.extend(participants.map(Action::MoveParticipant));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask(Ask::Init) => {
                state.client.inits += 1;
                state.ask(self, Ask::Init, false);
            }
            Action::Ask(ask) => {
                if !state.client.in_txn {
                    state.client.in_txn = true;
                    state.client.txn += 1;
                }
                let lost = self.fault == Fault::TellsBeforeItIsDurable
                    && ask == Ask::End(true)
                    && state.client.txn == 1;
                state.ask(self, ask, lost);
            }
            Action::AskAgain => {
                let ask = state.client.waiting?;
                state.ask(self, ask, false);
            }
            Action::Send(partition) => {
                state.network.insert(Message::Batch {
                    pair: state.client.pair,
                    txn: state.client.txn,
                    partition,
                });
            }
            Action::GiveUp => state.ask(self, Ask::End(false), false),
            Action::Deliver(at) => {
                let message = state.network.iter().nth(at)?.clone();
                state.deliver(self, &message);
            }
            Action::Timeout => {
                state.timeouts += 1;
                state.time_out(self);
            }
            Action::NewSession => {
                state.sessions += 1;
                state.open_session(self);
            }
            Action::SessionAgain => state.open_session(self),
            Action::MoveHome => {
                state.home_moves += 1;
                state.coordinator_epoch += 1;
                state.driver = Driver::default();
                state.client.parked = false;
                state.send(self);
            }
            Action::MoveParticipant(journal) => {
                state.participant_moves += 1;
                if self.fault == Fault::ForgetsEnrolments {
                    let participant = state.participants.get_mut(&JournalId(journal))?;
                    *participant = Participant::default();
                }
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Setup>> {
        fn never(state: &State, wrong: Wrong) -> bool {
            !state.wrong.contains(&wrong)
        }
        vec![
            Property::always("no journal commits what another aborts", |_, s: &State| {
                never(s, Wrong::Torn)
            }),
            Property::always("a message has its effect once", |_, s: &State| {
                never(s, Wrong::MarkedTwice)
            }),
            Property::always(
                "every record's transaction is ended by a marker",
                |_, s: &State| never(s, Wrong::Unmarked),
            ),
            Property::always("a record joins its own transaction only", |_, s: &State| {
                never(s, Wrong::Joined)
            }),
            Property::always("what was answered is so everywhere", |_, s: &State| {
                never(s, Wrong::NotAsAnswered)
            }),
            Property::always("transactions of an id follow each other", |_, s: &State| {
                never(s, Wrong::BeganTooEarly)
            }),
            Property::always("ticks tell before and after", |_, s: &State| {
                never(s, Wrong::TickOrder)
            }),
            Property::always("everything ends", |setup: &Setup, s: &State| {
                s.wrong.is_empty() && s.settle(setup).is_ok()
            }),
            Property::sometimes("commits", |setup: &Setup, s: &State| {
                s.commits == setup.txns
            }),
            Property::sometimes("aborts", |_, s: &State| s.aborts > 0),
            Property::sometimes("is prepared", |_, s: &State| s.meta.state.is_prepare()),
            Property::sometimes("is parked", |_, s: &State| s.client.parked),
            Property::sometimes("comes back after a timeout", |setup: &Setup, s: &State| {
                let came_back = s.client.inits > 0 && !s.client.failed && s.commits > 0;
                setup.timeouts == 0 || setup.txns == 1 || came_back
            }),
        ]
    }
}

impl Setup {
    fn next_asks(&self, state: &State, actions: &mut Vec<Action>) {
        let client = &state.client;
        if client.failed {
            actions.push(Action::Ask(Ask::Init));
            return;
        }
        if !client.in_txn {
            if client.txn < self.txns {
                actions.push(Action::Ask(Ask::Add(0)));
            }
            return;
        }
        // One thing after the other: enrol a partition, write to it, then the next.
        let next = (0..self.journals).find(|p| client.written & 1 << p == 0);
        match next {
            None => {
                actions.push(Action::Ask(Ask::End(true)));
                actions.push(Action::Ask(Ask::End(false)));
            }
            Some(p) if client.added & 1 << p == 0 => actions.push(Action::Ask(Ask::Add(p))),
            Some(p) => {
                let batch = Message::Batch {
                    pair: client.pair,
                    txn: client.txn,
                    partition: p,
                };
                match state.network.contains(&batch) {
                    false => actions.push(Action::Send(p)),
                    true if self.gives_up => actions.push(Action::GiveUp),
                    true => {}
                }
            }
        }
    }

    fn explore(self, what: &str) {
        let checker = self.checker().threads(2).spawn_bfs().join();
        println!(
            "{what}: {} states, depth {}",
            checker.unique_state_count(),
            checker.max_depth()
        );
        checker.assert_properties();
    }

    /// A planted fault is found, as one of these.
    fn finds(self, expected: &[&str]) {
        let what = self.fault;
        let checker = self
            .checker()
            .threads(2)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let found = checker.discoveries();
        println!(
            "{what:?}: {} states, {:?}",
            checker.unique_state_count(),
            found.keys()
        );
        assert!(
            expected.iter().any(|name| found.contains_key(name)),
            "{what:?} is not found: {:?}",
            found.keys()
        );
    }
}

const V1: Dialect = Dialect::V1;
const V2: Dialect = Dialect::V2;

#[test]
fn two_journals_two_transactions_and_a_new_owner_of_the_home() {
    for dialect in [V1, V2] {
        Setup {
            timeouts: 2,
            home_moves: 2,
            ..Setup::new(dialect)
        }
        .explore(&format!("{dialect:?}, the home moves"));
    }
}

#[test]
fn two_journals_and_a_new_owner_of_the_participant() {
    for dialect in [V1, V2] {
        Setup {
            txns: 3,
            participant_moves: 1,
            ..Setup::new(dialect)
        }
        .explore(&format!("{dialect:?}, the participant moves"));
    }
}

#[test]
fn batches_that_are_given_up_join_nothing() {
    Setup {
        gives_up: true,
        home_moves: 0,
        ..Setup::new(V2)
    }
    .explore("given up");
}

#[test]
fn a_new_session_waits_until_the_old_ones_transaction_has_ended_everywhere() {
    for dialect in [V1, V2] {
        Setup {
            sessions: 1,
            txns: 1,
            ..Setup::new(dialect)
        }
        .explore(&format!("{dialect:?}, a new session"));
    }
}

#[test]
fn the_last_epochs_over_two_journals() {
    for first_epoch in [32_764, 32_765, 32_766] {
        Setup {
            first_epoch,
            sessions: 1,
            home_moves: 0,
            ..Setup::new(V2)
        }
        .explore(&format!("from epoch {first_epoch}"));
    }
}

#[test]
fn ticks_tell_before_and_after_whatever_the_clocks_say() {
    Setup {
        ticks: true,
        home_moves: 0,
        txns: 1,
        ..Setup::new(V2)
    }
    .explore("ticks");
}

#[test]
fn three_journals() {
    Setup {
        journals: 3,
        txns: 1,
        ..Setup::new(V2)
    }
    .explore("three journals");
}

#[test]
#[ignore = "minutes; the tests above are its parts"]
fn three_journals_everything_at_once() {
    for dialect in [V1, V2] {
        Setup {
            journals: 3,
            participant_moves: 1,
            sessions: 1,
            ticks: true,
            ..Setup::new(dialect)
        }
        .explore(&format!("{dialect:?}, everything"));
    }
}

#[test]
fn planted_faults_are_found() {
    let torn = "no journal commits what another aborts";
    let open = "everything ends";
    let answered = "what was answered is so everywhere";
    let early = "transactions of an id follow each other";
    let marked = "every record's transaction is ended by a marker";
    let joins = "a record joins its own transaction only";
    let twice = "a message has its effect once";
    let ticks = "ticks tell before and after";
    for (fault, expected) in [
        (Fault::ForgetsAnEndItHasNotBegun, vec![open]),
        (Fault::OnlyTheEnrolled, vec![open, answered]),
        (Fault::DecidesTwice, vec![torn]),
        (Fault::TellsBeforeItIsDurable, vec![torn, twice]),
        (Fault::IgnoresTheNumber, vec![torn, joins, twice, answered]),
        (Fault::AnswersWhenDecided, vec![answered, early]),
        (Fault::ForgetsEnrolments, vec![marked]),
        (Fault::ClocksOnly, vec![ticks]),
    ] {
        Setup {
            fault,
            home_moves: 0,
            participant_moves: u8::from(fault == Fault::ForgetsEnrolments),
            ticks: fault == Fault::ClocksOnly,
            ..Setup::new(V1)
        }
        .finds(&expected);
    }
}
