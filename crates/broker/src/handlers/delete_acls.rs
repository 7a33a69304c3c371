//! DeleteAcls (31), v1-v3: removes the ACLs that filters mean, and tells which (KIP-140). Alter on the
//! cluster.
//!
//! v1 pattern types (KIP-290); v2 flexible; v3 users as resources.

use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_acls_response::{
    DeleteAclsFilterResult, DeleteAclsMatchingAcl,
};
use kafka_protocol::messages::{DeleteAclsRequest, DeleteAclsResponse};
use tidemark_authorizer::{Acl, AclFilter, Operation};
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::acl_words::{WireFilter, wire};
use super::{Cx, Outcome, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: DeleteAclsRequest) -> Pending {
    let filters: Vec<WireFilter<'_>> = request.filters.iter().map(wire_filter).collect();
    if filters.iter().any(WireFilter::has_nothing) {
        return Pending::Ready(Outcome::Close);
    }
    let refuse_all = |code: ErrorCode, message: Option<&str>| {
        let results = vec![refuse(code, message); request.filters.len()];
        Pending::Ready(cx.answer(&DeleteAclsResponse::default().with_filter_results(results)))
    };
    if !cx.may(Operation::Alter, Resource::Cluster) {
        return refuse_all(ErrorCode::ClusterAuthorizationFailed, None);
    }
    if cx.shared.settings.authorizer.is_none() {
        let message = Some("No Authorizer is configured.");
        return refuse_all(ErrorCode::SecurityDisabled, message);
    }
    let meant: Vec<Option<AclFilter>> = filters.iter().map(WireFilter::meant).collect();
    let known: Vec<bool> = meant.iter().map(Option::is_some).collect();
    let filters = meant.into_iter().flatten().collect();
    cx.call(Command::DeleteAcls(filters), move |cx, reply| {
        let mut deleted = match reply {
            Some(Reply::DeleteAcls(deleted)) => deleted,
            Some(other) => wrong_reply(other),
            None => Vec::new(),
        }
        .into_iter();
        let timed_out = || {
            let message = "The journal stopped before the removal was durable.".to_owned();
            Err((ErrorCode::RequestTimedOut, message))
        };
        let results = known.into_iter().map(|is_known| {
            if !is_known {
                return refuse(ErrorCode::InvalidRequest, Some("Unknown patternFilter."));
            }
            match deleted.next().unwrap_or_else(timed_out) {
                Err((code, message)) => refuse(code, Some(&message)),
                Ok(acls) => DeleteAclsFilterResult::default()
                    .with_error_message(None)
                    .with_matching_acls(acls.iter().map(matching).collect()),
            }
        });
        cx.answer(&DeleteAclsResponse::default().with_filter_results(results.collect()))
    })
    .await
}

fn wire_filter(filter: &DeleteAclsFilter) -> WireFilter<'_> {
    WireFilter {
        resource_type: filter.resource_type_filter,
        name: filter.resource_name_filter.as_ref(),
        pattern_type: filter.pattern_type_filter,
        principal: filter.principal_filter.as_ref(),
        host: filter.host_filter.as_ref(),
        operation: filter.operation,
        permission: filter.permission_type,
    }
}

fn refuse(code: ErrorCode, message: Option<&str>) -> DeleteAclsFilterResult {
    DeleteAclsFilterResult::default()
        .with_error_code(code.code())
        .with_error_message(message.map(text))
}

fn matching(acl: &Acl) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl::default()
        .with_error_message(None)
        .with_resource_type(wire(acl.resource_type.code()))
        .with_resource_name(text(&acl.name))
        .with_pattern_type(wire(acl.pattern_type.code()))
        .with_principal(text(&acl.principal))
        .with_host(text(&acl.host))
        .with_operation(wire(acl.operation.code()))
        .with_permission_type(wire(acl.permission.code()))
}
