//! One idempotent producer with several batches in flight over one connection after the other.
//!
//! A connection keeps its requests in order. When the producer gives one up it opens the next and
//! sends everything that was not answered again, in order; what is left on the old one may still
//! come, or be lost from some point on.

use std::collections::VecDeque;

use stateright::{Model, Property};
use tidemark_owner::{Command, InitProducerId, Produced, Reply, RequestContext};
use tidemark_txn_coordinator::Dialect;
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use super::broker::{Broker, Fault, with_window_of_one};
use super::client::Pair;
use super::facts::{InLog, Name, Wrong};
use super::sessions::produce;
use super::{Seen, Sights};

const IN_FLIGHT: u8 = 3;

#[derive(Clone)]
pub struct Pipeline {
    batches: u8,
    reconnects: u8,
    crashes: u8,
    fault: Fault,
    pub seen: Sights,
}

impl Pipeline {
    pub fn new(fault: Fault) -> Pipeline {
        Pipeline {
            batches: 4,
            reconnects: 1,
            crashes: 1,
            fault,
            seen: Sights::default(),
        }
    }

    pub fn long() -> Pipeline {
        Pipeline {
            batches: 5,
            reconnects: 2,
            ..Pipeline::new(Fault::Sound)
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Parked {
    /// How many records after the durable ones it waits for.
    after: usize,
    connection: usize,
    batch: u8,
    error: ErrorCode,
}

#[derive(Clone, PartialEq, Hash, Debug)]
pub struct State {
    broker: Broker,
    pair: Pair,
    /// Requests on each connection that are not decided yet; the last one is the producer's.
    connections: Vec<VecDeque<u8>>,
    parked: Vec<Parked>,
    /// The first batch that was never sent, and the first that is not answered.
    next: u8,
    unanswered: u8,
    refused: bool,
    reconnects: u8,
    crashes: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Send,
    Reconnect,
    Deliver {
        connection: usize,
    },
    /// What is left on an old connection is lost.
    Drop {
        connection: usize,
    },
    Sync,
    Crash {
        kept: usize,
    },
}

fn name(batch: u8) -> Name {
    (0, batch, 0)
}

impl State {
    fn order(&self) -> Vec<u8> {
        let log = self.broker.facts().logs[0].iter();
        log.map(|e| match e {
            InLog::Data { name, .. } => name.1,
            InLog::Marker { .. } => panic!("a marker of no transaction"),
        })
        .collect()
    }

    fn decide(&mut self, pipeline: &Pipeline, batch: u8) -> ErrorCode {
        let sequence = i32::from(batch);
        let command = produce(Dialect::V1, self.pair, 0, sequence, false, name(batch));
        let head = self.broker.head();
        let newest_offset = self.broker.facts().logs[0].len() as i64 - 1;
        let fault = pipeline.fault;
        let reply = self
            .broker
            .step(command, fault, |facts, owner, observations| {
                facts.observe(owner, observations, Some(name(batch)));
            });
        let Some(Reply::Produce(produced)) = reply else {
            panic!("{reply:?}");
        };
        let wrote = self.broker.head() > head;
        let mut produced: Produced = produced[0];
        if fault == Fault::WindowOfOne {
            produced = with_window_of_one(&produced, newest_offset, wrote);
        }
        if produced.error == ErrorCode::None && !wrote {
            pipeline.seen.note(Seen::RetriedWrite);
        }
        produced.error
    }

    fn sync(&mut self) {
        self.broker.sync();
        self.parked.iter_mut().for_each(|parked| parked.after = 0);
    }

    fn release(&mut self, pipeline: &Pipeline) {
        let held = |parked: &Parked| parked.after > 0 && pipeline.fault != Fault::ReplyBeforeSync;
        let parked = std::mem::take(&mut self.parked);
        let (stay, leave): (Vec<_>, Vec<_>) = parked.into_iter().partition(held);
        self.parked = stay;
        for parked in leave {
            if parked.connection + 1 != self.connections.len() {
                continue;
            }
            match parked.error {
                // The producer has given up.
                _ if self.refused => {}
                ErrorCode::None => {
                    assert_eq!(parked.batch, self.unanswered, "answers come in order");
                    self.unanswered += 1;
                }
                _ => self.refused = true,
            }
        }
    }

    /// The next connection, with everything that was not answered.
    fn reconnect(&mut self) {
        self.connections
            .push((self.unanswered..self.next).collect());
    }
}

impl Model for Pipeline {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut broker = Broker::new();
        let nobody = RequestContext {
            principal: "".into(),
            client_id: "".into(),
            client_host: "".into(),
            listener: "".into(),
        };
        let init = Command::InitProducerId(InitProducerId {
            context: nobody,
            transactional_id: None,
            transaction_timeout_ms: 1_000,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
        });
        let reply = broker.step(init, self.fault, |_, _, _| {});
        let Some(Reply::InitProducerId(Ok((producer_id, epoch)))) = reply else {
            panic!("{reply:?}");
        };
        broker.sync();
        vec![State {
            broker,
            pair: (producer_id.0, epoch.0),
            connections: vec![VecDeque::new()],
            parked: Vec::new(),
            next: 0,
            unanswered: 0,
            refused: false,
            reconnects: 0,
            crashes: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.broker.facts().wrong.is_empty() || state.refused {
            return;
        }
        if state.next < self.batches && state.next - state.unanswered < IN_FLIGHT {
            actions.push(Action::Send);
        }
        if state.reconnects < self.reconnects && state.unanswered < state.next {
            actions.push(Action::Reconnect);
        }
        for (connection, requests) in state.connections.iter().enumerate() {
            if !requests.is_empty() {
                actions.push(Action::Deliver { connection });
                if connection + 1 < state.connections.len() {
                    actions.push(Action::Drop { connection });
                }
            }
        }
        let (durable, head) = (state.broker.durable(), state.broker.head());
        if durable < head {
            actions.push(Action::Sync);
        }
        if state.crashes < self.crashes && state.next > 0 {
            actions.extend((durable..=head).map(|kept| Action::Crash { kept }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Send => {
                let batch = state.next;
                state.next += 1;
                state.connections.last_mut()?.push_back(batch);
            }
            Action::Reconnect => {
                state.reconnects += 1;
                state.reconnect();
            }
            Action::Deliver { connection } => {
                let batch = state.connections[connection].pop_front()?;
                if connection + 1 < state.connections.len() {
                    self.seen.note(Seen::LateRequest);
                }
                let error = state.decide(self, batch);
                let after = state.broker.head() - state.broker.durable();
                state.parked.push(Parked {
                    after,
                    connection,
                    batch,
                    error,
                });
            }
            Action::Drop { connection } => state.connections[connection].clear(),
            Action::Sync => {
                state.sync();
                self.seen.note(Seen::AnswerHeldBack);
            }
            Action::Crash { kept } => {
                state.crashes += 1;
                if kept < state.broker.head() {
                    self.seen.note(Seen::RecordLost);
                } else if kept > state.broker.durable() {
                    self.seen.note(Seen::RecordKept);
                }
                state.broker.crash(kept);
                state.connections.iter_mut().for_each(VecDeque::clear);
                state.parked.clear();
                state.reconnect();
            }
        }
        if state.crashes == self.crashes {
            // No power cut to come: when the sync ends makes no difference any more.
            state.sync();
        }
        state.release(self);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Pipeline>> {
        vec![
            Property::always("an acknowledged record is in the log", |_, s: &State| {
                let facts = s.broker.durable_facts();
                (0..s.unanswered).all(|batch| facts.is_written(name(batch)))
            }),
            Property::always(
                "each batch is in the log once and in order",
                |_, s: &State| {
                    let order = s.order();
                    order.iter().copied().eq(0..order.len() as u8)
                },
            ),
            Property::always(
                "a batch that is in the log is never refused",
                |_, s: &State| !s.refused,
            ),
            Property::always("the owner's invariants", |_, s: &State| {
                !s.broker.facts().wrong.contains(&Wrong::Invariant)
            }),
            Property::sometimes("everything is acknowledged", |m: &Pipeline, s: &State| {
                s.unanswered == m.batches
            }),
        ]
    }
}
