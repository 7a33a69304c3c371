//! Control batches: the markers that end a transaction in a partition (KIP-98).

use bytes::Bytes;
use tidemark_types::{CoordinatorEpoch, LeaderEpoch, ProducerEpoch, ProducerId};

use crate::builder::BatchBuilder;
use crate::header::{patch_crc, patch_position};
use crate::{Attributes, BatchError, BatchHeader, DecompressLimits, records};

/// What a marker says about the transaction it ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ControlType {
    Abort,
    Commit,
}

impl ControlType {
    fn id(self) -> i16 {
        match self {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
        }
    }
}

/// Versions of Kafka's `ControlRecordType` key and `EndTxnMarker` value.
const KEY_VERSION: i16 = 0;
const VALUE_VERSION: i16 = 0;

/// A marker batch, byte for byte what Kafka writes: one record, key (version, type), value
/// (version, coordinator epoch), no sequence, transactional and control bits set.
pub fn control_batch(
    base_offset: i64,
    leader_epoch: LeaderEpoch,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    control_type: ControlType,
    coordinator_epoch: CoordinatorEpoch,
    timestamp_ms: i64,
) -> Bytes {
    let mut key = [0; 4];
    key[..2].copy_from_slice(&KEY_VERSION.to_be_bytes());
    key[2..].copy_from_slice(&control_type.id().to_be_bytes());
    let mut value = [0; 6];
    value[..2].copy_from_slice(&VALUE_VERSION.to_be_bytes());
    value[2..].copy_from_slice(&coordinator_epoch.0.to_be_bytes());

    let mut builder = BatchBuilder::new(timestamp_ms)
        .with_attributes(Attributes::default().with_transactional().with_control());
    builder.producer(producer_id, producer_epoch, -1);
    builder.push(Some(&key), Some(&value));
    let mut batch = builder.build();
    patch_position(&mut batch, base_offset, leader_epoch);
    patch_crc(&mut batch);
    batch.into()
}

/// The marker in `batch`, exactly one whole batch. `None` for a data batch, and for a control type
/// that is not a transaction's (Kafka's own quorum uses some).
///
/// Errors: `Control` when a control batch is not one record with a well-formed key and value, and
/// what [`records`] gives.
pub fn parse_control(batch: &[u8]) -> Result<Option<(ControlType, CoordinatorEpoch)>, BatchError> {
    let header = BatchHeader::parse(batch)?;
    if !header.attributes.is_control() {
        return Ok(None);
    }
    // A marker is 78 bytes: copying it costs less than a second record parser.
    let batch = Bytes::copy_from_slice(
        batch
            .get(..header.size_bytes())
            .ok_or(BatchError::Truncated)?,
    );
    let mut records = records(&batch, &DecompressLimits::default())?;
    let record = records
        .next()
        .ok_or(BatchError::Control("it has no record"))??;
    let key = record.key.ok_or(BatchError::Control("it has no key"))?;
    // Later versions of either may append fields.
    let Some(&[version_high, version_low, type_high, type_low]) = key.first_chunk::<4>() else {
        return Err(BatchError::Control("its key is too short"));
    };
    if i16::from_be_bytes([version_high, version_low]) < 0 {
        return Err(BatchError::Control("its key has a negative version"));
    }
    let control_type = match i16::from_be_bytes([type_high, type_low]) {
        0 => ControlType::Abort,
        1 => ControlType::Commit,
        _ => return Ok(None),
    };
    let value = record.value.ok_or(BatchError::Control("it has no value"))?;
    let Some(&[version_high, version_low, epoch @ ..]) = value.first_chunk::<6>() else {
        return Err(BatchError::Control("its value is too short"));
    };
    if i16::from_be_bytes([version_high, version_low]) < 0 {
        return Err(BatchError::Control("its value has a negative version"));
    }
    match records.next() {
        None => Ok(Some((
            control_type,
            CoordinatorEpoch(i32::from_be_bytes(epoch)),
        ))),
        Some(Ok(_)) => Err(BatchError::Control("it has more than one record")),
        Some(Err(error)) => Err(error),
    }
}
