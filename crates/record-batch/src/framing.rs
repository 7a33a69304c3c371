//! The records inside a batch, read one after the other: from memory (fields are slices) or from a
//! decompressor (fields are skipped). One parser serves both, so that what is accepted on Produce
//! is what is understood later.

use std::io::BufRead;

use bytes::{Buf, Bytes};

use crate::BatchError;

/// Where record bytes come from.
pub(crate) trait Source {
    /// What a key, a value or a header becomes.
    type Field;

    fn read_u8(&mut self) -> Result<u8, SourceError>;
    fn field(&mut self, length: usize) -> Result<Self::Field, SourceError>;
    fn is_at_end(&mut self) -> Result<bool, SourceError>;
}

/// Why a record could not be read; the caller knows its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceError {
    Malformed(&'static str),
    Batch(BatchError),
}

impl SourceError {
    pub(crate) fn at_record(self, index: i32) -> BatchError {
        match self {
            SourceError::Malformed(what) => BatchError::Record { index, what },
            SourceError::Batch(error) => error,
        }
    }
}

const SHORT: SourceError = SourceError::Malformed("ends after the last byte of the batch");

/// Whole records in memory: fields share the batch's buffer.
pub(crate) struct BytesSource(pub(crate) Bytes);

impl Source for BytesSource {
    type Field = Bytes;

    fn read_u8(&mut self) -> Result<u8, SourceError> {
        self.0.try_get_u8().map_err(|_| SHORT)
    }

    fn field(&mut self, length: usize) -> Result<Bytes, SourceError> {
        if length > self.0.len() {
            return Err(SHORT);
        }
        Ok(self.0.split_to(length))
    }

    fn is_at_end(&mut self) -> Result<bool, SourceError> {
        Ok(self.0.is_empty())
    }
}

/// Records that are only looked at: nothing of their fields is kept, whatever their lengths say.
pub(crate) struct StreamSource<R>(pub(crate) R);

impl<R: BufRead> StreamSource<R> {
    fn buffered(&mut self) -> Result<&[u8], SourceError> {
        self.0
            .fill_buf()
            .map_err(|error| SourceError::Batch(error.into()))
    }
}

impl<R: BufRead> Source for StreamSource<R> {
    type Field = ();

    fn read_u8(&mut self) -> Result<u8, SourceError> {
        let byte = *self.buffered()?.first().ok_or(SHORT)?;
        self.0.consume(1);
        Ok(byte)
    }

    fn field(&mut self, mut length: usize) -> Result<(), SourceError> {
        while length > 0 {
            let n = self.buffered()?.len().min(length);
            if n == 0 {
                return Err(SHORT);
            }
            self.0.consume(n);
            length -= n;
        }
        Ok(())
    }

    fn is_at_end(&mut self) -> Result<bool, SourceError> {
        Ok(self.buffered()?.is_empty())
    }
}

/// One record; the deltas are to the batch's base offset and base timestamp.
pub(crate) struct RawRecord<F> {
    pub(crate) offset_delta: i32,
    pub(crate) timestamp_delta: i64,
    pub(crate) key: Option<F>,
    pub(crate) value: Option<F>,
}

/// Reads within one record: every byte is taken off the record's own length, so that no field
/// reaches beyond it.
struct InRecord<'a, S> {
    source: &'a mut S,
    left: usize,
}

impl<S: Source> InRecord<'_, S> {
    fn read_u8(&mut self) -> Result<u8, SourceError> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or(SourceError::Malformed("a field reaches beyond the record"))?;
        self.source.read_u8()
    }

    fn varint(&mut self) -> Result<i32, SourceError> {
        varint(|| self.read_u8())
    }

    fn varlong(&mut self) -> Result<i64, SourceError> {
        varlong(|| self.read_u8())
    }

    /// A length and that many bytes; -1 is null.
    fn nullable(&mut self) -> Result<Option<S::Field>, SourceError> {
        let length = self.varint()?;
        if length == -1 {
            return Ok(None);
        }
        let length =
            usize::try_from(length).map_err(|_| SourceError::Malformed("a negative length"))?;
        self.left = self
            .left
            .checked_sub(length)
            .ok_or(SourceError::Malformed("a field reaches beyond the record"))?;
        self.source.field(length).map(Some)
    }
}

/// Reads one record. `on_header` gets each header as it comes: nothing is reserved for their count.
pub(crate) fn read_record<S: Source>(
    source: &mut S,
    mut on_header: impl FnMut(S::Field, Option<S::Field>),
) -> Result<RawRecord<S::Field>, SourceError> {
    let length = varint(|| source.read_u8())?;
    let left =
        usize::try_from(length).map_err(|_| SourceError::Malformed("a negative record length"))?;
    let mut record = InRecord { source, left };
    let _unused_attributes = record.read_u8()?;
    let timestamp_delta = record.varlong()?;
    let offset_delta = record.varint()?;
    let key = record.nullable()?;
    let value = record.nullable()?;
    let header_count = record.varint()?;
    // A header is at least two length bytes.
    if header_count < 0 || header_count as usize > record.left / 2 {
        return Err(SourceError::Malformed("an impossible number of headers"));
    }
    for _ in 0..header_count {
        let key = record
            .nullable()?
            .ok_or(SourceError::Malformed("a header without a key"))?;
        on_header(key, record.nullable()?);
    }
    if record.left != 0 {
        return Err(SourceError::Malformed("its length and its fields differ"));
    }
    Ok(RawRecord {
        offset_delta,
        timestamp_delta,
        key,
        value,
    })
}

fn varint(next: impl FnMut() -> Result<u8, SourceError>) -> Result<i32, SourceError> {
    let raw = unsigned_varint(next, 5)?;
    let raw = u32::try_from(raw).map_err(|_| TOO_LONG)?;
    Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

fn varlong(next: impl FnMut() -> Result<u8, SourceError>) -> Result<i64, SourceError> {
    let raw = unsigned_varint(next, 10)?;
    Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

const TOO_LONG: SourceError = SourceError::Malformed("a number that is too long");

fn unsigned_varint(
    mut next: impl FnMut() -> Result<u8, SourceError>,
    max_bytes: u32,
) -> Result<u64, SourceError> {
    let mut raw = 0u64;
    for i in 0..max_bytes {
        let byte = next()?;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if i == 9 && bits > 1 {
            return Err(TOO_LONG);
        }
        raw |= bits << (7 * i);
        if byte & 0x80 == 0 {
            return Ok(raw);
        }
    }
    Err(TOO_LONG)
}

/// Appends a zigzag varint: Kafka's `ByteUtils.writeVarint` and, as the bytes are the same,
/// `writeVarlong`.
pub(crate) fn write_varlong(out: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read<T>(
        bytes: &[u8],
        read: impl FnOnce(&mut dyn FnMut() -> Result<u8, SourceError>) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        let mut source = StreamSource(bytes);
        read(&mut || source.read_u8())
    }

    proptest! {
        #[test]
        fn a_written_number_is_read_back(long: i64, int: i32) {
            let mut out = Vec::new();
            write_varlong(&mut out, long);
            prop_assert_eq!(read(&out, |next| varlong(next)), Ok(long));
            out.clear();
            write_varlong(&mut out, i64::from(int));
            prop_assert_eq!(read(&out, |next| varint(next)), Ok(int));
        }
    }

    #[test]
    fn a_number_too_long_is_refused() {
        assert_eq!(read(&[0xff; 5], |next| varint(next)), Err(TOO_LONG));
        assert_eq!(
            read(&[0xff, 0xff, 0xff, 0xff, 0x1f], |next| varint(next)),
            Err(TOO_LONG)
        );
        assert_eq!(read(&[0xff; 10], |next| varlong(next)), Err(TOO_LONG));
        let mut min = [0xff; 10];
        min[9] = 1;
        assert_eq!(read(&min, |next| varlong(next)), Ok(i64::MIN));
        assert_eq!(read(&[0x80], |next| varint(next)), Err(SHORT));
    }
}
