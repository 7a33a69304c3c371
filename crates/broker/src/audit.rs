//! What the broker tells its audit log: opens it as the settings say, and puts events of its own into
//! the log's words.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemark_audit::{Audit, Event, Kind, Options, Origin, Outcome, Which};
use tidemark_config::{Settings, row};
use tidemark_metadata::ConfigChange;
use tidemark_owner::{
    AbortedBy, Alteration, Command, ConfigResource, DeleteTopic, Event as OwnerEvent, Reply,
};
use tidemark_txn_coordinator::Who;
use tidemark_types::ErrorCode;

use crate::connection::ConnectionInfo;
use crate::error::StartError;
use crate::handlers::Cx;
use crate::start::Seams;

/// Settings of one change that are told by name and value.
const MAX_CONFIGS: usize = 20;

/// Opens the log that `audit.log.path` names; without one there is none. Blocks.
pub(crate) fn open(settings: &Settings, seams: &Seams) -> Result<Audit, StartError> {
    let Some(path) = &settings.audit_log_path else {
        return Ok(Audit::off());
    };
    let tells = |what: &str| {
        let mut all = settings.audit_log_events.split(',');
        all.any(|told| told.trim() == what)
    };
    let clock = seams.clock.clone();
    let options = Options {
        disk: seams.disk.clone(),
        dir: path.into(),
        max_bytes: settings.audit_log_max_bytes,
        files: settings.audit_log_files,
        interval: Duration::from_millis(settings.audit_log_interval_ms),
        which: Which {
            sessions: tells("sessions"),
            connections: tells("connections"),
            transactions: tells("transactions"),
            changes: tells("changes"),
            access: tells("access"),
        },
        times: Arc::new(move || (clock.wall_ms(), clock.now())),
    };
    Audit::start(options).map_err(|source| StartError::Audit {
        path: path.into(),
        source,
    })
}

/// Where a connection comes from; the client's id is its requests'.
pub(crate) fn origin(connection: &ConnectionInfo) -> Origin {
    Origin {
        principal: Some(connection.principal.clone()),
        address: Some(connection.peer.ip()),
        client_id: None,
        listener: Some(connection.listener.clone()),
    }
}

/// A request's origin.
pub(crate) fn origin_of(cx: &Cx) -> Origin {
    let client_id = cx.header.client_id.as_deref();
    Origin {
        client_id: client_id.map(Arc::from),
        ..origin(&cx.connection)
    }
}

/// Transactions that were ended by somebody else than their client, sessions that were fenced.
pub(crate) fn tell_of_owner(audit: &Audit, event: &OwnerEvent) {
    if audit.is_on()
        && let Some(event) = of_owner(event)
    {
        audit.record(|| event);
    }
}

fn of_owner(event: &OwnerEvent) -> Option<Event> {
    let aborted = |principal: &str, client_id: &str, host: &str| {
        Event::new(Kind::TransactionAborted)
            .principal(principal)
            .client_id(client_id)
            .host(host)
    };
    let by = |principal: &str, client_id: &str, host: &str| {
        format!(
            "{principal} (client {client_id:?} at {})",
            host.trim_start_matches('/')
        )
    };
    Some(match event {
        // A limit is no matter of rights: it is counted and said with the others.
        OwnerEvent::TransactionEnded { .. } | OwnerEvent::LimitReached { .. } => return None,
        OwnerEvent::ProducerFenced {
            transactional_id,
            producer_id,
            old_epoch,
            new_epoch: _,
            who,
            by_principal,
            by_client_id,
            by_host,
        } => aborted(&who.principal, &who.client_id, &who.host)
            .producer(transactional_id, producer_id.0, old_epoch.0)
            .by(&by(by_principal, by_client_id, by_host))
            .reason("a new session of the transactional id took over"),
        OwnerEvent::SessionReplaced {
            transactional_id,
            producer_id,
            old_epoch,
            new_epoch: _,
            old_principal,
            old_client_id,
            old_host,
            by_principal,
            by_client_id,
            by_host,
        } => Event::new(Kind::ProducerFenced)
            .principal(old_principal)
            .client_id(old_client_id)
            .host(old_host)
            .producer(transactional_id, producer_id.0, old_epoch.0)
            .by(&by(by_principal, by_client_id, by_host))
            .reason("a new session of the transactional id; nothing was open"),
        OwnerEvent::TransactionTimedOut {
            transactional_id,
            producer_id,
            epoch,
            timeout_ms,
            principal,
            client_id,
            host,
        } => aborted(principal, client_id, host)
            .producer(transactional_id, producer_id.0, epoch.0)
            .by("the broker")
            .reason(&format!("its timeout of {timeout_ms} ms was over")),
        OwnerEvent::TransactionMayBeIncomplete {
            transactional_id,
            producer_id,
            epoch,
            principal,
            client_id,
            host,
        } => aborted(principal, client_id, host)
            .producer(transactional_id, producer_id.0, epoch.0)
            .by("the broker")
            .reason("records of it may be lost: the broker did not stop in order"),
        OwnerEvent::TransactionAborted {
            transactional_id,
            producer_id,
            epoch,
            who:
                Who {
                    principal,
                    client_id,
                    host,
                },
            by: aborted_by,
        } => {
            let event = aborted(principal, client_id, host).producer(
                transactional_id,
                producer_id.0,
                epoch.0,
            );
            match aborted_by {
                AbortedBy::Operator {
                    principal,
                    client_id,
                    host,
                } => event
                    .by(&by(principal, client_id, host))
                    .reason("an operator asked for it"),
                AbortedBy::TopicDeleted { topic } => event.reason(&format!(
                    "topic {topic}, which it was writing to, was deleted"
                )),
                AbortedBy::Exclusive { operation, topic } => event.reason(&format!(
                    "{} of topic {topic}, which it was writing to",
                    operation.name()
                )),
            }
        }
    })
}

/// What a command is to change: resource by resource, in the order of its reply.
pub(crate) struct Changes(Vec<Change>);

struct Change {
    resource_type: &'static str,
    name: String,
    what: String,
}

impl Changes {
    /// `None`: the command changes nothing that is told of, or only asks whether it could.
    pub(crate) fn of(command: &Command) -> Option<Changes> {
        let topic = |name: &str, what: String| Change {
            resource_type: "Topic",
            name: name.to_owned(),
            what,
        };
        let group = |name: &str, what: &str| Change {
            resource_type: "Group",
            name: name.to_owned(),
            what: what.to_owned(),
        };
        let changes = match command {
            Command::CreateTopics(create) if !create.validate_only => {
                let topics = create.topics.iter();
                topics
                    .map(|asked| {
                        let configs = asked.configs.iter();
                        let configs = configs.map(|(name, value)| {
                            config(name, "=", value.as_deref().unwrap_or_default(), false)
                        });
                        let mut what = format!("created, partitions {}", asked.partitions);
                        what += &told(configs);
                        topic(&asked.name, what)
                    })
                    .collect()
            }
            Command::CreatePartitions(create) if !create.validate_only => {
                let topics = create.topics.iter();
                topics
                    .map(|asked| {
                        topic(&asked.name, format!("partitions raised to {}", asked.count))
                    })
                    .collect()
            }
            Command::DeleteTopics(delete) => {
                let topics = delete.topics.iter();
                topics
                    .map(|asked| match asked {
                        DeleteTopic::Name(name) => topic(name, "deleted".to_owned()),
                        DeleteTopic::Id(id) => topic(&id.to_string(), "deleted".to_owned()),
                    })
                    .collect()
            }
            Command::AlterConfigs(alter) if !alter.validate_only => {
                let resources = alter.resources.iter();
                resources
                    .map(|asked| {
                        let of_broker = matches!(asked.resource, ConfigResource::Broker(_));
                        let what = altered(&asked.alteration, of_broker);
                        match &asked.resource {
                            ConfigResource::Topic(name) => topic(name, what),
                            ConfigResource::Broker(id) => Change {
                                resource_type: "Broker",
                                name: id.map_or("every".to_owned(), |id| id.0.to_string()),
                                what,
                            },
                        }
                    })
                    .collect()
            }
            Command::CreateAcls(acls) => {
                let acls = acls.iter();
                acls.map(|acl| Change {
                    resource_type: "Acl",
                    name: acl.name.to_string(),
                    what: format!("added: {acl}"),
                })
                .collect()
            }
            // What is removed, its reply tells.
            Command::DeleteAcls(filters) => {
                let filters = filters.iter();
                filters
                    .map(|_| Change {
                        resource_type: "Acl",
                        name: String::new(),
                        what: "removal of what a filter means".to_owned(),
                    })
                    .collect()
            }
            Command::AlterScram(alter) => {
                let mut users: BTreeMap<&str, Vec<String>> = BTreeMap::new();
                for gone in &alter.deletions {
                    let what = format!("{} removed", scram(gone.mechanism));
                    users.entry(&gone.user).or_default().push(what);
                }
                for set in &alter.upsertions {
                    let iterations = set.credential.iterations;
                    let what = format!("{} set, {iterations} iterations", scram(set.mechanism));
                    users.entry(&set.user).or_default().push(what);
                }
                let users = users.into_iter();
                users
                    .map(|(user, what)| Change {
                        resource_type: "User",
                        name: user.to_owned(),
                        what: what.join(", "),
                    })
                    .collect()
            }
            Command::DeleteGroups(groups) => {
                groups.iter().map(|name| group(name, "deleted")).collect()
            }
            Command::OffsetDelete(delete) => {
                vec![group(&delete.group_id, "offsets deleted")]
            }
            _ => return None,
        };
        Some(Changes(changes))
    }

    /// Tells what became of them. `None`: it was not decided, or is not known to last.
    pub(crate) fn tell(self, cx: &Cx, reply: Option<&Reply>) {
        if let Some(Reply::DeleteAcls(deleted)) = reply {
            for deleted in deleted {
                let acls = match deleted {
                    Ok(acls) => acls,
                    Err((code, why)) => {
                        let failed = Some((*code, Some(why.clone())));
                        tell_change(cx, "Acl", "", "removal of what a filter means", failed);
                        continue;
                    }
                };
                for acl in acls {
                    tell_change(cx, "Acl", &acl.name, &format!("removed: {acl}"), None);
                }
            }
            return;
        }
        let unknown = || Some((ErrorCode::RequestTimedOut, None));
        let mut results: Vec<Option<(ErrorCode, Option<String>)>> = match reply {
            Some(Reply::CreateTopics(created)) => (created.iter())
                .map(|topic| failed(topic.error, topic.message.clone()))
                .collect(),
            Some(Reply::DeleteTopics(deleted)) => (deleted.iter())
                .map(|topic| failed(topic.error, topic.message.clone()))
                .collect(),
            Some(
                Reply::CreatePartitions(results)
                | Reply::AlterConfigs(results)
                | Reply::CreateAcls(results),
            ) => (results.iter())
                .map(|result| result.clone().err().map(|(code, why)| (code, Some(why))))
                .collect(),
            Some(Reply::AlterScram(altered)) => {
                let of = |change: &Change| {
                    let mut altered = altered.iter();
                    match altered.find(|(user, _)| *user == change.name) {
                        Some((_, result)) => {
                            result.clone().err().map(|(code, why)| (code, Some(why)))
                        }
                        None => unknown(),
                    }
                };
                self.0.iter().map(of).collect()
            }
            Some(Reply::DeleteGroups(codes)) => {
                codes.iter().map(|code| failed(*code, None)).collect()
            }
            Some(Reply::OffsetDelete(result)) => {
                vec![result.as_ref().err().map(|code| (*code, None))]
            }
            _ => Vec::new(),
        };
        results.resize_with(self.0.len(), unknown);
        for (n, (change, result)) in self.0.into_iter().zip(results).enumerate() {
            let mut name = change.name;
            // A topic that was named by its id has a name, too.
            if let Some(Reply::DeleteTopics(deleted)) = reply
                && let Some(known) = deleted.get(n).and_then(|topic| topic.name.clone())
            {
                name = known;
            }
            tell_change(cx, change.resource_type, &name, &change.what, result);
        }
    }
}

fn failed(code: ErrorCode, why: Option<String>) -> Option<(ErrorCode, Option<String>)> {
    code.is_err().then_some((code, why))
}

/// One change of a request; `failed` is why it did not come to be.
pub(crate) fn tell_change(
    cx: &Cx,
    resource_type: &'static str,
    name: &str,
    what: &str,
    failed: Option<(ErrorCode, Option<String>)>,
) {
    cx.shared.audit.record(|| {
        let event = Event::new(Kind::Change)
            .of(&origin_of(cx))
            .api(cx.header.api_key.name())
            .resource(resource_type, name)
            .change(what);
        match failed {
            None => event.outcome(Outcome::Succeeded),
            Some((code, why)) => {
                let why = why.map_or(String::new(), |why| format!(": {why}"));
                event
                    .outcome(Outcome::Failed)
                    .reason(&format!("{}{why}", code.name()))
            }
        }
    });
}

fn altered(alteration: &Alteration, of_broker: bool) -> String {
    match alteration {
        Alteration::Replacement(configs) => {
            let configs = configs.iter();
            let configs = configs.map(|(name, value)| config(name, "=", value, of_broker));
            format!("all set anew{}", told(configs))
        }
        Alteration::Changes(changes) => {
            let changes = changes.iter();
            let changes = changes.map(|(name, change)| match change {
                ConfigChange::Set(value) => config(name, "=", value, of_broker),
                ConfigChange::Append(value) => config(name, "+=", value, of_broker),
                ConfigChange::Subtract(value) => config(name, "-=", value, of_broker),
                ConfigChange::Delete => format!("{name} to its default"),
            });
            format!("set{}", told(changes))
        }
    }
}

fn told(configs: impl ExactSizeIterator<Item = String>) -> String {
    let count = configs.len();
    let mut text = String::new();
    for config in configs.take(MAX_CONFIGS) {
        text += if text.is_empty() { ": " } else { ", " };
        text += &config;
    }
    if count > MAX_CONFIGS {
        text += &format!(", and {} more", count - MAX_CONFIGS);
    }
    text
}

fn scram(mechanism: i8) -> String {
    match mechanism {
        1 => "SCRAM-SHA-256".to_owned(),
        2 => "SCRAM-SHA-512".to_owned(),
        other => format!("mechanism {other}"),
    }
}

/// A broker's setting is told with its value only if it is known to be no secret; topics have none.
fn config(name: &str, sign: &str, value: &str, of_broker: bool) -> String {
    let is_open = !of_broker || row(name).is_some_and(|row| !row.sensitive);
    match is_open {
        true => format!("{name}{sign}{value}"),
        false => format!("{name}{sign}(not told)"),
    }
}
