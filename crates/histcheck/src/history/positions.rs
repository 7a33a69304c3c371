//! Checks 1 and 2: one record per offset, one offset per record; what was acknowledged is there, what was aborted is
//! not, and what a reader got stays.

use std::collections::{HashMap, HashSet};

use super::model::Model;
use super::outcome::Outcome;
use super::verdict::{Check, Verdict};

pub(crate) fn check(model: &Model, verdict: &mut Verdict) {
    let at = version_order(model, verdict);
    duplicates(model, &at, verdict);
    presence(model, verdict);
    vanished(model, verdict);
}

/// Of each partition what is at which offset, from acknowledgements, polls and the final scans together.
fn version_order(model: &Model, verdict: &mut Verdict) -> Vec<HashMap<i64, u64>> {
    let mut at: Vec<HashMap<i64, u64>> = vec![HashMap::new(); model.partitions.len()];
    let acked = model.values.iter().filter_map(|value| {
        let offset = value.offset?;
        Some((value.partition, offset, value.id))
    });
    let polled = model.polls.iter().flat_map(|poll| poll.records.iter());
    let scanned = [&model.raw, &model.committed]
        .into_iter()
        .flat_map(|scans| scans.iter().enumerate())
        .flat_map(|(partition, scan)| {
            let records = scan.records.iter();
            records.map(move |&(offset, value)| (partition, offset, value))
        });
    for (partition, offset, value) in acked.chain(polled.copied()).chain(scanned) {
        let first = *at[partition].entry(offset).or_insert(value);
        if first != value {
            verdict.find(Check::InconsistentOffset, || {
                format!(
                    "{} is {} and {}",
                    model.place(partition, offset),
                    model.name(first),
                    model.name(value)
                )
            });
        }
    }
    at
}

fn duplicates(model: &Model, at: &[HashMap<i64, u64>], verdict: &mut Verdict) {
    let mut places: HashMap<u64, (usize, i64)> = HashMap::new();
    for (partition, offsets) in at.iter().enumerate() {
        let mut offsets: Vec<(i64, u64)> = offsets.iter().map(|(&o, &v)| (o, v)).collect();
        offsets.sort_unstable();
        for (offset, id) in offsets {
            match model.value(id) {
                Some(value) if value.partition == partition => {}
                _ => verdict.find(Check::InconsistentOffset, || {
                    format!(
                        "{} holds {}",
                        model.place(partition, offset),
                        model.name(id)
                    )
                }),
            }
            if let Some((other, first)) = places.insert(id, (partition, offset)) {
                verdict.find(Check::Duplicate, || {
                    format!(
                        "{} is at {} and at {}",
                        model.name(id),
                        model.place(other, first),
                        model.place(partition, offset)
                    )
                });
            }
        }
    }
}

fn ids(scans: &[super::model::Scan]) -> HashSet<u64> {
    let records = scans.iter().flat_map(|scan| &scan.records);
    records.map(|(_, value)| *value).collect()
}

fn presence(model: &Model, verdict: &mut Verdict) {
    let (visible, raw) = (ids(&model.committed), ids(&model.raw));
    for value in &model.values {
        let (seen, there) = (visible.contains(&value.id), raw.contains(&value.id));
        match model.outcome(value) {
            Outcome::Ok if !there => verdict.find(Check::Lost, || {
                format!(
                    "{}, acknowledged at {:?}, is not in the log",
                    model.name(value.id),
                    value.offset
                )
            }),
            Outcome::Ok if !seen => verdict.find(Check::Unseen, || {
                format!(
                    "{} is in the log, and a read_committed reader does not get it",
                    model.name(value.id)
                )
            }),
            Outcome::Fail if seen => verdict.find(Check::AbortedRead, || {
                format!(
                    "{} was aborted or never sent, and is read in the end",
                    model.name(value.id)
                )
            }),
            _ => {}
        }
    }
    let polls = model.polls.iter().filter(|poll| poll.read_committed);
    for (poll, &(partition, offset, id)) in
        polls.flat_map(|p| p.records.iter().map(move |r| (p, r)))
    {
        let failed = |value| model.outcome(value) == Outcome::Fail;
        if model.value(id).is_some_and(failed) {
            verdict.find(Check::AbortedRead, || {
                format!(
                    "{} read {} at {}, which was aborted or never sent",
                    model.clients[poll.client].name,
                    model.name(id),
                    model.place(partition, offset)
                )
            });
        }
    }
}

/// What was read once is there in the end. (A history's topics keep everything above their final log start.)
fn vanished(model: &Model, verdict: &mut Verdict) {
    for poll in &model.polls {
        let scans = match poll.read_committed {
            true => &model.committed,
            false => &model.raw,
        };
        for &(partition, offset, id) in &poll.records {
            let scan = &scans[partition];
            let found = scan.records.binary_search_by_key(&offset, |(at, _)| *at);
            if found.is_err() && offset >= scan.start {
                verdict.find(Check::VanishedRead, || {
                    format!(
                        "{} read {} at {}, which is not there in the end",
                        model.clients[poll.client].name,
                        model.name(id),
                        model.place(partition, offset)
                    )
                });
            }
        }
    }
}
