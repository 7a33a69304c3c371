//! ApiVersions (18), v0-v4: which APIs and versions are served (KIP-35, KIP-511), which features are
//! in force (KIP-584).
//!
//! v3 brings the client's software name and version, checked as Kafka checks them. Answered without
//! any state, so also while the broker replays its journal.

use bytes::Bytes;
use kafka_protocol::messages::{ApiVersionsResponse, RequestKind};
use tidemark_types::ErrorCode;
use tidemark_wire::api_versions::{Feature, api_versions_response};
use tidemark_wire::{RequestHeader, WireError, decode_body, encode_response};

use super::{Outcome, Pending};

/// The features of KIP-584, as of a Kafka 4.1. A feature that is not here is not served: clients then
/// do without it (`group.version`: KIP-848's consumer groups; `share.version`: share groups).
const FEATURES: &[Feature] = &[
    // Level 27 is 4.1-IV1. Tools guess from it which requests they may send.
    Feature {
        name: "metadata.version",
        min_level: 7,
        max_level: 27,
        finalized_level: 27,
    },
    // Level 2: clients that know it end each transaction with a new epoch and let Produce enrol
    // their partitions (KIP-890). Which way a client goes is its own choice, request by request.
    Feature {
        name: "transaction.version",
        min_level: 0,
        max_level: 2,
        finalized_level: 2,
    },
];

/// Rises with every release that finalizes other levels; the same on every broker. A negative one
/// would tell clients that nothing is finalized.
const FINALIZED_FEATURES_EPOCH: i64 = 1;

/// `warn` gets the version of a client that may harm its own data.
pub(crate) fn handle(
    header: &RequestHeader,
    body: Bytes,
    warn: impl FnOnce(&str),
) -> Result<Pending, WireError> {
    answer(header, body, warn).map(|(answer, _)| answer)
}

/// The answer, and whether it tells of the APIs.
pub(crate) fn answer(
    header: &RequestHeader,
    body: Bytes,
    warn: impl FnOnce(&str),
) -> Result<(Pending, bool), WireError> {
    let RequestKind::ApiVersions(request) = decode_body(header, body)? else {
        unreachable!("the header says ApiVersions");
    };
    let named = header.api_version < 3
        || (is_software_name(&request.client_software_name)
            && is_software_name(&request.client_software_version));
    if header.api_version >= 3
        && &*request.client_software_name == "apache-kafka-java"
        && mixes_batches_up(&request.client_software_version)
    {
        warn(&request.client_software_version);
    }
    let response = match named {
        true => api_versions_response(
            header.api_version,
            ErrorCode::None,
            FEATURES,
            FINALIZED_FEATURES_EPOCH,
        ),
        // Nothing but the error, as in Kafka: the client asks again without a name.
        false => ApiVersionsResponse::default().with_error_code(ErrorCode::InvalidRequest.code()),
    };
    let frame = encode_response(
        header.api_key,
        header.api_version,
        header.correlation_id,
        &response,
    )?;
    Ok((Pending::Ready(Outcome::Answer(vec![frame])), named))
}

/// CVE-2026-35554 (KAFKA-19012): a Java producer below 3.9.2, 4.0.2 or 4.1.2 may write a batch to
/// another topic than its records were sent to. In the batch there is nothing to see.
fn mixes_batches_up(version: &str) -> bool {
    let mut numbers = version
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let Some(major) = numbers.next() else {
        return false;
    };
    let rest = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match major {
        0..=2 => true,
        3 => rest < (9, 2),
        4 => matches!(rest, (0 | 1, 0 | 1)),
        _ => false,
    }
}

/// KIP-511: letters and digits, with dots and dashes inside.
fn is_software_name(name: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    name.chars()
        .all(|c| alphanumeric(c) || c == '.' || c == '-')
        && name.starts_with(alphanumeric)
        && name.ends_with(alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::{is_software_name, mixes_batches_up};

    #[test]
    fn software_names_are_checked_as_kafka_does() {
        for good in [
            "librdkafka",
            "apache-kafka-java",
            "2.15.0",
            "a",
            "v1.0-rc.2",
        ] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a.", "a b", "a_b", "é"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }

    #[test]
    fn cve_2026_35554_java_clients_that_may_mix_batches_up_are_warned_of() {
        for bad in [
            "2.8.1",
            "3.0",
            "3.7.2",
            "3.9.1",
            "4.0.0",
            "4.0.1",
            "4.1.0",
            "4.1.1-rc1",
        ] {
            assert!(mixes_batches_up(bad), "{bad}");
        }
        for good in [
            "3.9.2", "3.10.0", "4.0.2", "4.1.2", "4.2.0", "5.0.0", "", "new",
        ] {
            assert!(!mixes_batches_up(good), "{good}");
        }
    }
}
