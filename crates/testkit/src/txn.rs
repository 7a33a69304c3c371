//! A transactional producer of the classic dialect, as librdkafka drives it.

use std::collections::BTreeMap;

use tidemark_types::ErrorCode;

use crate::batch::Batch;
use crate::client::RawClient;

/// A session of a transactional id, with its sequence numbers.
#[derive(Clone, Debug)]
pub struct TxnProducer {
    pub id: String,
    pub producer_id: i64,
    pub epoch: i16,
    /// The next sequence number by partition.
    pub sequences: BTreeMap<(String, i32), i32>,
}

impl TxnProducer {
    /// InitProducerId.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn init(client: &mut RawClient, id: &str) -> TxnProducer {
        let (producer_id, epoch) = client
            .init_producer_id(Some(id))
            .await
            .expect("a new session is granted");
        TxnProducer {
            id: id.to_owned(),
            producer_id,
            epoch,
            sequences: BTreeMap::new(),
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

    /// AddPartitionsToTxn.
    pub async fn enrol(
        &self,
        client: &mut RawClient,
        partitions: &[(&str, i32)],
    ) -> Result<(), ErrorCode> {
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
        client.produce_in(&self.id, topic, partition, batch).await
    }

    /// AddOffsetsToTxn and TxnOffsetCommit.
    pub async fn send_offsets(
        &self,
        client: &mut RawClient,
        group: &str,
        offsets: &[(&str, i32, i64)],
    ) -> Result<(), ErrorCode> {
        client.add_offsets(&self.id, self.producer(), group).await?;
        client
            .txn_offset_commit(&self.id, self.producer(), group, offsets)
            .await
    }

    /// EndTxn.
    pub async fn end(&self, client: &mut RawClient, commit: bool) -> Result<(), ErrorCode> {
        client.end_txn(&self.id, self.producer(), commit).await
    }
}
