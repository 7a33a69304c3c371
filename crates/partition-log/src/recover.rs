//! From a checkpoint's manifest back to a log: files are cut to what was synced, what no manifest
//! names is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tidemark_disk::Disk;
use tidemark_types::TopicPartitionId;

use crate::log::Parts;
use crate::names::{
    FileKind, MARK, parse_generation_dir, parse_partition_dir, parse_segment_file, segment_path,
};
use crate::segment::{SegmentId, SegmentState, Slot, entry_error};
use crate::tick_index::{Entries, TICK_HEADER_BYTES, TickIndexHeader, entry_position};
use crate::{LogError, LogStore, PartitionLog, SegmentManifest};

impl PartitionLog {
    /// The log that `manifest` describes, without its tail: the caller replays the journal from
    /// `manifest.first_needed_index` on and gives the bytes to [`PartitionLog::restore`] (up to
    /// `manifest.end_offset`) and [`PartitionLog::append`] (from there on).
    ///
    /// Each file is cut to its synced length before anything is read from it.
    ///
    /// Errors: `Short` when a file has fewer bytes than were synced (the caller may know a way to
    /// rebuild it); `Damaged` when it is not the file that was written; I/O errors.
    pub fn recover(
        store: &Arc<LogStore>,
        partition: TopicPartitionId,
        manifest: SegmentManifest,
    ) -> Result<Arc<PartitionLog>, LogError> {
        let active = manifest.segments.len().saturating_sub(1);
        for (at, state) in manifest.segments.iter().enumerate() {
            check_segment(store, partition, state, at == active)?;
        }
        let slots = manifest.segments.into_iter().map(Slot::recovered).collect();
        let log = PartitionLog::with_parts(
            store,
            partition,
            Parts {
                epochs: manifest.epochs,
                aborted: manifest.aborted,
                compacted: manifest.compacted,
                segments: slots,
                end_offset: manifest.synced_end_offset,
                log_start_offset: manifest.log_start_offset,
            },
        );
        log.note_tail(manifest.tail);
        Ok(log)
    }
}

fn check_segment(
    store: &LogStore,
    partition: TopicPartitionId,
    state: &SegmentState,
    active: bool,
) -> Result<(), LogError> {
    let dir = state.id().dir(&store.partition_dir(partition));
    cut(store, partition, state, FileKind::Log, state.log_bytes)?;
    let tick_bytes = entry_position(state.entries);
    cut(store, partition, state, FileKind::TickIndex, tick_bytes)?;
    if active && !state.indexed {
        // Of a longer life of this segment that the manifest knows nothing of.
        for kind in FileKind::DERIVED {
            let path = segment_path(&dir, state.base_offset, kind);
            if store
                .disk
                .exists(&path)
                .map_err(|e| LogError::io(&path, e))?
            {
                store
                    .disk
                    .remove_file(&path)
                    .map_err(|e| LogError::io(&path, e))?;
            }
        }
    }

    let path = segment_path(&dir, state.base_offset, FileKind::TickIndex);
    let file = store.files.get(&path)?;
    let mut header = [0; TICK_HEADER_BYTES];
    tidemark_disk::read_exact_at(&*file, &mut header, 0).map_err(|e| LogError::io(&path, e))?;
    let wanted = TickIndexHeader {
        cluster_id: store.cluster_id(),
        partition,
        base_offset: state.base_offset,
    };
    let what = match TickIndexHeader::decode(&header) {
        Ok(header) if header == wanted => None,
        Ok(_) => Some("the header names another cluster, partition or offset"),
        Err(what) => Some(what),
    };
    if let Some(what) = what {
        return Err(LogError::Damaged {
            path,
            position: 0,
            what,
        });
    }
    let entries = Entries {
        file: &*file,
        count: state.entries,
    };
    let last = entries
        .get(state.entries - 1)
        .map_err(|e| entry_error(&dir, state.base_offset, e))?;
    let end = u64::from(last.position) + u64::from(last.size_bytes);
    if last.last_offset + 1 != state.next_offset
        || end != state.log_bytes
        || last.running_max_timestamp != state.max_timestamp
    {
        return Err(LogError::Damaged {
            path,
            position: entry_position(state.entries - 1),
            what: "the last entry is not the one that the checkpoint knows",
        });
    }
    Ok(())
}

fn cut(
    store: &LogStore,
    partition: TopicPartitionId,
    state: &SegmentState,
    kind: FileKind,
    expected: u64,
) -> Result<(), LogError> {
    let dir = state.id().dir(&store.partition_dir(partition));
    let path = segment_path(&dir, state.base_offset, kind);
    let on_file = |e| LogError::io(&path, e);
    let file = match store.files.get(&path) {
        Err(error) if error.is_not_found() => {
            return Err(LogError::Short {
                path,
                len: 0,
                expected,
            });
        }
        opened => opened?,
    };
    let len = file.len().map_err(on_file)?;
    if len < expected {
        return Err(LogError::Short {
            path,
            len,
            expected,
        });
    }
    if len > expected {
        // Not synced: before a manifest names more of this file, all of it is, and a crash until then
        // leaves a longer file for the next start to cut.
        file.set_len(expected).map_err(on_file)?;
    }
    Ok(())
}

/// Removes the directories and files of our naming that are not in `named` (partition → its
/// segments): what was written after the checkpoint, or belonged to a deleted topic.
/// Names that are not ours are left alone. Returns what was removed, relative to the directory of
/// partitions, sorted.
///
/// `named` is what either checkpoint names: the one that was read and the one before
/// ([`crate::read_previous`]). Partitions of the latter alone are to be given to
/// [`crate::Retired::retire`].
///
/// Only to be called at a start, after a valid checkpoint was read; the store's mark has shown that
/// the directory is this cluster's.
pub fn remove_unreferenced(
    store: &LogStore,
    named: &BTreeMap<TopicPartitionId, BTreeSet<SegmentId>>,
) -> Result<Vec<String>, LogError> {
    let disk = store.disk();
    let root = store.root();
    let mut removed = Vec::new();
    for entry in disk.list(root).map_err(|e| LogError::io(root, e))? {
        if entry.name == MARK || !entry.is_dir {
            continue;
        }
        let Some(partition) = parse_partition_dir(&entry.name) else {
            continue;
        };
        let dir = root.join(&entry.name);
        let empty = BTreeSet::new();
        let sweep = Sweep {
            disk: &**disk,
            named: named.get(&partition).unwrap_or(&empty),
        };
        sweep.dir(&dir, &entry.name, 0, &mut removed)?;
    }
    if !removed.is_empty() {
        disk.sync_dir(root).map_err(|e| LogError::io(root, e))?;
    }
    Ok(removed)
}

/// What is named of one partition.
struct Sweep<'a> {
    disk: &'a dyn Disk,
    named: &'a BTreeSet<SegmentId>,
}

impl Sweep<'_> {
    /// Removes what is not named from `dir`, the files of one generation, and `dir` itself if
    /// nothing is left in it. True when it is gone.
    fn dir(
        &self,
        dir: &Path,
        name: &str,
        generation: u32,
        removed: &mut Vec<String>,
    ) -> Result<bool, LogError> {
        let on_dir = |e| LogError::io(dir, e);
        let mut kept = 0;
        let before = removed.len();
        for entry in self.disk.list(dir).map_err(on_dir)? {
            let path = dir.join(&entry.name);
            let name = format!("{name}/{}", entry.name);
            let gone = match (parse_segment_file(&entry.name), entry.is_dir) {
                (Some((base_offset, _)), false) => {
                    let id = SegmentId {
                        base_offset,
                        generation,
                    };
                    let unnamed = !self.named.contains(&id);
                    if unnamed {
                        self.disk
                            .remove_file(&path)
                            .map_err(|e| LogError::io(&path, e))?;
                        removed.push(name);
                    }
                    unnamed
                }
                (_, true) if generation == 0 => match parse_generation_dir(&entry.name) {
                    Some(generation) => self.dir(&path, &name, generation, removed)?,
                    None => false,
                },
                _ => false,
            };
            kept += usize::from(!gone);
        }
        if kept == 0 {
            self.disk.remove_dir(dir).map_err(on_dir)?;
            removed.push(name.to_owned());
        } else if removed.len() > before {
            self.disk.sync_dir(dir).map_err(on_dir)?;
        }
        Ok(kept == 0)
    }
}
