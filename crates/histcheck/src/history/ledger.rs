//! Checks 8 and 9: what was moved is what was read, once; and money is neither made nor lost.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::log::LogView;
use super::model::{Model, Move};
use super::outcome::Outcome;
use super::verdict::{Check, Verdict};

pub(crate) fn check(model: &Model, log: Option<&LogView>, verdict: &mut Verdict) {
    for moved in &model.moves {
        moves(model, moved, verdict);
    }
    bank(model, verdict);
    if let Some(log) = log {
        bank_over_time(model, log, verdict);
    }
}

/// Each record of the source below the group's offset has led to exactly one of the target; none beyond it has.
fn moves(model: &Model, moved: &Move, verdict: &mut Verdict) {
    let mut outputs: HashMap<u64, u64> = HashMap::new();
    let scans = model.partitions.iter().zip(&model.committed);
    for ((topic, _), scan) in scans.clone() {
        if *topic != moved.target {
            continue;
        }
        for (_, id) in &scan.records {
            if let Some(input) = model.value(*id).and_then(|value| value.input) {
                *outputs.entry(input).or_insert(0) += 1;
            }
        }
    }
    let mut inputs: HashSet<u64> = HashSet::new();
    for ((topic, partition), scan) in scans {
        if *topic != moved.source {
            continue;
        }
        let key = (moved.group.clone(), topic.clone(), *partition);
        let upto = model.group_offsets.get(&key).copied().unwrap_or(-1);
        for &(offset, id) in &scan.records {
            inputs.insert(id);
            let (times, due) = (
                outputs.get(&id).copied().unwrap_or(0),
                u64::from(offset < upto),
            );
            if times != due {
                verdict.find(Check::Ledger, || {
                    format!(
                        "{} at {topic}-{partition} offset {offset} led to {times} records in {}; group {} stands at {upto}",
                        model.name(id),
                        moved.target,
                        moved.group
                    )
                });
            }
        }
    }
    for input in outputs.keys().filter(|input| !inputs.contains(input)) {
        verdict.find(Check::Ledger, || {
            format!(
                "a record in {} was made from {}, which is not in {}",
                moved.target,
                model.name(*input),
                moved.source
            )
        });
    }
}

/// What is there in the end adds up to nothing.
fn bank(model: &Model, verdict: &mut Verdict) {
    let records = model.committed.iter().flat_map(|scan| &scan.records);
    let amounts = records.filter_map(|(_, id)| model.value(*id)?.amount);
    let total: i128 = amounts.map(i128::from).sum();
    if total != 0 {
        verdict.find(Check::Bank, || format!("the accounts add up to {total}"));
    }
}

/// So it does at every moment, as the log has the moments: at each tick whole transactions become visible.
fn bank_over_time(model: &Model, log: &LogView, verdict: &mut Verdict) {
    let mut by_tick: BTreeMap<u64, (i128, u64)> = BTreeMap::new();
    for record in log.partitions.values().flat_map(|log| &log.records) {
        if let (Some(tick), Some(value)) = (record.visible_at, model.value(record.value))
            && let Some(amount) = value.amount
        {
            let at = by_tick.entry(tick).or_insert((0, record.value));
            at.0 += i128::from(amount);
        }
    }
    let mut total: i128 = 0;
    for (tick, (sum, id)) in by_tick {
        let before = total;
        total += sum;
        // Told where it begins to be wrong, and not again for each moment after it.
        if before == 0 && total != 0 {
            verdict.find(Check::Bank, || {
                format!(
                    "from tick {tick} on the accounts add up to {total} ({})",
                    model.name(id)
                )
            });
        }
    }
    // A transaction's records become visible at one tick.
    let mut ticks: HashMap<usize, (u64, u64)> = HashMap::new();
    for record in log.partitions.values().flat_map(|log| &log.records) {
        let txn = model.value(record.value).and_then(|value| value.txn);
        if let (Some(txn), Some(tick)) = (txn, record.visible_at)
            && model.txns[txn].outcome == Outcome::Ok
        {
            let (first, last) = ticks.entry(txn).or_insert((tick, tick));
            (*first, *last) = ((*first).min(tick), (*last).max(tick));
        }
    }
    for (txn, (first, last)) in ticks {
        if first != last {
            verdict.find(Check::Torn, || {
                format!(
                    "transaction {} settled at tick {first} in one partition, at {last} in another",
                    model.txns[txn].id
                )
            });
        }
    }
}
