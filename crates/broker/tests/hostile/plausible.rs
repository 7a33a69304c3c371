//! Requests that fit the schema and get far: names that exist, numbers at the edges, batches that are
//! nearly right. Whatever they say, they are answered: no well-formed request closes its connection.

use std::time::Duration;

use bytes::Bytes;
use tidemark_testkit::{Batch, RawClient, TestBroker, TxnProducer};
use tidemark_wire::schema::{self, Element, Field, Kind, Struct};
use tidemark_wire::{ApiKey, ApiTable};

use crate::may_mean_nothing;
use crate::memory::Memory;
use crate::shapes::{self, Choices};
use crate::support::changed::Changed;
use crate::support::member::Member;
use crate::witness::Witness;

/// What there is on the broker, to be named in requests.
struct Known {
    texts: Vec<String>,
    numbers: Vec<i64>,
    topic_id: [u8; 16],
    batches: Vec<Bytes>,
    member_id: String,
    generation: i64,
    producer_id: i64,
}

/// What fits a field.
enum Fitting {
    Text(String),
    Number(i64),
}

impl Known {
    /// Two topics, a group with a member, one with offsets, a transaction that is open.
    async fn prepare(client: &mut RawClient) -> Known {
        client.create_topic("t", 3).await;
        client
            .create_topic_with("keyed", 1, &[("cleanup.policy", "compact")])
            .await;
        let topic_id = client.describe_topic("t").await.topic_id.into_bytes();
        let member = Member::alone(client, "g").await;
        client
            .commit_offsets("offsets", &[("t", 0, 1)])
            .await
            .unwrap();
        let mut tx = TxnProducer::init(client, "tx").await;
        tx.enrol(client, &[("t", 0)]).await.unwrap();
        tx.send(client, "t", 0, &["open"]).await.unwrap();
        tx.send_offsets(client, "offsets", &[("t", 1, 5)])
            .await
            .unwrap();
        let (idempotent, _) = client.init_producer_id(None).await.unwrap();

        let names = [
            "t",
            "keyed",
            "g",
            "offsets",
            "tx",
            "",
            "nobody",
            "not a name",
            "consumer",
            "range",
            "__consumer_offsets",
            "__transaction_state",
            "__cluster_metadata",
            ".",
            "0",
            "-1",
            "max.message.bytes",
            "cleanup.policy",
            "compact",
            "Stable",
            "Ongoing",
            "classic",
            "é",
        ];
        let mut texts: Vec<String> = names.map(str::to_owned).to_vec();
        texts.push(member.member_id.clone());
        texts.push("x".repeat(300));
        let plain = Batch::of(&["v", "w"]).build();
        let next = tx.batch("t", 0, &["next"]).build();
        let of = |batch: &Bytes| Changed::batch(batch);
        let mut batches = vec![
            plain.clone(),
            next.clone(),
            Batch::of(&["i"]).producer(idempotent, 0, 0).build(),
            of(&next).producer_id(idempotent).sealed(),
            of(&plain)
                .producer_id(tx.producer_id)
                .base_sequence(i32::MAX)
                .sealed(),
            of(&plain).attribute_bits(0x10).sealed(),
            of(&plain).base_timestamp(i64::MIN).sealed(),
            of(&plain).max_timestamp(-1).sealed(),
            of(&plain).last_byte().raw(),
            Bytes::new(),
        ];
        batches.push(of(&plain).followed_by(&next).raw());
        Known {
            texts,
            numbers: vec![
                0,
                1,
                2,
                3,
                5,
                49,
                50,
                -1,
                -2,
                -3,
                -4,
                -5,
                -6,
                127,
                128,
                i64::from(i16::MAX),
                i64::from(i16::MIN),
                i64::from(i32::MAX),
                i64::from(i32::MIN),
                i64::MAX,
                i64::MIN,
                1 << 50,
                1 << 62,
                tx.producer_id,
                idempotent,
                i64::from(member.generation),
            ],
            topic_id,
            batches,
            member_id: member.member_id,
            generation: i64::from(member.generation),
            producer_id: tx.producer_id,
        }
    }

    /// What a client of good will would write into a field, if there is one thing.
    fn fitting(&self, name: &str, choices: &mut Choices) -> Option<Fitting> {
        let one_of = |choices: &mut Choices, texts: &[&str]| {
            Fitting::Text(texts[choices.below(texts.len())].to_owned())
        };
        Some(match name {
            "group_id" | "groups" | "groups_names" => one_of(choices, &["g", "offsets"]),
            "member_id" => one_of(choices, &[&self.member_id, ""]),
            "generation_id" | "generation_id_or_member_epoch" => match choices.one_in(2) {
                true => Fitting::Number(self.generation),
                false => Fitting::Number(-1),
            },
            "transactional_id" | "transactional_ids" | "v3_and_below_transactional_id" => {
                one_of(choices, &["tx"])
            }
            "producer_id" | "v3_and_below_producer_id" => Fitting::Number(self.producer_id),
            "producer_epoch" | "v3_and_below_producer_epoch" => Fitting::Number(0),
            "topic" | "name" | "topic_names" => one_of(choices, &["t", "keyed"]),
            "partition" | "partition_index" | "partition_indexes" | "partitions" | "index" => {
                Fitting::Number(choices.below(3) as i64)
            }
            "committed_metadata" => one_of(choices, &["", "note"]),
            "protocol_type" => one_of(choices, &["consumer"]),
            "resource_type" => Fitting::Number(2),
            "resource_name" => one_of(choices, &["t"]),
            "key_type" => Fitting::Number(choices.below(2) as i64),
            // Few numbers are a timeout that a group takes.
            name if name.ends_with("timeout_ms") => Fitting::Number(10_000),
            _ => return None,
        })
    }
}

/// Writes a body by its schema.
struct Writer<'a> {
    out: Vec<u8>,
    version: i16,
    flexible: bool,
    known: &'a Known,
    choices: &'a mut Choices,
}

impl Writer<'_> {
    fn body(known: &Known, key: ApiKey, version: i16, choices: &mut Choices) -> Vec<u8> {
        let mut writer = Writer {
            out: Vec::new(),
            version,
            flexible: key.is_flexible(version),
            known,
            choices,
        };
        writer.fields(schema::request(key));
        writer.out
    }

    fn fields(&mut self, fields: &Struct) {
        for field in fields.fields_of(self.version) {
            self.field(field);
        }
        if self.flexible {
            self.out.push(0);
        }
    }

    fn field(&mut self, field: &Field) {
        if field.nullable && self.choices.one_in(6) {
            self.length(field.kind, None);
            return;
        }
        match field.kind {
            // Most answers of acks=0 are none.
            Kind::Fixed(2) if field.name == "acks" => self.out.extend_from_slice(&[0xff, 0xff]),
            kind => self.value(field.name, kind),
        }
    }

    fn value(&mut self, name: &str, kind: Kind) {
        let fitting = match self.choices.one_in(5) {
            true => None,
            false => self.known.fitting(name, self.choices),
        };
        match kind {
            Kind::Struct(fields) => self.fields(fields),
            Kind::Fixed(16) => {
                let id = match self.choices.one_in(4) {
                    true => [0; 16],
                    false => self.known.topic_id,
                };
                self.out.extend_from_slice(&id);
            }
            Kind::Fixed(width) => {
                let number = match fitting {
                    Some(Fitting::Number(number)) => number,
                    _ => self.known.numbers[self.choices.below(self.known.numbers.len())],
                };
                self.out
                    .extend_from_slice(&number.to_be_bytes()[8 - width..]);
            }
            Kind::String => {
                let text = match fitting {
                    Some(Fitting::Text(text)) => text,
                    _ => self.known.texts[self.choices.below(self.known.texts.len())].clone(),
                };
                self.length(kind, Some(text.len()));
                self.out.extend_from_slice(text.as_bytes());
            }
            Kind::Bytes => {
                let batch = &self.known.batches[self.choices.below(self.known.batches.len())];
                self.length(kind, Some(batch.len()));
                self.out.extend_from_slice(batch);
            }
            Kind::Array(element) => {
                let count = [0, 1, 1, 1, 2, 3][self.choices.below(6)];
                self.length(kind, Some(count));
                for _ in 0..count {
                    match element {
                        Element::Struct(fields) => self.fields(fields),
                        element => self.value(name, element.kind()),
                    }
                }
            }
        }
    }

    fn length(&mut self, kind: Kind, length: Option<usize>) {
        let value = length.map_or(-1, |n| i32::try_from(n).expect("short"));
        match (kind, self.flexible) {
            (_, true) => {
                let mut value = (value + 1).unsigned_abs();
                while value >= 0x80 {
                    self.out.push((value & 0x7f) as u8 | 0x80);
                    value >>= 7;
                }
                self.out.push(value as u8);
            }
            (Kind::String, false) => self.out.extend_from_slice(&(value as i16).to_be_bytes()),
            (_, false) => self.out.extend_from_slice(&value.to_be_bytes()),
        }
    }
}

/// The answer to a request. One that is parked (a Fetch, a JoinGroup) is answered when its time is
/// over, and time passes.
async fn ask(broker: &TestBroker, key: ApiKey, version: i16, body: &[u8]) -> Option<Bytes> {
    let mut client = broker.client_from("10.0.0.66:6666".parse().expect("an address"));
    let mut frame = shapes::header(key, version, 1, Some("plausible"));
    frame.extend_from_slice(body);
    client.send_frame(&frame).await;
    for _ in 0..100 {
        let answer = tokio::time::timeout(Duration::from_millis(20), client.next_frame());
        match answer.await {
            Ok(answer) => {
                client.hang_up().await;
                return answer;
            }
            Err(_) => broker.clock().advance(Duration::from_millis(1 << 31)),
        }
    }
    panic!("{key} v{version} is never answered: {body:02x?}");
}

/// Every advertised API and version, in some order.
fn shuffled(choices: &mut Choices) -> Vec<(ApiKey, i16)> {
    let mut all: Vec<(ApiKey, i16)> = ApiTable::served_apis()
        .flat_map(|(api, served)| {
            served
                .versions
                .iter()
                .map(move |version| (api.key, version))
        })
        .collect();
    for last in (1..all.len()).rev() {
        all.swap(last, choices.below(last + 1));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_well_formed_request_is_answered_whatever_it_says() {
    const BROKERS: u64 = 100;
    let memory = Memory::now();
    let (mut asked, mut records, mut closed) = (0, 0, Vec::new());
    for seed in 0..BROKERS {
        let broker = TestBroker::builder()
            .seed(seed)
            // Time is made to pass in leaps.
            .set("connections.max.idle.ms", -1)
            .start()
            .await;
        let mut witness = Witness::of(&broker).await;
        let mut client = broker.client().await;
        let known = Known::prepare(&mut client).await;
        let before = broker.journal_stats().records;
        let mut choices = Choices(seed);
        for (key, version) in shuffled(&mut choices) {
            let body = Writer::body(&known, key, version, &mut choices);
            asked += 1;
            if ask(&broker, key, version, &body).await.is_none() && !may_mean_nothing(key) {
                closed.push(format!("seed {seed}, {key} v{version}: {body:02x?}"));
            }
        }
        witness.writes().await;
        records += broker.journal_stats().records - before;
        // What came of it is sound: it is replayed.
        let broker = broker.crash(seed).await.start().await;
        let mut client = broker.client().await;
        client.create_topic("afterwards", 1).await;
    }
    assert!(
        closed.is_empty(),
        "{} of {asked} are not answered, as {}",
        closed.len(),
        closed[0]
    );
    println!("{asked} requests, {records} records written of them");
    assert!(
        records > 5 * BROKERS,
        "{records} records: too few requests get far"
    );
    memory.assert_no_jump("plausible requests");
}
