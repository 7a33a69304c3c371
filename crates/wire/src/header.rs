//! Request headers, versions 1 and 2.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use crate::api::ApiKey;
use crate::error::{BodyFault, WireError};
use crate::reader::Reader;

/// The header of a request whose API is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    pub api_key: ApiKey,
    pub api_version: i16,
    /// Chosen by the client; the response carries it back.
    pub correlation_id: i32,
    /// A slice of the frame. Null and empty are both allowed.
    pub client_id: Option<StrBytes>,
}

/// The first eight bytes of a frame: they have the same place in every header version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderPrefix {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
}

impl HeaderPrefix {
    /// Bytes of the prefix.
    pub const BYTES: usize = 8;

    /// Reads the prefix; fails on a frame of fewer than eight bytes.
    pub fn parse(frame: &[u8]) -> Result<HeaderPrefix, WireError> {
        let mut reader = Reader::new(frame);
        let mut parse = || {
            Ok(HeaderPrefix {
                api_key: reader.i16()?,
                api_version: reader.i16()?,
                correlation_id: reader.i32()?,
            })
        };
        parse().map_err(|_: BodyFault| WireError::Header {
            what: "frame is shorter than a header",
        })
    }
}

impl RequestHeader {
    /// Reads the header at the start of `frame` and returns it with the bytes it took.
    ///
    /// Fails on an unknown key, and on anything that does not fit the frame. It does not ask
    /// whether the version is served, only which header that version has.
    pub fn parse(frame: &Bytes) -> Result<(RequestHeader, usize), WireError> {
        let prefix = HeaderPrefix::parse(frame)?;
        let api_key = ApiKey::from_code(prefix.api_key).ok_or(WireError::UnknownApiKey {
            api_key: prefix.api_key,
        })?;
        let mut reader = Reader::new(frame);
        let header_fault = |what| move |_: BodyFault| WireError::Header { what };
        reader
            .take(HeaderPrefix::BYTES)
            .map_err(header_fault("frame is shorter than a header"))?;

        // The client id keeps its 2-byte length in header v2, so that a broker can read it before
        // it knows the version.
        let client_id = match reader
            .string_length(false)
            .map_err(header_fault("client id does not fit the frame"))?
        {
            None => None,
            Some(length) => {
                let start = reader.position();
                reader
                    .take(length)
                    .map_err(header_fault("client id does not fit the frame"))?;
                let text = StrBytes::from_utf8(frame.slice(start..start + length));
                Some(text.map_err(|_| WireError::Header {
                    what: "client id is not UTF-8",
                })?)
            }
        };
        if api_key.request_header_version(prefix.api_version) >= 2 {
            reader
                .skip_tagged_fields()
                .map_err(header_fault("tagged fields do not fit the frame"))?;
        }
        let header = RequestHeader {
            api_key,
            api_version: prefix.api_version,
            correlation_id: prefix.correlation_id,
            client_id,
        };
        Ok((header, reader.position()))
    }
}
