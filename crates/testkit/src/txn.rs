//! A transactional producer: of the classic dialect, as librdkafka drives it, or of version 2 (KIP-890).

use std::collections::BTreeMap;

use tidemark_types::ErrorCode;

use crate::batch::Batch;
use crate::calls::{produced, txn_offsets_committed, version};
use crate::client::RawClient;
use crate::requests::{self, error_code};

/// Which of Kafka's two ways to speak transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// AddPartitionsToTxn and AddOffsetsToTxn enrol; the epoch stays.
    Classic,
    /// Produce v12 and TxnOffsetCommit v5 enrol; EndTxn v5 gives the next epoch.
    Version2,
}

impl Dialect {
    /// For stories that hold in either.
    pub const BOTH: [Dialect; 2] = [Dialect::Classic, Dialect::Version2];

    /// The version of Produce that batches of a transaction are sent with.
    pub fn produce_version(self) -> i16 {
        match self {
            Dialect::Classic => version::PRODUCE,
            Dialect::Version2 => 12,
        }
    }

    pub fn txn_offset_commit_version(self) -> i16 {
        match self {
            Dialect::Classic => version::TXN_OFFSET_COMMIT,
            Dialect::Version2 => 5,
        }
    }

    pub fn end_txn_version(self) -> i16 {
        match self {
            Dialect::Classic => version::END_TXN,
            Dialect::Version2 => 5,
        }
    }
}

/// A session of a transactional id, with its sequence numbers.
#[derive(Clone, Debug)]
pub struct TxnProducer {
    pub id: String,
    pub producer_id: i64,
    pub epoch: i16,
    /// The next sequence number by partition.
    pub sequences: BTreeMap<(String, i32), i32>,
    pub dialect: Dialect,
}

impl TxnProducer {
    /// InitProducerId, for a client of the classic dialect.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn init(client: &mut RawClient, id: &str) -> TxnProducer {
        TxnProducer::init_in(client, id, Dialect::Classic).await
    }

    /// InitProducerId.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn init_in(client: &mut RawClient, id: &str, dialect: Dialect) -> TxnProducer {
        let granted = client.init_producer_id(Some(id)).await;
        TxnProducer::at(id, granted.expect("a new session is granted"), dialect)
    }

    /// A session that was opened before: (producer id, epoch).
    pub fn at(id: &str, producer: (i64, i16), dialect: Dialect) -> TxnProducer {
        TxnProducer {
            id: id.to_owned(),
            producer_id: producer.0,
            epoch: producer.1,
            sequences: BTreeMap::new(),
            dialect,
        }
    }

    pub fn producer(&self) -> (i64, i16) {
        (self.producer_id, self.epoch)
    }

    /// The next batch for a partition; the sequence moves on.
    pub fn batch<V: AsRef<[u8]>>(&mut self, topic: &str, partition: i32, values: &[V]) -> Batch {
        let next = self
            .sequences
            .entry((topic.to_owned(), partition))
            .or_insert(0);
        let sequence = *next;
        *next += i32::try_from(values.len()).expect("a test's batch is small");
        Batch::of(values)
            .producer(self.producer_id, self.epoch, sequence)
            .transactional()
    }

    /// AddPartitionsToTxn; in version 2 nothing, for the first batch enrols.
    pub async fn enrol(
        &self,
        client: &mut RawClient,
        partitions: &[(&str, i32)],
    ) -> Result<(), ErrorCode> {
        if self.dialect == Dialect::Version2 {
            return Ok(());
        }
        client
            .add_partitions(&self.id, self.producer(), partitions)
            .await
    }

    /// One batch into an enrolled partition.
    pub async fn send<V: AsRef<[u8]>>(
        &mut self,
        client: &mut RawClient,
        topic: &str,
        partition: i32,
        values: &[V],
    ) -> Result<i64, ErrorCode> {
        let batch = self.batch(topic, partition, values).build();
        let request = requests::produce(Some(&self.id), [(topic, partition, batch)]);
        let version = self.dialect.produce_version();
        produced(&client.send(version, &request).await)[0]
    }

    /// AddOffsetsToTxn (not in version 2) and TxnOffsetCommit.
    pub async fn send_offsets(
        &self,
        client: &mut RawClient,
        group: &str,
        offsets: &[(&str, i32, i64)],
    ) -> Result<(), ErrorCode> {
        if self.dialect == Dialect::Classic {
            client.add_offsets(&self.id, self.producer(), group).await?;
        }
        let request = requests::txn_offset_commit(&self.id, self.producer(), group, offsets);
        let version = self.dialect.txn_offset_commit_version();
        txn_offsets_committed(&client.send(version, &request).await)
    }

    /// EndTxn. The session stays where it is: in version 2 for those that do not go on.
    pub async fn end(&self, client: &mut RawClient, commit: bool) -> Result<(), ErrorCode> {
        self.clone().end_and_go_on(client, commit).await
    }

    /// EndTxn; in version 2 the session goes on at the epoch of the answer, where every sequence is 0 again.
    pub async fn end_and_go_on(
        &mut self,
        client: &mut RawClient,
        commit: bool,
    ) -> Result<(), ErrorCode> {
        let request = requests::end_txn(&self.id, self.producer(), commit);
        let version = self.dialect.end_txn_version();
        let response = client.send(version, &request).await;
        match error_code(response.error_code) {
            ErrorCode::None => {}
            error => return Err(error),
        }
        if self.dialect == Dialect::Version2 {
            let producer = (response.producer_id.0, response.producer_epoch);
            *self = TxnProducer::at(&self.id, producer, self.dialect);
        }
        Ok(())
    }
}
