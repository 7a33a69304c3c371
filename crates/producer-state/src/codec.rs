//! The state as bytes, for a checkpoint block.

use std::fmt;

use tidemark_types::{CoordinatorEpoch, ProducerEpoch, ProducerId};

use crate::PartitionProducers;
use crate::entry::{BatchMeta, ProducerEntry, WINDOW_BATCHES};

/// 1: this byte, u32 count, then by ascending producer id: id i64, epoch i16, coordinator epoch
/// i32, first offset of the open transaction or -1 i64, wall clock of the last write i64, u8 batches
/// and each batch's base sequence i32, last offset delta i32, base offset i64, append time i64.
const FORMAT: u8 = 1;

/// What is wrong with encoded bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The format is not known here.
    Format(u8),
    /// More or fewer bytes than the counts say.
    Length,
    /// Whole, but no state of a partition; the text says what is impossible.
    Impossible(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Format(format) => write!(f, "producer state: unknown format {format}"),
            DecodeError::Length => f.write_str("producer state: its length is wrong"),
            DecodeError::Impossible(what) => write!(f, "producer state: {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl PartitionProducers {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        let count = u32::try_from(self.len()).expect("an entry takes over 100 bytes of memory");
        out.extend_from_slice(&count.to_be_bytes());
        for (producer_id, entry) in self.producers() {
            out.extend_from_slice(&producer_id.0.to_be_bytes());
            out.extend_from_slice(&entry.epoch().0.to_be_bytes());
            out.extend_from_slice(&entry.coordinator_epoch().0.to_be_bytes());
            let first_offset = entry.current_txn_first_offset().unwrap_or(-1);
            out.extend_from_slice(&first_offset.to_be_bytes());
            out.extend_from_slice(&entry.last_wall_ms().to_be_bytes());
            out.push(entry.window().len() as u8);
            for batch in entry.window() {
                out.extend_from_slice(&batch.base_sequence.to_be_bytes());
                out.extend_from_slice(&batch.last_offset_delta.to_be_bytes());
                out.extend_from_slice(&batch.base_offset.to_be_bytes());
                out.extend_from_slice(&batch.log_append_time.to_be_bytes());
            }
        }
        out
    }

    /// Reads what [`PartitionProducers::encode`] wrote. Whatever it returns passes
    /// [`PartitionProducers::check`].
    pub fn decode(bytes: &[u8]) -> Result<PartitionProducers, DecodeError> {
        let mut input = Input(bytes);
        let [format] = input.take()?;
        if format != FORMAT {
            return Err(DecodeError::Format(format));
        }
        let count = u32::from_be_bytes(input.take()?);
        let mut state = PartitionProducers::new();
        for _ in 0..count {
            let (producer_id, entry) = input.producer()?;
            if let Some((last, _)) = state.entries.last_key_value()
                && *last >= producer_id
            {
                return Err(DecodeError::Impossible("producers are not in order"));
            }
            if let Some(first_offset) = entry.current_txn_first_offset()
                && state.open.insert(first_offset, producer_id).is_some()
            {
                return Err(DecodeError::Impossible(
                    "two transactions begin at one offset",
                ));
            }
            state.entries.insert(producer_id, Box::new(entry));
        }
        if input.0.is_empty() {
            Ok(state)
        } else {
            Err(DecodeError::Length)
        }
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(DecodeError::Length)?;
        self.0 = rest;
        Ok(*field)
    }

    fn producer(&mut self) -> Result<(ProducerId, ProducerEntry), DecodeError> {
        let producer_id = ProducerId(i64::from_be_bytes(self.take()?));
        let epoch = ProducerEpoch(i16::from_be_bytes(self.take()?));
        let coordinator_epoch = CoordinatorEpoch(i32::from_be_bytes(self.take()?));
        let first_offset = i64::from_be_bytes(self.take()?);
        let last_wall_ms = i64::from_be_bytes(self.take()?);
        let [window_len] = self.take()?;
        if !producer_id.is_some() || epoch.0 < 0 {
            return Err(DecodeError::Impossible("a negative producer id or epoch"));
        }
        if usize::from(window_len) > WINDOW_BATCHES {
            return Err(DecodeError::Impossible("more than five batches"));
        }
        let mut entry = ProducerEntry::new(epoch, last_wall_ms);
        entry.set_coordinator_epoch(coordinator_epoch);
        match first_offset {
            -1 => {}
            0.. => entry.begin_txn(first_offset),
            _ => return Err(DecodeError::Impossible("a negative offset")),
        }
        for _ in 0..window_len {
            let batch = self.batch()?;
            if let Some(last) = entry.window().last()
                && last.last_offset() >= batch.base_offset
            {
                return Err(DecodeError::Impossible("batches are not in order"));
            }
            entry.push(batch);
        }
        Ok((producer_id, entry))
    }

    fn batch(&mut self) -> Result<BatchMeta, DecodeError> {
        let batch = BatchMeta {
            base_sequence: i32::from_be_bytes(self.take()?),
            last_offset_delta: i32::from_be_bytes(self.take()?),
            base_offset: i64::from_be_bytes(self.take()?),
            log_append_time: i64::from_be_bytes(self.take()?),
        };
        if batch.base_sequence < 0 || batch.last_offset_delta < 0 || batch.base_offset < 0 {
            return Err(DecodeError::Impossible("a negative sequence or offset"));
        }
        Ok(batch)
    }
}
