//! A history to bend.
//!
//! | client | does |
//! |-|-|
//! | p1 (id p) | transaction 1: records 1, 2 to a-0, a-1, committed; 2: record 3 to a-0, aborted |
//! | q | record 4 to a-1, alone |
//! | m1 (id m) | reads record 1; transaction 3: record 5 to b-0, made from 1, and offset 1 of group g in a-0; committed |
//! | p1 | transaction 4: +5 (record 6) to c-0, -5 (record 7) to c-1, committed |
//! | r | reads a with read_committed; u: with read_uncommitted |
//! | w | asks for watermarks |
//!
//! A step takes 10 of time.

use std::collections::BTreeMap;

use tidemark_histcheck::history::{
    Check, Event, LogPartition, LogRecord, LogView, VERSION, Verdict, check,
};

pub type Log = BTreeMap<(String, i32), LogPartition>;

/// Events up to the final scans, and the log as it is in the end.
pub struct Story {
    pub events: Vec<Event>,
    pub now: u64,
    /// What the broker serves in the end.
    pub served: Log,
    /// What is in its log; `None`: the same.
    pub log: Option<Log>,
    pub group_offset: i64,
    pub log_group_offset: Option<i64>,
    pub ongoing: Vec<String>,
}

fn log(end: i64, records: &[(i64, u64, Option<u64>)]) -> LogPartition {
    let record = |&(offset, value, visible_at): &(i64, u64, Option<u64>)| LogRecord {
        offset,
        value,
        visible_at,
    };
    LogPartition {
        start: 0,
        end,
        last_stable_offset: end,
        records: records.iter().map(record).collect(),
    }
}

pub fn at(topic: &str, partition: i32) -> (String, i32) {
    (topic.to_owned(), partition)
}

impl Story {
    pub fn new() -> Story {
        let mut story = Story {
            events: vec![Event::History {
                version: VERSION,
                seed: 1,
            }],
            now: 1000,
            served: BTreeMap::from([
                (at("a", 0), log(4, &[(0, 1, Some(10)), (2, 3, None)])),
                (at("a", 1), log(3, &[(0, 2, Some(10)), (2, 4, Some(20))])),
                (at("b", 0), log(2, &[(0, 5, Some(30))])),
                (at("c", 0), log(2, &[(0, 6, Some(40))])),
                (at("c", 1), log(2, &[(0, 7, Some(40))])),
            ]),
            log: None,
            group_offset: 1,
            log_group_offset: None,
            ongoing: Vec::new(),
        };
        for (topic, partitions) in [("a", 2), ("b", 1), ("c", 2)] {
            story.events.push(Event::Topic {
                topic: topic.into(),
                partitions,
            });
        }
        story.events.push(Event::Move {
            group: "g".into(),
            source: "a".into(),
            target: "b".into(),
        });
        story
    }

    /// The whole story of the table above.
    pub fn told() -> Story {
        let mut story = Story::new();
        for name in ["q", "r", "u", "w"] {
            story.client(name, None);
        }
        story.client("p1", Some("p"));
        story.client("m1", Some("m"));
        story.init("p1");
        story.init("m1");
        story.watermarks("w", true, "a", 0, 0);
        story.watermarks("w", false, "a", 0, 0);
        story.begin("p1", 1);
        story.send("p1", Some(1), "a", 0, 1);
        story.sent(1, 0);
        story.send("p1", Some(1), "a", 1, 2);
        story.sent(2, 0);
        story.watermarks("w", true, "a", 0, 0);
        story.watermarks("w", false, "a", 0, 1);
        story.end("p1", 1, true, None);
        story.poll("r", true, &[("a", 0, 0, 1)]);
        story.begin("p1", 2);
        story.send("p1", Some(2), "a", 0, 3);
        story.sent(3, 2);
        story.poll("u", false, &[("a", 0, 0, 1), ("a", 0, 2, 3)]);
        story.end("p1", 2, false, None);
        story.send("q", None, "a", 1, 4);
        story.sent(4, 2);
        story.poll("r", true, &[("a", 1, 0, 2), ("a", 1, 2, 4)]);
        story.poll("m1", true, &[("a", 0, 0, 1)]);
        story.begin("m1", 3);
        story.moved("m1", 3, 1, 5);
        story.sent(5, 0);
        story.offsets("m1", 3, 1);
        story.end("m1", 3, true, None);
        story.begin("p1", 4);
        story.paid("p1", 4, 0, 6, 5);
        story.sent(6, 0);
        story.paid("p1", 4, 1, 7, -5);
        story.sent(7, 0);
        story.end("p1", 4, true, None);
        story.watermarks("w", true, "a", 0, 4);
        story.watermarks("w", false, "a", 0, 4);
        story
    }

    fn tick(&mut self) -> (u64, u64) {
        let from = self.now;
        self.now += 10;
        (from, from + 5)
    }

    pub fn client(&mut self, name: &str, transactional_id: Option<&str>) {
        let (at, _) = self.tick();
        self.events.push(Event::Client {
            at,
            client: name.into(),
            library: "by hand".into(),
            transactional_id: transactional_id.map(str::to_owned),
            transaction_timeout_ms: transactional_id.map(|_| 60_000),
        });
    }

    pub fn init(&mut self, client: &str) {
        let (from, to) = self.tick();
        self.events.push(Event::Init {
            from,
            to,
            client: client.into(),
            error: None,
        });
    }

    pub fn begin(&mut self, client: &str, txn: u64) {
        let (at, _) = self.tick();
        self.events.push(Event::Begin {
            at,
            client: client.into(),
            txn,
        });
    }

    pub fn send(
        &mut self,
        client: &str,
        txn: Option<u64>,
        topic: &str,
        partition: i32,
        value: u64,
    ) {
        let (at, _) = self.tick();
        self.events.push(Event::Send {
            at,
            client: client.into(),
            txn,
            topic: topic.into(),
            partition,
            value,
            input: None,
            amount: None,
        });
    }

    /// A record to b-0 that was made from another.
    pub fn moved(&mut self, client: &str, txn: u64, from: u64, value: u64) {
        self.send(client, Some(txn), "b", 0, value);
        if let Some(Event::Send { input, .. }) = self.events.last_mut() {
            *input = Some(from);
        }
    }

    /// A record to c that changes an account.
    pub fn paid(&mut self, client: &str, txn: u64, partition: i32, value: u64, money: i64) {
        self.send(client, Some(txn), "c", partition, value);
        if let Some(Event::Send { amount, .. }) = self.events.last_mut() {
            *amount = Some(money);
        }
    }

    pub fn sent(&mut self, value: u64, offset: i64) {
        let (at, _) = self.tick();
        self.events.push(Event::Sent {
            at,
            value,
            offset: Some(offset),
            error: None,
        });
    }

    pub fn not_sent(&mut self, value: u64, error: &str) {
        let (at, _) = self.tick();
        self.events.push(Event::Sent {
            at,
            value,
            offset: None,
            error: Some(error.into()),
        });
    }

    /// Offsets of group g in a-0.
    pub fn offsets(&mut self, client: &str, txn: u64, offset: i64) {
        let (from, to) = self.tick();
        self.events.push(Event::Offsets {
            from,
            to,
            client: client.into(),
            txn,
            group: "g".into(),
            positions: vec![("a".into(), 0, offset)],
            error: None,
        });
    }

    pub fn end(&mut self, client: &str, txn: u64, commit: bool, error: Option<&str>) {
        let (from, to) = self.tick();
        self.events.push(Event::End {
            from,
            to,
            client: client.into(),
            txn,
            commit,
            error: error.map(str::to_owned),
        });
    }

    pub fn assign(&mut self, client: &str) {
        let (at, _) = self.tick();
        self.events.push(Event::Assign {
            at,
            client: client.into(),
        });
    }

    pub fn poll(&mut self, client: &str, read_committed: bool, seen: &[(&str, i32, i64, u64)]) {
        let (from, to) = self.tick();
        let seen = seen.iter().map(|&(t, p, o, v)| (t.to_owned(), p, o, v));
        self.events.push(Event::Poll {
            from,
            to,
            client: client.into(),
            read_committed,
            records: seen.collect(),
        });
    }

    pub fn watermarks(
        &mut self,
        client: &str,
        read_committed: bool,
        topic: &str,
        partition: i32,
        end: i64,
    ) {
        let (from, to) = self.tick();
        self.events.push(Event::Watermarks {
            from,
            to,
            client: client.into(),
            read_committed,
            topic: topic.into(),
            partition,
            start: 0,
            end,
        });
    }

    pub fn fault(&mut self, fault: &str) {
        let (from, to) = self.tick();
        self.events.push(Event::Fault {
            from,
            to,
            fault: fault.into(),
        });
    }

    /// The records of a partition as it is served in the end.
    pub fn records(&mut self, topic: &str, partition: i32) -> &mut Vec<LogRecord> {
        &mut self.partition(topic, partition).records
    }

    pub fn partition(&mut self, topic: &str, partition: i32) -> &mut LogPartition {
        self.served
            .get_mut(&at(topic, partition))
            .expect("a partition of the story")
    }

    /// Adds a record to the end of a partition; with a tick it is visible.
    pub fn write(&mut self, topic: &str, partition: i32, value: u64, visible_at: Option<u64>) {
        let partition = self.partition(topic, partition);
        let offset = partition.end;
        partition.end += 1;
        partition.last_stable_offset += 1;
        partition.records.push(LogRecord {
            offset,
            value,
            visible_at,
        });
    }

    /// The last event for which `which` holds.
    pub fn last(&mut self, which: impl Fn(&Event) -> bool) -> &mut Event {
        let event = self.events.iter_mut().rev().find(|event| which(event));
        event.expect("an event of the story")
    }

    pub fn verdict(&self) -> Verdict {
        let mut events = self.events.clone();
        for ((topic, partition), log) in &self.served {
            for read_committed in [true, false] {
                let there = |r: &&LogRecord| !read_committed || r.visible_at.is_some();
                let records = log.records.iter().filter(there);
                events.push(Event::Scan {
                    read_committed,
                    topic: topic.clone(),
                    partition: *partition,
                    start: log.start,
                    end: match read_committed {
                        true => log.last_stable_offset,
                        false => log.end,
                    },
                    records: records.map(|r| (r.offset, r.value)).collect(),
                });
            }
        }
        let key = ("g".to_owned(), "a".to_owned(), 0);
        events.push(Event::Committed {
            group: key.0.clone(),
            topic: key.1.clone(),
            partition: key.2,
            offset: self.group_offset,
        });
        let log = LogView {
            partitions: self.log.as_ref().unwrap_or(&self.served).clone(),
            group_offsets: BTreeMap::from([(
                key,
                self.log_group_offset.unwrap_or(self.group_offset),
            )]),
            ongoing: self.ongoing.clone(),
        };
        check(&[events], Some(&log)).expect("a whole history")
    }

    pub fn is_clean(&self) {
        let verdict = self.verdict();
        assert_eq!(verdict.anomalies(), 0, "{:#?}", verdict.sentences);
    }

    /// `check` finds something, whatever else does.
    pub fn is_flagged(&self, check: Check) {
        let verdict = self.verdict();
        assert!(verdict.count(check) > 0, "{:#?}", verdict.sentences);
    }
}
