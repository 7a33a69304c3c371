//! The records of `__transaction_state`: Kafka's TransactionLogKey v0 and TransactionLogValue v1
//! (v0 is read too), so that Kafka's own tools read them.
//!
//! What Kafka has no field for goes into tagged fields, which its readers skip. Numbers are fixed
//! for ever and far above any that Kafka is likely to use:
//!
//! | tag | field | bytes |
//! |-|-|-|
//! | 10000 | last_epoch | i16 |
//! | 10001 | txn_number | u64 |
//! | 10002 | who: principal | UTF-8 |
//! | 10003 | who: client id | UTF-8 |
//! | 10004 | who: host | UTF-8 |
//! | 10005 | ended_by | i8 |
//!
//! A field at its default is left out. A value of None is a tombstone: the id is forgotten.
//! Decoding trusts nothing: it never panics, and no count or length reserves anything.

use std::sync::Arc;

use thiserror::Error;
use tidemark_types::{ProducerEpoch, ProducerId};

use crate::{Dialect, EndedBy, Partitions, TxnMeta, TxnState, Who};

const KEY_VERSION: i16 = 0;
const VALUE_VERSION: i16 = 1;

const TAG_PREVIOUS_PRODUCER_ID: u32 = 0;
const TAG_NEXT_PRODUCER_ID: u32 = 1;
const TAG_CLIENT_TRANSACTION_VERSION: u32 = 2;
const TAG_LAST_EPOCH: u32 = 10_000;
const TAG_TXN_NUMBER: u32 = 10_001;
const TAG_PRINCIPAL: u32 = 10_002;
const TAG_CLIENT_ID: u32 = 10_003;
const TAG_HOST: u32 = 10_004;
const TAG_ENDED_BY: u32 = 10_005;

/// Why bytes are not a record of `__transaction_state`.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RecordError {
    #[error("the record ends inside {0}")]
    Truncated(&'static str),
    #[error("version {version} of {what} is not known")]
    UnknownVersion { what: &'static str, version: i16 },
    #[error("{0} is not a value this format has")]
    Invalid(&'static str),
    #[error("{0} bytes are left over")]
    LeftOver(usize),
}

/// The key of a transactional id. It has at most 32,767 bytes (InitProducerId refuses longer ones).
pub fn encode_key(transactional_id: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + transactional_id.len());
    out.extend_from_slice(&KEY_VERSION.to_be_bytes());
    let len = i16::try_from(transactional_id.len()).expect("checked by decide_init_producer_id");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(transactional_id.as_bytes());
    out
}

/// The transactional id of a key.
pub fn decode_key(key: &[u8]) -> Result<Arc<str>, RecordError> {
    let mut input = Reader { rest: key };
    let version = input.i16("key version")?;
    if version != KEY_VERSION {
        let what = "TransactionLogKey";
        return Err(RecordError::UnknownVersion { what, version });
    }
    let id = input.string("transactional id")?;
    input.end()?;
    Ok(id)
}

/// The value of a state. A tombstone is a record without a value.
pub fn encode_value(meta: &TxnMeta) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    out.extend_from_slice(&VALUE_VERSION.to_be_bytes());
    out.extend_from_slice(&meta.producer_id.0.to_be_bytes());
    out.extend_from_slice(&meta.epoch.0.to_be_bytes());
    out.extend_from_slice(&meta.timeout_ms.to_be_bytes());
    out.push(meta.state.id() as u8);
    put_partitions(&mut out, meta);
    out.extend_from_slice(&meta.last_update_wall_ms.to_be_bytes());
    out.extend_from_slice(&meta.start_wall_ms.to_be_bytes());
    put_tagged(&mut out, meta);
    out
}

fn put_partitions(out: &mut Vec<u8>, meta: &TxnMeta) {
    if meta.state == TxnState::Empty {
        // Kafka writes null here, and an empty array in the completed states.
        put_varint(out, 0);
        return;
    }
    let mut topics: Vec<(&str, Vec<i32>)> = Vec::new();
    for (topic, partition) in &meta.partitions {
        match topics.last_mut() {
            Some((last, partitions)) if *last == &**topic => partitions.push(*partition),
            _ => topics.push((topic, vec![*partition])),
        }
    }
    put_len(out, topics.len());
    for (topic, partitions) in topics {
        put_len(out, topic.len());
        out.extend_from_slice(topic.as_bytes());
        put_len(out, partitions.len());
        for partition in partitions {
            out.extend_from_slice(&partition.to_be_bytes());
        }
        put_varint(out, 0);
    }
}

fn put_tagged(out: &mut Vec<u8>, meta: &TxnMeta) {
    let version = meta.dialect.client_transaction_version();
    let mut fields: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut field = |tag: u32, present: bool, bytes: &[u8]| {
        if present {
            fields.push((tag, bytes.to_vec()));
        }
    };
    let previous = meta.previous_producer_id;
    let next = meta.next_producer_id;
    field(
        TAG_PREVIOUS_PRODUCER_ID,
        previous != ProducerId::NONE,
        &previous.0.to_be_bytes(),
    );
    field(
        TAG_NEXT_PRODUCER_ID,
        next != ProducerId::NONE,
        &next.0.to_be_bytes(),
    );
    field(
        TAG_CLIENT_TRANSACTION_VERSION,
        version != 0,
        &version.to_be_bytes(),
    );
    field(
        TAG_LAST_EPOCH,
        meta.last_epoch != ProducerEpoch::NONE,
        &meta.last_epoch.0.to_be_bytes(),
    );
    field(
        TAG_TXN_NUMBER,
        meta.txn_number != 0,
        &meta.txn_number.to_be_bytes(),
    );
    for (tag, text) in [
        (TAG_PRINCIPAL, &meta.who.principal),
        (TAG_CLIENT_ID, &meta.who.client_id),
        (TAG_HOST, &meta.who.host),
    ] {
        field(tag, !text.is_empty(), text.as_bytes());
    }
    field(
        TAG_ENDED_BY,
        meta.ended_by != EndedBy::Unknown,
        &[meta.ended_by as i8 as u8],
    );
    put_varint(out, fields.len() as u32);
    for (tag, bytes) in fields {
        put_varint(out, tag);
        put_varint(out, u32::try_from(bytes.len()).expect("came in one frame"));
        out.extend_from_slice(&bytes);
    }
}

/// A compact length: one more than the number, 0 being null.
fn put_len(out: &mut Vec<u8>, len: usize) {
    put_varint(out, u32::try_from(len + 1).expect("came in one frame"));
}

fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The state that a value holds for a transactional id. It says only that the bytes are well
/// formed; whether the state makes sense is [`crate::check`]'s question.
pub fn decode_value(transactional_id: &str, value: &[u8]) -> Result<TxnMeta, RecordError> {
    let mut input = Reader { rest: value };
    let version = input.i16("value version")?;
    if !(0..=VALUE_VERSION).contains(&version) {
        let what = "TransactionLogValue";
        return Err(RecordError::UnknownVersion { what, version });
    }
    let flexible = version >= 1;
    let mut meta = TxnMeta {
        transactional_id: transactional_id.into(),
        producer_id: ProducerId(input.i64("producer id")?),
        previous_producer_id: ProducerId::NONE,
        next_producer_id: ProducerId::NONE,
        epoch: ProducerEpoch(input.i16("producer epoch")?),
        last_epoch: ProducerEpoch::NONE,
        timeout_ms: input.i32("timeout")?,
        state: TxnState::from_id(input.i8("status")?).ok_or(RecordError::Invalid("status"))?,
        partitions: input.partitions(flexible)?,
        last_update_wall_ms: input.i64("last update")?,
        start_wall_ms: input.i64("start")?,
        txn_number: 0,
        dialect: Dialect::V1,
        ended_by: EndedBy::Unknown,
        who: Who::default(),
    };
    if flexible {
        let count = input.varint("tagged fields")?;
        for _ in 0..count {
            let tag = input.varint("tag")?;
            let len = input.varint("tagged field length")?;
            let bytes = input.take(len as usize, "tagged field")?;
            read_tagged(&mut meta, tag, Reader { rest: bytes })?;
        }
    }
    input.end()?;
    // As in Kafka, which looks at partitions in other states only.
    if meta.state == TxnState::Empty {
        meta.partitions.clear();
    }
    Ok(meta)
}

fn read_tagged(meta: &mut TxnMeta, tag: u32, mut field: Reader<'_>) -> Result<(), RecordError> {
    match tag {
        TAG_PREVIOUS_PRODUCER_ID => {
            meta.previous_producer_id = ProducerId(field.i64("previous producer id")?);
        }
        TAG_NEXT_PRODUCER_ID => meta.next_producer_id = ProducerId(field.i64("next producer id")?),
        TAG_CLIENT_TRANSACTION_VERSION => {
            let what = "client transaction version";
            meta.dialect = Dialect::from_client_transaction_version(field.i16(what)?)
                .ok_or(RecordError::Invalid(what))?;
        }
        TAG_LAST_EPOCH => meta.last_epoch = ProducerEpoch(field.i16("last epoch")?),
        TAG_TXN_NUMBER => meta.txn_number = field.i64("transaction number")? as u64,
        TAG_PRINCIPAL => meta.who.principal = field.all_text("principal")?,
        TAG_CLIENT_ID => meta.who.client_id = field.all_text("client id")?,
        TAG_HOST => meta.who.host = field.all_text("host")?,
        TAG_ENDED_BY => {
            meta.ended_by =
                EndedBy::from_id(field.i8("ended by")?).ok_or(RecordError::Invalid("ended by"))?;
        }
        // A later version's field.
        _ => return Ok(()),
    }
    field.end()
}

/// Bytes still to be read.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(RecordError::Truncated(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RecordError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(RecordError::Truncated(what))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn i8(&mut self, what: &'static str) -> Result<i8, RecordError> {
        self.array(what).map(i8::from_be_bytes)
    }

    fn i16(&mut self, what: &'static str) -> Result<i16, RecordError> {
        self.array(what).map(i16::from_be_bytes)
    }

    fn i32(&mut self, what: &'static str) -> Result<i32, RecordError> {
        self.array(what).map(i32::from_be_bytes)
    }

    fn i64(&mut self, what: &'static str) -> Result<i64, RecordError> {
        self.array(what).map(i64::from_be_bytes)
    }

    /// An unsigned varint of at most five bytes.
    fn varint(&mut self, what: &'static str) -> Result<u32, RecordError> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array(what)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| RecordError::Invalid(what));
            }
        }
        Err(RecordError::Invalid(what))
    }

    /// A compact length or count, None for null.
    fn compact_len(&mut self, what: &'static str) -> Result<Option<usize>, RecordError> {
        Ok((self.varint(what)? as usize).checked_sub(1))
    }

    fn string(&mut self, what: &'static str) -> Result<Arc<str>, RecordError> {
        let len = usize::try_from(self.i16(what)?).map_err(|_| RecordError::Invalid(what))?;
        text(self.take(len, what)?, what)
    }

    fn all_text(&mut self, what: &'static str) -> Result<Arc<str>, RecordError> {
        let len = self.rest.len();
        text(self.take(len, what)?, what)
    }

    fn count(&mut self, flexible: bool, what: &'static str) -> Result<Option<usize>, RecordError> {
        if flexible {
            return self.compact_len(what);
        }
        match self.i32(what)? {
            -1 => Ok(None),
            count => usize::try_from(count)
                .map(Some)
                .map_err(|_| RecordError::Invalid(what)),
        }
    }

    fn partitions(&mut self, flexible: bool) -> Result<Partitions, RecordError> {
        let mut partitions = Partitions::new();
        // Each turn takes bytes or fails, so a claimed count ends with the bytes.
        for _ in 0..self.count(flexible, "topics")?.unwrap_or(0) {
            let topic = if flexible {
                let what = "topic";
                let len = self.compact_len(what)?.ok_or(RecordError::Invalid(what))?;
                text(self.take(len, what)?, what)?
            } else {
                self.string("topic")?
            };
            let what = "partitions";
            let count = self
                .count(flexible, what)?
                .ok_or(RecordError::Invalid(what))?;
            for _ in 0..count {
                partitions.insert((topic.clone(), self.i32(what)?));
            }
            if flexible {
                for _ in 0..self.varint("tagged fields of a topic")? {
                    self.varint("tag of a topic")?;
                    let len = self.varint("tagged field length of a topic")?;
                    self.take(len as usize, "tagged field of a topic")?;
                }
            }
        }
        Ok(partitions)
    }

    fn end(&self) -> Result<(), RecordError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(RecordError::LeftOver(left)),
        }
    }
}

fn text(bytes: &[u8], what: &'static str) -> Result<Arc<str>, RecordError> {
    std::str::from_utf8(bytes)
        .map(Arc::from)
        .map_err(|_| RecordError::Invalid(what))
}
