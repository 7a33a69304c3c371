//! Bytes of an entry, as in Kafka's `.txnindex`, and of a whole index, for a checkpoint.

use std::fmt;

use tidemark_types::ProducerId;

use crate::{AbortIndex, AbortedTxn};

/// An entry of Kafka's `.txnindex`: int16 version 0, then producer id, first offset, last offset
/// and last stable offset, int64 each; all big-endian.
pub const TXN_INDEX_ENTRY_BYTES: usize = 34;

const ENTRY_VERSION: i16 = 0;

/// Format of an encoded index. 1: this byte, u32 count, that many entries.
const FORMAT: u8 = 1;

/// What is wrong with encoded bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The format or entry version is not known here.
    Version(i16),
    /// More or fewer bytes than the count says.
    Length,
    /// An entry ends before it begins or begins before 0, or markers are not in order.
    Order,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Version(version) => write!(f, "abort index: unknown version {version}"),
            DecodeError::Length => f.write_str("abort index: its length is wrong"),
            DecodeError::Order => f.write_str("abort index: entries are not in order"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl AbortedTxn {
    /// The bytes of this entry in a `.txnindex`.
    pub fn to_txn_index_entry(&self) -> [u8; TXN_INDEX_ENTRY_BYTES] {
        let mut out = [0; TXN_INDEX_ENTRY_BYTES];
        out[..2].copy_from_slice(&ENTRY_VERSION.to_be_bytes());
        for (i, field) in [
            self.producer_id.0,
            self.first_offset,
            self.last_offset,
            self.last_stable_offset,
        ]
        .into_iter()
        .enumerate()
        {
            out[2 + 8 * i..10 + 8 * i].copy_from_slice(&field.to_be_bytes());
        }
        out
    }

    /// Reads an entry of a `.txnindex`.
    pub fn from_txn_index_entry(
        bytes: &[u8; TXN_INDEX_ENTRY_BYTES],
    ) -> Result<AbortedTxn, DecodeError> {
        let version = i16::from_be_bytes([bytes[0], bytes[1]]);
        if version != ENTRY_VERSION {
            return Err(DecodeError::Version(version));
        }
        let field = |i: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[2 + 8 * i..10 + 8 * i]);
            i64::from_be_bytes(field)
        };
        Ok(AbortedTxn {
            producer_id: ProducerId(field(0)),
            first_offset: field(1),
            last_offset: field(2),
            last_stable_offset: field(3),
        })
    }
}

impl AbortIndex {
    /// The index as bytes, for a checkpoint block.
    pub fn encode(&self) -> Vec<u8> {
        let entries = self.entries();
        let mut out = Vec::with_capacity(5 + entries.len() * TXN_INDEX_ENTRY_BYTES);
        out.push(FORMAT);
        let count = u32::try_from(entries.len()).expect("an entry takes 34 bytes of memory");
        out.extend_from_slice(&count.to_be_bytes());
        for txn in entries {
            out.extend_from_slice(&txn.to_txn_index_entry());
        }
        out
    }

    /// Reads what [`AbortIndex::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<AbortIndex, DecodeError> {
        let (&format, rest) = bytes.split_first().ok_or(DecodeError::Length)?;
        if format != FORMAT {
            return Err(DecodeError::Version(i16::from(format)));
        }
        let (count, rest) = rest.split_first_chunk::<4>().ok_or(DecodeError::Length)?;
        let (entries, partial) = rest.as_chunks::<TXN_INDEX_ENTRY_BYTES>();
        if !partial.is_empty() || entries.len() != u32::from_be_bytes(*count) as usize {
            return Err(DecodeError::Length);
        }
        let mut index = AbortIndex::new();
        for entry in entries {
            let txn = AbortedTxn::from_txn_index_entry(entry)?;
            let follows = index
                .entries()
                .last()
                .is_none_or(|last| last.last_offset < txn.last_offset);
            let is_range = (0..=txn.last_offset).contains(&txn.first_offset);
            if !is_range || !follows {
                return Err(DecodeError::Order);
            }
            index.push(txn);
        }
        Ok(index)
    }
}
