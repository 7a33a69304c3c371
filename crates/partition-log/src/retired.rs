//! What is to be removed once neither checkpoint names it.

use parking_lot::Mutex;
use tidemark_types::TopicPartitionId;

use crate::{LogError, LogStore};

/// Directories of deleted partitions that wait for their removal. Two checkpoints are kept, so a
/// directory goes when two were completed whose blocks were taken after its partition was deleted.
///
/// Nothing here needs to be durable: after a restart, what the checkpoint does not name is removed
/// by [`crate::remove_unreferenced`].
#[derive(Debug, Default)]
pub struct Retired {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Generation of the checkpoint whose blocks were last begun to be taken.
    begun: u64,
    /// With the first generation that cannot name it.
    partitions: Vec<(u64, TopicPartitionId)>,
}

impl Retired {
    /// A partition was deleted, its log closed and forgotten by write-behind.
    pub fn retire(&self, partition: TopicPartitionId) {
        let mut state = self.state.lock();
        let clean_from = state.begun + 1;
        state.partitions.push((clean_from, partition));
    }

    /// The blocks of checkpoint `generation` begin to be taken.
    pub fn checkpoint_begun(&self, generation: u64) {
        let mut state = self.state.lock();
        state.begun = state.begun.max(generation);
    }

    /// Checkpoint `generation` is durable, and `previous` is the other one that is kept. Removes
    /// what neither names and returns how many partitions that were.
    ///
    /// Errors: the first that removing met; what was not removed is tried again the next time.
    pub fn checkpoint_completed(
        &self,
        store: &LogStore,
        generation: u64,
        previous: u64,
    ) -> Result<usize, LogError> {
        let oldest = generation.min(previous);
        let due: Vec<(u64, TopicPartitionId)> = {
            let mut state = self.state.lock();
            let (due, waiting) = std::mem::take(&mut state.partitions)
                .into_iter()
                .partition(|(clean_from, _)| *clean_from <= oldest);
            state.partitions = waiting;
            due
        };
        let mut removed = 0;
        let mut failed = None;
        for (clean_from, partition) in due {
            match store.remove_partition_dir(partition) {
                Ok(()) => removed += 1,
                Err(error) => {
                    self.state.lock().partitions.push((clean_from, partition));
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    /// Partitions that still wait.
    pub fn len(&self) -> usize {
        self.state.lock().partitions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
