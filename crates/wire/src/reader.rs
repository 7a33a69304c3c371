//! A cursor over bytes from the wire that never reads past their end and never allocates.

use crate::error::BodyFault;

/// The unread rest of a header or body.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, position: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], BodyFault> {
        if n > self.left() {
            return Err(BodyFault::Truncated);
        }
        let taken = &self.bytes[self.position..self.position + n];
        self.position += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BodyFault> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("take gives N bytes"))
    }

    pub(crate) fn i16(&mut self) -> Result<i16, BodyFault> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, BodyFault> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn uuid(&mut self) -> Result<[u8; 16], BodyFault> {
        self.array()
    }

    /// An unsigned varint of at most 32 bits. Zero bits above the value are accepted, as every
    /// client's decoder does; set bits beyond the 32nd are not.
    pub(crate) fn unsigned_varint(&mut self) -> Result<u32, BodyFault> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            if shift == 28 && byte > 0x0f {
                return Err(BodyFault::OverlongVarint);
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }

    /// The length of a string: `None` for null.
    pub(crate) fn string_length(&mut self, flexible: bool) -> Result<Option<usize>, BodyFault> {
        let length = match flexible {
            true => return self.compact_length(),
            false => self.i16()?,
        };
        self.bounded(i64::from(length))
    }

    /// The length of bytes or records: `None` for null.
    pub(crate) fn bytes_length(&mut self, flexible: bool) -> Result<Option<usize>, BodyFault> {
        let length = match flexible {
            true => return self.compact_length(),
            false => self.i32()?,
        };
        self.bounded(i64::from(length))
    }

    /// The count of an array whose elements have at least `min_element_bytes`: `None` for null.
    pub(crate) fn array_count(
        &mut self,
        flexible: bool,
        min_element_bytes: usize,
    ) -> Result<Option<usize>, BodyFault> {
        let count = match flexible {
            true => i64::from(self.unsigned_varint()?) - 1,
            false => i64::from(self.i32()?),
        };
        match usize::try_from(count) {
            // An element of no bytes would make any count fit, so it counts as one byte.
            Ok(n) if n <= self.left() / min_element_bytes.max(1) => Ok(Some(n)),
            Ok(_) => Err(BodyFault::CountBeyondFrame),
            Err(_) if count == -1 => Ok(None),
            Err(_) => Err(BodyFault::NegativeLength),
        }
    }

    fn compact_length(&mut self) -> Result<Option<usize>, BodyFault> {
        let length = i64::from(self.unsigned_varint()?) - 1;
        self.bounded(length)
    }

    fn bounded(&self, length: i64) -> Result<Option<usize>, BodyFault> {
        match usize::try_from(length) {
            Ok(n) if n <= self.left() => Ok(Some(n)),
            Ok(_) => Err(BodyFault::LengthBeyondFrame),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(BodyFault::NegativeLength),
        }
    }

    /// Skips a tagged-field section without looking into the fields.
    pub(crate) fn skip_tagged_fields(&mut self) -> Result<(), BodyFault> {
        let count = self.unsigned_varint()?;
        // A tagged field has at least a byte of tag and a byte of size.
        if count as usize > self.left() / 2 {
            return Err(BodyFault::CountBeyondFrame);
        }
        for _ in 0..count {
            self.unsigned_varint()?;
            let size = self.unsigned_varint()? as usize;
            if size > self.left() {
                return Err(BodyFault::LengthBeyondFrame);
            }
            self.take(size)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_32_bits_are_read_and_longer_ones_refused() {
        let cases: &[(&[u8], Result<u32, BodyFault>)] = &[
            (&[0x00], Ok(0)),
            (&[0x7f], Ok(127)),
            (&[0x80, 0x01], Ok(128)),
            (&[0xff, 0xff, 0xff, 0xff, 0x0f], Ok(u32::MAX)),
            (
                &[0xff, 0xff, 0xff, 0xff, 0x1f],
                Err(BodyFault::OverlongVarint),
            ),
            (
                &[0x80, 0x80, 0x80, 0x80, 0x80],
                Err(BodyFault::OverlongVarint),
            ),
            // Overlong but within 32 bits.
            (&[0x81, 0x00], Ok(1)),
            (&[0x80], Err(BodyFault::Truncated)),
            (&[], Err(BodyFault::Truncated)),
        ];
        for (bytes, want) in cases {
            assert_eq!(Reader::new(bytes).unsigned_varint(), *want, "{bytes:02x?}");
        }
    }

    #[test]
    fn lengths_and_counts_are_compared_with_the_bytes_left() {
        let string = |bytes: &[u8]| Reader::new(bytes).string_length(false);
        assert_eq!(string(&[0, 1, b'a']), Ok(Some(1)));
        assert_eq!(string(&[0, 2, b'a']), Err(BodyFault::LengthBeyondFrame));
        assert_eq!(string(&[0xff, 0xff]), Ok(None));
        assert_eq!(string(&[0xff, 0xfe]), Err(BodyFault::NegativeLength));

        let count = |bytes: &[u8], min| Reader::new(bytes).array_count(false, min);
        assert_eq!(count(&[0, 0, 0, 2, 1, 2, 3, 4], 2), Ok(Some(2)));
        assert_eq!(
            count(&[0, 0, 0, 2, 1, 2, 3], 2),
            Err(BodyFault::CountBeyondFrame)
        );
        assert_eq!(count(&[0, 0, 0, 1], 0), Err(BodyFault::CountBeyondFrame));
        assert_eq!(count(&[0xff; 4], 2), Ok(None));
    }
}
