//! Producers: idempotent ones, and transactional ones of both dialects. They do what good clients do:
//! one request at a time, again with whoever leads as long as the answer says so or none comes.
//! Everything else they are told is an anomaly: nothing they do deserves it.

use std::sync::Arc;

use bytes::BytesMut;
use tidemark_owner::{
    AddPartitions, Command, CreateTopic, CreateTopics, EndTxn, InitProducerId, Produce,
    ProduceBatch, Reply, RequestContext,
};
use tidemark_record_batch::{BatchBuilder, ProduceRules, TimestampType, validate_produce};
use tidemark_txn_coordinator::Dialect;
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::truth::Entry;
use super::{MEMBERS, PARTITIONS, TOPIC, WALL_MS, World, topic_partition};

/// What became of all of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub acked: u64,
    pub commits: u64,
    pub aborts: u64,
    /// Ends of transactions whose answer never came to the instance that asked.
    pub unknown: u64,
    /// Answers that said that another broker leads, or nothing.
    pub refused: u64,
    pub losses: u64,
    pub moves: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.acked += other.acked;
        self.commits += other.commits;
        self.aborts += other.aborts;
        self.unknown += other.unknown;
        self.refused += other.refused;
        self.losses += other.losses;
        self.moves += other.moves;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Idempotent,
    Transactional(Dialect),
}

/// What the client does next, and again until it is done.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Todo {
    Init,
    Add,
    Send { partition: i32, value: String },
    End { commit: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Open,
    Committed,
    Aborted,
    /// A commit was asked for and the answer did not come: all or nothing.
    Unknown,
}

#[derive(Debug)]
struct Txn {
    values: Vec<(i32, String)>,
    acked: Vec<(i32, i64, String)>,
    outcome: Outcome,
}

#[derive(Debug)]
pub struct Client {
    n: usize,
    kind: Kind,
    producer: Option<(ProducerId, ProducerEpoch)>,
    sequences: [i32; PARTITIONS as usize],
    counter: u64,
    leader: usize,
    todo: Option<Todo>,
    asked: Option<(oneshot::Receiver<Reply>, u32)>,
    /// Outside of transactions, in the order they were sent.
    sent: Vec<(i32, String)>,
    acked: Vec<(i32, i64, String)>,
    txns: Vec<Txn>,
    refused: u64,
    unknown: u64,
    /// It begins nothing any more.
    pub finishing: bool,
}

pub fn create_topic() -> Command {
    Command::CreateTopics(CreateTopics {
        topics: vec![CreateTopic {
            name: TOPIC.to_owned(),
            partitions: PARTITIONS,
            replication_factor: 1,
            ..CreateTopic::default()
        }],
        validate_only: false,
        auto: false,
    })
}

impl Client {
    pub fn new(n: usize) -> Client {
        Client {
            n,
            kind: match n {
                0 | 1 => Kind::Idempotent,
                2 => Kind::Transactional(Dialect::V1),
                _ => Kind::Transactional(Dialect::V2),
            },
            producer: None,
            sequences: [0; PARTITIONS as usize],
            counter: 0,
            leader: 0,
            todo: None,
            asked: None,
            sent: Vec::new(),
            acked: Vec::new(),
            txns: Vec::new(),
            refused: 0,
            unknown: 0,
            finishing: false,
        }
    }

    fn in_txn(&self) -> bool {
        self.txns.last().is_some_and(|t| t.outcome == Outcome::Open)
    }

    pub fn is_done(&self) -> bool {
        self.finishing && self.todo.is_none() && self.asked.is_none() && !self.in_txn()
    }

    /// Does one thing: asks, looks for the answer, gives up waiting for it, or takes up something.
    pub fn act(&mut self, world: &mut World) {
        if let Some((mut reply, waited)) = self.asked.take() {
            match reply.try_recv() {
                Ok(reply) => self.hear(reply, world),
                Err(TryRecvError::Closed) => self.look_for_leader(world),
                Err(TryRecvError::Empty) if self.may_die(world) => self.come_back(),
                // Its patience is over; what it asked for may come true all the same.
                Err(TryRecvError::Empty) if waited > 8 && world.random.one_in(4) => {
                    self.look_for_leader(world);
                }
                Err(TryRecvError::Empty) => self.asked = Some((reply, waited + 1)),
            }
        } else if let Some(todo) = self.todo.clone() {
            if self.may_die(world) {
                return self.come_back();
            }
            let command = self.command(&todo, world);
            let reply = world.send(self.leader, command);
            self.asked = Some((reply, 0));
        } else {
            self.todo = self.next(world);
        }
    }

    fn look_for_leader(&mut self, world: &mut World) {
        self.refused += 1;
        self.leader = world.random.below(MEMBERS as u64) as usize;
    }

    /// An instance dies now and then, in the middle of its transaction.
    fn may_die(&self, world: &mut World) -> bool {
        matches!(self.kind, Kind::Transactional(_))
            && self.todo != Some(Todo::Init)
            && !self.finishing
            && world.random.one_in(60)
    }

    /// Another instance of the id, which knows nothing of the last one.
    fn come_back(&mut self) {
        if let (Some(txn), Some(Todo::End { commit })) = (self.txns.last_mut(), &self.todo) {
            // It may have been asked for before.
            if txn.outcome == Outcome::Open && *commit {
                txn.outcome = Outcome::Unknown;
                self.unknown += 1;
            }
        }
        if let Some(txn) = self.txns.last_mut()
            && txn.outcome == Outcome::Open
        {
            txn.outcome = Outcome::Aborted;
        }
        self.producer = None;
        self.todo = Some(Todo::Init);
    }

    fn next(&mut self, world: &mut World) -> Option<Todo> {
        if self.producer.is_none() {
            return (!self.finishing).then_some(Todo::Init);
        }
        self.counter += 1;
        let partition = world.random.below(PARTITIONS as u64) as i32;
        let value = format!("{}-{}", self.n, self.counter);
        if self.kind == Kind::Idempotent {
            if self.finishing {
                return None;
            }
            self.sent.push((partition, value.clone()));
            return Some(Todo::Send { partition, value });
        }
        if !self.in_txn() {
            if self.finishing {
                return None;
            }
            self.txns.push(Txn {
                values: Vec::new(),
                acked: Vec::new(),
                outcome: Outcome::Open,
            });
            if self.kind == Kind::Transactional(Dialect::V1) {
                return Some(Todo::Add);
            }
        }
        let txn = self.txns.last_mut().expect("begun above");
        let partitions = txn.values.iter().map(|(p, _)| *p);
        let written: std::collections::BTreeSet<i32> = partitions.collect();
        // Each partition once at least, so that there is something to tear.
        let missing = (0..PARTITIONS).find(|p| !written.contains(p));
        if missing.is_none() && (self.finishing || world.random.one_in(2)) {
            let commit = !world.random.one_in(3);
            return Some(Todo::End { commit });
        }
        let partition = missing.unwrap_or(partition);
        txn.values.push((partition, value.clone()));
        Some(Todo::Send { partition, value })
    }

    fn id(&self) -> Arc<str> {
        Arc::from(format!("tx-{}", self.n))
    }

    fn command(&self, todo: &Todo, world: &World) -> Command {
        let transactional = self.kind != Kind::Idempotent;
        let (producer_id, producer_epoch) = self
            .producer
            .unwrap_or((ProducerId::NONE, ProducerEpoch::NONE));
        match todo {
            Todo::Init => Command::InitProducerId(InitProducerId {
                context: RequestContext {
                    principal: Arc::from("User:ANONYMOUS"),
                    client_id: Arc::from("c"),
                    client_host: Arc::from("/127.0.0.1"),
                    listener: Arc::from("PLAINTEXT"),
                },
                transactional_id: transactional.then(|| self.id()),
                transaction_timeout_ms: 900_000,
                producer_id: ProducerId::NONE,
                producer_epoch: ProducerEpoch::NONE,
            }),
            Todo::Add => Command::AddPartitions(AddPartitions {
                transactional_id: self.id(),
                producer_id,
                producer_epoch,
                partitions: (0..PARTITIONS).map(|p| (Arc::from(TOPIC), p)).collect(),
            }),
            Todo::End { commit } => Command::EndTxn(EndTxn {
                transactional_id: self.id(),
                producer_id,
                producer_epoch,
                committed: *commit,
                dialect: match self.kind {
                    Kind::Transactional(dialect) => dialect,
                    Kind::Idempotent => Dialect::V1,
                },
            }),
            Todo::Send { partition, value } => {
                let version = match self.kind {
                    Kind::Transactional(Dialect::V2) => 12,
                    _ => 9,
                };
                let mut batch = BatchBuilder::new(WALL_MS);
                let sequence = self.sequences[*partition as usize];
                batch.producer(producer_id, producer_epoch, sequence);
                if transactional {
                    batch.transactional();
                }
                batch.push(None, Some(value.as_bytes()));
                let bytes = batch.build();
                let rules = ProduceRules {
                    max_message_bytes: 1 << 20,
                    produce_version: version,
                    timestamp_type: TimestampType::CreateTime,
                    message_timestamp_before_max_ms: i64::MAX,
                    message_timestamp_after_max_ms: i64::MAX,
                    compacted: false,
                    check_records: true,
                    wall_ms: WALL_MS,
                    limits: Default::default(),
                };
                Command::Produce(Produce {
                    version,
                    transactional_id: transactional.then(|| self.id()),
                    batches: vec![ProduceBatch {
                        partition: topic_partition(&world.truth, *partition),
                        topic: Arc::from(TOPIC),
                        valid: validate_produce(&bytes, &rules).expect("a good batch"),
                        bytes: BytesMut::from(&bytes[..]),
                        timestamp_type: TimestampType::CreateTime,
                    }],
                })
            }
        }
    }

    fn hear(&mut self, reply: Reply, world: &mut World) {
        let todo = self.todo.clone().expect("it was asked for something");
        let error = match &reply {
            Reply::Produce(produced) => produced[0].error,
            Reply::AddPartitions(codes) => codes[0],
            Reply::InitProducerId(Err(code)) | Reply::EndTxn(Err(code)) => *code,
            Reply::InitProducerId(Ok(_)) | Reply::EndTxn(Ok(_)) => ErrorCode::None,
            other => panic!("{other:?}"),
        };
        match error {
            ErrorCode::None => {}
            ErrorCode::NotLeaderOrFollower | ErrorCode::NotCoordinator => {
                return self.look_for_leader(world);
            }
            error => panic!("client {} is told {error:?} to {todo:?}: {self:?}", self.n),
        }
        match (todo, reply) {
            (Todo::Init, Reply::InitProducerId(Ok(producer))) => {
                self.producer = Some(producer);
                self.sequences = [0; PARTITIONS as usize];
            }
            (Todo::Add, _) => {}
            (Todo::Send { partition, value }, Reply::Produce(produced)) => {
                self.sequences[partition as usize] += 1;
                let acked = (partition, produced[0].base_offset, value);
                match self.txns.last_mut() {
                    Some(txn) => txn.acked.push(acked),
                    None => self.acked.push(acked),
                }
            }
            (Todo::End { commit }, Reply::EndTxn(Ok(producer))) => {
                let txn = self.txns.last_mut().expect("it was begun");
                txn.outcome = match commit {
                    true => Outcome::Committed,
                    false => Outcome::Aborted,
                };
                if self.kind == Kind::Transactional(Dialect::V2) {
                    self.producer = Some(producer);
                    self.sequences = [0; PARTITIONS as usize];
                }
            }
            (todo, reply) => panic!("{todo:?} was answered {reply:?}"),
        }
        self.todo = None;
    }

    /// What it knows against what the log says.
    pub fn check(&self, log: &[Entry], counts: &mut Counts) {
        let of = |value: &str| -> Vec<&Entry> { log.iter().filter(|e| e.value == value).collect() };
        let check_acked = |(partition, offset, value): &(i32, i64, String)| {
            let found = of(value);
            let is_there =
                found.len() == 1 && (found[0].partition, found[0].offset) == (*partition, *offset);
            assert!(
                is_there,
                "acked at {partition}:{offset} {value:?}: {found:?}"
            );
        };
        self.acked.iter().for_each(check_acked);
        for (_, value) in &self.sent {
            assert!(of(value).len() <= 1, "{value} is there twice");
        }
        // In order: what was sent later stands later.
        for partition in 0..PARTITIONS {
            let sent = self.sent.iter().filter(|(p, _)| *p == partition);
            let offsets: Vec<i64> = sent.flat_map(|(_, v)| of(v)).map(|e| e.offset).collect();
            assert!(offsets.is_sorted(), "client {} out of order", self.n);
        }
        for txn in &self.txns {
            txn.acked.iter().for_each(check_acked);
            let found: Vec<Vec<&Entry>> = txn.values.iter().map(|(_, v)| of(v)).collect();
            let committed = |all: &Vec<&Entry>| all.iter().any(|e| e.committed == Some(true));
            let visible = found.iter().filter(|all| committed(all)).count();
            let twice = found.iter().any(|all| all.len() > 1);
            let whole = match txn.outcome {
                Outcome::Committed => visible == txn.values.len(),
                Outcome::Aborted => visible == 0,
                Outcome::Unknown => visible == 0 || visible == txn.values.len(),
                Outcome::Open => false,
            };
            assert!(whole && !twice, "{txn:?}: {found:?}");
            counts.acked += txn.acked.len() as u64;
            match txn.outcome {
                Outcome::Committed => counts.commits += 1,
                _ => counts.aborts += 1,
            }
        }
        counts.acked += self.acked.len() as u64;
        counts.refused += self.refused;
        counts.unknown += self.unknown;
    }
}
