use std::{fmt, io};

/// What is wrong with the bytes of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchError {
    /// Fewer bytes than the header, or than its length field says.
    Truncated,
    /// A batch length that cannot hold a header.
    Length(i32),
    /// A magic other than 2.
    Magic(i8),
    /// A codec id that is not Kafka's.
    Codec(i16),
    /// The compressed body cannot be decompressed.
    Decompress,
    /// The body decompresses to more than the limit; nothing beyond it was kept.
    DecompressedTooLarge,
    /// The record with this index (0 for the first) is malformed.
    Record { index: i32, what: &'static str },
    /// Bytes after the last record that the header counts.
    TrailingBytes,
    /// A control batch that is not one well-formed marker.
    Control(&'static str),
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchError::Truncated => f.write_str("the batch is cut short"),
            BatchError::Length(length) => write!(f, "a batch length of {length} holds no header"),
            BatchError::Magic(magic) => write!(f, "magic {magic} is not supported"),
            BatchError::Codec(id) => write!(f, "compression codec {id} is unknown"),
            BatchError::Decompress => f.write_str("the records cannot be decompressed"),
            BatchError::DecompressedTooLarge => {
                f.write_str("the records decompress to more than the limit")
            }
            BatchError::Record { index, what } => write!(f, "record {index}: {what}"),
            BatchError::TrailingBytes => f.write_str("bytes are left after the last record"),
            BatchError::Control(what) => write!(f, "control batch: {what}"),
        }
    }
}

impl std::error::Error for BatchError {}

impl From<io::Error> for BatchError {
    /// A decompressor reports through `io::Error`: the limit travels inside, and whatever else a
    /// codec says means that its bytes are broken.
    fn from(error: io::Error) -> BatchError {
        error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<BatchError>())
            .copied()
            .unwrap_or(BatchError::Decompress)
    }
}

impl From<BatchError> for io::Error {
    fn from(error: BatchError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}
