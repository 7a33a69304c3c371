//! Record batches as a client builds them.

use bytes::Bytes;
use tidemark_record_batch::BatchBuilder;
use tidemark_types::{ProducerEpoch, ProducerId};

use crate::clock::WALL_START_MS;

/// A batch of the given values.
#[derive(Clone, Debug)]
pub struct Batch {
    values: Vec<Vec<u8>>,
    timestamp_ms: i64,
    producer: Option<(i64, i16, i32)>,
    transactional: bool,
}

impl Batch {
    /// A batch without a producer, stamped with the manual clock's start.
    pub fn of<V: AsRef<[u8]>>(values: &[V]) -> Batch {
        Batch {
            values: values.iter().map(|v| v.as_ref().to_vec()).collect(),
            timestamp_ms: WALL_START_MS,
            producer: None,
            transactional: false,
        }
    }

    /// Stamped with another time.
    pub fn at(mut self, timestamp_ms: i64) -> Batch {
        self.timestamp_ms = timestamp_ms;
        self
    }

    /// From an idempotent producer.
    pub fn producer(mut self, producer_id: i64, epoch: i16, base_sequence: i32) -> Batch {
        self.producer = Some((producer_id, epoch, base_sequence));
        self
    }

    /// Part of its producer's transaction.
    pub fn transactional(mut self) -> Batch {
        self.transactional = true;
        self
    }

    /// The bytes, at base offset 0.
    pub fn build(&self) -> Bytes {
        let mut builder = BatchBuilder::new(self.timestamp_ms);
        if let Some((producer_id, epoch, base_sequence)) = self.producer {
            builder.producer(ProducerId(producer_id), ProducerEpoch(epoch), base_sequence);
        }
        if self.transactional {
            builder.transactional();
        }
        for value in &self.values {
            builder.push(None, Some(value));
        }
        builder.build().into()
    }
}
