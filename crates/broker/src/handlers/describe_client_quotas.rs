//! DescribeClientQuotas (48), v0-v1: the quotas of users, client ids and addresses (KIP-546, KIP-612).
//! v1 is flexible. There are none, so that a filter that Kafka takes matches nothing; one that Kafka
//! refuses is refused. DescribeConfigs on the cluster.

use std::collections::BTreeSet;

use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use tidemark_authorizer::Operation;
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, text};

/// Whom a quota can be for. Of these a user and a client id go together, an address stands alone.
pub(super) const USER: &str = "user";
pub(super) const CLIENT_ID: &str = "client-id";
pub(super) const IP: &str = "ip";

/// How a name is compared: with the one given, with "everyone else", or not at all.
const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

pub(crate) fn handle(cx: &Cx, request: &DescribeClientQuotasRequest) -> Pending {
    let judged = match cx.may(Operation::DescribeConfigs, Resource::Cluster) {
        true => judge(&request.components),
        false => Err((
            ErrorCode::ClusterAuthorizationFailed,
            "Cluster authorization failed.".to_owned(),
        )),
    };
    let answer = DescribeClientQuotasResponse::default();
    Pending::Ready(
        cx.answer(&match judged {
            Ok(()) => answer
                .with_error_message(None)
                .with_entries(Some(Vec::new())),
            Err((code, why)) => answer
                .with_error_code(code.code())
                .with_error_message(Some(text(&why)))
                .with_entries(None),
        }),
    )
}

/// Whether the filter can be asked, by Kafka's rules and in their order.
fn judge(components: &[ComponentData]) -> Result<(), (ErrorCode, String)> {
    let invalid = |why: String| Err((ErrorCode::InvalidRequest, why));
    let mut kinds: BTreeSet<&str> = BTreeSet::new();
    for component in components {
        let kind = &*component.entity_type;
        if kind.is_empty() {
            return invalid("Invalid empty entity type.".to_owned());
        }
        if kinds.contains(kind) {
            return invalid(format!(
                "Entity type {kind} cannot appear more than once in the filter."
            ));
        }
        if ![USER, CLIENT_ID, IP].contains(&kind) {
            let why = format!("Unsupported entity type {kind}");
            return Err((ErrorCode::UnsupportedVersion, why));
        }
        match (component.match_type, &component._match) {
            (EXACT, Some(_)) | (DEFAULT | ANY, None) => (),
            (EXACT, None) => {
                return invalid(format!("No name is given to compare the {kind} with."));
            }
            (DEFAULT | ANY, Some(name)) => {
                return invalid(format!(
                    "A name is given ({name}) where none of the {kind} is to be compared."
                ));
            }
            (unknown, _) => return invalid(format!("Unknown match type {unknown}")),
        }
        kinds.insert(kind);
    }
    if kinds.contains(IP) && kinds.len() > 1 {
        return invalid("A filter for an ip cannot have one for user or client-id.".to_owned());
    }
    Ok(())
}
