//! What a client is answered with a right and without it, on what exists and on what does not: every API
//! that is advertised, a row for each of them, each set of rights and either.
//!
//! Nobody says who he is, so that any broker can be asked: all are `User:ANONYMOUS`, and rights go by
//! the address. From [`ADMIN`] everything is allowed, from [`CLIENT`] what a row allows. The broker is
//! fresh, has Kafka's authorizer and `allow.everyone.if.no.acl.found=true`, by which the first ACLs are
//! made; as they are about every resource, nothing is left of it afterwards.

mod apis;
mod groups;
mod topics;
mod transactions;
mod world;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, bail};

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

/// APIs that belong to the connection, before anybody is asked for a right.
const OF_THE_CONNECTION: [i16; 2] = [17, 36];

/// Asks everything.
pub fn run(address: SocketAddr) -> Result<Vec<Row>> {
    let mut world = World::begin(address)?;
    let mut rows = Vec::new();
    let mut driven = BTreeSet::new();
    let tables = [
        apis::ASKED,
        topics::ASKED,
        groups::ASKED,
        transactions::ASKED,
    ];
    for asked in tables.into_iter().flatten() {
        driven.insert(asked.key);
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
    let missing: Vec<i16> = (world.advertised()?.into_iter())
        .filter(|key| !driven.contains(key) && !OF_THE_CONNECTION.contains(key))
        .filter(|key| OURS.contains(key))
        .collect();
    if !missing.is_empty() {
        bail!("no row asks for the APIs {missing:?}");
    }
    Ok(rows)
}

/// Every API that Tidemark may advertise: Kafka's has more.
const OURS: [i16; 42] = [
    0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
    30, 31, 32, 33, 35, 37, 42, 44, 47, 50, 51, 60, 61, 65, 66, 75, 80,
];
