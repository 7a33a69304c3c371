//! Lines of a script as requests. The same line gives both brokers the same bytes, but for the ids
//! that each has drawn.

mod admin;
mod data;
mod groups;
mod txn;
mod txn_admin;

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use kafka_protocol::messages::{GroupId, ProducerId, TopicName, TransactionalId};
use kafka_protocol::protocol::{Request, StrBytes};

use crate::env::Env;
use crate::script::Line;

/// A request, its header still missing.
#[derive(Clone, Debug)]
pub struct Body {
    pub key: i16,
    pub version: i16,
    pub bytes: Vec<u8>,
    /// False for Produce with acks=0.
    pub is_answered: bool,
}

/// The API of a verb; `None` for verbs that are no request of one.
pub fn key_of(verb: &str) -> Option<i16> {
    Some(match verb {
        "produce" => 0,
        "fetch" => 1,
        "offsets" => 2,
        "metadata" => 3,
        "commit" => 8,
        "committed" => 9,
        "find" => 10,
        "join" => 11,
        "heartbeat" => 12,
        "leave" => 13,
        "sync" => 14,
        "describe-groups" => 15,
        "list-groups" => 16,
        "api-versions" => 18,
        "create" => 19,
        "delete" => 20,
        "delete-records" => 21,
        "init" => 22,
        "epoch-end" => 23,
        "add-partitions" => 24,
        "add-offsets" => 25,
        "end" => 26,
        "write-markers" => 27,
        "txn-commit" => 28,
        "describe-configs" => 32,
        "create-partitions" => 37,
        "delete-groups" => 42,
        "alter-configs" => 44,
        "delete-offsets" => 47,
        "describe-cluster" => 60,
        "describe-producers" => 61,
        "describe-txns" => 65,
        "list-txns" => 66,
        _ => return None,
    })
}

/// The request of a line.
pub fn build(line: &Line, version: i16, env: &Env) -> Result<Body> {
    let v = version;
    match line.verb.as_str() {
        "produce" => data::produce(line, v, env),
        "fetch" => data::fetch(line, v, env),
        "offsets" => data::list_offsets(line, v),
        "epoch-end" => data::offset_for_leader_epoch(line, v),
        "init" => txn::init_producer_id(line, v, env),
        "add-partitions" => txn::add_partitions(line, v, env),
        "add-offsets" => txn::add_offsets(line, v, env),
        "end" => txn::end(line, v, env),
        "txn-commit" => txn::offset_commit(line, v, env),
        "write-markers" => txn_admin::write_markers(line, v, env),
        "describe-producers" => txn_admin::describe_producers(line, v),
        "describe-txns" => txn_admin::describe_transactions(line, v),
        "list-txns" => txn_admin::list_transactions(line, v, env),
        "commit" => groups::offset_commit(line, v, env),
        "committed" => groups::offset_fetch(line, v),
        "join" => groups::join(line, v, env),
        "sync" => groups::sync(line, v, env),
        "heartbeat" => groups::heartbeat(line, v, env),
        "leave" => groups::leave(line, v, env),
        "describe-groups" => groups::describe(line, v),
        "list-groups" => groups::list(line, v),
        "delete-groups" => groups::delete(line, v),
        "delete-offsets" => groups::delete_offsets(line, v),
        "find" => groups::find_coordinator(line, v),
        "metadata" => admin::metadata(line, v, env),
        "api-versions" => admin::api_versions(line, v),
        "create" => admin::create_topics(line, v),
        "delete" => admin::delete_topics(line, v, env),
        "delete-records" => admin::delete_records(line, v),
        "create-partitions" => admin::create_partitions(line, v),
        "describe-configs" => admin::describe_configs(line, v),
        "alter-configs" => admin::alter_configs(line, v),
        "describe-cluster" => admin::describe_cluster(line, v),
        "call" => call(line),
        verb => bail!("no verb {verb}"),
    }
}

/// `call key=3 v=0 body=7fffffff`: any key and version, any bytes behind the header.
fn call(line: &Line) -> Result<Body> {
    let bytes = hex(line.get("body").unwrap_or(""))?;
    Ok(Body {
        key: line.need("key")?.parse()?,
        version: line.need("v")?.parse()?,
        bytes,
        is_answered: true,
    })
}

/// A typed request, encoded.
///
/// # Errors
/// When the version does not know a field that is set.
pub fn encode<R: Request>(version: i16, request: &R) -> Result<Body> {
    let mut bytes = BytesMut::new();
    request
        .encode(&mut bytes, version)
        .with_context(|| format!("API {} v{version} does not encode", R::KEY))?;
    Ok(Body {
        key: R::KEY,
        version,
        bytes: bytes.to_vec(),
        is_answered: true,
    })
}

/// Bytes written as hexadecimal digits.
pub fn hex(digits: &str) -> Result<Vec<u8>> {
    let nibbles: Option<Vec<u32>> = digits.chars().map(|c| c.to_digit(16)).collect();
    let nibbles = nibbles.with_context(|| format!("{digits}: no hexadecimal number"))?;
    if nibbles.len() % 2 != 0 {
        bail!("{digits}: half a byte");
    }
    Ok(nibbles
        .chunks(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect())
}

fn text(s: &str) -> StrBytes {
    StrBytes::from_string(s.to_owned())
}

fn topic_name(s: &str) -> TopicName {
    TopicName(text(s))
}

fn group_id(s: &str) -> GroupId {
    GroupId(text(s))
}

fn transactional_id(s: &str) -> TransactionalId {
    TransactionalId(text(s))
}

/// The id and epoch of `by=`.
fn by(line: &Line, env: &Env) -> Result<(ProducerId, i16)> {
    let (id, epoch) = env.producer(line.get("by").unwrap_or("none"))?;
    Ok((ProducerId(id), epoch))
}

/// `topic/partition@offset`; the offset may be missing.
struct Place<'a> {
    topic: &'a str,
    partition: i32,
    offset: Option<i64>,
}

/// The arguments without a name, which are places, by topic in the order of their first mention.
fn places<'a>(line: &'a Line) -> Result<Vec<(&'a str, Vec<Place<'a>>)>> {
    let mut topics: Vec<(&str, Vec<Place<'_>>)> = Vec::new();
    for word in &line.words {
        let (topic, rest) = word
            .rsplit_once('/')
            .with_context(|| format!("{word}: no topic/partition"))?;
        let (partition, offset) = match rest.split_once('@') {
            Some((partition, offset)) => (partition, Some(offset.parse()?)),
            None => (rest, None),
        };
        let place = Place {
            topic,
            partition: partition.parse()?,
            offset,
        };
        match topics.iter_mut().find(|(name, _)| *name == topic) {
            // `twice=1` keeps a topic that is named again as an entry of its own.
            Some((_, places)) if !line.flag("twice", false)? => places.push(place),
            _ => topics.push((place.topic, vec![place])),
        }
    }
    Ok(topics)
}
