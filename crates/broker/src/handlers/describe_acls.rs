//! DescribeAcls (29), v1-v3: the ACLs that a filter means (KIP-140). Describe on the cluster.
//!
//! v1 pattern types (KIP-290); v2 flexible; v3 users as resources. As of the published tick: an ACL
//! whose creation was answered is told.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};
use tidemark_authorizer::Operation;
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::acl_words::{WireFilter, wire};
use super::{Cx, Outcome, Pending, text};

pub(crate) fn handle(cx: Cx, request: DescribeAclsRequest) -> Pending {
    // When its turn comes, as in Kafka: what the requests before it on the connection did is told.
    Pending::later(async move { describe(&cx, &request) })
}

fn describe(cx: &Cx, request: &DescribeAclsRequest) -> Outcome {
    let filter = WireFilter {
        resource_type: request.resource_type_filter,
        name: request.resource_name_filter.as_ref(),
        pattern_type: request.pattern_type_filter,
        principal: request.principal_filter.as_ref(),
        host: request.host_filter.as_ref(),
        operation: request.operation,
        permission: request.permission_type,
    };
    if filter.has_nothing() {
        return Outcome::Close;
    }
    let response = DescribeAclsResponse::default().with_error_message(None);
    if !cx.may(Operation::Describe, Resource::Cluster) {
        let code = ErrorCode::ClusterAuthorizationFailed.code();
        return cx.answer(&response.with_error_code(code));
    }
    if cx.shared.settings.authorizer.is_none() {
        return cx.answer(
            &response
                .with_error_code(ErrorCode::SecurityDisabled.code())
                .with_error_message(Some(text("No Authorizer is configured on the broker"))),
        );
    }
    let image = cx.shared.read().image;
    let mut resources = BTreeMap::new();
    if let Some(filter) = filter.meant() {
        for acl in image.acls().matching(&filter) {
            let resource = (acl.resource_type, acl.pattern_type, acl.name.clone());
            let described = AclDescription::default()
                .with_principal(text(&acl.principal))
                .with_host(text(&acl.host))
                .with_operation(wire(acl.operation.code()))
                .with_permission_type(wire(acl.permission.code()));
            resources
                .entry(resource)
                .or_insert_with(Vec::new)
                .push(described);
        }
    }
    let resources = resources.into_iter();
    let resources = resources.map(|((resource_type, pattern_type, name), acls)| {
        DescribeAclsResource::default()
            .with_resource_type(wire(resource_type.code()))
            .with_resource_name(text(&name))
            .with_pattern_type(wire(pattern_type.code()))
            .with_acls(acls)
    });
    cx.answer(&response.with_resources(resources.collect()))
}
