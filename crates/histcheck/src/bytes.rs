//! Fields out of bytes that may be anything: every take is checked, nothing is sized by a count.

/// A cursor. Integers are big-endian, as in all files but the journal's slots.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(all: &'a [u8]) -> Fields<'a> {
        Fields { all, at: 0 }
    }

    /// Bytes taken so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn left(&self) -> usize {
        self.all.len() - self.at
    }

    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let taken = self.all.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
    }

    pub(crate) fn i8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A `u32` length and that many bytes.
    pub(crate) fn long_bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    pub(crate) fn long_string(&mut self) -> Option<String> {
        text(self.long_bytes()?)
    }

    /// An `i16` length and that many bytes of text; -1 is null.
    pub(crate) fn nullable_string(&mut self) -> Option<Option<String>> {
        match self.i16()? {
            -1 => Some(None),
            len => text(self.take(usize::try_from(len).ok()?)?).map(Some),
        }
    }

    pub(crate) fn string(&mut self) -> Option<String> {
        self.nullable_string()?
    }

    /// An unsigned varint of at most ten bytes.
    pub(crate) fn uvarint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A zigzag varint.
    pub(crate) fn varint(&mut self) -> Option<i64> {
        let raw = self.uvarint()?;
        Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A compact string (a varint length plus one).
    pub(crate) fn compact_string(&mut self) -> Option<Option<String>> {
        match self.uvarint()? {
            0 => Some(None),
            n => text(self.take(usize::try_from(n - 1).ok()?)?).map(Some),
        }
    }
}

pub(crate) fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

pub(crate) fn le_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

pub(crate) fn le_u64(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
