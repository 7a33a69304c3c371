//! The one error of this crate: small, `Copy`, without a backtrace or an allocation, because a
//! hostile client can cause one per frame.

use std::error::Error;
use std::fmt;

use crate::api::ApiKey;

/// What was wrong with a frame, or with a response that could not be written.
///
/// Every variant but `Encode` is caused by the client and had no effect: the connection is closed
/// without an answer, as Kafka does for an `InvalidRequestException` in the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// The 4-byte size is negative, below a request header, or above the limit of the connection.
    FrameSize { size_bytes: i32, max_bytes: usize },
    /// The request header does not fit the frame, or its client id is not UTF-8.
    Header { what: &'static str },
    /// No API has this key, or it is one that Tidemark never serves.
    UnknownApiKey { api_key: i16 },
    /// The API is known; this version of it is not served.
    UnsupportedVersion { api_key: ApiKey, api_version: i16 },
    /// The API is served, but not to a client that has not authenticated.
    BeforeAuthentication { api_key: ApiKey, api_version: i16 },
    /// The body does not fit its schema, or claims more than the frame holds.
    Body {
        api_key: ApiKey,
        api_version: i16,
        /// The schema's name of the field where the walk ended.
        field: &'static str,
        fault: BodyFault,
    },
    /// The codec refused a body that fits its schema.
    Decode { api_key: ApiKey, api_version: i16 },
    /// Our response cannot be written at this version: a field is set that the version lacks, or a
    /// length is out of range. A bug of the caller, not of the client.
    Encode { api_key: ApiKey, api_version: i16 },
}

/// Why a body does not fit its schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyFault {
    /// The body ends within the field.
    Truncated,
    /// A length is larger than the bytes left.
    LengthBeyondFrame,
    /// A count is larger than the bytes left could hold elements.
    CountBeyondFrame,
    /// A negative length or count that is not "null".
    NegativeLength,
    /// Null where the schema has none.
    UnexpectedNull,
    /// A varint of more than 32 bits.
    OverlongVarint,
    /// A string that is not UTF-8.
    NotUtf8,
    /// More elements than one request may have, [`crate::bounds::MAX_ELEMENTS`].
    TooManyElements,
    /// A known tagged field whose size is not the size of its content, or that the version lacks.
    InvalidTaggedField,
}

impl BodyFault {
    fn text(self) -> &'static str {
        match self {
            BodyFault::Truncated => "ends early",
            BodyFault::LengthBeyondFrame => "length is larger than the bytes left",
            BodyFault::CountBeyondFrame => "count is larger than the bytes left can hold",
            BodyFault::NegativeLength => "length is negative",
            BodyFault::UnexpectedNull => "is null",
            BodyFault::OverlongVarint => "varint has more than 32 bits",
            BodyFault::NotUtf8 => "is not UTF-8",
            BodyFault::TooManyElements => "request has too many elements",
            BodyFault::InvalidTaggedField => "tagged field is invalid",
        }
    }
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WireError::FrameSize {
                size_bytes,
                max_bytes,
            } => write!(
                f,
                "frame size {size_bytes} is not between {} and {max_bytes} bytes",
                crate::frame::MIN_FRAME_BYTES
            ),
            WireError::Header { what } => write!(f, "request header: {what}"),
            WireError::UnknownApiKey { api_key } => write!(f, "unknown API key {api_key}"),
            WireError::UnsupportedVersion {
                api_key,
                api_version,
            } => write!(f, "{api_key} v{api_version} is not served"),
            WireError::BeforeAuthentication {
                api_key,
                api_version,
            } => write!(f, "{api_key} v{api_version} before authentication"),
            WireError::Body {
                api_key,
                api_version,
                field,
                fault,
            } => write!(f, "{api_key} v{api_version} request: {field}: {fault}"),
            WireError::Decode {
                api_key,
                api_version,
            } => write!(f, "{api_key} v{api_version} request cannot be decoded"),
            WireError::Encode {
                api_key,
                api_version,
            } => write!(f, "{api_key} v{api_version} response cannot be encoded"),
        }
    }
}

impl Error for WireError {}
