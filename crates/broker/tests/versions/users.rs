//! SaslHandshake and SaslAuthenticate where nobody is asked who it is (`tests/sasl` has the rest),
//! DescribeUserScramCredentials, AlterUserScramCredentials.

use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest,
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
