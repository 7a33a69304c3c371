//! Check 3: a transaction is there wholly or not at all, its group offsets included. And fencing: once InitProducerId was
//! answered, no earlier instance of that transactional id writes or commits.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::model::Model;
use super::outcome::Outcome;
use super::verdict::{Check, Verdict};

pub(crate) fn check(model: &Model, verdict: &mut Verdict) {
    torn_records(model, verdict);
    torn_offsets(model, verdict);
    fencing(model, verdict);
}

fn torn_records(model: &Model, verdict: &mut Verdict) {
    let records = model.committed.iter().flat_map(|scan| &scan.records);
    let visible: HashSet<u64> = records.map(|(_, value)| *value).collect();
    for txn in &model.txns {
        let parts = || {
            let values = txn.values.iter().map(|&value| &model.values[value]);
            values.filter(|value| value.answer != Outcome::Fail)
        };
        let seen = parts().filter(|part| visible.contains(&part.id)).count();
        let all = parts().count();
        if seen > 0 && seen < all {
            verdict.find(Check::Torn, || {
                let missing = parts().find(|part| !visible.contains(&part.id));
                format!(
                    "{seen} of {all} records of transaction {} of {} are read in the end; {} is not",
                    txn.id,
                    model.clients[txn.client].name,
                    missing.map_or(String::new(), |part| model.name(part.id))
                )
            });
        }
    }
}

/// A group's offset is that of the last transaction that committed one. A transaction of which nothing tells whether it
/// committed may have moved it too.
fn torn_offsets(model: &Model, verdict: &mut Verdict) {
    /// The offsets of one group for one partition.
    #[derive(Default)]
    struct Moves {
        committed: Option<i64>,
        possible: Vec<i64>,
    }
    let never_sent = |value: &usize| model.values[*value].answer == Outcome::Fail;
    let mut moves: BTreeMap<&(String, String, i32), Moves> = BTreeMap::new();
    for txn in &model.txns {
        for offset in &txn.offsets {
            let moves = moves.entry(&offset.key).or_default();
            // A transaction that committed and left traces has its offsets in it too.
            match txn.outcome {
                Outcome::Ok if offset.ok => {
                    moves.committed = moves.committed.max(Some(offset.offset));
                }
                Outcome::Ok => moves.possible.push(offset.offset),
                // With records, the records have told: none of them is there, so it did not commit.
                Outcome::Unknown if txn.values.iter().all(never_sent) => {
                    moves.possible.push(offset.offset);
                }
                Outcome::Unknown | Outcome::Fail => {}
            }
        }
    }
    for (key, moves) in moves {
        let Some(&found) = model.group_offsets.get(key) else {
            continue;
        };
        let found = (found >= 0).then_some(found);
        let possible = || found.is_some_and(|found| moves.possible.contains(&found));
        if found != moves.committed && !(found > moves.committed && possible()) {
            let (group, topic, partition) = key;
            verdict.find(Check::Torn, || {
                format!(
                    "group {group} stands at {found:?} in {topic}-{partition}; its newest committed transaction moved it to {:?}",
                    moves.committed
                )
            });
        }
    }
}

fn fencing(model: &Model, verdict: &mut Verdict) {
    // Of each transactional id: when InitProducerId was answered, and to which instance.
    let mut inits: HashMap<&str, Vec<(u64, u64, usize)>> = HashMap::new();
    for (at, client) in model.clients.iter().enumerate() {
        if let (Some(id), Some(from), Some(to)) =
            (&client.transactional_id, client.init_from, client.init_to)
        {
            inits.entry(id).or_default().push((from, to, at));
        }
    }
    // The instance that had begun after this one, before `at`.
    let successor = |client: usize, at: u64| {
        let of = &model.clients[client];
        let began = of.init_to?;
        let all = inits.get(of.transactional_id.as_deref()?)?;
        all.iter()
            .find(|(from, to, other)| *other != client && *from > began && *to < at)
            .map(|(_, _, other)| *other)
    };
    for txn in &model.txns {
        for offset in txn.offsets.iter().filter(|offset| offset.ok) {
            if let Some(other) = successor(txn.client, offset.from) {
                verdict.find(Check::Fencing, || {
                    format!(
                        "{} moved a group's offset in transaction {} after {} had begun",
                        model.clients[txn.client].name, txn.id, model.clients[other].name
                    )
                });
            }
        }
        let Some((from, _)) = txn.committed() else {
            continue;
        };
        if let Some(other) = successor(txn.client, from) {
            verdict.find(Check::Fencing, || {
                format!(
                    "{} committed transaction {} after {} had begun",
                    model.clients[txn.client].name, txn.id, model.clients[other].name
                )
            });
        }
    }
    for value in &model.values {
        if value.offset.is_some()
            && let Some(other) = successor(value.client, value.at)
        {
            verdict.find(Check::Fencing, || {
                format!(
                    "{} was written after {} had begun",
                    model.name(value.id),
                    model.clients[other].name
                )
            });
        }
    }
}
