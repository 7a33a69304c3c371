//! FindCoordinator (10), v0-v6: who coordinates a group or a transactional id. On one broker: we do.
//!
//! v1 transactional ids and an error message; v3 flexible; v4 several keys (KIP-699); v5
//! TRANSACTION_ABORTABLE (never needed); v6 share groups, which are refused as a Kafka refuses them
//! that has none. The internal topics exist from the first start, so the answer never waits for
//! them. An empty key is answered like any other, as Kafka does.

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use tidemark_types::ErrorCode;

use super::{Cx, Pending, text};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// What Kafka says with INVALID_REQUEST where nothing better is known.
const MALFORMED: &str = "This most likely occurs because of a request being malformed by the client \
                         library or the message was sent to an incompatible broker. See the broker \
                         logs for more details.";

pub(crate) fn handle(cx: &Cx, request: &FindCoordinatorRequest) -> Pending {
    let error = match request.key_type {
        GROUP | TRANSACTION => ErrorCode::None,
        _ => ErrorCode::InvalidRequest,
    };
    let (node, host, port) = match error {
        ErrorCode::None => {
            let (host, port) = cx.advertised();
            (BrokerId(cx.shared.node_id().0), text(&host), port)
        }
        _ => (BrokerId(-1), text(""), -1),
    };
    if cx.version() >= 4 {
        // A type that exists and is not served is refused key by key, without words.
        let message = match (error, request.key_type) {
            (ErrorCode::None, _) | (_, SHARE) => "",
            _ => MALFORMED,
        };
        let keys = request.coordinator_keys.iter();
        let coordinators = keys
            .map(|key| {
                Coordinator::default()
                    .with_key(key.clone())
                    .with_node_id(node)
                    .with_host(host.clone())
                    .with_port(port)
                    .with_error_code(error.code())
                    .with_error_message(Some(text(message)))
            })
            .collect();
        let response = FindCoordinatorResponse::default().with_coordinators(coordinators);
        return Pending::Ready(cx.answer(&response));
    }
    let response = FindCoordinatorResponse::default()
        .with_error_code(error.code())
        .with_node_id(node)
        .with_host(host)
        .with_port(port);
    Pending::Ready(cx.answer(&match cx.version() {
        0 => response,
        _ => response.with_error_message(Some(text(match error {
            ErrorCode::None => "NONE",
            _ => MALFORMED,
        }))),
    }))
}
