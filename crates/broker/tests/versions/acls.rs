//! DescribeAcls, CreateAcls, DeleteAcls where no authorizer is on (`tests/acls` has the rest).

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest};
use tidemark_testkit::requests::text;
use tidemark_types::ErrorCode;

use crate::World;
use crate::support::code;

// Numbers of Kafka's protocol.
const ANY: i8 = 1;
const TOPIC: i8 = 2;
const LITERAL: i8 = 3;
const READ: i8 = 3;
const ALLOW: i8 = 3;

pub async fn describe_acls(world: &mut World, version: i16) {
    let request = DescribeAclsRequest::default()
        .with_resource_type_filter(TOPIC)
        .with_pattern_type_filter(ANY)
        .with_operation(ANY)
        .with_permission_type(ANY);
    let response = world.client.send(version, &request).await;
    assert_eq!(code(response.error_code), ErrorCode::SecurityDisabled);
    assert_eq!(response.resources.len(), 0);
}

pub async fn create_acls(world: &mut World, version: i16) {
    let creation = AclCreation::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("t"))
        .with_resource_pattern_type(LITERAL)
        .with_principal(text("User:alice"))
        .with_host(text("*"))
        .with_operation(READ)
        .with_permission_type(ALLOW);
    let request = CreateAclsRequest::default().with_creations(vec![creation]);
    let response = world.client.send(version, &request).await;
    let codes: Vec<_> = response
        .results
        .iter()
        .map(|r| code(r.error_code))
        .collect();
    assert_eq!(codes, [ErrorCode::SecurityDisabled]);
}

pub async fn delete_acls(world: &mut World, version: i16) {
    let filter = DeleteAclsFilter::default()
        .with_resource_type_filter(TOPIC)
        .with_pattern_type_filter(ANY)
        .with_operation(ANY)
        .with_permission_type(ANY);
    let request = DeleteAclsRequest::default().with_filters(vec![filter]);
    let response = world.client.send(version, &request).await;
    let filters = response.filter_results.iter();
    let codes: Vec<_> = filters.map(|r| code(r.error_code)).collect();
    assert_eq!(codes, [ErrorCode::SecurityDisabled]);
}
