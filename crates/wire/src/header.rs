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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<(RequestHeader, usize), WireError> {
        RequestHeader::parse(&Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn client_id_may_be_null_or_empty() {
        // Metadata v1, header v1.
        let (header, length) = parse(&[0, 3, 0, 1, 0, 0, 0, 9, 0xff, 0xff, 7]).unwrap();
        assert_eq!(header.api_key, ApiKey::Metadata);
        assert_eq!(header.api_version, 1);
        assert_eq!(header.correlation_id, 9);
        assert_eq!(header.client_id, None);
        assert_eq!(length, 10);
        let (header, length) = parse(&[0, 3, 0, 1, 0, 0, 0, 9, 0, 0]).unwrap();
        assert_eq!(header.client_id.as_deref(), Some(""));
        assert_eq!(length, 10);
    }

    #[test]
    fn header_v2_has_a_plain_client_id_and_tagged_fields_that_are_skipped() {
        // Metadata v9: client id "me", two tagged fields.
        let bytes = [
            0, 3, 0, 9, 0, 0, 0, 1, 0, 2, b'm', b'e', 2, 0, 1, 5, 7, 0, 99,
        ];
        let (header, length) = parse(&bytes).unwrap();
        assert_eq!(header.client_id.as_deref(), Some("me"));
        assert_eq!(length, 18);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let v1 = |rest: &[u8]| parse(&[&[0, 3, 0, 1, 0, 0, 0, 9], rest].concat());
        let v2 = |rest: &[u8]| parse(&[&[0, 3, 0, 9, 0, 0, 0, 9], rest].concat());
        let header = |what| Err(WireError::Header { what });
        assert_eq!(v1(&[]), header("client id does not fit the frame"));
        assert_eq!(
            v1(&[0, 3, b'a']),
            header("client id does not fit the frame")
        );
        assert_eq!(
            v1(&[0xff, 0xfe]),
            header("client id does not fit the frame")
        );
        assert_eq!(v1(&[0, 1, 0xff]), header("client id is not UTF-8"));
        let tagged = "tagged fields do not fit the frame";
        assert_eq!(v2(&[0xff, 0xff]), header(tagged));
        assert_eq!(
            v2(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]),
            header(tagged)
        );
        assert_eq!(v2(&[0xff, 0xff, 1, 0, 9, 1]), header(tagged));
        assert_eq!(
            parse(&[0, 4, 0, 0, 0, 0, 0, 9, 0xff, 0xff]),
            Err(WireError::UnknownApiKey { api_key: 4 })
        );
    }
}
