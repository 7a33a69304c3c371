//! What IncrementalAlterConfigs and AlterConfigs share: Kafka's checks of a request before its
//! resources are looked at, and the way of the resources through the owner.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::protocol::StrBytes;
use tidemark_authorizer::Operation;
use tidemark_metadata::Refusal;
use tidemark_owner::{AlterConfigs, AlterResource, Alteration, Command, ConfigResource, Reply};
use tidemark_types::{ErrorCode, NodeId};

use crate::authorize::Resource;

use super::{Cx, Outcome, Pending, text, wrong_reply};

pub(crate) const TOPIC: i8 = 2;
pub(crate) const BROKER: i8 = 4;

/// One resource whose configs are to be altered.
pub(crate) struct Asked {
    pub kind: i8,
    pub name: String,
    /// The configs that are named, in the order of the request.
    pub configs: Vec<Named>,
    pub alteration: Result<Alteration, Refusal>,
}

/// A config that a request names.
pub(crate) struct Named {
    pub name: String,
    /// It comes without a value, and needs one.
    pub lacks_value: bool,
}

/// What both APIs tell of a resource: a code, and why for people.
pub(crate) struct Altered {
    pub error_code: i16,
    pub error_message: Option<StrBytes>,
}

impl From<Result<(), Refusal>> for Altered {
    fn from(result: Result<(), Refusal>) -> Altered {
        let (error, message) = match result {
            Ok(()) => (ErrorCode::None, None),
            Err((error, message)) => (error, Some(text(&message))),
        };
        Altered {
            error_code: error.code(),
            error_message: message,
        }
    }
}

/// Alters what may be altered and answers with one result per resource, in their order.
pub(crate) async fn alter(
    cx: Cx,
    resources: Vec<Asked>,
    validate_only: bool,
    respond: impl FnOnce(&Cx, Vec<Altered>) -> Outcome + Send + 'static,
) -> Pending {
    let mut times_named: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for resource in &resources {
        let key = (resource.kind, resource.name.as_str());
        *times_named.entry(key).or_default() += 1;
    }
    let checked: Vec<Result<ConfigResource, Refusal>> = resources
        .iter()
        .map(
            |resource| match times_named[&(resource.kind, &*resource.name)] {
                1 => check(&cx, resource).and_then(|named| permit(&cx, named)),
                _ => Err(invalid(
                    "Each resource must appear at most once.".to_owned(),
                )),
            },
        )
        .collect();
    let mut submitted = Vec::new();
    let planned: Vec<Result<(), Refusal>> = resources
        .into_iter()
        .zip(checked)
        .map(|(asked, resource)| {
            let resource = resource?;
            submitted.push(AlterResource {
                resource,
                alteration: asked.alteration?,
            });
            Ok(())
        })
        .collect();
    let command = Command::AlterConfigs(AlterConfigs {
        resources: submitted,
        validate_only,
    });
    cx.call(command, move |cx, reply| {
        let mut altered = match reply {
            Some(Reply::AlterConfigs(altered)) => altered,
            Some(other) => wrong_reply(other),
            None => Vec::new(),
        }
        .into_iter();
        let timed_out = || {
            let message = "The journal stopped before the change was durable.".to_owned();
            Err((ErrorCode::RequestTimedOut, message))
        };
        let results = planned
            .into_iter()
            .map(|planned| planned.and_then(|()| altered.next().unwrap_or_else(timed_out)))
            .map(Altered::from)
            .collect();
        respond(cx, results)
    })
    .await
}

fn check(cx: &Cx, resource: &Asked) -> Result<ConfigResource, Refusal> {
    let mut names = BTreeSet::new();
    if !resource.configs.iter().all(|c| names.insert(&c.name)) {
        return Err(invalid("Error due to duplicate config keys".to_owned()));
    }
    let lacking: Vec<&str> = (resource.configs.iter())
        .filter(|config| config.lacks_value)
        .map(|config| config.name.as_str())
        .collect();
    if !lacking.is_empty() {
        let lacking = lacking.join(",");
        return Err(invalid(format!("Null value not supported for : {lacking}")));
    }
    match resource.kind {
        TOPIC => Ok(ConfigResource::Topic(resource.name.clone())),
        BROKER => broker(cx, &resource.name).map(ConfigResource::Broker),
        other => Err(invalid(format!("Unknown resource type {other}"))),
    }
}

/// AlterConfigs on the topic, or on the cluster for what is a broker's.
fn permit(cx: &Cx, named: ConfigResource) -> Result<ConfigResource, Refusal> {
    let (resource, error, message) = match &named {
        ConfigResource::Topic(name) => (
            Resource::Topic(name),
            ErrorCode::TopicAuthorizationFailed,
            "Topic authorization failed.",
        ),
        ConfigResource::Broker(_) => (
            Resource::Cluster,
            ErrorCode::ClusterAuthorizationFailed,
            "Cluster authorization failed.",
        ),
    };
    match cx.may(Operation::AlterConfigs, resource) {
        true => Ok(named),
        false => Err((error, message.to_owned())),
    }
}

/// This broker, or with the empty name (`None`) every broker.
fn broker(cx: &Cx, name: &str) -> Result<Option<NodeId>, Refusal> {
    let here = cx.shared.node_id();
    match name.parse::<i32>() {
        _ if name.is_empty() => Ok(None),
        Ok(id) if id == here.0 => Ok(Some(here)),
        Ok(id) => Err(invalid(format!(
            "Unexpected broker id, expected {}, but received {id}",
            here.0
        ))),
        Err(_) => Err(invalid(format!(
            "Node id must be an integer, but it is: {name}"
        ))),
    }
}

fn invalid(message: String) -> Refusal {
    (ErrorCode::InvalidRequest, message)
}
