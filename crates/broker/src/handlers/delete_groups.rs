//! DeleteGroups (42), v0-v2: groups without members go, with their offsets.
//!
//! v1 throttling; v2 flexible. Delete on each group.

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, GroupId};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: DeleteGroupsRequest) -> Pending {
    let rights = cx.rights();
    let may = |id: &GroupId| rights.may(Operation::Delete, Resource::Group(id));
    let names = request.groups_names;
    let forbidden: Vec<bool> = names.iter().map(|id| !may(id)).collect();
    let ids = names.iter().zip(&forbidden).filter(|(_, is)| !**is);
    let ids = ids.map(|(id, _)| id.to_string());
    let command = Command::DeleteGroups(ids.collect());
    cx.call(command, move |cx, reply| {
        let mut codes = match reply {
            Some(Reply::DeleteGroups(codes)) => codes,
            Some(other) => wrong_reply(other),
            None => Vec::new(),
        }
        .into_iter();
        let results = names
            .into_iter()
            .zip(forbidden)
            .map(|(id, is_forbidden)| {
                let error = match is_forbidden {
                    true => ErrorCode::GroupAuthorizationFailed,
                    false => codes.next().unwrap_or(ErrorCode::CoordinatorNotAvailable),
                };
                DeletableGroupResult::default()
                    .with_group_id(id)
                    .with_error_code(error.code())
            })
            .collect();
        cx.answer(&DeleteGroupsResponse::default().with_results(results))
    })
    .await
}
