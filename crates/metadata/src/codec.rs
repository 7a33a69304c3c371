//! Bounded reading and writing of a record's payload: big-endian integers, strings with a length
//! in front, maps in the order of their keys.

use std::collections::BTreeMap;

use tidemark_types::TopicId;

use crate::record::DecodeError;

#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }

    pub(crate) fn bytes(&mut self, v: &[u8]) {
        let len = u32::try_from(v.len()).expect("bytes are bounded by the request that made them");
        self.0.extend_from_slice(&len.to_be_bytes());
        self.0.extend_from_slice(v);
    }

    pub(crate) fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, v: i32) {
        self.0.extend_from_slice(&v.to_be_bytes());
    }

    pub(crate) fn i64(&mut self, v: i64) {
        self.0.extend_from_slice(&v.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_be_bytes());
    }

    pub(crate) fn id(&mut self, v: TopicId) {
        self.0.extend_from_slice(&v.0);
    }

    pub(crate) fn str(&mut self, v: &str) {
        let len =
            u32::try_from(v.len()).expect("strings are bounded by the request that made them");
        self.0.extend_from_slice(&len.to_be_bytes());
        self.0.extend_from_slice(v.as_bytes());
    }

    pub(crate) fn map(&mut self, v: &BTreeMap<String, String>) {
        let len = u32::try_from(v.len()).expect("a topic has fewer than 2^32 configs");
        self.0.extend_from_slice(&len.to_be_bytes());
        for (key, value) in v {
            self.str(key);
            self.str(value);
        }
    }
}

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, DecodeError> {
        let len = self.u32()? as usize;
        Ok(self.take(len)?.to_vec())
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn id(&mut self) -> Result<TopicId, DecodeError> {
        Ok(TopicId(self.array()?))
    }

    pub(crate) fn str(&mut self) -> Result<String, DecodeError> {
        let len = self.u32()? as usize;
        let bytes = self.take(len)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Invalid("text is not UTF-8"))
    }

    pub(crate) fn map(&mut self) -> Result<BTreeMap<String, String>, DecodeError> {
        // Nothing is reserved from the count: each entry must be there to be added.
        let count = self.u32()?;
        let mut map = BTreeMap::new();
        for _ in 0..count {
            let key = self.str()?;
            let value = self.str()?;
            if map.insert(key, value).is_some() {
                return Err(DecodeError::Invalid("a config key appears twice"));
            }
        }
        Ok(map)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn end(self) -> Result<(), DecodeError> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(DecodeError::Invalid("bytes are left over")),
        }
    }
}
