//! A history as a whole: who did what, in which order, and what became of it.

use std::collections::{BTreeMap, HashMap};

use super::event::Event;
use super::outcome::{self, Outcome};

pub(crate) type ClientIx = usize;
pub(crate) type PartitionIx = usize;
pub(crate) type TxnIx = usize;
pub(crate) type ValueIx = usize;

pub(crate) struct Client {
    pub name: String,
    pub transactional_id: Option<String>,
    pub transaction_timeout: Option<u64>,
    /// When its InitProducerId was first asked for, and when it was answered.
    pub init_from: Option<u64>,
    pub init_to: Option<u64>,
    pub steps: Vec<Step>,
}

/// What an instance of a client did, in its own order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Send(ValueIx),
    Txn(TxnIx),
    Assign,
    Poll(usize),
    Watermarks(usize),
}

pub(crate) struct Value {
    pub id: u64,
    pub client: ClientIx,
    pub partition: PartitionIx,
    pub txn: Option<TxnIx>,
    pub at: u64,
    pub input: Option<u64>,
    pub amount: Option<i64>,
    /// When the client had its last word.
    pub sent_at: Option<u64>,
    pub offset: Option<i64>,
    pub answer: Outcome,
}

pub(crate) struct Txn {
    pub id: u64,
    pub client: ClientIx,
    pub begun: u64,
    pub values: Vec<ValueIx>,
    pub offsets: Vec<GroupOffset>,
    ends: Vec<(u64, u64, outcome::End)>,
    /// What its client knows, and what a read_committed reader has proved.
    pub outcome: Outcome,
    /// It was certainly open up to here.
    pub open_until: u64,
}

pub(crate) struct GroupOffset {
    pub key: (String, String, i32),
    pub offset: i64,
    pub from: u64,
    pub ok: bool,
}

impl Txn {
    /// When the first commit was asked for.
    pub fn commit_from(&self) -> Option<u64> {
        let commit = self.ends.iter().find(|(_, _, end)| end.commit);
        commit.map(|(from, _, _)| *from)
    }

    /// When a commit was asked for that was answered as done, and when.
    pub fn committed(&self) -> Option<(u64, u64)> {
        let done = |(_, _, end): &&(u64, u64, outcome::End)| end.commit && end.ok;
        self.ends
            .iter()
            .find(done)
            .map(|(from, to, _)| (*from, *to))
    }
}

pub(crate) struct Poll {
    pub client: ClientIx,
    pub from: u64,
    pub to: u64,
    pub read_committed: bool,
    /// Partition, offset, value as it was read.
    pub records: Vec<(PartitionIx, i64, u64)>,
}

pub(crate) struct Watermarks {
    pub from: u64,
    pub to: u64,
    pub read_committed: bool,
    pub partition: PartitionIx,
    pub start: i64,
    pub end: i64,
}

/// Everything that a partition holds, as it was read at the end.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Scan {
    pub start: i64,
    pub end: i64,
    /// Offset and value, by offset.
    pub records: Vec<(i64, u64)>,
}

pub(crate) struct Move {
    pub group: String,
    pub source: String,
    pub target: String,
}

#[derive(Default)]
pub(crate) struct Model {
    pub partitions: Vec<(String, i32)>,
    pub clients: Vec<Client>,
    pub values: Vec<Value>,
    pub txns: Vec<Txn>,
    pub polls: Vec<Poll>,
    pub watermarks: Vec<Watermarks>,
    /// By partition.
    pub committed: Vec<Scan>,
    pub raw: Vec<Scan>,
    pub group_offsets: BTreeMap<(String, String, i32), i64>,
    pub moves: Vec<Move>,
    pub faults: Vec<(u64, String)>,
    /// Records sent or read, and steps of transactions.
    pub operations: u64,
    partition_ix: HashMap<(String, i32), PartitionIx>,
    client_ix: HashMap<String, ClientIx>,
    value_ix: HashMap<u64, ValueIx>,
    txn_ix: HashMap<u64, TxnIx>,
}

impl Model {
    /// Errors: why the events are no whole history, so that nothing can be said of it.
    pub fn new(files: &[Vec<Event>]) -> Result<Model, String> {
        let mut model = Model::default();
        let mut scans = BTreeMap::new();
        let all = || files.iter().flatten();
        for event in all() {
            if let Event::Topic { topic, partitions } = event {
                for partition in 0..*partitions {
                    let name = (topic.clone(), partition);
                    let next = model.partitions.len();
                    if model.partition_ix.insert(name.clone(), next).is_none() {
                        model.partitions.push(name);
                    }
                }
            }
        }
        for event in all() {
            model
                .take(event, &mut scans)
                .map_err(|what| format!("{what}: {event:?}"))?;
        }
        for (at, (topic, partition)) in model.partitions.iter().enumerate() {
            for read_committed in [true, false] {
                let Some(mut scan) = scans.remove(&(at, read_committed)) else {
                    return Err(format!(
                        "{topic}-{partition} has no final scan with read_committed={read_committed}"
                    ));
                };
                scan.records.sort_unstable();
                match read_committed {
                    true => model.committed.push(scan),
                    false => model.raw.push(scan),
                }
            }
        }
        model.decide();
        model.find_how_long_open();
        Ok(model)
    }

    pub fn value(&self, id: u64) -> Option<&Value> {
        self.value_ix.get(&id).map(|&ix| &self.values[ix])
    }

    pub fn value_ix(&self, id: u64) -> Option<ValueIx> {
        self.value_ix.get(&id).copied()
    }

    /// Whether a record is to be there for a read_committed reader.
    pub fn outcome(&self, value: &Value) -> Outcome {
        match (value.answer, value.txn) {
            (Outcome::Fail, _) => Outcome::Fail,
            (_, Some(txn)) => self.txns[txn].outcome,
            (answer, None) => answer,
        }
    }

    /// For people: `record 7 of producer-1 in orders-0`.
    pub fn name(&self, id: u64) -> String {
        match self.value(id) {
            None => format!("record {id}, which nobody sent,"),
            Some(value) => {
                let (topic, partition) = &self.partitions[value.partition];
                let client = &self.clients[value.client].name;
                let txn = value.txn.map(|txn| self.txns[txn].id);
                let txn = txn.map_or(String::new(), |txn| format!(", transaction {txn}"));
                format!("record {id} of {client} to {topic}-{partition}{txn}")
            }
        }
    }

    pub fn place(&self, partition: PartitionIx, offset: i64) -> String {
        let (topic, number) = &self.partitions[partition];
        format!("{topic}-{number} offset {offset}")
    }

    pub fn partition(&self, topic: &str, partition: i32) -> Option<PartitionIx> {
        self.partition_ix
            .get(&(topic.to_owned(), partition))
            .copied()
    }

    fn take(
        &mut self,
        event: &Event,
        scans: &mut BTreeMap<(PartitionIx, bool), Scan>,
    ) -> Result<(), String> {
        match event {
            Event::History { .. } | Event::Topic { .. } => {}
            Event::Move {
                group,
                source,
                target,
            } => self.moves.push(Move {
                group: group.clone(),
                source: source.clone(),
                target: target.clone(),
            }),
            Event::Client {
                client,
                transactional_id,
                transaction_timeout_ms,
                ..
            } => {
                let next = self.clients.len();
                if self.client_ix.insert(client.clone(), next).is_some() {
                    return Err("a second client of that name".into());
                }
                self.clients.push(Client {
                    name: client.clone(),
                    transactional_id: transactional_id.clone(),
                    transaction_timeout: transaction_timeout_ms.map(|ms| ms * 1_000_000),
                    init_from: None,
                    init_to: None,
                    steps: Vec::new(),
                });
            }
            Event::Init {
                from,
                to,
                client,
                error,
            } => {
                self.operations += 1;
                let client = self.client(client)?;
                let client = &mut self.clients[client];
                client.init_from.get_or_insert(*from);
                if error.is_none() {
                    client.init_to = Some(*to);
                }
            }
            Event::Begin { at, client, txn } => {
                self.operations += 1;
                let client = self.client(client)?;
                let next = self.txns.len();
                if self.txn_ix.insert(*txn, next).is_some() {
                    return Err("a second transaction of that number".into());
                }
                self.clients[client].steps.push(Step::Txn(next));
                self.txns.push(Txn {
                    id: *txn,
                    client,
                    begun: *at,
                    values: Vec::new(),
                    offsets: Vec::new(),
                    ends: Vec::new(),
                    outcome: Outcome::Unknown,
                    open_until: *at,
                });
            }
            Event::Send {
                at,
                client,
                txn,
                topic,
                partition,
                value,
                input,
                amount,
            } => {
                self.operations += 1;
                let client = self.client(client)?;
                let txn = txn.map(|txn| self.txn(txn)).transpose()?;
                let partition = self.known(topic, *partition)?;
                let next = self.values.len();
                if self.value_ix.insert(*value, next).is_some() {
                    return Err("a second record of that value".into());
                }
                self.clients[client].steps.push(Step::Send(next));
                if let Some(txn) = txn {
                    self.txns[txn].values.push(next);
                }
                self.values.push(Value {
                    id: *value,
                    client,
                    partition,
                    txn,
                    at: *at,
                    input: *input,
                    amount: *amount,
                    sent_at: None,
                    offset: None,
                    answer: Outcome::Unknown,
                });
            }
            Event::Sent {
                at,
                value,
                offset,
                error,
            } => {
                let value = self
                    .value_ix
                    .get(value)
                    .ok_or("the answer to a record that was not sent")?;
                let value = &mut self.values[*value];
                value.sent_at = Some(*at);
                value.answer = outcome::of_send(error.as_deref());
                value.offset = offset.filter(|_| error.is_none());
            }
            Event::Offsets {
                from,
                txn,
                group,
                positions,
                error,
                ..
            } => {
                self.operations += 1;
                let txn = self.txn(*txn)?;
                for (topic, partition, offset) in positions {
                    self.txns[txn].offsets.push(GroupOffset {
                        key: (group.clone(), topic.clone(), *partition),
                        offset: *offset,
                        from: *from,
                        ok: error.is_none(),
                    });
                }
            }
            Event::End {
                from,
                to,
                txn,
                commit,
                error,
                ..
            } => {
                self.operations += 1;
                let txn = self.txn(*txn)?;
                let end = outcome::End {
                    commit: *commit,
                    ok: error.is_none(),
                };
                self.txns[txn].ends.push((*from, *to, end));
            }
            Event::Assign { client, .. } => {
                let client = self.client(client)?;
                self.clients[client].steps.push(Step::Assign);
            }
            Event::Poll {
                from,
                to,
                client,
                read_committed,
                records,
            } => {
                self.operations += records.len() as u64;
                let client = self.client(client)?;
                let mut seen = Vec::with_capacity(records.len());
                for (topic, partition, offset, value) in records {
                    seen.push((self.known(topic, *partition)?, *offset, *value));
                }
                self.clients[client]
                    .steps
                    .push(Step::Poll(self.polls.len()));
                self.polls.push(Poll {
                    client,
                    from: *from,
                    to: *to,
                    read_committed: *read_committed,
                    records: seen,
                });
            }
            Event::Watermarks {
                from,
                to,
                client,
                read_committed,
                topic,
                partition,
                start,
                end,
            } => {
                let client = self.client(client)?;
                let partition = self.known(topic, *partition)?;
                let next = self.watermarks.len();
                self.clients[client].steps.push(Step::Watermarks(next));
                self.watermarks.push(Watermarks {
                    from: *from,
                    to: *to,
                    read_committed: *read_committed,
                    partition,
                    start: *start,
                    end: *end,
                });
            }
            Event::Fault { from, fault, .. } => self.faults.push((*from, fault.clone())),
            Event::Scan {
                read_committed,
                topic,
                partition,
                start,
                end,
                records,
            } => {
                let scan = Scan {
                    start: *start,
                    end: *end,
                    records: records.clone(),
                };
                let key = (self.known(topic, *partition)?, *read_committed);
                if scans.insert(key, scan).is_some() {
                    return Err("a second final scan".into());
                }
            }
            Event::Committed {
                group,
                topic,
                partition,
                offset,
            } => {
                let key = (group.clone(), topic.clone(), *partition);
                self.group_offsets.insert(key, *offset);
            }
        }
        Ok(())
    }

    fn client(&self, name: &str) -> Result<ClientIx, String> {
        let found = self.client_ix.get(name).copied();
        found.ok_or_else(|| format!("client {name} is not known"))
    }

    fn txn(&self, id: u64) -> Result<TxnIx, String> {
        let found = self.txn_ix.get(&id).copied();
        found.ok_or_else(|| format!("transaction {id} has not begun"))
    }

    fn known(&self, topic: &str, partition: i32) -> Result<PartitionIx, String> {
        self.partition(topic, partition)
            .ok_or_else(|| format!("{topic}-{partition} is not of the history"))
    }

    /// What became of each transaction: its client's word, and where that leaves it open, what readers saw.
    fn decide(&mut self) {
        for txn in &mut self.txns {
            let ends: Vec<outcome::End> = txn.ends.iter().map(|(_, _, end)| *end).collect();
            txn.outcome = outcome::of_transaction(&ends);
        }
        let polled = (self.polls.iter())
            .filter(|poll| poll.read_committed)
            .flat_map(|poll| poll.records.iter().map(|(_, _, value)| *value));
        let scanned = self.committed.iter().flat_map(|scan| &scan.records);
        for id in polled.chain(scanned.map(|(_, value)| *value)) {
            if let Some(&ix) = self.value_ix.get(&id)
                && let Some(txn) = self.values[ix].txn
                && self.txns[txn].outcome == Outcome::Unknown
            {
                self.txns[txn].outcome = Outcome::Ok;
            }
        }
    }

    /// A transaction ends when its client asks, when a new instance of its id is made, or when its time is over. After a
    /// restart the broker counts that time by the wall clock, so where the clock was stepped every kill may end it.
    fn find_how_long_open(&mut self) {
        let mut inits: HashMap<&str, Vec<u64>> = HashMap::new();
        for client in &self.clients {
            if let (Some(id), Some(from)) = (&client.transactional_id, client.init_from) {
                inits.entry(id).or_default().push(from);
            }
        }
        let stepped = self.faults.iter().any(|(_, fault)| fault == "clock");
        let mut kills: Vec<u64> = Vec::new();
        if stepped {
            let kill = |(at, fault): &(u64, String)| (fault == "kill").then_some(*at);
            kills.extend(self.faults.iter().filter_map(kill));
        }
        kills.sort_unstable();
        inits.values_mut().for_each(|times| times.sort_unstable());
        let after = |times: &[u64], at: u64| {
            let next = times.partition_point(|time| *time <= at);
            times.get(next).copied().unwrap_or(u64::MAX)
        };
        for txn in &mut self.txns {
            let client = &self.clients[txn.client];
            let mut until = after(&kills, txn.begun);
            if let Some(id) = &client.transactional_id {
                let of_id = inits.get(id.as_str()).map_or(&[][..], Vec::as_slice);
                until = until.min(after(of_id, txn.begun));
            }
            if let Some(timeout) = client.transaction_timeout {
                until = until.min(txn.begun.saturating_add(timeout));
            }
            if let Some((from, _, _)) = txn.ends.first() {
                until = until.min(*from);
            }
            txn.open_until = until;
        }
    }
}
