//! FindCoordinator (10), v0-v2: who coordinates a group or a transactional id. On one broker: we do.
//!
//! v1 transactional ids and an error message. The internal topics exist from the first start, so
//! the answer never waits for them.

use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use tidemark_types::ErrorCode;

use super::{Cx, Pending, text};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

pub(crate) fn handle(cx: &Cx, request: &FindCoordinatorRequest) -> Pending {
    let error = match request.key_type {
        GROUP if request.key.is_empty() => ErrorCode::InvalidGroupId,
        TRANSACTION if request.key.is_empty() => ErrorCode::InvalidRequest,
        GROUP | TRANSACTION => ErrorCode::None,
        _ => ErrorCode::InvalidRequest,
    };
    let response = if error.is_err() {
        FindCoordinatorResponse::default()
            .with_error_code(error.code())
            .with_node_id(BrokerId(-1))
            .with_port(-1)
    } else {
        let (host, port) = cx.advertised();
        FindCoordinatorResponse::default()
            .with_node_id(BrokerId(cx.shared.node_id().0))
            .with_host(text(&host))
            .with_port(port)
    };
    Pending::Ready(cx.answer(&response))
}
