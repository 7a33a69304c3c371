use tidemark_record_batch::BatchHeader;
use tidemark_types::{CoordinatorEpoch, ProducerEpoch};

/// Batches remembered per producer: a client has at most five unanswered requests per connection
/// (`max.in.flight.requests.per.connection`), and may repeat any of them.
pub const WINDOW_BATCHES: usize = 5;

/// A batch that a producer may send again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchMeta {
    pub base_sequence: i32,
    /// Records less one, in sequences as in offsets.
    pub last_offset_delta: i32,
    pub base_offset: i64,
    /// The batch's highest timestamp (ms), under LogAppendTime the time it was appended at: what
    /// Kafka answers to a repeat, whatever the timestamp type.
    pub log_append_time: i64,
}

impl BatchMeta {
    pub fn of(header: &BatchHeader) -> BatchMeta {
        BatchMeta {
            base_sequence: header.base_sequence,
            last_offset_delta: header.last_offset_delta,
            base_offset: header.base_offset,
            log_append_time: header.max_timestamp,
        }
    }

    /// Sequences run 0 to `i32::MAX` and start again at 0.
    pub fn last_sequence(&self) -> i32 {
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        (last & i64::from(i32::MAX)) as i32
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }
}

/// What a partition knows of one producer.
///
/// Kept small, as there may be a hundred thousand of them: [`NO_OFFSET`] instead of an `Option`,
/// the window in place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducerEntry {
    /// Oldest first; `window_len` of them are set.
    window: [BatchMeta; WINDOW_BATCHES],
    txn_first_offset: i64,
    last_wall_ms: i64,
    coordinator_epoch: CoordinatorEpoch,
    epoch: ProducerEpoch,
    window_len: u8,
}

const NO_OFFSET: i64 = -1;

impl ProducerEntry {
    /// A producer at `epoch` that has written nothing yet.
    pub(crate) fn new(epoch: ProducerEpoch, wall_ms: i64) -> ProducerEntry {
        ProducerEntry {
            window: [BatchMeta::default(); WINDOW_BATCHES],
            txn_first_offset: NO_OFFSET,
            last_wall_ms: wall_ms,
            coordinator_epoch: CoordinatorEpoch(-1),
            epoch,
            window_len: 0,
        }
    }

    /// The highest epoch that wrote here, data or marker.
    pub fn epoch(&self) -> ProducerEpoch {
        self.epoch
    }

    /// Of the last marker, -1 before the first.
    pub fn coordinator_epoch(&self) -> CoordinatorEpoch {
        self.coordinator_epoch
    }

    /// First offset of this producer's open transaction.
    pub fn current_txn_first_offset(&self) -> Option<i64> {
        (self.txn_first_offset != NO_OFFSET).then_some(self.txn_first_offset)
    }

    /// The broker's wall clock at the last batch or marker. Kafka counts expiry from the client's
    /// timestamps, and so forgets at once a producer whose clock is in the past.
    pub fn last_wall_ms(&self) -> i64 {
        self.last_wall_ms
    }

    /// The last batches of this epoch, oldest first.
    pub fn window(&self) -> &[BatchMeta] {
        &self.window[..usize::from(self.window_len)]
    }

    /// Sequence of the last record of this epoch, -1 if there is none.
    pub fn last_sequence(&self) -> i32 {
        self.window().last().map_or(-1, BatchMeta::last_sequence)
    }

    /// The sequence that comes next in this epoch.
    pub(crate) fn next_sequence(&self) -> i32 {
        // -1 + 1 in an epoch without a batch; 0 again after i32::MAX.
        self.last_sequence().wrapping_add(1).max(0)
    }

    /// The batch of exactly these sequences, if it is one of the last five.
    pub(crate) fn duplicate_of(&self, header: &BatchHeader) -> Option<&BatchMeta> {
        if header.producer_epoch != self.epoch {
            return None;
        }
        self.window().iter().find(|batch| {
            batch.base_sequence == header.base_sequence
                && batch.last_offset_delta == header.last_offset_delta
        })
    }

    /// Takes over another epoch: sequences start again, what the old one sent cannot come back.
    pub(crate) fn set_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.window = [BatchMeta::default(); WINDOW_BATCHES];
            self.window_len = 0;
        }
    }

    pub(crate) fn push(&mut self, batch: BatchMeta) {
        let len = usize::from(self.window_len);
        if len == WINDOW_BATCHES {
            self.window.rotate_left(1);
            self.window[WINDOW_BATCHES - 1] = batch;
        } else {
            self.window[len] = batch;
            self.window_len += 1;
        }
    }

    pub(crate) fn begin_txn(&mut self, first_offset: i64) {
        assert!(first_offset >= 0, "offset {first_offset} in a log");
        self.txn_first_offset = first_offset;
    }

    pub(crate) fn end_txn(&mut self) {
        self.txn_first_offset = NO_OFFSET;
    }

    pub(crate) fn set_coordinator_epoch(&mut self, coordinator_epoch: CoordinatorEpoch) {
        self.coordinator_epoch = coordinator_epoch;
    }

    /// Time does not go back for expiry, also when the wall clock does.
    pub(crate) fn touch(&mut self, wall_ms: i64) {
        self.last_wall_ms = self.last_wall_ms.max(wall_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With its place in the map (a pointer and an id, of which half may be spare) and the
    /// allocator's share below 200 bytes.
    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<BatchMeta>(), 24);
        assert_eq!(size_of::<ProducerEntry>(), 144);
    }

    #[test]
    fn the_sequence_after_the_last_is_zero() {
        let mut entry = ProducerEntry::new(ProducerEpoch(0), 0);
        assert_eq!((entry.last_sequence(), entry.next_sequence()), (-1, 0));
        entry.push(BatchMeta {
            base_sequence: i32::MAX - 1,
            last_offset_delta: 1,
            ..BatchMeta::default()
        });
        assert_eq!(
            (entry.last_sequence(), entry.next_sequence()),
            (i32::MAX, 0)
        );
        entry.push(BatchMeta {
            base_sequence: i32::MAX,
            last_offset_delta: 2,
            ..BatchMeta::default()
        });
        assert_eq!((entry.last_sequence(), entry.next_sequence()), (1, 2));
    }
}
