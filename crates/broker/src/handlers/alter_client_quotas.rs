//! AlterClientQuotas (49), v0-v1: quotas of users, client ids and addresses are set and taken away
//! (KIP-546, KIP-612). v1 is flexible. There are none here, so nothing is stored: a quota that is set
//! is refused, with the settings that limit something, because a quota that limits nothing would be
//! believed in; one that is taken away is not there already, which is what Kafka answers then too.
//! AlterConfigs on the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::alter_client_quotas_response::{
    EntityData as AnsweredEntity, EntryData as AnsweredEntry,
};
use kafka_protocol::messages::{AlterClientQuotasRequest, AlterClientQuotasResponse};
use kafka_protocol::protocol::StrBytes;
use tidemark_authorizer::Operation;
use tidemark_types::ErrorCode;

use crate::authorize::Resource;

use super::describe_client_quotas::{CLIENT_ID, IP, USER};
use super::{Cx, Pending, text};

const OF_USERS: [&str; 4] = [
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
];
const OF_ADDRESSES: [&str; 1] = ["connection_creation_rate"];

/// Whom a quota is for: kinds and names, no name for everyone who has no quota of their own.
type Entity<'a> = BTreeMap<&'a str, Option<&'a str>>;

type Judged = Result<(), (ErrorCode, String)>;

pub(crate) fn handle(cx: &Cx, request: &AlterClientQuotasRequest) -> Pending {
    let entries = match cx.may(Operation::AlterConfigs, Resource::Cluster) {
        true => judge_all(&request.entries)
            .into_iter()
            .map(|(entity, judged)| answered(&entity, judged))
            .collect(),
        false => request.entries.iter().map(forbidden).collect(),
    };
    Pending::Ready(cx.answer(&AlterClientQuotasResponse::default().with_entries(entries)))
}

/// One answer for each entity, in the order in which they are named first.
fn judge_all(entries: &[EntryData]) -> Vec<(Entity<'_>, Judged)> {
    let mut judged: Vec<(Entity<'_>, Judged)> = Vec::new();
    let mut places: BTreeMap<Entity<'_>, usize> = BTreeMap::new();
    for entry in entries {
        let entity = entity_of(&entry.entity);
        match places.get(&entity) {
            Some(place) => {
                judged[*place].1 = invalid("The same entity is named twice.".to_owned());
            }
            None => {
                places.insert(entity.clone(), judged.len());
                let verdict = judge(&entity, &entry.ops);
                judged.push((entity, verdict));
            }
        }
    }
    judged
}

fn entity_of(named: &[EntityData]) -> Entity<'_> {
    let named = named.iter();
    named
        .map(|e| (&*e.entity_type, e.entity_name.as_deref()))
        .collect()
}

fn invalid(why: String) -> Judged {
    Err((ErrorCode::InvalidRequest, why))
}

/// Kafka's rules in Kafka's order, and then ours.
fn judge(entity: &Entity<'_>, ops: &[OpData]) -> Judged {
    let mut keys = BTreeSet::new();
    if let Some(twice) = ops.iter().find(|op| !keys.insert(&*op.key)) {
        return invalid(format!("The quota {} is named twice.", &*twice.key));
    }
    let known = known_quotas(entity)?;
    let set = || ops.iter().filter(|op| !op.remove);
    for op in set() {
        let key = &*op.key;
        if !known.contains(&key) {
            return invalid(format!("Invalid configuration key {key}"));
        }
        if op.value <= 0.0 {
            return invalid(format!("Quota {key} must be greater than 0"));
        }
    }
    let Some(op) = set().next() else {
        return Ok(());
    };
    let instead = match known == OF_ADDRESSES {
        true => "max.connection.creation.rate.per.ip and max.connections.per.ip",
        false => {
            "max.connections.per.ip, max.inflight.bytes.per.connection, request.memory.bytes and \
             fetch.memory.bytes"
        }
    };
    let why = format!(
        "{} is not set: this broker has no client quotas. Its settings {instead} limit all alike.",
        &*op.key
    );
    Err((ErrorCode::PolicyViolation, why))
}

/// The quotas that this entity can have.
fn known_quotas(entity: &Entity<'_>) -> Result<&'static [&'static str], (ErrorCode, String)> {
    let wrong = |why: String| Err((ErrorCode::InvalidRequest, why));
    if entity.is_empty() {
        return wrong("Invalid empty client quota entity".to_owned());
    }
    for (kind, name) in entity {
        if ![USER, CLIENT_ID, IP].contains(kind) {
            return wrong(format!("Unhandled client quota entity type: {kind}"));
        }
        if *name == Some("") {
            return wrong(format!("Empty {kind} not supported"));
        }
    }
    match (entity.get(IP), entity.len()) {
        (Some(Some(name)), 1) if name.parse::<IpAddr>().is_err() => wrong(format!(
            "{name} is not a valid IP address; host names are not looked up here"
        )),
        (Some(_), 1) => Ok(&OF_ADDRESSES),
        (Some(_), _) => wrong("An ip cannot be combined with a user or a client-id".to_owned()),
        (None, _) => Ok(&OF_USERS),
    }
}

fn answered(entity: &Entity<'_>, judged: Judged) -> AnsweredEntry {
    let entity = entity.iter().map(|(kind, name)| {
        AnsweredEntity::default()
            .with_entity_type(text(kind))
            .with_entity_name(name.map(text))
    });
    let answer = AnsweredEntry::default().with_entity(entity.collect());
    match judged {
        Ok(()) => answer.with_error_message(None),
        Err((code, why)) => answer
            .with_error_code(code.code())
            .with_error_message(Some(text(&why))),
    }
}

fn forbidden(entry: &EntryData) -> AnsweredEntry {
    let entity = entry.entity.iter().map(|e| {
        AnsweredEntity::default()
            .with_entity_type(e.entity_type.clone())
            .with_entity_name(e.entity_name.clone())
    });
    AnsweredEntry::default()
        .with_entity(entity.collect())
        .with_error_code(ErrorCode::ClusterAuthorizationFailed.code())
        .with_error_message(Some(StrBytes::from_static_str(
            "Cluster authorization failed.",
        )))
}
