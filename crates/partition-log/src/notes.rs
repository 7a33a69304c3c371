//! What is known of batches without reading them: from the tail, and from `.tickindex` files.

use tidemark_types::Tick;

use crate::segment::{SegmentReader, SegmentState};
use crate::{BatchMeta, LogError, PartitionLog, TickEntry};

/// A batch of the log, without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchNote {
    pub base_offset: i64,
    pub last_offset: i64,
    pub tick: Tick,
    pub size_bytes: u32,
    pub meta: BatchMeta,
}

impl BatchNote {
    fn of_entry(entry: &TickEntry) -> BatchNote {
        BatchNote {
            base_offset: entry.base_offset,
            last_offset: entry.last_offset,
            tick: entry.tick,
            size_bytes: entry.size_bytes,
            meta: BatchMeta {
                base_timestamp: entry.base_timestamp,
                max_timestamp: entry.max_timestamp,
                producer_id: entry.producer_id,
                producer_epoch: entry.producer_epoch,
                attributes: entry.attributes,
                leader_epoch: tidemark_types::LeaderEpoch::NONE,
                last_stable_offset: entry.last_stable_offset,
                control: entry.control,
            },
        }
    }
}

impl PartitionLog {
    /// Calls `each` with every batch that ends at or after `from` and begins below `upper`, in order,
    /// until it says false. It need not begin with the batch that contains `from`: compaction and
    /// retention take batches away. The leader epoch of a batch that is in a segment is not told.
    ///
    /// Errors: `Damaged`, I/O errors, `Closed`.
    pub fn each_batch(
        &self,
        from: i64,
        upper: i64,
        mut each: impl FnMut(&BatchNote) -> bool,
    ) -> Result<(), LogError> {
        let mut next = from;
        let mut again = true;
        loop {
            match self.each_once(&mut next, upper, &mut each) {
                // A segment was replaced between the look and the read: go on behind what was told.
                Err(error) if error.is_not_found() && again => again = false,
                done => return done,
            }
        }
    }

    fn each_once(
        &self,
        next: &mut i64,
        upper: i64,
        each: &mut impl FnMut(&BatchNote) -> bool,
    ) -> Result<(), LogError> {
        let (segments, tail) = self.batches_from(*next, upper)?;
        for state in segments {
            let reader = SegmentReader::open(&self.store.files, self.dir(), state)?;
            let from = *next;
            let Some((first, _)) = reader.search(|entry| entry.last_offset < from)? else {
                continue;
            };
            let mut ended = false;
            reader.scan(first, |_, entry| {
                ended = entry.base_offset >= upper || !each(&BatchNote::of_entry(entry));
                *next = entry.last_offset + 1;
                !ended
            })?;
            if ended {
                return Ok(());
            }
        }
        for note in &tail {
            if !each(note) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn batches_from(
        &self,
        from: i64,
        upper: i64,
    ) -> Result<(Vec<SegmentState>, Vec<BatchNote>), LogError> {
        let inner = self.lock();
        if inner.closed {
            return Err(LogError::Closed);
        }
        let first = inner
            .segments
            .partition_point(|slot| slot.written.next_offset <= from);
        let segments = inner.segments[first..].iter().map(|slot| slot.written);
        let segments = segments.filter(|state| state.base_offset < upper).collect();
        let first = inner.tail.partition_point(|batch| batch.last_offset < from);
        let tail = inner.tail.range(first..);
        let tail = tail
            .take_while(|batch| batch.base_offset < upper)
            .map(|batch| BatchNote {
                base_offset: batch.base_offset,
                last_offset: batch.last_offset,
                tick: batch.tick,
                size_bytes: batch.bytes.len() as u32,
                meta: batch.meta,
            })
            .collect();
        Ok((segments, tail))
    }
}
