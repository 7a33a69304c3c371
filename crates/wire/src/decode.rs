//! From a frame to a typed request.

use bytes::Bytes;
use kafka_protocol::messages::RequestKind;

use crate::api::ApiKey;
use crate::bounds;
use crate::error::WireError;
use crate::header::{HeaderPrefix, RequestHeader};

/// What a connection may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Only ApiVersions, SaslHandshake and SaslAuthenticate.
    PreAuth,
    /// Everything that is served.
    Open,
}

/// A request, decoded. Byte fields and strings are slices of the frame.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    pub header: RequestHeader,
    pub body: RequestKind,
}

/// A frame that was understood.
// Handled where it is made, one at a time: a box per request would buy nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, Debug)]
pub enum Decoded {
    Request(Request),
    /// ApiVersions at a version that is not served. Unlike any other unknown version this is
    /// answered: `api_versions::unsupported_version` at version 0 with our ranges, from which the
    /// client chooses one (KIP-511).
    UnsupportedApiVersions {
        correlation_id: i32,
    },
}

/// A frame whose header was read and whose version is served, body still closed.
#[derive(Clone, PartialEq, Debug)]
pub enum Opened {
    /// `body` is a slice of the frame, not yet looked at.
    Request { header: RequestHeader, body: Bytes },
    /// As [`Decoded::UnsupportedApiVersions`].
    UnsupportedApiVersions { correlation_id: i32 },
}

/// Decodes one frame (without its size).
///
/// Every error means: close the connection. Trailing bytes after the body are accepted, as some
/// clients send them.
pub fn decode_request(frame: Bytes, stage: Stage) -> Result<Decoded, WireError> {
    match open_frame(frame, stage)? {
        Opened::Request { header, body } => {
            let body = decode_body(&header, body)?;
            Ok(Decoded::Request(Request { header, body }))
        }
        Opened::UnsupportedApiVersions { correlation_id } => {
            Ok(Decoded::UnsupportedApiVersions { correlation_id })
        }
    }
}

/// Reads the header of one frame and asks the API table whether the request is served at this
/// stage. Use it with [`decode_body`] or [`crate::decode_produce_request`].
pub fn open_frame(frame: Bytes, stage: Stage) -> Result<Opened, WireError> {
    let prefix = HeaderPrefix::parse(&frame)?;
    let api_key = ApiKey::from_code(prefix.api_key).ok_or(WireError::UnknownApiKey {
        api_key: prefix.api_key,
    })?;
    let api_version = prefix.api_version;
    if !api_key.is_served(api_version) {
        if api_key == ApiKey::ApiVersions {
            // Nothing after the prefix can be trusted to have a known shape.
            return Ok(Opened::UnsupportedApiVersions {
                correlation_id: prefix.correlation_id,
            });
        }
        return Err(WireError::UnsupportedVersion {
            api_key,
            api_version,
        });
    }
    if stage == Stage::PreAuth && !api_key.api().allowed_before_auth {
        return Err(WireError::BeforeAuthentication {
            api_key,
            api_version,
        });
    }
    let (header, header_bytes) = RequestHeader::parse(&frame)?;
    let body = frame.slice(header_bytes..);
    Ok(Opened::Request { header, body })
}

/// Checks a body against its schema and decodes it, for any version in [`crate::api::Api::decodes`].
pub fn decode_body(header: &RequestHeader, body: Bytes) -> Result<RequestKind, WireError> {
    let (api_key, api_version) = (header.api_key, header.api_version);
    bounds::check_request(api_key, api_version, &body)?;
    let refused = WireError::Decode {
        api_key,
        api_version,
    };
    let codec_key = kafka_protocol::messages::ApiKey::try_from(api_key.code());
    let mut body = body;
    RequestKind::decode(codec_key.map_err(|()| refused)?, &mut body, api_version)
        .map_err(|_| refused)
}
