//! DeleteGroups (42), v0-v2: groups without members go, with their offsets.
//!
//! v1 throttling; v2 flexible.

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: DeleteGroupsRequest) -> Pending {
    let ids = request.groups_names.iter().map(|id| id.to_string());
    let command = Command::DeleteGroups(ids.collect());
    cx.call(command, move |cx, reply| {
        let mut codes = match reply {
            Some(Reply::DeleteGroups(codes)) => codes,
            Some(other) => wrong_reply(other),
            None => Vec::new(),
        }
        .into_iter();
        let results = request
            .groups_names
            .into_iter()
            .map(|id| {
                let error = codes.next().unwrap_or(ErrorCode::CoordinatorNotAvailable);
                DeletableGroupResult::default()
                    .with_group_id(id)
                    .with_error_code(error.code())
            })
            .collect();
        cx.answer(&DeleteGroupsResponse::default().with_results(results))
    })
    .await
}
