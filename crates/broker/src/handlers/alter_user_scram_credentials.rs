//! AlterUserScramCredentials (51), v0: users' credentials are set and taken away (KIP-554).
//!
//! The client has salted the password itself: the broker never sees it, and keeps only what it
//! derives from that. Alter on the cluster.

use std::collections::BTreeSet;

use kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialUpsertion;
use kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
};
use tidemark_authorizer::Operation;
use tidemark_metadata::{ScramCredential, ScramDeletion, ScramUpsertion};
use tidemark_owner::{AlterScram, Command, Reply};
use tidemark_sasl::{Credential, Hash};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::{Cx, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: AlterUserScramCredentialsRequest) -> Pending {
    if !cx.may(Operation::Alter, Resource::Cluster) {
        let deleted = request.deletions.iter().map(|deletion| &deletion.name);
        let named: BTreeSet<_> = deleted
            .chain(request.upsertions.iter().map(|upsertion| &upsertion.name))
            .collect();
        let refused = named.into_iter().map(|user| {
            AlterUserScramCredentialsResult::default()
                .with_user(user.clone())
                .with_error_code(ErrorCode::ClusterAuthorizationFailed.code())
                .with_error_message(None)
        });
        let response = AlterUserScramCredentialsResponse::default().with_results(refused.collect());
        return Pending::Ready(cx.answer(&response));
    }
    let deletions = request.deletions.iter().map(|deletion| ScramDeletion {
        user: deletion.name.to_string(),
        mechanism: deletion.mechanism,
    });
    let command = Command::AlterScram(AlterScram {
        deletions: deletions.collect(),
        upsertions: request.upsertions.iter().map(upsertion).collect(),
        only_the_first: false,
    });
    let named = request.deletions.into_iter().map(|deletion| deletion.name);
    let named = named.chain(
        request
            .upsertions
            .into_iter()
            .map(|upsertion| upsertion.name),
    );
    let named: Vec<_> = named.collect();
    cx.call(command, move |cx, reply| {
        let results = match reply {
            Some(Reply::AlterScram(altered)) => altered
                .into_iter()
                .map(|(user, altered)| {
                    let result = AlterUserScramCredentialsResult::default().with_user(text(&user));
                    match altered {
                        Ok(()) => result,
                        Err((code, why)) => result
                            .with_error_code(code.code())
                            .with_error_message(Some(text(&why))),
                    }
                })
                .collect(),
            Some(other) => wrong_reply(other),
            None => named
                .into_iter()
                .map(|user| {
                    AlterUserScramCredentialsResult::default()
                        .with_user(user)
                        .with_error_code(ErrorCode::RequestTimedOut.code())
                        .with_error_message(Some(text(
                            "The journal stopped before the change was durable.",
                        )))
                })
                .collect(),
        };
        cx.answer(&AlterUserScramCredentialsResponse::default().with_results(results))
    })
    .await
}

fn upsertion(asked: &ScramCredentialUpsertion) -> ScramUpsertion {
    let salt = asked.salt.to_vec();
    let (stored_key, server_key) = match asked.mechanism {
        1 => keys(Hash::Sha256, &asked.salted_password),
        2 => keys(Hash::Sha512, &asked.salted_password),
        // It is refused.
        _ => (Vec::new(), Vec::new()),
    };
    ScramUpsertion {
        user: asked.name.to_string(),
        mechanism: asked.mechanism,
        credential: ScramCredential {
            iterations: asked.iterations,
            salt,
            stored_key,
            server_key,
        },
    }
}

fn keys(hash: Hash, salted_password: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let credential = Credential::of_salted_password(hash, salted_password, Vec::new(), 0);
    (credential.stored_key, credential.server_key)
}
