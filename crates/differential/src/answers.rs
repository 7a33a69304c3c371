//! Answers decoded into trees.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Decodable;

use crate::records;
use crate::tree::Tree;

macro_rules! responses {
    ($($key:literal => $response:ident,)*) => {
        fn debug(key: i16, version: i16, body: &mut Bytes) -> Result<String> {
            Ok(match key {
                $($key => format!("{:?}", $response::decode(body, version)?),)*
                _ => bail!("no response of API {key} is known here"),
            })
        }
    };
}

responses! {
    0 => ProduceResponse,
    1 => FetchResponse,
    2 => ListOffsetsResponse,
    3 => MetadataResponse,
    8 => OffsetCommitResponse,
    9 => OffsetFetchResponse,
    10 => FindCoordinatorResponse,
    11 => JoinGroupResponse,
    12 => HeartbeatResponse,
    13 => LeaveGroupResponse,
    14 => SyncGroupResponse,
    15 => DescribeGroupsResponse,
    16 => ListGroupsResponse,
    17 => SaslHandshakeResponse,
    18 => ApiVersionsResponse,
    19 => CreateTopicsResponse,
    20 => DeleteTopicsResponse,
    21 => DeleteRecordsResponse,
    22 => InitProducerIdResponse,
    23 => OffsetForLeaderEpochResponse,
    24 => AddPartitionsToTxnResponse,
    25 => AddOffsetsToTxnResponse,
    26 => EndTxnResponse,
    27 => WriteTxnMarkersResponse,
    28 => TxnOffsetCommitResponse,
    32 => DescribeConfigsResponse,
    37 => CreatePartitionsResponse,
    42 => DeleteGroupsResponse,
    44 => IncrementalAlterConfigsResponse,
    47 => OffsetDeleteResponse,
    50 => DescribeUserScramCredentialsResponse,
    51 => AlterUserScramCredentialsResponse,
    60 => DescribeClusterResponse,
    61 => DescribeProducersResponse,
    65 => DescribeTransactionsResponse,
    66 => ListTransactionsResponse,
}

/// A response's frame, without its size, as a tree.
///
/// # Errors
/// When it does not decode to its last byte.
pub fn decode(key: i16, version: i16, mut frame: Bytes) -> Result<Tree> {
    let api = ApiKey::try_from(key).ok().context("an unknown API")?;
    let whole = frame.clone();
    ResponseHeader::decode(&mut frame, api.response_header_version(version))?;
    if api == ApiKey::ApiVersions {
        // A version that the broker does not know is answered at v0 (KIP-511).
        let unknown = frame.starts_with(&35_i16.to_be_bytes());
        let version = if unknown { 0 } else { version };
        return finish(debug(key, version, &mut frame)?, &frame);
    }
    let text = debug(key, version, &mut frame).with_context(|| format!("bytes {whole:?}"))?;
    finish(text, &frame)
}

fn finish(text: String, left: &Bytes) -> Result<Tree> {
    ensure!(left.is_empty(), "{} bytes left over", left.len());
    let mut tree = Tree::parse(&text)?;
    records::expand(&mut tree);
    Ok(tree)
}
