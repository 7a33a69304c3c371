//! What IncrementalAlterConfigs and AlterConfigs share: Kafka's checks of a request before its
//! resources are looked at, and the way of the topics through the owner.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_metadata::Refusal;
use tidemark_owner::{AlterConfigs, AlterTopic, Alteration, Command, Reply};
use tidemark_types::ErrorCode;

use super::{Cx, Outcome, Pending, wrong_reply};

pub(crate) const TOPIC: i8 = 2;
pub(crate) const BROKER: i8 = 4;

/// One resource whose configs are to be altered.
pub(crate) struct Resource {
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
    pub is_deletion: bool,
}

/// Alters what may be altered and answers with one result per resource, in their order.
pub(crate) async fn alter(
    cx: Cx,
    resources: Vec<Resource>,
    validate_only: bool,
    respond: impl FnOnce(&Cx, Vec<Result<(), Refusal>>) -> Outcome + Send + 'static,
) -> Pending {
    let mut times_named: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for resource in &resources {
        let key = (resource.kind, resource.name.as_str());
        *times_named.entry(key).or_default() += 1;
    }
    let checked: Vec<Result<Goes, Refusal>> = resources
        .iter()
        .map(
            |resource| match times_named[&(resource.kind, &*resource.name)] {
                1 => check(&cx, resource),
                _ => Err(invalid(
                    "Each resource must appear at most once.".to_owned(),
                )),
            },
        )
        .collect();
    let mut topics = Vec::new();
    let planned: Vec<Result<Goes, Refusal>> = resources
        .into_iter()
        .zip(checked)
        .map(|(resource, goes)| {
            if goes? == Goes::Nowhere {
                return Ok(Goes::Nowhere);
            }
            topics.push(AlterTopic {
                name: resource.name,
                alteration: resource.alteration?,
            });
            Ok(Goes::ToTheOwner)
        })
        .collect();
    let command = Command::AlterConfigs(AlterConfigs {
        topics,
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
            .map(|planned| match planned? {
                Goes::Nowhere => Ok(()),
                Goes::ToTheOwner => altered.next().unwrap_or_else(timed_out),
            })
            .collect();
        respond(cx, results)
    })
    .await
}

/// Where a resource's changes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    ToTheOwner,
    /// There is nothing to change.
    Nowhere,
}

fn check(cx: &Cx, resource: &Resource) -> Result<Goes, Refusal> {
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
        TOPIC => Ok(Goes::ToTheOwner),
        BROKER => check_broker(cx, resource).map(|()| Goes::Nowhere),
        other => Err(invalid(format!("Unknown resource type {other}"))),
    }
}

/// The broker's own settings are read at its start and are read-only afterwards, all of them. So
/// none was ever set this way, and taking one back changes nothing.
fn check_broker(cx: &Cx, resource: &Resource) -> Result<(), Refusal> {
    let here = cx.shared.settings.node_id;
    // The empty name is the default of all brokers.
    if !resource.name.is_empty() {
        match resource.name.parse::<i32>() {
            Ok(id) if id == here => {}
            Ok(id) => {
                return Err(invalid(format!(
                    "Unexpected broker id, expected {here}, but received {id}"
                )));
            }
            Err(_) => {
                return Err(invalid(format!(
                    "Node id must be an integer, but it is: {}",
                    resource.name
                )));
            }
        }
    }
    let set: Vec<&str> = (resource.configs.iter())
        .filter(|config| !config.is_deletion)
        .map(|config| config.name.as_str())
        .collect();
    match set.is_empty() {
        true => Ok(()),
        false => Err(invalid(format!(
            "Cannot update these configs dynamically: Set({})",
            set.join(", ")
        ))),
    }
}

fn invalid(message: String) -> Refusal {
    (ErrorCode::InvalidRequest, message)
}
