//! DescribeUserScramCredentials (50), v0: which users there are and how they authenticate (KIP-554).
//! Of a credential only its mechanism and iteration count are told. Describe on the cluster.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use kafka_protocol::messages::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};
use tidemark_authorizer::Operation;
use tidemark_metadata::{ScramCredential, ScramMechanism};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, text};

pub(crate) fn handle(cx: &Cx, request: &DescribeUserScramCredentialsRequest) -> Pending {
    let asked = request.users.as_deref().unwrap_or_default();
    if !cx.may(Operation::Describe, Resource::Cluster) {
        let code = ErrorCode::ClusterAuthorizationFailed.code();
        let refused = asked.iter().map(|_| {
            DescribeUserScramCredentialsResult::default()
                .with_error_code(code)
                .with_error_message(None)
        });
        let response = DescribeUserScramCredentialsResponse::default()
            .with_error_code(code)
            .with_error_message(None)
            .with_results(refused.collect());
        return Pending::Ready(cx.answer(&response));
    }
    let image = cx.shared.read().image;
    let results = match asked.is_empty() {
        true => image
            .scram_users()
            .map(|(user, credentials)| described(user, credentials))
            .collect(),
        false => {
            let mut times_named: BTreeMap<&str, usize> = BTreeMap::new();
            for user in asked {
                *times_named.entry(&user.name).or_default() += 1;
            }
            let mut results = Vec::with_capacity(times_named.len());
            for (user, times) in times_named {
                results.push(match (times, image.scram_user(user)) {
                    (1, Some(credentials)) => described(user, credentials),
                    (1, None) => refused(
                        user,
                        ErrorCode::ResourceNotFound,
                        "Attempt to describe a user credential that does not exist: ",
                    ),
                    _ => refused(
                        user,
                        ErrorCode::DuplicateResource,
                        "Cannot describe SCRAM credentials for the same user twice in a single \
                         request: ",
                    ),
                });
            }
            results
        }
    };
    Pending::Ready(
        cx.answer(&DescribeUserScramCredentialsResponse::default().with_results(results)),
    )
}

fn described(
    user: &str,
    credentials: &BTreeMap<ScramMechanism, ScramCredential>,
) -> DescribeUserScramCredentialsResult {
    let infos = credentials.iter().map(|(mechanism, credential)| {
        CredentialInfo::default()
            .with_mechanism(mechanism.code().cast_signed())
            .with_iterations(credential.iterations)
    });
    DescribeUserScramCredentialsResult::default()
        .with_user(text(user))
        .with_credential_infos(infos.collect())
}

fn refused(user: &str, code: ErrorCode, why: &str) -> DescribeUserScramCredentialsResult {
    DescribeUserScramCredentialsResult::default()
        .with_user(text(user))
        .with_error_code(code.code())
        .with_error_message(Some(text(&format!("{why}{user}"))))
}
