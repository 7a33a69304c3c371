//! From a checkpoint's manifest back to a log: files are as long as what was synced of them at least, and
//! what no manifest names is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemark_disk::{Disk, OpenMode};
use tidemark_types::TopicPartitionId;

use crate::log::Parts;
use crate::names::{
    FileKind, parse_generation_dir, parse_partition_dir, parse_segment_file, segment_path,
};
use crate::segment::{SegmentId, SegmentState, Slot, entry_error};
use crate::tick_index::{Entries, TICK_HEADER_BYTES, TickIndexHeader, entry_position};
use crate::{LogError, LogStore, PartitionLog, SegmentManifest};

/// What `each` makes of `items`, in their order: by so many threads, or as many of them as can be had.
fn in_parallel<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    each: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    /// Fewer are not worth a thread.
    const ITEMS_PER_THREAD_MIN: usize = 64;
    let others = threads
        .min(items.len() / ITEMS_PER_THREAD_MIN)
        .saturating_sub(1);
    let items = Mutex::new(items.into_iter().enumerate());
    let work = || {
        // The lock is not held while an item is worked on.
        let next = || items.lock().next();
        std::iter::from_fn(next)
            .map(|(at, item)| (at, each(item)))
            .collect::<Vec<(usize, R)>>()
    };
    let mut done = std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (0..others).filter_map(spawn).collect();
        let mut done = work();
        for other in others {
            match other.join() {
                Ok(part) => done.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// [`PartitionLog::recover`] of many, in their order.
pub fn recover_logs(
    store: &Arc<LogStore>,
    manifests: Vec<(TopicPartitionId, SegmentManifest)>,
) -> Vec<(TopicPartitionId, Result<Arc<PartitionLog>, LogError>)> {
    let threads = store.disk().calls_at_once();
    in_parallel(threads, manifests, |(id, manifest)| {
        (id, PartitionLog::recover(store, id, manifest))
    })
}

impl PartitionLog {
    /// The log that `manifest` describes, without its tail: the caller replays the journal from
    /// `manifest.first_needed_index` on and gives the bytes to [`PartitionLog::restore`] (up to
    /// `manifest.end_offset`) and [`PartitionLog::append`] (from there on).
    ///
    /// The last segment's files may be longer than what was synced of them. They are left so, as to cut
    /// them takes a transaction of the file system each: nobody reads beyond a segment's state, and
    /// [`crate::WriteBehind::flush`] cuts them before it writes, and when it is told to write everything.
    ///
    /// Errors: `Short` when a file has fewer bytes than were synced (the caller may know a way to
    /// rebuild it); `Damaged` when it is not the file that was written; I/O errors.
    pub fn recover(
        store: &Arc<LogStore>,
        partition: TopicPartitionId,
        manifest: SegmentManifest,
    ) -> Result<Arc<PartitionLog>, LogError> {
        let active = manifest.segments.len().saturating_sub(1);
        let mut slots = Vec::with_capacity(manifest.segments.len());
        for (at, state) in manifest.segments.into_iter().enumerate() {
            let is_longer = check_segment(store, partition, &state, at == active)?;
            slots.push(Slot {
                is_longer,
                ..Slot::recovered(state)
            });
        }
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

/// True when files of the segment that grows are longer than it is; of another one they are cut. Those of
/// the one that grows are opened as they will be for writing, so that a start says what would fail then.
fn check_segment(
    store: &LogStore,
    partition: TopicPartitionId,
    state: &SegmentState,
    active: bool,
) -> Result<bool, LogError> {
    let dir = state.id().dir(&store.partition_dir(partition));
    let path = segment_path(&dir, state.base_offset, FileKind::Log);
    let log_len = match active {
        true => (store.disk.open(&path, OpenMode::ReadWrite)).and_then(|file| file.len()),
        false => store.disk.file_len(&path),
    };
    let log_is_longer = is_longer(&path, state.log_bytes, log_len)?;
    let path = segment_path(&dir, state.base_offset, FileKind::TickIndex);
    let ticks_end = entry_position(state.entries);
    let mode = match active {
        true => OpenMode::ReadWrite,
        false => OpenMode::Read,
    };
    let file = match store.disk.open(&path, mode) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(short(&path, 0, ticks_end));
        }
        file => file.map_err(|e| LogError::io(&path, e))?,
    };
    let is_longer = is_longer(&path, ticks_end, file.len())? || log_is_longer;
    if is_longer && !active {
        cut(store, &dir, state)?;
    }
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
    Ok(is_longer && active)
}

/// Errors: `Short`, also when there is no such file; I/O errors.
fn is_longer(path: &Path, expected: u64, len: io::Result<u64>) -> Result<bool, LogError> {
    match len {
        Ok(len) if len >= expected => Ok(len > expected),
        Ok(len) => Err(short(path, len, expected)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(short(path, 0, expected)),
        Err(e) => Err(LogError::io(path, e)),
    }
}

fn short(path: &Path, len: u64, expected: u64) -> LogError {
    LogError::Short {
        path: path.to_owned(),
        len,
        expected,
    }
}

/// Makes the files of a segment as long as it is. Not synced: before a manifest names more of them, all
/// of it is, and a crash until then leaves longer files for the next start.
pub(crate) fn cut(store: &LogStore, dir: &Path, state: &SegmentState) -> Result<(), LogError> {
    for (kind, bytes) in [
        (FileKind::Log, state.log_bytes),
        (FileKind::TickIndex, entry_position(state.entries)),
    ] {
        let path = segment_path(dir, state.base_offset, kind);
        let file = store.files.get(&path)?;
        file.set_len(bytes).map_err(|e| LogError::io(&path, e))?;
    }
    Ok(())
}

/// What checkpoints name of a partition.
#[derive(Clone, Default, Debug)]
pub struct Named {
    pub segments: BTreeSet<SegmentId>,
    /// The one that grows: it has no indexes yet.
    pub growing: Option<SegmentId>,
}

impl Named {
    /// Adds what a manifest names. The newest comes last.
    pub fn add(&mut self, manifest: &SegmentManifest) {
        self.segments
            .extend(manifest.segments.iter().map(SegmentState::id));
        let last = manifest.segments.last();
        self.growing = last.filter(|last| !last.indexed).map(SegmentState::id);
    }

    fn names(&self, id: SegmentId, kind: FileKind) -> bool {
        // Indexes of a longer life of the segment, which the manifest knows nothing of, are not.
        let is_derived = FileKind::DERIVED.contains(&kind);
        self.segments.contains(&id) && !(is_derived && self.growing == Some(id))
    }
}

/// Removes the directories and files of our naming that are not in `named`: what was written after the
/// checkpoint, or belonged to a deleted topic. Names that are not ours are left alone. Returns what was
/// removed, relative to the directory of partitions, sorted.
///
/// `named` is what either checkpoint names: the one that was read and the one before
/// ([`crate::read_previous`]). Partitions of the latter alone are to be given to
/// [`crate::Retired::retire`].
///
/// Only to be called at a start, after a valid checkpoint was read; the store's mark has shown that
/// the directory is this cluster's.
pub fn remove_unreferenced(
    store: &LogStore,
    named: &BTreeMap<TopicPartitionId, Named>,
) -> Result<Vec<String>, LogError> {
    let disk = store.disk();
    let root = store.root();
    let entries = disk.list(root).map_err(|e| LogError::io(root, e))?;
    let dirs: Vec<(TopicPartitionId, String)> = (entries.into_iter())
        .filter(|entry| entry.is_dir)
        .filter_map(|entry| Some((parse_partition_dir(&entry.name)?, entry.name)))
        .collect();
    let nothing = Named::default();
    let removed = in_parallel(disk.calls_at_once(), dirs, |(partition, name)| {
        let sweep = Sweep {
            disk: &**disk,
            named: named.get(&partition).unwrap_or(&nothing),
        };
        let mut removed = Vec::new();
        sweep.dir(&root.join(&name), &name, 0, &mut removed)?;
        Ok(removed)
    });
    let removed = removed.into_iter().collect::<Result<Vec<_>, LogError>>()?;
    let removed = removed.concat();
    if !removed.is_empty() {
        disk.sync_dir(root).map_err(|e| LogError::io(root, e))?;
    }
    Ok(removed)
}

/// What is named of one partition.
struct Sweep<'a> {
    disk: &'a dyn Disk,
    named: &'a Named,
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
                (Some((base_offset, kind)), false) => {
                    let id = SegmentId {
                        base_offset,
                        generation,
                    };
                    let unnamed = !self.named.names(id, kind);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_whoever_made_them() {
        let odd = |n: usize| match n % 2 {
            1 => Ok(n * 10),
            _ => Err(n),
        };
        for (threads, items) in [(1, 0), (1, 300), (4, 0), (4, 1), (4, 127), (4, 301)] {
            let done = in_parallel(threads, (0..items).collect(), odd);
            let expected: Vec<_> = (0..items).map(odd).collect();
            assert_eq!(done, expected, "{threads} threads, {items} items");
        }
        // The first error by order, not by time.
        let done = in_parallel(4, (1..300).collect(), odd);
        assert_eq!(done.into_iter().collect::<Result<Vec<_>, _>>(), Err(2));
    }

    #[test]
    #[should_panic(expected = "item 200")]
    fn a_panic_of_any_thread_is_one_of_the_caller() {
        in_parallel(4, (0..300).collect(), |n: usize| {
            assert!(n != 200, "item {n}");
        });
    }
}
