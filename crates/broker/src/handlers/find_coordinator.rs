//! FindCoordinator (10), v0-v6: who coordinates a group or a transactional id. On one broker: we do.
//!
//! v1 transactional ids and an error message; v3 flexible; v4 several keys (KIP-699); v5
//! TRANSACTION_ABORTABLE (never needed); v6 share groups, which are refused as a Kafka refuses them
//! that has none. The internal topics exist from the first start, so the answer never waits for
//! them. An empty key is answered like any other, as Kafka does. Describe on the group or the
//! transactional id.

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use tidemark_authorizer::Operation;
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, text};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// What Kafka says with INVALID_REQUEST where nothing better is known.
const MALFORMED: &str = "This most likely occurs because of a request being malformed by the client \
                         library or the message was sent to an incompatible broker. See the broker \
                         logs for more details.";

pub(crate) fn handle(cx: &Cx, request: &FindCoordinatorRequest) -> Pending {
    let rights = cx.rights();
    let share_is_refused = request.key_type == SHARE
        && cx.version() >= 6
        && !rights.may(Operation::ClusterAction, Resource::Cluster);
    let find = |key: &str| {
        let (resource, forbidden) = match request.key_type {
            GROUP => (Resource::Group(key), ErrorCode::GroupAuthorizationFailed),
            TRANSACTION => (
                Resource::TransactionalId(key),
                ErrorCode::TransactionalIdAuthorizationFailed,
            ),
            _ if share_is_refused => return ErrorCode::ClusterAuthorizationFailed,
            _ => return ErrorCode::InvalidRequest,
        };
        match rights.may(Operation::Describe, resource) {
            true => ErrorCode::None,
            false => forbidden,
        }
    };
    let here = |error| match error {
        ErrorCode::None => {
            let (host, port) = cx.advertised();
            (BrokerId(cx.shared.node_id().0), text(&host), port)
        }
        _ => (BrokerId(-1), text(""), -1),
    };
    if cx.version() >= 4 {
        let keys = request.coordinator_keys.iter();
        let coordinators = keys
            .map(|key| {
                let error = find(key);
                let (node, host, port) = here(error);
                // A type that exists and is not served is refused key by key, without words.
                let message = match (error, request.key_type) {
                    (ErrorCode::InvalidRequest, SHARE) => "",
                    (ErrorCode::InvalidRequest, _) => MALFORMED,
                    _ => "",
                };
                Coordinator::default()
                    .with_key(key.clone())
                    .with_node_id(node)
                    .with_host(host)
                    .with_port(port)
                    .with_error_code(error.code())
                    .with_error_message(Some(text(message)))
            })
            .collect();
        let response = FindCoordinatorResponse::default().with_coordinators(coordinators);
        return Pending::Ready(cx.answer(&response));
    }
    let error = find(&request.key);
    let (node, host, port) = here(error);
    let response = FindCoordinatorResponse::default()
        .with_error_code(error.code())
        .with_node_id(node)
        .with_host(host)
        .with_port(port);
    Pending::Ready(cx.answer(&match cx.version() {
        0 => response,
        _ => response.with_error_message(Some(text(match error {
            ErrorCode::None => "NONE",
            ErrorCode::InvalidRequest => MALFORMED,
            ErrorCode::GroupAuthorizationFailed => "Group authorization failed.",
            _ => "Transactional Id authorization failed.",
        }))),
    }))
}
