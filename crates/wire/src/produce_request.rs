//! Produce requests (key 0), versions 3 to 13, decoded without copying records.
//!
//! Behaviour: the fields the broker needs and nothing else; `records` are slices of the frame, and
//! a partition costs no map of unknown tagged fields. Unlike the codec's decoder it is safe on
//! bytes from the wire without a walk before it.
//!
//! v9 compact (KIP-482), v13 topic ids in place of names (KIP-516).

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use tidemark_types::TopicId;

use crate::api::ApiKey;
use crate::bounds::MAX_ELEMENTS;
use crate::error::{BodyFault, WireError};
use crate::reader::Reader;

/// A Produce request.
#[derive(Clone, PartialEq, Debug)]
pub struct ProduceRequest {
    /// Null for a producer without transactions.
    pub transactional_id: Option<StrBytes>,
    /// -1, 0 or 1; any other value reaches the handler as it came.
    pub acks: i16,
    pub timeout_ms: i32,
    pub topics: Vec<ProduceTopic>,
}

/// The partitions of one topic, which has a name below v13 and an id from v13 on.
#[derive(Clone, PartialEq, Debug)]
pub struct ProduceTopic {
    /// Empty from v13 on.
    pub name: StrBytes,
    /// [`TopicId::ZERO`] below v13.
    pub topic_id: TopicId,
    pub partitions: Vec<ProducePartition>,
}

/// The records for one partition.
#[derive(Clone, PartialEq, Debug)]
pub struct ProducePartition {
    pub index: i32,
    /// A slice of the frame; `None` for null. Not looked at.
    pub records: Option<Bytes>,
}

/// The most elements reserved at once. A count that fits the frame may still be a lie, so a vector
/// grows with the elements found.
const RESERVE_MAX: usize = 64;

/// Decodes the body of a Produce request, as [`crate::open_frame`] gives it.
///
/// Fails as [`crate::bounds::check_request`] does. Trailing bytes are accepted.
pub fn decode_produce_request(api_version: i16, body: &Bytes) -> Result<ProduceRequest, WireError> {
    let api_key = ApiKey::Produce;
    if !api_key.api().decodes.contains(api_version) {
        return Err(WireError::UnsupportedVersion {
            api_key,
            api_version,
        });
    }
    let mut decoder = Decoder {
        body,
        reader: Reader::new(body),
        flexible: api_key.is_flexible(api_version),
        topic_ids: api_version >= 13,
        elements_left: MAX_ELEMENTS,
        field: "transactional_id",
    };
    decoder.request().map_err(|fault| WireError::Body {
        api_key,
        api_version,
        field: decoder.field,
        fault,
    })
}

struct Decoder<'a> {
    body: &'a Bytes,
    reader: Reader<'a>,
    flexible: bool,
    topic_ids: bool,
    elements_left: usize,
    /// The field being read, for the error.
    field: &'static str,
}

impl Decoder<'_> {
    fn request(&mut self) -> Result<ProduceRequest, BodyFault> {
        let transactional_id = self.string("transactional_id")?;
        self.field = "acks";
        let acks = self.reader.i16()?;
        self.field = "timeout_ms";
        let timeout_ms = self.reader.i32()?;
        // Name or id, count, tagged fields.
        let topic_bytes = match (self.topic_ids, self.flexible) {
            (true, _) => 16 + 1 + 1,
            (false, true) => 1 + 1 + 1,
            (false, false) => 2 + 4,
        };
        let count = self.count("topic_data", topic_bytes)?;
        let mut topics = Vec::with_capacity(count.min(RESERVE_MAX));
        for _ in 0..count {
            topics.push(self.topic()?);
        }
        self.tagged_fields()?;
        Ok(ProduceRequest {
            transactional_id,
            acks,
            timeout_ms,
            topics,
        })
    }

    fn topic(&mut self) -> Result<ProduceTopic, BodyFault> {
        let (name, topic_id) = if self.topic_ids {
            self.field = "topic_id";
            (StrBytes::new(), TopicId(self.reader.uuid()?))
        } else {
            let name = self.string("name")?.ok_or(BodyFault::UnexpectedNull)?;
            (name, TopicId::ZERO)
        };
        // Index, length, tagged fields.
        let partition_bytes = if self.flexible { 4 + 1 + 1 } else { 4 + 4 };
        let count = self.count("partition_data", partition_bytes)?;
        let mut partitions = Vec::with_capacity(count.min(RESERVE_MAX));
        for _ in 0..count {
            partitions.push(self.partition()?);
        }
        self.tagged_fields()?;
        Ok(ProduceTopic {
            name,
            topic_id,
            partitions,
        })
    }

    fn partition(&mut self) -> Result<ProducePartition, BodyFault> {
        self.field = "index";
        let index = self.reader.i32()?;
        self.field = "records";
        let records = match self.reader.bytes_length(self.flexible)? {
            Some(length) => Some(self.slice(length)?),
            None => None,
        };
        self.tagged_fields()?;
        Ok(ProducePartition { index, records })
    }

    fn count(&mut self, field: &'static str, min_bytes: usize) -> Result<usize, BodyFault> {
        self.field = field;
        let count = self
            .reader
            .array_count(self.flexible, min_bytes)?
            .ok_or(BodyFault::UnexpectedNull)?;
        self.elements_left = self
            .elements_left
            .checked_sub(count)
            .ok_or(BodyFault::TooManyElements)?;
        Ok(count)
    }

    fn string(&mut self, field: &'static str) -> Result<Option<StrBytes>, BodyFault> {
        self.field = field;
        match self.reader.string_length(self.flexible)? {
            Some(length) => {
                let text = StrBytes::from_utf8(self.slice(length)?);
                text.map(Some).map_err(|_| BodyFault::NotUtf8)
            }
            None => Ok(None),
        }
    }

    fn slice(&mut self, length: usize) -> Result<Bytes, BodyFault> {
        let start = self.reader.position();
        self.reader.take(length)?;
        Ok(self.body.slice(start..start + length))
    }

    fn tagged_fields(&mut self) -> Result<(), BodyFault> {
        if !self.flexible {
            return Ok(());
        }
        self.field = "tagged fields";
        self.reader.skip_tagged_fields()
    }
}
