//! What a client is answered with a right and without it, on what exists and on what does not: every API
//! that is advertised, a row for each of them, each set of rights and either.
//!
//! Nobody says who he is, so that any broker can be asked: all are `User:ANONYMOUS`, and rights go by
//! the address. From [`ADMIN`] everything is allowed, from [`CLIENT`] what a row allows. The broker is
//! fresh, has Kafka's authorizer and `allow.everyone.if.no.acl.found=true`, by which the first ACLs are
//! made; as they are about every resource, nothing is left of it afterwards.

mod apis;
mod groups;
mod quotas;
mod topics;
mod transactions;
mod world;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};

use world::World;

/// Where whoever may do everything connects from.
pub const ADMIN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
/// Where the client of the rows connects from.
pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The settings that a broker must be started with, beside its addresses.
pub const SETTINGS: [(&str, &str); 4] = [
    (
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ),
    ("allow.everyone.if.no.acl.found", "true"),
    ("node.id", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
];

/// One question and its answer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    /// API and version, the rights, and whether what is asked for exists.
    pub question: String,
    /// Error codes, and where it says so other numbers of the answer. Empty: the connection was closed.
    pub answer: Vec<i64>,
}

impl Row {
    /// `question -> 29 0`.
    pub fn line(&self) -> String {
        let answer: Vec<String> = self.answer.iter().map(i64::to_string).collect();
        format!("{} -> {}", self.question, answer.join(" "))
    }
}

/// An API, at a version or in a way of use.
pub(crate) struct Asked {
    pub key: i16,
    pub name: &'static str,
    /// Sets of rights: `OPERATION RESOURCE`, commas between; the empty one comes by itself.
    pub rights: &'static [&'static str],
    pub ask: fn(&mut World) -> Result<Vec<i64>>,
}

const TABLES: [&[Asked]; 6] = [
    apis::ASKED,
    quotas::ASKED,
    quotas::FILTERS,
    topics::ASKED,
    groups::ASKED,
    transactions::ASKED,
];

/// The keys of the APIs that rows ask for.
pub fn driven() -> BTreeSet<i16> {
    TABLES
        .into_iter()
        .flatten()
        .map(|asked| asked.key)
        .collect()
}

/// Asks everything.
pub fn run(address: SocketAddr) -> Result<Vec<Row>> {
    let mut world = World::begin(address)?;
    let mut rows = Vec::new();
    for asked in TABLES.into_iter().flatten() {
        for rights in std::iter::once(&"").chain(asked.rights) {
            for exists in [true, false] {
                let what = match rights.is_empty() {
                    true => "nothing",
                    false => rights,
                };
                let question = format!(
                    "{} | {what} | {}",
                    asked.name,
                    if exists { "there" } else { "not there" }
                );
                let answer = world
                    .row(exists, rights, asked.ask)
                    .with_context(|| question.clone())?;
                rows.push(Row { question, answer });
            }
        }
    }
    Ok(rows)
}
