//! Kafka's v2 record batch: its header of 61 bytes, its CRC, and what a marker says.

use crate::bytes::Fields;
use crate::finding::Bad;
use crate::records;

/// Bytes of a batch's header.
pub const BATCH_HEADER_BYTES: usize = 61;
/// What the length field does not count.
const LENGTH_PREFIX_BYTES: usize = 12;
const MAGIC: i8 = 2;

/// The header of a batch, field by field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Of the whole batch.
    pub size_bytes: u32,
    pub leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

/// What ends a transaction in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    pub commit: bool,
    pub coordinator_epoch: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`. The CRC is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, Bad> {
        let magic = bytes.get(16).copied();
        if let Some(magic) = magic.map(|magic| magic as i8)
            && magic != MAGIC
        {
            return Err(Bad::new(16, format!("a batch of magic {magic}")));
        }
        let parsed = (|| {
            let mut f = Fields::new(bytes.get(..BATCH_HEADER_BYTES)?);
            let (base_offset, length) = (f.i64()?, f.i32()?);
            let leader_epoch = f.i32()?;
            f.u8()?;
            Some((
                length,
                BatchHeader {
                    base_offset,
                    size_bytes: 0,
                    leader_epoch,
                    crc: f.u32()?,
                    attributes: f.i16()?,
                    last_offset_delta: f.i32()?,
                    base_timestamp: f.i64()?,
                    max_timestamp: f.i64()?,
                    producer_id: f.i64()?,
                    producer_epoch: f.i16()?,
                    base_sequence: f.i32()?,
                    record_count: f.i32()?,
                },
            ))
        })();
        let (length, mut header) =
            parsed.ok_or_else(|| Bad::new(0, "the bytes end within a batch header"))?;
        let least = BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES;
        if usize::try_from(length).unwrap_or(0) < least {
            return Err(Bad::new(8, format!("a batch length of {length}")));
        }
        header.size_bytes = length as u32 + LENGTH_PREFIX_BYTES as u32;
        Ok(header)
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    pub fn is_log_append_time(&self) -> bool {
        self.attributes & 0x08 != 0
    }

    /// Kafka's name of the codec.
    pub fn codec(&self) -> &'static str {
        records::codec_name(self.attributes)
    }

    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return self.base_sequence;
        }
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        (last & i64::from(i32::MAX)) as i32
    }
}

/// A whole batch as it stands in a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsedBatch {
    pub header: BatchHeader,
    /// Of a control batch that ends a transaction.
    pub marker: Option<Marker>,
}

/// Checks the batch at the start of `bytes`, which may go on behind it: length, CRC, counts, and
/// the record of a control batch.
pub fn parse_batch(bytes: &[u8]) -> Result<ParsedBatch, Bad> {
    let header = BatchHeader::parse(bytes)?;
    let batch = bytes.get(..header.size_bytes as usize).ok_or_else(|| {
        Bad::new(
            8,
            format!(
                "the batch at offset {} has {} bytes, only {} are there",
                header.base_offset,
                header.size_bytes,
                bytes.len()
            ),
        )
    })?;
    let crc = crc32c::crc32c(&batch[21..]);
    if crc != header.crc {
        let what = format!(
            "the batch at offset {} carries the CRC {:08x}, its bytes have {crc:08x}",
            header.base_offset, header.crc
        );
        return Err(Bad::new(17, what));
    }
    if header.base_offset < 0 || header.last_offset_delta < 0 || header.record_count < 0 {
        let what = format!(
            "a batch at offset {} with last offset delta {} and {} records",
            header.base_offset, header.last_offset_delta, header.record_count
        );
        return Err(Bad::new(0, what));
    }
    let marker = match header.is_control() {
        true => marker(&header, batch)?,
        false => None,
    };
    Ok(ParsedBatch { header, marker })
}

fn marker(header: &BatchHeader, batch: &[u8]) -> Result<Option<Marker>, Bad> {
    let bad = |what: &str| {
        let what = format!("the control batch at offset {}: {what}", header.base_offset);
        Bad::new(BATCH_HEADER_BYTES as u64, what)
    };
    let records = records::records(batch)?;
    let [record] = &records[..] else {
        return Err(bad(&format!("it has {} records", records.len())));
    };
    let mut key = Fields::new(record.key.as_deref().unwrap_or_default());
    let mut value = Fields::new(record.value.as_deref().unwrap_or_default());
    let (Some(_), Some(kind)) = (key.i16(), key.i16()) else {
        return Err(bad("its key is too short"));
    };
    let commit = match kind {
        0 => false,
        1 => true,
        _ => return Ok(None),
    };
    let (Some(_), Some(coordinator_epoch)) = (value.i16(), value.i32()) else {
        return Err(bad("its value is too short"));
    };
    Ok(Some(Marker {
        commit,
        coordinator_epoch,
    }))
}
