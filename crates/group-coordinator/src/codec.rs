//! Kafka's primitive types, as its coordinator records use them.

use bytes::Bytes;

use crate::record::DecodeError;

pub(crate) fn put_i16(out: &mut Vec<u8>, value: i16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Every string is bounded where a request is decided (`groups::MAX_STRING_BYTES`), so that none
/// is too long for its two length bytes here.
pub(crate) fn put_string(out: &mut Vec<u8>, value: &str) {
    let len = i16::try_from(value.len()).expect("strings are bounded when a request is decided");
    put_i16(out, len);
    out.extend_from_slice(value.as_bytes());
}

pub(crate) fn put_nullable_string(out: &mut Vec<u8>, value: Option<&str>) {
    match value {
        Some(value) => put_string(out, value),
        None => put_i16(out, -1),
    }
}

/// No request is larger than an `i32` can say, so no part of one is.
pub(crate) fn put_bytes(out: &mut Vec<u8>, value: &[u8]) {
    put_len(out, value.len());
    out.extend_from_slice(value);
}

pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    put_i32(
        out,
        i32::try_from(len).expect("a part of a request is shorter than 2 GiB"),
    );
}

/// Reads from a slice; every length is compared with what is left.
pub(crate) struct Reader<'a> {
    left: &'a [u8],
    /// Lengths are varints plus one and structures end in tagged fields.
    flexible: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            left: bytes,
            flexible: false,
        }
    }

    pub(crate) fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, left) = self.left.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, left) = self.left.split_first_chunk().ok_or(DecodeError::Short)?;
        self.left = left;
        Ok(*taken)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| DecodeError::Length);
            }
        }
        Err(DecodeError::Length)
    }

    /// A length, `None` for null, in the form that the version uses.
    fn length(&mut self, wide: bool) -> Result<Option<usize>, DecodeError> {
        let length = if self.flexible {
            i64::from(self.unsigned_varint()?) - 1
        } else if wide {
            i64::from(self.i32()?)
        } else {
            i64::from(self.i16()?)
        };
        match length {
            -1 => Ok(None),
            _ => usize::try_from(length)
                .map(Some)
                .map_err(|_| DecodeError::Length),
        }
    }

    pub(crate) fn nullable_string(&mut self) -> Result<Option<String>, DecodeError> {
        let Some(len) = self.length(false)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| DecodeError::NotUtf8)?;
        Ok(Some(text.to_owned()))
    }

    pub(crate) fn string(&mut self) -> Result<String, DecodeError> {
        self.nullable_string()?.ok_or(DecodeError::Null)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let len = self.length(true)?.ok_or(DecodeError::Null)?;
        Ok(Bytes::copy_from_slice(self.take(len)?))
    }

    /// Number of elements of an array. Nothing is reserved for it: every element takes bytes.
    pub(crate) fn count(&mut self) -> Result<usize, DecodeError> {
        let count = self.length(true)?.ok_or(DecodeError::Null)?;
        if count > self.left.len() {
            return Err(DecodeError::Length);
        }
        Ok(count)
    }

    /// Skips the tagged fields at the end of a structure; there are none before flexible versions.
    pub(crate) fn tagged_fields(&mut self) -> Result<(), DecodeError> {
        if !self.flexible {
            return Ok(());
        }
        for _ in 0..self.unsigned_varint()? {
            self.unsigned_varint()?;
            let len = self.unsigned_varint()? as usize;
            self.take(len)?;
        }
        Ok(())
    }

    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing(self.left.len()))
        }
    }
}
