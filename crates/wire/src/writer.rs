//! Writing of lengths and counts in both forms, plain and compact.

use bytes::BufMut;

pub(crate) fn put_unsigned_varint(out: &mut impl BufMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// A compact length or count: `n + 1`, so that 0 is null.
///
/// Fails when it does not fit the wire.
pub(crate) fn put_compact(out: &mut impl BufMut, n: usize) -> Result<(), OutOfRange> {
    let n = i32::try_from(n).map_err(|_| OutOfRange)?;
    put_unsigned_varint(out, n.unsigned_abs() + 1);
    Ok(())
}

/// The count of an array or the length of bytes.
pub(crate) fn put_count(out: &mut impl BufMut, flexible: bool, n: usize) -> Result<(), OutOfRange> {
    if flexible {
        return put_compact(out, n);
    }
    out.put_i32(i32::try_from(n).map_err(|_| OutOfRange)?);
    Ok(())
}

/// The count of an array that is null.
pub(crate) fn put_null_count(out: &mut impl BufMut, flexible: bool) {
    match flexible {
        true => out.put_u8(0),
        false => out.put_i32(-1),
    }
}

pub(crate) fn put_string(
    out: &mut impl BufMut,
    flexible: bool,
    text: &str,
) -> Result<(), OutOfRange> {
    match flexible {
        true => put_compact(out, text.len())?,
        false => out.put_i16(i16::try_from(text.len()).map_err(|_| OutOfRange)?),
    }
    out.put_slice(text.as_bytes());
    Ok(())
}

/// A length that the wire cannot carry.
#[derive(Debug)]
pub(crate) struct OutOfRange;
