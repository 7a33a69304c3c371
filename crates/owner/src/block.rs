//! Checkpoint blocks: one partition's state as bytes, with everything that is keyed by it.
//!
//! Layout (big-endian): `format: u8 = 1`, log start, log end, the epochs, the producer table
//! (length-prefixed), then the partition's keyed state as records of its own topic: metadata,
//! transactional ids, or groups and offsets. A block is stamped (outside) with the journal index up
//! to which it holds everything; replay skips effects at or below it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tidemark_group_coordinator::GroupRecord;
use tidemark_metadata::MetadataRecord;
use tidemark_producer_state::PartitionProducers;
use tidemark_types::{JournalIndex, LeaderEpoch, ProducerId, TopicId, TopicPartitionId};

use crate::Owner;
use crate::partition::Partition;

const FORMAT: u8 = 1;

/// A block that cannot be read: damage that the file's checksums did not show, or a newer format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockError(pub String);

impl std::fmt::Display for BlockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BlockError {}

impl Owner {
    /// The block of a partition and its stamp. `None` if the partition is gone.
    pub fn encode_block(&self, id: TopicPartitionId) -> Option<(JournalIndex, Bytes)> {
        let partition = self.partitions.get(&id)?;
        let mut out = BytesMut::new();
        out.put_u8(FORMAT);
        out.put_i64(partition.log_start_offset);
        out.put_i64(partition.log_end_offset);
        put_len(&mut out, partition.epochs.len());
        for (epoch, start_offset) in &partition.epochs {
            out.put_i32(epoch.0);
            out.put_i64(*start_offset);
        }
        put_bytes(&mut out, &partition.producers.encode());
        match id.topic {
            TopicId::CLUSTER_METADATA => {
                let records = self.metadata.snapshot_records();
                put_len(&mut out, records.len());
                for record in records {
                    put_bytes(&mut out, &record.key());
                    put_bytes(&mut out, &record.value());
                }
            }
            TopicId::TRANSACTION_STATE => {
                let records: Vec<_> = self
                    .coordinator
                    .records_of_partition(id.partition)
                    .collect();
                put_len(&mut out, records.len());
                for (key, value) in records {
                    put_bytes(&mut out, &key);
                    put_bytes(&mut out, &value);
                }
            }
            TopicId::CONSUMER_OFFSETS => {
                let records = self.groups.records_of_partition(id.partition);
                put_len(&mut out, records.len());
                for (record, offset, producer) in records {
                    out.put_i64(offset);
                    out.put_i64(producer.unwrap_or(ProducerId::NONE).0);
                    put_bytes(&mut out, &record.encode_key());
                    put_bytes(&mut out, &record.encode_value().unwrap_or_default());
                }
            }
            _ => {}
        }
        // Everything up to the owner's last record is in this state, not only what touched it.
        Some((self.last_index, out.freeze()))
    }

    /// Puts a block's state in place, before replay. Blocks may come in any order.
    pub fn restore_block(
        &mut self,
        id: TopicPartitionId,
        stamp: JournalIndex,
        block: &[u8],
    ) -> Result<(), BlockError> {
        let mut input = Input {
            bytes: block,
            what: id,
        };
        let format = input.u8()?;
        if format != FORMAT {
            return Err(BlockError(format!(
                "checkpoint block of {id} has format {format}, this release reads {FORMAT}; \
                 start the release that wrote it"
            )));
        }
        let log_start_offset = input.i64()?;
        let log_end_offset = input.i64()?;
        let mut epochs = Vec::new();
        for _ in 0..input.count(12)? {
            epochs.push((LeaderEpoch(input.i32()?), input.i64()?));
        }
        if epochs.is_empty() {
            return Err(input.damaged("it has no leader epoch"));
        }
        let producers = PartitionProducers::decode(input.bytes()?)
            .map_err(|e| BlockError(format!("checkpoint block of {id}: {e}")))?;
        match id.topic {
            TopicId::CLUSTER_METADATA => {
                for _ in 0..input.count(8)? {
                    let (key, value) = (input.bytes()?, input.bytes()?);
                    let record = MetadataRecord::decode(key, value)
                        .map_err(|e| BlockError(format!("checkpoint block of {id}: {e}")))?;
                    self.metadata.apply(&record);
                }
            }
            TopicId::TRANSACTION_STATE => {
                for _ in 0..input.count(8)? {
                    let (key, value) = (input.bytes()?, input.bytes()?);
                    self.coordinator
                        .apply_record(key, Some(value))
                        .map_err(|e| BlockError(format!("checkpoint block of {id}: {e}")))?;
                }
            }
            TopicId::CONSUMER_OFFSETS => {
                for _ in 0..input.count(24)? {
                    let offset = input.i64()?;
                    let producer = Some(ProducerId(input.i64()?)).filter(|p| p.is_some());
                    let (key, value) = (input.bytes()?, input.bytes()?);
                    let record = GroupRecord::decode(key, Some(value))
                        .map_err(|e| BlockError(format!("checkpoint block of {id}: {e}")))?;
                    self.groups.apply(id.partition, &record, offset, producer);
                }
            }
            _ => {}
        }
        if !input.bytes.is_empty() {
            return Err(input.damaged("it has bytes left over"));
        }
        let partition = Partition {
            id,
            log_start_offset,
            log_end_offset,
            epochs,
            producers,
        };
        partition.check().map_err(|e| input.damaged(&e))?;
        self.partitions.insert(id, partition);
        self.restored.insert(id, stamp);
        Ok(())
    }
}

fn put_len(out: &mut BytesMut, len: usize) {
    out.put_u32(u32::try_from(len).expect("a partition's state is far below 4 GiB"));
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.put_slice(bytes);
}

struct Input<'a> {
    bytes: &'a [u8],
    what: TopicPartitionId,
}

impl<'a> Input<'a> {
    fn damaged(&self, what: &str) -> BlockError {
        BlockError(format!(
            "checkpoint block of {} is damaged: {what}",
            self.what
        ))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], BlockError> {
        if len > self.bytes.len() {
            return Err(self.damaged("it ends too early"));
        }
        let (head, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        Ok(head)
    }

    fn u8(&mut self) -> Result<u8, BlockError> {
        Ok(self.take(1)?.get_u8())
    }

    fn i32(&mut self) -> Result<i32, BlockError> {
        Ok(self.take(4)?.get_i32())
    }

    fn i64(&mut self) -> Result<i64, BlockError> {
        Ok(self.take(8)?.get_i64())
    }

    /// A count of things of at least `bytes_each` bytes.
    fn count(&mut self, bytes_each: usize) -> Result<usize, BlockError> {
        let count = self.take(4)?.get_u32() as usize;
        if count > self.bytes.len() / bytes_each {
            return Err(self.damaged("it claims more than it holds"));
        }
        Ok(count)
    }

    fn bytes(&mut self) -> Result<&'a [u8], BlockError> {
        let len = self.take(4)?.get_u32() as usize;
        self.take(len)
    }
}
