//! The ApiVersions response (key 18), versions 0 to 4, from the table.
//!
//! v1 throttle time, v3 compact and features (KIP-482, KIP-584), v4 may tell features whose
//! smallest level is 0.

use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_protocol::protocol::StrBytes;
use tidemark_types::ErrorCode;

use crate::api::{ApiKey, ApiTable};

/// A feature of the cluster, such as `transaction.version`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    pub name: &'static str,
    pub min_level: i16,
    pub max_level: i16,
    /// The level in force; 0 is told as "not finalized", as Kafka does.
    pub finalized_level: i16,
}

/// The answer to an ApiVersions request: every advertised API, and the features.
///
/// Below v3 features do not exist. Below v4 a supported feature whose smallest level is 0 is left
/// out, because older Java clients cannot parse it (KAFKA-17492); what is finalized is told.
/// `finalized_features_epoch` grows with every change of a finalized level.
pub fn api_versions_response(
    api_version: i16,
    error_code: ErrorCode,
    features: &[Feature],
    finalized_features_epoch: i64,
) -> ApiVersionsResponse {
    let api_keys = ApiTable::served_apis()
        .map(|(api, served)| {
            ApiVersion::default()
                .with_api_key(api.key.code())
                .with_min_version(served.min_advertised)
                .with_max_version(served.versions.max)
        })
        .collect();
    let response = ApiVersionsResponse::default()
        .with_error_code(error_code.code())
        .with_api_keys(api_keys);
    if api_version < 3 {
        return response;
    }
    let supported = features
        .iter()
        .filter(|feature| api_version >= 4 || feature.min_level > 0)
        .map(|feature| {
            SupportedFeatureKey::default()
                .with_name(StrBytes::from_static_str(feature.name))
                .with_min_version(feature.min_level)
                .with_max_version(feature.max_level)
        });
    let finalized = features
        .iter()
        .filter(|feature| feature.finalized_level > 0)
        .map(|feature| {
            FinalizedFeatureKey::default()
                .with_name(StrBytes::from_static_str(feature.name))
                .with_min_version_level(feature.finalized_level)
                .with_max_version_level(feature.finalized_level)
        });
    response
        .with_supported_features(supported.collect())
        .with_finalized_features(finalized.collect())
        .with_finalized_features_epoch(finalized_features_epoch)
}

/// The answer to an ApiVersions request whose version is not served: error 35 and the range of
/// ApiVersions itself, to be encoded at version 0, from which every client can go on (KIP-511).
pub fn unsupported_version() -> ApiVersionsResponse {
    let mut response = api_versions_response(0, ErrorCode::UnsupportedVersion, &[], -1);
    response
        .api_keys
        .retain(|api| api.api_key == ApiKey::ApiVersions.code());
    response
}
