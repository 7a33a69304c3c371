//! Typed requests over one connection, and a transactional producer on top of them that does nothing a measurement
//! would not want: no thread, no queue, no linger.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, ApiKey, BrokerId, CreateTopicsRequest, EndTxnRequest,
    InitProducerIdRequest, ListOffsetsRequest, ListOffsetsResponse, ProduceRequest, ProducerId,
    ResponseHeader, TopicName, TransactionalId,
};
use kafka_protocol::protocol::{Decodable, Request, StrBytes};
use tidemark_record_batch::BatchBuilder;
use tidemark_types::{ProducerEpoch, ProducerId as Id};

use crate::batches::SCRIPT_TIME_MS;
use crate::connection::{Connection, Received};
use crate::requests::{Body, encode};

const PATIENCE: Duration = Duration::from_secs(30);
/// Between two attempts at what was answered with a transient code.
const PAUSE: Duration = Duration::from_millis(1);
const CONCURRENT_TRANSACTIONS: i16 = 51;
/// UNKNOWN_TOPIC_OR_PARTITION and LEADER_NOT_AVAILABLE of a topic that is new; of a coordinator that loads: 14, 15, 16.
const TRANSIENT: [i16; 6] = [3, 5, 14, 15, 16, CONCURRENT_TRANSACTIONS];

/// One connection.
pub struct Raw {
    address: SocketAddr,
    connection: Connection,
}

impl Raw {
    pub fn open(address: SocketAddr) -> Result<Raw> {
        Ok(Raw {
            address,
            connection: Connection::open(address)?,
        })
    }

    /// As [`Raw::open`], from an address of this machine.
    pub fn open_from(local: IpAddr, address: SocketAddr) -> Result<Raw> {
        Ok(Raw {
            address,
            connection: Connection::open_from(local, address)?,
        })
    }

    /// Sends a request and waits for its answer.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        let mut frame = self.exchange(&encode(version, request)?)?;
        R::Response::decode(&mut frame, version)
            .with_context(|| format!("API {} v{version} of {}", R::KEY, self.address))
    }

    /// Sends a body that was built before; gives the answer behind its header.
    pub fn exchange(&mut self, body: &Body) -> Result<Bytes> {
        let what = format!("API {} v{} of {}", body.key, body.version, self.address);
        let answer = self.exchange_or_closed(body)?;
        answer.with_context(|| format!("{what}: the connection was closed"))
    }

    /// As [`Raw::exchange`]; `None` where the connection is closed instead of an answer.
    pub fn exchange_or_closed(&mut self, body: &Body) -> Result<Option<Bytes>> {
        let id = self.connection.send(body, Some("raw"), 0, 0);
        let what = || format!("API {} v{} of {}", body.key, body.version, self.address);
        match self.connection.receive(Some(id), PATIENCE) {
            Received::Frame(mut frame) => {
                let api = ApiKey::try_from(body.key).ok().context("an unknown API")?;
                ResponseHeader::decode(&mut frame, api.response_header_version(body.version))?;
                Ok(Some(frame))
            }
            Received::Closed => Ok(None),
            Received::Nothing => bail!("{}: no answer within {PATIENCE:?}", what()),
        }
    }

    /// Makes a topic and waits until all its partitions are led.
    pub fn create_topic(&mut self, name: &str, partitions: i32) -> Result<()> {
        let request = CreateTopicsRequest::default()
            .with_timeout_ms(30_000)
            .with_topics(vec![
                CreatableTopic::default()
                    .with_name(topic_name(name))
                    .with_num_partitions(partitions)
                    .with_replication_factor(1),
            ]);
        let answer = self.ask(4, &request)?;
        let code = answer.topics.first().context("no topic")?.error_code;
        ensure!(code == 0, "topic {name} was not made: error {code}");
        let until = Instant::now() + PATIENCE;
        let ends = latest(name, partitions, 0)?;
        loop {
            let answer = self.list_offsets(&ends)?;
            if answer.iter().all(|(code, _)| *code == 0) {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "topic {name} is not led: {answer:?}"
            );
            sleep(Duration::from_millis(20));
        }
    }

    /// (error code, offset) of each partition, in the answer's order.
    pub fn list_offsets(&mut self, body: &Body) -> Result<Vec<(i16, i64)>> {
        let answer = ListOffsetsResponse::decode(&mut self.exchange(body)?, body.version)?;
        let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        Ok(partitions.map(|p| (p.error_code, p.offset)).collect())
    }
}

/// ListOffsets(latest) of partitions `0..partitions` in one request; isolation 1 is read_committed.
pub fn latest(topic: &str, partitions: i32, isolation: i8) -> Result<Body> {
    let partitions = (0..partitions).map(|p| {
        ListOffsetsPartition::default()
            .with_partition_index(p)
            .with_current_leader_epoch(-1)
            .with_timestamp(-1)
    });
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation)
        .with_topics(vec![
            ListOffsetsTopic::default()
                .with_name(topic_name(topic))
                .with_partitions(partitions.collect()),
        ]);
    encode(7, &request)
}

/// Produce with acks=all: a batch for each partition.
pub fn produce(
    version: i16,
    transactional: Option<&str>,
    topic: &str,
    batches: Vec<(i32, Vec<u8>)>,
) -> Result<Body> {
    let partitions = batches.into_iter().map(|(partition, batch)| {
        PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(batch.into()))
    });
    let request = ProduceRequest::default()
        .with_transactional_id(transactional.map(transactional_id))
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(topic_name(topic))
                .with_partition_data(partitions.collect()),
        ]);
    encode(version, &request)
}

/// A record of a producer that is not even idempotent, acks=all.
pub fn plain_produce(topic: &str, partition: i32, value: &[u8]) -> Result<Body> {
    let mut builder = BatchBuilder::new(SCRIPT_TIME_MS);
    builder.push(None, Some(value));
    produce(11, None, topic, vec![(partition, builder.build())])
}

/// Which of Kafka's two ways to speak transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// AddPartitionsToTxn, Produce v11, EndTxn v3.
    Classic,
    /// KIP-890: Produce v12 enrols, EndTxn v5 gives the next epoch.
    Version2,
}

impl Dialect {
    pub const BOTH: [Dialect; 2] = [Dialect::Classic, Dialect::Version2];

    pub fn name(self) -> &'static str {
        match self {
            Dialect::Classic => "classic",
            Dialect::Version2 => "version 2",
        }
    }
}

/// A session of a transactional id.
pub struct Writer {
    raw: Raw,
    id: String,
    dialect: Dialect,
    producer: (i64, i16),
    /// The next sequence number by partition of `topic`.
    sequences: BTreeMap<(String, i32), i32>,
    /// How often CONCURRENT_TRANSACTIONS was answered, and the request sent again.
    pub concurrent: u64,
}

impl Writer {
    /// InitProducerId.
    pub fn start(address: SocketAddr, id: &str, dialect: Dialect) -> Result<Writer> {
        let mut raw = Raw::open(address)?;
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(transactional_id(id)))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let until = Instant::now() + PATIENCE;
        let (mut code, mut producer) = (-1, (-1, -1));
        while code != 0 {
            let answer = raw.ask(4, &request)?;
            code = answer.error_code;
            producer = (answer.producer_id.0, answer.producer_epoch);
            let is_transient = TRANSIENT.contains(&code) && Instant::now() < until;
            ensure!(code == 0 || is_transient, "InitProducerId: error {code}");
            if code != 0 {
                sleep(20 * PAUSE);
            }
        }
        Ok(Writer {
            raw,
            id: id.to_owned(),
            dialect,
            producer,
            sequences: BTreeMap::new(),
            concurrent: 0,
        })
    }

    /// One record to each partition, in the transaction that this begins or goes on with.
    pub fn write(&mut self, topic: &str, partitions: Range<i32>) -> Result<()> {
        let version = match self.dialect {
            Dialect::Version2 => 12,
            Dialect::Classic => {
                self.enrol(topic, partitions.clone())?;
                11
            }
        };
        let mut left: Vec<i32> = partitions.collect();
        let until = Instant::now() + PATIENCE;
        while !left.is_empty() {
            let batches = left.iter().map(|p| (*p, self.batch(topic, *p))).collect();
            let body = produce(version, Some(&self.id), topic, batches)?;
            let mut frame = self.raw.exchange(&body)?;
            let answer = kafka_protocol::messages::ProduceResponse::decode(&mut frame, version)?;
            let answered: Vec<(i32, i16)> = (answer.responses.iter())
                .flat_map(|topic| &topic.partition_responses)
                .map(|p| (p.index, p.error_code))
                .collect();
            ensure!(answered.len() == left.len(), "Produce: {answered:?}");
            left.clear();
            for (partition, code) in answered {
                match code {
                    0 => {
                        let key = (topic.to_owned(), partition);
                        *self.sequences.entry(key).or_insert(0) += 1;
                    }
                    _ => {
                        self.again("Produce", code, until)?;
                        left.push(partition);
                    }
                }
            }
            if !left.is_empty() {
                sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Commits; how long EndTxn took until it was answered.
    pub fn commit(&mut self) -> Result<Duration> {
        let request = EndTxnRequest::default()
            .with_transactional_id(transactional_id(&self.id))
            .with_producer_id(ProducerId(self.producer.0))
            .with_producer_epoch(self.producer.1)
            .with_committed(true);
        let version = match self.dialect {
            Dialect::Classic => 3,
            Dialect::Version2 => 5,
        };
        let body = encode(version, &request)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let started = Instant::now();
            let mut frame = self.raw.exchange(&body)?;
            let took = started.elapsed();
            let answer = kafka_protocol::messages::EndTxnResponse::decode(&mut frame, version)?;
            if answer.error_code != 0 {
                self.again("EndTxn", answer.error_code, until)?;
                sleep(PAUSE);
                continue;
            }
            if self.dialect == Dialect::Version2 {
                let before = self.producer;
                self.producer = (answer.producer_id.0, answer.producer_epoch);
                ensure!(self.producer != before, "EndTxn v5 gave no next epoch");
                self.sequences.clear();
            }
            return Ok(took);
        }
    }

    fn enrol(&mut self, topic: &str, partitions: Range<i32>) -> Result<()> {
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(transactional_id(&self.id))
            .with_v3_and_below_producer_id(ProducerId(self.producer.0))
            .with_v3_and_below_producer_epoch(self.producer.1)
            .with_v3_and_below_topics(vec![
                AddPartitionsToTxnTopic::default()
                    .with_name(topic_name(topic))
                    .with_partitions(partitions.collect()),
            ]);
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.raw.ask(3, &request)?;
            let refused = (answer.results_by_topic_v3_and_below.iter())
                .flat_map(|topic| &topic.results_by_partition)
                .map(|p| p.partition_error_code)
                .find(|code| *code != 0);
            let Some(code) = refused else {
                return Ok(());
            };
            self.again("AddPartitionsToTxn", code, until)?;
            sleep(PAUSE);
        }
    }

    /// Counts a code that asks for another attempt; any other is an error.
    fn again(&mut self, what: &str, code: i16, until: Instant) -> Result<()> {
        let is_transient = TRANSIENT.contains(&code) && Instant::now() < until;
        ensure!(is_transient, "{what} of {}: error {code}", self.id);
        if code == CONCURRENT_TRANSACTIONS {
            self.concurrent += 1;
        }
        Ok(())
    }

    fn batch(&self, topic: &str, partition: i32) -> Vec<u8> {
        let key = (topic.to_owned(), partition);
        let sequence = self.sequences.get(&key).copied().unwrap_or(0);
        let mut builder = BatchBuilder::new(SCRIPT_TIME_MS);
        let (id, epoch) = self.producer;
        builder.producer(Id(id), ProducerEpoch(epoch), sequence);
        builder.transactional();
        builder.push(None, Some(b"value"));
        builder.build()
    }
}

/// The name of a topic on the wire.
pub fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

fn transactional_id(id: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(id.to_owned()))
}
