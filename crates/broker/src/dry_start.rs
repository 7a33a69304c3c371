//! A start that changes nothing and serves nothing: what state would come of a data directory?

use std::path::Path;
use std::sync::Arc;

use tidemark_abort_index::AbortedTxn;
use tidemark_config::Settings;
use tidemark_disk::{Disk, ReadOnlyDisk};
use tidemark_journal::{CutReport, JournalOptions, recover};
use tidemark_owner::{Observation, Owner, Record};
use tidemark_partition_log::{
    LogError, LogStore, SegmentManifest, StoreSettings, read_latest, recover_logs,
};
use tidemark_types::{JournalIndex, TopicPartitionId};

use crate::error::StartError;
use crate::identity::Identity;
use crate::maintenance::{KNOWN_BLOCKS, OWNER_BLOCK, log_of};
use crate::replay::{journal_slot_bytes, manifest, owner_options};
use crate::start::{CHECKPOINTS, JOURNAL};

/// The state that a start would come to.
pub struct DryStart {
    pub owner: Owner,
    /// Aborted transactions of each partition, in the order of their markers.
    pub aborted: std::collections::BTreeMap<TopicPartitionId, Vec<AbortedTxn>>,
    /// Records of the journal that it replays.
    pub records: u64,
    /// The end of an interrupted write that it leaves out.
    pub cut: Option<CutReport>,
}

/// Runs a start of `settings.data_dir` up to where it would begin to write: the same checks, the
/// same replay. The caller holds the directory's lock.
///
/// Errors: what the start would be refused with.
pub fn dry_start(settings: &Settings, disk: Arc<dyn Disk>) -> Result<DryStart, StartError> {
    let disk: Arc<dyn Disk> = Arc::new(ReadOnlyDisk(disk));
    let dir: &Path = &settings.data_dir;
    let identity = Identity::read(&*disk, dir)?.ok_or_else(|| StartError::Identity {
        path: dir.join("identity"),
        what: "it is missing".to_owned(),
        mend: "restore it from a copy of the data directory".to_owned(),
    })?;
    let mut start = DryStart {
        owner: Owner::new(owner_options(settings)),
        aborted: Default::default(),
        records: 0,
        cut: None,
    };
    let id = identity.directory_id;
    let checkpoint = read_latest(&*disk, &dir.join(CHECKPOINTS), id, KNOWN_BLOCKS)?;
    let mut from = JournalIndex(1);
    if let Some(checkpoint) = &checkpoint {
        from = checkpoint.header.replay_from;
        for block in checkpoint.blocks.iter().filter(|b| b.kind == OWNER_BLOCK) {
            (start.owner)
                .restore_block(block.partition, block.stamp, &block.payload)
                .map_err(|e| StartError::Replay(e.to_string()))?;
        }
        let store = LogStore::open(disk.clone(), dir, id, &StoreSettings::default())?;
        let mut manifests: Vec<(TopicPartitionId, SegmentManifest)> = Vec::new();
        for (partition, block) in log_of(&checkpoint.blocks) {
            let listed = manifest(&block.payload, partition)?;
            let aborted = listed.aborted.entries().to_vec();
            start.aborted.insert(partition, aborted);
            manifests.push((partition, listed));
        }
        for (_, recovered) in recover_logs(&store, manifests) {
            match recovered {
                // A start would take the bytes from the journal, if they are still there.
                Ok(_) | Err(LogError::Short { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    let options = JournalOptions {
        slot_bytes: journal_slot_bytes(settings),
        budget_bytes: settings.journal_budget_bytes,
        ..JournalOptions::new(dir.join(JOURNAL), id)
    };
    let (owner, aborted) = (&mut start.owner, &mut start.aborted);
    let recovery = recover(disk, options, from, &mut |record| {
        let record = Record::decode(record.index, record.tick, record.wall_ms, &record.payload)
            .map_err(|e| e.to_string())?;
        for observation in owner.replay(&record).map_err(|e| e.to_string())? {
            if let Observation::Appended(appended) = observation
                && let Some(txn) = appended.aborted
            {
                aborted.entry(appended.partition).or_default().push(txn);
            }
        }
        Ok(())
    })?;
    start.records = recovery.records;
    start.cut = recovery.cut;
    (start.owner)
        .check_replayed()
        .map_err(|e| StartError::Replay(e.to_string()))?;
    Ok(start)
}
