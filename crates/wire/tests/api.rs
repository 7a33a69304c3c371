//! The API table against the codec's own constants.

use kafka_protocol::messages::*;
use kafka_protocol::protocol::{HeaderVersion, Message, Request, VersionRange};
use tidemark_wire::{ApiKey, ApiTable};

/// The codec's view of one API.
struct Codec {
    key: i16,
    request: VersionRange,
    response: VersionRange,
    request_header: fn(i16) -> i16,
    response_header: fn(i16) -> i16,
}

fn codec_of<R: Request>() -> Codec {
    Codec {
        key: R::KEY,
        request: R::VERSIONS,
        response: <R::Response as Message>::VERSIONS,
        request_header: R::header_version,
        response_header: <R::Response as HeaderVersion>::header_version,
    }
}

fn codec() -> Vec<Codec> {
    macro_rules! apis {
        ($($request:ident)*) => { vec![$(codec_of::<$request>(),)*] };
    }
    apis![
        ProduceRequest FetchRequest ListOffsetsRequest MetadataRequest OffsetCommitRequest
        OffsetFetchRequest FindCoordinatorRequest JoinGroupRequest HeartbeatRequest
        LeaveGroupRequest SyncGroupRequest DescribeGroupsRequest ListGroupsRequest
        SaslHandshakeRequest ApiVersionsRequest CreateTopicsRequest DeleteTopicsRequest
        DeleteRecordsRequest InitProducerIdRequest OffsetForLeaderEpochRequest
        AddPartitionsToTxnRequest AddOffsetsToTxnRequest EndTxnRequest WriteTxnMarkersRequest
        TxnOffsetCommitRequest DescribeAclsRequest CreateAclsRequest DeleteAclsRequest
        DescribeConfigsRequest AlterConfigsRequest DescribeLogDirsRequest SaslAuthenticateRequest
        CreatePartitionsRequest DeleteGroupsRequest IncrementalAlterConfigsRequest
        OffsetDeleteRequest DescribeClientQuotasRequest AlterClientQuotasRequest
        DescribeUserScramCredentialsRequest AlterUserScramCredentialsRequest
        DescribeClusterRequest DescribeProducersRequest
        DescribeTransactionsRequest ListTransactionsRequest
    ]
}

#[test]
fn the_table_decodes_what_the_codec_decodes_in_both_directions() {
    let codec = codec();
    let keys: Vec<i16> = ApiTable::all().map(|api| api.key.code()).collect();
    assert_eq!(keys, codec.iter().map(|api| api.key).collect::<Vec<_>>());
    for (api, codec) in ApiTable::all().zip(&codec) {
        let decodes = VersionRange {
            min: api.decodes.min,
            max: api.decodes.max,
        };
        // Not ApiKey::valid_versions: for three APIs that is one version more than can be decoded.
        assert_eq!(
            decodes,
            codec.request.intersect(&codec.response),
            "{}",
            api.name
        );
    }
}

#[test]
fn header_versions_are_the_codecs() {
    for (api, codec) in ApiTable::all().zip(codec()) {
        for version in api.decodes.iter() {
            let key = api.key;
            let at = format!("{key} v{version}");
            assert_eq!(
                key.request_header_version(version),
                (codec.request_header)(version),
                "{at}"
            );
            assert_eq!(
                key.response_header_version(version),
                (codec.response_header)(version),
                "{at}"
            );
        }
    }
}

#[test]
fn what_is_served_can_be_decoded_and_is_advertised() {
    for (api, served) in ApiTable::served_apis() {
        assert!(served.versions.min <= served.versions.max, "{}", api.name);
        for version in served.versions.iter() {
            assert!(api.decodes.contains(version), "{} v{version}", api.name);
            assert!(api.key.is_served(version));
            assert!(api.key.is_advertised(version));
        }
        assert!(!api.key.is_served(served.versions.max + 1));
        assert!(!api.key.is_advertised(served.versions.max + 1));
        // Only Produce tells of versions that it refuses (KAFKA-18659).
        assert_eq!(
            served.min_advertised < served.versions.min,
            api.key == ApiKey::Produce,
            "{}",
            api.name
        );
    }
}

#[test]
fn produce_is_advertised_from_0_and_served_from_3() {
    for version in 0..3 {
        assert!(ApiKey::Produce.is_advertised(version));
        assert!(!ApiKey::Produce.is_served(version));
    }
    assert!(ApiKey::Produce.is_served(3));
}

#[test]
fn the_codecs_unstable_versions_are_out_of_reach() {
    for (key, unstable) in [
        (ApiKey::OffsetCommit, 10),
        (ApiKey::OffsetFetch, 10),
        (ApiKey::InitProducerId, 6),
    ] {
        assert!(!key.api().decodes.contains(unstable), "{key}");
        assert!(!key.is_advertised(unstable), "{key}");
    }
}

#[test]
fn only_three_apis_are_open_before_authentication() {
    let open: Vec<_> = ApiTable::all()
        .filter(|api| api.allowed_before_auth)
        .map(|api| api.key)
        .collect();
    let want = [
        ApiKey::SaslHandshake,
        ApiKey::ApiVersions,
        ApiKey::SaslAuthenticate,
    ];
    assert_eq!(open, want);
}

#[test]
fn a_code_leads_to_its_key_and_back() {
    for api in ApiTable::all() {
        assert_eq!(ApiKey::from_code(api.key.code()), Some(api.key));
    }
    for unknown in [-1, 4, 7, 88, i16::MAX] {
        assert_eq!(ApiKey::from_code(unknown), None);
    }
}
