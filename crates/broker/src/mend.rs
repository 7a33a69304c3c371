//! Start: segments that are shorter than was synced get their bytes back from the journal.
//!
//! The journal is read once more for it, before replay, and read only: so replay itself finds the
//! logs as the checkpoint describes them, and knows nothing of this. The journal keeps more than a
//! start replays (a slot keeps its records until it is used again), so more than the checkpoint asks
//! for may still be there.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemark_disk::Disk;
use tidemark_journal::{JournalOptions, oldest_index, recover};
use tidemark_owner::Record;
use tidemark_partition_log::{LogError, LogStore, SegmentManifest, Shortened};
use tidemark_types::{JournalIndex, TopicPartitionId};
use tracing::warn;

use crate::error::StartError;

/// Makes the segments of `manifests` as long as they were, one pass over the journal for the first
/// of each partition.
///
/// Errors: what is missing and why the journal cannot give it; nothing was changed then.
pub(crate) fn mend(
    manifests: &[(TopicPartitionId, SegmentManifest)],
    store: &Arc<LogStore>,
    disk: &Arc<dyn Disk>,
    journal: &JournalOptions,
) -> Result<(), StartError> {
    loop {
        let mut shortened: BTreeMap<TopicPartitionId, Shortened> = BTreeMap::new();
        for (id, manifest) in manifests {
            if let Some(short) = manifest.shortened(store, *id)? {
                shortened.insert(*id, short);
            }
        }
        if shortened.is_empty() {
            return Ok(());
        }
        read_journal(&mut shortened, disk, journal)?;
        for short in shortened.into_values() {
            let (id, found) = (short.partition(), short.found().to_string());
            let bytes = short.finish()?;
            warn!("partition {id}: {found}; {bytes} bytes of it were taken from the journal");
        }
    }
}

fn read_journal(
    shortened: &mut BTreeMap<TopicPartitionId, Shortened>,
    disk: &Arc<dyn Disk>,
    journal: &JournalOptions,
) -> Result<(), StartError> {
    let oldest = oldest_index(&**disk, journal)?.unwrap_or(JournalIndex(1));
    let needed = shortened
        .values()
        .map(|short| short.first_needed_index().unwrap_or(oldest))
        .min();
    let from = needed.unwrap_or(oldest).max(oldest);
    let mut failed: Option<LogError> = None;
    let read = recover(disk.clone(), journal.clone(), from, &mut |found| {
        let record = Record::decode(found.index, found.tick, found.wall_ms, &found.payload)
            .map_err(|e| e.to_string())?;
        for append in &record.appends {
            if let Some(short) = shortened.get_mut(&append.partition)
                && let Err(e) = short.offer(&append.batch, record.tick, record.index)
            {
                let text = e.to_string();
                failed = Some(e);
                return Err(text);
            }
        }
        Ok(())
    });
    match failed {
        Some(e) => Err(e.into()),
        None => Ok(read.map(|_| ())?),
    }
}
