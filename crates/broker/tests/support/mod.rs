//! What the tests on raw frames share: the broker they ask, and stories that several of them tell.
//!
//! A test that needs no crash and no clock asks a [`Target`]: a broker in this process, or, with
//! [`PEER_VARIABLE`] set to `host:port`, a broker that runs there. That is how the expected codes and
//! offsets were compared with Apache Kafka 4.1.1:
//!
//! ```text
//! scripts/peers/kafka start --port 19092 --data DIR --set group.initial.rebalance.delay.ms=0 \
//!     --set auto.create.topics.enable=false
//! TIDEMARK_TEST_PEER=127.0.0.1:19092 cargo test -p tidemark-broker --test cases --test versions
//! ```
//!
//! Where the two differ on purpose the test asks [`Target::is_kafka`] and says why.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kafka_protocol::messages::FindCoordinatorRequest;
use tidemark_testkit::requests::{error_code, text};
use tidemark_testkit::{Dialect, Isolation, PATIENCE, RawClient, TestBroker, TxnProducer};
use tidemark_types::ErrorCode;

pub mod changed;
pub mod member;

pub const PEER_VARIABLE: &str = "TIDEMARK_TEST_PEER";

static NAMES: AtomicU64 = AtomicU64::new(0);

/// The broker a test asks.
pub struct Target {
    broker: Option<TestBroker>,
    address: SocketAddr,
}

impl Target {
    pub async fn start() -> Target {
        let Some(peer) = std::env::var_os(PEER_VARIABLE) else {
            let broker = TestBroker::start().await;
            let address = broker.address();
            return Target {
                broker: Some(broker),
                address,
            };
        };
        let address = peer.to_str().and_then(|peer| peer.parse().ok());
        let target = Target {
            broker: None,
            address: address.expect("TIDEMARK_TEST_PEER is host:port"),
        };
        target.coordinators_are_there().await;
        target
    }

    /// Kafka makes its internal topics at the first question for a coordinator.
    async fn coordinators_are_there(&self) {
        let mut client = self.client().await;
        for key_type in [0, 1] {
            let request = FindCoordinatorRequest::default()
                .with_key(text("anybody"))
                .with_key_type(key_type);
            retry("a coordinator", async || {
                let found = client.send(2, &request).await;
                let known = found.error_code == ErrorCode::None.code();
                known.then_some(())
            })
            .await;
        }
        // A coordinator that has just been found may still load.
        retry("the transaction coordinator", async || {
            let granted = client.init_producer_id(Some("anybody")).await;
            granted.ok()
        })
        .await;
    }

    /// A broker that behaves as Apache Kafka does, also where Tidemark promises more.
    pub fn is_kafka(&self) -> bool {
        self.broker.is_none()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub async fn client(&self) -> RawClient {
        RawClient::connect(self.address).await
    }

    /// A name of a topic, group or transactional id that nobody has.
    pub fn name(&self, stem: &str) -> String {
        match self.is_kafka() {
            // It outlives the test.
            true => format!(
                "{stem}-{}-{}",
                std::process::id(),
                NAMES.fetch_add(1, Ordering::Relaxed)
            ),
            false => stem.to_owned(),
        }
    }

    /// A new topic.
    pub async fn topic(&self, client: &mut RawClient, stem: &str, partitions: i32) -> String {
        self.topic_with(client, stem, partitions, &[]).await
    }

    pub async fn topic_with(
        &self,
        client: &mut RawClient,
        stem: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> String {
        let topic = self.name(stem);
        let mut configs = configs.to_vec();
        if self.is_kafka() {
            // The batches of tests are old: Kafka would roll a segment before each marker, and
            // delete them in the end.
            configs.push(("segment.ms", "9223372036854775807"));
            configs.push(("retention.ms", "-1"));
        }
        client.create_topic_with(&topic, partitions, &configs).await;
        if self.is_kafka() {
            retry("the topic is led", async || {
                for partition in 0..partitions {
                    let isolation = Isolation::ReadUncommitted;
                    let end = client.list_offset(&topic, partition, -1, isolation).await;
                    if end.is_err() {
                        return None;
                    }
                }
                Some(())
            })
            .await;
        }
        topic
    }

    /// A new session of a transactional id, of a client of the classic dialect.
    pub async fn session(&self, client: &mut RawClient, id: &str) -> TxnProducer {
        self.session_in(client, id, Dialect::Classic).await
    }

    /// A new session of a transactional id. Kafka needs several tries over an open transaction.
    pub async fn session_in(
        &self,
        client: &mut RawClient,
        id: &str,
        dialect: Dialect,
    ) -> TxnProducer {
        if self.is_kafka() {
            retry("a new session", async || {
                let granted = client.init_producer_id(Some(id)).await;
                match granted {
                    Ok(producer) => Some(TxnProducer::at(id, producer, dialect)),
                    Err(ErrorCode::ConcurrentTransactions) => None,
                    Err(e) => panic!("InitProducerId of {id}: {e:?}"),
                }
            })
            .await
        } else {
            TxnProducer::init_in(client, id, dialect).await
        }
    }

    /// Begins a transaction. Kafka refuses while the markers of the last one are on their way.
    pub async fn begin(
        &self,
        client: &mut RawClient,
        producer: &TxnProducer,
        partitions: &[(&str, i32)],
    ) {
        if !self.is_kafka() {
            assert_eq!(producer.enrol(client, partitions).await, Ok(()));
            return;
        }
        retry("a transaction begins", async || {
            match producer.enrol(client, partitions).await {
                Ok(()) => Some(()),
                Err(ErrorCode::ConcurrentTransactions) => None,
                Err(e) => panic!("AddPartitionsToTxn of {}: {e:?}", producer.id),
            }
        })
        .await;
    }

    /// Both ends of a partition: (last stable offset, high watermark). After the end of a
    /// transaction Tidemark has them at once; Kafka's markers come later.
    pub async fn assert_ends(
        &self,
        client: &mut RawClient,
        topic: &str,
        partition: i32,
        want: (i64, i64),
    ) {
        let mut ends = async || {
            let mut end = async |isolation| {
                client
                    .list_offset(topic, partition, -1, isolation)
                    .await
                    .expect("the partition exists")
            };
            (
                end(Isolation::ReadCommitted).await,
                end(Isolation::ReadUncommitted).await,
            )
        };
        if self.is_kafka() {
            retry("the partition's ends", async || {
                (ends().await == want).then_some(())
            })
            .await;
        }
        assert_eq!(ends().await, want, "{topic}-{partition}: (LSO, HW)");
    }
}

impl Target {
    /// The stable offset of (group, topic, partition), after the end of a transaction.
    pub async fn assert_committed(
        &self,
        client: &mut RawClient,
        (group, topic, partition): (&str, &str, i32),
        want: i64,
    ) {
        if self.is_kafka() {
            retry("a stable offset", async || {
                let stable = client.committed_offset(group, topic, partition, true).await;
                (stable != Err(ErrorCode::UnstableOffsetCommit)).then_some(())
            })
            .await;
        }
        let stable = client.committed_offset(group, topic, partition, true).await;
        assert_eq!(stable, Ok(want), "{group}: {topic}-{partition}");
    }
}

/// Tells a story that holds for transactions of either dialect, once in each.
pub async fn in_both_dialects(story: impl AsyncFn(Dialect)) {
    for dialect in Dialect::BOTH {
        println!("{dialect:?}");
        story(dialect).await;
    }
}

/// Asks again until there is an answer: for brokers that are not this process's own.
pub async fn retry<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < until, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Kafka's name of a code, for asserts that show what came.
pub fn code(code: i16) -> ErrorCode {
    error_code(code)
}
