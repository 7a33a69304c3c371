//! What can happen: each action and what comes of it.

use tidemark_txn_coordinator::several::{
    JournalId, Share, ToHome, ToParticipant, Verdict, complete, is_parked, prepare,
};
use tidemark_txn_coordinator::*;
use tidemark_types::{CoordinatorEpoch, ErrorCode, ProducerId, Tick};

use crate::common::{Pair, parts, typed, who};
use crate::world::*;

impl State {
    /// The tick of a record of a journal, after what it has heard of.
    pub fn tick(&mut self, setup: &Setup, journal: i32, heard: Tick) -> Tick {
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

    pub fn check_tick(&mut self, setup: &Setup, before: Tick, after: Tick) {
        if setup.ticks && before >= after {
            self.wrong.insert(Wrong::TickOrder);
        }
    }

    /// A record of the home's: the state, and whatever follows from it.
    pub fn record(&mut self, setup: &Setup, next: TxnMeta, heard: Tick) {
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
    pub fn decide(&mut self, setup: &Setup, number: u64, commit: bool) {
        let tick = self.state_tick;
        let before = self.decided.insert(number, (commit, tick));
        if before.is_some_and(|(before, _)| before != commit) {
            self.wrong.insert(Wrong::Torn);
        }
        self.end(setup, number, 0, commit, true, tick);
    }

    pub fn end(&mut self, setup: &Setup, n: u64, at: i32, commit: bool, marked: bool, tick: Tick) {
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

    pub fn send(&mut self, setup: &Setup) {
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
    pub fn carry_out(
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
    pub fn complete(&mut self, setup: &Setup) {
        if self.driver.is_resolved(&self.meta, Setup::journal_of)
            && let Some(next) = complete(&self.meta, 0)
        {
            let heard = self.ticks[&0];
            self.record(setup, next, heard);
        }
    }

    pub fn ask(&mut self, setup: &Setup, ask: Ask, lost: bool) {
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

    pub fn answer(&mut self, setup: &Setup, ask: Ask, answer: Result<Pair, ErrorCode>) {
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
    pub fn open_session(&mut self, setup: &Setup) {
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
    pub fn look_again(&mut self, setup: &Setup) {
        if let (Some(ask), true) = (self.client.waiting, self.client.parked) {
            self.ask(setup, ask, false);
        }
        if self.session_waits {
            self.open_session(setup);
        }
    }

    pub fn time_out(&mut self, setup: &Setup) {
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

    pub fn deliver(&mut self, setup: &Setup, message: &Message) {
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

    pub fn tell(&mut self, setup: &Setup, to: JournalId, message: &ToParticipant) {
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

    pub fn append(&mut self, setup: &Setup, pair: Pair, txn: u8, partition: i32) {
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
    pub fn settle(&self, setup: &Setup) -> Result<(), &'static str> {
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

    pub fn is_over(&self) -> Result<(), &'static str> {
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
    pub fn exchange(&mut self, setup: &Setup) {
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
