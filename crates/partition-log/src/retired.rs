//! What is to be removed once neither checkpoint names it.

use std::path::PathBuf;

use parking_lot::Mutex;
use tidemark_types::TopicPartitionId;

use crate::{LogError, LogStore, SegmentId};

/// Directories of deleted partitions, and files of segments that were given up, which wait for their
/// removal. Two checkpoints are kept, so they go when two were completed whose blocks were taken
/// after they were given up.
///
/// Nothing here needs to be durable: after a restart, what neither checkpoint names is removed by
/// [`crate::remove_unreferenced`], also what a power cut brought back. So a crash at any step leaves
/// files too many and never one too few.
#[derive(Debug, Default)]
pub struct Retired {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Generation of the checkpoint whose blocks were last begun to be taken.
    begun: u64,
    /// With the first generation that cannot name it.
    waiting: Vec<(u64, Given)>,
}

/// What was given up.
#[derive(Debug)]
enum Given {
    Partition(TopicPartitionId),
    File(PathBuf),
}

impl Retired {
    /// A partition was deleted, its log closed and forgotten by write-behind.
    pub fn retire(&self, partition: TopicPartitionId) {
        self.give([Given::Partition(partition)]);
    }

    /// No log is read from these files any more, and no manifest that is taken from now on names
    /// their segments: that must be so before the call. They go when the checkpoints that name them
    /// are gone. A file that does not exist counts as removed.
    pub fn retire_files(&self, paths: impl IntoIterator<Item = PathBuf>) {
        self.give(paths.into_iter().map(Given::File));
    }

    /// [`Retired::retire_files`] for all files of a segment.
    pub fn retire_segment(&self, store: &LogStore, partition: TopicPartitionId, id: SegmentId) {
        self.retire_files(id.files(&store.partition_dir(partition)));
    }

    fn give(&self, given: impl IntoIterator<Item = Given>) {
        let mut state = self.state.lock();
        let clean_from = state.begun + 1;
        let waiting = given.into_iter().map(|given| (clean_from, given));
        state.waiting.extend(waiting);
    }

    /// The blocks of checkpoint `generation` begin to be taken.
    pub fn checkpoint_begun(&self, generation: u64) {
        let mut state = self.state.lock();
        state.begun = state.begun.max(generation);
    }

    /// Checkpoint `generation` is durable, and `previous` is the other one that is kept. Removes
    /// what neither names and returns how many partitions and files that were.
    ///
    /// Errors: the first that removing met; what was not removed is tried again the next time.
    pub fn checkpoint_completed(
        &self,
        store: &LogStore,
        generation: u64,
        previous: u64,
    ) -> Result<usize, LogError> {
        let oldest = generation.min(previous);
        let due: Vec<(u64, Given)> = {
            let mut state = self.state.lock();
            let (due, waiting) = std::mem::take(&mut state.waiting)
                .into_iter()
                .partition(|(clean_from, _)| *clean_from <= oldest);
            state.waiting = waiting;
            due
        };
        let mut removed = 0;
        let mut failed = None;
        for (clean_from, given) in due {
            let done = match &given {
                Given::Partition(partition) => store.remove_partition_dir(*partition),
                Given::File(path) => store.remove_file(path),
            };
            match done {
                Ok(()) => removed += 1,
                Err(error) => {
                    self.state.lock().waiting.push((clean_from, given));
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    /// Partitions and files that still wait.
    pub fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
