//! ListGroups (16), v0-v4: every group of this broker.
//!
//! v1 throttling; v3 flexible; v4 a filter by state (KIP-518).

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use super::{Cx, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: ListGroupsRequest) -> Pending {
    cx.call(Command::ListGroups, move |cx, reply| {
        let groups = match reply {
            Some(Reply::ListGroups(groups)) => groups,
            Some(other) => wrong_reply(other),
            None => {
                let error = ErrorCode::CoordinatorNotAvailable.code();
                return cx.answer(&ListGroupsResponse::default().with_error_code(error));
            }
        };
        let wanted = |state: &str| {
            request.states_filter.is_empty()
                || request
                    .states_filter
                    .iter()
                    .any(|s| s.eq_ignore_ascii_case(state))
        };
        let groups = groups
            .into_iter()
            .filter(|group| wanted(group.state.name()))
            .map(|group| {
                let answer = ListedGroup::default()
                    .with_group_id(GroupId(text(&group.group_id)))
                    .with_protocol_type(text(&group.protocol_type));
                match cx.version() {
                    4.. => answer.with_group_state(text(group.state.name())),
                    _ => answer,
                }
            })
            .collect();
        cx.answer(&ListGroupsResponse::default().with_groups(groups))
    })
    .await
}
