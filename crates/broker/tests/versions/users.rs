//! SaslHandshake and SaslAuthenticate where nobody is asked who it is (`tests/sasl` has the rest),
//! DescribeUserScramCredentials, AlterUserScramCredentials; the three APIs of ACLs where there is no
//! authorizer (`tests/acls` has the rest).

use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
};
use tidemark_testkit::plain_token;
use tidemark_testkit::requests::text;
use tidemark_types::ErrorCode;

use crate::World;
use crate::support::code;

const SHA_512: i8 = 2;

pub async fn sasl_handshake(world: &mut World, version: i16) {
    let response = world.client.sasl_handshake(version, "PLAIN").await;
    assert_eq!(code(response.error_code), ErrorCode::IllegalSaslState);
}

pub async fn sasl_authenticate(world: &mut World, version: i16) {
    let token = plain_token("alice", "secret");
    let response = world.client.sasl_token(version, token).await;
    assert_eq!(code(response.error_code), ErrorCode::IllegalSaslState);
    assert_eq!(response.session_lifetime_ms, 0);
}

async fn alter(world: &mut World, request: AlterUserScramCredentialsRequest) -> ErrorCode {
    let response = world.client.send(0, &request).await;
    assert_eq!(response.results.len(), 1);
    code(response.results[0].error_code)
}

async fn iterations(world: &mut World, user: &str) -> Result<i32, ErrorCode> {
    let users = vec![UserName::default().with_name(text(user))];
    let request = DescribeUserScramCredentialsRequest::default().with_users(Some(users));
    let response = world.client.send(0, &request).await;
    assert_eq!(code(response.error_code), ErrorCode::None);
    let result = &response.results[0];
    assert_eq!(&*result.user, user);
    match code(result.error_code) {
        ErrorCode::None => {
            assert_eq!(result.credential_infos[0].mechanism, SHA_512);
            Ok(result.credential_infos[0].iterations)
        }
        error => Err(error),
    }
}

pub async fn scram_credentials(world: &mut World, _version: i16) {
    let user = world.name("user");
    let upsertion = ScramCredentialUpsertion::default()
        .with_name(text(&user))
        .with_mechanism(SHA_512)
        .with_iterations(8192)
        .with_salt(b"salt".as_slice().into())
        .with_salted_password(vec![7; 64].into());
    let set = AlterUserScramCredentialsRequest::default().with_upsertions(vec![upsertion]);
    assert_eq!(alter(world, set).await, ErrorCode::None);
    assert_eq!(iterations(world, &user).await, Ok(8192));
    let deletion = ScramCredentialDeletion::default()
        .with_name(text(&user))
        .with_mechanism(SHA_512);
    let removed = AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion]);
    assert_eq!(alter(world, removed.clone()).await, ErrorCode::None);
    assert_eq!(alter(world, removed).await, ErrorCode::ResourceNotFound);
    assert_eq!(
        iterations(world, &user).await,
        Err(ErrorCode::ResourceNotFound)
    );
}

/// A topic, literally, its readers, allowed: of each the number that Kafka gives it.
const TOPIC: i8 = 2;
const LITERAL: i8 = 3;
const READ: i8 = 3;
const ALLOW: i8 = 3;

pub async fn describe_acls(world: &mut World, version: i16) {
    let request = DescribeAclsRequest::default()
        .with_resource_type_filter(TOPIC)
        .with_pattern_type_filter(LITERAL)
        .with_operation(READ)
        .with_permission_type(ALLOW);
    let response = world.client.send(version, &request).await;
    assert_eq!(code(response.error_code), ErrorCode::SecurityDisabled);
    assert!(response.resources.is_empty());
}

pub async fn create_acls(world: &mut World, version: i16) {
    let creation = AclCreation::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(&world.name("t")))
        .with_resource_pattern_type(LITERAL)
        .with_principal(text("User:alice"))
        .with_host(text("*"))
        .with_operation(READ)
        .with_permission_type(ALLOW);
    let request = CreateAclsRequest::default().with_creations(vec![creation]);
    let response = world.client.send(version, &request).await;
    let error = code(response.results[0].error_code);
    assert_eq!(error, ErrorCode::SecurityDisabled);
}

pub async fn delete_acls(world: &mut World, version: i16) {
    let filter = DeleteAclsFilter::default()
        .with_resource_type_filter(TOPIC)
        .with_pattern_type_filter(LITERAL)
        .with_operation(READ)
        .with_permission_type(ALLOW);
    let request = DeleteAclsRequest::default().with_filters(vec![filter]);
    let response = world.client.send(version, &request).await;
    let error = code(response.filter_results[0].error_code);
    assert_eq!(error, ErrorCode::SecurityDisabled);
}
