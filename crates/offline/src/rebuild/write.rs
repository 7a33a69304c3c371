//! How do checkpoint, journal and files come to be?
//!
//! New ones are written beside the old ones, synced, and only then put in their places by renames.
//! A crash in between leaves a journal and checkpoints that do not fit each other, which every start
//! refuses; asking again for the rebuild ends it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tidemark_broker::{OWNER_BLOCK, OWNER_BLOCK_FORMAT};
use tidemark_config::Settings;
use tidemark_disk::{Disk, OsDisk};
use tidemark_histcheck::Identity;
use tidemark_journal::{
    After, AppendRequest, Journal, JournalEvent, JournalOptions, begin_at, recover,
};
use tidemark_owner::{Command, EndTxn, Now, Owner, Step, Token};
use tidemark_partition_log::{
    Block, BlockKind, CheckpointHeader, CheckpointWriter, LeaderEpochs, SegmentManifest,
    SegmentState,
};
use tidemark_types::{JournalIndex, MonoTime, Tick, TopicPartitionId};

use super::scan::{Found, Kept};
use super::settle::Unfinished;

const ASIDE: &str = "before-rebuild-";
const NEW_JOURNAL: &str = "journal.rebuilt";
/// What `journal.slot.bytes` may be.
const SLOT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;
const NEW_CHECKPOINTS: &str = "checkpoints.rebuilt";

/// Writes all of it; the name of the directory that holds what was moved aside.
pub(super) fn write(
    dir: &Path,
    identity: &Identity,
    settings: &Settings,
    found: Found,
    unfinished: Unfinished,
) -> Result<String, String> {
    let mut writing = Writing {
        dir,
        aside: free_name(dir),
        directory_id: identity.directory_id,
        settings,
    };
    writing.run(found, &unfinished)
}

struct Writing<'a> {
    dir: &'a Path,
    aside: String,
    directory_id: [u8; 16],
    settings: &'a Settings,
}

fn free_name(dir: &Path) -> String {
    let mut names = (1..).map(|n| format!("{ASIDE}{n}"));
    let free = names.find(|name| !dir.join(name).exists());
    free.expect("numbers do not end")
}

fn told<T>(done: io::Result<T>, path: &Path) -> Result<T, String> {
    done.map_err(|e| format!("{}: {e}; ask for the rebuild again", path.display()))
}

fn sync_dir(dir: &Path) -> Result<(), String> {
    told(File::open(dir).and_then(|dir| dir.sync_all()), dir)
}

impl Writing<'_> {
    fn run(&mut self, found: Found, unfinished: &Unfinished) -> Result<String, String> {
        let Found {
            mut owner,
            kept,
            highest_tick,
            highest_index,
            highest_epoch,
            next_generation,
            aside,
            ..
        } = found;
        let aside_dir = self.dir.join(&self.aside);
        told(fs::create_dir(&aside_dir), &aside_dir)?;
        for left in [NEW_JOURNAL, NEW_CHECKPOINTS] {
            // Of a rebuild that did not end.
            if self.dir.join(left).exists() {
                self.move_aside(left)?;
            }
        }
        self.segments(&kept)?;
        let header = CheckpointHeader {
            generation: next_generation,
            replay_from: JournalIndex(highest_index + 1),
            highest_tick: Tick(highest_tick),
            cluster_id: self.directory_id,
        };
        self.checkpoint(header, &owner, kept)?;
        self.journal(&mut owner, header, highest_epoch, unfinished)?;
        for file in aside {
            // Journal and checkpoints go last, below.
            if file != "journal" && file != "checkpoints" {
                self.move_aside(&file)?;
            }
        }
        for (old, new) in [("journal", NEW_JOURNAL), ("checkpoints", NEW_CHECKPOINTS)] {
            if self.dir.join(old).exists() {
                self.move_aside(old)?;
            }
            let (from, to) = (self.dir.join(new), self.dir.join(old));
            told(fs::rename(&from, &to), &from)?;
            sync_dir(self.dir)?;
        }
        Ok(self.aside.clone())
    }

    fn aside_path(&self, file: &str) -> Result<PathBuf, String> {
        let to = self.dir.join(&self.aside).join(file);
        let parent = to.parent().unwrap_or(self.dir);
        told(fs::create_dir_all(parent), parent)?;
        Ok(to)
    }

    fn move_aside(&self, file: &str) -> Result<(), String> {
        let (from, to) = (self.dir.join(file), self.aside_path(file)?);
        told(fs::rename(&from, &to), &from)?;
        sync_dir(from.parent().unwrap_or(self.dir))
    }

    /// Makes what is kept durable; a copy of what a start will cut is put aside.
    fn segments(
        &self,
        kept: &std::collections::BTreeMap<TopicPartitionId, Kept>,
    ) -> Result<(), String> {
        for segment in kept.values().flat_map(|kept| &kept.segments) {
            let (log, tick) = (segment.names.log(), segment.names.tick_index());
            if segment.is_cut || segment.new_ticks.is_some() {
                for file in [&log, &tick] {
                    let from = self.dir.join(file);
                    if from.exists() {
                        let to = self.aside_path(file)?;
                        told(fs::copy(&from, &to), &from)?;
                    }
                }
            }
            let path = self.dir.join(&tick);
            if let Some(ticks) = &segment.new_ticks {
                let new = path.with_extension("tickindex.tmp");
                told(fs::write(&new, ticks), &new)?;
                told(File::open(&new).and_then(|file| file.sync_all()), &new)?;
                told(fs::rename(&new, &path), &new)?;
            }
            for file in [&log, &tick] {
                let path = self.dir.join(file);
                told(File::open(&path).and_then(|file| file.sync_all()), &path)?;
            }
            sync_dir(path.parent().unwrap_or(self.dir))?;
        }
        Ok(())
    }

    fn checkpoint(
        &self,
        header: CheckpointHeader,
        owner: &Owner,
        mut kept: std::collections::BTreeMap<TopicPartitionId, Kept>,
    ) -> Result<(), String> {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let dir = self.dir.join(NEW_CHECKPOINTS);
        let mut writer =
            CheckpointWriter::begin(disk, &dir, header, None).map_err(|e| e.to_string())?;
        for id in owner.partition_ids() {
            let kept = kept.remove(&id).unwrap_or_default();
            let (Some(partition), Some((stamp, state))) =
                (owner.partition(id), owner.encode_block(id))
            else {
                continue;
            };
            let manifest = manifest(partition, kept)?;
            let blocks = [
                (
                    BlockKind::SEGMENTS,
                    SegmentManifest::FORMAT_VERSION,
                    Bytes::from(manifest.encode()),
                ),
                (OWNER_BLOCK, OWNER_BLOCK_FORMAT, state),
            ];
            for (kind, format_version, payload) in blocks {
                let block = Block {
                    kind,
                    format_version,
                    partition: id,
                    stamp,
                    payload,
                };
                writer.block(&block).map_err(|e| e.to_string())?;
            }
        }
        writer.finish().map_err(|e| e.to_string())?;
        Ok(())
    }

    /// As large as the slots that there were: records were, and will be, as large as they allow. The
    /// setting of the broker is not known here, and applies as slots are recycled.
    fn slot_bytes(&self) -> u64 {
        let default = self.settings.journal_slot_bytes;
        let entries = fs::read_dir(self.dir.join("journal")).into_iter().flatten();
        let sizes = entries.flatten().filter_map(|entry| {
            let name = entry.file_name();
            let is_slot = Path::new(&name).extension().is_some_and(|e| e == "slot");
            let meta = entry.metadata().ok().filter(|_| is_slot)?;
            Some(meta.len())
        });
        let largest = sizes.filter(|len| SLOT_BYTES.contains(len)).max();
        largest.unwrap_or(default)
    }

    /// A journal that goes on where the lost one ended, with the ends of what was left open.
    fn journal(
        &self,
        owner: &mut Owner,
        header: CheckpointHeader,
        epoch: u32,
        unfinished: &Unfinished,
    ) -> Result<(), String> {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let options = JournalOptions {
            slot_bytes: self.slot_bytes(),
            budget_bytes: self.settings.journal_budget_bytes,
            ..JournalOptions::new(self.dir.join(NEW_JOURNAL), self.directory_id)
        };
        let (first, tick) = (header.replay_from, header.highest_tick);
        begin_at(&*disk, &options, first, tick, epoch).map_err(|e| e.to_string())?;
        let recovery = recover(disk, options, first, &mut |_| Ok(())).map_err(|e| e.to_string())?;
        let epoch = i32::try_from(recovery.epoch).unwrap_or(i32::MAX);
        let mut after = After {
            epoch: recovery.epoch,
            tick: recovery.highest_tick,
        };
        let (failed, failures) = std::sync::mpsc::channel();
        let journal = recovery.start(Box::new(move |event| {
            if let JournalEvent::Failed { message } = event {
                let _nobody_asks_any_more = failed.send(message);
            }
        }));
        let limit = usize::try_from(journal.max_record_bytes()).unwrap_or(usize::MAX);
        owner.set_max_record_bytes(limit);
        let mut uuid = || [0; 16];
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ms = since.map_or(0, |since| since.as_millis() as i64);
        let mut now = Now {
            mono: MonoTime::ZERO,
            wall_ms,
            tick: Tick::from_wall_ms(wall_ms),
            uuid: &mut uuid,
        };
        let mut append = |step: Step| {
            if let Some(record) = step.record {
                let request = AppendRequest {
                    index: record.index,
                    tick: record.tick,
                    wall_ms: record.wall_ms,
                    pieces: record.encode(),
                    must_sync: true,
                    unsettled: false,
                };
                journal.append(after, request);
                after.tick = record.tick;
            }
        };
        append(owner.begin_journal_epoch(epoch, 0, &now));
        for piece in unfinished.markers.chunks(1000) {
            append(owner.settle(piece, &now));
        }
        owner.arm_after_replay(&now);
        for (meta, commit) in &unfinished.at_coordinator {
            let end = Command::EndTxn(EndTxn {
                transactional_id: meta.transactional_id.clone(),
                producer_id: meta.producer_id,
                producer_epoch: meta.epoch,
                committed: *commit,
                dialect: meta.dialect,
            });
            append(owner.step(Token(1), end, &mut now));
        }
        journal.shutdown();
        match failures.try_recv() {
            Ok(message) => Err(message),
            Err(_) => Ok(()),
        }
    }
}

/// What the checkpoint says of a partition's files.
fn manifest(partition: &tidemark_owner::Partition, kept: Kept) -> Result<SegmentManifest, String> {
    let id = partition.id;
    let epochs = LeaderEpochs::from_entries(partition.epochs.clone());
    let mut segments: Vec<SegmentState> = (kept.segments.iter())
        .map(|segment| SegmentState {
            base_offset: segment.whole.base_offset,
            generation: segment.generation,
            next_offset: segment.whole.next_offset,
            log_bytes: segment.whole.log_bytes,
            entries: segment.whole.entries,
            max_timestamp: segment.whole.max_timestamp,
            last_tick: Tick(segment.whole.last_tick),
            log_crc: segment.whole.log_crc,
            // Built anew, whatever lies there.
            indexed: false,
        })
        .collect();
    let ends_at = segments.last().map(|segment| segment.next_offset);
    if ends_at != Some(partition.log_end_offset) {
        // The log start is behind all of them.
        segments.clear();
    }
    let mut aborted = kept.aborted;
    aborted.remove_below(partition.log_start_offset);
    Ok(SegmentManifest {
        log_start_offset: partition.log_start_offset,
        synced_end_offset: partition.log_end_offset,
        end_offset: partition.log_end_offset,
        first_needed_index: None,
        segments,
        epochs: epochs.ok_or_else(|| format!("{id}: leader epochs do not rise"))?,
        aborted,
        compacted: Default::default(),
        tail: Vec::new(),
    })
}
