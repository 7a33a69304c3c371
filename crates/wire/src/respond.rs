//! From a typed response to the bytes of a frame.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ResponseKind;
use kafka_protocol::protocol::Encodable;

use crate::api::ApiKey;
use crate::error::WireError;

/// Encodes a whole response frame: size, header, body.
///
/// `body` is the API's response message. Fails if a field is set that `api_version` lacks, which
/// is a bug of the handler.
pub fn encode_response<T: Encodable>(
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    body: &T,
) -> Result<Bytes, WireError> {
    let refused = encode_error(api_key, api_version);
    let body_bytes = body.compute_size(api_version).map_err(|_| refused)?;
    let mut frame = start_frame(api_key, api_version, correlation_id, body_bytes)?;
    body.encode(&mut frame, api_version).map_err(|_| refused)?;
    finish_frame(frame, api_key, api_version)
}

/// As [`encode_response`], for a response whose type is known at run time only.
pub fn encode_response_kind(
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    body: &ResponseKind,
) -> Result<Bytes, WireError> {
    let mut frame = start_frame(api_key, api_version, correlation_id, 256)?;
    body.encode(&mut frame, api_version)
        .map_err(|_| encode_error(api_key, api_version))?;
    finish_frame(frame, api_key, api_version)
}

fn encode_error(api_key: ApiKey, api_version: i16) -> WireError {
    WireError::Encode {
        api_key,
        api_version,
    }
}

/// A buffer with a place for the size, and the response header.
fn start_frame(
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    body_bytes: usize,
) -> Result<BytesMut, WireError> {
    let mut frame = BytesMut::with_capacity(4 + 5 + body_bytes);
    frame.put_i32(0);
    put_response_header(&mut frame, api_key, api_version, correlation_id);
    Ok(frame)
}

pub(crate) fn put_response_header(
    frame: &mut impl BufMut,
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
) {
    frame.put_i32(correlation_id);
    if api_key.response_header_version(api_version) >= 1 {
        // No tagged fields.
        frame.put_u8(0);
    }
}

fn finish_frame(
    mut frame: BytesMut,
    api_key: ApiKey,
    api_version: i16,
) -> Result<Bytes, WireError> {
    let size = i32::try_from(frame.len() - 4).map_err(|_| encode_error(api_key, api_version))?;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    Ok(frame.freeze())
}
