//! What must hold in every state, and how all of them are walked.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Checker, HasDiscoveries, Model, Property};
use tidemark_txn_coordinator::several::{Driver, JournalId, Participant};
use tidemark_txn_coordinator::*;
use tidemark_types::Tick;

use crate::common::empty_at;
use crate::world::*;

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
    pub fn next_asks(&self, state: &State, actions: &mut Vec<Action>) {
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

    pub fn explore(self, what: &str) {
        let checker = self.checker().threads(2).spawn_bfs().join();
        println!(
            "{what}: {} states, depth {}",
            checker.unique_state_count(),
            checker.max_depth()
        );
        checker.assert_properties();
    }

    /// A planted fault is found, as one of these.
    pub fn finds(self, expected: &[&str]) {
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
