//! Frames, headers, the API table and bounds-checked decoding: everything between a socket's bytes
//! and a typed request, and back.
//!
//! Pure: bytes in, bytes out. A connection loop is
//!
//! 1. read into [`FrameSplitter::read_buffer`], then take frames with [`FrameSplitter::next_frame`];
//! 2. [`decode_request`] gives a [`Request`], or says what else to do ([`Decoded`]);
//! 3. answer with [`encode_response`], or [`FetchResponse::encode`] for records that are not copied.
//!
//! An error from any step that reads means: close the connection, there is nothing to answer.
//!
//! Nothing here is sized by the wire. The message codec (crate `kafka-protocol`) reserves memory
//! from claimed counts, so no body reaches it before [`bounds::check_request`] has walked it.

pub mod api;
pub mod api_versions;
pub mod bounds;
pub mod decode;
mod error;
pub mod fetch_response;
pub mod frame;
pub mod header;
pub mod produce_request;
mod reader;
pub mod respond;
pub mod schema;
mod writer;

pub use api::{ApiKey, ApiTable};
pub use decode::{Decoded, Opened, Request, Stage, decode_body, decode_request, open_frame};
pub use error::{BodyFault, WireError};
pub use fetch_response::{AbortedTransaction, FetchPartition, FetchResponse, FetchTopic};
pub use frame::FrameSplitter;
pub use header::RequestHeader;
pub use produce_request::{ProducePartition, ProduceRequest, ProduceTopic, decode_produce_request};
pub use respond::{encode_response, encode_response_kind};
