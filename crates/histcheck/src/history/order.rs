//! Check 4: a producer's records stand in the log in the order in which it sent them, and a consumer's positions only
//! grow, with nothing left out, except where its position was set.

use std::collections::{BTreeMap, HashMap};

use super::model::{Model, Step};
use super::verdict::{Check, Verdict};

pub(crate) fn check(model: &Model, verdict: &mut Verdict) {
    let mut places: HashMap<u64, i64> = HashMap::new();
    for (offset, value) in model.raw.iter().flat_map(|scan| &scan.records) {
        // The first place of one that is there twice, which is another finding.
        let place = places.entry(*value).or_insert(*offset);
        *place = (*place).min(*offset);
    }
    for client in &model.clients {
        let mut sent: BTreeMap<usize, (i64, u64)> = BTreeMap::new();
        let mut read: BTreeMap<(usize, bool), i64> = BTreeMap::new();
        for step in &client.steps {
            match *step {
                Step::Send(value) => {
                    let value = &model.values[value];
                    let Some(&offset) = places.get(&value.id) else {
                        continue;
                    };
                    if let Some((before, earlier)) =
                        sent.insert(value.partition, (offset, value.id))
                        && before > offset
                    {
                        verdict.find(Check::Order, || {
                            format!(
                                "{} stands at {offset}, {}, which was sent before it, at {before}",
                                model.name(value.id),
                                model.name(earlier)
                            )
                        });
                    }
                }
                Step::Assign => read.clear(),
                Step::Poll(poll) => {
                    let poll = &model.polls[poll];
                    for &(partition, offset, _) in &poll.records {
                        let last = read.insert((partition, poll.read_committed), offset);
                        if let Some(last) = last {
                            step_of_reader(
                                model,
                                &client.name,
                                poll.read_committed,
                                partition,
                                (last, offset),
                                verdict,
                            );
                        }
                    }
                }
                Step::Txn(_) | Step::Watermarks(_) => {}
            }
        }
    }
}

fn step_of_reader(
    model: &Model,
    reader: &str,
    read_committed: bool,
    partition: usize,
    (last, offset): (i64, i64),
    verdict: &mut Verdict,
) {
    if offset <= last {
        return verdict.find(Check::BackwardRead, || {
            format!(
                "{reader} read {} after offset {last}",
                model.place(partition, offset)
            )
        });
    }
    let scan = match read_committed {
        true => &model.committed[partition],
        false => &model.raw[partition],
    };
    let next = scan.records.partition_point(|(at, _)| *at <= last);
    if let Some(&(skipped, value)) = scan.records.get(next)
        && skipped < offset
    {
        verdict.find(Check::SkippedRead, || {
            format!(
                "{reader} went from offset {last} to {}, past {} at {skipped}",
                model.place(partition, offset),
                model.name(value)
            )
        });
    }
}
