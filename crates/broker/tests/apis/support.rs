//! A producer that speaks transaction version 2 (KIP-890): Produce v12 enrols, EndTxn v5 bumps.

use std::collections::BTreeMap;

use tidemark_testkit::requests::{self, error_code};
use tidemark_testkit::{Batch, RawClient, produced, txn_offsets_committed};
use tidemark_types::ErrorCode;

/// A session of a transactional id, with its sequence numbers, which begin at 0 in every epoch.
#[derive(Clone, Debug)]
pub struct ProducerV2 {
    pub id: String,
    pub producer_id: i64,
    pub epoch: i16,
    sequences: BTreeMap<(String, i32), i32>,
}

impl ProducerV2 {
    /// InitProducerId v5.
    pub async fn init(client: &mut RawClient, id: &str, timeout_ms: i32) -> ProducerV2 {
        let request = requests::init_producer_id(Some(id), timeout_ms);
        let response = client.send(5, &request).await;
        assert_eq!(response.error_code, 0);
        ProducerV2::at(id, (response.producer_id.0, response.producer_epoch))
    }

    /// A session that somebody else opened.
    pub fn at(id: &str, producer: (i64, i16)) -> ProducerV2 {
        ProducerV2 {
            id: id.to_owned(),
            producer_id: producer.0,
            epoch: producer.1,
            sequences: BTreeMap::new(),
        }
    }

    pub fn producer(&self) -> (i64, i16) {
        (self.producer_id, self.epoch)
    }

    /// Produce v12, without AddPartitionsToTxn before it. The sequence moves on.
    pub async fn send(
        &mut self,
        client: &mut RawClient,
        topic: &str,
        partition: i32,
        values: &[&str],
    ) -> Result<i64, ErrorCode> {
        let next = (self.sequences)
            .entry((topic.to_owned(), partition))
            .or_insert(0);
        let sequence = *next;
        *next += i32::try_from(values.len()).unwrap();
        let batch = Batch::of(values)
            .producer(self.producer_id, self.epoch, sequence)
            .transactional()
            .build();
        let request = requests::produce(Some(&self.id), [(topic, partition, batch)]);
        produced(&client.send(12, &request).await)[0]
    }

    /// TxnOffsetCommit v5, without AddOffsetsToTxn before it.
    pub async fn send_offsets(
        &self,
        client: &mut RawClient,
        group: &str,
        offsets: &[(&str, i32, i64)],
    ) -> Result<(), ErrorCode> {
        let request = requests::txn_offset_commit(&self.id, self.producer(), group, offsets)
            .with_generation_id(-1);
        txn_offsets_committed(&client.send(5, &request).await)
    }

    /// EndTxn v5; the session goes on at the epoch of the answer, where every sequence is 0 again.
    pub async fn end(&mut self, client: &mut RawClient, commit: bool) -> Result<(), ErrorCode> {
        let (producer_id, epoch) = end_txn(client, &self.id, self.producer(), commit).await?;
        *self = ProducerV2::at(&self.id, (producer_id, epoch));
        Ok(())
    }
}

/// EndTxn v5 under any epoch: the producer id and epoch to go on with.
pub async fn end_txn(
    client: &mut RawClient,
    id: &str,
    producer: (i64, i16),
    commit: bool,
) -> Result<(i64, i16), ErrorCode> {
    let response = client
        .send(5, &requests::end_txn(id, producer, commit))
        .await;
    match error_code(response.error_code) {
        ErrorCode::None => Ok((response.producer_id.0, response.producer_epoch)),
        error => {
            assert_eq!((response.producer_id.0, response.producer_epoch), (-1, -1));
            Err(error)
        }
    }
}
