//! CreateAcls (30), v1-v3: makes ACLs, each for itself (KIP-140). Alter on the cluster.
//!
//! v1 pattern types (KIP-290); v2 flexible; v3 users as resources. One that is there already is made
//! again without an error. They are in force when they are answered.

use std::sync::Arc;

use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::{CreateAclsRequest, CreateAclsResponse};
use tidemark_authorizer::{Acl, Operation, PatternType, Permission, ResourceType};
use tidemark_metadata::Refusal;
use tidemark_owner::{Command, Reply};
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::acl_words::{ANY, MATCH, NOTHING};
use super::{Cx, Outcome, Pending, text, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: CreateAclsRequest) -> Pending {
    let creations = &request.creations;
    let says = |creation: &AclCreation, code| {
        [
            creation.resource_type,
            creation.resource_pattern_type,
            creation.operation,
            creation.permission_type,
        ]
        .contains(&code)
    };
    if creations.iter().any(|creation| says(creation, NOTHING)) {
        return Pending::Ready(Outcome::Close);
    }
    let refuse_all = |code: ErrorCode, message: Option<&str>| {
        let result = AclCreationResult::default()
            .with_error_code(code.code())
            .with_error_message(message.map(text));
        let results = vec![result; creations.len()];
        Pending::Ready(cx.answer(&CreateAclsResponse::default().with_results(results)))
    };
    if !cx.may(Operation::Alter, Resource::Cluster) {
        return refuse_all(ErrorCode::ClusterAuthorizationFailed, None);
    }
    if cx.shared.settings.authorizer.is_none() {
        let message = Some("No Authorizer is configured.");
        return refuse_all(ErrorCode::SecurityDisabled, message);
    }
    // An ACL is about something: what a filter may leave open makes all of the request one that Kafka
    // does not know what to do with.
    let leaves_open =
        |creation: &AclCreation| says(creation, ANY) || creation.resource_pattern_type == MATCH;
    if creations.iter().any(leaves_open) {
        return refuse_all(ErrorCode::UnknownServerError, None);
    }
    let meant: Vec<Result<Acl, Refusal>> = creations.iter().map(meant).collect();
    let acls = meant.iter().flatten().cloned().collect();
    cx.call(Command::CreateAcls(acls), move |cx, reply| {
        let mut created = match reply {
            Some(Reply::CreateAcls(created)) => created,
            Some(other) => wrong_reply(other),
            None => Vec::new(),
        }
        .into_iter();
        let timed_out = || {
            let message = "The journal stopped before the ACL was durable.".to_owned();
            Err((ErrorCode::RequestTimedOut, message))
        };
        let results = meant.into_iter().map(|meant| {
            let result = AclCreationResult::default();
            match meant.and_then(|_| created.next().unwrap_or_else(timed_out)) {
                Ok(()) => result.with_error_message(None),
                Err((code, message)) => result
                    .with_error_code(code.code())
                    .with_error_message(Some(text(&message))),
            }
        });
        cx.answer(&CreateAclsResponse::default().with_results(results.collect()))
    })
    .await
}

fn meant(creation: &AclCreation) -> Result<Acl, Refusal> {
    fn word<T>(code: i8, from_code: fn(u8) -> Option<T>, what: &str) -> Result<T, Refusal> {
        let word = u8::try_from(code).ok().and_then(from_code);
        word.ok_or_else(|| (ErrorCode::InvalidRequest, format!("Invalid {what} {code}")))
    }
    Ok(Acl {
        resource_type: word(
            creation.resource_type,
            ResourceType::from_code,
            "resourceType",
        )?,
        name: Arc::from(&*creation.resource_name),
        pattern_type: word(
            creation.resource_pattern_type,
            PatternType::from_code,
            "patternType",
        )?,
        principal: Arc::from(&*creation.principal),
        host: Arc::from(&*creation.host),
        operation: word(creation.operation, Operation::from_code, "operation")?,
        permission: word(
            creation.permission_type,
            Permission::from_code,
            "permissionType",
        )?,
    })
}
