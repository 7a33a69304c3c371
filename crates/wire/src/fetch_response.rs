//! Fetch responses (key 1), versions 4 to 18, written around record slices that are not copied.
//!
//! Behaviour: the response becomes a list of chunks for a vectored write; the record slices are
//! handed through, everything between them is written into one buffer. Records are never null: an
//! empty partition has zero bytes, because clients treat null as an error.
//!
//! v5 log start offset, v7 sessions (KIP-227), v11 preferred read replica (KIP-392), v12 compact
//! and current leader (KIP-595), v13 topic ids (KIP-516), v16 node endpoints (KIP-951; not written).

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;
use tidemark_types::{ErrorCode, LeaderEpoch, NodeId, ProducerId, TopicId};

use crate::api::ApiKey;
use crate::error::WireError;
use crate::respond::put_response_header;
use crate::writer::{OutOfRange, put_count, put_null_count, put_string, put_unsigned_varint};

/// A Fetch response. Fields that a version lacks are left out.
#[derive(Clone, PartialEq, Debug)]
pub struct FetchResponse {
    pub throttle_time_ms: i32,
    /// Of the whole request; from v7 on.
    pub error_code: ErrorCode,
    /// 0 declines a session; from v7 on.
    pub session_id: i32,
    pub topics: Vec<FetchTopic>,
}

/// The partitions of one topic: by name below v13, by id from v13 on.
#[derive(Clone, PartialEq, Debug)]
pub struct FetchTopic {
    /// Written below v13.
    pub name: StrBytes,
    /// Written from v13 on.
    pub topic_id: TopicId,
    pub partitions: Vec<FetchPartition>,
}

/// What was read of one partition.
#[derive(Clone, PartialEq, Debug)]
pub struct FetchPartition {
    pub partition_index: i32,
    pub error_code: ErrorCode,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// From v5 on.
    pub log_start_offset: i64,
    /// The transactions a read_committed reader must leave out; `None` (null) for read_uncommitted.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// Where the log leaves the one that the client has read: the largest epoch at or below the
    /// client's last, and its end offset; from v12 on (KIP-595, KIP-320).
    pub diverging_epoch: Option<(LeaderEpoch, i64)>,
    /// Told to a client that asked the wrong leader or knows a stale epoch; from v12 on.
    pub current_leader: Option<(NodeId, LeaderEpoch)>,
    /// Whole batches, in offset order; the last may be cut off. Chunks join on the wire.
    pub records: Vec<Bytes>,
}

/// An aborted transaction that the records overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    /// The first offset of the transaction in the partition.
    pub first_offset: i64,
}

/// We have no replicas to prefer.
const NO_PREFERRED_READ_REPLICA: i32 = -1;

/// Record slices up to this size are copied between their neighbours: cheaper than one more entry
/// of a vectored write.
const COPY_MAX_BYTES: usize = 512;

impl FetchResponse {
    /// The whole frame as chunks: their concatenation is size, header and body.
    ///
    /// Fails on a version outside 4..=18 and when a length does not fit the wire, as 2 GiB of
    /// records would not.
    pub fn encode(self, api_version: i16, correlation_id: i32) -> Result<Vec<Bytes>, WireError> {
        let api_key = ApiKey::Fetch;
        let refused = WireError::Encode {
            api_key,
            api_version,
        };
        if !api_key.api().decodes.contains(api_version) {
            return Err(refused);
        }
        let mut writer = Writer {
            chunks: Chunks::with_capacity(self.overhead_bytes()),
            version: api_version,
            flexible: api_key.is_flexible(api_version),
        };
        let out = &mut writer.chunks.tail;
        // The size, known at the end.
        out.put_i32(0);
        put_response_header(out, api_key, api_version, correlation_id);
        writer.response(self).map_err(|OutOfRange| refused)?;
        writer.chunks.finish().map_err(|OutOfRange| refused)
    }

    /// Room for everything but the records, at any version. A wrong guess costs a reallocation.
    fn overhead_bytes(&self) -> usize {
        let topics = self.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| {
                let aborted = partition.aborted_transactions.as_ref().map_or(0, Vec::len);
                let copied = partition
                    .records
                    .iter()
                    .map(Bytes::len)
                    .filter(|&bytes| bytes <= COPY_MAX_BYTES);
                64 + aborted * 17 + copied.sum::<usize>()
            });
            32 + topic.name.len() + partitions.sum::<usize>()
        });
        32 + topics.sum::<usize>()
    }
}

struct Writer {
    chunks: Chunks,
    version: i16,
    flexible: bool,
}

impl Writer {
    fn response(&mut self, response: FetchResponse) -> Result<(), OutOfRange> {
        let out = &mut self.chunks.tail;
        out.put_i32(response.throttle_time_ms);
        if self.version >= 7 {
            out.put_i16(response.error_code.code());
            out.put_i32(response.session_id);
        }
        put_count(out, self.flexible, response.topics.len())?;
        for topic in response.topics {
            self.topic(topic)?;
        }
        self.no_tagged_fields();
        Ok(())
    }

    fn topic(&mut self, topic: FetchTopic) -> Result<(), OutOfRange> {
        let out = &mut self.chunks.tail;
        if self.version >= 13 {
            out.put_slice(&topic.topic_id.0);
        } else {
            put_string(out, self.flexible, &topic.name)?;
        }
        put_count(out, self.flexible, topic.partitions.len())?;
        for partition in topic.partitions {
            self.partition(partition)?;
        }
        self.no_tagged_fields();
        Ok(())
    }

    fn partition(&mut self, partition: FetchPartition) -> Result<(), OutOfRange> {
        let out = &mut self.chunks.tail;
        out.put_i32(partition.partition_index);
        out.put_i16(partition.error_code.code());
        out.put_i64(partition.high_watermark);
        out.put_i64(partition.last_stable_offset);
        if self.version >= 5 {
            out.put_i64(partition.log_start_offset);
        }
        self.aborted(partition.aborted_transactions.as_deref())?;
        if self.version >= 11 {
            self.chunks.tail.put_i32(NO_PREFERRED_READ_REPLICA);
        }
        self.records(partition.records)?;
        if !self.flexible {
            return Ok(());
        }
        let (diverging, leader) = (partition.diverging_epoch, partition.current_leader);
        let out = &mut self.chunks.tail;
        out.put_u8(u8::from(diverging.is_some()) + u8::from(leader.is_some()));
        if let Some((epoch, end_offset)) = diverging {
            // Tag 0: 4 + 8 bytes and no tagged fields inside.
            out.put_slice(&[0, 13]);
            out.put_i32(epoch.0);
            out.put_i64(end_offset);
            out.put_u8(0);
        }
        if let Some((leader_id, leader_epoch)) = leader {
            // Tag 1: 4 + 4 bytes and no tagged fields inside.
            out.put_slice(&[1, 9]);
            out.put_i32(leader_id.0);
            out.put_i32(leader_epoch.0);
            out.put_u8(0);
        }
        Ok(())
    }

    fn aborted(&mut self, aborted: Option<&[AbortedTransaction]>) -> Result<(), OutOfRange> {
        let Some(aborted) = aborted else {
            put_null_count(&mut self.chunks.tail, self.flexible);
            return Ok(());
        };
        put_count(&mut self.chunks.tail, self.flexible, aborted.len())?;
        for transaction in aborted {
            self.chunks.tail.put_i64(transaction.producer_id.0);
            self.chunks.tail.put_i64(transaction.first_offset);
            self.no_tagged_fields();
        }
        Ok(())
    }

    fn records(&mut self, records: Vec<Bytes>) -> Result<(), OutOfRange> {
        let bytes = records.iter().map(Bytes::len).sum();
        put_count(&mut self.chunks.tail, self.flexible, bytes)?;
        for slice in records {
            self.chunks.push(slice);
        }
        Ok(())
    }

    fn no_tagged_fields(&mut self) {
        if self.flexible {
            put_unsigned_varint(&mut self.chunks.tail, 0);
        }
    }
}

/// The frame so far: finished chunks, and a tail that is still written to.
struct Chunks {
    /// The first chunk stays writable, because it starts with the size of the frame.
    head: Option<BytesMut>,
    rest: Vec<Bytes>,
    tail: BytesMut,
}

impl Chunks {
    fn with_capacity(bytes: usize) -> Chunks {
        Chunks {
            head: None,
            rest: Vec::new(),
            tail: BytesMut::with_capacity(bytes),
        }
    }

    fn push(&mut self, slice: Bytes) {
        if slice.len() <= COPY_MAX_BYTES {
            self.tail.put_slice(&slice);
            return;
        }
        self.end_tail();
        self.rest.push(slice);
    }

    fn end_tail(&mut self) {
        let tail = self.tail.split();
        match self.head {
            None => self.head = Some(tail),
            Some(_) if tail.is_empty() => {}
            Some(_) => self.rest.push(tail.freeze()),
        }
    }

    fn finish(mut self) -> Result<Vec<Bytes>, OutOfRange> {
        self.end_tail();
        let mut head = self.head.expect("end_tail has set the head");
        let total = head.len() + self.rest.iter().map(Bytes::len).sum::<usize>();
        let size = i32::try_from(total - 4).map_err(|_| OutOfRange)?;
        head[..4].copy_from_slice(&size.to_be_bytes());
        self.rest.insert(0, head.freeze());
        Ok(self.rest)
    }
}
