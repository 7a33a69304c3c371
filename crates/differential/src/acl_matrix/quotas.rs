//! Quotas of clients. What sets one is asked for without the right only: with it Kafka takes it, and
//! Tidemark, which has none, does not (COMPAT.md).

use anyhow::Result;
use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::{AlterClientQuotasRequest, DescribeClientQuotasRequest};

use super::Asked;
use super::world::{World, numbers, text};

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;
const BELOW: i8 = -1;

macro_rules! described {
    ($($name:literal: $($kind:literal $match_type:tt $named:expr),*;)*) => {
        &[$(Asked {
            key: 48,
            name: concat!("DescribeClientQuotas v1", $name),
            rights: &["DescribeConfigs cluster"],
            ask: |w| describe(w, vec![$(component($kind, $match_type, $named)),*]),
        },)*]
    };
}

pub(super) const FILTERS: &[Asked] = described! {
    " of anybody": ;
    " of every user": "user" ANY None;
    " of one user": "user" EXACT Some("nobody");
    " of the default client id of a user": "user" EXACT Some("nobody"), "client-id" DEFAULT None;
    " of every address": "ip" ANY None;
    " of no kind": "" ANY None;
    " of an unknown kind": "group" ANY None;
    " of one kind twice": "user" ANY None, "user" EXACT Some("nobody");
    " of an unknown kind twice": "group" ANY None, "group" ANY None;
    " of an address and a user": "ip" ANY None, "user" ANY None;
    " of an address and a client id": "client-id" ANY None, "ip" DEFAULT None;
    " of one user without a name": "user" EXACT None;
    " of the default user by a name": "user" DEFAULT Some("nobody");
    " of every user by a name": "user" ANY Some("nobody");
    " of an unknown match type": "user" 3 None;
    " of a negative match type": "user" BELOW Some("nobody");
    " of an empty name": "user" EXACT Some("");
};

pub(super) const ASKED: &[Asked] = &[
    Asked {
        key: 48,
        name: "DescribeClientQuotas v0",
        rights: &[
            "DescribeConfigs cluster",
            "AlterConfigs cluster",
            "Describe cluster",
            "Alter cluster",
            "All cluster",
        ],
        ask: |w| {
            let answer = w.ask(0, &DescribeClientQuotasRequest::default())?;
            numbers(answer, |a| {
                vec![a.error_code.into(), count(a.entries.as_deref())]
            })
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 that sets one",
        rights: &["Alter cluster", "DescribeConfigs cluster"],
        ask: |w| alter(w, vec![entry(&[USER], &[set("producer_byte_rate", 1.0)])]),
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v0 that takes one away",
        rights: &["AlterConfigs cluster", "Alter cluster"],
        ask: |w| {
            let entries = vec![entry(&[USER], &[away("producer_byte_rate")])];
            alter_at(w, 0, entries)
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 that takes one away",
        rights: &["AlterConfigs cluster", "Alter cluster"],
        ask: |w| alter(w, vec![entry(&[USER], &[away("producer_byte_rate")])]),
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of nothing",
        rights: &["AlterConfigs cluster"],
        ask: |w| alter(w, vec![]),
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 that changes nothing",
        rights: &["AlterConfigs cluster"],
        ask: |w| alter(w, vec![entry(&[USER], &[])]),
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 that takes an unknown one away",
        rights: &["AlterConfigs cluster"],
        ask: |w| alter(w, vec![entry(&[USER], &[away("no_such_rate")])]),
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 that sets an unknown one",
        rights: &["AlterConfigs cluster"],
        ask: |w| alter(w, vec![entry(&[USER], &[set("no_such_rate", 1.0)])]),
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 that sets an address's for a user",
        rights: &["AlterConfigs cluster"],
        ask: |w| {
            let ops = [set("connection_creation_rate", 1.0)];
            alter(w, vec![entry(&[USER], &ops)])
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 that sets one to 0",
        rights: &["AlterConfigs cluster"],
        ask: |w| alter(w, vec![entry(&[USER], &[set("producer_byte_rate", 0.0)])]),
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of one twice",
        rights: &["AlterConfigs cluster"],
        ask: |w| {
            let ops = [away("producer_byte_rate"), away("producer_byte_rate")];
            alter(w, vec![entry(&[USER], &ops)])
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of a user twice",
        rights: &["AlterConfigs cluster"],
        ask: |w| {
            let once = || entry(&[USER], &[away("producer_byte_rate")]);
            alter(w, vec![once(), once()])
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of nobody",
        rights: &["AlterConfigs cluster"],
        ask: |w| alter(w, vec![entry(&[], &[away("producer_byte_rate")])]),
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of an unknown kind",
        rights: &["AlterConfigs cluster"],
        ask: |w| {
            let of = [("group", Some("g"))];
            alter(w, vec![entry(&of, &[away("producer_byte_rate")])])
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of an empty name",
        rights: &["AlterConfigs cluster"],
        ask: |w| {
            let of = [("user", Some(""))];
            alter(w, vec![entry(&of, &[away("producer_byte_rate")])])
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of the default user and a client id",
        rights: &["AlterConfigs cluster"],
        ask: |w| {
            let of = [("user", None), ("client-id", Some("c"))];
            alter(w, vec![entry(&of, &[away("producer_byte_rate")])])
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of an address",
        rights: &["AlterConfigs cluster"],
        ask: |w| {
            let of = [("ip", Some("10.0.0.1"))];
            alter(w, vec![entry(&of, &[away("connection_creation_rate")])])
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of what is no address",
        rights: &["AlterConfigs cluster"],
        ask: |w| {
            let of = [("ip", Some("example.invalid"))];
            alter(w, vec![entry(&of, &[away("connection_creation_rate")])])
        },
    },
    Asked {
        key: 49,
        name: "AlterClientQuotas v1 of an address and a user",
        rights: &["AlterConfigs cluster"],
        ask: |w| {
            let of = [("ip", Some("10.0.0.1")), USER];
            alter(w, vec![entry(&of, &[away("connection_creation_rate")])])
        },
    },
];

const USER: (&str, Option<&str>) = ("user", Some("nobody"));

fn component(kind: &str, match_type: i8, named: Option<&str>) -> ComponentData {
    ComponentData::default()
        .with_entity_type(text(kind))
        .with_match_type(match_type)
        .with_match(named.map(text))
}

/// -1 where there is no list.
fn count<T>(list: Option<&[T]>) -> i64 {
    list.map_or(-1, |list| list.len() as i64)
}

fn describe(w: &mut World, components: Vec<ComponentData>) -> Result<Vec<i64>> {
    let request = DescribeClientQuotasRequest::default().with_components(components);
    let answer = w.ask(1, &request)?;
    numbers(answer, |a| {
        vec![a.error_code.into(), count(a.entries.as_deref())]
    })
}

fn set(key: &str, value: f64) -> OpData {
    OpData::default().with_key(text(key)).with_value(value)
}

fn away(key: &str) -> OpData {
    OpData::default().with_key(text(key)).with_remove(true)
}

fn entry(of: &[(&str, Option<&str>)], ops: &[OpData]) -> EntryData {
    let entity = of.iter().map(|(kind, name)| {
        EntityData::default()
            .with_entity_type(text(kind))
            .with_entity_name(name.map(text))
    });
    EntryData::default()
        .with_entity(entity.collect())
        .with_ops(ops.to_vec())
}

fn alter(w: &mut World, entries: Vec<EntryData>) -> Result<Vec<i64>> {
    alter_at(w, 1, entries)
}

fn alter_at(w: &mut World, version: i16, entries: Vec<EntryData>) -> Result<Vec<i64>> {
    let request = AlterClientQuotasRequest::default().with_entries(entries);
    let answer = w.ask(version, &request)?;
    numbers(answer, |a| {
        a.entries.iter().map(|e| e.error_code.into()).collect()
    })
}
