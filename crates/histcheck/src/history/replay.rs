//! Check 10: the log of the stopped broker, read by other code, is what the broker served last.

use super::log::LogView;
use super::model::{Model, Scan};
use super::verdict::{Check, Verdict};

pub(crate) fn check(model: &Model, log: &LogView, verdict: &mut Verdict) {
    for (at, (topic, partition)) in model.partitions.iter().enumerate() {
        let Some(read) = log.partitions.get(&(topic.clone(), *partition)) else {
            verdict.find(Check::Replay, || {
                format!("{topic}-{partition} is not in the log")
            });
            continue;
        };
        let raw = read.records.iter().map(|r| (r.offset, r.value));
        let visible = read.records.iter().filter(|r| r.visible_at.is_some());
        let scans = [
            (&model.raw[at], read.end, raw.collect()),
            (
                &model.committed[at],
                read.last_stable_offset,
                visible.map(|r| (r.offset, r.value)).collect::<Vec<_>>(),
            ),
        ];
        for (scan, end, records) in scans {
            let read = Scan {
                start: read.start,
                end,
                records,
            };
            if let Some(what) = difference(scan, &read) {
                verdict.find(Check::Replay, || format!("{topic}-{partition}: {what}"));
            }
        }
    }
    for (key, served) in &model.group_offsets {
        let read = log.group_offsets.get(key).copied().unwrap_or(-1);
        if read != *served {
            verdict.find(Check::Replay, || {
                format!("{key:?}: the broker served offset {served}, the log has {read}")
            });
        }
    }
    for id in &log.ongoing {
        let ours = |client: &super::model::Client| client.transactional_id.as_ref() == Some(id);
        if model.clients.iter().any(ours) {
            verdict.find(Check::Replay, || {
                format!("the transaction of {id} is open in the log, though all were ended")
            });
        }
    }
}

fn difference(served: &Scan, read: &Scan) -> Option<String> {
    if (served.start, served.end) != (read.start, read.end) {
        return Some(format!(
            "the broker served {}..{}, the log has {}..{}",
            served.start, served.end, read.start, read.end
        ));
    }
    let pairs = served.records.iter().zip(&read.records);
    let first = pairs.into_iter().find(|(a, b)| a != b);
    if let Some((served, read)) = first {
        return Some(format!(
            "the broker served {served:?}, the log has {read:?}"
        ));
    }
    (served.records.len() != read.records.len()).then(|| {
        format!(
            "the broker served {} records, the log has {}",
            served.records.len(),
            read.records.len()
        )
    })
}
