//! What a checkpoint says against what the batches say.

use std::collections::{BTreeMap, BTreeSet};

use crate::checkpoint::{Checkpoint, STATE_BLOCK};
use crate::data_dir::{DataDir, Expected};
use crate::finding::{Bad, Findings, mend};
use crate::groups::{CommittedOffset, GroupRecord, OffsetKey};
use crate::ids::{PartitionId, TopicId};
use crate::partition::Partition;
use crate::segments_block::Aborted;
use crate::state_block::{KeyedRecord, Producer, StateBlock};
use crate::transactions::{self, TransactionalIds};

/// Compares a partition's blocks with what its batches came to when they were taken, `then`, and come
/// to now.
pub(crate) fn partition(
    expected: &Expected,
    id: PartitionId,
    then: &Partition,
    now: &Partition,
    findings: &mut Findings,
) {
    let Expected {
        segments, state, ..
    } = expected;
    let mut bad = |what: String, mend: &'static str| {
        let bad = Bad::new(expected.position, format!("{id}: {what}"));
        findings.bad(bad, &expected.file, mend);
    };
    if now.log_end_offset < state.log_end_offset {
        let what = format!(
            "the log ends at {}, its segments and the journal's records at {}",
            state.log_end_offset, now.log_end_offset
        );
        return bad(what, mend::JOURNAL);
    }
    if segments.log_start_offset != state.log_start_offset {
        let what = format!(
            "the log starts at {} in its list of segments, at {} in its state",
            segments.log_start_offset, state.log_start_offset
        );
        bad(what, mend::REPORT);
    }
    for what in contradictions(&segments.aborted, state, then) {
        let what = format!("the checkpoint and the batches: {what}");
        bad(what, mend::REPORT);
    }
}

/// Where somebody's account of a partition, its state and its aborted transactions, contradicts what
/// its batches say. In each text the account comes first.
pub fn contradictions(aborted: &[Aborted], state: &StateBlock, found: &Partition) -> Vec<String> {
    let mut all = Vec::new();
    if found.log_end_offset != state.log_end_offset {
        let (said, seen) = (state.log_end_offset, found.log_end_offset);
        all.push(format!("the log ends at {said}, and at {seen}"));
        return all;
    }
    // What begins below the first batch that is left is not all there to compute from.
    let first = found.first_held();
    let known = |offset: i64| found.complete || offset >= first;
    let open = |producers: &BTreeMap<i64, Producer>| -> Vec<(i64, i64)> {
        let open = producers.iter();
        open.filter_map(|(id, p)| Some((p.open_from.filter(|at| known(*at))?, *id)))
            .collect()
    };
    let (said, seen) = (open(&state.producers), open(&found.producers));
    if let Some((offset, id)) = said.iter().find(|txn| !seen.contains(txn)) {
        all.push(format!(
            "a transaction of producer {id} is open since offset {offset}, and is not"
        ));
    }
    if let Some((offset, id)) = seen.iter().find(|txn| {
        let earlier = state.producers.get(&txn.1).and_then(|p| p.open_from);
        !said.contains(txn) && earlier.is_none_or(known)
    }) {
        all.push(format!(
            "no transaction of producer {id} is open, and one is since offset {offset}"
        ));
    }
    all.extend(aborted_contradiction(
        aborted,
        state.log_start_offset,
        found,
    ));
    for (producer_id, seen) in &found.producers {
        // One that is not known was forgotten.
        if let Some(said) = state.producers.get(producer_id)
            && let Err(what) = producer(said, seen, found)
        {
            all.push(format!("producer {producer_id}: {what}"));
        }
    }
    all
}

fn aborted_contradiction(aborted: &[Aborted], log_start: i64, found: &Partition) -> Option<String> {
    let first = found.first_held();
    // Below the log start they are forgotten, sooner or later.
    let wanted = |txn: &&Aborted| txn.last_offset >= log_start.max(first);
    let seen: Vec<&Aborted> = found.aborted.iter().filter(wanted).collect();
    // Without any data there is nothing to compute it from.
    let without_data = |txn: &&Aborted| !found.aborted_before.contains(&txn.last_offset);
    let said = aborted.iter().filter(wanted);
    let said: Vec<&Aborted> = match found.complete {
        true => said.collect(),
        false => said.filter(without_data).collect(),
    };
    let same = |said: &Aborted, seen: &Aborted| match found.complete {
        true => said == seen,
        // An older transaction that was open then, and data of this one, may be gone.
        false => {
            said.producer_id == seen.producer_id
                && said.last_offset == seen.last_offset
                && (found.compacted
                    || said.first_offset < first
                    || said.first_offset == seen.first_offset)
        }
    };
    let n = (0..said.len().max(seen.len())).find(|n| match (said.get(*n), seen.get(*n)) {
        (Some(said), Some(seen)) => !same(said, seen),
        _ => true,
    })?;
    Some(format!(
        "aborted transaction {n} is {:?}, and {:?}",
        said.get(n),
        seen.get(n)
    ))
}

fn producer(said: &Producer, seen: &Producer, found: &Partition) -> Result<(), String> {
    // Of an active producer compaction leaves the last batch only, or its last marker.
    let same = said.epoch == seen.epoch && said.open_from == seen.open_from;
    let last = |producer: &Producer| producer.window.last().map(|batch| batch.base_sequence);
    if found.compacted && same && (last(said) == last(seen) || seen.window.is_empty()) {
        return Ok(());
    }
    // Of one that was forgotten, nobody says when any more, and came again, batches and markers from
    // before are there as well.
    let (complete, forgotten) = (found.complete, found.forgotten_unsaid);
    // Of batches that are not in the log any more the checkpoint alone knows.
    let (skip_said, skip_seen) = match complete {
        true if !forgotten => (0, 0),
        true => (0, seen.window.len().saturating_sub(said.window.len())),
        false => (
            said.window.len().saturating_sub(seen.window.len()),
            seen.window.len().saturating_sub(said.window.len()),
        ),
    };
    let markers = said.coordinator_epoch == seen.coordinator_epoch
        || (!complete && seen.coordinator_epoch == -1)
        || (forgotten && said.coordinator_epoch == -1);
    let windows = said.window[skip_said..] == seen.window[skip_seen..];
    if said.epoch != seen.epoch || !markers || !windows {
        return Err(format!("{said:?}, and {seen:?}"));
    }
    Ok(())
}

/// Compares the records that the checkpoint's blocks of internal topics hold with the logs, when the
/// logs have not grown since.
pub(crate) fn snapshots(checkpoint: &Checkpoint, data: &DataDir, findings: &mut Findings) {
    let blocks = checkpoint.blocks.iter().filter(|b| b.kind == STATE_BLOCK);
    let states = blocks.filter_map(|block| Some((block.partition, StateBlock::parse(block).ok()?)));
    for what in internal_contradictions(states, data) {
        let what = format!("the checkpoint and the log: {what}");
        findings.damage(&checkpoint.file, what, mend::REPORT);
    }
}

/// Where the state blocks of the internal topics contradict the logs. A topic whose logs are longer
/// than its blocks is left out. In each text the block comes first.
pub fn internal_contradictions(
    states: impl Iterator<Item = (PartitionId, StateBlock)>,
    data: &DataDir,
) -> Vec<String> {
    let mut all = Vec::new();
    let mut offsets = Offsets::new();
    let mut ids = TransactionalIds::new();
    let mut grown = [false; 2];
    for (partition, state) in states {
        let end = data.partitions.get(&partition).map(|p| p.log_end_offset);
        let which = match partition.topic {
            TopicId::CONSUMER_OFFSETS => 0,
            TopicId::TRANSACTION_STATE => 1,
            _ => continue,
        };
        grown[which] |= end.is_some_and(|end| end != state.log_end_offset);
        for record in state.records {
            let error = match which {
                0 => collect_offset(&record, &mut offsets),
                _ => collect_id(&record, &mut ids),
            };
            all.extend(error.err().map(|what| format!("{partition}: {what}")));
        }
    }
    if !grown[0] {
        let keys: BTreeSet<_> = offsets.keys().chain(data.groups.offsets.keys()).collect();
        for key in keys {
            let (said, seen) = (offsets.get(key), data.groups.offsets.get(key));
            if said != seen {
                all.push(format!("{key:?} is {said:?}, and {seen:?}"));
            }
        }
    }
    if !grown[1] {
        let names: BTreeSet<_> = ids.keys().chain(data.transactional_ids.keys()).collect();
        for name in names {
            let (said, seen) = (ids.get(name), data.transactional_ids.get(name));
            if said != seen {
                all.push(format!(
                    "transactional id {name:?} is {said:?}, and {seen:?}"
                ));
            }
        }
    }
    all
}

type Offsets = BTreeMap<OffsetKey, CommittedOffset>;

fn collect_offset(record: &KeyedRecord, offsets: &mut Offsets) -> Result<(), String> {
    let parsed = GroupRecord::parse(&record.key, Some(&record.value), record.offset)?;
    if let GroupRecord::Offset(key, Some(value)) = parsed
        && record.producer_id < 0
    {
        offsets.insert(key, value);
    }
    Ok(())
}

fn collect_id(record: &KeyedRecord, ids: &mut TransactionalIds) -> Result<(), String> {
    let id = transactions::parse_key(&record.key)?;
    ids.insert(id, transactions::parse_value(&record.value)?);
    Ok(())
}
