//! ListGroups (16), v0-v5: every group of this broker.
//!
//! v1 throttling; v3 flexible; v4 a filter by state (KIP-518); v5 a filter by type (KIP-848),
//! of which there is one. Describe on the cluster, or the groups that the client may describe.

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, text, wrong_reply};

/// The type of every group here.
const CLASSIC: &str = "classic";

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
        let passes = |filter: &[StrBytes], value: &str| {
            filter.is_empty() || filter.iter().any(|one| one.eq_ignore_ascii_case(value))
        };
        let wanted = |state: &str| {
            passes(&request.states_filter, state) && passes(&request.types_filter, CLASSIC)
        };
        let rights = cx.rights();
        let sees_all = rights.might(Operation::Describe, Resource::Cluster);
        let sees = |id: &str| sees_all || rights.might(Operation::Describe, Resource::Group(id));
        let groups = groups
            .into_iter()
            .filter(|group| sees(&group.group_id))
            .filter(|group| wanted(group.state.name()))
            .map(|group| {
                let answer = ListedGroup::default()
                    .with_group_id(GroupId(text(&group.group_id)))
                    .with_protocol_type(text(&group.protocol_type));
                let state = text(group.state.name());
                match cx.version() {
                    5.. => answer
                        .with_group_state(state)
                        .with_group_type(StrBytes::from_static_str(CLASSIC)),
                    4 => answer.with_group_state(state),
                    _ => answer,
                }
            })
            .collect();
        cx.answer(&ListGroupsResponse::default().with_groups(groups))
    })
    .await
}
