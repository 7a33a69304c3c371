//! Checks 6 and 7: nobody reads beyond the begin of a transaction that is open, and no watermark goes back.
//!
//! A transaction that was certainly open until T holds its partitions at the first offset it wrote there. Whoever, before
//! T, was given a later offset with read_committed, or was told of a last stable offset beyond it, was told too much. It
//! need not be known when that first offset was written: a later one can only be there after it.

use std::collections::BTreeMap;

use super::model::{Model, Step};
use super::outcome::Outcome;
use super::verdict::{Check, Verdict};

pub(crate) fn check(model: &Model, verdict: &mut Verdict) {
    let holds = Holds::new(model);
    reads(model, &holds, verdict);
    watermarks(model, &holds, verdict);
    backward(model, verdict);
    ends(model, verdict);
}

/// Of each partition the transactions by their first offsets: (first offset, open until, transaction); the time and the
/// transaction are those of the longest up to here.
struct Holds(Vec<Vec<(i64, u64, usize)>>);

impl Holds {
    fn new(model: &Model) -> Holds {
        let mut holds: Vec<BTreeMap<i64, (u64, usize)>> =
            vec![BTreeMap::new(); model.partitions.len()];
        let mut places: std::collections::HashMap<u64, i64> = std::collections::HashMap::new();
        for (offset, value) in model.raw.iter().flat_map(|scan| &scan.records) {
            places.insert(*value, *offset);
        }
        for (at, txn) in model.txns.iter().enumerate() {
            let mut first: BTreeMap<usize, i64> = BTreeMap::new();
            for &value in &txn.values {
                let value = &model.values[value];
                let offset = value.offset.or_else(|| places.get(&value.id).copied());
                if let Some(offset) = offset {
                    let first = first.entry(value.partition).or_insert(offset);
                    *first = (*first).min(offset);
                }
            }
            for (partition, offset) in first {
                holds[partition].insert(offset, (txn.open_until, at));
            }
        }
        let running = |of: BTreeMap<i64, (u64, usize)>| {
            let mut longest = (0, 0);
            let of = of.into_iter().map(|(offset, (until, txn))| {
                longest = longest.max((until, txn));
                (offset, longest.0, longest.1)
            });
            of.collect()
        };
        Holds(holds.into_iter().map(running).collect())
    }

    /// The transaction that began below `end` and was open longest, if it was open at `at`.
    fn open(&self, partition: usize, end: i64, at: u64) -> Option<usize> {
        let of = &self.0[partition];
        let before = of.partition_point(|(first, _, _)| *first < end);
        let (_, until, txn) = of.get(before.checked_sub(1)?)?;
        (*until > at).then_some(*txn)
    }
}

fn reads(model: &Model, holds: &Holds, verdict: &mut Verdict) {
    for poll in model.polls.iter().filter(|poll| poll.read_committed) {
        for &(partition, offset, id) in &poll.records {
            let writer = model.value(id).and_then(|value| value.txn);
            if let Some(writer) = writer {
                let writer = &model.txns[writer];
                if writer.outcome != Outcome::Fail
                    && writer.commit_from().is_some_and(|from| poll.to < from)
                {
                    verdict.find(Check::EarlyRead, || {
                        format!(
                            "{} read {} before it was to be committed",
                            model.clients[poll.client].name,
                            model.name(id)
                        )
                    });
                }
            }
            let open = holds.open(partition, offset.saturating_add(1), poll.to);
            if let Some(open) = open {
                verdict.find(Check::Snapshot, || {
                    format!(
                        "{} read {} while transaction {}, which begins at or before it, was open",
                        model.clients[poll.client].name,
                        model.place(partition, offset),
                        model.txns[open].id
                    )
                });
            }
        }
    }
}

fn watermarks(model: &Model, holds: &Holds, verdict: &mut Verdict) {
    // Of each partition, by the time of the answer, the highest end that acknowledgements up to then imply.
    let mut acked: Vec<Vec<(u64, i64)>> = vec![Vec::new(); model.partitions.len()];
    for value in &model.values {
        if let (Some(at), Some(offset)) = (value.sent_at, value.offset) {
            acked[value.partition].push((at, offset.saturating_add(1)));
        }
    }
    for acked in &mut acked {
        acked.sort_unstable();
        let mut highest = 0;
        for (_, end) in acked {
            highest = highest.max(*end);
            *end = highest;
        }
    }
    for step in model.clients.iter().flat_map(|client| &client.steps) {
        let Step::Watermarks(at) = *step else {
            continue;
        };
        let said = &model.watermarks[at];
        if said.read_committed {
            let open = holds.open(said.partition, said.end, said.to);
            if let Some(open) = open {
                verdict.find(Check::Watermark, || {
                    format!(
                        "the last stable offset was said to be {} while transaction {}, which begins before it, was open",
                        model.place(said.partition, said.end),
                        model.txns[open].id
                    )
                });
            }
            continue;
        }
        let acked = &acked[said.partition];
        let before = acked.partition_point(|(at, _)| *at < said.from);
        if let Some((_, end)) = before.checked_sub(1).and_then(|at| acked.get(at))
            && *end > said.end
        {
            verdict.find(Check::Watermark, || {
                format!(
                    "the high watermark was said to be {}, after offset {} had been acknowledged",
                    model.place(said.partition, said.end),
                    *end - 1
                )
            });
        }
    }
}

fn backward(model: &Model, verdict: &mut Verdict) {
    for client in &model.clients {
        let mut last: BTreeMap<(usize, bool), (i64, i64)> = BTreeMap::new();
        for step in &client.steps {
            let Step::Watermarks(at) = *step else {
                continue;
            };
            let said = &model.watermarks[at];
            let key = (said.partition, said.read_committed);
            let before = last.insert(key, (said.start, said.end));
            if let Some((start, end)) = before
                && (said.start < start || said.end < end)
            {
                verdict.find(Check::Watermark, || {
                    format!(
                        "{} was told of {start}..{end}, then of {}..{} (read_committed={}) in {}",
                        client.name,
                        said.start,
                        said.end,
                        said.read_committed,
                        model.place(said.partition, said.end)
                    )
                });
            }
        }
    }
    for said in &model.watermarks {
        let end = match said.read_committed {
            true => model.committed[said.partition].end,
            false => model.raw[said.partition].end,
        };
        if said.end > end {
            verdict.find(Check::Watermark, || {
                format!(
                    "{} was said to be the end (read_committed={}), which in the end is {end}",
                    model.place(said.partition, said.end),
                    said.read_committed
                )
            });
        }
    }
}

/// In the end nothing is open, so both ends are one.
fn ends(model: &Model, verdict: &mut Verdict) {
    for (partition, (committed, raw)) in model.committed.iter().zip(&model.raw).enumerate() {
        if committed.end != raw.end {
            verdict.find(Check::Watermark, || {
                format!(
                    "the last stable offset stays at {}, the log ends at {}",
                    model.place(partition, committed.end),
                    raw.end
                )
            });
        }
    }
}
