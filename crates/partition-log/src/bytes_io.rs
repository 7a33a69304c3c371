//! Reading fixed fields from untrusted bytes: every take is checked, nothing is sized by a count.

/// A cursor over bytes. Integers are big-endian, as everywhere in Kafka's files.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
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
}

/// CRC-32C, as in Kafka's batches.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of pieces that follow each other. Joining the CRCs of each would cost microseconds a piece.
pub(crate) fn crc32c_of<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    pieces.for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}

/// The CRC-32C of `a` followed by `b`, from that of each and the length of `b`.
pub(crate) fn crc32c_combine(a: u32, b: u32, b_len: u64) -> u32 {
    crc_fast::checksum_combine(
        crc_fast::CrcAlgorithm::Crc32Iscsi,
        u64::from(a),
        u64::from(b),
        b_len,
    ) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_castagnoli_and_combines() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let pieces = [&b"1234"[..], b"", b"56789"];
        assert_eq!(crc32c_of(pieces.into_iter()), crc32c(b"123456789"));
        assert_eq!(
            crc32c_combine(crc32c(b"1234"), crc32c(b"56789"), 5),
            0xe306_9283
        );
        assert_eq!(
            crc32c_combine(crc32c(b""), crc32c(b"56789"), 5),
            crc32c(b"56789")
        );
    }

    #[test]
    fn fields_stop_at_the_end() {
        let mut fields = Fields(&[0, 1, 2]);
        assert_eq!(fields.u16(), Some(1));
        assert_eq!(fields.u16(), None);
        assert_eq!(fields.u8(), Some(2));
        assert_eq!(fields.bytes(1), None);
    }
}
