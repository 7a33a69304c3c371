//! What a checkpoint says against what the batches say.

use std::collections::BTreeMap;

use crate::checkpoint::{Checkpoint, STATE_BLOCK};
use crate::data_dir::DataDir;
use crate::finding::{Bad, Findings, mend};
use crate::ids::{PartitionId, TopicId};
use crate::partition::Partition;
use crate::segments_block::{Aborted, SegmentsBlock};
use crate::state_block::{Producer, StateBlock};

/// Compares a partition whose log is as long as when the checkpoint took it.
pub(crate) fn partition(
    file: &str,
    position: u64,
    id: PartitionId,
    segments: &SegmentsBlock,
    state: &StateBlock,
    found: &Partition,
    findings: &mut Findings,
) {
    let mut bad = |what: String| {
        let bad = Bad::new(position, format!("{id}: {what}"));
        findings.bad(bad, file, mend::REPORT);
    };
    if found.log_end_offset != state.log_end_offset {
        bad(format!(
            "the checkpoint's log ends at {}, the batches at {}",
            state.log_end_offset, found.log_end_offset
        ));
        return;
    }
    let stable = state.last_stable_offset();
    if stable != found.last_stable_offset {
        bad(format!(
            "the checkpoint's last stable offset is {stable}, the batches give {}",
            found.last_stable_offset
        ));
    }
    // What begins below the first batch that is left cannot be computed from the batches.
    let first = (found.batches.first()).map_or(found.log_end_offset, |b| b.header.base_offset);
    let known = |txn: &&Aborted| found.complete || txn.first_offset >= first;
    let said: Vec<&Aborted> = segments.aborted.iter().filter(known).collect();
    let seen: Vec<&Aborted> = found.aborted.iter().filter(known).collect();
    if said != seen && found.complete {
        let differs = (0..said.len().max(seen.len())).find(|n| said.get(*n) != seen.get(*n));
        let n = differs.unwrap_or(0);
        bad(format!(
            "aborted transaction {n}: the checkpoint says {:?}, the batches say {:?}",
            said.get(n),
            seen.get(n)
        ));
    }
    for (producer_id, seen) in &found.producers {
        match state.producers.get(producer_id) {
            Some(said) => {
                if let Err(what) = producer(said, seen, found) {
                    bad(format!("producer {producer_id}: {what}"));
                }
            }
            // Forgotten after its time; with an open transaction it would not be.
            None if seen.open_from.is_some() => bad(format!(
                "producer {producer_id} has a transaction open since offset {:?}, and the \
                 checkpoint does not know it",
                seen.open_from
            )),
            None => {}
        }
    }
    for (producer_id, said) in &state.producers {
        if said.open_from.is_some() && !found.producers.contains_key(producer_id) {
            bad(format!(
                "the checkpoint says that producer {producer_id} has a transaction open since \
                 offset {:?}, and it has no batch",
                said.open_from
            ));
        }
    }
}

fn producer(said: &Producer, seen: &Producer, found: &Partition) -> Result<(), String> {
    // Of an active producer compaction leaves the last batch only, or its last marker.
    let same = said.epoch == seen.epoch && said.open_from == seen.open_from;
    let last = |producer: &Producer| producer.window.last().map(|batch| batch.base_sequence);
    if found.compacted && same && (last(said) == last(seen) || seen.window.is_empty()) {
        return Ok(());
    }
    // Of batches that are not in the log any more the checkpoint alone knows.
    let skip = said.window.len().saturating_sub(seen.window.len());
    let window = match found.complete {
        true => &said.window[..],
        false => &said.window[skip..],
    };
    if said.epoch != seen.epoch
        || said.open_from != seen.open_from
        || said.coordinator_epoch != seen.coordinator_epoch
        || window != seen.window
    {
        return Err(format!(
            "the checkpoint says {said:?}, the batches say {seen:?}"
        ));
    }
    Ok(())
}

/// Compares the records that the checkpoint's blocks of internal topics hold with the logs, when the
/// logs have not grown since.
pub(crate) fn snapshots(checkpoint: &Checkpoint, data: &DataDir, findings: &mut Findings) {
    let blocks = checkpoint.blocks.iter().filter(|b| b.kind == STATE_BLOCK);
    let mut offsets = BTreeMap::new();
    let mut ids = BTreeMap::new();
    let mut grown = [false; 2];
    for block in blocks {
        let Ok(state) = StateBlock::parse(block) else {
            return;
        };
        let end = data
            .partitions
            .get(&block.partition)
            .map(|p| p.log_end_offset);
        let which = match block.partition.topic {
            TopicId::CONSUMER_OFFSETS => 0,
            TopicId::TRANSACTION_STATE => 1,
            _ => continue,
        };
        grown[which] |= end.is_some_and(|end| end != state.log_end_offset);
        for record in state.records {
            let error = match which {
                0 => collect_offset(&record, &mut offsets),
                _ => collect_id(&record.key, &record.value, &mut ids),
            };
            if let Err(what) = error {
                let what = format!("{}: {what}", block.partition);
                let bad = Bad::new(block.position, what);
                findings.bad(bad, &checkpoint.file, mend::CHECKPOINT);
            }
        }
    }
    let mut bad = |what: String| findings.damage(&checkpoint.file, what, mend::REPORT);
    if !grown[0] {
        for (key, said) in &offsets {
            let seen = data.groups.offsets.get(key);
            if seen != Some(said) {
                bad(format!(
                    "{key:?}: the checkpoint says {said:?}, the log says {seen:?}"
                ));
            }
        }
        for key in data
            .groups
            .offsets
            .keys()
            .filter(|k| !offsets.contains_key(*k))
        {
            bad(format!(
                "{key:?}: the log has an offset that the checkpoint does not have"
            ));
        }
    }
    if !grown[1] && ids != data.transactional_ids {
        let names = ids.keys().chain(data.transactional_ids.keys());
        for name in names {
            let (said, seen) = (ids.get(name), data.transactional_ids.get(name));
            if said != seen {
                bad(format!(
                    "transactional id {name:?}: the checkpoint says {said:?}, the log says {seen:?}"
                ));
                return;
            }
        }
    }
}

type Offsets = BTreeMap<crate::groups::OffsetKey, crate::groups::CommittedOffset>;

fn collect_offset(
    record: &crate::state_block::KeyedRecord,
    offsets: &mut Offsets,
) -> Result<(), String> {
    use crate::groups::GroupRecord;
    let parsed = GroupRecord::parse(&record.key, Some(&record.value), record.offset)?;
    if let GroupRecord::Offset(key, Some(value)) = parsed
        && record.producer_id < 0
    {
        offsets.insert(key, value);
    }
    Ok(())
}

fn collect_id(
    key: &[u8],
    value: &[u8],
    ids: &mut crate::transactions::TransactionalIds,
) -> Result<(), String> {
    let id = crate::transactions::parse_key(key)?;
    ids.insert(id, crate::transactions::parse_value(value)?);
    Ok(())
}
