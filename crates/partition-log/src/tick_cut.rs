//! Where a tick cuts the log: what was written before it and what was not.

use tidemark_types::Tick;

use crate::segment::{SegmentReader, SegmentState};
use crate::{LogError, PartitionLog};

/// What the newest batch below a tick left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TickCut {
    /// The offset after it: the first record at or after the tick has this offset, or the next one
    /// to be written.
    pub end_offset: i64,
    /// The last stable offset after it: as it stood until the tick.
    pub last_stable_offset: i64,
}

/// Where the newest batch below a tick is.
enum Place {
    Tail(TickCut),
    /// In the first segment if it has a batch below the tick, else the last one of the second.
    Segments(Option<SegmentState>, Option<SegmentState>),
}

impl PartitionLog {
    /// The newest batch whose record has a tick below `tick`; `None` when none is held. Batches that
    /// are not published count: the caller asks for ticks up to the published one, or the next.
    ///
    /// The segments' part is two binary searches: over the segments, and over one `.tickindex`.
    ///
    /// Errors: `Damaged`, I/O errors, `Closed`.
    pub fn cut_at(&self, tick: Tick) -> Result<Option<TickCut>, LogError> {
        match self.cut_once(tick) {
            // A segment was replaced between the look and the read.
            Err(error) if error.is_not_found() => self.cut_once(tick),
            done => done,
        }
    }

    fn cut_once(&self, tick: Tick) -> Result<Option<TickCut>, LogError> {
        let (last, before) = match self.place_of(tick)? {
            Place::Tail(cut) => return Ok(Some(cut)),
            Place::Segments(last, before) => (last, before),
        };
        if let Some(state) = last
            && let Some(cut) = self.last_below(state, tick)?
        {
            return Ok(Some(cut));
        }
        match before {
            Some(state) => self.last_below(state, tick),
            None => Ok(None),
        }
    }

    fn place_of(&self, tick: Tick) -> Result<Place, LogError> {
        let inner = self.lock();
        if inner.closed {
            return Err(LogError::Closed);
        }
        let below = inner.tail.partition_point(|batch| batch.tick < tick);
        if let Some(at) = below.checked_sub(1) {
            let batch = &inner.tail[at];
            return Ok(Place::Tail(TickCut {
                end_offset: batch.last_offset + 1,
                last_stable_offset: batch.meta.last_stable_offset,
            }));
        }
        let whole = inner
            .segments
            .partition_point(|slot| slot.written.last_tick < tick);
        let state = |at: usize| inner.segments.get(at).map(|slot| slot.written);
        Ok(Place::Segments(
            state(whole),
            whole.checked_sub(1).and_then(state),
        ))
    }

    fn last_below(&self, state: SegmentState, tick: Tick) -> Result<Option<TickCut>, LogError> {
        let reader = SegmentReader::open(&self.store.files, self.dir(), state)?;
        let below = match state.last_tick < tick {
            true => state.entries,
            false => reader
                .search(|entry| entry.tick < tick)?
                .map_or(state.entries, |(index, _)| index),
        };
        let Some(at) = below.checked_sub(1) else {
            return Ok(None);
        };
        let entry = reader.entry(at)?;
        Ok(Some(TickCut {
            end_offset: entry.last_offset + 1,
            last_stable_offset: entry.last_stable_offset,
        }))
    }
}
