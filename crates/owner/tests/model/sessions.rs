//! Two instances of one transactional id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::BytesMut;
use stateright::{Model, Property};
use tidemark_group_coordinator::{OffsetToCommit, TxnOffsetCommitRequest};
use tidemark_owner::*;
use tidemark_record_batch::{BatchBuilder, BatchHeader, TimestampType, ValidBatch};
use tidemark_txn_coordinator::Dialect;
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use super::broker::{Broker, Fault, GROUP, ID, TOPIC, partition};
use super::client::{Answer, Ask, Client, Pair, Request};
use super::facts::{Name, Wrong};
use super::setup::Setup;
use super::{OFFSETS, Seen, offset_of};

/// An answer behind the barrier: it leaves when the record is durable that was the last when it was
/// decided.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Parked {
    /// How many records after the durable ones it waits for.
    after: usize,
    request: Request,
    answer: Answer,
}

#[derive(Clone, PartialEq, Hash, Debug)]
pub struct State {
    pub broker: Broker,
    clients: [Client; 2],
    on_the_way: Vec<Request>,
    parked: Vec<Parked>,
    repeats: u8,
    timeouts: u8,
    crashes: u8,
    /// What the instances were told: writes, and ends with commit or abort.
    pub acked: BTreeSet<Name>,
    pub ended: BTreeMap<(u8, u8), bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Send(u8, Ask),
    /// Another copy while the first may be on its way.
    Copy(u8),
    /// Nothing of it is on its way any more.
    SendAgain(u8),
    /// A write is given up while it is on its way.
    GiveUp(u8),
    Deliver {
        at: usize,
        answered: bool,
    },
    Sync,
    Timeout,
    /// So many records are found afterwards.
    Crash {
        kept: usize,
    },
}

impl State {
    pub fn has_not(&self, wrong: Wrong) -> bool {
        !self.broker.facts().wrong.contains(&wrong)
    }

    fn decide(&mut self, setup: &Setup, request: Request) -> Answer {
        let from = usize::from(request.from);
        let head = self.broker.head();
        let command = command(setup.dialects[from], request);
        let reply = self
            .broker
            .step(command, setup.fault, |facts, owner, observations| {
                facts.observe(owner, observations, request.name());
                facts.caused_by(request);
            });
        let result = pair_of(reply.expect("answered at once"), request);
        let facts = self.broker.facts();
        let wrote = self.broker.head() > head;
        if result.is_ok() && !wrote {
            match request.ask {
                Ask::End { .. } => setup.seen.note(Seen::RetriedEnd),
                Ask::Init { .. } => setup.seen.note(Seen::RetriedInit),
                Ask::Write { .. } => setup.seen.note(Seen::RetriedWrite),
                Ask::Add { .. } => {}
            }
        }
        if result.is_err() && request.session != 0 && request.session != facts.sessions {
            setup.seen.note(Seen::ZombieRefused);
        }
        Answer {
            result,
            session: (request.opens_session() && facts.opened_by == request.from)
                .then_some(facts.sessions),
        }
    }

    fn sync(&mut self) {
        self.broker.sync();
        self.parked.iter_mut().for_each(|parked| parked.after = 0);
    }

    fn release(&mut self, setup: &Setup) {
        let held = |parked: &Parked| parked.after > 0 && setup.fault != Fault::ReplyBeforeSync;
        let parked = std::mem::take(&mut self.parked);
        let (stay, leave) = parked.into_iter().partition(held);
        self.parked = stay;
        for Parked {
            request, answer, ..
        } in leave
        {
            self.answer(setup, request, answer);
        }
    }

    fn answer(&mut self, setup: &Setup, request: Request, answer: Answer) {
        let from = usize::from(request.from);
        if self.clients[from].waiting != Some(request) {
            return;
        }
        self.clients[from].is_answered(setup.dialects[from], request, answer);
        match (request.ask, answer.result) {
            (Ask::Write { .. }, Ok(_)) => {
                self.acked.extend(request.name());
            }
            (Ask::End { txn, commit, .. }, Ok(_)) => {
                self.ended.insert((request.from, txn), commit);
            }
            _ => {}
        }
    }

    /// A copy of what the instance waits for is on its way, or its answer is.
    fn is_under_way(&self, request: Request) -> bool {
        self.on_the_way.contains(&request) || self.parked.iter().any(|p| p.request == request)
    }

    fn put_on_the_way(&mut self, request: Request) {
        self.on_the_way.push(request);
        self.on_the_way.sort_unstable();
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            broker: Broker::new(),
            clients: [Client::new(), Client::new()],
            on_the_way: Vec::new(),
            parked: Vec::new(),
            repeats: 0,
            timeouts: 0,
            crashes: 0,
            acked: BTreeSet::new(),
            ended: BTreeMap::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.broker.facts().wrong.is_empty() {
            return;
        }
        for from in 0..2u8 {
            let at = usize::from(from);
            let client = &state.clients[at];
            let Some(request) = client.waiting else {
                let asks = client.next_asks(self.dialects[at], self.txns[at], self.places[at]);
                // The second instance of a story about one of them stays away.
                let away = self.txns[at] == 0;
                let asks = asks.into_iter().filter(|_| !away);
                actions.extend(asks.map(|ask| Action::Send(from, ask)));
                continue;
            };
            if !state.is_under_way(request) {
                actions.push(Action::SendAgain(from));
            } else if self.delays(from) && state.repeats < self.repeats {
                actions.push(Action::Copy(from));
            }
            let on_the_way = state.on_the_way.contains(&request);
            if self.delays(from) && on_the_way && request.name().is_some() {
                actions.push(Action::GiveUp(from));
            }
        }
        for at in 0..state.on_the_way.len() {
            let request = state.on_the_way[at];
            if state.on_the_way[..at].contains(&request) {
                continue;
            }
            let awaited = state.clients[usize::from(request.from)].waiting == Some(request);
            if awaited {
                actions.push(Action::Deliver { at, answered: true });
            }
            if !awaited || state.repeats < self.repeats {
                actions.push(Action::Deliver {
                    at,
                    answered: false,
                });
            }
        }
        let (durable, head) = (state.broker.durable(), state.broker.head());
        if durable < head {
            actions.push(Action::Sync);
        }
        if state.broker.facts().ongoing && state.timeouts < self.timeouts {
            actions.push(Action::Timeout);
        }
        if state.crashes < self.crashes && (durable < head || !state.on_the_way.is_empty()) {
            actions.extend((durable..=head).map(|kept| Action::Crash { kept }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Send(from, ask) => {
                let request = state.clients[usize::from(from)].sends(from, ask);
                state.put_on_the_way(request);
            }
            Action::Copy(from) => {
                let request = state.clients[usize::from(from)].waiting?;
                state.repeats += 1;
                state.put_on_the_way(request);
            }
            Action::SendAgain(from) => {
                let request = state.clients[usize::from(from)].waiting?;
                state.put_on_the_way(request);
            }
            Action::GiveUp(from) => {
                let client = &mut state.clients[usize::from(from)];
                client.waiting = None;
                client.phase = super::client::Phase::MustAbort;
            }
            Action::Deliver { at, answered } => {
                let request = state.on_the_way.remove(at);
                let awaited = state.clients[usize::from(request.from)].waiting == Some(request);
                let answer = state.decide(self, request);
                if answered {
                    let after = state.broker.head() - state.broker.durable();
                    state.parked.push(Parked {
                        after,
                        request,
                        answer,
                    });
                } else if awaited {
                    state.repeats += 1;
                }
                self.note_way_back(&state, request, answer);
            }
            Action::Sync => {
                state.sync();
                self.seen.note(Seen::AnswerHeldBack);
            }
            Action::Timeout => {
                state.timeouts += 1;
                let none =
                    state
                        .broker
                        .step(Command::Expire, self.fault, |facts, owner, observations| {
                            facts.observe(owner, observations, None);
                        });
                assert!(none.is_none());
            }
            Action::Crash { kept } => {
                state.crashes += 1;
                let lost = kept < state.broker.head();
                self.seen.note(match lost {
                    true => Seen::RecordLost,
                    false if kept > state.broker.durable() => Seen::RecordKept,
                    false => Seen::AnswerHeldBack,
                });
                state.on_the_way.clear();
                state.parked.clear();
                state.broker.crash(kept);
            }
        }
        if state.crashes == self.crashes {
            // No power cut to come: when the sync ends makes no difference any more.
            state.sync();
        }
        state.release(self);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Setup>> {
        self.all_properties()
    }
}

impl Setup {
    fn note_way_back(&self, state: &State, request: Request, answer: Answer) {
        let after_timeout = state.broker.facts().timed_out;
        let client = &state.clients[usize::from(request.from)];
        if after_timeout && answer.result.is_ok_and(|pair| pair != client.pair) {
            self.seen.note(Seen::CameBackAfterTimeout);
        }
    }
}

fn command(dialect: Dialect, request: Request) -> Command {
    let id: Arc<str> = Arc::from(ID);
    let typed = |pair: Pair| (ProducerId(pair.0), ProducerEpoch(pair.1));
    match request.ask {
        Ask::Init { given, .. } => {
            let (producer_id, producer_epoch) = typed(given.unwrap_or((-1, -1)));
            let name: Arc<str> = Arc::from(format!("c{}", request.from));
            Command::InitProducerId(InitProducerId {
                context: RequestContext {
                    principal: Arc::from("User:ANONYMOUS"),
                    client_id: name,
                    client_host: Arc::from("/127.0.0.1"),
                    listener: Arc::from("PLAINTEXT"),
                },
                transactional_id: Some(id),
                transaction_timeout_ms: 1_000,
                producer_id,
                producer_epoch,
            })
        }
        Ask::Add {
            pair,
            place: OFFSETS,
            ..
        } => {
            let (producer_id, producer_epoch) = typed(pair);
            Command::AddOffsets(AddOffsets {
                transactional_id: id,
                producer_id,
                producer_epoch,
                group_id: GROUP.to_owned(),
            })
        }
        Ask::Add { pair, place, .. } => {
            let (producer_id, producer_epoch) = typed(pair);
            Command::AddPartitions(AddPartitions {
                transactional_id: id,
                producer_id,
                producer_epoch,
                partitions: vec![(Arc::from(TOPIC), i32::from(place))],
            })
        }
        Ask::Write {
            pair,
            place: OFFSETS,
            ..
        } => {
            let (producer_id, producer_epoch) = typed(pair);
            let name = request.name().expect("a write has one");
            Command::TxnOffsetCommit(TxnOffsetCommit {
                transactional_id: id,
                producer_id,
                producer_epoch,
                dialect,
                commit: TxnOffsetCommitRequest {
                    group_id: GROUP.to_owned(),
                    generation_id: -1,
                    member_id: String::new(),
                    group_instance_id: None,
                    offsets: vec![OffsetToCommit {
                        topic: TOPIC.to_owned(),
                        partition: 0,
                        offset: offset_of(name),
                        leader_epoch: -1,
                        metadata: None,
                    }],
                },
            })
        }
        Ask::Write {
            pair,
            place,
            sequence,
            ..
        } => {
            let name = request.name().expect("a write has one");
            produce(dialect, pair, place, sequence, true, name)
        }
        Ask::End { pair, commit, .. } => {
            let (producer_id, producer_epoch) = typed(pair);
            Command::EndTxn(EndTxn {
                transactional_id: id,
                producer_id,
                producer_epoch,
                committed: commit,
                dialect,
            })
        }
    }
}

/// A batch of one record.
pub fn produce(
    dialect: Dialect,
    pair: Pair,
    place: u8,
    sequence: i32,
    transactional: bool,
    name: Name,
) -> Command {
    let mut builder = BatchBuilder::new(1_000_000);
    builder.producer(ProducerId(pair.0), ProducerEpoch(pair.1), sequence);
    if transactional {
        builder.transactional();
    }
    let value = format!("{name:?}");
    let bytes = builder.push(None, Some(value.as_bytes())).build();
    let header = BatchHeader::parse(&bytes).expect("a batch just built");
    Command::Produce(Produce {
        version: match dialect {
            Dialect::V1 => 9,
            Dialect::V2 => 12,
        },
        transactional_id: transactional.then(|| Arc::from(ID)),
        batches: vec![ProduceBatch {
            partition: partition(place),
            topic: Arc::from(TOPIC),
            valid: ValidBatch {
                max_timestamp: header.max_timestamp,
                header,
            },
            bytes: BytesMut::from(&bytes[..]),
            timestamp_type: TimestampType::CreateTime,
        }],
    })
}

fn pair_of(reply: Reply, request: Request) -> Result<Pair, ErrorCode> {
    let code = |code: ErrorCode| match code {
        ErrorCode::None => Ok((0, 0)),
        code => Err(code),
    };
    match reply {
        Reply::InitProducerId(result) | Reply::EndTxn(result) => {
            result.map(|(producer_id, epoch)| (producer_id.0, epoch.0))
        }
        Reply::AddPartitions(codes) | Reply::TxnOffsetCommit(codes) => code(codes[0]),
        Reply::AddOffsets(error) => code(error),
        Reply::Produce(produced) => code(produced[0].error),
        other => panic!("{request:?} was answered with {other:?}"),
    }
}
